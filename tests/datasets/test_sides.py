"""Inputs of two sides: each is read as its side is, in any order and part of a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.pairs import load_sides
from trivet.datasets.pairs_config import PairsConfig
from trivet.datasets.sides import SidedInputs
from trivet.datasets.vectors import VectorInputs
from trivet.models import SidedBatch


def numbered(count: int, first: int) -> VectorInputs:
    """Rows of one number, from the first one on."""
    values = np.arange(first, first + count, dtype=np.float32)[:, None]
    return VectorInputs(values, [str(i) for i in range(first, first + count)], np.arange(count), Path("x"))


@pytest.fixture
def inputs() -> SidedInputs:
    """Seven items: 0, 1, 2, 3 on the left, 10, 11, 12 on the right."""
    return SidedInputs((numbered(4, 0), numbered(3, 10)), np.array([False, True, False, False, True, True, False]))


ORDER = [0, 10, 1, 2, 11, 12, 3]


def read(batch: SidedBatch) -> list[float]:
    values: list[float] = batch.joined(batch.sides)[:, 0].tolist()
    return values


@pytest.mark.parametrize("index", [[0, 1, 2, 3, 4, 5, 6], [6, 5, 0, 5], [2, 0]], ids=["all", "mixed", "one side"])
def test_batches_and_subsets_keep_the_order_of_items(inputs: SidedInputs, index: list[int]) -> None:
    batch = inputs.batch(np.array(index))
    assert batch.right.tolist() == inputs.right[index].tolist()
    some = SidedBatch(batch.right, (batch.sides[0], batch.sides[1].reshape(-1, 1)))
    assert read(some) == [ORDER[i] for i in index]
    subset = inputs.subset(np.array(index))
    assert [subset.show(i) for i in range(len(subset))] == [str(ORDER[i]) for i in index]
    assert [len(side) for side in subset.sides] == [len(index) - sum(batch.right), sum(batch.right)]


@pytest.mark.parametrize("rows", [slice(0, 3), slice(3, 6), slice(2, 3), slice(6, 7)])
def test_consecutive_rows_of_a_batch_are_consecutive_on_each_side(inputs: SidedInputs, rows: slice) -> None:
    index = np.array([6, 4, 0, 3, 1, 5, 2])
    taken = [
        side.batch(positions[span])[:, 0].tolist()
        for side, (positions, span) in zip(inputs.sides, inputs.divided(index, rows), strict=True)
    ]
    expected = [ORDER[i] for i in index[rows]]
    assert taken == [[each for each in expected if each < 10], [each for each in expected if each >= 10]]


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Twelve images of one brightness each, and their captions."""
    (tmp_path / "images").mkdir()
    rows = []
    for i in range(12):
        Image.new("RGB", (9, 8), (20 * i,) * 3).save(tmp_path / "images" / f"{i}.png")
        rows.append(f"images/{i}.png,brightness {i}")
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption", *rows]))
    return tmp_path / "captions.csv"


def settings(path: Path, **values: object) -> PairsConfig:
    values = {"name": "pairs", "path": str(path), "images": "left", "image_size": 8, **values}
    config = DataConfig.parse(values, source="x")
    assert isinstance(config, PairsConfig)
    return config


def loaded(path: Path, **values: object) -> Splits:
    return load_sides(settings(path, **values), (None, None))


def test_images_are_read_beside_texts(captions: Path) -> None:
    items = loaded(captions).train
    batch = items.inputs.batch(np.arange(len(items)))
    left, right = batch.sides
    assert left.dtype == torch.uint8
    assert left.shape[1:] == (3, 8, 8)
    names = [id for id, of_right in zip(items.ids, batch.right.tolist(), strict=True) if not of_right]
    assert left[:, 0, 0, 0].tolist() == [20 * int(Path(name).stem) for name in names]
    assert not right.is_floating_point() or right.ndim == 2
    text = items.columns["text"]
    assert [text[i] for i in np.flatnonzero(~batch.right.numpy())] == [""] * len(left)
    assert text[int(np.flatnonzero(batch.right)[0])].startswith("brightness")
    assert (items.ids[0], isinstance(items.show(0), Image.Image)) == (names[0], True)


def test_images_may_be_on_both_sides(captions: Path) -> None:
    rows = [f"images/{i}.png,images/{11 - i}.png" for i in range(12)]
    captions.write_text("\n".join(["left,right", *rows]))
    items = load(settings(captions, images="both"), None).train
    assert items.inputs.shape == (3, 8, 8)
    number = {id: int(Path(id).stem) for id in items.ids}
    assert items.inputs.batch(np.arange(3))[:, 0, 0, 0].tolist() == [20 * number[id] for id in items.ids[:3]]


def test_what_is_wrong_with_images_of_pairs_is_said(captions: Path) -> None:
    with pytest.raises(
        ValueError, match=r'12 of 12 are not, first \'brightness 0\'; data\.images = "right" says which side has them'
    ):
        loaded(captions, images="right")
    (captions.parent / "images" / "3.png").rename(captions.parent / "images" / "x.png")
    with pytest.raises(ValueError, match=r"must be a file below .*: 1 of 12 are not, first 'images/3\.png'; add them"):
        loaded(captions)
    (captions.parent / "images" / "3.png").write_text("no image")
    with pytest.raises(ValueError, match=r"must be readable: 1 of 12 cannot be read, first .*3\.png \(Unidentified"):
        loaded(captions)
    captions.write_text(captions.read_text().replace("images/3.png", "../3.png"))
    with pytest.raises(ValueError, match=r"a path must lie below .*: got '\.\./3\.png'"):
        loaded(captions)
    with pytest.raises(ValueError, match="image_size is for images: remove it, or set images to the side that has"):
        settings(captions, images="none", image_size=32)
    with pytest.raises(ValueError, match='towers = "shared" is for sides of one kind'):
        settings(captions, towers="shared")
    assert settings(captions, images="none", image_size=64).image_size == 64


def test_images_in_the_cells_of_a_table_are_read_as_those_of_its_paths(tmp_path: Path) -> None:
    generator, rows = np.random.default_rng(0), []
    for row in range(12):
        pixels = generator.integers(256, size=(8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
        rows.append({"image": f"{row}.png", "caption": f"caption {row}", "split": "test" if row % 3 == 0 else "train"})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "paths.parquet")
    for each in rows:
        each["image"] = {"bytes": (tmp_path / each["image"]).read_bytes(), "path": each["image"]}
    (tmp_path / "apart").mkdir()
    held = tmp_path / "apart" / "images.parquet"
    pq.write_table(pa.Table.from_pylist(rows), held)
    config = PairsConfig(path=tmp_path / "paths.parquet", images="left", image_size=8)
    of_files = load_sides(config, (None, None)).evaluation["test"]
    of_cells = load_sides(config.model_copy(update={"path": held}), (None, None)).evaluation["test"]
    assert of_cells.ids == of_files.ids
    every = np.arange(len(of_files.inputs))
    assert isinstance(of_files.inputs, SidedInputs)
    assert isinstance(of_cells.inputs, SidedInputs)
    first, second = (inputs.batch(every).sides[0] for inputs in (of_files.inputs, of_cells.inputs))
    assert len(first) == 4
    assert torch.equal(first, second)
    for images, side in (("none", "left"), ("right", "both")):
        wrong = PairsConfig.parse({"name": "pairs", "path": str(held), "images": images}, source="a test")
        with pytest.raises(ValueError, match=f"'image' of .* holds them; set data.images = \"{side}\""):
            load_sides(wrong, (None, None))
