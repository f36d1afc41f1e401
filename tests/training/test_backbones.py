"""A run on a pretrained backbone says what it left out, leaves alone what is frozen, and resumes bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from trivet.models import ModelConfig, build
from trivet.training import RunConfig
from trivet.training.components import Components, load_splits
from trivet.training.run_folder import RunFolder
from trivet.training.trainer import Trainer

pytestmark = [pytest.mark.usefixtures("few_digits")]
NAME = "timm:resnet10t"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a network for grey images, under names as other training code writes them, with its classifier."""
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    state = build(ModelConfig(name=NAME), (1, 8, 8), seed=7).state_dict()
    named = {f"model.{key.removeprefix('body.0.')}": value for key, value in state.items() if "body.0." in key}
    save_file(
        {
            **{key: value.contiguous() for key, value in named.items()},
            "model.fc.weight": torch.zeros(9, 512),
            "neck": torch.zeros(1),
        },
        path,
    )
    return path


def settings(weights: Path, **model: Any) -> RunConfig:
    values = {
        "data": {"name": "digits"},
        "batch": {"num_classes": 2, "samples_per_class": 6},
        "model": {"name": NAME, "weights": str(weights), **model},
        "loss": {"name": "triplet", "positives": "easy"},
        "training": {"steps": 4, "checkpoint_every": 2, "learning_rate": 0.01},
        "evaluation": {"nmi_plus": 1, "map_points": 20, "sample": 50},
    }
    return RunConfig.parse(values, source="test")


def test_a_killed_run_goes_on_bit_for_bit_and_frozen_parts_stay(weights: Path, tmp_path: Path) -> None:
    config = settings(weights, freeze=1, pooling="gem")
    splits = load_splits(config, None)

    def job(folder: str, checkpoint: Path | None = None) -> Trainer:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        return Trainer(RunFolder(path), Components(config, splits), lambda *_: None, checkpoint=checkpoint)

    whole = job("run")
    (said,) = [line for line in whole.run_log.record.warnings if "left out" in line]
    assert said == f"Tensors of {weights} that the backbone does not have were left out: neck."
    assert whole.fit() == "finished"
    kept = tmp_path / "run" / "checkpoints" / "step-00000002.safetensors"
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    (tmp_path / "cut" / "checkpoints" / "step-00000004.safetensors").unlink()
    cut = job("cut", tmp_path / "cut" / "checkpoints" / kept.name)
    assert cut.state.learner.step == 2
    assert cut.fit() == "finished"
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "cut" / "metrics.csv").read_bytes()
    trained, again = whole.state.learner.model.cpu().state_dict(), cut.state.learner.model.cpu().state_dict()
    assert all(torch.equal(values, again[key]) for key, values in trained.items())
    start = {key.removeprefix("model."): values for key, values in load_file(weights).items()}
    changed = {
        key
        for key in start
        if key not in ("fc.weight", "neck") and not torch.equal(start[key], trained[f"body.0.0.{key}"])
    }
    assert "layer4.0.conv1.weight" in changed
    assert not any(key.startswith(("conv1", "bn1", "layer1")) or "running" in key for key in changed)
