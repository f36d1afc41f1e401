"""What a test draws without a seed depends on its name alone: it passes or fails after any other tests."""

from __future__ import annotations

import random
from zlib import crc32

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def drawn() -> float:
    return torch.rand(1).item()


def expected(name: str) -> float:
    return torch.rand(1, generator=torch.Generator().manual_seed(crc32(name.encode()))).item()


def test_a_fixture_draws_by_its_name(drawn: float, request: pytest.FixtureRequest) -> None:
    assert drawn == expected(f"{request.node.parent.nodeid} drawn")


@pytest.mark.parametrize("library", ["torch", "numpy", "random"])
def test_a_test_draws_by_its_name(library: str, drawn: float, request: pytest.FixtureRequest) -> None:
    number = crc32(request.node.nodeid.encode())
    if library == "torch":
        assert torch.rand(1).item() == expected(request.node.nodeid) != drawn
    elif library == "numpy":
        assert np.random.random() == np.random.RandomState(number).random()
    else:
        assert random.random() == random.Random(number).random()
