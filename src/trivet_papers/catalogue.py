"""All experiments of the papers, by key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Protocol, TypeVar

from trivet.runtime.arguments import nearest

if TYPE_CHECKING:
    from trivet_papers.experiment import Experiment

PAPERS = ("levi2021", "xuan2020", "le2018", "xu2024")
SUMMARIES = files("trivet_papers") / "experiments.json"  # written by docs/make_experiments.py


@dataclass(frozen=True)
class Summary:
    """An experiment in a line, which is there without loading it: what its recipe is takes seconds of imports.

    Attributes:
        runs: of each size, how many.
    """

    key: str
    title: str
    runs: dict[str, int]


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=_Keyed)


def experiments(*keys: str) -> list[Experiment]:
    """Those of a key, such as "levi2021-table3", of a paper, "levi2021", or with "all" of all papers.

    Raises:
        ValueError: if there is no such experiment.
    """
    modules = [import_module(f"trivet_papers.{paper}.experiments") for paper in PAPERS]
    return _of_keys([experiment for module in modules for experiment in module.EXPERIMENTS], keys)


def summaries(*keys: str) -> list[Summary]:
    """The same in a line each."""
    return _of_keys([Summary(**row) for row in json.loads(SUMMARIES.read_text(encoding="utf-8"))], keys)


def _of_keys(known: Sequence[T], keys: Sequence[str]) -> list[T]:
    chosen: dict[str, T] = {}
    for key in keys:
        wanted = {each.key: each for each in known if key in ("all", each.key, each.key.partition("-")[0])}
        if not wanted:
            names = ["all", *PAPERS, *(each.key for each in known)]
            raise ValueError(f"there is no experiment {key!r}; {nearest(key, names)}")
        chosen |= wanted
    return list(chosen.values())
