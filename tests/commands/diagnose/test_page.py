"""The page of `trivet diagnose`, and what a run shows of its diagnosis, in words and in a real browser."""

from __future__ import annotations

import base64
import html
import math
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.pages import page_words, picture, write_diagnosis_report, write_run_report
from tests.watched import HOSTILE as EVERY_NAME
from tests.watched import Watched

from trivet.commands.diagnose.page import named_sections
from trivet.reports.diagnosis_record import DiagnosisSection

pytestmark = pytest.mark.usefixtures("few_digits")

Watch = Callable[[Path], tuple[Page, list[str]]]
HOSTILE = EVERY_NAME[:5]
HEALTHY = {
    "kind": "healthy",
    "severity": None,
    "evidence": {"relative_spread": 0.97, "recall@1": 0.912},
    "rule": "no rule fired",
    "cause": "Items and classes are spread out.",
    "changes": [],
}
COLLAPSED = {
    "kind": "network-collapse",
    "severity": "partial",
    "evidence": {"relative_spread": 0.0512, "digit_recall@1": 0.48, "digit_fine_coarse_index": None, "odd_one": 12.5},
    "rule": "relative spread 0.051, under 0.1",
    "cause": "The loss was lowered by drawing all items together.",
    "changes": ["Use semi-hard negatives.", "Lower the learning rate."],
}


def bell(middle: float, width: float, edges: list[float]) -> list[float]:
    heights = [math.exp(-(((low + high) / 2 - middle) ** 2) / (2 * width**2)) for low, high in pairwise(edges)]
    return [height / sum(heights) for height in heights]


def section(
    name: str = "digits-easy",
    *,
    split: str | None = "unseen",
    classes: int = 12,
    points: int = 60,
    inside: float = 0.55,
    verdict: dict[str, Any] = HEALTHY,
    names: list[str] | None = None,
    pictures: bool = True,
) -> dict[str, Any]:
    """A diagnosed embedding with made-up numbers; `names` replaces every text by one of these."""
    draw = random.Random(0)
    word = (lambda k, _: f"{names[k % len(names)]}{k}") if names else (lambda k, plain: plain)
    level = word(0, "digit")
    own = [word(k, f"class {k}") for k in range(classes)]
    labels = [own[i % classes] for i in range(points)]
    ids = [word(i, f"unseen/{i:05d}") for i in range(points)]
    edges = [k * 0.05 for k in range(41)]
    angles = [2 * math.pi * (i % classes) / classes for i in range(points)]

    def item(i: int) -> dict[str, Any]:
        i %= points
        return {"id": ids[i], "thumbnail": picture(i) if pictures else None, "labels": {level: labels[i]}}

    def query(q: int, why: str) -> dict[str, Any]:
        near = [item(q + (classes if j % 2 else 1)) | {"similarity": 0.99 - 0.01 * j} for j in range(1, 7)]
        return item(q) | {"why": word(q, why), "neighbours": near}

    return {
        "name": word(1, name),
        "split": split and word(2, split),
        "level": level,
        "distance": "cosine",
        "items": 1797,
        "dimension": 64,
        "reference": word(3, "untrained network"),
        "verdicts": [
            verdict | {"cause": word(4, verdict["cause"]), "changes": [word(0, one) for one in verdict["changes"]]}
        ],
        "measures": {
            "items": 1797, "dimension": 64, "classes": classes, "norm": 1.0, "norm_tail": 1.0, "diameter": 1.98,
            "mean_distance": 1.21, "median_distance": 1.3, "relative_spread": 0.97, "effective_rank": 8.4,
            "uniformity": -2.9, "alignment": 0.21, "occupied": 240.0, "effective_classes": 9.9, "chance": 0.1,
            "recall": 0.912 - inside / 10,
            "class_spread": inside, "strangers": 0.02, "reference_shrinkage": 1.31, "reference_spread": 1.1,
            "fine": {word(1, "style"): {"recall@1": 0.61, "fine_coarse_index": 0.31}},
            "sampling": {"dropped": 0.0, "active_fraction": 0.21, "choices": 7},
        },
        "notes": [word(2, "Every fine class was seen.")],
        "thresholds": [
            {"name": "tight", "value": 0.31, "measure": "class_spread", "meaning": word(3, "below: little is left"),
             "origin": "trained runs"},
        ],
        "histograms": {
            "edges": edges, "within": bell(inside, 0.15, edges), "between": bell(1.1, 0.2, edges),
            "reference_within": bell(0.8, 0.2, edges), "reference_between": bell(1.02, 0.2, edges),
        },
        "spectrum": {"values": [0.3 * 0.8**k for k in range(32)], "reference": [0.1 * 0.93**k for k in range(32)]},
        "classes": {
            "columns": ["class", "items", "spread", "effective_rank", "recall@1", "modes", "retention"],
            "rows": [
                [own[k], 100 + k, None if k == 5 else 0.2 + 0.5 * draw.random(), 3 + k / 7, 1 - k / 40, 1 + k % 3, 0.5]
                for k in range(classes)
            ],
        },
        "scatter": {
            "s_ap": [0.9 + 0.09 * draw.random() for _ in ids], "s_an": [0.8 + 0.17 * draw.random() for _ in ids],
            "ids": ids, "labels": labels,
        },
        "map": {
            "coordinates": {
                "PCA": [[4 * math.cos(a) + draw.gauss(0, 0.6), 4 * math.sin(a) + draw.gauss(0, 0.6)] for a in angles]
            },
            "labels": {level: labels},
            "ids": ids,
            "thumbnails": [picture(i) for i in range(points)] if pictures else [],
        },
        "queries": {
            "best": [query(0, "nearest positive first, margin 0.21"), query(1, "nearest positive first, margin 0.2")],
            "random": [query(2, "drawn at random")],
            "worst": [query(3, "nearest positive at rank 41")],
        },
    }  # fmt: skip


