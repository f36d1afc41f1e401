"""Trivet in the training loops of other libraries."""
