"""Triplet separation, isometric error and Hausdorff distance: how far an embedding is from a zero triplet loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, permutations
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog, minimize
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist, pdist

from trivet.geometry import Array, as_classes, as_rows

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Function = Callable[[Floats], Floats]
Reduction = Literal["mean", "max"]
Measure = Literal["hausdorff", "isometric"]
DescentReduction = Literal["sum", "max"]

TOLERANCE = 1e-9  # of the diameter: what a separation may lack
RANK = 1e-12  # of the largest singular value: below it points lie in a hyperplane
EXACT_DIM = 5  # beyond it the difference body has too many facets
LINE_POINTS = 6  # beyond it a line has too many orders
SMOOTH = 1e-16  # under every square root that is differentiated
# A nonlinear program up to these sizes, a penalty method beyond them.
PROGRAM_POINTS, PROGRAM_COORDINATES = 12, 144
SHRINK = np.concatenate([[1.0], 1 - np.logspace(-12, 0, 400)])


@dataclass(frozen=True)
class Separation:
    """Whether every anchor is nearer to its farthest positive than to its nearest negative, by the margin."""

    separated: bool  # the worst gap is >= 0, up to 1e-9 of the diameter
    worst_gap: float  # min over anchors of D(a, n) - D(a, p) - margin; infinite with one class


def triplet_separation(embeddings: Array, labels: Array, *, margin: float = 0.0) -> Separation:
    """Whether D(a, p) + margin <= D(a, n) for all a, p of one class and n of another; an anchor is its own positive.

    D is the plain Euclidean distance of the rows as they are. With margin 0, all points equal is separated.

    Args:
        embeddings: `(N, d)` floating point, N >= 1.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of D.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is none, or `margin` is negative.

    Source:
        Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024,
        definition 2.1, equations (3), (5).

    Example:
        >>> line = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> triplet_separation(line, np.array([0, 0, 1, 1]))
        Separation(separated=True, worst_gap=0.0)
    """
    points, classes = _checked(embeddings, labels)
    distances = cdist(points, points)
    gap = float(_gaps(distances, _same(classes), _at_least_0(margin, "margin")).min())
    return Separation(bool(gap >= -TOLERANCE * distances.max()), gap)


def batch_hard_loss(embeddings: Array, labels: Array, *, margin: float = 0.0, reduction: Reduction = "max") -> float:
    """Hinge of D(a, p) - D(a, n) + margin over the farthest positive (itself allowed) and nearest negative of a.

    "max", over all anchors, is the hinge of the worst of all triplets and the loss of the inequalities here; "mean" is
    what training uses, never larger. Either is 0 exactly if the points are separated, and 0 with one class.

    Args:
        embeddings, labels, margin: as in `triplet_separation`.

    Raises:
        ValueError: as `triplet_separation`, or for an unknown reduction.

    Source:
        Xu et al., ICLR 2024, equation (4) with hard mining; Hermans et al., "In Defense of the Triplet Loss", 2017.

    Example:
        >>> batch_hard_loss(np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1]))
        1.0
    """
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be one of {get_args(Reduction)}: got {reduction!r}; choose one of them.")
    points, classes = _checked(embeddings, labels)
    gaps = _gaps(cdist(points, points), _same(classes), _at_least_0(margin, "margin"))
    hinges = np.maximum(-gaps, 0.0)
    return float(hinges.max() if reduction == "max" else hinges.mean())


@dataclass(frozen=True)
class Triplet:
    """Rows of an anchor, its positive and its negative, and D(a, p) - D(a, n) + margin, which may be below 0."""

    anchor: int
    positive: int
    negative: int
    violation: float


def hardest_triplet(embeddings: Array, labels: Array, *, margin: float = 0.0) -> Triplet:
    """The triplet of largest D(a, p) - D(a, n) + margin, which hard negative mining trains on; lowest rows in a tie.

    Args:
        embeddings, labels, margin: as in `triplet_separation`; at least two classes.

    Raises:
        ValueError: as `triplet_separation`, or if there is one class only.

    Source:
        Xu et al., ICLR 2024, equation (4) and figure 3, right.

    Example:
        >>> hardest_triplet(np.array([[0.0], [2.0], [1.5], [3.0]]), np.array([0, 0, 1, 1]))
        Triplet(anchor=1, positive=0, negative=2, violation=1.5)
    """
    points, classes = _checked(embeddings, labels)
    if not classes.any():
        raise ValueError("labels must hold at least two classes: got one; without a negative there is no triplet.")
    distances, same = cdist(points, points), _same(classes)
    violations = -_gaps(distances, same, _at_least_0(margin, "margin"))
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
        embeddings: `(N, 2)` floating point, N >= 1.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of the distance.
        resolution: angle between two points of an arc, in (0, 1] radians.

    Returns:
        For each class in the order of its label, arcs `(M, 2)`; none for a class of one point with margin 0.

    Raises:
        ValueError: if shapes or dtypes disagree, d is not 2, a row is not finite, or an option is out of range.

    Source:
        Xu et al., ICLR 2024, inequality (5) and figures 1 and 2.

    Example:
        >>> arcs = separation_boundaries(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0, 0]))
        >>> len(arcs), [float(np.concatenate(arcs[0])[:, 0].min()), float(np.concatenate(arcs[0])[:, 0].max())]
        (1, [-1.0, 2.0])
    """
    points, classes = _checked(embeddings, labels)
    if points.shape[1] != 2:
        raise ValueError(f"embeddings must be points of the plane: got dimension {points.shape[1]}; project them.")
    if not 0 < resolution <= 1:
        raise ValueError(f"resolution must lie in (0, 1] radians: got {resolution}; 0.02 is smooth.")
    _at_least_0(margin, "margin")
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


