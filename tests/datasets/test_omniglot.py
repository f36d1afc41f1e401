from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trivet.datasets import load
from trivet.datasets.omniglot import OmniglotConfig

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

MEMBERS = {
    "images_background": ["Greek/character01/01.png", "Greek/character02/02.png", "Latin/character01/03.png"] * 2,
    "images_evaluation": ["Tengwar/character09/01.png", "Tengwar/character09/02.png"],
}


def drawing(seed: int, side: int = 105) -> bytes:
    pixels = np.random.default_rng(seed).random((side, side)) < 0.5
    file = io.BytesIO()
    Image.fromarray(pixels).convert("1").save(file, "PNG")
    return file.getvalue()


def members(part: str) -> dict[str, bytes]:
    names = [name.replace("/0", f"/{i}0") if i >= 3 else name for i, name in enumerate(MEMBERS[part])]
    return {f"{part}/{name}": drawing(i) for i, name in enumerate(names)}


def write(folder: Path, part: str, files: dict[str, bytes], *, extracted: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if extracted:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return
    with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
        for name, data in reversed(files.items()):
            archive.writestr(name, data)


@pytest.mark.parametrize("extracted", [False, True])
@pytest.mark.parametrize("folder", ["omniglot", "omniglot-py"])
def test_levels_names_and_ink(folder: str, extracted: bool, tmp_path: Path) -> None:
    for part in MEMBERS:
        write(tmp_path / folder, part, members(part) | {f"{part}/Greek/notes.txt": b""}, extracted=extracted)
    calls: list[tuple[int, int]] = []
    splits = load(OmniglotConfig(image_size=35), tmp_path, lambda done, count: calls.append((done, count)))
    names = sorted(name.removeprefix("images_background/") for name in members("images_background"))
    assert list(splits.train.ids) == names
    for level, depth in (("alphabet", 1), ("character", 2)):
        got = [splits.train.names[level][i] for i in splits.train.labels[level]]
        assert got == ["/".join(name.split("/")[:depth]) for name in names]
    assert splits.level == "alphabet"
    assert list(splits.evaluation) == ["unseen"]
    unseen = splits.evaluation["unseen"]
    assert [unseen.names["character"][i] for i in unseen.labels["character"]] == ["Tengwar/character09"] * 2
    assert calls == [(8, 8)]

    paper = np.asarray(Image.open(io.BytesIO(members("images_background")[f"images_background/{names[2]}"])), float)
    ink = 1 - paper.reshape(35, 3, 35, 3).mean(axis=(1, 3))
    assert np.abs(splits.train.inputs.batch(np.array([2]))[0, 0].numpy() / 255 - ink).max() < 0.51 / 255


@pytest.mark.parametrize("name", ["../evil.png", "/etc/evil.png", "images_background\\..\\x.png"])
def test_names_that_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path / "omniglot", "images_background", members("images_background") | {name: drawing(0)})
    with pytest.raises(ValueError, match="leaves its folder"):
        load(OmniglotConfig(), tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"not a png", "01.png must be an image of Omniglot"),
        (drawing(0)[:-30], "01.png must be an image of Omniglot"),
        (drawing(0, side=64), "64 x 64 pixels, not 105 x 105"),
        (bytes(2 << 20), "too large"),
    ],
)
def test_a_broken_member_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    broken = {"images_background/Greek/character01/01.png": data}
    write(tmp_path / "omniglot", "images_background", members("images_background") | broken)
    write(tmp_path / "omniglot", "images_evaluation", members("images_evaluation"))
    with pytest.raises(ValueError, match=message):
        load(OmniglotConfig(), tmp_path)


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    for part in MEMBERS:
        write(tmp_path / "omniglot", part, members(part))
    path = tmp_path / "omniglot" / "images_background.zip"
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[whole.index(b"IDAT") + 20] ^= 0xFF  # the checksum of this member no longer holds
    for data in (bytes(changed), whole[:-40], b"no zip"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"images_background\.zip must be a complete zip file"):
            load(OmniglotConfig(), tmp_path)
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(ValueError, match="it holds none"):
        load(OmniglotConfig(), tmp_path)


def test_the_real_files() -> None:
    if not (REAL / "omniglot").is_dir():
        pytest.skip(f"needs the data set omniglot: not in {REAL}")
    splits = load(OmniglotConfig(), REAL)
    for dataset, alphabets, characters in ((splits.train, 30, 964), (splits.evaluation["unseen"], 20, 659)):
        assert np.unique(np.bincount(dataset.labels["character"])[np.unique(dataset.labels["character"])]) == [20]
        assert len(np.unique(dataset.labels["alphabet"])) == alphabets
        assert len(np.unique(dataset.labels["character"])) == characters
    assert splits.train.inputs.batch(np.arange(1000)).float().mean() < 51  # ink is bright and scarce
