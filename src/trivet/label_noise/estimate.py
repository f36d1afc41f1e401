"""Estimate of how many labels are wrong, and which classes are confused: a rate, a range, or that it cannot be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from trivet.distances import Array
from trivet.label_noise.classifiers import ClassScores, class_scores, logistics
from trivet.label_noise.deepest import DOUBLE, QUANTILE, deepest_share, wilson
from trivet.label_noise.duplicates import conflicting, intrinsic_dimension
from trivet.label_noise.neighbourhoods import NEIGHBOURS, LabelledPoints, Neighborhoods, find_neighborhoods
from trivet.label_noise.posterior import Posterior, fit_posterior
from trivet.label_noise.redraws import overlap_excess, redrawn_mistakes
from trivet.metrics.points import Metric
from trivet.runtime.arguments import check_count
from trivet.runtime.arrays import Booleans, Floats, Integers

LIGHTEST = 0.02  # weight of an item in the second views
NEAR = 0.03  # how far the upper end may be from the lower one for a single number to be told
KNOWS = 0.1  # of the way from chance to 1 that the agreement must go for labels to be judged
UNSURE = 0.1  # share that overlap explains of the deepest items, above which they tell of nothing else
EVEN = 0.4  # evenness of the deepest that disagree, below which they lie towards the class of their label
SPARSE = 0.75  # place by distance to the neighbours, above which those that disagree are of a class that lies around
LONG = 1.5  # times as far from the mean of their class as all items: the deepest are deep for long rows
CHECKED, PEERS = 1000, 3  # of them at most, each beside so many that agree at least
FEW, EVENLY, HALVINGS = 500, 0.8, 5  # items of which a judge is doubted, and when not
HALF = 0.5  # of the deepest items, of which so many disagree that the embedding is doubted rather than the labels
LINE = 1.5  # dimensions in which the nearest items spread, up to which overlap may look like any mistakes
EACH, MOST_SIMULATED = 60, 5000  # items of a class, and of all, below which calls are simulated
BEYOND, EVENLY_BEYOND = 2.5, 1.0  # standard deviations of the redraws: in general, and where as many disagree of all
SHRINK = 20  # items that a row of the transition counts for beside those of its class, in its interval
FLOOR = 0.02  # a lower end up to which right labels reach as well, where classes overlap; it counts as 0
SURELY = 3.0  # standard deviations by which the agreement must exceed chance

Answer = Literal["estimated", "cannot-tell", "uninformative"]


@dataclass(frozen=True, eq=False)
class NoiseEstimate:
    """An estimate of label noise; C classes, in ascending order of their labels.

    Attributes:
        verdict: "estimated"; "cannot-tell" if wrong labels and classes that overlap cannot be told apart;
            "uninformative" if the embedding knows too little of the labels to judge any.
        rate: share of wrong labels, in [0, 1]; None unless estimated.
        interval: a 95 % interval of that share; None if uninformative. See `estimate_noise` for what it covers.
        reason: why there is no rate, and what to do, in a sentence; empty if estimated.
        least: the share of labels that overlap does not explain: the lower end without its errors or, where that is 0,
            without those of overlap; the rate, if estimated.
        slope: by which the log odds of `find_suspects` are multiplied, in (0, 1]: below 1 where labels that are redrawn
            on this embedding show that a fit is surer than right.
        agreement: share of the labels that are the most probable class, for a judge who does not know the label.
        surest: a 95 % interval of the share of labels that disagree where the embedding is surest, for sampling only.
        transition: `(C, C)`, T[i, j] = P(observed j | true i); rows add up to 1. None for over 1,000 classes.
        transition_low, transition_high: `(C, C)`, 95 % interval of each entry, for sampling only.
        priors: `(C,)` shares of the true classes.
        method: in words, for a report.
    """

    verdict: Answer
    rate: float | None
    interval: tuple[float, float] | None
    reason: str
    least: float
    slope: float
    agreement: float
    surest: tuple[float, float]
    transition: Floats | None
    transition_low: Floats | None
    transition_high: Floats | None
    priors: Floats
    neighbours: int
    method: str

    @property
    def accuses(self) -> bool:
        """Return whether labels may be changed by their probability alone: some must be wrong, or a rate is told."""
        return self.rate is not None or (self.interval is not None and self.interval[0] > 0)


def estimate_noise(
    embeddings: Array,
    labels: Array,
    *,
    neighbours: int | None = None,
    folds: Array | None = None,
    seed: int = 0,
    distance: Metric = "cosine",
) -> NoiseEstimate:
    """The rate of wrong labels, or the range in which it lies where overlapping classes would look the same.

    Views of each item leave its own label out: linear classifiers and its neighbours (`classifiers.class_scores`).
    They are combined into probabilities p(c | x) of its true class, weighted so that the labels are likeliest as drawn
    from p T, T the transition of the noise (`posterior.fit_posterior`), whose rate is at least the lower end below.
    Where classes overlap, p is spread over them, and a label that disagrees there may be right or wrong: nothing in
    embeddings and labels tells the two apart, so there are two ends.

    The lower one is read where least overlaps: of the fifth of the items whose most probable class is furthest
    ahead of the next, the share whose label is another one, less the share that p expects there. If of a larger share
    (0.3, 0.45, 0.6, 0.8, 1) no more disagree than of the smaller ones, beyond a standard error of the difference, that
    is taken, for its sampling error is smaller. Equal rows with several labels overlap by definition and are not read.
    It is 0 where these items tell of nothing but overlap:

    * no more of the deepest disagree than of labels that are redrawn on this embedding as if classes only overlapped
      (`redraws.overlap_excess`), by 2.5 standard deviations, or by one where about as many disagree of all; of fewer
      than 500 items the rule for few stands for this;
    * the nearest items spread in 1.5 dimensions or less, where overlap may look like any mistakes;
    * p expects more than a tenth of them to disagree;
    * half of them do, or a share larger than that of all labels that agree: the embedding is to be doubted;
    * they lie 1.5 times as far from the mean of their most probable class as all items do, as rows of random length;
    * those that disagree lie towards the class of their label. A wrong label falls on any item of a class, an item
      where classes overlap has the label of the class next to it: of the deepest items of the same most probable
      class, those that have it as their label are ranked by how much less probable the other one's is. The mean place
      of those that disagree, 0 next to the class of their label and 1 farthest from it, must be 0.4;
    * those that disagree lie in sparser places, as the items of a class that lies around another one do: ranked by the
      mean distance to their neighbours among the same items, their mean place must be at most 0.75.

    The upper end is the share of all items whose label is not the most probable class, as if nothing were overlap.
    Sampling error is added to both (Wilson), and to the lower one once more what p expects; a lower end of 2 % or less
    then counts as 0, for embeddings put as many right labels deep into another class.

    With fewer than 60 items in a class on average, of fewer than 5,000, labels are simulated on this embedding
    (`redraws.redrawn_mistakes`): the lower end is multiplied by the share of it that was wrong there, and the log odds
    of `find_suspects` by the slope that is right there.

    Of fewer than 500 items, classifiers are surer than they should be. There the lower end is 0 unless about as many
    of the deepest disagree as of all, or four fifths as many, and judges of half of the items name the same classes of
    the deepest in nine of ten cases; the upper end is that of three standard deviations. With two or three classes and
    fewer items than dimensions both the rate and the upper end may still be too low.

    If as many of the deepest items disagree as of all, within 3 points, their share is told as the rate; else the
    verdict is "cannot-tell". It is "uninformative" if the most probable class agrees with the labels hardly more often
    than the largest class would: by less than a tenth of the way to full agreement, or within three standard
    deviations.

    Mistakes that are rarer in the classes the embedding knows best are above the lower end, as are those made where
    classes meet. Not seen at all: mistakes in whole groups of like items, and those a network was trained on and has
    memorised. Measured in studies/label_noise.py.

    Args:
        embeddings: `(N, d)` floating point, N >= 2, best of a network that was not trained on these labels, or
            out-of-fold.
        labels: `(N,)` of any integer dtype, of at least two classes.
        neighbours: k; None for 50, or all others where there are fewer.
        folds: `(N,)` integers, which network made a row, where several did; rows of different ones are not compared.
        seed: of the splits of the fit, and of its sample of 20,000 items if there are more; not negative.
        distance: "cosine" or "euclidean".

    Raises:
        ValueError: if shapes or dtypes disagree, a row is not finite, there is one class only, a number is out of
            range, or an item has not `neighbours` others to be compared with.

    Source:
        Labels as drawn from p T, read where p is sure: Patrini et al., "Making Deep Neural Networks Robust to Label
        Noise", CVPR 2017, section 4. The share: Lepskii, "On a problem of adaptive estimation in Gaussian white noise",
        Theory of Probability and its Applications 35, 1991. The ends, and all numbers, are chosen here.

    Example:
        >>> random = np.random.default_rng(0)
        >>> labels = np.repeat([0, 1], 100)
        >>> points = random.normal(size=(200, 4)) + 6 * labels[:, None]
        >>> labels[::10] = 1 - labels[::10]
        >>> estimate = estimate_noise(points, labels, distance="euclidean")
        >>> estimate.verdict, round(estimate.rate, 2)
        ('estimated', 0.1)
    """
    return judge(embeddings, labels, neighbours, folds, seed, distance).noise


@dataclass(frozen=True, eq=False)
class NoiseAnalysis:
    """An estimate, and what it rests on."""

    setting: LabelledPoints
    around: Neighborhoods
    views: ClassScores
    model: Posterior
    noise: NoiseEstimate


def judge(
    embeddings: Array, labels: Array, neighbours: int | None, folds: Array | None, seed: int, distance: Metric
) -> NoiseAnalysis:
    """The steps of `estimate_noise`."""
    k = None if neighbours is None else check_count(neighbours, name="neighbours")
    setting = LabelledPoints.of(embeddings, labels, folds=folds, distance=distance, neighbours=k, seed=seed)
    around, unweighted, first = _first_fit(setting, k, seed)
    # Once more, with logistic regression, an item counting by the probability that its label is right. The estimate
    # rests on the first time: an item's label has a part in the weights of the others, and so in the second views of
    # itself.
    weights = np.clip(first.posterior[:, 0], LIGHTEST, 1.0)
    views = class_scores(setting, around, weights, logistics(setting, weights, seed))
    model = fit_posterior(views, setting.classes, len(setting.values), seed=seed)
    noise = _verdict(setting, around, unweighted, first, views, model, seed)
    return NoiseAnalysis(setting, around, views, model, noise)


def _first_fit(setting: LabelledPoints, k: int | None, seed: int) -> tuple[Neighborhoods, ClassScores, Posterior]:
    """The neighbours, the views from items that all count alike, and the model fitted to them."""
    around = find_neighborhoods(setting, max(1, min(NEIGHBOURS, setting.comparable)) if k is None else k)
    views = class_scores(setting, around, np.ones(len(setting.classes)), ())
    return around, views, fit_posterior(views, setting.classes, len(setting.values), seed=seed)


def _verdict(
    setting: LabelledPoints,
    around: Neighborhoods,
    unweighted: ClassScores,
    first: Posterior,
    views: ClassScores,
    model: Posterior,
    seed: int,
) -> NoiseEstimate:
    k = around.indices.shape[1]
    items, count = len(setting.classes), len(setting.values)
    disagrees = first.best != setting.classes
    agreement, disagreement = float((~disagrees).mean()), float(disagrees.mean())
    chance = float(np.bincount(setting.classes).max() / items)
    order = np.argsort(-first.depth, kind="stable")
    order = order[~conflicting(around, setting.classes)[order]]
    deep, anchors = deepest_share(disagrees[order])
    surest = wilson(deep, anchors)
    deep = min(deep, disagreement)
    overlap = float(1 - first.surety[order[:anchors]].mean()) if len(order) else 1.0  # what p expects to disagree there
    sure = overlap <= UNSURE and deep < min(HALF, agreement)
    near, few = disagreement - deep <= NEAR, len(order) < FEW
    even = near or deep >= EVENLY * disagreement
    if sure and deep > 0:
        sure = _reach(setting, first.best, order[:anchors]) < LONG
    if sure and deep > 0:
        nearer, farther = _evenness(unweighted, first, around, setting.classes, order[:anchors], seed)
        sure = nearer >= EVEN and farther <= SPARSE
    if sure and deep > 0 and few:
        sure = even and _wavers(setting, first, order[:anchors], seed) <= UNSURE
    if sure and deep > FLOOR:
        sure = intrinsic_dimension(around.distances) > LINE
    if sure and deep > FLOOR and not few:
        sure = overlap_excess(setting, seed) > (EVENLY_BEYOND if even else BEYOND)
    settled = sure and near
    least = deep if settled else max(0.0, deep - overlap) if sure else 0.0
    low, slope = float(wilson(deep, anchors)[0]) - DOUBLE * overlap if sure else 0.0, 1.0
    if sure and not settled and low > FLOOR and items < min(EACH * count, MOST_SIMULATED):
        mistakes = redrawn_mistakes(setting, around, unweighted, first, least, _least, seed)
        least, slope = least * mistakes.share, mistakes.slope
        low = min(low, least)
    if sure and not settled and low <= FLOOR:  # no label must be wrong: what a few of the deepest say may be chance
        least = max(0.0, min(least, float(wilson(deep, anchors)[0]) - overlap))
    high = float(wilson(disagreement, items, SURELY if few else QUANTILE)[1])
    interval: tuple[float, float] | None = (low if low > FLOOR else 0.0, high)
    verdict: Answer = "estimated"
    reason = ""
    if agreement - chance < KNOWS * (1 - chance) or wilson(agreement, items, SURELY)[0] <= chance:
        verdict, interval = "uninformative", None
        named = f"always naming the largest class would tell {100 * chance:.1f} %"
        if count == items:
            reason = (
                "Every class has a single item, so nothing tells whether its label is right. Bring labels that several "
                "items share."
            )
        elif agreement - chance >= KNOWS * (1 - chance):
            reason = (
                "There are too few items, or too few outside the largest class, to tell whether the embedding knows "
                f"the labels: it tells {100 * agreement:.1f} % of {items}, and {named}. Bring more items, or vectors "
                "of a pretrained encoder."
            )
        else:
            reason = (
                f"The embedding and the labels agree too little to judge any: on {100 * agreement:.1f} %, and {named}. "
                "Either it does not separate the classes, or too many of these labels are wrong. Bring an embedding "
                "that separates the classes, such as vectors of a pretrained encoder."
            )
    elif not settled:
        verdict = "cannot-tell"
        where = f"where it is surest, {100 * deep:.1f} % do"
        reason = (
            f"{100 * disagreement:.1f} % of the labels disagree with the embedding; {where}"
            f"{', more than overlap explains' if low > FLOOR else ''}. The others may be wrong, or their classes "
            "may not be separable in this embedding; one that separates them better would tell."
        )
    low_t, high_t = None, None
    priors = np.bincount(views.candidates.ravel(), model.posterior.ravel(), count) / items
    if model.transition is not None:
        low_t, high_t = wilson(model.transition, priors[:, None] * items + SHRINK)
    return NoiseEstimate(
        verdict=verdict,
        rate=least if verdict == "estimated" else None,
        interval=interval,
        reason=reason,
        least=least,
        slope=slope,
        agreement=agreement,
        surest=(float(surest[0]), float(surest[1])),
        transition=model.transition,
        transition_low=low_t,
        transition_high=high_t,
        priors=priors,
        neighbours=k,
        method=f"linear classifiers and the {k} nearest neighbours ({setting.distance}), without the item's own label",
    )


def _least(model: Posterior, classes: Integers) -> float:
    """The lower end without its errors, where nothing speaks against it."""
    order = np.argsort(-model.depth, kind="stable")
    deep, anchors = deepest_share((model.best != classes)[order])
    return max(0.0, deep - float(1 - model.surety[order[:anchors]].mean()))


def _reach(setting: LabelledPoints, best: Integers, deepest: Integers) -> float:
    """Distance of the deepest from the mean of their most probable class, over that of all items: medians."""
    classes = torch.from_numpy(best)
    sums = torch.zeros((len(setting.values), setting.points.shape[1]), dtype=setting.points.dtype)
    sums.index_add_(0, classes, setting.points)
    means = sums / torch.bincount(classes, minlength=len(sums)).clamp_min(1)[:, None]
    far = torch.linalg.vector_norm(setting.points - means[classes], dim=1).numpy()
    return float(np.median(far[deepest]) / max(float(np.median(far)), 1e-300))


def _evenness(
    views: ClassScores, first: Posterior, around: Neighborhoods, classes: Integers, deepest: Integers, seed: int
) -> tuple[float, float]:
    """Mean ranks of the deepest that disagree among those that agree: see `estimate_noise`; 0.5 if none tells."""
    rows = views.scores[deepest] @ first.powers + np.where(views.repeated[deepest], -np.inf, 0.0)
    behind = rows.max(axis=1, keepdims=True) - rows  # how much less probable each candidate is
    candidates, best, labels = views.candidates[deepest], first.best[deepest], classes[deepest]
    disagrees = np.flatnonzero(best != labels)
    if len(disagrees) > CHECKED:
        disagrees = np.sort(np.random.default_rng(seed).permutation(disagrees)[:CHECKED])
    spread = around.distances[deepest].mean(axis=1)
    ranks, spreads = [], []
    for item in disagrees.tolist():
        peers = (best == best[item]) & (labels == best[item])
        others = behind[peers][candidates[peers] == labels[item]]
        others = others[np.isfinite(others)]
        if len(others) >= PEERS:
            labels_behind = behind[item, 0]
            ranks.append(float((others < labels_behind).mean() + (others == labels_behind).mean() / 2))
        if peers.sum() >= PEERS:
            spreads.append(float((spread[peers] < spread[item]).mean() + (spread[peers] == spread[item]).mean() / 2))
    return float(np.mean(ranks)) if ranks else 0.5, float(np.mean(spreads)) if spreads else 0.5


def _wavers(setting: LabelledPoints, first: Posterior, deepest: Integers, seed: int) -> float:
    """Share of the deepest items for which a judge of half of the items names another class, over five halvings."""
    random = np.random.default_rng(seed)
    wavering: list[Booleans] = []
    for _ in range(HALVINGS):
        drawn = random.permutation(len(setting.classes))
        for rows in (np.sort(drawn[: len(drawn) // 2]), np.sort(drawn[len(drawn) // 2 :])):
            half = setting.subset(rows)
            if half is None:
                return 1.0
            best = half.values[_first_fit(half, None, seed)[2].best]
            deep = np.isin(rows, deepest)
            wavering.append((best != setting.values[first.best[rows]])[deep])
    return float(np.concatenate(wavering).mean())
