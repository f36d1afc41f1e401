"""Sections 4 to 6.1 and appendix G: where a step goes wrong on the scatter diagram, and where triplets lie."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import torch
from scipy.ndimage import label

from trivet.mining import NegativeName, PositiveName
from trivet.runtime.arrays import Booleans, Floats
from trivet_papers.checks import Check
from trivet_papers.xuan2020 import dynamics
from trivet_papers.xuan2020.claims.equations import EXACT, check, midpoints, stepped_cases, vector_changes
from trivet_papers.xuan2020.digits import FACTORS, GAMMAS, LEARNING_RATE, LOSSES, STRENGTHS, centred_digits


def edge_checks() -> Iterator[Check]:
    """The bad bands are open: an exact duplicate of the anchor does not come nearer."""
    axis = np.linspace(-1, 1, 201)
    worst = -np.inf
    for loss, gamma, learning_rate in product(LOSSES, (-0.8, -0.5, 0.0, *GAMMAS), (1e-4, 0.1, 0.4, 1.0)):
        top = dynamics.simulated_step(axis, 1.0, gamma, loss=loss, learning_rate=learning_rate).change_an
        right = dynamics.simulated_step(1.0, axis, gamma, loss=loss, learning_rate=learning_rate).change_ap
        worst = max(worst, float(np.nanmax(top)), float(np.nanmax(right)))
    yield check(
        "edges",
        "The band along the top where negatives come nearer does not hold the edge S_an = 1 itself.",
        f"no change of S_an > {EXACT:g} at S_an = 1, nor of S_ap at S_ap = 1, for any loss, gamma and alpha tried",
        f"{worst:.1e}",
        worst <= EXACT,
    )


def top_left_checks() -> Iterator[Check]:
    """No step moves to the top left where similarities are positive, whatever the entanglement."""
    axis = midpoints(100)
    s_ap, s_an = axis[None, :], axis[:, None]
    top_left = dict.fromkeys(FACTORS, 0)
    for loss, gamma, learning_rate in product(LOSSES, (-0.8, -0.5, 0.0, *GAMMAS), (1e-4, 0.1, 0.5, 1.0)):
        moved = dynamics.simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=learning_rate)
        for factor, strength in product(FACTORS, (0.0, 0.4, 0.8, 1.0)):
            total = dynamics.entangle(s_ap, s_an, moved.change_ap, moved.change_an, strength=strength, factor=factor)
            top_left[factor] += int(
                (dynamics.directions(*total, tolerance=0) == dynamics.DIRECTIONS.index("top-left")).sum()
            )
    full_axis = np.linspace(-1, 1, 201)
    beyond = {
        "second-order, gamma -0.5": _top_left_cells(full_axis, "second-order", -0.5, 0.1),
        "second-order, gamma 0.5": _top_left_cells(full_axis, "second-order", 0.5, 0.1),
        "vanilla, gamma 0.5": _top_left_cells(full_axis, "vanilla", 0.5, 1.0),
    }
    yield check(
        "no-top-left",
        "Of the four directions of movement only three occur between similarities >= 0.",
        "0 cells of [0, 1]^2 move top-left: 3 losses, 6 gamma, 4 p, 4 alpha, both forms of q",
        ", ".join(f"q {factor}: {count}" for factor, count in top_left.items()),
        not any(top_left.values()),
    )
    yield check(
        "top-left-beyond",
        "On the whole of [-1, 1]^2, which the paper does not show, movement to the top left does occur.",
        "some of 201 x 201 points for the second-order loss at alpha = 0.1 and the vanilla loss at alpha = 1",
        ", ".join(f"{name}: {count}" for name, count in beyond.items()),
        all(beyond.values()),
    )


def _top_left_cells(axis: Floats, loss: dynamics.SimulatedLoss, gamma: float, learning_rate: float) -> int:
    moved = dynamics.simulated_step(axis[None, :], axis[:, None], gamma, loss=loss, learning_rate=learning_rate)
    way = dynamics.directions(moved.change_ap, moved.change_an)
    return int((way == dynamics.DIRECTIONS.index("top-left")).sum())


def _areas(
    loss: dynamics.SimulatedLoss, gamma: float, strength: float = 0.0, factor: dynamics.EntanglementFactor = "sqrt"
) -> dynamics.MovementAreas:
    return dynamics.movement_areas(dynamics.vector_field(loss=loss, gamma=gamma, strength=strength, factor=factor))


def sign_area_checks() -> Iterator[Check]:
    """Regions where a step without entanglement goes against the loss."""
    right = dynamics.vector_field(loss="first-order", gamma=0.5)
    leaves, nears = right.change_ap < 0, right.change_an > 0
    least_ap = float(right.s_ap[leaves.any(axis=0)].min(initial=np.inf))
    least_an = float(right.s_an[nears.any(axis=1)].min(initial=np.inf))
    areas = {(loss, gamma): _areas(loss, gamma) for loss, gamma in product(LOSSES, GAMMAS)}
    grows = all(
        areas["second-order", gamma].positive_leaves > areas["first-order", gamma].positive_leaves
        and areas["second-order", gamma].negative_nears > areas["first-order", gamma].negative_nears
        for gamma in GAMMAS
    )
    at = {loss: areas[loss, 0.5] for loss in LOSSES}
    small = dynamics.movement_areas(dynamics.vector_field(loss="vanilla", gamma=0.5, learning_rate=1e-4)).negative_nears
    yield check(
        "right-band",
        "With the first-order loss and gamma = 0.5 positives leave in an area along the right edge.",
        "some cells, all with S_ap > 0.85",
        f"{100 * leaves.mean():.2f} % of the cells, S_ap >= {least_ap:.3f}",
        bool(leaves.any()) and least_ap > 0.85,
    )
    yield check(
        "top-band",
        "With the first-order loss and gamma = 0.5 negatives come nearer in an area along the top edge.",
        "some cells, all with S_an > 0.85",
        f"{100 * nears.mean():.2f} % of the cells, S_an >= {least_an:.3f}",
        bool(nears.any()) and least_an > 0.85,
    )
    yield check(
        "top-band-vanilla",
        "The area along the top needs small steps: the vanilla loss has none at gamma = 0.5 and alpha = 0.1.",
        "0 cells, and some at alpha = 1e-4",
        f"{100 * at['vanilla'].negative_nears:.2f} % and {100 * small:.2f} %",
        at["vanilla"].negative_nears == 0 and small > 0,
    )
    yield check(
        "second-order-areas",
        "The second-order loss does not shrink the areas where a step goes against the loss: it makes them larger.",
        "both areas larger than with the first-order loss for gamma = 0.2, 0.5 and 0.8",
        ", ".join(
            f"{loss} {100 * area.positive_leaves:.1f} % and {100 * area.negative_nears:.1f} %"
            for loss, area in at.items()
            if loss != "vanilla"
        )
        + " at 0.5",
        grows,
    )


# Section 4: the signs of the changes of S_ap and S_an; (1, 1) is printed for the last as well.
KINDS = {"top-right": (1, 1), "bottom-left": (-1, -1), "bottom-right": (1, -1)}


def wrong_cells(field: dynamics.VectorField) -> tuple[Booleans, Booleans]:
    """Problem regions of section 4, where the positive leaves or the negative comes nearer."""
    return field.change_ap < 0, field.change_an > 0


def movement_type_checks() -> Iterator[Check]:
    """The vector fields of figure 2, in numbers."""
    field = dynamics.vector_field(loss="first-order", gamma=0.5, strength=0.8)
    of_ap, of_an = vector_changes(field, gamma=0.5, strength=0.8)
    way, true_way = (
        dynamics.directions(*changes, tolerance=0) for changes in ((field.change_ap, field.change_an), (of_ap, of_an))
    )
    regions = [int(label(way == number, np.ones((3, 3)))[1]) for number in range(len(dynamics.DIRECTIONS))]
    same_way = float((way == true_way).mean())
    lands = (field.s_ap + of_ap > field.s_ap) & (field.s_an[:, None] + of_an < field.s_an[:, None])
    by_kind, printed_kind = (
        (np.sign(field.change_ap) == signs[0]) & (np.sign(field.change_an) == signs[1])
        for signs in (KINDS["bottom-right"], (1, 1))
    )
    problems = wrong_cells(field)
    as_problems, as_printed = (
        [float((cell == truth).mean()) for cell, truth in zip(cells, (of_ap < 0, of_an > 0), strict=True)]
        for cells in (problems, (field.s_ap < 0, field.s_an[:, None] > 0))
    )
    other = dynamics.vector_field(loss="vanilla", gamma=0.5, strength=0.8)
    agree = float((dynamics.directions(other.change_ap, other.change_an, tolerance=0) == way).mean())
    three = _areas("first-order", 0.5, 0.8)
    bad = [_areas("first-order", 0.5, strength) for strength in (0.0, *STRENGTHS)]
    rising = all(
        low.positive_leaves < high.positive_leaves and low.negative_nears < high.negative_nears
        for low, high in pairwise(bad)
    )
    near, far = (dynamics.entangle(s, s, 0.0, 1.0, strength=0.8)[0] for s in (0.9, 0.1))
    still_bad, cells = 0, 0
    for each, gamma, factor in product(LOSSES, GAMMAS, FACTORS):
        weak, strong = (
            dynamics.vector_field(loss=each, gamma=gamma, strength=strength, factor=factor) for strength in STRENGTHS
        )
        for bad_weak, bad_strong in (
            (weak.change_ap < 0, strong.change_ap < 0),
            (weak.change_an > 0, strong.change_an > 0),
        ):
            still_bad += int((bad_weak & bad_strong).sum())
            cells += int(bad_weak.sum())
    yield check(
        "three-types",
        "With entanglement triplets move up-right, down-right or down-left, each in one part of the diagram.",
        "one region of each and none of the fourth; each more than 5 % of the cells; in every cell the direction of "
        "a step on vectors; first-order loss, gamma = 0.5, p = 0.8",
        f"regions {regions}; {100 * three.top_right:.1f} %, {100 * three.bottom_right:.1f} %, "
        f"{100 * three.bottom_left:.1f} %; the direction of vectors in {100 * same_way:.1f} %",
        regions == [1, 1, 1, 0]
        and min(three.top_right, three.bottom_right, three.bottom_left) > 0.05
        and same_way == 1,
    )
    yield check(
        "erratum-bottom-right",
        "The text describes bottom-right as both changes > 0, which is top-right; S_an falls there.",
        "the changes are (> 0, < 0) in exactly the cells whose vectors land to the right and below",
        f"{100 * float((by_kind == lands).mean()):.1f} % of the cells; by the printed signs "
        f"{100 * float((printed_kind == lands).mean()):.1f} %",
        bool((by_kind == lands).all() and lands.any() and not (printed_kind & lands).any()),
    )
    yield check(
        "erratum-signs",
        "The text marks problem regions by S_ap < 0 and S_an > 0; it means the signs of the changes.",
        "the signs of the changes name exactly the cells where vectors step the wrong way, those of the "
        "similarities do not",
        f"{100 * as_problems[0]:.1f} % and {100 * as_problems[1]:.1f} % of the cells; by the printed signs "
        f"{100 * as_printed[0]:.1f} % and {100 * as_printed[1]:.1f} %",
        min(as_problems) == 1 > max(as_printed),
    )
    yield check(
        "entanglement-grows",
        "The stronger the entanglement, the larger the areas where a step goes against the loss.",
        "both areas grow from p = 0 to 0.4 to 0.8, first-order loss, gamma = 0.5",
        ", ".join(f"{100 * area.positive_leaves:.1f} % and {100 * area.negative_nears:.1f} %" for area in bad),
        rising,
    )
    yield check(
        "regions-similar",
        "The problem regions stay where they are as the entanglement grows.",
        "every cell that is wrong at p = 0.4 is at p = 0.8 too, 3 losses, 3 values of gamma, both forms of q",
        f"{still_bad} of {cells}",
        still_bad == cells > 0,
    )
    yield check(
        "entanglement-near",
        "Entanglement is the stronger the nearer positive and negative are to the anchor.",
        "S_ap follows S_an more at (0.9, 0.9) than at (0.1, 0.1)",
        f"{float(near):.2f} and {float(far):.2f} of its change",
        bool(near > far),
    )
    yield check(
        "vanilla-similar",
        "The vanilla triplet loss moves triplets much as the first-order loss does.",
        "the same direction in at least 90 % of the cells, gamma = 0.5, p = 0.8",
        f"{100 * agree:.1f} %",
        agree >= 0.9,
    )


def problem_checks() -> Iterator[Check]:
    """Problems 1 and 2 and what the second-order loss does to them, for both forms of q."""
    for factor in FACTORS:
        areas = {key: _areas(*key, factor) for key in product(LOSSES, GAMMAS, STRENGTHS)}
        first, vanilla, second = (
            [areas[loss, gamma, strength] for gamma, strength in product(GAMMAS, STRENGTHS)]
            for loss in ("first-order", "vanilla", "second-order")
        )
        selected = {key: area for key, area in areas.items() if key[1] == 0.5}  # gamma of figure 2
        top = min(area.top for key, area in selected.items() if key[0] != "second-order")
        still = areas["second-order", 0.5, 0.8].top
        ratio = max(b.box / a.box if a.box else math.inf for a, b in zip(first, second, strict=True))
        down = max(area.right for area in (*first, *vanilla))
        halves = [b.right / a.right for a, b in zip(first, second, strict=True)]
        yield check(
            f"problem1-{factor}",
            f"Problem 1 (q {factor}): with entanglement most hard negatives, S_an > 0.9, are drawn to the anchor.",
            "more than half of the top strip, first-order and vanilla loss, gamma 0.5, p 0.4 and 0.8",
            f"at least {100 * top:.1f} %",
            top > 0.5,
        )
        yield check(
            f"problem1-second-order-{factor}",
            f"The second-order loss (q {factor}) no longer draws triplets near (1, 1) towards (1, 1).",
            "in [0.8, 1]^2 at most a fifth of the cells that move top-right with the first-order loss",
            f"at most {100 * ratio:.1f} % of them",
            ratio <= 0.2,
        )
        yield check(
            f"problem1-remains-{factor}",
            f"Even so (q {factor}) most of the top strip still moves up with the second-order loss.",
            "more than half of the cells with S_an > 0.9, gamma 0.5, p 0.8",
            f"{100 * still:.1f} %",
            still > 0.5,
        )
        yield check(
            f"problem2-{factor}",
            f"Problem 2 (q {factor}): at the right edge the first-order and the vanilla loss push downwards.",
            "mean change of S_an < -0.03 over S_ap > 0.9 at alpha = 0.1",
            f"at most {down:.4f}",
            down < -0.03,
        )
        yield check(
            f"problem2-second-order-{factor}",
            f"The second-order loss (q {factor}) about halves the push downwards at the right edge.",
            "0.4 to 0.6 of that of the first-order loss",
            f"{min(halves):.3f} to {max(halves):.3f}",
            min(halves) >= 0.4 and max(halves) <= 0.6,
        )
    weak = [[_areas(loss, 0.2, 0.4, factor).top for loss in ("first-order", "vanilla")] for factor in FACTORS]
    first_ideal = dynamics.simulated_step(1.0, 0.0, 0.5, loss="first-order")
    second_ideal = dynamics.simulated_step(1.0, 0.0, 0.5, loss="second-order")
    push, none = float(first_ideal.change_an), float(second_ideal.change_an)
    cases = stepped_cases("first-order", LEARNING_RATE)
    step = cases.after[:, 1] - cases.before[:, 1]
    along = np.einsum("td,td->t", step, cases.before[:, 1])[:, None] * cases.before[:, 1]
    remainder = np.linalg.norm(step - along, axis=1) / np.linalg.norm(step, axis=1)
    easy = float(remainder[cases.s_ap > 0.9].max())
    middle = float(remainder[np.abs(cases.s_ap) < 0.5].min())
    yield check(
        "problem1-weak",
        "At gamma = 0.2 and p = 0.4 problem 1 depends on the form of q: with the product most negatives move away.",
        "more than half of the top strip moves up with q sqrt, less with q prod, first-order and vanilla loss",
        "; ".join(
            f"q {factor}: {100 * a:.1f} % and {100 * b:.1f} %" for factor, (a, b) in zip(FACTORS, weak, strict=True)
        ),
        min(weak[0]) > 0.5 > max(weak[1]),
    )
    yield check(
        "ideal-point",
        "At the ideal point (1, 0) the first-order loss still pushes the negative; the second-order loss rests.",
        "change of S_an < -0.05 and exactly 0 at alpha = 0.1",
        f"{push:.4f} and {none:g}",
        push < -0.05 and none == 0 and float(second_ideal.change_ap) == 0,
    )
    yield check(
        "gradient-lost",
        "When positive and anchor lie close, most of the positive's step leaves the sphere and is lost.",
        "of the step at most 0.45 remains where S_ap > 0.9 and at least 0.85 where |S_ap| < 0.5",
        f"{easy:.2f} and {middle:.2f}",
        easy <= 0.45 and middle >= 0.85,
    )


def mining_checks() -> Iterator[Check]:
    """Positions of the named choices of triplets on the diagram."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(8).repeat_interleave(8)
    centres = torch.randn(8, 16, dtype=torch.float64, generator=generator)
    rows = centres[labels] + 1.5 * torch.randn(64, 16, dtype=torch.float64, generator=generator)
    rules: dict[str, tuple[PositiveName, NegativeName]] = {
        "EPHN": ("easy", "hard"),
        "EPSHN": ("easy", "semihard-hardest"),
        "HPHN": ("hard", "hard"),
        "EPEN": ("easy", "easy"),
    }
    named = {
        name: dynamics.triplet_scatter(rows, labels, positives=positives, negatives=negatives)
        for name, (positives, negatives) in rules.items()
    }
    centre = {name: (float(placed.s_ap.mean()), float(placed.s_an.mean())) for name, placed in named.items()}
    below = bool((named["EPSHN"].s_ap > named["EPSHN"].s_an).all())
    two = torch.arange(32).repeat_interleave(2)
    easy = dynamics.triplet_scatter(rows, two, positives="easy").triplets
    hard = dynamics.triplet_scatter(rows, two, positives="hard").triplets
    alike = easy.shape == (64, 3) and bool((easy == hard).all())
    disjoint = dynamics.triplet_scatter(rows, labels, positives="hard", negatives="hard", disjoint=True).triplets
    used = set(disjoint.ravel().tolist())
    text = ", ".join(f"{name} ({s_ap:.2f}, {s_an:.2f})" for name, (s_ap, s_an) in centre.items())
    pixels, numbers = centred_digits()
    digits = dynamics.triplet_scatter(pixels, numbers)
    similar = torch.nn.functional.normalize(pixels, dim=1) @ torch.nn.functional.normalize(pixels, dim=1).T
    together = numbers[:, None] == numbers
    others = similar.masked_fill(together, -2).amax(dim=1).numpy()
    mates = similar.masked_fill(~together, -2).fill_diagonal_(-2).amax(dim=1).numpy()
    off = max(float(np.abs(digits.s_ap - mates).max()), float(np.abs(digits.s_an - others).max()))
    inside = float(((digits.s_ap >= 0) & (digits.s_an >= 0)).mean())
    yield check(
        "omega-s",
        "Nearly all triplets of easy positives and hard negatives have similarities >= 0.",
        "at least 99 % of them (own bound), handwritten digits, EPHN over the whole set",
        f"{100 * inside:.2f} % of {len(digits.s_ap)}",
        inside >= 0.99,
    )
    yield check(
        "whole-set",
        "The scatter of a whole set has of every item the similarity of its nearest of the same and of another class.",
        "difference to those of all pairs <= 1e-9, handwritten digits",
        f"{off:.1e} over {len(digits.s_ap)} of {len(pixels)} items",
        off <= 1e-9,
    )
    yield check(
        "regions",
        "Easy positives lie to the right of hard ones on the diagram, hard negatives above easy ones.",
        "mean S_ap: EPHN above HPHN; mean S_an: EPHN above EPEN; 64 points of 8 classes",
        text,
        centre["EPHN"][0] > centre["HPHN"][0] and centre["EPHN"][1] > centre["EPEN"][1],
    )
    yield check(
        "regions-semihard",
        "Semi-hard negatives give triplets below the diagonal only.",
        "S_ap > S_an in every EPSHN triplet",
        f"{'all' if below else 'not all'} of {len(named['EPSHN'].s_ap)}",
        below and len(named["EPSHN"].s_ap) > 0,
    )
    yield check(
        "two-per-class",
        "With two images of a class in a batch easy and hard positives are the same.",
        "the same triplets",
        "the same" if alike else "others",
        alike,
    )
    yield check(
        "disjoint",
        "In the experiment on movement each vector is in at most one triplet.",
        "no row twice, at most 64 / 3 triplets, at least one",
        f"{len(disjoint)} triplets of {len(used)} rows",
        len(used) == disjoint.size and 0 < len(disjoint) <= 64 // 3,
    )


def group_size_checks() -> Iterator[Check]:
    """Appendix G: what more images of a class in a batch do to the triplets of easy positives and hard negatives."""
    centre = {}
    for per_class in (2, 8):
        positions = []
        for seed in range(8):
            generator = torch.Generator().manual_seed(seed)
            labels = torch.arange(128 // per_class).repeat_interleave(per_class)
            centres = torch.randn(len(labels) // per_class, 16, dtype=torch.float64, generator=generator)
            rows = centres[labels] + torch.randn(128, 16, dtype=torch.float64, generator=generator)
            placed = dynamics.triplet_scatter(rows, labels)
            positions.append((placed.s_ap.mean(), placed.s_an.mean()))
        centre[per_class] = np.mean(positions, axis=0)
    yield check(
        "group-size",
        "With more images of a class in a batch easy positives are nearer and hard negatives farther.",
        "mean S_ap larger and mean S_an smaller for 8 than for 2 of a class, 8 batches of 128 made points",
        " and ".join(f"({s_ap:.3f}, {s_an:.3f}) for {n}" for n, (s_ap, s_an) in centre.items()),
        bool(centre[8][0] > centre[2][0] and centre[8][1] < centre[2][1]),
    )
