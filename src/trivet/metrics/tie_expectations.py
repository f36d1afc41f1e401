"""Retrieval measures of each query: exact expectations when ties are broken at random.

A positive with n items nearer and t as far, itself among them, has each of the ranks n + 1 .. n + t equally often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from trivet.metrics.positive_ranks import PositiveRanks
from trivet.runtime.arguments import nearest
from trivet.runtime.counterparts import advice

SERIES_FROM = 32.0  # where the asymptotic series of the digamma function has all digits


def recall_at_k(ranks: PositiveRanks, k: int) -> Tensor:
    """Chance `(Q,)` that one of the k nearest is a positive (CMC at rank k).

    With r = k - n places left for the t as far as the nearest positive, p of them positive: 1 - C(t - p, r) / C(t, r).
    """
    nearer, tied, positives = ranks.nearer[:, 0], ranks.tied[:, 0], ranks.positives_tied[:, 0]
    slots, negatives = k - nearer, tied - positives
    miss = torch.ones(len(nearer), dtype=torch.float64)
    for taken in range(int(torch.minimum(slots, negatives).amax().clamp_min(0)) if len(nearer) else 0):
        left = (negatives - taken).clamp_min(0).double() / (tied - taken).clamp_min(1)
        miss = torch.where(taken < slots, miss * left, miss)
    miss = torch.where(slots > negatives, 0, miss)
    return torch.where(slots > 0, 1 - miss, 0)


def precision_at_k(ranks: PositiveRanks, k: int) -> Tensor:
    """Expected share `(Q,)` of positives among the k nearest; of k, also where fewer can be retrieved."""
    return _among(ranks, torch.full_like(ranks.sizes, k)).sum(dim=1) / k


def expected_hits_at_k(ranks: PositiveRanks, k: int) -> Tensor:
    """Expected share `(Q,)` of all positives that are among the k nearest: recall as information retrieval has it."""
    return _among(ranks, torch.full_like(ranks.sizes, k)).sum(dim=1) / ranks.sizes


def r_precision(ranks: PositiveRanks) -> Tensor:
    """Expected share `(Q,)` of positives among the R nearest, R the number of positives."""
    return _among(ranks, ranks.sizes).sum(dim=1) / ranks.sizes


def map_at_r(ranks: PositiveRanks) -> Tensor:
    """Mean average precision at R `(Q,)`: the precisions at the positives among the R nearest, summed, over R.

    Source:
        Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, section 3.
    """
    return _precisions(ranks, ranks.sizes).sum(dim=1) / ranks.sizes


def map_at_k(ranks: PositiveRanks, k: int) -> Tensor:
    """Average precision of the k nearest `(Q,)`: the precisions at the positives among them, summed, over min(k, R).

    So the best ranking has 1, and k = R gives `map_at_r`.
    """
    limit = torch.full_like(ranks.sizes, k)
    return _precisions(ranks, limit).sum(dim=1) / torch.minimum(limit, ranks.sizes)


def ndcg_at_k(ranks: PositiveRanks, k: int) -> Tensor:
    """Normalised discounted cumulative gain of the k nearest `(Q,)`.

    A positive at rank i adds its gain / log2(i + 1), and the sum is divided by that of the best ranking. The gain of a
    positive is its relevance, 1 where that is binary; others gain nothing.

    Source:
        Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002; ties as in McSherry, Najork,
        "Computing information retrieval performance measures efficiently in the presence of tied scores", 2008.
    """
    last = ranks.nearer + ranks.tied
    most = min(k, max(int(last.amax()), int(ranks.sizes.amax()))) if last.numel() else 0
    discounts = 1 / torch.arange(2, most + 2, dtype=torch.float64).log2()
    totals = torch.cat([discounts.new_zeros(1), discounts.cumsum(dim=0)])  # of the ranks up to i
    reached, before = last.clamp_max(most), ranks.nearer.clamp_max(most)
    expected = (totals[reached] - totals[before]) / ranks.tied.clamp_min(1)
    alone = (ranks.tied == 1) & (before < reached)  # without the rounding of a difference
    expected[alone] = discounts[before[alone]]
    return torch.where(_present(ranks), ranks.gained(expected), 0).sum(dim=1) / ranks.ideal(discounts)


def ndcg(ranks: PositiveRanks) -> Tensor:
    """The same of the whole ranking `(Q,)`."""
    return ndcg_at_k(ranks, torch.iinfo(torch.int64).max)


def average_precision(ranks: PositiveRanks) -> Tensor:
    """Average precision `(Q,)`: the mean over all positives of the precision at each; no interpolation."""
    everything = torch.full_like(ranks.sizes, torch.iinfo(torch.int64).max)
    return _precisions(ranks, everything).sum(dim=1) / ranks.sizes


def reciprocal_rank(ranks: PositiveRanks) -> Tensor:
    """Expected 1 / rank `(Q,)` of the first positive.

    The first of p among t random places is the i-th with probability C(t - i, p - 1) / C(t, p).
    """
    kinds, which = torch.unique(
        torch.stack([ranks.nearer[:, 0], ranks.tied[:, 0], ranks.positives_tied[:, 0]], dim=1),
        dim=0,
        return_inverse=True,
    )
    values: Tensor = 1 / (kinds[:, 0].double() + 1)
    for kind in (kinds[:, 1] > 1).nonzero()[:, 0].tolist():
        n, t, p = kinds[kind].tolist()
        positions = np.arange(1, t - p + 2)
        left = (t - positions[:-1] - p + 1) / (t - positions[:-1])
        values[kind] = float((p / t * np.cumprod(np.concatenate([[1.0], left])) / (n + positions)).sum())
    return values[which]


def rank_biased_precision(ranks: PositiveRanks) -> Tensor:
    """Rank-biased precision `(Q,)` with a persistence of 1/2: a positive at rank i adds 2^-i.

    It is the expected recall@1 where each other item is left out of the gallery with probability 1/2. One positive
    gives 1/2 at most, and R of them 1 - 2^-R.

    Source:
        Moffat, Zobel, "Rank-biased precision for measurement of retrieval effectiveness", TOIS 2008.
    """
    tied = ranks.tied.clamp_min(1).double()
    shares = torch.exp2(-ranks.nearer.double()) * (1 - torch.exp2(-tied)) / tied
    return torch.where(_present(ranks), shares, 0).sum(dim=1)


FIXED: dict[str, Callable[[PositiveRanks], Tensor]] = {
    "r-precision": r_precision,
    "map@r": map_at_r,
    "map": average_precision,
    "mrr": reciprocal_rank,
    "rbp": rank_biased_precision,
    "ndcg": ndcg,
}
AT_K: dict[str, Callable[[PositiveRanks, int], Tensor]] = {
    "recall": recall_at_k,
    "precision": precision_at_k,
    "found": expected_hits_at_k,
    "map": map_at_k,
    "ndcg": ndcg_at_k,
}
FULL_RANKING = ("map", "mrr", "rbp", "ndcg")  # they need the rank of every positive
MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "precision@10", "r-precision", "map@r", "map", "mrr")


def measures_of(ranks: PositiveRanks, names: Sequence[str]) -> Tensor:
    """The named measures `(Q, len(names))` float64 of each query, in [0, 1]; NaN where a query has no positive.

    Args:
        names: "recall@K", "precision@K", "found@K", "map@K", "ndcg@K", "r-precision", "map@r", "map", "mrr", "rbp",
            "ndcg".
    """
    values = torch.full((len(ranks.sizes), len(names)), torch.nan, dtype=torch.float64)
    some = (ranks.sizes > 0).nonzero()[:, 0]
    if len(some):
        ranks = ranks.of(some)
        for column, name in enumerate(names):
            measure, _, k = name.partition("@")
            values[some, column] = FIXED[name](ranks) if name in FIXED else AT_K[measure](ranks, int(k))
    return values


def chance_of(ranks: PositiveRanks, names: Sequence[str]) -> Tensor:
    """The named measures `(Q, len(names))` of the queries if all items that each may retrieve were equally far."""
    queries, which = ranks.kinds()
    return measures_of(ranks.of(queries).equally_far(), names)[which]


def first_decides(names: Sequence[str]) -> bool:
    """Return whether the named measures depend on the nearest positive alone."""
    return all(name == "mrr" or name.startswith("recall@") for name in names)


def gains_decide(names: Sequence[str]) -> bool:
    """Return whether one of the named measures depends on grades of relevance."""
    return any(name.startswith("ndcg") for name in names)


def check_measures(names: Sequence[str], others: Sequence[str] = ()) -> tuple[str, ...]:
    """The names without repetition, if each is one of a retrieval measure or of `others`.

    Raises:
        ValueError: if one is not, or there is none.
    """
    known = {*FIXED, *others}
    at_k = re.compile(rf"({'|'.join(AT_K)})@[1-9]\d*")
    unknown = [name for name in names if name not in known and not at_k.fullmatch(name)]
    if unknown or not names:
        wrong = unknown[0] if unknown else ""
        of_k = [f"{name}@{wrong.partition('@')[2] or 'K'}" for name in AT_K]
        guess = advice(wrong) or nearest(wrong, [*known, *of_k]).partition("Allowed")[0].rstrip()
        raise ValueError(
            f"measures must be among {', '.join(f'{name}@K' for name in AT_K)} (K at least 1), "
            f"{', '.join([*FIXED, *others])}: got {repr(wrong) if wrong else 'none'}{f'; {guess}' if guess else '.'}"
        )
    return tuple(dict.fromkeys(names))


def _present(ranks: PositiveRanks) -> Tensor:
    return torch.arange(ranks.nearer.shape[1]) < ranks.sizes[:, None]


def _among(ranks: PositiveRanks, k: Tensor) -> Tensor:
    """Chance `(Q, R)` that each positive is among the `k (Q,)` nearest."""
    slots = torch.minimum((k[:, None] - ranks.nearer).clamp_min(0), ranks.tied).double()
    return torch.where(_present(ranks), slots / ranks.tied, 0)


def _precisions(ranks: PositiveRanks, k: Tensor) -> Tensor:
    """Expected precision `(Q, R)` at each positive, 0 where it is not among the `k (Q,)` nearest.

    At rank n + i of t tied, with m positives nearer and p among the tied, it is on average
    (m + 1 + (i - 1) (p - 1) / (t - 1)) / (n + i); the sum of 1 / (n + i), i = 1 .. c, is psi(n + c + 1) - psi(n + 1).
    """
    tied = ranks.tied.clamp_min(1)
    count = torch.minimum((k[:, None] - ranks.nearer).clamp_min(0), tied).double()
    first = ranks.nearer.double() + 1
    inverse = torch.where(count > 0, 1 / first, 0)
    several = count > 1
    inverse[several] = _digamma_difference(first[several], count[several])
    others = (ranks.positives_tied - 1).double() / (tied - 1).clamp_min(1)
    later = torch.where(count > 1, count - first * inverse, 0)
    precisions = ((ranks.positives_nearer + 1) * inverse + others * later) / tied
    return torch.where(_present(ranks), precisions, 0)


def _digamma_difference(start: Tensor, step: Tensor) -> Tensor:
    """psi(start + step) - psi(start) without cancellation, for start >= 1."""
    stop = start + step
    series = torch.log1p(step / start) + step / (2 * start * stop)
    for power, coefficient in ((2, 12), (4, -120), (6, 252), (8, -240)):
        series -= (stop**-power - start**-power) / coefficient
    return torch.where(start < SERIES_FROM, torch.digamma(stop) - torch.digamma(start), series)
