"""What a ladder makes of ten cases: which candidate it takes, and how that does on classes never seen.

    TRIVET_DATA=... .venv/bin/python studies/ladder.py IMAGES TEXTS [--cases NAME ...] [--seeds 5] [--minutes 4]
    .venv/bin/python studies/ladder.py --table

IMAGES are timm's weights of tf_efficientnet_lite0 as safetensors, TEXTS the folder of all-MiniLM-L6-v2. Each case is
what `trivet train` does with such data, for seeds 0, 1, ...: candidates are compared, and the best is trained on all
training items. Then recall@1 of what was not trained on, which chose nothing, is compared with that of the same encoder
as it is, with the interval that the page shows, of 99 %. Whether it covers the truth on other classes is seen by 20
random halvings of these classes: the differences on both halves are alike as often as their intervals, added as those
of independent numbers, contain the difference of both. The draw of images, of wrong labels and of few items follows the
seed; of CLINC150 and BANKING77 every second class is trained on, but for the case of known classes. Runs go to
studies/results/ladder.jsonl as they end, the table to studies/results/ladder.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from readers import cifar_archive, cifar_rows, idx, texts
from trivet.collapse.significance import compare
from trivet.commands.train.ladder import Ladder
from trivet.datasets import Dataset, Splits
from trivet.metrics import Retrieval, retrieve_levels
from trivet.models import tokenize_of
from trivet.reports.ladder_view import result_of
from trivet.training.components import begun, load_splits, trained_on
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.features import with_features
from trivet.training.ladder_config import LadderSettings

RESULTS = Path(__file__).parent / "results"
RUNS, TABLE = RESULTS / "ladder.jsonl", RESULTS / "ladder.md"
IMAGES, FEW_CLASSES, FEW_ITEMS = 3000, 6, 8
HALVINGS = 20
MEASURES = ("recall@1", "map@r")
Values = dict[str, Any]
Rows = Sequence[tuple[str, str, str]]


def published(name: str, **values: Any) -> Callable[[Path, int], Values]:
    """The data of a published set."""
    return lambda folder, seed: {"name": name, **values}


def folder_of(images: Mapping[str, Sequence[Image.Image]], folder: Path) -> Values:
    """A folder of images, one folder a class."""
    for name, pictures in images.items():
        (folder / name).mkdir(parents=True)
        for number, picture in enumerate(pictures):
            picture.save(folder / name / f"{number:05d}.png")
    grey = next(iter(images.values()))[0].mode == "L"
    return {"name": "folder", "root": str(folder), "image_size": 28 if grey else 32, "channels": 1 if grey else 3}


def fashion(folder: Path, seed: int) -> Values:
    pixels, labels = idx("fashion-mnist", "train")
    rows = np.random.default_rng(seed).permutation(len(labels))[:IMAGES]
    classes = sorted(set(labels.tolist()))
    return folder_of(
        {f"c{label}": [Image.fromarray(pixels[row]) for row in rows if labels[row] == label] for label in classes},
        folder,
    )


def cifar(folder: Path, seed: int) -> Values:
    archive = cifar_archive()
    root, rows = cifar_rows(archive)
    images: dict[str, list[Image.Image]] = {}
    for number in np.random.default_rng(seed).permutation(len(rows))[:IMAGES]:
        with archive.open(root + rows[number]["path"]) as file:
            images.setdefault(rows[number]["class"], []).append(Image.open(file).convert("RGB"))
    return folder_of(dict(sorted(images.items())), folder)


def table_of(rows: Rows, folder: Path) -> Values:
    """A file of texts."""
    path = folder / "texts.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "intent", "split"), *rows])
    return {"name": "texts", "path": str(path), "levels": ["intent"]}


def new_classes(name: str) -> list[tuple[str, str, str]]:
    """Training texts of every second class, and test texts of the others."""
    train, test = texts(name), texts(name, "test")
    trained = set(sorted({label for _, label in train})[::2])
    rows = [(text, label, "train") for text, label in train if label in trained]
    return rows + [(text, label, "test") for text, label in test if label not in trained]


def unseen_texts(name: str) -> Callable[[Path, int], Values]:
    return lambda folder, seed: table_of(new_classes(name), folder)


def known_texts(folder: Path, seed: int) -> Values:
    rows = [(*row, part) for part in ("train", "test") for row in texts("banking77", part)]
    return table_of(rows, folder)


def wrong_labels(folder: Path, seed: int) -> Values:
    return table_of(new_classes("clinc150"), folder) | {"noise": {"kind": "symmetric", "rate": 0.3, "seed": seed}}


def shuffled(folder: Path, seed: int) -> Values:
    rows = new_classes("clinc150")
    train = [row for row in rows if row[2] == "train"]
    order = np.random.default_rng(seed).permutation(len(train))
    mixed = [(row[0], train[other][1], "train") for row, other in zip(train, order.tolist(), strict=True)]
    return table_of([*mixed, *(row for row in rows if row[2] == "test")], folder)


def few(folder: Path, seed: int) -> Values:
    rows = new_classes("clinc150")
    random = np.random.default_rng(seed)
    labels = random.permutation(sorted({row[1] for row in rows if row[2] == "train"}))[:FEW_CLASSES]
    train = [row for label in labels for row in [row for row in rows if row[1] == label][:FEW_ITEMS]]
    return table_of([*train, *(row for row in rows if row[2] == "test")], folder)


CASES: dict[str, Callable[[Path, int], Values]] = {
    "cub": published("cub", image_size=96),
    "clinc150": unseen_texts("clinc150"),
    "banking77": unseen_texts("banking77"),
    "omniglot": published("omniglot", level="character", image_size=28),
    "fashion-mnist": fashion,
    "cifar10": cifar,
    "banking77, known classes": known_texts,
    "clinc150, 30 % wrong labels": wrong_labels,
    "clinc150, shuffled labels": shuffled,
    f"clinc150, {FEW_CLASSES} classes of {FEW_ITEMS}": few,
}


def measured(case: str, seed: int, images: Path, encoder: Path, minutes: float) -> Values:
    """A ladder, and its result beside its encoder on what was not trained on."""
    with tempfile.TemporaryDirectory() as folder:
        data = CASES[case](Path(folder), seed)
        weights = {"efficientnet-lite0": images} if "image_size" in data else {"all-MiniLM-L6-v2": encoder}
        settings = LadderSettings.parse(
            {
                "seed": seed,
                "data": data,
                "ladder": {"weights": weights, "minutes": minutes},
                "evaluation": {"distance": "cosine"},
            },
            source=case,
        )
        began = time.perf_counter()
        ladder = Ladder(settings, Path(folder), None)
        config = ladder.climb()
        climbed = time.perf_counter() - began
        record = ladder.record
        first = next(each for each in record.candidates if each.rung == "encoder")
        base = RunConfig.read(Path(folder) / "candidates" / f"{first.name}.toml")
        items, level, rows = embedded(config)
        others = embedded(base)[2]
        now, other = (retrieved(items, level, each) for each in (rows, others))
        known = case.endswith("known classes")
        compared = compare([now], [other], reference=first.name, level=level, known_classes=known)
        return {
            "case": case,
            "seed": seed,
            "result": record.result,
            "best": record.best,
            "rung": result_of(record).rung,
            "items": int(now.counted.sum()),
            "classes": len(np.unique(now.classes)),
            **{name: now.mean()[name] for name in MEASURES},
            **{f"encoder_{name}": other.mean()[name] for name in MEASURES},
            "low": compared.low,
            "high": compared.high,
            "alike_halves": None if known or result_of(record).rung == "encoder" else alike(items, level, rows, others),
            "confirmed": None if record.confirmed is None else record.confirmed.as_json(),
            "candidates": [each.as_json() for each in record.candidates],
            "seconds": {"climbing": round(climbed, 1), "all": round(time.perf_counter() - began, 1)},
            "cores": len(os.sched_getaffinity(0)),
        }


def embedded(config: RunConfig) -> tuple[Dataset, str, Any]:
    """The items of the evaluated split, the label level, and embeddings by a network of these settings."""
    splits: Splits = load_splits(config, None, tokenize=tokenize_of(config.model))
    if config.training.steps:
        network = trained_on(config, splits, splits.train, "step")
        splits = with_features(config, splits, network)
    else:
        network, splits = begun(config, splits)
    items = next(iter(splits.evaluation.values()))
    return items, splits.level, embed(network, items.inputs)


def retrieved(items: Dataset, level: str, rows: Any, measures: Sequence[str] = MEASURES) -> Retrieval:
    """What is retrieved of items by their embeddings."""
    arguments = items.evaluation_arguments(rows)
    return retrieve_levels(**arguments, measures=measures, distance="cosine")[level]


def alike(items: Dataset, level: str, rows: Any, others: Any) -> float:
    """Share of random halvings of the classes with about the same difference on both halves, see above."""
    classes, random = np.unique(items.labels[level]), np.random.default_rng(0)
    agreeing = 0
    for _ in range(HALVINGS):
        order = random.permutation(classes)
        differences, variance = list[float](), 0.0
        for half in np.array_split(order, 2):
            members = np.flatnonzero(np.isin(items.labels[level], half))
            half_items = items.subset(members)
            sides = [[retrieved(half_items, level, each[members], ("recall@1",))] for each in (rows, others)]
            compared = compare(*sides, reference="encoder", level=level)
            differences.append(compared.difference)
            variance += ((compared.high - compared.low) / 2) ** 2
        agreeing += abs(differences[0] - differences[1]) <= variance**0.5
    return agreeing / HALVINGS


def table(runs: Sequence[Values]) -> str:
    """The runs of each case together."""
    lines = [
        "# Ladders",
        "",
        "Made by `studies/ladder.py`, which says how; 27 and 28 November 2026, two cores, no GPU, torch 2.15.",
        "Candidates were tried for 4 minutes of two cores, the default, or for 8 of one. The encoder is",
        "tf_efficientnet_lite0 (images, 96 pixels) or all-MiniLM-L6-v2 (texts) as it is. In per cent; of five seeds a",
        "case, so far as there are runs.",
        "",
        "| data | runs | result | recall@1 of its encoder | of the result | difference (99 %, each run) | MAP@R | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        of_case = [run for run in runs if run["case"] == case]
        if not of_case:
            continue
        rungs: dict[str, int] = {}
        for run in of_case:
            name = run["result"].partition(", ")[2] or run["result"]
            rungs[name] = rungs.get(name, 0) + 1
        mean = {
            key: 100 * float(np.mean([run[key] for run in of_case]))
            for key in ("recall@1", "encoder_recall@1", "map@r", "encoder_map@r")
        }
        each = "; ".join(f"{100 * run['low']:+.1f} to {100 * run['high']:+.1f}" for run in of_case)
        seconds = float(np.median([run["seconds"]["all"] for run in of_case]))
        lines.append(
            f"| {case} | {len(of_case)} | {', '.join(f'{name}: {count}' for name, count in rungs.items())} "
            f"| {mean['encoder_recall@1']:.1f} | {mean['recall@1']:.1f} "
            f"| {mean['recall@1'] - mean['encoder_recall@1']:+.1f} ({each}) "
            f"| {mean['encoder_map@r']:.1f} to {mean['map@r']:.1f} | {seconds:.0f} |"
        )
    halves = [run["alike_halves"] for run in runs if run.get("alike_halves") is not None]
    below = [run for run in runs if run["high"] < 0]
    lines += [
        "",
        f"{len(runs) - len(below)} of {len(runs)} runs are not below their encoder by more than the interval. Both "
        f"halves of the classes gain alike, by their intervals, in {100 * float(np.mean(halves)):.0f} % of the "
        f"halvings of {len(halves)} runs.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="?")
    parser.add_argument("texts", type=Path, nargs="?")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.is_file() else []
    done = {(run["case"], run["seed"]) for run in runs}
    for seed in range(0 if options.table else options.seeds):
        for case in options.cases:
            if (case, seed) in done:
                continue
            run = measured(case, seed, options.images.resolve(), options.texts.resolve(), options.minutes)
            runs.append(run)
            with RUNS.open("a") as file:
                file.write(json.dumps(run) + "\n")
            print(
                case,
                seed,
                run["result"],
                f"{100 * run['recall@1']:.1f} {100 * run['encoder_recall@1']:.1f}",
                flush=True,
            )
    TABLE.write_text(table(runs))


if __name__ == "__main__":
    main()
