"""Xu et al.: Mathematical justification of hard negative mining via isometric approximation theorem (ICLR 2024).

Checks of its inequalities on small sets of points, of the faults in its proofs, and of its forecast of collapse, which
is put to the test by descending on the loss of free points and by training small networks on digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial.distance import cdist, pdist
from torch import Tensor, nn

from trivet.collapse.spectrum import effective_rank, rank_of
from trivet.papers.checks import Check
from trivet.theory import isometry
from trivet.theory.isometry import DescentReduction, Reduction

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

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
    found = []
    classes = np.arange(kind.points) % kind.classes
    for at in range(seed, seed + count):
        points = gaussian(at, kind.points, kind.dimension)
        if isometry.triplet_separation(points, classes, margin=kind.margin).separated:
            continue
        if kind.dimension == 1:
            isometric, hausdorff = (
                isometry.distance_on_a_line(points, classes, margin=kind.margin, measure=measure)
                for measure in ("isometric", "hausdorff")
            )
            loss = isometry.batch_hard_loss(points, classes, margin=kind.margin)
            enclosing = max(isometry.enclosing_radius(points[classes == c]) for c in range(kind.classes))
            after = math.nan
        else:
            sandwich = isometry.loss_sandwich(points, classes, margin=kind.margin, starts=starts)
            isometric, hausdorff = sandwich.isometric.value, sandwich.hausdorff.value
            loss, enclosing = sandwich.loss, sandwich.enclosing
            after = isometry.diameter(sandwich.hausdorff.witness)
        found.append(Case(loss, isometric, hausdorff, enclosing, isometry.diameter(points), after))
    return found


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
        return isometry.diameter_forecast(self.diameter, self.loss).bound


def scale(n: int, samples_per_class: int, d: int, *, seed: int = 0, repeats: int = REPEATS, margin: float = 0) -> Scale:
    """Diameter, losses and mean distance of n normal points in classes of that size."""
    classes = np.arange(n) // samples_per_class
    sets = [gaussian(at, n, d) for at in range(seed, seed + repeats)]
    return Scale(
        diameter=fmean(map(isometry.diameter, sets)),
        loss=fmean(isometry.batch_hard_loss(points, classes, margin=margin) for points in sets),
        mean_loss=fmean(isometry.batch_hard_loss(points, classes, margin=margin, reduction="mean") for points in sets),
        mean_distance=fmean(float(pdist(points).mean()) for points in sets),
    )


def shrinkage(n: int, reduction: DescentReduction, steps: Sequence[int]) -> list[float]:
    """Diameter after so many steps of descent over the one before, means over seeds."""
    ways = [
        isometry.descend(gaussian(seed, n, 2), np.arange(n) % 2, reduction=reduction, steps=max(steps))
        for seed in range(REPEATS)
    ]
    return [fmean(way.diameter_after(at) / way.diameters[0] for way in ways) for at in steps]


@dataclass(frozen=True)
class Spread:
    """Embeddings of held-out digits."""

    embeddings: Floats = field(compare=False)  # (597, d)
    labels: Integers = field(compare=False)  # (597,) the digits
    diameter: float
    mean_distance: float
    recall: float  # at 1


@dataclass(frozen=True)
class Training:
    """A small network before and after training."""

    before: Spread
    after: Spread
    first_loss: float  # of the hardest triplet of the first batch

    @property
    def kept(self) -> float:
        """The mean distance after over that before; collapsed below 0.05."""
        return self.after.mean_distance / self.before.mean_distance

    @property
    def forecast(self) -> float:
        """The diameter equation (17) foresees."""
        return isometry.diameter_forecast(self.before.diameter, self.first_loss).bound


def train_digits(
    num_classes: int,
    samples_per_class: int,
    d: int,
    *,
    seed: int,
    reduction: Reduction = "max",
    noise: float = 0.0,
    margin: float = 0.0,
    steps: int = 800,
) -> Training:
    """Train two convolutions and a linear map on 1200 digits of 8 x 8 pixels, and measure the 597 others.

    Adam at 0.001 on batch-hard hinges of plain distances, batches of some samples of some classes; 1 to 5 seconds.

    Args:
        num_classes: of a batch, 2 to 10.
        samples_per_class: in a batch, 1 to 80.
        d: dimension of the embedding, >= 1.
        reduction: "max" trains on the hardest triplet of a batch alone, "mean" on the hardest one of each anchor.
        noise: share of the training labels that are replaced by a random digit.
    """
    from sklearn.datasets import load_digits  # here: it is slow to load

    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    pixels, labels = digits.data[order] / 16, digits.target[order]
    pixels = (pixels - pixels[:1200].mean()) / pixels[:1200].std()
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
    random = np.random.RandomState(seed)
    trained = labels[:1200].copy()
    if noise:
        replaced = random.rand(1200) < noise
        trained[replaced] = random.randint(0, 10, replaced.sum())
    members = [np.flatnonzero(trained == c) for c in range(10)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, d)),
        )
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    classes = torch.arange(num_classes).repeat_interleave(samples_per_class)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small gain nothing from more
    try:
        before = _spread(network, images[1200:], labels[1200:])
        first = math.nan
        for step in range(steps):
            chosen = random.permutation(10)[:num_classes]
            rows = np.concatenate([random.permutation(members[c])[:samples_per_class] for c in chosen])
            hinges = _hinges(network(images[rows]), classes, margin)
            if step == 0:
                first = float(hinges.detach().max())
            adam.zero_grad()
            torch.autograd.backward(hinges.max() if reduction == "max" else hinges.mean())
            adam.step()
        return Training(before, _spread(network, images[1200:], labels[1200:]), first)
    finally:
        torch.set_num_threads(threads)


def _hinges(z: Tensor, classes: Tensor, margin: float) -> Tensor:
    """Of the farthest positive and nearest negative of each anchor `(N,)`."""
    same = classes[:, None] == classes
    with torch.no_grad():
        # No matrix product here: it loses the digits of a collapsed embedding.
        distances = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
        positive = distances.masked_fill(~same, -1).argmax(1)
        negative = distances.masked_fill(same, torch.inf).argmin(1)
    to_positive, to_negative = (
        ((z - z[other]).square().sum(1) + isometry.SMOOTH).sqrt() for other in (positive, negative)
    )
    return (to_positive - to_negative + margin).relu()


def _spread(network: nn.Module, images: Tensor, labels: Integers) -> Spread:
    with torch.no_grad():
        embeddings = network(images).double().numpy()
    distances = cdist(embeddings, embeddings)
    mean, most = distances.sum() / (len(labels) * (len(labels) - 1)), distances.max()
    np.fill_diagonal(distances, np.inf)
    hits = labels[distances.argmin(axis=1)] == labels
    return Spread(embeddings, labels, float(most), float(mean), float(hits.mean()))


def checks() -> list[Check]:
    """One row for each statement of the paper, or fault of it, that a computation can settle; about a minute."""
    measured = {kind: cases(kind, 12) for kind in RANGES}
    return [
        *definition_checks(),
        *vector_checks(),
        *inequality_checks(measured),
        *range_checks(measured),
        *proof_checks(),
        *forecast_checks(measured),
        *table_checks(),
        *training_checks(),
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
    alone = isometry.triplet_separation(PLANE, np.zeros(5, int), margin=3.0)
    constant = isometry.triplet_separation(np.array([[0.0, 1.0], [0.1, 1.0]])[PLANE_CLASSES], PLANE_CLASSES)
    bounds = [
        isometry.class_hausdorff_distance(gaussian(seed, 8, 2), gaussian(seed + 50, 8, 2), np.arange(8) % 2)
        <= isometry.displacement(gaussian(seed, 8, 2), gaussian(seed + 50, 8, 2))
        for seed in range(20)
    ]
    apart = np.array([[0.0], [1.0], [5.0], [6.0]])
    signed = [isometry.hardest_triplet(s * apart, halves).violation for s in (1.0, 10.0, 100.0)]
    hinges = [isometry.batch_hard_loss(s * apart, halves) for s in (1.0, 10.0, 100.0)]
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
            "xu2024-class-constant",
            "Without a margin an embedding that maps each class to a point of its own is separated.",
            "separated",
            f"worst gap {constant.worst_gap:g}",
            constant.separated,
        ),
        Check(
            "xu2024-one-class",
            "With one class there is no triplet, so every embedding is separated, whatever the margin.",
            "separated at margin 3",
            f"separated: {alone.separated}, worst gap {alone.worst_gap:g}",
            alone.separated,
        ),
        Check(
            "xu2024-short-version-hinge",
            "The short version's loss lacks the hinge: without it the loss of a separated embedding has no lower "
            "bound, as growing lowers it for ever.",
            "falls with the scale; with the hinge 0 at every scale",
            f"{_numbers(signed)} at scales 1, 10, 100; with the hinge {_numbers(hinges)}",
            signed[0] > signed[1] > signed[2] and max(hinges) == 0,
        ),
        Check(
            "xu2024-displacement-bounds-hausdorff",
            "The Hausdorff-like distance of two embeddings is at most the largest displacement of an item.",
            "20 of 20 random pairs",
            f"{sum(bounds)} of 20",
            all(bounds),
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


def vector_checks() -> list[Check]:
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
        sandwich = isometry.loss_sandwich(PLANE, PLANE_CLASSES, margin=margin, starts=24)
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
    return [
        _equal(
            "xu2024-vector-losses",
            "Losses of five points in the plane: of the hardest triplet and mean, without margin and with 0.1.",
            (1.2071524383, 0.9013484993, 1.3071524383, 1.0013484993),
            losses,
        ),
        _equal(
            "xu2024-vector-sizes",
            "Diameter, mean and median distance, and thickness of the five points.",
            (3.1622776602, 1.6976425559, 1.6084946001, 1.2874526192),
            sizes,
        ),
        _equal(
            "xu2024-vector-effective-rank",
            "Effective rank (RankMe) of the five points, centred and as they are.",
            (1.8675914151, 1.6671206715),
            ranks,
        ),
        _equal(
            "xu2024-vector-distances",
            "Hausdorff-like distance, displacement and isometric error from the five points to five others.",
            (0.7211102551, 0.7211102551, 0.8881061777),
            moves,
        ),
        _equal(
            "xu2024-vector-nearest",
            "Distances d_haus and d_iso of the five points to separation, without margin and with 0.1, of 24 searches.",
            (0.63842428, 0.61395797, 0.67692062, 0.65447751),
            nearest,
            tolerance=1e-4,
        ),
        _equal(
            "xu2024-vector-solid",
            "Thickness and diameter of six points in space.",
            (1.3416407865, 3.6400549446),
            solid,
        ),
        Check(
            "xu2024-thickness-two-ways",
            "The thickness by calipers or difference body is the width that iterated linear programs end at.",
            "relative difference < 1e-9 (own bound) for 12 sets of 12 points, d = 2, 3, 4",
            f"at most {max(same):.1e}",
            max(same) < 1e-9,
        ),
        Check(
            "xu2024-separation-on-a-line",
            "Four points of a line at 0, 1 | 2, 3 are separated without margin only, at 0, 1 | 1.9, 3 not, and all "
            "equal without margin only.",
            "yes, no, no, yes, no",
            ", ".join("yes" if each else "no" for each in separated),
            separated == [True, False, False, True, False],
        ),
        _exact_lines(),
    ]


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
        found = (
            isometry.batch_hard_loss(points, labels, margin=margin),
            isometry.batch_hard_loss(points, labels, margin=margin, reduction="mean"),
            isometry.distance_on_a_line(points, labels, margin=margin, measure="isometric"),
            isometry.distance_on_a_line(points, labels, margin=margin),
        )
        errors += [abs(value - want) for value, want in zip(found, wanted, strict=True)]
        search = isometry.loss_sandwich(points, labels, margin=margin)
        above += [search.isometric.value / found[2], search.hausdorff.value / found[3]]
    return Check(
        "xu2024-exact-on-a-line",
        "Losses and exact distances of eight sets on a line; the search finds each distance or a local minimum.",
        "32 values to 1e-9; the search at most 5 % above",
        f"off by at most {max(errors):.1e}; search at most {100 * (max(above) - 1):.1f} % above",
        max(errors) < 1e-9 and min(above) > 1 - 1e-6 and max(above) < 1.05,
    )


def _equal(
    name: str, statement: str, wanted: Sequence[float], found: Sequence[float], tolerance: float = 1e-9
) -> Check:
    holds = all(abs(value - want) <= tolerance * want for value, want in zip(found, wanted, strict=True))
    return Check(
        name, statement, f"{_numbers(wanted)}, relative tolerance {tolerance:g}", _numbers(found, digits=10), holds
    )


def _numbers(values: Sequence[float], digits: int = 11) -> str:
    return ", ".join(f"{value:.{digits}g}" for value in values)


def inequality_checks(measured: Mapping[PointSet, Sequence[Case]]) -> list[Check]:
    """Theorems 3.2 and 3.3 on random sets of points."""
    every = [case for found in measured.values() for case in found]
    c_iso, c_haus, per_loss = zip(*(case.ratios for case in every), strict=True)
    balls = [case.hausdorff / case.enclosing for kind, found in measured.items() if not kind.margin for case in found]
    line = isometry.loss_sandwich(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]))
    spread = [case.ratios[1] for case in measured[PointSet(5, 2, 2)]]
    space = [case.ratios[0] for kind, found in measured.items() if kind.dimension > 2 for case in found]
    fours = []
    for seed in range(20):
        fours += [case.ratios for case in cases(PointSet(4, 1, 2), 1, seed=seed)]
    crossed, halves = np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])
    largest = [
        isometry.distance_on_a_line(crossed, halves, measure=measure) / isometry.batch_hard_loss(crossed, halves)
        for measure in ("isometric", "hausdorff")
    ]
    other, classes = np.array([[0.0], [1.0], [0.6], [2.0], [2.5]]), np.array([0, 0, 1, 1, 1])
    orders = [
        (
            isometry.batch_hard_loss(points, labels),
            isometry.distance_on_a_line(points, labels, measure="isometric"),
            isometry.distance_on_a_line(points, labels),
        )
        for points, labels in ((crossed, halves), (other, classes))
    ]
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
            "xu2024-largest-on-a-line",
            "Two classes of two points that alternate on a line have the largest ratios seen: d_iso is the loss, "
            "d_haus three quarters of it; random sets of four points stay below.",
            "1 and 0.75; random sets at most that",
            f"{largest[0]:.6f} and {largest[1]:.6f}; {len(fours)} random sets up to "
            f"{max(ratios[0] for ratios in fours):.4f} and {max(ratios[2] for ratios in fours):.4f}",
            abs(largest[0] - 1) < 1e-9
            and abs(largest[1] - 0.75) < 1e-9
            and all(ratios[0] <= 1 + 1e-9 and ratios[2] <= 0.75 + 1e-9 for ratios in fours),
        ),
        Check(
            "xu2024-isometric-error-in-space",
            "With room enough (six points in five dimensions, eight in three) d_iso is exactly half the loss.",
            "0.5 to 1e-3",
            f"{len(space)} cases, up to {max(space):.5f}",
            max(space) < 0.501,
        ),
        Check(
            "xu2024-toy-ratio",
            "The paper's ratio 0.53 of d_haus to d_iso on five points is neither typical nor an upper bound.",
            "median above 0.53",
            f"median {median(spread):.3f}, largest {max(spread):.3f}",
            median(spread) > 0.53,
        ),
        Check(
            "xu2024-corollary-3.4",
            "Loss, d_iso and d_haus vanish together but do not rank embeddings alike, so minimising one is not "
            "minimising another.",
            "a larger loss with smaller d_iso and d_haus",
            "; ".join(f"loss {loss:g}, d_iso {iso:.4f}, d_haus {haus:.4f}" for loss, iso, haus in orders),
            orders[1][0] > orders[0][0] and orders[1][1] < orders[0][1] and orders[1][2] < orders[0][2],
        ),
    ]


def range_checks(measured: Mapping[PointSet, Sequence[Case]]) -> list[Check]:
    """Whether the ratios fall into the ranges measured before."""
    rows = []
    for kind, found in measured.items():
        wanted = RANGES[kind]
        ends = [(min(values), max(values)) for values in zip(*(case.ratios for case in found), strict=True)]
        # The search ends up to some 4 % above the nearest.
        inside = [
            low - 5e-4 <= least and most <= 1.05 * high for (low, high), (least, most) in zip(wanted, ends, strict=True)
        ]
        rows.append(
            Check(
                f"xu2024-ranges-{kind.name.replace(':', '-').replace(', margin ', '-margin-')}",
                f"Random sets of {kind.points} points in dimension {kind.dimension} and {kind.classes} classes"
                + (f" with margin {kind.margin:g}" if kind.margin else "")
                + ": d_iso / loss, d_haus / d_iso and d_haus / loss lie in narrow ranges.",
                f"{_ends(wanted)}; upper ends to 5 %, what the search may miss (own bound)",
                f"{_ends(ends)} in {len(found)} cases",
                all(inside),
            )
        )
    return rows


def _ends(ranges: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{low:.3f} to {high:.3f}" for low, high in ranges)


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
    distant = np.array([[0.0], [1.0], [0.8], [1.8], [100.0], [101.0]])
    kept = isometry.distance_to_separation(distant, np.array([0, 0, 1, 1, 2, 2]), measure="isometric")
    slack = float(np.abs(kept.witness[0] - kept.witness[4:]).min() - np.abs(kept.witness[0] - kept.witness[1]).max())
    loss = isometry.batch_hard_loss(distant, np.array([0, 0, 1, 1, 2, 2]))
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
            "xu2024-slack-of-nearest",
            "Triplets of the nearest separated embedding may have slack far above the loss, against step (40): "
            "classes that were far apart stay so.",
            "slack above the loss",
            f"slack {slack:.2f}, loss {loss:.2f}",
            slack > loss,
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


def forecast_checks(measured: Mapping[PointSet, Sequence[Case]]) -> list[Check]:
    """Equations (16) and (17), and what descent on the loss does."""
    plane = [case for found in measured.values() for case in found if not math.isnan(case.nearest_diameter)]
    changes = [abs(case.nearest_diameter - case.diameter) / (2 * case.hausdorff) for case in plane]
    below = [isometry.diameter_forecast(case.diameter, case.loss).bound - case.nearest_diameter for case in plane]
    line, halves = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    at_zero = isometry.distance_to_separation(line, halves).value
    doubled = isometry.triplet_separation(2 * line, halves).separated
    grown = isometry.diameter(2 * line) - isometry.diameter(line)
    classes = np.arange(6) % 2
    loss = isometry.batch_hard_loss(SHRINKING, classes)
    promised = isometry.diameter_forecast(isometry.diameter(SHRINKING), loss)
    end = isometry.descend(SHRINKING, classes, reduction="max", steps=LONG)
    end_loss, end_diameter = isometry.batch_hard_loss(end.points, classes), isometry.diameter(end.points)
    near = isometry.distance_to_separation(SHRINKING, classes).value
    far = isometry.class_hausdorff_distance(SHRINKING, end.points, classes)
    outlier = np.concatenate([gaussian(0, 200, 4), np.full((1, 4), 20.0)])
    by_diameter = isometry.diameter(outlier) / isometry.diameter(outlier[:-1])
    by_mean = float(pdist(outlier).mean() / pdist(outlier[:-1]).mean())
    return [
        Check(
            "xu2024-equation-16-nearest",
            "The nearest separated embedding differs in diameter by at most twice its Hausdorff-like distance.",
            "ratio <= 1",
            f"{len(changes)} cases, largest {max(changes):.4f}",
            max(changes) <= 1 + 1e-6,
        ),
        Check(
            "xu2024-equation-17-nearest",
            "The nearest separated embedding keeps the diameter equation (17) promises with factor 2.",
            "promised less kept <= 0",
            f"{len(below)} cases, largest {max(below):.4f}",
            max(below) <= 1e-9,
        ),
        Check(
            "xu2024-equation-16-any",
            "Equation (16) fails for whichever separated embedding training reaches: twice one is separated too.",
            "difference above twice the distance",
            f"difference {grown:g}, distance {at_zero:g}",
            doubled and grown > 2 * at_zero,
        ),
        Check(
            "xu2024-equation-17-descent",
            "Descent on the hardest triplet of six points ends with loss 0 below the diameter equation (17) promises.",
            "loss 0, diameter below the bound",
            f"loss {end_loss:g} after {end.steps} steps, diameter {end_diameter:.4f}, bound {promised.bound:.4f}",
            end_loss == 0 and not promised.vacuous and end_diameter < promised.bound,
        ),
        Check(
            "xu2024-descent-goes-elsewhere",
            "That descent ends far from the nearest separated embedding, of which alone equation (17) speaks.",
            "ends farther away than the nearest",
            f"ends at {far:.4f}, the nearest at {near:.4f} or less",
            far > near,
        ),
        Check(
            "xu2024-diameter-and-outlier",
            "One outlier among 201 points multiplies the diameter and hardly changes the mean distance, so collapse is "
            "judged by the mean.",
            "diameter x 2 or more, mean distance x 1.2 or less (own bounds)",
            f"diameter x {by_diameter:.2f}, mean distance x {by_mean:.2f}",
            by_diameter >= 2 and by_mean <= 1.2,
        ),
    ]


# Seed of 20 points in the plane: loss, mean loss, d_haus that three searches reach, diameter, mean distance.
TWENTY = {
    0: (3.6878, 2.5520, 1.8564, 5.2633, 1.8877),
    1: (3.3239, 2.3040, 1.4564, 4.1035, 1.6709),
    2: (3.5093, 2.2736, 1.5494, 3.9141, 1.8345),
    3: (4.3608, 2.5559, 1.8493, 4.6601, 1.8059),
}
SHRINKAGES: dict[tuple[DescentReduction, int], tuple[float, ...]] = {
    ("sum", SHORT): (0.738, 0.825, 0.566, 0.489, 0.344, 0.286),
    ("sum", LONG): (0.603, 0.825, 0.516, 0.488, 0.340, 0.264),
    ("max", SHORT): (0.820, 0.885, 0.854, 0.877, 0.911, 0.924),
    ("max", LONG): (0.535, 0.320, 0.038, 0.171, 0.325, 0.449),
}
# Batch: for d = 4, 32, 128, 1024 the diameter, loss, mean loss and diameter less twice the loss, as printed.
SCALES = {
    "2x2": (
        ("3.27", "1.35", ".74", ".57"),
        ("8.94", ".91", ".46", "7.13"),
        ("17.1", "1.29", ".59", "14.5"),
        ("46.4", "1.58", ".60", "43.2"),
    ),
    "8x4": (
        ("5.55", "3.72", "2.13", "-1.89"),
        ("11.0", "3.93", "2.37", "3.15"),
        ("18.9", "3.96", "2.45", "11.0"),
        ("48.6", "4.36", "2.54", "39.8"),
    ),
    "18x4": (
        ("6.30", "4.32", "2.44", "-2.34"),
        ("11.5", "4.34", "2.72", "2.84"),
        ("19.3", "4.37", "2.71", "10.6"),
        ("48.9", "4.72", "2.74", "39.5"),
    ),
    "18x32": (
        ("7.63", "6.21", "3.90", "-4.80"),
        ("12.6", "6.44", "4.36", "-.26"),
        ("20.6", "6.42", "4.41", "7.80"),
        ("49.8", "6.40", "4.45", "37.0"),
    ),
}
DIMENSIONS = (4, 32, 128, 1024)


def table_checks() -> list[Check]:
    """Tables of the nearest separated embedding of 20 points, of descent, and of the scaling of equation (17)."""
    rows = []
    ratios = []
    for seed, wanted in TWENTY.items():
        points, classes = gaussian(seed, 20, 2), np.arange(20) % 2
        nearest = isometry.distance_to_separation(points, classes, starts=3, steps=600)
        found = (
            isometry.batch_hard_loss(points, classes),
            isometry.batch_hard_loss(points, classes, reduction="mean"),
            nearest.value,
            isometry.diameter(points),
            float(pdist(points).mean()),
        )
        ratios.append(float(pdist(nearest.witness).mean()) / found[4])
        exact = [abs(found[k] - wanted[k]) < 6e-5 for k in (0, 1, 3, 4)]
        forecast = isometry.diameter_forecast(found[3], found[0])
        rows.append(
            Check(
                f"xu2024-twenty-points-{seed}",
                f"20 points in the plane, seed {seed}: loss, mean loss, d_haus, diameter, mean distance; the bound of "
                "equation (17) is vacuous.",
                f"{_numbers(wanted)}; d_haus at most 5 % above, the others to 6e-5; bound below 0",
                f"{_numbers(found, digits=5)}; bound {forecast.bound:.2f}",
                all(exact) and nearest.lower_bound <= found[2] <= 1.05 * wanted[2] and forecast.vacuous,
            )
        )
    rows.append(
        Check(
            "xu2024-nearest-is-no-point",
            "The nearest separated embedding of 20 points in the plane is about half as large, not a point.",
            "ratios of mean distances 0.51 to 0.70, to 0.05 (own bound)",
            _numbers(ratios, digits=3),
            all(0.46 <= ratio <= 0.75 for ratio in ratios),
        )
    )
    shrunk: dict[tuple[DescentReduction, int], list[float]] = {key: [] for key in SHRINKAGES}
    reductions: tuple[DescentReduction, DescentReduction] = ("sum", "max")
    for n in DESCENTS:
        for reduction in reductions:
            for at, value in zip((SHORT, LONG), shrinkage(n, reduction, (SHORT, LONG)), strict=True):
                shrunk[reduction, at].append(value)
    for (reduction, at), kept in SHRINKAGES.items():
        what = "the sum over anchors" if reduction == "sum" else "the hardest triplet"
        rows.append(
            Check(
                f"xu2024-descent-{reduction}-{at}",
                f"Diameter after {at} steps down {what} over that before, for 4, 6, 10, 20, 40 and 80 points.",
                f"{_numbers(kept)}, to 1e-3",
                _numbers(shrunk[reduction, at], digits=3),
                all(abs(value - want) <= 1e-3 for value, want in zip(shrunk[reduction, at], kept, strict=True)),
            )
        )
    total, most = shrunk["sum", SHORT], shrunk["max", SHORT]
    rows.append(
        Check(
            "xu2024-larger-batch-shrinks-more",
            "Descent on the sum over anchors shrinks larger sets more; 50 steps on the worst triplet alone do not.",
            "from 4 to 20 to 80 points smaller for the sum, not for the maximum",
            f"sum {_numbers([total[0], total[3], total[5]], 3)}; maximum {_numbers([most[0], most[5]], 3)}",
            total[0] > total[3] > total[5] and most[5] >= most[0],
        )
    )
    return [*rows, *_scale_checks()]


def _scale_checks() -> list[Check]:
    found = {batch: [scale(n, int(batch.split("x")[1]), d) for d in DIMENSIONS] for batch, n in BATCHES.items()}
    rows = []
    for batch, wanted in SCALES.items():
        cells = [(each.diameter, each.loss, each.mean_loss, each.forecast) for each in found[batch]]
        close = [
            abs(value - float(text)) <= 10.0 ** -len(text.split(".")[1])
            for cell, texts in zip(cells, wanted, strict=True)
            for value, text in zip(cell, texts, strict=True)
        ]
        rows.append(
            Check(
                f"xu2024-scale-{batch}",
                f"Diameter, loss, mean loss and forecast of normal points in {batch} batches, d = 4, 32, 128, 1024.",
                "; ".join(", ".join(f"{float(text):g}" for text in texts) for texts in wanted)
                + "; to one unit of the last digit printed",
                "; ".join(_numbers(cell, digits=3) for cell in cells),
                all(close),
            )
        )
    empty = {
        (batch, d): isometry.diameter_forecast(each.diameter, each.loss).vacuous
        for batch in BATCHES
        for d, each in zip(DIMENSIONS, found[batch], strict=True)
    }
    vacuous = {("8x4", 4), ("18x4", 4), ("18x32", 4), ("18x32", 32)}
    low, high = found["8x4"][1], found["8x4"][3]
    small, large = found["2x2"][2], found["18x32"][2]
    return [
        *rows,
        Check(
            "xu2024-equation-17-vacuous",
            "In low dimension or for large batches the bound of equation (17) is below 0 and says nothing.",
            "of 16 cells vacuous for 8x4, 18x4, 18x32 at d = 4 and 18x32 at d = 32",
            ", ".join(f"{batch} at d = {d}" for (batch, d), is_empty in empty.items() if is_empty),
            {cell for cell, is_empty in empty.items() if is_empty} == vacuous,
        ),
        Check(
            "xu2024-scales",
            "Of normal points the diameter grows like the root of 2 d while the loss hardly changes.",
            "diameter / sqrt(2 d) within 0.4 of 1; losses within 20 % of each other (own bounds)",
            f"diameters {low.diameter:.1f} and {high.diameter:.1f}, losses {low.loss:.2f} and {high.loss:.2f} "
            "at d = 32 and 1024",
            all(abs(each.diameter / math.sqrt(2 * d) - 1) < 0.4 for each, d in ((low, 32), (high, 1024)))
            and abs(high.loss / low.loss - 1) < 0.2,
        ),
        Check(
            "xu2024-scales-with-batch",
            "With the batch the loss grows several times and the diameter by a fifth; the mean distance stays.",
            "from 4 to 576 points, d = 128: loss x 3 or more, diameter x 1.3 or less, mean distance within 5 % "
            "(own bounds)",
            f"loss x {large.loss / small.loss:.2f}, diameter x {large.diameter / small.diameter:.2f}, mean distance "
            f"x {large.mean_distance / small.mean_distance:.3f}",
            large.loss >= 3 * small.loss
            and large.diameter <= 1.3 * small.diameter
            and abs(large.mean_distance / small.mean_distance - 1) < 0.05,
        ),
    ]


def training_checks() -> list[Check]:
    """What can be trained in a minute of the paper's experiments: small networks on digits."""

    def all_seeds(*batch: int, seeds: int = 2, reduction: Reduction = "max", noise: float = 0.0) -> list[Training]:
        return [train_digits(*batch, seed=seed, reduction=reduction, noise=noise) for seed in range(seeds)]

    small, large = all_seeds(2, 2, 32), all_seeds(10, 8, 32)
    flat, deep = all_seeds(8, 4, 4, seeds=3), all_seeds(8, 4, 512, seeds=3)
    clean = train_digits(8, 4, 32, seed=0, reduction="mean")
    noisy_small = all_seeds(2, 2, 32, reduction="mean", noise=0.3)
    noisy = all_seeds(8, 4, 32, reduction="mean", noise=0.3)
    rescued = train_digits(8, 4, 32, seed=0, reduction="mean", noise=0.3, margin=0.1)
    first = {
        d: fmean(train_digits(2, 2, d, seed=seed, steps=1).before.mean_distance for seed in range(3))
        for d in (2, 4, 8, 32, 128, 512)
    }
    margins = [train_digits(8, 4, 32, seed=0, margin=margin, steps=100).after.mean_distance for margin in (0.0, 0.05)]

    def kept(trained: Sequence[Training]) -> str:
        return _numbers([each.kept for each in trained], digits=3)

    return [
        Check(
            "xu2024-training-batch",
            "Trained on the hardest triplet of a batch, digits spread with 2x2 batches and collapse with 10x8.",
            "mean distance x more than 1, x less than 0.1, 2 seeds each",
            f"{kept(small)}; {kept(large)}",
            all(each.kept > 1 for each in small) and all(each.kept < 0.1 for each in large),
        ),
        Check(
            "xu2024-training-dimension",
            "In 8x4 batches the same training collapses in 4 dimensions and not in 512.",
            "mean distance x less than 0.05, x more than 0.15, means of 3 seeds",
            f"{kept(flat)}; {kept(deep)}",
            fmean(each.kept for each in flat) < 0.05 < 0.15 < fmean(each.kept for each in deep),
        ),
        Check(
            "xu2024-training-noise",
            "With 30 % random labels the mean over anchors collapses too, in 8x4 batches and not in 2x2.",
            "mean distance x more than 0.15 in 2x2, x less than 0.05 in 8x4, 2 seeds each",
            f"{kept(noisy_small)}; {kept(noisy)}",
            all(each.kept > 0.15 for each in noisy_small) and all(each.kept < 0.05 for each in noisy),
        ),
        Check(
            "xu2024-training-clean-mean",
            "With clean labels the mean over anchors does not collapse in 8x4 batches, so the data matter as much.",
            "mean distance x more than 0.5 (own bound), recall at 1 above 0.95",
            f"x {clean.kept:.3f}, recall {clean.after.recall:.3f}",
            clean.kept > 0.5 and clean.after.recall > 0.95,
        ),
        Check(
            "xu2024-training-margin",
            "A margin of 0.1 does not save the training with noisy labels.",
            "mean distance x less than 0.05 (own bound: that of collapse)",
            f"x {rescued.kept:.3g}",
            rescued.kept < 0.05,
        ),
        Check(
            "xu2024-training-margin-hardest",
            "The hardest triplet does not depend on the margin, so as long as its loss is above 0 neither does its "
            "training.",
            "margins 0 and 0.05 end alike after 100 steps, to 1e-6",
            f"mean distances {margins[0]:.7f} and {margins[1]:.7f}",
            abs(margins[1] / margins[0] - 1) < 1e-6,
        ),
        Check(
            "xu2024-training-initial-size",
            "The mean distance of an untrained network grows like the root of the dimension.",
            "0.102, 0.148, 0.223, 0.445, 0.873, 1.742 for d = 2, 4, 8, 32, 128, 512, to 2 %, means of 3 seeds",
            _numbers(list(first.values()), digits=3),
            all(
                abs(value / want - 1) < 0.02
                for value, want in zip(first.values(), (0.102, 0.148, 0.223, 0.445, 0.873, 1.742), strict=True)
            ),
        ),
        Check(
            "xu2024-equation-17-networks",
            "Networks break the bound of equation (17): it holds for clean labels in 2x2 batches and fails where "
            "training collapses.",
            "holds in 2x2; fails for 30 % noise in 8x4, although above 0",
            f"2x2: {_against(small)}; noise: {_against(noisy)}",
            all(each.after.diameter >= each.forecast for each in small)
            and all(0 < each.forecast > each.after.diameter for each in noisy),
        ),
    ]


def _against(trained: Sequence[Training]) -> str:
    return ", ".join(f"diameter {each.after.diameter:.3f} against {each.forecast:.3f}" for each in trained)
