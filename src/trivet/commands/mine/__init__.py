"""`trivet mine`."""
