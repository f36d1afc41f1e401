"""JSON of what a page shows has no pictures in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trivet.commands.printing import print_page_json


def test_pictures_are_left_out_at_every_depth(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"id": "a", "thumbnail": "data:image/png", "original_thumbnail": None}
    print_page_json({"leaks": [item, {"near": [item]}], "top": item}, Path("page.html"))
    shown = {"id": "a"}
    assert json.loads(capsys.readouterr().out) == {
        "leaks": [shown, {"near": [shown]}], "top": shown, "report": "page.html"
    }  # fmt: skip
    print_page_json({"n": 1}, None)
    assert json.loads(capsys.readouterr().out) == {"n": 1}
