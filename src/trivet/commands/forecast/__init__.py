"""`trivet forecast`."""
