"""`trivet audit`."""
