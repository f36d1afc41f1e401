"""Which items share a batch, in how many pieces it is embedded, and which past ones it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trivet.batching.memory import CrossBatchMemory, References
from trivet.batching.micro import embed_in_pieces, micro_batches
from trivet.batching.mined import MinedBatches
from trivet.batching.part import PartBatches
from trivet.batching.pk import Coverage, PKBatches
from trivet.batching.shuffled import BatchPlan, ShuffledBatches

if TYPE_CHECKING:
    from trivet.batching.config import BatchConfig

__all__ = [
    "BatchConfig",
    "BatchPlan",
    "Coverage",
    "CrossBatchMemory",
    "MinedBatches",
    "PKBatches",
    "PartBatches",
    "References",
    "ShuffledBatches",
    "embed_in_pieces",
    "micro_batches",
]


def __getattr__(name: str) -> Any:
    # Settings need pydantic; a training loop of one's own does not.
    if name == "BatchConfig":
        from trivet.batching.config import BatchConfig

        return BatchConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
