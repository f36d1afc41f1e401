"""All measures of one set of embeddings, at each of its label levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from trivet.distances import Array, as_classes
from trivet.metrics.clustering import ITERATIONS, Clustering, Information, ami, cluster, nmi, restart_variance
from trivet.metrics.intervals import (
    NONE,
    OVERS,
    Average,
    Difference,
    Interval,
    Over,
    Variance,
    check_options,
    variance_of_mean,
)
from trivet.metrics.points import Metric, as_numpy, as_points
from trivet.metrics.protocols import Labels, check_length, plain_labels
from trivet.metrics.relation_levels import num_relation_classes, occurring_labels, unique_labels
from trivet.metrics.relation_retrieval import retrieve_by_tag
from trivet.metrics.retrieval import Retrieval, WithoutPositive, retrieve_levels
from trivet.metrics.tie_expectations import MEASURES, check_measures
from trivet.metrics.verification import Verification, verify
from trivet.metrics.verification_pairs import rate_name
from trivet.mining.relations import Relation
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.caller import for_caller
from trivet.runtime.progress import work
from trivet.runtime.text import abbreviated, counted

AGREEMENTS: dict[str, Callable[[Array, Array], float]] = {
    "nmi": nmi,
    "nmi-geometric": partial(nmi, average="geometric"),
    "ami": ami,
    "nmi+": nmi,
}
CLUSTERING = (*AGREEMENTS,)
VERIFICATION = ("roc-auc", "tar@far", "verification-accuracy")
ALL = (*MEASURES, *CLUSTERING, *VERIFICATION)
LISTED = 3  # class names that a warning lists
OPERATIONS = 2e13  # of all restarts of k-means: minutes on two cores


def standard(ks: Sequence[int] = (1, 2, 4, 8)) -> tuple[str, ...]:
    """The measures of a run: recall at each K, R-precision, MAP@R, mAP, mean reciprocal rank, NMI, AMI, NMI+."""
    return (*(f"recall@{k}" for k in ks), "r-precision", "map@r", "map", "mrr", "nmi", "ami", "nmi+")


def void(classes: Mapping[str, int], retrievable: int, measures: Sequence[str]) -> list[str]:
    """Explain which of the measures say nothing, a sentence each: they are the same for every embedding.

    Args:
        classes: level -> number of classes among what may be retrieved.
        retrievable: items that each query may retrieve.
        measures: names of `evaluate`.
    """
    ranked = [name for name in measures if name not in CLUSTERING and name not in VERIFICATION]
    names = [
        f"{level} has one class, so every neighbour is right: retrieval at this level is the same for every embedding."
        for level, count in classes.items()
        if count == 1 and ranked
    ]
    names += [
        f"{level} has a class of its own for each item, so no neighbour is right: retrieval at this level is 0 for "
        "every embedding."
        for level, count in classes.items()
        if count == retrievable + 1 and ranked
    ]
    cut = [name for name in ranked if name.startswith(("recall@", "precision@", "found@"))]
    beyond = [name for name in cut if int(name.partition("@")[2]) >= retrievable]
    if beyond:
        names.append(
            f"{', '.join(beyond)}: a query can retrieve {counted(retrievable, 'item')} in all, so this is the same for "
            "every embedding."
        )
    return names


def unanswerable(
    level: str,
    retrieval: Retrieval,
    cameras: str,
    gallery: Sequence[str] = (),
    absent_classes: str = "add items of them",
) -> list[str]:
    """Explain why queries have no positive, and what to do; nothing where each has one.

    Args:
        level: the label level of the retrieval.
        cameras: what to do where cameras leave all positives out.
        gallery: names of classes in the gallery, which an absent one is shown beside.
        absent_classes: what to do about classes that the gallery lacks.
    """
    assert retrieval.task is not None
    absent, alone, near = (mask.numpy() for mask in retrieval.task.unanswerable(retrieval.level))
    count, total = int((absent | alone | near).sum()), len(absent)
    if not count:
        return []
    start = f"{count} of {total} queries have nothing" if count < total else f"none of the {total} queries has anything"
    causes = []
    if absent.any():
        names = [repr(name) for name in retrieval.labels[np.unique(retrieval.classes[absent])].tolist()]
        there = f", which has {abbreviated([repr(name) for name in gallery], LISTED)}" if len(gallery) else ""
        causes.append(
            f"{absent.sum()} are of {counted(len(names), 'class')} that the gallery lacks "
            f"({abbreviated(names, LISTED)}){there}: {absent_classes}"
            + (for_caller(", or leave these queries out (--without-positive drop)") if count < total else "")
        )
    if alone.any():
        causes.append(f"{alone.sum()} are themselves all that the gallery has of their class: add others")
    if near.any():
        causes.append(f"of {near.sum()} all items of the class have the query's camera, and are left out: {cameras}")
    return [f"{level}: {start} to find, whatever the embedding; {'; '.join(causes)}."]


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of the classes with k-means clusters of the same items."""

    measures: dict[str, float]  # of `CLUSTERING`, those that were asked for
    clustering: Clustering
    clusters: int
    restarts: int
    classes: Integers  # (N,) class of each item, 0 .. C - 1

    def information(self) -> Information:
        """Contributions of each item and class."""
        return Information(self.classes, self.clustering.assignment)

    def variance(self, name: str, over: Over, average: Average, *, less: Agreement | None = None) -> Variance:
        """Variance of a measure; of what it is less that of other clusters of the same items.

        To what items change with the clusters held fixed is added what the restarts of k-means differ by. Over classes
        the spread of the classes with the clusters held fixed has that in it: it counts where it is the larger.
        """
        measure = name.removesuffix("+")
        values = self.information().values(measure, average)
        restarts = self._of_restarts[name]
        if less is not None:
            values = values - less.information().values(measure, average)
            restarts += less._of_restarts[name]
        of_items = variance_of_mean(values[:, None], self.classes, over="queries", average=average)
        if over == "queries":
            return replace(of_items, values=of_items.values + restarts)
        of_classes = variance_of_mean(values[:, None], self.classes, over="classes", average=average)
        return replace(of_classes, values=np.maximum(of_classes.values, np.nan_to_num(of_items.values) + restarts))

    @cached_property
    def _of_restarts(self) -> dict[str, float]:
        return {name: restart_variance(self.classes, self.clustering, name.removesuffix("+")) for name in self.measures}


