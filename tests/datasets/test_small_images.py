from __future__ import annotations

import gzip
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import datasets
from tests.miniatures import mnist

from trivet.datasets import DataConfig, DigitsConfig, Splits, load
from trivet.datasets.archives import Tree
from trivet.datasets.small_images import OmniglotConfig, average_pool, read_idx

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
HEADER = bytes((0, 0, 8, 1, 0, 0, 0, 3))
DRAWINGS = {
    "images_background": [f"Greek/character0{i}/{i}.png" for i in (1, 2)]
    + [f"Latin/character01/{i}.png" for i in "34"],
    "images_evaluation": ["Tengwar/character09/01.png", "Tengwar/character09/02.png"],
}


def read(name: str, data_root: Path | None, **values: Any) -> Splits:
    return load(DataConfig.parse({"name": name, **values}, source="data"), data_root)


def test_digits_by_the_published_protocol() -> None:
    splits = load(DigitsConfig(), None)
    bundle = datasets.load_digits()
    low = np.array([i for i, digit in enumerate(bundle.target) if digit <= 5])
    np.random.RandomState(0).shuffle(low)
    expected = {"train": low[:649], "seen": low[649:], "unseen": [i for i, d in enumerate(bundle.target) if d > 5]}
    assert splits.level == "parity"
    assert list(splits.evaluation) == ["seen", "unseen"]
    for name, dataset in {"train": splits.train, **splits.evaluation}.items():
        rows = [int(id.removeprefix("digits/")) for id in dataset.ids]
        assert rows == list(expected[name])
        images = dataset.inputs.batch(np.arange(len(dataset)))
        assert torch.equal(images[:, 0], torch.tensor(bundle.images[rows] / 16, dtype=torch.float32))
        assert [dataset.names["digit"][i] for i in dataset.labels["digit"]] == [str(bundle.target[i]) for i in rows]
        assert [dataset.names["parity"][i] for i in dataset.labels["parity"]] == [
            ("even", "odd")[bundle.target[i] % 2] for i in rows
        ]
    small = load(DigitsConfig(level="digit", image_size=4, channels=3), None)
    assert small.level == "digit"
    assert small.train.inputs.batch(np.arange(5)).shape == (5, *small.train.inputs.shape) == (5, 3, 4, 4)


@pytest.mark.parametrize(("folder", "compress"), [("mnist", True), ("mnist", False), ("MNIST/raw", False)])
def test_mnist_holds_out_6_to_9(folder: str, compress: bool, tmp_path: Path) -> None:
    mnist(tmp_path / folder, "train", [0, 6, 1, 1, 9, 2, 4], compress=compress)
    mnist(tmp_path / folder, "t10k", [7, 5, 8, 3], compress=compress)
    splits = read("mnist", tmp_path, image_size=14)
    assert splits.train.ids == ("train/00000", "train/00002", "train/00003", "train/00005", "train/00006")
    assert splits.train.labels["digit"].tolist() == [0, 1, 1, 2, 4]
    assert splits.train.labels["parity"].tolist() == [0, 1, 1, 0, 0]
    assert (splits.train.inputs.batch(np.array([3])) * 255).unique().round().tolist() == [25]
    assert {name: data.ids for name, data in splits.evaluation.items()} == {
        "seen": ("test/00001", "test/00003"),
        "unseen": ("test/00000", "test/00002"),
    }


