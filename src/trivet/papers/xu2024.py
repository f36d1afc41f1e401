"""Xu et al.: Mathematical justification of hard negative mining via isometric approximation theorem (ICLR 2024).

Checks of its inequalities on small sets of points, of the faults in its proofs, and of its forecast of collapse, which
is put to the test by descending on the loss of free points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from trivet.papers.checks import Check
from trivet.theory import isometry
from trivet.theory.isometry import LossSandwich

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

STEP = 0.02
PLANE = np.array([[0.0, 0.0], [2.0, 0.5], [1.0, 1.5], [1.2, 0.2], [3.0, 1.0]])
PLANE_CLASSES = np.array([0, 0, 0, 1, 1])


@dataclass(frozen=True)
class Descent:
    """Where gradient descent on the loss of free points ended."""

    points: Floats  # (N, d)
    steps: int  # taken; fewer than asked for if the loss reached 0


def descend(points: Floats, classes: Integers, *, reduction: Literal["sum", "max"], steps: int) -> Descent:
    """Gradient descent by steps of 0.02 on hardest-positive, hardest-negative hinges without margin, of free points.

    Args:
        points: `(N, d)`.
        classes: `(N,)`, at least two of them.
        reduction: "sum" over the anchors, or "max", the worst triplet alone.
        steps: at most; it stops where the loss is 0.

    Source:
        Xu et al., ICLR 2024, section 4.1; step size and labels are Trivet's.
    """
    z = points.copy()
    anchors = np.arange(len(z))
    same = classes[:, None] == classes
    for step in range(steps):
        difference = z[:, None] - z
        distances = np.sqrt((difference**2).sum(axis=2) + 1e-16)
        positive = np.where(same, distances, -np.inf).argmax(axis=1)
        negative = np.where(same, np.inf, distances).argmin(axis=1)
        losses = distances[anchors, positive] - distances[anchors, negative]
        if losses.max() <= 0:
            return Descent(z, step)
        weights = (losses > 0).astype(float) if reduction == "sum" else (anchors == losses.argmax()).astype(float)
        slopes = np.zeros_like(distances)
        slopes[anchors, positive] = weights
        slopes[anchors, negative] -= weights
        pulls = (slopes + slopes.T) / distances
        z = z - STEP * (pulls[..., None] * difference).sum(axis=1)
    return Descent(z, steps)


def gaussian(seed: int, n: int, d: int) -> Floats:
    """n points of independent standard normal coordinates `(n, d)`."""
    return np.random.RandomState(seed).randn(n, d)


# Descent on the hardest triplet shrinks these six points below the diameter that equation (17) allows.
SHRINKING = gaussian(0, 6, 2)


def checks() -> list[Check]:
    """One row for each statement of the paper, or fault of it, that a computation can settle; about 3 s."""
    plane = [isometry.loss_sandwich(gaussian(seed, 5, 2), PLANE_CLASSES, starts=4) for seed in range(16)]
    margins = [isometry.loss_sandwich(gaussian(seed, 5, 2), PLANE_CLASSES, margin=0.1, starts=4) for seed in range(6)]
    space = [isometry.loss_sandwich(gaussian(seed, 6, 5), np.arange(6) % 2, starts=4) for seed in range(3)]
    return [
        *definition_checks(),
        *inequality_checks(plane, margins, space),
        *proof_checks(),
        *forecast_checks(),
    ]


def definition_checks() -> list[Check]:
    """The loss, the set of separated embeddings and the distances between embeddings."""
    centres = np.array([[0.0, 0.0], [3.0, 0.0]])[np.arange(6) % 2]
    cases = [centres + scale * gaussian(seed, 6, 2) for seed in range(20) for scale in (1.0, 0.1)]
    agree = 0
    for points in cases:
        loss = isometry.batch_hard_loss(points, np.arange(6) % 2)
        mean = isometry.batch_hard_loss(points, np.arange(6) % 2, reduction="mean")
        separated = isometry.triplet_separation(points, np.arange(6) % 2).separated
        agree += (loss == 0) == (mean == 0) == separated and mean <= loss
    line, halves = np.arange(4.0)[:, None], np.array([0, 0, 1, 1])
    cone = [isometry.triplet_separation(s * line, halves).separated for s in (0.0, 1e-3, 1.0, 1e3)]
    collapsed = np.ones((4, 2))
    at_margin = isometry.batch_hard_loss(collapsed, halves, margin=0.3)
    swapped = np.array([[0.0], [1.0]])
    d_haus = isometry.class_hausdorff_distance(swapped, swapped[::-1].copy(), np.zeros(2, int))
    d_disp = isometry.displacement(swapped, swapped[::-1].copy())
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    moved = [
        abs(
            isometry.triplet_separation(points @ rotation + 7, PLANE_CLASSES, margin=0.1).worst_gap
            - isometry.triplet_separation(points, PLANE_CLASSES, margin=0.1).worst_gap
        )
        for points in (gaussian(seed, 5, 2) for seed in range(10))
    ]
    lemma = [_lemma(seed) for seed in range(20)]
    return [
        Check(
            "xu2024-zero-loss",
            "The loss of the hardest triplet is 0 exactly for separated embeddings, and so is the mean over anchors.",
            f"{len(cases)} of {len(cases)} embeddings",
            f"{agree} of {len(cases)}",
            agree == len(cases),
        ),
        Check(
            "xu2024-cone",
            "Without a margin every multiple >= 0 of a separated embedding is separated, the full collapse included.",
            "separated at every scale",
            f"separated at scales 0, 0.001, 1, 1000: {cone}",
            all(cone),
        ),
        Check(
            "xu2024-collapse-is-optimal-without-margin",
            "Full collapse is a global optimum of the loss for margin 0; for a margin above 0 its loss is the margin.",
            "0 and 0.3",
            f"{isometry.batch_hard_loss(collapsed, halves):g} and {at_margin:g}",
            isometry.batch_hard_loss(collapsed, halves) == 0 and at_margin == 0.3,
        ),
        Check(
            "xu2024-pseudo-metric",
            "The Hausdorff-like distance does not see a permutation inside a class, so it is no metric.",
            "distance 0 at displacement 1",
            f"distance {d_haus:g} at displacement {d_disp:g}",
            d_haus == 0 and d_disp == 1,
        ),
        Check(
            "xu2024-rigid-motions",
            "Rigid motions keep an embedding separated, which repairs step (22), where an isometry is left out.",
            "the gap changes by < 1e-12",
            f"by at most {max(moved):.1e}",
            max(moved) < 1e-12,
        ),
        Check(
            "xu2024-displacement-lemma",
            "Images can be matched so that a separated embedding at Hausdorff-like distance r moves no point by more.",
            "20 of 20 random separated embeddings",
            f"{sum(lemma)} of 20",
            all(lemma),
        ),
    ]


def _lemma(seed: int) -> bool:
    """Whether the nearest images of a random separated embedding are separated and no farther than its d_haus."""
    points = gaussian(seed, 8, 2)
    classes = np.arange(8) % 2
    g = 0.2 * gaussian(seed + 100, 8, 2) + np.array([[0.0, 0.0], [3.0, 0.0]])[classes]
    matched = isometry.nearest_images(points, g, classes)
    return (
        isometry.triplet_separation(g, classes).separated
        and isometry.triplet_separation(matched, classes).separated
        and isometry.displacement(points, matched) <= isometry.class_hausdorff_distance(points, g, classes) + 1e-12
    )


def inequality_checks(
    plane: Sequence[LossSandwich], margins: Sequence[LossSandwich], space: Sequence[LossSandwich]
) -> list[Check]:
    """Theorems 3.2 and 3.3 on five points in the plane, without and with a margin, and on six in five dimensions."""
    every = [found for found in (*plane, *margins, *space) if found.loss > 0]
    c_iso = [found.isometric_per_loss for found in every]
    c_haus = [found.hausdorff_per_isometric for found in every]
    per_loss = [found.hausdorff_per_loss for found in every]
    balls = [found.hausdorff.value / found.enclosing for found in (*plane, *space)]
    line = isometry.loss_sandwich(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]))
    spread = [found.hausdorff_per_isometric for found in plane if found.loss > 0]
    in_space = [found.isometric_per_loss for found in space]
    return [
        _at_least("xu2024-theorem-3.2-lower", "d_iso is at most twice d_haus.", 0.5, c_haus),
        _at_least(
            "xu2024-theorem-3.3-lower",
            "The loss is at most twice d_iso; formula (46) says so, the words around it the reverse.",
            0.5,
            c_iso,
        ),
        _at_least("xu2024-loss-four-hausdorff", "The loss is at most four times d_haus.", 0.25, per_loss),
        _at_most("xu2024-enclosing-balls", "Without margin d_haus is at most the largest radius of a class.", 1, balls),
        _at_most(
            "xu2024-theorem-3.3-upper",
            "d_iso is at most twice the loss: the proof does not hold, but no counterexample was found.",
            2,
            c_iso,
        ),
        _at_most(
            "xu2024-forecast-factor",
            "d_haus is at most the loss, so 2 is the factor of equation (17) for the nearest separated embedding.",
            1,
            per_loss,
        ),
        Check(
            "xu2024-lower-halves-attained",
            "Four points on a line attain both proven bounds: d_iso is half the loss and d_haus half of d_iso.",
            "0.5 and 0.5, to 1e-6",
            f"{line.isometric_per_loss:.7f} and {line.hausdorff_per_isometric:.7f}",
            abs(line.isometric_per_loss - 0.5) < 1e-6 and abs(line.hausdorff_per_isometric - 0.5) < 1e-6,
        ),
        Check(
            "xu2024-isometric-error-in-space",
            "With room enough (six points in five dimensions) d_iso is exactly half the loss.",
            "0.5 to 1e-3",
            f"{max(in_space):.5f}",
            max(in_space) < 0.501,
        ),
        Check(
            "xu2024-toy-ratio",
            "The paper's ratio 0.53 of d_haus to d_iso on five points is neither typical nor an upper bound.",
            "median above 0.53",
            f"median {median(spread):.3f}, largest {max(spread):.3f}",
            median(spread) > 0.53,
        ),
    ]


def _at_least(name: str, statement: str, bound: float, found: Sequence[float]) -> Check:
    holds = min(found) >= bound * (1 - 1e-6)
    return Check(name, statement, f"ratio >= {bound:g}", f"{len(found)} cases, smallest {min(found):.4f}", holds)


def _at_most(name: str, statement: str, bound: float, found: Sequence[float]) -> Check:
    holds = max(found) <= bound * (1 + 1e-6)
    return Check(name, statement, f"ratio <= {bound:g}", f"{len(found)} cases, largest {max(found):.4f}", holds)


def proof_checks() -> list[Check]:
    """What is wrong in the proofs."""
    thin = [isometry.thickness(gaussian(0, n, d)) for n, d in ((3, 4), (32, 32), (128, 128))]
    f = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    ratios = []
    for height in (0.1, 0.01):
        g = f + np.array([[0.0, 0.0], [0.0, height], [0.0, 0.0]])
        # A rigid motion keeps the second difference at 0, that of g is 2 h: some point is off by a quarter of that.
        least = float(np.linalg.norm(g[0] - 2 * g[1] + g[2])) / 4
        most = isometry.displacement(g, f + np.array([0.0, height / 2]))
        ratios.append((least / isometry.isometric_error(f, g), most / isometry.isometric_error(f, g)))
    points, other = gaussian(0, 10, 2), gaussian(1, 10, 2)
    thick = isometry.thickness(2 * points) / isometry.thickness(points)
    distances = [
        isometry.displacement(2 * points, 2 * other) / isometry.displacement(points, other),
        isometry.isometric_error(2 * points, 2 * other) / isometry.isometric_error(points, other),
    ]
    merged, apart = np.zeros((2, 1)), np.array([[0.0], [0.1]])
    error, at_merged = isometry.isometric_error(merged, apart), float(np.abs(merged - apart)[1, 0])
    at_first = float(np.abs(merged - apart)[0, 0])
    line, halves = np.array([[0.0], [1.0], [2.1], [3.1]]), np.array([0, 0, 1, 1])
    gaps = [isometry.triplet_separation(s * line, halves, margin=0.1) for s in (1.0, 0.9)]
    nearest = isometry.distance_to_separation(PLANE, PLANE_CLASSES, margin=0.1, measure="isometric")
    changes = (pdist(nearest.witness) - pdist(PLANE))[pdist(PLANE_CLASSES[:, None]) > 0]
    extremes = changes[np.abs(changes) >= nearest.value * (1 - 1e-3)]
    return [
        Check(
            "xu2024-thickness-zero",
            "Sets of at most d points have thickness 0, so theorem 2.4 says nothing of batches of at most d items.",
            "0",
            ", ".join(f"{value:g}" for value in thin),
            max(thin) == 0,
        ),
        Check(
            "xu2024-lemma-not-linear",
            "Lift the middle of three points in a line by h: the best rigid motion is off by 1 / h times the error.",
            "10.02 at h = 0.1 and 100.0 at h = 0.01",
            ", ".join(f"between {low:.3f} and {high:.3f}" for low, high in ratios),
            all(abs(end - want) < 0.01 for ends, want in zip(ratios, (10.02, 100.0), strict=True) for end in ends),
        ),
        Check(
            "xu2024-constant-depends-on-scale",
            "The constant over the thickness of lemma A.1 halves when all is doubled; the ratio it bounds stays.",
            "thickness x 2, both distances x 2",
            f"thickness x {thick:.6f}, distances x {distances[0]:.6f} and x {distances[1]:.6f}",
            all(abs(ratio - 2) < 1e-9 for ratio in (thick, *distances)),
        ),
        Check(
            "xu2024-coinciding-points",
            "Where f maps two items to one point, the second may move by the isometric error although the first "
            "does not, against the printed inequality.",
            "displacement at most 0 is printed",
            f"displacements {at_first:g} and {at_merged:g}, isometric error {error:g}",
            at_merged > at_first and at_merged <= at_first + error,
        ),
        Check(
            "xu2024-shrinking-leaves-the-set",
            "With a margin above 0 a separated embedding scaled by 0.9 may not be separated, against the proof of "
            "theorem 3.3.",
            "separated, then not",
            f"gap {gaps[0].worst_gap:.3f}, then {gaps[1].worst_gap:.3f}",
            gaps[0].separated and not gaps[1].separated,
        ),
        Check(
            "xu2024-signs-of-changes",
            "In the nearest separated embedding negatives need not only move apart: the largest changes of distances "
            "between classes have both signs.",
            "a change of each sign within 0.1 % of d_iso",
            f"d_iso {nearest.value:.5f}, changes {', '.join(f'{change:+.5f}' for change in extremes)}",
            bool((extremes > 0).any() and (extremes < 0).any()),
        ),
    ]


def forecast_checks() -> list[Check]:
    """Equations (16) and (17), and what descent on the loss does."""
    twenty = gaussian(0, 20, 2)
    nearest = isometry.distance_to_separation(twenty, np.arange(20) % 2, starts=4, steps=600)
    before, after = isometry.diameter(twenty), isometry.diameter(nearest.witness)
    kept = float(pdist(nearest.witness).mean() / pdist(twenty).mean())
    line, halves = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    at_zero = isometry.distance_to_separation(line, halves).value
    doubled = isometry.triplet_separation(2 * line, halves).separated
    grown = isometry.diameter(2 * line) - isometry.diameter(line)
    classes = np.arange(6) % 2
    loss = isometry.batch_hard_loss(SHRINKING, classes)
    promised = isometry.diameter_forecast(isometry.diameter(SHRINKING), loss)
    end = descend(SHRINKING, classes, reduction="max", steps=1000)
    end_loss, end_diameter = isometry.batch_hard_loss(end.points, classes), isometry.diameter(end.points)
    shrunk = {n: _shrinkage(n, "sum") for n in (4, 20, 80)}
    slow = {n: _shrinkage(n, "max") for n in (4, 80)}
    shapes = {(n, d): _shape(n, k, d) for n, k, d in ((32, 4, 4), (32, 4, 128), (72, 4, 4), (4, 2, 128), (576, 32, 32))}
    vacuous = {shape: isometry.diameter_forecast(*found).vacuous for shape, found in shapes.items()}
    low, high = _shape(32, 4, 32), _shape(32, 4, 1024)
    return [
        Check(
            "xu2024-equation-16-nearest",
            "The nearest separated embedding differs in diameter by at most twice its Hausdorff-like distance.",
            f"at most {2 * nearest.value:.3f}",
            f"{abs(after - before):.3f}",
            abs(after - before) <= 2 * nearest.value,
        ),
        Check(
            "xu2024-equation-16-any",
            "Equation (16) fails for whichever separated embedding training reaches: twice one is separated too.",
            "difference above twice the distance",
            f"difference {grown:g}, distance {at_zero:g}",
            doubled and grown > 2 * at_zero,
        ),
        Check(
            "xu2024-nearest-is-no-point",
            "The nearest separated embedding of 20 points in the plane is about half as large, not a point.",
            "ratio of mean distances in [0.4, 0.8]",
            f"{kept:.3f}",
            0.4 <= kept <= 0.8,
        ),
        Check(
            "xu2024-equation-17-descent",
            "Descent on the hardest triplet of six points ends with loss 0 below the diameter equation (17) promises.",
            "loss 0, diameter below the bound",
            f"loss {end_loss:g} after {end.steps} steps, diameter {end_diameter:.4f}, bound {promised.bound:.4f}",
            end_loss == 0 and not promised.vacuous and end_diameter < promised.bound,
        ),
        Check(
            "xu2024-larger-batch-shrinks-more",
            "Descent on the sum over anchors shrinks larger sets more; 50 steps on the worst triplet alone do not.",
            "falls with N for the sum, not for the maximum",
            f"sum {_listed(shrunk)}; maximum {_listed(slow)}",
            shrunk[4] > shrunk[20] > shrunk[80] and slow[80] >= slow[4],
        ),
        Check(
            "xu2024-equation-17-vacuous",
            "In low dimension or for large batches the bound of equation (17) is below 0 and says nothing.",
            "vacuous for (N, d) = (32, 4), (72, 4), (576, 32), not for (32, 128), (4, 128)",
            f"vacuous for {[shape for shape, empty in vacuous.items() if empty]}",
            {shape for shape, empty in vacuous.items() if empty} == {(32, 4), (72, 4), (576, 32)},
        ),
        Check(
            "xu2024-scales",
            "Of normal points the diameter grows like the root of 2 d while the loss hardly changes.",
            "diameter / sqrt(2 d) within 0.4 of 1; losses within 20 % of each other",
            f"diameters {low[0]:.1f} and {high[0]:.1f}, losses {low[1]:.2f} and {high[1]:.2f} at d = 32 and 1024",
            all(abs(found[0] / math.sqrt(2 * d) - 1) < 0.4 for found, d in ((low, 32), (high, 1024)))
            and abs(high[1] / low[1] - 1) < 0.2,
        ),
    ]


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{value:.3f} (N = {n})" for n, value in values.items())


def _shrinkage(n: int, reduction: Literal["sum", "max"]) -> float:
    """Diameter after 50 steps over the one before, mean of 5 seeds."""
    starts = [gaussian(seed, n, 2) for seed in range(5)]
    return fmean(
        isometry.diameter(descend(points, np.arange(n) % 2, reduction=reduction, steps=50).points)
        / isometry.diameter(points)
        for points in starts
    )


def _shape(n: int, samples_per_class: int, d: int) -> tuple[float, float]:
    """Diameter and loss of normal points in classes of that size, mean of 5 seeds."""
    classes = np.arange(n) // samples_per_class
    sets = [gaussian(seed, n, d) for seed in range(5)]
    return fmean(map(isometry.diameter, sets)), fmean(isometry.batch_hard_loss(points, classes) for points in sets)
