"""Classes of one blob or of several, in numbers and as a map: figures 2 and 6 of Levi et al."""

from __future__ import annotations

import numpy as np

from trivet.collapse import class_modes, class_spread
from trivet.training.class_sample import class_sample

CLASSES, POINTS = 10, 400  # of a map, at most
PERPLEXITY = 30


def shape_of_classes(embeddings: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The median over the classes of `ClassSpread.ratio`, "class spread", and the mean number of their "modes".

    Args:
        embeddings: `(N, d)`.
        labels: `(N,)` integers.
    """
    spread = class_spread(embeddings, labels).ratio
    return {"class spread": float(np.nanmedian(spread)), "modes": class_modes(embeddings, labels).mean}


def class_map(embeddings: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> list[tuple[float, float, int]]:
    """Items of the first ten classes in the plane, (x, y, label) of each: by t-SNE, or as they are in two dimensions.

    Args:
        embeddings: `(N, d)`, d at least 2.
        labels: `(N,)` integers.
        seed: of the choice of items, and of t-SNE.
    """
    few = np.flatnonzero(np.isin(labels, np.unique(labels)[:CLASSES]))
    few = few[class_sample(labels[few], POINTS, least=10, seed=seed)]
    points, digits = embeddings[few].astype(np.float64), 3
    if points.shape[1] > 2:
        from sklearn.manifold import TSNE  # here: it takes a second to load

        perplexity = min(PERPLEXITY, max(1, (len(points) - 1) // 3))
        points, digits = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points), 1
    rows = zip(*points.astype(np.float64).round(digits).T.tolist(), labels[few].tolist(), strict=True)
    return [(x, y, label) for x, y, label in rows]
