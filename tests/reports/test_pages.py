"""The pages in a real browser: plots, images on hover, and nothing that a label, id or file name can break."""

from __future__ import annotations

import base64
import math
import random
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.pages import write_demo_report, write_run_report
from tests.watched import HOSTILE, Watched

from trivet import reports

pytestmark = pytest.mark.usefixtures("few_digits")


def picture(shade: int) -> str:
    """An 8 x 8 grey PNG as a data URI."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes((shade + 8 * (x * y % 7)) % 256 for x in range(8)) for y in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def run_record(names: list[str] | None = None, *, classes: int = 10, items: int = 300) -> dict[str, Any]:
    """A finished run on digits; `names` replaces every name, label, id and text by one of these."""
    draw = random.Random(0)
    fine = [f"digit {k}" for k in range(classes)]
    coarse, levels, splits, word = ["even", "odd"], ["parity", "digit"], ["unseen", "seen"], "digits-easy"
    ids = [f"unseen/{i:05d}" for i in range(items)]
    if names:
        fine = [f"{names[k % len(names)]}{k}" for k in range(classes)]
        coarse, levels, splits, word = names[:2], names[2:4], names[4:6], names[0]
        ids = [f"{names[i % len(names)]}{i}" for i in range(items)]
    own = [i % classes for i in range(items)]
    labels = {levels[0]: [coarse[k % 2] for k in own], levels[1]: [fine[k] for k in own]}
    angle = [2 * math.pi * k / classes for k in own]
    places = [[4 * math.cos(a) + draw.gauss(0, 0.6), 4 * math.sin(a) + draw.gauss(0, 0.6)] for a in angle]
    steps = list(range(0, 1000, 10))

    def row(name: str, lift: float) -> dict[str, Any]:
        def level(base: float, chance: float, count: int, plus: float | None) -> dict[str, Any]:
            recall = {f"recall@{k}": min(1.0, base + 0.03 * j + lift) for j, k in enumerate((1, 2, 4, 8))}
            return {
                **recall,
                "nmi": base - 0.3,
                "nmi+": plus,
                "items": items,
                "classes": count,
                "chance_recall@1": chance,
            }

        return {"name": name, "levels": {levels[0]: level(0.93, 0.501, 2, 0.31), levels[1]: level(0.81, 0.1, 10, None)}}

    def neighbour(i: int) -> dict[str, Any]:
        at = {level: values[i] for level, values in labels.items()}
        return {"id": ids[i], "thumbnail": picture(i), "labels": at, "similarity": 0.99 - 0.001 * (i % 90)}

    return {
        "trivet": "0.1.0",
        "created": "2026-01-31T12:00:00Z",
        "status": "finished",
        "run": word,
        "command": f"trivet train --set data.name=digits --set batch.samples_per_class=8 {word if names else ''}",
        "settings": {
            "data": {"name": names[1] if names else "digits", "level": levels[0], "root": None, "allow_corrupt": 0.01},
            "batch": {"num_classes": 2, "samples_per_class": 16},
            "model": {"name": "conv2", "embedding_dim": 64, "normalize": True},
            "loss": {"name": "triplet", "margin": 0.2, "positives": "easy", "negatives": "semihard"},
            "training": {"steps": 1000, "learning_rate": 0.001, "seed": 0},
            "evaluation": {"ks": [1, 2, 4, 8]},
        },
        "environment": {"python": "3.11.9", "torch": "2.8.0", "device": "cpu", "threads": 2, "host": word},
        "data": {
            "train": {"items": 649, "classes": {levels[0]: 2, levels[1]: 6}},
            "evaluation": {split: {"items": items, "classes": {levels[0]: 2, levels[1]: 4}} for split in splits},
            "skipped": [{"id": names[k] if names else f"cat/{k}.jpg", "reason": "not an image"} for k in range(2)],
            "coverage": {"items": 1.0, "classes": 1.0},
        },
        "model": {"parameters": 1199042},
        "warnings": names or ["with samples_per_class = 2 easy positives have no effect."],
        "seconds": {"training": 72.4, "evaluation": 3.1},
        "curves": {
            "step": steps,
            "loss": [0.2 * math.exp(-s / 300) + draw.uniform(0, 0.01) for s in steps],
            "active": [math.exp(-s / 400) for s in steps],
            "hard": [0.4 * math.exp(-s / 300) for s in steps],
            "d_ap": [0.5 + 0.2 * math.exp(-s / 300) for s in steps],
            "d_an": [1.2 - 0.4 * math.exp(-s / 300) if s else float("nan") for s in steps],
            "dropped": [0 for _ in steps],
        },
        "validation": {
            "step": steps[::10],
            "recall@1": {
                level: [base - 0.2 * math.exp(-s / 200) for s in steps[::10]]
                for level, base in zip(levels, (0.95, 0.82), strict=True)
            },
        },
        "evaluation": {
            split: [row("trained", 0.0), row("untrained network", -0.05), row("raw inputs", 0.03)] for split in splits
        },
        "collapse": {splits[0]: {"fine": levels[1], "coarse": levels[0], "index": 0.4321}},
        "maps": {
            split: {
                "coordinates": {"PCA": places, "t-SNE": [[y, x] for x, y in places]},
                "labels": labels,
                "ids": ids,
                "thumbnails": [picture(i) for i in range(items)],
            }
            for split in splits
        },
        "scatter": {
            split: {
                level: {
                    "s_ap": [0.9 + 0.09 * draw.random() for _ in ids],
                    "s_an": [None if i == 0 else 0.8 + 0.17 * draw.random() for i in range(items)],
                    "ids": ids,
                }
                for level in levels
            }
            for split in splits
        },
        "diagnosis": {
            splits[0]: {
                "level": levels[1],
                "queries": {
                    "random": [
                        {
                            **neighbour(q),
                            "neighbours": [neighbour((q + j * (classes if j % 3 else 2)) % items) for j in range(1, 9)],
                        }
                        for q in range(4)
                    ]
                },
            }
        },
    }


def demo_record(text: list[str]) -> dict[str, Any]:
    """Three seeds of each network on the digits, with made-up numbers; the raw pixels win by digit."""
    draw = random.Random(1)

    def over_seeds(mean: float) -> dict[str, Any]:
        return {"mean": mean, "std": 0.012, "values": [mean - 0.012, mean, mean + 0.012]}

    def part(spread: float) -> dict[str, Any]:
        digits = [i % 6 for i in range(240)]
        return {
            "points": [
                [
                    3 * (k % 2) + spread * math.cos(2 * k) + draw.gauss(0, 0.3),
                    spread * math.sin(2 * k) + draw.gauss(0, 0.3),
                ]
                for k in digits
            ],
            "digit": digits,
            "parity": [k % 2 for k in digits],
            "thumbnails": [picture(40 * k) for k in digits],
        }

    places = [(split, level) for split in ("seen", "unseen") for level in ("digit", "parity")]
    measures = {"recall@1": 0.0, "recall@2": 0.05, "nmi": -0.3, "nmi+": -0.2}
    return {
        "trivet": "0.1.0",
        "created": "2026-01-31T12:00:00Z",
        "command": "trivet demo",
        "environment": {"python": "3.11.9", "torch": "2.8.0", "device": "cpu"},
        "seconds": 48.2,
        "settings": {
            "batch": {"num_classes": 2, "samples_per_class": 16},
            "training": {"steps": 300, "seeds": [0, 1, 2]},
        },
        "results": [
            {"positives": positives, "split": split, "level": level}
            | {measure: over_seeds(base + shift) for measure, shift in measures.items()}
            for positives, base in (("random", 0.62), ("easy", 0.84))
            for split, level in places
        ],
        "references": [
            {"name": name, "split": split, "level": level, "recall@1": over_seeds(mean if level == "digit" else 0.6)}
            for name, mean in (("raw pixels", 0.9612), ("untrained network", 0.55))
            for split, level in places
        ],
        "collapse": {"random": over_seeds(0.11), "easy": over_seeds(0.57)},
        "gains": {"seen": [0.21, 0.232, 0.19], "unseen": [0.05, -0.012, 0.07]},
        "maps": {"random": part(0.1), "easy": part(1.2)},
        "text": text,
    }


def texts(page: Page, selector: str) -> list[str]:
    return page.locator(selector).evaluate_all("found => found.map(element => element.textContent)")


def tags(page: Page) -> dict[str, int]:
    """How many elements of each kind the page holds outside its plots, and how many can run a script."""
    return page.evaluate(
        """() => {
            const counts = {};
            for (const element of document.querySelectorAll("*:not(.plot *, wbr)")) {
                const risky = element.getAttributeNames().some((name) => name.startsWith("on") || name === "href");
                const key = element.tagName + (risky ? " with a handler or link" : "");
                counts[key] = (counts[key] || 0) + 1;
            }
            return counts;
        }"""
    )


def hover(page: Page, plot: str) -> None:
    """Point at a mark that lies on top of the others."""
    mark = page.locator(f"{plot} .point").last
    mark.scroll_into_view_if_needed()
    # Scrolling hides the tip, and its event comes with the next frame.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box = mark.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator("#tip").wait_for(state="visible")


def test_hostile_names_in_a_run_are_shown_and_do_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_run_report(run_record(HOSTILE), tmp_path / "hostile.html")
    write_run_report(run_record([f"name {k}" for k in range(len(HOSTILE))]), tmp_path / "tame.html")
    hostile, tame = watch(tmp_path / "hostile.html"), watch(tmp_path / "tame.html")

    assert hostile.page.locator(".js-plotly-plot").count() == 6
    assert tags(hostile.page) == tags(tame.page)
    assert hostile.page.locator(".plot a, .plot img").count() == 0
    body = hostile.page.locator("main").evaluate("main => main.textContent")
    for name in HOSTILE:
        assert name.replace("\udcff", "?") in body
    assert hostile.page.title().startswith(HOSTILE[0])
    legend = texts(hostile.page, "#map-plot .legendtext")
    assert legend[:2] == ['"><img src=x onerror=alert(…', '"><img src=x onerror=alert(…']
    assert "&lt;b&gt; &amp; {{ 7 * 7 }}…" in legend

    hover(hostile.page, "#map-plot")
    assert hostile.page.locator("#tip img").count() == 1
    assert hostile.page.locator("#tip *:not(img, div)").count() == 0
    assert any(line.startswith(f"{HOSTILE[2]}: ") for line in texts(hostile.page, "#tip div"))

    hostile.page.locator("[data-curve='3']").hover()
    hostile.page.locator("[data-curve='3'] .hoverlayer .legendtext").first.wait_for()
    lines = texts(hostile.page, "[data-curve='3'] .hoverlayer .legendtext")
    assert [line.split(" : ")[0] for line in lines] == ["</script><script>alert(2)</…", "<b><a href='//e.org'>n</a>"]

    hostile.page.set_viewport_size({"width": 390, "height": 800})
    assert hostile.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert hostile.offences == []
    assert tame.offences == []


def test_a_script_that_gets_into_the_page_does_not_run(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_run_report({}, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)><img src=https://example.org/x.png>"
    (tmp_path / "attacked.html").write_text(text.replace("<main>", f"<main>{attack}"), encoding="utf-8")
    watched = watch(tmp_path / "attacked.html")
    watched.page.wait_for_timeout(200)
    assert watched.page.locator("img").count() == 2
    assert sum("violates the following Content Security Policy" in offence for offence in watched.offences) == 4
    assert not any(offence.startswith("dialog") for offence in watched.offences)


def test_run_page(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    record = run_record()
    write_run_report(record, tmp_path / "run.html")
    watched = watch(tmp_path / "run.html")
    page = watched.page

    buttons = page.locator("#map-plot .modebar-btn").evaluate_all("found => found.map(b => b.dataset.title)")
    assert buttons == ["Download plot as a PNG", "Zoom", "Pan", "Reset axes"]  # none that sends the data away

    level = page.locator("#map-controls select").nth(2)
    assert level.input_value() == "digit"
    assert texts(page, "#map-plot .legendtext") == [f"digit {k}" for k in range(10)]
    level.select_option("parity")
    assert texts(page, "#map-plot .legendtext") == ["even", "odd"]
    first = "document.querySelector('#map-plot').data[0].x[0]"
    x, y = record["maps"]["unseen"]["coordinates"]["PCA"][0]
    assert page.evaluate(first) == pytest.approx(y, rel=1e-3)  # t-SNE: here the axes swapped
    page.locator("#map-controls select").nth(1).select_option("PCA")
    assert page.evaluate(first) == pytest.approx(x, rel=1e-3)

    hover(page, "#map-plot")
    shown = page.locator("#tip img").get_attribute("src")
    index = record["maps"]["unseen"]["ids"].index(texts(page, "#tip div")[-1])
    assert shown == record["maps"]["unseen"]["thumbnails"][index]
    labels = record["maps"]["unseen"]["labels"]
    assert texts(page, "#tip div")[:2] == [f"parity: {labels['parity'][index]}", f"digit: {labels['digit'][index]}"]

    # Above the diagonal: the trace of the wrong ones, the count below the plot, and the record agree.
    dots = record["scatter"]["unseen"]["digit"]
    wrong = sum(an is not None and an > ap for ap, an in zip(dots["s_ap"], dots["s_an"], strict=True))
    assert page.evaluate("document.querySelector('#scatter-plot').data[2].x.length") == wrong > 0
    counted = (
        f"unseen, by digit: {wrong} of 299 items lie above the diagonal; 1 without a same-class or other-class item"
    )
    assert counted in page.locator("#scatter").text_content()

    strip = page.locator(".strip").first  # neighbours 3 and 6 are of another digit
    assert strip.locator(".mark").all_text_contents() == ["✓", "✓", "✗", "✓", "✓", "✗", "✓", "✓"]
    assert strip.locator(".item.wrong").count() == 2
    assert watched.offences == []


def test_more_than_twelve_classes_have_no_legend_but_a_name_on_hover(
    tmp_path: Path, watch: Callable[[Path], Watched]
) -> None:
    record = run_record(classes=40)
    del record["maps"]["unseen"]["labels"]["parity"]
    write_run_report(record, tmp_path / "run.html")
    watched = watch(tmp_path / "run.html")
    assert watched.page.locator("#map-plot .legendtext").count() == 0
    hover(watched.page, "#map-plot")
    assert texts(watched.page, "#tip div")[0] == "digit: digit 39"
    styles = "document.querySelector('#map-plot').data.map(trace => trace.marker.color + trace.marker.symbol)"
    assert len(set(watched.page.evaluate(styles))) == 40
    assert watched.offences == []


def test_demo_page(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    write_demo_report(demo_record(HOSTILE), tmp_path / "demo.html")
    watched = watch(tmp_path / "demo.html")
    body = watched.page.locator("main").evaluate("main => main.textContent")
    for sentence in HOSTILE:
        assert sentence.replace("\udcff", "?") in body
    traces = "[...document.querySelectorAll('.js-plotly-plot')].map(e => e.data.map(t => t.name + t.marker.symbol))"
    names = ["0 (even)circle", "1 (odd)triangle-up", "2 (even)circle"]
    names += ["3 (odd)triangle-up", "4 (even)circle", "5 (odd)triangle-up"]
    assert watched.page.evaluate(traces) == [names, names]
    hover(watched.page, "[data-panel='1']")
    assert watched.page.locator("#tip img").get_attribute("src") == picture(200)
    assert watched.offences == []


def test_a_large_map_without_images_stays_below_four_megabytes(tmp_path: Path) -> None:
    record = run_record(classes=300, items=1000)
    for part in record["maps"].values():
        part["thumbnails"] = []
    record["diagnosis"] = {}
    write_run_report(record, tmp_path / "run.html")
    assert (tmp_path / "run.html").stat().st_size < 4e6


def test_the_plots_are_drawn_by_the_smallest_bundle_of_plotly_with_its_licence(tmp_path: Path) -> None:
    folder = Path(reports.__file__).parent / "plotly"
    (bundle,) = folder.glob("*.js")
    version = re.fullmatch(r"plotly-basic-([\d.]+)\.min\.js", bundle.name)
    assert version is not None
    head = bundle.read_text(encoding="utf-8")[:200]
    assert f"plotly.js (basic - minified) v{version[1]}\n" in head
    assert "MIT" in (folder / "LICENSE").read_text(encoding="utf-8")
    write_run_report({}, tmp_path / "run.html")
    assert head in (tmp_path / "run.html").read_text(encoding="utf-8")
