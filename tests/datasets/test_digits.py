from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import datasets

from trivet.datasets import DigitsConfig, load


def test_the_published_protocol() -> None:
    splits = load(DigitsConfig(), None)
    bundle = datasets.load_digits()
    low = np.array([i for i, digit in enumerate(bundle.target) if digit <= 5])
    np.random.RandomState(0).shuffle(low)
    expected = {"train": low[:649], "seen": low[649:], "unseen": [i for i, d in enumerate(bundle.target) if d > 5]}
    assert splits.level == "parity"
    assert list(splits.evaluation) == ["seen", "unseen"]
    for name, dataset in {"train": splits.train, **splits.evaluation}.items():
        rows = [int(id.removeprefix("digits/")) for id in dataset.ids]
        assert rows == list(expected[name])
        images = dataset.inputs.batch(np.arange(len(dataset)))
        assert torch.equal(images[:, 0], torch.tensor(bundle.images[rows] / 16, dtype=torch.float32))
        assert [dataset.names["digit"][i] for i in dataset.labels["digit"]] == [str(bundle.target[i]) for i in rows]
        assert [dataset.names["parity"][i] for i in dataset.labels["parity"]] == [
            ("even", "odd")[bundle.target[i] % 2] for i in rows
        ]
    assert [len(splits.evaluation[name]) for name in ("seen", "unseen")] == [434, 714]


def test_level_size_and_channels() -> None:
    splits = load(DigitsConfig(level="digit", image_size=4, channels=3), None)
    assert splits.level == "digit"
    assert splits.train.inputs.shape == (3, 4, 4)
    assert splits.train.inputs.batch(np.arange(5)).shape == (5, 3, 4, 4)
    with pytest.raises(ValueError, match="Allowed: digit, parity"):
        load(DigitsConfig(level="digits"), None)
