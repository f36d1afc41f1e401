"""Label noise: put into labels that are known to be right, estimated where they are not, and found item by item."""

from trivet.label_noise.estimate import NoiseEstimate, estimate_noise
from trivet.label_noise.injection import (
    Noisy,
    boundary,
    by_transition,
    pair_flip,
    symmetric,
    topline,
    within_superclass,
)
from trivet.label_noise.suspects import Suspects, find_suspects

__all__ = [
    "NoiseEstimate",
    "Noisy",
    "Suspects",
    "boundary",
    "by_transition",
    "estimate_noise",
    "find_suspects",
    "pair_flip",
    "symmetric",
    "topline",
    "within_superclass",
]
