"""Retrieval asked several times of one relation: tag by tag, and from either side of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trivet.distances import Array
from trivet.metrics.points import Metric, as_numpy
from trivet.metrics.protocols import row_numbers
from trivet.metrics.retrieval import Retrieval, WithoutPositive, retrieve
from trivet.metrics.tie_expectations import MEASURES

if TYPE_CHECKING:
    from trivet.mining.grades import Grades
    from trivet.mining.pairs import Pairs
    from trivet.mining.tags import Tags


def retrieve_by_tag(
    embeddings: Array,
    tags: Tags,
    *,
    gallery: Array | None = None,
    gallery_tags: Tags | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    measures: Sequence[str] = MEASURES,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
) -> dict[Any, Retrieval]:
    """Retrieval measures of each tag: the queries are the items that have it, and so are the positives.

    Whatever else two items share does not count. The mean over tags is the macro average by label; that over the
    queries of `retrieve` with the tags themselves is the average by example.

    Args:
        embeddings: `(Q, d)` floating point.
        tags: of these items; `match` has no part in this.
        gallery, gallery_tags: `(M, d)` to retrieve from, and its tags; without them the queries are, each but itself.
        sample, cameras, gallery_cameras, self_rows, junk, measures, distance, without_positive: as in `retrieve`.

    Returns:
        Tag -> measures, of each tag that a query has.

    Source:
        Zhang, Zhou, "A review on multi-label learning algorithms", TKDE 2014, section 2.2 (averages by label and by
        example).

    Example:
        >>> from trivet import Tags
        >>> tags = Tags([["red", "round"], ["red"], ["round"], ["round"]])
        >>> found = retrieve_by_tag(np.array([[0.0], [1.0], [3.0], [4.5]]), tags, measures=("recall@1",))
        >>> {tag: result.mean()["recall@1"] for tag, result in found.items()}
        {'red': 1.0, 'round': 0.6666666666666666}
    """
    if (gallery is None) != (gallery_tags is None):
        raise ValueError("gallery and gallery_tags go together: got one of them; give both, or neither.")
    if len(tags) != len(embeddings):
        raise ValueError(
            f"tags must be those of one item per embedding: got {len(tags)} items for {len(embeddings)} embeddings."
        )
    both, others = tags.joined(tags if gallery_tags is None else gallery_tags)
    carried, carried_by_others = (both.rows(items).tocsc() for items in (both.items, others))
    measured = partial(retrieve, measures=measures, distance=distance, without_positive=without_positive)
    queries = torch.arange(len(embeddings)) if sample is None else row_numbers(sample, len(embeddings))
    by_tag = {}
    for number, tag in enumerate(tags.names.tolist()):
        labels, gallery_labels = (
            side[:, [number]].toarray()[:, 0].astype(np.int64) for side in (carried, carried_by_others)
        )
        rows = queries[torch.from_numpy(labels)[queries] > 0].numpy()
        if len(rows) and gallery is None:
            by_tag[tag] = measured(embeddings, labels, sample=rows, cameras=cameras)
        elif len(rows):
            by_tag[tag] = measured(
                embeddings[rows],
                labels[rows],
                gallery=gallery,
                gallery_labels=gallery_labels,
                cameras=None if cameras is None else as_numpy(cameras)[rows],
                gallery_cameras=gallery_cameras,
                self_rows=None if self_rows is None else as_numpy(self_rows)[rows],
                junk=junk,
            )
    return by_tag


def retrieve_both_ways(
    left: Array,
    right: Array,
    relation: Pairs | Grades,
    *,
    measures: Sequence[str] = MEASURES,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
) -> dict[str, Retrieval]:
    """Retrieval measures from either side of a relation of two sides, such as image to text and text to image.

    Args:
        left, right: `(L, d)` and `(R, d)` floating point, the rows of its sides.
        relation: pairs, or grades with `sides`.
        measures, distance, without_positive: as in `retrieve`.

    Returns:
        "left to right" and "right to left" -> measures.

    Source:
        Karpathy, Fei-Fei, "Deep visual-semantic alignments for generating image descriptions", CVPR 2015, section 4.1.

    Example:
        >>> from trivet import Pairs
        >>> left, right = np.array([[0.0], [1.0], [2.0]]), np.array([[0.1], [2.2], [1.1]])
        >>> found = retrieve_both_ways(left, right, Pairs(3, 3), measures=("recall@1",))
        >>> found["left to right"].mean()
        {'recall@1': 0.3333333333333333}
    """
    sides = {"left": (left, relation.left), "right": (right, relation.right)}
    return {
        f"{queries} to {gallery}": retrieve(
            *sides[queries],
            gallery=sides[gallery][0],
            gallery_labels=sides[gallery][1],
            measures=measures,
            distance=distance,
            without_positive=without_positive,
        )
        for queries, gallery in (("left", "right"), ("right", "left"))
    }
