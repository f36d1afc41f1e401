"""Skew of a strategy, how unevenly it picks its negatives: counted in each batch, and estimated from many.

Le, Odobez, 2018, section 4.2, say that their eta cannot be computed; the estimators here are proposals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Array, as_classes, as_rows
from trivet.metrics.positive_ranks import DIFFERENCES
from trivet.mining import MinedTriplets
from trivet.runtime.arrays import Booleans, Floats

RANK_BINS = 10  # of the ranks of an anchor's negatives, nearest first
DISTANCE_BINS = 20  # of the distances from 0 to 2
LEAST_CANDIDATES = 50  # in a bin of distances that is looked at
RESAMPLES = 200
LEVELS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class PickCounts:
    """Counts of one batch, to be added up over many.

    Attributes:
        picks: `(10,)` picks whose negative lies in each tenth of the anchor's negatives, the nearest first.
        expected: `(10,)` what uniform picking of as many would give on average.
        active: picks whose term of the loss is not zero.
        wrong: `(3,)` picks of a negative that truly has the anchor's class, what uniform picking would give, and those
            of the first that are active; None where the true labels are not known.
        distances: `(4, 20)` for the margin loss, by distance from 0 to 2: chosen positives, those with a loss,
            all negatives of the anchors, picked negatives with a loss; None for other losses.
    """

    picks: Floats
    expected: Floats
    active: float
    wrong: Floats | None = None
    distances: Floats | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PickCounts:
        """Read what `as_json` gave; other keys are passed over."""
        wrong, distances = (None if values[name] is None else np.array(values[name]) for name in ("wrong", "distances"))
        return cls(np.array(values["picks"]), np.array(values["expected"]), values["active"], wrong, distances)


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval by bootstrap over batches; infinite where a denominator is 0."""

    value: float
    interval: tuple[float, float]

    def falling(self, function: Callable[[float], float]) -> Estimate:
        """The same of a function that falls as the number rises."""
        low, high = self.interval
        return Estimate(function(self.value), (function(high), function(low)))


@dataclass(frozen=True)
class SkewEstimate:
    """Skew of the picks of a strategy; an estimate that is not defined is None.

    Attributes:
        batches, picks, active: how many there were.
        relative: `(10,)` rho_b, how often the negatives of each tenth were picked, relative to uniform sampling, the
            nearest tenth first; NaN where no anchor has negatives there.
        skew: eta, the largest rho_b: at least 1, and about the number of bins if only the nearest is ever picked.
        easy_skew: 1 / min rho_b, the paper's skew of the easy side; infinite where a tenth is never picked.
        wrong_skew: how often the picked negative truly has the anchor's class, relative to uniform sampling: the
            paper's verbal meaning of eta. Needs true labels, some of them not the observed ones.
        active_wrong_skew: the same share among the picks whose term of the loss is not zero, over that of all picks.
        positive_skew, negative_skew, gamma: of the margin loss, eta^+, eta^- and min(1, eta^- / eta^+).
        positive_bins, negative_bins: bins of distances that these rest on.
    """

    batches: int
    picks: int
    active: int
    relative: tuple[float, ...]
    skew: Estimate | None
    easy_skew: Estimate | None
    wrong_skew: Estimate | None
    active_wrong_skew: Estimate | None
    positive_skew: Estimate | None
    negative_skew: Estimate | None
    gamma: Estimate | None
    positive_bins: int
    negative_bins: int