@dataclass(frozen=True, eq=False, repr=False)
class LevelResult:
    """The measures at one label level; shares in [0, 1].

    The classes of a relation are its tags, or the groups that it connects; the labels the numbers of its items.
    """

    items: int
    classes: int
    retrieval: Retrieval | None
    clustering: Agreement | None  # with as many clusters as classes
    clustering_plus: Agreement | None  # NMI+: with several times as many
    verification: Verification | None
    missing: dict[str, str] = field(default_factory=dict)  # measure that was asked for -> why there is none
    labels: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0, np.int64))  # (C,) the label of each class
    # Of a relation: label -> means of retrieval, found when asked for.
    measure_labels: Callable[[Retrieval], dict[Any, dict[str, float]]] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.mean().items() if value is not None)
        return f"LevelResult({counted(self.items, 'item')}, {counted(self.classes, 'class')}: {means})"

    def as_json(self, average: Average = "micro") -> dict[str, float | str | None]:
        """A flat record: each measure that was asked for (None where there is none), and counts.

        "macro" averages over the classes, each by itself, what `per_class` gives.
        """
        record: dict[str, float | str | None] = {"items": self.items, "classes": self.classes}
        means = self.mean(average)
        if self.retrieval is not None:
            record |= {name: means[name] for name in self.retrieval.measures}
            record |= {f"chance_{name}": share for name, share in self.retrieval.chance.items()}
            record["without_positive"] = self.retrieval.without_positive
        if self.clustering is not None:
            record |= {name: means[name] for name in self.clustering.measures}
        if self.clustering_plus is not None:
            record |= {"nmi+": means["nmi+"], "nmi+_clusters": self.clustering_plus.clusters}
        if self.verification is not None:
            record |= {name: means[name] for name in self.verification.measures()}
            record["verification-threshold"] = self.verification.threshold
            record["verification_pairs"] = self.verification.positive_pairs + self.verification.negative_pairs
            record["verification_sampled"] = self.verification.sampled
        for name, reason in self.missing.items():
            record |= {name: None, f"{name}_missing": reason}
        return record

    def mean(self, average: Average = "micro") -> dict[str, float | None]:
        """Each measure; with "macro" the mean over the classes that have it, None where none has."""
        means: dict[str, float | None] = {}
        if self.retrieval is not None:
            means |= self.retrieval.mean(average) if average == "micro" or self._by_label is None else self._macro()
        if average == "micro":
            means |= {name: agreement.measures[name] for name, agreement in self._agreements()}
            return means if self.verification is None else means | self.verification.measures()
        for name, values in self._by_class().items():
            known = values[~np.isnan(values)]
            means[name] = float(known.mean()) if len(known) else None
        return means

    def per_class(self) -> dict[Any, dict[str, float]]:
        """Label -> the measures of that class; those it has no queries or pairs for are left out.

        Of retrieval the means over its queries, tag by tag as in `retrieve_by_tag`; of clustering and verification see
        `Information` and `Verification`.
        """
        rows: dict[Any, dict[str, float]] = {}
        if self.retrieval is not None:
            rows = self.retrieval.per_class() if self._by_label is None else {**self._by_label}
        by_class = self._by_class()
        for number, label in enumerate(self.labels.tolist()):
            row = {name: float(values[number]) for name, values in by_class.items() if not np.isnan(values[number])}
            if row:
                rows[label] = rows.get(label, {}) | row
        return rows

    def intervals(self, average: Average = "micro", *, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """Measure -> interval over "queries", other items of these classes, and over "classes", other classes.

        See `sampling_variances` for retrieval, `Verification.intervals`, and for clustering `Information.values` and
        `restart_variance`. They are computed when this is called. Of the mean over the classes of a relation there are
        none, NaN: an item counts for several tags.

        Args:
            average: of the mean that the interval is for.
            level: the coverage, in (0, 1).
        """
        check_options(average, level)
        means = self.mean(average)
        intervals: dict[str, dict[str, Interval]] = {}
        if self.retrieval is not None and (average == "micro" or self._by_label is None):
            intervals |= self.retrieval.intervals(average, level=level)
        elif self.retrieval is not None:
            intervals |= {name: dict.fromkeys(OVERS, NONE) for name in self.retrieval.measures}
        for name, agreement in self._agreements():
            value = means[name]
            assert value is not None
            if value == 0:  # by rule: a single cluster or class
                intervals[name] = dict.fromkeys(OVERS, Interval(0, 0))
                continue
            # AMI may be below 0.
            intervals[name] = {
                over: agreement.variance(name, over, average).intervals([value], level=level, bounded=name != "ami")[0]
                for over in OVERS
            }
        if self.verification is not None:
            intervals |= self.verification.intervals(average, level=level)
        return intervals

    def differences(self, other: LevelResult, *, level: float = 0.95) -> dict[str, dict[Over, Difference]]:
        """Measure -> over -> mean of this less that of another embedding, with its interval.

        The items vary alike for both, so the interval is narrower than those of the two suggest.

        Args:
            other: of the same items, queries and classes in the same order.
        """
        differences: dict[str, dict[Over, Difference]] = {}
        if self.retrieval is not None and other.retrieval is not None:
            differences |= self.retrieval.differences(other.retrieval, level=level)
        others = dict(other._agreements())
        for name, agreement in self._agreements():
            if name in others:
                value = agreement.measures[name] - others[name].measures[name]
                differences[name] = {}
                for over in OVERS:
                    variance = agreement.variance(name, over, "micro", less=others[name])
                    (interval,) = variance.intervals([value], level=level, bounded=False)
                    differences[name][over] = Difference(value, interval)
        if self.verification is not None and other.verification is not None:
            differences |= self.verification.differences(other.verification, level=level)
        return differences

    @cached_property
    def _by_label(self) -> dict[Any, dict[str, float]] | None:
        """Label -> means of retrieval; None of classes, by which `Retrieval` has them."""
        return None if self.measure_labels is None or self.retrieval is None else self.measure_labels(self.retrieval)

    def _macro(self) -> dict[str, float | None]:
        """Retrieval measures, the mean over the labels that have a query; None where none has."""
        assert self.retrieval is not None
        assert self._by_label is not None
        rows = [*self._by_label.values()]
        return {name: float(np.mean([row[name] for row in rows])) if rows else None for name in self.retrieval.measures}

    def _agreements(self) -> Iterator[tuple[str, Agreement]]:
        """Each measure of clustering, and what it is of."""
        for agreement in (self.clustering, self.clustering_plus):
            yield from () if agreement is None else ((name, agreement) for name in agreement.measures)

    def _by_class(self) -> dict[str, Floats]:
        """Measure of clustering or verification -> that of each class `(C,)`; NaN where there is none."""
        values = {
            name: agreement.information().per_class(name.removesuffix("+")) for name, agreement in self._agreements()
        }
        if self.verification is not None:
            shares = self.verification.per_class()
            values |= {name: shares.get(name, np.full(self.classes, np.nan)) for name in self.verification.measures()}
        return values


def evaluate(
    embeddings: Array,
    labels: Mapping[str, Labels],
    *,
    gallery: Array | None = None,
    gallery_labels: Mapping[str, Labels] | None = None,
    sample: Array | None = None,
    cameras: Array | None = None,
    gallery_cameras: Array | None = None,
    self_rows: Array | None = None,
    junk: Array | None = None,
    measures: Sequence[str] = standard(),
    nmi_plus_multiple: int | Mapping[str, int] = 10,
    restarts: int | None = None,
    seed: int = 0,
    distance: Metric = "euclidean",
    without_positive: WithoutPositive = "miss",
    distributed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, LevelResult]:
    """The measures that are asked for, at every label level; the distances are computed once for all levels.

    Clustering and verification are of the queries among themselves. NMI and AMI take as many k-means clusters as
    classes, NMI+ `nmi_plus_multiple` times as many; what needs more clusters than there are items is missing, with the
    reason.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: level -> `(N,)` integers, or a relation of N items, for which clustering and verification are missing.
            At least one level. Of pairs, one side here and the other in `gallery_labels`.
        measures: those of `retrieve`; "nmi", "nmi-geometric", "ami", "nmi+"; "roc-auc", "tar@far" and
            "verification-accuracy", see `verify`.
        nmi_plus_multiple: one for all levels, or level -> multiple; a level left out has 10.
        restarts: of k-means; by default 10, fewer where ten would take more than 2e13 operations.
        seed: of the k-means starts and of the pairs that are verified.
        distance: of the neighbours; with "cosine" k-means too runs on unit rows.
        gallery, gallery_labels, sample, cameras, gallery_cameras, self_rows: as in `retrieve`, for retrieval alone.
        junk, without_positive, distributed, progress: the same.

    Raises:
        ValueError: as `retrieve` and `cluster`; or if there is no level, a measure is not known, or a multiple is below
            1 or for no level.
    """
    names = check_measures(measures, (*CLUSTERING, *VERIFICATION))
    if not isinstance(labels, Mapping) or not labels:
        raise ValueError(f"labels must hold at least one level: got {type(labels).__name__}; give {{'class': labels}}.")
    if len(embeddings) < 2:
        raise ValueError(f"evaluation needs at least two items: got {len(embeddings)}.")
    multiples = _multiples(nmi_plus_multiple, list(labels))
    levels = {level: plain_labels(values) for level, values in labels.items()}
    numbers = {
        level: as_classes(values, count=len(embeddings), name=f"labels[{level!r}]")
        for level, values in levels.items()
        if not isinstance(values, Relation)
    }
    retrieved: Mapping[str, Retrieval | None] = dict.fromkeys(labels)
    ranking = [name for name in names if name not in CLUSTERING and name not in VERIFICATION]
    options: dict[str, Any] = {
        "gallery": gallery,
        "sample": sample,
        "cameras": cameras,
        "gallery_cameras": gallery_cameras,
        "self_rows": self_rows,
        "junk": junk,
        "measures": ranking,
        "distance": distance,
        "without_positive": without_positive,
    }
    if ranking:
        retrieved = retrieve_levels(
            embeddings, labels, gallery_labels=gallery_labels, distributed=distributed, progress=progress, **options
        )

    @cache
    def clustered(k: int) -> tuple[Clustering, int]:
        """K-means, once for each number of clusters, and how many restarts it had."""
        points = as_points(embeddings, distance=distance)
        starts = restarts or _restarts(len(points), points.shape[1], k)
        return cluster(points, k, seed=seed, restarts=starts), starts

    results = {}
    for level, values in levels.items():
        if isinstance(values, Relation):
            check_length(values, len(embeddings), f"labels[{level!r}]")
            gallery_values = None if gallery_labels is None else gallery_labels[level]
            results[level] = _of_relation(
                values,
                retrieved[level],
                [name for name in names if name not in ranking],
                partial(_by_label, embeddings, values, gallery_values, options),
            )
            continue
        classes = numbers[level]
        missing: dict[str, str] = {}
        count = int(classes.max()) + 1
        plain, plus = ([name for name in kind if name in names] for kind in (CLUSTERING[:3], CLUSTERING[3:]))
        results[level] = LevelResult(
            items=len(classes),
            classes=count,
            retrieval=retrieved[level],
            clustering=_agreement(clustered, classes, count, plain, missing),
            clustering_plus=_agreement(clustered, classes, multiples[level] * count, plus, missing),
            verification=_verified(embeddings, classes, distance, seed, missing)
            if any(name in names for name in VERIFICATION)
            else None,
            missing=missing,
            labels=np.unique(as_numpy(values)),
        )
    return results


def _of_relation(
    relation: Relation,
    retrieval: Retrieval | None,
    others: Sequence[str],
    by_label: Callable[[Retrieval], dict[Any, dict[str, float]]],
) -> LevelResult:
    """The measures at a level whose labels are a relation.

    Args:
        others: measures of clustering and verification that were asked for.
        by_label: finds the means of retrieval of each label.
    """
    kind = type(relation).__name__
    reasons = {
        name: f"{'clusters are' if name in CLUSTERING else 'verification is'} judged by one class for each item, which "
        f"{kind} do not give: measure retrieval, or give this level as integers (N,)."
        for name in others
    }
    labels = occurring_labels(relation)
    return LevelResult(
        items=len(relation),
        classes=len(labels) if retrieval is None else num_relation_classes(relation, len(retrieval.labels)),
        retrieval=retrieval,
        clustering=None,
        clustering_plus=None,
        verification=None,
        missing=reasons,
        labels=labels,
        measure_labels=by_label,
    )


def _by_label(
    embeddings: Array, relation: Relation, gallery: Labels | None, options: dict[str, Any], retrieval: Retrieval
) -> dict[Any, dict[str, float]]:
    """Label -> means of retrieval, of each that has a query which counts: tag by tag, or of items of one number.

    Args:
        gallery: the relation of the gallery, if there is one.
        options: of the retrieval.
        retrieval: by the relation.
    """
    from trivet.mining.tags import Tags  # here: `import trivet.metrics` does without scipy

    if isinstance(relation, Tags):
        by_tag = retrieve_by_tag(embeddings, relation, gallery_tags=cast("Tags | None", gallery), **options)
        return {tag: result.mean() for tag, result in by_tag.items() if result.counted.any()}
    queries = relation.items if options["sample"] is None else relation.items[as_numpy(options["sample"])]
    classes, labels = unique_labels(queries.cpu().numpy())
    return replace(retrieval, classes=classes, labels=labels).per_class()


def _agreement(
    clustered: Callable[[int], tuple[Clustering, int]],
    classes: torch.Tensor,
    k: int,
    names: Sequence[str],
    missing: dict[str, str],
) -> Agreement | None:
    if not names:
        return None
    if k > len(classes):
        missing |= dict.fromkeys(names, f"{k} clusters need as many items: there are {len(classes)}.")
        return None
    clustering, restarts = clustered(k)
    values = {name: AGREEMENTS[name](classes, clustering.assignment) for name in names}
    return Agreement(values, clustering, k, restarts, classes.numpy())


def _verified(
    embeddings: Array, classes: torch.Tensor, distance: Metric, seed: int, missing: dict[str, str]
) -> Verification | None:
    sizes = torch.bincount(classes)
    if len(sizes) < 2 or int(sizes.max()) < 2:
        missing |= dict.fromkeys(VERIFICATION, "verification needs a same-class pair and a different-class pair.")
        return None
    with work("verification"):
        verified = verify(embeddings, classes, distance=distance, seed=seed)
    if verified.accuracy is None:
        missing["verification-accuracy"] = "too few classes to choose a threshold on half of them."
    for far, share in verified.tar_at_far.items():
        if share is None:
            missing[rate_name(far)] = f"{verified.negative_pairs} different-class pairs cannot resolve it."
    return verified


def _restarts(items: int, width: int, k: int) -> int:
    """10, or as many as are paid for; an iteration is two operations for every coordinate of every pair."""
    return max(1, min(10, int(OPERATIONS / (2 * ITERATIONS * items * width * k))))


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
