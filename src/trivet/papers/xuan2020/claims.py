"""Xuan et al.: Extreme Triplet Learning, effectively optimizing easy positives and hard negatives (2020).

What the paper says of single triplets and of one gradient step, each statement computed: where a step goes wrong on the
scatter diagram, what entanglement and the second-order loss change, and which printed formulas do not hold.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from trivet.losses import NCATripletLoss, SecondOrderTripletLoss
from trivet.mining import NegativeName, PositiveName, mine
from trivet.papers.checks import Check
from trivet.theory.dynamics import (
    DIRECTIONS,
    EntanglementFactor,
    Floats,
    Movement,
    MovementAreas,
    SimulatedLoss,
    directions,
    entangle,
    first_order_rates,
    loss_slopes,
    loss_value,
    movement,
    movement_areas,
    place_triplets,
    positive_negative_similarity,
    simulated_step,
    triplet_scatter,
    triplet_vectors,
    vector_field,
)

LOSSES: tuple[SimulatedLoss, ...] = get_args(SimulatedLoss)
FACTORS: tuple[EntanglementFactor, ...] = get_args(EntanglementFactor)
GAMMAS, STRENGTHS, LEARNING_RATE = (0.2, 0.5, 0.8), (0.4, 0.8), 0.1
EXACT = 1e-12  # rounding of a chain of float64 operations
SMALL = 1e-6  # a learning rate near 0
Phase = Literal["initial", "late"]
PHASES: tuple[Phase, ...] = get_args(Phase)
MINED: dict[str, tuple[PositiveName, NegativeName]] = {"HPHN": ("hard", "hard"), "EPEN": ("easy", "easy")}
CLASSES_PER_BATCH, SAMPLES_PER_CLASS = 8, 16  # 128 images, as in the paper
MEASURED_STEPS = 28  # two epochs of 14 batches of the 1797 digits


def checks() -> list[Check]:
    """Every statement of sections 3 to 5, 6.1 and the appendices that one machine can compute, and the errors printed.

    Seeded, under a minute on two cores.
    """
    return [
        *_closed_forms(),
        *_geometry(),
        *_printed_similarities(),
        *_printed_norms(),
        *_losses(),
        *_small_steps(),
        *_edges(),
        *_no_top_left(),
        *_sign_areas(),
        *_movement_types(),
        *_problems(),
        *_mining(),
        *_group_size(),
        *_free_movement(),
        *_network_movement(),
        *_digit_movement(),
    ]


def centred_digits() -> tuple[Tensor, Tensor]:
    """The handwritten digits of scikit-learn and their classes: `(1797, 64)` float64, `(1797,)` int64.

    One mean and one spread over all pixels are taken out, as those of the channels are of photographs.
    """
    from sklearn.datasets import load_digits  # here: no other check needs it

    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy((pixels - pixels.mean()) / pixels.std()), torch.from_numpy(labels)


def digit_movement(loss: SimulatedLoss, *, seed: int = 0) -> dict[tuple[Phase, str], Movement]:
    """The experiment of section 6.1 on a stand-in: handwritten digits and a network with one hidden layer.

    The paper trains a ResNet on photographs of cars. Here the network is 64 - 128 - 32; "initial" is as drawn at
    random, "late" after 300 steps of easy positives and hard negatives with learning rate 0.1. From either, two epochs
    of 14 steps with learning rate 0.001 are measured, each on a batch of 16 images of 8 classes in which every image
    is in at most one triplet. Gradients go through the network and the normalisation.

    Args:
        loss: "first-order", "vanilla" (hinged, margin 0.2) or "second-order".
        seed: of the network and the batches.

    Returns:
        For each phase and each of "HPHN" and "EPEN" the triplets of all steps, before and after their own step.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 6.1 and figure 3.
    """
    images, labels = centred_digits()
    start = _weights((64, 128, 32), seed)
    trained = [weight.clone() for weight in start]
    _train(trained, images, labels, loss=loss, mined=("easy", "hard"), steps=300, learning_rate=0.1, seed=seed)
    found: dict[tuple[Phase, str], Movement] = {}
    for (phase, weights), (name, mined) in product(zip(PHASES, (start, trained), strict=True), MINED.items()):
        steps = _train(
            [weight.clone() for weight in weights],
            images,
            labels,
            loss=loss,
            mined=mined,
            steps=MEASURED_STEPS,
            learning_rate=1e-3,
            seed=seed + 1,
            measured=True,
        )
        found[phase, name] = Movement(
            before=np.concatenate([step.before for step in steps]),
            after=np.concatenate([step.after for step in steps]),
            direction=np.concatenate([step.direction for step in steps]),
        )
    return found


def _weights(sizes: tuple[int, ...], seed: int) -> list[Tensor]:
    """Random matrices between layers of these sizes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) / shape[0] ** 0.5 for shape in pairwise(sizes)]


def _embed(inputs: Tensor, weights: list[Tensor]) -> Tensor:
    """A network with one hidden layer."""
    return (inputs @ weights[0]).relu() @ weights[1]


