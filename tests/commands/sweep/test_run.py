"""A sweep chooses by validation alone and tests once; whatever stops it, it goes on to the same result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optuna")

from tests.commands.conftest import Call
from tests.nightly import sampled
from tests.small_sweep import settings

from trivet.collapse.monitor import Event
from trivet.commands.compare.run import compare_runs
from trivet.commands.sweep import run as task
from trivet.commands.sweep.run import Data, Location, begin, join, work
from trivet.commands.sweep.search_space import Sweep
from trivet.commands.sweep.study import open_study
from trivet.commands.train.run import train
from trivet.reports.run_record import SelectionCheck
from trivet.runtime.safe_read import parse_toml
from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("undiagnosed")


def small(folder: Path, **sweep: Any) -> Sweep:
    values = settings(folder, **sweep)
    values["sweep"]["vary"] = {"training.learning_rate": [0.001, 0.01, 3e37]}
    values["sweep"] = {"sampler": "grid", "folds": 2, "heartbeat": 1, "vary": values["sweep"]["vary"], **sweep}
    return Sweep.parse(values, source="small.toml")


def swept(sweep: Sweep, folder: Path, said: list[str] | None = None) -> dict[str, Any]:
    data, lines = Data(sweep), [] if said is None else said
    location = begin(sweep, folder, data, notify=lines.append)
    return work(*location, data, command="trivet sweep", notify=lines.append).as_json()


def found(record: dict[str, Any]) -> list[Any]:
    """What a sweep found, without what another time or folder changes."""
    return [
        (one["number"], one["state"], one["value"], one["why"], one["settings"], [run["step"] for run in one["runs"]])
        for one in record["trials"]
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[str]]:
    """A sweep that nothing stopped: its folder, record and what was said."""
    folder, said = tmp_path_factory.mktemp("sweeps"), []
    return folder / "small", swept(small(folder), folder / "small", said), said


def test_the_best_is_first_and_what_fails_says_why(whole: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, record, said = whole
    assert record["status"] == "finished"
    assert [one["state"] for one in record["trials"]] == ["complete", "complete", "failed"]
    first, second, failed = record["trials"]
    assert first["number"] == record["best"]
    assert first["value"] > second["value"]
    assert failed["settings"] == {"training.learning_rate": 3e37}
    assert "must be at most 1e+30" in failed["why"]
    assert len(first["runs"]) == 2
    assert first["value"] == pytest.approx(sum(run["value"] for run in first["runs"]) / 2)
    assert first["interval"][0] <= first["value"] <= first["interval"][1]
    assert [line.partition(":")[0] for line in said[:2]] == ["1/3", "2/3"]
    assert json.loads((folder / "sweep.json").read_text()) == record
    assert record["importance"] is None  # of three trials


def test_test_classes_are_measured_once_by_the_best(whole: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, record, _ = whole
    for run in folder.glob("trial-*/*"):
        known = RunFolder(run).record()
        assert known is not None
        assert list(known.data.evaluation) == ["validation"]
        assert set(known.evaluation) <= {"validation"}
    assert not (folder / f"trial-{record['best']}" / "fold-0-seed-0" / "checkpoints").exists()
    best = RunFolder(folder / "best").record()
    assert best is not None
    assert list(best.evaluation) == ["unseen"]
    tested = best.evaluation["unseen"][0].levels["kind"]["recall@1"]
    assert record["tested"]["unseen"]["kind"]["trained"]["recall@1"] == tested
    assert record["helped"]
    config = RunConfig.parse(parse_toml((folder / "best.toml").read_text()), source="best.toml")
    assert config.training.learning_rate == record["trials"][0]["settings"]["training.learning_rate"]
    assert config.data.folds is None


@pytest.mark.usefixtures("unevaluated")
def test_a_trial_is_what_training_alone_comes_to(whole: tuple[Path, dict[str, Any], list[str]], tmp_path: Path) -> None:
    folder, record, _ = whole
    run = record["trials"][0]["runs"][1]
    config = RunConfig.read(folder / f"trial-{record['best']}" / "fold-1-seed-0" / "config.toml")
    alone = train(config, tmp_path / "alone")
    assert alone.choosing is not None
    assert alone.choosing.checks[-1].value == run["value"]


def test_a_finished_sweep_does_nothing_more(whole: tuple[Path, dict[str, Any], list[str]]) -> None:
    folder, record, _ = whole
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*/metrics.csv")}
    for again in (
        swept(small(folder.parent), folder),
        work(*(pair := join(str(folder), None, None)), Data(pair[0])).as_json(),
    ):
        assert found(again) == found(record)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*/metrics.csv")} == before
    values = settings(folder.parent)
    values["batch"]["num_classes"] = 2
    values["sweep"] = small(folder.parent).config.model_dump(exclude_none=True)
    other = Sweep.parse(values, source="x")
    with pytest.raises(ValueError, match=r"goes on with its own settings: .* has others \(batch.num_classes\)"):
        begin(other, folder, Data(other))


def test_the_command_says_the_result_first(
    whole: tuple[Path, dict[str, Any], list[str]], run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record, _ = whole
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        code, printed, _ = run_command("sweep", "--join", str(folder))
        assert code == 0
        assert printed.startswith(record["helped"][0]["text"][:20].replace("\u00a0", " "))
        assert printed.index("map@r on validation") < printed.index("trial 2 failed: ") < printed.index("Report: ")
        code, printed, _ = run_command("sweep", "--join", str(folder), "--json")
        assert (code, json.loads(printed)["best"]) == (0, record["best"])
        mistakes = [
            ((), "sweep needs a settings file"),
            (("--join", str(folder), "--study", "x"), "leave out --study"),
            (("--join", str(folder), "--set", "seed=1"), "leave out --set"),
            (("--join", str(folder.parent)), "a sweep to join must hold sweep.toml"),
        ]
        for arguments, said in mistakes:
            code, _, err = run_command("sweep", *arguments)
            assert (code, said in err) == (2, True)
        monkeypatch.setenv("WORLD_SIZE", "2")
        code, _, err = run_command("sweep", "--join", str(folder))
        assert (code, "leave out torchrun" in err) == (2, True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_compare_reads_the_best_trials(whole: tuple[Path, dict[str, Any], list[str]], tmp_path: Path) -> None:
    folder, record, _ = whole
    compared = compare_runs([folder])
    assert [side.name for side in compared.sides] == [f"trial-{one['number']}" for one in record["trials"][:2]]
    assert [len(side.runs) for side in compared.sides] == [2, 2]
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "sweep.json").unlink()
    with pytest.raises(ValueError, match="a compared sweep must have a result"):
        compare_runs([tmp_path / "copy"])


def test_a_sweep_that_is_stopped_goes_on_to_the_same(
    whole: tuple[Path, dict[str, Any], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, steps = task._watch, []

    def make_watch(*arguments: Any, **options: Any) -> Any:
        watch = make(*arguments, **options)

        def stopping(checks: Sequence[SelectionCheck], events: Sequence[Event]) -> str | None:
            steps.append(checks[-1].step)
            if len(steps) in (2, 9):  # in the first run of a trial, and in the second one of another
                os.kill(os.getpid(), signal.SIGINT)
            return watch(checks, events)

        return stopping

    monkeypatch.setattr(task, "_watch", make_watch)
    monkeypatch.setattr(task.Worker, "_evaluate_best", lambda *_: None)  # takes longer than all training
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sweep, said = small(whole[0].parent), []
        first = swept(sweep, tmp_path / "small", said)
        assert RunFolder(tmp_path / "small" / "trial-0" / "fold-0-seed-0").checkpoints()
        second = swept(sweep, tmp_path / "small", said)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [first["status"], second["status"]] == ["interrupted", "interrupted"]
    assert [one["state"] for one in first["trials"]] == ["waiting"]
    assert not (tmp_path / "small" / "best").exists()
    assert found(swept(sweep, tmp_path / "small", said)) == found(whole[1])
    assert steps.count(5) == 4  # no run began again; the one that fails does not come so far


KILLED = """
import os, sys, time, signal
from pathlib import Path
import torch
import torch._dynamo  # as an optimiser does: once, before the workers are forked
from trivet.runtime.safe_read import parse_toml
from trivet.commands.sweep.run import Data, begin, work
from trivet.commands.sweep.search_space import Sweep
from trivet.commands.sweep.study import open_study
from trivet.commands.sweep import run as task
torch.set_num_threads(1)
task.Worker._evaluate_best = lambda *_: None  # takes longer than all training
folder = Path(sys.argv[1])
sweep = Sweep.parse(parse_toml((folder / "sweep.toml").read_text()), source="x")
data = Data(sweep)
sweep, place = begin(sweep, folder / "killed", data)
children = []
for victim in (True, False):
    child = os.fork()
    if child == 0:
        seen = []
        make = task._watch
        def make_watch(*arguments, **options):
            watch = make(*arguments, **options)
            def watching(looks, events):
                seen.append(looks[-1].step)
                if victim and len(seen) == 2:  # in its first trial, after a checkpoint
                    os.kill(os.getpid(), signal.SIGKILL)
                return watch(looks, events)
            return watching
        task._watch = make_watch
        record = work(sweep, place, data, notify=lambda text: None)
        os._exit(0 if record.status in ("finished", "waiting") else 1)
    children.append(child)
