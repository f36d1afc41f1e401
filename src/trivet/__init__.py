"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

from trivet.losses import ContrastiveLoss, MarginLoss, MultiSimilarityLoss, TripletLoss
from trivet.mining import (
    AllNegatives,
    AllPositives,
    DistanceWeighted,
    EasyPositive,
    HardNegative,
    HardPositive,
    MultiSimilarityNegatives,
    MultiSimilarityPositives,
    RandomNegative,
    RandomPositive,
    SemihardHardestNegative,
    SemihardNegative,
    Triplets,
    ViolatingNegative,
    mine,
)
from trivet.rows import RowLoss, Rows, RowSum, RowTerms, StepRecord

__version__ = "0.1.0"

__all__ = [
    "AllNegatives",
    "AllPositives",
    "ContrastiveLoss",
    "DistanceWeighted",
    "EasyPositive",
    "HardNegative",
    "HardPositive",
    "MarginLoss",
    "MultiSimilarityLoss",
    "MultiSimilarityNegatives",
    "MultiSimilarityPositives",
    "RandomNegative",
    "RandomPositive",
    "RowLoss",
    "RowSum",
    "RowTerms",
    "Rows",
    "SemihardHardestNegative",
    "SemihardNegative",
    "StepRecord",
    "TripletLoss",
    "Triplets",
    "ViolatingNegative",
    "__version__",
    "mine",
]
