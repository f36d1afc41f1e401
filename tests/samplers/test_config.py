from __future__ import annotations

import pytest

from trivet.samplers import BatchConfig


def test_batch_size_is_classes_times_samples() -> None:
    assert BatchConfig(num_classes=5, samples_per_class=7).batch_size == 35


@pytest.mark.parametrize(("key", "value"), [("num_classes", 1), ("samples_per_class", 0), ("size", 1)])
def test_too_few_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"batch: {key} = {value} cannot be used"):
        BatchConfig.parse({key: value}, source="batch")
