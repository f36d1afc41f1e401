"""Which items share a batch."""

from trivet.batching.config import BatchConfig
from trivet.batching.pk import Coverage, PKBatches

__all__ = ["BatchConfig", "Coverage", "PKBatches"]
