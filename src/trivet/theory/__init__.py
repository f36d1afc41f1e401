"""What the papers prove, simulate or plot, as functions: one module for each subject."""

from trivet.theory import dynamics, isometry, noise, risk

__all__ = ["dynamics", "isometry", "noise", "risk"]