def history(moments: int = 4, items: int = 60) -> dict[str, Any]:
    """Training that draws the items together; the last item never has a partner."""
    draw = random.Random(1)
    edges = [k * 0.05 for k in range(41)]
    axis = [0.025 + 0.05 * k for k in range(20)]
    done = [k / (moments - 1) for k in range(moments)]
    return {
        "level": "digit",
        "items": items,
        "edges": edges,
        "moments": [
            {
                "step": round(1000 * t**2),
                "s_ap": [0.5 + 0.45 * t + 0.05 * draw.random() for _ in range(items - 1)] + [None],
                "s_an": [0.45 + 0.4 * t + 0.12 * draw.random() for _ in range(items)],
                "mean_distance": 1.2 - 0.9 * t,
                "effective_rank": 9 - 6 * t,
                "recall@1": 0.5 + 0.4 * t,
                "class_spread": 0.9 - 0.5 * t,
                "within": bell(0.9 - 0.7 * t, 0.2, edges),
                "between": bell(1.1 - 0.6 * t, 0.2, edges),
            }
            for t in done
        ],
        "field": {
            "loss": "first-order", "s_ap": axis, "s_an": axis, "gamma": 0.5, "entanglement": 0.4,
            "change_ap": [[0.3 * (1 - ap) - 0.2 * an for ap in axis] for an in axis],
            "change_an": [[0.4 * ap - 0.3 * an for ap in axis] for an in axis],
        },
    }  # fmt: skip


def diagnosis_words(sections: list[dict[str, Any]], folder: Path) -> str:
    write_diagnosis_report({"sections": sections}, folder / "page.html")
    return page_words(folder / "page.html")


def rows(page: Path, table: int) -> list[list[str]]:
    """The cells of the table's body, marks of the best kept as "(best)"."""
    found = re.findall(r"<table.*?</table>", page.read_text(encoding="utf-8"), flags=re.S)[table]
    body = found[found.index("<tbody>") :]
    return [
        [
            re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", cell))).strip()
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.S)
        ]
        for row in re.findall(r"<tr.*?</tr>", body, flags=re.S)
    ]


def test_a_verdict_card_says_what_was_found_by_which_rule_why_and_what_to_change(tmp_path: Path) -> None:
    text = diagnosis_words([section(verdict=COLLAPSED)], tmp_path)
    card = text[text.index("Network collapse, partial") : text.index("Every fine class was seen.")]
    parts = [
        "Relative spread 0.051, under 0.1.",
        "Likely cause. The loss was lowered by drawing all items together.",
        "What to change Use semi-hard negatives. Lower the learning rate.",
        "relative spread 0: all items equal; 1: spread around the origin 0.0512",
        "recall@1 by digit at a finer level that training did not see 48.0 %",
        "fine–coarse index of digit 0: the finer classes have merged –",
        "odd one 12.5",
    ]
    places = [card.index(part) for part in parts]
    assert places == sorted(places)


