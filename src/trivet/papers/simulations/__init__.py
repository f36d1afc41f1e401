"""The papers' figures as numbers and pictures; `trivet simulate`."""
