"""Sections 3 to 5 and the appendices: one gradient step as the paper writes it, and as vectors take it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from trivet.losses import SecondOrderTripletLoss
from trivet.runtime.arrays import Floats
from trivet_papers.checks import Check, Checker
from trivet_papers.xuan2020 import dynamics
from trivet_papers.xuan2020.digits import GAMMAS, LEARNING_RATE, LOSSES, free_losses

check = Checker("xuan2020")
EXACT = 1e-12  # rounding of a chain of float64 operations
SMALL = 1e-6  # a learning rate near 0


class _Cases(NamedTuple):
    """Random triplets, and what one gradient step by autograd makes of their vectors."""

    s_ap: Floats
    s_an: Floats
    gamma: Floats
    slope: Floats  # what both sides share, s1, 2 or s2
    before: Floats  # (T, 3, d)
    after: Floats  # (T, 3, d), not normalised


def stepped_cases(loss: dynamics.SimulatedLoss, learning_rate: float, count: int = 200) -> _Cases:
    """Triplets of uniform S_ap, S_an and gamma, as rotated vectors of R^7, stepped by the gradient of the loss."""
    rng = np.random.default_rng(7)
    s_ap, s_an, gamma = rng.uniform(-1, 1, (3, count))
    rotations = np.linalg.qr(rng.normal(size=(count, 7, 7)))[0]
    before = dynamics.triplet_vectors(s_ap, s_an, gamma, embedding_dim=7) @ rotations
    after = stepped(before, loss, learning_rate)
    exponent = {"first-order": s_an - s_ap, "second-order": s_an**2 / 2 - s_ap + s_ap**2 / 2}.get(loss)
    slope = np.full(count, 2.0) if exponent is None else 1 / (1 + np.exp(-exponent))
    return _Cases(s_ap, s_an, gamma, slope, before, after)


def stepped(triplets: Floats, loss: dynamics.SimulatedLoss, learning_rate: float) -> Floats:
    """Vectors `(T, 3, d)` after one step down the gradient of their losses, by autograd, not normalised."""
    leaf = torch.from_numpy(triplets).requires_grad_()
    (gradient,) = torch.autograd.grad(free_losses(leaf, loss).sum(), leaf)
    return np.asarray(triplets - learning_rate * gradient.numpy())


def vector_changes(field: dynamics.VectorField, gamma: float, strength: float) -> tuple[Floats, Floats]:
    """The changes of S_ap and S_an that vectors show in the cells of a field: a first-order step, then eqs. 11, 12."""
    s_ap, s_an = (grid.ravel() for grid in np.meshgrid(field.s_ap, field.s_an))
    after = stepped(dynamics.triplet_vectors(s_ap, s_an, np.full_like(s_ap, gamma)), "first-order", LEARNING_RATE)
    units = after / np.linalg.norm(after, axis=2, keepdims=True)
    of_ap, of_an = _dots(units, 0, 1) - s_ap, _dots(units, 0, 2) - s_an
    tie, shape = strength * np.sqrt(s_ap * s_an), field.change_ap.shape
    return (of_ap + tie * of_an).reshape(shape), (of_an + tie * of_ap).reshape(shape)


def _dots(vectors: Floats, left: int, right: int) -> Floats:
    products: Floats = np.einsum("td,td->t", vectors[:, left], vectors[:, right])
    return products


def _gap(values: Floats, expected: Floats) -> float:
    return float(np.abs(values - expected).max())


def closed_form_checks() -> Iterator[Check]:
    """Equations 4 to 10 and their kin for the other two losses."""
    for loss in LOSSES:
        gaps = []
        for learning_rate in (0.01, 0.1, 0.5, 1.0):
            cases = stepped_cases(loss, learning_rate)
            moved = dynamics.simulated_step(cases.s_ap, cases.s_an, cases.gamma, loss=loss, learning_rate=learning_rate)
            units = cases.after / np.linalg.norm(cases.after, axis=2, keepdims=True)
            gaps.append(_gap(moved.change_ap, _dots(units, 0, 1) - cases.s_ap))
            gaps.append(_gap(moved.change_an, _dots(units, 0, 2) - cases.s_an))
        yield check(
            f"step-{loss}",
            f"One gradient step with the {loss} loss changes S_ap and S_an as predicted by the closed form.",
            f"largest difference to autograd on 800 steps of vectors in R^7 <= {EXACT:g}",
            f"{max(gaps):.1e}",
            max(gaps) <= EXACT,
        )


def geometry_checks() -> Iterator[Check]:
    """Equation 19 and what gamma can be."""
    rng = np.random.default_rng(11)
    vectors = rng.normal(size=(900, 7))
    placed = dynamics.triplet_coordinates(vectors, np.arange(900).reshape(300, 3))
    units = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).reshape(300, 3, 7)
    gap = _gap(dynamics.positive_negative_similarity(placed.s_ap, placed.s_an, placed.gamma), _dots(units, 1, 2))
    flat = dynamics.triplet_coordinates(rng.normal(size=(900, 2)), np.arange(900).reshape(300, 3)).gamma
    off, opposite = _gap(np.abs(flat), np.ones_like(flat)), float((flat < 0).mean())
    axis = np.linspace(-1, 1, 9)
    s_ap, s_an, gamma = (grid.ravel() for grid in np.meshgrid(axis, axis, axis))
    built = dynamics.triplet_vectors(s_ap, s_an, gamma)
    wanted = (np.ones_like(s_ap), np.ones_like(s_ap), np.ones_like(s_ap), s_ap, s_an)
    worst = max(
        _gap(_dots(built, *pair), value)
        for pair, value in zip(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2)), wanted, strict=True)
    )
    yield check(
        "eq19",
        "The similarity of positive and negative follows from S_ap, S_an and gamma.",
        f"largest difference on 300 random triplets <= {EXACT:g}",
        f"{gap:.1e}",
        gap <= EXACT,
    )
    yield check(
        "erratum-coplanar",
        "The paper says that gamma is 1 for three vectors in a plane; it is 1 or -1.",
        "gamma 1 or -1 within 1e-9 for 300 triplets in a plane, and both occur",
        f"within {off:.1e}, {100 * opposite:.0f} % are -1",
        off <= 1e-9 and 0 < opposite < 1,
    )
    yield check(
        "feasible",
        "From three dimensions on every S_ap, S_an and gamma in [-1, 1] belong to some unit vectors.",
        f"vectors for each of 729 combinations, edges included, off by <= {EXACT:g}",
        f"{worst:.1e}",
        worst <= EXACT,
    )


def similarity_checks() -> Iterator[Check]:
    """The unnormalised similarities as printed, beside those of the vectors."""
    first, second, vanilla = (stepped_cases(loss, LEARNING_RATE) for loss in ("first-order", "second-order", "vanilla"))
    beta = LEARNING_RATE * first.slope
    pn = _dots(first.before, 1, 2)
    right = _dots(first.after, 0, 2)
    rest = -2 * beta + beta * pn - beta**2 * first.s_ap
    eq8, eq18 = (_gap((1 + beta**2) * similarity + rest, right) for similarity in (first.s_an, first.s_ap))

    slope = LEARNING_RATE * second.slope
    weight_ap, weight_an = 1 - second.s_ap, second.s_an
    pull, push = weight_ap * slope, weight_an * slope
    pn = _dots(second.before, 1, 2)
    of_ap, of_an = _dots(second.after, 0, 1), _dots(second.after, 0, 2)
    both = weight_ap * weight_an * slope  # as printed; its slope must be squared
    linear_ap, linear_an = 2 * pull - push * pn, -2 * push + pull * pn
    eq23 = _gap((1 + pull) * second.s_ap + linear_ap - both * second.s_an, of_ap)
    half23 = _gap((1 + pull**2) * second.s_ap + linear_ap - both * second.s_an, of_ap)
    right23 = _gap((1 + pull**2) * second.s_ap + linear_ap - both * slope * second.s_an, of_ap)
    eq24 = _gap((1 + push) * second.s_ap + linear_an - both * second.s_ap, of_an)
    half24 = _gap((1 + push**2) * second.s_an + linear_an - both * second.s_ap, of_an)
    right24 = _gap((1 + push**2) * second.s_an + linear_an - both * slope * second.s_ap, of_an)

    anchor, positive = vanilla.before[:, 0], vanilla.before[:, 1]
    literal = _gap(positive + 2 * (anchor - positive), vanilla.after[:, 1])
    scaled = _gap(positive + 2 * LEARNING_RATE * (anchor - positive), vanilla.after[:, 1])
    yield _erratum("eq18", "Equation 18 has S_ap where S_an belongs, as equation 8 has it", eq8, eq18)
    yield _erratum(
        "eq23", "Equation 23 lacks two squares: in its first term, and on beta_w in its last", right23, eq23, half23
    )
    yield _erratum(
        "eq24",
        "Equation 24 lacks the same two squares, and has S_ap for S_an in its first term",
        right24,
        eq24,
        half24,
    )
    yield _erratum("eq32", "With beta = 2 equation 32 leaves out the learning rate: beta is 2 alpha", scaled, literal)


def _erratum(name: str, statement: str, corrected: float, *wrong: float) -> Check:
    """`wrong`: as printed, and with a part of the slips mended."""
    return check(
        f"erratum-{name}",
        f"{statement}.",
        f"as printed, or mended in part, off by > 0.01 from a step on vectors, corrected by <= {EXACT:g}",
        f"{' and '.join(f'{off:.3g}' for off in wrong)}; {corrected:.1e}",
        min(wrong) > 0.01 and corrected <= EXACT,
    )


def norm_checks() -> Iterator[Check]:
    """Equations 20-22, 25-27 and 35-37."""
    for loss, equations in zip(LOSSES, ("20-22", "35-37", "25-27"), strict=True):
        cases = stepped_cases(loss, LEARNING_RATE)
        ap, an, gamma = cases.s_ap, cases.s_an, cases.gamma
        sp, sn = np.sqrt(1 - ap**2), np.sqrt(1 - an**2)
        beta = LEARNING_RATE * cases.slope
        pull, push = (beta * (1 - ap), beta * an) if loss == "second-order" else (beta, beta)
        drift = beta if loss == "vanilla" else 0.0
        moved = dynamics.simulated_step(ap, an, gamma, loss=loss, learning_rate=LEARNING_RATE)
        along = (1 + pull * ap - push * an) ** 2
        anchor = along + (pull * sp - gamma * push * sn) ** 2 + (push * np.sqrt(1 - gamma**2) * sn) ** 2
        positive = (1 - drift + pull * ap) ** 2 + pull**2 * sp**2
        negative = (1 + drift - push * an) ** 2 + push**2 * sn**2
        ours = (moved.anchor_squared, moved.positive_squared, moved.negative_squared)
        gap = max(_gap(*pair) for pair in zip(ours, (anchor, positive, negative), strict=True))
        yield check(
            f"eq{equations}",
            f"Equations {equations} give the norms after a step with the {loss} loss.",
            f"largest difference of squared norms on 200 steps <= {EXACT:g}",
            f"{gap:.1e}",
            gap <= EXACT,
        )


def loss_checks() -> Iterator[Check]:
    """The limits that the first-order and the second-order loss pull to."""
    axis = np.linspace(-1, 1, 401)  # 0 and 1 are on it
    s_ap, s_an = axis[None, :], axis[:, None]
    first_ap, first_an = dynamics.loss_slopes(s_ap, s_an, loss="first-order")
    least = min(float((-first_ap).min()), float(first_an.min()))
    equal = _gap(dynamics.loss_value(axis, axis, loss="first-order"), np.full_like(axis, np.log(2)))

    values = dynamics.loss_value(s_ap, s_an, loss="second-order")
    row, column = np.unravel_index(values.argmin(), values.shape)
    slopes = [float(slope) for slope in dynamics.loss_slopes(1.0, 0.0, loss="second-order")]
    of_an = dynamics.loss_slopes(s_ap, s_an, loss="second-order")[1]
    same_sign = float((np.sign(of_an) == np.sign(s_an)).mean())

    u, v = s_ap - s_ap**2 / 2, s_an**2 / 2
    weight = np.exp(v) / (np.exp(u) + np.exp(v))
    h = 1e-5
    inner_ap, inner_an = s_ap[:, 1:-1], s_an[1:-1]  # room for a difference on both sides

    def second(shift_ap: float, shift_an: float, constant: float = -0.5) -> Floats:
        ap, an = inner_ap + shift_ap, inner_an + shift_an
        if constant == -0.5:
            return dynamics.loss_value(ap, an, loss="second-order")
        return np.logaddexp(0, ((1 - ap) ** 2 + an**2) / 2 + constant)

    rows, classes = np.random.default_rng(5).normal(size=(24, 6)), torch.arange(24) % 6
    placed = dynamics.triplet_scatter(rows, classes)
    of_class = SecondOrderTripletLoss(positives="easy", negatives="hard")(torch.from_numpy(rows), classes)
    by_equation = dynamics.loss_value(placed.s_ap, placed.s_an, loss="second-order").mean()
    class_gap = abs(float(of_class) - float(by_equation))

    inner = weight[1:-1, 1:-1]
    gaps = {
        constant: max(
            _gap((second(h, 0, constant) - second(-h, 0, constant)) / (2 * h), -inner * (1 - inner_ap)),
            _gap((second(0, h, constant) - second(0, -h, constant)) / (2 * h), inner * inner_an),
        )
        for constant in (-0.5, 0.0)
    }
    yield check(
        "first-order-unbounded",
        "The first-order loss pulls the positive and pushes the negative everywhere, so no similarity is a target.",
        "both slopes > 0.1 in size, with the same sign, on 401 x 401 points of [-1, 1]^2",
        f"at least {least:.3f}",
        least > 0.1,
    )
    yield check(
        "first-order-log2",
        "The first-order loss is log 2 wherever positive and negative are as similar to the anchor.",
        f"difference to log 2 <= {EXACT:g}",
        f"{equal:.1e}",
        equal <= EXACT,
    )
    yield check(
        "second-order-minimum",
        "The second-order loss is least at (1, 0), the ideal point, and its gradient is 0 there.",
        f"least of 401 x 401 values of [-1, 1]^2 at (1, 0), log(1 + exp(-1/2)) = {np.log1p(np.exp(-0.5)):.10f}",
        f"({axis[column]:g}, {axis[row]:g}), {values.min():.10f}, slopes {slopes[0]:g} and {slopes[1]:g}",
        (axis[column], axis[row]) == (1, 0)
        and abs(values.min() - np.log1p(np.exp(-0.5))) <= EXACT
        and slopes == [0, 0],
    )
    yield check(
        "second-order-negative",
        "The second-order loss pulls a negative that is beyond orthogonal back up to S_an = 0.",
        "slope in S_an < 0 wherever S_an < 0, > 0 wherever S_an > 0, on 401 x 401 points",
        f"of the sign of S_an on {100 * same_sign:.0f} % of them",
        same_sign == 1,
    )
    yield check(
        "eq16",
        "The second-order loss is what the weighted gradients of equations 13 to 15 integrate to.",
        "slopes by differences equal the printed ones within 1e-8 on 399 x 399 points",
        f"{gaps[-0.5]:.1e}",
        gaps[-0.5] <= 1e-8,
    )
    yield check(
        "eq16-class",
        "The loss that is trained with, SecondOrderTripletLoss, is equation 16 on the triplets that it chooses.",
        f"difference of the means over 24 triplets of easy positives and hard negatives <= {EXACT:g}",
        f"{class_gap:.1e}",
        class_gap <= EXACT,
    )
    yield check(
        "eq16-constant",
        "Written with (1 - S_ap)^2 the second-order loss needs the constant 1/2 inside the logarithm.",
        "without it the slopes differ by > 0.1 from equations 13 to 15",
        f"{gaps[0.0]:.3f}",
        gaps[0.0] > 0.1,
    )


def small_step_checks() -> Iterator[Check]:
    """The linear part of a step in the learning rate, and the bands it gives."""
    axis = midpoints(100)
    s_ap, s_an = axis[None, :], axis[:, None]
    sp, sn = np.sqrt(1 - s_ap**2), np.sqrt(1 - s_an**2)
    errors: list[float] = []
    wrong, compared, negative_gamma = 0, 0, 0
    for loss in LOSSES:
        cases = stepped_cases(loss, SMALL)
        rates = dynamics.first_order_rates(cases.s_ap, cases.s_an, cases.gamma, loss=loss)
        moved = dynamics.simulated_step(cases.s_ap, cases.s_an, cases.gamma, loss=loss, learning_rate=SMALL)
        for change, rate in zip((moved.change_ap, moved.change_an), rates, strict=True):
            errors.append(_gap(change, moved.beta * rate) / SMALL)
    for loss, gamma in product(LOSSES, (-0.5, 0.0, *GAMMAS)):
        weight_ap, weight_an = (1 - s_ap, s_an) if loss == "second-order" else (1.0, 1.0)
        moved = dynamics.simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=SMALL)
        rates = dynamics.first_order_rates(s_ap, s_an, gamma, loss=loss)
        bands = (2 * weight_ap * sp < gamma * weight_an * sn, 2 * weight_an * sn < gamma * weight_ap * sp)
        bad = (moved.change_ap < 0, moved.change_an > 0)
        for band, sign, rate in zip(bands, bad, rates, strict=True):
            clear = np.abs(rate) > 1e-4  # on the boundary itself the next order decides
            wrong += int((band != sign)[clear].sum())
            compared += int(clear.sum())
        if loss != "second-order" and gamma <= 0:
            negative_gamma += int(bad[0].sum() + bad[1].sum())
    yield check(
        "small-step",
        "For a small learning rate the changes are beta (2 w_ap s_p^2 - w_an gamma s_p s_n) and its mirror image.",
        f"error / alpha < 2e-5 at alpha = {SMALL:g}",
        f"{max(errors):.1e}",
        max(errors) < 2e-5,
    )
    yield check(
        "bands",
        "A positive is pushed away where 2 w_ap s_p < gamma w_an s_n, a negative drawn near where 2 w_an s_n < "
        "gamma w_ap s_p.",
        "0 cells of [0, 1]^2 against it, 3 losses and 5 values of gamma, boundaries left out",
        f"{wrong} of {compared}",
        wrong == 0,
    )
    yield check(
        "bands-gamma",
        "The wrong directions of the first-order and the vanilla loss need gamma > 0.",
        f"0 cells of [0, 1]^2 for gamma = 0 and -0.5 at alpha = {SMALL:g}",
        str(negative_gamma),
        negative_gamma == 0,
    )


def midpoints(size: int) -> Floats:
    points: Floats = (np.arange(size) + 0.5) / size
    return points
