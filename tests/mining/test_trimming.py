"""The cut found digit by digit keeps what sorting keeps, for any floating-point numbers, in any blocks."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trivet
from trivet.distances import device
from trivet.losses.engine import evaluate
from trivet.mining import trimming
from trivet.mining.trimming import Cut, smallest, smallest_of, smallest_within, window

DTYPES = {32: torch.float32, 64: torch.float64}


def definition(values: Sequence[float], share: float) -> list[bool]:
    """Sorted, of equal ones the first; at least one."""
    count = max(1, math.ceil(round(share * len(values), 9)))
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    return [i in order[:count] for i in range(len(values))]


def cut_blocks(values: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    return list(values.split([*sizes, len(values) - sum(sizes)]))


def kept(values: Tensor, share: float, sizes: Sequence[int] = ()) -> list[bool]:
    """What survives, where the values come in blocks of `sizes` and the rest."""
    blocks = cut_blocks(values, sizes)
    cut = smallest(lambda: iter(blocks), share, values)
    return [bool(x) for block in blocks for x in cut.retained(block, torch.ones_like(block, dtype=torch.bool))]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, float, list[int]]:
    """Ordinary numbers, equal ones, both zeros, infinities, tiny and neighbouring ones, in up to three blocks."""
    width = draw(st.sampled_from([32, 64]))
    special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-40, -1e-40]
    number = st.floats(width=width, allow_nan=False) | st.sampled_from(special)
    values = torch.tensor(draw(st.lists(number, min_size=1, max_size=30)), dtype=DTYPES[width])
    values = torch.cat([values, values.nextafter(torch.full_like(values, math.inf))[: draw(st.integers(0, 5))]])
    first = draw(st.integers(0, len(values)))
    return values, draw(st.floats(0.01, 1)), [first, draw(st.integers(0, len(values) - first))]


@given(problems())
@settings(max_examples=120, deadline=None)
def test_equals_sorting(case: tuple[Tensor, float, list[int]]) -> None:
    values, share, sizes = case
    assert kept(values, share, sizes) == definition(values.tolist(), share)


@given(problems(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_sorting_finds_the_same_cut(case: tuple[Tensor, float, list[int]], elsewhere: bool) -> None:
    values, share, (start, length) = case
    candidates = torch.ones_like(values, dtype=torch.bool)
    candidates[start : start + length] = False  # NaN is not a value
    chosen = [i for i, candidate in enumerate(candidates.tolist()) if candidate]
    expected = [False] * len(values)
    for i, keep in zip(chosen, definition(values[candidates].tolist(), share) if chosen else [], strict=True):
        expected[i] = keep
    with pytest.MonkeyPatch.context() as patch:
        if elsewhere:
            patch.setattr(device, "read_freely", lambda values: False)
        cut = smallest_of(values.where(candidates, torch.nan), share)
    assert cut.retained(values, candidates).tolist() == expected


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("share", [1e-9, 1 - 0.7, 0.5, 0.999, 1.0])
def test_many_values(dtype: torch.dtype, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5000, generator=generator, dtype=dtype)
    values[::3] = values[::3].round()  # ties, and zeros of both signs
    assert kept(values, share, [1, 0, 700]) == definition(values.tolist(), share)


def test_only_candidates_are_kept_and_count_as_ties() -> None:
    cut = Cut(torch.tensor(2.0), torch.tensor(2))
    values = torch.tensor([[1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    candidates = torch.tensor([[True, False, True], [True, False, True], [True, True, True]])
    expected = [[True, False, True], [True, False, False], [True, False, False]]
    assert cut.retained(values, candidates).tolist() == expected
    expected = [[True, False, False], [False, False, False], [True, False, False]]  # of the next block
    assert cut.retained(values, candidates).tolist() == expected


def test_of_nothing_nothing_is_kept() -> None:
    nothing = torch.zeros(0)
    assert kept(nothing, 0.5) == []
    cut = smallest(lambda: iter([]), 0.5, nothing)
    assert not cut.retained(torch.ones(3), torch.zeros(3, dtype=torch.bool)).any()


@pytest.mark.parametrize("share", [0.1, 0.2, 0.4, 0.5, 0.7, 0.95])
def test_processes_that_share_a_batch_cut_it_as_one(share: float) -> None:
    """Three threads stand for the processes: a sum waits for all, and each has its own part of the values."""
    steps = torch.randint(4, (40,), generator=torch.Generator().manual_seed(0))
    values = 1 + steps * 2.0**-23  # neighbouring numbers
    parts = cut_blocks(values, [11, 3])
    barrier = threading.Barrier(len(parts), timeout=20)
    posted: dict[int, Tensor] = {}
    found: dict[int, list[bool]] = {}

    def all_posted(rank: int, counts: Tensor) -> list[Tensor]:
        posted[rank] = counts
        barrier.wait()
        everything = [posted[other] for other in range(len(parts))]
        barrier.wait()
        return everything

    def work(rank: int) -> None:
        cut = smallest(
            lambda: iter([parts[rank]]),
            share,
            values,
            add_up=lambda counts: torch.stack(all_posted(rank, counts)).sum(dim=0),
            add_before=lambda count: torch.stack([torch.zeros_like(count), *all_posted(rank, count)[:rank]]).sum(dim=0),
        )
        found[rank] = cut.retained(parts[rank], torch.ones_like(parts[rank], dtype=torch.bool)).tolist()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x for rank in range(len(parts)) for x in found[rank]] == definition(values.tolist(), share)


@given(problems(), st.floats(0, 0.1))
@settings(max_examples=120, deadline=None)
def test_a_window_of_rounded_values_holds_the_cut(case: tuple[Tensor, float, list[int]], error: float) -> None:
    """Or it is said that it does not: never another cut."""
    values, share, (start, length) = case
    values = values.abs().masked_fill(values.isinf(), 0)
    rounded = values * (1 + error * (torch.arange(len(values)) % 3 - 1))
    if start < len(values):  # NaN is not a value
        values[start], rounded[start] = torch.nan, torch.nan
    candidates = ~values.isnan()
    if not candidates.any():
        return
    found = window(lambda: iter(cut_blocks(rounded, [])), share, values)
    assert found is not None
    if not isinstance(found, Cut):
        found = smallest_within(iter(values.split(max(1, length))), *found)
    if found is None:
        assert error > 2**-9  # half of the narrowest of the neighbours
        return
    expected = torch.zeros(len(values), dtype=torch.bool)
    expected[candidates] = torch.tensor(definition(values[candidates].tolist(), share))
    assert found.retained(values, candidates).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_where_many_values_are_near_the_cut_the_window_becomes_narrower(
    dtype: torch.dtype, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values agree in their first digits, as distances do in many dimensions; half of them are a bit off."""
    values = 1 + torch.rand(5000, dtype=dtype, generator=torch.Generator().manual_seed(1)) / 32
    rounded = values * (1 + 1e-6 * (torch.arange(5000) % 3 - 1).to(dtype))
    monkeypatch.setattr(trimming, "MAX_STORED", 200)
    found = window(lambda: iter(rounded.split(700)), share, values)
    assert isinstance(found, tuple)
    after, low, high = found
    assert int(((values >= low) & (values <= high)).sum()) <= 200
    cut = smallest_within(iter(values.split(700)), after, low, high)
    assert cut is not None
    expected = definition(values.tolist(), share)
    assert cut.retained(values, torch.ones_like(values, dtype=torch.bool)).tolist() == expected


