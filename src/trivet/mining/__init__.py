"""Choice of comparisons: label relations, selectors of positives and negatives, index triplets and pairs."""

from trivet.mining import negatives, positives
from trivet.mining.distance_block import DistanceBlock
from trivet.mining.negatives import *  # noqa: F403  # its __all__ is the list
from trivet.mining.negatives import NEGATIVES, NegativeName, NegativeSelector
from trivet.mining.positives import *  # noqa: F403  # its __all__ is the list
from trivet.mining.positives import POSITIVES, PositiveName, PositiveSelector
from trivet.mining.relations import Classes, Relation
from trivet.mining.selected_set import SelectedItems, SelectedSet
from trivet.mining.triplets import MinedPairs, MinedTriplets, mine, mine_pairs
from trivet.runtime.counterparts import explain_missing

__all__ = [
    "NEGATIVES",
    "POSITIVES",
    "Classes",
    "DistanceBlock",
    "MinedPairs",
    "MinedTriplets",
    "NegativeName",
    "NegativeSelector",
    "PositiveName",
    "PositiveSelector",
    "Relation",
    "SelectedItems",
    "SelectedSet",
    "mine",
    "mine_pairs",
]
__all__ += negatives.__all__
__all__ += positives.__all__

explain_missing(__name__, __all__)
