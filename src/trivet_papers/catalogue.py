"""All experiments of the papers, by key."""

from __future__ import annotations

from importlib import import_module

from trivet.runtime.arguments import nearest
from trivet_papers.experiment import Experiment

PAPERS = ("levi2021", "xuan2020", "le2018", "xu2024")


def experiments(*keys: str) -> list[Experiment]:
    """Those of a key, such as "levi2021-table3", of a paper, "levi2021", or with "all" of all papers.

    Raises:
        ValueError: if there is no such experiment.
    """
    known = [one for paper in PAPERS for one in import_module(f"trivet_papers.{paper}.experiments").EXPERIMENTS]
    found: list[Experiment] = []
    for key in keys:
        wanted = [one for one in known if key in ("all", one.key, one.key.partition("-")[0])]
        if not wanted:
            names = ["all", *PAPERS, *(one.key for one in known)]
            raise ValueError(f"there is no experiment {key!r}; {nearest(key, names)}")
        found += [one for one in wanted if one not in found]
    return found
