"""The nearest separated embedding, and whether points shrink: theorems 3.2, 3.3 and equation (17).

An argument that is out of range, or whose shape does not fit the others, is a ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, permutations
from typing import Literal, get_args

import numpy as np
from scipy.optimize import linprog
from scipy.spatial.distance import cdist, pdist

from trivet.collapse.isometry import as_points_and_classes, batch_hard_loss, diameter, gaps_of, same_class
from trivet.distances import Array
from trivet.runtime.arguments import check_at_least, check_name
from trivet.runtime.arrays import Floats, Integers
from trivet_papers.xu2024.isometry import (
    SMOOTH,
    TOLERANCE,
    Measure,
    ball_centre,
    class_hausdorff_distance,
    displacement,
    enclosing_radius,
    isometric_error,
    least_last,
    lengths_of,
    nearest_images,
    triplet_separation,
)

DescentReduction = Literal["sum", "max"]
LINE_POINTS = 6  # beyond it a line has too many orders
# A nonlinear program up to these sizes, a penalty method beyond them.
PROGRAM_POINTS, PROGRAM_COORDINATES = 12, 144
SHRINK = np.concatenate([[1.0], 1 - np.logspace(-12, 0, 400)])


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
    """Distance of an embedding to the nearest triplet-separated one, with a witness and a lower bound.

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

    Source:
        Xu et al., ICLR 2024, equations (13), (15); lower bounds: theorem 3.3, equation (46), and each of the three
        points of a triplet moving by at most d_haus. The search is Trivet's.

    Example:
        >>> nearest = distance_to_separation(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]), starts=2)
        >>> round(nearest.value, 6), nearest.lower_bound
        (0.125, 0.125)
    """
    check_name(measure, get_args(Measure), name="measure")
    return _nearest(embeddings, labels, margin, starts, steps, seed, isometric=measure == "isometric")[measure]


def distance_on_a_line(
    embeddings: Array, labels: Array, *, margin: float = 0.0, measure: Measure = "hausdorff"
) -> float:
    """The exact distance of at most 6 points on a line to the nearest separated ones on that line.

    With the order of the images given, all distances are linear in them and the nearest is a linear program; the least
    over all N! orders is returned; those that cost more than one that is known are left out.

    Args:
        embeddings: `(N, 1)` floating point, 1 <= N <= 6.
        labels: `(N,)` of any integer dtype.
        margin: alpha, >= 0, in the unit of the distance.
        measure: as in `distance_to_separation`, whose search this tests.

    Source:
        Xu et al., ICLR 2024, equations (13), (15); the enumeration is Trivet's.

    Example:
        >>> round(distance_on_a_line(np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])), 9)
        0.75
    """
    check_name(measure, get_args(Measure), name="measure")
    points, classes = as_points_and_classes(embeddings, labels)
    n, d = points.shape
    if d != 1 or n > LINE_POINTS:
        raise ValueError(
            f"embeddings must be at most {LINE_POINTS} points of a line: got shape {points.shape}; "
            "search with distance_to_separation."
        )
    check_at_least(0, margin, name="margin")
    same = same_class(classes)
    a, p, negative = np.nonzero(same[:, :, None] & ~same[:, None, :])
    first, second = np.triu_indices(n, 1)
    wanted = np.abs(points[first, 0] - points[second, 0])
    unit = np.eye(n + 1)
    radius = unit[n]
    between = unit[:n, None] - unit[None, :n]  # (N, N, N + 1): z_i - z_j
    distances = np.abs(points - points.T)

    def least(order: tuple[int, ...]) -> float:
        """Lower bound of an order: two points have to change places, or two distances to add up to a third."""
        if measure == "hausdorff":
            row = points[list(order), 0]
            return float((np.maximum.accumulate(row) - row).max()) / 2
        table = distances[np.ix_(order, order)]
        sums = table[:, :, None] + table - table[:, None]
        return max((float(sums[i, j, k]) for i, j, k in combinations(range(n), 3)), default=0.0) / 3

    # A reflection changes no distance.
    orders = [each for each in permutations(range(n)) if measure == "hausdorff" or each[0] <= each[-1]]
    best = math.inf
    for order in sorted(orders, key=least):
        if least(order) >= best:
            break
        positions = np.argsort(order)
        lengths = between * np.sign(positions[:, None] - positions)[:, :, None]
        rows = [-lengths[order[1:], order[:-1]], lengths[a, p] - lengths[a, negative]]
        limits = [np.zeros(n - 1), np.full(len(a), -margin)]
        if measure == "isometric":
            rows += [lengths[first, second] - radius, -lengths[first, second] - radius]
            limits += [wanted, -wanted]
        else:
            rows += [unit[:n] - radius, -unit[:n] - radius]
            limits += [points[:, 0], -points[:, 0]]
        solution = linprog(radius, A_ub=np.concatenate(rows), b_ub=np.concatenate(limits), bounds=(None, None))
        if solution.success:
            best = min(best, float(solution.fun))
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

    Source:
        Xu et al., ICLR 2024, theorems 3.2 and 3.3.

    Example:
        >>> sandwich = loss_sandwich(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]), starts=2)
        >>> sandwich.loss, all(sandwich.proven().values())
        (0.5, True)
    """
    points, classes = as_points_and_classes(embeddings, labels)
    nearest = _nearest(embeddings, labels, margin, starts, steps, seed, isometric=True)
    return LossSandwich(
        margin=margin,
        loss=batch_hard_loss(embeddings, labels, margin=margin),
        isometric=nearest["isometric"],
        hausdorff=nearest["hausdorff"],
        enclosing=max(enclosing_radius(points[classes == c]) for c in range(classes.max() + 1)),
    )


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

    Source:
        Xu et al., ICLR 2024, section 3.3 and figure 4, which descends on a distance; the step is Trivet's.

    Example:
        >>> descent = descend(np.array([[0.0], [1.0], [0.9], [1.9]]), np.array([0, 0, 1, 1]), step=0.01)
        >>> descent.losses[-1] <= 0 and descent.steps < 1000
        True
    """
    check_name(reduction, get_args(DescentReduction), name="reduction")
    if steps < 1 or not (step > 0 and math.isfinite(step)):
        raise ValueError(
            f"steps must be at least 1 and step above 0: got {steps} and {step}; typical values are 1000 and 0.02."
        )
    z, classes = as_points_and_classes(embeddings, labels)
    check_at_least(0, margin, name="margin")
    anchors, same = np.arange(len(z)), same_class(classes)
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


def _nearest(
    embeddings: Array, labels: Array, margin: float, starts: int, steps: int, seed: int, *, isometric: bool
) -> dict[str, NearestSeparated]:
    """By measure; the isometric one only if asked for, as it starts from the other one."""
    if starts < 1 or steps < 1:
        raise ValueError(
            f"starts and steps must be at least 1: got {starts} and {steps}; typical values are 8 and 1000."
        )
    points, classes = as_points_and_classes(embeddings, labels)
    loss = batch_hard_loss(points, classes, margin=margin)
    if triplet_separation(points, classes, margin=margin).separated:
        itself = NearestSeparated(0.0, points.copy(), 0.0)
        return {"hausdorff": itself, "isometric": itself}
    scale = diameter(points) or margin
    middle = points.mean(axis=0)
    problem = Problem((points - middle) / scale, classes, margin / scale)
    random = np.random.default_rng(seed)
    best = problem.search("hausdorff", problem.starts(starts, random), steps)
    witness = middle + scale * best
    value = class_hausdorff_distance(points, witness, classes)
    # The bound holds without the tolerance of separation, which a witness may use.
    nearest = {"hausdorff": NearestSeparated(value, witness, min(loss / 4, value))}
    if isometric:
        best = problem.search("isometric", np.concatenate([problem.starts(starts, random), best[None]]), steps)
        witness = middle + scale * best
        value = isometric_error(points, witness)
        nearest["isometric"] = NearestSeparated(value, witness, min(loss / 2, value))
    return nearest


class Problem:
    """Points `(N, d)` of diameter 1 about the origin, to be moved as little as possible until they are separated."""

    def __init__(self, points: Floats, classes: Integers, margin: float) -> None:
        self.points, self.classes, self.margin = points, classes, margin
        self.same = same_class(classes)
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
                yield np.stack([ball_centre(rows) for rows in members])[self.classes]
        else:  # the classes as points of a line, one margin apart
            positions = np.arange(len(self.counts)) - (len(self.counts) - 1) / 2
            z = np.zeros_like(self.points)
            z[:, 0] = (self.margin * positions)[self.classes]
            yield z

    def repaired(self, z: Floats) -> Floats | None:
        """`z` with each class drawn towards its mean, no more than needed; None where class means coincide."""
        means = self.class_means(z)
        centres = means[self.classes]
        for shrink in SHRINK:
            drawn = centres + shrink * (z - centres)
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
        return bool(gaps_of(distances, self.same, self.margin).min() >= -TOLERANCE / 2 * distances.max())

    def programs(self, measure: Measure, starts: Floats) -> Iterator[Floats]:
        """From each start: minimise r so that all triplets are separated and nothing differs by more than r."""
        n, d = self.points.shape
        first, second = np.triu_indices(n, 1)
        pair = np.zeros((n, n), dtype=np.int64)
        pair[first, second] = pair[second, first] = np.arange(len(first))
        positives = self.same & ~np.eye(n, dtype=bool)
        a, p, negative = np.nonzero(positives[:, :, None] & ~self.same[:, None, :])
        near, far = pair[a, p], pair[a, negative]
        different = np.flatnonzero(~self.same[first, second]) if self.margin else np.zeros(0, dtype=np.int64)
        rows = np.arange(len(first))
        wanted = self.distances[first, second]

        def room(x: Floats) -> Floats:
            z = x[:-1].reshape(n, d)
            lengths = lengths_of(z[first] - z[second])
            bounds = [lengths[far] - lengths[near] - self.margin, lengths[different] - self.margin]
            if measure == "hausdorff":
                bounds.append(x[-1] - lengths_of(z - self.points))
            else:
                bounds += [x[-1] - (lengths - wanted), x[-1] + (lengths - wanted)]
            return np.concatenate(bounds)

        def slopes(x: Floats) -> Floats:
            z = x[:-1].reshape(n, d)
            difference = z[first] - z[second]
            unit = difference / lengths_of(difference)[:, None]
            of_pairs = np.zeros((len(first), n, d))
            of_pairs[rows, first], of_pairs[rows, second] = unit, -unit
            of_lengths = of_pairs.reshape(len(first), n * d)
            blocks = [of_lengths[far] - of_lengths[near], of_lengths[different]]
            if measure == "hausdorff":
                moved = z - self.points
                of_moves = np.zeros((n, n, d))
                of_moves[np.arange(n), np.arange(n)] = -moved / lengths_of(moved)[:, None]
                blocks.append(of_moves.reshape(n, n * d))
            else:
                blocks += [-of_lengths, of_lengths]
            jacobian = np.concatenate(blocks)
            of_radius = np.zeros((len(jacobian), 1))
            of_radius[len(far) + len(different) :] = 1.0
            return np.hstack([jacobian, of_radius])

        for start in starts:
            x = np.append(start.ravel(), self.value(measure, start))
            yield least_last(x, room, slopes)[:-1].reshape(n, d)

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
        """Gradient of the smoothed maximum and the weighted hinges, for each start, `(S, N, d)`."""
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
            lengths = lengths_of(moved)
            total += (_softmax(lengths / temperature, axes=(1,)) / lengths)[..., None] * moved
        else:
            errors = distances - self.distances
            slopes += _softmax(np.abs(errors) / temperature, axes=(1, 2)) * np.sign(errors)
        pulls = (slopes + slopes.transpose(0, 2, 1)) / distances
        pulls[:, np.arange(len(self.points)), np.arange(len(self.points))] = 0.0  # no digits lost to cancellation
        total += pulls.sum(axis=2)[..., None] * z - pulls @ z
        return total


def _softmax(values: Floats, *, axes: tuple[int, ...]) -> Floats:
    powers = np.exp(values - values.max(axis=axes, keepdims=True))
    shares: Floats = powers / powers.sum(axis=axes, keepdims=True)
    return shares
