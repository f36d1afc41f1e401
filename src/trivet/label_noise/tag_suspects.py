"""Tags that are probably missing or superfluous, item by item."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from trivet.distances import Array
from trivet.label_noise.mistakes import MistakeModel, fit_fewest, fit_mistakes
from trivet.label_noise.neighbourhoods import LabelledPoints
from trivet.label_noise.tag_scores import tag_scores
from trivet.metrics.points import Metric, as_points
from trivet.mining.tags import Tags
from trivet.runtime.arrays import Booleans, Floats, Integers

KNOWS = 0.5  # of the way from chance to 1 that the precision of a tag must go for it to be judged
ITEMS = 10  # that carry a judged tag at least, and that do not
MOST = 2**25  # items times tags
BEGUN = 0.0, 0.018, 0.018  # intercept, floor and excess where a fit sets out

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
            `probability_wrong`, in whole tags, and as many as disagree. Empty if no tag is judged.
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
    and its equals. Of all items and tags, which of them is given is fitted by maximum likelihood as

        P(given | s) = g + (1 - m - g) sigmoid(w . s + b),    g = f times the share of the tag,

    m being the share of the right tags that are missing and f that of the superfluous ones: overlap makes tags disagree
    the less, the surer the scores are, and mistakes do not. By Bayes a tag that is not given is missing with
    probability m sigmoid / (1 - P), a given one superfluous with g (1 - sigmoid) / P.

    m and f are taken to be the least that the data allow (`mistakes.fit_fewest`), so that nothing is called wrong that
    overlap may explain: where items are few or scores poor, hardly any is.

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
    scores = np.empty((len(observed), 0, 3))
    if judged.any():
        nothing = np.zeros(len(observed), np.int64)
        setting = LabelledPoints(points, np.arange(1), nothing, nothing, distance)
        scores = tag_scores(setting, observed[:, judged], seed)
        known = _precisions(scores, observed[:, judged]) >= KNOWS
        judged[judged], scores = known, scores[:, known]
    if not judged.any():
        empty = np.zeros(0)
        return TagSuspects(*(empty.astype(np.int64),) * 2, empty.astype(np.bool_), empty, empty, judged, {})
    return _suspects(scores, observed[:, judged], judged)


def _suspects(scores: Floats, observed: Booleans, judged: Booleans) -> TagSuspects:
    shares, flat, present = _shares(observed), scores.reshape(-1, scores.shape[2]), observed.ravel()
    likeliest = fit_tags(scores, observed)
    superfluous = fit_fewest(flat, present, "floor", likeliest=likeliest, shares=shares)
    missing = fit_fewest(flat, present, "excess", likeliest=likeliest, shares=shares)
    right = likeliest.belongs(scores)
    wrong = np.where(
        present, superfluous.wrong(superfluous.belongs(flat), shares), missing.missing(missing.belongs(flat), shares)
    ).reshape(observed.shape)
    disagrees = (observed != (right > 0.5)) | (wrong > 0.5)
    items, columns = np.nonzero(disagrees)
    order = np.lexsort((items, -np.abs(right - 0.5)[disagrees], -wrong[disagrees]))
    items, columns = items[order], columns[order]
    absent, count = ~observed[items, columns], max(1, int(observed.sum()))
    ranges: dict[Kind, tuple[float, float]] = {
        "missing": (math.floor(wrong[~observed].sum()) / count, int(absent.sum()) / count),
        "superfluous": (math.floor(wrong[observed].sum()) / count, int((~absent).sum()) / count),
    }
    return TagSuspects(
        items=items,
        tags=np.flatnonzero(judged)[columns],
        missing=absent,
        probability_wrong=wrong[items, columns],
        probability_tag=right[items, columns],
        judged=judged,
        ranges={kind: (least, max(least, most)) for kind, (least, most) in ranges.items()},
    )


def fit_tags(scores: Floats, observed: Booleans, *, mistakes: bool = True) -> MistakeModel:
    """Fit the model of `find_tag_suspects` to scores `(N, T, V)` and the tags `(N, T)`; without mistakes m = f = 0."""
    views, known = scores.shape[2], None if mistakes else 0.0
    start = MistakeModel(np.full(views, 0.5), *BEGUN)
    return fit_mistakes(
        scores.reshape(-1, views), observed.ravel(), start=start, shares=_shares(observed), floor=known, excess=known
    )


def _shares(observed: Booleans) -> Floats:
    """The share of the tag of each cell `(N T,)`."""
    return np.asarray(np.broadcast_to(observed.mean(axis=0), observed.shape).ravel())


def _precisions(scores: Floats, observed: Booleans) -> npt.NDArray[np.float64]:
    """Precision of each tag among the items that rank first, as many as have it: 0 by chance, 1 if all have it."""
    ranked = scores @ fit_tags(scores, observed, mistakes=False).weights
    counts, chance = observed.sum(axis=0), observed.mean(axis=0)
    order = np.argsort(-ranked, axis=0, kind="stable")
    hits = np.take_along_axis(observed, order, axis=0).cumsum(axis=0)[counts - 1, np.arange(len(counts))]
    return np.asarray((hits / counts - chance) / (1 - chance))
