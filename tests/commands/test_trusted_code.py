"""Code that came with a run, an index or settings of somebody else runs in no command without --trust-code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from PIL import Image
from tests.commands.conftest import Call
from tests.nightly import sampled

from trivet.commands.group import Commands
from trivet.config import plugins

pytestmark = pytest.mark.usefixtures("undiagnosed")

CODE = """
from pathlib import Path
import numpy as np
from torch import nn
from trivet.datasets import Dataset, Splits, in_memory
from trivet.losses import TripletLoss

with open(Path(__file__).with_name("ran"), "a") as file:
    file.write("x")


def data() -> Splits:
    labels = np.repeat(np.arange(8), 6)
    noise = np.random.default_rng(0).integers(0, 20, (48, 1, 4, 4))
    ids, names = tuple(f"item-{row}" for row in range(48)), tuple("abcdefgh")
    pixels = (noise + 25 * labels[:, None, None, None]).astype(np.uint8)
    whole = Dataset("theirs", in_memory(pixels), {"kind": labels}, {"kind": names}, ids)
    return Splits(whole.subset(np.arange(24)), {"unseen": whole.subset(np.arange(24, 48))}, "kind")


class Network(nn.Sequential):
    def __init__(self, input_shape: tuple[int, ...], embedding_dim: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(16, embedding_dim))


class Loss(TripletLoss):
    pass
"""
PARTS = {"data": "data", "model": "Network", "loss": "Loss"}
# What stands for the folder of the received run, index or settings, and for files to write.
RUNNING = [
    "train THEIRS/settings.toml -o OUT",
    "train --resume THEIRS/run",
    "train --resume THEIRS/folds",
    "sweep THEIRS/sweep.toml -o OUT",
    "sweep --join THEIRS/sweep",
    "forecast THEIRS/settings.toml",
    "forecast THEIRS/run",
    "evaluate THEIRS/run",
    "compare THEIRS/run THEIRS/run2",
    "migrate THEIRS/run THEIRS/run2",
    "diagnose THEIRS/run",
    "leaks THEIRS/settings.toml",
    "leaks THEIRS/run",
    "audit THEIRS/run",
    "embed THEIRS/run THEIRS/images -o OUT.parquet",
    "export THEIRS/run --to safetensors -o OUT",
    "search THEIRS/index item-30 --sheet OUT.html",
]
NOT_RUNNING = ["index THEIRS/run -o OUT", "mine THEIRS/run -o OUT.parquet", "search THEIRS/index item-30"]


def settings(folder: Path) -> dict[str, Any]:
    code = folder / "code_of_theirs.py"
    plain: dict[str, Any] = {part: {"name": f"python:{code}:{name}"} for part, name in PARTS.items()}
    plain["data"]["folds"], plain["model"]["embedding_dim"] = 2, 4
    return plain | {
        "batch": {"num_classes": 2, "samples_per_class": 2},
        "training": {"steps": 6, "accelerator": "cpu"},
        "evaluation": {"map_points": 10, "nmi_plus": 1},
    }


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = list(sys.path)
    monkeypatch.setattr(plugins, "_running", set())
    yield
    sys.path[:] = path
    forget()


def forget() -> None:
    plugins._running.clear()
    for name in [name for name in sys.modules if name.startswith("code_of_theirs")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that somebody can send."""
    pytest.importorskip("optuna")
    from trivet.commands.index.options import IndexOptions
    from trivet.commands.index.run import make_index
    from trivet.commands.sweep.run import Data, begin
    from trivet.commands.sweep.search_space import Sweep
    from trivet.commands.train.folds import cross_validate
    from trivet.commands.train.run import train
    from trivet.training import RunConfig

    folder = tmp_path_factory.mktemp("sent") / "theirs"
    folder.mkdir()
    (folder / "code_of_theirs.py").write_text(CODE)
    for kind in "ab":
        (folder / "images" / kind).mkdir(parents=True)
        Image.new("L", (4, 4)).save(folder / "images" / kind / "one.png")
    values = settings(folder)
    (folder / "settings.toml").write_text(tomli_w.dumps(values))
    swept = values | {"sweep": {"vary": {"loss.margin": [0.1, 0.2]}, "sampler": "grid"}}
    (folder / "sweep.toml").write_text(tomli_w.dumps(swept))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = RunConfig.parse(values, source="theirs")
        train(config, folder / "run")
        shutil.copytree(folder / "run", folder / "run2")
        make_index(IndexOptions(source=folder / "run", output=folder / "index"))
        cross_validate(config, folder / "folds", 2)
        sweep = Sweep.parse(swept, source="theirs")
        begin(sweep, folder / "sweep", Data(sweep), notify=lambda text: None)
    forget()
    (folder / "ran").unlink()
    return folder


def called(command: str, theirs: Path, out: Path) -> list[str]:
    return [word.replace("THEIRS", str(theirs)).replace("OUT", str(out)) for word in command.split()]


@pytest.mark.parametrize("command", sampled(RUNNING, 2))
def test_it_asks_first(
    command: str, received: Path, tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(received, theirs := tmp_path / "work" / "theirs")
    for file in (*theirs.rglob("*.toml"), *theirs.rglob("*.json")):  # as if they had been made for this place
        file.write_text(file.read_text().replace(str(received), str(theirs)))
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    code, out, err = run_command(*called(command, theirs, tmp_path / "made"))
    assert (code, "--trust-code" in err, f"{theirs}/code_of_theirs.py" in err) == (2, True, True), (out, err)
    assert not (theirs / "ran").exists()
    if not command.split()[1].endswith(".toml"):  # settings in the working folder are the user's own
        monkeypatch.chdir(tmp_path / "work")
        code, out, err = run_command(*called(command, theirs, tmp_path / "made"))
        assert (code, "came with" in err, "--trust-code" in err) == (2, True, True), (out, err)
        assert not (theirs / "ran").exists()
    code, _, err = run_command(*called(command, theirs, tmp_path / "made"), "--trust-code")
    assert (theirs / "ran").exists()
    assert "may be of others" not in err
    assert code == 0 or "was written with other settings" in err  # as their paths were changed here


@pytest.mark.parametrize("command", NOT_RUNNING)
def test_what_needs_one_setting_runs_nothing(
    command: str, received: Path, tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(received)
    assert run_command(*called(command, received, tmp_path / "made"))[0] == 0
    assert not (received / "ran").exists()


def test_every_command_that_reads_settings_has_the_option() -> None:
    having = {
        name for name, command in Commands().items() if any(option.name == "trust_code" for option in command.params)
    }
    assert having == {command.split()[0] for command in RUNNING} | {"index"}
