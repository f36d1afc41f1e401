"""Hard negatives of a whole set: for each anchor and its positive, the nearest items of an index that may be negatives.

An item that labels call no negative of the anchor, such as one of its class, or that is listed as its positive, never
is one. One that is nearly as near as the positive,
or nearer, may be a positive that nobody has labelled: margins leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch

from trivet.distances import Array
from trivet.knn.index import Index
from trivet.metrics.points import Metric, spans
from trivet.metrics.protocols import Labels, check_length
from trivet.mining.relations import Classes, Relation, Unlabelled
from trivet.runtime.arguments import check_at_least, check_count, check_name
from trivet.runtime.arrays import Booleans, Floats, Integers, how_to_number

Positives = Literal["easy", "hard", "random"]
Negatives = Literal["hard", "random"]
LISTED = 2**20  # neighbours that are listed at once: 16 MiB of row numbers and distances
FURTHER = 4  # times as many are listed for anchors whose nearest items are nearly all no negatives


@dataclass(frozen=True)
class MiningRules:
    """Rules by which negatives are taken. D is the distance of the index, S = 1 - D for cosine.

    Attributes:
        k: negatives of each anchor and positive, at least 1; fewer where no more are left.
        positives: of anchors without listed ones, which item of their class, or that belongs to them by another
            relation: "easy" the nearest, "hard" the farthest, "random" any.
        negatives: of the candidates that are left, "hard" the nearest, or "random" any.
        among: candidates: so many nearest items that are not left out by labels or pair, at least `skip + k`.
        skip: of these, so many nearest are left out.
        margin: leave out candidates with D(a, n) < D(a, p) + margin; at least 0, None for no such rule.
        relative_margin: leave out candidates with S(a, n) > S(a, p) - relative_margin |S(a, p)|; cosine only.
        min_distance, max_distance: leave out candidates nearer, or farther, than that.
        seed: of the random choices, not negative.

    Raises:
        ValueError: if one is out of range.
    """

    k: int = 3
    positives: Positives = "easy"
    negatives: Negatives = "hard"
    among: int = 100
    skip: int = 0
    margin: float | None = None
    relative_margin: float | None = None
    min_distance: float | None = None
    max_distance: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.k, name="k")
        check_name(self.positives, get_args(Positives), name="positives")
        check_name(self.negatives, get_args(Negatives), name="negatives")
        for name in ("skip", "seed", "margin", "relative_margin", "min_distance", "max_distance"):
            if (value := getattr(self, name)) is not None:
                check_at_least(0, value, name=name)
        if self.among < self.skip + self.k:
            raise ValueError(
                f"among must be at least skip + k, or too few candidates are looked at: got {self.among}, {self.skip} "
                f"and {self.k}."
            )

    def check_distance(self, distance: Metric) -> None:
        """Raise ValueError if a rule needs another distance."""
        if self.relative_margin is not None and distance != "cosine":
            raise ValueError(
                "a relative margin is a share of the cosine similarity: got Euclidean distance; use margin."
            )


class MiningCounts(NamedTuple):
    """Counts of anchors, pairs and candidates by what became of them; those of parts add up.

    Attributes:
        anchors: that were mined for.
        without_positive: anchors to which no other item belongs; they give no pair.
        pairs: of an anchor and a positive.
        same_class: items left out by labels or pair, met before an anchor had its candidates.
        candidates: looked at, for each pair; each of them is counted once in the six that follow.
        skipped: by `skip`.
        near_positive: by `margin` or `relative_margin`.
        too_near, too_far: by `min_distance` and `max_distance`.
        not_needed: candidates that were left beyond the k that were taken.
        taken: triplets.
        without_negative: pairs for which no candidate was left.
        fewer: other pairs with fewer than k.
    """

    anchors: int = 0
    without_positive: int = 0
    pairs: int = 0
    same_class: int = 0
    candidates: int = 0
    skipped: int = 0
    near_positive: int = 0
    too_near: int = 0
    too_far: int = 0
    not_needed: int = 0
    taken: int = 0
    without_negative: int = 0
    fewer: int = 0

    @classmethod
    def total(cls, batches: Iterable[MiningCounts]) -> MiningCounts:
        """The sums over parts."""
        return cls(*(sum(values) for values in zip(cls(), *batches, strict=True)))


@dataclass(frozen=True, eq=False)
class HardNegatives:
    """Triplets of row numbers, fields `(T,)`: by anchor, then as the positives are listed, the nearest negative first.

    Attributes:
        positives, negatives: rows of the index.
        to_positive, to_negative: distances from the anchor, float64.
    """

    anchors: Integers
    positives: Integers
    negatives: Integers
    to_positive: Floats
    to_negative: Floats
    counts: MiningCounts

    def __len__(self) -> int:
        return len(self.anchors)


def hard_negatives(
    index: Index,
    labels: Labels | None = None,
    *,
    anchors: Array | None = None,
    anchor_labels: Labels | None = None,
    pairs: Array | None = None,
    rows: Array | None = None,
    rules: MiningRules | None = None,
) -> HardNegatives:
    """The hard negatives of anchors in an index, with the positive of each.

    A candidate is an item that is neither the anchor itself, nor listed with it as a pair, and that labels call a
    negative: one of another class, or by the rule of a relation neither a positive nor ignored. Candidates
    are ordered by distance, equal distances by row, and `rules` say which are taken. Distances, to the positive too,
    are those of the index: those of equal rows are equal to the bit, and so are kept by a margin of 0. An approximate
    index overlooks candidates, as its recall says, but invents none. Every random choice depends on the seed and the
    rows of anchor and positive alone, not on the other anchors of the call.

    Args:
        labels: `(N,)` integer classes of the indexed items, or a `trivet.Relation` of them. They may be left out with
            `pairs`.
        anchors: `(A, d)` as the index was built from; by default its own rows, and an anchor is not its own positive.
        anchor_labels: `(A,)` their classes, or a relation of the same rule; needed with both `anchors` and `labels`.
        pairs: `(P, 2)` rows of anchors and of their positives in the index; several of one anchor each give triplets of
            their own. By default each anchor has one positive by its labels, see `MiningRules.positives`: "easy" and
            "hard" compare it with all of them, the lowest row if several are equally far.
        rows: `(R,)` the anchors to mine for, in this order; by default all, or with `pairs` all that have one.
        rules: by default `MiningRules()`.

    Raises:
        ValueError: if shapes, dtypes or ranges disagree, neither labels nor pairs are given, or a relative margin is
            used with another distance than cosine.

    Source:
        The margins: Moreira et al., "NV-Retriever: Improving text embedding models with effective hard-negative
        mining", 2024, section 3 (there TopK-MarginPos and TopK-PercPos).

    Example:
        >>> from trivet.knn.index import build_index
        >>> index = build_index(np.array([[0.0], [1.0], [3.0], [7.0]]), distance="euclidean")
        >>> mined = hard_negatives(index, np.array([0, 0, 5, 5]), rules=MiningRules(k=1, margin=0.5))
        >>> np.stack([mined.anchors, mined.positives, mined.negatives], axis=1).tolist()
        [[0, 1, 2], [1, 0, 2], [3, 2, 1]]
    """
    rules = rules or MiningRules()
    rules.check_distance(index.info.distance)
    if anchors is not None and (anchors.ndim != 2 or anchors.shape[1] != index.info.dimension):
        raise ValueError(
            f"anchors must have shape (A, {index.info.dimension}), as the index has dimensions: got "
            f"{tuple(anchors.shape)}; embed both with one model."
        )
    relation = _relation(index, labels, anchors, anchor_labels)
    count = len(index) if anchors is None else len(anchors)
    listed = None if pairs is None else _pairs(pairs, count, len(index), within_set=anchors is None)
    if listed is None and labels is None:
        raise ValueError("positives must come from labels or from pairs: got neither; give one of them.")
    if rows is None:
        chosen = np.arange(count) if listed is None else np.unique(listed[:, 0])
    else:
        chosen = _numbers(rows, count, "rows")

    def nearest(some: Integers, reach: int) -> tuple[Integers, Floats]:
        neighbors = index.search_rows(some, reach) if anchors is None else index.search(_take(anchors, some), reach)
        return neighbors.indices, neighbors.distances

    def distances(some: Integers, items: Integers) -> Floats:
        if anchors is None:
            return index.distances_of_rows(some, items)
        return index.distances(_take(anchors, some), items)

    excluded = _NoNegatives(relation, listed, len(index), within_set=anchors is None)
    if listed is None:
        at, positives = _by_relation(chosen, excluded.positives(chosen), rules, distances)
    else:
        at, positives = _by_pair(chosen, listed)
    to_positive = distances(chosen[at], positives[:, None])[:, 0]
    with_positive = np.unique(at)
    positions = np.zeros(len(chosen), np.int64)
    positions[with_positive] = np.arange(len(with_positive))
    among = max(rules.skip + rules.k, min(rules.among, len(index)))
    neighbors, far, met = _candidates(chosen[with_positive], excluded, nearest, among, len(index))
    neighbors, far = neighbors[positions[at]], far[positions[at]]  # (pairs, among)

    left = neighbors >= 0
    left_out = {}
    for reason, out in _left_out(far, to_positive, rules).items():
        left_out[reason] = int((left & out).sum())
        left &= ~out
    remaining = int(left.sum())
    if rules.negatives == "random":
        _draw(left, chosen[at], positives, rules)
    else:
        left &= left.cumsum(axis=1) <= rules.k
    each = left.sum(axis=1)
    pair, position = np.nonzero(left)
    return HardNegatives(
        anchors=chosen[at][pair],
        positives=positives[pair],
        negatives=neighbors[pair, position],
        to_positive=to_positive[pair],
        to_negative=far[pair, position],
        counts=MiningCounts(
            anchors=len(chosen),
            without_positive=len(chosen) - len(with_positive),
            pairs=len(at),
            same_class=met,
            candidates=int((neighbors >= 0).sum()),
            **left_out,
            not_needed=remaining - len(pair),
            taken=len(pair),
            without_negative=int((each == 0).sum()),
            fewer=int(((each > 0) & (each < rules.k)).sum()),
        ),
    )


def _left_out(far: Floats, to_positive: Floats, rules: MiningRules) -> dict[str, Booleans]:
    """Candidates `(P, n)`, nearest first, that each rule leaves out, by the names of `MiningCounts` in their order."""
    limit = np.full(len(far), -np.inf)
    if rules.margin is not None:
        limit = np.maximum(limit, to_positive + rules.margin)
    if rules.relative_margin is not None:
        limit = np.maximum(limit, to_positive + rules.relative_margin * np.abs(1 - to_positive))
    return {
        "skipped": np.broadcast_to(np.arange(far.shape[1]) < rules.skip, far.shape),
        "near_positive": far < limit[:, None],
        "too_near": far < (-np.inf if rules.min_distance is None else rules.min_distance),
        "too_far": far > (np.inf if rules.max_distance is None else rules.max_distance),
    }


def _draw(left: Booleans, anchors: Integers, positives: Integers, rules: MiningRules) -> None:
    """Leave k of the candidates of each pair, at random."""
    for row in np.flatnonzero(left.sum(axis=1) > rules.k).tolist():
        draw = np.random.default_rng((rules.seed, int(anchors[row]), int(positives[row])))
        there = np.flatnonzero(left[row])
        left[row] = False
        left[row, draw.choice(there, rules.k, replace=False)] = True


class _NoNegatives:
    """Items to leave out for an anchor: those that are no negatives by a relation, and those that are listed with it.

    Args:
        relation: of the N items, and unless these are the anchors, of the anchors after them.
        within_set: whether they are.
    """

    def __init__(self, relation: Relation, listed: Integers | None, items: int, *, within_set: bool) -> None:
        self._search, self._items = relation.search(torch.arange(items)), items
        self._first_anchor = 0 if within_set else items
        both = np.empty((0, 2), np.int64) if listed is None else listed
        if within_set:  # a pair holds in both directions
            both = np.concatenate([both, both[:, ::-1]])
        self.keys = np.unique(both[:, 0] * items + both[:, 1])

    def positives(self, anchors: Integers) -> Iterator[Integers]:
        """The items that belong to each anchor by the relation, one anchor after another."""
        return (members.numpy() for members in self._search.positives(self._rows(anchors)))

    def most(self, anchors: Integers) -> Integers:
        """At most how many items each anchor `(A,)` is without."""
        first, last = (np.searchsorted(self.keys, rows * self._items) for rows in (anchors, anchors + 1))
        most: Integers = last - first + self._search.most_neutral(self._rows(anchors)).numpy()
        return most

    def __call__(self, anchors: Integers, items: Integers) -> Booleans:
        """Return whether each of the items `(A, n)`, or -1, is left out for its anchor `(A,)`."""
        columns = torch.from_numpy(items).clamp_min(0)
        out: Booleans = self._search.neutral(self._rows(anchors), columns).numpy()
        if len(self.keys):
            wanted = anchors[:, None] * self._items + items
            position = np.searchsorted(self.keys, wanted).clip(max=len(self.keys) - 1)
            out |= self.keys[position] == wanted
        return out & (items >= 0)

    def _rows(self, anchors: Integers) -> torch.Tensor:
        return torch.from_numpy(anchors + self._first_anchor)


def _candidates(
    anchors: Integers,
    excluded: _NoNegatives,
    nearest: Callable[[Integers, int], tuple[Integers, Floats]],
    among: int,
    items: int,
) -> tuple[Integers, Floats, int]:
    """The `among` nearest items `(A, among)` that are not left out, nearest first, and their distances; -1 where there
    are fewer. And how many that are left out were met before the last of them.

    More are listed only for anchors for which that is not enough; as many as are left out and `among` more always are.
    """
    neighbors = np.full((len(anchors), among), -1)
    far = np.full(neighbors.shape, np.inf)
    most = excluded.most(anchors) + among
    todo, reach, met = np.arange(len(anchors)), 2 * among, 0
    while len(todo):
        reach = min(reach, items, int(most[todo].max()))
        again = []
        for start, stop in spans(len(todo), max(1, LISTED // reach)):
            some = todo[start:stop]
            rows, distances = nearest(anchors[some], reach)
            out = excluded(anchors[some], rows)
            there = (rows >= 0) & ~out
            rank = there.cumsum(axis=1)
            enough = (there.sum(axis=1) >= among) | (reach >= most[some]) | (rows.shape[1] < reach or reach >= items)
            enough |= (rows < 0).any(axis=1)
            again.append(some[~enough])
            row, column = np.nonzero(there & (rank <= among) & enough[:, None])
            position = rank[row, column] - 1
            neighbors[some[row], position] = rows[row, column]
            far[some[row], position] = distances[row, column]
            met += int((out & (rank < among) & enough[:, None]).sum())
        todo, reach = np.concatenate(again), FURTHER * reach
    return neighbors, far, met


def _by_relation(
    anchors: Integers,
    positives: Iterable[Integers],
    rules: MiningRules,
    distances: Callable[[Integers, Integers], Floats],
) -> tuple[Integers, Integers]:
    """Return, for each anchor that has one, its place in `anchors` and which of its `positives` is taken."""
    taken = np.full(len(anchors), -1)
    for position, (anchor, members) in enumerate(zip(anchors.tolist(), positives, strict=True)):
        if not len(members):
            continue
        if rules.positives == "random":
            taken[position] = np.random.default_rng((rules.seed, anchor)).choice(members)
        elif len(members) == 1:
            taken[position] = members[0]
        else:
            far = distances(anchors[position : position + 1], members[None])[0]
            taken[position] = members[far.argmin() if rules.positives == "easy" else far.argmax()]
    at = np.flatnonzero(taken >= 0)
    return at, taken[at]


def _by_pair(anchors: Integers, listed: Integers) -> tuple[Integers, Integers]:
    """Return, for each listed pair of the anchors, anchor by anchor, the place in `anchors` and the positive."""
    order = np.argsort(listed[:, 0], kind="stable")
    starts, ends = (np.searchsorted(listed[order, 0], anchors, side=side) for side in ("left", "right"))
    sizes = ends - starts
    at = np.arange(len(anchors)).repeat(sizes)
    inside = np.arange(len(at)) - (sizes.cumsum() - sizes).repeat(sizes)
    return at, listed[order[starts.repeat(sizes) + inside], 1]


def _relation(index: Index, labels: Labels | None, anchors: Array | None, anchor_labels: Labels | None) -> Relation:
    """A relation of the items `(N,)`, and of other anchors `(A,)` after them."""
    if (labels is None) != (anchor_labels is None) and (labels is None or anchors is not None):
        raise ValueError("labels must be known on both sides: give labels of the index and anchor_labels, or neither.")
    if anchor_labels is not None and anchors is None:
        raise ValueError("anchor_labels are of anchors: got none; leave them out, as labels are those of the index.")
    if labels is None:
        return Unlabelled(len(index) + (0 if anchors is None else len(anchors)))
    of_items = _of_labels(labels, "labels", len(index))
    if anchors is None or anchor_labels is None:
        return of_items
    relation, others = of_items.joined(_of_labels(anchor_labels, "anchor_labels", len(anchors)))
    return relation.with_items(torch.cat([relation.items, others]))


def _of_labels(labels: Labels, name: str, count: int) -> Relation:
    if isinstance(labels, Relation):
        check_length(labels, count, name)
        return labels.to("cpu")
    return Classes(torch.from_numpy(_integers(labels, name, (count,))))


def _integers(values: Array, name: str, shape: tuple[int, ...]) -> Integers:
    numbers = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if numbers.shape != shape or numbers.dtype.kind not in "iu":
        labels = name.endswith("labels") and numbers.shape == shape
        todo = how_to_number(values, name) if labels else "give integers of that shape"
        raise ValueError(
            f"{name} must be integers of shape {shape}: got {numbers.dtype} of shape {numbers.shape}; {todo}."
        )
    return numbers.astype(np.int64)


def _numbers(values: Array, below: int, name: str) -> Integers:
    numbers = _integers(values, name, tuple(values.shape[:1]))
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < below:
        raise ValueError(f"{name} must be row numbers from 0 to {below - 1}: got {numbers.min()} to {numbers.max()}.")
    return numbers


def _pairs(pairs: Array, anchors: int, items: int, *, within_set: bool) -> Integers:
    """The pairs `(P, 2)`, each once, where it first is."""
    both = _integers(pairs, "pairs", (len(pairs), 2))
    _numbers(both[:, 0], anchors, "the anchors of pairs")
    _numbers(both[:, 1], items, "the positives of pairs")
    if within_set and (both[:, 0] == both[:, 1]).any():
        row = int(both[both[:, 0] == both[:, 1]][0, 0])
        raise ValueError(f"an anchor must have another item as its positive: a pair holds row {row} twice; remove it.")
    first = np.unique(both[:, 0] * items + both[:, 1], return_index=True)[1]
    each: Integers = both[np.sort(first)]
    return each


def _take(anchors: Array, rows: Integers) -> npt.NDArray[np.generic] | torch.Tensor:
    return anchors[torch.from_numpy(rows)] if isinstance(anchors, torch.Tensor) else anchors[rows]
