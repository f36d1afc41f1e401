"""Equal items: a text is in a batch once, and one of two classes in none; what is trained on and evaluated is said."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.miniatures import picture

from trivet.datasets import DataConfig, Dataset, load
from trivet.datasets.archives import ZipMember
from trivet.datasets.equal_items import distinct_texts, file_keys
from trivet.training import RunConfig
from trivet.training.components import class_sizes, make_batches

TEXTS = [*((f"{word} {i}", word) for word in ("ash", "bay", "elm") for i in range(5)), *(("yew 0", "yew"),) * 3]
REPEATED = [("ash 1", "ash"), ("ash 1", "ash"), ("bay 2", "elm"), ("elm 4", "elm")]


def settings(folder: Path, rows: list[tuple[str, str]], **batch: Any) -> RunConfig:
    held_out = [(f"{word} {i}", word) for word in ("fir", "oak") for i in range(2)]
    lines = [f"{text},{tree},train" for text, tree in rows] + [f"{text},{tree},test" for text, tree in held_out]
    (folder / "texts.csv").write_text("\n".join(["text,tree,split", *lines]) + "\n")
    values = {
        "data": {"name": "texts", "path": str(folder / "texts.csv"), "levels": ["tree"]},
        "batch": {"num_classes": 2, "samples_per_class": 2} | batch,
        "loss": {"name": "triplet"},
    }
    return RunConfig.parse(values, source="test")


def shown(items: Dataset, index: np.ndarray) -> list[str]:
    return [str(items.show(i)) for i in index.tolist()]


@pytest.mark.parametrize("batch", [{"samples_per_class": 4}, {"size": 5, "num_classes": 16, "samples_per_class": 4}])
def test_batches_hold_each_text_once_and_none_of_two_classes(batch: dict[str, int], tmp_path: Path) -> None:
    config = settings(tmp_path, TEXTS + REPEATED, **batch)
    train = load(config.data, tmp_path).train
    plan = make_batches(config, train, "tree")
    expected = {text for text, tree in TEXTS if text != "bay 2" and (tree != "yew" or "size" in batch)}
    for epoch in range(3):
        batches = [shown(train, plan.batch(epoch, step)) for step in range(plan.steps_per_epoch)]
        assert all(len(set(texts)) == len(texts) for texts in batches)
        assert {text for texts in batches for text in texts} == expected
    assert plan.coverage(0) == (len(expected) / 22, 1.0 if "size" in batch else 0.75)


def test_the_guard_knows_how_many_texts_of_a_class_batches_hold(tmp_path: Path) -> None:
    """Those of one text count where they do in batches: beside classes of one item, which have no positive either."""
    for rows, sizes in ((TEXTS + REPEATED, [5, 4, 5]), ([*TEXTS, ("zelkova", "zelkova")], [5, 5, 5, 1, 1])):
        config = settings(tmp_path, rows)
        assert class_sizes(config, load(config.data, tmp_path).train, "tree") == sizes


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    splits = load(settings(tmp_path, TEXTS + REPEATED).data, tmp_path)
    assert splits.warnings == (
        "Of 22 training texts, 5 came before in the same class: batches hold each text once.",
        "2 of 22 training texts have another class elsewhere, and are left out of batches: first 'bay 2', which is "
        "'bay' and 'elm' (items 7, 20); trivet audit shows them, and its decisions mend them.",
        "1 class at level 'tree' with one text or none left, such as 'yew': in no batch that needs two items of a "
        "class.",
    )
    assert len(splits.train) == 22  # what is audited and diagnosed is all of them
    found = distinct_texts(splits.train, "tree")
    assert (found.repeated, found.contrary.tolist()) == (5, [7, 20])
    assert found.rows.tolist() == [*range(7), *range(8, 16)]
    decided = tmp_path / "decisions.csv"
    decided.write_text("id,decision,label\n20,drop,\n")
    config = settings(tmp_path, TEXTS + REPEATED)
    mended = load(config.data.model_copy(update={"decisions": decided}), tmp_path)
    assert len(mended.warnings) == 2  # of repeated texts, and of yew
    assert 7 in distinct_texts(mended.train, "tree").rows


def test_different_texts_are_batched_as_they_are(tmp_path: Path) -> None:
    config = settings(tmp_path, TEXTS[:15])
    splits = load(config.data, tmp_path)
    assert splits.warnings == ()
    plan = make_batches(config, splits.train, "tree")
    assert plan.coverage(0) == (1.0, 1.0)


def test_files_are_equal_by_every_byte(tmp_path: Path) -> None:
    body = bytes(range(256)) * 100
    contents = [body, body + b"x", body[:-1] + b"x", body, b"x" + body[1:], body]
    files = [tmp_path / str(i) for i in range(len(contents))]
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        for name, content in (("a", body), ("b", body), ("c", body[1:])):
            archive.writestr(name, content)
    packed = [ZipMember(tmp_path / "some.zip", name) for name in "abcd"]
    keys = file_keys([*files, *packed, tmp_path / "none", tmp_path / "none"])
    groups = [keys.index(key) for key in keys]
    assert groups == [0, 1, 2, 0, 4, 0, 6, 6, 8, 9, 10, 11]  # what is not there equals nothing


@pytest.mark.parametrize("memory_gb", [0, 1])
def test_images_that_are_read_again_are_compared_too(tmp_path: Path, memory_gb: int) -> None:
    for value, (part, name, number) in enumerate((p, c, i) for p in ("train", "test") for c in "ab" for i in range(3)):
        picture(tmp_path / part / name / f"{number}.png", value * 9)
    shutil.copy(tmp_path / "train/a/0.png", tmp_path / "test/b/1.png")
    values = {"name": "folder", "root": str(tmp_path), "image_size": 8, "memory_gb": memory_gb}
    (warning,) = load(DataConfig.parse(values, source="test"), None).warnings
    assert warning.startswith(
        "seen: 1 of 6 items (16.7 %) is a copy of training items: 1 exact; 1 of another class. This is 'test/b/1.png'"
    )
    boxes = "".join(f"train/a/0.png,{kind},{part},{x},0,{x + 4},4,{part}{x}{kind}\n" for x, kind, part in BOXES)
    (tmp_path / "boxes.csv").write_text("path,class,split,l,u,r,b,id\n" + boxes)
    values |= {"name": "table", "path": str(tmp_path / "boxes.csv"), "box": ["l", "u", "r", "b"]}
    (warning,) = load(DataConfig.parse(values, source="test"), None).warnings
    assert warning.startswith("seen: 1 of 2 items (50.0 %) is a copy")  # one file, but another part of it


BOXES = [(0, "a", "train"), (1, "a", "train"), (2, "b", "train"), (3, "b", "train"), (3, "a", "test"), (7, "b", "test")]
