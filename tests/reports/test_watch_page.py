"""The page of a watched training: what it says first, and what it draws."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pages import page_words
from tests.watched import HOSTILE, Watched

from trivet.reports.monitor_record import WatchRecord
from trivet.reports.watch_page import write_watch_report


def watched(*ends: tuple[float, float], **monitor: Any) -> dict[str, Any]:
    """A record of calls at steps 0, 10, ..., the ends of whose gains are given."""
    steps = [10 * call for call in range(1 + len(ends))]
    recall = [0.5, *(0.5 + (low + high) / 2 for low, high in ends)]
    series = {
        "step": steps,
        "recall": recall,
        "fine_recall": [None] * len(steps),
        "relative_spread": [0.5] * len(steps),
    }
    series |= {"gain_low": [0, *(low for low, _ in ends)], "gain_high": [0, *(high for _, high in ends)]}
    start = {"recall": 0.5, "fine_recall": None}
    probe = {"items": 200, "cost": 0.012, "start": start, "series": series}
    return {"monitor": {"probe": probe, "closing": "It ended.", **monitor}}


HARM = {
    "step": 10,
    "kind": "harm",
    "rule": "fewer find their class",
    "changes": ["Go back."],
    "evidence": {"recall_at_step_0": 0.812},
}


@pytest.mark.parametrize(
    ("ends", "events", "tone"),
    [
        ([(-0.1, 0.1), (0.1, 0.2)], [], "good"),
        ([(-0.2, -0.1), (0.1, 0.2)], [HARM], "calm"),
        ([(0.1, 0.2), (-0.1, 0.1)], [], "calm"),
        ([(0.1, 0.2), (-0.2, -0.1)], [HARM], "bad"),
        ([], [], "warn"),
    ],
)
def test_the_end_comes_first(ends: list[tuple[float, float]], events: list[Any], tone: str, tmp_path: Path) -> None:
    path = tmp_path / "watch.html"
    record = WatchRecord.read({**watched(*ends, events=events), "restored": "Nothing was.", "network": "Net<work>"})
    write_watch_report(record, path)
    text = page_words(path)
    assert f'<li class="name tone-{tone}">It ended.</li>' in path.read_text()
    assert (
        text.index("Net<work>") < text.index("It ended. Nothing was.") < text.index("200 held-out items were embedded")
    )
    assert ("Harm At step 10: fewer find their class." in text) == bool(events)
    assert ("recall@1 at step 0 81.2 %" in text) == bool(events)
    assert ("There was no event." in text) != bool(events)
    assert ("end (step 20)" in text) == bool(ends)
    assert ("best (step 10)" in text) == (bool(ends) and ends[0][0] > ends[1][0])


def test_the_curve_has_the_interval_of_what_was_gained(tmp_path: Path) -> None:
    series = {"step": [0, 1], "loss": [1.0, 0.5], "recall": [0.1, 0.2]}
    record = watched((-0.1, 0.2), (0.25, 0.75), series=series)
    write_watch_report(WatchRecord.read(record), tmp_path / "watch.html")
    found = re.search(r'"curves":(\[.*?\]),"pictures"', (tmp_path / "watch.html").read_text())
    assert found is not None
    held_out, *batches = json.loads(found[1])
    assert held_out["band"] == {"low": [0.5, 0.4, 0.75], "high": [0.5, 0.7, 1]}
    assert [list(curve["series"]) for curve in batches] == [["loss"], ["recall@1"]]
    assert all(curve["band"] == {} for curve in batches)


def test_in_a_browser_the_interval_is_a_band_and_no_name_does_anything(
    tmp_path: Path, watch: Callable[[Path], Watched]
) -> None:
    hostile = {"network": HOSTILE[0], "restored": HOSTILE[1]}
    record = watched((-0.1, 0.2), (-0.3, -0.1), events=[HARM], closing=HOSTILE[2])
    write_watch_report(WatchRecord.read(record | hostile), tmp_path / "watch.html")
    page = watch(tmp_path / "watch.html")
    low, high, recall, _ = page.plot("Recall@1 and relative spread of the held-out items")
    assert (low["y"], high["y"], high["fill"]) == ([0.5, 0.4, 0.2], [0.5, 0.7, 0.4], "tonexty")
    assert (recall["name"], recall["x"]) == ("recall@1", [0, 10, 20])
    body = page.page.locator("main").evaluate("main => main.textContent")
    assert all(text in body for text in HOSTILE[:3])
    assert page.offences == []


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    write_watch_report(WatchRecord.read({"monitor": {}}), tmp_path / "watch.html")
    assert "Held-out items were not judged after the start." in page_words(tmp_path / "watch.html")
