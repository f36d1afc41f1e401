"""The program that runs all checks of several processes, of every package: see `mining/crew.py`."""

from __future__ import annotations

from pathlib import Path

import tests.metrics.retrieval_worker
import tests.mining.gather_worker
import tests.training.distributed.world_worker  # noqa: F401  # importing them adds their checks to those that run here
from tests.mining.crew import run

from trivet.metrics import positive_ranks


def main(folder: str) -> None:
    positive_ranks.TILE = (64, 256)  # several blocks for each process that retrieves
    run(Path(folder), 2, 4)
