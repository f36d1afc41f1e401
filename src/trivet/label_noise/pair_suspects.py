"""Pairs that probably do not belong together, and pairs that are probably missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from trivet.distances import Array
from trivet.label_noise.mistakes import MistakeModel, fit_fewest, fit_mistakes
from trivet.label_noise.pair_scores import PairViews
from trivet.metrics.points import as_points
from trivet.runtime.arrays import Floats, Integers

RANDOM = 5  # random pairs for each listed pair
LEAST = 50  # pairs
CONTENTS, TIMES = 100, 10  # fewer contents of a side that come so often in the mean are classes
SEPARATED = 0.7  # share of listed pairs that fit better than a random pair, from which on they are judged
CANDIDATES = 10  # of each content
SURE = 10  # random pairs at least as sure as any that is called missing
BEGUN = -1.0, 0.0067, 0.047  # intercept, floor and excess where a fit sets out

PairVerdict = Literal["judged", "uninformative"]


@dataclass(frozen=True, eq=False)
class PairSuspects:
    """P listed pairs, judged, in their order; and M pairs that are not listed, the likeliest first.

    Attributes:
        verdict: "judged", or "uninformative": the embeddings do not tell listed pairs from random ones; then all
            probabilities are NaN, and nothing is missing.
        reason: for the second, in a sentence; else empty.
        separation: share of listed pairs that fit better than random ones, 1/2 by chance.
        probability_wrong: `(P,)` in [0, 1] that the pair does not belong together.
        random_above: `(P,)` in [0, 1], share of random pairs that fit better than this pair.
        order: `(P,)` positions, most suspect first.
        missing: `(M, 2)` left and right rows of pairs that probably belong together, though they are not listed.
        probability_missing: `(M,)` above 1/2.
        wrong: the least and the most pairs that do not belong together, as shares of all; the least is the sum of
            `probability_wrong` in whole pairs.
    """

    verdict: PairVerdict
    reason: str
    separation: float
    probability_wrong: Floats
    random_above: Floats
    order: Integers
    missing: Integers
    probability_missing: Floats
    wrong: tuple[float, float]


def find_pair_suspects(
    left: Array, right: Array, pairs: Array | None = None, *, shared: bool | None = None, seed: int = 0
) -> PairSuspects:
    """Find the listed pairs that do not belong together, and pairs that belong together though they are not listed.

    `pair_scores.PairViews` says how well two contents go together, without the pair itself and what hangs together with
    it. Left contents that are put together with right ones of other pairs at random show how pairs look that do not
    belong together. Of listed and random pairs, which are listed is fitted by maximum likelihood as

        P(listed | v) = g + (1 - e - g) sigmoid(w . v + b),

    v being the scores, how well the pairs of the neighbours of either end go together, and the products of both: where
    the embeddings do not see what belongs together, no pair stands out. As pairs go together less and less well, those
    that belong together become rarer than random ones without end; wrong ones, put together by mistake, stay as
    frequent, and g is their floor. By Bayes a listed pair is wrong with probability g (1 - sigmoid) / P, and a pair
    that is not listed belongs together with e sigmoid / (1 - P).

    g and e are taken to be the least that the data allow (`mistakes.fit_fewest`), so that nothing is called wrong that
    right pairs may explain: the probabilities of being wrong are rather too low than too high, and their sum is the
    least number of wrong pairs. The most is the number of those that look more like random pairs than like listed ones.
    A mistake that happens to go together is not among them; a right pair in which the embeddings see nothing of what
    belongs together is. Pairs with fewer than 100 contents on a side that come ten times on average are left to an
    audit of classes.

    Args:
        left, right: `(L, d)` and `(R, d')` floating point embeddings, compared by cosine; equal rows are one content.
        pairs: `(P, 2)` rows of left and right that are listed; by default row i with row i.
        shared: whether both sides are of a space, so that they can be compared as they are; by default if d = d'.
        seed: of the folds and of random pairs; not negative.

    Raises:
        ValueError: if rows are not finite, a listed row does not exist, or `shared` is asked of different widths.

    Source:
        Unlisted pairs by those that are put together anew: the contrast of Gutmann, Hyvarinen, "Noise-contrastive
        estimation", AISTATS 2010. The floor and the ceiling are those of `find_tag_suspects`; the rest is chosen here.

    Example:
        >>> random = np.random.default_rng(0)
        >>> left = random.normal(size=(400, 16))
        >>> right = left @ random.normal(size=(16, 20)) + random.normal(size=(400, 20))
        >>> pairs = np.stack([np.arange(400)] * 2, axis=1)
        >>> pairs[:10, 1] = np.roll(pairs[:10, 1], 1)
        >>> suspects = find_pair_suspects(left, right, pairs)
        >>> np.flatnonzero(suspects.probability_wrong > 0.5)
        array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    sides, listed = _checked(left, right, pairs, shared, seed)
    shared = sides[0].shape[1] == sides[1].shape[1] if shared is None else shared
    first_rows, numbers = [], []
    for side in (0, 1):
        _, first, number = np.unique(sides[side].numpy(), axis=0, return_index=True, return_inverse=True)
        first_rows.append(first)
        numbers.append(number.ravel()[listed[:, side]])
    different, position = np.unique(np.stack(numbers, axis=1), axis=0, return_inverse=True)
    position = position.ravel()
    if len(different) < LEAST:
        return _uninformative(
            len(listed),
            f"there are {len(different)} different pairs, and fewer than {LEAST} do not show what is usual.",
        )
    for side, (name, other) in enumerate((("left", "right"), ("right", "left"))):
        contents = len(np.unique(different[:, side]))
        if contents < CONTENTS and len(different) >= TIMES * contents:
            return _uninformative(
                len(listed),
                f"the {contents} contents of the {name} side come {len(different) / contents:.0f} times each, as "
                f"classes do; audit them as labels of the {other} side.",
            )
    vectors = [rows[torch.from_numpy(first)] for rows, first in zip(sides, first_rows, strict=True)]
    contrast = _Contrast(PairViews(vectors[0], vectors[1], different, shared=shared, seed=seed), seed)
    if contrast.separation < SEPARATED:
        return _uninformative(
            len(listed),
            f"in {100 * contrast.separation:.0f} % of comparisons a listed pair goes together better than a pair put "
            "together at random, 50 % being chance: the embeddings do not see what belongs together, or too many pairs "
            "are wrong.",
            contrast.separation,
        )
    wrong, above = contrast.wrong(), contrast.random_above()
    most = max(float(wrong.mean()), contrast.doubtful())
    missing, probabilities = contrast.missing()
    return PairSuspects(
        verdict="judged",
        reason="",
        separation=contrast.separation,
        probability_wrong=wrong[position],
        random_above=above[position],
        order=np.lexsort((np.arange(len(listed)), -above[position], -wrong[position])),
        missing=np.stack([first_rows[side][missing[:, side]] for side in (0, 1)], axis=1),
        probability_missing=probabilities,
        wrong=(math.floor(wrong.sum()) / len(wrong), most),
    )


