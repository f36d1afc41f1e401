"""The nearest items of a set: indexes, exact and approximate."""
