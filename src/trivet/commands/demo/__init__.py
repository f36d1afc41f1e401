"""`trivet demo`."""