def _train(
    weights: list[Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    loss: SimulatedLoss,
    mined: tuple[PositiveName, NegativeName],
    steps: int,
    learning_rate: float,
    seed: int,
    measured: bool = False,
) -> list[Movement]:
    """Change the weights by steps on batches of random classes; when measured, on triplets that share no image."""
    positives, negatives = mined
    generator = torch.Generator().manual_seed(seed)
    members = [torch.where(labels == label)[0] for label in range(int(labels.max()) + 1)]
    moved = []
    for _ in range(steps):
        classes = torch.randperm(len(members), generator=generator)[:CLASSES_PER_BATCH].tolist()
        batch = torch.cat(
            [members[c][torch.randperm(len(members[c]), generator=generator)[:SAMPLES_PER_CLASS]] for c in classes]
        )
        leaves = [weight.requires_grad_() for weight in weights]
        before = _embed(images[batch], leaves)
        triplets = mine(
            before, labels[batch], positives=positives, negatives=negatives, distance="cosine", disjoint=measured
        )
        chosen = normalize(before, dim=1)[torch.stack(list(triplets), dim=1)]
        gradients = torch.autograd.grad(_free_losses(chosen, loss).relu().mean(), leaves)  # only vanilla is hinged
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= learning_rate * gradient
            if measured:
                moved.append(movement(before, _embed(images[batch], weights), triplets))
    for weight in weights:
        weight.requires_grad_(False)
    return moved


class _Cases(NamedTuple):
    """Random triplets, and what one gradient step by autograd makes of their vectors."""

    s_ap: Floats
    s_an: Floats
    gamma: Floats
    slope: Floats  # what both sides share, s1, 2 or s2
    before: Floats  # (T, 3, d)
    after: Floats  # (T, 3, d), not normalised


def _cases(loss: SimulatedLoss, learning_rate: float, count: int = 200) -> _Cases:
    """Triplets of uniform S_ap, S_an and gamma, as rotated vectors of R^7, stepped by the gradient of the loss."""
    rng = np.random.default_rng(7)
    s_ap, s_an, gamma = rng.uniform(-1, 1, (3, count))
    rotations = np.linalg.qr(rng.normal(size=(count, 7, 7)))[0]
    before = triplet_vectors(s_ap, s_an, gamma, embedding_dim=7) @ rotations
    leaf = torch.from_numpy(before).requires_grad_()
    (gradient,) = torch.autograd.grad(_free_losses(leaf, loss).sum(), leaf)
    after = before - learning_rate * gradient.numpy()
    exponent = {"first-order": s_an - s_ap, "second-order": s_an**2 / 2 - s_ap + s_ap**2 / 2}.get(loss)
    slope = np.full(count, 2.0) if exponent is None else 1 / (1 + np.exp(-exponent))
    return _Cases(s_ap, s_an, gamma, slope, before, after)


def _free_losses(triplets: Tensor, loss: SimulatedLoss) -> Tensor:
    """The loss of each triplet of vectors `(T, 3, d)`, without normalisation."""
    anchor, positive, negative = triplets.unbind(dim=1)
    s_ap, s_an = (anchor * positive).sum(dim=1), (anchor * negative).sum(dim=1)
    if loss == "vanilla":
        return (anchor - positive).square().sum(dim=1) - (anchor - negative).square().sum(dim=1) + 0.2
    return softplus(s_an - s_ap if loss == "first-order" else s_an**2 / 2 - s_ap + s_ap**2 / 2)


def _dots(vectors: Floats, left: int, right: int) -> Floats:
    products: Floats = np.einsum("td,td->t", vectors[:, left], vectors[:, right])
    return products


def _gap(found: Floats, expected: Floats) -> float:
    return float(np.abs(found - expected).max())


def _closed_forms() -> list[Check]:
    """Equations 4 to 10 and their kin for the other two losses."""
    rows = []
    for loss in LOSSES:
        gaps = []
        for learning_rate in (0.01, 0.1, 0.5, 1.0):
            cases = _cases(loss, learning_rate)
            moved = simulated_step(cases.s_ap, cases.s_an, cases.gamma, loss=loss, learning_rate=learning_rate)
            units = cases.after / np.linalg.norm(cases.after, axis=2, keepdims=True)
            gaps.append(_gap(moved.change_ap, _dots(units, 0, 1) - cases.s_ap))
            gaps.append(_gap(moved.change_an, _dots(units, 0, 2) - cases.s_an))
        rows.append(
            Check(
                f"xuan2020-step-{loss}",
                f"One gradient step with the {loss} loss changes S_ap and S_an as the closed form says.",
                f"largest difference to autograd on 800 steps of vectors in R^7 <= {EXACT:g}",
                f"{max(gaps):.1e}",
                max(gaps) <= EXACT,
            )
        )
    return rows


def _geometry() -> list[Check]:
    """Equation 19 and what gamma can be."""
    rng = np.random.default_rng(11)
    vectors = rng.normal(size=(900, 7))
    placed = place_triplets(vectors, np.arange(900).reshape(300, 3))
    units = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).reshape(300, 3, 7)
    gap = _gap(positive_negative_similarity(placed.s_ap, placed.s_an, placed.gamma), _dots(units, 1, 2))
    flat = place_triplets(rng.normal(size=(900, 2)), np.arange(900).reshape(300, 3)).gamma
    off, opposite = _gap(np.abs(flat), np.ones_like(flat)), float((flat < 0).mean())
    axis = np.linspace(-1, 1, 9)
    s_ap, s_an, gamma = (part.ravel() for part in np.meshgrid(axis, axis, axis))
    built = triplet_vectors(s_ap, s_an, gamma)
    wanted = (np.ones_like(s_ap), np.ones_like(s_ap), np.ones_like(s_ap), s_ap, s_an)
    worst = max(
        _gap(_dots(built, *pair), value)
        for pair, value in zip(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2)), wanted, strict=True)
    )
    return [
        Check(
            "xuan2020-eq19",
            "The similarity of positive and negative follows from S_ap, S_an and gamma.",
            f"largest difference on 300 random triplets <= {EXACT:g}",
            f"{gap:.1e}",
            gap <= EXACT,
        ),
        Check(
            "xuan2020-erratum-coplanar",
            "The paper says that gamma is 1 for three vectors of a plane; it is 1 or -1.",
            "gamma 1 or -1 within 1e-9 for 300 triplets of a plane, and both occur",
            f"within {off:.1e}, {opposite:.0%} are -1",
            off <= 1e-9 and 0 < opposite < 1,
        ),
        Check(
            "xuan2020-feasible",
            "From three dimensions on every S_ap, S_an and gamma in [-1, 1] belong to some unit vectors.",
            f"vectors for each of 729 combinations, edges included, off by <= {EXACT:g}",
            f"{worst:.1e}",
            worst <= EXACT,
        ),
    ]


