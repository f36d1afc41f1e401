"""Trivet trains embeddings that do not collapse.

A strategy is positives x negatives x loss, and all of it works on row blocks of the distance matrix:

    loss = trivet.TripletLoss(margin=0.2, positives="easy", negatives="semihard")
    value = loss(embeddings, labels)
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from trivet.runtime.version import __version__ as __version__

_TABLES = ("mining.positives", "mining.negatives", "losses")  # all that they name is named here, too
_OTHERS = {
    "losses.engine": ("BlockView", "EmbeddingLoss", "LossSum", "LossTerms", "StepStats"),
    "mining": ("MinedPairs", "MinedTriplets", "mine", "mine_pairs"),
    "mining.guided": ("Guided",),
    "mining.grades": ("Grades",),
    "mining.pairs": ("Pairs",),
    "mining.relations": ("Classes", "Relation"),
    "mining.tags": ("Tags",),
    "losses": ("DistillationLoss", "MatryoshkaLoss", "SymmetricLoss"),
    "samplers.memory": ("CrossBatchMemory",),
    "samplers.pk": ("PKBatches",),
    "samplers.relation": ("RelationBatches",),
    "collapse": ("CollapseMonitor",),
    "commands.arrays": ("audit", "compare", "diagnose", "evaluate", "search", "train"),
    "integrations.any_training": ("Watch", "watch"),
}

if TYPE_CHECKING:
    from trivet import collapse as collapse
    from trivet import knn as knn
    from trivet import label_noise as label_noise
    from trivet import losses as losses
    from trivet import metrics as metrics
    from trivet import mining as mining
    from trivet import samplers as samplers
    from trivet.collapse import CollapseMonitor as CollapseMonitor
    from trivet.commands.arrays import audit as audit
    from trivet.commands.arrays import compare as compare
    from trivet.commands.arrays import diagnose as diagnose
    from trivet.commands.arrays import evaluate as evaluate
    from trivet.commands.arrays import search as search
    from trivet.commands.arrays import train as train
    from trivet.integrations.any_training import Watch as Watch
    from trivet.integrations.any_training import watch as watch
    from trivet.losses import *  # noqa: F403  # its __all__ is the list
    from trivet.losses import DistillationLoss as DistillationLoss
    from trivet.losses import MatryoshkaLoss as MatryoshkaLoss
    from trivet.losses import SymmetricLoss as SymmetricLoss
    from trivet.losses.engine import BlockView as BlockView
    from trivet.losses.engine import EmbeddingLoss as EmbeddingLoss
    from trivet.losses.engine import LossSum as LossSum
    from trivet.losses.engine import LossTerms as LossTerms
    from trivet.losses.engine import StepStats as StepStats
    from trivet.mining import Classes as Classes
    from trivet.mining import MinedPairs as MinedPairs
    from trivet.mining import MinedTriplets as MinedTriplets
    from trivet.mining import Relation as Relation
    from trivet.mining import mine as mine
    from trivet.mining import mine_pairs as mine_pairs
    from trivet.mining import negatives, positives
    from trivet.mining.grades import Grades as Grades
    from trivet.mining.guided import Guided as Guided
    from trivet.mining.negatives import *  # noqa: F403  # its __all__ is the list
    from trivet.mining.pairs import Pairs as Pairs
    from trivet.mining.positives import *  # noqa: F403  # its __all__ is the list
    from trivet.mining.tags import Tags as Tags
    from trivet.samplers.memory import CrossBatchMemory as CrossBatchMemory
    from trivet.samplers.pk import PKBatches as PKBatches
    from trivet.samplers.relation import RelationBatches as RelationBatches

    __all__: list[str] = []
    __all__ += losses.__all__
    __all__ += negatives.__all__
    __all__ += positives.__all__
else:

    def __getattr__(name: str) -> Any:
        # Loaded when first used, so that `import trivet` and `trivet --help` are immediate.
        if name == "__all__":
            tables = [import_module(f"trivet.{table}").__all__ for table in _TABLES]
            return sorted({"__version__"}.union(*_OTHERS.values(), *tables))
        for room, names in _OTHERS.items():
            if name in names:
                return getattr(import_module(f"trivet.{room}"), name)
        if not name.startswith("_"):
            if find_spec(f"trivet.{name}") is not None:
                return import_module(f"trivet.{name}")
            for table in _TABLES:
                if name in (module := import_module(f"trivet.{table}")).__all__:
                    return getattr(module, name)
        from trivet.runtime.counterparts import missing_attribute

        raise missing_attribute(__name__, name, [] if name.startswith("_") else __dir__())

    def __dir__() -> list[str]:
        rooms = (room.name for room in iter_modules(import_module("trivet").__path__) if not room.name.startswith("_"))
        return sorted({*__getattr__("__all__"), *rooms})
