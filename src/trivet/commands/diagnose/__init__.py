"""`trivet diagnose`."""
