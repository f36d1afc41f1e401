"""`trivet leaks`."""
