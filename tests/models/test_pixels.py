from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet.datasets import in_memory
from trivet.models import ModelConfig, build, in_unit_range
from trivet.training.embed_dataset import raw_inputs

BYTES = np.random.default_rng(0).integers(0, 256, (7, 3, 8, 8), np.uint8)


def test_each_byte_is_its_quotient_by_255() -> None:
    every = np.arange(256, dtype=np.uint8)
    got = in_unit_range(torch.from_numpy(every))
    assert got.dtype == torch.float32
    np.testing.assert_array_equal(got.numpy(), every.astype(np.float32) / np.float32(255))
    others = torch.tensor([[3.0, -1.0]])
    assert in_unit_range(others) is others


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_makes_of_bytes_what_it_makes_of_their_quotients(dtype: torch.dtype) -> None:
    model = build(ModelConfig(name="conv3", embedding_dim=4), (3, 8, 8), seed=0).to(dtype)
    floats = torch.from_numpy(BYTES).to(dtype) / 255
    assert torch.equal(model(torch.from_numpy(BYTES)), model(floats))


def test_raw_images_are_from_0_to_1() -> None:
    raw = raw_inputs(in_memory(BYTES))
    np.testing.assert_array_equal(raw, BYTES.reshape(7, -1).astype(np.float32) / np.float32(255))