def diameter(embeddings: Array) -> float:
    """Largest distance between two rows of `(N, d)`, N >= 1.

    Raises:
        ValueError: if the rows are not finite floating-point vectors, or there is none.

    Source:
        Xu et al., ICLR 2024, theorem 2.4.

    Example:
        >>> diameter(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
        5.0
    """
    points = _points(embeddings)
    return float(pdist(points).max()) if len(points) > 1 else 0.0


def thickness(embeddings: Array) -> float:
    """Smallest width of the points over all directions, exactly.

    In the plane by rotating calipers, up to dimension 5 as the distance from the origin to the nearest facet of the
    convex hull of all differences. Exactly 0 in any dimension where the points lie in a hyperplane, so for N <= d.

    Args:
        embeddings: `(N, d)` floating point, N >= 1; d <= 5 unless the points lie in a hyperplane.

    Raises:
        ValueError: if the rows are not finite floating-point vectors, there is none, or d > 5 and they span it all.

    Source:
        Xu et al., ICLR 2024, definition 2.3, equation (9a).

    Example:
        >>> thickness(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]]))
        1.0
    """
    points = _points(embeddings)
    principal = _principal(points)
    if principal is None:
        return 0.0
    d = points.shape[1]
    if d == 1:
        return float(np.ptp(points))
    if d > EXACT_DIM:
        raise ValueError(
            f"thickness is exact for d <= {EXACT_DIM}: got d = {d}; take the upper bound of thickness_bound instead."
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
        embeddings: `(N, d)` floating point, N >= 1, any d.
        restarts: random first directions beside that of least variance, >= 0.

    Raises:
        ValueError: if the rows are not finite floating-point vectors, there is none, or `restarts` is negative.

    Source:
        Xu et al., ICLR 2024, definition 2.3, equation (9a); the iteration is Trivet's.

    Example:
        >>> thickness_bound(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]]), restarts=2)
        1.0
    """
    points = _points(embeddings)
    _at_least_0(restarts, "restarts")
    principal = _principal(points)
    if principal is None:
        return 0.0
    d = points.shape[1]
    scale = diameter(points)
    points = (points - points.mean(axis=0)) / scale
    ones, zeros = np.ones((len(points), 1)), np.zeros((len(points), 1))
    between = np.block([[points, zeros, -ones], [-points, ones, zeros]])  # low <= x . e <= high
    cost = np.concatenate([np.zeros(d), [-1.0, 1.0]])
    random = np.random.default_rng(seed).standard_normal((restarts, d))
    best = math.inf
    for start in [principal[2][-1], *random]:
        unit = start / np.linalg.norm(start)
        width = float(np.ptp(points @ unit))
        while True:
            found = linprog(
                cost,
                A_ub=between,
                b_ub=np.zeros(len(between)),
                A_eq=np.concatenate([unit, [0.0, 0.0]])[None],
                b_eq=[1.0],
                bounds=(None, None),
            )
            if not found.success:
                break
            unit = found.x[:d] / np.linalg.norm(found.x[:d])
            before, width = width, min(width, float(np.ptp(points @ unit)))
            if before - width < 1e-12:
                break
        best = min(best, width)
    return scale * best


def hausdorff_distance(a: Array, b: Array) -> float:
    """Largest distance of a point of one set to the nearest point of the other.

    Args:
        a: `(N, d)` floating point, N >= 1.
        b: `(M, d)` floating point, M >= 1.

    Raises:
        ValueError: if a set is empty or not finite, or their dimensions differ.

    Source:
        Xu et al., ICLR 2024, section 3.2.1.

    Example:
        >>> hausdorff_distance(np.array([[0.0], [1.0]]), np.array([[0.0], [3.0]]))
        2.0
    """
    first, second = _points(a), _points(b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"both sets must have one dimension: got {first.shape[1]} and {second.shape[1]}; embed them in one space."
        )
    distances = cdist(first, second)
    return float(max(distances.min(axis=1).max(), distances.min(axis=0).max()))


def class_hausdorff_distance(f: Array, g: Array, labels: Array) -> float:
    """d_haus: the largest Hausdorff distance, over the classes, between the images of a class under two embeddings.

    0 also where g permutes the points of a class. At most `displacement`.

    Args:
        f, g: `(N, d)` floating point, N >= 1; row i of both is the same item.
        labels: `(N,)` of any integer dtype.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, or there is none.

    Source:
        Xu et al., ICLR 2024, equation (12).

    Example:
        >>> class_hausdorff_distance(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]), np.array([5, 5]))
        0.0
    """
    first, second = _pair(f, g)
    classes = as_classes(labels, count=len(first)).numpy()
    return max(hausdorff_distance(first[classes == c], second[classes == c]) for c in range(classes.max() + 1))


def isometric_error(f: Array, g: Array) -> float:
    """d_iso: the largest difference between a distance in one embedding and the same distance in the other.

    0 exactly if they are isometric copies. g is an eps-nearisometry of f exactly if this is at most eps.

    Args:
        f: `(N, d)` floating point, N >= 1.
        g: `(N, e)` floating point; row i of both is the same item, the spaces may differ.

    Raises:
        ValueError: if the numbers of rows differ, a row is not finite, or there is none.

    Source:
        Xu et al., ICLR 2024, definition 3.1, equation (14); definition 2.2, equation (7).

    Example:
        >>> isometric_error(np.array([[0.0], [1.0]]), np.array([[5.0], [8.0]]))
        2.0
    """
    first, second = _pair(f, g, same_space=False)
    return float(np.abs(pdist(first) - pdist(second)).max()) if len(first) > 1 else 0.0


def displacement(f: Array, g: Array) -> float:
    """The largest distance between the two images of an item; at least `class_hausdorff_distance`.

    Args:
        f, g: `(N, d)` floating point, N >= 1; row i of both is the same item.

    Raises:
        ValueError: if shapes disagree, a row is not finite, or there is none.

    Example:
        >>> displacement(np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]]))
        1.0
    """
    first, second = _pair(f, g)
    return float(np.linalg.norm(first - second, axis=1).max())


def nearest_images(f: Array, g: Array, labels: Array) -> Floats:
    """For each item, the image under g of an item of its class that is nearest to its image under f, `(N, d)`.

    If g is separated so is this, and its displacement from f is at most d_haus(f, g). So the distance of f to the set
    of separated embeddings is the same for `displacement` and for `class_hausdorff_distance`.

    Args:
        f, g, labels: as in `class_hausdorff_distance`.

    Raises:
        ValueError: as `class_hausdorff_distance`.

    Source:
        Xu et al., ICLR 2024, equation (26), which takes this for granted of every minimiser; the lemma is Trivet's.

    Example:
        >>> nearest_images(np.array([[0.0], [1.0]]), np.array([[1.5], [0.5]]), np.array([5, 5])).tolist()
        [[0.5], [1.5]]
    """
    first, second = _pair(f, g)
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

    Args:
        embeddings: `(N, d)` floating point, N >= 1.

    Raises:
        ValueError: if the rows are not finite floating-point vectors, or there is none.

    Example:
        >>> enclosing_radius(np.array([[0.0, 0.0], [6.0, 8.0]]))
        5.0
    """
    points = _points(embeddings)
    return float(np.linalg.norm(points - _ball_centre(points), axis=1).max())


