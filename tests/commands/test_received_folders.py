"""A folder that somebody else made moves, replaces and removes nothing outside of it, and no files of others."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from tests.commands.conftest import Call
from tests.nightly import sampled
from tests.small_sweep import settings

from trivet.commands.train import ladder
from trivet.commands.train.run import train
from trivet.io.overwrite_guard import RUN_NAMES
from trivet.training import RunConfig
from trivet.training.run_folder import NAMES

pytestmark = pytest.mark.usefixtures("undiagnosed")

ASIDE = (".trivet-replaced", ".trivet-moving", ".trivet-earlier")
LINKED = (*ASIDE, "checkpoints", "model", "embeddings", "record.json", "report.html", "metrics.csv", "config.toml")
WRITING = [
    "evaluate RUN",
    "train --resume RUN",
    "train SETTINGS -o RUN --force",
    "forecast RUN",
    "embed RUN DATA -o OUT.parquet",
    "diagnose RUN",
]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, settings and a run."""
    folder = tmp_path_factory.mktemp("made")
    values = settings(folder)
    del values["sweep"]
    (folder / "run.toml").write_text(tomli_w.dumps(values))
    train(RunConfig.parse(values, source="made"), folder / "run")
    return folder


@pytest.mark.parametrize("name", sampled(LINKED, 5))
@pytest.mark.parametrize("command", WRITING)
def test_a_link_in_a_run_leads_to_no_change(
    command: str, name: str, made: Path, tmp_path: Path, run_command: Call
) -> None:
    run, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(made / "run", run)
    item = run / name
    if item.is_dir() or name in ASIDE:
        shutil.copytree(item, victim) if item.is_dir() else victim.mkdir()
        (victim / "unseen.parquet").write_bytes(b"mine")
        (victim / "thesis.txt").write_bytes(b"mine")
        shutil.rmtree(item, ignore_errors=True)
        item.symlink_to(victim)
    else:
        victim.mkdir()
        item.rename(victim / name)
        item.symlink_to(victim / name)
    before = snapshot(victim)
    places = {"RUN": run, "SETTINGS": made / "run.toml", "DATA": made / "x.npz", "OUT": tmp_path / "out"}
    words = [str(places.get(word, word)).replace("OUT", str(tmp_path / "out")) for word in command.split()]
    code, _, err = run_command(*words)
    assert snapshot(victim) == before, err
    assert code in (0, 2), err
    if code and command.split()[0] in ("evaluate", "train"):
        assert str(item) in err or "is no run" in err or "holds" in err, err


@pytest.mark.parametrize("name", ["candidates", "ladder.json", "ladder.toml"])
def test_a_link_in_a_ladder_leads_to_no_change(
    name: str, tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "train", lambda *_, **__: None)  # as if it had been stopped before
    rows = np.random.default_rng(0).normal(size=(48, 4))
    np.savez(tmp_path / "x.npz", embeddings=rows, label=np.repeat(list("abcdefghijklmnop"), 3))
    rungs = '--set=ladder.rungs=["encoder"]'
    assert run_command("train", tmp_path / "x.npz", rungs, "-o", tmp_path / "run")[0] == 1
    item, victim = tmp_path / "run" / name, tmp_path / "victim"
    item.rename(victim)
    item.symlink_to(victim)
    if name == "candidates":
        (tmp_path / "run" / "ladder.json").unlink()
    before = victim.read_bytes() if victim.is_file() else snapshot(victim)
    code, _, err = run_command("train", "--resume", tmp_path / "run")
    assert (code, f"{item} is a link" in err) == (2, True), err
    assert before == (victim.read_bytes() if victim.is_file() else snapshot(victim))


@pytest.mark.parametrize("aside", ASIDE)
@pytest.mark.parametrize("command", ["init HERE", "evaluate HERE", "train --resume HERE", "compare HERE HERE"])
def test_nothing_is_put_back_over_files_of_others(command: str, aside: str, tmp_path: Path, run_command: Call) -> None:
    here = tmp_path / "photos"
    for kind in "ab":
        (here / kind).mkdir(parents=True)
        (here / kind / "one.txt").write_text("mine")
    (here / "config.toml").write_text("mine")
    (here / aside).mkdir()
    (here / aside / "config.toml").write_text("theirs")
    (here / aside / "a").mkdir()
    before = snapshot(here)
    run_command(*command.replace("HERE", str(here)).split(), *(["-o", str(tmp_path / "x.toml")] * ("init" in command)))
    assert {name: data for name, data in snapshot(here).items() if name != ".lock"} == before


