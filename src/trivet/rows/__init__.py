"""A formula on a row of the distance matrix becomes a loss with its exact gradient, for any N."""

from trivet.rows.loss import Reduction, RowLoss
from trivet.rows.record import StepRecord
from trivet.rows.view import Rows, RowSum, RowTerms

__all__ = ["Reduction", "RowLoss", "RowSum", "RowTerms", "Rows", "StepRecord"]
