"""Exported embeddings: what viewers and vector databases read is what was read, judged and found by Trivet."""

from __future__ import annotations

import csv
import json
import math
import re
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands.conftest import Call
from tests.made_runs import make_run

from trivet.commands.export.embeddings import export_embeddings
from trivet.commands.export.item_table import exact_index, float32_recall, read_items
from trivet.commands.export.options import ExportOptions
from trivet.io.read_embeddings import read_vectors

FORMS = ("parquet", "projector", "pgvector", "qdrant")
HOSTILE = [
    "a tab\there",
    "two\nlines",
    "carriage\rreturn",
    "a 'quote' and a \"double\" one",
    "back\\slash \\N \\.",
    "\\N",
    "\\.",
    "ünïcode 猫 🐈",
    "next\x85line and \u2028",
    ", ; = []{}",
    " spaces ",
    "<b>&amp;</b>",
]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of sixty items, of which a few have the label of another class, with columns of several types."""
    file, draws = tmp_path_factory.mktemp("labelled") / "items.npz", np.random.default_rng(0)
    classes = np.repeat(np.arange(4), 60)
    vectors = 4 * draws.normal(size=(4, 16))[classes] + draws.normal(size=(240, 16))
    labels = np.array([f"class {number}" for number in classes])
    labels[[3, 17, 44, 58, 91, 103]] = "class 3"
    np.savez(
        file,
        embeddings=vectors.astype(np.float32),
        kind=labels,
        id=np.array([f"item {row:03}" for row in range(240)]),
        year=draws.integers(1990, 2020, 240),
        price=np.where(np.arange(240) == 5, np.nan, draws.random(240)),
        sold=np.arange(240) % 2 == 0,
    )
    return file


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Items whose ids and texts hold what text formats use as marks."""
    file, draws = tmp_path / "hostile.parquet", np.random.default_rng(1)
    vectors = draws.normal(size=(len(HOSTILE), 5)).astype(np.float32)
    vectors[0] = [0.0, -0.0, 1e-38, 3e38, 1 / 3]
    pq.write_table(
        pa.table(
            {
                "id": HOSTILE,
                'a "name"': HOSTILE[::-1],
                "empty": pa.array([None] * len(HOSTILE), pa.string()),
                "xmin": np.arange(len(HOSTILE)),
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 5),
            }
        ),
        file,
    )
    return file


def export(source: Path, to: str, output: Path, **options: Any) -> Path:
    export_embeddings(ExportOptions(source=source, to=to, output=output, **options))  # type: ignore[arg-type]
    return output


def table_of(folder: Path) -> pa.Table:
    return pq.read_table(folder / "items.parquet")


def nearest(vectors: list[list[float]], distance: str) -> list[list[tuple[float, int]]]:
    """The definition: every other row in the order of its distance, of equal ones the first."""

    def gap(a: list[float], b: list[float]) -> float:
        if distance == "euclidean":
            return math.dist(a, b)
        return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    return [sorted((gap(a, b), j) for j, b in enumerate(vectors) if j != i)[:10] for i, a in enumerate(vectors)]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neighbours_are_those_of_the_definition(labelled: Path, tmp_path: Path, distance: str) -> None:
    table = table_of(export(labelled, "parquet", tmp_path / "out", distance=distance))
    expected = nearest(np.load(labelled)["embeddings"].astype(float).tolist(), distance)
    for written, known in zip(table.column("neighbors").to_pylist(), expected, strict=True):
        assert written["ids"] == [row for _, row in known]
        assert written["distances"] == pytest.approx([gap for gap, _ in known], rel=1e-5)
    assert table.schema.metadata[b"trivet.distance"].decode() == distance


def test_the_table_holds_the_columns_with_their_types_and_the_embedding(labelled: Path, tmp_path: Path) -> None:
    table = table_of(export(labelled, "parquet", tmp_path / "out"))
    arrays = np.load(labelled)
    types = {name: str(table.schema.field(name).type) for name in ("id", "kind", "year", "price", "sold", "embedding")}
    assert types == {
        "id": "string", "kind": "string", "year": "int64", "price": "double", "sold": "bool",
        "embedding": "fixed_size_list<element: float>[16]",
    }  # fmt: skip
    for name in ("id", "kind", "year", "sold"):
        assert table.column(name).to_pylist() == arrays[name].tolist()
    assert table.column("price").to_pylist()[4:7] == [arrays["price"][4], None, arrays["price"][6]]
    assert np.array_equal(np.stack(table.column("embedding").to_numpy()), arrays["embeddings"])


