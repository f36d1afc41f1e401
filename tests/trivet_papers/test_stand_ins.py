from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.miniatures import cub

from trivet.datasets import DataConfig, load
from trivet.models import in_unit_range
from trivet_papers.stand_ins import HALF, LastStage, last_stage_maps


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an EfficientNet-Lite0, at random, with its classifier."""
    timm = pytest.importorskip("timm")
    save_file = pytest.importorskip("safetensors.torch").save_file
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "network.safetensors"
    save_file(timm.create_model("tf_efficientnet_lite0").state_dict(), file)
    return file


def test_maps_and_the_last_stage_make_the_whole_network(weights: Path, tmp_path: Path) -> None:
    import timm
    from safetensors.torch import load_file

    cub(tmp_path / "cub")
    splits = last_stage_maps(str(weights), tmp_path, None, image_size=64)
    assert list(splits.evaluation) == ["unseen"]
    whole = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    known = load_file(weights)
    whole.load_state_dict({name: known[name] for name in whole.state_dict()})
    last = LastStage(splits.train.inputs.shape, 1280, str(weights)).eval()
    images = load(DataConfig.parse({"name": "cub", "image_size": 64}, source="cub"), tmp_path)
    rows = np.arange(len(splits.train))
    with torch.no_grad():
        expected = whole((in_unit_range(images.train.inputs.batch(rows)) - HALF) / HALF)
        torch.testing.assert_close(last(splits.train.inputs.batch(rows)), expected)


def test_the_first_items_of_each_class_are_enough(weights: Path, tmp_path: Path) -> None:
    cub(tmp_path / "cub")
    every = last_stage_maps(str(weights), tmp_path, None, image_size=64)
    few = last_stage_maps(str(weights), tmp_path, None, image_size=64, train_items=2, test_items=1)
    for whole, part, count in ((every.train, few.train, 2), (every.evaluation["unseen"], few.evaluation["unseen"], 1)):
        classes = whole.labels[every.level]
        rows = np.sort(np.concatenate([np.flatnonzero(classes == label)[:count] for label in np.unique(classes)]))
        assert len(rows) < len(whole)
        assert (part.labels[every.level] == classes[rows]).all()
        torch.testing.assert_close(part.inputs.batch(np.arange(len(part))), whole.inputs.batch(rows))


def test_fewer_dimensions_are_a_projection_that_learns(weights: Path) -> None:
    maps = torch.randn(3, 192, 2, 2, generator=torch.Generator().manual_seed(0))
    whole, few = (LastStage((192, 2, 2), d, str(weights)).eval() for d in (1280, 8))
    (matrix,) = few.last.parameters()
    torch.testing.assert_close(few(maps), whole(maps) @ matrix.T)
    few(maps).sum().backward()
    assert matrix.grad is not None
    with pytest.raises(ValueError, match="at most 1280: got 1281"):
        LastStage((192, 2, 2), 1281, str(weights))


def test_batch_norm_keeps_its_statistics(weights: Path) -> None:
    network = LastStage((192, 2, 2), 1280, str(weights)).train()
    before = {name: value.clone() for name, value in network.named_buffers()}
    network(torch.randn(3, 192, 2, 2))
    assert all(torch.equal(value, before[name]) for name, value in network.named_buffers())
