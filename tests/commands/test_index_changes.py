"""`trivet index --add` and `--remove`: a changed index finds what one of the present items finds."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands.conftest import Call

from trivet.io.parquet_files import write_embeddings
from trivet.knn import codes
from trivet.knn.index import Index, build_index
from trivet.knn.kinds import Kind

KINDS = ["exact", "hnsw", "ivf", "int8", "binary", "ivf-pq"]
ROWS = np.random.default_rng(0).normal(size=(700, 12)).astype(np.float32) + 3
LABELS = np.arange(700) % 7


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "LEAST_ROWS", 300)


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "index")


def write(path: Path, numbers: np.ndarray, rows: np.ndarray | None = None, **columns: np.ndarray) -> Path:
    ids = np.array([f"item {number}" for number in numbers])
    np.savez(path, embeddings=ROWS[numbers] if rows is None else rows, id=ids, label=LABELS[numbers], **columns)
    return path


def write_ids(path: Path, *ids: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in ("id", *ids)))
    return path


@cache
def nearest_to_40_queries() -> list[list[str]]:
    """The three nearest of what is there to each of rows 600 to 639."""
    present = np.setdiff1d(np.arange(600), np.arange(0, 600, 40))
    return [nearest_by_definition(present, query, 3) for query in ROWS[600:640]]


def nearest_by_definition(numbers: np.ndarray, query: np.ndarray, k: int) -> list[str]:
    far = [sum((a - b) ** 2 for a, b in zip(ROWS[number].tolist(), query.tolist(), strict=True)) for number in numbers]
    return [f"item {numbers[i]}" for i in np.argsort(far, kind="stable")[:k]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_index_finds_what_is_there(kind: Kind, tmp_path: Path, run: Call, run_command: Call) -> None:
    folder, first, more = tmp_path / "index", np.arange(500), np.arange(500, 600)
    options = ("--kind", kind, "--distance", "euclidean", *(() if kind == "exact" else ("--recall", 1)))
    assert run(write(tmp_path / "first.npz", first), "-o", folder, *options)[0] == 0
    code, out, _ = run(write(tmp_path / "more.npz", more), "-o", folder, "--add")
    assert code == 0
    assert out.splitlines()[:2] == [
        "100 items added, 0 items removed", f"600 items of dimension 12 in {folder}, euclidean distance"
    ]  # fmt: skip
    gone = [f"item {number}" for number in range(0, 600, 40)]
    code, out, _ = run(write_ids(tmp_path / "gone.csv", *gone), "-o", folder, "--remove", "--json")
    assert code == 0
    answer = json.loads(out)
    assert (answer["present"], answer["removed"], answer["items"], answer["recall_items"]) == (585, 15, 600, 500)
    np.save(tmp_path / "queries.npy", ROWS[600:640])
    code, out, _ = run_command("search", folder, tmp_path / "queries.npy", "--k", 3, "--json")
    assert code == 0
    results = [[item["id"] for item in query["neighbours"]] for query in json.loads(out)["queries"]]
    right = sum(len(set(a) & set(b)) for a, b in zip(results, nearest_to_40_queries(), strict=True))
    assert right >= (120 if kind in ("exact", "int8", "ivf") else 115)
    assert not {id for row in results for id in row} & {*gone}
    np.save(tmp_path / "query.npy", ROWS[600:601])
    code, out, _ = run_command("search", folder, tmp_path / "query.npy", "--k", 600, "--json")
    every = {item["id"] for item in json.loads(out)["queries"][0]["neighbours"]}
    assert len(every) == 585 or (kind == "hnsw" and len(every) > 400)  # whose links do not lead everywhere
    assert not every & {*gone}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_beyond_most_removed_ones_are_found(kind: Kind) -> None:
    """The nearest 400 of 500 are removed: a search looks on until it has enough."""
    made = build_index(ROWS[:500], distance="euclidean", kind=kind, recall=None if kind == "exact" else 1)
    far = np.square(ROWS[:500] - ROWS[600]).sum(axis=1)
    order = np.argsort(far)
    kept = made.without(order[:400])
    nearest = kept.search(ROWS[600:601], 2).indices[0, 0]
    assert nearest in order[400 : 404 if kind == "hnsw" else 401]  # its links do not lead to all of so many
    assert made.search(ROWS[600:601], 1).indices[0, 0] == order[0]
    np.testing.assert_array_equal(kept.without(order[400:401]).removed, np.sort(order[:401]))


def test_few_items_have_the_label_columns_of_the_index(tmp_path: Path, run: Call) -> None:
    """Of 40 items of 40 classes alone, the column would look like one of ids."""
    labels = np.arange(100) % 50
    for name, rows in (("a", slice(0, 60)), ("b", slice(60, 100))):
        np.savez(tmp_path / f"{name}.npz", embeddings=ROWS[:100][rows], id=np.arange(100)[rows], label=labels[rows])
    assert run(tmp_path / "a.npz", "-o", tmp_path / "index")[0] == 0
    assert run(tmp_path / "b.npz", "-o", tmp_path / "index", "--add")[0] == 0
    assert pq.read_table(tmp_path / "index" / "items.parquet")["label"].to_pylist() == labels.astype(str).tolist()


def test_an_item_of_the_same_id_is_replaced(tmp_path: Path, run: Call, run_command: Call) -> None:
    folder = tmp_path / "index"
    run(write(tmp_path / "a.npz", np.arange(50)), "-o", folder, "--distance", "euclidean")
    moved = write(tmp_path / "b.npz", np.array([7, 60]), ROWS[[3, 60]] + np.float32(0.001))
    code, out, _ = run(moved, "-o", folder, "--add")
    assert code == 0
    assert out.startswith("2 items added, 1 item removed\n51 items of dimension 12")
    assert "are removed ones" not in out
    code, out, _ = run_command("search", folder, "item 7", "--k", 50, "--json")
    (query,) = json.loads(out)["queries"]
    assert query["neighbours"][0]["id"] == "item 3"
    assert query["neighbours"][0]["distance"] == pytest.approx(0.001 * 12**0.5, rel=1e-2)
    assert len(query["neighbours"]) == 50
    assert "item 7" not in {item["id"] for item in query["neighbours"]}
    assert run(write_ids(tmp_path / "gone.csv", "item 7"), "-o", folder, "--remove")[0] == 0
    code, _, error = run(tmp_path / "gone.csv", "-o", folder, "--remove")
    assert code == 2
    assert "it has none with item 7, 1 id in all" in error
    code, _, error = run_command("search", folder, "--id", "item 7")
    assert code == 2
    assert "has the id 'item 7'; ids look like 'item 0', 'item 1', 'item 2'" in error
    ids = [f"item {n}" for n in range(12) if n != 7]
    code, out, _ = run(write_ids(tmp_path / "gone.csv", *ids), "-o", folder, "--remove")
    assert code == 0
    assert "25 % of its rows are removed ones, which searches pass over: index all anew." in out


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path, run: Call) -> None:
    folder = tmp_path / "index"
    write_embeddings(tmp_path / "a.parquet", ROWS[:50], np.arange(50).astype(str), {"kind": LABELS[:50].astype(str)},
                     levels=["kind"], model="0" * 64)  # fmt: skip
    assert run(tmp_path / "a.parquet", "-o", folder)[0] == 0
    before = {item.name: item.read_bytes() for item in folder.iterdir()}
    np.savez(tmp_path / "wide.npz", embeddings=np.ones((3, 13)), id=np.arange(3), kind=np.zeros(3, np.int64))
    np.savez(tmp_path / "level.npz", embeddings=np.ones((3, 12)), label=np.zeros(3, np.int64))
    np.savez(tmp_path / "unnamed.npz", embeddings=np.ones((3, 12)), kind=np.zeros(3, np.int64))
    np.savez(tmp_path / "nan.npz", embeddings=np.full((3, 12), np.nan), id=np.arange(3), kind=np.zeros(3, np.int64))
    mistakes = [
        (("wide.npz", "--add"), "embeddings must have the 12 dimensions of the index: got 13"),
        (("level.npz", "--add"), "has no 'kind'; Allowed: label."),
        (("unnamed.npz", "--add"), "unnamed.npz has no column 'id'; add one."),
        (("nan.npz", "--add"), "embeddings must be finite: rows 0, 1, 2"),
        (
            ("a.parquet", "--add", "--kind", "hnsw"),
            "an index that is changed keeps its kind, distance, text model and post-processing",
        ),
        (("a.parquet", "--add", "--remove"), "--add and --remove are two changes: got both"),
        (("gone.csv", "--remove"), "it has none with item, 1 id in all; leave them out."),
        (("level.csv", "--remove"), "must be named in a column 'id': "),
        (("all.csv", "--remove"), "an index must have an item: "),
    ]
    write_ids(tmp_path / "gone.csv", "item", "3")
    write_ids(tmp_path / "all.csv", *map(str, range(50)))
    (tmp_path / "level.csv").write_text("name\na\n")
    for (name, *options), sentence in mistakes:
        code, _, error = run(tmp_path / name, "-o", folder, *options)
        assert code == 2, name
        assert sentence in error
    code, _, error = run(tmp_path / "a.parquet", "-o", tmp_path / "none", "--add")
    assert code == 2
    assert {item.name: item.read_bytes() for item in folder.iterdir()} == before
    description = json.loads((folder / "index.json").read_text())
    for removed in ([3, 2], [50], [-1]):
        (folder / "index.json").write_text(json.dumps({**description, "removed": removed}))
        with pytest.raises(ValueError, match="its removed rows are not among its rows"):
            Index.load(folder)


def test_a_model_of_another_run_adds_nothing(tmp_path: Path, run: Call) -> None:
    folder = tmp_path / "index"
    for name in ("a", "b"):
        write_embeddings(tmp_path / f"{name}.parquet", ROWS[:50], np.arange(50).astype(str),
                         {"kind": LABELS[:50].astype(str)}, levels=["kind"], model=64 * name)  # fmt: skip
    run(tmp_path / "a.parquet", "-o", folder)
    assert run(tmp_path / "a.parquet", "-o", folder, "--add")[0] == 0
    code, _, error = run(tmp_path / "b.parquet", "-o", folder, "--add")
    assert code == 2
    assert "must be embedded by the model of the index" in error