def test_suspects_and_verdicts_are_those_of_audit_and_diagnose(
    labelled: Path, tmp_path: Path, run_command: Call
) -> None:
    code, out, _ = run_command("export", labelled, "--to", "parquet", "-o", tmp_path / "out", "--json")
    assert code == 0
    made, table = json.loads(out), table_of(tmp_path / "out")
    _, audited, _ = run_command("audit", labelled, "--out", tmp_path / "suspects.csv")
    with (tmp_path / "suspects.csv").open(newline="") as file:
        suspects = {row["id"]: row for row in csv.DictReader(file)}
    assert [int(id.split()[1]) for id in sorted([*suspects][:6])] == [3, 17, 44, 58, 91, 103]
    for row in table.to_pylist():
        known = suspects[row["id"]]
        assert row["proposed_label"] == known["proposed_label"]
        assert row["probability_wrong"] == float(known["probability_wrong"])
        assert row["evidence"] == known["evidence"]
        assert row["outlier"] == (known["outlier"] == "yes")
    diagnosed = json.loads(run_command("diagnose", labelled, "--json")[1])
    *titles, noise = made["verdicts"]
    assert titles == [f"{each['kind'].replace('-', ' ')}: {each['rule']}" for each in diagnosed["verdicts"]]
    assert noise.replace("\n", " ") in " ".join(audited.split())
    assert table.schema.metadata[b"trivet.verdicts"].decode().split("\n") == made["verdicts"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "of the labels are wrong" in card.replace("\\", "")
    assert json.loads((tmp_path / "out" / "export.json").read_text())["verdicts"] == made["verdicts"]


def test_an_exported_table_reads_as_the_file_did(labelled: Path, tmp_path: Path) -> None:
    before = read_vectors(labelled, levels=["kind"])
    after = read_vectors(export(labelled, "parquet", tmp_path / "out") / "items.parquet")
    assert before.names() == after.names()
    assert np.array_equal(before.embeddings, after.embeddings)
    assert after.labels["kind"].tolist() == before.labels["kind"].tolist()


def test_what_was_exported_exports_again_and_replaces_what_is_written(
    labelled: Path, tmp_path: Path, run_command: Call
) -> None:
    first = export(labelled, "parquet", tmp_path / "out")
    code, out, _ = run_command("export", first / "items.parquet", "--to", "parquet", "-o", tmp_path / "again")
    assert code == 0
    assert "names of what is written are left out: map_x, map_y, proposed_label" in " ".join(out.split())
    assert table_of(tmp_path / "again").equals(table_of(first))


def test_the_map_is_that_of_t_sne_up_to_ten_thousand_items(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = np.load(labelled)
    centred = arrays["embeddings"] - arrays["embeddings"].mean(axis=0, dtype=float)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]

    def plane(folder: Path) -> np.ndarray:
        table = table_of(folder)
        return np.stack([table.column(axis).to_numpy() for axis in ("map_x", "map_y")], axis=1)

    drawn = export(labelled, "parquet", tmp_path / "drawn")
    assert table_of(drawn).schema.metadata[b"trivet.map"] == b"t-SNE"
    monkeypatch.setattr("trivet.commands.export.item_table.MAPPED", 239)
    linear = export(labelled, "parquet", tmp_path / "linear")
    assert table_of(linear).schema.metadata[b"trivet.map"] == b"PCA"
    assert np.abs(plane(linear)) == pytest.approx(np.abs(centred @ axes), abs=2e-4)


def test_projector_files_hold_a_line_for_each_item(hostile: Path, tmp_path: Path) -> None:
    folder = export(hostile, "projector", tmp_path / "out")
    header, *rows = (folder / "metadata.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert header.split("\t")[:4] == ["id", 'a "name"', "empty", "xmin"]
    assert len(rows) == len(HOSTILE)
    assert {row.count("\t") for row in rows} == {header.count("\t")}
    assert [row.split("\t")[0] for row in rows][:2] == ["a tab here", "two lines"]
    assert [row.split("\t")[3] for row in rows] == [str(row) for row in range(len(HOSTILE))]
    tensors = [list(map(float, line.split("\t"))) for line in (folder / "tensors.tsv").read_text().splitlines()]
    assert np.array_equal(np.array(tensors, np.float32), read_vectors(hostile).embeddings)
    assert 'metadata_path: "metadata.tsv"' in (folder / "projector_config.pbtxt").read_text()


def test_projector_metadata_of_a_single_column_have_no_header(tmp_path: Path) -> None:
    from trivet.commands.export.projector import write_projector

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 2)
    write_projector(tmp_path, pa.table({"id": ["a", "b", "c"], "embedding": vectors}))
    assert (tmp_path / "metadata.tsv").read_text() == "a\nb\nc\n"


def copied(file: Path) -> list[list[str | None]]:
    """The rows of a file as PostgreSQL's documentation says that COPY reads its text format."""
    escapes = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

    def value(cell: str) -> str | None:
        if cell == r"\N":
            return None
        read, characters = "", iter(cell)
        for character in characters:
            if character == "\\":
                following = next(characters)
                character = escapes.get(following, following)
            read += character
        return read

    content = file.read_bytes().decode("utf-8")
    assert content.endswith("\n")
    lines = content[:-1].split("\n")
    assert r"\." not in lines
    assert "\r" not in content
    return [[value(cell) for cell in line.split("\t")] for line in lines]


def test_rows_for_postgresql_read_back_as_they_were(hostile: Path, tmp_path: Path) -> None:
    folder = export(hostile, "pgvector", tmp_path / "My items")
    rows = copied(folder / "items.tsv")
    assert [row[0] for row in rows] == HOSTILE
    assert [row[1] for row in rows] == HOSTILE[::-1]
    assert [row[2] for row in rows] == [None] * len(HOSTILE)
    vectors = np.array([json.loads(row[4] or "") for row in rows], np.float32)
    assert np.array_equal(vectors, read_vectors(hostile).embeddings)
    load = (folder / "load.sql").read_text()
    assert 'CREATE TABLE "my_items" (\n    "id" text PRIMARY KEY,\n    "a ""name""" text,\n    "empty" text,\n' in load
    assert '    "xmin_" bigint,\n    embedding vector(5) NOT NULL\n);' in load
    assert "index.sql" not in load
    assert "(embedding vector_cosine_ops)" in (folder / "index.sql").read_text()


def test_types_and_operators_of_postgresql(labelled: Path, tmp_path: Path) -> None:
    folder = export(labelled, "pgvector", tmp_path / "out", distance="euclidean")
    load = (folder / "load.sql").read_text()
    for column in ('"year" bigint', '"price" double precision', '"sold" boolean', '"kind" text'):
        assert column in load
    assert copied(folder / "items.tsv")[5][2:5] == [str(np.load(labelled)["year"][5]), None, "false"]
    assert "(embedding vector_l2_ops)" in (folder / "index.sql").read_text()
    assert " <-> " in (folder / "README.md").read_text()


@pytest.mark.parametrize(("rows", "dimension", "indexed"), [(4, 3, True), (3, 3, False), (4, 2001, None)])
def test_an_index_is_made_beyond_the_rows_that_are_searched_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, dimension: int, indexed: bool | None
) -> None:
    monkeypatch.setattr("trivet.commands.export.pgvector.EXACT_ROWS", 3)
    np.savez(tmp_path / "v.npz", embeddings=np.random.default_rng(0).normal(size=(rows, dimension)).astype(np.float32))
    folder = export(tmp_path / "v.npz", "pgvector", tmp_path / "out")
    assert (r"\ir index.sql" in (folder / "load.sql").read_text()) == bool(indexed)
    assert (folder / "index.sql").exists() == (indexed is not None)


