"""Label noise put into labels that are known to be right, to see what it does."""

from trivet.label_noise.injection import (
    Noisy,
    boundary,
    by_transition,
    pair_flip,
    symmetric,
    topline,
    within_superclass,
)

__all__ = ["Noisy", "boundary", "by_transition", "pair_flip", "symmetric", "topline", "within_superclass"]