@dataclass(frozen=True)
class NearestSeparated:
    """The distance of an embedding to the set of separated ones lies in [lower_bound, value]."""

    value: float  # distance to `witness`
    witness: Floats  # (N, d), separated
    lower_bound: float


def distance_to_separation(
    embeddings: Array,
    labels: Array,
    *,
    margin: float = 0.0,
    measure: Measure = "hausdorff",
    starts: int = 8,
    steps: int = 1000,
    seed: int = 0,
) -> NearestSeparated:
    """How far an embedding is from the nearest triplet-separated one, with a witness and a lower bound.

    Finding the nearest is not convex: `value` is what the best of several local searches reached, `lower_bound` is
    L / 4 for "hausdorff" and L / 2 for "isometric", where L is `batch_hard_loss` with "max". Up to 12 points (and 144
    coordinates) each search is a nonlinear program (SLSQP), beyond that Adam on a penalty, whose steps take
    O(starts N (N + d)); what either finds is made separated by drawing classes towards their means.

    Args:
        embeddings: `(N, d)` floating point, N >= 1.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of the distance.
        measure: "hausdorff", `class_hausdorff_distance`; "isometric", `isometric_error`, which takes twice as long.
        starts: local searches, >= 1; 8 lie within some 4 % of the minimum, take 24 for a number to quote.
        steps: of Adam, >= 1.

    Returns:
        0 with the embedding itself as witness if it is separated.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is none, or an option is out of range.

    Source:
        Xu et al., ICLR 2024, equations (13), (15); lower bounds: theorem 3.3, equation (46), and each of the three
        points of a triplet moving by at most d_haus. The search is Trivet's.

    Example:
        >>> found = distance_to_separation(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]), starts=2)
        >>> round(found.value, 6), found.lower_bound
        (0.125, 0.125)
    """
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be one of {get_args(Measure)}: got {measure!r}; choose one of them.")
    return _nearest(embeddings, labels, margin, starts, steps, seed, isometric=measure == "isometric")[measure]