def _printed_similarities() -> list[Check]:
    """The unnormalised similarities as printed, beside those of the vectors."""
    first, second, vanilla = (_cases(loss, LEARNING_RATE) for loss in ("first-order", "second-order", "vanilla"))
    beta = LEARNING_RATE * first.slope
    pn = _dots(first.before, 1, 2)
    right = _dots(first.after, 0, 2)
    rest = -2 * beta + beta * pn - beta**2 * first.s_ap
    eq8, eq18 = (_gap((1 + beta**2) * similarity + rest, right) for similarity in (first.s_an, first.s_ap))

    pull = LEARNING_RATE * second.slope * (1 - second.s_ap)
    push = LEARNING_RATE * second.slope * second.s_an
    pn = _dots(second.before, 1, 2)
    of_ap, of_an = _dots(second.after, 0, 1), _dots(second.after, 0, 2)
    rest_ap = 2 * pull - push * pn - pull * push * second.s_an
    rest_an = -2 * push + pull * pn - pull * push * second.s_ap
    eq23 = _gap((1 + pull) * second.s_ap + rest_ap, of_ap)
    right23 = _gap((1 + pull**2) * second.s_ap + rest_ap, of_ap)
    eq24 = _gap((1 + push) * second.s_ap + rest_an, of_an)
    right24 = _gap((1 + push**2) * second.s_an + rest_an, of_an)

    anchor, positive = vanilla.before[:, 0], vanilla.before[:, 1]
    literal = _gap(positive + 2 * (anchor - positive), vanilla.after[:, 1])
    scaled = _gap(positive + 2 * LEARNING_RATE * (anchor - positive), vanilla.after[:, 1])
    return [
        _erratum("eq18", "Equation 18 has S_ap where S_an belongs, as equation 8 has it", eq18, eq8),
        _erratum("eq23", "Equation 23 forgets to square the weighted step before S_ap", eq23, right23),
        _erratum("eq24", "Equation 24 forgets to square the weighted step and has S_ap for S_an", eq24, right24),
        _erratum("eq32", "With beta = 2 equation 32 leaves out the learning rate: beta is 2 alpha", literal, scaled),
    ]


def _erratum(name: str, statement: str, printed: float, corrected: float) -> Check:
    return Check(
        f"xuan2020-erratum-{name}",
        f"{statement}.",
        f"as printed off by > 0.01 from a step on vectors, corrected by <= {EXACT:g}",
        f"{printed:.3g} and {corrected:.1e}",
        printed > 0.01 and corrected <= EXACT,
    )


def _printed_norms() -> list[Check]:
    """Equations 20-22, 25-27 and 35-37."""
    rows = []
    for loss, equations in zip(LOSSES, ("20-22", "35-37", "25-27"), strict=True):
        cases = _cases(loss, LEARNING_RATE)
        ap, an, gamma = cases.s_ap, cases.s_an, cases.gamma
        sp, sn = np.sqrt(1 - ap**2), np.sqrt(1 - an**2)
        beta = LEARNING_RATE * cases.slope
        pull, push = (beta * (1 - ap), beta * an) if loss == "second-order" else (beta, beta)
        drift = beta if loss == "vanilla" else 0.0
        moved = simulated_step(ap, an, gamma, loss=loss, learning_rate=LEARNING_RATE)
        along = (1 + pull * ap - push * an) ** 2
        anchor = along + (pull * sp - gamma * push * sn) ** 2 + (push * np.sqrt(1 - gamma**2) * sn) ** 2
        positive = (1 - drift + pull * ap) ** 2 + pull**2 * sp**2
        negative = (1 + drift - push * an) ** 2 + push**2 * sn**2
        ours = (moved.anchor_squared, moved.positive_squared, moved.negative_squared)
        gap = max(_gap(*pair) for pair in zip(ours, (anchor, positive, negative), strict=True))
        rows.append(
            Check(
                f"xuan2020-eq{equations}",
                f"Equations {equations} give the norms after a step with the {loss} loss.",
                f"largest difference of squared norms on 200 steps <= {EXACT:g}",
                f"{gap:.1e}",
                gap <= EXACT,
            )
        )
    return rows


def _losses() -> list[Check]:
    """What the first-order and the second-order loss pull to."""
    axis = np.linspace(-1, 1, 401)  # 0 and 1 are on it
    s_ap, s_an = axis[None, :], axis[:, None]
    first_ap, first_an = loss_slopes(s_ap, s_an, loss="first-order")
    least = min(float((-first_ap).min()), float(first_an.min()))
    equal = _gap(loss_value(axis, axis, loss="first-order"), np.full_like(axis, np.log(2)))

    values = loss_value(s_ap, s_an, loss="second-order")
    row, column = np.unravel_index(values.argmin(), values.shape)
    slopes = [float(slope) for slope in loss_slopes(1.0, 0.0, loss="second-order")]
    of_an = loss_slopes(s_ap, s_an, loss="second-order")[1]
    same_sign = float((np.sign(of_an) == np.sign(s_an)).mean())

    u, v = s_ap - s_ap**2 / 2, s_an**2 / 2
    weight = np.exp(v) / (np.exp(u) + np.exp(v))
    h = 1e-5
    inner_ap, inner_an = s_ap[:, 1:-1], s_an[1:-1]  # room for a difference on both sides

    def second(shift_ap: float, shift_an: float, constant: float = -0.5) -> Floats:
        ap, an = inner_ap + shift_ap, inner_an + shift_an
        if constant == -0.5:
            return loss_value(ap, an, loss="second-order")
        return np.logaddexp(0, ((1 - ap) ** 2 + an**2) / 2 + constant)

    inner = weight[1:-1, 1:-1]
    gaps = {
        constant: max(
            _gap((second(h, 0, constant) - second(-h, 0, constant)) / (2 * h), -inner * (1 - inner_ap)),
            _gap((second(0, h, constant) - second(0, -h, constant)) / (2 * h), inner * inner_an),
        )
        for constant in (-0.5, 0.0)
    }
    return [
        Check(
            "xuan2020-first-order-unbounded",
            "The first-order loss pulls the positive and pushes the negative everywhere, so no similarity is a target.",
            "both slopes > 0.1 in size, with the same sign, on 401 x 401 points of [-1, 1]^2",
            f"at least {least:.3f}",
            least > 0.1,
        ),
        Check(
            "xuan2020-first-order-log2",
            "The first-order loss is log 2 wherever positive and negative are as similar to the anchor.",
            f"difference to log 2 <= {EXACT:g}",
            f"{equal:.1e}",
            equal <= EXACT,
        ),
        Check(
            "xuan2020-second-order-minimum",
            "The second-order loss is least at (1, 0), the ideal point, and its gradient is 0 there.",
            f"least of 401 x 401 values of [-1, 1]^2 at (1, 0), log(1 + exp(-1/2)) = {np.log1p(np.exp(-0.5)):.10f}",
            f"({axis[column]:g}, {axis[row]:g}), {values.min():.10f}, slopes {slopes[0]:g} and {slopes[1]:g}",
            (axis[column], axis[row]) == (1, 0)
            and abs(values.min() - np.log1p(np.exp(-0.5))) <= EXACT
            and slopes == [0, 0],
        ),
        Check(
            "xuan2020-second-order-negative",
            "The second-order loss pulls a negative that is beyond orthogonal back up to S_an = 0.",
            "slope in S_an < 0 wherever S_an < 0, > 0 wherever S_an > 0, on 401 x 401 points",
            f"of the sign of S_an on {same_sign:.0%} of them",
            same_sign == 1,
        ),
        Check(
            "xuan2020-eq16",
            "The second-order loss is what the weighted gradients of equations 13 to 15 integrate to.",
            "slopes by differences equal the printed ones within 1e-8 on 399 x 399 points",
            f"{gaps[-0.5]:.1e}",
            gaps[-0.5] <= 1e-8,
        ),
        Check(
            "xuan2020-eq16-constant",
            "Written with (1 - S_ap)^2 the second-order loss needs the constant 1/2 inside the logarithm.",
            "without it the slopes differ by > 0.1 from equations 13 to 15",
            f"{gaps[0.0]:.3f}",
            gaps[0.0] > 0.1,
        ),
    ]


