"""Random sets of points, and the sizes and distances of theorems 3.2 and 3.3 and of equation (17) on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.spatial.distance import cdist

from trivet.collapse.isometry import gaps_of, same_class
from trivet.runtime.arrays import Floats
from trivet_papers.xu2024 import isometry, nearest_separated
from trivet_papers.xu2024.nearest_separated import DescentReduction

PLANE = np.array([[0.0, 0.0], [2.0, 0.5], [1.0, 1.5], [1.2, 0.2], [3.0, 1.0]])
PLANE_CLASSES = np.array([0, 0, 0, 1, 1])
MOVED = np.array([[0.1, 0.2], [1.5, 0.9], [1.0, 1.1], [1.7, -0.2], [2.6, 0.4]])
SOLID = np.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 1], [2, -1, 0.5]])
REPEATS = 5  # seeds of which tables of descent and scaling give the mean
BATCHES = {"2x2": 4, "8x4": 32, "18x4": 72, "18x32": 576}
DESCENTS = (4, 6, 10, 20, 40, 80)
SHORT, LONG = 50, 1000  # steps of descent


def gaussian(seed: int, n: int, d: int) -> Floats:
    """n points of independent standard normal coordinates `(n, d)`."""
    return np.random.RandomState(seed).randn(n, d)


# Descent on the hardest triplet shrinks these six points below the diameter that equation (17) allows.
SHRINKING = gaussian(0, 6, 2)


@dataclass(frozen=True)
class PointSet:
    """A kind of random sets of points: item i is of class i modulo `classes`."""

    points: int
    dimension: int
    classes: int
    margin: float = 0.0

    @property
    def name(self) -> str:
        """Such as "5:2:2", with the margin if there is one."""
        name = f"{self.points}:{self.dimension}:{self.classes}"
        return f"{name}, margin {self.margin:g}" if self.margin else name


@dataclass(frozen=True)
class Case:
    """One random set of points that are not separated, and how far from it."""

    loss: float
    isometric: float
    hausdorff: float
    enclosing: float
    diameter: float
    nearest_diameter: float  # of the nearest separated points; NaN for points of a line

    @property
    def ratios(self) -> tuple[float, float, float]:
        """d_iso / loss, d_haus / d_iso, d_haus / loss."""
        return self.isometric / self.loss, self.hausdorff / self.isometric, self.hausdorff / self.loss


# Measured before, of sets drawn like these: smallest and largest d_iso / loss, d_haus / d_iso, d_haus / loss.
RANGES = {
    PointSet(5, 1, 2): ((0.5, 0.9402), (0.5, 0.75), (0.25, 0.7052)),
    PointSet(5, 2, 2): ((0.5, 0.5629), (0.5, 1.3606), (0.25, 0.6803)),
    PointSet(5, 2, 2, 0.1): ((0.5, 0.5179), (0.5003, 1.1772), (0.2501, 0.5886)),
    PointSet(6, 5, 2): ((0.5, 0.5), (0.611, 0.902), (0.305, 0.451)),
    PointSet(6, 5, 3): ((0.5, 0.5), (0.611, 0.902), (0.305, 0.451)),
    PointSet(8, 3, 4): ((0.5, 0.5), (0.611, 0.902), (0.305, 0.451)),
    PointSet(10, 2, 5): ((0.5, 0.664), (0.588, 0.88), (0.294, 0.468)),
    PointSet(10, 2, 2): ((0.5, 0.521), (0.683, 1.057), (0.341, 0.529)),
}


def cases(kind: PointSet, count: int, *, seed: int = 0, starts: int = 8) -> list[Case]:
    """`count` random sets of a kind, from consecutive seeds, without those that are separated; exact on a line."""
    measured = []
    classes = np.arange(kind.points) % kind.classes
    for at in range(seed, seed + count):
        points = gaussian(at, kind.points, kind.dimension)
        if isometry.triplet_separation(points, classes, margin=kind.margin).separated:
            continue
        if kind.dimension == 1:
            isometric, hausdorff = (
                nearest_separated.distance_on_a_line(points, classes, margin=kind.margin, measure=measure)
                for measure in ("isometric", "hausdorff")
            )
            loss = isometry.batch_hard_loss(points, classes, margin=kind.margin)
            enclosing = max(isometry.enclosing_radius(points[classes == c]) for c in range(kind.classes))
            after = math.nan
        else:
            sandwich = nearest_separated.loss_sandwich(points, classes, margin=kind.margin, starts=starts)
            isometric, hausdorff = sandwich.isometric.value, sandwich.hausdorff.value
            loss, enclosing = sandwich.loss, sandwich.enclosing
            after = isometry.diameter(sandwich.hausdorff.witness)
        measured.append(Case(loss, isometric, hausdorff, enclosing, isometry.diameter(points), after))
    return measured


@dataclass(frozen=True)
class Scale:
    """Both sides of equation (17) for untrained points, means over seeds."""

    diameter: float
    loss: float
    mean_loss: float
    mean_distance: float

    @property
    def forecast(self) -> float:
        """The diameter less twice the loss."""
        return isometry.diameter_bound(self.diameter, self.loss)


def scale(n: int, samples_per_class: int, d: int, *, seed: int = 0, repeats: int = REPEATS, margin: float = 0) -> Scale:
    """Diameter, losses and mean distance of n normal points in classes of that size."""
    same, measured = same_class(np.arange(n) // samples_per_class), []
    for at in range(seed, seed + repeats):
        points = gaussian(at, n, d)
        distances = cdist(points, points)
        hinges = np.maximum(-gaps_of(distances, same, margin), 0.0)
        measured.append((distances.max(), hinges.max(), hinges.mean(), distances.sum() / (n * (n - 1))))
    return Scale(*map(fmean, zip(*measured, strict=True)))


def shrinkage(n: int, reduction: DescentReduction, steps: Sequence[int]) -> list[float]:
    """Diameter after so many steps of descent over the one before, means over seeds."""
    ways = [
        nearest_separated.descend(gaussian(seed, n, 2), np.arange(n) % 2, reduction=reduction, steps=max(steps))
        for seed in range(REPEATS)
    ]
    return [fmean(way.diameter_after(at) / way.diameters[0] for way in ways) for at in steps]