def distance_on_a_line(
    embeddings: Array, labels: Array, *, margin: float = 0.0, measure: Measure = "hausdorff"
) -> float:
    """The exact distance of at most 6 points on a line to the nearest separated ones on that line.

    With the order of the images given, all distances are linear in them and the nearest is a linear program; the least
    over all N! orders is returned.

    Args:
        embeddings: `(N, 1)` floating point, 1 <= N <= 6.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of the distance.
        measure: as in `distance_to_separation`, whose search this tests.

    Raises:
        ValueError: if shapes or dtypes disagree, d is not 1, N > 6, a row is not finite, or an option is unknown.

    Source:
        Xu et al., ICLR 2024, equations (13), (15); the enumeration is Trivet's.

    Example:
        >>> round(distance_on_a_line(np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])), 9)
        0.75
    """
    if measure not in get_args(Measure):
        raise ValueError(f"measure must be one of {get_args(Measure)}: got {measure!r}; choose one of them.")
    points, classes = _checked(embeddings, labels)
    n, d = points.shape
    if d != 1 or n > LINE_POINTS:
        raise ValueError(
            f"embeddings must be at most {LINE_POINTS} points of a line: got shape {points.shape}; "
            "search with distance_to_separation."
        )
    _at_least_0(margin, "margin")
    same = _same(classes)
    a, p, negative = np.nonzero(same[:, :, None] & ~same[:, None, :])
    first, second = np.triu_indices(n, 1)
    wanted = np.abs(points[first, 0] - points[second, 0])
    unit = np.eye(n + 1)
    radius = unit[n]
    between = unit[:n, None] - unit[None, :n]  # (N, N, N + 1): z_i - z_j
    best = math.inf
    for order in permutations(range(n)):
        if measure == "isometric" and order[0] > order[-1]:
            continue  # a reflection changes no distance
        places = np.argsort(order)
        lengths = between * np.sign(places[:, None] - places)[:, :, None]
        rows = [-lengths[order[1:], order[:-1]], lengths[a, p] - lengths[a, negative]]
        limits = [np.zeros(n - 1), np.full(len(a), -margin)]
        if measure == "isometric":
            rows += [lengths[first, second] - radius, -lengths[first, second] - radius]
            limits += [wanted, -wanted]
        else:
            rows += [unit[:n] - radius, -unit[:n] - radius]
            limits += [points[:, 0], -points[:, 0]]
        found = linprog(radius, A_ub=np.concatenate(rows), b_ub=np.concatenate(limits), bounds=(None, None))
        if found.success:
            best = min(best, float(found.fun))
    return max(best, 0.0)


@dataclass(frozen=True)
class LossSandwich:
    """The hardest triplet's loss beside the distances to separation that the theorems compare it with."""

    margin: float
    loss: float  # `batch_hard_loss` with "max"
    isometric: NearestSeparated
    hausdorff: NearestSeparated
    enclosing: float  # the largest `enclosing_radius` of a class

    @property
    def isometric_per_loss(self) -> float:
        """c of theorem 3.3, >= 1 / 2; NaN if the loss is 0."""
        return self.isometric.value / self.loss if self.loss else math.nan

    @property
    def hausdorff_per_isometric(self) -> float:
        """c of theorem 3.2, >= 1 / 2; NaN if the loss is 0."""
        return self.hausdorff.value / self.isometric.value if self.loss else math.nan

    @property
    def hausdorff_per_loss(self) -> float:
        """>= 1 / 4; half the factor that equation (17) needs; NaN if the loss is 0."""
        return self.hausdorff.value / self.loss if self.loss else math.nan

    def proven(self) -> dict[str, bool]:
        """Each inequality that has a proof, and whether it holds here, up to rounding."""
        slack = 4 * TOLERANCE * max(self.loss, self.enclosing, self.hausdorff.value)
        inequalities = {
            "loss <= 2 d_iso": self.loss <= 2 * self.isometric.value + slack,
            "d_iso <= 2 d_haus": self.isometric.value <= 2 * self.hausdorff.value + slack,
            "loss <= 4 d_haus": self.loss <= 4 * self.hausdorff.value + slack,
        }
        if self.margin == 0:
            inequalities["d_haus <= radius"] = self.hausdorff.value <= self.enclosing + slack
        return inequalities


