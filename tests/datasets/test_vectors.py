"""Vectors and texts in files as data sets: what they become, and what is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trivet.datasets import DataConfig, Splits, load, load_file
from trivet.datasets import vectors as module

CLASSES = ("ash", "bay", "elm", "fir", "oak", "yew")


def columns(each: int = 4) -> dict[str, np.ndarray]:
    """Six classes in two groups, in random order."""
    tree = np.random.default_rng(0).permutation(np.repeat(np.array(CLASSES), each))
    vectors = np.random.default_rng(1).standard_normal((len(tree), 3)).astype(np.float32)
    group = np.where(tree < "f", "early", "late")
    return {"embeddings": vectors, "tree": tree, "group": group, "id": np.array([f"t{i}" for i in range(len(tree))])}


def loaded(path: Path, name: str = "vectors", **settings: Any) -> Splits:
    return load(DataConfig.parse({"name": name, "path": str(path), **settings}, source="data"), path.parent)


def saved(folder: Path, **changed: np.ndarray | None) -> Path:
    values = {name: value for name, value in (columns() | changed).items() if value is not None}
    np.savez(folder / "trees.npz", **values)
    return folder / "trees.npz"


def test_levels_are_the_columns_and_half_of_the_classes_is_trained_on(tmp_path: Path) -> None:
    splits = loaded(saved(tmp_path), levels=["group", "tree"], level="tree")
    assert {splits.train.names["tree"][label] for label in splits.train.labels["tree"]} == {"ash", "bay", "elm"}
    assert list(splits.evaluation) == ["unseen"]
    known = columns()
    place = {id: i for i, id in enumerate(known["id"].tolist())}
    for part in (splits.train, splits.evaluation["unseen"]):
        rows = [place[id] for id in part.ids]
        np.testing.assert_array_equal(part.inputs.batch(np.arange(len(part))).numpy(), known["embeddings"][rows])
        assert [part.names["group"][label] for label in part.labels["group"]] == known["group"][rows].tolist()
    assert splits.train.show(0) == splits.train.ids[0]


def test_an_npy_is_mapped_and_read_row_by_row(tmp_path: Path) -> None:
    known = columns()
    np.save(tmp_path / "trees.npy", known["embeddings"])
    rows = zip(known["id"], known["tree"], known["group"], strict=True)
    (tmp_path / "named.csv").write_text("id,tree,text\n" + "".join(f"{a},{b},a {c} one\n" for a, b, c in rows))
    splits = loaded(tmp_path / "trees.npy", table=str(tmp_path / "named.csv"), split="in-class", holdout=0.5)
    held_out = splits.evaluation["seen"]
    assert np.bincount(held_out.labels["tree"]).tolist() == [2] * 6
    assert isinstance(held_out.inputs, module.VectorInputs)
    base = held_out.inputs.vectors
    assert isinstance(base, np.memmap)
    assert held_out.show(0) in ("a early one", "a late one")
    assert held_out.columns["text"][0] == held_out.show(0)


def part(*names: str) -> np.ndarray:
    """A column that gives each class of `CLASSES` its part."""
    of = dict(zip(CLASSES, names, strict=True))
    return np.array([of[tree] for tree in columns()["tree"].tolist()])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("train", "train", "train", "test", "test", "dev"), ["unseen", "val"]),
        (("train", "train", "train", "extra", "test", "test"), ["unseen", "extra"]),
    ],
)
def test_a_column_splits_the_rows(tmp_path: Path, given: tuple[str, ...], found: list[str]) -> None:
    path = saved(tmp_path, split=part(*given))
    splits = loaded(path, split="class-disjoint", levels=["tree"])
    assert list(splits.evaluation) == found
    assert len(splits.train) == 12


def test_a_test_part_of_trained_classes_is_seen_or_mixed(tmp_path: Path) -> None:
    order = np.argsort(columns()["tree"], kind="stable")
    every = np.empty(24, "<U5")
    every[order] = ["train", "test"] * 12
    assert list(loaded(saved(tmp_path, split=every), levels=["tree"], split="in-class").evaluation) == ["seen"]
    every[columns()["tree"] == "yew"] = "test"
    assert list(loaded(saved(tmp_path, split=every), levels=["tree"]).evaluation) == ["mixed"]


def with_nan() -> np.ndarray:
    vectors = columns()["embeddings"].copy()
    vectors[3], vectors[17, 1] = np.nan, np.inf
    return vectors


BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"embeddings": with_nan()}, {}, "must be finite: 2 of 24 are not, rows 3, 17 counted from 0; embed them again"),
    ({"id": np.array(["a"] * 24)}, {}, "must be unique: rows 0, 1 counted from 0 both have 'a'"),
    ({"tree": np.where(np.arange(24) == 5, " ", columns()["tree"])}, {}, "must have a class name.*1 of 24.*row 5"),
    ({"tree": np.where(np.arange(24) == 5, np.nan, 1.0)}, {"levels": ["tree"]}, "1 of 24 have none, row 5 counted"),
    ({}, {"levels": ["three"]}, "has no 'three'; did you mean 'tree'"),
    ({"tree": None, "group": None}, {}, "training needs a label for each row"),
    ({}, {"levels": ["split"]}, "must not be named id, split, embedding"),
    ({"split": np.array(["fit", "test"] * 12)}, {}, "must say train of some rows.*has fit, test; rename"),
    ({"split": np.array(["train", "a/b"] * 12)}, {}, "names that a file can have: got 'a/b'"),
    ({"split": np.array(["train", "test"] * 12)}, {"split": "class-disjoint", "levels": ["tree"]}, "must be true of "
     "the given parts: 5 of the 5 classes of 'test' .*, such as 'ash', are in train, too; correct them"),
    ({}, {"levels": ["group"]}, "class-disjoint. needs at least four classes.*set data.split"),
    ({}, {"levels": ["group", "tree"]}, "train on a finer level \\(data.level = \"tree\" has 6\\)"),
    ({}, {"holdout": 0.5}, "holdout is used by split = \"in-class\" only"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "settings", "sentence"), BAD)
def test_what_cannot_be_trained_on_is_said(
    tmp_path: Path, changed: dict[str, Any], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        loaded(saved(tmp_path, **changed), **settings)


def test_a_vector_that_is_not_finite_is_met_when_it_is_read_if_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKED", 0)
    splits = loaded(saved(tmp_path, embeddings=with_nan(), split=part(*["train"] * 3, *["test"] * 3)), levels=["tree"])
    whole = {"train": splits.train, **splits.evaluation}
    with pytest.raises(ValueError, match=r"must be finite: .* rows (3|17|3, 17) counted from 0"):
        _ = [one.inputs.batch(np.arange(len(one))) for one in whole.values()]


WORDS = {"ash": "sand", "bay": "wave", "elm": "rain", "fir": "snow", "oak": "star", "yew": "moon"}


def texts() -> list[dict[str, Any]]:
    trees = columns()["tree"].tolist()
    return [{"text": f"the {WORDS[tree]} number {i}", "tree": tree} for i, tree in enumerate(trees)]


def texts_file(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"texts{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text("text,tree\n" + "".join(f"{row['text']},{row['tree']}\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_texts_become_vectors_of_the_n_grams_of_the_training_texts(tmp_path: Path, suffix: str) -> None:
    from trivet.models import fit_ngrams

    splits = loaded(texts_file(tmp_path, suffix, texts()), "texts")
    unseen = splits.evaluation["unseen"]
    trained = [str(splits.train.show(i)) for i in range(len(splits.train))]
    held_out = [str(unseen.show(i)) for i in range(len(unseen))]
    assert all("the " in text for text in trained + held_out)
    assert not any(WORDS[tree] in text for text in trained for tree in ("fir", "oak", "yew"))
    np.testing.assert_array_equal(unseen.inputs.batch(np.arange(12)).numpy(), fit_ngrams(trained)(held_out))


@pytest.mark.parametrize(
    ("rows", "settings", "sentence"),
    [
        (
            [*texts(), {"text": "  ", "tree": "oak"}],
            {},
            "must have a text: 1 of 25 have none, (row 24 counted|line 2[56])",
        ),
        (
            [*texts(), {"text": "words", "tree": ""}],
            {},
            "row of .* must have a class name.*(row 24 counted|line 2[56])",
        ),
        (texts(), {"text": "texts"}, "must have a column 'texts': .* did you mean 'text'"),
        (texts(), {"levels": ["text"]}, "different column from the texts"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_texts_that_cannot_be_trained_on_are_said(
    tmp_path: Path, suffix: str, rows: list[dict[str, Any]], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        loaded(texts_file(tmp_path, suffix, rows), "texts", **settings)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_other_columns_of_vectors_and_texts_are_kept(tmp_path: Path, suffix: str) -> None:
    price = np.where(np.arange(24) == 3, np.nan, np.arange(24) + 0.5)
    link = np.array([f"x/{i}" for i in range(24)])
    found = loaded(saved(tmp_path, price=price, link=link), levels=["tree"], level="tree")
    for part in (found.train, *found.evaluation.values()):
        rows = [int(id.removeprefix("t")) for id in part.ids]
        assert list(part.columns) == ["group", "price", "link"]
        assert part.columns["link"] == tuple(link[rows])
        assert part.columns["price"] == tuple("" if row == 3 else f"{row}.5" for row in rows)
    rows = [row | {"link": f"x/{i}"} for i, row in enumerate(texts())]
    path = tmp_path / f"texts{suffix}"
    if suffix == ".csv":
        lines = [",".join((row["text"], row["tree"], row["link"])) for row in rows]
        path.write_text("\n".join(["text,tree,link", *lines]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = loaded(path, "texts").train
    assert list(train.columns) == ["text", "link"]
    assert [train.columns["link"][i].removeprefix("x/") for i in range(12)] == list(train.ids)


def test_another_file_keeps_its_columns_and_what_its_column_split_says(tmp_path: Path) -> None:
    splits = np.array(["old", "new"])[np.arange(len(columns()["tree"])) % 2]
    config = DataConfig.parse({"name": "vectors", "path": "gone.npz"}, source="data")
    data = load_file(config, saved(tmp_path, split=splits, tree=None, note=np.arange(len(splits)) / 2), None)
    assert list(data.labels) == ["group"]
    assert data.columns["split"] == tuple(splits)
    assert data.columns["note"][:3] == ("0", "0.5", "1")
