"""Theorems 2.4, 3.2 and 3.3: their inequalities on random points, and what is wrong in the proofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np
from scipy.spatial.distance import pdist

from trivet_papers.checks import Check, Checker
from trivet_papers.xu2024 import isometry, nearest_separated
from trivet_papers.xu2024.point_sets import PLANE, PLANE_CLASSES, RANGES, Case, PointSet, cases, gaussian

SETS_ON_A_LINE = 20  # of four points, on which the distances are exact

check = Checker("xu2024")


def tight_ratios() -> tuple[float, float, float]:
    """d_iso / loss, d_haus / d_iso and d_haus / loss of 0, 1 | 1.5, 2.5 on a line, exact."""
    points, classes = np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1])
    loss = isometry.batch_hard_loss(points, classes)
    d_iso = nearest_separated.distance_on_a_line(points, classes, measure="isometric")
    d_haus = nearest_separated.distance_on_a_line(points, classes)
    return d_iso / loss, d_haus / d_iso, d_haus / loss


def inequality_checks(measured: Mapping[PointSet, Sequence[Case]]) -> Iterator[Check]:
    """Theorems 3.2 and 3.3 on random sets of points."""
    every = [case for of_kind in measured.values() for case in of_kind]
    c_iso, c_haus, per_loss = zip(*(case.ratios for case in every), strict=True)
    balls = [
        case.hausdorff / case.enclosing for kind, of_kind in measured.items() if not kind.margin for case in of_kind
    ]
    line = nearest_separated.loss_sandwich(np.array([[0.0], [1.0], [1.5], [2.5]]), np.array([0, 0, 1, 1]))
    spread = [case.ratios[1] for case in measured[PointSet(5, 2, 2)]]
    space = [case.ratios[0] for kind, of_kind in measured.items() if kind.dimension > 2 for case in of_kind]
    fours = []
    for seed in range(SETS_ON_A_LINE):
        fours += [case.ratios for case in cases(PointSet(4, 1, 2), 1, seed=seed)]
    crossed, halves = np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])
    exact = list(zip(*(*fours, tight_ratios()), strict=True))
    largest = [
        nearest_separated.distance_on_a_line(crossed, halves, measure=measure)
        / isometry.batch_hard_loss(crossed, halves)
        for measure in ("isometric", "hausdorff")
    ]
    other, classes = np.array([[0.0], [1.0], [0.6], [2.0], [2.5]]), np.array([0, 0, 1, 1, 1])
    orders = [
        (
            isometry.batch_hard_loss(points, labels),
            nearest_separated.distance_on_a_line(points, labels, measure="isometric"),
            nearest_separated.distance_on_a_line(points, labels),
        )
        for points, labels in ((crossed, halves), (other, classes))
    ]
    yield _attained("theorem-3.2-lower", "d_iso is at most twice d_haus, and may be.", 0.5, exact[1], c_haus)
    yield _attained(
        "theorem-3.3-lower",
        "The loss is at most twice d_iso, and may be; formula (46) says so, the words before (43) the reverse.",
        0.5,
        exact[0],
        c_iso,
    )
    yield _attained(
        "loss-four-hausdorff", "The loss is at most four times d_haus, and may be.", 0.25, exact[2], per_loss
    )
    yield _at_most("enclosing-balls", "Without margin d_haus is at most the largest radius of a class.", 1, balls)
    yield _at_most(
        "theorem-3.3-upper",
        "d_iso is at most twice the loss: the proof does not hold, but no counterexample was found.",
        2,
        [*c_iso, *exact[0], largest[0]],
    )
    yield _at_most(
        "forecast-factor",
        "d_haus is at most the loss, so 2 is the factor of equation (17) for the nearest separated embedding.",
        1,
        [*per_loss, *exact[2], largest[1]],
    )
    yield check(
        "lower-halves-attained",
        "Four points on a line attain both proven bounds: d_iso is half the loss and d_haus half of d_iso.",
        "0.5 and 0.5, to 1e-6",
        f"{line.isometric_per_loss:.7f} and {line.hausdorff_per_isometric:.7f}",
        abs(line.isometric_per_loss - 0.5) < 1e-6 and abs(line.hausdorff_per_isometric - 0.5) < 1e-6,
    )
    yield check(
        "largest-on-a-line",
        "Two classes of two points that alternate on a line have the largest ratios seen: d_iso is the loss, "
        "d_haus three quarters of it; random sets of four points stay below.",
        "1 and 0.75; random sets at most that",
        f"{largest[0]:.6f} and {largest[1]:.6f}; {len(fours)} random sets up to "
        f"{max(ratios[0] for ratios in fours):.4f} and {max(ratios[2] for ratios in fours):.4f}",
        abs(largest[0] - 1) < 1e-9
        and abs(largest[1] - 0.75) < 1e-9
        and all(ratios[0] <= 1 + 1e-9 and ratios[2] <= 0.75 + 1e-9 for ratios in fours),
    )
    yield check(
        "isometric-error-in-space",
        "With room enough (six points in five dimensions, eight in three) d_iso is exactly half the loss.",
        "0.5 to 1e-3",
        f"{len(space)} cases, up to {max(space):.5f}",
        max(space) < 0.501,
    )
    yield check(
        "toy-ratio",
        "The paper's ratio 0.53 of d_haus to d_iso on five points is neither typical nor an upper bound.",
        "median above 0.53",
        f"median {median(spread):.3f}, largest {max(spread):.3f}",
        median(spread) > 0.53,
    )
    yield check(
        "corollary-3.4",
        "Loss, d_iso and d_haus vanish together but do not rank embeddings alike, so minimising one is not "
        "minimising another.",
        "a larger loss with smaller d_iso and d_haus",
        "; ".join(f"loss {loss:g}, d_iso {iso:.4f}, d_haus {haus:.4f}" for loss, iso, haus in orders),
        orders[1][0] > orders[0][0] and orders[1][1] < orders[0][1] and orders[1][2] < orders[0][2],
    )


def range_checks(measured: Mapping[PointSet, Sequence[Case]]) -> Iterator[Check]:
    """Check that the ratios fall into the ranges measured before."""
    for kind, of_kind in measured.items():
        wanted = RANGES[kind]
        ends = [(min(values), max(values)) for values in zip(*(case.ratios for case in of_kind), strict=True)]
        # The search ends up to some 4 % above the nearest.
        inside = [
            low - 5e-4 <= least and most <= 1.05 * high for (low, high), (least, most) in zip(wanted, ends, strict=True)
        ]
        yield check(
            f"ranges-{kind.name.replace(':', '-').replace(', margin ', '-margin-')}",
            f"Random sets of {kind.points} points in dimension {kind.dimension} and {kind.classes} classes"
            + (f" with margin {kind.margin:g}" if kind.margin else "")
            + ": d_iso / loss, d_haus / d_iso and d_haus / loss lie in narrow ranges.",
            f"{_ends(wanted)}; upper ends to 5 %, what the search may miss (own bound)",
            f"{_ends(ends)} in {len(of_kind)} cases",
            all(inside),
        )


def _ends(ranges: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{low:.3f} to {high:.3f}" for low, high in ranges)


def _attained(name: str, statement: str, bound: float, exact: Sequence[float], upper: Sequence[float]) -> Check:
    """`exact` ratios of points on lines; `upper`, of all sets, has what the search adds."""
    return check(
        name,
        statement,
        f"no ratio below {bound:g}; of the exact ones on lines the smallest is {bound:g}, to 1e-9",
        f"{len(exact)} on lines, smallest {min(exact):.10f}; {len(upper)} in all, smallest {min(upper):.4f}",
        abs(min(exact) - bound) <= 1e-9 and min(upper) >= bound * (1 - 1e-6),
    )


def _at_most(name: str, statement: str, bound: float, ratios: Sequence[float]) -> Check:
    holds = max(ratios) <= bound * (1 + 1e-6)
    return check(name, statement, f"ratio <= {bound:g}", f"{len(ratios)} cases, largest {max(ratios):.4f}", holds)


def proof_checks() -> Iterator[Check]:
    """The errors in the proofs."""
    thin = [isometry.thickness(gaussian(0, n, d)) for n, d in ((3, 4), (32, 32), (128, 128))]
    f = np.array([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    ratios = []
    for height in (0.1, 0.01):
        g = f + np.array([[0.0, 0.0], [0.0, height], [0.0, 0.0]])
        # A rigid motion keeps the second difference at 0, that of g is 2 h: some point is off by a quarter of that.
        least = float(np.linalg.norm(g[0] - 2 * g[1] + g[2])) / 4
        most = isometry.displacement(g, f + np.array([0.0, height / 2]))
        ratios.append((least / isometry.isometric_error(f, g), most / isometry.isometric_error(f, g)))
    merged, distinct = np.zeros((2, 1)), np.array([[0.0], [0.1]])
    error, at_merged = isometry.isometric_error(merged, distinct), float(np.abs(merged - distinct)[1, 0])
    at_first = float(np.abs(merged - distinct)[0, 0])
    line, halves = np.array([[0.0], [1.0], [2.1], [3.1]]), np.array([0, 0, 1, 1])
    gaps = [isometry.triplet_separation(s * line, halves, margin=0.1) for s in (1.0, 0.9)]
    nearest = nearest_separated.distance_to_separation(PLANE, PLANE_CLASSES, margin=0.1, measure="isometric")
    changes = (pdist(nearest.witness) - pdist(PLANE))[pdist(PLANE_CLASSES[:, None]) > 0]
    extremes = changes[np.abs(changes) >= nearest.value * (1 - 1e-3)]
    distant = np.array([[0.0], [1.0], [0.8], [1.8], [100.0], [101.0]])
    isometric_distance = nearest_separated.distance_to_separation(
        distant, np.array([0, 0, 1, 1, 2, 2]), measure="isometric"
    )
    slack = float(
        np.abs(isometric_distance.witness[0] - isometric_distance.witness[4:]).min()
        - np.abs(isometric_distance.witness[0] - isometric_distance.witness[1]).max()
    )
    loss = isometry.batch_hard_loss(distant, np.array([0, 0, 1, 1, 2, 2]))
    yield check(
        "thickness-zero",
        "Sets of at most d points have thickness 0, so theorem 2.4 says nothing about batches of at most d items.",
        "0",
        ", ".join(f"{value:g}" for value in thin),
        max(thin) == 0,
    )
    yield check(
        "lemma-not-linear",
        "Lift the middle of three points in a line by h: the best rigid motion is off by 1 / h times the error.",
        "10.02 at h = 0.1 and 100.0 at h = 0.01",
        ", ".join(f"between {low:.3f} and {high:.3f}" for low, high in ratios),
        all(abs(end - want) < 0.01 for ends, want in zip(ratios, (10.02, 100.0), strict=True) for end in ends),
    )
    yield check(
        "coinciding-points",
        "Where f maps two items to one point, the second may move by the isometric error although the first "
        "does not, against the printed inequality.",
        "displacement at most 0 is printed",
        f"displacements {at_first:g} and {at_merged:g}, isometric error {error:g}",
        at_merged > at_first and at_merged <= at_first + error,
    )
    yield check(
        "slack-of-nearest",
        "Triplets of the nearest separated embedding may have slack far above the loss, against step (40): "
        "classes that were far apart stay so.",
        "slack above the loss",
        f"slack {slack:.2f}, loss {loss:.2f}",
        slack > loss,
    )
    yield check(
        "shrinking-leaves-the-set",
        "With a margin above 0 a separated embedding scaled by 0.9 may not be separated, against the proof of "
        "theorem 3.3.",
        "separated, then not",
        f"gap {gaps[0].worst_gap:.3f}, then {gaps[1].worst_gap:.3f}",
        gaps[0].separated and not gaps[1].separated,
    )
    yield check(
        "signs-of-changes",
        "In the nearest separated embedding negatives need not only move apart: the largest changes of distances "
        "between classes have both signs.",
        "a change of each sign within 0.1 % of d_iso",
        f"d_iso {nearest.value:.5f}, changes {', '.join(f'{change:+.5f}' for change in extremes)}",
        bool((extremes > 0).any() and (extremes < 0).any()),
    )
