"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

import importlib
from typing import TYPE_CHECKING

from trivet import losses
from trivet.losses import *  # noqa: F403
from trivet.mining import Triplets, mine, negatives, positives
from trivet.mining.negatives import *  # noqa: F403
from trivet.mining.positives import *  # noqa: F403
from trivet.rows import RowLoss, Rows, RowSum, RowTerms, StepRecord

__version__ = "0.1.0"

__all__ = [
    "CollapseMonitor",
    "RowLoss",
    "RowSum",
    "RowTerms",
    "Rows",
    "StepRecord",
    "Triplets",
    "__version__",
    "diagnose",
    "mine",
]
__all__ += losses.__all__
__all__ += negatives.__all__
__all__ += positives.__all__

if TYPE_CHECKING:
    from trivet import batching as batching
    from trivet import collapse as collapse
    from trivet import evaluation as evaluation
    from trivet import label_noise as label_noise
    from trivet import theory as theory
    from trivet.collapse import CollapseMonitor, diagnose
else:

    def __getattr__(name: str) -> object:
        # Loaded when first used: they bring along what a training loop does without.
        if name in ("CollapseMonitor", "diagnose"):
            return getattr(importlib.import_module("trivet.collapse"), name)
        if not name.startswith("_"):
            try:
                return importlib.import_module(f"trivet.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"trivet.{name}":
                    raise
        raise AttributeError(f"module 'trivet' has no attribute {name!r}")
