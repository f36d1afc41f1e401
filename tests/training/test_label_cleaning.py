"""Labels that look wrong while a run trains: left out or changed, and all of it repeatable."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nightly import sampled
from tests.training.runs import check_same_run

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.io.label_decisions import read_decisions
from trivet.label_noise import Suspects, find_suspects
from trivet.training import RunConfig
from trivet.training.checkpoint import step_of
from trivet.training.label_cleaning import CleaningConfig, CleaningState, LabelCleaning
from trivet.training.run_folder import RECORD, RunFolder
from trivet.training.trainer import Trainer

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit", "noise": {"kind": "symmetric", "rate": 0.3, "exact": True}},
    "batch": {"num_classes": 5, "samples_per_class": 4},
    "model": {"name": "mlp", "width": 32, "embedding_dim": 8},
    "loss": {"name": "triplet"},
    "training": {"steps": 20, "log_every": 1, "checkpoint_every": 4, "accelerator": "cpu"},
    "evaluation": {"every": 20, "map_points": 10, "sample": 50, "nmi_plus": 2},
    "cleaning": {"action": "drop", "after": 8, "every": 8},
}  # fmt: skip


def clusters(each: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clusters, their true labels, and labels of which the first tenth of each cluster are wrong."""
    random = np.random.default_rng(0)
    truth = np.repeat([2, 5, 7], each)
    centres = np.eye(3)[np.repeat([0, 1, 2], each)]
    labels = truth.copy()
    for first, other in ((0, 5), (each, 7), (2 * each, 2)):
        labels[first : first + each // 10] = other
    return centres + 0.05 * random.standard_normal((3 * each, 3)), truth, labels


def config(**cleaning: Any) -> RunConfig:
    return RunConfig.parse(SETTINGS | {"cleaning": SETTINGS["cleaning"] | cleaning}, source="test")


def cleaning_of(labels: np.ndarray, **settings: Any) -> LabelCleaning:
    return LabelCleaning(CleaningConfig(**{"action": "drop", **settings}), labels, batch_size=20)


def measured(
    points: np.ndarray, labels: np.ndarray, *, step: int = 0, num_classes: int = 3, **settings: Any
) -> tuple[LabelCleaning, str]:
    """Cleaning after its first check, and what it said."""
    cleaning = cleaning_of(labels, **{"after": step, **settings})
    return cleaning, cleaning.measure(step, points, num_classes=num_classes, seed=0)


def state_of(cleaning: LabelCleaning) -> CleaningState:
    """As a checkpoint gives it back."""
    return CleaningState.read(json.loads(json.dumps(cleaning.state().as_json())))


@pytest.fixture(scope="module", autouse=True)
def _unevaluated() -> Iterator[None]:
    """Runs end with their model and their record: the rest of an evaluation takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("train.run", "evaluate.trained_model"):
            patch.setattr(
                f"trivet.commands.{module}.write_evaluation",
                lambda run, record, *_, **__: run.write_record(record) or record,
            )
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "whole"
    train(config(), path)
    return path


def test_without_cleaning_a_state_leaves_all_labels_as_given() -> None:
    points, _, labels = clusters()
    cleaning, _ = measured(points, labels, step=3)
    assert cleaning.changed
    taken_back = LabelCleaning(None, labels, batch_size=20)
    taken_back.load(state_of(cleaning))
    assert not taken_back.changed
    assert taken_back.checks == []


def test_drop_leaves_out_what_the_neighbours_speak_against() -> None:
    points, truth, labels = clusters()
    cleaning, said = measured(points, labels, step=3)
    assert cleaning.rows.tolist() == np.flatnonzero(labels == truth).tolist()
    assert cleaning.labels.tolist() == labels.tolist()
    assert said == "step 3: 12 of 120 labels look wrong; 12 items dropped, 0 relabelled"
    assert cleaning.decisions() == [(i, "drop", int(labels[i])) for i in np.flatnonzero(labels != truth)]


def test_relabel_gives_them_the_class_of_their_neighbours_at_each_look() -> None:
    points, truth, labels = clusters()
    cleaning, _ = measured(points, labels, action="relabel", every=1)
    assert cleaning.labels.tolist() == truth.tolist()
    assert len(cleaning.rows) == 120
    assert cleaning.decisions() == [(i, "relabel", int(truth[i])) for i in np.flatnonzero(labels != truth)]
    (check,) = cleaning.checks
    assert (check.step, check.suspects, check.left_out, check.relabelled) == (0, 12, 0, 12)
    assert abs(check.least - 0.1) < 0.05
    cleaning.measure(1, points, num_classes=3, seed=0)  # again of the labels as given
    assert [check.relabelled for check in cleaning.checks] == [12, 12]


def test_only_what_is_above_the_limit_is_judged_wrong() -> None:
    points, _, labels = clusters(200)
    points += 0.3 * np.random.default_rng(1).standard_normal(points.shape)
    found = find_suspects(points, labels)
    moved = np.sort(found.probability_wrong[found.proposed != labels])
    limit = float(moved[len(moved) // 2])
    cleaning, _ = measured(points, labels, action="relabel", above=limit)
    changed = np.flatnonzero(cleaning.labels != labels).tolist()
    assert changed == np.flatnonzero(found.probability_wrong > limit).tolist()
    assert 0 < len(changed) < len(moved)


def test_what_an_early_look_has_shown_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _, labels = clusters()
    by_heart = points[np.argsort(np.argsort(labels, kind="stable"))]  # each item lies among those of its label
    known = []

    def judged(*arguments: Any, least: float, **options: Any) -> Suspects:
        known.append(least)
        return find_suspects(*arguments, least=least, **options)

    monkeypatch.setattr("trivet.training.label_cleaning.find_suspects", judged)
    cleaning, _ = measured(points, labels, every=1)
    cleaning.measure(1, by_heart, num_classes=3, seed=0)
    resumed = cleaning_of(labels, after=0, every=1)
    resumed.load(state_of(cleaning))
    resumed.measure(2, by_heart, num_classes=3, seed=0)
    first, second, _ = (look.least for look in resumed.checks)
    assert second < first
    assert known == [0.0, first, first]


def test_probabilities_add_up_to_the_share_that_is_known_to_be_wrong() -> None:
    points, _, labels = clusters()
    points += 0.3 * np.random.default_rng(1).standard_normal(points.shape)
    told = find_suspects(points, labels)
    more = find_suspects(points, labels, least=0.3)
    assert told.probability_wrong.mean() < 0.2
    assert more.probability_wrong.mean() == pytest.approx(0.3)
    assert more.order.tolist() == told.order.tolist()
    assert more.noise.rate == told.noise.rate
    with pytest.raises(ValueError, match=r"least must lie in \[0, 1\): got 30; give a share of the labels, not %"):
        find_suspects(points, labels, least=30)


def test_a_share_that_cannot_be_told_is_noted_by_its_lower_end() -> None:
    points, _, labels = clusters()
    points += 0.4 * np.random.default_rng(1).standard_normal(points.shape)
    noise = find_suspects(points, labels).noise
    assert noise.verdict == "cannot-tell"
    (look,) = measured(points, labels)[0].checks
    assert (look.noise_rate, look.least) == (None, noise.least)


def test_looks_are_due_at_their_steps_and_once() -> None:
    points, _, labels = clusters()
    cleaning = cleaning_of(labels, after=4, every=3, until=11)
    seen = []
    for step in range(20):
        if cleaning.due(step):
            seen.append((step, cleaning.judges(step)))
            cleaning.measure(step, points if cleaning.judges(step) else None, num_classes=2, seed=0)
            assert not cleaning.due(step)
    assert seen == [(4, True), (7, True), (10, True), (11, False)]
    assert not cleaning.changed
    assert len(cleaning.rows) == 120
    assert not any(LabelCleaning(None, labels, batch_size=20).due(step) for step in range(20))


@pytest.mark.parametrize(("items", "first"), [(120, 12), (121, 14), (4000, 200)])
def test_the_first_look_comes_after_two_epochs_at_most_200_steps(items: int, first: int) -> None:
    cleaning = cleaning_of(np.arange(items) % 3)
    assert [step for step in range(250) if cleaning.due(step)] == [first, *range(first + 100, 250, 100)]


def test_nothing_changes_where_too_few_classes_would_be_left() -> None:
    points, _, _ = clusters()
    labels = np.repeat([2, 5, 5], 40)
    labels[[0, 40]] = 7  # all items of this class lie deep inside another
    cleaning, said = measured(points, labels)
    assert said.startswith("step 0: 2 of 120 labels look wrong")
    assert "nothing is changed, as fewer classes would be left than batches need, 3" in said
    assert not cleaning.changed


def test_embeddings_that_are_not_finite_are_not_judged() -> None:
    points, _, labels = clusters()
    points[7] = np.nan
    cleaning, said = measured(points, labels)
    assert said == "step 0: the embeddings are not finite, so no label is judged"
    assert not cleaning.changed


@pytest.mark.parametrize("sizes", [[300, 300], [100] * 4, [400, 100, 100]])
def test_an_embedding_that_tells_nothing_changes_nothing(sizes: list[int]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    points = np.random.default_rng(0).standard_normal((len(labels), 8))
    cleaning, said = measured(points, labels, action="relabel", num_classes=2)
    assert said == "step 0: the embedding knows too little of the labels, so none is judged"
    assert not cleaning.changed
    assert cleaning.checks[0].suspects == 0


def test_a_first_look_that_never_comes_and_few_items_are_said() -> None:
    labels = np.arange(120) % 3
    with pytest.raises(ValueError, match=r"greater than the step of the first check, 12, .*: got 12; raise it"):
        cleaning_of(labels, until=12)
    cleaning = cleaning_of(labels)
    assert cleaning.warnings(12) == [
        "No label is judged: the first check would be at step 12, but the run has 12 steps."
    ]
    assert cleaning.warnings(13) == [
        "Cleaning may find no wrong label: of fewer than 500 items, here 120, few can be told from right ones where "
        "classes overlap."
    ]
    assert LabelCleaning(None, labels, batch_size=20).warnings(5) == []
    assert cleaning_of(np.arange(500) % 3).warnings(60) == []


@pytest.mark.parametrize("cleaning", sampled([{"action": "drop"}, {"action": "relabel", "every": 6, "until": 14}], 2))
def test_an_interrupted_look_loses_nothing(
    cleaning: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "trivet.label_noise.estimate.overlap_excess", lambda *_: math.inf
    )  # so early, a network is weak
    settings = config(after=6, **cleaning)
    whole = train(settings, tmp_path / "whole")
    assert whole.cleaning[0].suspects > 0
    assert any("labels look wrong" in line for line in caplog.messages)
    clean = Trainer._clean

    def interrupted(self: Trainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_clean", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "cut")
    assert [step_of(file) for file in RunFolder(tmp_path / "cut").checkpoints()] == [4, 6]
    monkeypatch.setattr(Trainer, "_clean", clean)
    assert resume(tmp_path / "cut").cleaning == whole.cleaning
    check_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_lost_record_keeps_the_looks(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / RECORD).unlink()
    assert evaluate_run(tmp_path / "run").cleaning == RunFolder(whole).record().cleaning


@pytest.mark.parametrize("action", ["drop", "relabel"])
def test_a_state_holds_all(action: str) -> None:
    points, _, labels = clusters()
    before, _ = measured(points, labels, action=action)
    after = cleaning_of(labels, action=action, after=0)
    after.load(state_of(before))
    assert after.labels.tolist() == before.labels.tolist()
    assert after.rows.tolist() == before.rows.tolist()
    assert after.checks == before.checks
    assert not after.due(0)


def test_until_must_lie_beyond_after() -> None:
    with pytest.raises(ValueError, match=r"cleaning: until must be greater than after, .*: got 8 and 8"):
        config(until=8)


def test_what_was_left_out_stands_in_a_decision_file(whole: Path) -> None:
    rows, record = read_decisions(whole / "cleaning.csv"), json.loads((whole / RECORD).read_text())
    assert len(rows) == record["cleaning"][-1]["left_out"] > 0
    assert {row.decision for row in rows} == {"drop"}
