from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.datasets.inputs import FileInputs, in_memory
from trivet.io.image_file import Frame


def test_pixels_become_floats_from_0_to_1_in_the_order_asked_for() -> None:
    pixels = np.array([0, 4, 16], np.uint8).reshape(3, 1, 1, 1)
    inputs = in_memory(pixels, white=16, channels=None)
    assert inputs.shape == (1, 1, 1)
    batch = inputs.batch(np.array([2, 0, 1, 1]))
    assert batch.dtype == torch.float32
    assert batch.flatten().tolist() == [1.0, 0.0, 0.25, 0.25]


def test_grey_images_are_repeated_to_three_channels() -> None:
    inputs = in_memory(np.array([10, 20, 30, 40], np.uint8).reshape(1, 1, 2, 2), white=255, channels=3)
    assert inputs.shape == (3, 2, 2)
    batch = inputs.batch(np.array([0]))
    assert batch.is_contiguous()
    assert [channel.flatten().tolist() for channel in batch[0]] == [[10, 20, 30, 40]] * 3


def test_thumbnails_show_the_pixels_and_are_at_most_64_a_side() -> None:
    pixels = np.zeros((2, 3, 100, 200), np.uint8)
    pixels[1, 0] = 250
    assert in_memory(pixels, white=255, channels=None).show(1).size == (64, 32)
    assert in_memory(pixels, white=255, channels=None).show(1).getpixel((5, 5)) == (250, 0, 0)
    small = in_memory(np.full((1, 1, 8, 8), 4, np.uint8), white=16, channels=3).show(0)
    assert small.size == (8, 8)
    assert small.getpixel((0, 0)) == 64  # 63.75


def test_files_that_break_during_a_run_are_an_error(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        Image.new("RGB", (8, 8), (i, 100, 200)).save(path)
    inputs = FileInputs(paths, Frame(3, (4, 4)), np.arange(3)).subset(np.array([2, 0]))
    assert inputs.batch(np.array([0, 1]))[:, 0, 0, 0].tolist() == [2, 0]
    assert inputs.show(0).getpixel((0, 0)) == (2, 100, 200)
    paths[2].unlink()
    with pytest.raises(ValueError, match=r"2\.png could be decoded when the run began"):
        inputs.batch(np.array([0, 1]))