def _small_steps() -> list[Check]:
    """The linear part of a step in the learning rate, and the bands it gives."""
    axis = _midpoints(100)
    s_ap, s_an = axis[None, :], axis[:, None]
    sp, sn = np.sqrt(1 - s_ap**2), np.sqrt(1 - s_an**2)
    errors: list[float] = []
    wrong, compared, negative_gamma = 0, 0, 0
    for loss in LOSSES:
        cases = _cases(loss, SMALL)
        rates = first_order_rates(cases.s_ap, cases.s_an, cases.gamma, loss=loss)
        moved = simulated_step(cases.s_ap, cases.s_an, cases.gamma, loss=loss, learning_rate=SMALL)
        for change, rate in zip((moved.change_ap, moved.change_an), rates, strict=True):
            errors.append(_gap(change, moved.beta * rate) / SMALL)
    for loss, gamma in product(LOSSES, (-0.5, 0.0, *GAMMAS)):
        weight_ap, weight_an = (1 - s_ap, s_an) if loss == "second-order" else (1.0, 1.0)
        moved = simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=SMALL)
        rates = first_order_rates(s_ap, s_an, gamma, loss=loss)
        bands = (2 * weight_ap * sp < gamma * weight_an * sn, 2 * weight_an * sn < gamma * weight_ap * sp)
        bad = (moved.change_ap < 0, moved.change_an > 0)
        for band, sign, rate in zip(bands, bad, rates, strict=True):
            clear = np.abs(rate) > 1e-4  # on the boundary itself the next order decides
            wrong += int((band != sign)[clear].sum())
            compared += int(clear.sum())
        if loss != "second-order" and gamma <= 0:
            negative_gamma += int(bad[0].sum() + bad[1].sum())
    return [
        Check(
            "xuan2020-small-step",
            "For a small learning rate the changes are beta (2 w_ap s_p^2 - w_an gamma s_p s_n) and its mirror image.",
            f"error / alpha < 2e-5 at alpha = {SMALL:g}",
            f"{max(errors):.1e}",
            max(errors) < 2e-5,
        ),
        Check(
            "xuan2020-bands",
            "A positive is pushed away where 2 w_ap s_p < gamma w_an s_n, a negative drawn near where 2 w_an s_n < "
            "gamma w_ap s_p.",
            "0 cells of [0, 1]^2 against it, 3 losses and 5 values of gamma, boundaries left out",
            f"{wrong} of {compared}",
            wrong == 0,
        ),
        Check(
            "xuan2020-bands-gamma",
            "The wrong directions of the first-order and the vanilla loss need gamma > 0.",
            f"0 cells of [0, 1]^2 for gamma = 0 and -0.5 at alpha = {SMALL:g}",
            str(negative_gamma),
            negative_gamma == 0,
        ),
    ]


def _midpoints(size: int) -> Floats:
    points: Floats = (np.arange(size) + 0.5) / size
    return points


def _edges() -> list[Check]:
    """The bad bands are open: an exact duplicate of the anchor does not come nearer."""
    axis = np.linspace(-1, 1, 201)
    worst = -np.inf
    for loss, gamma, learning_rate in product(LOSSES, (-0.8, -0.5, 0.0, *GAMMAS), (1e-4, 0.1, 0.4, 1.0)):
        top = simulated_step(axis, 1.0, gamma, loss=loss, learning_rate=learning_rate).change_an
        right = simulated_step(1.0, axis, gamma, loss=loss, learning_rate=learning_rate).change_ap
        worst = max(worst, float(np.nanmax(top)), float(np.nanmax(right)))
    return [
        Check(
            "xuan2020-edges",
            "The band along the top where negatives come nearer does not hold the edge S_an = 1 itself.",
            f"no change of S_an > {EXACT:g} at S_an = 1, nor of S_ap at S_ap = 1, for any loss, gamma and alpha tried",
            f"{worst:.1e}",
            worst <= EXACT,
        )
    ]


