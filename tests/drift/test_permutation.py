"""Permutation tests: each quantity against its definition, and the level of the p values."""

from __future__ import annotations

from itertools import combinations, permutations
from statistics import fmean, pstdev

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from trivet.drift.permutation import Units, holm, mean_differences, p_value, share_differences, standardised, step_down

GROUPS = [
    pytest.param(None, id="single items"),
    pytest.param([0, 0, 1, -1, -1, 0, 2, 2, -1, 0, 1, 1], id="groups, of which two are on both sides"),
]


@pytest.fixture
def columns() -> torch.Tensor:
    return torch.randn(12, 5, generator=torch.Generator().manual_seed(0))


def units_of(groups: list[int] | None) -> Units:
    return Units.of(np.arange(12) >= 7, None if groups is None else np.array(groups))


@pytest.mark.parametrize("groups", GROUPS)
def test_units_are_groups_of_one_side(groups: list[int] | None) -> None:
    units = units_of(groups)
    for i, j in combinations(range(12), 2):
        same = groups is not None and groups[i] == groups[j] >= 0 and (i < 7) == (j < 7)
        assert (units.unit[i] == units.unit[j]) == same
    assert units.is_now.tolist() == [False] * 7 + [True] * 5
    assert units.sizes.sum() == 12
    some = units.subset(np.array([0, 1, 9, 10]))
    assert some.is_now.tolist() == [False, False, True, True]
    assert (some.unit[0] == some.unit[1]) == (groups is not None)


@pytest.mark.parametrize("groups", GROUPS)
def test_differences_of_means(groups: list[int] | None, columns: torch.Tensor) -> None:
    units = units_of(groups)
    assignments = units.permuted(6, np.random.default_rng(0))
    assert assignments[0].tolist() == units.now.tolist()
    assert {*assignments.sum(axis=1).tolist()} == {units.now.sum()}
    assert len({row.tobytes() for row in assignments}) > 3
    expected = [
        [
            fmean(row[j] for row, unit in zip(columns.tolist(), units.unit, strict=True) if assigned[unit])
            - fmean(row[j] for row, unit in zip(columns.tolist(), units.unit, strict=True) if not assigned[unit])
            for j in range(5)
        ]
        for assigned in assignments.tolist()
    ]
    result = mean_differences(units, assignments, columns.__getitem__)
    assert result == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("groups", GROUPS)
def test_shares_are_means_of_members_under_permutations(groups: list[int] | None, columns: torch.Tensor) -> None:
    units = units_of(groups)
    members = (columns > 0.3).float()
    result = share_differences(units, csr_array(members.numpy().T), 20_000, np.random.default_rng(0))
    assignments = units.permuted(20_000, np.random.default_rng(1))
    expected = mean_differences(units, assignments, members.__getitem__)
    assert result.shape == expected.shape
    assert result[0] == pytest.approx(expected[0], abs=1e-6)
    assert result.mean(axis=0) == pytest.approx(expected.mean(axis=0), abs=0.015)
    assert np.cov(result.T) == pytest.approx(np.cov(expected.T), abs=0.01)
    assert {*np.unique(result[:, 0].round(5))} == {*np.unique(expected[:, 0].round(5))}


def test_blocks_change_nothing(columns: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    units = units_of(None)
    assignments = units.permuted(3, np.random.default_rng(0))
    result = mean_differences(units, assignments, columns.__getitem__)
    monkeypatch.setattr("trivet.drift.permutation.BLOCK", 5)
    assert mean_differences(units, assignments, columns.__getitem__) == pytest.approx(result, abs=1e-6)


def test_statistics_are_standardised_by_the_permutations() -> None:
    statistics = np.random.default_rng(0).normal(3, 2, size=(9, 2))
    statistics[:, 1] = 4.0  # the same under each
    result = standardised(statistics, 5)
    null = statistics[:6, 0].tolist()
    assert result[:, 0] == pytest.approx([(x - fmean(null)) / pstdev(null) for x in statistics[:, 0]])
    assert (result[:, 1] == 0).all()


def test_a_p_value_is_a_share_of_the_assignments() -> None:
    assert p_value(np.array([2.0, 1.0, 3.0, 2.0, 0.0])) == 3 / 5
    assert p_value(np.array([5.0, 1.0, 3.0, 2.0, 0.0])) == 1 / 5
    assert p_value(np.array([2.0, 2.0 - 1e-7, 0.0, 0.0])) == 2 / 4  # equal but for rounding
    assert p_value(np.ones(8)) == 1


def test_whichever_assignment_is_the_actual_one_few_have_a_small_p_value() -> None:
    values = np.random.default_rng(0).integers(0, 9, size=40).astype(float)
    p = [p_value(np.concatenate([values[i : i + 1], np.delete(values, i)])) for i in range(40)]
    for level in (0.05, 0.1, 0.5):
        assert 0 < sum(each <= level for each in p) <= level * 40 or level == 0.05


def test_step_down_compares_with_the_largest_of_those_left() -> None:
    draw = np.random.default_rng(1)
    statistics = draw.normal(size=(200, 4))
    statistics[0] = [2.5, 0.1, 2.2, 4.0]
    order = [3, 0, 2, 1]
    expected, largest = {}, 0.0
    for at, column in enumerate(order):
        rest = order[at:]
        largest = max(largest, fmean(max(row[c] for c in rest) >= statistics[0, column] for row in statistics))
        expected[column] = largest
    assert step_down(statistics).tolist() == pytest.approx([expected[column] for column in range(4)])


def test_of_several_true_hypotheses_any_is_rejected_at_the_level() -> None:
    """Under the complete null each row may be the actual one: at most 5 % of them give an adjusted p of 5 %."""
    statistics = np.random.default_rng(2).normal(size=(100, 6))
    rejected = [
        step_down(np.concatenate([statistics[i : i + 1], np.delete(statistics, i, axis=0)])).min() <= 0.05
        for i in range(100)
    ]
    assert sum(rejected) == 5


def test_holm_is_the_closure_of_bonferroni() -> None:
    values = {"a": 0.011, "b": 0.02, "c": 0.013, "d": 0.6}
    expected = {
        name: max(
            min(1.0, len(some) * min(values[other] for other in some))
            for size in range(1, 5)
            for some in combinations(values, size)
            if name in some
        )
        for name in values
    }
    for names in permutations(values):
        result = holm({name: values[name] for name in names})
        assert result == pytest.approx(expected)
        assert [*result] == [*names]
