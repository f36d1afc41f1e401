"""Pages and records of results: tables in Markdown, shares, and what something was measured with."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, and an empty one."""
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def gain(value: float, low: float, high: float) -> str:
    """A difference with its interval, in points of per cent."""
    return f"{100 * value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def versions(*names: str) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


def environment(*names: str) -> str:
    """Today, and what is measured with: Python, these packages, and the machine."""
    packages = ", ".join(f"{name} {version}" for name, version in versions(*names).items())
    return (
        f"{date.today().isoformat()}, Python {platform.python_version()}, {packages}, {platform.machine()} CPU, "
        f"{os.cpu_count()} cores"
    )


def read(path: Path) -> dict[str, Any]:
    """Earlier results, if there are some."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(path: Path, results: Mapping[str, Any], page: str) -> None:
    """Results as JSON, and beside them as a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(page)
