"""`trivet train PATH`: candidates on held-out items, the best beside its encoder, and the run that it becomes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.commands.conftest import Call
from tests.models.test_encoders import CONVOLUTIONS, VIT, save_timm
from tests.small_texts import text_network

from trivet.collapse.forecast import Forecast
from trivet.collapse.monitor import CollapseMonitor
from trivet.commands.train import candidates as recipes
from trivet.commands.train import ladder as climbing
from trivet.commands.train import training_time
from trivet.commands.train.candidates import Candidate, Proposer
from trivet.commands.train.ladder import Ladder, validation_folds
from trivet.commands.train.training_time import TrainingTime
from trivet.datasets import Splits
from trivet.models import Embedder
from trivet.reports.ladder_record import CandidateRecord, LadderRecord
from trivet.reports.ladder_view import ladder_notes
from trivet.training.checkpoint_selection import Scores, compare_scores
from trivet.training.components import load_splits
from trivet.training.config import RunConfig
from trivet.training.ladder_config import RUNGS, LadderSettings

pytestmark = pytest.mark.usefixtures("undiagnosed")

T90 = {2: 6.3138, 3: 2.9200, 4: 2.3534, 5: 2.1318, 6: 2.0150, 7: 1.9432, 8: 1.8946}  # of Student's t, 95 % of one side
SMALL = ("--set=evaluation.map_points=20", "--set=evaluation.nmi_plus=1", "--set=evaluation.k=[1]")


def vectors(path: Path, *, classes: int = 16, items: int = 12, noise: float = 0.0, seed: int = 0) -> Path:
    """Vectors in which a class shows in some numbers, and other numbers vary `noise` times as much within each."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), items)
    centres = random.standard_normal((classes, 8))
    rows = np.concatenate(
        [
            centres[labels] + 0.8 * random.standard_normal((len(labels), 8)),
            noise * random.standard_normal((len(labels), 8)),
        ],
        axis=1,
    )
    np.savez(path, embeddings=rows.astype(np.float32), kind=np.array([f"k{label:02d}" for label in labels]))
    return path


def record_of(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "record.json").read_text())
    return record


def test_comparison_by_its_definition() -> None:
    random = np.random.default_rng(0)
    outcomes = set()
    for _ in range(60):
        classes = np.sort(random.integers(0, 5, 40))
        others = (random.random((40, 2)) < 0.5).astype(float)
        values = np.clip(others + random.normal(random.uniform(-0.1, 0.3), 0.3, (40, 2)), 0, 1)
        gains: list[list[float]] = []
        for column in (0, 1):
            by_class: dict[int, list[float]] = {}
            for row in range(40):
                by_class.setdefault(int(classes[row]), []).append(values[row, column] - others[row, column])
            gains.append([mean(each) for each in by_class.values()])
        half = [T90[len(each)] * stdev(each) / math.sqrt(len(each)) for each in gains]
        gain = mean((values - others)[:, 0].tolist())
        expected = mean(gains[0]) - half[0] > 0 and gain >= 0.01 and mean(gains[1]) + half[1] >= 0
        difference = compare_scores(Scores(values, classes, {}), Scores(others, classes, {}))
        assert difference.better == expected
        assert difference.low == pytest.approx(mean(gains[0]) - half[0], abs=1e-4)
        assert difference.high == pytest.approx(mean(gains[0]) + half[0], abs=1e-4)
        assert difference.mean == pytest.approx(gain)
        outcomes.add(difference.better)
    assert outcomes == {True, False}
    classes, slight = np.arange(40) % 5, np.random.default_rng(0).normal(1, 0.01, (40, 2))
    for gain, better in ((0.005, False), (0.02, True)):  # both beyond doubt
        difference = compare_scores(Scores(gain * slight, classes, {}), Scores(np.zeros((40, 2)), classes, {}))
        assert (difference.low or 0) > 0
        assert difference.better == better
    alone = Scores(np.ones((3, 2)), np.zeros(3, np.int64), {})
    assert not compare_scores(alone, Scores(np.zeros((3, 2)), alone.classes, {})).better


