"""Items that share a batch, the pieces it is embedded in, and the past ones it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trivet.runtime.counterparts import missing_attribute
from trivet.samplers.epochs import Coverage, EpochBatches
from trivet.samplers.memory import CrossBatchMemory, References
from trivet.samplers.micro import embed_in_pieces, micro_batches
from trivet.samplers.mined import MinedBatches
from trivet.samplers.pk import PKBatches
from trivet.samplers.relation import RelationBatches
from trivet.samplers.shuffled import BatchPlan, ShuffledBatches
from trivet.samplers.subset import SubsetBatches

if TYPE_CHECKING:
    from trivet.samplers.config import BatchConfig

__all__ = [
    "BatchConfig",
    "BatchPlan",
    "Coverage",
    "CrossBatchMemory",
    "EpochBatches",
    "MinedBatches",
    "PKBatches",
    "References",
    "RelationBatches",
    "ShuffledBatches",
    "SubsetBatches",
    "embed_in_pieces",
    "micro_batches",
]


def __getattr__(name: str) -> Any:
    # Settings need pydantic; a training loop of one's own does not.
    if name == "BatchConfig":
        from trivet.samplers.config import BatchConfig

        return BatchConfig
    raise missing_attribute(__name__, name, __all__)
