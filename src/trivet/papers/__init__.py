"""The papers' claims, one module per paper: how each is measured, and when it holds."""
