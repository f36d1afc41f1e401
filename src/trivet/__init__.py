"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from trivet import batching as batching
    from trivet import collapse as collapse
    from trivet import evaluation as evaluation
    from trivet import label_noise as label_noise
    from trivet import theory as theory
    from trivet.collapse import CollapseMonitor as CollapseMonitor
    from trivet.collapse import diagnose as diagnose
    from trivet.losses import *  # noqa: F403
    from trivet.mining import Triplets as Triplets
    from trivet.mining import mine as mine
    from trivet.mining.negatives import *  # noqa: F403
    from trivet.mining.positives import *  # noqa: F403
    from trivet.rows import RowLoss as RowLoss
    from trivet.rows import Rows as Rows
    from trivet.rows import RowSum as RowSum
    from trivet.rows import RowTerms as RowTerms
    from trivet.rows import StepRecord as StepRecord
else:
    # Loaded when first used, so that `import trivet` and `trivet --help` are immediate. These names, or a room's own:
    _ROOMS = {
        "rows": ("RowLoss", "RowSum", "RowTerms", "Rows", "StepRecord"),
        "mining": ("Triplets", "mine"),
        "mining.negatives": None,
        "mining.positives": None,
        "losses": None,
        "collapse": ("CollapseMonitor", "diagnose"),
    }

    def __getattr__(name: str) -> object:
        if name == "__all__":
            rooms = (names or import_module(f"trivet.{room}").__all__ for room, names in _ROOMS.items())
            return ["__version__", *(name for names in rooms for name in names)]
        if not name.startswith("_"):
            if find_spec(f"trivet.{name}") is not None:
                return import_module(f"trivet.{name}")
            for room, names in _ROOMS.items():
                if name in (names or import_module(f"trivet.{room}").__all__):
                    return getattr(import_module(f"trivet.{room}"), name)
        raise AttributeError(f"module 'trivet' has no attribute {name!r}")

    def __dir__() -> list[str]:
        rooms = (module.name for module in iter_modules(__spec__.submodule_search_locations))
        return sorted({*globals(), *__getattr__("__all__"), *(room for room in rooms if not room.startswith("_"))})
