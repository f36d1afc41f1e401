"""What tests of figures ask of each, and its numbers row by row."""

from __future__ import annotations

import re
from typing import Any

from trivet_papers.figure import Figure, table


def sound(figure: Figure) -> None:
    """Assert that a figure says what it is, in short sentences, and that its columns fit."""
    (length,) = {len(values) for values in figure.numbers.values()}
    assert table(figure.numbers).count(b"\n") == 1 + length
    assert figure.title
    assert figure.source
    assert figure.reading.endswith(".")
    assert len(figure.reading.split()) < 25 * len(re.findall(r"\.(?= |$)", figure.reading))  # words of a sentence
    for axes in figure.picture.axes:
        named = axes.get_xlabel() or axes.get_ylabel() or axes.get_title() or axes.get_title("left")
        assert named or not axes.lines


def rows(figure: Figure, **where: object) -> list[dict[str, Any]]:
    """The rows whose columns have these values."""
    lines = [dict(zip(figure.numbers, row, strict=True)) for row in zip(*figure.numbers.values(), strict=True)]
    found = [line for line in lines if all(line[key] == value for key, value in where.items())]
    assert found
    return found
