"""The triplet scatter diagram: where triplets lie, and vectors that lie there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.distances import Array, as_rows, unit_rows
from trivet.mining import NegativeName, NegativeSelector, PositiveName, PositiveSelector, Triplets, mine
from trivet.mining.index_tuples import Disjoint
from trivet.runtime.arguments import check_at_least
from trivet.runtime.arrays import Booleans, Floats, Integers

EPS = float(np.finfo(np.float64).eps)
SAME_DIRECTION = 16 * EPS  # a shorter part of a unit row beside the anchor is rounding
UNDEFINED = 1e-7  # up to this product of the lengths beside the anchor a NaN of `tangent_cosine` means nothing


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
    margin: float = 0.2,
    disjoint: Disjoint = False,
    generator: torch.Generator | None = None,
) -> TripletScatter:
    """The triplets a strategy chooses by cosine similarity, as points of the triplet scatter diagram.

    With "easy" and "hard" over a whole data set it is the paper's whole-set scatter: nearest positive and nearest
    negative of each item that has both.

    Args:
        embeddings: `(N, d)` floating point, normalised here, computed in float64.
        labels: `(N,)` integer.
        positives, negatives, margin, disjoint, generator: see `trivet.mine`.

    Raises:
        ValueError: as `trivet.mine`.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 3, figures 1 and 6.
    """
    rows = as_rows(embeddings)
    triplets = mine(
        rows,
        labels,
        positives=positives,
        negatives=negatives,
        margin=margin,
        distance="cosine",
        disjoint=disjoint,
        generator=generator,
    )
    return triplet_coordinates(rows, triplets)


def triplet_coordinates(embeddings: Array, triplets: Triplets | Array) -> TripletScatter:
    """Given triplets as points of the triplet scatter diagram.

    Similarities come from differences of unit rows in float64, which keeps the digits of near-duplicates.

    Args:
        embeddings: `(N, d)` floating point, normalised here; a row of zeros has similarity 0 to every row.
        triplets: what `trivet.mine` returns, or row numbers `(T, 3)` of anchor, positive and negative.

    Raises:
        ValueError: if a row is not finite, or the triplets are not `(T, 3)` row numbers.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 3 (S_ap, S_an), eq. 19 (gamma).
    """
    rows = as_rows(embeddings).cpu()
    index = _as_triplets(triplets, len(rows))
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
        s_ap, s_an: in [-1, 1], shapes that broadcast together.
        width: of the strips at the edges and below the diagonal, >= 0; the paper draws them without a number.

    Raises:
        ValueError: if a similarity or `width` is out of range.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 3, figure 1. It says nothing of ties,
        which count as wrong here.
    """
    ap, an = as_similarities(s_ap, s_an)
    check_at_least(0, width, name="width")
    return Regions(
        correct=ap > an,
        easy_positive=ap > 1 - width,
        hard_negative=an > 1 - width,
        semi_hard=(an < ap) & (an > ap - width),
    )


def positive_negative_similarity(s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
    """S_pn = S_ap S_an + gamma sqrt(1 - S_ap^2) sqrt(1 - S_an^2).

    Args:
        s_ap, s_an, gamma: in [-1, 1], shapes that broadcast together. A gamma of NaN, as `triplet_coordinates` gives
            where the positive or the negative lies on the anchor, counts as 0 there: its coefficient vanishes.

    Raises:
        ValueError: if one is out of range, or gamma is NaN elsewhere.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, eq. 19.
    """
    ap, an = as_similarities(s_ap, s_an)
    return ap * an + crossing_of(ap, an, gamma)


def triplet_vectors(
    s_ap: npt.ArrayLike, s_an: npt.ArrayLike, gamma: npt.ArrayLike, *, embedding_dim: int = 3
) -> Floats:
    """Unit vectors of an anchor, a positive and a negative with these similarities `(..., 3, embedding_dim)`.

    The anchor is the first axis, the positive lies in the plane of the first two, the negative in the space of three.

    Args:
        s_ap, s_an, gamma: in [-1, 1], shapes that broadcast together; every combination exists from three dimensions
            on, and in two only gamma = 1 and gamma = -1.
        embedding_dim: >= 2.

    Raises:
        ValueError: if one is out of range, or two dimensions are asked for and some gamma is not 1 or -1.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, appendix A, before eq. 19.
    """
    ap, an = as_similarities(s_ap, s_an)
    direction = _in_range(gamma, name="gamma")
    ap, an, direction = np.broadcast_arrays(ap, an, direction)
    if embedding_dim < 2 or (embedding_dim == 2 and (np.abs(direction) != 1).any()):
        raise ValueError(
            f"embedding_dim must be at least 3, or 2 where every gamma is 1 or -1: got {embedding_dim}; "
            "in a plane the positive and the negative lie on one line through the anchor."
        )
    vectors = np.zeros((*ap.shape, 3, embedding_dim))
    vectors[..., 0, 0] = 1
    vectors[..., 1, 0], vectors[..., 1, 1] = ap, perpendicular_length(ap)
    vectors[..., 2, 0], vectors[..., 2, 1] = an, perpendicular_length(an) * direction
    if embedding_dim > 2:
        vectors[..., 2, 2] = perpendicular_length(an) * perpendicular_length(direction)
    return vectors


def perpendicular_length(similarity: Floats) -> Floats:
    """sqrt(1 - S^2), the length of the part of a unit vector beside the other."""
    return np.sqrt((1 - similarity) * (1 + similarity))


def crossing_of(ap: Floats, an: Floats, gamma: npt.ArrayLike) -> Floats:
    """gamma sqrt(1 - S_ap^2) sqrt(1 - S_an^2)."""
    lengths = perpendicular_length(ap) * perpendicular_length(an)
    values = np.asarray(gamma, dtype=np.float64)
    values = np.where(np.isnan(values) & (lengths < UNDEFINED), 0, values)
    return lengths * _in_range(values, name="gamma")


def as_similarities(s_ap: npt.ArrayLike, s_an: npt.ArrayLike) -> tuple[Floats, Floats]:
    return _in_range(s_ap, name="s_ap"), _in_range(s_an, name="s_an")


def _in_range(values: npt.ArrayLike, *, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    wrong = ~(np.abs(array) <= 1)  # NaN too
    if wrong.any():
        raise ValueError(
            f"{name} must lie in [-1, 1]: got {array[wrong].flat[0]} ({int(wrong.sum())} of {array.size} values); "
            "it is a cosine of two vectors."
        )
    return array


def _as_triplets(triplets: Triplets | Array, count: int) -> Tensor:
    """Row numbers `(T, 3)` int64."""
    rows = torch.stack(list(triplets), dim=1) if isinstance(triplets, Triplets) else torch.as_tensor(triplets)
    rows = rows.detach().cpu()
    integers = not (rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool)
    if rows.ndim != 2 or rows.shape[1] != 3 or not integers:
        raise ValueError(
            f"triplets must be integers of shape (T, 3): got {rows.dtype} of shape {tuple(rows.shape)}; "
            "give the rows of anchor, positive and negative, or what trivet.mine returns."
        )
    rows = rows.long()
    if rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < count):
        raise ValueError(
            f"triplets must be row numbers from 0 to {count - 1}: got {int(rows.min())} to {int(rows.max())}; "
            "give the embeddings they were mined in."
        )
    return rows
