"""JSON of what a page shows has no pictures in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trivet.commands.printing import echo, print_record
from trivet.runtime.record import Record


class Page(Record):
    """A page of items."""

    leaks: list[Any]
    top: dict[str, Any]


def test_pictures_are_left_out_at_every_depth(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"id": "a", "thumbnail": "data:image/png", "original_thumbnail": None}
    record = Page(leaks=[item, {"near": [item]}], top=item)
    print_record(record, lambda: echo("an answer"), json=True, report=Path("page.html"))
    items = {"leaks": [{"id": "a"}, {"near": [{"id": "a"}]}], "top": {"id": "a"}}
    assert json.loads(capsys.readouterr().out) == items | {"report": "page.html"}
    print_record(record, lambda: echo("an answer"), json=True, report=None)
    assert json.loads(capsys.readouterr().out) == items
    print_record(record, lambda: echo("an answer"), json=False, report=Path("page.html"))
    assert capsys.readouterr().out == "an answer\nReport: page.html\n"
