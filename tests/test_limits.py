"""The page of limits: what it says is refused is refused, in its words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "limits.md").read_text()
SETUP = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
REFUSED = re.findall(r"^\| (.+?) \| `(.+)` \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)


def test_every_row_of_errors_is_run() -> None:
    tables = PAGE.split("| what | code |")[1:]
    rows = [row for part in tables for row in part.split("\n\n", 1)[0].splitlines()[2:]]
    assert len(REFUSED) == len(rows) > 10


@pytest.mark.parametrize(("words", "code", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_it_is_refused(words: str, code: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec("".join(SETUP), names)
    with pytest.raises((ValueError, RuntimeError), match=re.escape(sentence)):
        exec(code, names)
