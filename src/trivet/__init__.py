"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trivet.collapse import CollapseMonitor, diagnose
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
    # Loaded when first used, so that `import trivet` and `trivet --help` are immediate; those that load the most, last.
    if name in __all__:
        for room in ("rows", "mining", "losses", "collapse"):
            module = import_module(f"trivet.{room}")
            if hasattr(module, name):
                return getattr(module, name)
    if find_spec(f"trivet.{name}") is not None:
        return import_module(f"trivet.{name}")
    raise AttributeError(f"module 'trivet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(module.name for module in iter_modules(__path__))})
