"""The true class of an item, given views of it and its label: the model that probabilities rest on, fitted by EM."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from trivet.label_noise.classifiers import NEAREST, ClassScores
from trivet.label_noise.logistic import FITTED, FOLDS
from trivet.metrics.folds import stratified_folds
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.progress import steps

LEAST = 1e-4  # power of a view
COPIED = 0.01  # share of the labels that are taken for copied from a neighbour at least
MOST = 0.9  # share of the labels of a class that are wrong
ROUNDS, SETTLED = 40, 1e-6  # of EM at most; it ends where the mean log-likelihood gains less
PSEUDO = (5.0, 20.0, 100.0, 500.0, 1e9)  # items of even noise in a row of the transition; the best is kept
COUNTED = 1000  # classes; of more, no transition is counted
EVEN = 1e6  # shape of the gamma distribution where the counts of a column vary no more than by chance
DEEPEST = 0.2  # share of the items, those of which a class is surest, that tell where wrong labels go
ASTRAY = 0.1  # of the labels, by which the fit may agree with fewer of them than classes that only overlap
SURE = 0.99  # mean probability of the most probable class, from which the fit with confusions sets out


@dataclass(frozen=True, eq=False)
class Posterior:
    """A fitted model of the labels: drawn from T[c, .], c from p(c | x), the product of the views to the powers s."""

    powers: Floats  # `(V,)` s
    # `(C, C)` T[i, j] = P(label j | true class i), counted on all items; None for over 1,000 classes.
    transition: Floats | None
    best: Integers  # `(N,)` the most probable class given x alone; of equal ones the item's own
    surety: Floats  # `(N,)` P(true class is the most probable one | x)
    depth: Floats  # `(N,)` how much more probable it is than the next one: the logarithm of the ratio, given x alone
    posterior: Floats  # `(N, M)` P(true class is the candidate | x, label)
    other: Integers  # `(N,)` which candidate the true class is if it is not the label's: see `_other`
    copied: float  # share of the labels that are taken from a neighbour, besides T: see `_copied`
    # `(N,)` logarithm of the odds that the label is wrong, with the T of `_of_deepest` and the copied labels.
    doubt: Floats


def fit_posterior(views: ClassScores, classes: Integers, count: int, *, seed: int) -> Posterior:
    """Fit the powers of the views and the transition by EM.

    p(c | x) is proportional to exp(s_1 g_1(c) + s_2 g_2(c) + ...), g being the scores of the views: flat where classes
    overlap, so that labels that disagree there need not be wrong. T is counted; its rows are shrunk towards even noise
    by as many items as give the labels of other folds the highest likelihood, and each label is explained by the T of
    the other folds. The fit sets out from the labels against the most probable classes. Over 1,000 classes the noise is
    taken for even.

    Where the most probable classes then agree with the labels by a tenth of them less often than those of
    `fit_overlap`, a transition that exchanges classes was likeliest: its powers are taken, and T as counted with them.

    The numbers are fitted to at most 20,000 items, drawn at random.
    """
    random = np.random.default_rng(seed)
    fold = stratified_folds(classes, FOLDS, random)
    blocked = np.where(views.repeated, -np.inf, 0.0)
    items = all_items = _Items(views.candidates, views.scores, blocked, classes, fold, count)
    if len(classes) > FITTED:
        items = all_items.some(np.sort(random.permutation(len(classes))[:FITTED]))
    state = _fit(items, _counted(items, _sure(items)))
    overlap = _likeliest(items)
    if _agreement(items, state.powers) < _agreement(items, overlap) - ASTRAY:
        state = _counted(items, overlap)
    return _posterior(all_items, state, _of_deepest(items, state))


@dataclass(frozen=True, eq=False)
class Overlap:
    """A fitted model of labels that are all right: each drawn from p(c | x), spread where classes overlap."""

    powers: Floats  # `(V,)`
    best: Integers  # `(N,)` the most probable class; of equal ones the item's own
    depth: Floats  # `(N,)` logarithm of how many times as probable it is as the next one
    candidates: Integers  # `(N, M)`
    logs: Floats  # `(N, M)` logarithm of p(c | x), up to a number for each item; -inf where a candidate is repeated

    def draw(self, stretch: float, random: np.random.Generator) -> Integers:
        """Labels `(N,)` drawn from p to a power."""
        column = drawn_columns(_normalised(stretch * self.logs), random)
        return np.asarray(self.candidates[np.arange(len(column)), column])


def drawn_columns(weights: Floats, random: np.random.Generator) -> Integers:
    """Columns `(N,)` drawn with the weights `(N, M)` of each row."""
    sums = weights.cumsum(axis=1)
    return np.asarray((sums <= random.random(len(sums))[:, None] * sums[:, -1:]).sum(axis=1))


def fit_overlap(views: ClassScores, classes: Integers, count: int) -> Overlap:
    """Fit the powers of the views to labels taken for right, by maximum likelihood (Newton; it is concave)."""
    blocked = np.where(views.repeated, -np.inf, 0.0)
    items = _Items(views.candidates, views.scores, blocked, classes, np.zeros(len(classes), np.int64), count)

    powers = _likeliest(items)
    logs = items.logs(powers)
    best = items.candidates[np.arange(len(classes)), logs.argmax(axis=1)]
    return Overlap(powers, best, items.depth(powers), items.candidates, logs)


@dataclass(frozen=True, eq=False)
class _Items:
    """Some of the items of the views, ready for EM; -inf where a candidate is blocked, elsewhere 0."""

    candidates: Integers
    scores: Floats
    blocked: Floats
    labels: Integers
    fold: Integers
    count: int

    def some(self, rows: Integers) -> _Items:
        return replace(self, **{name: values[rows] for name, values in vars(self).items() if name != "count"})

    def logs(self, powers: Floats) -> Floats:
        """Logarithm of p(c | x) `(N, M)`, up to a number for each item."""
        return np.asarray(self.scores @ powers + self.blocked)

    def depth(self, powers: Floats) -> Floats:
        """Lead of the most probable class over the next `(N,)`, by `logs`."""
        first = np.partition(self.logs(powers), -2, axis=1)
        return np.asarray(first[:, -1] - first[:, -2])

    def features(self, powers: Floats) -> Floats:
        """P(true class is the candidate | x) `(N, M)`."""
        return _normalised(self.logs(powers))

    def nearby(self) -> Floats:
        """The share of the candidate among the neighbours `(N, M)`."""
        return _normalised(self.scores[:, :, NEAREST] + self.blocked)


def _normalised(logs: Floats) -> Floats:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _Counts:
    """Counts of true classes and labels in each fold: `(FOLDS, C, C)`."""

    by_fold: Floats

    @classmethod
    def of(cls, candidates: Integers, posterior: Floats, labels: Integers, fold: Integers, count: int) -> _Counts:
        cell = (fold[:, None] * count + candidates) * count + labels[:, None]
        flat = np.bincount(cell.ravel(), posterior.ravel(), FOLDS * count * count)
        return cls(np.asarray(flat, np.float64).reshape(FOLDS, count, count))

    def transition(self, rate: float, pseudo: float) -> Floats:
        """Shares of the labels of each class `(C, C)`, shrunk towards even noise; in all at least the rate is wrong."""
        return np.asarray(_shrunk(self.by_fold.sum(axis=0, keepdims=True), rate, pseudo)[0])

    def transitions(self, rate: float, pseudo: float) -> Floats:
        """The same for each fold, by the counts of the others: `(FOLDS, C, C)`."""
        return _shrunk(np.maximum(self.by_fold.sum(axis=0) - self.by_fold, 0.0), rate, pseudo)


def _shrunk(counts: Floats, rate: float, pseudo: float) -> Floats:
    sizes = counts.sum(axis=2)
    even = rate / (counts.shape[1] - 1)  # symmetric noise; the diagonal is set below
    table = (counts + pseudo * even) / (sizes[:, :, None] + pseudo)
    classes = np.arange(counts.shape[1])
    table[:, classes, classes] = 0.0
    wrong = table.sum(axis=2)
    factor = rate * sizes.sum(axis=1) / np.maximum((sizes * wrong).sum(axis=1), 1e-300)
    scaled = np.maximum(wrong, np.minimum(wrong * np.maximum(factor, 1.0)[:, None], MOST))
    table *= (scaled / np.maximum(wrong, 1e-300))[:, :, None]
    table[:, classes, classes] = 1 - scaled
    return np.asarray(table)


@dataclass(frozen=True, eq=False)
class _State:
    """The numbers that EM moves, and where wrong labels go: as counted, or evenly."""

    powers: Floats
    rate: float
    counts: _Counts | None
    pseudo: float

    @property
    def prior(self) -> float:
        """Items of even noise in an entry of the transition off its diagonal."""
        return self.pseudo * self.rate / (self.counts.by_fold.shape[1] - 1) if self.counts is not None else math.inf

    def explained(self, items: _Items) -> Floats:
        """P(label | true class is the candidate) `(N, M)`, by the counts of the other folds, without its own."""
        if self.counts is None:
            return np.where(items.candidates == items.labels[:, None], 1 - self.rate, self.rate / (items.count - 1))
        tables = self.counts.transitions(self.rate, self.pseudo)
        return np.asarray(tables[items.fold[:, None], items.candidates, items.labels[:, None]])

    def joint(self, items: _Items, features: Floats) -> tuple[Floats, Floats]:
        """P(true class is the candidate, label | x) `(N, M)`, and its sums over the candidates `(N,)`."""
        joint = features * self.explained(items)
        return joint, np.maximum(joint.sum(axis=1), 1e-300)


def _fit(items: _Items, state: _State) -> _State:
    """EM: given classes, then powers (Newton), rate, and counts if there are."""
    before, features = -math.inf, items.features(state.powers)
    for turn in steps(range(ROUNDS), "fitting the label noise, rounds at most"):
        joint, total = state.joint(items, features)
        gained = float(np.log(total).mean())
        if turn > 4 and abs(gained - before) < SETTLED:
            break
        before = gained
        posterior = joint / total[:, None]
        powers = _newton(items, state.powers, features, posterior)
        features = items.features(powers)
        # Else labels could be explained as well by classes that overlap everywhere, and none would be wrong.
        rate = max(float(np.clip(1 - posterior[:, 0].mean(), 1e-6, 1 - 1e-6)), _rate(items, powers))
        counts, pseudo = None, 0.0
        if state.counts is not None:
            counts = _Counts.of(items.candidates, posterior, items.labels, items.fold, items.count)
            pseudo = state.pseudo
            if turn % 5 == 1:
                pseudo = max(
                    PSEUDO,
                    key=lambda value: np.log(_State(powers, rate, counts, value).joint(items, features)[1]).mean(),
                )
        state = _State(powers, rate, counts, pseudo)
    return state


def _deepest(items: _Items, powers: Floats) -> tuple[_Items, Integers]:
    """The fifth of the items whose most probable class is furthest ahead of the next, and those classes."""
    few = max(1, round(DEEPEST * len(items.labels)))
    deepest = items.some(np.argsort(-items.depth(powers), kind="stable")[:few])
    return deepest, deepest.candidates[np.arange(few), deepest.logs(powers).argmax(axis=1)]


def _rate(items: _Items, powers: Floats) -> float:
    """The share of the deepest fifth whose label is not the most probable class."""
    deepest, best = _deepest(items, powers)
    return float(np.clip((best != deepest.labels).mean(), 1e-6, 1 - 1e-6))


def _of_deepest(items: _Items, state: _State) -> _State:
    """The same with T counted on the deepest fifth, of the most probable classes against the labels.

    The other T counts labels that are right where classes overlap as if they went from one class to the other.
    """
    if state.counts is None:
        return state
    deepest, best = _deepest(items, state.powers)
    counts = _Counts.of(best[:, None], np.ones((len(best), 1)), deepest.labels, deepest.fold, items.count)
    rate = max(_rate(items, state.powers), 0.5 / len(best))  # none among few may be chance

    def likelihood(pseudo: float) -> float:
        share = counts.transitions(rate, pseudo)[deepest.fold, best, deepest.labels]
        return float(np.log(np.maximum(share, 1e-300)).sum())

    return _State(state.powers, rate, counts, max(PSEUDO, key=likelihood))


def _copied(items: _Items, state: _State) -> float:
    """The share b of the labels that are taken from a neighbour, by maximum likelihood.

    People err where classes meet: they name a class that the item resembles. So besides T, which is the same for all
    items of a class, a label is that of a neighbour with probability b. With the share l(y) of the label y nearby,

        P(y | c, x) = T[c, y] + b (l(y) - [c = y]),    P(y | x) = sum over c of p(c | x) T[c, y] + b (l(y) - p(y | x)),

    the logarithm of which is concave in b. b is at most half of what T leaves right, and at least 0.01, or the rate of
    T where that is less: T says little of pairs of classes that it has seen few items of.
    """
    nearby, features, explained = items.nearby()[:, 0], items.features(state.powers), state.explained(items)
    without, more = np.maximum((features * explained).sum(axis=1), 1e-300), nearby - features[:, 0]
    low, high = 0.0, min(1.0, float(np.min(explained[:, 0] / np.maximum(1 - nearby, 1e-12)))) / 2
    for _ in range(30):
        middle = (low + high) / 2
        rises = float((more / np.maximum(without + middle * more, 1e-300)).sum()) > 0
        low, high = (middle, high) if rises else (low, middle)
    return max(low, min(COPIED, state.rate))


def _newton(items: _Items, powers: Floats, features: Floats, posterior: Floats) -> Floats:
    """Powers that make their features likelier, given the probabilities of the classes; two steps, each concave.

    A step that leads a power below the least one is taken again for the others, with that power at the least one.
    """
    wanted = posterior.ravel() @ items.scores.reshape(-1, len(powers))
    moved = _step(items, powers, features, wanted)
    return _step(items, moved, items.features(moved), wanted)


def _likeliest(items: _Items) -> Floats:
    """Powers with which the labels are likeliest as drawn from p(c | x); the logarithm is concave in them."""

    def likelihood(powers: Floats) -> float:
        return float(np.log(np.maximum(items.features(powers)[:, 0], 1e-300)).mean())

    powers, wanted = np.full(items.scores.shape[2], LEAST), items.scores[:, 0].sum(axis=0)
    gained, before = likelihood(powers), -math.inf
    for _ in range(ROUNDS):
        if gained - before < SETTLED:
            break
        before, step = gained, _step(items, powers, items.features(powers), wanted) - powers
        for halving in range(20):
            value = likelihood(powers + step / 2**halving)
            if value > gained:
                powers, gained = powers + step / 2**halving, value
                break
    return powers


def _agreement(items: _Items, powers: Floats) -> float:
    """The share of the labels that are the most probable class."""
    return float((items.logs(powers).argmax(axis=1) == 0).mean())


def _counted(items: _Items, powers: Floats) -> _State:
    """A state of these powers, its transition counted on the most probable classes."""
    best = items.candidates[np.arange(len(items.labels)), items.logs(powers).argmax(axis=1)]
    counts = None
    if items.count <= COUNTED:
        counts = _Counts.of(best[:, None], np.ones((len(best), 1)), items.labels, items.fold, items.count)
    return _State(powers, max(float((best != items.labels).mean()), 1e-3), counts, PSEUDO[0])


def _step(items: _Items, powers: Floats, features: Floats, wanted: Floats) -> Floats:
    views = len(powers)
    weighted = (features[:, :, None] * items.scores).reshape(-1, views)
    means = (features[:, None] @ items.scores)[:, 0]
    curve = weighted.T @ items.scores.reshape(-1, views) - means.T @ means
    curve += (1e-9 * curve.trace() + 1e-300) * np.eye(len(curve))
    slope, free = wanted - means.sum(axis=0), np.ones(len(powers), np.bool_)
    while free.any():
        moved = powers.copy()
        moved[free] += np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        below = free & (moved < LEAST)
        if not below.any():
            return moved
        powers, free = np.where(below, LEAST, powers), free & ~below
    return powers


def _posterior(items: _Items, state: _State, deepest: _State) -> Posterior:
    features = items.features(state.powers)
    joint, total = state.joint(items, features)
    copied, nearby = _copied(items, deepest), items.nearby()
    explained = deepest.explained(items)
    explained[:, 0] -= copied * (1 - nearby[:, 0])
    explained[:, 1:] += copied * nearby[:, :1]
    logs = items.logs(state.powers) + np.log(np.maximum(explained, 1e-12))
    highest = logs[:, 1:].max(axis=1)
    rest = highest + np.log(np.exp(logs[:, 1:] - highest[:, None]).sum(axis=1))
    posterior = joint / total[:, None]
    return Posterior(
        powers=state.powers,
        transition=None if state.counts is None else state.counts.transition(state.rate, state.pseudo),
        best=items.candidates[np.arange(len(features)), features.argmax(axis=1)],
        surety=features.max(axis=1),
        depth=items.depth(state.powers),
        posterior=posterior,
        other=posterior[:, 1:].argmax(axis=1) + 1
        if state.counts is None
        else _other(items, posterior, features, state.prior),
        copied=copied,
        doubt=rest - logs[:, 0],
    )


def _other(items: _Items, posterior: Floats, features: Floats, prior: float) -> Integers:
    """The place `(N,)` of the class that an item most probably has if its label y is wrong; never that of its label.

    It is the c of the largest p(c | x) (n_cy + k_y) / (n_c + k_y / m_y), n_c being how many of the other items have the
    true class c, and n_cy how many of these the label y, by `posterior`. n_cy is taken for drawn by Poisson with the
    mean n_c t, and the share t of each class by a gamma distribution of mean m_y and shape k_y: the fraction is the
    mean of t given the counts. m_y and k_y are estimated by moments from the column, k_y being at least the prior of
    the transition. Where the wrong labels of y come from one class, k_y is small, and that class is proposed; where
    single items alone speak for this one or that, k_y is large, and p(c | x) decides.

    Source:
        Gamma and Poisson, by moments: Clayton, Kaldor, "Empirical Bayes estimates of age-standardized relative risks
        for use in disease mapping", Biometrics 43, 1987.
    """
    cell = items.candidates * items.count + items.labels[:, None]
    counts = np.bincount(cell.ravel(), posterior.ravel(), items.count**2).reshape(items.count, items.count)
    off, sizes = ~np.eye(items.count, dtype=np.bool_), counts.sum(axis=1)
    mean = counts.sum(axis=0, where=off) / np.maximum(off @ sizes, 1e-300)
    expected = sizes[:, None] * mean
    variance = (np.square(counts - expected) - expected).sum(axis=0, where=off) / np.maximum(off @ sizes**2, 1e-300)
    shape = np.full(items.count, EVEN)
    np.divide(mean**2, variance, out=shape, where=variance > mean**2 / EVEN)
    shape = np.maximum(shape, prior)
    labels = items.labels[:, None]
    share = (counts[items.candidates, labels] - posterior + shape[labels]) / (
        sizes[items.candidates] - posterior + shape[labels] / np.maximum(mean[labels], 1e-12)
    )
    weight = features * share
    weight[items.blocked < 0] = -1.0
    weight[:, 0] = -2.0
    return np.asarray(weight.argmax(axis=1))


def _sure(items: _Items) -> Floats:
    """Powers that let all views count alike and make the most probable class probable."""
    gaps = []
    for view in range(items.scores.shape[2]):
        logs = items.scores[:, :, view] + items.blocked
        first = np.partition(logs, -2, axis=1)
        gaps.append(max(float((first[:, -1] - first[:, -2]).mean()), 1e-9))
    low, high = -7.0, 7.0
    for _ in range(30):
        middle = (low + high) / 2
        sure = items.features(math.exp(middle) / np.array(gaps)).max(axis=1).mean()
        low, high = (middle, high) if sure < SURE else (low, middle)
    return np.asarray(math.exp(low) / np.array(gaps))
