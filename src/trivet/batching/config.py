"""Settings of a training batch."""

from __future__ import annotations

from pydantic import Field

from trivet.config import Config


class BatchConfig(Config):
    """A training batch: `samples_per_class` examples of each of `num_classes` classes."""

    num_classes: int = Field(16, ge=2, description="Different classes in a batch; at most as many as are trained on.")
    samples_per_class: int = Field(
        4,
        ge=2,
        description="A class seen once in a batch gives no positive pair. With 2 there is one positive to choose from, "
        "so easy positives change nothing; they need several.",
    )

    @property
    def batch_size(self) -> int:
        return self.num_classes * self.samples_per_class