def test_vectors_reach_a_run_that_whitening_wins(
    run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors(Path("own.npz"), noise=2.5)
    command = ("train", "own.npz", "--set", 'ladder.rungs=["encoder", "whitening"]', *SMALL)
    code, out, err = run_command(*command)
    assert code == 0, err
    run = Path("runs/own")
    ladder = LadderRecord.read(record_of(run)["ladder"])
    assert (ladder.best, ladder.result) == ("the vectors, whitened", "the vectors, whitened")
    assert ladder.confirmed is not None
    assert ladder.confirmed.passed
    assert [each.better for each in ladder.candidates] == [True, True]
    assert "the result is the vectors, whitened, the best of 2 candidates" in " ".join(out.split())
    assert "points over" in out  # the vectors themselves are the reference
    assert "confirms the vectors, whitened" in (run / "report.html").read_text()
    # The run is one of its settings alone, and all training items.
    config = RunConfig.read(run / "config.toml")
    assert (config.model.name, config.data.folds, config.training.steps) == ("whitening", None, 0)
    code, _, err = run_command("train", run / "config.toml", "-o", "again", *SMALL)
    assert code == 0, err
    alone, result = (record_of(each)["evaluation"]["unseen"] for each in (Path("again"), run))
    assert [row for row in alone if row["name"] != "untrained network"] == result  # which is the result itself
    for candidate in ladder.candidates:
        assert RunConfig.read(run / "candidates" / f"{candidate.name.replace(' ', '-').replace(',', '-')}.toml")


def test_where_nothing_helps_the_encoder_is_the_result(
    run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = random.standard_normal((160, 6)).astype(np.float32)
    np.savez("shuffled.npz", embeddings=rows, kind=random.permutation(np.repeat([f"k{i:02d}" for i in range(16)], 10)))
    rungs = 'ladder.rungs=["encoder", "whitening", "head"]'
    code, out, err = run_command("train", "shuffled.npz", "--set", rungs, *SMALL)
    assert code == 0, err
    ladder = LadderRecord.read(record_of(Path("runs/shuffled"))["ladder"])
    assert ladder.result == "the vectors"
    names = ["the vectors", "the vectors, whitened", "the vectors, head of 60 steps"]
    assert [each.name for each in ladder.candidates] == names  # longer ones are not tried where that is no better
    assert "unchanged, as none of 2 candidates beside it was surely a point better" in " ".join(out.split())


class Scripted(Ladder):
    """A ladder whose candidates have the scores that a script gives, by class."""

    script: dict[str, Mapping[str, float]]
    measured: list[str]

    def _measure(self, candidate: Candidate, config: RunConfig, record: CandidateRecord) -> None:
        self._candidate = candidate
        super()._measure(candidate, config, record)

    def _fold_scores(self, config: RunConfig, splits: Splits, record: CandidateRecord) -> Scores:
        items = splits.evaluation["validation"]
        labels = items.labels[splits.level]
        rest = self.script[self._candidate.name]
        shares = np.array([rest.get(items.names[splits.level][label], rest["other"]) for label in labels])
        assert not set(labels) & set(splits.train.labels[splits.level])  # what is measured was not trained on
        return Scores(np.stack([shares, shares], axis=1), labels, {})


def scripted(tmp_path: Path, script: Mapping[str, Mapping[str, float]], classes: int = 16) -> Scripted:
    path = vectors(tmp_path / "own.npz", classes=classes)
    rungs = {"rungs": ["encoder", "whitening", "head"]}
    settings = LadderSettings.parse({"data": {"name": "vectors", "path": str(path)}, "ladder": rungs}, source="test")
    ladder = Scripted(settings, tmp_path, None)
    ladder.script = dict(script)
    return ladder


def test_a_head_is_trained_longer_while_it_gains_though_whitening_is_better(tmp_path: Path) -> None:
    shares = {"": 0.5, ", whitened": 0.9, ", head of 60 steps": 0.6, ", head of 200 steps": 0.95}
    ladder = scripted(tmp_path, {f"the vectors{name}": {"other": share} for name, share in shares.items()})
    ladder.script["the vectors, head of 800 steps"] = {"other": 0.92}
    ladder.climb()
    assert [each.better for each in ladder.record.candidates] == [True, True, False, True, False]
    assert ladder.record.result == "the vectors, head of 200 steps"


def test_what_only_the_choosing_half_praises_is_not_the_result(tmp_path: Path) -> None:
    names = [f"k{label:02d}" for label in range(32)]
    first = scripted(tmp_path, {"the vectors": {"other": 0.5}, "the vectors, whitened": {"other": 0.5}}, 32)
    first.script |= {f"the vectors, head of {steps} steps": {"other": 0.5} for steps in (60, 200, 800)}
    first.climb()
    assert first.record.result == "the vectors"
    # Which classes choose is seen from outside: each has a bit of its own in the mean of the record.
    (tmp_path / "ladder.json").unlink()
    bits = {name: 0.5 ** (place + 1) for place, name in enumerate(names)}
    one = scripted(tmp_path, {**first.script, "the vectors": {"other": 0.0, **bits}}, 32)
    one.climb()
    assert one.record.classes == 8
    total = 8 * (one.record.candidates[0].recall or 0)
    choosing = {name for place, name in enumerate(names) if int(total * 2 ** (place + 1)) % 2}
    assert len(choosing) == 8  # of the 16 trained ones, of which the other half confirms
    assert total == sum(bits[name] for name in choosing)
    for passed in (True, False):
        (tmp_path / "ladder.json").unlink()
        praised = {"other": 0.6 if passed else 0.3} | dict.fromkeys(choosing, 0.9)
        ladder = scripted(tmp_path, {**first.script, "the vectors, whitened": praised}, 32)
        config = ladder.climb()
        assert ladder.record.best == "the vectors, whitened"
        assert ladder.record.confirmed is not None
        assert ladder.record.confirmed.passed is passed
        assert config.model.name == ("whitening" if passed else "residual")
        assert ladder.record.result == ("the vectors, whitened" if passed else "the vectors")
        says = "confirms" if passed else "does not confirm"
        assert any(says in note for note in ladder_notes(ladder.record))


@pytest.mark.parametrize("surely", [True, False])
def test_inputs_are_the_best_encoder_only_beyond_doubt(tmp_path: Path, surely: bool) -> None:
    text_network(tmp_path / "base")
    rows = [f"card {i} {label},k{label:02d}" for label in range(16) for i in range(3)]
    (tmp_path / "asked.csv").write_text("text,kind\n" + "\n".join(rows) + "\n")
    data = {"name": "texts", "path": str(tmp_path / "asked.csv")}
    ladder = {"start": [str(tmp_path / "base")], "rungs": ["encoder", "whitening"]}
    climbed = Scripted(LadderSettings.parse({"data": data, "ladder": ladder}, source="test"), tmp_path, None)
    doubtful = {f"k{label:02d}": 0.3 if label % 2 else 0.9 for label in range(16)}
    climbed.script = {
        "base": {"other": 0.5},
        "character n-grams": {"other": 0.6} if surely else {**doubtful, "other": 0},
    }
    climbed.script |= {"base, whitened": {"other": 0.5}, "character n-grams, whitened": {"other": 0.6}}
    climbed.climb()
    assert max(each.map_at_r or 0 for each in climbed.record.candidates[1:2]) > 0.5
    best = "character n-grams" if surely else "base"
    assert (climbed.record.result, climbed.record.candidates[-1].name) == (best, f"{best}, whitened")


def mixed(path: Path, groups: int) -> Path:
    """Vectors of 12 classes, of which each holds so many groups."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 60)
    centres = 6 * random.standard_normal((12, groups, 8))
    rows = centres[labels, random.integers(0, groups, len(labels))] + random.standard_normal((len(labels), 8))
    np.savez(path, embeddings=rows.astype(np.float32), kind=np.array([f"k{label:02d}" for label in labels]))
    return path


@pytest.mark.parametrize(("groups", "positives"), [(1, "random"), (3, "easy")])
def test_coarse_classes_get_easy_positives(tmp_path: Path, groups: int, positives: str) -> None:
    path = mixed(tmp_path / "own.npz", groups)
    rungs = {"rungs": ["encoder", "head"]}
    settings = LadderSettings.parse({"data": {"name": "vectors", "path": str(path)}, "ladder": rungs}, source="test")
    ladder = Scripted(settings, tmp_path, None)
    ladder.script = {"the vectors": {"other": 0.5}, "the vectors, head of 60 steps": {"other": 0.4}}
    ladder.climb()
    (file,) = (tmp_path / "candidates").glob("*head*.toml")
    assert RunConfig.read(file).loss.model_dump()["positives"] == positives
    assert any("groups of items in the mean" in note for note in ladder_notes(ladder.record)) == (groups > 1)


def test_few_classes_choose_by_half_of_their_items_and_confirm_by_the_others(tmp_path: Path) -> None:
    few = scripted(tmp_path, {"the vectors": {"other": 0.5}, "the vectors, whitened": {"other": 0.6}})
    few.script["the vectors, head of 60 steps"] = {"other": 0.5}
    few.climb()
    assert few.record.confirmed is not None
    halves = [(few.record.items, few.record.classes), (few.record.confirmed.items, few.record.confirmed.classes)]
    assert halves == [(48, 8), (48, 8)]  # of 8 trained classes of 12 items
    assert few.record.result == "the vectors, whitened"


def test_a_ladder_that_was_stopped_goes_on(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "HEAD_STEPS", {2: 1e-3})
    vectors(Path("own.npz"), noise=2.5)
    command = ("train", "own.npz", "--set", 'ladder.rungs=["encoder", "whitening", "head"]', *SMALL)
    trained = list[str]()
    monkeypatch.setattr(climbing, "train", lambda config, path, **_: trained.append(config.to_toml()))
    run_command(*command, "-o", "once")
    measure = Ladder._fold_scores

    def stop(ladder: Ladder, config: RunConfig, *rest: Any) -> Scores:
        if config.model.name == "whitening":
            raise KeyboardInterrupt
        return measure(ladder, config, *rest)

    monkeypatch.setattr(Ladder, "_fold_scores", stop)
    code, _, err = run_command(*command, "-o", "twice")
    assert (code, "continue with trivet train --resume twice" in err) == (1, True)
    assert not Path("twice/config.toml").exists()
    code, _, err = run_command(*command, "-o", "twice")
    assert code == 2
    assert "twice holds a run; choose another --output, or add --force" in err
    monkeypatch.setattr(Ladder, "_fold_scores", measure)
    run_command("train", "--resume", "twice")

    def without_times(run: str) -> dict[str, Any]:
        ladder = json.loads((Path(run) / "ladder.json").read_text())
        return {**ladder, "seconds": 0, "candidates": [{**each, "seconds": 0} for each in ladder["candidates"]]}

    assert without_times("twice") == without_times("once")
    assert trained[0] == trained[1]
    Path("twice/record.json").write_text('{"status": "finished"}')
    run_command(*command, "-o", "twice", "--force")
    assert trained[0] == trained[2]
    assert Path("twice/.trivet-earlier/record.json").is_file()  # until the run that replaces it has ended


def images(folder: Path, *, classes: int = 8, items: int = 4) -> Path:
    random = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"k{label}").mkdir(parents=True)
        colour = random.integers(0, 200, 3)
        for item in range(items):
            pixels = np.clip(colour + random.integers(0, 60, (24, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"k{label}" / f"{item}.png")
    return folder


def test_images_climb_every_rung(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images(Path("photos"))
    for encoder in (VIT, CONVOLUTIONS):
        save_timm(encoder, Path(f"{encoder.name}.safetensors"))
    monkeypatch.setattr(recipes, "TUNING_STEPS", {"images": (1,)})
    monkeypatch.setitem(recipes.TUNING, "warmup_steps", 0)
    monkeypatch.setattr(recipes, "HEAD_STEPS", {2: 1e-3})
    monkeypatch.setattr(recipes, "SCRATCH_STEPS", (2, 2))
    monkeypatch.setattr(recipes, "LEAST_SIDE", 32)
    weights = [f"--weights={encoder.network}={encoder.name}.safetensors" for encoder in (VIT, CONVOLUTIONS)]
    sizes = []

    def load_and_note(config: RunConfig, *others: Any) -> Splits:
        splits = load_splits(config, *others)
        sizes.append(splits.train.inputs.shape)
        return splits

    monkeypatch.setattr("trivet.commands.train.ladder.load_splits", load_and_note)
    code, out, err = run_command("train", "photos", *weights, "--minutes", "60", *SMALL)
    assert code == 0, err
    assert len(sizes) == len(set(sizes)), "images of a size are read once"
    ladder = LadderRecord.read(record_of(Path("runs/photos"))["ladder"])
    assert {each.rung for each in ladder.candidates} == set(RUNGS)
    assert [each.reason for each in ladder.candidates if each.recall is None] == []
    assert ladder.result in out


def test_checkpoints_of_one_name_are_two_encoders(tmp_path: Path) -> None:
    for name in ("first/base", "second/base"):
        text_network(tmp_path / name)
    (tmp_path / "asked.csv").write_text("text,kind\n" + "".join(f"card {i},k{i // 4}\n" for i in range(32)))
    folders = [str(tmp_path / name) for name in ("first/base", "second/base", "first/base")]
    data = {"name": "texts", "path": str(tmp_path / "asked.csv")}
    settings = LadderSettings.parse({"data": data, "ladder": {"start": folders}}, source="test")
    splits = load_splits(RunConfig.parse({"data": data, "loss": {"name": "triplet"}}, source="test"), None)
    candidates = Proposer(settings, splits.train, splits.level, 4).candidates("encoder", [])
    assert [each.name for each in candidates] == ["first/base", "second/base", "character n-grams"]


POINT = Forecast(0.9, 1e-3, (1e-4, 1e-2), step=1, end=2, until=1, evidence={})


@pytest.mark.parametrize(
    ("minutes", "estimated", "forecast", "reason"),
    [
        (30, True, None, ""),
        (
            0.0001,
            True,
            None,
            r"Not tried: it takes about .* of 0\.0001 minutes 0\.0 are left; --minutes \d+ should be enough for it\.",
        ),
        (0.0001, False, None, r"Ended after 1 of 3 steps: the 0\.0001 minutes are over, .*; --minutes gives more\."),
        (30, True, POINT, r"Ended after 2 of 3 steps\. The embedding will probably shrink to a point: .*"),
    ],
)
def test_texts_are_fine_tuned_unless_the_time_is_over_or_they_collapse(
    run_command: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    minutes: float,
    estimated: bool,
    forecast: Forecast | None,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    text_network(Path("base"))
    words = ["card", "lost", "top", "up", "failed", "pay", "limit", "rent"]
    rows = [f"{words[k]} {a} {b},{words[k]}" for k in range(8) for a, b in [("is", "my"), ("the", "due"), ("my", "up")]]
    Path("asked.csv").write_text("text,kind\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr(recipes, "TUNING_STEPS", {"texts": (3,)})
    monkeypatch.setitem(recipes.TUNING, "warmup_steps", 0)
    monkeypatch.setattr(climbing, "FORECAST", 2)
    monkeypatch.setattr(CollapseMonitor, "forecast", lambda monitor: forecast)
    if not estimated:
        monkeypatch.setattr(TrainingTime, "_check", lambda *_: None)
    if reason.startswith("Not tried"):  # nor does any of its steps, to be timed
        monkeypatch.setattr(training_time, "_step_seconds", None)
    arguments = ("--start=base", f"--minutes={minutes}", '--set=ladder.rungs=["encoder", "fine-tuning"]')
    code, out, err = run_command("train", "asked.csv", *arguments, *SMALL)
    assert code == 0, err
    ladder = LadderRecord.read(record_of(Path("runs/asked"))["ladder"])
    names = ["base", "character n-grams", "base, fine-tuning of 3 steps", "base, LoRA of 3 steps"]
    assert [each.name for each in ladder.candidates] == names
    for each in ladder.candidates[2:]:
        assert re.fullmatch(reason, each.reason), each.reason
        assert (each.parameters is None) == (reason != "")
    assert ("2 candidates could not be compared: the notes say why." in " ".join(out.split())) == (reason != "")


def splits_of(tmp_path: Path, **options: Any) -> Splits:
    path = vectors(tmp_path / "own.npz", **options)
    settings = {"data": {"name": "vectors", "path": str(path)}, "loss": {"name": "triplet"}}
    return load_splits(RunConfig.parse(settings, source="test"), None)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (6, None),
        (8, (2, 2, "classes")),
        (94, (2, 2, "classes")),
        (96, (2, 1, "classes")),
        (500, (8, 1, "classes")),
    ],
)
def test_classes_that_are_held_out(tmp_path: Path, classes: int, expected: tuple[int, int, str] | None) -> None:
    assert validation_folds(splits_of(tmp_path, classes=classes, items=2)) == expected


@pytest.mark.parametrize(
    ("seconds", "rungs", "line"),
    [
        (90, ["encoder", "head"], "features 1.5, candidates and the training of the best up to 2.5"),
        (300, ["encoder", "head"], "features 5.0, which leaves nothing of 4 for training: minutes 10 does"),
        (90, ["encoder", "whitening"], "features 1.5"),
    ],
)
def test_it_is_said_beforehand_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, rungs: list[str], line: str
) -> None:
    values = {"data": {"name": "vectors", "path": str(vectors(tmp_path / "own.npz"))}, "ladder": {"rungs": rungs}}
    lines: list[str] = []

    class ToldError(Exception):
        """That it is said, beforehand, is all that is looked at."""

    def announce(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:  # after the counts of the data
            raise ToldError

    monkeypatch.setattr(climbing, "announce", announce)
    monkeypatch.setattr(climbing, "uses_features", lambda _: True)
    monkeypatch.setattr(climbing, "new_network", lambda *_: None)
    monkeypatch.setattr(climbing, "feature_seconds", lambda *_: seconds)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ToldError):
        Ladder(LadderSettings.parse(values, source="test"), tmp_path, None).climb()
    minutes = max(seconds / 60, 4) if "head" in rungs else seconds / 60
    assert lines[1] == f"About {minutes:g} minutes and the evaluation: {line}."


def test_too_few_classes_leave_the_vectors(tmp_path: Path) -> None:
    path = vectors(tmp_path / "few.npz", classes=6)
    settings = LadderSettings.parse({"data": {"name": "vectors", "path": str(path)}}, source="test")
    ladder = Ladder(settings, tmp_path, None)
    config = ladder.climb()
    assert (config.model.name, config.training.steps, ladder.record.result) == ("residual", 0, "the vectors")
    assert ladder_notes(ladder.record) == [
        "Fewer than 4 training classes: none can be held out, so nothing else was tried."
    ]


def test_bad_settings(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    vectors(Path("own.npz"))
    images(Path("photos"))
    monkeypatch.setattr("trivet.models.encoder_weights.CATALOGUE", ())
    for arguments, sentence in (
        (("own.npz", "--set", "data.folds=4"), "data.folds are those of a single run, and a ladder makes its own"),
        (("own.npz", "--set", 'ladder.rungs=["heads"]'), "ladder.rungs"),
        (("photos", "--weights", "efficientnet-lite0"), "--weights must be NAME=FILE"),
        (("photos", "--start", "nowhere"), "nowhere"),
        (("own.npz", "--folds", "3"), "a ladder holds out a fold of its own"),
    ):
        code, _, err = run_command("train", *arguments)
        assert code == 2, (arguments, err)
        assert sentence in err
        assert not list(Path("runs").glob("*/config.toml"))


def test_every_proposal_is_a_run(tmp_path: Path) -> None:
    """Also where a class has one item, which has no positive."""
    for items in (1, 4):
        splits = splits_of(tmp_path, items=items) if items > 1 else splits_of(tmp_path, items=2)
        data = {"name": "vectors", "path": str(tmp_path / "own.npz")}
        settings = LadderSettings.parse({"data": data}, source="test")
        train = splits.train if items > 1 else splits.train.subset(np.arange(1, len(splits.train)))
        proposer = Proposer(settings, train, splits.level, 5)
        ranked = proposer.candidates("encoder", [])
        for rung in RUNGS:
            for candidate in proposer.candidates(rung, ranked):
                config = recipes.settings_of(candidate)
                assert config.batch.num_classes <= 5
                assert (config.loss.name == "proxy-nca") == (items == 1)


def test_known_classes_are_measured_on_new_ones_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = vectors(tmp_path / "own.npz", classes=12, items=60, noise=1.5)
    monkeypatch.setattr(recipes, "HEAD_STEPS", {60: 1e-2})
    data = {"name": "vectors", "path": str(path), "split": "in-class"}
    settings = LadderSettings.parse({"data": data, "ladder": {"rungs": ["head"]}}, source="test")
    ladder = Ladder(settings, tmp_path, None)
    trained_on = list[set[int]]()
    measure = Ladder._fold_scores

    def seen(ladder: Ladder, config: RunConfig, splits: Splits, record: CandidateRecord) -> Scores:
        classes, held_out = (
            set(items.labels["kind"].tolist()) for items in (splits.train, splits.evaluation["validation"])
        )
        trained_on.append(classes & held_out)
        return measure(ladder, config, splits, record)

    monkeypatch.setattr(Ladder, "_fold_scores", seen)
    ladder.climb()
    record = ladder.record
    assert (record.folds_of, record.result) == ("items", "the vectors, head of 60 steps")
    assert [len(classes) for classes in trained_on] == [12, 12, 0, 0]  # to choose by known ones, then by new ones
    assert record.new_classes is not None
    assert (record.new_classes.classes, record.new_classes.items) == (6, 288)
    assert any(note.startswith("On new classes, 6 classes that were held out") for note in ladder_notes(record))


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_few_known_classes_are_measured_on_new_ones_where_two_can_be_told_apart(
    classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = vectors(tmp_path / "few.npz", classes=classes, items=60, noise=1.5)
    monkeypatch.setattr(recipes, "HEAD_STEPS", {60: 1e-2})
    data = {"name": "vectors", "path": str(path), "split": "in-class"}
    settings = LadderSettings.parse({"data": data, "ladder": {"rungs": ["head"]}}, source="test")
    ladder = Ladder(settings, tmp_path, None)
    ladder.climb()
    assert ladder.record.result == "the vectors, head of 60 steps"
    assert (ladder.record.new_classes is not None) == (classes == 4)


def test_a_batch_holds_all_classes_that_are_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = vectors(tmp_path / "own.npz", classes=12, items=60, noise=1.5)
    monkeypatch.setattr(recipes, "HEAD_STEPS", {60: 1e-2})
    data = {"name": "vectors", "path": str(path)}
    settings = LadderSettings.parse({"data": data, "ladder": {"rungs": ["head"]}}, source="test")
    ladder = Ladder(settings, tmp_path, None)
    batches = list[tuple[int, int, int]]()
    train = Ladder._trained

    def seen(ladder: Ladder, config: RunConfig, splits: Splits, record: CandidateRecord) -> Embedder:
        classes = len(set(splits.train.labels["kind"].tolist()))
        batches.append((classes, config.batch.num_classes, config.batch.samples_per_class))
        return train(ladder, config, splits, record)

    monkeypatch.setattr(Ladder, "_trained", seen)
    result = ladder.climb()
    assert ladder.record.result == "the vectors, head of 60 steps"
    assert (result.batch.num_classes, result.batch.samples_per_class) == (6, 8)
    assert batches == [(3, 3, 16), (3, 3, 16)]  # as many items as the result has
