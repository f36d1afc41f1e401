"""The version of Trivet."""

__version__ = "0.1.0"
