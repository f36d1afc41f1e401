"""A model that is loaded from a run embeds images, texts and vectors as `trivet embed` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.datasets import load_images
from trivet.io.image_file import Frame
from trivet.models import Embedder, ModelConfig, build, load_model, save
from trivet.training.embed_dataset import embed

COLOURS, VECTORS = (3, 16, 20), (6,)


def stored(folder: Path, shape: tuple[int, ...], *, resize: int | None = None) -> Embedder:
    config = ModelConfig(name="conv3" if len(shape) == 3 else "linear", embedding_dim=5, normalize=False)
    model = build(config, shape, seed=3).eval()
    model.resize = resize
    save(model, config, shape, folder)
    return model


def photos(folder: Path) -> list[Path]:
    """Files of several formats and sizes, one of them lying on its side, one transparent, one grey."""
    folder.mkdir()
    draws = np.random.default_rng(0)
    files = [folder / name for name in ("a.jpg", "b.png", "c.png", "d.png")]
    exif = Image.Exif()
    exif[274] = 6
    coarse = Image.fromarray(draws.integers(0, 255, (9, 12, 3), np.uint8))
    coarse.resize((200, 130)).save(files[0], exif=exif)
    Image.fromarray(draws.integers(0, 255, (33, 20, 3), np.uint8)).save(files[1])
    Image.fromarray(draws.integers(0, 255, (20, 41, 4), np.uint8)).save(files[2])
    Image.fromarray(draws.integers(0, 255, (30, 30), np.uint8)).save(files[3])
    return files


@pytest.mark.parametrize("resize", [None, 23])
def test_images_are_prepared_as_for_the_run(resize: int | None, tmp_path: Path) -> None:
    model = stored(tmp_path / "run" / "model", COLOURS, resize=resize).train()
    files = photos(tmp_path / "photos")
    expected = embed(model, load_images(tmp_path / "photos", Frame.of(COLOURS, resize), None).inputs)
    loaded = load_model(tmp_path / "run")
    assert loaded.embed(files, batch_size=3) == pytest.approx(expected, abs=1e-6)
    assert loaded.embed([str(file) for file in files]) == pytest.approx(expected, abs=1e-6)
    pictures = [Image.open(files[1]), Image.open(files[2])]
    assert loaded.embed(pictures) == pytest.approx(expected[1:3], abs=1e-6)
    taken = Image.open(files[0])
    assert loaded.embed([taken]) == pytest.approx(expected[:1], abs=0.1)  # a JPEG, which was decoded whole
    assert taken.size == (200, 130)
    assert taken.getpixel((199, 129))
    arrays = [np.asarray(Image.open(files[1])), np.asarray(Image.open(files[3]))]
    assert loaded.embed(arrays) == pytest.approx(expected[[1, 3]], abs=1e-6)
    assert model.train().embed(files).dtype == np.float32
    assert model.training


def test_vectors_are_embedded_as_they_are(tmp_path: Path) -> None:
    model = stored(tmp_path, VECTORS)
    rows = np.random.default_rng(0).normal(size=(5, 6))
    expected = model(torch.tensor(rows, dtype=torch.float32)).detach().numpy()
    for given in (rows, rows.tolist(), torch.tensor(rows), list(rows)):
        assert load_model(tmp_path).embed(given) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("shape", "items", "message"),
    [
        (COLOURS, "a.png", "items must be a list with at least one image, text or vector: got 'a.png'"),
        (COLOURS, [], "got none"),
        (COLOURS, ["nowhere.png"], "item 0, nowhere.png, cannot .FileNotFoundError"),
        (COLOURS, [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4))], r"item 1 is float64 \(4, 4\)"),
        (COLOURS, [7], "item 0 is int"),
        (VECTORS, ["a text"], r"takes vectors \(N, 6\), of the encoder that it was trained on: got str items"),
        (VECTORS, np.zeros((3, 5)), r"got shape \(3, 5\)"),
        (VECTORS, np.full((3, 6), np.nan), "vectors must be finite"),
        ((2, 6), np.zeros((1, 2, 6)), r"this model takes inputs of shape \(2, 6\)"),
    ],
)
def test_what_is_no_item_is_refused(shape: tuple[int, ...], items: Any, message: str, tmp_path: Path) -> None:
    model = stored(tmp_path, shape)
    with pytest.raises(ValueError, match=message):
        model.embed(items)


def test_texts_are_embedded(tmp_path: Path) -> None:
    small_texts = pytest.importorskip("tests.small_texts")
    config = ModelConfig.parse({"name": f"text:{small_texts.text_network(tmp_path / 'network')}"}, source="settings")
    model = build(config, (1,), seed=0).eval()
    save(model, config, model.input_shape, tmp_path / "run" / "model")
    texts = ["card lost", "top up failed again", "my rent"]
    with torch.no_grad():
        expected = model(model.tokens(texts)).numpy()
    loaded = load_model(tmp_path / "run")
    assert loaded.embed(texts, batch_size=2) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="this model takes texts: got PosixPath"):
        loaded.embed([tmp_path])
