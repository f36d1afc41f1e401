"""`trivet compare`."""
