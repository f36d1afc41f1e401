"""Texts and images that are copies of others: each kind is called by its name, and others are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.datasets.dataset import Dataset
from trivet.datasets.equal_items import normalised_words
from trivet.datasets.inputs import in_memory
from trivet.datasets.leaks import NamedItems, find_leaks, image_signatures, near_texts

KNOWN = [
    "Where is my card?",
    "I lost my new card",
    "Pay by phone",
    "book a table in Rome",
    "book a table in Oslo",
    "naïve",
]


@pytest.mark.parametrize(
    ("text", "kind", "original"),
    [
        ("where is my card", "near", 0),
        ("  Where is, my CARD!!", "near", 0),
        ("nai\u0308ve", "near", 5),
        ("I lost my card", "one word", 1),
        ("I lost my new blue card", "one word", 1),
        ("I lost my old card", "one word", 1),
        ("book a table in Paris", "", -1),  # one of three: a template
        ("my card is where", "", -1),
        ("Pay", "", -1),
        ("!!!", "", -1),
    ],
)
def test_texts(text: str, kind: str, original: int) -> None:
    assert list(near_texts([text], KNOWN)) == [(kind, original)]


def test_words_of_a_text_without_any_are_its_characters() -> None:
    assert normalised_words("?! …") != normalised_words("?? …")
    assert normalised_words("") == ()


@pytest.mark.parametrize(("text", "other"), [("what is C++?", "what is C#?"), ("over 5 %", "over 5"), ("£ 3", "$ 3")])
def test_signs_count(text: str, other: str) -> None:
    assert normalised_words(text) != normalised_words(other)


def scene(draw: np.random.Generator) -> np.ndarray:
    """Smooth colours with some detail, 96 pixels a side."""
    coarse = Image.fromarray(draw.integers(0, 255, (12, 12, 3), np.uint8)).resize((96, 96), Image.Resampling.BICUBIC)
    return np.asarray(coarse)


def items(name: str, images: list[np.ndarray], labels: list[int]) -> NamedItems:
    pixels = np.stack(images).transpose(0, 3, 1, 2)
    ids = tuple(f"{name}{i}" for i in range(len(images)))
    classes = tuple(f"c{i}" for i in range(4))
    return NamedItems(
        name, Dataset(name, in_memory(pixels), {"class": np.array(labels)}, {"class": classes}, ids), "class"
    )


def resized(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((48, 48)).resize((96, 96)))


def cut(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image[4:90, 6:92]).resize((96, 96)))


def test_images() -> None:
    draw = np.random.default_rng(0)
    known = [scene(draw) for _ in range(240)]
    new = [scene(draw) for _ in range(20)]
    new += [known[0], *(resized(image) for image in known[1:4]), *(image[:, ::-1] for image in known[4:7])]
    new += [cut(image) for image in known[7:10]]
    sides = items("new", new, [i % 4 for i in range(len(new))]), items("known", known, [i % 4 for i in range(240)])
    leaks = find_leaks(*sides, "images")
    assert leaks.kinds[:27].tolist() == [""] * 20 + ["exact"] + ["near"] * 6
    assert leaks.original[20:27].tolist() == list(range(7))
    with_crops = find_leaks(*sides, "images", crops=True)
    assert with_crops.kinds.tolist()[:27] == leaks.kinds.tolist()[:27]
    assert set(with_crops.kinds[27:].tolist()) <= {"near", "cropped"}
    assert with_crops.original[27:].tolist() == [7, 8, 9]
    few = items("few", known[:30], [i % 4 for i in range(30)])
    assert "near copies are not judged" in find_leaks(sides[0], few, "images").notes[0]


def test_a_signature_has_length_1_and_none_of_one_grey() -> None:
    pixels = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    pixels[2] = 7
    assert image_signatures(pixels).norm(dim=1).tolist() == pytest.approx([1, 1, 0], abs=1e-5)
    brighter = image_signatures(pixels * 0.5 + 20)
    assert torch.allclose(brighter, image_signatures(pixels), atol=1e-5)
