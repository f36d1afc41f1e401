"""Time and memory of embedding, evaluating and searching many vectors, and what that says of ten times as many.

    .venv/bin/python benchmarks/scale.py vectors                                     # about 15 minutes on one core
    .venv/bin/python benchmarks/scale.py vectors --items 20000 80000 --hnsw 20000 --output /tmp/scale_vectors.json

250,000 and 1,000,000 vectors of 128 numbers, made by a seed: unit vectors around N / 10 class centres of a plane of 24
dimensions, with noise in all of 128. Each part runs in a process of its own, on one thread:

embed     trivet embed from an npy file with its csv, by a linear head, into shards
read      read_vectors of the shards: mapped, and in memory without vectors.npy
evaluate  trivet evaluate of the shards: 2,000 random queries against all, recall@1, R-precision and MAP@R, exact
ivf-pq, hnsw
          trivet index of the shards, with its recall; then a search for 1,000 vectors, k = 10

Seconds are those of the processor, so that other processes count less; "wall" are those of the clock. Peak memory is
the most that was resident, and of this what is not a mapped file ("own"), looked at every 20 ms. The exponent p of
time = c N^p is that between the two largest sizes, but 1.5 at least for ivf-pq, whose 4 sqrt(N) lists are compared with
N rows; memory grows by so many bytes an item. The last table is what both say of 10,000,000 items.
Every result is written as soon as it is finished, as JSON and as a table.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, PLANE, NOISE = 128, 24, 0.8
ITEMS, HNSW, PAPER = (250_000, 1_000_000), (62_500, 250_000), 10_000_000
ASKED, SEARCHED, BLOCK = 2_000, 1_000, 65_536
Row = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--items", type=int, nargs="+", default=ITEMS)
    options.add_argument(
        "--hnsw", type=int, nargs="*", default=HNSW, help="sizes of the hnsw index, which takes longest"
    )
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "scale_vectors.json")
    options.add_argument("--part", nargs=3, metavar=("PART", "ITEMS", "FOLDER"), help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.part:
        name, items, folder = given.part
        print(json.dumps(measured(PARTS[name], int(items), Path(folder))))
        return
    about = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "numpy", "pyarrow", "faiss-cpu")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread used",
        "rows": [],
    }
    for items in sorted({*given.items, *given.hnsw}):
        names = [name for name in PARTS if items in (given.hnsw if "hnsw" in name else given.items)]
        if "embed" not in names:
            names = ["embed", *names]
        with tempfile.TemporaryDirectory() as folder:
            make(items, Path(folder))
            for name in names:
                command = [sys.executable, __file__, "--part", name, str(items), folder]
                found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=one_thread())
                about["rows"].append({"part": name, "items": items, **json.loads(found.stdout.splitlines()[-1])})
                given.output.write_text(json.dumps(about, indent=1) + "\n")
                given.output.with_suffix(".md").write_text(page(about))
                print(about["rows"][-1], flush=True)
    print(page(about))


def one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}


def make(items: int, folder: Path) -> None:
    """`vectors.npy` with `vectors.csv`, a run whose model is a linear head, and queries."""
    from trivet.models.config import ModelConfig
    from trivet.models.networks import build
    from trivet.models.store import save
    from trivet.training.config import RunConfig

    classes = max(1, items // 10)
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((classes, PLANE), dtype=np.float32) @ draw.standard_normal(
        (PLANE, WIDTH), dtype=np.float32
    )
    labels = draw.integers(0, classes, items)
    rows = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (items, WIDTH))
    scale = NOISE * math.sqrt(PLANE)
    for start in range(0, items, BLOCK):
        of = labels[start : start + BLOCK]
        block = centres[of] + scale * draw.standard_normal((len(of), WIDTH), dtype=np.float32)
        rows[start : start + len(of)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    np.save(folder / "queries.npy", rows[np.sort(draw.choice(items, SEARCHED, replace=False))])
    rows.flush()
    with (folder / "vectors.csv").open("w") as file:
        file.write("id,class\n")
        file.writelines(f"item {row},class {label}\n" for row, label in enumerate(labels.tolist()))
    run = folder / "run"
    run.mkdir()
    model = {"name": "linear", "embedding_dim": WIDTH}
    settings = {
        "data": {"name": "vectors", "path": str(folder / "vectors.npy")},
        "model": model,
        "loss": {"name": "nca"},
    }
    (run / "config.toml").write_text(RunConfig.parse(settings, source="").to_toml())
    save(build(ModelConfig(**model), (WIDTH,), seed=0), ModelConfig(**model), (WIDTH,), run / "model")


def embed(items: int, folder: Path) -> Row:
    from trivet.commands.embed.run import embed_data

    made = embed_data(folder / "run", str(folder / "vectors.npy"), folder / "shards")
    held = sum(item.stat().st_size for item in (folder / "shards").iterdir())
    return {"shards": made["shards"]["count"], "disk_bytes_per_item": held / items}


def read(items: int, folder: Path) -> Row:
    from trivet.io.read_embeddings import read_vectors

    vectors = read_vectors(folder / "shards")
    assert len(vectors) == items
    return {"mapped": isinstance(vectors.embeddings, np.memmap)}


def read_into_memory(items: int, folder: Path) -> Row:
    mapped, aside = folder / "shards" / "vectors.npy", folder / "aside.npy"
    mapped.rename(aside)
    try:
        return read(items, folder)
    finally:
        aside.rename(mapped)


def evaluate(items: int, folder: Path) -> Row:
    from trivet.commands.evaluate.options import EvaluateOptions
    from trivet.commands.evaluate.run import evaluate_files

    names = ("recall@1", "r-precision", "map@r")
    found = evaluate_files(EvaluateOptions([folder / "shards"], measures=names, sample=ASKED))[0].record.as_json(
        unset=False
    )
    return {"measures": {name: found["evaluation"]["class"][name] for name in names}}


def index(kind: str) -> Callable[[int, Path], Row]:
    def work(items: int, folder: Path) -> Row:
        from trivet.commands.index.options import IndexOptions
        from trivet.commands.index.run import make_index

        made = make_index(IndexOptions(folder / "shards", folder / kind, kind=kind))  # type: ignore[arg-type]  # from the command line
        names = ("parameters", "recall", "recall_at", "bytes_per_item", "tried")
        return {name: getattr(made, name) for name in names}

    return work


def search(kind: str) -> Callable[[int, Path], Row]:
    def work(items: int, folder: Path) -> Row:
        from trivet.knn.index import Index

        opened, queries = Index.load(folder / kind), np.load(folder / "queries.npy")
        began = time.process_time()
        opened.search(queries, 10)
        return {"ms_per_query": 1000 * (time.process_time() - began) / len(queries)}

    return work


PARTS: dict[str, Callable[[int, Path], Row]] = {
    "embed": embed,
    "read, mapped": read,
    "read into memory": read_into_memory,
    "evaluate": evaluate,
    **{
        name: work
        for kind in ("ivf-pq", "hnsw")
        for name, work in ((kind, index(kind)), (f"search {kind}", search(kind)))
    },
}


def measured(work: Callable[[int, Path], Row], items: int, folder: Path) -> Row:
    """What a part says, with its seconds and its memory, in MiB above that of the program when it began."""
    import torch

    import trivet.commands.embed.run
    import trivet.commands.evaluate.run
    import trivet.commands.search.run  # noqa: F401  # loading all that is no part of the cost

    torch.set_num_threads(1)
    before, own = resident()
    most, over = [own], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], resident()[1])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began, used = time.perf_counter(), time.process_time()
    row = work(items, folder)
    wall, seconds = time.perf_counter() - began, time.process_time() - used
    over.set()
    watcher.join()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "wall": wall, "peak_mib": peak - before, "own_mib": most[0] - own, **row}


def resident() -> tuple[float, float]:
    """MiB that are resident, and of these, those that are of no file."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    whole, own = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    return whole, own


