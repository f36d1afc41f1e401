"""Near copies: the nearest by class against plain Python, the law against its definition, and no call by chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trivet.label_noise import near_copies
from trivet.label_noise.near_copies import find_near_copies, nearest_by_class, rare_distance


def points(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def definition(
    views: list[tuple[list[list[float]], list[list[float]]]], classes: list[int], others: list[int], left_out: list[int]
) -> list[list[tuple[float, int]]]:
    """Of the same class and of another, for each item the least distance over the views and whose it is."""
    sides: list[list[tuple[float, int]]] = []
    for same in (True, False):
        sides.append([])
        for i, own in enumerate(classes):
            pairs = [
                (math.dist(left[i], right[j]), j)
                for left, right in views
                for j, other in enumerate(others)
                if (own == other and own >= 0) == same and j != left_out[i]
            ]
            sides[-1].append(
                min((pair for pair in pairs if not left_out[i] >= 0 or pair[0] > 0), default=(math.inf, -1))
            )
    return sides


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("blocks", [(512, 4096), (3, 7)])
def test_equals_the_definition(inside: bool, blocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_copies, "ROWS", blocks[0])
    monkeypatch.setattr(near_copies, "COLUMNS", blocks[1])
    draw = np.random.default_rng(0)
    others = draw.integers(-1, 4, 31)
    searched = [points(seed, 31, 5) + 3 for seed in (0, 1)]
    searched[0][4] = searched[0][20]
    left = searched if inside else [points(seed, 13, 5) + 3 for seed in (2, 3)]
    classes = others if inside else draw.integers(-1, 6, 13)
    out = np.arange(31) if inside else None
    distances, rows = nearest_by_class(zip(left, searched, strict=True), classes, others, leave_out=out)
    views = [(a.tolist(), b.tolist()) for a, b in zip(left, searched, strict=True)]
    expected = definition(views, classes.tolist(), others.tolist(), [-1] * 13 if out is None else out.tolist())
    for side in (0, 1):
        assert rows[side].tolist() == [row for _, row in expected[side]]
        assert distances[side] == pytest.approx([distance for distance, _ in expected[side]], rel=1e-6)


def test_a_bound_changes_nothing_below_it() -> None:
    left, right = 3 * points(0, 200, 4), 3 * points(1, 300, 4)
    classes, others = (np.random.default_rng(2).integers(0, 3, n) for n in (200, 300))
    every, rows = nearest_by_class([(left, right)], classes, others)
    bounded, its_rows = nearest_by_class([(left, right)], classes, others, most=1.8)
    below = every <= 1.8
    assert 20 < below.sum() < 380
    assert (bounded[below] == every[below]).all()
    assert (its_rows[below] == rows[below]).all()


def test_the_law_of_a_power_is_carried_on() -> None:
    ranks = (np.arange(10_000) + 0.5) / 10_000
    assert rare_distance(2 * ranks ** (1 / 3)) == pytest.approx(2 * 0.001 ** (1 / 3), rel=1e-2)
    assert rare_distance(np.append(2 * ranks ** (1 / 3), [0.0] * 5000 + [np.inf])) == pytest.approx(0.2, rel=1e-2)
    assert rare_distance(ranks[:99]) == 0
    assert rare_distance(np.ones(500)) == 0


@pytest.mark.parametrize("labelled", [True, False])
def test_planted_copies_are_called_and_hardly_anything_else(labelled: bool) -> None:
    known, new = points(0, 1500, 12), points(1, 500, 12)
    classes, others = (np.random.default_rng(2).integers(0, 5, n) if labelled else np.full(n, -1) for n in (500, 1500))
    new[:50] = known[100:150] + 0.02 * points(3, 50, 12)
    result = find_near_copies(lambda rows: [(new if rows is None else known[rows], known)], classes, others)
    assert result.copy[:50].all()
    assert (result.original[:50] == np.arange(100, 150)).all()
    assert result.copy[50:].sum() <= 3
    assert result.distances[:50].max() < min(limit for limit in result.limits if limit)


def test_a_new_class_beside_a_known_one_holds_no_copies_of_it() -> None:
    others = np.arange(1500) % 3
    known = points(0, 1500, 12) + 100 * torch.eye(12)[others]
    new = points(1, 300, 12) + 100 * torch.eye(12)[0]
    new[:20] = known[:20] + 0.02 * points(2, 20, 12)
    result = find_near_copies(lambda rows: [(new if rows is None else known[rows], known)], np.full(300, 3), others)
    assert result.limits[1] > 50
    assert result.copy[:20].all()
    assert result.copy[20:].sum() <= 3


def test_too_few_items_call_nothing() -> None:
    known = points(0, 60, 3)
    result = find_near_copies(lambda rows: [(known if rows is None else known[rows], known)], *[np.full(60, -1)] * 2)
    assert not result.copy.any()
    assert result.limits == (0, 0)
