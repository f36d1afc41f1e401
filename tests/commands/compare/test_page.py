"""The page of `trivet compare`: what it says first, a line for each run, and names that do nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.made_runs import make_run
from tests.pages import page_words, write_compare_report
from tests.watched import HOSTILE, Watched

from trivet.commands.compare.run import compare_runs

pytestmark = pytest.mark.usefixtures("few_digits")


def record(names: list[str], *, runs: int = 2, split: str = "unseen", level: str = "digit") -> dict[str, Any]:
    """Two sides of a few runs, every name of which is one of these."""
    sides = {names[0]: [f"{names[2]}{n}" for n in range(runs)], names[1]: [f"{names[3]}{n}" for n in range(runs)]}
    order = [run for own in sides.values() for run in own]

    def near(hit: bool) -> dict[str, Any]:
        own = level if hit else names[1]
        return {"id": names[0], "thumbnail": None, "text": names[2], "labels": {level: own}, "similarity": 0.5}

    told = [{"kind": "class-collapse", "severity": "partial", "rule": f"at step 7: {names[0]}"}]
    item = {"id": names[1], "thumbnail": None, "text": names[3], "labels": {level: level}, "why": names[0]}
    return {
        "runs": [
            {
                "name": run,
                "side": side,
                "seed": 3,
                "fold": None,
                "status": names[1],
                "step": 40,
                "seconds": {names[2]: 61.0},
                "parameters": 1234,
                "helped": [f"Training helped: {names[3]} (recall@1 0.1 %)."],
                "diagnosis": {split: {"verdicts": told, "effective_rank": 2.5}},
                "events": told,
                "training": {
                    "step": [10, 20, 30],
                    "series": {"loss": [3.0, place, None], "dropped": [0, 0, 0]},
                    "validation_step": [20],
                    "recall": {level: [0.5]},
                },
            }
            for side, own in sides.items()
            for place, run in enumerate(own)
        ],
        "sides": [{"name": side, "runs": own} for side, own in sides.items()],
        "confidence": 0.99,
        "tables": [
            {
                "split": split,
                "level": level,
                "queries": 1000,
                "classes": 9,
                "chance": 0.1,
                "rows": [
                    {
                        "run": run,
                        "measures": {"recall@1": 0.5 + 0.01 * n, "map@r": 0.2, "nmi": 0.3},
                        "intervals": {"recall@1": [0.4, 0.6]},
                        "references": {names[0]: 0.25, "untrained network": 0.1 * n},
                    }
                    for n, run in enumerate(order)
                ],
                "means": [{"side": names[0], "measure": "recall@1", "mean": 0.505, "deviation": 0.007}],
                "differences": [
                    {
                        "of": names[1],
                        "less": names[0],
                        "measure": measure,
                        "value": 0.525,
                        "reference": 0.505,
                        "difference": 0.02,
                        "interval": [0.01, 0.03],
                        "outcome": "better",
                        "pairs": [
                            {"of": of, "less": less, "difference": 0.02}
                            for of, less in zip(sides[names[1]], sides[names[0]], strict=True)
                        ],
                    }
                    for measure in ("recall@1", "map@r")
                ],
            }
        ],
        "settings": [{"name": "loss.name", "values": [[names[0], ""], [str(n) for n in range(6)]]}],
        "notes": [names[3]],
        "gallery": {
            "split": split,
            "level": level,
            "queries": [item | {"runs": [{"run": run, "neighbours": [near(True), near(False)]} for run in order]}] * 3,
        },
        "command": f"trivet compare {names[0]}",
    }


PLAIN = ["left", "right", "left-", "right-"]


def test_the_difference_comes_first_with_its_interval_and_pairs(tmp_path: Path) -> None:
    write_compare_report(record(PLAIN), tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    assert (
        "right is better than left: unseen by digit 52.5 %, against 50.5 % "
        "(+2.0 points, +1.0 to +3.0; higher in 2 of 2 pairs)."
    ) in text[: text.index("Results Settings")]
    assert "confidence of 99 %. They say what other items" in text
    assert "left mean ± sd of 2 50.5 ± 0.7" in text
    assert "right- 0 52.0 40.0 to 60.0 +2.0 from left- 0 20.0" in text  # the last: its own untrained network
    assert "left 25.0" in text  # what all runs have in common is a row
    assert "chance 10.0" in text
    assert "loss. name left, not set 0, 1, 2, 3 and 2 more" in text
    assert "Training helped: right-." in text
    assert "The runs have different losses, whose values cannot be compared." in text


def test_a_measure_that_a_step_was_chosen_by_comes_before_recall(tmp_path: Path) -> None:
    given = record(PLAIN)
    given["runs"][0]["chosen_by"], given["runs"][-1]["chosen_by"] = "recall@1", "map@r"
    for one in given["tables"][0]["differences"]:
        one["outcome"] = "better" if one["measure"] == "map@r" else "open"
    write_compare_report(given, tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    by_choice = text.index("right is better than left by MAP@R: unseen by digit 52.5 %, against 50.5 %")
    assert by_choice < text.index("No clear difference between right and left by recall@1: unseen by digit 52.5 %")


def test_of_three_sides_the_best_comes_first(tmp_path: Path) -> None:
    given = record(PLAIN)
    table, third = given["tables"][0], {"of": "other", "value": 0.4, "outcome": "worse"}
    table["differences"] += [one | third for one in table["differences"]]
    given["sides"].append({"name": "other", "runs": ["other"]})
    write_compare_report(given, tmp_path / "page.html")
    sentence = (
        "unseen by digit: right has the highest recall@1 of the 3, 52.5 %. Compared with left, clearly better: right; "
        "clearly worse: other."
    )
    text = page_words(tmp_path / "page.html")
    assert 0 < text.index(sentence) < text.index("right is better than left:")


@pytest.mark.parametrize(("outcome", "said"), [("worse", "right is worse than left"), ("open", "No clear difference")])
def test_what_is_not_better_is_not_called_so(outcome: str, said: str, tmp_path: Path) -> None:
    given = record(PLAIN)
    for one in given["tables"][0]["differences"]:
        one["outcome"] = outcome
    write_compare_report(given, tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    assert said in text
    assert "is better than" not in text


def test_an_empty_record_makes_a_page(tmp_path: Path) -> None:
    write_compare_report({}, tmp_path / "page.html")
    assert "0 runs compared" in page_words(tmp_path / "page.html")


def test_each_run_has_a_line_of_its_own(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_compare_report(record(PLAIN), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    lines = watched.plot("Loss")
    assert [line["name"] for line in lines] == ["left-0", "left-1", "right-0", "right-1"]
    assert [line["y"] for line in lines] == [[3, 0, None], [3, 1, None]] * 2
    checks = watched.page.locator("figure", has_text="Recall@1 during training").locator(".plot")
    styles = checks.evaluate("plot => plot.data.map((trace) => [trace.line.color, trace.line.dash])")
    assert len({tuple(style) for style in styles}) == 4
    assert [colour for colour, _ in styles[:2]] == [styles[0][0]] * 2  # a side has one colour
    assert watched.page.get_by_text("Dropped anchors").count() == 0  # none were
    assert watched.offences == []


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    for at in (0, 4):
        names = HOSTILE[at : at + 4]
        write_compare_report(record(names, runs=1, split=names[2], level=names[3]), tmp_path / "page.html")
        watched = watch(tmp_path / "page.html")
        watched.page.locator("figure .plot .main-svg").first.wait_for()
        watched.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        watched.page.locator("figure .plot .nsewdrag").first.hover()
        watched.page.locator("figure .plot .hoverlayer .legendtext").first.wait_for()  # names the runs
        shown = watched.page.locator("main").inner_text()
        for name in names:
            assert name.encode(errors="replace").decode()[:60].split("\u2028")[0].strip() in shown
        assert watched.offences == []


def test_neighbours_are_shown_by_pictures_of_the_data(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path / "a", [1, 2, 3]), make_run(tmp_path / "b", [*range(20, 40)], name="random"),
    ]  # fmt: skip
    compare_runs(paths, report=tmp_path / "page.html", data_root=tmp_path)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["pictures"]
    assert len(text) < 2_000_000
    words = page_words(tmp_path / "page.html")
    assert words.count("The nearest item is right in a.") + words.count("The nearest item is right in b.") == 4
    assert words.count("Drawn at random.") == 2
    for path in paths:  # the data are gone
        config = path / "config.toml"
        config.write_text(config.read_text().replace('name = "digits"', 'name = "cub"'))
    compare_runs(paths, report=tmp_path / "page.html", data_root=tmp_path)
    assert "Items are shown by their ids, as the data of a cannot be loaded: " in page_words(tmp_path / "page.html")
