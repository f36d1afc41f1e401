from __future__ import annotations

import pytest

from trivet.samplers import BatchConfig


def test_batch_size_is_classes_times_samples() -> None:
    assert BatchConfig(num_classes=5, samples_per_class=7).batch_size == 35


@pytest.mark.parametrize(("key", "value"), [("num_classes", 1), ("samples_per_class", 0), ("size", 1)])
def test_too_few_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"batch: {key} must be .*: got {value}"):
        BatchConfig.parse({key: value}, source="batch")


def test_fewer_classes_give_more_items_each() -> None:
    batch = BatchConfig(num_classes=16, samples_per_class=4)
    sizes = {classes: batch.of_at_most(classes) for classes in (1, 2, 3, 5, 12, 16, 40)}
    found = {classes: (each.num_classes, each.samples_per_class) for classes, each in sizes.items()}
    assert found == {1: (2, 32), 2: (2, 32), 3: (3, 21), 5: (5, 12), 12: (12, 5), 16: (16, 4), 40: (16, 4)}
    assert BatchConfig(size=48).of_at_most(2) == BatchConfig(size=48)