@torch.no_grad()
def count_picks(
    embeddings: Array,
    labels: Array,
    triplets: MinedTriplets | tuple[Tensor, Tensor, Tensor],
    *,
    active: Tensor | None = None,
    true_labels: Array | None = None,
    beta: float | None = None,
    margin: float = 0.2,
) -> PickCounts:
    """Count the picks of a batch, given as index triplets, as `trivet.mine` makes them.

    Args:
        embeddings: `(N, d)` floating point, as the strategy saw them; distances are Euclidean.
        labels: `(N,)` observed labels, integers.
        triplets: anchor, positive and negative of T picks, `(T,)` integers each.
        active: `(T,)` bool, whose term of the loss is not zero; None for all.
        true_labels: `(N,)`, where they are known.
        beta: boundary of the margin loss max(0, D_ap - beta + margin) + max(0, beta - D_an + margin), whose gamma is
            wanted; None for other losses. Rows must then have length 1.
        margin: of that loss.

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, or a negative has its anchor's label.

    Example:
        >>> points, labels = torch.tensor([[0.0], [1.0], [2.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> counts = count_picks(points, labels, (torch.tensor([0]), torch.tensor([1]), torch.tensor([2])))
        >>> counts.picks.tolist()[:2], counts.expected.tolist()[:2]
        ([1.0, 0.0], [0.5, 0.0])
    """
    points = as_rows(embeddings).cpu()
    classes = as_classes(labels, count=len(points))
    anchor, positive, negative = (column.cpu() for column in triplets)
    if not len(anchor) == len(positive) == len(negative) or (active is not None and len(active) != len(anchor)):
        raise ValueError(
            "triplets and active must have one entry per pick: got "
            f"{[len(x) for x in (anchor, positive, negative, *([] if active is None else [active]))]}."
        )
    if bool((classes[anchor] == classes[negative]).any()):
        raise ValueError("a negative must have another observed label than its anchor: got one that has the same.")
    distances = torch.cdist(points, points, compute_mode=DIFFERENCES)
    other = classes[:, None] != classes
    used = torch.ones(len(anchor), dtype=torch.float64) if active is None else active.cpu().double()
    index = (anchor, negative)
    shape = torch.zeros(len(points), len(points), dtype=torch.float64)
    picked = shape.index_put(index, torch.ones_like(used), accumulate=True)
    truth = None if true_labels is None else as_classes(true_labels, count=len(points), name="true_labels")
    to_negatives = distances.masked_fill(~other, torch.inf)
    bins = None
    if beta is not None:
        far, near = distances[anchor, positive], distances[index]
        bins = margin_bins(far, far[far > beta - margin], to_negatives[picked.any(dim=1)], near[near < beta + margin])
    return counted(
        to_negatives,
        picked,
        shape.index_put(index, used, accumulate=True),
        wrong=None if truth is None else truth[:, None] == truth,
        distances=bins,
    )


