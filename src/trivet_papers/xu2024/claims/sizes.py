"""Sections 2 and 3.1: the loss, the separated embeddings, and the sizes and distances of points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import pdist

from trivet.collapse.spectrum import effective_rank, rank_of
from trivet_papers.checks import Check, Checker, as_text
from trivet_papers.xu2024 import isometry, nearest_separated
from trivet_papers.xu2024.point_sets import MOVED, PLANE, PLANE_CLASSES, SOLID, gaussian

check = Checker("xu2024")


def definition_checks() -> Iterator[Check]:
    """The loss, the set of separated embeddings and the distances between embeddings."""
    centres = np.array([[0.0, 0.0], [3.0, 0.0]])[np.arange(6) % 2]
    cases = [centres + scale * gaussian(seed, 6, 2) for seed in range(20) for scale in (1.0, 0.1)]
    agree, least = 0, 0.0
    for points in cases:
        loss = isometry.batch_hard_loss(points, np.arange(6) % 2)
        mean = isometry.batch_hard_loss(points, np.arange(6) % 2, reduction="mean")
        separated = isometry.triplet_separation(points, np.arange(6) % 2).separated
        agree += (loss == 0) == (mean == 0) == separated and mean <= loss
        least = min(least, loss)
    line, halves = np.arange(4.0)[:, None], np.array([0, 0, 1, 1])
    cone = [isometry.triplet_separation(s * line, halves).separated for s in (0.0, 1e-3, 1.0, 1e3)]
    collapsed = np.ones((4, 2))
    at_margin = isometry.batch_hard_loss(collapsed, halves, margin=0.3)
    swapped = np.array([[0.0], [1.0]])
    d_haus = isometry.class_hausdorff_distance(swapped, swapped[::-1].copy(), np.zeros(2, int))
    d_disp = isometry.displacement(swapped, swapped[::-1].copy())
    merged = np.zeros((2, 1))
    pair = np.zeros(2, int)
    both_ways = [isometry.class_hausdorff_distance(f, g, pair) for f, g in ((swapped, merged), (merged, swapped))]
    lemma = [_lemma(seed) for seed in range(20)]
    alone = isometry.triplet_separation(PLANE, np.zeros(5, int), margin=3.0)
    constant = isometry.triplet_separation(np.array([[0.0, 1.0], [0.1, 1.0]])[PLANE_CLASSES], PLANE_CLASSES)
    bounds = [
        isometry.class_hausdorff_distance(gaussian(seed, 8, 2), gaussian(seed + 50, 8, 2), np.arange(8) % 2)
        <= isometry.displacement(gaussian(seed, 8, 2), gaussian(seed + 50, 8, 2))
        for seed in range(20)
    ]
    separate_points = np.array([[0.0], [1.0], [5.0], [6.0]])
    signed = [isometry.hardest_triplet(s * separate_points, halves).violation for s in (1.0, 10.0, 100.0)]
    hinges = [isometry.batch_hard_loss(s * separate_points, halves) for s in (1.0, 10.0, 100.0)]
    yield check(
        "zero-loss",
        "The loss of the hardest triplet is 0 exactly for separated embeddings, and so is the mean over anchors.",
        f"{len(cases)} of {len(cases)} embeddings",
        f"{agree} of {len(cases)}",
        agree == len(cases),
    )
    yield check(
        "cone",
        "Without a margin every multiple >= 0 of a separated embedding is separated, the full collapse included.",
        "separated at every scale",
        f"separated at scales 0, 0.001, 1, 1000: {cone}",
        all(cone),
    )
    yield check(
        "collapse-is-optimal-without-margin",
        "Full collapse is a global optimum of the loss for margin 0; for a margin above 0 its loss is the margin.",
        f"0, not above that of any of {len(cases)} embeddings, and 0.3",
        f"{isometry.batch_hard_loss(collapsed, halves):g}, {least:g} at least, and {at_margin:g}",
        isometry.batch_hard_loss(collapsed, halves) == 0 <= least and at_margin == 0.3,
    )
    yield check(
        "class-constant",
        "Without a margin an embedding that maps each class to a point of its own is separated.",
        "separated",
        f"worst gap {constant.worst_gap:g}",
        constant.separated,
    )
    yield check(
        "one-class",
        "With one class there is no triplet, so every embedding is separated, whatever the margin.",
        "separated at margin 3",
        f"separated: {alone.separated}, worst gap {alone.worst_gap:g}",
        alone.separated,
    )
    yield check(
        "short-version-hinge",
        "The short version's loss lacks the hinge: without it the loss of a separated embedding has no lower "
        "bound, as growing lowers it for ever.",
        "falls with the scale; with the hinge 0 at every scale",
        f"{as_text(signed)} at scales 1, 10, 100; with the hinge {as_text(hinges)}",
        signed[0] > signed[1] > signed[2] and max(hinges) == 0,
    )
    yield check(
        "displacement-bounds-hausdorff",
        "The Hausdorff-like distance of two embeddings is at most the largest displacement of an item.",
        "20 of 20 random pairs",
        f"{sum(bounds)} of 20",
        all(bounds),
    )
    yield check(
        "pseudo-metric",
        "The Hausdorff-like distance does not see a permutation inside a class, so it is no metric.",
        "distance 0 at displacement 1",
        f"distance {d_haus:g} at displacement {d_disp:g}",
        d_haus == 0 and d_disp == 1,
    )
    yield check(
        "hausdorff-both-ways",
        "The Hausdorff-like distance is the larger one of both ways: from 0, 1 to 0, 0 it is 1, and so it is back.",
        "1 and 1",
        as_text(both_ways),
        both_ways == [1, 1],
    )
    yield check(
        "displacement-lemma",
        "Images can be matched so that a separated embedding at Hausdorff-like distance r moves no point by more.",
        "20 of 20 random separated embeddings",
        f"{sum(lemma)} of 20",
        all(lemma),
    )


def _lemma(seed: int) -> bool:
    """True if the nearest images of a random separated embedding are separated and no farther than its d_haus."""
    points = gaussian(seed, 8, 2)
    classes = np.arange(8) % 2
    g = 0.2 * gaussian(seed + 100, 8, 2) + np.array([[0.0, 0.0], [3.0, 0.0]])[classes]
    matched = isometry.nearest_images(points, g, classes)
    return (
        isometry.triplet_separation(g, classes).separated
        and isometry.triplet_separation(matched, classes).separated
        and isometry.displacement(points, matched) <= isometry.class_hausdorff_distance(points, g, classes) + 1e-12
    )


def vector_checks() -> Iterator[Check]:
    """Reference values of small sets."""
    losses = [
        isometry.batch_hard_loss(PLANE, PLANE_CLASSES, margin=margin, reduction=reduction)
        for margin in (0.0, 0.1)
        for reduction in ("max", "mean")
    ]
    lengths = pdist(PLANE)
    sizes = [isometry.diameter(PLANE), float(lengths.mean()), float(np.median(lengths)), isometry.thickness(PLANE)]
    ranks = [effective_rank(PLANE), rank_of(np.linalg.svd(PLANE, compute_uv=False))]
    moves = [
        isometry.class_hausdorff_distance(PLANE, MOVED, PLANE_CLASSES),
        isometry.displacement(PLANE, MOVED),
        isometry.isometric_error(PLANE, MOVED),
    ]
    nearest = []
    for margin in (0.0, 0.1):
        sandwich = nearest_separated.loss_sandwich(PLANE, PLANE_CLASSES, margin=margin, starts=24)
        nearest += [sandwich.hausdorff.value, sandwich.isometric.value]
    solid = [isometry.thickness(SOLID), isometry.diameter(SOLID)]
    same = []
    for d in (2, 3, 4):
        for seed in range(4):
            points = gaussian(seed, 12, d)
            same.append(abs(isometry.thickness_bound(points, restarts=10) / isometry.thickness(points) - 1))
    halves = np.array([0, 0, 1, 1])
    lines: list[tuple[list[float], float]] = [([0, 1, 2, 3], 0), ([0, 1, 2, 3], 0.01), ([0, 1, 1.9, 3], 0)]
    separated = [
        isometry.triplet_separation(np.array(line, dtype=float)[:, None], halves, margin=margin).separated
        for line, margin in [*lines, ([4, 4, 4, 4], 0), ([4, 4, 4, 4], 0.01)]
    ]
    yield check.values(
        "vector-losses",
        "Losses of five points in the plane: of the hardest triplet and mean, without margin and with 0.1.",
        (1.2071524383, 0.9013484993, 1.3071524383, 1.0013484993),
        losses,
        relative=True,
    )
    yield check.values(
        "vector-sizes",
        "Diameter, mean and median distance, and thickness of the five points.",
        (3.1622776602, 1.6976425559, 1.6084946001, 1.2874526192),
        sizes,
        relative=True,
    )
    yield check.values(
        "vector-effective-rank",
        "Effective rank (RankMe) of the five points, centred and as they are.",
        (1.8675914151, 1.6671206715),
        ranks,
        relative=True,
    )
    yield check.values(
        "vector-distances",
        "Hausdorff-like distance, displacement and isometric error from the five points to five others.",
        (0.7211102551, 0.7211102551, 0.8881061777),
        moves,
        relative=True,
    )
    yield check.values(
        "vector-nearest",
        "Distances d_haus and d_iso of the five points to separation, without margin and with 0.1, of 24 searches.",
        (0.63842428, 0.61395797, 0.67692062, 0.65447751),
        nearest,
        tolerance=1e-4,
        relative=True,
    )
    yield check.values(
        "vector-solid",
        "Thickness and diameter of six points in space.",
        (1.3416407865, 3.6400549446),
        solid,
        relative=True,
    )
    yield check(
        "thickness-two-ways",
        "The thickness by calipers or difference body is the width that iterated linear programs end at.",
        "relative difference < 1e-9 (own bound) for 12 sets of 12 points, d = 2, 3, 4",
        f"at most {max(same):.1e}",
        max(same) < 1e-9,
    )
    yield check(
        "separation-on-a-line",
        "Four points of a line at 0, 1 | 2, 3 are separated without margin only, at 0, 1 | 1.9, 3 not, and all "
        "equal without margin only.",
        "yes, no, no, yes, no",
        ", ".join("yes" if each else "no" for each in separated),
        separated == [True, False, False, True, False],
    )
    yield _exact_lines()


# Points of a line, classes, margin; the loss, its mean over anchors, d_iso and d_haus.
LINES = (
    ((0, 1, 0.6, 2, 2.5), (0, 0, 1, 1, 1), 0.0, (1.5, 0.66, 0.7666666667, 0.575)),
    ((0, 1, 0.6, 2, 2.5), (0, 0, 1, 1, 1), 0.25, (1.75, 0.91, 0.875, 0.6375)),
    ((0, 2, 1, 3), (0, 0, 1, 1), 0.0, (1.0, 1.0, 1.0, 0.75)),
    ((0, 2, 1, 3), (0, 0, 1, 1), 0.25, (1.25, 1.25, 1.0833333333, 0.8125)),
    ((0, 1, 1.5, 2.5), (0, 0, 1, 1), 0.0, (0.5, 0.25, 0.25, 0.125)),
    ((0, 1, 1.5, 2.5), (0, 0, 1, 1), 0.25, (0.75, 0.375, 0.375, 0.1875)),
    ((0, 0.9, 2, 2.2, 3.7), (0, 0, 1, 1, 0), 0.0, (2.2, 1.12, 1.8, 1.35)),
    ((0, 0.9, 2, 2.2, 3.7), (0, 0, 1, 1, 0), 0.25, (2.45, 1.27, 1.8833333333, 1.4125)),
)


def _exact_lines() -> Check:
    errors, above = [], []
    for line, classes, margin, wanted in LINES:
        points, labels = np.array(line, dtype=float)[:, None], np.array(classes)
        values = (
            isometry.batch_hard_loss(points, labels, margin=margin),
            isometry.batch_hard_loss(points, labels, margin=margin, reduction="mean"),
            nearest_separated.distance_on_a_line(points, labels, margin=margin, measure="isometric"),
            nearest_separated.distance_on_a_line(points, labels, margin=margin),
        )
        errors += [abs(value - want) for value, want in zip(values, wanted, strict=True)]
        search = nearest_separated.loss_sandwich(points, labels, margin=margin)
        above += [search.isometric.value / values[2], search.hausdorff.value / values[3]]
    return check(
        "exact-on-a-line",
        "Losses and exact distances of eight sets on a line; the search finds each distance or a local minimum.",
        "32 values to 1e-9; the search at most 5 % above",
        f"off by at most {max(errors):.1e}; search at most {100 * (max(above) - 1):.1f} % above",
        max(errors) < 1e-9 and min(above) > 1 - 1e-6 and max(above) < 1.05,
    )
