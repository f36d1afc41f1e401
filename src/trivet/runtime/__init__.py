"""Foundations of every other package: progress, terminal, signals, safe reading of files, arrays, optional
libraries."""
