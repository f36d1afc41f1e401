"""The experiments: how far label noise of rate p takes a loss down, beside a share 1 - p of clean items.

A run is told by the data, the method (triplet loss with random or fixed semi-hard negatives, or the marginal loss), the
labels it sees (with noise, or the topline: fewer items, all of them right) and the rate p.
"""

from __future__ import annotations

from trivet_papers.experiment import Experiment
from trivet_papers.le2018.experiments import clustering, curves, human

EXPERIMENTS: tuple[Experiment, ...] = (*curves.EXPERIMENTS, clustering.EXPERIMENT, human.EXPERIMENT)