def counted(
    to_negatives: Tensor, picked: Tensor, active: Tensor, *, wrong: Tensor | None, distances: Floats | None
) -> PickCounts:
    """The counts of B anchors against M references.

    Args:
        to_negatives: `(B, M)` distances of any kind; infinite for what is no negative. Of equal ones the lower column
            is nearer.
        picked, active: `(B, M)` float64, how often a negative was picked, and with a loss that is not zero.
        wrong: `(B, M)` bool, whether the two truly have one class; what is no negative does not count.
        distances: what `margin_bins` gave.
    """
    negative = to_negatives < torch.inf
    number = negative.sum(dim=1)  # (B,), m
    rows = picked.sum(dim=1)
    order = to_negatives.argsort(dim=1, stable=True)
    in_order = picked.gather(1, order)
    rank = torch.arange(picked.shape[1], device=picked.device)
    tenth = (RANK_BINS * rank // number.clamp_min(1)[:, None]).clamp_max(RANK_BINS - 1)  # (B, M)
    picks = torch.zeros(RANK_BINS, dtype=torch.float64, device=picked.device)
    picks.index_add_(0, tenth.flatten(), in_order.flatten())
    # Bin b holds the ranks from b m / 10, rounded up, to (b + 1) m / 10.
    edges = -(-torch.arange(RANK_BINS + 1, device=picked.device) * number[:, None] // RANK_BINS)
    share = edges.diff(dim=1).double() / number.clamp_min(1)[:, None]  # (B, 10)
    sums = [picks, (rows[:, None] * share).sum(dim=0), active.sum()[None]]
    if wrong is not None:
        mistaken = (wrong & negative).double()
        fraction = mistaken.sum(dim=1) / number.clamp_min(1)
        sums.append(torch.stack([(picked * mistaken).sum(), (rows * fraction).sum(), (active * mistaken).sum()]))
    values = torch.cat(sums).cpu().numpy()
    return PickCounts(
        picks=values[:RANK_BINS],
        expected=values[RANK_BINS : 2 * RANK_BINS],
        active=float(values[2 * RANK_BINS]),
        wrong=None if wrong is None else values[2 * RANK_BINS + 1 :],
        distances=distances,
    )


def margin_bins(positives: Tensor, active_positives: Tensor, to_negatives: Tensor, active_negatives: Tensor) -> Floats:
    """`PickCounts.distances` from distances of unit rows; infinite ones do not count.

    Args:
        positives, active_positives: to the chosen positives, and to those of them with a loss.
        to_negatives, active_negatives: from the anchors to all their negatives, and to the picked ones with a loss.
    """
    counts = []
    for distances in (positives, active_positives, to_negatives, active_negatives):
        # A distance that stands on an edge but for rounding counts in the upper bin.
        bins = (distances[distances < torch.inf].double() * (DISTANCE_BINS / 2) + 1e-6).long()
        counts.append(torch.bincount(bins.clamp(0, DISTANCE_BINS - 1), minlength=DISTANCE_BINS))
    return torch.stack(counts).double().cpu().numpy()


def estimate_skew(batches: Sequence[PickCounts], *, resamples: int = RESAMPLES, seed: int = 0) -> SkewEstimate:
    """The skew of a strategy from the counts of its batches, each number with a bootstrap interval.

    With r the rank of the picked negative by distance among the m negatives of its anchor, b = floor(10 r / m) and n_b
    the ranks in bin b,

        rho_b = picks in bin b / sum over picks of n_b / m,    eta = max rho_b,
        eta of wrong labels = share of picks that truly have the anchor's class / mean share of such negatives,

    and for the margin loss, over 20 bins of distance with at least 50 candidates and one active pick,

        rho+_b = share of the active positives in b / share of the chosen positives in b,     eta+ = max rho+_b,
        rho-_b = share of the active picked negatives in b / share of all negatives in b,     eta- = min rho-_b,

    gamma = min(1, eta- / eta+). A largest bin is too large by chance where picks are few: uniform picking gives 1 plus
    about 1.5 sqrt(10 / picks).

    Args:
        batches: at least one; all with the same parts.
        resamples, seed: of the batches, for the intervals.

    Raises:
        ValueError: if there is no batch.

    Source:
        Proposed here for the eta and gamma of Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label
        Noise", 2018, sections 4.2 and 5.3.
    """
    if not batches:
        raise ValueError("batches must hold the counts of at least one batch: got none; count picks while training.")
    times = np.random.default_rng(seed).multinomial(len(batches), np.full(len(batches), 1 / len(batches)), resamples)
    weights = np.concatenate([np.ones((1, len(batches))), times])  # the first row is the sample itself

    def total(name: str) -> Floats:
        return np.tensordot(weights, np.stack([getattr(batch, name) for batch in batches]), axes=1)

    picks, expected, active = map(total, ("picks", "expected", "active"))
    relative = np.divide(picks, expected, out=np.full_like(picks, np.nan), where=expected > 0)
    number = picks.sum(axis=1)
    wrong, bins = (
        None if any(getattr(batch, name) is None for batch in batches) else total(name)
        for name in ("wrong", "distances")
    )
    with np.errstate(divide="ignore"):
        easy = 1 / -_largest(-relative)
    gamma: list[Estimate | None] = [None, None, None]
    counts = (0, 0)
    if bins is not None:
        positive, used_positive = _relative_bins(bins[:, 1], bins[:, 0])
        negative, used_negative = _relative_bins(bins[:, 3], bins[:, 2])
        upper, lower = _largest(positive), -_largest(-negative)
        gamma = [bootstrapped(upper), bootstrapped(lower), bootstrapped(np.minimum(1, lower / upper))]
        counts = int(used_positive[0].sum()), int(used_negative[0].sum())
    return SkewEstimate(
        batches=len(batches),
        picks=round(float(number[0])),
        active=round(float(active[0])),
        relative=tuple(relative[0].tolist()),
        skew=bootstrapped(np.where(number > 0, _largest(relative), np.nan)),
        easy_skew=bootstrapped(np.where(number > 0, easy, np.nan)),
        wrong_skew=None if wrong is None else bootstrapped(_ratio(wrong[:, 0], wrong[:, 1])),
        active_wrong_skew=None if wrong is None else bootstrapped(_ratio(wrong[:, 2] * number, wrong[:, 1] * active)),
        positive_skew=gamma[0],
        negative_skew=gamma[1],
        gamma=gamma[2],
        positive_bins=counts[0],
        negative_bins=counts[1],
    )


def _relative_bins(active: Floats, candidates: Floats) -> tuple[Floats, Booleans]:
    """rho_b `(R, 20)` with NaN in bins that are not looked at, and which are."""
    used = (candidates >= LEAST_CANDIDATES) & (active >= 1)
    picked, there = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) for counts in (active, candidates))
    return np.divide(picked, there, out=np.full_like(active, np.nan), where=used), used


def _largest(values: Floats) -> Floats:
    """The largest of each row that is not NaN; NaN where all are."""
    unknown = np.isnan(values)
    return np.where(unknown.all(axis=1), np.nan, np.where(unknown, -np.inf, values).max(axis=1))


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)


def bootstrapped(values: Floats) -> Estimate | None:
    """Estimate of a sample, the first, and its resamples; None where it is not defined for the sample."""
    if np.isnan(values[0]):
        return None
    known = np.sort(values[1:][~np.isnan(values[1:])])
    if not len(known):
        return Estimate(float(values[0]), (math.nan, math.nan))
    # The nearest rank, as infinite values cannot be interpolated.
    low, high = (known[round(level * (len(known) - 1))] for level in LEVELS)
    return Estimate(float(values[0]), (float(low), float(high)))
