"""`trivet sweep`."""
