"""Different embeddings that are as good as each other over many classes, compared on few of them.

Pixels and ImageNet features of clothes, character n-grams and MiniLM of texts, features and a head on them, and two
heads trained on different classes. Noise is added to the better one until recall@1 over all classes is the same. On a
few classes, drawn at random, one may be better than the other in truth; over all it is not, and to call it worse from
these few is a mistake about the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from readers import Array, idx, texts
from real_fates import apply, features_of, train
from trivet.collapse.significance import DECISIVE, compare_with_reference
from trivet.metrics import Retrieval, retrieve
from trivet.models import ngram_vectors

ITEMS, HALVINGS, DRAWS = 1200, 9, 40
FEW = (5, 8)  # classes


@dataclass(frozen=True)
class Subsets:
    """How often one of two was called worse on few classes, of so many ordered pairs.

    Attributes:
        recalls: of both over all classes, after noise.
        large: pairs in which one lost ten points or more.
    """

    of: str
    all_classes: int
    classes: int
    recalls: tuple[float, float]
    pairs: int
    large: int
    told: int


def subsets(folder: Path, weights: Path, encoder: Path) -> Iterator[Subsets]:
    for name, one, other, labels in pairs(folder, weights, encoder):
        a, b = equalised(one, other, labels)
        recalls = recall_of(a, labels), recall_of(b, labels)
        present = np.unique(labels)
        for count in FEW:
            told = large = 0
            for draw in range(DRAWS):
                chosen = np.random.default_rng((draw, count)).permutation(present)[:count]
                rows = np.isin(labels, chosen)
                sides = [found_of(each[rows], labels[rows]) for each in (a, b)]
                both = [compare_with_reference(*pair, name="", level="") for pair in (sides, sides[::-1])]
                told += any(found.worse for found in both)
                large += abs(both[0].difference) >= DECISIVE
            yield Subsets(name, len(present), count, recalls, DRAWS, large, told)


def pairs(folder: Path, weights: Path, encoder: Path) -> Iterator[tuple[str, Array, Array, Array]]:
    """Name, two embeddings of the same items, and their classes."""
    random = np.random.default_rng(0)

    def loaded(data: str) -> tuple[Array, Array]:
        features, labels = features_of(data, folder, weights, encoder)
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        return unit, np.unique(labels, return_inverse=True)[1]

    features, labels = loaded("fashion-mnist")
    rows = random.permutation(len(labels))[:ITEMS]
    pixels = idx("fashion-mnist")[0].reshape(len(labels), -1)[rows].astype(np.float32)
    yield "fashion-mnist, pixels and features", pixels, features[rows], labels[rows]
    for data in ("banking77", "clinc150"):
        features, labels = loaded(data)
        rows = random.permutation(len(labels))[:ITEMS]
        sentences = [text for text, _ in texts(data)]
        grams = np.asarray(ngram_vectors([sentences[row] for row in rows.tolist()]), np.float32)
        yield f"{data}, n-grams and MiniLM", grams, features[rows], labels[rows]
    for data in ("cub", "clinc150", "banking77"):
        features, labels = loaded(data)
        trained_on = labels < (labels.max() + 1) // 2
        rows = random.permutation(np.flatnonzero(~trained_on))[:ITEMS]
        heads = []
        for seed in (0, 1):
            part = trained_on & (labels % 2 == seed)
            torch.manual_seed(seed)
            head = torch.nn.Linear(features.shape[1], 64)
            train(head, features[part], labels[part], steps=200, rate=1e-3, seed=seed)
            heads.append(apply(head, features[rows]))
        yield f"{data}, heads trained on different classes", heads[0], heads[1], labels[rows]
        yield f"{data}, features and a head", features[rows], heads[0], labels[rows]


def equalised(one: Array, other: Array, labels: Array) -> tuple[Array, Array]:
    """Both, with so much noise on the better one that recall@1 is about the same."""
    if recall_of(one, labels) < recall_of(other, labels):
        one, other = other, one
    target = recall_of(other, labels)
    noise = np.random.default_rng(0).standard_normal(one.shape).astype(np.float32)
    noise *= np.linalg.norm(one, axis=1).mean() / np.linalg.norm(noise, axis=1).mean()
    low, high = 0.0, 4.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if recall_of(one + middle * noise, labels) > target else (low, middle)
    return one + low * noise, other


def recall_of(rows: Array, labels: Array) -> float:
    return found_of(rows, labels).mean()["recall@1"]


def found_of(rows: Array, labels: Array) -> Retrieval:
    return retrieve(rows, labels, measures=("recall@1",), distance="cosine")
