"""Tables of images: csv, parquet, and Hugging Face data sets saved on disk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from tests import miniatures

from trivet.datasets import DataConfig, Dataset, Splits, load, load_file
from trivet.io.image_file import Frame

CLASSES = ("ant", "bee", "cow", "dog")


def photos(root: Path, count: int = 8) -> list[str]:
    paths = [f"photos/{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        miniatures.picture(root / path, 10 * number)
    return paths


def rows(root: Path) -> dict[str, list[Any]]:
    """Two images of each of four classes of two groups."""
    return {
        "path": photos(root),
        "group": [("insect", "mammal")[number // 4] for number in range(8)],
        "class": [CLASSES[number // 2] for number in range(8)],
    }


def write(path: Path, columns: dict[str, list[Any]], delimiter: str = ",") -> Path:
    lines = [delimiter.join(columns), *(delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, **values: Any) -> Splits:
    return load(DataConfig.parse({"name": "table", "path": path, "image_size": 4, **values}, source="data"), None)


def corner(splits: Splits, part: str) -> list[int]:
    """The grey value of each image at its right lower corner."""
    data = splits.train if part == "train" else splits.evaluation[part]
    return data.inputs.batch(np.arange(len(data)))[:, 0, -1, -1].tolist()


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_the_rows_of_a_text_table(name: str, delimiter: str, tmp_path: Path) -> None:
    table = write(tmp_path / name, {**rows(tmp_path), "place": list("abcdefgh")}, delimiter)
    splits = read(table, levels=["group", "class"], level="class")
    assert list(splits.train.names) == ["group", "class"]
    assert splits.train.ids == ("photos/0.png", "photos/1.png", "photos/2.png", "photos/3.png")
    assert corner(splits, "train") == [0, 10, 20, 30]
    assert corner(splits, "unseen") == [40, 50, 60, 70]
    assert splits.evaluation["unseen"].columns == {"place": ("e", "f", "g", "h")}
    assert read(table).level == "class"  # the column of that name


def test_parquet_with_numbers_as_classes_and_ids(tmp_path: Path) -> None:
    columns = rows(tmp_path) | {"class": [float(number // 2) for number in range(8)], "id": list(range(8))}
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    splits = read(tmp_path / "a.parquet", memory_gb=0)
    assert splits.train.names["class"] == ("0", "1", "2", "3")
    assert splits.train.ids == ("0", "1", "2", "3")
    assert corner(splits, "unseen") == [40, 50, 60, 70]
    assert splits.train.columns == {"group": ("insect",) * 4}


def test_a_root_elsewhere_and_absolute_paths_below_it(tmp_path: Path) -> None:
    columns = rows(tmp_path / "elsewhere")
    columns["path"][3] = str(tmp_path / "elsewhere" / columns["path"][3])
    columns["path"][4] = "photos/../photos/4.png"
    (tmp_path / "tables").mkdir()
    table = write(tmp_path / "tables" / "a.csv", columns)
    splits = read(table, root=tmp_path / "elsewhere")
    assert corner(splits, "train") + corner(splits, "unseen") == list(range(0, 80, 10))
    with pytest.raises(ValueError, match=r"must lie below .*tables: line 5 of .*a\.csv has '/"):
        read(table)


def test_the_column_split_is_followed_and_checked(tmp_path: Path) -> None:
    columns = rows(tmp_path)
    parts = ["train"] * 4 + ["test", "test", "valid", "valid"]
    table = write(tmp_path / "a.csv", {**columns, "split": parts})
    splits = read(table)
    assert {name: data.ids for name, data in splits.evaluation.items()} == {
        "unseen": ("photos/4.png", "photos/5.png"),
        "val": ("photos/6.png", "photos/7.png"),
    }
    assert list(read(table, split="class-disjoint").evaluation) == ["unseen", "val"]
    with pytest.raises(ValueError, match=r"'in-class' must be true .* 1 of the 1 classes of 'test' .* 'cow', is not"):
        read(table, split="in-class")
    shared = write(tmp_path / "b.csv", {**columns, "split": ["train", "train", "train", "test"] * 2})
    with pytest.raises(ValueError, match=r"2 of the 2 classes of 'test' .*, such as 'bee', are in train, too"):
        read(shared, split="class-disjoint")


def test_queries_gallery_cameras_and_boxes(tmp_path: Path) -> None:
    columns = rows(tmp_path)
    columns |= {"split": ["train"] * 4 + ["test"] * 4, "camera": ["x", "x", "x", "x", "x", "y", "x", "y"]}
    columns |= {"is_query": [0, 0, 0, 0, 1, 0, 1, 0], "is_gallery": [0, 0, 0, 0, 0, 1, 0, 1]}
    columns |= {"x": [0] * 8, "y": [0] * 8, "w": [miniatures.SIDE // 2] * 8, "h": [miniatures.SIDE // 2] * 8}
    table = write(tmp_path / "a.csv", columns)
    splits = read(table, box=["x", "y", "w", "h"], box_form="size")
    protocol = splits.evaluation["unseen"].protocol
    assert protocol is not None
    assert protocol.cameras is not None
    assert [protocol.query.tolist(), protocol.gallery.tolist()] == [[True, False] * 2, [False, True] * 2]
    assert protocol.cameras.tolist() == [0, 1, 0, 1]
    assert splits.train.protocol is None
    assert list(splits.train.columns) == ["group"]
    assert set(corner(splits, "train")) == {250}  # the bright quarter alone
    columns["is_gallery"][7] = 0
    with pytest.raises(ValueError, match=r"an item in the gallery of 'unseen': 'dog' \(1 of 2"):
        read(write(tmp_path / "b.csv", columns))


def saved(folder: Path, numbers: range) -> None:
    images = []
    for number in numbers:
        sink = io.BytesIO()
        Image.new("RGB", (6, 6), (10 * number,) * 3).save(sink, "PNG")
        images.append(sink.getvalue())
    labels = [number // 2 for number in numbers]
    miniatures.hugging_face(folder, {"image": images, "label": labels}, label=CLASSES)


def test_a_hugging_face_data_set_saved_on_disk(tmp_path: Path) -> None:
    saved(tmp_path / "one", range(8))
    splits = read(tmp_path / "one")
    assert splits.train.names["label"] == CLASSES
    assert splits.train.ids == ("0", "1", "2", "3")
    assert corner(splits, "unseen") == [40, 50, 60, 70]
    saved(tmp_path / "both" / "train", range(4))
    saved(tmp_path / "both" / "test", range(4, 8))
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    both = read(tmp_path / "both", memory_gb=0)
    assert both.train.names == splits.train.names
    assert corner(both, "unseen") == [40, 50, 60, 70]
    (tmp_path / "both" / "test" / "data.arrow").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"data\.arrow must be a complete arrow file"):
        read(tmp_path / "both")
    (tmp_path / "both" / "train" / "state.json").write_text("[]")
    with pytest.raises(ValueError, match=r"state\.json must be a json object"):
        read(tmp_path / "both")


def changed(column: str, row: int, value: Any) -> dict[str, Any]:
    return {"column": column, "row": row, "value": value}


@pytest.mark.parametrize(
    ("change", "values", "message"),
    [
        (changed("class", 5, ""), {}, r"a class name of level 'class': 1 of 8 have none, line 7"),
        (changed("class", 5, "  "), {}, r"class name of level 'class': 1 of .* have none, line 7"),
        (changed("path", 2, ""), {}, r"must have a path: 1 of 8 have none, line 4"),
        (
            changed("path", 2, "../secret.png"),
            {},
            r"must lie below .*: line 4 of .* has '\.\./secret\.png'; correct it",
        ),
        (changed("path", 2, "photos/3.png"), {}, r"lines 4, 5 of .* both have 'photos/3\.png' in 'path'; remove one"),
        (changed("id", 2, "3"), {}, r"the ids of .* must be unique: lines 4, 5 both have '3'"),
        (changed("split", 2, "test"), {}, r"must say train of some rows and test or val of others: .* has test, x"),
        ({}, {"levels": ["clas"]}, r"each label level must be a column: .* has no 'clas'; did you mean 'class'"),
        ({}, {"image": "pth"}, r"the images must be a column: .* has no 'pth'; did you mean 'path'"),
        ({}, {"levels": ["path"]}, "must be a different column from the images: got 'path'"),
        ({}, {"levels": ["id"]}, "levels must not be named id, split"),
        ({}, {"box": ["group", "class", "group", "class"]}, "the column 'group' of .* must hold numbers"),
        ({}, {"root": "absent"}, "data.root must be a folder: absent is none"),
        ({}, {"box_form": "size"}, "box_form is used with box only"),
        ({}, {"path": Path("absent.csv")}, r"absent\.csv does not exist; check the path"),
        ({}, {"path": Path(".")}, "a folder must be a Hugging Face data set as save_to_disk writes it"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_a_sentence(
    change: dict[str, Any], values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    columns = rows(tmp_path)
    if change:
        defaults = {"id": list("01234567"), "split": [""] * 8}
        columns.setdefault(change["column"], defaults.get(change["column"], []))
        columns[change["column"]][change["row"]] = change["value"]
    if change.get("column") == "split":
        columns["split"] = ["test"] * 3 + ["x"] * 5
    given = {"path": write(tmp_path / "a.csv", columns), **values}
    with pytest.raises(ValueError, match=message):
        read(**given)


def test_images_that_cannot_be_read_are_listed_with_their_row(tmp_path: Path) -> None:
    columns = rows(tmp_path)
    (tmp_path / "photos" / "2.png").write_bytes(b"broken")
    (tmp_path / "photos" / "5.png").unlink()
    columns["class"] = ["a", "b", "b", "a", "c", "c", "c", "c"]
    table = write(tmp_path / "a.csv", columns)
    with pytest.raises(
        ValueError, match=r"2 of 8 .* are, first photos/2\.png, line 4 of a\.csv \(Unid.*5\.png, line 7"
    ):
        read(table, split="in-class", level="class")


def another(table: Path, **settings: Any) -> Dataset:
    """The images of another table, as a run with these settings takes them."""
    config = DataConfig.parse({"image_size": 4, **settings}, source="data")
    return load_file(config, table, None, frame=Frame(3, (4, 4)))


def test_another_table_has_what_its_columns_say(tmp_path: Path) -> None:
    columns = {**rows(tmp_path), "is_query": [1, 0] * 4, "is_gallery": [0, 1] * 4, "camera": [1, 2] * 4}
    run = {"name": "table", "path": "gone.csv", "levels": ["group", "class"]}
    data = another(write(tmp_path / "b.csv", {**columns, "split": ["old", "new"] * 4}), **run)
    assert data.ids == tuple(columns["path"])
    assert data.names == {"group": ("insect", "mammal"), "class": CLASSES}
    assert data.columns == {"split": ("old", "new") * 4}  # which need not say what is trained on
    assert data.protocol is not None
    assert data.protocol.query.tolist() == [True, False] * 4
    assert data.inputs.batch(np.arange(8))[:, 0, -1, -1].tolist() == [10 * number for number in range(8)]
    columns["class"][3] = ""  # a label is not needed
    blank = another(write(tmp_path / "c.csv", columns), **run)
    assert blank.labels == {}
    assert blank.columns["class"][2:5] == ("bee", "", "cow")


def test_images_that_are_not_read_yet_are_all_there(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(b"no image")
    miniatures.picture(tmp_path / "0.png", 0)
    table = write(tmp_path / "b.csv", {"path": ["0.png", "1.png"]})
    config = DataConfig.parse({"name": "table", "path": "gone.csv", "image_size": 4}, source="data")
    read = load_file(config, table, None, frame=Frame(3, (4, 4)))
    assert (read.ids, [skip.id for skip in read.skipped]) == (("0.png",), ["1.png"])
    unread = load_file(config, table, None, frame=Frame(3, (4, 4)), unread=True)
    assert (unread.ids, unread.skipped) == (("0.png", "1.png"), ())


def test_a_table_of_images_for_a_run_on_folders(tmp_path: Path) -> None:
    columns = rows(tmp_path)
    data = another(write(tmp_path / "b.csv", columns), name="folder", root=str(tmp_path))
    assert data.ids == tuple(columns["path"])
    assert data.names == {"class": CLASSES}
    assert data.columns["group"] == tuple(columns["group"])
    saved(tmp_path / "saved", range(4))
    assert len(another(tmp_path / "saved", name="folder", root=str(tmp_path))) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\n9.png\n", "of 1, such as .*9.png, none was found"),
        ("path\nbroken.png\n", "must hold or name images .*: none of 1 can, first UnidentifiedImageError"),
        ("file_\na.png\n", "must have a column of paths"),
        ("path\n../a.png\n", "a path must lie below"),
        ("path,id\nbroken.png,1\na.png,1\n", "must be unique: lines 2, 3 both have '1'"),
    ],
)
def test_another_table_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        another(tmp_path / "b.csv", name="table", path="gone.csv")
