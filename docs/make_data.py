"""Write the table of settings of docs/data.md from the table of data sets: .venv/bin/python docs/make_data.py"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from trivet.datasets import DATA_SETS, DataConfig
from trivet.datasets.published_layouts import counts_text

PAGE = Path(__file__).with_name("data.md")
WORDS = runpy.run_path(str(Path(__file__).with_name("make_settings.py")))
BEGIN, END = "<!-- own settings: docs/make_data.py -->\n", "<!-- end -->"
BEGIN_COUNTS, END_COUNTS = "<!-- published counts: docs/make_data.py -->\n", "<!-- end counts -->"


def own_settings() -> str:
    """A row for each setting that is not one of every data set, with those that have it."""
    rows: dict[str, list[str]] = {}
    for name, entry in DATA_SETS.items():
        for key, field in entry.config.model_fields.items():
            if key not in DataConfig.model_fields:
                said = f"{WORDS['kind'](field)} | {WORDS['default'](field)} | {field.description}"
                rows.setdefault(f"`{key}` | {said}", []).append(f"`{name}`")
    lines = ["| key | type | default | | of |", "|---|---|---|---|---|"]
    lines += [f"| {said} | {', '.join(names)} |" for said, names in rows.items()]
    return BEGIN + "\n".join(lines) + "\n" + END


def counts() -> str:
    """A row for each published set and version: how many images and classes its parts have."""
    rows = [
        f"| {name}{', ' if version else ''}{version} | {counts_text(parts)} |"
        for name, entry in DATA_SETS.items()
        for version, parts in entry.counts.items()
    ]
    return BEGIN_COUNTS + "\n".join(
        ["| set | images and classes that were published |", "|---|---|", *rows, END_COUNTS]
    )


def page() -> str:
    """The page with the tables of the code."""
    text = PAGE.read_text(encoding="utf-8")
    for begin, end, made in ((BEGIN, END, own_settings()), (BEGIN_COUNTS, END_COUNTS, counts())):
        text = re.sub(f"{begin}.*?{end}", lambda _, made=made: made, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
