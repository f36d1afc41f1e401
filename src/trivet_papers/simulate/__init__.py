"""`trivet simulate`: the papers' statements checked, and their figures."""
