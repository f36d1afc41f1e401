"""Separation, thickness and distances of embeddings: definitions 2.1, 2.3 and 3.1, equations (3) to (15).

Embeddings are `(N, d)` floating point, N >= 1, labels `(N,)` of any integer dtype; wrong ones raise a ValueError.

Source:
    Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist, pdist

from trivet.collapse.isometry import (
    as_points,
    as_points_and_classes,
    batch_hard_loss,
    diameter,
    diameter_bound,
    gaps_of,
    same_class,
)
from trivet.distances import Array, as_classes
from trivet.runtime.arguments import check_at_least
from trivet.runtime.arrays import Floats

__all__ = ["batch_hard_loss", "diameter", "diameter_bound"]  # beside what is defined here

Function = Callable[[Floats], Floats]
Measure = Literal["hausdorff", "isometric"]
TOLERANCE = 1e-9  # of the diameter: what a separation may lack
RANK = 1e-12  # of the largest singular value: below it points lie in a hyperplane
EXACT_DIM = 5  # beyond it the difference body has too many facets
SMOOTH = 1e-16  # under every square root that is differentiated


@dataclass(frozen=True)
class Separation:
    """Test that every anchor is nearer to its farthest positive than to its nearest negative, by the margin."""

    separated: bool  # the worst gap is >= 0, up to 1e-9 of the diameter
    worst_gap: float  # min over anchors of D(a, n) - D(a, p) - margin; infinite with one class


def triplet_separation(embeddings: Array, labels: Array, *, margin: float = 0.0) -> Separation:
    """Test D(a, p) + margin <= D(a, n) for all a, p of one class and n of another; an anchor is its own positive.

    D is the plain Euclidean distance of the rows as they are. With margin 0, all points equal is separated.

    Source:
        Definition 2.1, equations (3), (5).

    Example:
        >>> line = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> triplet_separation(line, np.array([0, 0, 1, 1]))
        Separation(separated=True, worst_gap=0.0)
    """
    points, classes = as_points_and_classes(embeddings, labels)
    distances = cdist(points, points)
    gap = float(gaps_of(distances, same_class(classes), check_at_least(0, margin, name="margin")).min())
    return Separation(bool(gap >= -TOLERANCE * distances.max()), gap)


@dataclass(frozen=True)
class Triplet:
    """Rows of an anchor, its positive and its negative, and D(a, p) - D(a, n) + margin, which may be below 0."""

    anchor: int
    positive: int
    negative: int
    violation: float


def hardest_triplet(embeddings: Array, labels: Array, *, margin: float = 0.0) -> Triplet:
    """The triplet of largest D(a, p) - D(a, n) + margin, which hard negative mining trains on; lowest rows in a tie.

    Source:
        Equation (4) and figure 3, right.

    Example:
        >>> hardest_triplet(np.array([[0.0], [2.0], [1.5], [3.0]]), np.array([0, 0, 1, 1]))
        Triplet(anchor=1, positive=0, negative=2, violation=1.5)
    """
    points, classes = as_points_and_classes(embeddings, labels)
    if not classes.any():
        raise ValueError("labels must hold at least two classes: got one; without a negative there is no triplet.")
    distances, same = cdist(points, points), same_class(classes)
    violations = -gaps_of(distances, same, margin)
    anchor = int(violations.argmax())
    return Triplet(
        anchor=anchor,
        positive=int(np.where(same, distances, -np.inf)[anchor].argmax()),
        negative=int(np.where(same, np.inf, distances)[anchor].argmin()),
        violation=float(violations[anchor]),
    )


def separation_boundaries(
    embeddings: Array, labels: Array, *, margin: float = 0.0, resolution: float = 0.02
) -> list[list[Floats]]:
    """The border around each class that no item of another class may cross, as arcs of points in the plane.

    An item of another class at z has loss 0 with every anchor x of the class if |x - z| >= D(x, p) + margin, D(x, p)
    the distance of x to the farthest item of the class: if z is in none of these open discs. The border of their union
    is returned.

    Args:
        resolution: angle between two points of an arc, in radians.

    Returns:
        For each class in the order of its label, arcs `(M, 2)`; none for a class of one point with margin 0.

    Source:
        Inequality (5) and figures 1 and 2.

    Example:
        >>> arcs = separation_boundaries(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0, 0]))
        >>> len(arcs), [float(np.concatenate(arcs[0])[:, 0].min()), float(np.concatenate(arcs[0])[:, 0].max())]
        (1, [-1.0, 2.0])
    """
    points, classes = as_points_and_classes(embeddings, labels)
    borders = []
    for c in range(classes.max() + 1):
        centres = points[classes == c]
        distances = cdist(centres, centres)
        borders.append(_union_border(centres, distances, distances.max(axis=1) + margin, resolution))
    return borders


def _union_border(centres: Floats, distances: Floats, radii: Floats, resolution: float) -> list[Floats]:
    """Arcs `(M, 2)` of the border of the union of discs; equal discs give their arcs once."""
    arcs = []
    for i, (centre, radius) in enumerate(zip(centres, radii, strict=True)):
        if radius == 0 or any(distances[i, j] == 0 and radii[j] == radius for j in range(i)):
            continue
        cuts = [0.0, 2 * math.pi]
        for j in np.flatnonzero((distances[i] > 0) & (distances[i] < radius + radii)):
            cosine = (radius**2 + distances[i, j] ** 2 - radii[j] ** 2) / (2 * radius * distances[i, j])
            if abs(cosine) < 1:
                towards = math.atan2(*(centres[j] - centre)[::-1])
                cuts += [(towards + side * math.acos(cosine)) % (2 * math.pi) for side in (-1, 1)]
        for low, high in pairwise(sorted(cuts)):
            middle = centre + radius * np.array([math.cos((low + high) / 2), math.sin((low + high) / 2)])
            inside = np.linalg.norm(centres - middle, axis=1) < radii * (1 - TOLERANCE)
            inside[i] = False
            if high - low > TOLERANCE and not inside.any():
                angles = np.linspace(low, high, 2 + int((high - low) / resolution))
                arcs.append(centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    return arcs


def thickness(embeddings: Array) -> float:
    """Smallest width of the points over all directions, exactly.

    In the plane by rotating calipers, up to dimension 5 as the distance from the origin to the nearest facet of the
    convex hull of all differences. Exactly 0 in any dimension where the points lie in a hyperplane, so for N <= d.

    Raises:
        ValueError: if d > 5 and the points span it all.

    Source:
        Definition 2.3, equation (9a).

    Example:
        >>> thickness(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]]))
        1.0
    """
    points = as_points(embeddings)
    principal = _principal(points)
    if principal is None:
        return 0.0
    d = points.shape[1]
    if d == 1:
        return float(np.ptp(points))
    if d > EXACT_DIM:
        raise ValueError(
            f"thickness is exact for d <= {EXACT_DIM}: got d = {d}; use the upper bound of thickness_bound instead."
        )
    white, stretch, _ = principal
    # The hull of white points is the same and well conditioned, whatever the shape of the set.
    vertices = ConvexHull(white).vertices
    if d == 2:
        corners = points[vertices]
        edges = np.roll(corners, -1, axis=0) - corners
        normals = np.stack([-edges[:, 1], edges[:, 0]]) / np.linalg.norm(edges, axis=1)
        return float(np.ptp(corners @ normals, axis=0).min())
    corners = white[vertices]
    differences = (corners[:, None] - corners)[~np.eye(len(corners), dtype=bool)]
    facets = ConvexHull(differences).equations  # normal . x + offset <= 0
    return float((-facets[:, -1] / np.linalg.norm(facets[:, :-1] / stretch, axis=1)).min())


def thickness_bound(embeddings: Array, *, restarts: int = 20, seed: int = 0) -> float:
    """Width of the points in the best direction that iterated linear programs find; an upper bound of the thickness.

    From a unit vector e_k, the next direction is the e with e . e_k = 1 of least width: its length is >= 1, so the
    width of its unit vector is smaller still. Repeated until the gain is below 1e-12 of the diameter.

    Args:
        restarts: random first directions beside that of least variance.

    Source:
        Definition 2.3, equation (9a); the iteration is Trivet's.

    Example:
        >>> thickness_bound(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]]), restarts=2)
        1.0
    """
    points = as_points(embeddings)
    principal = _principal(points)
    if principal is None:
        return 0.0
    d = points.shape[1]
    scale = diameter(points)
    points = (points - points.mean(axis=0)) / scale
    unit, zeros = np.ones((len(points), 1)), np.zeros((len(points), 1))
    between = np.block([[points, zeros, -unit], [-points, unit, zeros]])  # low <= x . e <= high
    cost = np.concatenate([np.zeros(d), [-1.0, 1.0]])
    random = np.random.default_rng(seed).standard_normal((restarts, d))
    best = math.inf
    for start in [principal[2][-1], *random]:
        unit = start / np.linalg.norm(start)
        width = float(np.ptp(points @ unit))
        while True:
            solution = linprog(
                cost,
                A_ub=between,
                b_ub=np.zeros(len(between)),
                A_eq=np.concatenate([unit, [0.0, 0.0]])[None],
                b_eq=[1.0],
                bounds=(None, None),
            )
            if not solution.success:
                break
            unit = solution.x[:d] / np.linalg.norm(solution.x[:d])
            before, width = width, min(width, float(np.ptp(points @ unit)))
            if before - width < 1e-12:
                break
        best = min(best, width)
    return scale * best


def class_hausdorff_distance(f: Array, g: Array, labels: Array) -> float:
    """d_haus: the largest Hausdorff distance, over the classes, between the images of a class under two embeddings.

    0 also where g permutes the points of a class. At most `displacement`.

    Source:
        Equation (12) and section 3.2.1.

    Example:
        >>> class_hausdorff_distance(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]), np.array([5, 5]))
        0.0
    """
    first, second = _as_pair(f, g)
    classes = as_classes(labels, count=len(first)).numpy()
    between = (cdist(first[classes == c], second[classes == c]) for c in range(classes.max() + 1))
    return max(float(max(d.min(axis=1).max(), d.min(axis=0).max())) for d in between)


def isometric_error(f: Array, g: Array) -> float:
    """d_iso: the largest difference between a distance in one embedding and the same distance in the other.

    0 exactly if they are isometric copies; the two spaces may differ.

    Source:
        Definition 3.1, equation (14); definition 2.2, equation (7).

    Example:
        >>> isometric_error(np.array([[0.0], [1.0]]), np.array([[5.0], [8.0]]))
        2.0
    """
    first, second = _as_pair(f, g, same_space=False)
    return float(np.abs(pdist(first) - pdist(second)).max()) if len(first) > 1 else 0.0


def displacement(f: Array, g: Array) -> float:
    """The largest distance between the two images of an item; at least `class_hausdorff_distance`."""
    first, second = _as_pair(f, g)
    return float(np.linalg.norm(first - second, axis=1).max())


def nearest_images(f: Array, g: Array, labels: Array) -> Floats:
    """Return, for each item, the image under g of an item of its class that is nearest to its image under f, `(N, d)`.

    If g is separated so is this, and its displacement from f is at most d_haus(f, g). So the distance of f to the set
    of separated embeddings is the same for `displacement` and for `class_hausdorff_distance`.

    Source:
        Equation (26), which takes this for granted of every minimiser; the lemma is Trivet's.

    Example:
        >>> nearest_images(np.array([[0.0], [1.0]]), np.array([[1.5], [0.5]]), np.array([5, 5])).tolist()
        [[0.5], [1.5]]
    """
    first, second = _as_pair(f, g)
    classes = as_classes(labels, count=len(first)).numpy()
    images = np.empty_like(first)
    for c in range(classes.max() + 1):
        members = classes == c
        images[members] = second[members][cdist(first[members], second[members]).argmin(axis=1)]
    return images


def enclosing_radius(embeddings: Array) -> float:
    """Radius of a ball that holds all points, the smallest one up to about 1e-6 of it, and never less.

    The largest one over the classes bounds d_haus to the separated embeddings with margin 0, as mapping each class to
    the centre of its ball separates them.
    """
    points = as_points(embeddings)
    return float(np.linalg.norm(points - ball_centre(points), axis=1).max())


def _as_pair(f: Array, g: Array, *, same_space: bool = True) -> tuple[Floats, Floats]:
    first, second = as_points(f), as_points(g)
    if len(first) != len(second) or (same_space and first.shape != second.shape):
        raise ValueError(
            f"f and g must embed the same items{' in one space' if same_space else ''}: "
            f"got shapes {first.shape} and {second.shape}; give one row of each for every item."
        )
    return first, second


def _principal(points: Floats) -> tuple[Floats, Floats, Floats] | None:
    """White coordinates `(N, d)`, singular values `(d,)` and axes `(d, d)`; None if the points lie in a hyperplane."""
    white, stretch, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    if stretch[-1] <= RANK * len(points) * max(stretch[0], np.abs(points).max()):
        return None
    return white, stretch, axes


def ball_centre(points: Floats) -> Floats:
    """Centre `(d,)` of the smallest ball around the points, in the coordinates that they span."""
    middle: Floats = points[0] + (points - points[0]).mean(axis=0)  # exactly a row where all are equal
    white, stretch, axes = np.linalg.svd(points - middle, full_matrices=False)
    if len(points) == 1 or stretch[0] == 0:
        return middle
    rows = white * (stretch / stretch[0])
    if len(rows) == 2:
        return np.asarray((points[0] + points[1]) / 2)

    def room(x: Floats) -> Floats:
        return np.asarray(x[-1] - lengths_of(rows - x[:-1]))

    def slopes(x: Floats) -> Floats:
        return np.hstack([(rows - x[:-1]) / lengths_of(rows - x[:-1])[:, None], np.ones((len(rows), 1))])

    first = np.zeros(rows.shape[1] + 1)
    first[-1] = lengths_of(rows).max()
    centre = least_last(first, room, slopes)[:-1]
    tried = [middle + stretch[0] * centre @ axes, middle]
    return min(tried, key=lambda c: float(np.linalg.norm(points - c, axis=1).max()))


def least_last(first: Floats, room: Function, slopes: Function) -> Floats:
    """The variables `(n,)` that SLSQP ends at, lowering the last one while `room` stays >= 0."""
    along = np.zeros(len(first))
    along[-1] = 1.0
    solution = minimize(
        lambda x: x[-1],
        first,
        jac=lambda x: along,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": room, "jac": slopes}],
        options={"maxiter": 200, "ftol": 1e-10},
    )
    return np.asarray(solution.x)


def lengths_of(vectors: Floats) -> Floats:
    """Along the last axis, differentiable at 0."""
    lengths: Floats = np.sqrt((vectors**2).sum(axis=-1) + SMOOTH)
    return lengths