def test_points_for_qdrant_read_back_as_they_were(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.commands.export.qdrant.POINTS_PER_FILE", 5)
    folder = export(hostile, "qdrant", tmp_path / "out")
    assert json.loads((folder / "collection.json").read_text()) == {"vectors": {"size": 5, "distance": "Cosine"}}
    files = sorted((folder / "points").iterdir())
    assert [len(json.loads(file.read_text())["points"]) for file in files] == [5, 5, 2]
    points = [point for file in files for point in json.loads(file.read_text(encoding="utf-8"))["points"]]
    assert [point["payload"]["id"] for point in points] == HOSTILE
    assert [point["payload"]['a "name"'] for point in points] == HOSTILE[::-1]
    assert [point["id"] for point in points] == [str(uuid.uuid5(uuid.NAMESPACE_URL, id)) for id in HOSTILE]
    vectors = np.array([point["vector"] for point in points], np.float32)
    assert np.array_equal(vectors, read_vectors(hostile).embeddings)


def test_numbers_that_json_lacks_are_null_for_qdrant(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", embeddings=np.eye(3, dtype=np.float32), score=[np.inf, -np.inf, 0.5])
    (file,) = (export(tmp_path / "v.npz", "qdrant", tmp_path / "out") / "points").iterdir()
    assert [point["payload"]["score"] for point in json.loads(file.read_text())["points"]] == [None, None, 0.5]


@pytest.mark.parametrize("to", FORMS)
def test_a_single_item_and_no_labels(tmp_path: Path, to: str, run_command: Call) -> None:
    np.savez(tmp_path / "v.npz", embeddings=np.ones((1, 3), np.float32))
    code, out, err = run_command("export", tmp_path / "v.npz", "--to", to, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.startswith("1 item of dimension 3, cosine distance")
    assert ("No column of labels: nothing is judged." in out) == (to in ("parquet", "projector"))
    if to == "parquet":
        assert table_of(tmp_path / "out").column("neighbors").to_pylist() == [{"ids": [], "distances": []}]


def test_tags_are_audited_as_tags(tmp_path: Path, run_command: Call) -> None:
    draws = np.random.default_rng(0)
    carried = draws.random((300, 4)) < 0.4
    vectors = carried @ (4 * draws.normal(size=(4, 8))) + draws.normal(size=(300, 8))
    listed = carried.copy()
    listed[:6, 0] ^= True
    names = np.array(["red", "round", "old", "new"])
    tags = [";".join(names[row]) or "none" for row in listed]
    np.savez(tmp_path / "v.npz", embeddings=vectors.astype(np.float32), tags=np.array(tags))
    table = table_of(export(tmp_path / "v.npz", "parquet", tmp_path / "out", separator=";"))
    sets = [set(cell.split(";")) for cell in tags]
    assert [set(cell.split(";")) for cell in table.column("tags").to_pylist()] == sets
    run_command("audit", tmp_path / "v.npz", "--separator", ";", "--out", tmp_path / "suspects.csv")
    right: dict[str, float] = {}
    with (tmp_path / "suspects.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            right[row["id"]] = right.get(row["id"], 1.0) * (1 - float(row["probability_wrong"]))
    for row in table.to_pylist():
        known = None if row["id"] not in right else pytest.approx(1 - right[row["id"]], abs=1e-5)
        assert row["probability_wrong"] == known
    assert 0 < len(right) < 300
    assert table.column("proposed_label")[0].as_py() != table.column("tags")[0].as_py()


@pytest.mark.parametrize("to", FORMS)
def test_nothing_is_overwritten_unasked(labelled: Path, tmp_path: Path, to: str, run_command: Call) -> None:
    command = ("export", labelled, "--to", to, "-o", tmp_path / "out")
    assert run_command(*command)[0] == 0
    code, _, err = run_command(*command)
    assert (code, "holds exported embeddings" in err, "--force" in err) == (2, True, True)
    assert run_command(*command, "--force")[0] == 0
    (tmp_path / "out" / "mine.txt").write_text("mine")
    code, _, err = run_command(*command, "--force")
    assert (code, "holds mine.txt" in err) == (2, True)
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("values", "to", "message", "remedied"),
    [
        ({"id": ["a", "b\0b", "c"]}, "pgvector", "texts in PostgreSQL hold no NUL", {"id": ["a", "b", "c"]}),
        ({"n" * 64: [1, 2, 3]}, "pgvector", "up to 63 bytes", {"n" * 63: [1, 2, 3]}),
        ({"id": ["a", "a", "c"]}, "qdrant", "the ids of", {"id": ["a", "b", "c"]}),
        ({"embedding": np.eye(3) * 1e300}, "qdrant", "must fit into float32", {"embedding": np.eye(3)}),
        ({"embedding": np.ones((3, 16_001))}, "pgvector", "up to 16000", {"embedding": np.ones((3, 16_000))}),
    ],
)  # fmt: skip
def test_what_a_form_cannot_hold_is_refused_and_the_remedy_works(
    tmp_path: Path, run_command: Call, values: dict[str, Any], to: str, message: str, remedied: dict[str, Any]
) -> None:
    def write(given: dict[str, Any]) -> Path:
        columns = {"embedding": np.eye(3)} | given
        rows = pa.array(np.asarray(columns["embedding"]).tolist(), pa.list_(pa.float64()))
        pq.write_table(pa.table(columns | {"embedding": rows}), tmp_path / "v.parquet")
        return tmp_path / "v.parquet"

    code, _, err = run_command("export", write(values), "--to", to, "-o", tmp_path / "out")
    assert (code, message in err) == (2, True), err
    assert not (tmp_path / "out").exists()
    assert run_command("export", write(remedied), "--to", to, "-o", tmp_path / "out")[0] == 0


def test_options_of_models_and_of_embeddings_do_not_mix(labelled: Path, tmp_path: Path, run_command: Call) -> None:
    code, _, err = run_command("export", labelled, "--to", "onnx", "-o", tmp_path / "out", "--labels", "kind")
    assert (code, "writes a model, not embeddings: leave out --labels" in err) == (2, True)
    code, _, err = run_command("export", labelled, "--to", "qdrant", "-o", tmp_path / "out", "--side", "left")
    assert (code, "writes embeddings, not a model: leave out --side" in err) == (2, True)


def test_a_search_in_float32_is_compared_with_the_exact_one(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 4))

    def recall(rows: np.ndarray, distance: str) -> float:
        np.savez(tmp_path / "v.npz", embeddings=rows.astype(np.float32))
        request = ExportOptions(source=tmp_path / "v.npz", to="qdrant", output=tmp_path, distance=distance)  # type: ignore[arg-type]
        items = read_items(request)
        return float32_recall(items, exact_index(items), seed=0)

    assert recall(vectors, "cosine") == recall(vectors, "euclidean") == 1
    collapsed = 1 + 1e-5 * vectors  # differences keep what products lose
    assert recall(collapsed, "cosine") < 0.9
    assert recall(collapsed, "euclidean") == 1


def test_zeros_have_no_direction(tmp_path: Path, run_command: Call) -> None:
    vectors = np.vstack([np.zeros((2, 3)), np.eye(3)]).astype(np.float32)
    np.savez(tmp_path / "v.npz", embeddings=vectors)
    code, out, _ = run_command("export", tmp_path / "v.npz", "--to", "pgvector", "-o", tmp_path / "out")
    assert (code, "2 items of zeros only have no direction" in " ".join(out.split())) == (0, True)
    code, out, _ = run_command(
        "export", tmp_path / "v.npz", "--to", "pgvector", "-o", tmp_path / "other", "--distance", "euclidean"
    )
    assert (code, "of zeros" in out) == (0, False)


def test_a_run_is_exported_by_its_distance_and_split(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", settings='[evaluation]\ndistance = "euclidean"')
    folder = export(run, "pgvector", tmp_path / "out")
    assert "vector_l2_ops" in (folder / "index.sql").read_text()
    assert [row[:2] for row in copied(folder / "items.tsv")][:2] == [["digits/0000", "d0"], ["digits/0001", "d0"]]
    with pytest.raises(ValueError, match="no embeddings of the split 'other'"):
        export(run, "pgvector", tmp_path / "other", split="other")


@pytest.mark.parametrize(("ids", "column"), [(["a.jpg", "b/c.png"], "id"), (["a", "b"], "photo"), (["a", "b"], "id")])
def test_fiftyone_opens_the_column_of_paths(tmp_path: Path, ids: list[str], column: str) -> None:
    columns = {"photo": np.array(["x/1.jpg", "x/2.jpg"])} if column == "photo" else {}
    np.savez(tmp_path / "v.npz", embeddings=np.eye(2, dtype=np.float32), id=np.array(ids), **columns)
    card = (export(tmp_path / "v.npz", "parquet", tmp_path / "out") / "README.md").read_text()
    assert f"filepath=row[{column!r}]," in card
    assert "--text" not in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, "card", "exec")
    assert "np.linalg.norm(embeddings, axis=1" in card  # by cosine alone
    other = export(tmp_path / "v.npz", "parquet", tmp_path / "other", distance="euclidean") / "README.md"
    assert "np.linalg.norm" not in other.read_text()
