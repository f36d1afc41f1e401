"""Encoders that `trivet train` downloads or is given by name, to compare them with those at hand."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import huggingface_hub as hub
import pytest
from tests.commands.conftest import Call
from tests.commands.train.test_ladder import SMALL, images, record_of, vectors
from tests.models.test_encoders import CONVOLUTIONS, TINY, VIT, hub_cache, publish, save_timm, snapshot

from trivet.commands.train import ladder
from trivet.commands.train.candidates import Proposer, settings_of
from trivet.models.encoder_weights import missing
from trivet.reports.ladder_record import LadderRecord
from trivet.training.components import load_splits
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderSettings

__all__ = ["hub_cache"]  # a fixture
NETWORK = """
import torch
from torch import nn

class Mean(nn.Module):
    def __init__(self, input_shape, embedding_dim{default}):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(embedding_dim))

    def forward(self, images):
        return (images.mean((2, 3)) - 0.5) * self.scale
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> list[tuple[str, ...] | None]:
    """The encoders of each ladder that begins, which is not climbed; photos are in the folder, and the hub has two."""
    begun = list[tuple[str, ...] | None]()

    def climb(settings: LadderSettings, *_: object, **__: object) -> None:
        begun.append(settings.ladder.encoders)

    monkeypatch.chdir(tmp_path)
    images(Path("photos"))
    save_timm(VIT, tmp_path / "weights")
    monkeypatch.setattr(ladder, "climb", climb)
    monkeypatch.setattr("trivet.commands.encoders.run.CATALOGUE", TINY)
    publish(hub_cache, monkeypatch, VIT, {"model.safetensors": (tmp_path / "weights").read_bytes()})
    return begun


def test_a_download_names_size_and_licence_first_and_is_compared(
    run_command: Call, compared: list[tuple[str, ...] | None]
) -> None:
    assert [encoder.name for encoder in missing("images")] == ["tiny-vit"]
    _, _, err = run_command("train", "photos")
    assert "trivet encoders --download fetches others once: tiny-vit." in err
    for wanted in ("all", "tiny-vit"):  # the second time it is there
        _, _, err = run_command("train", "photos", "--download", wanted)
        assert ("tiny-vit: 1 MB of timm/test_vit.r160_in1k, licence apache-2.0" in err) is (wanted == "all")
        assert "Encoders to compare: tiny-vit." in err
    assert compared == [None, None, None]


def test_a_licence_that_forbids_commercial_use_needs_a_word(
    run_command: Call, compared: list[tuple[str, ...] | None], hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_timm(VIT, snapshot(hub_cache, VIT) / "model.safetensors")
    code, _, err = run_command("train", "photos", "--download", "tiny-convnext")
    assert (code, "accept it with --accept-licence tiny-convnext, or use" in err) == (2, True)
    save_timm(CONVOLUTIONS, Path("weights"))
    publish(hub_cache, monkeypatch, CONVOLUTIONS, {"model.safetensors": Path("weights").read_bytes()})
    Path("own.toml").write_text('data = { name = "folder", root = "photos" }\n[ladder]\nencoders = ["tiny-vit"]\n')
    for data in ("photos", "own.toml"):
        run_command("train", data, "--download", "tiny-convnext", "--accept-licence", "tiny-convnext")
    assert compared == [("tiny-vit", "tiny-convnext")] * 2


@pytest.mark.parametrize("step", ["model_info", "snapshot_download"])
def test_without_network_it_goes_on(
    run_command: Call, compared: list[tuple[str, ...] | None], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("unreachable")

    monkeypatch.setattr(hub, step, unreachable)
    _, _, err = run_command("train", "photos", "--download", "all")
    assert "Not compared: " in err
    assert "(OSError: unreachable); try again" in err
    assert compared == [None]


@pytest.mark.parametrize(
    ("answer", "expected"), [("yes", []), ("tiny-vit", []), ("", ["tiny-vit"]), ("n", ["tiny-vit"])]
)
def test_a_terminal_is_asked(
    run_command: Call,
    compared: list[tuple[str, ...] | None],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    expected: list[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))  # no terminal
    assert "Download" not in run_command("train", "photos")[2]
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    assert "Download" not in run_command("train", "photos", "--download", "none")[2]
    _, _, err = run_command("train", "photos")
    assert "tiny-vit: 0 MB, apache-2.0" in err
    assert "Download all, some by name, or none (Enter)?" in err
    assert [encoder.name for encoder in missing("images")] == expected
    assert compared == [None, None, None]


def test_what_cannot_be_downloaded(run_command: Call, compared: list[tuple[str, ...] | None]) -> None:
    vectors(Path("own.npz"))
    Path("single.toml").write_text('data = { name = "digits" }\nloss = { name = "triplet" }\n')
    for arguments, sentence in (
        (("own.npz", "--download", "all"), "--download is for encoders of images or texts: the data are vectors"),
        (("single.toml", "--download", "all"), "a single run compares no encoders: leave out --download"),
        (("photos", "--download", "tiny-texts"), "must take what the data are, images: tiny-texts embeds texts"),
        (("photos", "--download", "tiny-vitt"), "must be one of tiny-vit, tiny-convnext"),
    ):
        code, _, err = run_command("train", *arguments)
        assert (code, sentence in err) == (2, True), err
    assert compared == []


def test_a_network_of_python_is_an_encoder(
    run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    images(Path("photos"))
    Path("net.py").write_text(NETWORK.format(default=" = 3"))
    Path("wide.py").write_text(NETWORK.format(default=""))
    save_timm(VIT, snapshot(hub_cache, VIT) / "model.safetensors")
    command = ("train", "photos", *SMALL, '--set=ladder.rungs=["encoder"]')
    code, _, err = run_command(*command, "--set", 'ladder.encoders=["python:net.py:Mean"]')
    assert code == 0, err
    tried = LadderRecord.read(record_of(Path("runs/photos"))["ladder"]).candidates
    assert [each.name for each in tried if each.recall is not None] == ["python:net.py:Mean", "the pixels"]
    code, _, err = run_command(*command, "-o", "again", "--set", 'ladder.encoders=["python:wide.py:Mean"]')
    assert (code, "embedding_dim of python:wide.py:Mean has no default; write embedding_dim: int = N" in err) == (
        2,
        True,
    )
    # Where it is the best it can be fine-tuned; a last layer is for the best of the others.
    data = {"name": "folder", "root": "photos", "image_size": 96}
    settings = {"data": data, "ladder": {"encoders": ["python:net.py:Mean", "tiny-vit"]}}
    splits = load_splits(RunConfig.parse({"data": data, "loss": {"name": "triplet"}}, source="test"), None)
    proposer = Proposer(LadderSettings.parse(settings, source="test"), splits.train, splits.level, 4)
    ranked = proposer.candidates("encoder", [])
    assert [each.name for each in ranked] == ["python:net.py:Mean", "tiny-vit"]
    assert [each.name for each in proposer.candidates("whitening", ranked)] == ["tiny-vit, whitened"]
    for candidate in proposer.candidates("fine-tuning", ranked):
        assert candidate.encoder == settings_of(candidate).model.name == "python:net.py:Mean"
    assert proposer.candidates("head", ranked[:1]) == []
