"""Motion of a triplet in one gradient step: its change of similarities in closed form, alone and entangled.

Source:
    Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from trivet.runtime.arguments import check_above_zero, check_count, check_name
from trivet.runtime.arrays import Floats

SimulatedLoss = Literal["first-order", "vanilla", "second-order"]
EntanglementFactor = Literal["sqrt", "prod"]
EPS = float(np.finfo(np.float64).eps)
UNDEFINED = 1e-7  # up to this product of the lengths beside the anchor a NaN of gamma means nothing


@dataclass(frozen=True)
class SimulatedStep:
    """One gradient step on free vectors, put back on the sphere afterwards; all fields of one shape."""

    beta: Floats  # learning rate times the slope of the loss (first order: s1; second order: s2; vanilla: 2)
    # anchor_squared, positive_squared, negative_squared: squared norms of the three after the step.
    anchor_squared: Floats
    positive_squared: Floats
    negative_squared: Floats
    # change_ap, change_an: of S_ap and S_an, norms divided out; NaN where a vector becomes zero.
    change_ap: Floats
    change_an: Floats


@dataclass(frozen=True)
class VectorField:
    """Changes of (S_ap, S_an) on a grid."""

    s_ap: Floats  # the x axis `(size,)`
    s_an: Floats  # the y axis `(size,)`
    # change_ap, change_an: `(size, size)`, row by S_an, column by S_ap.
    change_ap: Floats
    change_an: Floats


def simulated_step(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, loss: SimulatedLoss, learning_rate: float = 0.1
) -> SimulatedStep:
    """Simulate one gradient step on the three vectors: the change of their similarities, in closed form.

    The step moves free vectors, f_a' = f_a + a_p f_p - a_n f_n, f_p' = k_p f_p + a_p f_a and
    f_n' = k_n f_n - a_n f_a, and the sphere takes them back. (a_p, a_n) is beta (1, 1) for the first-order and the
    vanilla loss and beta (1 - S_ap, S_an) for the second-order one; (k_p, k_n) is (1 - beta, 1 + beta) for the vanilla
    loss, which is of distances, and (1, 1) else. Its hinge counts as open.

    Args:
        s_ap, s_an, gamma: in [-1, 1], shapes that broadcast together; a gamma of NaN where the positive or the negative
            lies on the anchor counts as 0.
        loss: "first-order", "vanilla" or "second-order".
        learning_rate: the paper's alpha, finite and > 0; the paper gives no value.

    Source:
        Eqs. 4-10, 20-27 and 32-39, with the corrections of eqs. 18, 23, 24 and of the beta of eqs. 28-31, which is 2
        times the learning rate.

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
    slope, weight_ap, weight_an = gradient_terms(ap, an, loss)
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
        anchor_squared=anchor,
        positive_squared=positive,
        negative_squared=negative,
        change_ap=new_ap / (anchor_norm * positive_norm) - ap,
        change_an=new_an / (anchor_norm * negative_norm) - an,
    )


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

    Source:
        Eqs. 11 and 12.
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

    Source:
        Eqs. 9-12, figures 2 and 5.
    """
    check_count(size, name="size")
    if not -1 <= low < high <= 1:
        raise ValueError(f"low and high must satisfy -1 <= low < high <= 1: got {low} and {high}.")
    axis: Floats = low + (high - low) * (np.arange(size) + 0.5) / size
    s_an, s_ap = axis[:, None], axis[None, :]
    moved = simulated_step(s_ap, s_an, gamma, loss=loss, learning_rate=learning_rate)
    change_ap, change_an = entangle(s_ap, s_an, moved.change_ap, moved.change_an, strength=strength, factor=factor)
    return VectorField(s_ap=axis, s_an=axis, change_ap=change_ap, change_an=change_an)


def gradient_terms(ap: Floats, an: Floats, loss: SimulatedLoss) -> tuple[Floats, Floats, Floats]:
    """The slope that both sides share, and the weights w_ap and w_an: dL / dS is (-slope w_ap, slope w_an)."""
    unit = np.ones(np.broadcast_shapes(ap.shape, an.shape))
    if loss == "vanilla":
        return 2 * unit, unit, unit
    slope = expit(exponent_of(ap, an, loss))
    return (slope, unit, unit) if loss == "first-order" else (slope, (1 - ap) * unit, an * unit)


def exponent_of(ap: Floats, an: Floats, loss: SimulatedLoss) -> Floats:
    return an - ap if loss == "first-order" else an**2 / 2 - ap + ap**2 / 2


def perpendicular_length(similarity: Floats) -> Floats:
    """sqrt(1 - S^2), the length of the part of a unit vector beside the other."""
    return np.sqrt((1 - similarity) * (1 + similarity))


def crossing_of(ap: Floats, an: Floats, gamma: npt.ArrayLike) -> Floats:
    """gamma sqrt(1 - S_ap^2) sqrt(1 - S_an^2)."""
    lengths = perpendicular_length(ap) * perpendicular_length(an)
    values = np.asarray(gamma, dtype=np.float64)
    values = np.where(np.isnan(values) & (lengths < UNDEFINED), 0, values)
    return lengths * in_range(values, name="gamma")


def as_similarities(s_ap: npt.ArrayLike, s_an: npt.ArrayLike) -> tuple[Floats, Floats]:
    return in_range(s_ap, name="s_ap"), in_range(s_an, name="s_an")


def in_range(values: npt.ArrayLike, *, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    wrong = ~(np.abs(array) <= 1)  # NaN too
    if wrong.any():
        raise ValueError(
            f"{name} must lie in [-1, 1]: got {array[wrong].flat[0]} ({int(wrong.sum())} of {array.size} values); "
            "it is a cosine of two vectors."
        )
    return array
