"""Runs of experiments: each once, going on where they were stopped, whatever else runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from trivet.io.atomic_files import claimed
from trivet.training.components import load_splits
from trivet.training.loop import NotFiniteError
from trivet_papers import runs
from trivet_papers.experiment import Arm, Experiment, Recipe, arms
from trivet_papers.measured import MeasuredModel
from trivet_papers.measures import MEASURES
from trivet_papers.run_record import RunLine
from trivet_papers.runs import ArmRun, ResultFile, Runner, planned, results, store_of

pytestmark = pytest.mark.usefixtures("rough_evaluation")

BASE: dict[str, Any] = {
    "data": {"name": "digits", "level": "digit"},
    "batch": {"num_classes": 4, "samples_per_class": 4},
    "model": {"name": "linear", "embedding_dim": 4},
    "loss": {"name": "triplet"},
    "training": {"steps": 4, "accelerator": "cpu", "learning_rate": 0.05},
    "evaluation": {"every": 1000, "sample": 50, "k": [1]},
}
RECALL = "unseen/digit/recall@1"


def line(key: str, **more: Any) -> RunLine:
    """That of a run of which nothing was measured."""
    return RunLine(key=key, date="2020-01-01", versions={}, **more)


def experiment(*made: Arm, seeds: int = 1) -> Experiment:
    recipe = Recipe("digits", "a linear map", made, seeds, (), ())
    return Experiment("levi2021-table0", "A small one", "Nothing.", recipe, recipe)


def two(**options: Any) -> Experiment:
    return experiment(*arms(BASE, positives={"usual": {}, "easy": {"loss": {"positives": "easy"}}}, **options), seeds=2)


def runner(folder: Path, said: list[str] | None = None) -> Runner:
    return Runner(folder, data_root=None, models=None, report=(said if said is not None else []).append)


def test_what_is_missing_is_run_and_each_once(tmp_path: Path) -> None:
    one, said = two(), list[str]()
    runner(tmp_path, said).run_all([one], "here", 1, ())
    assert len(said) == 2
    assert len(store_of(tmp_path, one, "here").rows()) == 2
    runner(tmp_path, said).run_all([one], "here", None, ())
    assert len(said) == 4
    assert "seed 1" in said[-1]
    found, lines = results(one, "here", tmp_path)
    assert len(lines) == 4
    assert found.seeds == [0, 1]
    assert all(0 < value < 1 for value in found.numbers(RECALL, positives="easy"))
    assert not any((tmp_path / runs.WORK).iterdir())


def test_a_run_goes_on_between_stages_and_after_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = experiment(*arms(BASE, at=(0, 2, 4), last=("clusters",)))
    whole = experiment(*arms(BASE))
    runner(tmp_path / "whole").run_all([whole], "here", None, ())
    seen: list[int] = []
    honest = MEASURES["recall"]

    def killed(subject: MeasuredModel) -> dict[str, Any]:
        seen.append(subject.step)
        if subject.step == 4 and seen.count(4) == 1:
            raise KeyboardInterrupt
        return honest(subject)

    monkeypatch.setitem(MEASURES, "recall", killed)
    with pytest.raises(KeyboardInterrupt):
        runner(tmp_path / "killed").run_all([stages], "here", None, ())
    assert store_of(tmp_path / "killed", stages, "here").rows() == {}
    runner(tmp_path / "killed").run_all([stages], "here", None, ())
    assert seen == [0, 2, 4, 4]
    found, (kept,) = results(stages, "here", tmp_path / "killed")
    untrained, half, last = (found.get(0, RECALL, step) for step in (0, 2, 4))
    assert len({untrained, half, last}) == 3
    assert last == results(whole, "here", tmp_path / "whole")[0].get(0, RECALL)
    clusters = {step: "unseen/digit/nmi" in values for step, values in kept.values.items()}
    assert clusters == {"0": False, "2": False, "4": True}


def test_what_another_worker_does_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = experiment(*arms(BASE))
    (run,) = planned(one, "here", None)
    place = tmp_path / runs.WORK / run.key
    place.parent.mkdir(parents=True)
    monkeypatch.setattr(runs, "POLL", 0.01)
    with claimed(place):
        worker = threading.Thread(target=runner(tmp_path).run_all, args=([one], "here", None, ()))
        worker.start()
        worker.join(0.5)
        assert worker.is_alive()
        store_of(tmp_path, one, "here").add(line(run.key))
        worker.join(20)
        assert not worker.is_alive()


def test_a_run_that_ends_without_numbers_is_kept_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **options: object) -> None:
        raise NotFiniteError("rows 0, 1 hold NaN")

    monkeypatch.setattr(runs, "train", lost)
    one, said = experiment(*arms(BASE)), list[str]()
    runner(tmp_path, said).run_all([one], "here", None, ())
    _, (line,) = results(one, "here", tmp_path)
    assert line.failed
    assert line.values == {}
    assert "ended without a result: rows 0, 1 hold NaN" in said[0]


def test_a_key_says_all_that_the_numbers_depend_on() -> None:
    arm = Arm({"a": 1}, BASE)
    key = ArmRun(arm, 0).key
    assert ArmRun(Arm({"b": 2}, dict(BASE)), 0).key == key  # a name is none of it
    for other in (
        ArmRun(arm, 1),
        ArmRun(arm, 0, ("training.steps=5",)),
        ArmRun(Arm({}, BASE, ("recall", "clusters")), 0),
        ArmRun(Arm({}, BASE, at=(2, 4)), 0),
    ):
        assert other.key != key


def test_shorter_runs_measure_at_their_end(tmp_path: Path) -> None:
    one = experiment(*arms(BASE, at=(0, 4)))
    changes = ["training.steps=2"]
    runner(tmp_path).run_all([one], "here", None, changes)
    found, lines = results(one, "here", tmp_path, None, changes)
    assert list(lines[0].values) == ["0", "2"]
    assert found.get(0, RECALL) == lines[0].values["2"][RECALL]
    assert results(one, "here", tmp_path)[1] == []  # they are not those of the recipe


def test_weights_are_where_the_user_says(tmp_path: Path) -> None:
    run = ArmRun(Arm({}, BASE | {"model": {"name": "timm:resnet18", "weights": "{models}/some.safetensors"}}), 0)
    config = run.config(tmp_path)
    assert config.model.model_dump()["weights"] == tmp_path / "some.safetensors"
    assert "{models}" in json.dumps(run.settings)  # the key does not depend on the machine
    with pytest.raises(ValueError, match=r"folder of pretrained networks .* --models"):
        run.config(None)


def test_a_line_that_was_cut_off_is_skipped(tmp_path: Path) -> None:
    store = ResultFile(tmp_path / "levi2021-here.jsonl")
    store.add(line("a"))
    with store.file.open("a") as file:
        file.write('{"key": "b", "val')
    assert list(store.rows()) == ["a"]
    store.add(line("c"))
    assert list(store.rows()) == ["a", "c"]


@pytest.mark.parametrize("text", ["[]", '{"key": "b"}', '{"key": "b", "values": []}', "1"])
def test_a_line_of_something_else_is_named(text: str, tmp_path: Path) -> None:
    store = ResultFile(tmp_path / "levi2021-here.jsonl")
    store.add(line("a"))
    with store.file.open("a") as file:
        file.write(f"{text}\n")
    with pytest.raises(ValueError, match=r"levi2021-here.jsonl must be a run .* line 2 is none"):
        store.rows()


def test_changes_that_no_run_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match=r"training\.steps"):
        planned(two(), "here", None, ["training.steps=abc"])


def test_the_time_is_told_from_a_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = two()
    assert runner(tmp_path).seconds(planned(one, "here", 2)) > 0
    monkeypatch.setattr(Runner, "_step", lambda self, config: 0.5)
    told = runner(tmp_path)
    assert told.seconds(planned(one, "here", 1)) == 2 * 4 * 0.5  # arms, steps
    assert told.seconds(planned(one, "here", 2)) == 2 * 2 * 4 * 0.5
    assert told.seconds(planned(experiment(*arms(BASE, at=(0,))), "here", 1)) == 0


def test_data_are_read_once_whatever_their_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {"kind": "symmetric", "rate": 0.5, "seed": runs.SEED}
    few = {"data": {"noise": {**noise, "topline": True}}}
    made = arms(BASE, at=(0,), labels={"clean": {}, "noisy": {"data": {"noise": noise}}, "few": few})
    one, read, honest = experiment(*made, seeds=2), list[str](), load_splits
    trained: list[tuple[int, int, Any]] = []

    def counted(config: Any, *rest: Any) -> Any:
        read.append(config.data.name)
        return honest(config, *rest)

    def seen(subject: MeasuredModel) -> dict[str, Any]:
        splits, direct = subject.splits, honest(subject.config, None)
        assert (splits.train.labels[splits.level] == direct.train.labels[splits.level]).all()
        trained.append((subject.config.seed, len(splits.train), splits.train.labels[splits.level].sum()))
        return {}

    monkeypatch.setattr("trivet_papers.runs.load_splits", counted)
    monkeypatch.setitem(MEASURES, "recall", seen)
    runner(tmp_path).run_all([one], "here", None, ())
    assert read == ["digits"]
    (clean, noisy, part), (again, other, _) = trained[:3], trained[3:]
    assert part[1] < clean[1] == noisy[1]
    assert noisy[2] != other[2] != clean[2] == again[2]


def test_runs_of_the_same_data_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, dict[str, Any]] = {"whole": {}, "part": {"data": {"folds": 3}}}
    factors: dict[str, Any] = {"positives": {"usual": {}, "easy": {"loss": {"positives": "easy"}}}, "data": sizes}
    one, untrained = (experiment(*arms(BASE, at=at, **factors), seeds=2) for at in ((), (0,)))
    read, honest = list[int](), load_splits

    def counted(config: Any, *rest: Any) -> Any:
        read.append(config.data.folds)
        return honest(config, *rest)

    monkeypatch.setattr("trivet_papers.runs.load_splits", counted)
    told = runner(tmp_path)
    assert told.seconds(planned(one, "here", None)) > 0
    assert len(read) == 2
    told.run_all([untrained], "here", None, ())
    assert len(read) == 2 + 4
    assert [row.seed for row in store_of(tmp_path, untrained, "here").rows().values()] == [0] * 4 + [1] * 4


def test_a_run_whose_weights_cannot_be_measured_is_kept_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(subject: MeasuredModel) -> dict[str, Any]:
        raise NotFiniteError("row 3 holds NaN")

    monkeypatch.setitem(MEASURES, "recall", lost)
    one = experiment(*arms(BASE))
    runner(tmp_path).run_all([one], "here", None, ())
    found, (kept,) = results(one, "here", tmp_path)
    assert kept.failed == "row 3 holds NaN"
    assert found.ended_early(0)


def test_a_longer_run_measures_at_its_own_end(tmp_path: Path) -> None:
    run = ArmRun(Arm({}, BASE, at=(0, 2, 4)), 0, ("training.steps=8",))
    assert run.steps == (0, 2, 8)
    assert run.step_of(4) == 8


def test_seeds_are_not_set() -> None:
    with pytest.raises(ValueError, match="use --seeds"):
        planned(two(), "here", None, ["seed=7"])