def test_a_healthy_card_is_calm(tmp_path: Path) -> None:
    text = diagnosis_words([section()], tmp_path)
    assert "✓ Healthy No rule fired. Items and classes are spread out." in text
    assert "Likely cause" not in text
    assert "What to change" not in text


@pytest.mark.parametrize(
    ("kind", "severity", "shown"),
    [
        ("class-collapse", "full", "✕ Class collapse, full"),
        ("exploding-norm", None, "✕ Exploding norm"),
        ("noisy-labels", None, "! Noisy labels"),
        ("dead-sampler", None, "! Dead sampler"),
        ("not-known-yet", None, "! Not known yet"),
    ],
)
def test_kinds_in_words_with_a_sign_beside_the_colour(
    kind: str, severity: str | None, shown: str, tmp_path: Path
) -> None:
    assert shown in diagnosis_words([section(verdict=COLLAPSED | {"kind": kind, "severity": severity})], tmp_path)


def test_embeddings_side_by_side_with_the_best_of_each_row_as_shown(tmp_path: Path) -> None:
    sections = [section("a"), section("b", verdict=COLLAPSED), section("c")]
    for one, recall, strangers in zip(sections, (0.90001, 0.5, 0.90004), (0.2, 0.1, 0.3), strict=True):
        one["measures"] |= {"recall": recall, "strangers": strangers, "diameter": 12345.6}
    sections[1]["measures"]["fine"] = {}
    text = diagnosis_words(sections, tmp_path)
    assert "3 embeddings compared" in text
    verdicts = rows(tmp_path / "page.html", 0)
    assert [row[:2] for row in verdicts] == [
        ["a, unseen", "✓ Healthy"],
        ["b, unseen", "! Network collapse, partial"],
        ["c, unseen", "✓ Healthy"],
    ]
    measures = {row[0].split(" ")[0]: row[1:] for row in rows(tmp_path / "page.html", 1)}
    assert measures["strangers"] == ["20.0 %", "10.0 % (best)", "30.0 %"]
    assert measures["class"] == ["0.55", "0.55", "0.55"]
    fine = next(row for row in rows(tmp_path / "page.html", 1) if row[0].startswith("recall@1 by style"))
    assert fine[1:] == ["61.0 % (best)", "–", "61.0 % (best)"]
    first = next(row for row in rows(tmp_path / "page.html", 1) if row[0].startswith("recall@1 ▲"))
    assert first[1:] == ["90.0 % (best)", "50.0 %", "90.0 % (best)"]
    diameter = next(row for row in rows(tmp_path / "page.html", -2) if row[0].startswith("diameter"))
    assert diameter[1:] == ["12 346", "12 346", "12 346"]
    assert "(best)" not in diagnosis_words([section()], tmp_path)
    assert "(best)" not in diagnosis_words([section("a"), section("b")], tmp_path)  # all equal: none stands out


def test_splits_of_one_run_are_no_rivals_and_what_is_bad_in_one_is_praised_in_none(tmp_path: Path) -> None:
    worse = {**COLLAPSED, "kind": "worse-than-reference", "severity": None}
    sections = [section("a"), section("a", verdict=worse)]
    sections[0]["split"] = "train"
    sections[1]["measures"] |= {"recall": 0.1}
    text = diagnosis_words(sections, tmp_path)
    assert [row[:2] for row in rows(tmp_path / "page.html", 0)] == [
        ["a, train", "○ Healthy"],
        ["a, unseen", "✕ Worse than reference"],
    ]
    assert "2 embeddings compared" not in text
    assert "Best value" not in text
    assert "(best)" not in text
    sections[0]["name"] = "b"  # of another embedding: a rival, which may be healthy
    assert "Best value" in diagnosis_words(sections, tmp_path)
    assert rows(tmp_path / "page.html", 0)[0][:2] == ["b, train", "✓ Healthy"]