def loss_sandwich(
    embeddings: Array, labels: Array, *, margin: float = 0.0, starts: int = 8, steps: int = 1000, seed: int = 0
) -> LossSandwich:
    """L_max, d_iso and d_haus to the separated embeddings of one embedding, and the inequalities between them.

    L_max / 2 <= d_iso <= 2 d_haus and L_max / 4 <= d_haus are proven; that d_haus and d_iso are at most a constant
    times L_max is claimed by theorems 3.2 and 3.3 with proofs that do not hold, and was never seen to fail.

    Args:
        embeddings, labels, margin, starts, steps, seed: as in `distance_to_separation`.

    Raises:
        ValueError: as `distance_to_separation`.

    Source:
        Xu et al., ICLR 2024, theorems 3.2 and 3.3.

    Example:
        >>> found = loss_sandwich(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]), starts=2)
        >>> found.loss, all(found.proven().values())
        (0.5, True)
    """
    points, classes = _checked(embeddings, labels)
    nearest = _nearest(embeddings, labels, margin, starts, steps, seed, isometric=True)
    return LossSandwich(
        margin=margin,
        loss=batch_hard_loss(embeddings, labels, margin=margin),
        isometric=nearest["isometric"],
        hausdorff=nearest["hausdorff"],
        enclosing=max(enclosing_radius(points[classes == c]) for c in range(classes.max() + 1)),
    )


@dataclass(frozen=True)
class DiameterForecast:
    """The diameter that equation (17) foresees at the end of training."""

    bound: float
    vacuous: bool  # the bound is at most 0, which every diameter exceeds


def diameter_forecast(diameter: float, loss: float, *, factor: float = 2.0) -> DiameterForecast:
    """diameter - factor loss, below which the nearest separated embedding does not shrink; vacuous if not above 0.

    With the loss of the hardest triplet it holds where d_haus <= factor / 2 times that loss, which is not proven but
    was never seen to fail for factor 2. It is about the nearest separated embedding: training often ends elsewhere,
    and then at a smaller diameter.

    Args:
        diameter: of the untrained embedding, >= 0.
        loss: of the same points, >= 0.
        factor: c of the paper, >= 0.

    Raises:
        ValueError: if a number is negative or not finite.

    Source:
        Xu et al., ICLR 2024, equation (17).

    Example:
        >>> diameter_forecast(3.0, 0.5)
        DiameterForecast(bound=2.0, vacuous=False)
    """
    bound = _at_least_0(diameter, "diameter") - _at_least_0(factor, "factor") * _at_least_0(loss, "loss")
    return DiameterForecast(bound, bound <= 0)


@dataclass(frozen=True)
class Descent:
    """The way of gradient descent on the loss of free points, shorter than asked for if the loss reached 0."""

    points: Floats  # (N, d), at the end
    diameters: Floats  # (steps taken + 1,), before each step and at the end
    losses: Floats  # (steps taken + 1,), the loss of the hardest triplet

    @property
    def steps(self) -> int:
        """Taken."""
        return len(self.diameters) - 1

    def diameter_after(self, steps: int) -> float:
        """After so many steps, or at the end if it came before."""
        return float(self.diameters[min(steps, self.steps)])


def descend(
    embeddings: Array,
    labels: Array,
    *,
    reduction: DescentReduction = "sum",
    steps: int = 1000,
    step: float = 0.02,
    margin: float = 0.0,
) -> Descent:
    """Gradient descent on the hinges of farthest positive and nearest negative, moving the embeddings themselves.

    Args:
        embeddings: `(N, d)` floating point, N >= 1.
        labels: `(N,)` of any integer dtype.
        reduction: "sum" over the anchors, or "max", the hardest triplet alone.
        steps: at most, >= 1; it stops where the loss is 0.
        step: times the gradient is what a point moves, > 0.
        margin: alpha, >= 0, in the unit of the distance.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is none, or an option is out of range.

    Source:
        Xu et al., ICLR 2024, section 3.3 and figure 4, which descends on a distance; the step is Trivet's.

    Example:
        >>> found = descend(np.array([[0.0], [1.0], [0.9], [1.9]]), np.array([0, 0, 1, 1]), step=0.01)
        >>> found.losses[-1] <= 0 and found.steps < 1000
        True
    """
    if reduction not in get_args(DescentReduction):
        raise ValueError(
            f"reduction must be one of {get_args(DescentReduction)}: got {reduction!r}; choose one of them."
        )
    if steps < 1 or not (step > 0 and math.isfinite(step)):
        raise ValueError(f"steps must be at least 1 and step above 0: got {steps} and {step}; 1000 and 0.02 are usual.")
    z, classes = _checked(embeddings, labels)
    _at_least_0(margin, "margin")
    anchors, same = np.arange(len(z)), _same(classes)
    diameters, losses = [], []
    for taken in range(steps + 1):
        difference = z[:, None] - z
        distances = np.sqrt((difference**2).sum(axis=2) + SMOOTH)
        positive = np.where(same, distances, -np.inf).argmax(axis=1)
        negative = np.where(same, np.inf, distances).argmin(axis=1)
        hinges = np.where(same.all(axis=1), 0.0, distances[anchors, positive] - distances[anchors, negative] + margin)
        diameters.append(float(distances.max()))
        losses.append(max(float(hinges.max()), 0.0))
        if taken == steps or losses[-1] == 0:
            break
        weights = (hinges > 0).astype(float) if reduction == "sum" else (anchors == hinges.argmax()).astype(float)
        slopes = np.zeros_like(distances)
        slopes[anchors, positive] = weights
        slopes[anchors, negative] -= weights
        pulls = (slopes + slopes.T) / distances
        z = z - step * (pulls[..., None] * difference).sum(axis=1)
    return Descent(z, np.array(diameters), np.array(losses))


