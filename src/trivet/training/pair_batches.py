"""Batches of pairs: both contents of each, with hard negatives of the left one."""

from __future__ import annotations

import numpy as np

from trivet.datasets.judged_pairs import JudgedPairs
from trivet.runtime.arrays import Integers
from trivet.samplers import MinedBatches, SubsetBatches

MOST_NEGATIVES = 4  # of a pair in a batch


def pair_batches(relation: JudgedPairs, numbers: Integers, *, size: int, seed: int) -> SubsetBatches:
    """Batches of the pairs whose contents are both among some items; an epoch has each pair once.

    Each pair brings at most four of the negatives that are listed for its left content, the same in all epochs.

    Args:
        numbers: `(N,)` of the items to train on.
        size: items of a batch at most; two pairs at least.

    Raises:
        ValueError: if there are fewer than two pairs.
    """
    position = np.full(len(relation.groups), -1)
    position[numbers] = np.arange(len(numbers))
    pairs, negatives = (position[listed] for listed in (relation.pairs, relation.negatives))
    pairs, negatives = (listed[(listed >= 0).all(axis=1)] for listed in (pairs, negatives))
    if len(pairs) < 2:
        raise ValueError(f"training needs at least two pairs, so that there is a negative: got {len(pairs)}; add some.")
    negatives = np.random.default_rng(seed).permutation(negatives)
    negatives = negatives[np.argsort(negatives[:, 0], kind="stable")]
    starts = np.searchsorted(negatives[:, 0], pairs[:, 0])
    counts = np.minimum(np.searchsorted(negatives[:, 0], pairs[:, 0], side="right") - starts, MOST_NEGATIVES)
    # A pair without negatives has its right content in their place, which is in a batch once.
    of_pair = np.repeat(np.arange(len(pairs)), counts)
    offsets = np.arange(len(of_pair)) - np.repeat(counts.cumsum() - counts, counts)
    hard = negatives[starts[of_pair] + offsets, 1]
    alone = pairs[counts == 0]
    triplets = np.concatenate([np.column_stack([pairs[of_pair], hard]), np.column_stack([alone, alone[:, 1]])])
    together = max(2, size // (2 + int(counts.max(initial=0))))
    plan = MinedBatches(triplets, size=min(together, len(pairs)), seed=seed)
    return SubsetBatches(plan, np.arange(len(numbers)), numbers)