def test_fashion_mnist_holds_out_items_of_trained_groups(tmp_path: Path) -> None:
    mnist(tmp_path / "fashion-mnist", "train", [*range(10), *range(10)])
    mnist(tmp_path / "fashion-mnist", "t10k", list(range(10)))
    splits = read("fashion-mnist", tmp_path)
    unseen = splits.evaluation["unseen"]
    assert [unseen.names["item"][i] for i in unseen.labels["item"]] == ["Coat", "Shirt", "Ankle boot"]
    assert [unseen.names["group"][i] for i in unseen.labels["group"]] == ["top", "top", "shoe"]
    assert set(unseen.labels["group"]) <= set(splits.train.labels["group"])
    assert [splits.level, len(splits.train)] == ["group", 14]
    mnist(tmp_path / "fashion-mnist", "t10k", [0, 1, 2])
    labels = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(HEADER[:7] + b"\2\0\1"))
    with pytest.raises(ValueError, match=r"t10k-images.*as many labels 0 to 9: got shapes \(3, 28, 28\) and \(2,\)"):
        read("fashion-mnist", tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it begins with"),
        (HEADER[:7], "unpack"),
        (bytes((0, 0, 8, 2, 0, 0, 0, 1, 5)), "1 dimensions: it begins with 00 00 08 02"),
        (bytes((0, 0, 13)) + HEADER[3:] + bytes(3), "idx file of bytes"),
        (HEADER + bytes(2), r"holds 2 bytes for an array of shape \(3,\)"),
        (HEADER + bytes(4), r"holds 4 bytes for an array of shape \(3,\)"),
    ],
)
def test_a_wrong_idx_file_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    for name, content in (("a-idx1", data), ("a-idx1.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} must .*{message}"):
            read_idx(Tree(tmp_path), "a-idx1")
    whole = gzip.compress(HEADER + bytes(3))
    for content in (whole[:-9], b"not gzip at all", whole[:15] + b"\xff\xff" + whole[17:]):
        (tmp_path / "a-idx1.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"a-idx1\.gz must"):
            read_idx(Tree(tmp_path), "a-idx1")


def test_pooling_is_the_exact_mean_of_patches() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    pooled = average_pool(images, 14)
    assert pooled.shape == (3, 1, 14, 14)
    for n, i, j in [(0, 0, 0), (1, 13, 13), (2, 4, 9)]:
        corner = [int(images[n, 2 * i + a, 2 * j + b]) for a in (0, 1) for b in (0, 1)]
        assert pooled[n, 0, i, j] == sum(corner) / 4
    assert (average_pool(images, 28)[:, 0] == images).all()


def drawing(seed: int, side: int = 105) -> bytes:
    pixels = np.random.default_rng(seed).random((side, side)) < 0.5
    file = io.BytesIO()
    Image.fromarray(pixels).convert("1").save(file, "PNG")
    return file.getvalue()


def write_drawings(folder: Path, *, extracted: bool = False, **changed: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, names in DRAWINGS.items():
        files = {name: drawing(i) for i, name in enumerate(names)} | {"Greek/notes.txt": b""}
        files |= {name: data for name, data in changed.items() if part == "images_background"}
        with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
            for name, data in reversed(files.items()):
                archive.writestr(f"{part}/{name}", data)
        if extracted:
            zipfile.ZipFile(folder / f"{part}.zip").extractall(folder)
            (folder / f"{part}.zip").unlink()


@pytest.mark.parametrize(("folder", "extracted"), [("omniglot", False), ("omniglot-py", True)])
def test_omniglot_has_levels_names_and_ink(folder: str, extracted: bool, tmp_path: Path) -> None:
    write_drawings(tmp_path / folder, extracted=extracted)
    calls: list[tuple[int, int]] = []
    splits = load(OmniglotConfig(image_size=35), tmp_path, lambda done, count: calls.append((done, count)))
    names = DRAWINGS["images_background"]
    assert list(splits.train.ids) == names
    for level, depth in (("alphabet", 1), ("character", 2)):
        got = [splits.train.names[level][i] for i in splits.train.labels[level]]
        assert got == ["/".join(name.split("/")[:depth]) for name in names]
    assert [splits.level, *splits.evaluation] == ["alphabet", "unseen"]
    unseen = splits.evaluation["unseen"]
    assert [unseen.names["character"][i] for i in unseen.labels["character"]] == ["Tengwar/character09"] * 2
    assert calls == [(6, 6)]
    paper = np.asarray(Image.open(io.BytesIO(drawing(2))), float)
    ink = 1 - paper.reshape(35, 3, 35, 3).mean(axis=(1, 3))
    assert np.abs(splits.train.inputs.batch(np.array([2]))[0, 0].numpy() / 255 - ink).max() < 0.51 / 255


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"not a png", "1.png must be an image of Omniglot"),
        (drawing(0)[:-30], "1.png must be an image of Omniglot"),
        (drawing(0, side=64), "64 x 64 pixels, not 105 x 105"),
    ],
)
def test_a_broken_drawing_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    write_drawings(tmp_path / "omniglot", **{"Greek/character01/1.png": data})
    with pytest.raises(ValueError, match=message):
        load(OmniglotConfig(), tmp_path)


def test_a_broken_archive_is_named_and_what_leaves_its_folder_is_not_read(tmp_path: Path) -> None:
    write_drawings(tmp_path / "omniglot", **{"../../../x.png": b""})
    assert len(load(OmniglotConfig(), tmp_path).train) == 4
    path = tmp_path / "omniglot" / "images_background.zip"
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[whole.index(b"IDAT") + 20] ^= 0xFF  # the checksum of this member no longer holds
    for data in (bytes(changed), whole[:-40], b"no zip"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"images_background\.zip.* must be a (complete zip )?file"):
            load(OmniglotConfig(), tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "omniglot"])
def test_missing_files_say_what_where_and_how(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"not found in .*{name} or .*trivet data download {name}.*--data-root"):
        read(name, tmp_path)


@pytest.mark.nightly  # files of the same forms, but few, are read above
@pytest.mark.parametrize(
    ("name", "level", "items", "classes"),
    [
        ("mnist", "digit", {"train": 36017, "seen": 6031, "unseen": 3969}, [6, 6, 4]),
        ("fashion-mnist", "item", {"train": 42000, "seen": 7000, "unseen": 3000}, [7, 7, 3]),
        ("omniglot", "character", {"train": 19280, "unseen": 13180}, [964, 659]),
    ],
)
def test_the_real_files(name: str, level: str, items: dict[str, int], classes: list[int]) -> None:
    if not (REAL / name).is_dir():
        pytest.skip(f"needs the data set {name}: not in {REAL}")
    splits = read(name, REAL)
    parts = {"train": splits.train, **splits.evaluation}
    assert {part: len(data) for part, data in parts.items()} == items
    assert [len(np.unique(data.labels[level])) for data in parts.values()] == classes
    images = splits.train.inputs.batch(np.arange(500))
    assert images[:, :, 0, 0].float().mean() < 13  # a dark background
    assert images.max() == 255