def _at_least_0(value: float, name: str) -> float:
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be finite and at least 0: got {value}; give such a number.")
    return value


def _points(embeddings: Array) -> Floats:
    points: Floats = as_rows(embeddings).cpu().numpy()
    if not len(points):
        raise ValueError("embeddings must hold at least one row: got none; there is no distance to measure.")
    return points


def _checked(embeddings: Array, labels: Array) -> tuple[Floats, Integers]:
    points = _points(embeddings)
    return points, as_classes(labels, count=len(points)).numpy()


def _pair(f: Array, g: Array, *, same_space: bool = True) -> tuple[Floats, Floats]:
    first, second = _points(f), _points(g)
    if len(first) != len(second) or (same_space and first.shape != second.shape):
        raise ValueError(
            f"f and g must embed the same items{' in one space' if same_space else ''}: "
            f"got shapes {first.shape} and {second.shape}; give one row of each for every item."
        )
    return first, second


def _same(classes: Integers) -> Booleans:
    same: Booleans = classes[:, None] == classes
    return same


def _gaps(distances: Floats, same: Booleans, margin: float) -> Floats:
    """D(a, n) - D(a, p) - margin of each anchor `(N,)`; infinite without a negative."""
    farthest = np.where(same, distances, -np.inf).max(axis=1)
    nearest = np.where(same, np.inf, distances).min(axis=1)
    gaps: Floats = nearest - farthest - margin
    return gaps


def _principal(points: Floats) -> tuple[Floats, Floats, Floats] | None:
    """White coordinates `(N, d)`, singular values `(d,)` and axes `(d, d)`; None if the points lie in a hyperplane."""
    white, stretch, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    if stretch[-1] <= RANK * len(points) * max(stretch[0], np.abs(points).max()):
        return None
    return white, stretch, axes


def _ball_centre(points: Floats) -> Floats:
    """Centre `(d,)` of the smallest ball around the points, in the coordinates that they span."""
    middle: Floats = points[0] + (points - points[0]).mean(axis=0)  # exactly a row where all are equal
    white, stretch, axes = np.linalg.svd(points - middle, full_matrices=False)
    if len(points) == 1 or stretch[0] == 0:
        return middle
    rows = white * (stretch / stretch[0])
    if len(rows) == 2:
        return np.asarray((points[0] + points[1]) / 2)

    def room(x: Floats) -> Floats:
        return np.asarray(x[-1] - _lengths(rows - x[:-1]))

    def slopes(x: Floats) -> Floats:
        return np.hstack([(rows - x[:-1]) / _lengths(rows - x[:-1])[:, None], np.ones((len(rows), 1))])

    first = np.zeros(rows.shape[1] + 1)
    first[-1] = _lengths(rows).max()
    centre = _least_last(first, room, slopes)[:-1]
    tried = [middle + stretch[0] * centre @ axes, middle]
    return min(tried, key=lambda c: float(np.linalg.norm(points - c, axis=1).max()))


def _least_last(first: Floats, room: Function, slopes: Function) -> Floats:
    """The variables `(n,)` that SLSQP ends at, lowering the last one while `room` stays >= 0."""
    along = np.zeros(len(first))
    along[-1] = 1.0
    found = minimize(
        lambda x: x[-1],
        first,
        jac=lambda x: along,
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": room, "jac": slopes}],
        options={"maxiter": 200, "ftol": 1e-10},
    )
    return np.asarray(found.x)


