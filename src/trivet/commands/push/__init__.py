"""`trivet push`."""
