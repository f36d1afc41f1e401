"""The experiments of the long version: when a network that is trained on the hardest triplets collapses.

A run is told by its network, the classes P and items K of a batch, or its N items as they come, the dimension d and the
margin. What it keeps is the mean distance of held-out items after training over that before; below 0.05 it has
collapsed.
"""

from __future__ import annotations

from trivet_papers.experiment import Experiment
from trivet_papers.xu2024.experiments import batch, data, margin, network

EXPERIMENTS: tuple[Experiment, ...] = (
    batch.BATCH,
    batch.DIMENSION,
    margin.EXPERIMENT,
    data.EXPERIMENT,
    network.EXPERIMENT,
)
