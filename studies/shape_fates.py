"""Verdicts on embeddings that were shifted, scaled, rounded, or damaged in single items or inside classes.

    TRIVET_DATA=... .venv/bin/python studies/shape_fates.py      # about 20 minutes on one busy core

Three encoders and data sets that no rule was chosen on: hashed words of docstrings of installed packages, by package,
reduced to 64 axes (cosine); gradient histograms of the evaluation characters of Omniglot (cosine); the cosine transform
of training images of Fashion-MNIST (Euclidean). Of two draws of 600 items of each (30, 60 and 10 classes) all cases of
`made` and `heads` are diagnosed beside the features as they were; the good ones of the first draw without them, too.
The fates were written down before any was diagnosed. What a head is worth is measured on items not diagnosed.

Results go to studies/results/shape_fates.json and .md; sets that are not run keep their former results.
"""

from __future__ import annotations

import argparse
import ast
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.fft import dctn
from torch import nn

import pages
from pages import table
from readers import Array, idx
from real_fates import apply, fate_of, train
from trivet.collapse import diagnose
from trivet.datasets.download import find_root
from trivet.metrics import retrieve

PACKAGES = ("numpy", "scipy", "sklearn", "matplotlib")
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Features:
    """Features `(N, d)` and labels of what is diagnosed, and of other items of the same classes."""

    name: str
    distance: str
    rows: Array
    labels: Array
    others: Array
    other_labels: Array


def docstrings() -> tuple[Array, Array]:
    """Hashed words of docstrings, and the subpackage that each is of."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    texts, names = [], []
    root = Path(np.__file__).parents[1]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            section = "/".join(path.relative_to(root).parts[:2])
            if "test" in str(path.relative_to(root)) or section.endswith(".py"):
                continue
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError):
                continue
            for node in ast.walk(tree):
                text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
                if text and len(text) > 200:
                    texts.append(text[:1000])
                    names.append(section)
    counts = HashingVectorizer(n_features=2**14, alternate_sign=False, stop_words="english").transform(texts)
    rows = TruncatedSVD(64, random_state=0).fit_transform(TfidfTransformer(sublinear_tf=True).fit_transform(counts))
    return rows.astype(np.float32), np.array(names)


def characters() -> tuple[Array, Array]:
    """Histograms of the gradients of Omniglot's evaluation characters in 7 x 7 cells of eight directions."""
    rows, names = [], []
    with zipfile.ZipFile(find_root(None) / "omniglot" / "images_evaluation.zip") as archive:
        for name in sorted(entry for entry in archive.namelist() if entry.endswith(".png"))[:4000]:
            image = 1 - np.asarray(Image.open(archive.open(name)).convert("L").resize((56, 56)), np.float32) / 255
            down, right = np.gradient(image)
            angle = ((np.arctan2(down, right) + np.pi) / (2 * np.pi) * 8).astype(int) % 8
            cells = np.zeros((7, 7, 8), np.float32)
            where = np.indices(image.shape) // 8
            np.add.at(cells, (where[0], where[1], angle), np.hypot(down, right))
            rows.append(np.sqrt(cells.ravel()))
            names.append("/".join(name.split("/")[-3:-1]))
    return np.stack(rows), np.array(names)


def clothes() -> tuple[Array, Array]:
    """The lowest 10 x 10 coefficients of the cosine transform of 20,000 training images of Fashion-MNIST."""
    images, labels = idx("fashion-mnist", "train")
    waves = dctn(images[:20000].astype(np.float32) / 255, axes=(1, 2), norm="ortho")
    return waves[:, :10, :10].reshape(len(waves), -1).astype(np.float32), labels[:20000]


def drawn(name: str, distance: str, rows: Array, names: Array, seed: int) -> Features:
    """600 items of 30 classes, 60 (characters) or 10 (clothes), and as many others of the same classes."""
    random, numbers = np.random.default_rng(seed), np.unique(names, return_inverse=True)[1]
    size = 60 if numbers.max() < 30 else 10 if name == "characters" else 20
    large = np.flatnonzero(np.bincount(numbers) >= 2 * size)
    classes = random.permutation(large)[: 60 if name == "characters" else 30]
    members = [random.permutation(np.flatnonzero(numbers == number))[: 2 * size] for number in classes]
    first, second = (np.concatenate([of[half] for of in members]) for half in (slice(size), slice(size, None)))
    labels = np.repeat(np.arange(len(classes)), size)
    return Features(name, distance, rows[first], labels, rows[second], labels)


