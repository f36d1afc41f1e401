"""Measures of collapse: how much of the structure inside the trained classes an embedding keeps."""

from trivet.collapse.spread import fine_coarse_index

__all__ = ["fine_coarse_index"]