def page(about: Row) -> str:
    rows = about["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        "# Many vectors\n",
        f"{about['date']}, {about['machine']}; {versions}.",
        f"`benchmarks/scale.py vectors`: unit vectors of {WIDTH} numbers.",
        "",
        "| part | items | seconds | wall | peak MiB | own MiB | of it |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        told = ("seconds", "wall", "peak_mib", "own_mib", "part", "items", "tried")
        rest = "; ".join(f"{name} {shown(value)}" for name, value in row.items() if name not in told)
        lines.append(
            f"| {row['part']} | {row['items']:,} | {row['seconds']:.1f} | {row['wall']:.1f} | {row['peak_mib']:.0f} | "
            f"{row['own_mib']:.0f} | {rest} |"
        )
    lines += [
        f"\n## {PAPER:,} items, on paper\n",
        "| part | exponent of time | seconds | bytes an item | own MiB |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["part"] for row in rows):
        some = sorted((row for row in rows if row["part"] == name), key=lambda row: row["items"])[-2:]
        if len(some) == 2:
            exponent, seconds = time_on_paper(name, *some)
            each, memory = memory_on_paper(name, *some)
            unit = " ms a query" if name.startswith("search") else ""
            cost = f"{seconds:,.{1 if unit else 0}f}{unit}"
            lines.append(f"| {name} | {exponent:.2f} | {cost} | {each:.0f} | {memory:,.0f} |")
    return "\n".join(lines) + "\n"


def time_on_paper(name: str, small: Row, large: Row) -> tuple[float, float]:
    """The exponent between two sizes, and the cost at ten millions."""
    key = "ms_per_query" if name.startswith("search") else "seconds"
    exponent = math.log(large[key] / small[key]) / math.log(large["items"] / small["items"])
    exponent = max(exponent, 1.5) if name == "ivf-pq" else exponent
    return exponent, large[key] * (PAPER / large["items"]) ** exponent


def memory_on_paper(name: str, small: Row, large: Row) -> tuple[float, float]:
    """The bytes of each item more, and the MiB at ten millions."""
    known = [row["own_mib"] - (kept(row["items"]) if name == "evaluate" else 0) for row in (small, large)]
    each = (known[1] - known[0]) / (large["items"] - small["items"])
    whole = known[1] + each * (PAPER - large["items"]) + (kept(PAPER) if name == "evaluate" else 0)
    return each * 2**20, whole


def kept(items: int) -> float:
    """MiB of a gallery that an evaluation keeps in float32: none if that is more than 512."""
    held = 4 * (WIDTH + 1) * items / 2**20
    return held if held <= 512 else 0.0


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
