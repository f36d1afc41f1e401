"""Decisions are applied to files of every format; what is not decided on stays as it is, types and all."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trivet.io.corrected_files import write_cleaned
from trivet.io.label_decisions import write_decisions
from trivet.io.parquet_files import write_embeddings
from trivet.io.read_embeddings import read_vectors
from trivet.io.tag_cells import SINGLE, TagCells
from trivet.io.vector_choice import VectorChoice

EMBEDDINGS = np.arange(8, dtype=np.float32).reshape(4, 2)
COLUMNS: dict[str, list[Any]] = {"id": ["a", "b", "c", "d"], "kind": [7, 7, 12, 12], "weight": [0.5, 1.5, 2.5, 3.5]}
DECISIONS = "id,decision,label\na,keep,\nb,relabel,12\nc,drop,\n"
COUNTS = {"rows": 4, "left": 3, "keep": 1, "relabel": 1, "drop": 1, "add": 0, "undecided": 1}


def written(suffix: str) -> Path:
    path = Path(f"items{suffix}")
    if suffix == ".npz":
        np.savez(
            path, embeddings=EMBEDDINGS, names=np.array(["x", "y"]), **{k: np.array(v) for k, v in COLUMNS.items()}
        )
    elif suffix in (".json", ".jsonl"):
        values = zip(*COLUMNS.values(), EMBEDDINGS.tolist(), strict=True)
        rows = [dict(zip([*COLUMNS, "embedding"], row, strict=True)) for row in values]
        for row in rows:
            row["payload"] = {"kind": row.pop("kind"), "name": "Grüße"}
        lines = [json.dumps(row) + "\n" for row in rows]
        path.write_text(json.dumps({"result": {"points": rows}}) if suffix == ".json" else "\n".join(lines))
    elif suffix == ".parquet":
        table = pa.table({**COLUMNS, "embedding": list(EMBEDDINGS)})
        pq.write_table(table.replace_schema_metadata({"made": "here"}), path)
    else:
        with path.with_suffix(".csv").open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow([*COLUMNS, "text"])
            texts = ["one, two", 'a "word"', "three", "two\nlines"]
            rows.writerows(zip(*COLUMNS.values(), texts, strict=True))
        if suffix == ".npy":
            np.save(path, EMBEDDINGS)
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("decisions.csv").write_text(DECISIONS)


def test_nothing_decided_is_told_and_writes_nothing() -> None:
    path = written(".npz")
    Path("empty.csv").write_text("id,decision,label\na,,7\nb,,12\n")
    with pytest.raises(ValueError, match=r"decide on at least one item: empty\.csv holds none"):
        write_cleaned(path, Path("empty.csv"), Path("clean.npz"), level="kind")
    assert not Path("clean.npz").exists()


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet", ".json", ".jsonl"])
def test_embeddings_of_every_format(suffix: str) -> None:
    path = written(suffix)
    before = path.read_bytes()
    assert write_cleaned(path, Path("decisions.csv"), Path(f"clean{suffix}"), level="kind") == COUNTS
    clean, old = read_vectors(Path(f"clean{suffix}")), read_vectors(path)
    assert clean.ids is not None
    assert clean.ids.tolist() == ["a", "b", "d"]
    assert clean.labels["kind"].tolist() == ["7", "12", "12"]
    assert clean.embeddings.tolist() == EMBEDDINGS[[0, 1, 3]].tolist()
    assert clean.embeddings.dtype == old.embeddings.dtype
    assert read_vectors(Path(f"clean{suffix}"), levels=["weight"]).labels["weight"].tolist() == ["0.5", "1.5", "3.5"]
    assert path.read_bytes() == before
    if suffix == ".npz":
        with np.load("clean.npz") as arrays:
            assert (arrays["kind"].dtype, arrays["names"].tolist()) == (np.array([7]).dtype, ["x", "y"])
    if suffix == ".parquet":
        assert pq.read_schema("clean.parquet").equals(pq.read_schema(path), check_metadata=True)
    if suffix == ".jsonl":  # lines that were not decided on are the same bytes
        assert {0, 3} == {
            row for row, line in enumerate(before.split(b"\n\n")) if line in Path("clean.jsonl").read_bytes()
        }
    # What was done cannot be done again.
    Path("rest.csv").write_text("id,decision,label\nb,relabel,12\n")
    with pytest.raises(ValueError, match=r"relabel needs a label that 'b' does not have yet"):
        write_cleaned(Path(f"clean{suffix}"), Path("rest.csv"), Path(f"again{suffix}"), level="kind")


def test_texts_and_files_of_embeddings_that_trivet_wrote() -> None:
    path = written(".csv")
    assert write_cleaned(path, Path("decisions.csv"), Path("clean.csv"), level="kind") == COUNTS
    with path.open(newline="") as file, Path("clean.csv").open(newline="") as clean:
        rows = list(csv.reader(file))
        del rows[3]
        rows[2][1] = "12"
        assert list(csv.reader(clean)) == rows
    # Without ids the rows are counted, and the first level that is no column of texts is meant.
    Path("bare.csv").write_text("text,class\nx,p\ny,q\nz,q\n")
    Path("rows.csv").write_text("id,decision,label\n2,relabel,p\n0,drop,\n")
    counts = write_cleaned(Path("bare.csv"), Path("rows.csv"), Path("left.csv"))
    assert (counts["left"], counts["undecided"]) == (2, 1)
    assert Path("left.csv").read_text() == "text,class\ny,q\nz,p\n"
    write_embeddings(Path("run.parquet"), EMBEDDINGS, ("a", "b", "c", "d"), {"kind": ("7", "7", "12", "12")}, model="x")
    write_cleaned(Path("run.parquet"), Path("decisions.csv"), Path("left.parquet"))
    assert read_vectors(Path("left.parquet")).labels["kind"].tolist() == ["7", "12", "12"]
    assert pq.read_schema("left.parquet").metadata[b"trivet.model"] == b"x"


@pytest.mark.parametrize(
    ("decisions", "out", "sentence"),
    [
        ("a,keep,\nbb,drop,\n", "clean.npz", "line 3 of bad.csv has 'bb', and none of the 4 rows has it; did you mean"),
        ("a,relabel,8\n", "clean.npz", "one of the 2 classes at level 'kind' of items.npz: line 2 of bad.csv has '8'"),
        ("a,drop,\nb,drop,\nc,drop,\nd,drop,\n", "clean.npz", "drop all 4; keep some"),
        ("a,keep,\n", "items.npz", "--output must not name what is read: got items.npz"),
        ("a,keep,\n", "mine.npz", "must name a new file: mine.npz exists; choose another --output"),
        ("a,keep,\n", "clean.csv", "must be a .npz file, as items.npz is: got clean.csv"),
        ("a,keep,\n", "nowhere/clean.npz", "make the folder first"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(decisions: str, out: str, sentence: str) -> None:
    path = written(".npz")
    Path("mine.npz").write_text("mine")
    Path("bad.csv").write_text(f"id,decision,label\n{decisions}")
    before = {file.name: file.read_bytes() for file in Path().iterdir()}
    with pytest.raises(ValueError, match=sentence) as error:
        write_cleaned(path, Path("bad.csv"), Path(out), level="kind")
    assert "\n" not in str(error.value)
    assert {file.name: file.read_bytes() for file in Path().iterdir()} == before


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet", ".json", ".jsonl", ".csv"])
def test_rows_that_an_audit_leaves_out_stay(suffix: str) -> None:
    """The row without a label is neither counted as decided nor lost, and the numbers of rows are those of the file."""
    kinds: list[Any] = ["7", None, "12", "12"]
    table = pa.table({"kind": kinds, "embedding": EMBEDDINGS.tolist()})
    path, clean = Path(f"gaps{suffix}"), Path(f"clean{suffix}")
    rows = table.to_pylist()
    if suffix == ".npz":
        np.savez(path, embeddings=EMBEDDINGS, kind=np.array([kind or "" for kind in kinds]))
    elif suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".json":
        path.write_text(json.dumps(rows))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [f'{row["kind"] or ""},"{row["embedding"]}"\n' for row in rows]
        path.with_suffix(".csv").write_text("".join(["kind,embedding\n", *lines]))
        if suffix == ".npy":
            path.with_suffix(".csv").write_text("kind,note\n7,\n,\n12,\n12,\n")
            np.save(path, EMBEDDINGS)
    Path("decisions.csv").write_text("id,decision,label\n2,relabel,7\n3,drop,\n")
    counts = write_cleaned(path, Path("decisions.csv"), clean)
    assert (counts["rows"], counts["left"], counts["undecided"]) == (4, 3, 2)
    vectors = read_vectors(clean, skip_empty=True)
    assert (vectors.rows.tolist(), vectors.labels["kind"].tolist()) == ([0, 2], ["7", "7"])
    assert vectors.embeddings.tolist() == EMBEDDINGS[[0, 2]].tolist()
    with pytest.raises(ValueError, match="1 of 3 have none"):
        read_vectors(clean)


def test_the_arrays_of_another_set_stay_as_they_are() -> None:
    labels = np.array(["a", "a", "b", "b"])
    np.savez("sets.npz", X_train=EMBEDDINGS, y_train=labels, X_test=EMBEDDINGS, y_test=labels)
    Path("decisions.csv").write_text("id,decision,label\n1,drop,\n3,relabel,a\n")
    write_cleaned(Path("sets.npz"), Path("decisions.csv"), Path("clean.npz"), choice=VectorChoice(embedding="X_train"))
    with np.load("clean.npz") as arrays:
        assert {name: arrays[name].tolist() for name in ("y_train", "y_test")} == {
            "y_train": ["a", "b", "a"],
            "y_test": labels.tolist(),
        }
        assert (arrays["X_train"].shape, arrays["X_test"].shape) == ((3, 2), (4, 2))


def test_only_files_are_cleaned() -> None:
    with pytest.raises(ValueError, match=r"got \.; for a run, use trivet train --labels"):
        write_cleaned(Path(), Path("decisions.csv"), Path("clean.npz"))
    written(".npy")
    Path("clean.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"clean\.csv exists"):
        write_cleaned(Path("items.npy"), Path("decisions.csv"), Path("clean.npy"), level="kind")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("start", ["\ufeff", ""])
def test_a_csv_file_keeps_its_bytes_but_for_what_was_decided(end: str, start: str) -> None:
    rows = [
        start + "id,text,kind,note",
        'a,"quoted, with a comma",cat,""',
        'b,plain,"cat",x',
        'c,"two\nlines and a ""word""",dog,',
        "",
        "d,last,'dog',Grüße",
        'e,"say ""so""",cat,y',
    ]
    Path("items.csv").write_bytes(end.join(rows).encode())
    Path("decisions.csv").write_text("id,decision,label\na,relabel,'dog'\nc,drop,\nd,relabel,cat\n")
    write_cleaned(Path("items.csv"), Path("decisions.csv"), Path("clean.csv"), level="kind")
    left = [rows[0], rows[1].replace("cat", "'dog'"), rows[2], rows[5].replace("'dog'", "cat"), rows[6]]
    assert Path("clean.csv").read_bytes() == end.join(left).encode()


