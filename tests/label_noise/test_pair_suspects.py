"""Suspect pairs: the views and the model against their definitions, planted mistakes, and silence without any."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trivet.label_noise import find_pair_suspects
from trivet.label_noise.pair_scores import BAND, NEIGHBOURS, PairViews


def sides(count: int = 400, *, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Both sides of pairs, in two spaces: the right one is a map of the left one with noise."""
    random = np.random.default_rng(seed)
    left = random.normal(size=(count, 16))
    return left, left @ random.normal(size=(16, 20)) + noise * random.normal(size=(count, 20))


def aligned(count: int, wrong: int = 0) -> np.ndarray:
    """Row i with row i, but for the first, which are moved on by a row."""
    pairs = np.repeat(np.arange(count)[:, None], 2, axis=1)
    pairs[:wrong, 1] = np.roll(pairs[:wrong, 1], 1)
    return pairs


@pytest.mark.parametrize("wrong", [8, 40, 80])
def test_planted_mistakes(wrong: int) -> None:
    suspects = find_pair_suspects(*sides(), aligned(400, wrong))
    called = suspects.probability_wrong > 0.5
    assert called[:wrong].mean() > 0.8
    assert called[wrong:].sum() <= 1
    assert suspects.wrong[0] - 1e-6 <= wrong / 400 <= suspects.wrong[1]
    assert set(suspects.order[: wrong // 2].tolist()) <= set(range(wrong))
    assert (suspects.random_above[wrong:] < 0.1).mean() > 0.95


@pytest.mark.parametrize("noise", [1.0, 4.0], ids=["pairs that are easily told", "that are hardly"])
@pytest.mark.parametrize("seed", range(3))
def test_right_pairs_are_not_accused(noise: float, seed: int) -> None:
    suspects = find_pair_suspects(*sides(seed=seed, noise=noise))
    assert suspects.verdict == "judged"
    assert (suspects.probability_wrong > 0.5).sum() <= 1  # half a mistake is allowed
    assert suspects.wrong[0] < 0.003


def test_pairs_that_cannot_be_judged() -> None:
    random = np.random.default_rng(0)
    noise = find_pair_suspects(random.normal(size=(300, 8)), random.normal(size=(300, 8)))
    few = find_pair_suspects(*sides(49))
    left, right = sides()
    classes = find_pair_suspects(left, right, np.stack([np.arange(400), np.arange(400) % 40], axis=1))
    for suspects in (noise, few, classes):
        assert suspects.verdict == "uninformative"
        assert np.isnan(suspects.probability_wrong).all()
        assert len(suspects.missing) == 0
        assert suspects.wrong == (0, 1)
    assert "do not see what belongs together" in noise.reason
    assert "fewer than 50" in few.reason
    assert "the 40 contents of the right side come 10 times each, as classes do" in classes.reason


def test_pairs_of_a_kind_that_the_embeddings_do_not_see() -> None:
    """A fifth of the right side is boilerplate: its pairs look random, and all alike."""
    left, right = sides(1000)
    right[:200] = 10 + np.random.default_rng(1).normal(size=(200, 20)) / 10
    suspects = find_pair_suspects(left, right)
    assert (suspects.probability_wrong[200:] < 0.5).all()
    assert (suspects.probability_wrong > 0.5).sum() <= 1


def test_missing_pairs() -> None:
    """Two right contents for each left one, close to each other, of which only one is listed."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 16))
    kind = np.repeat(np.arange(40), 30)
    left, right = (centres[kind] + random.normal(size=(1200, 16)) / 3 for _ in range(2))
    suspects = find_pair_suspects(left, right, shared=True)
    same = kind[suspects.missing[:, 0]] == kind[suspects.missing[:, 1]]
    assert len(same) > 5000
    assert same.mean() > 0.95
    assert (suspects.probability_missing > 0.5).all()
    assert not (suspects.missing[:, 0] == suspects.missing[:, 1]).any()


def test_equal_contents_are_judged_once() -> None:
    left, right = sides()
    pairs = aligned(400, 20)
    again = pairs + np.array([400, 0])
    rows = find_pair_suspects(np.concatenate([left, left]), right, np.concatenate([pairs, again]))
    once = find_pair_suspects(left, right, pairs)
    assert rows.probability_wrong[:400] == pytest.approx(rows.probability_wrong[400:])
    assert rows.probability_wrong[:400] == pytest.approx(once.probability_wrong, rel=1e-3, abs=1e-6)


def test_a_pair_does_not_judge_itself() -> None:
    """Scores of a pair are the same whatever its own group lists besides."""
    left, right = (torch.nn.functional.normalize(torch.from_numpy(rows).float()) for rows in sides(100))
    pairs = aligned(100)
    turned = pairs.copy()
    turned[[0, 1], 1] = 1, 0
    listed = PairViews(left, right, pairs, shared=False, seed=0)
    # The listed pair (0, 1) of the second is put together from the pairs (0, 0) and (1, 1) in the first.
    put_together = listed.scores(np.array([0]), np.array([1]))
    by_itself = PairViews(left, right, turned, shared=False, seed=0).scores(np.array([0]), np.array([0]))
    assert put_together[0, 0] == pytest.approx(by_itself[0, 0], abs=0.05)


def test_what_hangs_together_with_a_pair_does_not_judge_it() -> None:
    """Six left contents that are nearly equal have the same partner, and no partners are alike."""
    random = np.random.default_rng(0)
    left = np.repeat(random.normal(size=(40, 8)), 6, axis=0) + random.normal(size=(240, 8)) / 100
    rows = [torch.nn.functional.normalize(torch.from_numpy(x).float()) for x in (left, random.normal(size=(40, 8)))]
    pairs = np.stack([np.arange(240), np.arange(240) // 6], axis=1)
    views = PairViews(rows[0], rows[1], pairs, shared=False, seed=0)
    scores = views.scores(np.arange(240), np.arange(240))
    assert scores[:, 0].mean() < 0.5  # neighbours
    assert scores[:, 2].mean() > 1  # siblings
    group = (np.arange(240) < 6).astype(float)
    assert views.local_means(0, group)[:6].max() == 0


def reference(
    left: list[list[float]], right: list[list[float]], pairs: list[tuple[int, int]], a: int, b: int
) -> tuple[float, float]:
    """The views "neighbours" and "direct" of the left of pair a and the right of pair b; no content comes twice."""

    def dot(x: list[float], y: list[float]) -> float:
        return sum(p * q for p, q in zip(x, y, strict=True))

    def unit(x: list[float]) -> list[float]:
        return [p / math.sqrt(dot(x, x)) for p in x]

    def standard(value: float, others: list[float]) -> float:
        mean = sum(others) / len(others)
        return (value - mean) / math.sqrt(sum((x - mean) ** 2 for x in others) / (len(others) - 1))

    def expected(own: list[list[float]], partners: dict[int, list[float]], i: int, without: set[int]) -> list[float]:
        ranked = sorted((math.dist(own[i], own[k]), k) for k in range(len(own)))
        band = ranked[BAND][0]
        total = [0.0] * len(next(iter(partners.values())))
        for distance, k in ranked[1 : NEIGHBOURS + 1]:
            if k not in without:
                weight = math.exp(-((distance / band) ** 2))
                total = [t + weight * x for t, x in zip(total, partners[k], strict=True)]
        return unit(total)

    i, j = pairs[a][0], pairs[b][1]
    direct = dot(left[i], right[j])
    straight = standard(direct, [dot(left[i], y) for y in right]) + standard(direct, [dot(x, right[j]) for x in left])
    values = []
    of_left, of_right = {k: right[m] for k, m in pairs}, {m: left[k] for k, m in pairs}
    for own, other, partners, end, goal, without in (
        (left, right, of_left, i, j, {pairs[a][0], pairs[b][0]}),
        (right, left, of_right, j, i, {pairs[a][1], pairs[b][1]}),
    ):
        wanted = expected(own, partners, end, without)
        similarity = dot(wanted, other[goal])
        values.append(standard(similarity, [dot(wanted, x) for x in other]))
        everyone = [expected(own, partners, k, {k}) for k in range(len(own))]
        values.append(standard(similarity, [dot(each, other[goal]) for each in everyone]))
    return sum(values) / 4, straight / 2


def test_the_views_equal_their_definition() -> None:
    random = np.random.default_rng(0)
    left = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(60, 5))).float())
    right = torch.nn.functional.normalize(left + torch.from_numpy(random.normal(size=(60, 5))).float() / 2)
    pairs = np.stack([np.arange(60), random.permutation(60)], axis=1)
    views = PairViews(left, right, pairs, shared=True, seed=0)
    first, second = np.array([0, 1, 2, 3, 4, 5]), np.array([0, 1, 7, 8, 9, 10])
    scores = views.scores(first, second)
    listed = [(i, j) for i, j in pairs.tolist()]
    for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        neighbours, direct = reference(left.tolist(), right.tolist(), listed, a, b)
        assert scores[row, 0] == pytest.approx(neighbours, abs=1e-4)
        assert scores[row, 2] == pytest.approx(direct, abs=1e-4)


def test_siblings_are_the_other_contents_of_an_end() -> None:
    random = np.random.default_rng(0)
    left = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(90, 6))).float())
    right = torch.nn.functional.normalize(torch.from_numpy(random.normal(size=(30, 4))).float())
    pairs = np.stack([np.arange(90), np.arange(90) % 30], axis=1)
    scores = PairViews(left, right, pairs, shared=False, seed=0).scores(np.array([0, 1]), np.array([0, 2]))
    covariance = np.cov(left.numpy().T)
    for row, (i, siblings) in enumerate([(0, [30, 60]), (1, [32, 62])]):
        total = left[siblings].sum(dim=0).numpy()
        expected = (total @ left[i].numpy() - total @ left.mean(dim=0).numpy()) / math.sqrt(total @ covariance @ total)
        assert scores[row, 2] == pytest.approx(expected, abs=1e-4)
    assert (scores[:, 3] == 0).all()  # a left content has a single partner


def test_errors() -> None:
    left, right = sides(60)
    for arguments, options, message in (
        ((left, right[:59]), {}, "got 60 and 59; pass the pairs"),
        ((left, right, np.array([[0, 60]])), {}, r"got \[0, 60\] to \[0, 60\]"),
        ((left, right, np.array([[0.0, 1.0]])), {}, r"got float64 of shape \(1, 2\)"),
        ((left, right), {"shared": True}, "got 16 and 20; pass shared=False"),
        ((left, right), {"seed": -1}, "seed must not be negative: got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            find_pair_suspects(*arguments, **options)
