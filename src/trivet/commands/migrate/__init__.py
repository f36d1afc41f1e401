"""`trivet migrate`."""
