"""`trivet cache`: what Trivet keeps to be faster the next time."""
