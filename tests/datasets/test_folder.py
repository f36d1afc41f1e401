from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.datasets import DataConfig, Splits, augmentation, load


def make(root: Path, classes: dict[str, int]) -> None:
    """`count` images in each class folder; the grey value numbers the image."""
    for path, count in classes.items():
        (root / path).mkdir(parents=True)
        for i in range(count):
            Image.new("L", (6, 6), i).save(root / path / f"{i:02d}.png")


def read(root: Path, **values: Any) -> Splits:
    return load(DataConfig.parse({"name": "folder", "root": root, "image_size": 4, **values}, source="data"), None)


def test_the_first_half_of_the_classes_is_trained_on(tmp_path: Path) -> None:
    make(tmp_path, {"dog": 2, "ant": 3, "cat": 2, "bee": 2, "eel": 1})
    (tmp_path / "ant" / "notes.txt").write_text("no image")
    (tmp_path / "ant" / "._00.png").write_text("hidden")
    make(tmp_path, {".cache/zoo": 3})
    splits = read(tmp_path)
    assert splits.level == "class"
    assert splits.train.ids[:5] == ("ant/00.png", "ant/01.png", "ant/02.png", "bee/00.png", "bee/01.png")
    assert splits.train.ids[5:] == ("cat/00.png", "cat/01.png")
    assert splits.train.names["class"] == ("ant", "bee", "cat", "dog", "eel")
    assert splits.train.labels["class"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert {name: data.ids for name, data in splits.evaluation.items()} == {
        "unseen": ("dog/00.png", "dog/01.png", "eel/00.png")
    }
    assert splits.train.inputs.batch(np.array([2, 3]))[:, :, 0, 0].tolist() == [[2, 2, 2], [0, 0, 0]]


def test_nested_folders_are_levels_and_a_fine_class_is_its_path(tmp_path: Path) -> None:
    make(tmp_path, {f"{make_}/{model}": 2 for make_ in ("audi", "bmw", "fiat", "kia") for model in ("one", "two")})
    splits = read(tmp_path)
    assert list(splits.train.labels) == ["level1", "level2"]
    assert splits.level == "level1"
    assert [splits.train.names["level2"][i] for i in splits.train.labels["level2"][::2]] == [
        "audi/one",
        "audi/two",
        "bmw/one",
        "bmw/two",
    ]
    named = read(tmp_path, levels=["make", "model"], level="model")
    assert named.level == "model"
    assert len(np.unique(named.train.labels["model"])) == 4
    with pytest.raises(ValueError, match=r"each of the 2 folder levels.*got \['make'\]"):
        read(tmp_path, levels=["make"])


def test_in_class_holds_out_a_seeded_share_of_every_class(tmp_path: Path) -> None:
    make(tmp_path, {"a": 20, "b": 10, "c": 4, "d": 3})
    splits = read(tmp_path, split="in-class", holdout=0.3)
    seen = splits.evaluation["seen"]
    assert list(splits.evaluation) == ["seen"]
    assert np.bincount(seen.labels["class"]).tolist() == [6, 3, 2]  # d is too small to share
    assert np.bincount(splits.train.labels["class"]).tolist() == [14, 7, 2, 3]
    assert sorted(seen.ids + splits.train.ids) == sorted({*seen.ids, *splits.train.ids})
    assert read(tmp_path, split="in-class", holdout=0.3).train.ids == splits.train.ids
    assert read(tmp_path, split="in-class", holdout=0.3, seed=1).train.ids != splits.train.ids


@pytest.mark.parametrize(
    ("test", "relation"), [(["a", "b"], "seen"), (["a"], "seen"), (["c", "d"], "unseen"), (["b", "c"], "mixed")]
)
@pytest.mark.parametrize("folder", ["test", "val"])
def test_given_folders_are_the_split(test: list[str], relation: str, folder: str, tmp_path: Path) -> None:
    make(tmp_path, {"train/a": 2, "train/b": 2, **{f"{folder}/{name}": 2 for name in test}})
    splits = read(tmp_path)
    assert splits.train.ids == ("train/a/00.png", "train/a/01.png", "train/b/00.png", "train/b/01.png")
    assert list(splits.evaluation) == [relation]
    evaluated = splits.evaluation[relation]
    assert [evaluated.names["class"][i] for i in evaluated.labels["class"][::2]] == test
    assert evaluated.names == splits.train.names


@pytest.mark.parametrize(
    "names", [("Train", "TEST", "Val"), ("training", "testing", "valid"), ("train", "test", "dev")]
)
def test_folders_of_a_split_in_other_words(names: tuple[str, str, str], tmp_path: Path) -> None:
    train, test, val = names
    make(tmp_path, {f"{train}/a": 2, f"{train}/b": 2, f"{test}/c": 2, f"{val}/a": 2})
    splits = read(tmp_path)
    assert splits.train.ids[0] == f"{train}/a/00.png"
    assert {name: items.ids[0] for name, items in splits.evaluation.items()} == {
        "unseen": f"{test}/c/00.png",
        "val": f"{val}/a/00.png",
    }


def test_val_beside_test_is_a_second_split(tmp_path: Path) -> None:
    make(tmp_path, {"train/a": 2, "train/b": 2, "test/c": 2, "val/a": 2})
    splits = read(tmp_path)
    assert {name: data.ids for name, data in splits.evaluation.items()} == {
        "unseen": ("test/c/00.png", "test/c/01.png"),
        "val": ("val/a/00.png", "val/a/01.png"),
    }
    with pytest.raises(ValueError, match="are a split already"):
        read(tmp_path, split="in-class")
    make(tmp_path, {"more/a": 1})
    with pytest.raises(ValueError, match="only: it also has more"):
        read(tmp_path)


def test_broken_images_are_skipped_and_listed_up_to_a_share(tmp_path: Path) -> None:
    make(tmp_path, {"a": 5, "b": 5, "c": 5, "d": 5})
    (tmp_path / "b" / "03.png").write_bytes(b"broken")
    (tmp_path / "d" / "00.png").write_bytes(b"broken")
    splits = read(tmp_path, allow_corrupt=0.1)
    assert [skipped.id for skipped in splits.train.skipped] == ["b/03.png", "d/00.png"]
    assert "UnidentifiedImageError" in splits.train.skipped[0].reason
    assert len(splits.train) == len(splits.evaluation["unseen"]) == 9
    assert splits.evaluation["unseen"].skipped == ()
    assert splits.train.inputs.batch(np.array([8])).unique().tolist() == [4]
    with pytest.raises(ValueError, match=r"at most 9\.00 % .*: 2 of 20 .* first b/03\.png .*; d/00\.png"):
        read(tmp_path, allow_corrupt=0.09)


def test_data_too_large_for_memory_are_read_from_their_files(tmp_path: Path) -> None:
    make(tmp_path, {"a": 3, "b": 2, "c": 2, "d": 2})
    (tmp_path / "a" / "00.png").write_bytes(b"broken")
    held, read_again = read(tmp_path, allow_corrupt=1), read(tmp_path, allow_corrupt=1, memory_gb=0)
    assert read_again.train.ids == held.train.ids
    assert read_again.train.inputs.shape == held.train.inputs.shape
    index = np.array([3, 0, 1])
    assert (read_again.train.inputs.batch(index) == held.train.inputs.batch(index)).all()
    Image.new("L", (6, 6), 200).save(tmp_path / "a" / "01.png")
    assert read_again.train.inputs.batch(np.array([0])).max() == 200


@pytest.mark.parametrize(
    ("classes", "values", "message"),
    [
        ({"a": 2}, {}, "needs at least four classes"),
        ({"a": 2, "b": 2, "c": 2}, {}, 'needs at least four classes.*; add classes, or set data.split = "in-class"'),
        ({"train/a": 2, "train/b": 2, "test/a": 1}, {}, "at least two images.*'seen' has 1; add images"),
        (
            {"a/b/c": 2, "a/b/d": 2, "a/e/f": 2, "g/h/i": 2},
            {},
            r'has 2 at level .level1.; add classes, train on a finer level \(data.level = "level3" has 4\), or set',
        ),
        ({"a": 9}, {"split": "in-class"}, r"at least two classes.*\['a'\]"),
        ({"a": 3, "b": 3}, {"split": "in-class"}, "classes of at least four items"),
        ({".": 3}, {}, "every image must be in the folder of its class: 00.png"),
        (
            {"a": 2, "b/c": 2},
            {},
            r"the same folder depth.*a/00\.png \(1 class folders\) and b/c/00\.png \(2 class folders\)",
        ),
        ({"a": 0}, {}, "has none"),
        ({"a": 2, "b": 2}, {"level": "clas"}, "did you mean 'class'"),
    ],
)
def test_layouts_that_cannot_work(
    classes: dict[str, int], values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "root", classes)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "root", **values)