def test_where_too_many_values_are_equal_there_is_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.ones(5000)
    monkeypatch.setattr(trimming, "MAX_STORED", 200)
    assert window(lambda: iter(values.split(700)), 0.5, values) is None


LOSSES = {
    "contrastive": lambda **options: trivet.ContrastiveLoss(margin=1.5, reduction="sum", **options),
    "margin": lambda **options: trivet.MarginLoss(
        positives="all",
        negatives="all",
        reduction="sum",
        beta=1.25,
        margin=0.25,
        num_classes=9,
        normalize=False,
        **options,
    ),
}


def terms_of(name: str, rows: list[list[float]], labels: list[int], distance: str) -> list[tuple[float, int, int]]:
    """Value, anchor and other item, in the order of the terms: of an anchor first the positives."""
    terms = []
    for a, label in enumerate(labels):
        for same in (True, False):
            for b, other in enumerate(labels):
                if b == a or (other == label) is not same:
                    continue
                apart = math.dist(rows[a], rows[b])
                apart = apart**2 if distance == "squared_euclidean" else apart
                if name == "contrastive":
                    terms.append((apart if same else max(0.0, 1.5 - apart), a, b))
                else:
                    terms.append((max(0.0, apart - 1 if same else 1.5 - apart), a, b))
    return terms


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("distance", ["euclidean", "squared_euclidean"])
@pytest.mark.parametrize("points", ["normal", "grid", "far", "equal", "duplicates"])
@pytest.mark.parametrize("trim", [0.05, 0.4, 0.97])
@pytest.mark.parametrize("block_size", [None, 5])
def test_pairs_are_trimmed_by_exact_distances(
    name: str, distance: str, points: str, trim: float, block_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where products decide which distances are looked at: the mean over anchors and others that are left."""
    monkeypatch.setattr(evaluate, "MAX_SORTED", 0)
    generator = torch.Generator().manual_seed(len(points))
    rows = torch.randn(23, 3, dtype=torch.float64, generator=generator) * 0.6
    if points == "grid":
        rows = (2 * rows).round() / 4
    if points == "far":
        rows = rows + 2**20
    if points == "equal":
        rows = torch.zeros_like(rows)
    if points == "duplicates":
        rows = rows[torch.arange(23) % 5]
    labels = [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 8, 0, 1, 2, 2, 2, 3, 6, 6, 7, 8, 1, 1]
    terms = terms_of(name, rows.tolist(), labels, distance)
    kept = [
        term for term, keep in zip(terms, definition([value for value, *_ in terms], 1 - trim), strict=True) if keep
    ]
    loss = LOSSES[name](distance=distance, trim=trim, block_size=block_size)
    value = loss(rows, torch.tensor(labels))
    assert value.item() == pytest.approx(math.fsum(value for value, *_ in kept), rel=1e-9, abs=1e-12)
    assert loss.last.terms == len(kept)
