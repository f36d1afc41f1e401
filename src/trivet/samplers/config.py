"""Settings of a training batch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from trivet.config.base import Config


class BatchConfig(Config):
    """A training batch: `samples_per_class` items of each of `num_classes` classes, or `size` items as they come.

    Args:
        num_classes: classes in a batch: more for more negatives, at most as many as are trained on.
        samples_per_class: items of each class: several for easy positives, 1 for losses on proxies only.
        balance: a coarser label level over whose classes those of a batch are spread evenly, where some have many more.
        size: shuffled batches of so many items in place of classes, for losses on proxies or few classes.
        mined: a file of trivet mine whose anchors, positives and hard negatives fill the batches of size items.
        micro: items embedded at once, where a batch does not fit the memory: pieces give its gradient, in more time.
    """

    num_classes: int = Field(16, ge=2)
    samples_per_class: int = Field(4, ge=1)
    balance: str | None = None
    size: int | None = Field(None, ge=2)
    mined: Path | None = None
    micro: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        fields = type(self).model_fields
        unused = ("num_classes", "samples_per_class", "balance")
        changed = [key for key in unused if getattr(self, key) != fields[key].default]
        if self.size is not None and changed:
            raise ValueError(f"size shuffles all items, so {changed[0]} has no effect: remove one of the two.")
        if self.mined is not None and self.size is None:
            raise ValueError("mined needs size, the most items of a batch: set it too, such as batch.size = 128.")
        return self

    @property
    def batch_size(self) -> int:
        """Items of a whole batch."""
        return self.num_classes * self.samples_per_class if self.size is None else self.size

    def of_at_most(self, classes: int) -> Self:
        """As many items of so many classes, two at least, where these are fewer than `num_classes`."""
        if self.size is not None or classes >= self.num_classes:
            return self
        classes = max(2, classes)
        samples = self.batch_size // classes
        return self.model_copy(update={"num_classes": classes, "samples_per_class": samples})

    @property
    def piece_size(self) -> int:
        """Items of the largest piece that is embedded at once, of pieces as `embed_in_pieces` cuts them."""
        return math.ceil(self.batch_size / math.ceil(self.batch_size / (self.micro or self.batch_size)))

    @property
    def needed_classes(self) -> int:
        """The fewest classes that can be trained on."""
        return self.num_classes if self.size is None else 2

    @property
    def in_classes(self) -> bool:
        """True if each class of a batch has a positive by design."""
        return self.size is None and self.samples_per_class > 1
