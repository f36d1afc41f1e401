"""`trivet pull`."""
