"""The program that runs all checks of several processes: torch is loaded once for those of every package.

Its argument is the folder for what the processes write, see `mining/crew.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tests.metrics.retrieval_worker
import tests.mining.gather_worker
import tests.training.distributed.world_worker  # noqa: F401  # importing them adds their checks to those that run here
from tests.mining.crew import run

from trivet.metrics import positive_ranks

if __name__ == "__main__":
    positive_ranks.TILE = (256, 1024)  # several blocks for each process that retrieves
    run(Path(sys.argv[1]), 2, 4)
