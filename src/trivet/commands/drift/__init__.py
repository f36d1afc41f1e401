"""`trivet drift`."""
