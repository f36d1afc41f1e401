"""Choices in the rows of a large matrix equal those of plain loops, for any width and with ties."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trivet.distances import exact_order
from trivet.distances.exact_order import CHUNK, FewRanges, Ranges, below, nearest_few, weighted
from trivet.mining.negatives import _ranked_bands

WIDTHS = [1, 2, 63, 64, 65, 128, 129, 200, 1000]
DTYPES = [torch.float32, torch.float64]


def grid(width: int, *, rows: int = 7, values: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """Whole numbers from 0 to `values` - 1, so that ties are common, a third of them infinite; a row has only those."""
    generator = torch.Generator().manual_seed(width)
    found = torch.randint(values, (rows, width), generator=generator).to(dtype)
    found[torch.rand(rows, width, generator=generator) < 1 / 3] = math.inf
    found[-1] = math.inf
    return found


def ranked(row: list[float]) -> list[int]:
    """The columns with a finite value, smallest first, the lowest of tied ones first."""
    return sorted((j for j, x in enumerate(row) if x < math.inf), key=lambda j: (row[j], j))


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("width", WIDTHS)
def test_nearest_few(width: int, number: int) -> None:
    values = grid(width)
    given_values = values.clone()
    found = nearest_few(values, number)
    assert found.shape == (len(values), number)
    assert torch.equal(values, given_values)
    for row, columns in zip(values.tolist(), found.tolist(), strict=True):
        expected = ranked(row)[:number]
        assert columns[: len(expected)] == expected
        assert all(0 <= column < width for column in columns)


@pytest.mark.parametrize("dtype", DTYPES)
def test_below(dtype: torch.dtype) -> None:
    values = torch.tensor([[0.0, 1.0, 2.0], [math.inf, -math.inf, 0.0]], dtype=dtype)
    found = below(values, torch.tensor([[1.0], [math.inf]], dtype=dtype))
    assert found.tolist() == [[1, 0, 0], [0, 1, 1]]
    assert found.dtype == dtype


def inside(row: list[float], low: float | None, high: float) -> list[int]:
    return [j for j, x in enumerate(row) if x < high and (low is None or x > low)]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_ranges(width: int, dtype: torch.dtype, lower: bool) -> None:
    values = grid(width, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    high = torch.randint(-1, 7, (len(values), 6), generator=generator).to(dtype)
    low = torch.randint(-2, 5, (len(values), 6), generator=generator).to(dtype)  # above high too
    high[:, 0] = math.inf
    ranges = Ranges(values, low if lower else None, high)
    expected = [
        [
            inside(row, low[i, slot].item() if lower else None, high[i, slot].item())
            for slot, _ in enumerate(high[i].tolist())
        ]
        for i, row in enumerate(values.tolist())
    ]
    counts = [[len(columns) for columns in row] for row in expected]
    assert ranges.count.tolist() == counts
    assert min(map(min, counts)) == 0
    for rank in range(max(max(row) for row in counts)):
        found = ranges.column(torch.full(high.shape, rank)).tolist()
        for columns, row in zip(found, expected, strict=True):
            for column, wanted in zip(columns, row, strict=True):
                assert 0 <= column < max(width, CHUNK * -(-width // CHUNK))
                assert rank >= len(wanted) or column == wanted[rank]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("count", ["at once", "in blocks", "by ranks"])
def test_band_counts(count: str, lower: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    values = grid(65)
    generator = torch.Generator().manual_seed(2)
    low = torch.randint(-2, 5, (len(values), 4), generator=generator).float()
    high = low + torch.randint(-1, 4, low.shape, generator=generator)  # below low, too
    high[1], high[2, 0] = -math.inf, math.inf
    if count == "in blocks":
        monkeypatch.setattr(exact_order, "AT_ONCE", 200)  # three rows
    counted = _ranked_bands if count == "by ranks" else exact_order.band_counts
    counts, holders = counted(values, low if lower else None, high)
    assert float(counts.max()) > 10
    for row, lows, highs, numbers, held in zip(*map(Tensor.tolist, (values, low, high, counts, holders)), strict=True):
        bands = [inside(row, begin if lower else None, end) for begin, end in zip(lows, highs, strict=True)]
        assert numbers == [len(band) for band in bands]
        assert held == [sum(column in band for band in bands) for column, _ in enumerate(row)]


def test_ranges_of_neighbouring_numbers() -> None:
    """Open ends: a number is not inside an interval that ends at it, and its neighbour is."""
    one = torch.tensor(1.0)
    values = torch.stack([one.nextafter(-one), one, one.nextafter(2 * one)])[None]
    whole = Ranges(values, values[:, :1], values[:, 2:])
    assert whole.count.item() == 1
    assert whole.column(torch.zeros(1, 1, dtype=torch.int64)).item() == 1
    assert Ranges(values, values[:, 1:2], values[:, 2:]).count.item() == 0


def drawn(weights: list[float], uniform: float) -> set[int]:
    """Columns whose share of [0, total) holds uniform x total; both neighbours within rounding of their border."""
    total = sum(map(Fraction, weights))
    low = (Fraction(uniform) - Fraction(1, 10**6)) * total
    high = (Fraction(uniform) + Fraction(1, 10**6)) * total
    found, until = set(), Fraction(0)
    for column, weight in enumerate(weights):
        start, until = until, until + Fraction(weight)
        if weight > 0 and start <= high and until >= low:
            found.add(column)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_weighted(width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(width)
    weights = torch.rand(5, width, generator=generator, dtype=torch.float64).pow(8).to(dtype)  # few are large
    weights[torch.rand(5, width, generator=generator) < 0.5] = 0
    weights[:, width // 2] = 0.5
    weights[1] = 0
    weights[1, width // 3] = 1e-30
    uniform = torch.rand(5, 12, generator=generator, dtype=torch.float64)
    uniform[:, 0], uniform[:, 1] = 0, 1 - 2**-53
    found = weighted(weights, uniform)
    for row, columns, places in zip(weights.tolist(), found.tolist(), uniform.tolist(), strict=True):
        for column, place in zip(columns, places, strict=True):
            assert column in drawn(row, place)


@given(
    st.lists(st.sampled_from([0.0, 1.0, 1e-20, 3.0]), min_size=1, max_size=200),
    st.floats(0, 1, exclude_max=True, allow_subnormal=False),
)
@settings(max_examples=200, deadline=None)
def test_weighted_never_draws_a_weight_of_zero(row: list[float], place: float) -> None:
    if any(row):
        column = int(weighted(torch.tensor([row]), torch.tensor([[place]], dtype=torch.float64)))
        assert row[column] > 0


@pytest.mark.parametrize("lower", [False, True])
def test_slots_taken_at_once_find_the_same_columns(lower: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(9, (5, 130), generator=generator).float()  # with ties, and ends that are values
    low, high = (torch.randint(9, (5, 3), generator=generator).float() for _ in range(2))
    few, many = FewRanges(values, low if lower else None, high), Ranges(values, low if lower else None, high)
    assert torch.equal(few.count, many.count.long())
    for rank in range(int(few.count.max())):
        ranks = torch.full((5, 3), rank)
        found, expected = few.column(ranks), many.column(ranks)
        assert torch.equal(found.where(rank < few.count, -1), expected.where(rank < few.count, -1))