def _checked(
    left: Array, right: Array, pairs: Array | None, shared: bool | None, seed: int
) -> tuple[list[torch.Tensor], Integers]:
    """Unit rows of both sides, and the listed pairs."""
    sides = [as_points(rows, distance="cosine")[:, :-1].float() for rows in (left, right)]
    sizes = [len(rows) for rows in sides]
    if pairs is None and sizes[0] != sizes[1]:
        raise ValueError(
            f"left and right must have as many rows, as row i belongs to row i: got {sizes[0]} and {sizes[1]}; pass "
            "the pairs."
        )
    listed = np.repeat(np.arange(sizes[0])[:, None], 2, axis=1) if pairs is None else np.asarray(pairs)
    if listed.ndim != 2 or listed.shape[1] != 2 or listed.dtype.kind not in "iu":
        raise ValueError(f"pairs must hold integers of shape (P, 2): got {listed.dtype} of shape {listed.shape}.")
    if len(listed) and ((listed < 0) | (listed >= sizes)).any():
        raise ValueError(
            f"pairs must hold rows of left in [0, {sizes[0]}) and of right in [0, {sizes[1]}): got "
            f"{listed.min(axis=0).tolist()} to {listed.max(axis=0).tolist()}."
        )
    widths = [rows.shape[1] for rows in sides]
    if shared and widths[0] != widths[1]:
        raise ValueError(f"sides of a space must have one width: got {widths[0]} and {widths[1]}; pass shared=False.")
    if seed < 0:
        raise ValueError(f"seed must not be negative: got {seed}.")
    return sides, listed.astype(np.int64)


def _uninformative(count: int, reason: str, separation: float = 0.5) -> PairSuspects:
    unknown, nothing = np.full(count, np.nan), np.zeros(0)
    return PairSuspects(
        verdict="uninformative",
        reason=f"These embeddings cannot judge these pairs: {reason}",
        separation=separation,
        probability_wrong=unknown,
        random_above=unknown,
        order=np.arange(count),
        missing=np.zeros((0, 2), np.int64),
        probability_missing=nothing,
        wrong=(0.0, 1.0),
    )


