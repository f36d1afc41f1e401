"""Section 6.1: where the steps of an optimiser move triplets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from trivet.losses import NCATripletLoss, SecondOrderTripletLoss
from trivet.mining import mine
from trivet_papers.checks import Check
from trivet_papers.xuan2020 import dynamics
from trivet_papers.xuan2020.claims.equations import check
from trivet_papers.xuan2020.digits import (
    LEARNING_RATE,
    LOSSES,
    digit_movement,
    free_losses,
    hidden_embedding,
    random_weights,
)


def free_movement_checks() -> Iterator[Check]:
    """Steps of an optimiser on the vectors themselves, which the model describes."""
    inputs, labels = _classes(5)
    start = normalize(inputs, dim=1)
    placed = dynamics.triplet_scatter(start, labels, positives="hard", negatives="hard", disjoint=True)
    index = torch.from_numpy(placed.triplets)
    same, total = 0, 0
    for loss in LOSSES:
        free = start.clone().requires_grad_()
        (free.grad,) = torch.autograd.grad(free_losses(free[index], loss).sum(), free)
        torch.optim.SGD([free], lr=LEARNING_RATE).step()
        moved = dynamics.movement(start, free, index)
        model = dynamics.simulated_step(placed.s_ap, placed.s_an, placed.gamma, loss=loss, learning_rate=LEARNING_RATE)
        same += int((moved.direction == dynamics.directions(model.change_ap, model.change_an)).sum())
        total += len(moved.direction)
    yield check(
        "movement-free",
        "Triplets without shared vectors move, in an optimiser step on the vectors, as the model predicts.",
        "the predicted direction for every disjoint HPHN triplet, 3 losses",
        f"{same} of {total}",
        same == total > 0,
    )


def _classes(seed: int) -> tuple[Tensor, Tensor]:
    """Six classes of 16 points in 12 dimensions, about as wide as far apart, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(6).repeat_interleave(16)
    centres = torch.randn(6, 12, dtype=torch.float64, generator=generator)
    return centres[labels] + torch.randn(96, 12, dtype=torch.float64, generator=generator), labels


def network_movement_checks() -> Iterator[Check]:
    """The experiment of section 6.1, in its initial phase, on small networks: steps on shared weights."""
    first, second = (
        _network_shares(criterion)
        for criterion in (
            NCATripletLoss(positives="hard", negatives="hard", disjoint=True),
            SecondOrderTripletLoss(positives="hard", negatives="hard", disjoint=True),
        )
    )
    text = "; ".join(
        f"{name}: " + ", ".join(f"{way} {100 * share:.1f} %" for way, share in shares.items())
        for name, shares in (("first-order", first), ("second-order", second))
    )
    yield check(
        "movement-initial",
        "In a fresh network the first-order loss moves hard triplets to the top right, the second-order loss to "
        "the bottom right.",
        "most common: top-right and bottom-right, disjoint HPHN triplets of 4 networks with a hidden layer",
        text,
        max(first, key=lambda way: first[way]) == "top-right"
        and max(second, key=lambda way: second[way]) == "bottom-right",
    )
    yield check(
        "movement-top-left",
        "Hardly a triplet moves to the top left in a network either, where nothing forbids it.",
        "at most 5 % of disjoint HPHN triplets with each loss",
        text,
        max(first["top-left"], second["top-left"]) <= 0.05,
    )


