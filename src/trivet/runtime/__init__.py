"""What every other package may use: progress, terminal, signals, safe reading of files, arrays, optional libraries."""
