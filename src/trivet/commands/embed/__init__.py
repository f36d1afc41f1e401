"""`trivet embed`."""
