"""Agreement of neighbours equals its definition."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.knn import agreement
from trivet.knn.agreement import neighbour_agreement


def definition(first: list[int], other: list[int]) -> float:
    """The share of the neighbours of a query that both have."""
    mine, its = ({i for i in rows if i >= 0} for rows in (first, other))
    return len(mine & its) / max(len(mine), len(its)) if mine or its else float("nan")


@pytest.mark.parametrize("entries", [1, 2**24])
def test_equals_the_definition(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "ENTRIES", entries)
    draw = np.random.default_rng(0)
    first, other = (np.stack([draw.permutation(8)[:4] for _ in range(50)]) for _ in range(2))
    first[:10, 3], other[5:12, 2:], first[40], other[40] = -1, -1, -1, -1
    result = neighbour_agreement(first, other)
    expected = [definition(a, b) for a, b in zip(first.tolist(), other.tolist(), strict=True)]
    np.testing.assert_allclose(result.overlap, expected, rtol=1e-12)
    same = [a[0] == b[0] >= 0 for a, b in zip(first.tolist(), other.tolist(), strict=True)]
    assert result.same_first.tolist() == same
    assert result.counted.tolist() == [i != 40 for i in range(50)]


def test_neighbours_are_of_the_same_queries() -> None:
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(3, 3\)"):
        neighbour_agreement(np.zeros((2, 3), int), np.ones((3, 3), int))
