"""Write the tables of docs/data.md, collapse_method.md and coming_from.md from the code:
.venv/bin/python docs/make_tables.py"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from trivet.collapse import THRESHOLDS
from trivet.config.base import descriptions_of
from trivet.datasets import DATA_SETS, DataConfig
from trivet.datasets.published import counts_text
from trivet.runtime import counterparts

DOCS = Path(__file__).parent
WORDS = runpy.run_path(str(DOCS / "make_settings.py"))


def data_settings() -> Iterator[str]:
    """A row for each setting that is not one of every data set, with those that have it."""
    rows: dict[str, list[str]] = {}
    for name, entry in DATA_SETS.items():
        descriptions = descriptions_of(entry.config)
        for key, field in entry.config.model_fields.items():
            if key not in DataConfig.model_fields:
                row = f"`{key}` | {WORDS['kind'](field)} | {WORDS['default'](field)} | {descriptions[key]}"
                rows.setdefault(row, []).append(f"`{name}`")
    yield from ("| key | type | default | | of |", "|---|---|---|---|---|")
    yield from (f"| {row} | {', '.join(names)} |" for row, names in rows.items())


def published_counts() -> Iterator[str]:
    """A row for each published set and version: how many images and classes its splits have."""
    yield from ("| set | images and classes that were published |", "|---|---|")
    for name, entry in DATA_SETS.items():
        for version, counts in entry.counts.items():
            yield f"| {name}{', ' if version else ''}{version} | {counts_text(counts)} |"


def thresholds() -> Iterator[str]:
    """A row for each threshold of the diagnosis."""
    yield from ("| name | value | measure | meaning |", "|---|---|---|---|")
    for name, each in THRESHOLDS.items():
        yield f"| {name} | {each.value:g} | {each.measure} | {each.meaning} |"


TABLES: dict[str, dict[str, Callable[[], Iterable[str]]]] = {
    "data.md": {"data_settings": data_settings, "published_counts": published_counts},
    "collapse_method.md": {"thresholds": thresholds},
    "coming_from.md": {title: partial(counterparts.tables().get, title, ()) for title in counterparts.tables()},
}


def page(name: str) -> str:
    """The page of this name with the tables of the code."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for title, table in TABLES[name].items():
        begin = f"<!-- {title}: docs/make_tables.py -->\n"
        made = begin + "\n".join(table()) + "\n<!-- end -->"
        text, count = re.subn(f"{begin}.*?<!-- end -->", lambda _, made=made: made, text, flags=re.DOTALL)
        assert count == 1, begin
    return text


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