def test_the_class_table_begins_with_the_tightest_and_hides_what_is_beyond_fifty(tmp_path: Path) -> None:
    one = section(classes=60)
    one["thresholds"] = [{"name": "tight", "value": 0.31}]
    text = diagnosis_words([one], tmp_path)
    spreads = [row[2] for row in one["classes"]["rows"] if row[2] is not None]
    assert f"{sum(spread < 0.31 for spread in spreads)} of 59 classes have a spread under 0.31." in text
    assert "50 of 60 classes" in text
    assert "Show all 60" in text
    shown = rows(tmp_path / "page.html", 0)
    assert len(shown) == 60
    assert [row[2] for row in shown] == [f"{spread:.3f}" for spread in sorted(spreads)] + ["–"]
    assert shown[-1] == ["class 5", "105", "–", "3.7", "87.5", "3", "50.0"]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<tr hidden>") == 10
    assert 'aria-sort="ascending"><button type="button">spread' in page


def test_parts_that_are_absent_are_left_out(tmp_path: Path) -> None:
    assert "There is nothing to show." in diagnosis_words([], tmp_path)
    whole, text = (diagnosis_words(sections, tmp_path) for sections in ([section()], [{}]))
    for part in ("Distances", "Classes", "Embedding map", "Triplet scatter", "Nearest neighbours", "Measures"):
        assert part in whole
        assert part not in text
    assert "No spectrum: all items are equal." in diagnosis_words([{"spectrum": {"values": [0.0, 0.0]}}, {}], tmp_path)


def test_embeddings_of_one_name_are_told_apart() -> None:
    sections = [{"name": "a"}, {"name": "a", "split": "test"}, {"name": "a"}, {"name": "a"}, {}]
    found = named_sections([DiagnosisSection.read(section) for section in sections])
    assert list(found) == [
        "a",
        "a, test",
        "a (2)",
        "a (3)",
        "embeddings",
    ]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"histograms": {"edges": [0, 1, 2], "within": [1.0], "between": [0.5, 0.5]}}, "2 bins, 1 within, 2 between"),
        ({"classes": {"columns": ["class", "items"], "rows": [["a", 1], ["b"]]}}, "2 columns, 1 cells"),
        ({"scatter": {"s_ap": [0.1], "s_an": [0.1, 0.2]}}, "1 s_ap, 2 s_an"),
        ({"map": {"coordinates": {"PCA": [[0, 0]]}, "ids": ["a", "b"]}}, "1 PCA coordinates, 2 ids"),
    ],
    ids=["histogram", "classes", "scatter", "map"],
)
def test_series_of_different_length_are_refused(part: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"must have one length: got .*{said}"):
        write_diagnosis_report({"sections": [part]}, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"moments": [{"step": 3, "s_ap": [0.1], "s_an": []}]}, "history at step 3 .* 1 s_ap, 0 s_an"),
        ({"moments": [{"step": 3, "within": [1.0]}]}, "history at step 3 .* 40 bins, 1 within"),
        ({"field": history()["field"] | {"s_an": [0.5]}}, "1 values of s_an, 20 rows of change_ap"),
    ],
    ids=["scatter", "histogram", "field"],
)
def test_a_history_of_different_lengths_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        write_run_report({"history": history() | change}, tmp_path / "page.html")


