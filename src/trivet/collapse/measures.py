"""All measures of one embedding, from which the diagnosis draws its verdicts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.class_loss import ClassLoss, lost_classes
from trivet.collapse.distances import (
    SPOT,
    WIDE_SPOT,
    about_sides,
    centred,
    extent,
    occupied_within,
    relative_spread,
)
from trivet.collapse.hubs import displaced_items, hubness, nearest_others
from trivet.collapse.modes import class_modes, mode_sharing, modes_index, reference_modes
from trivet.collapse.relation_chance import relation_recall_by_chance, sides_of
from trivet.collapse.retention import Retention, inside_structure, lost_inside, mode_retention
from trivet.collapse.rounding import rounding_error, rounding_loss
from trivet.collapse.significance import Comparison, compare_with_reference, recall_by_chance
from trivet.collapse.spectrum import by_products, rank_of, singular_values
from trivet.collapse.sphere import alignment, uniformity
from trivet.collapse.spread import QUERIES, class_members, class_spread, fine_coarse_index, related_spread, strangers
from trivet.collapse.strategy import SamplingStats, SamplingStrategy, sampling
from trivet.collapse.thresholds import THRESHOLDS
from trivet.distances import Array, as_classes, as_rows
from trivet.metrics import Retrieval, cluster, nmi, retrieve_levels
from trivet.metrics.points import Metric, as_points
from trivet.metrics.protocols import Labels, check_length, plain_labels
from trivet.metrics.relation_levels import num_relation_classes
from trivet.mining.relations import Classes, Relation
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.extras import installed

FEWEST = 100  # items from which single ones can be apart from the others
RANKED = 1000  # items that are asked for all of their class, which takes longer
UNIT = 1e-3  # how far from 1 the norm of a unit row may be
NEAR_CHANCE = 8.0  # standard errors above chance beyond which no permutation of the labels comes
PRODUCTS = 2 * 10**9  # of coordinates of items and clusters, in one of 25 iterations: seconds


@dataclass(frozen=True, eq=False)
class ClassMeasures:
    """Measures of each class; fields `(C,)` in the order of the sorted labels, NaN where a class is too small to tell.

    Attributes:
        items: how many.
        within: root mean square distance inside the class, in the unit of the embeddings.
        spread: `within` over the root mean square distance to the items of other classes: 0 for a class on one point.
        effective_rank: of the class alone.
        modes: see `count_modes`; 1 for a class too small to tell.
        recall: recall@1 of its items, in [0, 1].
        retention: see `mode_retention`; None without a reference.
    """

    items: Integers
    within: Floats
    spread: Floats
    effective_rank: Floats
    modes: Integers
    recall: Floats
    retention: Floats | None


@dataclass(frozen=True)
class FineMeasures:
    """Measures of a level of classes inside the classes, or inside the sets of items with equal tags."""

    recall: float  # recall@1 at this level, in [0, 1]
    chance: float  # what it would be if the neighbours of an item were random members of its class
    split: float  # share of the classes, or sets, that hold two fine classes or more
    index: float  # see `fine_coarse_index`
    reference_index: float | None  # the same of the reference; None without one


@dataclass(frozen=True, eq=False, kw_only=True)
class Measures:
    """Measures of one embedding; lengths in its unit, shares in [0, 1], None where there was nothing to measure it by.

    Attributes:
        norm: root mean square norm of the rows.
        norm_tail: largest norm over the median of those that are not 0, of two sides the larger; 1 for unit rows.
        diameter, mean_distance, median_distance: of all pairs, see `extent`. As for the shape, rows of two sides are
            taken less the mean of their side.
        relative_spread: root mean square distance over sqrt(2) times `norm`: 1 where the mean row is 0, 0 where all
            rows are equal. It does not depend on the scale.
        precision: relative rounding error of a coordinate as the embedding came: eps of its dtype.
        rounding_loss: what recall@1 loses where distances are computed by products in that precision (float32 for less)
            and the origin is left where it is, as most search does; 0 where rows are too far apart for that to matter.
        effective_rank: of all items, see `effective_rank`; `uniformity` and `alignment` likewise.
        first_axis: share of the variance along the first principal axis: 1 for a line.
        occupied, occupied_widely: see `occupied_spots`, within 2 % and 10 % of the mean distance.
        effective_classes: 1 over the chance that two items share a class, or an item and another, or itself, belong
            together.
        recall, chance: recall@1, and what a constant embedding scores.
        chance_high: up to where recall@1 comes by chance, see `recall_by_chance`; None where `recall` is far above.
        centred_recall: of two sides, recall@1 with each less its mean row; None of other labels.
        comparisons: recall@1 beside each reference, at the level of the labels and at each finer one.
        lost: classes that lost 20 points of recall@1 or more against the first reference, one of a hundred by chance.
        rankings: MAP@R of 1,000 items beside each reference, at the same levels.
        gradings: nDCG@10 of the same, where labels have grades, as tags do by what they share.
        copies: share of the items that another one equals in every coordinate; of pairs, one of the same side.
        class_spread: median over the classes of `ClassMeasures.spread`; of a relation see `RelatedSpread`.
        modes: mean over the classes of `ClassMeasures.modes`.
        nmi, nmi_plus: agreement of the classes with as many k-means clusters, and with ten times as many (one start):
            the second rises over the first where classes are several blobs each. None where that takes more clusters
            than items, or longer than seconds, and where faiss or scikit-learn is not installed.
        strangers: share of items among items of one other label, see `strangers`.
        hubness, unfound: the skewness and `unfound` of `Hubness`; of at most 5,000 items, among themselves.
        reference_hubness, reference_unfound: the same of the first reference.
        displaced: share of `displaced_items`: the ten nearest that they have in the first reference are far from them,
            and the other way round, while others keep theirs.
        displaced_rows: the rows of these items, ascending.
        reference_rounding_loss: `rounding_loss` of the first reference.
        reference_shrinkage: mean distance over that of the reference; None where lengths cannot be compared: the two
            have different widths, or the rows of one alone are unit rows.
        reference_spread: relative spread over that of the reference.
        reference_class_spread: `class_spread` of the reference.
        reference_modes: mean number of modes of a class in the reference, counted so that one class of one Gaussian in
            a hundred sets of classes is split.
        reference_split: share of the classes that have two modes or more there.
        mode_index: `fine_coarse_index` of these modes: how far apart in the embedding the modes of the reference lie,
            beside the classes. 0.11 to 0.28 in trained networks that collapsed, 0.38 or more in others. None where the
            reference shows one mode in every class.
        reference_mode_index: the same in the reference itself: about 1 for variants of one thing, about the square root
            of k for classes that are each made of k unrelated things.
        reference_mode_sharing: see `mode_sharing`, of these modes in the reference: about 1 if the same thing parts
            every class.
        retention: mean over the classes of `ClassMeasures.retention`.
        lost_inside: numbers of the classes of `lost_inside`, among the sorted labels.
        structure, reference_structure: mean of `inside_structure` over these classes, here and in the first reference;
            0 where they are points, None where there are none.
        fine: level -> `FineMeasures`.
        sampling: of the batch strategy.
        per_class: see `ClassMeasures`; None of a relation, as are all that is measured of classes alone: the modes, the
            NMI, strangers, the retention and lost classes.
    """

    items: int
    dimension: int
    classes: int
    norm: float
    norm_tail: float
    diameter: float
    mean_distance: float
    median_distance: float
    relative_spread: float
    precision: float
    rounding_loss: float
    effective_rank: float
    uniformity: float
    alignment: float
    first_axis: float
    occupied: float
    occupied_widely: float
    effective_classes: float
    recall: float
    chance: float
    chance_high: float | None
    centred_recall: float | None = None
    comparisons: tuple[Comparison, ...]
    lost: tuple[ClassLoss, ...] = ()
    rankings: tuple[Comparison, ...]
    gradings: tuple[Comparison, ...] = ()
    copies: float
    class_spread: float
    modes: float | None = None
    nmi: float | None = None
    nmi_plus: float | None = None
    strangers: float | None = None
    hubness: float
    unfound: float
    reference_hubness: float | None = None
    reference_unfound: float | None = None
    displaced: float | None = None
    displaced_rows: tuple[int, ...] = ()
    reference_rounding_loss: float | None = None
    reference_shrinkage: float | None = None
    reference_spread: float | None = None
    reference_class_spread: float | None = None
    reference_modes: float | None = None
    reference_split: float | None = None
    mode_index: float | None = None
    reference_mode_index: float | None = None
    reference_mode_sharing: float | None = None
    retention: float | None = None
    lost_inside: tuple[int, ...] = ()
    structure: float | None = None
    reference_structure: float | None = None
    fine: dict[str, FineMeasures] = field(default_factory=dict)
    sampling: SamplingStats | None = None
    per_class: ClassMeasures | None = None


def measure(
    embeddings: Array,
    labels: Labels,
    *,
    reference: Array | Mapping[str, Array] | None = None,
    strategy: SamplingStrategy | None = None,
    fine: Mapping[str, Array] | None = None,
    level: str = "labels",
    distance: Metric = "euclidean",
    trained_levels: Collection[str] = (),
    seed: int = 0,
) -> Measures:
    """Measure an embedding; see `Measures`.

    Args:
        embeddings, labels, reference, strategy, fine, level, trained_levels, seed: as in `diagnose`.
        distance: how the embedding is compared; with "cosine" all but the norms is of unit rows.
    """
    raw = as_rows(embeddings).cpu()
    relation, classes = _relation_of(labels, len(raw))
    inner = {name: as_classes(values, count=len(raw), name="fine") for name, values in (fine or {}).items()}
    if level in inner:
        raise ValueError(f"fine must hold levels other than that of the labels: got {level!r} in both; rename one.")
    partition = relation.partition
    if inner and int(partition.max()) + 1 == len(raw):
        raise ValueError(
            "fine must hold classes inside classes or sets of tags: got labels by which no two items are alike; leave "
            "out fine, or pass the finer classes as the labels."
        )
    points = as_points(raw, distance=distance)
    sides = sides_of(relation)
    shape = about_sides(points, sides)
    values = singular_values(shape)
    norms = torch.linalg.vector_norm(raw, dim=1)
    norm = math.sqrt(float(norms.square().mean()))
    lengths = extent(shape)
    occupied, occupied_widely = occupied_within(shape, (SPOT, WIDE_SPOT), seed)
    queries = _sample(len(raw), seed)
    levels: dict[str, Labels] = {level: relation, **inner}
    graded = type(relation).relevance is not Relation.relevance

    def retrieved_by(rows: Tensor, most: int, *names: str) -> dict[str, Retrieval]:
        return retrieve_levels(rows, levels, sample=_sample(len(raw), seed, most=most), measures=names)

    retrievals = retrieved_by(points, QUERIES, "recall@1")
    retrieved = retrievals[level]
    recall, chance = retrieved.mean()["recall@1"], retrieved.chance["recall@1"]
    if chance == 1:
        raise ValueError(
            f"labels must keep some items apart: got {type(relation).__name__} by which all belong together; "
            "a single class has nothing to collapse into."
        )
    equal = torch.cat([torch.unique(points[rows], dim=0, return_counts=True)[1] for rows in sides])
    references = _references(reference, len(raw), distance)
    reference_retrieved = {name: retrieved_by(rows, QUERIES, "recall@1") for name, rows in references.items()}
    ranks = ("map@r", "ndcg@10") if graded else ("map@r",)
    ranked = retrieved_by(points, RANKED, *ranks) if references else {}
    reference_ranked = {name: retrieved_by(rows, RANKED, *ranks) for name, rows in references.items()}
    known = next(iter(references.values()), None)
    before = next((each[level] for each in reference_retrieved.values()), None)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(raw))[:QUERIES])
    around = hubness(points[order])
    fine_measures = {
        name: _fine(points, partition, inner[name], known, retrievals[name].mean()["recall@1"]) for name in inner
    }
    hubs = {} if known is None else _hubs_against(points[order], known[order], order)
    by_labels = (
        _of_relation(points, known, relation, retrieved, seed)
        if classes is None
        else _of_classes(raw, points, known, classes, retrieved, before, strategy, seed, hubs.get("displaced_rows", ()))
    )
    return Measures(
        items=len(raw),
        dimension=raw.shape[1],
        norm=norm,
        norm_tail=max(_tail(norms[rows]) for rows in sides),
        diameter=lengths.diameter,
        mean_distance=lengths.mean,
        median_distance=lengths.median,
        relative_spread=relative_spread(points, shape),
        precision=rounding_error(embeddings),
        rounding_loss=rounding_loss(embeddings, points, relation, queries, seed),
        effective_rank=rank_of(values),
        first_axis=float(1 / ((values / values[0]) ** 2).sum()) if values.any() else 0.0,
        uniformity=uniformity(raw, seed=seed),
        occupied=occupied,
        occupied_widely=occupied_widely,
        recall=recall,
        chance=chance,
        chance_high=_chance_high(points, relation, queries, recall, chance, seed),
        centred_recall=retrieved_by(shape, QUERIES, "recall@1")[level].mean()["recall@1"] if len(sides) > 1 else None,
        comparisons=_compared(retrievals, reference_retrieved, trained_levels, "recall@1"),
        rankings=_compared(ranked, reference_ranked, trained_levels, "map@r"),
        gradings=_compared(ranked, reference_ranked, trained_levels, "ndcg@10") if graded else (),
        copies=float(equal[equal > 1].sum() / len(raw)),
        hubness=around.skewness,
        unfound=around.unfound,
        **({} if known is None else _against(known, points, shape, lengths.mean, sides)),
        **hubs,
        reference_rounding_loss=None
        if known is None
        else rounding_loss(_first(reference), known, relation, queries, seed),
        fine=fine_measures,
        **by_labels,
    )


def _relation_of(labels: Labels, count: int) -> tuple[Relation, Tensor | None]:
    """The relation of items, and their class numbers; None where it is not of classes."""
    labels = plain_labels(labels)
    if isinstance(labels, Relation):
        check_length(labels, count, "labels")
        if count < 2:
            raise ValueError(f"a diagnosis needs at least two items: got {count}.")
        return labels.to("cpu"), None
    classes = as_classes(labels, count=count)
    if count < 2 or not int(classes.max()):
        raise ValueError(
            f"labels must name at least two classes: got {len(torch.unique(classes))} in {count} items; "
            "a single class has nothing to collapse into."
        )
    return Classes(classes), classes


def _of_classes(
    raw: Tensor,
    points: Tensor,
    known: Tensor | None,
    classes: Tensor,
    retrieved: Retrieval,
    before: Retrieval | None,
    strategy: SamplingStrategy | None,
    seed: int,
    displaced: Sequence[int],
) -> dict[str, Any]:
    """The measures that rest on classes, by the names of the fields of `Measures`."""
    sizes = torch.bincount(classes)
    shares = sizes / len(raw)
    spread = class_spread(points, classes)
    modes = class_modes(points, classes, seed=seed)
    retained = None if known is None else _retention(points, known, classes, seed)
    recalls = np.full(len(shares), math.nan)  # a class that was not asked has none
    for number, row in retrieved.per_class().items():
        recalls[number] = row["recall@1"]
    return {
        "classes": len(shares),
        "alignment": alignment(raw, classes),
        "effective_classes": 1 / float(shares.square().sum()),
        "lost": () if before is None else tuple(lost_classes(retrieved, before)),
        "class_spread": _median(spread.ratio),
        "modes": modes.mean,
        "nmi": _agreement(points, classes, len(shares), seed),
        "nmi_plus": _agreement(points, classes, 10 * len(shares), seed),
        "strangers": strangers(points, classes, seed=seed),
        **({} if known is None else _modes_against(known, points, classes, seed)),
        "retention": None if retained is None else retained.mean,
        **(
            {} if known is None or retained is None else _lost_inside(points, known, classes, retained, seed, displaced)
        ),
        "sampling": None
        if strategy is None or int((sizes > 1).sum()) < 2
        else sampling(raw, classes, strategy, seed=seed),
        "per_class": ClassMeasures(
            items=sizes.numpy(),
            within=spread.within,
            spread=spread.ratio,
            effective_rank=_ranks(points, classes),
            modes=modes.counts,
            recall=recalls,
            retention=None if retained is None else retained.values,
        ),
    }


def _of_relation(
    points: Tensor, known: Tensor | None, relation: Relation, retrieved: Retrieval, seed: int
) -> dict[str, Any]:
    """The same of another relation, where it has them."""
    rows = _sample(len(points), seed, most=RANKED)
    rows = np.arange(len(points)) if rows is None else rows
    spread = related_spread(points, relation, rows)
    return {
        "classes": num_relation_classes(relation, len(retrieved.labels)),
        "alignment": spread.alignment,
        "effective_classes": len(points) / (1 + float(retrieved.positives.mean())),
        "class_spread": spread.ratio,
        "reference_class_spread": None if known is None else related_spread(known, relation, rows).ratio,
    }


def _against(
    known: Tensor, points: Tensor, shape: Tensor, mean_distance: float, sides: list[Integers]
) -> dict[str, Any]:
    """The shape of an embedding beside that of a reference, by the names of the fields of `Measures`."""
    shape_before = about_sides(known, sides)
    before, spread_before = extent(shape_before).mean, relative_spread(known, shape_before)
    return {
        "reference_shrinkage": mean_distance / before if before and _comparable(points, known) else None,
        "reference_spread": relative_spread(points, shape) / spread_before if spread_before else None,
    }


def _modes_against(known: Tensor, points: Tensor, classes: Tensor, seed: int) -> dict[str, Any]:
    """The measures of classes beside those of a reference, likewise."""
    modes = reference_modes(known, classes, seed=seed)
    return {
        "reference_class_spread": _median(class_spread(known, classes).ratio),
        "reference_modes": modes.mean,
        "reference_split": float((modes.counts > 1).mean()),
        "mode_index": modes_index(points, classes, modes),
        "reference_mode_index": modes_index(known, classes, modes),
        "reference_mode_sharing": mode_sharing(known, classes, modes),
    }


def _hubs_against(points: Tensor, known: Tensor, order: Tensor) -> dict[str, Any]:
    """The measures of hubs and of single items that were moved beside those of a reference, likewise."""
    before, rows = hubness(known), order.numpy()[:0]
    if len(points) >= FEWEST:
        far, near = THRESHOLDS["far"].value, THRESHOLDS["unmoved"].value
        rows = np.sort(order.numpy()[displaced_items(points, known, far=far, near=near)])
    return {
        "reference_hubness": before.skewness,
        "reference_unfound": before.unfound,
        "displaced": len(rows) / len(points),
        "displaced_rows": tuple(rows.tolist()),
    }


def _lost_inside(
    points: Tensor, known: Tensor, classes: Tensor, retained: Retention, seed: int, displaced: Sequence[int]
) -> dict[str, Any]:
    """The measures of what was lost inside the classes, likewise; by the items that were not displaced."""
    if displaced:  # a few in a small class take its retention away
        others = np.setdiff1d(np.arange(len(points)), displaced)
        left = _retention(points[others], known[others], classes[others], seed)
        if left is None:
            return {}
        retained = left
    lost = retained.labels[lost_inside(retained, below=THRESHOLDS["retained"].value)]
    if not len(lost):
        return {}
    structures = (_structure(rows, classes, lost, seed) for rows in (points, known))
    return {"lost_inside": tuple(lost.tolist())} | dict(
        zip(("structure", "reference_structure"), structures, strict=True)
    )


def _structure(points: Tensor, classes: Tensor, numbers: Integers, seed: int) -> float:
    if points.shape[1] < 2:
        return 0.0
    try:
        values = inside_structure(points, classes, seed=seed).values[numbers]
    except ValueError:  # every class is on one point
        return 0.0
    return float(np.nan_to_num(values).mean())


def mode_index(embeddings: Array, reference: Array, labels: Array, *, seed: int = 0) -> float | None:
    """`fine_coarse_index` where the fine classes are the modes that a reference shows inside the classes.

    None where the reference shows a single mode in every class. Modes are counted strictly: of a hundred sets of
    Gaussian classes one would have a class that is split.

    Args:
        embeddings: `(N, d)` floating point.
        reference: `(N, d')` another embedding of the same items, such as the raw inputs.
        labels: `(N,)` of any integer dtype, two classes or more.
        seed: of what is drawn of classes of more than 1,000 items.
    """
    points = as_rows(embeddings).cpu()
    classes = as_classes(labels, count=len(points))
    known = _reference(reference, len(points), "euclidean")
    return modes_index(points, classes, reference_modes(known, classes, seed=seed))


def _chance_high(
    points: Tensor, relation: Relation, rows: Integers | None, recall: float, chance: float, seed: int
) -> float | None:
    """See `Measures`."""
    queries = np.arange(len(points)) if rows is None else rows
    error = math.sqrt(chance * (1 - chance) / len(queries)) if 0 < chance < 1 else 0.0
    if recall > chance + NEAR_CHANCE * error + 1 / len(queries):
        return None
    # Neighbours of equal rows are the first of them: in random order, which says nothing of the class.
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(points)))
    entries = torch.argsort(order).numpy()[queries]
    if not isinstance(relation, Classes):
        return relation_recall_by_chance(points[order], relation[order], entries, seed=seed)[1]
    nearest = nearest_others(points[order], entries, 1)[:, 0]
    return recall_by_chance(nearest, entries, relation.items[order].numpy(), seed=seed)[1]


def _compared(
    now: Mapping[str, Retrieval],
    references: Mapping[str, Mapping[str, Retrieval]],
    trained: Collection[str],
    measure: str,
) -> tuple[Comparison, ...]:
    """Compare level by level with each reference; what no query of a level can find says nothing."""
    return tuple(
        compare_with_reference(of, other[at], name=name, level=at, measure=measure, known_classes=at in trained)
        for at, of in now.items()
        for name, other in references.items()
    )


def _agreement(points: Tensor, classes: Tensor, clusters: int, seed: int) -> float | None:
    if clusters > len(points) or points.numel() * clusters > PRODUCTS or not installed("faiss", "sklearn"):
        return None
    return nmi(classes, cluster(points, clusters, seed=seed, restarts=1).assignment)


def _retention(points: Tensor, known: Tensor, classes: Tensor, seed: int) -> Retention | None:
    try:
        retained = mode_retention(points, known, classes, seed=seed)
    except ValueError:  # every class is too small, or on one point in the reference
        return None
    sizes = torch.bincount(classes).numpy()
    return retained if sizes[np.isfinite(retained.values)].sum() >= sizes.sum() / 2 else None  # else some stand for all


def _fine(points: Tensor, classes: Tensor, inner: Tensor, known: Tensor | None, recall: float) -> FineMeasures:
    pairs, members, sizes = torch.unique(
        torch.stack([classes, inner], dim=1), dim=0, return_inverse=True, return_counts=True
    )
    class_sizes = torch.bincount(classes)
    chance = (sizes[members] - 1) / (class_sizes[classes] - 1).clamp_min(1)
    return FineMeasures(
        recall=recall,
        chance=float(chance.double().mean()),
        split=float((torch.bincount(pairs[:, 0]) > 1).double().mean()),
        index=fine_coarse_index(points, classes, inner),
        reference_index=None if known is None else fine_coarse_index(known, classes, inner),
    )


def _comparable(points: Tensor, known: Tensor) -> bool:
    """Return whether lengths in both mean the same: one width, and both of unit rows or neither."""
    unit = [bool(((torch.linalg.vector_norm(rows, dim=1) - 1).abs() < UNIT).all()) for rows in (points, known)]
    return points.shape[1] == known.shape[1] and unit[0] == unit[1]


def _reference(reference: Array, count: int, distance: Metric) -> Tensor:
    if len(reference) != count:
        raise ValueError(
            f"the reference must embed the same items in the same order: got {len(reference)} rows for {count} items; "
            "give one row for each."
        )
    return as_points(reference, distance=distance)


def _references(reference: Array | Mapping[str, Array] | None, count: int, distance: Metric) -> dict[str, Tensor]:
    """Name -> points; a single one is "the reference"."""
    if reference is None:
        return {}
    named = reference if isinstance(reference, Mapping) else {"the reference": reference}
    return {name: _reference(known, count, distance) for name, known in named.items()}


def _first(reference: Array | Mapping[str, Array] | None) -> Array:
    """The first of the references, as it came."""
    assert reference is not None
    return next(iter(reference.values())) if isinstance(reference, Mapping) else reference


def _sample(count: int, seed: int, *, most: int = QUERIES) -> Integers | None:
    return None if count <= most else np.sort(np.random.default_rng(seed).permutation(count)[:most])


def _tail(norms: Tensor) -> float:
    some = norms[norms > 0]
    return float(some.max() / some.median()) if len(some) else 1.0


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def _ranks(points: Tensor, classes: Tensor) -> Floats:
    groups = (points[rows] for rows in class_members(classes.numpy()))
    return np.array([rank_of(by_products(centred(rows))) if len(rows) > 1 else math.nan for rows in groups])
