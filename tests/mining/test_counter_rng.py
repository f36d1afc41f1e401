"""The random numbers: those of splitmix64 for a place, uniform, and without a trace of the place next to it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from trivet.mining.counter_rng import CounterRng, new_key

WORD = 2**64
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
AXES = ["seed", "step", "stream", "anchor", "slot"]
LENGTH = 2560  # numbers along an axis
KNOWN = [  # seed 2024, step 7, stream 1: anchors 0 and 1, slots 0 to 2
    ["0x1.a006aeac5ec6ep-2", "0x1.afaccd95fe8f0p-4", "0x1.130f25be48a60p-3"],
    ["0x1.1489524707469p-1", "0x1.bafbc48f9b068p-4", "0x1.aa677a6013040p-1"],
]


def scramble(x: int) -> int:
    x = ((x ^ (x >> 30)) * FIRST) % WORD
    x = ((x ^ (x >> 27)) * SECOND) % WORD
    return x ^ (x >> 31)


def unscramble(x: int) -> int:
    """The inverse: what is shifted by s is known from the top, s bits at a time."""
    for shift, factor in ((31, SECOND), (27, FIRST), (30, None)):
        known = x
        for _ in range(0, 64, shift):
            known = x ^ (known >> shift)
        x = known if factor is None else known * pow(factor, -1, WORD) % WORD
    return x


def splitmix(state: int, number: int) -> int:
    """Output `number`, from 0, of the generator splitmix64 seeded with `state`."""
    return scramble((state + (number + 1) * GOLDEN) % WORD)


def of_stream(seed: int, step: int, stream: int) -> int:
    return scramble((splitmix(splitmix(seed, 0), step) + stream) % WORD)


def definition(seed: int, step: int, stream: int, anchor: int, slot: int) -> float:
    return (splitmix(splitmix(of_stream(seed, step, stream), anchor), slot) >> 11) / 2**53


def numbers(seed: int = 1, step: int = 0, stream: int = 0, anchors: int | Tensor = 1, slots: int = 1) -> Tensor:
    places = torch.arange(anchors) if isinstance(anchors, int) else anchors
    return CounterRng(torch.tensor([seed, step])).uniform(places, slots, stream=stream)


@cache
def along(axis: str, other: int) -> Tensor:
    """Numbers of neighbouring places on one axis, `(LENGTH,)`; `other` is the place on the other axes."""
    if axis == "slot":
        return numbers(seed=other, step=other, stream=other % 3, anchors=other + 1, slots=LENGTH)[-1]
    if axis == "anchor":
        return numbers(seed=other, step=other, stream=other % 3, anchors=LENGTH, slots=other + 1)[:, -1]
    place = {"seed": other, "step": other, "stream": other % 3}
    return torch.stack([numbers(**(place | {axis: i}), anchors=other + 1, slots=3)[-1, -1] for i in range(LENGTH)])


def test_the_generator_of_this_file_is_the_published_one() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix(1234567, number) for number in range(4)] == published
    assert [unscramble(scramble(x)) for x in (0, 1, 12345, WORD - 1)] == [0, 1, 12345, WORD - 1]


@pytest.mark.parametrize("seed", [0, 1, 2**61 + 12345, 2**62 - 1])
@pytest.mark.parametrize("step", [0, 1, 10**6])
@pytest.mark.parametrize("stream", [0, 1, 2])
def test_equals_the_definition(seed: int, step: int, stream: int) -> None:
    anchors = [0, 1, 2, 65535, 2**33]
    expected = [[definition(seed, step, stream, anchor, slot) for slot in range(4)] for anchor in anchors]
    assert numbers(seed, step, stream, torch.tensor(anchors), 4).tolist() == expected


def test_known_values() -> None:
    """The same in every version, so that runs repeat."""
    found = numbers(seed=2024, step=7, stream=1, anchors=2, slots=3)
    assert [[float.hex(x) for x in row] for row in found.tolist()] == KNOWN


def test_a_block_has_the_numbers_of_the_whole() -> None:
    whole = numbers(seed=5, anchors=100, slots=7)
    for start, stop, slots in ((0, 100, 7), (0, 33, 7), (33, 34, 2), (34, 100, 1)):
        part = numbers(seed=5, anchors=torch.arange(start, stop), slots=slots)
        assert torch.equal(part, whole[start:stop, :slots])
    turned = torch.arange(100).flip(0)
    assert torch.equal(numbers(seed=5, anchors=turned, slots=7), whole.flip(0))
    assert numbers(seed=5, anchors=0, slots=7).shape == (0, 7)
    assert numbers(seed=5, anchors=3, slots=0).shape == (3, 0)


@pytest.mark.parametrize(("bits", "expected"), [(WORD - 1, 1 - 2**-53), (2**11, 2**-53), (2**11 - 1, 0.0)])
def test_the_largest_number_is_below_one_and_the_least_is_zero(bits: int, expected: float) -> None:
    """The place with these random bits, found by going backwards, has 53 of them as its number."""
    row = (unscramble(bits) - GOLDEN) % WORD
    anchor = ((unscramble(row) - of_stream(1, 0, 0)) * pow(GOLDEN, -1, WORD) - 1) % WORD
    assert splitmix(splitmix(of_stream(1, 0, 0), anchor), 0) == bits
    place = anchor - WORD if anchor >= 2**63 else anchor
    assert numbers(anchors=torch.tensor([place])).item() == expected


def test_every_one_of_53_bits_is_random() -> None:
    whole = numbers(anchors=256, slots=64).flatten() * 2**53
    assert torch.equal(whole, whole.floor())
    ones = [int(((whole.long() >> bit) & 1).sum()) for bit in range(53)]
    assert min(chisquare([count, len(whole) - count]).pvalue for count in ones) > 1e-3
    assert whole.unique().numel() == len(whole)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("other", [1, 4])
def test_uniform_along(axis: str, other: int) -> None:
    counts = torch.bincount((along(axis, other) * 64).long(), minlength=64)
    assert len(counts) == 64
    assert chisquare(counts.tolist()).pvalue > 1e-3


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("distance", [1, 2])
def test_neighbours_are_independent_along(axis: str, distance: int) -> None:
    sixteenths = (along(axis, 1) * 16).long()
    pairs = sixteenths[:-distance] * 16 + sixteenths[distance:]
    assert chisquare(torch.bincount(pairs, minlength=256).tolist()).pvalue > 1e-3


@pytest.mark.parametrize("other", ["seed", "step", "stream"])
def test_tables_of_neighbouring_keys_are_independent(other: str) -> None:
    first, second = (numbers(**{other: value}, anchors=256, slots=64).flatten() for value in (0, 1))
    pairs = (first * 16).long() * 16 + (second * 16).long()
    assert chisquare(torch.bincount(pairs, minlength=256).tolist()).pvalue > 1e-3


def test_seeds_of_keys_repeat_with_the_generator_and_differ_otherwise() -> None:
    first, again, other = (new_key(torch.Generator().manual_seed(seed)).tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first[1] == 0
