"""`trivet init`."""
