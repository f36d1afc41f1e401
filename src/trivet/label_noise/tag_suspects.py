"""Tags that are probably missing or superfluous, item by item."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from trivet.distances import Array
from trivet.label_noise.estimate import LIKELIER
from trivet.label_noise.neighbourhoods import LabelledPoints
from trivet.label_noise.tag_scores import TagViews
from trivet.metrics.points import Metric, as_points
from trivet.mining.tags import Tags
from trivet.runtime.arrays import Booleans, Floats, Integers
from trivet.runtime.progress import steps

KNOWS = 0.5  # of the way from chance to 1 that the precision of a tag must go for it to be judged
ITEMS = 10  # that carry a judged tag at least, and that do not
MOST = 2**25  # items times tags
STEEPER = 3.0  # times the weights without mistakes: where a fit with mistakes sets out, too
MOST_WRONG = 0.5  # share of the right tags that are missing, and of the items with the tag that should not have it
TINY = 1e-300

Kind = Literal["missing", "superfluous"]


@dataclass(frozen=True, eq=False)
class TagSuspects:
    """Tags that disagree with the other items, most suspect first; S of them, T tags.

    Attributes:
        items: `(S,)` positions of the items.
        tags: `(S,)` numbers of the tags.
        missing: `(S,)` bool, whether the tag is probably missing; else it is there and probably superfluous.
        probability_wrong: `(S,)` in [0, 1] that this is a mistake, and not overlap of those with and without the tag.
        probability_tag: `(S,)` in [0, 1] that an item like this has the tag.
        judged: `(T,)` bool, the tags that the embedding knows well enough.
        ranges: kind -> the least and the most mistakes, relative to the number of judged tags of all items: the sum of
            `probability_wrong`, and as many as disagree. Empty if no tag is judged.
    """

    items: Integers
    tags: Integers
    missing: Booleans
    probability_wrong: Floats
    probability_tag: Floats
    judged: Booleans
    ranges: dict[Kind, tuple[float, float]]


def find_tag_suspects(embeddings: Array, tags: Tags, *, seed: int = 0, distance: Metric = "cosine") -> TagSuspects:
    """Find the tags that are probably missing or superfluous.

    The neighbours of an item and logistic regressions out of fold give scores s of each tag, without the item itself
    and its equals. For each tag, which items have it is fitted by maximum likelihood as

        P(has it | s) = g + (1 - m - g) sigmoid(w . s + b),

    m being the share of the items that should have the tag of which it is missing, and g the share of the others that
    have it: overlap makes tags disagree the less, the surer the scores are, and mistakes do not. By Bayes a tag that an
    item has not is missing with probability m sigmoid / (1 - P), one that it has superfluous with g (1 - sigmoid) / P.

    Overlap alone may look like mistakes where the scores are poor or items are few. So, as for classes
    (`posterior.fit_posterior`), m and g must make the tags likelier than overlap alone: by e^4.5 times as many times as
    there are tags, for among many one is likelier by chance. Else they are 0, and of that tag nothing is called: such
    tags may have mistakes, but nothing tells.

    A tag is judged if ten items have it and ten do not, and if of the n items with the highest scores, n those that
    have the tag, at least half of the way from chance to all have it. The tags of an item do not speak for each other.

    Args:
        embeddings: `(N, d)` floating point, best of a network that was not trained on these tags.
        tags: of the N items.
        seed: of the folds; not negative.
        distance: "cosine" or "euclidean".

    Raises:
        ValueError: if lengths disagree, a row is not finite, there are fewer than two items, or over 2^25 items times
            tags.

    Source:
        The four-parameter logistic model: Barton, Lord, "An upper asymptote for the three-parameter logistic
        item-response model", ETS Research Report, 1981. A tag is judged as two classes, with and without it, as in
        Thyagarajan, Snorrason, Northcutt, Mueller, "Identifying Incorrect Annotations in Multi-Label Classification
        Data", 2022. The rest is chosen here.

    Example:
        >>> random = np.random.default_rng(0)
        >>> given = random.random((400, 3)) < 0.3
        >>> points = given @ random.normal(size=(3, 8)) * 4 + random.normal(size=(400, 8))
        >>> given[:5, 0] ^= True
        >>> suspects = find_tag_suspects(points, Tags(given.astype(int)), distance="euclidean")
        >>> wrong = suspects.probability_wrong > 0.5
        >>> sorted(suspects.items[wrong].tolist()), suspects.tags[wrong].tolist()
        ([0, 1, 2, 3, 4], [0, 0, 0, 0, 0])
    """
    points = as_points(embeddings, distance=distance)
    carried = tags.rows(tags.items)[:, : len(tags.names)]
    if len(points) != len(tags) or len(tags) < 2:
        raise ValueError(
            f"tags must be those of the embeddings, of two items or more: got {len(tags)} items with tags for "
            f"{len(points)} embeddings."
        )
    if len(tags) * len(tags.names) > MOST:
        raise ValueError(
            f"items times tags must not exceed {MOST:,}: got {len(tags):,} items and {len(tags.names):,} tags; pass "
            "some of the items, or the frequent tags."
        )
    if seed < 0:
        raise ValueError(f"seed must not be negative: got {seed}.")
    observed = carried.toarray().astype(np.bool_)
    counts = observed.sum(axis=0)
    judged = (counts >= ITEMS) & (len(observed) - counts >= ITEMS)
    wrong, right = np.zeros(observed.shape), observed.astype(np.float64)
    if judged.any():
        nothing, some = np.zeros(len(observed), np.int64), np.flatnonzero(judged)
        views = TagViews(LabelledPoints(points, np.arange(1), nothing, nothing, distance), seed)
        scores = views.scores(observed[:, some])
        for number in steps(range(len(some)), "mistakes in the tags"):
            carries, of_tag = observed[:, some[number]], scores[:, number]
            model = fit_tag(of_tag, carries, LIKELIER + math.log(len(some)))
            judged[some[number]] = _precision(of_tag @ model.overlap[:-1], carries) >= KNOWS
            wrong[:, some[number]], right[:, some[number]] = model.probabilities(of_tag, carries)
    return _suspects(observed[:, judged], wrong[:, judged], right[:, judged], judged)


class TagModel(NamedTuple):
    """A fitted model of a tag.

    Attributes:
        weights: `(V + 1,)` of the scores, the last the intercept; `overlap` those of the fit without mistakes.
        missing, superfluous: the shares m and g of mistakes; 0 where mistakes hardly make the tag likelier.
        gain: the logarithm of how many times likelier they make it.
    """

    weights: Floats
    overlap: Floats
    missing: float
    superfluous: float
    gain: float

    def probabilities(self, scores: Floats, carries: Booleans) -> tuple[Floats, Floats]:
        """Probabilities `(N,)` that the tag is a mistake, missing or superfluous, and that an item like this has it."""
        right, (missing, false) = _sigmoid(scores, self.weights), (self.missing, self.superfluous)
        likely = false + (1 - missing - false) * right
        wrong = np.where(carries, false * (1 - right) / (likely + TINY), missing * right / (1 - likely + TINY))
        return wrong, right


def fit_tag(scores: Floats, carries: Booleans, least: float = LIKELIER) -> TagModel:
    """Fit the model of `find_tag_suspects` to scores `(N, V)` of a tag and which items have it `(N,)`.

    Missing or superfluous tags are in the model if the gain, and what it loses without them, is larger than `least`.
    """
    alone = _fitted(scores, carries, (False, False), [np.full(scores.shape[1], 0.5)])
    overlap = alone.x[:-2]
    begun = [overlap[:-1], STEEPER * overlap[:-1]]
    both = _fitted(scores, carries, (True, True), begun)
    fit = alone
    if alone.fun - both.fun > least:
        single = [_fitted(scores, carries, kinds, begun) for kinds in ((True, False), (False, True))]
        needed = single[1].fun - both.fun > least, single[0].fun - both.fun > least
        fit = both if all(needed) else min(single, key=lambda fit: fit.fun)
    missing, superfluous = fit.x[-2:].tolist()
    return TagModel(fit.x[:-2], overlap, missing, superfluous, float(alone.fun - both.fun))


def _fitted(scores: Floats, carries: Booleans, kinds: tuple[bool, bool], begun: list[Floats]) -> Any:
    """The likeliest weights and shares of mistakes, of some kinds or none: `x`; and minus the logarithm, `fun`."""
    from scipy.optimize import minimize

    def loss(numbers: Floats) -> tuple[float, Floats]:
        missing, false = numbers[-2:]
        right = _sigmoid(scores, numbers[:-2])
        likely = np.clip(false + (1 - missing - false) * right, 1e-12, 1 - 1e-12)
        slope = np.where(carries, -1 / likely, 1 / (1 - likely))
        inner = slope * (1 - missing - false) * right * (1 - right)
        value = -np.where(carries, np.log(likely), np.log1p(-likely)).sum()
        ends = [-float(slope @ right), float(slope @ (1 - right))]
        return float(value), np.concatenate([inner @ scores, [inner.sum()], ends])

    share = float(carries.mean())
    most = (MOST_WRONG, MOST_WRONG * share)  # of the items that should have the tag, and that should not
    bounds = [(None, None)] * (scores.shape[1] + 1) + [(0.0, kind * end) for kind, end in zip(kinds, most, strict=True)]
    starts = [
        np.array([*weights, 0.0, *(0.05 * kind * end for kind, end in zip(kinds, most, strict=True))])
        for weights in begun
    ]
    fits = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    return min(fits, key=lambda fit: fit.fun)


def _sigmoid(scores: Floats, weights: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(scores @ weights[:-1] + weights[-1]))


def _precision(scores: Floats, carries: Booleans) -> float:
    """Precision of a tag among the items that rank first, as many as have it: 0 by chance, 1 if all have it."""
    count, chance = int(carries.sum()), float(carries.mean())
    hits = int(carries[np.argsort(-scores, kind="stable")[:count]].sum())
    return (hits / count - chance) / (1 - chance)


def _suspects(observed: Booleans, wrong: Floats, right: Floats, judged: Booleans) -> TagSuspects:
    disagrees = (observed != (right > 0.5)) | (wrong > 0.5)
    items, columns = np.nonzero(disagrees)
    order = np.lexsort((items, -np.abs(right - 0.5)[disagrees], -wrong[disagrees]))
    items, columns = items[order], columns[order]
    absent, count = ~observed[items, columns], max(1, int(observed.sum()))
    ranges: dict[Kind, tuple[float, float]] = {
        "missing": (float(wrong[~observed].sum()) / count, int(absent.sum()) / count),
        "superfluous": (float(wrong[observed].sum()) / count, int((~absent).sum()) / count),
    }
    return TagSuspects(
        items=items,
        tags=np.flatnonzero(judged)[columns],
        missing=absent,
        probability_wrong=wrong[items, columns],
        probability_tag=right[items, columns],
        judged=judged,
        ranges={kind: (least, max(least, most)) for kind, (least, most) in ranges.items()} if judged.any() else {},
    )
