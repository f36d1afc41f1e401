"""Xuan et al.: Extreme triplet learning, effectively optimizing easy positives and hard negatives (2020)."""
