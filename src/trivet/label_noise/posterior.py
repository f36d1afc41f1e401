"""The true class of an item, given two views of it and its label: fitted by maximum likelihood, without true labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trivet.geometry.arrays import Floats, Integers
from trivet.label_noise.views import Views

FOLDS = 5  # a label is explained by a transition that was counted on the items of the other folds
ROUNDS, SETTLED = 40, 1e-6  # of EM at most; it ends where the mean log-likelihood gains less
PSEUDO = (5.0, 20.0, 100.0, 500.0, 1e9)  # items of even noise in a row of the transition; the best is kept
FITTED = 20_000  # items that the numbers are fitted to at most
COUNTED = 1000  # classes; of more, no transition is counted
SURE = 0.95  # mean probability of the most probable class, from which the fit with confusions sets out


@dataclass(frozen=True, eq=False)
class Posterior:
    """A fitted model of the labels: drawn from T[c, .], c from p(c | x), p proportional to the views to the powers s.

    Attributes:
        likelihood: mean log-likelihood of the labels, by transitions counted on other items.
        powers: `(2,)` s.
        rate: share of wrong labels in [0, 1].
        deviation: standard deviation of the rate, from the information in the items about it and the powers.
        transition: `(C, C)` T[i, j] = P(label j | true class i), counted on all items; None for over 1,000 classes.
        best: `(N,)` the most probable class given x alone; of equal ones the item's own.
        given: `(N, M)` P(true class is the candidate | x, label).
        doubt: `(N,)` logarithm of the odds that the label is wrong.
    """

    likelihood: float
    powers: Floats
    rate: float
    deviation: float
    transition: Floats | None
    best: Integers
    given: Floats
    doubt: Floats


@dataclass(frozen=True, eq=False)
class Fits:
    """Two models of one set: wrong labels by class, and as few as overlap cannot explain."""

    by_class: Posterior
    least: Posterior


def fit_posterior(views: Views, classes: Integers, count: int, *, seed: int) -> Fits:
    """Fit the powers of the views, the rate and the transition by EM.

    With both views p(c | x) proportional to exp(s_1 g_1(c) + s_2 g_2(c)): flat where classes overlap, so that labels
    that disagree there need not be wrong. What the views are sure of and the label denies is wrong: a share of the
    labels, drawn by the transition.

    by_class: T is counted. Its rows are shrunk towards even noise by as many items as give the labels of other folds
        the highest likelihood, and each label is explained by the T of the other folds. The fit sets out from the
        labels against the most probable classes.
    least: wrong labels go to all classes alike, but for the part of T that goes one way, i to j and not j to i. Where
        classes overlap, each is taken for the other, so whatever goes both ways may be overlap, which p may hold as
        well. Maximum likelihood then needs the fewest wrong labels.

    The numbers are fitted to at most 20,000 items, drawn at random.
    """
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(len(classes)), classes))
    fold = np.empty(len(classes), np.int64)
    fold[order] = np.arange(len(classes)) % FOLDS
    fitted = np.arange(len(classes))
    if len(fitted) > FITTED:
        fitted = np.sort(random.permutation(len(classes))[:FITTED])
    part = _Part(views, classes, fold, count, fitted)
    whole = part if len(fitted) == len(classes) else _Part(views, classes, fold, count, np.arange(len(classes)))
    powers = _sure(part)
    best = part.candidates[np.arange(len(fitted)), part.features(powers).argmax(axis=1)]
    rate = max(float((best != part.labels).mean()), 1e-3)
    counts, mixed = None, None
    if count <= COUNTED:
        counts = _Counts.of(best[:, None], np.ones((len(best), 1)), part.labels, part.fold, count)
    by_class = _fit(part, _State(powers, rate, counts, PSEUDO[0]))
    if by_class.counts is not None:
        mixed = by_class.counts.mixed(by_class.counts.one_way(), by_class.rate, by_class.pseudo)
    least = _fit(part, _State(powers, rate / 2, fixed=mixed))
    return Fits(_posterior(part, whole, by_class), _posterior(part, whole, least))


class _Part:
    """Some of the items of the views, ready for EM."""

    def __init__(self, views: Views, classes: Integers, fold: Integers, count: int, rows: Integers) -> None:
        self.candidates, self.scores = views.candidates[rows], views.scores[rows]
        self.blocked = np.where(views.repeated[rows], -np.inf, 0.0)
        self.labels, self.fold, self.count = classes[rows], fold[rows], count

    def features(self, powers: Floats) -> Floats:
        """P(true class is the candidate | x) `(N, M)`."""
        logs = self.scores @ powers + self.blocked
        logs -= logs.max(axis=1, keepdims=True)
        weights = np.exp(logs)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _Counts:
    """How often a true class had a label, in each fold: `(FOLDS, C, C)`."""

    by_fold: Floats

    @classmethod
    def of(cls, candidates: Integers, given: Floats, labels: Integers, fold: Integers, count: int) -> _Counts:
        place = (fold[:, None] * count + candidates) * count + labels[:, None]
        flat = np.bincount(place.ravel(), given.ravel(), FOLDS * count * count)
        return cls(np.asarray(flat, np.float64).reshape(FOLDS, count, count))

    def others(self, fold: int | None) -> Floats:
        """Counts without this fold; of all folds for None."""
        whole = self.by_fold.sum(axis=0)
        return np.asarray(whole if fold is None else np.maximum(whole - self.by_fold[fold], 0.0))

    def transition(self, fold: int | None, rate: float, pseudo: float) -> Floats:
        counts = self.others(fold)
        even = _even(rate, len(counts))
        return np.asarray((counts + pseudo * even) / (counts.sum(axis=1, keepdims=True) + pseudo))

    def one_way(self) -> float:
        """How far wrong labels go one way: 0 if classes are taken for each other equally often, 1 if only one is.

        With r = sum (n_ij - n_ji)^2 / sum (n_ij + n_ji)^2 of counts n off the diagonal, each sum less its chance part,
        it is 2 r - 1, but at least 0: classes that overlap are not taken for each other equally often either.
        """
        off = self.others(None).copy()
        np.fill_diagonal(off, 0.0)
        both = off + off.T
        squares = float((both**2 - both).sum())
        ratio = float((((off - off.T) ** 2) - both).sum()) / squares if squares > 0 else 0.0
        return min(1.0, max(0.0, 2 * ratio - 1))

    def mixed(self, one_way: float, rate: float, pseudo: float) -> Floats:
        """Where wrong labels go `(FOLDS + 1, C, C)`, without each fold and in all: a share as counted, else evenly."""
        even = _even(1.0, self.by_fold.shape[1])
        found = []
        for fold in (*range(FOLDS), None):
            off = self.transition(fold, rate, pseudo)
            np.fill_diagonal(off, 0.0)
            found.append(one_way * off / np.maximum(off.sum(axis=1, keepdims=True), 1e-300) + (1 - one_way) * even)
        return np.stack(found)


@dataclass(frozen=True, eq=False)
class _State:
    """The numbers that EM moves, and where wrong labels go: as counted, in fixed shares, or else evenly."""

    powers: Floats
    rate: float
    counts: _Counts | None = None
    pseudo: float = 0.0
    fixed: Floats | None = None

    def explained(self, part: _Part, *, whole: bool = False) -> Floats:
        """P(label | true class is the candidate) `(N, M)`; by the counts of all folds, or of the others."""
        own = part.candidates == part.labels[:, None]
        if self.counts is None and self.fixed is None:
            return np.where(own, 1 - self.rate, self.rate / (part.count - 1))
        found = np.empty(part.candidates.shape)
        for fold in range(FOLDS):
            rows = part.fold == fold
            if not rows.any():
                continue
            table = self._table(None if whole else fold)
            found[rows] = table[part.candidates[rows], part.labels[rows, None]]
        return found

    def _table(self, fold: int | None) -> Floats:
        if self.counts is not None:
            return self.counts.transition(fold, self.rate, self.pseudo)
        assert self.fixed is not None
        table = self.rate * self.fixed[-1 if fold is None else fold]
        np.fill_diagonal(table, 1 - self.rate)
        return np.asarray(table)

    def transition(self) -> Floats | None:
        return None if self.counts is None and self.fixed is None else self._table(None)


def _fit(part: _Part, state: _State) -> _State:
    """EM: given classes, then powers (Newton), rate, and counts if there are."""
    before = -math.inf
    for turn in range(ROUNDS):
        features = part.features(state.powers)
        joint = features * state.explained(part)
        total = np.maximum(joint.sum(axis=1), 1e-300)
        gained = float(np.log(total).mean())
        if turn > 4 and abs(gained - before) < SETTLED:
            break
        before = gained
        given = joint / total[:, None]
        powers = _newton(part, state.powers, given)
        rate = float(np.clip(1 - given[:, 0].mean(), 1e-6, 1 - 1e-6))
        counts, pseudo = None, 0.0
        if state.counts is not None:
            counts = _Counts.of(part.candidates, given, part.labels, part.fold, part.count)
            pseudo = state.pseudo
            if turn % 5 == 1:
                features = part.features(powers)
                pseudo = max(PSEUDO, key=lambda one: _likelihood(part, _State(powers, rate, counts, one), features))
        state = _State(powers, rate, counts, pseudo, state.fixed)
    return state


def _likelihood(part: _Part, state: _State, features: Floats) -> float:
    return float(np.log(np.maximum((features * state.explained(part)).sum(axis=1), 1e-300)).mean())


def _newton(part: _Part, powers: Floats, given: Floats) -> Floats:
    """Powers that make the features likelier, given the probabilities of the classes; two steps, each concave."""
    wanted = np.einsum("nm,nmv->v", given, part.scores)
    for _ in range(2):
        features = part.features(powers)
        weighted = features[:, :, None] * part.scores
        means = weighted.sum(axis=1)
        curve = np.einsum("nmv,nmw->vw", weighted, part.scores) - means.T @ means
        step = np.linalg.solve(curve + (1e-9 * curve.trace() + 1e-300) * np.eye(2), wanted - means.sum(axis=0))
        powers = np.maximum(powers + step, 1e-4)
    return powers


def _posterior(part: _Part, whole: _Part, state: _State) -> Posterior:
    features = part.features(state.powers)
    explained = state.explained(part)
    joint = features * explained
    total = np.maximum(joint.sum(axis=1), 1e-300)
    given = joint / total[:, None]
    # The information about powers and rate: outer products of each item's derivatives of its log-likelihood.
    slopes = np.einsum("nm,nmv->nv", given - features, part.scores)
    own = given[:, 0]
    in_rate = (1 - own) / max(state.rate, 1e-12) - own / max(1 - state.rate, 1e-12)
    derivatives = np.concatenate([slopes, in_rate[:, None]], axis=1)
    information = derivatives.T @ derivatives
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    inverse = np.linalg.pinv(information / np.outer(scale, scale))
    deviation = math.sqrt(max(0.0, float(inverse[2, 2]))) / float(scale[2])
    likelihood = float(np.log(total).mean())
    if whole is not part:
        features, explained = whole.features(state.powers), state.explained(whole)
        joint = features * explained
        given = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore"):
        logs = whole.scores @ state.powers + whole.blocked + np.log(explained)
    highest = logs[:, 1:].max(axis=1)
    rest = highest + np.log(np.exp(logs[:, 1:] - highest[:, None]).sum(axis=1))
    best = whole.candidates[np.arange(len(features)), features.argmax(axis=1)]
    return Posterior(
        likelihood, state.powers, state.rate, deviation, state.transition(), best, given, rest - logs[:, 0]
    )


def _sure(part: _Part) -> Floats:
    """Powers that let both views count alike and make the most probable class probable."""
    gaps = []
    for view in range(2):
        logs = part.scores[:, :, view] + part.blocked
        first = np.partition(logs, -2, axis=1)
        gaps.append(max(float((first[:, -1] - first[:, -2]).mean()), 1e-9))
    low, high = -7.0, 7.0
    for _ in range(30):
        middle = (low + high) / 2
        sure = part.features(math.exp(middle) / np.array(gaps)).max(axis=1).mean()
        low, high = (middle, high) if sure < SURE else (low, middle)
    return np.asarray(math.exp(low) / np.array(gaps))


def _even(rate: float, count: int) -> Floats:
    """The transition of symmetric noise."""
    even = np.full((count, count), rate / (count - 1))
    np.fill_diagonal(even, 1 - rate)
    return even
