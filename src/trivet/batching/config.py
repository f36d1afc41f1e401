"""Settings of a training batch."""

from __future__ import annotations

from pydantic import Field

from trivet.config import Config


class BatchConfig(Config):
    """A training batch: `samples_per_class` examples of each of `num_classes` classes."""

    num_classes: int = Field(
        16, ge=2, description="Number of classes per batch, at most the number of training classes."
    )
    samples_per_class: int = Field(
        4,
        ge=2,
        description="Items of each class per batch. With two there is only one positive, so easy positives have no "
        "effect; they need several.",
    )

    @property
    def batch_size(self) -> int:
        return self.num_classes * self.samples_per_class
