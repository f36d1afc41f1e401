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
    known = [
        experiment for paper in PAPERS for experiment in import_module(f"trivet_papers.{paper}.experiments").EXPERIMENTS
    ]
    selected: list[Experiment] = []
    for key in keys:
        wanted = [
            experiment for experiment in known if key in ("all", experiment.key, experiment.key.partition("-")[0])
        ]
        if not wanted:
            names = ["all", *PAPERS, *(experiment.key for experiment in known)]
            raise ValueError(f"there is no experiment {key!r}; {nearest(key, names)}")
        selected += [experiment for experiment in wanted if experiment not in selected]
    return selected
