"""Copies across splits: how many planted ones `trivet leaks` finds, and what it calls where splits are right.

    TRIVET_DATA=... .venv/bin/python studies/leaks.py --weights tf_efficientnet_lite0.safetensors --pictures /tmp/leaks

Writes studies/results/leaks.md and .json. The evaluated items of published splits are searched for copies of training
items as they are: what is called near is saved as pictures, to be judged by eye. Then copies of training items are
planted among them, changed in one way each. Birds and CIFAR-10 are searched by the features of EfficientNet-Lite0, too.
The quick form of `trivet train` searches the published splits, and halves of the training classes at random in the
others, which have no copies in common.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import time
import zipfile
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from readers import Array, cub_archive, idx, pooled, texts
from trivet.datasets.dataset import Dataset
from trivet.datasets.download import find_root
from trivet.datasets.inputs import in_memory
from trivet.datasets.leaks import Leaks, NamedItems, find_leaks
from trivet.datasets.vectors import VectorInputs

RESULTS = Path(__file__).parent / "results"
PLANTED = 200  # copies of each kind
HALVES = 5  # divisions of the training classes at random
ENCODED = {"cub": 96, "cifar10": 64}  # sets that are searched by an encoder, too, and the side of what it sees
CIFAR = "cifar10_jpg_train20k_test10k.zip"
Picture = Image.Image
Part = tuple[list[Picture], list[str]]


def jpeg(image: Picture, _: np.random.Generator) -> Picture:
    """The image compressed at quality 50."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=50)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def halved(image: Picture, _: np.random.Generator) -> Picture:
    """The image at half its size, and back."""
    return image.resize((image.width // 2, image.height // 2)).resize(image.size)


def mirrored(image: Picture, _: np.random.Generator) -> Picture:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def cut(image: Picture, draw: np.random.Generator) -> Picture:
    """90 % of its sides, somewhere, at its size."""
    width, height = round(0.9 * image.width), round(0.9 * image.height)
    left, top = draw.integers(image.width - width + 1), draw.integers(image.height - height + 1)
    return image.crop((left, top, left + width, top + height)).resize(image.size)


IMAGES: dict[str, Callable[[Picture, np.random.Generator], Picture]] = {
    "halved": halved,
    "JPEG 50": jpeg,
    "mirrored": mirrored,
    "cut to 90 %": cut,
}


def altered(text: str, draw: np.random.Generator, words: list[str]) -> dict[str, str]:
    """The text in other case, with other punctuation, and with a word taken out, put in or replaced."""
    parts = text.split()
    at, new = int(draw.integers(len(parts))), words[int(draw.integers(len(words)))]
    change = int(draw.integers(3))
    if change == 0 and len(parts) > 2:
        one = [*parts[:at], *parts[at + 1 :]]
    else:
        one = [*parts[:at], new, *parts[at + (change == 1) :]]
    return {
        "upper case": text.upper(),
        "punctuation": "  ".join(parts).rstrip("?.!") + " …",
        "one word": " ".join(one),
    }


def pictures(data: str) -> tuple[Part, Part]:
    """Training and evaluated images; of birds those of other species, by half of the classes."""
    if data == "cub":
        archive, names = cub_archive()
        images = [Image.open(io.BytesIO(archive.read(name))).convert("RGB").resize((96, 96)) for name in names]
        classes = [name.split("/")[-2] for name in names]
        first = {*sorted({*classes})[:25]}
        trained, evaluated = (
            (
                [image for image, name in zip(images, classes, strict=True) if (name in first) == wanted],
                [name for name in classes if (name in first) == wanted],
            )
            for wanted in (True, False)
        )
        return trained, evaluated
    if data == "cifar10":
        with zipfile.ZipFile(find_root(None) / "cifar-n" / CIFAR) as archive:
            every = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
            parts = [[name for name in every if f"/{part}/" in f"/{name}"] for part in ("train", "test")]
            trained, evaluated = (
                (
                    [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names],
                    [name.split("/")[-2] for name in names],
                )
                for names in parts
            )
        return trained, evaluated
    trained, evaluated = (
        ([Image.fromarray(image).convert("RGB") for image in images], [str(label) for label in labels.tolist()])
        for images, labels in (idx(data, "train"), idx(data))
    )
    return trained, evaluated


def named(
    name: str, images: list[Picture], classes: list[str], weights: Path | None = None, side: int = 0
) -> NamedItems:
    pixels: Array = np.stack([np.asarray(image) for image in images]).transpose(0, 3, 1, 2)
    names = tuple(sorted({*classes}))
    labels = np.array([names.index(each) for each in classes])
    data = Dataset(name, in_memory(pixels), {"class": labels}, {"class": names}, tuple(map(str, range(len(images)))))
    rows = None if weights is None else pooled(weights, [partial(copy, image) for image in images], side)
    return NamedItems(name, data, "class", rows)


def of_images(data: str, folder: Path | None, weights: Path | None) -> dict[str, Any]:
    """What is called among the evaluated images, and how many planted copies are found with their originals."""
    draw, encoder = np.random.default_rng(0), weights if data in ENCODED else None
    side = ENCODED.get(data, 0)
    (train, classes), (test, others) = pictures(data)
    known = named("train", train, classes, encoder, side)
    new = named("test", test, others, encoder, side)
    plain = find_leaks(new, known, "images")
    if folder is not None:
        save(plain, train, test, folder / f"{data}.png")
    record = counts(plain, len(train), ("exact", "near", *(["by encoder"] if encoder else [])))
    record["quick"] = [quick_near(new, known), *halves(known)]
    for kind, change in IMAGES.items():
        rows = draw.permutation(len(train))[:PLANTED].tolist()
        changed, same = [change(train[i], draw) for i in rows], [classes[i] for i in rows]
        planted = named("planted", changed, same)
        record["planted"][kind] = recovered(find_leaks(planted, known, "images"), rows)
        if kind == "cut to 90 %" and len(train) < 5000:
            record["planted"][f"{kind}, --crops"] = recovered(find_leaks(planted, known, "images", crops=True), rows)
        if encoder is not None:
            planted = named("planted", changed, same, encoder, side)
            record["planted"][f"{kind}, --encoder"] = recovered(find_leaks(planted, known, "images"), rows)
    return record


def quick_near(items: NamedItems, searched: NamedItems) -> list[int]:
    """How many near copies the quick form calls, and among how many items."""
    leaks = find_leaks(replace(items, embeddings=None), searched, "images", quick=True)
    return [int((leaks.kinds == "near").sum()), leaks.compared]


def halves(items: NamedItems) -> list[list[int]]:
    """As `quick_near`, of one half of the classes in the other."""
    labels, counts = items.dataset.labels["class"], []
    for seed in range(HALVES):
        classes = np.random.default_rng(seed).permutation(np.unique(labels))
        first = np.isin(labels, classes[: len(classes) // 2])
        parts = [replace(items, dataset=items.dataset.subset(np.flatnonzero(rows))) for rows in (~first, first)]
        counts.append(quick_near(*(replace(part, embeddings=None) for part in parts)))
    return counts


def counts(leaks: Leaks, searched: int, shown: tuple[str, ...]) -> dict[str, Any]:
    kinds = leaks.kinds.tolist()
    return {
        "searched": searched,
        "items": len(kinds),
        "called": {kind: kinds.count(kind) for kind in shown},
        "planted": {},
    }


def recovered(leaks: Leaks, rows: list[int]) -> list[int]:
    """How many are called at all, how many with the item that they were made of, and how many there are."""
    called = leaks.kinds != ""
    return [int(called.sum()), int((called & (leaks.original == np.array(rows))).sum()), len(rows)]


def save(leaks: Leaks, train: list[Picture], test: list[Picture], path: Path) -> None:
    """The near copies and their originals, in pairs."""
    rows = np.flatnonzero(np.isin(leaks.kinds, ["near", "by encoder"])).tolist()
    sheet = Image.new("RGB", (8 * 208, 104 * max(1, -(-len(rows) // 8))))
    for number, i in enumerate(rows):
        x, y = number % 8 * 208, number // 8 * 104
        sheet.paste(test[i].resize((100, 100)), (x, y))
        sheet.paste(train[int(leaks.original[i])].resize((100, 100)), (x + 102, y))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def of_texts(data: str) -> dict[str, Any]:
    """As `of_images`; a text that equals another training text as well may be traced to either."""
    draw = np.random.default_rng(0)
    train = [text for text, _ in texts(data)]
    test = [text for text, _ in texts(data, "test")]
    known = texts_named("train", train)
    record = counts(find_leaks(texts_named("test", test), known, "texts"), len(train), ("exact", "near", "one word"))
    words = [word for text in train for word in text.split()]
    rows = draw.permutation(len(train))[:PLANTED].tolist()
    copies = [altered(train[i], draw, words) for i in rows]
    for kind in copies[0]:
        planted = texts_named("planted", [each[kind] for each in copies])
        record["planted"][kind] = recovered(find_leaks(planted, known, "texts"), rows)
    return record


def texts_named(name: str, some: list[str]) -> NamedItems:
    rows = np.arange(len(some))
    inputs = VectorInputs(np.empty((len(some), 0)), some, rows, Path(name))
    return NamedItems(name, Dataset(name, inputs, {}, {}, tuple(map(str, rows))), "class")


def report(record: dict[str, Any]) -> str:
    lines = [
        "# Copies across splits",
        "",
        "`TRIVET_DATA=... .venv/bin/python studies/leaks.py --weights tf_efficientnet_lite0.safetensors`",
        "",
        f"{record['date']}, {record['machine']}, {record['seconds']} s.",
        "",
        "## Published splits, as they are",
        "",
        "| data | training items | evaluated items | exact | near | by the encoder | differ by one word |",
        "|---|---|---|---|---|---|---|",
    ]
    for data, each in record["data"].items():
        called = [str(each["called"].get(kind, "")) for kind in ("exact", "near", "by encoder", "one word")]
        lines.append(f"| {data} | {each['searched']} | {each['items']} | {' | '.join(called)} |")
    lines += ["", record["by_eye"], "", "## The quick form", ""]
    lines += ["Near copies that it calls, of the images that it compares.", ""]
    lines += ["| data | published split | halves of the training classes |", "|---|---|---|"]
    for data, each in record["data"].items():
        if "quick" in each:
            first, *others = [f"{near} of {compared}" for near, compared in each["quick"]]
            lines.append(f"| {data} | {first} | {', '.join(others)} |")
    lines += ["", "## Planted copies", ""]
    lines += ["| data | change | found | with the original | of |", "|---|---|---|---|---|"]
    for data, each in record["data"].items():
        for kind, (found, right, planted) in each["planted"].items():
            lines.append(f"| {data} | {kind} | {found} ({100 * found / planted:.1f} %) | {right} | {planted} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="folder for pictures of what is called near")
    parser.add_argument("--by-eye", default="", help="what the pictures show, for the report")
    parser.add_argument("--weights", type=Path, help="of EfficientNet-Lite0, to search by its features, too")
    options = parser.parse_args()
    start = time.perf_counter()
    data = {
        name: of_images(name, options.pictures, options.weights)
        for name in ("cub", "cifar10", "mnist", "fashion-mnist")
    }
    data |= {name: of_texts(name) for name in ("clinc150", "banking77")}
    record = {
        "date": str(datetime.now(UTC).date()),
        "machine": f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()} CPU",
        "seconds": round(time.perf_counter() - start),
        "by_eye": options.by_eye,
        "data": data,
    }
    (RESULTS / "leaks.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "leaks.md").write_text(report(record))


if __name__ == "__main__":
    main()
