"""The page of `trivet evaluate`: what it says in words, its tables, and its plots in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.pages import page_words, write_evaluation_report
from tests.watched import HOSTILE, Watched

from trivet.commands.evaluate.page import level_views
from trivet.commands.evaluate.record import ComparisonRecord

RETRIEVAL = {"recall@1": 0.8, "recall@2": 0.9, "recall@10": 0.95, "map@r": 0.5}
CHANCE = {"recall@1": 0.1, "recall@2": 0.2, "recall@10": 0.6, "map@r": 0.05}


def result(name: str = "a.npz", level: str = "digit", *, shift: float = 0.0, text: str = "no reason") -> dict[str, Any]:
    """The record of one embedding with every part that a record can have."""
    values = {measure: share + shift for measure, share in RETRIEVAL.items()}
    return {
        "trivet": "0.1.0",
        "created": "2026-01-03T12:00:00+00:00",
        "embeddings": name,
        "items": 1200,
        "dimension": 16,
        "distance": "cosine",
        "protocol": {"kind": "self-retrieval", "queries": 1200, "gallery": 1200, "without_positive": "miss"},
        "evaluation": {
            level: {
                "items": 1200,
                "classes": 12,
                **values,
                **{f"chance_{measure}": share for measure, share in CHANCE.items()},
                "without_positive": 0,
                "nmi": 0.41,
                "ami": 0.31,
                "nmi+": None,
                "nmi+_missing": text,
                "roc-auc": 0.77,
                "tar@far=0.0001": 0.123,
                "verification-accuracy": None,
                "verification-threshold": float("nan"),
                "verification_pairs": 5000,
                "verification_sampled": True,
            }
        },
        "macro": {level: {measure: share - 0.011 for measure, share in values.items()}},
        "intervals": {
            level: {
                measure: {"queries": [share - 0.02, share + 0.02], "classes": [share - 0.04, share + 0.04]}
                for measure, share in values.items()
            }
        },
        "macro_intervals": {level: {"recall@1": {"classes": [0.701, 0.802]}}},
        "clustering": {
            level: {"clusters": 12, "clusters_in_use": 11, "inertia": 512.34567, "restarts": 10, "seconds": 72.4}
        },
        "seconds": 3.14,
    }


def row(of: str, difference: float | None, queries: Any, classes: Any) -> dict[str, Any]:
    return {"of": of, "less": "a.npz", "difference": difference, "queries": queries, "classes": classes}


def classes_of(names: list[str], measure: str = "recall@1") -> list[dict[str, Any]]:
    """One class per name; class i has the share i / count, the last the least."""
    return [{"class": name, "queries": 10 + i, measure: (len(names) - i) / len(names)} for i, name in enumerate(names)]


def compared(names: list[str], level: str, classes: list[str], text: str = "no reason") -> dict[str, Any]:
    differences = {
        measure: [row(names[1], -0.1, [-0.12, -0.08], [-0.15, -0.05]), row(names[2], 0.02, [0.01, 0.03], [-0.01, 0.05])]
        for measure in RETRIEVAL
    }
    return {
        "results": [
            result(name, level, shift=shift, text=text) for name, shift in zip(names, (0, -0.1, 0.02), strict=True)
        ],
        "differences": {level: differences},
        "per_class": [{level: classes_of(classes)} for _ in names],
    }


def page_text(record: dict[str, Any], folder: Path) -> str:
    write_evaluation_report(record, folder / "report.html")
    return page_words(folder / "report.html")


def test_the_main_result_stands_beside_intervals_and_chance(tmp_path: Path) -> None:
    text = page_text({"results": [result()]}, tmp_path)
    main = text[: text.index("in full")]
    assert "By digit 12 classes, 1 200 items" in main
    assert "80.0 % recall@1 95 %: 76.0 to 84.0 for other classes; 78.0 to 82.0 for other items; chance 10.0" in main
    assert "50.0 % MAP@R 95 %: 46.0 to 54.0 for other classes; 48.0 to 52.0 for other items; chance 5.0" in main
    assert (
        "The nearest item has the same digit for 80.0 % of the queries, against 10.0 % by chance. "
        "The 95 % interval for other classes, 76.0 to 84.0, lies above chance."
    ) in main
    assert "only" not in main  # twelve classes are enough


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            {"classes": [0.05, 0.15], "queries": [0.11, 0.12]},
            "does not differ from chance: the 95 % interval for other classes",
        ),
        ({"classes": [0.1 + 1e-13, 0.1 + 1e-13]}, "does not differ from chance"),
        ({"classes": None, "queries": [0.09, 0.12]}, "does not differ from chance: the 95 % interval for other items"),
        ({"classes": [0.05, 0.09], "queries": [0.06, 0.12]}, "is worse than chance"),
        ({"classes": [0.101, 0.2], "queries": [0.05, 0.2]}, "lies above chance"),
    ],
    ids=["holds chance", "equal but for rounding", "no interval for other classes", "below", "above"],
)  # fmt: skip
def test_it_says_in_words_how_the_value_stands_to_chance(ends: dict[str, Any], said: str, tmp_path: Path) -> None:
    record = result()
    record["intervals"]["digit"]["recall@1"] = ends
    text = page_text({"results": [record]}, tmp_path)
    assert said in text
    for other in ("does not differ from chance", "is worse than chance", "lies above chance"):
        assert (other in text) == (other in said)


@pytest.mark.parametrize(("share", "said"), [(0.1004, True), (0.102, False)], ids=["equal as shown", "another"])
def test_without_intervals_values_are_compared_as_shown(share: float, said: bool, tmp_path: Path) -> None:
    record = result()
    del record["intervals"]
    record["evaluation"]["digit"]["recall@1"] = share
    text = page_text({"results": [record]}, tmp_path)
    assert ("Recall@1 is no better than chance." in text) == said
    assert "no interval; chance 10.0" in text


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (
            row("b.npz", 0.05, [0.04, 0.06], [0.01, 0.09]),
            "b.npz is 5.0 points better in recall@1 than a.npz (paired 95 % interval for other classes: +1.0 to +9.0). "
            "The interval excludes 0",
        ),
        (
            row("b.npz", -0.05, [-0.06, -0.04], [-0.09, -0.01]),
            "a.npz is 5.0 points better in recall@1 than b.npz (paired 95 % interval for other classes: +1.0 to +9.0). "
            "The interval excludes 0",
        ),
        (
            row("b.npz", -0.05, [-0.06, -0.04], [-0.09, 0.01]),
            "That interval includes 0, but the one for other items (+4.0 to +6.0) does not: better on these classes",
        ),
        (
            row("b.npz", 0.05, [-0.01, 0.1], [-0.02, 0.2]),
            "It is not clear in recall@1 which of b.npz and a.npz is better: b.npz has 5.0 points more (paired 95 % "
            "interval for other classes: -2.0 to +20.0), and the interval includes 0.",
        ),
        (row("b.npz", 0.05, [0.04, 0.06], None), "interval for other items: +4.0 to +6.0). The interval excludes 0"),
        (
            row("b.npz", 0.05, None, None),
            "5.0 points more recall@1 than a.npz; the record has no interval for this difference.",
        ),
        (row("b.npz", 0.0, [0.0, 0.0], [0.0, 0.0]), "b.npz and a.npz are equal in recall@1."),
    ],
    ids=["better", "worse", "these classes only", "not settled", "one class", "no interval", "equal"],
)
def test_it_says_which_embedding_is_better(difference: dict[str, Any], said: str, tmp_path: Path) -> None:
    differences = {"digit": {"recall@1": [difference]}}
    text = page_text({"results": [result(), result("b.npz")], "differences": differences}, tmp_path)
    assert said in text
    assert ("excludes 0" in text) == ("excludes 0" in said)


@pytest.mark.parametrize(
    ("recall", "precision", "clear"),
    [
        ([-0.02, 0.2], [-0.08, -0.03], True),  # the one says what the other cannot
        ([0.01, 0.2], [-0.08, -0.03], True),  # they contradict each other
        ([-0.2, -0.01], [-0.08, -0.03], False),
        ([-0.02, 0.2], [-0.08, 0.03], False),
        ([-0.02, 0.2], None, False),
    ],
)
def test_a_measure_that_is_clear_where_the_first_is_not_is_in_the_answer(
    recall: list[float], precision: list[float] | None, clear: bool
) -> None:
    first = row("b.npz", sum(recall) / 2, recall, recall)
    differences = {"recall@1": [first], "map@r": [row("b.npz", -0.055, precision, precision)]}
    record = {"results": [result(), result("b.npz")], "differences": {"digit": differences}}
    (view,) = level_views(ComparisonRecord.read(record))[0]
    sentence = (
        "a.npz is 5.5 points better in MAP@R than b.npz (paired 95\u00a0% interval for other classes: +3.0 to +8.0). "
        "The interval excludes 0: the result would very likely hold on other classes."
    )
    assert view.headlines[1:] == ([sentence] if clear else [])


def test_of_three_the_best_comes_first(tmp_path: Path) -> None:
    rows = [row("b.npz", 0.05, [0.04, 0.06], [0.01, 0.09]), row("c.npz", 0.06, [-0.01, 0.1], [-0.02, 0.2])]
    results = [result(name) for name in ("a.npz", "b.npz", "c.npz")]
    for each, share in zip(results, (0.5, 0.55, 0.56), strict=True):
        each["evaluation"]["digit"]["recall@1"] = share
    record = {"results": results, "differences": {"digit": {"recall@1": rows}}}
    (view,) = level_views(ComparisonRecord.read(record))[0]
    sentence = (
        "c.npz has the highest recall@1 of the 3, 56.0\u00a0%. Compared with a.npz, clearly better: b.npz; no clear "
        "difference: c.npz."
    )
    assert view.headlines[0] == view.sentences[0] == sentence
    two = ComparisonRecord.read({"results": results[:2], "differences": {"digit": {"recall@1": rows[:1]}}})
    assert "highest" not in level_views(two)[0][0].headlines[0]


def test_tables_of_one_embedding(tmp_path: Path) -> None:
    record = result()
    record["folds"] = {"digit": {"recall@1": {"mean": 0.85, "interval": [0.8, 0.9], "values": [0.84, 0.85, 0.86]}}}
    record["rejection"] = {
        "auroc": 0.975,
        "fpr_at_95_tpr": 0.149,
        "in_scope": 458,
        "out_of_scope": 67,
        "macro": {"auroc": 0.97},
        "intervals": {"auroc": {"queries": [0.96, 0.98], "classes": [0.95, 0.99]}, "fpr_at_95_tpr": {"classes": None}},
        "macro_intervals": {"auroc": {"classes": [0.94, 0.995]}},
    }
    record["macro"]["digit"]["nmi"] = 0.42
    record["intervals"]["digit"]["nmi"] = {"queries": [0.4, 0.43], "classes": [0.35, 0.5]}
    record["intervals"]["digit"]["tar@far=0.0001"] = {"queries": [0.1, 0.15], "classes": None}
    record["macro_intervals"]["digit"]["nmi"] = {"classes": [0.36, 0.51]}
    record["macro"]["digit"]["map@r"] = float("nan")
    text = page_text({"results": [record]}, tmp_path)
    assert "recall@1 80.0 78.0 to 82.0 76.0 to 84.0 78.9 70.1 to 80.2 10.0 recall@2" in text
    assert "MAP@R 50.0 48.0 to 52.0 46.0 to 54.0 – – 5.0" in text
    assert "recall@1 85.0 80.0 to 90.0 84.0, 85.0, 86.0" in text
    record["folds"], record["folds_missing"] = {}, {"digit": "3 folds need as many classes: there are 2."}
    assert "No folds: 3 folds need as many classes: there are 2." in page_text({"results": [record]}, tmp_path)
    assert "NMI 41.0 40.0 to 43.0 35.0 to 50.0 42.0 36.0 to 51.0 – AMI 31.0 – – – – 0.0 NMI+ –" in text
    assert "a.npz 12 11 – 512.3 10 1 min 12 s" in text
    assert "TAR@FAR 0.01 % 12.3 10.0 to 15.0 – – – 0.01 accuracy – – – – – 50.0" in text
    assert "a.npz – 5 000 sampled" in text
    assert "a.npz AUROC 97.5 96.0 to 98.0 95.0 to 99.0 97.0 94.0 to 99.5 50.0 accepted 14.9 – – – – 95.0" in text
    assert "a.npz: 458 queries in scope, 67 out of it" in text
    assert "Not measured: NMI+: no reason" in text


def test_tables_of_several_embeddings_mark_the_best_and_give_the_differences(tmp_path: Path) -> None:
    text = page_text(compared(["a.npz", "b.npz", "c.npz"], "digit", ["x"]), tmp_path)
    assert "3 embeddings compared" in text
    html_text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<td><b>([\d.]+)</b>", html_text) == ["82.0", "92.0", "97.0", "52.0"]
    assert "recall@1 b.npz -10.0 -12.0 to -8.0 -15.0 to -5.0 c.npz +2.0 +1.0 to +3.0 -1.0 to +5.0" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {},
            "1 200 items of 16 dimensions, compared by cosine distance. Each item is a query against the 1 199 others.",
        ),
        ({}, "Every query has a positive. Measured 3 January 2026, 12:00 UTC with Trivet 0.1.0 in 3.1 s."),
        ({"queries": 50}, "Each of 50 random items is a query against the 1 199 others."),
        ({"kind": "query-gallery", "queries": 30, "queries_in_gallery": 7},
         "30 queries against a gallery of 1 200 items. 7 queries are in the gallery too; none retrieves itself."),
        ({"junk": 9}, "9 junk items are excluded from the gallery."),
        ({"same_camera_left_out": True}, "from the same camera are excluded."),
        ({"approximate": {"kind": "hnsw", "parameters": {"M": 32}, "recall": 0.987, "recall_at": 10,
                          "recall_queries": 1000}},
         "approximate, by hnsw (M 32): it finds 98.7 % of the 10 nearest items, measured on 1 000 queries."),
    ],
    ids=["self", "date", "sample", "gallery", "junk", "cameras", "approximate"],
)  # fmt: skip
def test_the_protocol_in_words(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    record = result()
    record["protocol"] |= change
    text = page_text({"results": [record]}, tmp_path)
    assert said in text
    assert ("approximate" in text) == ("approximate" in change)
    assert ("junk" in text) == ("junk" in change)


@pytest.mark.parametrize(("treated", "said"), [("miss", "count as misses"), ("drop", "are excluded")])
def test_queries_without_a_positive_are_counted(treated: str, said: str, tmp_path: Path) -> None:
    record = result()
    record["protocol"]["without_positive"] = treated
    record["evaluation"]["digit"]["without_positive"] = 4
    text = page_text({"results": [record]}, tmp_path)
    assert f"By digit, 4 queries have no positive and {said}." in text
    assert "Every query" not in text


def test_few_classes_are_said_to_be_few(tmp_path: Path) -> None:
    record = result()
    record["evaluation"]["digit"]["classes"] = 2
    assert "With only 2 classes" in page_text({"results": [record]}, tmp_path)


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    differences = {"digit": {"recall@1": [row("a.npz", 0.05, [0.04, 0.06], [0.01, 0.09])]}}
    text = page_text({"results": [result(), result()], "differences": differences}, tmp_path)
    assert "a.npz (2) is 5.0 points better in recall@1 than a.npz (1)" in text


def test_what_is_not_a_number_is_shown_as_missing(tmp_path: Path) -> None:
    record, nan = result(), float("nan")
    for part in (record["evaluation"], record["macro"]):
        part["digit"]["recall@1"] = nan
    record["evaluation"]["digit"]["chance_recall@2"] = None
    record["intervals"]["digit"]["recall@1"] = {"queries": [nan, nan], "classes": None}
    rows = [{"class": "x", "queries": 3, "recall@1": nan}]
    text = page_text({"results": [record], "per_class": [{"digit": rows}]}, tmp_path)
    assert "recall@1 – – – – 70.1 to 80.2 10.0 recall@2 90.0 88.0 to 92.0 86.0 to 94.0 88.9 – – recall@10" in text
    assert "– % recall@1 no interval; chance 10.0" in text
    assert "nearest item has" not in text
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert "of each class" not in text


def test_only_clustering(tmp_path: Path) -> None:
    values = {"items": 5, "classes": 2, "nmi": 0.5, "nmi-geometric": 0.6}
    text = page_text({"results": [{"embeddings": "a.npz", "evaluation": {"digit": values}}]}, tmp_path)
    assert "50.0 % NMI no interval" in text
    assert "Retrieval" not in text
    assert "recall@K" not in text  # the glossary holds what is on the page
    assert "The record does not state the protocol." in text


def test_an_empty_record_is_said_to_be_empty(tmp_path: Path) -> None:
    assert "Nothing was evaluated" in page_text({}, tmp_path)


def test_above_sixty_classes_there_are_the_worst_and_the_best(tmp_path: Path) -> None:
    names = [f"class{i:03d}" for i in range(80)]
    record = {"results": [result()], "per_class": [{"digit": classes_of(names)}]}
    text = page_text(record, tmp_path)
    worst, best = text.index("worst 15"), text.index("best 15")
    assert re.findall(r"class\d{3}", text[worst:best]) == names[:-16:-1]
    assert re.findall(r"class\d{3}", text[best:])[:15] == names[:15]
    assert "class079 89 1.2" in text  # 10 + 79 queries, 1 / 80
    assert names[40] not in text
    record["per_class"] = [{"digit": classes_of(names[:60])}]
    assert "worst 15" not in page_text(record, tmp_path)


def tags(page: Page) -> dict[str, int]:
    """How many elements of each kind the page holds outside its plots, and how many can run a script."""
    return page.evaluate(
        """() => {
            const counts = {};
            for (const element of document.querySelectorAll("*:not(.plot *)")) {
                const risky = element.getAttributeNames().some((name) => name.startsWith("on") || name === "href");
                const key = element.tagName + (risky ? " with a handler or link" : "");
                counts[key] = (counts[key] || 0) + 1;
            }
            return counts;
        }"""
    )


def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    tame = [f"name {k}" for k in range(len(HOSTILE))]
    for file, names in (("hostile", HOSTILE), ("tame", tame)):
        write_evaluation_report(compared(names[:3], names[5], names[3:], names[6]), tmp_path / f"{file}.html")
    hostile, harmless = watch(tmp_path / "hostile.html"), watch(tmp_path / "tame.html")
    assert hostile.page.locator(".js-plotly-plot").count() == 5
    assert tags(hostile.page) == tags(harmless.page)
    assert hostile.page.locator(".plot a, .plot img").count() == 0
    body = hostile.page.locator("main").evaluate("main => main.textContent")
    for name in [*HOSTILE[:3], *HOSTILE[5:]]:
        assert name.replace("\udcff", "?") in body
    ticks = hostile.page.locator(".ytick text").evaluate_all("found => found.map(text => text.textContent)")
    assert "&lt;b&gt; &…aw %} %{x}" in ticks

    holder = hostile.page.locator("figure", has=hostile.page.get_by_text("recall@1 of each class", exact=True))
    mark = holder.locator(".point").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    hostile.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown = holder.locator(".hoverlayer text").first
    shown.wait_for()
    assert all(name in (shown.text_content() or "") for name in HOSTILE[2:4])  # the embedding and the class
    assert holder.locator(".hoverlayer a").count() == 0

    hostile.page.set_viewport_size({"width": 390, "height": 800})
    assert hostile.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert hostile.offences == []
    assert harmless.offences == []


def test_the_plots_show_the_record(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_evaluation_report(compared(["a.npz", "b.npz", "c.npz"], "digit", ["x", "y", "z"]), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")

    curve = watched.plot("Recall at K")
    band, line, chance = curve[0], curve[1], curve[-1]
    assert line["name"] == "a.npz"
    assert line["x"] == [1, 2, 10]  # by number, not by name
    assert line["y"] == pytest.approx([80, 90, 95])
    assert band["fill"] == "toself"
    assert band["y"] == pytest.approx([84, 94, 99, 91, 86, 76])
    assert chance["y"] == pytest.approx([10, 20, 60])

    dots = {trace["name"]: trace for trace in watched.plot("Retrieval") if trace["mode"] == "markers"}
    assert dots["b.npz"]["x"] == pytest.approx([70, 80, 85, 40])
    assert dots["a.npz"]["y"] == sorted(dots["a.npz"]["y"])
    assert all(a < b for a, b in zip(dots["a.npz"]["y"], dots["b.npz"]["y"], strict=True))
    upright = watched.plot("Retrieval")[0]["x"]
    assert upright[::3] == pytest.approx([10, 20, 60, 5])
    queries, classes = watched.plot("Retrieval")[1:3]
    assert queries["x"][:2] == pytest.approx([78, 82])
    assert classes["x"][:2] == pytest.approx([76, 84])

    forest = {trace["name"]: trace for trace in watched.plot("Differences") if trace["mode"] == "markers"}
    assert forest["b.npz"]["x"] == pytest.approx([-10] * 4)
    assert forest["c.npz"]["x"] == pytest.approx([2] * 4)
    assert "95 %, other classes: -1.0 to +5.0" in forest["c.npz"]["hovertext"][0]

    worst_first = watched.plot("recall@1 of each class")[0]
    assert worst_first["x"] == pytest.approx([33.3333, 66.6667, 100], rel=1e-3)
    assert [text.split("<br>")[1] for text in worst_first["hovertext"]] == [
        "z, 12 queries",
        "y, 11 queries",
        "x, 10 queries",
    ]
    buttons = watched.page.locator("[data-figure='0'] .modebar-btn")
    assert buttons.evaluate_all("found => found.map(b => b.dataset.title)") == [
        "Download plot as a PNG",
        "Zoom",
        "Pan",
        "Reset axes",
    ]  # none that sends the data away
    assert watched.offences == []


def test_the_histogram_counts_each_class_once(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    names = [f"class{i}" for i in range(80)]
    write_evaluation_report(
        {"results": [result()], "per_class": [{"digit": classes_of(names)}]}, tmp_path / "page.html"
    )
    watched = watch(tmp_path / "page.html")
    steps = watched.plot("recall@1 of each class")[0]
    assert steps["x"] == list(range(0, 101, 5))
    # Shares i / 80: three below 5 %, four in each further step of 5 points, and 100 % in the last.
    assert steps["y"] == [3, *[4] * 18, 5, 5]
    assert watched.offences == []
