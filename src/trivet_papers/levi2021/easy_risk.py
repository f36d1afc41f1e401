"""Expected losses with easy positives, and what they favour: appendix B and claims 1 to 4; see `risk` for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import relu

from trivet.runtime.arguments import check_at_least, check_count, check_name
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet_papers.levi2021 import risk

NearerOrder = Literal["worst", "same-class"]
TheoryPositives = Literal["easy", "all"]


def easy_positive_probabilities(anchor: Tensor, others: Tensor) -> Tensor:
    """Phi_j: that the j-th nearest of the others is the nearest one with the anchor's label, `(..., M)`.

    sum_c pi_i(c) pi_j(c) prod_{l < j} (1 - pi_l(c)), in a strict order by distance.

    Args:
        anchor: `(..., t)`, probabilities of the anchor's label.
        others: `(..., M, t)`, of the others', nearest first; the anchor is not among them.

    Source:
        Levi et al. 2021, appendix B; there the minimum includes the anchor itself, which must be removed.

    Example:
        >>> certain = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
        >>> easy_positive_probabilities(torch.tensor([1.0, 0.0]), certain)
        tensor([0., 1., 0.])
    """
    return _first_matches(anchor, others).sum(-1)


def easy_triplet_weights(anchor: Tensor, others: Tensor) -> Tensor:
    """W_jk: that the j-th nearest is the easy positive and the k-th nearest a negative, `(..., M, M)`.

    Phi_j if k is nearer than j (a nearer one of the anchor's label would itself be the positive); otherwise the terms
    of Phi_j times 1 - pi_k(c). 0 for j = k.

    Args and source: see `easy_positive_probabilities`.
    """
    first = _first_matches(anchor, others)
    farther = first @ (1 - others).transpose(-1, -2)
    nearer = first.sum(-1, keepdim=True).expand_as(farther)
    return farther.triu(1) + nearer.tril(-1)


def expected_easy_triplet_losses(distances: Tensor, probabilities: Tensor, *, margin: float) -> Tensor:
    """sum_{j != k} W_jk max(0, D_ij - D_ik + margin) for each anchor i, `(n,)`; their mean is the objective.

    The loss with the nearest positive and every negative. The order is by distance, ties by lowest index, and where
    distances tie the value depends on it.

    Args:
        distances: D, `(n, n)`; the diagonal is not read.
        probabilities: `(n, t)`, of the labels; n >= 2.
        margin: alpha > 0, in the unit of D.

    Source:
        Levi et al. 2021, appendix B.
    """
    risk.check_positive(margin, name="margin")
    sorted_distances, order = _by_distance(distances)
    weights = easy_triplet_weights(probabilities, probabilities[order])  # (n, M, M)
    hinge = relu(sorted_distances[:, :, None] - sorted_distances[:, None] + margin)
    return (weights * hinge).sum((1, 2))


def expected_easy_margin_losses(
    distances: Tensor, beta: Tensor | float, probabilities: Tensor, *, margin: float
) -> Tensor:
    """`sum_j Phi_j (D_ij - b_i + margin)_+ + P(Y_i != Y_j) (b_i - D_ij + margin)_+` for each anchor i, `(n,)`.

    The nearest positive and every negative, in the form of appendix B; the mean over anchors is the objective.

    Args:
        distances: D, `(n, n)`; the diagonal is not read.
        beta: b, one number or `(n,)`, one per anchor.
        probabilities: `(n, t)`, of the labels; n >= 2.
        margin: alpha > 0, in the unit of D.

    Source:
        Levi et al. 2021, appendix B; the proof of claim 2 leaves the positive parts out.
    """
    risk.check_positive(margin, name="margin")
    sorted_distances, order = _by_distance(distances)
    bounds = torch.as_tensor(beta, dtype=torch.float64)
    easy = easy_positive_probabilities(probabilities, probabilities[order])
    differ = (1 - risk.match_probabilities(probabilities)).gather(1, order)
    gap = sorted_distances - (bounds[:, None] if bounds.ndim else bounds)
    return (easy * relu(gap + margin) + differ * relu(margin - gap)).sum(1)


def _first_matches(anchor: Tensor, others: Tensor) -> Tensor:
    """P(Y_i = c, j is the first with Y_j = c) as `(..., M, t)`."""
    nearer = torch.cat([torch.ones_like(others[..., :1, :]), 1 - others[..., :-1, :]], dim=-2)
    return anchor[..., None, :] * others * nearer[..., : others.shape[-2], :].cumprod(-2)


def _by_distance(distances: Tensor) -> tuple[Tensor, Tensor]:
    """Distances from each anchor to the others, nearest first, and who they are, both `(n, n - 1)`."""
    diagonal = torch.eye(len(distances), dtype=torch.bool)
    ordered = distances.masked_fill(diagonal, -torch.inf).sort(dim=1, stable=True)
    return ordered.values[:, 1:], ordered.indices[:, 1:]


def collapsed_and_split_triplet_losses(
    num_classes: int,
    class_sizes: Sequence[int] | Integers,
    p: float,
    *,
    margin: float = 1.0,
    positives: TheoryPositives = "easy",
) -> tuple[Floats, Floats]:
    """The expected triplet loss of an anchor, collapsed (f1) and with its class in two halves (f2), `(S,)` each.

    f1 puts every class on a point and D = margin between classes; f2 puts the two halves of one class D = margin
    apart as well. The anchor belongs to that class: the loss of every other anchor is the same. Order: own half,
    other half, other classes; inside a group any order gives the same. See `expected_easy_triplet_losses`, which this
    is in closed form; with all positives it is the anchor's part of n^3 `expected_triplet_loss` without self terms.

    Args:
        num_classes: t >= 2.
        class_sizes: S values of s, even, >= 2.
        p: in [0, 1].
        margin: alpha > 0; the losses are proportional to it.
        positives: "easy", the nearest; "all", every one. The anchor itself does not count.

    Source:
        Levi et al. 2021, claim 1; the index t / (2n) printed there is n / (2t).
    """
    check_name(positives, get_args(TheoryPositives), name="positives")
    loss = _easy_triplet_loss if positives == "easy" else _all_triplet_loss
    return _collapsed_and_split(num_classes, class_sizes, p, margin, lambda groups: loss(groups, margin))


def collapsed_and_split_margin_losses(
    num_classes: int,
    class_sizes: Sequence[int] | Integers,
    p: float,
    *,
    beta: float,
    margin: float = 1.0,
    positives: TheoryPositives = "easy",
) -> tuple[Floats, Floats]:
    """The expected margin loss of an anchor under f1 and f2, `(S,)` each; see the triplet losses above.

    f1 - f2 is, with Phi_j = m_s for all positives,

        sum_{j in the other half} (1 - m_s) margin - Phi_j ((2 margin - beta)_+ - (margin - beta)_+).

    Args:
        beta: b >= 0 of the anchor; the others as for `collapsed_and_split_triplet_losses`.

    Source:
        Levi et al. 2021, claim 2.
    """
    check_at_least(0, beta, name="beta")
    check_name(positives, get_args(TheoryPositives), name="positives")
    return _collapsed_and_split(
        num_classes, class_sizes, p, margin, lambda groups: _margin_loss(groups, beta, margin, positives)
    )


def _collapsed_and_split(
    num_classes: int,
    class_sizes: Sequence[int] | Integers,
    p: float,
    margin: float,
    loss: Callable[[Sequence[_Group]], Floats],
) -> tuple[Floats, Floats]:
    risk.check_positive(margin, name="margin")
    sizes = np.asarray(class_sizes, np.float64)
    collapsed, split = np.zeros(len(sizes)), np.zeros(len(sizes))
    for weight, match, rest in _by_anchor_label(num_classes, sizes, p):
        halves = [_Group.of(0.0, sizes / 2 - 1, match), _Group.of(margin, sizes / 2, match)]
        collapsed += weight * loss([_Group.of(0.0, sizes - 1, match), rest.at(margin)])
        split += weight * loss([*halves, rest.at(margin)])
    return collapsed, split


def triplet_split_threshold(num_classes: int, p: float, *, largest: int = 4000) -> int | None:
    """The smallest even class size from which on f2 beats f1 under the triplet loss, up to `largest`; None if none.

    Claim 1 says that there is one. For t >= 5 f2 may also win for a few small sizes and then lose again.

    Source:
        Levi et al. 2021, claim 1, in numbers.
    """
    sizes = _even_sizes(largest)
    collapsed, split = collapsed_and_split_triplet_losses(num_classes, sizes, p)
    return _holds_from(sizes, split < collapsed)


def margin_split_threshold(
    num_classes: int, p: float, *, beta: float, margin: float = 1.0, largest: int = 4000
) -> int | None:
    """The smallest even class size from which on f2 beats f1 under the margin loss, up to `largest`; None if none.

    Source:
        Levi et al. 2021, claim 2, in numbers.
    """
    sizes = _even_sizes(largest)
    collapsed, split = collapsed_and_split_margin_losses(num_classes, sizes, p, beta=beta, margin=margin)
    return _holds_from(sizes, split < collapsed)


class _Group(NamedTuple):
    """Samples at one distance from the anchor, given the anchor's label."""

    distance: float
    size: Floats
    no_match: Floats  # probability that none has the anchor's label
    misses: Floats  # expected number without it
    variance: Floats  # of that number

    @classmethod
    def of(cls, distance: float, size: Floats, match: float) -> _Group:
        return cls(distance, size, (1 - match) ** size, size * (1 - match), size * match * (1 - match))

    @property
    def matches(self) -> Floats:
        return self.size - self.misses

    def at(self, distance: float) -> _Group:
        return self._replace(distance=distance)


def _by_anchor_label(num_classes: int, sizes: Floats, p: float) -> Iterator[tuple[float, float, _Group]]:
    """Weight, match probability of a sample of the anchor's class, and all other classes, for each kind of label."""
    num_classes, q = risk.other_label(num_classes, p)
    others = num_classes - 1
    yield p, p, _Group.of(0.0, others * sizes, q)
    rest = _Group.of(0.0, (others - 1) * sizes, q)
    single_group = _Group.of(0.0, sizes, p)
    misses, variance = single_group.misses + rest.misses, single_group.variance + rest.variance
    yield others * q, q, _Group(0.0, others * sizes, single_group.no_match * rest.no_match, misses, variance)


def _easy_triplet_loss(groups: Sequence[_Group], margin: float) -> Floats:
    """Expected sum over the negatives, the positive being the first match in the order of the groups."""
    total = np.zeros_like(groups[0].size)
    reached = np.ones_like(total)  # probability that no nearer group has a match
    for index, group in enumerate(groups):
        for other_index, other in enumerate(groups):
            if other_index < index:
                negatives = (1 - group.no_match) * other.size
            elif other_index == index:
                negatives = group.misses - group.no_match * group.size
            else:
                negatives = (1 - group.no_match) * other.misses
            total += reached * negatives * max(0.0, group.distance - other.distance + margin)
        reached = reached * group.no_match
    return total


def _all_triplet_loss(groups: Sequence[_Group], margin: float) -> Floats:
    """Expected sum over all pairs of a positive and a negative."""
    total = np.zeros_like(groups[0].size)
    for group in groups:
        for other in groups:
            pairs = group.matches * other.misses - (group.variance if other is group else 0)
            total += pairs * max(0.0, group.distance - other.distance + margin)
    return total


def _margin_loss(groups: Sequence[_Group], beta: float, margin: float, positives: TheoryPositives) -> Floats:
    total = np.zeros_like(groups[0].size)
    reached = np.ones_like(total)
    for group in groups:
        chosen = group.matches if positives == "all" else reached * (1 - group.no_match)
        total += chosen * max(0.0, group.distance - beta + margin)
        total += group.misses * max(0.0, beta - group.distance + margin)
        reached = reached * group.no_match
    return total


def pull_push_ratio(p: float, count: int, *, nearer: NearerOrder = "worst") -> float:
    """The largest Phi_j / P(Y_i != Y_j) of a sample with `count` nearer ones, the order held fixed, for two classes.

    Below 1 the two hinges of the pair have their minimum at D_ij - b_i = margin, above at -margin, see
    `opposed_hinges_minimum`.

    Args:
        p: in (1/2, 1).
        count: of the nearer samples, >= 0.
        nearer: "worst", whatever classes the nearer ones have; "same-class", all of the anchor's class. The sample
            itself may have either class.

    Source:
        Levi et al. 2021, claim 3.

    Example:
        >>> round(pull_push_ratio(0.8, 1, nearer="same-class"), 9)
        0.5
    """
    risk.check_majority(p)
    check_name(nearer, get_args(NearerOrder), name="nearer")
    q, worst = 1 - p, 0.0
    # Phi is convex in how many of the nearer ones share the anchor's class: the ends decide.
    for same in {count} if nearer == "same-class" else {0, count}:
        correct, other = p * q**same * p ** (count - same), q * p**same * q ** (count - same)
        worst = max(worst, (correct * p + other * q) / (2 * p * q), (correct * q + other * p) / (p * p + q * q))
    return worst


def push_threshold(p: float, *, nearer: NearerOrder = "worst") -> int:
    """The number L of nearer samples from which on a sample is pushed to D = b + margin, for two classes.

    That is Phi_j < P(Y_i != Y_j), the order held fixed; see `pull_push_ratio`, also for the arguments.

    Source:
        Levi et al. 2021, claim 3, in numbers; M there depends on p (and on t).

    Example:
        >>> push_threshold(0.8), push_threshold(0.8, nearer="same-class")
        (4, 1)
    """
    return _first_true(lambda count: pull_push_ratio(p, count, nearer=nearer) < 1)


def pair_pull_push_ratio(p: float, rank: int, steps: int, *, nearer: NearerOrder = "worst") -> float:
    """The largest W_{t+j, t} / W_{t, t+j} of the t-th and (t + j)-th nearest, the order held fixed, for two classes.

    Below 1 the two triplets have their minimum at D_{t+j} = D_t + margin, see `easy_triplet_weights` and
    `opposed_hinges_minimum`.

    Args:
        p: in (1/2, 1).
        rank: t >= 1, of the nearer of the two; the nearest sample that is not the anchor has rank 1.
        steps: j >= 1.
        nearer: "worst", whatever classes all of them have; "same-class", all of the anchor's class.

    Source:
        Levi et al. 2021, claim 4.
    """
    risk.check_majority(p)
    check_count(rank, name="rank")
    check_count(steps, name="steps")
    check_name(nearer, get_args(NearerOrder), name="nearer")
    # How many before the pair share the anchor's class, and whether each of the pair does.
    before = {rank - 1} if nearer == "same-class" else range(rank)
    shares = (True,) if nearer == "same-class" else (True, False)
    # W_{t+j, t} is convex in how many between the pair share the anchor's class: the ends decide.
    between = {steps - 1} if nearer == "same-class" else {0, steps - 1}
    labels = (p, 1 - p)  # the anchor shows the label of its class, or the other
    worst = 0.0
    for same, near, far, inside in product(before, shares, shares, between):
        # In logarithms, and relative to the larger: far down the order both are below the least number.
        logs = [
            math.log(correct) + same * math.log(1 - correct) + (rank - 1 - same) * math.log(correct)
            for correct in labels
        ]
        near_first = far_first = 0.0
        for match, log in zip(labels, logs, strict=True):
            unmatched = math.exp(log - max(logs))
            near_match, far_match = (match if share else 1 - match for share in (near, far))
            passed = (1 - match) ** inside * match ** (steps - 1 - inside)
            near_first += unmatched * near_match * (1 - far_match)
            far_first += unmatched * (1 - near_match) * passed * far_match
        worst = max(worst, far_first / near_first)
    return worst


def pair_push_threshold(p: float, rank: int, *, nearer: NearerOrder = "worst") -> int:
    """The smallest j from which on the (t + j)-th nearest is pushed margin beyond the t-th nearest, for two classes.

    That is W_{t, t+j} > W_{t+j, t}, the order held fixed; see `pair_pull_push_ratio`, also for the arguments.

    Source:
        Levi et al. 2021, claim 4, in numbers; M there depends on p and on the rank.
    """
    return _first_true(lambda steps: pair_pull_push_ratio(p, rank, steps, nearer=nearer) * (1 + ROUNDING) < 1, start=1)


ROUNDING = 1e-12  # two probabilities this close are equal: for j = 1 and one class they are


def _first_true(holds: Callable[[int], bool], *, start: int = 0) -> int:
    """The smallest count >= start from which on `holds`, which never turns false again."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _holds_from(sizes: Integers, holds: Booleans) -> int | None:
    failures = np.flatnonzero(~holds)
    start = int(failures[-1]) + 1 if len(failures) else 0
    return int(sizes[start]) if start < len(sizes) else None


def _even_sizes(largest: int) -> Integers:
    if check_count(largest, name="largest") < 2:
        raise ValueError(f"largest must be at least 2: got {largest}; the class is cut in two halves.")
    return np.arange(2, largest + 1, 2, dtype=np.int64)