class _Contrast:
    """Listed pairs beside random ones: their scores, and the model that tells them apart."""

    def __init__(self, views: PairViews, seed: int) -> None:
        self._views, self._random = views, np.random.default_rng(seed)
        every = np.arange(len(views.pairs))
        first, second = _random_pairs(views, self._random)
        first, second = np.concatenate([every, first]), np.concatenate([every, second])
        self._listed = np.arange(len(first)) < len(every)
        scores = views.scores(first, second)
        self._scale = np.where(scores.std(axis=0) > 0, scores.std(axis=0), 1.0)
        together = (scores[: len(every)] / self._scale).mean(axis=1)
        spread = max(float(together.std()), 1e-300)
        self._local = [(views.local_means(side, together) - together.mean()) / spread for side in (0, 1)]
        self._scores = self._design(scores, first, second)
        width = self._scores.shape[1]
        self.model = fit_mistakes(self._scores, self._listed, start=MistakeModel(np.full(width, 1 / width), *BEGUN))
        self._fit = self.model.belongs(self._scores)

    @property
    def separation(self) -> float:
        """Share of listed pairs that fit better than a random pair, ties being half."""
        return 1 - float(self.random_above().mean()) if (~self._listed).any() else 0.5

    def random_above(self) -> Floats:
        """Share of random pairs `(P,)` that fit better than each listed pair, ties being half."""
        random, listed = np.sort(self._fit[~self._listed]), self._fit[self._listed]
        below = (np.searchsorted(random, listed, "left") + np.searchsorted(random, listed, "right")) / 2
        return np.asarray(1 - below / max(1, len(random)))

    def doubtful(self) -> float:
        """Share of listed pairs whose scores are more frequent among random pairs."""
        model, fit = self.model, self._fit[self._listed]
        likely = model.floor * (1 - fit) + (1 - model.excess) * fit
        return float((likely < self._listed.mean()).mean())

    def wrong(self) -> Floats:
        """The probability `(P,)` of each listed pair not to belong together, by the lowest floor."""
        model = fit_fewest(self._scores, self._listed, "floor", likeliest=self.model)
        return model.wrong(model.belongs(self._scores[self._listed]))

    def missing(self) -> tuple[Integers, Floats]:
        """Pairs `(M, 2)` that are not listed and more probably than not belong together, likeliest first.

        The probability is that of the lowest excess; none is higher than that of the tenth of the random pairs, for
        beyond these nothing shows what does not belong together.
        """
        views = self._views
        model = fit_fewest(self._scores, self._listed, "excess", likeliest=self.model)
        some_pair = [np.full(count, -1) for count in views.counts]
        order = self._random.permutation(len(views.pairs))
        for side in (0, 1):
            some_pair[side][views.pairs[order, side]] = order
        candidates = views.candidates(CANDIDATES)
        first, second = some_pair[0][candidates[:, 0]], some_pair[1][candidates[:, 1]]
        belongs = model.belongs(self._design(views.scores(first, second), first, second))
        random = np.sort(model.belongs(self._scores[~self._listed]))
        probabilities = model.missing(np.minimum(belongs, random[-min(SURE, len(random))]))
        likely = np.flatnonzero(probabilities > 0.5)
        likely = likely[np.argsort(-belongs[likely], kind="stable")]
        return candidates[likely], probabilities[likely]

    def _design(self, scores: Floats, first: Integers, second: Integers) -> Floats:
        """Scores with what is usual around both ends, and their products with it."""
        scores = scores / self._scale
        total, pairs = scores.mean(axis=1), self._views.pairs
        ends = self._local[0][pairs[first, 0]], self._local[1][pairs[second, 1]]
        return np.column_stack([scores, *ends, *(total * end for end in ends)])


def _random_pairs(views: PairViews, random: np.random.Generator) -> tuple[Integers, Integers]:
    """Listed pairs whose left and right contents are put together, within a fold, if they are not listed so."""
    first, second = list[Integers](), list[Integers]()
    for fold in np.unique(views.fold):
        rows = np.flatnonzero(views.fold == fold)
        for _ in range(RANDOM):
            first.append(rows)
            second.append(random.permutation(rows))
    lefts, rights = np.concatenate(first), np.concatenate(second)
    unlisted = ~views.is_listed(views.pairs[lefts, 0], views.pairs[rights, 1])
    return lefts[unlisted], rights[unlisted]
