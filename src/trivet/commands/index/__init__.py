"""`trivet index`."""
