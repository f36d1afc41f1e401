"""What the papers prove, simulate or plot, as functions."""
