"""`trivet export`."""
