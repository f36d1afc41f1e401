"""The page of `trivet sweep`: the result first, a line for each trial, and names that do nothing."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.watched import HOSTILE, Watched

from trivet.commands.sweep.page import write_sweep_report
from trivet.commands.sweep.record import SweepRecord


def page_text(path: Path) -> str:
    """The words of the page: tags taken out, white space made one."""
    text = path.read_text(encoding="utf-8")
    body = text[text.index("<main>") : text.index("</main>")]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body))).replace("\u00a0", " ")


def record(names: list[str], *, status: str = "finished") -> SweepRecord:
    """Five trials of a choice and a range; every name is one of these."""

    def trial(number: int, value: float | None, **more: Any) -> dict[str, Any]:
        settings = {names[0]: [names[1], {"name": names[2], "k": 2}, True][number % 3], names[3]: 10.0 ** -(number + 1)}
        values = [] if value is None else [{"seed": s, "fold": None, "value": value, "start": 0.1} for s in (0, 1)]
        known = {"state": "complete", "value": value, "interval": [0.2, 0.9], "start": 0.1, "attempts": 1 + number % 2}
        return {"number": number, "settings": settings, "runs": values, **known, "order": 4 - number, **more}

    lost = {"interval": None, "start": None, "why": f"because of {names[2]}"}
    values = {
        "status": status,
        "study": names[1],
        "sampler": "tpe",
        "measure": "map@r",
        "requested": 5,
        "seeds": [0, 1],
        "vary": [
            {"name": names[0], "choices": [names[1], f"{names[2]}, k 2", "true"]},
            {"name": names[3], "choices": [], "low": 1e-5, "high": 0.1, "log": True},
        ],
        "trials": [
            trial(2, 0.75),
            trial(0, 0.5, level_with_best=True),
            trial(1, 0.25),
            trial(3, None, **lost, state="pruned", measurements=[{"run": 0, "step": 5, "value": 0.125}]),
            trial(4, None, **lost, state="failed"),
        ],
        "best": 2,
        "best_settings": f"# {names[3]}",
        "importance": {names[0]: 0.75, names[3]: 0.25},
        "helped": [{"tone": "good", "text": f"Training helped: {names[2]}."}] if status == "finished" else [],
        "tested": {
            names[2]: {
                names[3]: {
                    "trained": {"recall@1": 0.625, "recall@10": 0.875, "map@r": 0.5},
                    "raw inputs": {"recall@1": 0.375},
                }
            }
        },
        "notes": [names[0]],
        "command": f"trivet sweep {names[0]}",
    }
    return SweepRecord.read(values)


PLAIN = ["loss.positives", "easy", "other", "training.rate"]


def test_the_result_comes_first_then_the_trials_best_first(tmp_path: Path) -> None:
    write_sweep_report(record(PLAIN), tmp_path / "page.html")
    text = page_text(tmp_path / "page.html")
    assert text.index("Training helped: other.") < text.index("Result") < text.index("Trials")
    assert "3 complete, 1 pruned, 1 failed of 5 trials sampler tpe 2 runs each: 2 seeds" in text
    assert "split level network R@1 R@10 MAP@R other training. rate trained 62.5 87.5 50.0" in text
    assert "other training. rate raw inputs 37.5 – –" in text
    assert "MAP@R 75.0 % on validation (95 % over the runs: 20.0 to 90.0), 10.0 % before training." in text
    rows = text[text.index("best first") :]
    assert rows.index("2 75.0") < rows.index("0 50.0 ≈") < rows.index("1 2 attempts 25.0")
    assert "4 failed because of other" in text
    assert "# training.rate" in text


def test_what_is_not_tested_is_not_called_so(tmp_path: Path) -> None:
    write_sweep_report(record(PLAIN, status="interrupted"), tmp_path / "page.html")
    assert "The best settings are not tested yet: the sweep is interrupted." in page_text(tmp_path / "page.html")
    write_sweep_report(SweepRecord(status="failed", notes=["No trial has a value."]), tmp_path / "no")
    assert "Nothing can be tested: the sweep is failed. No trial has a value." in page_text(tmp_path / "no")


def test_each_trial_is_a_line_through_its_settings(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_sweep_report(record(PLAIN), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    lines = watched.page.locator("#parallel-plot").evaluate("plot => plot.data.map((trace) => trace.y)")
    # The worst first: choices by their places, the range by its logarithm, and the measure from worst to best.
    assert [[round(y, 3) for y in line] for line in lines] == [[0.5, 0.75, 0], [0, 1, 0.5], [1, 0.5, 1]]
    history = watched.page.locator("#history-plot").evaluate("plot => plot.data.map((trace) => trace.y)")
    assert history == [[75, 75, 75], [75, 25, 50], [12.5]]
    assert watched.offences == []


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    for at in (0, 4):
        names = HOSTILE[at : at + 4]
        write_sweep_report(record(names), tmp_path / "page.html")
        watched = watch(tmp_path / "page.html")
        watched.page.locator("#parallel-plot .main-svg").first.wait_for()
        assert watched.page.locator("#parallel-plot a[href], #parallel-plot svg a").count() == 0  # plotly reads links
        watched.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        shown = watched.page.locator("main").inner_text()
        for name in names:
            assert name.encode(errors="replace").decode()[:60].split("\u2028")[0].strip() in shown
        assert watched.offences == []
