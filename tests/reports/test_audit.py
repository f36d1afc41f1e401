"""The page of `trivet audit`, in words and in a real browser, and the decisions that are made on it."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page

from pages import write_audit_report
from trivet.tables import Decision, read_decisions
from watched import HOSTILE, Watched

pytestmark = pytest.mark.usefixtures("few_digits")

Watch = Callable[[Path], Watched]


def picture(shade: int) -> str:
    sink = io.BytesIO()
    Image.new("L", (4, 4), shade % 256).save(sink, "PNG")
    return f"data:image/png;base64,{base64.b64encode(sink.getvalue()).decode()}"


def record(items: int = 12, *, names: list[str] | None = None, pictures: bool = True, **more: Any) -> dict[str, Any]:
    """Made-up findings on classes 2, 10 and 33, or others; the item i has the label i and the proposed label i + 1."""
    names = names or ["2", "10", "33"]

    def item(i: int) -> dict[str, Any]:
        face = {"thumbnail": picture(20 * i), "text": None} if pictures else {"thumbnail": None, "text": f"words {i}"}
        return {"id": f"item {i:03d}", "label": names[i % len(names)], **face}

    shown = [
        item(i)
        | {
            "proposed": names[(i + 1) % len(names)],
            "probability": 0.99 - 0.05 * i,
            "evidence": [f"{i} of 8 neighbours have its label", f"positive margin -0.{i}"],
            "neighbours": [item(i + j) | {"similarity": 0.9 - 0.1 * j} for j in range(1, 5)],
        }
        for i in range(items)
    ]
    count = len(names)
    matrix = [[0.88 if i == j else 0.12 / (count - 1) for j in range(count)] for i in range(count)]
    matrix[0][1:3] = [0.11, 0.01]
    found = {
        "noise_rate": {"estimate": 0.1234, "interval": [0.101, 0.145]},
        "above_half": 9,
        "name": "digits-noisy",
        "split": "train",
        "level": "digit",
        "items": 1649,
        "classes": count,
        "distance": "cosine",
        "folds": 5,
        "neighbours": 8,
        "method": "by the labels of neighbours",
        "transition": {
            "classes": names,
            "matrix": matrix,
            "low": [[0.9 * share for share in row] for row in matrix],
            "high": [[1.1 * share for share in row] for row in matrix],
        },
        "notes": ["A note."],
        "shown": shown,
        "class_names": names,
        "command": "trivet audit runs/x",
    }
    return found | more


def words(page: Path) -> str:
    """The words of a page: tags, styles and scripts taken out, white space made one."""
    text = page.read_text(encoding="utf-8")
    body = re.sub(r"<style>.*?</style>", " ", text[text.index("<main>") : text.index("</main>")], flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body).replace("&nbsp;", " ").replace("&#39;", "'"))


def test_the_headline_the_items_and_the_mistakes(tmp_path: Path) -> None:
    write_audit_report(record(), tmp_path / "page.html")
    text = words(tmp_path / "page.html")
    parts = [
        "digits-noisy, train",
        "by digit", "1 649 items", "3 classes", "out of 5 folds", "8 neighbours each", "cosine distance",
        "12.3 % of the labels are wrong, 95 % interval 10.1 to 14.5 %",
        "9 of 1 649 labels are wrong with a probability above 50 %; the 12 most suspect",
        "by the labels of neighbours",
        "A note.",
        "below it the cosine similarity",
        "labelled 2 → proposed 10", "99.0 % wrong", "0 of 8 neighbours have its label", "✗ 10 0.800 item 001",
        "✗ 33 0.700 item 002", "✓ 2 0.600 item 003",
        "labelled 10 → proposed 33",
        "Most frequent mistakes: 2 labelled 10 (11.0 %), 10 labelled 2 (6.0 %), 10 labelled 33 (6.0 %).",
        "trivet audit runs/x",
    ]  # fmt: skip
    place = 0
    for part in parts:
        assert part in text[place:]
        place = text.index(part, place)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'title="2 labelled 10: 11.0 %, 95 % interval 9.9 to 12.1 %">11<' in page
    assert len(page) < 200_000  # nothing that draws is carried along


def test_parts_that_are_absent_are_left_out(tmp_path: Path) -> None:
    write_audit_report({}, tmp_path / "page.html")
    text = words(tmp_path / "page.html")
    assert "There are no items." in text
    for part in ("of the labels are wrong", "Confused classes", "Command"):
        assert part not in text
    write_audit_report(record(distance="euclidean", folds=0, transition=None), tmp_path / "page.html")
    text = words(tmp_path / "page.html")
    assert "below it the distance" in text
    assert "in one embedding" in text
    matrix = {"classes": ["a", "b"], "matrix": [[1.0, 0.0], [1.0]]}
    with pytest.raises(ValueError, match="2 classes, 2 rows, 2 columns of row 1, 1 columns of row 2"):
        write_audit_report(record(transition=matrix), tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def visible(page: Page) -> list[str]:
    return page.locator(".suspect:visible > .item .id").all_text_contents()


def test_items_are_filtered_ordered_and_decided_on(tmp_path: Path, watch: Watch) -> None:
    write_audit_report(record(), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    page = watched.page
    every = [f"item {i:03d}" for i in range(12)]
    assert visible(page) == every
    found = page.locator("#found")
    assert found.inner_text() == "0 of 12 decided"
    download = page.get_by_role("button", name="Download decisions.csv")
    assert download.is_disabled()

    assert page.locator("#class").locator("option").all_text_contents() == ["all", "2 (8)", "10 (8)", "33 (8)"]
    page.locator("#class").select_option("10")
    assert visible(page) == [name for i, name in enumerate(every) if i % 3 != 2]
    assert found.inner_text() == "8 shown · 0 of 12 decided"
    page.locator("#order").select_option("label")
    assert visible(page) == [every[i] for i in (0, 3, 6, 9, 1, 4, 7, 10)]  # 2 before 10
    page.locator("#class").select_option("")
    page.locator("#order").select_option("suspect")
    assert visible(page) == every

    def card(i: int) -> Any:
        return page.locator(".suspect").nth(i)

    card(0).get_by_label("keep").check()
    card(1).get_by_label("relabel", exact=True).check()
    card(2).get_by_label("drop").check()
    card(3).get_by_label("New label").fill("33")  # who types a label wants it
    assert card(3).get_by_label("relabel", exact=True).is_checked()
    card(4).get_by_label("keep").check()
    card(4).get_by_label("undecided").check()
    assert found.inner_text() == "4 of 12 decided"
    page.locator("#state").select_option("done")
    assert visible(page) == every[:4]
    card(3).get_by_label("undecided").check()
    assert visible(page) == every[:4]  # what is being decided on stays
    card(3).get_by_label("relabel", exact=True).check()
    page.locator("#state").select_option("open")
    assert visible(page) == every[4:]
    page.locator("#state").select_option("")

    for label, fault in (("11", "no class has this name"), ("2", "it has this label already")):
        card(3).get_by_label("New label").fill(label)
        assert card(3).locator(".wrong-label").inner_text() == fault
        assert found.inner_text() == "4 of 12 decided · 1 to correct"
        assert download.is_disabled()
    card(3).get_by_label("New label").fill("33")
    assert found.inner_text() == "4 of 12 decided"
    with page.expect_download() as waiting:
        download.click()
    assert waiting.value.suggested_filename == "decisions.csv"
    waiting.value.save_as(tmp_path / "decisions.csv")
    assert read_decisions(tmp_path / "decisions.csv") == [
        Decision("item 000", "keep", "", 2),
        Decision("item 001", "relabel", "33", 3),
        Decision("item 002", "drop", "", 4),
        Decision("item 003", "relabel", "33", 5),
    ]
    assert [offence for offence in watched.offences if not offence.startswith("request blob:")] == []


def test_hostile_names_do_nothing_and_read_back(tmp_path: Path, watch: Watch) -> None:
    names = [*HOSTILE[:5], *HOSTILE[6:], 'comma, and "quotes"']
    found = record(8, names=names, pictures=False, name=HOSTILE[0], method=HOSTILE[1], notes=[HOSTILE[2]])
    for i, one in enumerate(found["shown"]):
        one |= {"id": f"{names[i]}\nsecond line", "text": names[i], "evidence": [names[i]]}
    write_audit_report(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    main = page[page.index("<main>") : page.index("</main>")]
    assert [tag for tag in re.findall(r"<(\w+)", main) if tag in ("script", "img", "a")] == ["a", "a"]  # the contents
    watched = watch(tmp_path / "page.html")
    for i in range(8):
        watched.page.locator(".suspect").nth(i).get_by_label("relabel", exact=True).check()
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name="Download decisions.csv").click()
    waiting.value.save_as(tmp_path / "decisions.csv")
    rows = [(row.id, row.label) for row in read_decisions(tmp_path / "decisions.csv")]
    assert rows == [(f"{names[i]}\nsecond line", names[(i + 1) % 8]) for i in range(8)]
    watched.page.set_viewport_size({"width": 390, "height": 800})
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [offence for offence in watched.offences if not offence.startswith("request blob:")] == []


def test_a_phone_the_dark_and_paper(tmp_path: Path, watch: Watch) -> None:
    names = [f"class {k}" for k in range(50)]
    write_audit_report(record(names=names), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

    contrast = """element => {
        const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        const luminance = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => value / 255);
            const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const style = getComputedStyle(element);
        const [a, b] = [style.color, style.backgroundColor].map(luminance).sort((a, b) => b - a);
        return (a + 0.05) / (b + 0.05);
    }"""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        cells = page.locator(".mixes tbody tr").first.locator("td")
        assert all(cells.nth(k).evaluate(contrast) >= 4.5 for k in range(3))
    page.emulate_media(media="print")
    assert not page.locator(".desk").is_visible()
    assert not page.locator(".decide").first.is_visible()
    assert page.locator(".suspect:visible").count() == 12
    assert watched.offences == []


def test_a_long_list_is_shown_by_twenties(tmp_path: Path, watch: Watch) -> None:
    write_audit_report(record(45), tmp_path / "page.html")
    watched = watch(tmp_path / "page.html")
    page, more = watched.page, watched.page.locator("#more")
    assert (len(visible(page)), more.inner_text()) == (20, "Show 20 more of 25")
    more.click()
    assert (len(visible(page)), more.inner_text()) == (40, "Show 5 more of 5")
    page.locator("#class").select_option("10")  # 30 items have or are proposed this class
    assert (len(visible(page)), more.inner_text()) == (20, "Show 10 more of 10")
    more.click()
    assert len(visible(page)) == 30
    assert not more.is_visible()
    assert watched.offences == []