def _no_top_left() -> list[Check]:
    """No step moves to the top left where similarities are positive, whatever the entanglement."""
    axis = _midpoints(100)
    s_ap, s_an = axis[None, :], axis[:, None]
    found = dict.fromkeys(FACTORS, 0)
    for loss, gamma, learning_rate in product(LOSSES, (-0.8, -0.5, 0.0, *GAMMAS), (1e-4, 0.1, 0.5, 1.0)):
        moved = simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=learning_rate)
        for factor, strength in product(FACTORS, (0.0, 0.4, 0.8, 1.0)):
            total = entangle(s_ap, s_an, moved.change_ap, moved.change_an, strength=strength, factor=factor)
            found[factor] += int((directions(*total, tolerance=0) == DIRECTIONS.index("top-left")).sum())
    whole = np.linspace(-1, 1, 201)
    beyond = {
        "second-order, gamma -0.5": _top_left_cells(whole, "second-order", -0.5, 0.1),
        "second-order, gamma 0.5": _top_left_cells(whole, "second-order", 0.5, 0.1),
        "vanilla, gamma 0.5": _top_left_cells(whole, "vanilla", 0.5, 1.0),
    }
    return [
        Check(
            "xuan2020-no-top-left",
            "Of the four directions of movement only three occur between similarities >= 0.",
            "0 cells of [0, 1]^2 move top-left: 3 losses, 6 gamma, 4 p, 4 alpha, both forms of q",
            ", ".join(f"q {factor}: {count}" for factor, count in found.items()),
            not any(found.values()),
        ),
        Check(
            "xuan2020-top-left-beyond",
            "On the whole of [-1, 1]^2, which the paper does not show, movement to the top left does occur.",
            "some of 201 x 201 points for the second-order loss at alpha = 0.1 and the vanilla loss at alpha = 1",
            ", ".join(f"{name}: {count}" for name, count in beyond.items()),
            all(beyond.values()),
        ),
    ]


def _top_left_cells(axis: Floats, loss: SimulatedLoss, gamma: float, learning_rate: float) -> int:
    moved = simulated_step(axis[None, :], axis[:, None], gamma, loss=loss, learning_rate=learning_rate)
    way = directions(moved.change_ap, moved.change_an)
    return int((way == DIRECTIONS.index("top-left")).sum())


def _areas(
    loss: SimulatedLoss, gamma: float, strength: float = 0.0, factor: EntanglementFactor = "sqrt"
) -> MovementAreas:
    return movement_areas(vector_field(loss=loss, gamma=gamma, strength=strength, factor=factor))


def _sign_areas() -> list[Check]:
    """Where a step without entanglement goes against the loss."""
    right = vector_field(loss="first-order", gamma=0.5)
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
    small = movement_areas(vector_field(loss="vanilla", gamma=0.5, learning_rate=1e-4)).negative_nears
    return [
        Check(
            "xuan2020-right-band",
            "With the first-order loss and gamma = 0.5 positives leave in an area along the right edge.",
            "some cells, all with S_ap > 0.85",
            f"{leaves.mean():.2%} of the cells, S_ap >= {least_ap:.3f}",
            bool(leaves.any()) and least_ap > 0.85,
        ),
        Check(
            "xuan2020-top-band",
            "With the first-order loss and gamma = 0.5 negatives come nearer in an area along the top edge.",
            "some cells, all with S_an > 0.85",
            f"{nears.mean():.2%} of the cells, S_an >= {least_an:.3f}",
            bool(nears.any()) and least_an > 0.85,
        ),
        Check(
            "xuan2020-top-band-vanilla",
            "The area along the top needs small steps: the vanilla loss has none at gamma = 0.5 and alpha = 0.1.",
            "0 cells, and some at alpha = 1e-4",
            f"{at['vanilla'].negative_nears:.2%} and {small:.2%}",
            at["vanilla"].negative_nears == 0 and small > 0,
        ),
        Check(
            "xuan2020-second-order-areas",
            "The second-order loss does not shrink the areas where a step goes against the loss: it makes them larger.",
            "both areas larger than with the first-order loss for gamma = 0.2, 0.5 and 0.8",
            ", ".join(
                f"{loss} {area.positive_leaves:.1%} and {area.negative_nears:.1%}"
                for loss, area in at.items()
                if loss != "vanilla"
            )
            + " at 0.5",
            grows,
        ),
    ]


def _movement_types() -> list[Check]:
    """The vector fields of figure 2, in numbers."""
    field = vector_field(loss="first-order", gamma=0.5, strength=0.8)
    way = directions(field.change_ap, field.change_an, tolerance=0)
    down = way == DIRECTIONS.index("bottom-right")
    mean_ap, mean_an = float(field.change_ap[down].mean()), float(field.change_an[down].mean())
    negative_similarities = int((field.s_ap < 0).sum() + (field.s_an < 0).sum())
    leaves, nears = float((field.change_ap < 0).mean()), float((field.change_an > 0).mean())
    other = vector_field(loss="vanilla", gamma=0.5, strength=0.8)
    agree = float((directions(other.change_ap, other.change_an, tolerance=0) == way).mean())
    three = _areas("first-order", 0.5, 0.8)
    bad = [_areas("first-order", 0.5, strength) for strength in (0.0, *STRENGTHS)]
    rising = all(
        low.positive_leaves < high.positive_leaves and low.negative_nears < high.negative_nears
        for low, high in pairwise(bad)
    )
    near, far = (entangle(s, s, 0.0, 1.0, strength=0.8)[0] for s in (0.9, 0.1))
    kept, cells = 0, 0
    for each, gamma, factor in product(LOSSES, GAMMAS, FACTORS):
        weak, strong = (
            vector_field(loss=each, gamma=gamma, strength=strength, factor=factor) for strength in STRENGTHS
        )
        for bad_weak, bad_strong in (
            (weak.change_ap < 0, strong.change_ap < 0),
            (weak.change_an > 0, strong.change_an > 0),
        ):
            kept += int((bad_weak & bad_strong).sum())
            cells += int(bad_weak.sum())
    return [
        Check(
            "xuan2020-three-types",
            "With entanglement triplets move up-right, down-right or down-left, each in a part of the diagram.",
            "each of the three more than 5% of the cells, first-order loss, gamma = 0.5, p = 0.8",
            f"{three.top_right:.1%}, {three.bottom_right:.1%}, {three.bottom_left:.1%}",
            min(three.top_right, three.bottom_right, three.bottom_left) > 0.05,
        ),
        Check(
            "xuan2020-erratum-bottom-right",
            "The text describes bottom-right as both changes > 0, which is top-right; S_an falls there.",
            "mean change of S_ap > 0 and of S_an < 0 over the cells that move to the bottom right",
            f"{mean_ap:.4f} and {mean_an:.4f}",
            mean_ap > 0 > mean_an,
        ),
        Check(
            "xuan2020-erratum-signs",
            "The text marks problem regions by S_ap < 0 and S_an > 0; it means the signs of the changes.",
            "no similarity of the diagram < 0, yet changes of S_ap < 0 and of S_an > 0 occur",
            f"{negative_similarities}; {leaves:.1%} and {nears:.1%} of the cells",
            negative_similarities == 0 and leaves > 0 and nears > 0,
        ),
        Check(
            "xuan2020-entanglement-grows",
            "The stronger the entanglement, the larger the areas where a step goes against the loss.",
            "both areas grow from p = 0 to 0.4 to 0.8, first-order loss, gamma = 0.5",
            ", ".join(f"{area.positive_leaves:.1%} and {area.negative_nears:.1%}" for area in bad),
            rising,
        ),
        Check(
            "xuan2020-regions-similar",
            "The problem regions stay where they are as the entanglement grows.",
            "every cell that is wrong at p = 0.4 is at p = 0.8 too, 3 losses, 3 values of gamma, both forms of q",
            f"{kept} of {cells}",
            kept == cells > 0,
        ),
        Check(
            "xuan2020-entanglement-near",
            "Entanglement is the stronger the nearer positive and negative are to the anchor.",
            "S_ap follows S_an more at (0.9, 0.9) than at (0.1, 0.1)",
            f"{float(near):.2f} and {float(far):.2f} of its change",
            bool(near > far),
        ),
        Check(
            "xuan2020-vanilla-similar",
            "The vanilla triplet loss moves triplets much as the first-order loss does.",
            "the same direction in at least 90% of the cells, gamma = 0.5, p = 0.8",
            f"{agree:.1%}",
            agree >= 0.9,
        ),
    ]