def test_notes_beside_a_killed_run_are_not_lost(made: Path, tmp_path: Path, run_command: Call) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run / ".trivet-replaced")
    shutil.copy(made / "run" / "config.toml", run)
    (run / "notes.txt").write_text("mine")
    code, _, _ = run_command("evaluate", run)
    assert (code, (run / "notes.txt").read_text()) == (2, "mine")
    (run / "notes.txt").rename(tmp_path / "notes.txt")
    assert run_command("evaluate", run)[0] == 0
    assert not (run / ".trivet-replaced").exists()


def test_a_link_in_a_sweep_replaces_no_run(made: Path, tmp_path: Path, run_command: Call) -> None:
    pytest.importorskip("optuna")
    values = settings(tmp_path, sampler="grid", vary={"loss.margin": [0.1, 0.2]})
    values["training"] |= {"steps": 2, "checkpoint_every": 2}
    (tmp_path / "sweep.toml").write_text(tomli_w.dumps(values))
    sent, own = tmp_path / "sent", tmp_path / "own"
    assert run_command("sweep", tmp_path / "sweep.toml", "-o", sent)[0] == 0
    shutil.copytree(made / "run", own)
    before = snapshot(own)
    for name in ("best", "trial-0"):
        (sent / name).rename(tmp_path / name)
        (sent / name).symlink_to(own)
        code, _, err = run_command("sweep", "--join", sent)
        assert (code, f"{sent / name} is a link" in err) == (2, True), err
        (sent / name).unlink()
        (tmp_path / name).rename(sent / name)
    assert snapshot(own) == before


def test_a_study_of_another_sweep_replaces_no_trial(
    tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr("trivet.commands.sweep.run.Worker._evaluate_best", lambda *_: None)  # takes longest
    values = settings(tmp_path, sampler="grid", vary={"loss.margin": [0.1, 0.2]})
    values["training"] |= {"steps": 2, "checkpoint_every": 2}
    for name in ("own", "sent"):
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(values))
        assert run_command("sweep", tmp_path / f"{name}.toml", "-o", tmp_path / name)[0] == 0
        values["training"]["learning_rate"] = 0.5
    before, study = snapshot(tmp_path / "own"), tmp_path / "sent" / "study.db"
    with closing(sqlite3.connect(study)) as database, database:  # as if it had begun in the folder of the other
        told = "UPDATE study_user_attributes SET value_json = replace(value_json, ?, ?)"
        assert database.execute(told, (f"{tmp_path}/sent", f"{tmp_path}/own")).rowcount
        database.execute("DELETE FROM trials")
    for command in (("--join", f"sqlite:///{study}"), ("--join", f"sqlite:///{study}", "-o", tmp_path / "own")):
        code, _, err = run_command("sweep", *command)
        assert (code, "a sweep goes on with its own settings" in err) == (2, True), err
    assert snapshot(tmp_path / "own") == before


def test_the_names_of_runs_are_those_of_runs() -> None:
    assert set(NAMES) <= set(RUN_NAMES)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (["-m", "trivet", "--version"], "trivet 0.1.0\n"),
        *(
            pytest.param([*start, "evaluate", "x.npz"], "recall@1", marks=pytest.mark.nightly)  # loads what takes long
            for start in (["-m", "trivet"], ["-P", "-c", "from trivet.commands.main import main; main()"])
        ),  # a program that is installed has no need of -P
    ],
)
def test_no_module_of_the_current_folder_hides_another(start: list[str], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", embeddings=np.eye(6), label=np.array(list("aabbcc")))
    for name in ("typer", "torch", "numpy", "faiss", "pydantic", "sklearn"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('run')\n")
    ended = subprocess.run([sys.executable, *start], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, said in ended.stdout) == (0, True), ended.stderr


def test_processes_are_started_without_the_modules_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trivet.training.distributed import launch

    class Ended:
        def __init__(self, *_: object, **__: object) -> None:
            flags = subprocess.run([sys.executable, "-c", "import this_is_here"], cwd=tmp_path, capture_output=True)
            codes.append(flags.returncode)

        def pids(self) -> list[int]:
            return []

        def join(self, grace_period: float) -> bool:
            return True

    codes: list[int] = []
    (tmp_path / "this_is_here.py").write_text("")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(launch, "start_processes", Ended)
    launch.launch(lambda: None, 2, tmp_path)
    Ended()
    assert codes == [1, 0]