def _network_shares(criterion: NCATripletLoss | SecondOrderTripletLoss) -> dict[str, float]:
    """The share of each direction over 6 small steps of each of 4 networks."""
    ways = []
    for seed in range(4):
        inputs, labels = _classes(seed)
        weights = [weight.requires_grad_() for weight in random_weights((12, 32, 8), seed)]
        optimiser = torch.optim.SGD(weights, lr=1e-3)
        for _ in range(6):
            before = hidden_embedding(inputs, weights)
            triplets = mine(before, labels, positives="hard", negatives="hard", distance="cosine", disjoint=True)
            gradients = torch.autograd.grad(criterion(before, labels), weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            optimiser.step()
            ways.append(dynamics.movement(before, hidden_embedding(inputs, weights), triplets).direction)
    way = np.concatenate(ways)
    return {name: float((way == number).mean()) for number, name in enumerate(dynamics.DIRECTIONS)}


def digit_movement_checks() -> Iterator[Check]:
    """The experiment of section 6.1 in both phases, on the stand-in; its bounds are our own."""
    first, second = digit_movement("first-order"), digit_movement("second-order")

    def shares(moved: dynamics.Movement) -> str:
        return ", ".join(f"{way} {100 * share:.1f} %" for way, share in moved.shares.items())

    fresh, late = first["initial", "HPHN"], first["late", "HPHN"]
    fresh_second, late_second = second["initial", "HPHN"], second["late", "HPHN"]
    drift, drift_second = ((moved.after - moved.before).mean(axis=0) for moved in (fresh, fresh_second))
    down = [
        [of["initial", "HPHN"].shares["bottom-right"] + of["initial", "HPHN"].shares["bottom-left"] for of in pair]
        for pair in ((first, second), (digit_movement("first-order", seed=1), digit_movement("second-order", seed=1)))
    ]
    late_easy, late_easy_second = first["late", "EPEN"], second["late", "EPEN"]
    most = [max(moved.shares, key=moved.shares.__getitem__) for moved in (late, late_easy)]
    mixed = [late_second.shares[way] for way in dynamics.DIRECTIONS[:3]]
    nears = late_easy_second.shares["top-right"] + late_easy_second.shares["top-left"]
    opposite = float((late_easy_second.before[:, 1] < 0).mean())
    top_left = max(moved.shares["top-left"] for moved in (fresh, late, fresh_second, late_second))
    wrong = late_easy_second.direction == dynamics.DIRECTIONS.index("top-left")
    below = float((late_easy_second.before[wrong, 1] < 0).mean())
    yield check(
        "movement-digits-initial",
        "In a fresh network on digits the first-order loss moves hard triplets to the top right.",
        "more than half of the disjoint HPHN triplets of two epochs (own bound)",
        shares(fresh),
        fresh.shares["top-right"] > 0.5,
    )
    yield check(
        "movement-digits-initial-second",
        "There the second-order loss moves most hard negatives away, the first-order loss few; the paper's bottom "
        "right is one part of it.",
        "bottom right and bottom left together more than half of the same triplets with the second-order loss, "
        "less than half with the first-order loss, for 2 seeds",
        "; ".join(f"{100 * second_order:.1f} % against {100 * first_order:.1f} %" for first_order, second_order in down)
        + f"; {shares(fresh_second)}",
        all(first_order < 0.5 < second_order for first_order, second_order in down),
    )
    yield check(
        "movement-digits-pattern",
        "So in the early phase the first-order loss moves the dots up and right, the second-order loss down.",
        "mean changes of S_ap and S_an both > 0 with the first, of S_an < 0 with the second, HPHN",
        f"({drift[0]:+.1e}, {drift[1]:+.1e}) and ({drift_second[0]:+.1e}, {drift_second[1]:+.1e})",
        bool(drift[0] > 0 and drift[1] > 0 and drift_second[1] < 0),
    )
    yield check(
        "movement-digits-late",
        "In a trained network the first-order loss moves most triplets to the bottom right.",
        "the most common direction, HPHN and EPEN",
        f"HPHN: {shares(late)}; EPEN: {shares(late_easy)}",
        most == ["bottom-right", "bottom-right"],
    )
    yield check(
        "movement-digits-late-second",
        "In a trained network the second-order loss moves triplets to the bottom right, bottom left and top right.",
        "each of the three at least 10 %, none above 60 %, HPHN (own bounds)",
        shares(late_second),
        min(mixed) >= 0.1 and max(mixed) <= 0.6,
    )
    yield check(
        "movement-digits-late-easy",
        "Easy negatives of a trained network lie beyond orthogonal, and the second-order loss pulls them back up.",
        "S_an < 0 in at least 90 % of EPEN triplets, and S_an grows in at least 80 % (own bounds)",
        f"{100 * opposite:.1f} % and {100 * nears:.1f} %",
        opposite >= 0.9 and nears >= 0.8,
    )
    yield check(
        "movement-digits-top-left",
        "Movement to the top left is rare, and where it is not, S_an < 0, which the model's diagram leaves out.",
        "at most 5 % of HPHN triplets; of the EPEN triplets that do so late with the second-order loss at least 99 % "
        "have S_an < 0 (own bounds)",
        f"at most {100 * top_left:.1f} %; {100 * below:.1f} % of {int(wrong.sum())}",
        top_left <= 0.05 and bool(wrong.any()) and below >= 0.99,
    )
