"""`trivet settings`."""
