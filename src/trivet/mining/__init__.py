"""Who is compared with whom: label relations, selectors of positives and negatives, index triplets."""

from trivet.mining.block import Block, Choice, Everyone
from trivet.mining.negatives import (
    NEGATIVES,
    AllNegatives,
    DistanceWeighted,
    EasyNegative,
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
    SemihardPositive,
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
    "EasyNegative",
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
    "SemihardPositive",
    "Triplets",
    "ViolatingNegative",
    "mine",
]
