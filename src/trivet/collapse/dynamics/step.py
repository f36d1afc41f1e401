"""One gradient step in closed form, entanglement, and where steps move triplets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from trivet.collapse.dynamics.diagram import (
    EPS,
    as_similarities,
    crossing_of,
    perpendicular_length,
    triplet_coordinates,
)
from trivet.distances import Array
from trivet.mining import Triplets
from trivet.runtime.arguments import check_above_zero, check_at_least, check_count, check_name
from trivet.runtime.arrays import Booleans, Floats

SimulatedLoss = Literal["first-order", "vanilla", "second-order"]
EntanglementFactor = Literal["sqrt", "prod"]
DIRECTIONS = ("top-right", "bottom-right", "bottom-left", "top-left")
SIGN_TOLERANCE = 1e-12  # of a change of similarity that was measured
STRIP, BOX = 0.9, 0.8  # where the top and right strips of `movement_areas` begin, and its box at (1, 1)


@dataclass(frozen=True)
class SimulatedStep:
    """One gradient step on free vectors, put back on the sphere afterwards; all fields of one shape.

    Attributes:
        beta: learning rate times the slope of the loss (first order: s1; second order: s2; vanilla: 2).
        pull: a_p, how much of the anchor is added to the positive and of the positive to the anchor.
        push: a_n, how much of the anchor is taken from the negative and of the negative from the anchor.
        anchor_squared, positive_squared, negative_squared: squared norms of the three after the step.
        change_ap, change_an: of S_ap and S_an, norms divided out; NaN where a vector becomes zero.
    """

    beta: Floats
    pull: Floats
    push: Floats
    anchor_squared: Floats
    positive_squared: Floats
    negative_squared: Floats
    change_ap: Floats
    change_an: Floats


@dataclass(frozen=True)
class VectorField:
    """Changes of (S_ap, S_an) on a grid.

    Attributes:
        s_ap: the x axis `(size,)`.
        s_an: the y axis `(size,)`.
        change_ap, change_an: `(size, size)`, row by S_an, column by S_ap.
    """

    s_ap: Floats
    s_an: Floats
    change_ap: Floats
    change_an: Floats


@dataclass(frozen=True)
class MovementAreas:
    """Shares of the cells of a vector field in [0, 1], cells that are NaN left out; NaN where no cell is counted.

    Attributes:
        positive_leaves: change of S_ap < 0.
        negative_nears: change of S_an > 0.
        top_right, bottom_right, bottom_left, top_left: by the signs of both changes, see `directions`.
        top: of the cells with S_an > 0.9, change of S_an > 0.
        box: of the cells in [0.8, 1] x [0.8, 1], top-right.
        right: the mean change of S_an of the cells with S_ap > 0.9, not a share.
    """

    positive_leaves: float
    negative_nears: float
    top_right: float
    bottom_right: float
    bottom_left: float
    top_left: float
    top: float
    box: float
    right: float


@dataclass(frozen=True)
class Movement:
    """Positions of T triplets before and after a step.

    Attributes:
        before, after: (S_ap, S_an) of each triplet `(T, 2)`.
        direction: `(T,)` numbers of `DIRECTIONS`.
    """

    before: Floats
    after: Floats
    direction: npt.NDArray[np.int8]

    @property
    def shares(self) -> dict[str, float]:
        """The share of the triplets that moved in each of `DIRECTIONS`; NaN without triplets."""
        count = len(self.direction)
        return {
            name: float((self.direction == number).sum()) / count if count else math.nan
            for number, name in enumerate(DIRECTIONS)
        }


def loss_value(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, *, loss: SimulatedLoss, margin: float = 0.2) -> Floats:
    """The loss of a triplet.

    First order log(1 + exp(S_an - S_ap)), second order log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)), vanilla
    2 S_an - 2 S_ap + margin, which is |f_a - f_p|^2 - |f_a - f_n|^2 + margin on the sphere, without its hinge.

    Args:
        s_ap, s_an: in [-1, 1], shapes that broadcast together.
        loss: "first-order", "vanilla" or "second-order".
        margin: of the vanilla loss, finite and >= 0; the others have none.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 1, 16 and 28.
    """
    ap, an = as_similarities(s_ap, s_an)
    check_name(loss, get_args(SimulatedLoss), name="loss")
    if loss == "vanilla":
        value = 2 * an - 2 * ap + check_at_least(0, margin, name="margin")
    else:
        value = np.logaddexp(0, _exponent(ap, an, loss))
    return value


def loss_slopes(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, *, loss: SimulatedLoss) -> tuple[Floats, Floats]:
    """(dL / dS_ap, dL / dS_an): (-s1, s1), (-2, 2) or (-s2 (1 - S_ap), s2 S_an), s the sigmoid of the loss's exponent.

    Args:
        s_ap, s_an: in [-1, 1], shapes that broadcast together.
        loss: "first-order", "vanilla" (where its hinge is open) or "second-order".

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 4-6, 13-15 and 29-31.
    """
    ap, an = as_similarities(s_ap, s_an)
    check_name(loss, get_args(SimulatedLoss), name="loss")
    slope, weight_ap, weight_an = _gradient(ap, an, loss)
    return -slope * weight_ap, slope * weight_an


def simulated_step(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, loss: SimulatedLoss, learning_rate: float = 0.1
) -> SimulatedStep:
    """Simulate one gradient step on the three vectors: the change of their similarities, in closed form.

    The step moves free vectors, f_a' = f_a + a_p f_p - a_n f_n, f_p' = k_p f_p + a_p f_a and
    f_n' = k_n f_n - a_n f_a, and the sphere takes them back. (a_p, a_n) is beta (1, 1) for the first-order and the
    vanilla loss and beta (1 - S_ap, S_an) for the second-order one; (k_p, k_n) is (1 - beta, 1 + beta) for the vanilla
    loss, which is of distances, and (1, 1) else. Its hinge counts as open.

    Args:
        s_ap, s_an, gamma: in [-1, 1], shapes that broadcast together; for a gamma of NaN see
            `positive_negative_similarity`.
        loss: "first-order", "vanilla" or "second-order".
        learning_rate: the paper's alpha, finite and > 0; the paper gives no value.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 4-10, 20-27 and 32-39, with the
        corrections of eqs. 18, 23, 24 and of the beta of eqs. 28-31, which is 2 times the learning rate.

    Example:
        >>> moved = simulated_step(0.9, 0.2, 0.5, loss="second-order")
        >>> round(float(moved.change_ap), 6), round(float(moved.change_an), 6)
        (-0.0002, -0.013923)
    """
    ap, an = as_similarities(s_ap, s_an)
    check_name(loss, get_args(SimulatedLoss), name="loss")
    check_above_zero(learning_rate, name="learning_rate")
    pn = ap * an + crossing_of(ap, an, gamma)
    ap, an, pn = np.broadcast_arrays(ap, an, pn)
    slope, weight_ap, weight_an = _gradient(ap, an, loss)
    beta = learning_rate * slope
    pull, push = beta * weight_ap, beta * weight_an
    keep_positive, keep_negative = (1 - beta, 1 + beta) if loss == "vanilla" else (1.0, 1.0)

    new_ap = (keep_positive + pull**2) * ap + pull * (1 + keep_positive) - push * (keep_positive * pn + pull * an)
    new_an = (keep_negative + push**2) * an - push * (1 + keep_negative) + pull * (keep_negative * pn - push * ap)
    anchor = 1 + pull**2 + push**2 + 2 * pull * ap - 2 * push * an - 2 * pull * push * pn
    positive = keep_positive**2 + pull**2 + 2 * keep_positive * pull * ap
    negative = keep_negative**2 + push**2 - 2 * keep_negative * push * an

    zero = 16 * EPS * (1 + np.abs(beta) + np.abs(pull) + np.abs(push)) ** 2  # below it a norm is rounding
    anchor_norm, positive_norm, negative_norm = (
        np.sqrt(np.where(squared > zero, squared, np.nan)) for squared in (anchor, positive, negative)
    )
    return SimulatedStep(
        beta=beta,
        pull=pull,
        push=push,
        anchor_squared=anchor,
        positive_squared=positive,
        negative_squared=negative,
        change_ap=new_ap / (anchor_norm * positive_norm) - ap,
        change_an=new_an / (anchor_norm * negative_norm) - an,
    )


def first_order_rates(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, loss: SimulatedLoss
) -> tuple[Floats, Floats]:
    """The changes of S_ap and S_an per unit of beta as the learning rate goes to 0.

    With s_p = sqrt(1 - S_ap^2), s_n = sqrt(1 - S_an^2) and the weights (w_ap, w_an) of the loss they are
    2 w_ap s_p^2 - w_an gamma s_p s_n and w_ap gamma s_p s_n - 2 w_an s_n^2. So with the first-order and the vanilla
    loss the positive leaves where 2 s_p < gamma s_n, a band along S_ap = 1, and the negative comes nearer where
    2 s_n < gamma s_p, a band along S_an = 1; both need gamma > 0.

    Args:
        s_ap, s_an, gamma, loss: as `simulated_step`.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        The linear part in alpha of Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 9 and 10.
    """
    ap, an = as_similarities(s_ap, s_an)
    check_name(loss, get_args(SimulatedLoss), name="loss")
    crossing = crossing_of(ap, an, gamma)
    _, weight_ap, weight_an = _gradient(ap, an, loss)
    rate_ap = 2 * weight_ap * perpendicular_length(ap) ** 2 - weight_an * crossing
    rate_an = weight_ap * crossing - 2 * weight_an * perpendicular_length(an) ** 2
    return rate_ap, rate_an


def entangle(
    s_ap: npt.ArrayLike,
    s_an: npt.ArrayLike,
    change_ap: npt.ArrayLike,
    change_an: npt.ArrayLike,
    *,
    strength: float,
    factor: EntanglementFactor = "sqrt",
) -> tuple[Floats, Floats]:
    """The changes of S_ap and S_an when shared weights move both pairs together.

    change_ap + p q change_an and change_an + p q change_ap, where q is sqrt(S_ap S_an), or S_ap S_an as in later work
    of the same group; 0 where the product is negative.

    Args:
        s_ap, s_an: in [-1, 1], shapes that broadcast together with those of the changes.
        change_ap, change_an: without entanglement.
        strength: p, in [0, 1]; the paper shows 0.4 and 0.8.
        factor: "sqrt" or "prod".

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 11 and 12.
    """
    ap, an = as_similarities(s_ap, s_an)
    check_name(factor, get_args(EntanglementFactor), name="factor")
    if not 0 <= strength <= 1:
        raise ValueError(f"strength must lie in [0, 1]: got {strength}; 0 means no entanglement.")
    q = np.maximum(ap * an, 0)
    if factor == "sqrt":
        q = np.sqrt(q)
    of_ap, of_an = np.asarray(change_ap, dtype=np.float64), np.asarray(change_an, dtype=np.float64)
    return of_ap + strength * q * of_an, of_an + strength * q * of_ap


def vector_field(
    *,
    loss: SimulatedLoss,
    gamma: float = 0.5,
    strength: float = 0.0,
    factor: EntanglementFactor = "sqrt",
    learning_rate: float = 0.1,
    size: int = 200,
    low: float = 0.0,
    high: float = 1.0,
) -> VectorField:
    """Move a triplet by one step, at the midpoints of size x size cells of [low, high] x [low, high].

    Args:
        loss: "first-order", "vanilla" or "second-order".
        gamma: in [-1, 1]; the paper shows 0.2, 0.5 and 0.8.
        strength, factor: of the entanglement, see `entangle`; strength 0 means no entanglement.
        learning_rate: finite and > 0.
        size: >= 1.
        low, high: -1 <= low < high <= 1; 0 and 1 are the paper's Omega_s, -1 and 1 its Omega.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eqs. 9-12, figures 2 and 5.
    """
    check_count(size, name="size")
    if not -1 <= low < high <= 1:
        raise ValueError(f"low and high must satisfy -1 <= low < high <= 1: got {low} and {high}.")
    axis: Floats = low + (high - low) * (np.arange(size) + 0.5) / size
    s_an, s_ap = axis[:, None], axis[None, :]
    moved = simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=learning_rate)
    change_ap, change_an = entangle(s_ap, s_an, moved.change_ap, moved.change_an, strength=strength, factor=factor)
    return VectorField(s_ap=axis, s_an=axis, change_ap=change_ap, change_an=change_an)


def movement_areas(field: VectorField) -> MovementAreas:
    """Measure how much of a vector field moves which way; see `MovementAreas`.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 4, which states them in words.
    """
    way = directions(field.change_ap, field.change_an, tolerance=0)
    known = way >= 0
    top = known & (field.s_an > STRIP)[:, None]
    right = known & (field.s_ap > STRIP)[None, :]
    box = known & (field.s_an > BOX)[:, None] & (field.s_ap > BOX)[None, :]
    shares = [_mean(way == number, known) for number in range(len(DIRECTIONS))]
    return MovementAreas(
        positive_leaves=_mean(field.change_ap < 0, known),
        negative_nears=_mean(field.change_an > 0, known),
        top_right=shares[0],
        bottom_right=shares[1],
        bottom_left=shares[2],
        top_left=shares[3],
        top=_mean(field.change_an > 0, top),
        box=_mean(way == 0, box),
        right=_mean(field.change_an, right),
    )


def directions(
    change_ap: npt.ArrayLike, change_an: npt.ArrayLike, *, tolerance: float = SIGN_TOLERANCE
) -> npt.NDArray[np.int8]:
    """The quarter each change points to, as a number of `DIRECTIONS`; -1 where a change is NaN.

    | number | name | change of S_ap | change of S_an |
    |---|---|---|---|
    | 0 | top-right | > tolerance | > tolerance |
    | 1 | bottom-right | > tolerance | else |
    | 2 | bottom-left | else | else |
    | 3 | top-left | else | > tolerance |

    Args:
        change_ap, change_an: shapes that broadcast together.
        tolerance: finite and >= 0.

    Raises:
        ValueError: if `tolerance` is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 4 and figure 3.
    """
    check_at_least(0, tolerance, name="tolerance")
    of_ap, of_an = np.asarray(change_ap, dtype=np.float64), np.asarray(change_an, dtype=np.float64)
    right, top = of_ap > tolerance, of_an > tolerance
    way = np.where(right, np.where(top, 0, 1), np.where(top, 3, 2))
    return np.where(np.isnan(of_ap) | np.isnan(of_an), -1, way).astype(np.int8)


def movement(before: Array, after: Array, triplets: Triplets | Array, *, tolerance: float = SIGN_TOLERANCE) -> Movement:
    """Measure which way real triplets moved from one step of an optimiser to the next.

    Embed the same inputs, augmented the same way and in the same mode of batch norm, before and after the step, and
    give the triplets of the step. With a small learning rate embed in float64, or raise `tolerance` to the rounding of
    what you have: float32 rows move by about 1e-7 without moving.

    Args:
        before, after: embeddings `(N, d)` floating point, normalised here.
        triplets: what `trivet.mine` returned for `before`, or row numbers `(T, 3)` of anchor, positive and negative.
        tolerance: a change up to it counts as none, >= 0; see `directions`.

    Raises:
        ValueError: if shapes disagree, a row is not finite, a triplet is no triplet of row numbers, or `tolerance` is
            out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 6.1 and figure 3.
    """
    if tuple(before.shape) != tuple(after.shape):
        raise ValueError(
            f"before and after must have one shape: got {tuple(before.shape)} and {tuple(after.shape)}; "
            "embed the same inputs with the same network."
        )
    start, end = triplet_coordinates(before, triplets), triplet_coordinates(after, triplets)
    return Movement(
        before=np.stack([start.s_ap, start.s_an], axis=1),
        after=np.stack([end.s_ap, end.s_an], axis=1),
        direction=directions(end.s_ap - start.s_ap, end.s_an - start.s_an, tolerance=tolerance),
    )


def _gradient(ap: Floats, an: Floats, loss: SimulatedLoss) -> tuple[Floats, Floats, Floats]:
    """The slope that both sides share, and the weights w_ap and w_an: dL / dS is (-slope w_ap, slope w_an)."""
    unit = np.ones(np.broadcast_shapes(ap.shape, an.shape))
    if loss == "vanilla":
        return 2 * unit, unit, unit
    slope = expit(_exponent(ap, an, loss))
    return (slope, unit, unit) if loss == "first-order" else (slope, (1 - ap) * unit, an * unit)


def _exponent(ap: Floats, an: Floats, loss: SimulatedLoss) -> Floats:
    return an - ap if loss == "first-order" else an**2 / 2 - ap + ap**2 / 2


def _mean(values: Floats | Booleans, where: Booleans) -> float:
    return float(values[where].mean()) if where.any() else math.nan