def test_a_csv_file_keeps_its_delimiter_and_encoding() -> None:
    rows = ["id;text;kind", 'a;"one; two";Küche', "b;x,y;Bad", "c;z;Bad"]
    Path("items.csv").write_bytes("\n".join(rows).encode("latin-1"))
    Path("decisions.csv").write_text("id,decision,label\na,relabel,Bad\nc,drop,\n")
    write_cleaned(Path("items.csv"), Path("decisions.csv"), Path("clean.csv"), level="kind")
    assert Path("clean.csv").read_bytes() == 'id;text;kind\na;"one; two";Bad\nb;x,y;Bad\n'.encode("latin-1")
    Path("items.csv").write_bytes("\n".join(rows).encode("utf-16"))
    with pytest.raises(ValueError, match="must be in UTF-8 to be cleaned: it is in UTF-16"):
        write_cleaned(Path("items.csv"), Path("decisions.csv"), Path("other.csv"), level="kind")


def test_a_csv_file_that_is_not_quoted_as_such_is_refused() -> None:
    Path("items.csv").write_text('id,text,kind\na,x,"p"q"\nb,y,"p\n')
    Path("decisions.csv").write_text("id,decision,label\na,drop,\n")
    with pytest.raises(ValueError, match=r"items\.csv must"):
        write_cleaned(Path("items.csv"), Path("decisions.csv"), Path("clean.csv"), level="kind")
    assert not Path("clean.csv").exists()


