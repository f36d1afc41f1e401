"""`trivet train`."""
