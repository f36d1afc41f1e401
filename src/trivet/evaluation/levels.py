"""All measures of one set of embeddings, at each of its label levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trivet.evaluation.clustering import cluster, nmi
from trivet.evaluation.inputs import Metric, as_points
from trivet.evaluation.ranks import ranks
from trivet.evaluation.retrieval import hits_of, mean_recall
from trivet.geometry import Array, as_classes


@dataclass(frozen=True)
class LevelResult:
    """The measures at one label level; shares in [0, 1]."""

    items: int
    classes: int
    recall: dict[int, float]
    chance_recall: float  # recall@1 of a constant embedding
    nmi: float
    nmi_plus: float | None
    nmi_plus_clusters: int
    nmi_plus_missing: str | None  # why nmi_plus is None

    def as_json(self) -> dict[str, float | int | str | None]:
        """A flat record: "recall@K", "chance_recall@1", "nmi", "nmi+" (None when missing), its clusters, counts."""
        return {
            **{f"recall@{k}": share for k, share in self.recall.items()},
            "chance_recall@1": self.chance_recall,
            "nmi": self.nmi,
            "nmi+": self.nmi_plus,
            "nmi+_clusters": self.nmi_plus_clusters,
            "nmi+_missing": self.nmi_plus_missing,
            "items": self.items,
            "classes": self.classes,
        }


def evaluate(
    embeddings: Array,
    labels: Mapping[str, Array],
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    nmi_plus_multiple: int | Mapping[str, int] = 10,
    seed: int = 0,
    distance: Metric = "euclidean",
) -> dict[str, LevelResult]:
    """Recall at K, NMI and NMI+ at every label level; the distances are computed once for all levels.

    Recall counts an item alone in its class as a miss. NMI takes as many k-means clusters as classes, NMI+
    `nmi_plus_multiple` times as many, and is missing, with the reason, when that is more than there are items.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: level -> `(N,)` integers; at least one level.
        nmi_plus_multiple: one for all levels, or level -> multiple; a level left out has 10.
        seed: of the k-means starts.
        distance: of the neighbours; with "cosine" k-means too runs on unit rows.

    Raises:
        ValueError: as `recall_at_k` and `cluster`; or if there is no level, or a multiple is below 1 or for no level.
    """
    points = as_points(embeddings, distance=distance)
    if len(points) < 2:
        raise ValueError(f"evaluation needs at least two items: got {len(points)}.")
    if not labels:
        raise ValueError("labels must hold at least one level: got none; give {'class': labels}.")
    multiples = _multiples(nmi_plus_multiple, list(labels))
    levels = {
        level: as_classes(values, count=len(points), name=f"labels[{level!r}]") for level, values in labels.items()
    }
    results = {}
    for (level, classes), standing in zip(levels.items(), ranks(points, list(levels.values())), strict=True):
        sizes = torch.bincount(classes)
        clusters = multiples[level] * len(sizes)
        enough = clusters <= len(points)
        results[level] = LevelResult(
            items=len(points),
            classes=len(sizes),
            recall=mean_recall(hits_of(standing, ks), ks),
            chance_recall=float((sizes * (sizes - 1)).sum()) / (len(points) * (len(points) - 1)),
            nmi=_agreement(points, classes, len(sizes), seed),
            nmi_plus=_agreement(points, classes, clusters, seed) if enough else None,
            nmi_plus_clusters=clusters,
            nmi_plus_missing=None if enough else f"{clusters} clusters need as many items: there are {len(points)}.",
        )
    return results


def _agreement(points: Tensor, classes: Tensor, k: int, seed: int) -> float:
    return nmi(classes, cluster(points, k, seed=seed).assignment)


def _multiples(multiple: int | Mapping[str, int], levels: list[str]) -> dict[str, int]:
    if isinstance(multiple, int):
        multiple = dict.fromkeys(levels, multiple)
    unknown = sorted(set(multiple) - set(levels))
    if unknown:
        raise ValueError(f"nmi_plus_multiple must name levels of the labels ({', '.join(levels)}): got {unknown}.")
    multiples = {level: multiple.get(level, 10) for level in levels}
    if min(multiples.values()) < 1:
        raise ValueError(f"nmi_plus_multiple must be at least 1: got {multiples}.")
    return multiples