def made(features: Features, seed: int) -> Iterator[tuple[str, str, Array]]:
    """Name, fate and embedding of each case.

    good: nothing was lost; slight: 1 or 2 % of the items were; inside: all within classes; worse: recall@1 by 10 points
    or more, not by the shape; chance: rows in another order; collapsed: items cannot be told apart.
    """
    random, rows = np.random.default_rng((seed, 1)), features.rows.astype(np.float64)
    count, width = rows.shape
    size = float(np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean()))
    noise = size * random.standard_normal(rows.shape) / np.sqrt(width)

    def moved(points: Array, shift: float) -> Array:
        """Farther from the origin: by Euclidean distance all coordinates, by cosine one more, which keeps the order."""
        if features.distance == "euclidean":
            return points + shift * size
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
        return np.concatenate([points, np.full((count, 1), shift)], axis=1)

    def some(share: float) -> Array:
        return random.permutation(count)[: round(share * count)]

    yield "the features", "good", rows
    yield "float16", "good", rows.astype(np.float16)
    yield "x 0.001", "good", 1e-3 * rows
    yield "shifted, 3 times the spread", "good", moved(rows, 3)
    yield "shifted, 30 times", "good", moved(rows, 30)
    yield "x 0.001, shifted, 3 times", "good", 1e-3 * moved(rows, 3)
    yield "int8", "good", np.round(rows / np.abs(rows).max() * 127).astype(np.float32)
    yield "rotated", "good", rows @ np.linalg.qr(random.standard_normal((width, width)))[0]
    yield "a little noise", "good", rows + 0.05 * noise
    for share in (0.01, 0.02):
        hub, far, centre = rows.copy(), rows.copy(), rows.copy()
        chosen = some(share)
        hub[chosen] = rows.mean(0) + 2 * size * random.standard_normal(width) / np.sqrt(width) + 0.05 * noise[chosen]
        chosen = some(share)
        far[chosen] = rows.mean(0) + 5 * noise[chosen]
        chosen = some(share)
        centre[chosen] = rows.mean(0) + 0.05 * noise[chosen]
        yield f"{100 * share:.0f} % moved to a hub", "slight", hub
        yield f"{100 * share:.0f} % moved far away", "slight", far
        yield f"{100 * share:.0f} % moved to the middle", "slight", centre
    means = np.stack([rows[features.labels == label].mean(0) for label in range(features.labels.max() + 1)])
    inside = rows - means[features.labels]
    deviation = np.sqrt((inside**2).mean(0))
    for scale in (0.3, 1.0):
        name = f"class means and {scale:g} of the spread as noise"
        yield name, "inside", means[features.labels] + scale * deviation * random.standard_normal(rows.shape)
    yield "noise, x 0.001", "worse", 1e-3 * (rows + 4 * noise)
    yield "rows in another order", "chance", rows[random.permutation(count)]
    yield "one point, and rounding", "collapsed", (rows.mean(0) + 1e-7 * noise).astype(np.float32)
    yield (
        "so far away that float16 has one point",
        "collapsed",
        (3e4 + rows / size).astype(np.float16),
    )
    along = random.standard_normal((count, 1)) * random.standard_normal(width)
    yield "a line", "collapsed", along + 0.01 * random.standard_normal(rows.shape)
    spots = random.standard_normal((3, width))[random.integers(0, 3, count)]
    yield "three spots", "collapsed", spots + 0.01 * random.standard_normal(rows.shape)


def heads(features: Features, seed: int) -> Iterator[tuple[str, str, Array]]:
    """Heads trained on half of the other items; their fate is measured on the other half of these."""
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (features.rows, features.others)]
    asked, others = (one.astype(np.float32) for one in unit)
    trained, truth = np.arange(len(others))[::2], np.arange(len(others))[1::2]
    width = asked.shape[1]
    for name, layers, steps in (
        ("linear head", [nn.Linear(width, 64)], 300),
        ("two layers", [nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 32)], 600),
    ):
        torch.manual_seed(seed)
        head = nn.Sequential(*layers)
        train(head, others[trained], features.other_labels[trained], steps=steps, rate=1e-3, seed=seed)
        hits = [
            retrieve(one[truth], features.other_labels[truth], measures=("recall@1",), distance="cosine").values[:, 0]
            for one in (others, apply(head, others))
        ]
        embedded = apply(head, asked)
        if features.distance == "euclidean":
            embedded = embedded / np.linalg.norm(embedded, axis=1, keepdims=True)
        fate = fate_of(hits[0] - hits[1])
        yield name, fate, embedded
        yield f"{name}, x 0.001", fate, 1e-3 * embedded


