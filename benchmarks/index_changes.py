"""Time to add items to an index on disk, against copying its folder.

    .venv/bin/python benchmarks/index_changes.py             # about half an hour on two cores
    .venv/bin/python benchmarks/index_changes.py --items 20000 --output /tmp/index_changes.md

Rows about 1,000 centres, 128 numbers, cosine; a hundredth as many are added, of which half replace items of their ids.
An index is made once for each kind; in each round its folder is copied, and the command adds to the copy: it reads all,
adds, and writes all anew. A ratio is taken within each round, and the median over the rounds counts. An index of hnsw
takes 18 minutes to make for a million rows, so that it is of a quarter of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np

from core import environment, seconds, table
from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.commands.index.update import add_items
from trivet.knn.kinds import Kind

WIDTH, CENTRES, ADDED = 128, 1000, 100
KINDS: tuple[Kind, ...] = ("exact", "ivf", "hnsw", "int8", "binary", "ivf-pq")


def write(path: Path, first: int, count: int) -> Path:
    """A file of rows whose ids are numbers from `first` on."""
    draw = np.random.default_rng(first)
    centre = draw.integers(CENTRES, size=count)
    centres = np.random.default_rng(7).standard_normal((CENTRES, WIDTH), dtype=np.float32)
    rows = centres[centre] + draw.standard_normal((count, WIDTH), dtype=np.float32)
    np.savez(path, embeddings=rows, id=np.arange(first, first + count).astype(str), label=centre)
    return path


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "index_changes.md")
    arguments = parser.parse_args()
    load, lines = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in arguments.kinds.split(","):
            count = arguments.items // (4 if kind == "hnsw" else 1)
            added = count // ADDED
            source = write(folder / "items.npz", 0, count)
            index = IndexOptions(source=source, output=folder / "index", kind=kind, force=True)
            making = seconds(lambda index=index: make_index(index), 1)
            more = write(folder / "more.npz", count - added // 2, added)
            adding = IndexOptions(source=more, output=folder / "copy", add=True)
            times = []
            for _ in range(arguments.rounds):
                shutil.rmtree(folder / "copy", ignore_errors=True)
                os.sync()
                copied = seconds(lambda: (shutil.copytree(folder / "index", folder / "copy"), os.sync()), 1)
                times.append((seconds(lambda adding=adding: add_items(adding), 1), copied))
                print(kind, times[-1], flush=True)
            lines.append(
                [
                    kind,
                    f"{count:,}",
                    f"{added:,}",
                    *(f"{statistics.median(column):.1f}" for column in zip(*times, strict=True)),
                    f"{statistics.median(one / floor for one, floor in times):.2f}",
                    f"{making:.0f}",
                ]
            )
    head = ["kind", "items", "added", "adding, s", "copying, s", "x copying", "making anew, s"]
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    arguments.output.write_text(
        f"# Adding to an index\n\nWritten by `benchmarks/index_changes.py`, {arguments.rounds} rounds, at load "
        f"{load:.2f} (goal: 10,000 added to 1,000,000 in 5 s); the method is described in that file. {facts}.\n\n"
        f"{table(head, lines)}\n"
    )


if __name__ == "__main__":
    main()
