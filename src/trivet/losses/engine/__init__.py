"""A formula on a row of the distance matrix becomes a loss with its exact gradient, for any N."""

from trivet.losses.engine.base import Reduction, RowLoss
from trivet.losses.engine.block_view import Rows, RowSum, RowTerms
from trivet.losses.engine.step_stats import StepRecord

__all__ = ["Reduction", "RowLoss", "RowSum", "RowTerms", "Rows", "StepRecord"]
