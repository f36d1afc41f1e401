"""Neighbours of items by a known view: figure 3 of Levi et al."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform

from trivet.metrics.nearest import neighbours

NEAREST = 4  # of the class of an item: as many as share its view, where a class has five items of each
QUERIES, DRAWN = 5, 6  # of the picture, and how many neighbours of each
INK = 0.3  # of a pixel that is drawn


def view_share(embeddings: np.ndarray, classes: np.ndarray, views: np.ndarray) -> float:
    """The share that has the view of an item, of the four nearest of its class; the mean over all items.

    Args:
        embeddings: `(N, d)`.
        classes, views: `(N,)` integers; classes of four items or fewer do not count.
    """
    same = []
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        if len(rows) > NEAREST:
            distances = squareform(pdist(embeddings[rows].astype(np.float64)))
            np.fill_diagonal(distances, np.inf)
            nearest = distances.argsort(axis=1, kind="stable")[:, :NEAREST]
            same.append((views[rows][nearest] == views[rows][:, None]).mean(axis=1))
    return float(np.concatenate(same).mean())


def chance_share(classes: np.ndarray, views: np.ndarray) -> float:
    """The same share of neighbours that are drawn at random from the class."""
    pairs = np.stack([classes, views])
    _, index, counts = np.unique(classes, return_inverse=True, return_counts=True)
    _, view_index, view_counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    others = counts[index] - 1
    counted = others >= NEAREST
    return float(((view_counts[view_index.ravel()] - 1) / np.maximum(others, 1))[counted].mean())


def neighbour_rows(
    embeddings: np.ndarray, classes: np.ndarray, views: np.ndarray, images: np.ndarray, *, seed: int = 0
) -> list[tuple[int, int, int, int, str]]:
    """Some items drawn at random and their nearest others, for a picture.

    Each is its row of the picture, its place in it (0 is the query), whether it has the class of the query, and its
    view, and its pixels as `packed`.

    Args:
        images: `(N, side, side)`, ink is 1.
    """
    queries = np.random.default_rng(seed).choice(len(classes), min(QUERIES, len(classes)), replace=False)
    nearest = neighbours(embeddings, queries, min(DRAWN, len(classes) - 1)).indices
    return [
        (row, rank, int(classes[item] == classes[query]), int(views[item] == views[query]), packed(images[item]))
        for row, (query, items) in enumerate(zip(queries.tolist(), nearest.tolist(), strict=True))
        for rank, item in enumerate([query, *items])
    ]


def packed(image: np.ndarray) -> str:
    """A drawing `(side, side)` as hexadecimal digits, a bit for each pixel."""
    return np.packbits(image > INK).tobytes().hex()


def unpacked(text: str) -> np.ndarray:
    """The drawing of `packed`, where the number of its pixels is a multiple of eight."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))
    side = int(len(bits) ** 0.5)
    return bits.reshape(side, side)
