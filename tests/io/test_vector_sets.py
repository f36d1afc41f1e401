"""Files of several sets of vectors, and rows within other objects: read rightly, or refused with lines that work."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.io.read_embeddings import read_vectors
from trivet.io.vector_choice import VectorChoice

VALUES = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
OURS, THEIRS = np.array(["a", "a", "a", "b", "b", "b"]), np.array(["x", "y", "x", "y", "x", "y"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def followed(message: str) -> None:
    """Runs the lines of Python that a message ends with."""
    found = re.search(r"(a = numpy|import json).*", message)
    assert found is not None
    subprocess.run([sys.executable, "-c", f"import numpy\n{found[0]}"], check=True)


@pytest.mark.parametrize(
    "names",
    [
        ("X_train", "y_train", "X_test", "y_test"),
        ("Xtrain", "ytrain", "Xtest", "ytest"),
        ("XTrain", "YTrain", "XTest", "YTest"),
        ("train", "train_labels", "test", "test_labels"),
        ("trainX", "trainY", "valX", "valY"),
        ("Xtr", "Ytr", "Xte", "Yte"),
        ("X_train", "y_train", "X_valid", "y_valid"),
        ("X1", "y1", "X2", "y2"),
        ("query_embeddings", "query_label", "gallery_embeddings", "gallery_label"),
        ("embeddings", "labels", "test_embeddings", "test_labels"),
        ("emb_a", "label_a", "emb_b", "label_b"),
    ],
)
def test_labels_of_another_set_are_none_of_this_one(
    names: tuple[str, str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    vectors, labels, others, other_labels = names
    caplog.set_level(logging.WARNING)
    for one, level, kinds, left in ((vectors, labels, OURS, other_labels), (others, other_labels, THEIRS, labels)):
        np.savez("sets.npz", **{vectors: VALUES, labels: OURS, others: VALUES + 1, other_labels: THEIRS})
        read = read_vectors(Path("sets.npz"), choice=VectorChoice(embedding=one))
        assert {name: column.tolist() for name, column in read.labels.items()} == {level: kinds.tolist()}
        assert f"{one} is read, and {left} left out as of another" in caplog.messages[-1]
        followed(caplog.messages[-1])
        both = read_vectors(Path("sets_all.npz"))
        assert both.labels["label"].tolist() == [*kinds, *(THEIRS if kinds is OURS else OURS)]
        assert both.splits is not None
        assert len(set(both.splits.tolist())) == 2


def test_labels_that_no_name_gives_to_a_set_are_asked_about() -> None:
    np.savez("sets.npz", X_train=VALUES, X_test=VALUES, labels=OURS)
    with pytest.raises(ValueError, match=r"X_train, X_test, and of which labels is cannot be told; save one file"):
        read_vectors(Path("sets.npz"), choice=VectorChoice(embedding="X_train"))
    # Of one length only, or of vectors of no sets, there is no doubt; and of a counterpart alone neither.
    np.savez("sets.npz", X_train=VALUES, X_test=VALUES[:4], labels=OURS, y_test=THEIRS[:4])
    assert list(read_vectors(Path("sets.npz"), choice=VectorChoice(embedding="X_train")).labels) == ["labels"]
    np.savez(
        "sets.npz", clip=VALUES, dino=VALUES, labels=OURS, camera=THEIRS, is_query=OURS == "a", is_gallery=OURS == "b"
    )
    read = read_vectors(Path("sets.npz"), choice=VectorChoice(embedding="clip"))
    assert (list(read.labels), read.protocol is not None) == (["labels"], True)
    # However many there are.
    many = {f"{name}{number}": values for number in range(150) for name, values in (("X", VALUES), ("y", THEIRS))}
    np.savez("sets.npz", **many | {"y7": OURS})
    read = read_vectors(Path("sets.npz"), choice=VectorChoice(embedding="X7"))
    assert {name: column.tolist() for name, column in read.labels.items()} == {"y7": OURS.tolist()}
    np.savez("sets.npz", X_train=VALUES, X_test=VALUES, y_test=OURS)
    assert not read_vectors(Path("sets.npz"), choice=VectorChoice(embedding="X_train")).labels


ROWS = [{"label": str(label), "embedding": row.tolist()} for label, row in zip(OURS, VALUES, strict=True)]


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"vectors": ROWS, "namespace": "n"}, "['vectors']"),
        ({"result": {"points": ROWS, "next": None}, "status": "ok"}, "['result']['points']"),
        ({"hits": {"total": {"value": 6}, "hits": [{"_id": 0, "_source": row} for row in ROWS]}}, "['hits']['hits']"),
        ({"data": ROWS, "usage": {"tokens": 5}}, "['data']"),
    ],
)
def test_rows_within_objects_are_read(content: Any, key: str, caplog: pytest.LogCaptureFixture) -> None:
    Path("file.json").write_text(json.dumps(content))
    read = read_vectors(Path("file.json"), levels=["label"])
    assert read.labels["label"].tolist() == OURS.tolist()
    assert np.allclose(read.embeddings, VALUES)
    assert f"The rows of file.json are read from {key}." in caplog.messages


@pytest.mark.parametrize(
    ("content", "how"),
    [
        ({"images": ROWS, "annotations": ROWS}, "it holds ['images'], ['annotations'], of which one must be the rows"),
        ({"vectors": {f"v{i}": row for i, row in enumerate(ROWS)}}, "it names each row"),
        ({str(i): row for i, row in enumerate(ROWS)}, "it names each row"),
        ({k: [row[k] for row in ROWS] for k in ROWS[0]}, "may hold columns"),
        ({k: {str(i): row[k] for i, row in enumerate(ROWS)} for k in ROWS[0]}, "may hold columns"),
        (
            {
                "ids": list("uvwxyz"),
                "embeddings": VALUES.tolist(),
                "uris": None,
                "included": ["metadatas", "embeddings"],
                "metadatas": [{"label": row["label"]} for row in ROWS],
            },
            "may hold columns",
        ),
        ({"columns": [*ROWS[0]], "index": [*range(6)], "data": [[*row.values()] for row in ROWS]}, "may hold columns"),
    ],
)
def test_lines_that_make_rows_of_other_forms(content: Any, how: str) -> None:
    Path("file.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(how)) as error:
        read_vectors(Path("file.json"))
    assert "\n" not in str(error.value)
    followed(str(error.value))
    assert len(json.loads(Path("rows.json").read_text())) == len(ROWS)
    read = read_vectors(Path("rows.json"), levels=["label"])
    assert read.labels["label"].tolist() == OURS.tolist()
    assert np.allclose(read.embeddings, VALUES)
