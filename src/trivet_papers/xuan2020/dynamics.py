"""The triplet scatter diagram, and where a gradient step moves triplets on it.

Source:
    Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.collapse.dynamics import (
    EPS,
    EntanglementFactor,
    SimulatedLoss,
    SimulatedStep,
    VectorField,
    as_similarities,
    crossing_of,
    entangle,
    exponent_of,
    gradient_terms,
    in_range,
    perpendicular_length,
    simulated_step,
    vector_field,
)
from trivet.distances import Array, as_rows, unit_rows
from trivet.mining import MinedTriplets, NegativeName, NegativeSelector, PositiveName, PositiveSelector, mine
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arrays import Booleans, Floats, Integers

__all__ = [  # beside what is defined here
    "EntanglementFactor",
    "SimulatedLoss",
    "SimulatedStep",
    "VectorField",
    "entangle",
    "simulated_step",
    "vector_field",
]

SAME_DIRECTION = 16 * EPS  # a shorter part of a unit row beside the anchor is rounding
DIRECTIONS = ("top-right", "bottom-right", "bottom-left", "top-left")
SIGN_TOLERANCE = 1e-12  # of a change of similarity that was measured
STRIP, BOX = 0.9, 0.8  # where the top and right strips of `movement_areas` begin, and its box at (1, 1)


@dataclass(frozen=True)
class TripletScatter:
    """T triplets as points of the triplet scatter diagram; fields `(T,)`, `triplets (T, 3)`.

    Attributes:
        triplets: row numbers of anchor, positive and negative.
        s_ap: cosine similarity of anchor and positive, the x axis, in [-1, 1].
        s_an: cosine similarity of anchor and negative, the y axis, in [-1, 1].
        gamma: cosine between the directions from anchor to positive and to negative on the sphere, in [-1, 1]; NaN
            where one of them is the anchor itself or its opposite.
    """

    triplets: Integers
    s_ap: Floats
    s_an: Floats
    gamma: Floats


@dataclass(frozen=True)
class Regions:
    """Regions of the triplet scatter diagram; each a bool array of the points' shape, and they may overlap.

    Attributes:
        correct: S_ap > S_an, below the diagonal (blue in the paper; red are the others, equal ones too).
        easy_positive: S_ap > 1 - width, the right edge.
        hard_negative: S_an > 1 - width, the top edge.
        semi_hard: S_ap - width < S_an < S_ap, just below the diagonal.
    """

    correct: Booleans
    easy_positive: Booleans
    hard_negative: Booleans
    semi_hard: Booleans


def triplet_scatter(
    embeddings: Array,
    labels: Tensor,
    *,
    positives: PositiveName | PositiveSelector = "easy",
    negatives: NegativeName | NegativeSelector = "hard",
    disjoint: Disjoint = False,
    generator: torch.Generator | None = None,
) -> TripletScatter:
    """The triplets a strategy chooses by cosine similarity, as points of the triplet scatter diagram.

    With "easy" and "hard" over a whole data set it is the paper's whole-set scatter: nearest positive and nearest
    negative of each item that has both.

    Args:
        embeddings: `(N, d)` floating point, normalised here, computed in float64.
        labels: `(N,)` integer.
        positives, negatives, disjoint, generator: see `trivet.mine`.

    Source:
        Section 3, figures 1 and 6.
    """
    rows = as_rows(embeddings)
    triplets = mine(
        rows,
        labels,
        positives=positives,
        negatives=negatives,
        distance="cosine",
        disjoint=disjoint,
        generator=generator,
    )
    return triplet_coordinates(rows, triplets)


def triplet_coordinates(embeddings: Array, triplets: MinedTriplets | Array) -> TripletScatter:
    """Given triplets as points of the triplet scatter diagram.

    Similarities come from differences of unit rows in float64, which keeps the digits of near-duplicates.

    Args:
        embeddings: `(N, d)` floating point, normalised here; a row of zeros has similarity 0 to every row.
        triplets: what `trivet.mine` returns, or row numbers `(T, 3)` of anchor, positive and negative.

    Source:
        Section 3 (S_ap, S_an), eq. 19 (gamma).
    """
    rows = as_rows(embeddings).cpu()
    index = torch.stack(list(triplets), dim=1) if isinstance(triplets, MinedTriplets) else torch.as_tensor(triplets)
    index = index.detach().cpu().long()
    units = unit_rows(rows)
    is_zero = (units == 0).all(dim=1)
    anchor, positive, negative = units[index].unbind(dim=1)  # (T, d)
    to_positive, to_negative = positive - anchor, negative - anchor
    similarities, perpendiculars = [], []
    for column, step in ((1, to_positive), (2, to_negative)):
        distance = step.square().sum(dim=1) / 2  # 1 - S
        nowhere = is_zero[index[:, 0]] | is_zero[index[:, column]]
        similarities.append((1 - distance).clamp(-1, 1).masked_fill(nowhere, 0))
        perpendiculars.append(step + distance[:, None] * anchor)  # f - S a
    lengths = [torch.linalg.vector_norm(vector, dim=1) for vector in perpendiculars]
    undefined = (lengths[0] < SAME_DIRECTION) | (lengths[1] < SAME_DIRECTION) | is_zero[index].any(dim=1)
    # Each divided first: the product of two short lengths loses its digits.
    cosines = (
        (perpendiculars[0] / lengths[0][:, None] * (perpendiculars[1] / lengths[1][:, None])).sum(dim=1).clamp(-1, 1)
    )
    gamma = cosines.masked_fill(undefined, math.nan)
    return TripletScatter(index.numpy(), similarities[0].numpy(), similarities[1].numpy(), gamma.numpy())


def regions(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, *, width: float = 0.1) -> Regions:
    """Return which points are correct, easy positives, hard negatives and semi-hard.

    Args:
        width: of the strips at the edges and below the diagonal; the paper draws them without a number.

    Source:
        Section 3, figure 1. It says nothing of ties, which count as wrong here.
    """
    ap, an = as_similarities(s_ap, s_an)
    return Regions(
        correct=ap > an,
        easy_positive=ap > 1 - width,
        hard_negative=an > 1 - width,
        semi_hard=(an < ap) & (an > ap - width),
    )


def positive_negative_similarity(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
    """S_pn = S_ap S_an + gamma sqrt(1 - S_ap^2) sqrt(1 - S_an^2).

    Source:
        Eq. 19. A gamma of NaN where the positive or the negative lies on the anchor counts as 0: its coefficient
        vanishes.
    """
    ap, an = as_similarities(s_ap, s_an)
    return ap * an + crossing_of(ap, an, gamma)


def triplet_vectors(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, embedding_dim: int = 3
) -> Floats:
    """Unit vectors of an anchor, a positive and a negative with these similarities `(..., 3, embedding_dim)`.

    The anchor is the first axis, the positive lies in the plane of the first two, the negative in the space of three.

    Source:
        Appendix A, before eq. 19.
    """
    ap, an = as_similarities(s_ap, s_an)
    ap, an, direction = np.broadcast_arrays(ap, an, in_range(gamma, name="gamma"))
    vectors = np.zeros((*ap.shape, 3, embedding_dim))
    vectors[..., 0, 0] = 1
    vectors[..., 1, 0], vectors[..., 1, 1] = ap, perpendicular_length(ap)
    vectors[..., 2, 0], vectors[..., 2, 1] = an, perpendicular_length(an) * direction
    vectors[..., 2, 2] = perpendicular_length(an) * perpendicular_length(direction)
    return vectors


def loss_value(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, *, loss: SimulatedLoss, margin: float = 0.2) -> Floats:
    """The loss of a triplet.

    First order log(1 + exp(S_an - S_ap)), second order log(1 + exp(S_an^2 / 2 - S_ap + S_ap^2 / 2)), vanilla
    2 S_an - 2 S_ap + margin, which is |f_a - f_p|^2 - |f_a - f_n|^2 + margin on the sphere, without its hinge.

    Source:
        Eqs. 1, 16 and 28.
    """
    ap, an = as_similarities(s_ap, s_an)
    return np.asarray(2 * an - 2 * ap + margin if loss == "vanilla" else np.logaddexp(0, exponent_of(ap, an, loss)))


def loss_slopes(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, *, loss: SimulatedLoss) -> tuple[Floats, Floats]:
    """(dL / dS_ap, dL / dS_an): (-s1, s1), (-2, 2) or (-s2 (1 - S_ap), s2 S_an), s the sigmoid of the loss's exponent.

    Source:
        Eqs. 4-6, 13-15 and 29-31.
    """
    ap, an = as_similarities(s_ap, s_an)
    slope, weight_ap, weight_an = gradient_terms(ap, an, loss)
    return -slope * weight_ap, slope * weight_an


def first_order_rates(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, loss: SimulatedLoss
) -> tuple[Floats, Floats]:
    """The changes of S_ap and S_an per unit of beta as the learning rate goes to 0.

    With s_p = sqrt(1 - S_ap^2), s_n = sqrt(1 - S_an^2) and the weights (w_ap, w_an) of the loss they are
    2 w_ap s_p^2 - w_an gamma s_p s_n and w_ap gamma s_p s_n - 2 w_an s_n^2. So with the first-order and the vanilla
    loss the positive leaves where 2 s_p < gamma s_n, a band along S_ap = 1, and the negative comes nearer where
    2 s_n < gamma s_p, a band along S_an = 1; both need gamma > 0.

    Source:
        The linear part in alpha of eqs. 9 and 10.
    """
    ap, an = as_similarities(s_ap, s_an)
    crossing = crossing_of(ap, an, gamma)
    _, weight_ap, weight_an = gradient_terms(ap, an, loss)
    rate_ap = 2 * weight_ap * perpendicular_length(ap) ** 2 - weight_an * crossing
    rate_an = weight_ap * crossing - 2 * weight_an * perpendicular_length(an) ** 2
    return rate_ap, rate_an


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


def movement_areas(field: VectorField) -> MovementAreas:
    """Measure how much of a vector field moves which way; see `MovementAreas`.

    Source:
        Section 4, which states them in words.
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

    Source:
        Section 4 and figure 3.
    """
    of_ap, of_an = np.asarray(change_ap, dtype=np.float64), np.asarray(change_an, dtype=np.float64)
    right, top = of_ap > tolerance, of_an > tolerance
    way = np.where(right, np.where(top, 0, 1), np.where(top, 3, 2))
    return np.where(np.isnan(of_ap) | np.isnan(of_an), -1, way).astype(np.int8)


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


def movement(before: Array, after: Array, triplets: MinedTriplets | Array) -> Movement:
    """Measure which way real triplets moved from one step of an optimiser to the next.

    With a small learning rate embed in float64: float32 rows move by about 1e-7 without moving.

    Args:
        before, after: embeddings `(N, d)` of the same inputs, normalised here.
        triplets: what `trivet.mine` returned for `before`, or row numbers `(T, 3)` of anchor, positive and negative.

    Source:
        Section 6.1 and figure 3.
    """
    start, end = triplet_coordinates(before, triplets), triplet_coordinates(after, triplets)
    return Movement(
        before=np.stack([start.s_ap, start.s_an], axis=1),
        after=np.stack([end.s_ap, end.s_an], axis=1),
        direction=directions(end.s_ap - start.s_ap, end.s_an - start.s_an),
    )


def _mean(values: Floats | Booleans, where: Booleans) -> float:
    return float(values[where].mean()) if where.any() else math.nan