print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.nightly
def test_two_workers_of_which_one_is_killed(tmp_path: Path) -> None:
    sweep = Sweep.parse(settings(tmp_path, trials=3, pruning=False), source="x")
    (tmp_path / "sweep.toml").write_text(sweep.to_toml())
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert run.stdout.split() == [str(-signal.SIGKILL), "0"], run.stderr
    record = json.loads((tmp_path / "killed" / "sweep.json").read_text())
    assert sorted((one["number"], one["state"]) for one in record["trials"]) == [(n, "complete") for n in range(3)]
    (again,) = [one for one in record["trials"] if one["attempts"] > 1]
    # It went on from the checkpoint of the dead worker, to what it would have come to.
    path = tmp_path / "killed" / f"trial-{again['number']}" / "fold-0-seed-0"
    alone = train(RunConfig.read(path / "config.toml"), tmp_path / "alone")
    assert alone.choosing is not None
    assert alone.choosing.checks[-1].value == again["value"]
    assert (path / "metrics.csv").read_text() == (tmp_path / "alone" / "metrics.csv").read_text()


def test_a_collapse_ends_a_trial_with_its_reason(tmp_path: Path) -> None:
    class Reported:
        def report(self, *_: object) -> None:
            pass

    config = RunConfig.parse({"data": {"name": "digits"}, "loss": {"name": "triplet"}}, source="x")
    event = Event(7, "network-collapse", {}, "all in one point", (), None, 0)
    quiet = Event(7, "dead-sampler", {}, "no triplet is active", (), None, 0)
    look = [SelectionCheck(step=5, value=0.1, recall=0.1, gain=0.0)]
    for pruning, events, why in [
        (True, [quiet], None),
        (True, [quiet, event], "network collapse detected at step 7: all in one point"),
        (False, [event], None),
    ]:
        assert task._watch(config, Reported(), 0, pruning=pruning)(look, events) == why