def _problems() -> list[Check]:
    """Problems 1 and 2 and what the second-order loss does to them, for both forms of q."""
    rows: list[Check] = []
    for factor in FACTORS:
        areas = {key: _areas(*key, factor) for key in product(LOSSES, GAMMAS, STRENGTHS)}
        first, vanilla, second = (
            [areas[loss, gamma, strength] for gamma, strength in product(GAMMAS, STRENGTHS)]
            for loss in ("first-order", "vanilla", "second-order")
        )
        shown = {key: area for key, area in areas.items() if key[1] == 0.5}  # gamma of figure 2
        top = min(area.top for key, area in shown.items() if key[0] != "second-order")
        still = areas["second-order", 0.5, 0.8].top
        ratio = max(b.box / a.box if a.box else math.inf for a, b in zip(first, second, strict=True))
        down = max(area.right for area in (*first, *vanilla))
        halves = [b.right / a.right for a, b in zip(first, second, strict=True)]
        rows += [
            Check(
                f"xuan2020-problem1-{factor}",
                f"Problem 1 (q {factor}): with entanglement most hard negatives, S_an > 0.9, are drawn to the anchor.",
                "more than half of the top strip, first-order and vanilla loss, gamma 0.5, p 0.4 and 0.8",
                f"at least {top:.1%}",
                top > 0.5,
            ),
            Check(
                f"xuan2020-problem1-second-order-{factor}",
                f"The second-order loss (q {factor}) no longer draws triplets near (1, 1) towards (1, 1).",
                "in [0.8, 1]^2 at most a fifth of the cells that move top-right with the first-order loss",
                f"at most {ratio:.1%} of them",
                ratio <= 0.2,
            ),
            Check(
                f"xuan2020-problem1-remains-{factor}",
                f"Even so (q {factor}) most of the top strip still moves up with the second-order loss.",
                "more than half of the cells with S_an > 0.9, gamma 0.5, p 0.8",
                f"{still:.1%}",
                still > 0.5,
            ),
            Check(
                f"xuan2020-problem2-{factor}",
                f"Problem 2 (q {factor}): at the right edge the first-order and the vanilla loss push downwards.",
                "mean change of S_an < -0.03 over S_ap > 0.9 at alpha = 0.1",
                f"at most {down:.4f}",
                down < -0.03,
            ),
            Check(
                f"xuan2020-problem2-second-order-{factor}",
                f"The second-order loss (q {factor}) about halves the push downwards at the right edge.",
                "0.4 to 0.6 of that of the first-order loss",
                f"{min(halves):.3f} to {max(halves):.3f}",
                min(halves) >= 0.4 and max(halves) <= 0.6,
            ),
        ]
    weak = [[_areas(loss, 0.2, 0.4, factor).top for loss in ("first-order", "vanilla")] for factor in FACTORS]
    first_ideal = simulated_step(1.0, 0.0, 0.5, loss="first-order")
    second_ideal = simulated_step(1.0, 0.0, 0.5, loss="second-order")
    push, none = float(first_ideal.change_an), float(second_ideal.change_an)
    cases = _cases("first-order", LEARNING_RATE)
    step = cases.after[:, 1] - cases.before[:, 1]
    along = np.einsum("td,td->t", step, cases.before[:, 1])[:, None] * cases.before[:, 1]
    kept = np.linalg.norm(step - along, axis=1) / np.linalg.norm(step, axis=1)
    easy = float(kept[cases.s_ap > 0.9].max())
    middle = float(kept[np.abs(cases.s_ap) < 0.5].min())
    return [
        *rows,
        Check(
            "xuan2020-problem1-weak",
            "At gamma = 0.2 and p = 0.4 problem 1 depends on the form of q: with the product most negatives move away.",
            "more than half of the top strip moves up with q sqrt, less with q prod, first-order and vanilla loss",
            "; ".join(f"q {factor}: {a:.1%} and {b:.1%}" for factor, (a, b) in zip(FACTORS, weak, strict=True)),
            min(weak[0]) > 0.5 > max(weak[1]),
        ),
        Check(
            "xuan2020-ideal-point",
            "At the ideal point (1, 0) the first-order loss still pushes the negative; the second-order loss rests.",
            "change of S_an < -0.05 and exactly 0 at alpha = 0.1",
            f"{push:.4f} and {none:g}",
            push < -0.05 and none == 0 and float(second_ideal.change_ap) == 0,
        ),
        Check(
            "xuan2020-gradient-lost",
            "When positive and anchor lie close, most of the positive's step leaves the sphere and is lost.",
            "of the step at most 0.45 remains where S_ap > 0.9 and at least 0.85 where |S_ap| < 0.5",
            f"{easy:.2f} and {middle:.2f}",
            easy <= 0.45 and middle >= 0.85,
        ),
    ]


