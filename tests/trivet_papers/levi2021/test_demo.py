"""The demo: class collapse on digits, and easy positives that prevent it."""

from __future__ import annotations

import html
import json
from pathlib import Path
from statistics import fmean

import pytest

from trivet.commands.demo import run as demo
from trivet.commands.demo.run import demonstrate

pytestmark = pytest.mark.usefixtures("rough_evaluation")

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, object], Path]:
    """A fifth of the steps and two of the three seeds show the same, by twice the bounds below."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SEEDS", SEEDS)
        patch.setattr(demo, "STEPS", 60)
        return demonstrate(folder, command="trivet demo").as_json(unset=False), folder


def test_easy_positives_keep_the_digits_apart(shown: tuple[dict[str, object], Path]) -> None:
    record, _ = shown
    assert fmean(record["gains"]["seen"]) > 0.04
    assert record["collapse"]["easy"]["mean"] > 3 * record["collapse"]["random"]["mean"]
    rows = {(row["positives"], row["split"], row["level"]): row for row in record["results"]}
    assert len(rows) == 8
    for positives in ("random", "easy"):
        assert rows[positives, "seen", "parity"]["recall@1"]["mean"] > 0.97  # what was trained on is learned
    for row in record["results"]:
        assert len(row["recall@1"]["values"]) == len(SEEDS)
        assert row["recall@1"]["mean"] == pytest.approx(fmean(row["recall@1"]["values"]))


def test_words_follow_from_the_numbers(shown: tuple[dict[str, object], Path]) -> None:
    record, _ = shown
    text = " ".join(record["text"])
    for arm in ("random", "easy"):
        row = next(
            row for row in record["results"] if (row["positives"], row["split"], row["level"]) == (arm, "seen", "digit")
        )
        assert f"{100 * row['recall@1']['mean']:.1f} %" in text
    for gain in record["gains"]["unseen"]:
        assert f"{100 * gain:+.1f}" in text


def test_files(shown: tuple[dict[str, object], Path]) -> None:
    record, folder = shown
    assert json.loads((folder / "record.json").read_text()) == record
    assert "<svg" in (folder / "picture.svg").read_text()
    assert record["text"][0] in html.unescape((folder / "report.html").read_text())
    with pytest.raises(ValueError, match="--force"):
        demonstrate(folder)


@pytest.mark.parametrize("name", ["thesis.txt", "record.json"])
def test_a_folder_of_something_else_is_kept(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="is not just a demo"):
        demonstrate(tmp_path, force=True)
    assert (tmp_path / name).exists()