def test_nothing_is_chosen_by_test_classes_and_nothing_is_left(tmp_path: Path) -> None:
    values = settings(tmp_path)
    del values["data"]["folds"]
    sweep = Sweep.parse(values, source="x")
    with pytest.raises(
        ValueError,
        match="must choose by items that are not tested: there is only unseen; give the data a split val, or set data",
    ):
        begin(sweep, tmp_path / "made", Data(sweep))
    values = settings(tmp_path)
    values["sweep"]["vary"]["batch.num_classes"] = [3, 50]
    sweep = Sweep.parse(values, source="x")
    with pytest.raises(ValueError, match=r"with batch\.num_classes = 50: a batch of num_classes = 50 needs"):
        begin(sweep, tmp_path / "made", Data(sweep))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("split", sampled(["a split val", "folds"], 2))
def test_what_chose_is_not_called_tested(tmp_path: Path, split: str) -> None:
    values = settings(tmp_path)
    values["training"]["steps"] = 5
    if split == "folds":
        values["choosing"] = {"keep": "best"}  # the run of the best settings chooses its step by a fold, too
    else:
        with np.load(tmp_path / "x.npz") as file:
            names = np.where(file["kind"] < "k06", "train", np.where(file["kind"] < "k09", "val", "test"))
            np.savez(tmp_path / "x.npz", **file, split=names)
        del values["data"]["folds"]
        values["data"]["split"] = "auto"
    values["sweep"] = {"vary": {"training.learning_rate": [1e-3, 1e-2]}, "sampler": "grid"}
    record = swept(Sweep.parse(values, source="x"), tmp_path / "made")
    best = RunFolder(tmp_path / "made" / "best").record()
    assert best is not None
    assert best.choosing is not None
    assert [*best.evaluation] == ["unseen", best.choosing.split]
    assert list(record["tested"]) == ["unseen"]
    assert record["helped"]
    assert not any(f"{best.choosing.split} by" in line["text"] for line in record["helped"])


