"""Indexes of codes by faiss, which Trivet makes, beside those by usearch, which could hold them instead.

    pip install usearch
    .venv/bin/python benchmarks/usearch_codes.py             # some minutes on one thread

100,000 rows about 1,000 centres, 128 numbers, cosine; 500 other rows are searched for. usearch walks a graph of codes
with its default parameters; what it finds, as many rows as the index of Trivet takes for candidates, is ranked by the
vectors in the same way. Each searches all queries in turn, in alternating rounds on one thread; a ratio is taken within
each round, and the median over the rounds counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
import usearch
from usearch.index import Index as PeerIndex

from core import environment, table
from trivet.distances import unit_rows
from trivet.knn.codes import candidates
from trivet.knn.index import NEAREST, Index, build_index
from trivet.knn.kinds import Kind

RESULT = Path(__file__).parent / "results" / "usearch_codes.md"
WIDTH, CENTRES, QUERIES, K = 128, 1000, 500, 10
KINDS: tuple[Kind, ...] = ("int8", "binary")
Array = np.ndarray[Any, np.dtype[Any]]


def drawn(count: int, seed: int) -> Array:
    """Rows about the centres."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((CENTRES, WIDTH), dtype=np.float32)
    return centres[draw.integers(CENTRES, size=count)] + draw.standard_normal((count, WIDTH), dtype=np.float32)


def peer_index(rows: Array, kind: Kind) -> tuple[PeerIndex, Callable[[Array], Array]]:
    """An index of the codes of rows by usearch, and what makes codes of queries."""
    centre = rows.mean(axis=0)

    def coded(some: Array) -> Array:
        return np.packbits(some > centre, axis=1) if kind == "binary" else some

    metric, dtype = ("hamming", "b1") if kind == "binary" else ("cos", "i8")
    index = PeerIndex(ndim=rows.shape[1], metric=metric, dtype=dtype)
    index.add(np.arange(len(rows)), coded(rows), threads=1)
    return index, coded


def main() -> None:
    """Measure both, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    rows, queries = drawn(arguments.items, 1), drawn(QUERIES, 2)
    exact = build_index(rows, kind="exact").search(queries, K).indices
    load, lines = os.getloadavg()[0], []
    for kind in KINDS:
        began = time.perf_counter()
        index = build_index(rows, kind=kind)
        made = time.perf_counter() - began
        began = time.perf_counter()
        unit = unit_rows(torch.from_numpy(rows)).numpy()
        peer, coded = peer_index(unit, kind)
        peer_made = time.perf_counter() - began
        depth = candidates(K, index.info.parameters["candidates"], NEAREST)
        asked = coded(unit_rows(torch.from_numpy(queries)).numpy())

        def ours(index: Index = index) -> Array:
            return index.search(queries, K).indices

        def theirs(index: Index = index, peer: PeerIndex = peer, asked: Array = asked, depth: int = depth) -> Array:
            keys = np.asarray(peer.search(asked, depth, threads=1).keys).astype(np.int64).reshape(QUERIES, depth)
            order = np.argsort(index.distances(queries, keys), axis=1, kind="stable")[:, :K]
            return np.take_along_axis(keys, order, axis=1)

        ways = {"trivet, faiss": ours, "usearch": theirs}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, search in ways.items():
                began = time.perf_counter()
                search()
                times[name].append(time.perf_counter() - began)
        ratios = [a / b for a, b in zip(*(times[name] for name in ways), strict=True)]
        stored = {"trivet, faiss": index.bytes_per_item, "usearch": peer.serialized_length / arguments.items}
        for name, search in ways.items():
            found = search()
            recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), exact.tolist(), strict=True)])
            lines.append(
                [
                    kind,
                    name,
                    f"{made if name.startswith('trivet') else peer_made:.1f}",
                    f"{1000 * statistics.median(times[name]) / QUERIES:.2f}",
                    f"{statistics.median(ratios):.2f}" if name.startswith("trivet") else "",
                    f"{100 * recall:.1f}",
                    f"{stored[name]:.0f}",
                ]
            )
        print(lines[-2:], flush=True)
    head = ["codes", "index", "made in, s", "a query, ms", "times usearch", "recall@10, %", "bytes an item"]
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment().items())
    arguments.output.write_text(
        f"# Codes: faiss beside usearch\n\nWritten by `benchmarks/usearch_codes.py`, {arguments.items:,} x {WIDTH}, "
        f"one thread, {arguments.rounds} rounds, at load {load:.2f}; the method is described in that file. usearch "
        f"{usearch.__version__}, {facts}.\n\n{table(head, lines)}\n\nMaking an index of Trivet includes measuring its "
        "recall on 1,000 rows. The vectors, by which both rank what codes find, are not counted.\n"
    )


if __name__ == "__main__":
    main()
