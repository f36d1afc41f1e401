from __future__ import annotations

import pytest

from trivet.batching import BatchConfig


def test_batch_size_is_classes_times_samples() -> None:
    assert BatchConfig(num_classes=5, samples_per_class=7).batch_size == 35


@pytest.mark.parametrize("key", ["num_classes", "samples_per_class"])
def test_one_is_too_few(key: str) -> None:
    with pytest.raises(ValueError, match=f"batch: {key} = 1 cannot be used"):
        BatchConfig.parse({key: 1}, source="batch")