def test_where_all_trials_fail_it_is_said(tmp_path: Path) -> None:
    values = settings(tmp_path)
    values["sweep"] = {"vary": {"training.learning_rate": [2e37, 3e37]}, "sampler": "grid"}
    record = swept(Sweep.parse(values, source="x"), tmp_path / "made")
    assert (record["status"], record["best"], record["helped"]) == ("failed", None, [])
    assert record["notes"][0].startswith("No trial has a value: of 2 trials all failed. The first says: ")
    assert not (tmp_path / "made" / "best.toml").exists()
    assert (tmp_path / "made" / "sweep.html").is_file()


def test_a_folder_that_was_renamed_goes_on_with_its_study(tmp_path: Path) -> None:
    sweep = small(tmp_path)
    _, place = begin(sweep, tmp_path / "home", Data(sweep))
    with open_study(place.url, sweep.config, place.name, make=False) as study:
        attempt = study.claim(None)
        assert attempt is not None
        assert attempt.complete(0.5, [])
    (tmp_path / "home").rename(tmp_path / "moved")
    for _, other in (join(str(tmp_path / "moved"), None, None), begin(sweep, tmp_path / "moved", Data(sweep))):
        assert (other.folder, other.name) == (tmp_path / "moved", "home")
        with open_study(other.url, sweep.config, other.name, make=False) as study:
            assert [one.state for one in study.outcomes()] == ["complete"]
    # A study of another program in the file is not one of a sweep.
    optuna = pytest.importorskip("optuna")
    (tmp_path / "new").mkdir()
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'new' / 'study.db'}")
    optuna.create_study(storage=storage, study_name="theirs")
    storage.engine.dispose()
    assert begin(sweep, tmp_path / "new", Data(sweep))[1].name == "new"


def test_a_folder_that_was_renamed_finds_its_study_in_a_storage(tmp_path: Path) -> None:
    sweep = small(tmp_path, storage=f"sqlite:///{tmp_path / 'shared.db'}")
    begin(sweep, tmp_path / "home", Data(sweep))
    (tmp_path / "home").rename(tmp_path / "moved")
    assert join(str(tmp_path / "moved"), None, None)[1].name == "moved"
    assert join(str(tmp_path / "moved"), None, "home")[1].name == "home"


def test_a_worker_without_the_folder_needs_one(tmp_path: Path) -> None:
    sweep = small(tmp_path)
    _, place = begin(sweep, tmp_path / "home", Data(sweep))
    shutil.move(tmp_path / "home" / "sweep.toml", tmp_path / "moved.toml")
    with pytest.raises(ValueError, match="the runs of a worker need a folder"):
        join(place.url, None, None)
    again, other = join(place.url, tmp_path / "other", None)
    assert other == Location(tmp_path / "other", place.url, "home")
    assert again.config.vary == sweep.config.vary
    with pytest.raises(ValueError, match=r"a sweep to join must hold sweep\.toml"):
        join(str(tmp_path), None, None)