def _mining() -> list[Check]:
    """Where the named choices of triplets lie on the diagram."""
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
        name: triplet_scatter(rows, labels, positives=positives, negatives=negatives)
        for name, (positives, negatives) in rules.items()
    }
    centre = {name: (float(placed.s_ap.mean()), float(placed.s_an.mean())) for name, placed in named.items()}
    below = bool((named["EPSHN"].s_ap > named["EPSHN"].s_an).all())
    two = torch.arange(32).repeat_interleave(2)
    easy = triplet_scatter(rows, two, positives="easy").triplets
    hard = triplet_scatter(rows, two, positives="hard").triplets
    alike = easy.shape == (64, 3) and bool((easy == hard).all())
    apart = triplet_scatter(rows, labels, positives="hard", negatives="hard", disjoint=True).triplets
    used = set(apart.ravel().tolist())
    shown = ", ".join(f"{name} ({s_ap:.2f}, {s_an:.2f})" for name, (s_ap, s_an) in centre.items())
    digits = triplet_scatter(*centred_digits())
    inside = float(((digits.s_ap >= 0) & (digits.s_an >= 0)).mean())
    return [
        Check(
            "xuan2020-omega-s",
            "Nearly all triplets of easy positives and hard negatives have similarities >= 0.",
            "at least 99% of them (own bound), handwritten digits, EPHN over the whole set",
            f"{inside:.2%} of {len(digits.s_ap)}",
            inside >= 0.99,
        ),
        Check(
            "xuan2020-regions",
            "Easy positives lie to the right of hard ones on the diagram, hard negatives above easy ones.",
            "mean S_ap: EPHN above HPHN; mean S_an: EPHN above EPEN; 64 points of 8 classes",
            shown,
            centre["EPHN"][0] > centre["HPHN"][0] and centre["EPHN"][1] > centre["EPEN"][1],
        ),
        Check(
            "xuan2020-regions-semihard",
            "Semi-hard negatives give triplets below the diagonal only.",
            "S_ap > S_an in every EPSHN triplet",
            f"{'all' if below else 'not all'} of {len(named['EPSHN'].s_ap)}",
            below and len(named["EPSHN"].s_ap) > 0,
        ),
        Check(
            "xuan2020-erratum-epeh",
            "Section 6.1 prints EPEH for easy positives with easy negatives: these lie in the corner of problem 2.",
            "of the four choices EPEN has the lowest mean S_an, at the highest mean S_ap",
            shown,
            min(centre, key=lambda name: centre[name][1]) == "EPEN"
            and centre["EPEN"][0] == max(s_ap for s_ap, _ in centre.values()),
        ),
        Check(
            "xuan2020-two-per-class",
            "With two images of a class in a batch easy and hard positives are the same.",
            "the same triplets",
            "the same" if alike else "others",
            alike,
        ),
        Check(
            "xuan2020-disjoint",
            "In the experiment on movement each vector is in at most one triplet.",
            "no row twice, at most 64 / 3 triplets, at least one",
            f"{len(apart)} triplets of {len(used)} rows",
            len(used) == apart.size and 0 < len(apart) <= 64 // 3,
        ),
    ]


