"""A formula on a row of the distance matrix becomes a loss with its exact gradient, for any N."""

from trivet.losses.engine.base import EmbeddingLoss, Reduction
from trivet.losses.engine.block_view import BlockView, LossSum, LossTerms
from trivet.losses.engine.step_stats import StepStats

__all__ = ["BlockView", "EmbeddingLoss", "LossSum", "LossTerms", "Reduction", "StepStats"]
