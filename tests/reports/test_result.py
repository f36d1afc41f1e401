"""Results of commands in a terminal and in a notebook: short, escaped, as a frame, and as a page that replaces its own
alone."""

from __future__ import annotations

import importlib.util
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from trivet.io.overwrite_guard import page_start
from trivet.reports.figure import panels
from trivet.reports.result import Contents, Paragraph, Result, TextTable
from trivet.runtime.record import Record

TABLE = TextTable(
    "names, <b>10 & more</b>", ("measure",), ("value",), [(f"m{i}", f"{i / 3:.1f}") for i in range(30)], leads=(20, 3)
)


class Answer(Record):
    value: int = 3


class Small(Result):
    kind = "evaluation"
    record = Answer()

    def contents(self) -> Contents:
        return [Paragraph("The <answer>.", bold=True), Paragraph("x" * 500 + " y", indent=2), TABLE]

    def rows(self) -> list[dict[str, object]]:
        return [{"measure": name, "value": value} for name, value in TABLE.rows]

    def figure(self) -> Figure:
        return Figure()

    def write_page(self, path: Path) -> None:
        path.write_bytes(page_start(self.kind) + b"new")


def test_it_prints_the_answer_first_in_few_lines() -> None:
    lines = repr(Small()).splitlines()
    assert lines[:3] == ["The <answer>.", "  " + 296 * "x" + " …", "names, <b>10 & more</b>"]
    assert lines[3:] == [
        "  measure  value",
        "  m0         0.0",
        "  m1         0.3",
        "  m3         1.0",
        "  m20        6.7",
    ]


def test_an_answer_is_shown_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = " ".join(["better"] * 60)
    monkeypatch.setattr(Small, "contents", lambda _: [Paragraph(answer, bold=True), TABLE])
    lines = repr(Small()).splitlines()
    assert " ".join(lines[:2]) == answer
    assert lines[2] == "names, <b>10 & more</b>"
    assert max(map(len, lines)) <= 300


def test_a_table_without_room_for_a_row_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "contents", lambda _: [*[Paragraph("line")] * 6, TABLE, Paragraph("last")])
    assert repr(Small()).splitlines() == [*["line"] * 6, "last"]


def test_str_prints_all() -> None:
    assert str(Small()).splitlines()[-1] == "  m29        9.7"
    assert len(str(Small()).splitlines()) == 34


class Tags(HTMLParser):
    """The tags that are open, and how many of each there were."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_a_figure() -> None:
    picture, size = panels(1, 1, height=2)[0]._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert size == {"width": 700}


def test_html_is_escaped_balanced_and_of_its_leading_rows() -> None:
    text = Small()._repr_html_()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert "The &lt;answer&gt;." in text
    assert "<b>10" not in text
    assert {"script", "answer", "style"}.isdisjoint(tags.counts)
    assert tags.counts["tr"] == 3
    assert "and 28 more rows" in text


def test_the_page_replaces_its_own_kind_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert Small().save(str(path)) == path
    assert Small().save(path).read_bytes().endswith(b"new")
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"^save replaces only a file that it wrote itself: .*; name another file"):
        Small().save(path)
    assert path.read_text() == "mine"
    with pytest.raises(ValueError, match=r"^an output must be a file in a folder that exists"):
        Small().save(tmp_path / "no" / "page.html")
    with pytest.raises(ValueError, match=r"^save writes a page of HTML: got .*table\.csv; name it table\.html\.$"):
        Small().save(tmp_path / "table.csv")


def test_a_frame_needs_pandas() -> None:
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(
            ModuleNotFoundError, match=r"^this needs pandas, which is not installed: run pip install pa"
        ):
            Small().to_frame()
    else:
        assert Small().to_frame().shape == (30, 2)
