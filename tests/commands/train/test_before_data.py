"""A mistake in the settings is told before any image is decoded."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from PIL import Image

from trivet.commands.train.run import train
from trivet.training import RunConfig

SETTINGS = """
[data]
name = "folder"
root = "photos"
levels = ["make", "model"]
image_size = 8
[batch]
num_classes = 2
[loss]
name = "triplet"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def decoded(*_: object, **__: object) -> None:
        raise AssertionError("an image was decoded")

    for make in "abcdef":
        for model in ("x", "y"):
            (tmp_path / "photos" / make / model).mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (8, 8)).save(tmp_path / "photos" / make / model / f"{number}.png")
    (tmp_path / "x.toml").write_text(SETTINGS)
    (tmp_path / "bad.csv").write_text("id,decisoin\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("trivet.datasets.inputs.decode_files", decoded)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "an image was decoded"),  # no mistake: the check of the other cases
        (["model.name=conv2", "data.image_size=4"], "conv2 needs images of at least 6 x 6 pixels: got 4 x 4"),
        (["model.name=timm:resnet10t", "model.pretrained=true"], "timm:resnet10t could not be loaded"),
        (["model.name=timm:resnet10t", "model.weights=gone.pth"], "gone.pth, which does not exist; check the path"),
        (["model.name=timm:resnet10t", "model.freeze=9"], "timm:resnet10t has 4 after its first layer, got 9"),
        (["model.name=torchvision:resnet81"], "torchvision has no model 'resnet81'; did you mean resnet18"),
        (["evaluation.nmi_plus={modle=3}"], "the level of evaluation.nmi_plus = 'modle' is not known"),
        (["data.level=modle"], "level = 'modle' is not a label level of these data; did you mean 'model'"),
        (["data.levels=['make']"], "data.levels must name each of the 2 folder levels"),
        (["data.noise={kind='within-superclass', rate=0.2, superclass='make'}"], "needs a label level above"),
        (["data.folds=9"], "data.folds must be at most half the number of training classes"),
        (["data.decisions=gone.csv"], "gone.csv does not exist; check the path"),
        (["data.decisions=bad.csv"], "it has no 'decision'"),
        (["training.accelerator=gpu"], "needs a GPU"),
    ],
)
def test_settings(changes: list[str], said: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises((ValueError, AssertionError)) as error:
        train(RunConfig.read(folder / "x.toml", changes), folder / "run")
    assert said in str(error.value)
    assert not (folder / "run").exists()


def test_too_few_classes(folder: Path) -> None:
    few = RunConfig.read(folder / "x.toml", ["data.root=photos/b", "data.levels=['model']"])
    with pytest.raises(ValueError, match="needs at least four classes"):
        train(few, folder / "run")
