"""Counts, numbers and names in sentences: one item, two items."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

BELOW = "The verdicts below say how it came to this."


def noun(count: object, singular: str) -> str:
    """The noun, in the plural unless there is exactly one: 0 queries, 1 query, 2 queries.

    Example:
        >>> noun(1, "class"), noun(2, "class"), noun(0, "query")
        ('class', 'classes', 'queries')
    """
    if count == 1:
        return singular
    if re.search("(s|x|ch|sh)$", singular):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if re.search("[^aeiou]y$", singular) else f"{singular}s"


def counted(count: object, singular: str) -> str:
    """A number and what it counts: 1 item, 2 items."""
    return f"{count} {noun(count, singular)}"


def percents(low: float, high: float) -> str:
    """Shares in [0, 1] between two as per cent, with one decimal; one number where both round to it.

    Example:
        >>> percents(0.0831, 0.0925), percents(0.0831, 0.0834)
        ('between 8.3 and 9.2 %', 'about 8.3 %')
    """
    ends = [f"{100 * end:.1f}" for end in (low, high)]
    return f"about {ends[0]} %" if ends[0] == ends[1] else f"between {ends[0]} and {ends[1]} %"


def abbreviated(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are.

    Example:
        >>> abbreviated(["a", "b", "c"], 2)
        'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def rows_hold(rows: Sequence[int], what: str) -> str:
    """Say which rows hold something; of many, the first eight.

    Example:
        >>> rows_hold([5], "NaN"), rows_hold([5, 7], "NaN")
        ('row 5 holds NaN', 'rows 5, 7 hold NaN')
    """
    text = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
    return f"row {text} holds {what}" if len(rows) == 1 else f"rows {text} hold {what}"


def digits(value: float | None) -> str:
    """A number to three digits, or more where it is a thousand or more."""
    return "–" if value is None else f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def typed(path: Path | str) -> str:
    """A path or another text as it is typed in a shell, quoted where it has spaces or signs that a shell obeys.

    The shells of Windows take double quotes alone, which no name of a file there has.

    Example:
        >>> print(f"trivet train --resume {typed(Path('my runs; rm x'))}")
        trivet train --resume 'my runs; rm x'
    """
    if sys.platform == "win32":
        return str(path) if re.fullmatch(r"[\w@+=:,./\\-]+", str(path)) else f'"{path}"'
    return shlex.quote(str(path))


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The ends of the paths that tell them apart, as short as can be.

    Raises:
        ValueError: if two are the same.
    """
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len({*names}) == len(names):
            return names
    (path, count), *_ = Counter(paths).most_common(1)
    raise ValueError(f"each path must be named once: got {path} {'twice' if count == 2 else f'{count} times'}.")


def event_title(kind: str, step: int, *, suspected: bool) -> str:
    """An event of a monitor in words: its kind, whether it is certain, its step."""
    return f"{kind.replace('-', ' ')} {'suspected' if suspected else 'detected'} at step {step}"
