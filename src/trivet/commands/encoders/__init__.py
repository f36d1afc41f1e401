"""`trivet encoders`."""
