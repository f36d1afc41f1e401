"""A formula on a row of the distance matrix becomes a loss with its exact gradient, for any N."""

from trivet.losses.engine.base import EmbeddingLoss
from trivet.losses.engine.block_view import BlockView, LossSum, LossTerms
from trivet.losses.engine.definition import LossDefinition, Reduction, loss_options
from trivet.losses.engine.step_stats import StepStats

__all__ = [
    "BlockView",
    "EmbeddingLoss",
    "LossDefinition",
    "LossSum",
    "LossTerms",
    "Reduction",
    "StepStats",
    "loss_options",
]