def right(fate: str, kinds: list[str]) -> bool:
    """Whether verdicts beside the reference accuse nothing falsely and clear nothing falsely."""
    if fate == "good":
        return kinds in (["healthy"], ["spread-out"])
    if fate in ("slight", "inside", "slightly worse"):
        return "healthy" not in kinds and "network-collapse" not in kinds
    if fate == "collapsed":
        return "network-collapse" in kinds
    return "network-collapse" not in kinds and bool({"worse-than-reference", "no-better-than-chance"} & {*kinds})


SETS: dict[str, tuple[str, Callable[[], tuple[Array, Array]]]] = {
    "clothes": ("euclidean", clothes),
    "characters": ("cosine", characters),
    "docstrings": ("cosine", docstrings),
}


def measured(sets: Sequence[str]) -> Iterator[Row]:
    for name in sets:
        distance, read = SETS[name]
        rows, names = read()
        for seed in (0, 1):
            features = drawn(name, distance, rows, names, seed)
            for case, fate, points in [*made(features, seed), *heads(features, seed)]:
                found = diagnose(points, features.labels, {"features": features.rows}, distance=distance)
                alone = diagnose(points, features.labels, distance=distance) if (seed, fate) == (0, "good") else None
                kinds = [verdict.kind for verdict in found.verdicts]
                compared = found.measures.comparisons[0]
                row = {
                    "data": name,
                    "seed": seed,
                    "case": case,
                    "fate": fate,
                    "recall": compared.score,
                    "reference_recall": compared.reference_score,
                    "verdicts": kinds,
                    "rule": found.verdicts[-1].rule,
                    "alone": None if alone is None else [verdict.kind for verdict in alone.verdicts],
                    "right": right(fate, kinds),
                }
                print(json.dumps(row), flush=True)
                yield row


def page(record: Row) -> str:
    rows = record["rows"]
    fates = list(dict.fromkeys(row["fate"] for row in rows))

    def counted(fate: str) -> list[str]:
        some = [row for row in rows if row["fate"] == fate]
        opened = [row for row in some if row["verdicts"] == ["spread-out"]]
        alone = [row["alone"] for row in some if row["alone"] is not None]
        called = sum("network-collapse" in kinds for kinds in alone)
        return [
            fate,
            str(len(some)),
            str(sum(row["right"] for row in some)),
            str(len(opened)),
            f"{called} of {len(alone)}",
        ]

    cases = [
        [
            *(row["data"], str(row["seed"]), row["case"], row["fate"]),
            f"{100 * row['recall']:.1f} / {100 * row['reference_recall']:.1f}",
            ", ".join(row["verdicts"]),
            "yes" if row["right"] else "no",
        ]
        for row in rows
    ]
    false = sum(row["fate"] == "good" and not row["right"] for row in rows)
    cleared = sum(row["fate"] != "good" and row["verdicts"] == ["healthy"] for row in rows)
    opened = sum(row["verdicts"] == ["spread-out"] for row in rows)
    return "\n".join(
        [
            "# Verdicts on shapes",
            "",
            "`studies/shape_fates.py`; the method is described in that file.",
            "",
            f"{len(rows)} cases: {false} good ones accused, {cleared} others called healthy, {opened} left open.",
            "",
            *table(["fate", "cases", "right", "open", "network collapse without reference"], map(counted, fates)),
            *table(["data", "draw", "case", "fate", "recall@1", "verdicts", "right"], cases),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "shape_fates.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    former = [row for row in pages.read(options.output).get("rows", []) if row["data"] not in options.sets]
    record = {"rows": [*former, *measured(options.sets)], **pages.versions("torch", "numpy")}
    pages.write(options.output, record, page(record))


if __name__ == "__main__":
    main()
