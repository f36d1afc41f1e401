"""`trivet data`."""
