"""Who is compared with whom: label relations, selectors of positives and negatives, index triplets."""

from trivet.mining.block import Block, Choice, Everyone
from trivet.mining.negatives import (
    NEGATIVES,
    AllNegatives,
    DistanceWeighted,
    HardNegative,
    MultiSimilarityNegatives,
    NegativeName,
    NegativeSelector,
    RandomNegative,
    SemihardHardestNegative,
    SemihardNegative,
    ViolatingNegative,
)
from trivet.mining.positives import (
    POSITIVES,
    AllPositives,
    EasyPositive,
    HardPositive,
    MultiSimilarityPositives,
    PositiveName,
    PositiveSelector,
    RandomPositive,
)
from trivet.mining.triplets import Triplets, mine

__all__ = [
    "NEGATIVES",
    "POSITIVES",
    "AllNegatives",
    "AllPositives",
    "Block",
    "Choice",
    "DistanceWeighted",
    "EasyPositive",
    "Everyone",
    "HardNegative",
    "HardPositive",
    "MultiSimilarityNegatives",
    "MultiSimilarityPositives",
    "NegativeName",
    "NegativeSelector",
    "PositiveName",
    "PositiveSelector",
    "RandomNegative",
    "RandomPositive",
    "SemihardHardestNegative",
    "SemihardNegative",
    "Triplets",
    "ViolatingNegative",
    "mine",
]