def test_a_missing_root_and_a_file_as_root(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        read(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        read(tmp_path / "file")


def test_linked_folders_are_entered_and_loops_end(tmp_path: Path) -> None:
    make(tmp_path / "elsewhere", {"zebra": 2})
    make(tmp_path / "root", {"a": 2, "b": 2, "c": 2})
    (tmp_path / "root" / "d").symlink_to(tmp_path / "elsewhere" / "zebra")
    (tmp_path / "root" / "a" / "loop").symlink_to(tmp_path / "root")
    splits = read(tmp_path / "root")
    assert splits.train.names["class"] == ("a", "b", "c", "d")
    assert len(splits.train) + len(splits.evaluation["unseen"]) == 8


def test_rectangles_are_cut_from_larger_ones(tmp_path: Path) -> None:
    for kind in "abcd":
        (tmp_path / kind).mkdir()
        for i in range(2):
            Image.linear_gradient("L").save(tmp_path / kind / f"{i}.png")  # 256 x 256, dark on top
    splits = read(tmp_path, image_size=[8, 4], resize=6, augment="crop-flip")
    assert splits.train.inputs.shape == (3, 8, 4)
    centre = splits.train.inputs.batch(np.array([0]))[0, 0, :, 0]
    assert 256 * 2 / 12 - 12 < centre[0] < 256 * 3 / 12  # rows 2 to 9 of 12
    augment = augmentation(DataConfig.parse({"name": "folder", "root": tmp_path, "augment": "crop-flip"}, source="x"))
    assert augment is not None
    tops = augment(splits.train.inputs, np.zeros(60, int), torch.Generator().manual_seed(0))[:, 0, 0, 0]
    assert len(tops.round().unique()) == 5  # 12 - 8 + 1 places
    whole = read(tmp_path, image_size=[8, 4], augment="random-resized-crop")
    assert whole.train.inputs.batch(np.array([0, 1])).shape == (2, 3, 8, 4)
    with pytest.raises(ValueError, match="resize must be at least the shorter side of image_size, 4: got 3"):
        read(tmp_path, image_size=[8, 4], resize=3)
