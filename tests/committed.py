"""Committed results, and how the documents write their numbers."""

from __future__ import annotations

import functools
import json
import runpy
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STUDIES, BENCHMARKS = ROOT / "studies" / "results", ROOT / "benchmarks" / "results"


@functools.cache
def results(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def flat(text: str) -> str:
    return " ".join(text.replace("**", "").split())


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def percents(values: Sequence[float]) -> str:
    return ", ".join(map(percent, values))


def around(values: Sequence[float]) -> str:
    """Mean and sample standard deviation in per cent; the value where all are the same."""
    mean = percent(statistics.fmean(values))
    return f"{mean} ± {percent(statistics.stdev(values))}" if max(values) > min(values) else mean


def figures(value: float) -> str:
    """A ratio with two figures, as the tables of speed have it."""
    return f"{value:#.2g}".rstrip(".") if value < 100 else f"{value:.0f}"


def quoted(name: str) -> Any:
    return results(STUDIES / "quoted.json")[name]["values"]


@functools.cache
def program(path: str) -> dict[str, Any]:
    """The names of a program below studies or benchmarks."""
    folder = str((ROOT / path).parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(ROOT / path))
    finally:
        sys.path.remove(folder)