def _nearest(
    embeddings: Array,
    labels: Array,
    margin: float,
    starts: int,
    steps: int,
    seed: int,
    *,
    isometric: bool,
) -> dict[str, NearestSeparated]:
    """By measure; the isometric one only if asked for, as it starts from the other one."""
    if starts < 1 or steps < 1:
        raise ValueError(f"starts and steps must be at least 1: got {starts} and {steps}; 8 and 1000 are usual.")
    points, classes = _checked(embeddings, labels)
    loss = batch_hard_loss(points, classes, margin=margin)
    if triplet_separation(points, classes, margin=margin).separated:
        itself = NearestSeparated(0.0, points.copy(), 0.0)
        return {"hausdorff": itself, "isometric": itself}
    scale = diameter(points) or margin
    middle = points.mean(axis=0)
    problem = _Problem((points - middle) / scale, classes, margin / scale)
    random = np.random.default_rng(seed)
    best = problem.search("hausdorff", problem.starts(starts, random), steps)
    witness = middle + scale * best
    value = class_hausdorff_distance(points, witness, classes)
    # The bound holds without the tolerance of separation, which a witness may use.
    found = {"hausdorff": NearestSeparated(value, witness, min(loss / 4, value))}
    if isometric:
        best = problem.search("isometric", np.concatenate([problem.starts(starts, random), best[None]]), steps)
        witness = middle + scale * best
        value = isometric_error(points, witness)
        found["isometric"] = NearestSeparated(value, witness, min(loss / 2, value))
    return found


