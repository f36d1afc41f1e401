"""Label noise: injected, estimated, found item by item, and how much of it a strategy tolerates."""

from trivet.label_noise.duplicates import Duplicates, find_duplicates
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
from trivet.label_noise.outliers import find_outliers
from trivet.label_noise.pair_suspects import PairSuspects, find_pair_suspects
from trivet.label_noise.picks import loss_picks, unpicked
from trivet.label_noise.skew import Estimate, PickCounts, SkewEstimate, count_picks, estimate_skew
from trivet.label_noise.suspects import Suspects, find_suspects
from trivet.label_noise.tag_suspects import TagSuspects, find_tag_suspects
from trivet.label_noise.tolerance import ImpliedTolerance, Tolerance, implied_tolerance, strategy_tolerance

__all__ = [
    "Duplicates",
    "Estimate",
    "ImpliedTolerance",
    "NoiseEstimate",
    "Noisy",
    "PairSuspects",
    "PickCounts",
    "SkewEstimate",
    "Suspects",
    "TagSuspects",
    "Tolerance",
    "boundary",
    "by_transition",
    "count_picks",
    "estimate_noise",
    "estimate_skew",
    "find_duplicates",
    "find_outliers",
    "find_pair_suspects",
    "find_suspects",
    "find_tag_suspects",
    "implied_tolerance",
    "loss_picks",
    "pair_flip",
    "strategy_tolerance",
    "symmetric",
    "topline",
    "unpicked",
    "within_superclass",
]
