"""Splits of pairs: as the file says, else groups that share no content are held out, or queries."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trivet.datasets.judged_pairs import LEAST, DividedPairs, JudgedPairs, hang_together
from trivet.datasets.splitting import TRAIN
from trivet.io.pair_table import PairTable
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted

EXCERPT = 60  # letters of a content that a message shows


def listed_subsets(relation: JudgedPairs, table: PairTable, notes: list[str]) -> dict[str, Integers]:
    """The numbers of the contents of each split of the file, "train" first."""
    assert table.splits is not None
    left = len(table.left.contents)
    judged = table.pairs + np.array([0, left])
    names = sorted(set(table.splits.tolist()), key=lambda name: (name != TRAIN, name == "val", name != "test", name))
    if names[0] != TRAIN or len(names) < 2:
        raise ValueError(
            f"the splits must be train and another to evaluate: {table.path} has {', '.join(names)}; add the other, or "
            'hold queries out with data.split = "queries".'
        )
    positive = {tuple(pair) for pair in relation.pairs.tolist()}
    belongs = np.array([tuple(pair) in positive for pair in judged.tolist()])
    unused = np.setdiff1d(np.arange(left, len(relation.groups)), judged[:, 1])
    subsets = dict[str, Integers]()
    trained = np.unique(judged[table.splits == TRAIN])
    for name in names:
        of_split = table.splits == name
        if name == TRAIN:
            subsets[name] = np.unique(judged[of_split])
            continue
        queries = np.unique(judged[of_split & belongs, 0])
        if both := np.intersect1d(queries, trained).tolist():
            raise ValueError(
                f"no {table.left.name} may be both trained on and evaluated: {len(both)} of {name!r} are, first "
                f"{table.left.contents[both[0]][:60]!r}; put all rows of each into one split, or set "
                'data.split = "queries".'
            )
        gallery = np.arange(left, len(relation.groups)) if table.collection else np.unique(judged[of_split, 1])
        gallery = np.union1d(gallery, unused)
        known = len(np.intersect1d(np.unique(judged[of_split & belongs, 1]), trained))
        if known:
            notes.append(
                f"{counted(known, table.right.name)} of pairs of {name!r} are trained on, too: a network may know them."
            )
        subsets[name] = np.concatenate([queries, gallery])
    return subsets


def drawn_subsets(
    relation: JudgedPairs,
    table: PairTable,
    notes: list[str],
    *,
    split: Literal["auto", "groups", "queries"],
    holdout: float,
    seed: int,
) -> dict[str, Integers]:
    """The numbers of the contents that are trained on, and of those that random left contents are evaluated with.

    Args:
        notes: gets a sentence on what both parts share.
        split: "groups" holds out whole groups, which share no content with the others; "queries" single left contents,
            see `JudgedPairs.without`; "auto" groups, unless one has most of the left side.
        holdout: share of the left side that is held out.

    Raises:
        ValueError: if there are too few groups or queries, or one group has most of the left side.
    """
    present = np.arange(len(relation.groups))
    left = relation.paired_left(present)
    groups, generator = relation.groups[left], np.random.default_rng(seed)
    names, sizes = np.unique(groups, return_counts=True)
    largest = int(sizes.max(initial=0))
    undivided = hang_together(groups)
    if split == "groups" and undivided:
        raise ValueError(
            f"pairs must fall into groups that share no content, of which some are held out: of {len(left)} contents "
            f"of {table.left.name!r} in {table.path} {largest} hang together, in {counted(len(sizes), 'group')}; "
            'set data.split = "queries", or add a column split that says train or test of each row.'
        )
    if len(left) < 2 * LEAST:
        raise ValueError(
            f"pairs must have at least {2 * LEAST} different contents of {table.left.name!r}, two to train on and two "
            f"to evaluate: {table.path} has {len(left)}; add some."
        )
    if split == "queries" or undivided:
        names, sizes, groups = left, np.ones(len(left), np.int64), left
    order = generator.permutation(len(names))
    count = int(np.searchsorted(np.cumsum(sizes[order]), holdout * len(left))) + 1
    chosen = names[order[: min(max(count, LEAST), len(order) - LEAST)]]
    divided = relation.without(left[np.isin(groups, chosen)], present)
    if len(divided.shared) or divided.unused:
        notes.append(_shared_note(relation, table, divided, largest if undivided else 0))
    evaluated = divided.evaluated
    if table.collection and len(divided.shared):
        evaluated = np.union1d(divided.queries, present[relation.first_of_right :])
    return {TRAIN: divided.trained, "test": evaluated}


def _shared_note(relation: JudgedPairs, table: PairTable, divided: DividedPairs, largest: int) -> str:
    """A sentence on what both parts of held-out queries share, and the pairs that neither has."""
    left, right = table.left.name, table.right.name
    clauses = list[str]()
    if len(divided.shared):
        counts = np.bincount(relation.pairs[:, 1], minlength=len(relation.groups))[divided.shared]
        most = table.right.contents[divided.shared[counts.argmax()] - relation.first_of_right]
        clauses.append(
            f"{counted(len(divided.shared), right)} of pairs of 'test' are trained on, too, such as {most[:EXCERPT]!r} "
            f"of {counted(counts.max(), left)}: a network may know them"
        )
    if divided.unused:
        clauses.append(
            f"{counted(divided.unused, 'pair')} are in neither part, as their {right} equals a held-out {left}"
        )
    why = f"{largest:,} contents of {left!r} hang together, so single ones are held out; " if largest else ""
    return f"{why}{'; '.join(clauses)}."