class _Problem:
    """Points `(N, d)` of diameter 1 about the origin, to be moved as little as possible until they are separated."""

    def __init__(self, points: Floats, classes: Integers, margin: float) -> None:
        self.points, self.classes, self.margin = points, classes, margin
        self.same = _same(classes)
        self.distances = cdist(points, points)
        self.counts = np.bincount(classes)

    def starts(self, count: int, random: np.random.Generator) -> Floats:
        """`(count, N, d)`: the points, drawn towards their class means, towards their mean, and disturbed."""
        points = self.points
        means = self.class_means(points)[self.classes]
        some = [points, (points + means) / 2, 0.1 * points + 0.9 * means, 0.3 * points]
        for i in range(4, count):
            noise = (0.03, 0.1, 0.3)[i % 3] * random.standard_normal(points.shape)
            some.append(means + random.uniform() * (points - means) + noise)
        return np.stack(some[:count]) + 1e-6 * random.standard_normal((count, *points.shape))

    def class_means(self, z: Floats) -> Floats:
        sums = np.zeros((len(self.counts), z.shape[1]))
        np.add.at(sums, self.classes, z)
        return sums / self.counts[:, None]

    def search(self, measure: Measure, starts: Floats, steps: int) -> Floats:
        """The best separated points `(N, d)` found."""
        small = len(self.points) <= PROGRAM_POINTS and self.points.size <= PROGRAM_COORDINATES
        better = self.programs(measure, starts) if small else self.penalties(measure, starts, steps)
        least, best = math.inf, self.points
        for z in chain(self.simple(measure), starts, better):
            repaired = self.repaired(z) if np.isfinite(z).all() else None
            if repaired is None:
                continue
            if measure == "hausdorff":
                repaired = nearest_images(self.points, repaired, self.classes)
            value = self.value(measure, repaired)
            if value < least:
                least, best = value, repaired
        assert least < math.inf
        return best

    def value(self, measure: Measure, z: Floats) -> float:
        return displacement(self.points, z) if measure == "hausdorff" else isometric_error(self.points, z)

    def simple(self, measure: Measure) -> Iterator[Floats]:
        """Points that are separated without a search."""
        if self.margin == 0:
            yield np.zeros_like(self.points)
            if measure == "hausdorff":
                members = [self.points[self.classes == c] for c in range(len(self.counts))]
                yield np.stack([_ball_centre(rows) for rows in members])[self.classes]
        else:  # the classes as points of a line, one margin apart
            places = np.arange(len(self.counts)) - (len(self.counts) - 1) / 2
            z = np.zeros_like(self.points)
            z[:, 0] = (self.margin * places)[self.classes]
            yield z

    def repaired(self, z: Floats) -> Floats | None:
        """`z` with each class drawn towards its mean, no more than needed; None where class means coincide."""
        means = self.class_means(z)
        centres = means[self.classes]
        for kept in SHRINK:
            drawn = centres + kept * (z - centres)
            if self.separated(drawn):
                return np.asarray(drawn)
        nearest = pdist(means).min()
        if nearest == 0:
            return None
        middle = z.mean(axis=0)
        return np.asarray(middle + (centres - middle) * (self.margin / nearest))

    def separated(self, z: Floats) -> bool:
        distances = cdist(z, z)
        # Half the tolerance, so that undoing the scale does not use it up.
        return bool(_gaps(distances, self.same, self.margin).min() >= -TOLERANCE / 2 * distances.max())

    def programs(self, measure: Measure, starts: Floats) -> Iterator[Floats]:
        """From each start: minimise r so that all triplets are separated and nothing differs by more than r."""
        n, d = self.points.shape
        first, second = np.triu_indices(n, 1)
        pair = np.zeros((n, n), dtype=np.int64)
        pair[first, second] = pair[second, first] = np.arange(len(first))
        positives = self.same & ~np.eye(n, dtype=bool)
        a, p, negative = np.nonzero(positives[:, :, None] & ~self.same[:, None, :])
        near, far = pair[a, p], pair[a, negative]
        apart = np.flatnonzero(~self.same[first, second]) if self.margin else np.zeros(0, dtype=np.int64)
        rows = np.arange(len(first))
        wanted = self.distances[first, second]

        def room(x: Floats) -> Floats:
            z = x[:-1].reshape(n, d)
            lengths = _lengths(z[first] - z[second])
            bounds = [lengths[far] - lengths[near] - self.margin, lengths[apart] - self.margin]
            if measure == "hausdorff":
                bounds.append(x[-1] - _lengths(z - self.points))
            else:
                bounds += [x[-1] - (lengths - wanted), x[-1] + (lengths - wanted)]
            return np.concatenate(bounds)

        def slopes(x: Floats) -> Floats:
            z = x[:-1].reshape(n, d)
            difference = z[first] - z[second]
            unit = difference / _lengths(difference)[:, None]
            of_pairs = np.zeros((len(first), n, d))
            of_pairs[rows, first], of_pairs[rows, second] = unit, -unit
            of_lengths = of_pairs.reshape(len(first), n * d)
            blocks = [of_lengths[far] - of_lengths[near], of_lengths[apart]]
            if measure == "hausdorff":
                moved = z - self.points
                of_moves = np.zeros((n, n, d))
                of_moves[np.arange(n), np.arange(n)] = -moved / _lengths(moved)[:, None]
                blocks.append(of_moves.reshape(n, n * d))
            else:
                blocks += [-of_lengths, of_lengths]
            jacobian = np.concatenate(blocks)
            of_radius = np.zeros((len(jacobian), 1))
            of_radius[len(far) + len(apart) :] = 1.0
            return np.hstack([jacobian, of_radius])

        for start in starts:
            x = np.append(start.ravel(), self.value(measure, start))
            yield _least_last(x, room, slopes)[:-1].reshape(n, d)

    def penalties(self, measure: Measure, starts: Floats, steps: int) -> Iterator[Floats]:
        """Points on the way of Adam, all starts at once; the penalty grows and the maximum sharpens."""
        z = starts
        mean, square = np.zeros_like(z), np.zeros_like(z)
        for step in range(1, steps + 1):
            done = step / steps
            gradient = self.gradient(
                measure, z, temperature=0.05 * 1e-3**done, weight=0.3 * 300**done, slack=1e-4 * (1 - done)
            )
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            rate = 0.02 * 1e-3**done
            z = z - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
            if step % 100 == 0 or step == steps:
                yield from z

    def gradient(self, measure: Measure, z: Floats, *, temperature: float, weight: float, slack: float) -> Floats:
        """Of the smoothed maximum and the weighted hinges, for each start, `(S, N, d)`."""
        squares = (z**2).sum(axis=2)
        squared = squares[:, :, None] + squares[:, None] - 2 * z @ z.transpose(0, 2, 1)
        distances = np.sqrt(np.maximum(squared, 0) + SMOOTH)  # (S, N, N)
        positive = np.where(self.same, distances, -np.inf).argmax(axis=2, keepdims=True)  # (S, N, 1)
        negative = np.where(self.same, np.inf, distances).argmin(axis=2, keepdims=True)
        to_positive = np.take_along_axis(distances, positive, axis=2)
        to_negative = np.take_along_axis(distances, negative, axis=2)
        violated = weight * (to_positive - to_negative + self.margin + slack > 0)
        slopes = np.zeros_like(distances)  # of the objective along each distance
        np.put_along_axis(slopes, positive, violated, axis=2)
        np.put_along_axis(slopes, negative, -violated, axis=2)
        total = np.zeros_like(z)
        if measure == "hausdorff":
            moved = z - self.points
            lengths = _lengths(moved)
            total += (_softmax(lengths / temperature, axes=(1,)) / lengths)[..., None] * moved
        else:
            errors = distances - self.distances
            slopes += _softmax(np.abs(errors) / temperature, axes=(1, 2)) * np.sign(errors)
        pulls = (slopes + slopes.transpose(0, 2, 1)) / distances
        pulls[:, np.arange(len(self.points)), np.arange(len(self.points))] = 0.0  # no digits lost to cancellation
        total += pulls.sum(axis=2)[..., None] * z - pulls @ z
        return total


def _lengths(vectors: Floats) -> Floats:
    """Along the last axis, differentiable at 0."""
    lengths: Floats = np.sqrt((vectors**2).sum(axis=-1) + SMOOTH)
    return lengths


def _softmax(values: Floats, *, axes: tuple[int, ...]) -> Floats:
    powers = np.exp(values - values.max(axis=axes, keepdims=True))
    shares: Floats = powers / powers.sum(axis=axes, keepdims=True)
    return shares
