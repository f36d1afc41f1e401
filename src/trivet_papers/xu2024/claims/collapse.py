"""Section 3.3 and the experiments: the forecast of equation (17), descent on the loss, and small networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import numpy as np
import torch
from scipy.spatial.distance import pdist

from trivet.collapse.isometry import Reduction
from trivet_papers.checks import Check, Checker, as_text
from trivet_papers.xu2024 import isometry, nearest_separated, training
from trivet_papers.xu2024.nearest_separated import DescentReduction
from trivet_papers.xu2024.point_sets import (
    BATCHES,
    DESCENTS,
    LONG,
    SHORT,
    SHRINKING,
    Case,
    PointSet,
    gaussian,
    scale,
    shrinkage,
)
from trivet_papers.xu2024.training import Training, train_digits

check = Checker("xu2024")


def forecast_checks(measured: Mapping[PointSet, Sequence[Case]]) -> Iterator[Check]:
    """Equations (16) and (17), and what descent on the loss does."""
    plane = [case for each in measured.values() for case in each if not math.isnan(case.nearest_diameter)]
    changes = [abs(case.nearest_diameter - case.diameter) / (2 * case.hausdorff) for case in plane]
    below = [isometry.diameter_bound(case.diameter, case.loss) - case.nearest_diameter for case in plane]
    line, halves = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    at_zero = nearest_separated.distance_to_separation(line, halves).value
    doubled = isometry.triplet_separation(2 * line, halves).separated
    grown = isometry.diameter(2 * line) - isometry.diameter(line)
    classes = np.arange(6) % 2
    loss = isometry.batch_hard_loss(SHRINKING, classes)
    promised = isometry.diameter_bound(isometry.diameter(SHRINKING), loss)
    end = nearest_separated.descend(SHRINKING, classes, reduction="max", steps=LONG)
    end_loss, end_diameter = isometry.batch_hard_loss(end.points, classes), isometry.diameter(end.points)
    near = nearest_separated.distance_to_separation(SHRINKING, classes).value
    far = isometry.class_hausdorff_distance(SHRINKING, end.points, classes)
    crossed, pairs = np.array([[0.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 1, 1])
    image = np.array([[0.75], [1.25], [1.75], [2.25]])
    is_nearest = isometry.triplet_separation(image, pairs).separated and isometry.displacement(crossed, image) == 0.75
    is_nearest &= abs(nearest_separated.distance_on_a_line(crossed, pairs) - 0.75) < 1e-9
    crossed_loss, before, after = isometry.batch_hard_loss(crossed, pairs), *map(isometry.diameter, (crossed, image))
    crossed_bound = isometry.diameter_bound(before, crossed_loss)
    outlier = np.concatenate([gaussian(0, 200, 4), np.full((1, 4), 20.0)])
    by_diameter = isometry.diameter(outlier) / isometry.diameter(outlier[:-1])
    by_mean = float(pdist(outlier).mean() / pdist(outlier[:-1]).mean())
    yield check(
        "equation-16-nearest",
        "The nearest separated embedding differs in diameter by at most twice its Hausdorff-like distance.",
        "ratio <= 1",
        f"{len(changes)} cases, largest {max(changes):.4f}",
        max(changes) <= 1 + 1e-6,
    )
    yield check(
        "equation-17-nearest",
        "The nearest separated embedding keeps the diameter that equation (17) predicts with factor 2.",
        "bound minus diameter <= 0",
        f"{len(below)} cases, largest {max(below):.4f}",
        max(below) <= 1e-9,
    )
    yield check(
        "equation-17-factor",
        "A factor of 1 is too small: a nearest separated embedding of 0, 2 | 1, 3 loses 1.5 times the loss in "
        "diameter.",
        "nearest, at 0.75; its diameter below the one before less the loss, not below the bound of equation (17)",
        f"{'nearest' if is_nearest else 'not nearest'}; {after:g}, {before - crossed_loss:g} and {crossed_bound:g}",
        is_nearest and crossed_bound <= after < before - crossed_loss,
    )
    yield check(
        "equation-16-any",
        "Equation (16) fails for whichever separated embedding training reaches: twice one is separated too.",
        "difference above twice the distance",
        f"difference {grown:g}, distance {at_zero:g}",
        doubled and grown > 2 * at_zero,
    )
    yield check(
        "equation-17-descent",
        "Descent on the hardest triplet of six points ends with loss 0 below the bound of equation (17).",
        "loss 0, diameter below the bound",
        f"loss {end_loss:g} after {end.steps} steps, diameter {end_diameter:.4f}, bound {promised:.4f}",
        end_loss == 0 and promised > 0 and end_diameter < promised,
    )
    yield check(
        "descent-goes-elsewhere",
        "That descent ends far from the nearest separated embedding, the only one that equation (17) is about.",
        "ends farther away than the nearest",
        f"ends at {far:.4f}, the nearest at {near:.4f} or less",
        far > near,
    )
    yield check(
        "diameter-and-outlier",
        "One outlier among 201 points multiplies the diameter and hardly changes the mean distance, so collapse is "
        "judged by the mean.",
        "diameter x 2 or more, mean distance x 1.2 or less (own bounds)",
        f"diameter x {by_diameter:.2f}, mean distance x {by_mean:.2f}",
        by_diameter >= 2 and by_mean <= 1.2,
    )


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


def table_checks() -> Iterator[Check]:
    """Tables of the nearest separated embedding of 20 points, of descent, and of the scaling of equation (17)."""
    ratios = []
    for seed, wanted in TWENTY.items():
        points, classes = gaussian(seed, 20, 2), np.arange(20) % 2
        nearest = nearest_separated.distance_to_separation(points, classes, starts=3, steps=600)
        sizes = (
            isometry.batch_hard_loss(points, classes),
            isometry.batch_hard_loss(points, classes, reduction="mean"),
            nearest.value,
            isometry.diameter(points),
            float(pdist(points).mean()),
        )
        ratios.append(float(pdist(nearest.witness).mean()) / sizes[4])
        exact = [abs(sizes[k] - wanted[k]) < 6e-5 for k in (0, 1, 3, 4)]
        bound = isometry.diameter_bound(sizes[3], sizes[0])
        yield check(
            f"twenty-points-{seed}",
            f"20 points in the plane, seed {seed}: loss, mean loss, d_haus, diameter, mean distance; the bound of "
            "equation (17) is vacuous.",
            f"{as_text(wanted)}; d_haus at most 5 % above, the others to 6e-5; bound below 0",
            f"{as_text(sizes, digits=5)}; bound {bound:.2f}",
            all(exact) and nearest.lower_bound <= sizes[2] <= 1.05 * wanted[2] and bound <= 0,
        )
    yield check(
        "nearest-is-no-point",
        "The nearest separated embedding of 20 points in the plane is about half as large, not a point.",
        "ratios of mean distances 0.51 to 0.70, to 0.05 (own bound)",
        as_text(ratios, digits=3),
        all(0.46 <= ratio <= 0.75 for ratio in ratios),
    )
    shrunk: dict[tuple[DescentReduction, int], list[float]] = {key: [] for key in SHRINKAGES}
    reductions: tuple[DescentReduction, DescentReduction] = ("sum", "max")
    for n in DESCENTS:
        for reduction in reductions:
            for at, value in zip((SHORT, LONG), shrinkage(n, reduction, (SHORT, LONG)), strict=True):
                shrunk[reduction, at].append(value)
    for (reduction, at), expected_shrinkage in SHRINKAGES.items():
        what = "the sum over anchors" if reduction == "sum" else "the hardest triplet"
        yield check(
            f"descent-{reduction}-{at}",
            f"Diameter after {at} steps down {what} over that before, for 4, 6, 10, 20, 40 and 80 points.",
            f"{as_text(expected_shrinkage)}, to 1e-3",
            as_text(shrunk[reduction, at], digits=3),
            all(
                abs(value - want) <= 1e-3 for value, want in zip(shrunk[reduction, at], expected_shrinkage, strict=True)
            ),
        )
    total, most = shrunk["sum", SHORT], shrunk["max", SHORT]
    yield check(
        "larger-batch-shrinks-more",
        "Descent on the sum over anchors shrinks larger sets more; 50 steps on the worst triplet alone do not.",
        "from 4 to 20 to 80 points smaller for the sum, not for the maximum",
        f"sum {as_text([total[0], total[3], total[5]], 3)}; maximum {as_text([most[0], most[5]], 3)}",
        total[0] > total[3] > total[5] and most[5] >= most[0],
    )
    yield from _scale_checks()


def _scale_checks() -> Iterator[Check]:
    scales = {batch: [scale(n, int(batch.split("x")[1]), d) for d in DIMENSIONS] for batch, n in BATCHES.items()}
    for batch, wanted in SCALES.items():
        cells = [(each.diameter, each.loss, each.mean_loss, each.forecast) for each in scales[batch]]
        close = [
            abs(value - float(text)) <= 10.0 ** -len(text.split(".")[1])
            for cell, texts in zip(cells, wanted, strict=True)
            for value, text in zip(cell, texts, strict=True)
        ]
        yield check(
            f"scale-{batch}",
            f"Diameter, loss, mean loss and forecast of normal points in {batch} batches, d = 4, 32, 128, 1024.",
            "; ".join(", ".join(f"{float(text):g}" for text in texts) for texts in wanted)
            + "; to one unit of the last digit printed",
            "; ".join(as_text(cell, digits=3) for cell in cells),
            all(close),
        )
    empty = {
        (batch, d): isometry.diameter_bound(each.diameter, each.loss) <= 0
        for batch in BATCHES
        for d, each in zip(DIMENSIONS, scales[batch], strict=True)
    }
    vacuous = {("8x4", 4), ("18x4", 4), ("18x32", 4), ("18x32", 32)}
    low, high = scales["8x4"][1], scales["8x4"][3]
    small, large = scales["2x2"][2], scales["18x32"][2]
    yield check(
        "equation-17-vacuous",
        "In few dimensions or for large batches the bound of equation (17) is below 0 and vacuous.",
        "of 16 cells vacuous for 8x4, 18x4, 18x32 at d = 4 and 18x32 at d = 32",
        ", ".join(f"{batch} at d = {d}" for (batch, d), is_empty in empty.items() if is_empty),
        {cell for cell, is_empty in empty.items() if is_empty} == vacuous,
    )
    yield check(
        "scales",
        "Of normal points the diameter grows like the root of 2 d while the loss hardly changes.",
        "diameter / sqrt(2 d) within 0.4 of 1; losses within 20 % of each other (own bounds)",
        f"diameters {low.diameter:.1f} and {high.diameter:.1f}, losses {low.loss:.2f} and {high.loss:.2f} "
        "at d = 32 and 1024",
        all(abs(each.diameter / math.sqrt(2 * d) - 1) < 0.4 for each, d in ((low, 32), (high, 1024)))
        and abs(high.loss / low.loss - 1) < 0.2,
    )
    yield check(
        "scales-with-batch",
        "With the batch the loss grows several times and the diameter by a fifth; the mean distance stays.",
        "from 4 to 576 points, d = 128: loss x 3 or more, diameter x 1.3 or less, mean distance within 5 % "
        "(own bounds)",
        f"loss x {large.loss / small.loss:.2f}, diameter x {large.diameter / small.diameter:.2f}, mean distance "
        f"x {large.mean_distance / small.mean_distance:.3f}",
        large.loss >= 3 * small.loss
        and large.diameter <= 1.3 * small.diameter
        and abs(large.mean_distance / small.mean_distance - 1) < 0.05,
    )


def hinge_checks() -> Iterator[Check]:
    """The loss of the training that follows: with random positives digits collapse too."""
    points, labels = gaussian(0, 40, 8), np.arange(40) % 5
    hinges = training.batch_hard_hinges(torch.from_numpy(points), torch.from_numpy(labels), 0.0)
    yield check.values(
        "training-hardest",
        "Digits are trained with the farthest positive and the nearest negative of each anchor.",
        [isometry.batch_hard_loss(points, labels, reduction=reduction) for reduction in ("max", "mean")],
        [float(hinges.max()), float(hinges.mean())],
    )


def training_checks() -> Iterator[Check]:
    """The experiments of the paper that train in a minute: small networks on digits."""

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

    def remaining(trained: Sequence[Training]) -> str:
        return as_text([each.shrinkage for each in trained], digits=3)

    yield check(
        "training-batch",
        "Trained on the hardest triplet of a batch, digits spread with 2x2 batches and collapse with 10x8.",
        "mean distance x more than 1, x less than 0.1, 2 seeds each",
        f"{remaining(small)}; {remaining(large)}",
        all(each.shrinkage > 1 for each in small) and all(each.shrinkage < 0.1 for each in large),
    )
    yield check(
        "training-dimension",
        "In 8x4 batches the same training collapses in 4 dimensions and not in 512.",
        "mean distance x less than 0.05, x more than 0.15, means of 3 seeds",
        f"{remaining(flat)}; {remaining(deep)}",
        fmean(each.shrinkage for each in flat) < 0.05 < 0.15 < fmean(each.shrinkage for each in deep),
    )
    yield check(
        "training-noise",
        "With 30 % random labels the mean over anchors collapses too, in 8x4 batches and not in 2x2.",
        "mean distance x more than 0.15 in 2x2, x less than 0.05 in 8x4, 2 seeds each",
        f"{remaining(noisy_small)}; {remaining(noisy)}",
        all(each.shrinkage > 0.15 for each in noisy_small) and all(each.shrinkage < 0.05 for each in noisy),
    )
    yield check(
        "training-clean-mean",
        "With clean labels the mean over anchors does not collapse in 8x4 batches, so the data matter as much.",
        "mean distance x more than 0.5 (own bound), recall at 1 above 0.95",
        f"x {clean.shrinkage:.3f}, recall {clean.after.recall:.3f}",
        clean.shrinkage > 0.5 and clean.after.recall > 0.95,
    )
    yield check(
        "training-margin",
        "A margin of 0.1 does not save the training with noisy labels.",
        "mean distance x less than 0.05 (own bound: that of collapse)",
        f"x {rescued.shrinkage:.3g}",
        rescued.shrinkage < 0.05,
    )
    yield check(
        "training-margin-hardest",
        "The hardest triplet does not depend on the margin, so as long as its loss is above 0 neither does its "
        "training.",
        "margins 0 and 0.05 end alike after 100 steps, to 1e-6",
        f"mean distances {margins[0]:.7f} and {margins[1]:.7f}",
        abs(margins[1] / margins[0] - 1) < 1e-6,
    )
    yield check(
        "training-initial-size",
        "The mean distance of an untrained network grows like the root of the dimension.",
        "0.102, 0.148, 0.223, 0.445, 0.873, 1.742 for d = 2, 4, 8, 32, 128, 512, to 2 %, means of 3 seeds",
        as_text(list(first.values()), digits=3),
        all(
            abs(value / want - 1) < 0.02
            for value, want in zip(first.values(), (0.102, 0.148, 0.223, 0.445, 0.873, 1.742), strict=True)
        ),
    )
    yield check(
        "equation-17-networks",
        "Networks break the bound of equation (17): it holds for clean labels in 2x2 batches and fails where "
        "training collapses.",
        "holds in 2x2; fails for 30 % noise in 8x4, although above 0",
        f"2x2: {_against(small)}; noise: {_against(noisy)}",
        all(each.after.diameter >= each.forecast for each in small)
        and all(0 < each.forecast > each.after.diameter for each in noisy),
    )


def _against(trained: Sequence[Training]) -> str:
    return ", ".join(f"diameter {each.after.diameter:.3f} against {each.forecast:.3f}" for each in trained)
