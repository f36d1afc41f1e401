"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

from typing import TYPE_CHECKING, Any

from trivet.losses import (
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NCATripletLoss,
    NPairLoss,
    ProxyNCALoss,
    SecondOrderTripletLoss,
    SelectivelyContrastiveLoss,
    TripletLoss,
    UnhingedMarginLoss,
    UnhingedTripletLoss,
)
from trivet.mining import (
    AllNegatives,
    AllPositives,
    DistanceWeighted,
    EasyNegative,
    EasyPositive,
    HardNegative,
    HardPositive,
    MultiSimilarityNegatives,
    MultiSimilarityPositives,
    RandomNegative,
    RandomPositive,
    SemihardHardestNegative,
    SemihardNegative,
    SemihardPositive,
    Triplets,
    ViolatingNegative,
    mine,
)
from trivet.rows import RowLoss, Rows, RowSum, RowTerms, StepRecord

if TYPE_CHECKING:
    from trivet.collapse import CollapseMonitor, diagnose

__version__ = "0.1.0"

__all__ = [
    "AllNegatives",
    "AllPositives",
    "CollapseMonitor",
    "ContrastiveLoss",
    "DistanceWeighted",
    "EasyNegative",
    "EasyPositive",
    "HardNegative",
    "HardPositive",
    "MarginLoss",
    "MultiSimilarityLoss",
    "MultiSimilarityNegatives",
    "MultiSimilarityPositives",
    "NCATripletLoss",
    "NPairLoss",
    "ProxyNCALoss",
    "RandomNegative",
    "RandomPositive",
    "RowLoss",
    "RowSum",
    "RowTerms",
    "Rows",
    "SecondOrderTripletLoss",
    "SelectivelyContrastiveLoss",
    "SemihardHardestNegative",
    "SemihardNegative",
    "SemihardPositive",
    "StepRecord",
    "TripletLoss",
    "Triplets",
    "UnhingedMarginLoss",
    "UnhingedTripletLoss",
    "ViolatingNegative",
    "__version__",
    "diagnose",
    "mine",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: it brings the evaluation along, which a training loop does without.
    if name in ("CollapseMonitor", "diagnose"):
        from trivet import collapse

        return getattr(collapse, name)
    raise AttributeError(f"module 'trivet' has no attribute {name!r}")
