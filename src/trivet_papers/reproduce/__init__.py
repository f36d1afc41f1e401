"""`trivet reproduce`: the papers' experiments run again, and their claims judged."""
