"""`trivet.search` among vectors in memory: the nearest by their definition, and as the command finds them in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands.conftest import Call

import trivet

GALLERY = np.random.default_rng(0).standard_normal((12, 5))
QUERIES = np.random.default_rng(1).standard_normal((3, 5))
NAMES = [f"item {row}" for row in range(12)]
KINDS = ["ash", "bay", "elm"] * 4


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("form", [np.asarray, torch.as_tensor, np.ndarray.tolist], ids=["numpy", "torch", "lists"])
def test_the_nearest_by_definition(distance: Any, form: Any) -> None:
    def far(query: np.ndarray, item: np.ndarray) -> float:
        if distance == "euclidean":
            return math.dist(query, item)
        return 1 - float(query @ item) / (math.hypot(*query) * math.hypot(*item))

    result = trivet.search(form(GALLERY), form(QUERIES), k=4, ids=NAMES, distance=distance)
    for query, ids, distances in zip(QUERIES, result.ids, result.distances, strict=True):
        expected = sorted((far(query, item), name) for item, name in zip(GALLERY, NAMES, strict=True))[:4]
        assert ids == [name for _, name in expected]
        assert distances == pytest.approx([value for value, _ in expected], rel=1e-5)
    assert result.ids == [[NAMES[row] for row in rows] for rows in result.indices]
    assert trivet.search(form(GALLERY), form(QUERIES[0]), k=4, ids=NAMES, distance=distance).ids == result.ids[:1]


def test_the_command_finds_the_same(run_command: Call) -> None:
    np.savez("items.npz", embeddings=GALLERY, id=NAMES, kind=KINDS)
    np.save("queries.npy", QUERIES)
    assert run_command("index", "items.npz", "-o", "index", "--distance", "cosine")[0] == 0
    code, out, err = run_command("search", "index", "queries.npy", "--k", "4", "--json")
    assert code == 0, err
    queries = json.loads(out)["queries"]
    for result in (
        trivet.search("index", QUERIES, k=4),
        trivet.search(GALLERY, QUERIES, k=4, ids=NAMES, labels={"kind": KINDS}),
    ):
        record = result.record.as_json(unset=False)
        assert [query["neighbours"] for query in record["queries"]] == [query["neighbours"] for query in queries]
        assert [row["kind"] for row in result.rows()] == [
            item["labels"]["kind"] for query in queries for item in query["neighbours"]
        ]
        assert repr(result).startswith("vector 0\n     id ")
        assert result.save("page.html").read_text().count("item ") > 12
        assert len(result.figure().axes[0].lines) == 3


def test_fewer_items_than_were_asked_for() -> None:
    result = trivet.search(GALLERY[:2], QUERIES[:1], k=3)
    assert result.indices[0, 2] == -1
    assert result.distances[0, 2] == np.inf
    assert str(result).endswith("Only 2 other items exist; 3 were requested.")


@pytest.mark.parametrize(
    ("index", "queries", "options", "sentence"),
    [
        (GALLERY, QUERIES[:, :4], {}, "queries must have the 5 dimensions of the index: got 4"),
        (GALLERY, ["a text"], {}, "queries among vectors must be vectors: got texts or images"),
        (GALLERY, "a text", {}, "queries among vectors must be vectors: got texts or images"),
        (["a text", "another"], ["a text"], {}, "what is searched must be vectors or an index folder: got texts"),
        (GALLERY, 5, {}, "the embeddings of the queries must be an array"),
        (GALLERY, QUERIES, {"k": 0}, "k must be a whole number of at least 1: got 0"),
        (GALLERY, QUERIES, {"ids": ["a"]}, "ids must be one for each"),
        (GALLERY, QUERIES, {"distance": "far"}, "distance must be"),
        ("nowhere", QUERIES, {}, "an index folder must hold index.json: nowhere does not"),
        ("nowhere", QUERIES, {"labels": KINDS}, "an index has its own labels: got nowhere; leave labels out"),
    ],
)
def test_a_mistake_is_one_sentence(index: Any, queries: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        trivet.search(index, queries, **options)
    assert "\n" not in str(error.value)
