"""Time of a step beside busy neighbours: processes that spin, as the workers that load data do.

    .venv/bin/python benchmarks/busy.py                       # needs pytorch-metric-learning for the peers
    .venv/bin/python benchmarks/busy.py --sizes 1024 --rounds 40 --no-peers --output /tmp/busy.md

In each round every number of neighbours takes its turn, and with it every case: the bare products, Trivet, the peer,
one call each, all in one process on all threads of torch. A ratio to the time without neighbours is taken within each
round; the median over the rounds counts. What else the machine does is a neighbour too, so the load is noted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core import FLOOR, NAMED, PEER, Data, Shape, environment, floor_of, peers, seconds, short, step_of, table

CASES = ("EPHN", "batch-hard", "semi-hard", "all semi-hard", "all triplets", "contrastive", "multi-similarity")
NEIGHBOURS = (0, 1, 2)
PEER_MEMORY = 2**29  # bytes: a peer that needs more is left out


@contextmanager
def neighbours(number: int) -> Iterator[None]:
    """So many processes that take a core each."""
    spinning = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def steps_of(size: int, *, with_peers: bool) -> dict[tuple[str, str], Callable[[], None]]:
    """The calls of a size by case and library."""
    shape = Shape(anchors=size, dimension=128, samples=4)
    data, others = Data.of(shape), peers() if with_peers else {}
    steps = {(FLOOR, ""): floor_of(shape, data, proxies=False)}
    for case in (case for case in NAMED if case.name in CASES):
        steps[case.name, "trivet"] = step_of(case.build(shape), data)
        peer = others.get(case.name)
        if peer is not None and peer.needs(shape) <= PEER_MEMORY:
            steps[case.name, PEER] = step_of(peer.build(shape), data)
    return steps


def measured(size: int, rounds: int, *, with_peers: bool) -> list[list[str]]:
    """The rows of a size."""
    steps = steps_of(size, with_peers=with_peers)
    for step in steps.values():
        step()
    times: dict[tuple[str, str], dict[int, list[float]]] = {key: {k: [] for k in NEIGHBOURS} for key in steps}
    for _ in range(rounds):
        for number in NEIGHBOURS:
            with neighbours(number):
                for key, step in steps.items():
                    times[key][number].append(seconds(step, 1))
    rows = []
    for (case, library), found in times.items():
        alone, *busy = (found[number] for number in NEIGHBOURS)
        ratios = [statistics.median(b / a for a, b in zip(alone, each, strict=True)) for each in busy]
        medians = [1000 * statistics.median(each) for each in found.values()]
        rows.append([case, library or "products", str(size), *map(short, medians), *map(short, ratios)])
    return rows


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "busy.md")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows = [
        row for size in arguments.sizes for row in measured(size, arguments.rounds, with_peers=not arguments.no_peers)
    ]
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    head = ["case", "library", "N", *(f"{k} neighbours, ms" for k in NEIGHBOURS), *(f"x, {k}" for k in NEIGHBOURS[1:])]
    arguments.output.write_text(
        f"# A step beside busy neighbours\n\nWritten by `benchmarks/busy.py`, {arguments.rounds} rounds, at load "
        f"{load:.2f}. {facts}.\n\nd = 128, 4 per class; `x` is the time over that without neighbours.\n\n"
        f"{table(head, rows)}\n"
    )


if __name__ == "__main__":
    main()