def _group_size() -> list[Check]:
    """Appendix G: what more images of a class in a batch do to the triplets of easy positives and hard negatives."""
    centre = {}
    for per_class in (2, 8):
        places = []
        for seed in range(8):
            generator = torch.Generator().manual_seed(seed)
            labels = torch.arange(128 // per_class).repeat_interleave(per_class)
            centres = torch.randn(len(labels) // per_class, 16, dtype=torch.float64, generator=generator)
            rows = centres[labels] + torch.randn(128, 16, dtype=torch.float64, generator=generator)
            placed = triplet_scatter(rows, labels)
            places.append((placed.s_ap.mean(), placed.s_an.mean()))
        centre[per_class] = np.mean(places, axis=0)
    return [
        Check(
            "xuan2020-group-size",
            "With more images of a class in a batch easy positives are nearer and hard negatives farther.",
            "mean S_ap larger and mean S_an smaller for 8 than for 2 of a class, 8 batches of 128 made points",
            " and ".join(f"({s_ap:.3f}, {s_an:.3f}) for {n}" for n, (s_ap, s_an) in centre.items()),
            bool(centre[8][0] > centre[2][0] and centre[8][1] < centre[2][1]),
        )
    ]


def _free_movement() -> list[Check]:
    """Steps of an optimiser on the vectors themselves, which the model describes."""
    inputs, labels = _classes(5)
    start = normalize(inputs, dim=1)
    placed = triplet_scatter(start, labels, positives="hard", negatives="hard", disjoint=True)
    index = torch.from_numpy(placed.triplets)
    same, total = 0, 0
    for loss in LOSSES:
        free = start.clone().requires_grad_()
        (free.grad,) = torch.autograd.grad(_free_losses(free[index], loss).sum(), free)
        torch.optim.SGD([free], lr=LEARNING_RATE).step()
        moved = movement(start, free, index)
        model = simulated_step(placed.s_ap, placed.s_an, placed.gamma, loss=loss, learning_rate=LEARNING_RATE)
        same += int((moved.direction == directions(model.change_ap, model.change_an)).sum())
        total += len(moved.direction)
    return [
        Check(
            "xuan2020-movement-free",
            "Triplets that share no vector move, in a step of an optimiser on the vectors, as the model says.",
            "the predicted direction for every disjoint HPHN triplet, 3 losses",
            f"{same} of {total}",
            same == total > 0,
        )
    ]


def _classes(seed: int) -> tuple[Tensor, Tensor]:
    """Six classes of 16 points in 12 dimensions, about as wide as far apart, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(6).repeat_interleave(16)
    centres = torch.randn(6, 12, dtype=torch.float64, generator=generator)
    return centres[labels] + torch.randn(96, 12, dtype=torch.float64, generator=generator), labels


def _network_movement() -> list[Check]:
    """The experiment of section 6.1, in its initial phase, on small networks: steps on shared weights."""
    first, second = (
        _network_shares(criterion)
        for criterion in (
            NCATripletLoss(positives="hard", negatives="hard", disjoint=True),
            SecondOrderTripletLoss(positives="hard", negatives="hard", disjoint=True),
        )
    )
    shown = "; ".join(
        f"{name}: " + ", ".join(f"{way} {share:.1%}" for way, share in shares.items())
        for name, shares in (("first-order", first), ("second-order", second))
    )
    return [
        Check(
            "xuan2020-movement-initial",
            "In a fresh network the first-order loss moves hard triplets to the top right, the second-order loss to "
            "the bottom right.",
            "most common: top-right and bottom-right, disjoint HPHN triplets of 4 networks with a hidden layer",
            shown,
            max(first, key=lambda way: first[way]) == "top-right"
            and max(second, key=lambda way: second[way]) == "bottom-right",
        ),
        Check(
            "xuan2020-movement-top-left",
            "Hardly a triplet moves to the top left in a network either, where nothing forbids it.",
            "at most 5% of disjoint HPHN triplets with each loss",
            shown,
            max(first["top-left"], second["top-left"]) <= 0.05,
        ),
    ]


def _network_shares(criterion: NCATripletLoss | SecondOrderTripletLoss) -> dict[str, float]:
    """The share of each direction over 6 small steps of each of 4 networks."""
    ways = []
    for seed in range(4):
        inputs, labels = _classes(seed)
        weights = [weight.requires_grad_() for weight in _weights((12, 32, 8), seed)]
        optimiser = torch.optim.SGD(weights, lr=1e-3)
        for _ in range(6):
            before = _embed(inputs, weights)
            triplets = mine(before, labels, positives="hard", negatives="hard", distance="cosine", disjoint=True)
            gradients = torch.autograd.grad(criterion(before, labels), weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            optimiser.step()
            ways.append(movement(before, _embed(inputs, weights), triplets).direction)
    way = np.concatenate(ways)
    return {name: float((way == number).mean()) for number, name in enumerate(DIRECTIONS)}


def _digit_movement() -> list[Check]:
    """The experiment of section 6.1 in both phases, on the stand-in; its bounds are our own."""
    first, second = digit_movement("first-order"), digit_movement("second-order")

    def shares(moved: Movement) -> str:
        return ", ".join(f"{way} {share:.1%}" for way, share in moved.shares.items())

    fresh, late = first["initial", "HPHN"], first["late", "HPHN"]
    fresh_second, late_second = second["initial", "HPHN"], second["late", "HPHN"]
    drift, drift_second = ((moved.after - moved.before).mean(axis=0) for moved in (fresh, fresh_second))
    farther = fresh_second.shares["bottom-right"] + fresh_second.shares["bottom-left"]
    late_easy, late_easy_second = first["late", "EPEN"], second["late", "EPEN"]
    most = [max(moved.shares, key=moved.shares.__getitem__) for moved in (late, late_easy)]
    mixed = [late_second.shares[way] for way in DIRECTIONS[:3]]
    nears = late_easy_second.shares["top-right"] + late_easy_second.shares["top-left"]
    opposite = float((late_easy_second.before[:, 1] < 0).mean())
    top_left = max(moved.shares["top-left"] for moved in (fresh, late, fresh_second, late_second))
    wrong = late_easy_second.direction == DIRECTIONS.index("top-left")
    below = float((late_easy_second.before[wrong, 1] < 0).mean())
    return [
        Check(
            "xuan2020-movement-digits-initial",
            "In a fresh network on digits the first-order loss moves hard triplets to the top right.",
            "more than half of the disjoint HPHN triplets of two epochs (own bound)",
            shares(fresh),
            fresh.shares["top-right"] > 0.5,
        ),
        Check(
            "xuan2020-movement-digits-initial-second",
            "There the second-order loss moves hard negatives away; the bottom right, which the paper names, is one "
            "part of it, and in this stand-in the smaller.",
            "bottom right and bottom left together more than 80% of the same triplets, left more than right (own "
            "bounds)",
            shares(fresh_second),
            farther > 0.8 and fresh_second.shares["bottom-left"] > fresh_second.shares["bottom-right"],
        ),
        Check(
            "xuan2020-movement-digits-pattern",
            "So in the early phase the first-order loss moves the dots up and right, the second-order loss down.",
            "mean changes of S_ap and S_an both > 0 with the first, of S_an < 0 with the second, HPHN",
            f"({drift[0]:+.1e}, {drift[1]:+.1e}) and ({drift_second[0]:+.1e}, {drift_second[1]:+.1e})",
            bool(drift[0] > 0 and drift[1] > 0 and drift_second[1] < 0),
        ),
        Check(
            "xuan2020-movement-digits-late",
            "In a trained network the first-order loss moves most triplets to the bottom right.",
            "the most common direction, HPHN and EPEN",
            f"HPHN: {shares(late)}; EPEN: {shares(late_easy)}",
            most == ["bottom-right", "bottom-right"],
        ),
        Check(
            "xuan2020-movement-digits-late-second",
            "In a trained network the second-order loss moves triplets to the bottom right, bottom left and top right.",
            "each of the three at least 10%, none above 60%, HPHN (own bounds)",
            shares(late_second),
            min(mixed) >= 0.1 and max(mixed) <= 0.6,
        ),
        Check(
            "xuan2020-movement-digits-late-easy",
            "Easy negatives of a trained network lie beyond orthogonal, and the second-order loss pulls them back up.",
            "S_an < 0 in at least 90% of EPEN triplets, and S_an grows in at least 80% (own bounds)",
            f"{opposite:.1%} and {nears:.1%}",
            opposite >= 0.9 and nears >= 0.8,
        ),
        Check(
            "xuan2020-movement-digits-top-left",
            "Movement to the top left is rare, and where it is not, S_an < 0, which the model's diagram leaves out.",
            "at most 5% of HPHN triplets; of the EPEN triplets that do so late with the second-order loss at least 99% "
            "have S_an < 0 (own bounds)",
            f"at most {top_left:.1%}; {below:.1%} of {int(wrong.sum())}",
            top_left <= 0.05 and bool(wrong.any()) and below >= 0.99,
        ),
    ]
