"""`trivet evaluate`."""
