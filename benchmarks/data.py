"""Images per second of training batches beside decoding alone, and how soon large tables and vectors are open.

    python benchmarks/data.py --images FOLDER        # any folder of JPEG images, one folder per class
    python benchmarks/data.py --parts vectors table  # makes 1.5 GB in a temporary folder

Decoding alone: `FileInputs.decode_all` on the files of the same batches, to the size that
batches are cut
from, and with as many threads, but no batch is made; and Pillow with libjpeg in one thread, `open`, `convert`,
`resize`. The loader: batches of 16 x 8 with crops at random places and mirroring from files (`memory_gb = 0`), with 0,
1 and 2 workers; the clock starts when each worker has given one batch.
Medians of alternating rounds in one process. Vectors and tables: a fresh process each, beside one that only imports.
Results in benchmarks/results/data.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader

from trivet.datasets import DataConfig, augmentation, load
from trivet.datasets.inputs import FileInputs
from trivet.samplers import PKBatches
from trivet.training.loop import Batches

RESULTS = Path(__file__).parent / "results"
BATCH, SIZE, RESIZE = (16, 8), 112, 128
VECTORS, DIMENSION = 1_000_000, 384


def images(folder: Path, rounds: int, steps: int) -> dict[str, Any]:
    """Images per second of each way, medians over the rounds, and their ratios to decoding alone."""
    settings = {"name": "folder", "root": folder, "image_size": SIZE, "resize": RESIZE, "memory_gb": 0}
    config = DataConfig.parse({**settings, "augment": "crop-flip"}, source="benchmark")
    train = load(config, None).train
    assert isinstance(train.inputs, FileInputs)
    inputs, level = train.inputs, next(iter(train.labels))
    plan = PKBatches(train.labels[level], num_classes=BATCH[0], samples_per_class=BATCH[1], seed=0)
    indices = [plan.batch(*divmod(step, plan.steps_per_epoch)) for step in range(steps)]
    files = [[inputs.sources[row] for row in inputs.rows[index].tolist()] for index in indices]
    count = sum(map(len, files))

    def pillow() -> float:
        began = time.perf_counter()
        for some in files:
            for file in some:
                assert isinstance(file, Path)
                with Image.open(file) as image:
                    image.draft("RGB", (2 * RESIZE, 2 * RESIZE))
                    image.convert("RGB").resize((RESIZE, RESIZE), Image.Resampling.BICUBIC)
        return count / (time.perf_counter() - began)

    def decoding() -> float:
        began = time.perf_counter()
        for some in files:
            FileInputs(some, inputs.frame, np.arange(len(some))).decode_all(0, None)
        return count / (time.perf_counter() - began)

    def loader(workers: int) -> Callable[[], float]:
        batches = Batches(train, level, plan, augmentation(config), seed=0, start=0, steps=steps)

        def run() -> float:
            came, sizes = [time.perf_counter()], [0]
            for images, _ in DataLoader(batches, batch_size=None, num_workers=workers):
                came.append(time.perf_counter())
                sizes.append(len(images))
            assert sum(sizes) == count
            first[f"{workers} workers"].append(came[1] - came[0])
            return sum(sizes[workers + 1 :]) / (came[-1] - came[workers])

        return run

    first: dict[str, list[float]] = {f"{workers} workers": [] for workers in (0, 1, 2)}
    ways = {"Pillow, one thread": pillow, "decoding alone": decoding} | {
        f"loader, {workers} workers": loader(workers) for workers in (0, 1, 2)
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            rates[name].append(way())
    return {
        "images": count,
        "rounds": rounds,
        "rates": {name: statistics.median(values) for name, values in rates.items()},
        "ratios": {
            name: statistics.median(b / a for a, b in zip(rates["decoding alone"], values, strict=True))
            for name, values in rates.items()
        },
        "first_batch_seconds": {name: statistics.median(values) for name, values in first.items()},
        "load": os.getloadavg()[0],
    }


MEASURED = """
import json, time
from pathlib import Path
began = time.perf_counter()
{code}
seconds = time.perf_counter() - began
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps([seconds, *(int(status[key].split()[0]) / 1024 for key in ("VmHWM", "RssAnon"))]))
"""


def fresh(before: str, code: str) -> tuple[float, float, float]:
    """Seconds that the code takes in a process of its own, and memory in MiB: the most it had, and its own at the end.

    Its own is without the pages of files that it has mapped, which the kernel takes back where memory is short.
    """
    script = before + MEASURED.format(code=code)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    seconds, most, own = json.loads(done.stdout.splitlines()[-1])
    return seconds, most, own


IMPORTS = """
import numpy as np
from trivet.samplers import PKBatches
from trivet.datasets import DataConfig, load
"""
LOAD = """
splits = load(DataConfig.parse({settings!r}, source="benchmark"), None)
"""
ONE_BATCH = """
labels = splits.train.labels[splits.level]
plan = PKBatches(labels, num_classes=16, samples_per_class=8, seed=0)
splits.train.inputs.batch(plan.batch(0, 0))
"""


def vectors(folder: Path) -> dict[str, Any]:
    """Seconds until a million vectors are open, and with the first batch; memory beside one with only the labels."""
    embeddings = np.lib.format.open_memmap(folder / "v.npy", "w+", np.float32, (VECTORS, DIMENSION))
    generator = np.random.default_rng(0)
    for start in range(0, VECTORS, 50_000):
        embeddings[start : start + 50_000] = generator.normal(size=(50_000, DIMENSION))
    embeddings.flush()
    del embeddings
    (folder / "v.csv").write_text("class\n" + "".join(f"c{i % 1000}\n" for i in range(VECTORS)))
    settings = {"name": "vectors", "path": str(folder / "v.npy")}
    _, base, base_own = fresh(IMPORTS, "pass")
    opened = fresh(IMPORTS, LOAD.format(settings=settings))
    trained = fresh(IMPORTS, LOAD.format(settings=settings) + ONE_BATCH)
    return {
        "rows": VECTORS,
        "dimension": DIMENSION,
        "file_mib": VECTORS * DIMENSION * 4 / 2**20,
        "imports_mib": base,
        "open_seconds": opened[0],
        "open_mib": opened[1] - base,
        "open_own_mib": opened[2] - base_own,
        "batch_seconds": trained[0],
        "batch_mib": trained[1] - base,
        "batch_own_mib": trained[2] - base_own,
    }


def table(folder: Path) -> dict[str, Any]:
    """Seconds until the rows of a csv file of a million paths and two label levels are read."""
    rows = (f"images/{i % 1000}/{i}.jpg,s{i % 100},c{i % 1000}\n" for i in range(VECTORS))
    (folder / "t.csv").write_text("path,superclass,class\n" + "".join(rows))
    code = f"table.load_table(table.TableConfig(path=Path({str(folder / 't.csv')!r})), Path(), None)"
    # What follows checks and decodes the images.
    before = "from pathlib import Path\nfrom trivet.datasets import table\ntable.load_listing = lambda *given: None\n"
    before += "table.replace = lambda splits, **changes: splits\n"
    seconds, most, _ = fresh(before, code)
    return {"rows": VECTORS, "seconds": seconds, "mib": most - fresh(before, "pass")[1]}


def page(results: dict[str, Any]) -> str:
    """The results in words."""
    about = results["environment"]
    lines = [
        "# Reading data",
        "",
        f"Written by `benchmarks/data.py` on {about['date']}; {about['cores']} cores of a shared x86_64 server; Python "
        f"{about['python']}, torch {about['torch']}, Pillow {about['pillow']}.",
    ]
    if found := results.get("images"):
        lines += [
            "",
            f"{found['images']:,} images of a round in batches of {BATCH[0]} x {BATCH[1]}, resized to {RESIZE} and cut "
            f"to {SIZE} pixels; medians of {found['rounds']} alternating rounds, at a load of {found['load']:.1f}. The "
            "ratio is of pairs in one round. The loader is timed once each worker has given a batch; the first "
            "comes after "
            + ", ".join(f"{seconds:.2f} s with {name}" for name, seconds in found["first_batch_seconds"].items())
            + ".",
            "",
            "| way | images/s | of decoding alone |",
            "|---|---|---|",
            *(f"| {name} | {rate:,.0f} | {found['ratios'][name]:.2f} |" for name, rate in found["rates"].items()),
        ]
    if found := results.get("vectors"):
        lines += [
            "",
            f"{found['rows']:,} vectors of {found['dimension']} dimensions, {found['file_mib']:,.0f} MiB in npy "
            f"with classes in csv: open after {found['open_seconds']:.1f} s with {found['open_mib']:,.0f} MiB "
            f"beyond what the imports take, the first batch of 128 after {found['batch_seconds']:.1f} s with "
            f"{found['batch_mib']:,.0f} MiB. Of these, {found['open_own_mib']:,.0f} and {found['batch_own_mib']:,.0f} "
            "MiB are the process's own, for ids, labels and batch; the rest are pages of the file, which the kernel "
            "takes back where memory is short.",
        ]
    if found := results.get("table"):
        lines += [
            "",
            f"A table of {found['rows']:,} rows: read after {found['seconds']:.1f} s, {found['mib']:,.0f} MiB.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the parts that are asked for, and write what is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["images"], choices=["images", "vectors", "table"])
    parser.add_argument("--images", type=Path, help="folder of JPEG images")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="batches of a round")
    args = parser.parse_args()
    path = RESULTS / "data.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results["environment"] = {
        "date": date.today().isoformat(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "pillow": version("pillow"),
    }
    if "images" in args.parts:
        if args.images is None:
            parser.error("--parts images needs --images FOLDER")
        results["images"] = images(args.images, args.rounds, args.steps)
    with tempfile.TemporaryDirectory() as folder:
        for part, measure in (("vectors", vectors), ("table", table)):
            if part in args.parts:
                results[part] = measure(Path(folder))
    path.write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "data.md").write_text(page(results))
    print(page(results))


if __name__ == "__main__":
    main()