def test_no_text_of_a_record_becomes_markup(tmp_path: Path) -> None:
    def tags(names: list[str]) -> dict[str, int]:
        sections = [section(names=names, verdict=COLLAPSED), section("b", names=names, pictures=False)]
        write_diagnosis_report({"sections": sections, "command": names[0]}, tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        main = text[text.index("<main>") : text.index("</main>")]
        found = re.findall(r"<\w+[^>]*?>", main)
        return {kind: sum(tag.startswith(f"<{kind}") for tag in found) for kind in ("script", "img", "a ", "p", "td")}

    tame = tags([f"name {k}" for k in range(len(HOSTILE))])
    assert tags(HOSTILE) == tame
    assert tame["script"] == 0
    text = page_words(tmp_path / "page.html")
    for name in HOSTILE:
        assert f"{name}0" in text or f"{name}1" in text or name in text


@pytest.fixture
def watch(watch: Callable[[Path], Watched]) -> Watch:
    """Opens a page, and lists everything it does that a report must not do."""
    return lambda path: ((watched := watch(path)).page, watched.offences)


def settle(page: Page) -> None:
    """Wait until what an event asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


# Within the page: a moment that is played lasts 0.7 s, less than a busy machine may need to look at it.
PLAY_ONE = """() => new Promise((done) => {
    const [slider, play] = ["history-step", "history-play"].map((id) => document.getElementById(id));
    play.click();
    const waiting = setInterval(() => {
        if (slider.value === "0") return;
        clearInterval(waiting);
        play.click();
        done();
    }, 10);
})"""
TRACES = "id => document.getElementById(id).data.map(trace => [trace.name, trace.x.length])"


def test_a_run_shows_its_training_moment_by_moment(tmp_path: Path, watch: Watch) -> None:
    record = {
        "diagnosis": {"train": section(verdict=COLLAPSED, split="train"), "unseen": section()},
        "history": history(),
        "neighbours": {"unseen": {"level": "digit", "queries": []}, "other": {"level": "digit", "queries": []}},
        "evaluation": {"unseen": [{"name": "trained", "levels": {"digit": {"recall@1": 0.5}}}]},
    }
    write_run_report(record, tmp_path / "run.html")
    page, offences = watch(tmp_path / "run.html")
    body = page.inner_text("main")
    assert body.index("recall@1 by digit (level trained on") < body.index("Network collapse, partial")
    assert "(best)" not in body  # splits are not rivals
    assert page.locator("#gallery > details > summary").all_inner_texts() == ["On unseen", "On train"]  # not "other"
    assert page.locator("[data-overlay] .plot-container").count() == 3

    def wrong(moment: dict[str, Any]) -> int:
        return sum(ap is not None and an > ap for ap, an in zip(moment["s_ap"], moment["s_an"], strict=True))

    def shown(k: int) -> None:
        moment = record["history"]["moments"][k]
        expect(page.locator("#history-said")).to_contain_text(f"step {moment['step']} ·")
        settle(page)
        assert f"{wrong(moment)} of 59 wrong" in page.inner_text("#history-said")
        marks = page.evaluate(TRACES, "history-scatter")[-2:]
        names = ["right: same class closer", "wrong: another class closer"]
        assert marks == [[names[0], 59 - wrong(moment)], [names[1], wrong(moment)]]
        heights = page.evaluate("document.getElementById('history-distances').data[0].y")
        # A density over distances in the mean distance of the moment itself, up to the last bin that holds a pair.
        wide = (
            record["history"]["edges"][1] * record["history"]["moments"][0]["mean_distance"] / moment["mean_distance"]
        )
        densities = [share / wide for share in moment["within"]]
        assert heights[:-1] == pytest.approx(densities[: len(heights) - 1], rel=2e-3)
        assert sum(densities[len(heights) - 1 :]) == 0
        assert page.get_attribute("#history-step", "aria-valuetext") == f"step {moment['step']}"

    shown(3)
    page.focus("#history-step")
    page.keyboard.press("ArrowLeft")
    shown(2)
    page.keyboard.press("Home")
    shown(0)
    assert len(page.evaluate(TRACES, "history-scatter")) == 4  # the predicted motion, the diagonal and the marks

    # The second arrow of the field, after the seven ends of the first, stands in its cell and points where that does.
    x, y = page.evaluate("['x', 'y'].map(axis => document.getElementById('history-scatter').data[0][axis].slice(7, 9))")
    field = record["history"]["field"]
    assert [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2] == pytest.approx([field["s_ap"][1], field["s_an"][0]], abs=1e-6)
    slope = field["change_an"][0][1] / field["change_ap"][0][1]
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(slope, rel=1e-3)

    page.get_by_label("predicted motion").uncheck()
    settle(page)
    assert len(page.evaluate(TRACES, "history-scatter")) == 3
    page.evaluate(PLAY_ONE)
    shown(1)
    assert page.inner_text("#history-play") == "Play"

    # Plots follow the colours of the page, and paper is white whatever these are.
    text = "getComputedStyle(document.querySelector('#history-scatter .xtitle')).fill"
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(text), page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    settle(page)
    assert page.evaluate(text) != light[0]
    assert page.evaluate(ground) != light[1]
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(text) == light[0]
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0
    assert offences == []


def test_thousands_of_points_on_a_canvas_and_a_table_to_sort_and_search(tmp_path: Path, watch: Watch) -> None:
    big = section("big", split=None, points=2500, classes=60, pictures=False)
    constant = {"name": "constant", "spectrum": {"values": [0.0, 0.0]}}
    write_diagnosis_report({"sections": [big, section("small", split=None), constant]}, tmp_path / "page.html")
    page, offences = watch(tmp_path / "page.html")
    painted = """() => {
        const canvas = document.querySelector('#map-plot > canvas');
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
        return pixels.filter((value, k) => k % 4 === 3 && value > 0).length / (pixels.length / 4);
    }"""
    assert 0.02 < page.evaluate(painted) < 0.9
    assert "2\u202f500 items, 60 classes" in page.inner_text("#map")

    # Pointing at where an item must lie tells one that lies there.
    places = big["map"]["coordinates"]["PCA"]
    farthest = max(range(len(places)), key=lambda i: places[i][0])
    canvas = page.locator("#map-plot > canvas")
    canvas.scroll_into_view_if_needed()
    settle(page)
    box = canvas.bounding_box()
    assert box is not None
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*places, strict=True))
    unit = 0.94 * min(box["width"] / (right - left), box["height"] / (high - low))
    x = box["x"] + box["width"] / 2 + unit * (places[farthest][0] - (left + right) / 2)
    y = box["y"] + box["height"] / 2 - unit * (places[farthest][1] - (low + high) / 2)
    page.mouse.move(x, y)
    page.locator("#tip").wait_for(state="visible")
    told = page.locator("#tip div").all_text_contents()
    assert told == [f"digit: {big['map']['labels']['digit'][farthest]}", big["map"]["ids"][farthest]]

    before = page.evaluate(painted)
    page.get_by_role("button", name="Zoom in").click()
    assert page.evaluate(painted) != before
    canvas.focus()
    page.keyboard.press("0")
    assert page.evaluate(painted) == before

    chooser = page.locator("#map-controls select").first
    chooser.select_option("small")
    assert page.locator("#map-plot > canvas").count() == 0
    assert page.locator("#map-plot .point").count() == 60
    chooser.select_option("big")
    assert page.evaluate(painted) == before

    drawn = "document.querySelector('[data-overlay=spectrum]').data.map(trace => trace.name)"
    assert page.evaluate(drawn) == ["big", "small"]  # nothing can be drawn of zeros on a logarithmic axis

    finder = page.locator("[data-table]").first
    names = lambda: finder.locator("tbody tr:visible th").all_text_contents()  # noqa: E731  (said once, asked often)
    assert len(names()) == 50
    finder.get_by_role("button", name="Show all 60").press("Enter")
    assert len(names()) == 60
    heads = finder.locator("thead th")
    recall = finder.get_by_role("button", name="recall@1, %")
    recall.press("Enter")
    assert heads.nth(4).get_attribute("aria-sort") == "ascending"
    assert heads.nth(2).get_attribute("aria-sort") is None
    assert names()[:2] == ["class 59", "class 58"]
    recall.press("Space")
    assert heads.nth(4).get_attribute("aria-sort") == "descending"
    assert names()[:2] == ["class 0", "class 1"]
    finder.get_by_role("button", name="spread").click()
    assert names()[-1] == "class 5"  # the one without a spread, last either way
    finder.get_by_role("button", name="spread").click()
    assert names()[-1] == "class 5"
    finder.get_by_role("button", name="class").first.click()
    assert names()[:3] == ["class 0", "class 1", "class 2"]
    finder.get_by_label("Search classes").fill("CLASS 5")
    assert names() == ["class 5", *(f"class {k}" for k in range(50, 60))]
    assert finder.get_by_role("status").inner_text() == "11 classes found"
    assert offences == []


def test_hostile_names_do_nothing_and_a_phone_need_not_scroll_sideways(tmp_path: Path, watch: Watch) -> None:
    names = HOSTILE[2:] + HOSTILE[:2]  # an embedding is named by the second
    sections = [section(names=names, verdict=COLLAPSED), section("b", names=names, pictures=False)]
    write_diagnosis_report({"sections": sections}, tmp_path / "page.html")
    page, offences = watch(tmp_path / "page.html")
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    expect(page.locator(".js-plotly-plot")).to_have_count(9)
    assert page.locator(".plot a, .plot img, main script").count() == 0
    legend = page.locator("[data-overlay=within] .legendtext").all_text_contents()
    assert [text[:20] for text in legend] == [HOSTILE[3][:20]] * 2
    first = page.locator(".classes tbody th").first.inner_text()
    page.get_by_label("Search classes").first.fill(first[:12])
    assert page.locator(".classes").first.locator("tbody tr:visible").count() >= 1
    page.set_viewport_size({"width": 390, "height": 800})
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert offences == []


def whole_run(points: int = 1000, weight: int = 0) -> dict[str, Any]:
    """A run with all that a page shows, names as long as those of real data, and thumbnails of `weight` more bytes."""
    names = ["Inuktitut_(Canadian_Aboriginal_Syllabics)", "Atemayar_Qelisayer/character", "Mongolian", "Old_Slavonic-"]
    draw = random.Random(2)

    def heavy(uri: str) -> str:
        head, _, data = uri.partition(",")
        return f"{head},{base64.b64encode(base64.b64decode(data) + draw.randbytes(weight)).decode()}"

    sections = {
        split: section(split=split, classes=60, points=points, names=names) for split in ("train", "seen", "unseen")
    }
    for one in sections.values():
        one["map"]["thumbnails"] = list(map(heavy, one["map"]["thumbnails"]))
        one["queries"] = {group: 6 * found[:1] for group, found in one["queries"].items()}
    share = {"recall@1": 0.9, "recall@2": 0.95, "map@r": 0.5, "chance_recall@1": 0.1, "items": 1000, "classes": 60}
    rows = [
        {"name": name, "levels": {"coarse": share, "fine": share}}
        for name in ("trained", "untrained network", "raw inputs")
    ]
    steps = list(range(0, 1000, 10))
    series = dict.fromkeys(("loss", "active", "hard", "d_ap", "d_an", "dropped"), [0.5] * len(steps))
    return {
        "run": "whole",
        "status": "finished",
        "evaluation": {"seen": rows, "unseen": rows},
        "curves": {"step": steps, **series},
        "validation": {"step": steps, "recall@1": {"coarse": [0.5] * len(steps)}},
        "monitor": {"series": {"step": [1.0]}},
        "diagnosis": sections,
        "history": history(),
        "data": {"train": {"items": 1000, "classes": {"coarse": 60}}},
        "settings": {"data": {"level": "coarse"}, "loss": {"name": "triplet"}},
        "environment": {"python": "3.11"},
    }


@pytest.mark.parametrize("weight", [0, 3000], ids=["small thumbnails", "large thumbnails"])
def test_the_page_of_a_run_stays_below_four_megabytes(weight: int, tmp_path: Path) -> None:
    write_run_report(whole_run(weight=weight), tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 4_000_000
    maps = re.findall(r'"thumbnails":\[([\dnul,]*)\]', text)
    assert len(maps) == 3
    shown = [sum(number != "null" for number in found.split(",")) for found in maps]
    assert all(count == 1000 if not weight else 50 < count < 500 for count in shown)
    uris = re.findall(r"data:image/png;base64,[\w+/=]+", text)
    assert len(uris) == len(set(uris))  # each is on the page once


def test_the_page_of_a_run_has_at_most_ten_screens_and_breaks_no_word_on_a_phone(tmp_path: Path, watch: Watch) -> None:
    write_run_report(whole_run(points=100), tmp_path / "run.html")
    page, offences = watch(tmp_path / "run.html")
    page.set_viewport_size({"width": 1280, "height": 1000})
    assert page.locator("section[id]").count() == 10
    assert page.evaluate("document.documentElement.scrollHeight") < 10_000
    assert page.locator("#gallery > details[open] > summary").all_inner_texts() == ["On unseen"]
    # What lies in closed details is drawn once they are opened.
    assert page.locator("#history-curves .plot-container").count() == 0
    page.locator("#history summary").click()
    page.locator("#history-curves .plot-container").wait_for()
    assert page.locator("img[data-picture]:not([src])").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    broken = page.evaluate(
        """() => {
            const found = [];
            for (const element of document.querySelectorAll("#classes th.name, #gallery .item .name")) {
                const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
                for (let node = walker.nextNode(); node; node = walker.nextNode()) {
                    for (const word of node.data.matchAll(/[A-Za-z]+/g)) {
                        const range = document.createRange();
                        range.setStart(node, word.index);
                        range.setEnd(node, word.index + word[0].length);
                        if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word[0]);
                    }
                }
            }
            return [document.querySelectorAll("#classes th.name").length > 50, found];
        }"""
    )
    assert broken == [True, []]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert offences == []


def test_a_spectrum_has_ticks_that_can_be_read(tmp_path: Path, watch: Watch) -> None:
    write_run_report({"diagnosis": {"train": section()}}, tmp_path / "run.html")
    page, _ = watch(tmp_path / "run.html")
    assert page.locator("[data-spectrum='0'] .ytick").count() >= 4
