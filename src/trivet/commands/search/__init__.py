"""`trivet search`."""
