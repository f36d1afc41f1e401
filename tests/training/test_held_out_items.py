"""Items of trained classes that are held out of a run: those that choose its step, and what cannot be held out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.commands.conftest import Call
from tests.training.runs import head_settings, known_classes, record_of

from trivet.training.checkpoint_selection import make_selection
from trivet.training.components import load_splits

ITEMS = ("data.folds=5", "data.folds_of=items", "data.levels=['kind']")


@pytest.mark.parametrize(
    ("same", "changes", "expected"),
    [
        (True, ["data.folds=5", "data.folds_of=items"], (5, "items")),
        (True, ["data.folds_of=classes"], (4, "classes")),
        (True, ["data.folds=3"], (3, "classes")),
        (False, ["data.folds=3"], (3, "classes")),
    ],
    ids=str,
)
def test_the_step_is_chosen_by_what_queries_are(
    tmp_path: Path, same: bool, changes: list[str], expected: tuple[int, str]
) -> None:
    settings = head_settings(known_classes(tmp_path, same=same), "data.levels=['kind']", *changes)
    assert (settings.data.folds, settings.data.folds_of) == expected
    splits = load_splits(settings, None)
    noted = same and not any("folds_of" in change for change in changes)
    assert any("chooses by items of these" in line for line in splits.warnings) == noted
    held_out = splits.evaluation["validation"]
    shared = set(held_out.labels["kind"]) & set(splits.train.labels["kind"])
    assert bool(shared) == (expected[1] == "items")
    assert not set(held_out.ids) & set(splits.train.ids)


@pytest.mark.parametrize(("each", "alone"), [(6, True), (30, False)])
def test_held_out_items_that_are_alone_are_looked_for_among_the_training_items(
    tmp_path: Path, each: int, alone: bool
) -> None:
    settings = head_settings(known_classes(tmp_path, each=each), *ITEMS)
    splits = load_splits(settings, None)
    selection = make_selection(settings.choosing, settings.evaluation, splits, seed=0)
    assert (selection.known is not None) == alone


def test_folds_that_cannot_be_say_what_can(tmp_path: Path) -> None:
    path = known_classes(tmp_path, each=3)
    with pytest.raises(ValueError, match="0 to hold none out: got 1"):
        head_settings(path, "data.folds=1")
    with pytest.raises(ValueError, match=r"at least 4, .* set data.folds_of = \"classes\", or data.folds = 0"):
        load_splits(head_settings(path, *ITEMS), None)
    for remedy in ("data.folds_of=classes", "data.folds=0"):
        assert load_splits(head_settings(path, *ITEMS, remedy, "choosing.keep=last"), None)


def test_a_run_on_known_classes_names_the_command_that_measures_new_ones(
    run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ("training.steps=2", "evaluation.every=2", "evaluation.map_points=20", "evaluation.k=[1]")
    settings = head_settings(known_classes(tmp_path), *ITEMS, *quick, "batch.num_classes=6")
    Path("head.toml").write_text(settings.to_toml())
    code, _, err = run_command("train", "head.toml", "--set=data.folds=0")
    assert (code, 'set choosing.keep = "last", or set data.folds = 4' in err) == (2, True)
    code, out, err = run_command("train", "head.toml")
    assert code == 0, err
    assert "how it does on new ones was not measured" in Path("runs/head/report.html").read_text()
    (command,) = re.findall(r"how it does on new ones was not measured: trivet (.*?) does\.", " ".join(out.split()))
    code, _, err = run_command(*shlex.split(command))
    assert code == 0, err
    counts = record_of(Path("runs/head-classes"))["data"]["evaluation"]["validation"]
    assert (counts["trained_classes"]["kind"], counts["classes"]["kind"] > 1) == (0, True)