PAIRS = [["q0", "a0"], ["q1", "a1"], ["q1", "a2"], ["q2", "a0"], ["q3", "a3"]]
ON_PAIRS = [("0", "add", "a3"), ("0", "add", "a1"), ("0", "drop", ""), ("2", "relabel", "a0"),
            ("4", "add", "a2"), ("1", "", "a3")]  # fmt: skip


def decided_pairs(pairs: list[list[str]], decisions: list[tuple[str, str, str]]) -> list[tuple[list[str], int | None]]:
    """The rows that decisions make of pairs, and of a copy the number of the decision that adds it."""
    made: list[tuple[list[str], int | None]] = []
    for row, (left, right) in enumerate(pairs):
        mine = [(number, what, label) for number, (id, what, label) in enumerate(decisions) if id == str(row)]
        words = {what: label for _, what, label in mine if what != "add"}
        if "drop" not in words:
            made.append(([left, words.get("relabel", right)], None))
        made += [([left, label], number) for number, what, label in mine if what == "add"]
    return made


@pytest.mark.parametrize("ids", ["none", "numbers", "texts"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"])
def test_pairs_are_added_in_every_format(suffix: str, ids: str) -> None:
    """Each as a copy of its row with another right side; the last line of the file has no end."""
    names: list[Any] = [10 * row if ids == "numbers" else f"p{row}" for row in range(5)]
    rows = [
        {**({} if ids == "none" else {"id": name}), "query": left, "answer": right, "weight": row / 2}
        for row, (name, (left, right)) in enumerate(zip(names, PAIRS, strict=True))
    ]
    path, clean = Path(f"faq{suffix}"), Path(f"clean{suffix}")
    mark = "\t" if suffix == ".tsv" else ","
    if suffix in (".csv", ".tsv"):
        path.write_text("\n".join(mark.join(map(str, line)) for line in [rows[0].keys(), *(r.values() for r in rows)]))
    elif suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
    named = [((id if ids == "none" else str(names[int(id)])), what, label) for id, what, label in ON_PAIRS]
    Path("d.csv").write_text(write_decisions(named))
    counts = write_cleaned(path, Path("d.csv"), clean, level="answer", text="query", tags=TagCells(SINGLE), pairs=True)
    assert counts == {"rows": 5, "left": 7, "keep": 0, "relabel": 1, "drop": 1, "add": 3, "undecided": 2}
    left = (
        pq.read_table(clean).to_pylist()
        if suffix == ".parquet"
        else json.loads(clean.read_text())
        if suffix == ".json"
        else [json.loads(line) for line in clean.read_text().splitlines()]
        if suffix in (".jsonl", ".ndjson")
        else [*csv.DictReader(clean.read_text().splitlines(), delimiter=mark)]
    )
    wanted = decided_pairs(PAIRS, ON_PAIRS)
    assert [[row["query"], row["answer"]] for row in left] == [pair for pair, _ in wanted]
    assert [float(row["weight"]) for row in left] == [0, 0, 0.5, 1, 1.5, 2, 2]
    if suffix == ".parquet":
        assert pq.read_schema(clean).equals(pq.read_schema(path))
    if ids != "none":
        new = {0: "p0-2", 1: "p0-3", 4: "p4-2"} if ids == "texts" else {0: 41, 1: 42, 4: 43}
        old = [names[row] for row in (0, 0, 1, 2, 3, 4, 4)]
        expected = [new[number] if number in new else old[place] for place, (_, number) in enumerate(wanted)]
        assert [str(row["id"]) for row in left] == [str(name) for name in expected]
        assert {type(row["id"]) for row in left} == {str if suffix in (".csv", ".tsv") else type(names[0])}


@pytest.mark.parametrize(
    ("decisions", "sentence"),
    [
        ([("1", "add", "a2")], "add needs a label that '1' does not have yet: line 2 of d.csv has 'a2'"),
        ([("1", "relabel", "a3"), ("1", "add", "a3")], "'1' does not have yet: line 3 of d.csv has 'a3'"),
        ([("0", "add", "a9")], "one of the 4 classes at level 'answer' of faq.csv: line 2 of d.csv has 'a9'"),
        ([("0", "add", "")], "add needs a label: line 2 of d.csv has none for '0'"),
        ([("0", "add", "a1"), ("0", "add", "a1")], "different labels to add: lines 2 and 3 both have '0'; remove one"),
        (
            [("0", "keep", "a1"), ("0", "drop", "a2")],
            "one decision per id, .*: lines 2 and 3 both have '0'; remove one",
        ),
    ],
)
def test_what_cannot_be_added(decisions: list[tuple[str, str, str]], sentence: str) -> None:
    Path("faq.csv").write_text("query,answer\n" + "".join(f"{left},{right}\n" for left, right in PAIRS))

    def apply(rows: list[tuple[str, str, str]]) -> dict[str, int]:
        Path("d.csv").write_text(write_decisions(rows))
        tags = TagCells(SINGLE)
        return write_cleaned(
            Path("faq.csv"), Path("d.csv"), Path("new.csv"), level="answer", text="query", tags=tags, pairs=True
        )

    with pytest.raises(ValueError, match=sentence) as error:
        apply([*decisions, ("4", "keep", "")])
    assert "\n" not in str(error.value)
    assert not Path("new.csv").exists()
    assert apply([*decisions[1:], ("4", "keep", "")])["keep"] == 1  # the row is removed, as the sentence says


def test_nothing_is_added_to_a_class() -> None:
    path = written(".npz")
    Path("d.csv").write_text("id,decision,label\na,add,12\n")
    with pytest.raises(
        ValueError, match=r"add is for tags and pairs: line 2 of d\.csv adds '12' to 'a', .*; write relabel"
    ):
        write_cleaned(path, Path("d.csv"), Path("new.npz"), level="kind")
    Path("d.csv").write_text("id,decision,label\na,relabel,12\n")
    assert write_cleaned(path, Path("d.csv"), Path("new.npz"), level="kind")["relabel"] == 1
