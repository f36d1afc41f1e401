"""Each form in which people keep vectors, through each command that reads them: the same numbers in, the same out."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import pickle
import random
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat
from tests.commands.conftest import Call
from tests.hostile.damage import DAMAGES
from tests.nightly import sampled

from trivet.datasets import DataConfig, load_file
from trivet.io.formats import FORMATS, holds_vectors
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.io.vector_choice import VectorChoice

pytestmark = pytest.mark.usefixtures("undiagnosed")

ROWS, DIMENSION, CLASSES = 24, 8, 6
VALUES = np.random.default_rng(3).normal(size=(ROWS, DIMENSION)).astype(np.float32)
VALUES += 2.5 * np.eye(CLASSES, DIMENSION, dtype=np.float32)[np.arange(ROWS) % CLASSES]
LABELS = [f"kind {row % CLASSES}" for row in range(ROWS)]
BITS = (VALUES @ np.random.default_rng(0).normal(size=(DIMENSION, 64))) > 0  # (ROWS, 64)
CODES = np.round(20 * VALUES).astype(np.int8)


def recall(values: Any) -> float:
    """The share of rows whose nearest other row, by cosine, has their label; of several as near, the mean."""
    unit = np.asarray(values, float) / np.linalg.norm(values, axis=1, keepdims=True)
    similarities = unit @ unit.T - 9 * np.eye(len(unit))
    nearest = similarities > similarities.max(axis=1, keepdims=True) - 1e-9
    same = np.array(LABELS)[:, None] == np.array(LABELS)
    return float(np.mean((nearest & same).sum(axis=1) / nearest.sum(axis=1)))


def as_list(row: Sequence[Any]) -> str:
    return str([np.asarray(value).item() for value in row])


def cells(write: Callable[[Any], str], ending: str = "csv", separator: str = ",", name: str = "embedding") -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        path = folder / f"file.{ending}"
        with path.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, delimiter=separator)
            rows.writerows([("label", name), *((label, write(row)) for label, row in zip(LABELS, values, strict=True))])
        return path

    return make


def numbered(names: Callable[[int], str], index: bool = False, separator: str = ",", decimal: str = ".") -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        head = [*([""] if index else []), "label", *map(names, range(DIMENSION))]
        lines = [head]
        for number, row in enumerate(values.tolist()):
            lines.append(
                [*([str(number)] if index else []), LABELS[number], *(str(v).replace(".", decimal) for v in row)]
            )
        (folder / "file.csv").write_text("\n".join(map(separator.join, lines)) + "\n", encoding="utf-8")
        return folder / "file.csv"

    return make


def objects(ending: str, **names: str) -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        rows: list[Any] = [
            {"label": label, "embedding": row} for label, row in zip(LABELS, values.tolist(), strict=True)
        ]
        if names:  # as vector databases export them
            rows = [{"values": row["embedding"], "metadata": {"label": row["label"], "page": 1}} for row in rows]
        text = json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows))
        (folder / f"file.{ending}").write_text(text + "\n", encoding="utf-8")
        return folder / f"file.{ending}"

    return make


def plain(separator: str, position: int, head: str = "", end: str = "") -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        rows = [list(map(str, row)) for row in values.tolist()]
        for row, label in zip(rows, LABELS, strict=True):
            row.insert(position, label.replace(" ", "_") if separator == " " else label)
        path = folder / ("file.txt" if separator == " " else "file.csv")
        path.write_text(head + "".join(f"{separator.join(row)}{end}\n" for row in rows), encoding="utf-8")
        return path

    return make


def fixed(values: Any) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def parquet(name: str, column: Callable[[Any], Any]) -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        pq.write_table(pa.table({"label": LABELS, name: column(values)}), folder / "file.parquet")
        return folder / "file.parquet"

    return make


def tensors(values: Any) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [1, DIMENSION]), fixed(values))


def large_lists(values: Any) -> pa.Array:
    return pa.array(values.tolist(), pa.large_list(pa.float64()))


def hugging_face(folder: Path, values: Any = VALUES) -> Path:
    saved = folder / "saved"
    saved.mkdir()
    table = pa.table({"label": LABELS, "embedding": values.tolist()})
    with pa.OSFile(str(saved / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return saved


def projector(header: bool, *others: str) -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        np.savetxt(folder / "vectors.tsv", values, fmt="%.9g", delimiter="\t")
        lines = ["\t".join([label, *others]) for label in LABELS]
        head = ["\t".join(["label", *(f"other{i}" for i in range(len(others)))])] if header else []
        (folder / "metadata.tsv").write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
        return folder / "vectors.tsv"

    return make


def npz(name: str, dtype: Any = None) -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        np.savez(folder / "file.npz", **{name: values if dtype is None else values.astype(dtype)}, label=LABELS)
        return folder / "file.npz"

    return make


def npy(dtype: Any = None) -> Any:
    def make(folder: Path, values: Any = VALUES) -> Path:
        np.save(folder / "file.npy", values if dtype is None else values.astype(dtype))
        (folder / "file.csv").write_text("\n".join(["label", *LABELS]) + "\n", encoding="utf-8")
        return folder / "file.npy"

    return make


# The row of the table in docs/data.md -> its variants -> what writes a file of that form.
FORMS: dict[str, dict[str, Any]] = {
    "csv, tsv: a list in a cell": {
        "json": cells(as_list),
        "pgvector": cells(lambda row: as_list(row).replace(" ", "")),
        "postgresql array": cells(lambda row: as_list(row).replace(" ", "").replace("[", "{").replace("]", "}")),
        "numpy": cells(lambda row: np.array2string(row, floatmode="unique", max_line_width=30)),
        "numpy, of shape (1, d)": cells(lambda row: np.array2string(row[None], floatmode="unique", max_line_width=30)),
        "scalars of numpy": cells(lambda row: f"[{', '.join(f'np.float32({value})' for value in row)}]"),
        "torch": cells(lambda row: f"tensor({as_list(row)}, device='cuda:0')"),
        "spaces": cells(lambda row: as_list(row).strip("[]").replace(",", "")),
        "semicolons": cells(as_list, separator=";"),
        "tsv": cells(as_list, "tsv", "\t", "ada_002"),
    },
    "csv, tsv: numbered columns": {
        "e0": numbered("e{}".format),
        "dim_01": numbered(lambda i: f"dim_{i + 1:02d}"),
        "pandas": numbered(str, index=True),
        "decimal commas": numbered("e{}".format, separator=";", decimal=","),
    },
    "JSON lines, JSON": {
        "jsonl": objects("jsonl"),
        "array": objects("json"),
        "objects within": objects("jsonl", values="metadata"),
    },
    "parquet": {
        "embedding": parquet("embedding", list),
        "vector": parquet("vector", large_lists),
        "values": parquet("values", fixed),
        "features": parquet("features", lambda values: fixed(values.astype(np.float16))),
        "any name": parquet("ada_002", tensors),
        "texts": parquet("embedding", lambda values: [as_list(row) for row in values]),
    },
    "Hugging Face": {"saved": hugging_face},
    "csv, txt without a line of names": {
        "label first": plain(",", 0),
        "label last": plain(",", DIMENSION),
        "spaces": plain(" ", 0),
        "fastText": plain(" ", 0, f"{ROWS} {DIMENSION}\n", " "),
    },
    "`vectors.tsv` with `metadata.tsv`": {
        "one column": projector(False),
        "one column and its name": projector(True),
        "two columns": projector(True, "x"),
    },
    "npz": {"embeddings": npz("embeddings"), "arr_0": npz("arr_0"), "big-endian": npz("features", ">f8")},
    "npy with csv": {"npy": npy(), "big-endian": npy(">f4")},
}
VARIANTS = [pytest.param(make, id=f"{row}: {name}") for row, some in FORMS.items() for name, make in some.items()]
# Whole numbers, which stand for others: how they are stored -> --codes, and what they stand for.
STORED: dict[str, tuple[Any, str, Any]] = {
    "packed bits": (np.packbits(BITS, axis=1), "bits", 2.0 * BITS - 1),
    "packed bits less 128": ((np.packbits(BITS, axis=1).astype(int) - 128).astype(np.int8), "bits", 2.0 * BITS - 1),
    "zeros and ones": (BITS.astype(np.int64), "bits", 2.0 * BITS - 1),
    "int8": (CODES, "int8", CODES),
    "int8 plus 128": ((CODES.astype(int) + 128).astype(np.uint8), "int8", CODES),
    "uint8": (np.abs(CODES.astype(int)).astype(np.uint8), "uint8", np.abs(CODES.astype(int))),
}


def check(run_command: Call, file: Path, expected: Any, *options: str) -> None:
    """Every command on a file measures the embeddings that are expected."""
    folder, share = file.parent, recall(expected)

    def call(*arguments: Any) -> Any:
        code, out, err = run_command(*arguments, *options, "--json")
        assert (code, "Traceback" in err) == (0, False), err
        return json.loads(out)

    assert call("evaluate", file, "--measures", "recall@1")["evaluation"]["label"]["recall@1"] == pytest.approx(share)
    assert call("diagnose", file)["measures"]["recall"] == pytest.approx(share)
    assert call("audit", file)["items"] == ROWS
    assert call("index", file, "-o", folder / "index")["dimension"] == expected.shape[1]
    queries = call("search", folder / "index", file, "--k", 2)["queries"] if file.suffix != ".npy" else []
    near = [query["neighbours"][1]["labels"]["label"].replace("_", " ") for query in queries]
    assert not near or np.mean(np.array(near) == LABELS) == pytest.approx(share)
    assert call("mine", file, "-o", folder / "mined.parquet", "--k", 1, "--labels", "label")["triplets"] == ROWS
    made = call("init", file, "-o", folder / "trivet.toml")
    assert (made["kind"], made["items"], made["classes"]) == ("vectors", ROWS, CLASSES)
    settings = tomllib.loads((folder / "trivet.toml").read_text())["data"]
    items = load_file(DataConfig.parse(settings, source="trivet.toml"), file, None)  # as training and embed read it
    np.testing.assert_allclose(items.inputs.batch(np.arange(ROWS)).numpy(), expected, rtol=1e-3)
    names = [name.replace("_", " ") for name in items.names["label"]]
    assert np.array(names)[items.labels["label"]].tolist() == LABELS


@pytest.mark.parametrize("make", sampled(VARIANTS, 6))
def test_every_form_through_every_command(make: Any, run_command: Call, tmp_path: Path) -> None:
    assert 0.5 < recall(VALUES) < 0.9  # neither chance nor whatever is right
    file = make(tmp_path)
    assert read_vectors(file).embeddings.dtype.isnative
    check(run_command, file, VALUES)


def test_the_table_of_the_documentation_has_the_forms() -> None:
    text = Path("docs/data.md").read_text(encoding="utf-8")
    table = text.partition("## Files of vectors")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    assert rows[0] == "form"
    ours = ["shards", "a run"]  # written by Trivet, in tests of their own
    assert rows[1:] == [*FORMS, *ours]


FLOATS = [npz("embeddings", np.float32), npy(np.float64), cells(lambda row: as_list(row.astype(float)))]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize(
    "make",
    [
        *(npz("embeddings"), npy(), objects("jsonl"), cells(as_list)),
        *FLOATS,
    ],
    ids=["npz", "npy", "jsonl", "csv", "npz float", "npy float", "csv float"],
)
def test_whole_numbers_are_asked_about(stored: str, make: Any, run_command: Call, tmp_path: Path) -> None:
    values, codes, expected = STORED[stored]
    if values.shape[1] < 8:
        values = values.astype(np.int64)
    file = make(tmp_path, values)
    counts = make in FLOATS and int(values.max()) - int(values.min()) < 128  # such as pixels of few levels
    if counts:
        np.testing.assert_array_equal(read_vectors(file).embeddings, values)
    others = ("diagnose", "audit", "init") if stored == "packed bits" else ()  # each form by each command, once
    for command in () if counts else ("evaluate", *others):
        code, _, err = run_command(command, file)
        assert code == 2
        assert re.search(r"whole numbers from -?\d+ to \d+ .*--codes bits .*--codes int8 ", err)
    assert recall(values.astype(float)) != pytest.approx(recall(expected)) or codes in ("int8", "uint8")
    read = read_vectors(file, choice=VectorChoice(codes=codes))  # type: ignore[arg-type]  # one of them
    np.testing.assert_array_equal(read.embeddings, expected)
    code, out, err = run_command("evaluate", file, "--codes", codes, "--measures", "recall@1", "--json")
    assert (code, json.loads(out)["evaluation"]["label"]["recall@1"]) == (0, pytest.approx(recall(expected))), err


def test_whole_numbers_of_other_sizes_and_codes_of_floating_point(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"or whole numbers of 8 bits: got int64 from .* \.astype\(np\.float32\)"):
        read_vectors(npz("embeddings")(tmp_path, np.arange(ROWS * 20).reshape(ROWS, 20)))
    with pytest.raises(ValueError, match=r"--codes gives whole numbers a meaning .*are float32; leave it out"):
        read_vectors(npz("embeddings")(tmp_path), choice=VectorChoice(codes="bits"))
    with pytest.raises(ValueError, match=r"from -\d+ to \d+ \(int8\), .*--codes int8"):
        read_vectors(npz("embeddings")(tmp_path, CODES), choice=VectorChoice(codes="uint8"))


def test_several_columns_are_asked_about_and_either_can_be_chosen(
    run_command: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file.parquet"
    other = VALUES[::-1].copy()
    pq.write_table(pa.table({"label": LABELS, "title_vector": list(VALUES), "body_vector": list(other)}), file)
    for command in ("evaluate", "diagnose", "audit", "init", "mine", "index"):
        output = ["-o", tmp_path / "out.parquet"] if command in ("mine", "index") else []
        code, _, err = run_command(command, file, *output)
        assert (code, "in title_vector, body_vector, of which one must be meant" in err) == (2, True), err
    option = re.findall(r"(--embedding) (\S+) ", err)[0]
    check(run_command, file, VALUES, *option)
    assert read_vectors(file, choice=VectorChoice(embedding="body_vector")).embeddings.tolist() == other.tolist()
    with pytest.raises(ValueError, match=r"has no 'body'; did you mean 'body_vector'\? Allowed: body_vector, title_"):
        read_vectors(file, choice=VectorChoice(embedding="body"))
    with pytest.raises(ValueError, match="holds texts there; Allowed: body_vector, title_vector"):
        read_vectors(file, choice=VectorChoice(embedding="label"))
    (tmp_path / "gallery").mkdir()
    gallery = parquet("embedding", list)(tmp_path / "gallery")
    code, out, err = run_command(
        "evaluate", "--query", file, "--gallery", gallery, *option, "--measures", "recall@1", "--json"
    )
    assert code == 0, err
    assert "has no column 'title_vector'; its only vectors, 'embedding', are taken" in caplog.text
    assert json.loads(out)["evaluation"]["label"]["recall@1"] == 1  # each finds its equal: without ids two sets
    read_vectors(npy()(tmp_path / "gallery"), choice=VectorChoice(embedding="title_vector"))
    assert "file.npy has no column 'title_vector'; its only vectors are taken" in caplog.text
    # A name that says it is enough, and short lists of whole numbers are boxes or the like.
    boxes = [[1, 2, 30, 40]] * ROWS
    pq.write_table(pa.table({"label": LABELS, "scores": list(other), "box": boxes, "embedding": list(VALUES)}), file)
    assert read_vectors(file).embeddings.tolist() == VALUES.tolist()
    pq.write_table(pa.table({"label": LABELS, "box": boxes}), file)
    with pytest.raises(ValueError, match=r"must hold the embeddings .*: it has label, box"):
        read_vectors(file)
    assert read_vectors(file, choice=VectorChoice(embedding="box", codes="uint8")).embeddings.tolist() == boxes


REFUSED: dict[str, tuple[Any, str]] = {
    "base64": (lambda row: base64.b64encode(row.tobytes()).decode(), "numbers in base64; decode them with"),
    "base64, float64": (lambda row: base64.b64encode(row.astype(float).tobytes()).decode(), "numbers in base64; "),
    "sparse": (
        lambda row: f"{{{','.join(f'{i + 1}:{v}' for i, v in enumerate(row))}}}/8",
        "numbers by their positions",
    ),
    "svmlight": (lambda row: " ".join(f"{i}:{v}" for i, v in enumerate(row)), "numbers by their positions"),
    "dict": (lambda row: str({str(i): float(v) for i, v in enumerate(row)}), "numbers by their positions"),
    "decimal commas": (
        lambda row: f"[{', '.join(f'{v:.2f}'.replace('.', ',') for v in row)}]",
        "decimal commas within",
    ),
    "commas, semicolons": (lambda row: "; ".join(f"{v:.4f}".replace(".", ",") for v in row), "decimal commas within"),
    "points": (lambda row: str(row.reshape(-1, 2).tolist()), "many numbers, but no one list"),
}


@pytest.mark.parametrize("name", ["embedding", "x"])
@pytest.mark.parametrize("form", REFUSED)
def test_numbers_in_another_form_are_refused_by_name_and_are_no_texts(
    form: str, name: str, run_command: Call, tmp_path: Path
) -> None:
    write, message = REFUSED[form]
    file = cells(write, name=name)(tmp_path)
    out = ["-o", tmp_path / "out"]
    others = [["diagnose"], ["audit"], ["index", *out], ["train", *out]] if form == "base64" else []
    for command, *rest in (["evaluate"], ["init", *out], *others):
        code, _, err = run_command(command, file, *rest)
        assert (code, f"each {name!r} of {file} must be a list of numbers: it holds {message}" in err) == (2, True), err
    texts = ["--text", name]
    others = [["audit", file, *texts], ["train", file, *out, *texts]] if form == "base64" else []
    for call in (["init", file, *out, *texts], *others):
        code, _, err = run_command(*call)
        assert (code, f" {name!r} of {file} must" in err, f"it holds {message}" in err) == (2, True, True), err


@pytest.mark.parametrize("texts", ["sha256", "hexadecimal", "prose", "prices", "svg"])
def test_texts_that_are_no_numbers_stay_texts(texts: str, tmp_path: Path) -> None:
    digests = [hashlib.sha256(bytes([row])) for row in range(ROWS)]
    columns = {
        "sha256": [base64.b64encode(digest.digest()).decode() for digest in digests],
        "hexadecimal": [digest.hexdigest() for digest in digests],
        "prose": [f"From 1, 2, 3, 4, 5, 6, 7, 8 and 9 on {row}" for row in range(ROWS)],
        "prices": [f"{row},50" for row in range(ROWS)],
        "svg": [f"M 1,2 3,4 5,6 7,{row} Z" for row in range(ROWS)],
    }
    pq.write_table(pa.table({"label": LABELS, "a": columns[texts], "embedding": list(VALUES)}), tmp_path / "a.parquet")
    read = read_vectors(tmp_path / "a.parquet", text="a")
    assert (read.embeddings.shape, read.texts) == ((ROWS, DIMENSION), columns[texts])
    assert read_texts(tmp_path / "a.parquet", text="a").texts == columns[texts]


@pytest.mark.parametrize("make", [cells(as_list), cells(as_list, "tsv", "\t"), cells(as_list, separator=";")])
@pytest.mark.parametrize("quoted", [True, False])
def test_a_first_line_with_a_list_is_none_of_names(
    make: Any, quoted: bool, run_command: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = make(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()[1:]
    if not quoted and "," not in lines[0].partition("[")[0]:
        lines = [line.replace('"', "") for line in lines]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, out, err = run_command("evaluate", file, "--measures", "recall@1", "--json")
    assert code == 0, err
    assert json.loads(out)["evaluation"]["f0"]["recall@1"] == pytest.approx(recall(VALUES))
    assert "is read as without a line of names" in caplog.text
    code, out, err = run_command("init", file, "-o", tmp_path / "trivet.toml", "--json")
    assert (json.loads(out)["kind"], json.loads(out)["items"]) == ("vectors", ROWS), err


@pytest.mark.parametrize("short", [("location", list), ("score_0", None)])
def test_few_numbers_beside_texts_are_asked_about(short: Any, run_command: Call, tmp_path: Path) -> None:
    name, column = short
    values = VALUES[:, :2]
    columns = {name: list(values)} if column else {"score_0": values[:, 0], "score_1": values[:, 1]}
    file = tmp_path / "file.parquet"
    texts = [f"{label} of words {row}" for row, label in enumerate(LABELS)]
    pq.write_table(pa.table({"text": texts, "label": LABELS, **columns}), file)
    for call in (["evaluate", file], ["diagnose", file], ["index", file, "-o", tmp_path / "index"]):
        code, _, err = run_command(*call)
        assert (code, f"{name!r} has only 2 numbers a row: --embedding {name} if" in err) == (2, True), err
        code, _, err = run_command(*call, "--embedding", name)
        assert code == 0, err
    for options, kind in (([], "texts"), (["--embedding", name], "vectors")):
        code, out, err = run_command("init", file, *options, "-o", tmp_path / f"{kind}.toml", "--json")
        assert (code, json.loads(out)["kind"]) == (0, kind), err
    assert not holds_vectors(file, VectorChoice())  # what an audit reads


def test_what_a_column_holds_that_is_no_vector(tmp_path: Path) -> None:
    file = numbered("e{}".format)(tmp_path)
    with pytest.raises(
        ValueError, match=r"holds one of the numbered columns that begin with 'e0' there; .*Allowed: e0"
    ):
        read_vectors(file, choice=VectorChoice(embedding="e1"))
    lines = file.read_text().splitlines()
    file.write_text("\n".join(f"{line},{2000 + row if row else 'year'}" for row, line in enumerate(lines)))
    with pytest.raises(ValueError, match="holds one number in each row there; Allowed: e0"):
        read_vectors(file, choice=VectorChoice(embedding="year"))


def test_columns_of_single_numbers_are_a_vector_when_they_are_numbered(run_command: Call, tmp_path: Path) -> None:
    file, rows = tmp_path / "file.csv", [f"{row},{row % 4},{row % 7}.5,{row % 5}.25" for row in range(40)]
    file.write_text("\n".join(["id,kind,length,width", *rows]))
    remedy = r"write (the )?vectors as lists of numbers, such as a column 'embedding', or numbered columns e0, e1 and"
    for options in ([], ["--embedding", "width"]):
        code, _, err = run_command("init", file, *options, "-o", tmp_path / "s.toml")
        assert code == 2
        assert re.search(remedy, err), err
    file.write_text("\n".join(["id,kind,e0,e1", *rows]))
    code, out, err = run_command("init", file, "-o", tmp_path / "s.toml", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "vectors"), err


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_vectors_within_objects(ending: str, run_command: Call, tmp_path: Path) -> None:
    file = tmp_path / f"file.{ending}"

    def write(cells: list[Any]) -> None:
        rows = [{"label": label, "vector": cell} for label, cell in zip(LABELS, cells, strict=True)]
        file.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))

    vectors = VALUES.tolist()
    rows = [{"label": "a", "metadata": {"label": label}, "v": row} for label, row in zip(LABELS, vectors, strict=True)]
    file.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))
    assert read_vectors(file).labels["metadata.label"].tolist() == LABELS  # two columns of one name
    write([{"image": row} for row in vectors])  # one vector by its name, as Qdrant and Weaviate export them
    assert read_vectors(file).embeddings.tolist() == vectors
    write([{"image": row, "text": row[::-1]} for row in vectors])
    code, _, err = run_command("evaluate", file)
    assert (code, "in vector.image, vector.text, of which one must be meant" in err) == (2, True), err
    check(run_command, file, VALUES, "--embedding", "vector.image")
    write([{"body": {"data": [{"index": 0, "embedding": row}]}} for row in vectors])  # as answers of an interface
    for call in (["evaluate", file], ["audit", file], ["init", file, "-o", tmp_path / "new.toml"]):
        code, _, err = run_command(*call)
        assert (code, "vector.body.data[0].embedding" in err) == (2, True), err


WORDS = [f"w{row}" if row != 3 else '"' for row in range(ROWS)]  # GloVe has a quote among its words


@pytest.mark.parametrize("form", ["word2vec", "csv"])
def test_lines_without_names_have_numbers_and_words_that_differ_are_ids(
    form: str, run_command: Call, tmp_path: Path
) -> None:
    file, csv_like = tmp_path / "file.txt", form == "csv"
    lines = ["" if csv_like else f"{ROWS} {DIMENSION}"]
    lines += [" ".join([word, *map(str, row)]) for word, row in zip(WORDS, VALUES.tolist(), strict=True)]
    text = "\n".join(lines) + "\n"
    file.write_text(text.replace(" ", ",").replace('"', "'") if csv_like else text)
    read = read_vectors(file)
    assert (read.labels, read.names()[4]) == ({}, "w4")
    np.testing.assert_array_equal(read.embeddings, VALUES)
    code, _, err = run_command("init", file, "-o", tmp_path / "new.toml")
    assert (code, "file.txt has none (it has id); add one" in err) == (2, True), err
    value = re.escape(str(VALUES[6, 0].item()))
    file.write_text(re.sub(rf"(w6.){value}", r"\1nan", file.read_text()))
    with pytest.raises(ValueError, match=r"finite: 1 of 24 hold NaN or infinity, line 8, in column .*; drop these"):
        read_vectors(file)


def test_a_lone_column_is_not_said_to_be_none(run_command: Call, tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("text\n" + "".join(f"words of row {row}\n" for row in range(ROWS)))
    code, _, err = run_command("init", tmp_path / "file.csv")
    assert (code, "file.csv has none (it has no other column); add one" in err) == (2, True), err


def test_transposed_embeddings(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", embeddings=VALUES.T, label=LABELS)
    with pytest.raises(
        ValueError, match=r"save it with shape \(8,\), or the embeddings with \.T, as they seem transpo"
    ):
        read_vectors(tmp_path / "file.npz")


def test_texts_beside_vectors(run_command: Call, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    for name, kind, remark in [
        ("embedding", "vectors", "--text text"),
        ("probabilities", "texts", f"--embedding {'probabilities'}"),
    ]:
        rows = [
            {"text": f"{label} of words {row}", "label": label, name: values}
            for row, (label, values) in enumerate(zip(LABELS, VALUES.tolist(), strict=True))
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
        code, out, err = run_command("init", file, "-o", tmp_path / f"{kind}.toml", "--json")
        made = json.loads(out)
        assert (code, made["kind"]) == (0, kind), err
        assert any(f"{remark} trains on these" in finding for finding in made["findings"])
        option = remark.split()
        code, out, _ = run_command("init", file, *option, "-o", tmp_path / f"not {kind}.toml", "--json")
        assert json.loads(out)["kind"] == {"vectors": "texts", "texts": "vectors"}[kind]
    with pytest.raises(ValueError, match=r"column 'probabilities' .* must hold texts: it holds lists of numbers"):
        read_texts(file, text="probabilities")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("[0.1, 0.2, oops]", r"(line 5|row 3 counted from 0) has 'oops' in '\[0\.1, 0\.2, oops\]'; correct it"),
        ("[0.1 0.2 ... 0.7 0.8]", r"has '\.\.\.' in .*write lists with \.tolist\(\), as numpy leaves out the middle"),
        ("[0.1, 0.2]", r"(line 5|row 3 counted from 0) has 2 values, the first row has 8; embed all rows with"),
        ("", r"have a complete embedding: 1 of 24 have none, (line 5|row 3 counted from 0); fill"),
        ("[]", r"(line 5|row 3 counted from 0) has '' in '\[\]'; correct it"),
        ("n/a", "has 'n/a' in 'n/a'; correct it"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_cell_that_is_no_list_is_named(ending: str, cell: str, message: str, tmp_path: Path) -> None:
    texts = [as_list(row) for row in VALUES]
    texts[3] = cell
    make = cells(str) if ending == "csv" else parquet("embedding", list)
    with pytest.raises(ValueError, match=message):
        read_vectors(make(tmp_path, np.array(texts, object)))


@pytest.mark.parametrize(
    "make", [cells(as_list), cells(as_list, "tsv", "\t"), numbered(str, index=True), npz("x"), npy()]
)
def test_decisions_are_applied_to_a_file_of_vectors(make: Any, run_command: Call, tmp_path: Path) -> None:
    file = make(tmp_path)
    (tmp_path / "decisions.csv").write_text("id,decision,label\n3,relabel,kind 0\n5,drop,\n")
    new = tmp_path / f"new{file.suffix}"
    code, _, err = run_command("audit", file, "--apply", tmp_path / "decisions.csv", "-o", new)
    assert code == 0, err
    read = read_vectors(new)
    assert read.labels["label"].tolist() == [*LABELS[:3], "kind 0", LABELS[4], *LABELS[6:]]
    np.testing.assert_allclose(read.embeddings, np.delete(VALUES, 5, axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "cell", ["[1] in 1.5 m", "(555) 123-4567", "[INFO] 0.5", "{1.5, 2.5} l", "0.5 1.5 of 2.5 3.5", "1.5, 2.5"]
)
def test_texts_with_numbers_are_no_vectors(cell: str, tmp_path: Path) -> None:
    file = cells(lambda row: f"{cell} {row[0]:.0f}" if cell[-1] != "5" else cell)(tmp_path)
    with pytest.raises(ValueError, match="must hold the embeddings as lists of numbers"):
        read_vectors(file)
    assert read_texts(file, text="embedding").texts


def with_gaps(folder: Path, form: str) -> Path:
    """A file of that form whose rows 0 and 7 have no vector."""
    rows = [None if row in (0, 7) else values for row, values in enumerate(VALUES.tolist())]
    file = folder / f"file.{form}"
    if form == "parquet":
        return parquet("embedding", lambda _: pa.array(rows, pa.list_(pa.float32(), DIMENSION)))(folder)
    if form == "jsonl":
        file.write_text("\n".join(json.dumps({"label": LABELS[i], "values": row}) for i, row in enumerate(rows)))
    elif form == "tsv":
        lines = [f"{LABELS[i]}\t{'' if row is None else row}" for i, row in enumerate(rows)]
        file.write_text("\n".join(["label\tembedding", *lines]) + "\n")
    else:
        lines = [",".join([LABELS[i], *map(str, row or [""] * DIMENSION)]) for i, row in enumerate(rows)]
        file.write_text("\n".join([",".join(["label", *(f"e{i}" for i in range(DIMENSION))]), *lines]) + "\n")
    return file


@pytest.mark.parametrize(
    ("form", "where"),
    [
        ("csv", "lines 2, 9"),
        ("tsv", "lines 2, 9"),
        ("jsonl", "lines 1, 8"),
        ("parquet", "rows 0, 7 counted from 0"),
    ],
)
def test_rows_without_a_vector_are_named_or_left_out(form: str, where: str, run_command: Call, tmp_path: Path) -> None:
    file = with_gaps(tmp_path, form)
    code, _, err = run_command("evaluate", file, "--measures", "recall@1")
    assert (code, f"2 of 24 have none, {where}" in err, "--skip-empty" in err) == (2, True, True), err
    for command, *options in (("evaluate",), ("diagnose",), ("audit",), ("index", "-o", tmp_path / "index")):
        code, out, err = run_command(command, file, *options, "--skip-empty", "--json")
        assert code == 0, err
        assert json.loads(out)["items"] == ROWS - 2
    code, out, err = run_command("init", file, "--skip-empty", "-o", tmp_path / "trivet.toml", "--json")
    assert (code, json.loads(out)["items"]) == (0, ROWS - 2), err
    read = read_vectors(file, skip_empty=True)
    np.testing.assert_allclose(read.embeddings, np.delete(VALUES, [0, 7], axis=0), rtol=1e-6)


@pytest.mark.parametrize("make", sampled(VARIANTS, 4))
def test_damage_of_every_form_is_read_or_refused_in_a_sentence(make: Any, tmp_path: Path) -> None:
    file = make(tmp_path)
    for part in [path for path in tmp_path.rglob("*") if path.is_file()]:
        content = part.read_bytes()
        for damage, change in DAMAGES.items():
            for seed in range(3):
                part.write_bytes(change(content, random.Random(f"{part.name} {damage} {seed}")))
                message = tmp_path.name
                try:
                    read_vectors(file)
                except (ValueError, OSError) as error:
                    message = str(error)
                assert tmp_path.name in message  # it names the file
                assert "\n" not in message
        part.write_bytes(content)


def test_train_and_embed_on_a_chosen_column(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.jsonl"
    rows = [{"label": label, "a": code.tolist(), "b": code.tolist()} for label, code in zip(LABELS, CODES, strict=True)]
    file.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr("trivet.commands.train.run.write_evaluation", lambda run, record, *_, **__: record)
    options = ["--embedding", "b", "--codes", "int8"]
    encoder = '--set=ladder.rungs=["encoder"]'
    code, _, err = run_command("train", file, *options, "--labels", "label", encoder, "-o", tmp_path / "run")
    assert code == 0, err
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["data"]
    assert (settings["embedding"], settings["codes"]) == ("b", "int8")
    code, _, err = run_command("embed", tmp_path / "run", file, "-o", tmp_path / "new.parquet")
    assert code == 0, err
    assert pq.read_table(tmp_path / "new.parquet").num_rows == ROWS
    (tmp_path / "new.jsonl").write_text(file.read_text().replace('"b":', '"c":'))
    code, _, err = run_command("embed", tmp_path / "run", tmp_path / "new.jsonl", "-o", tmp_path / "c.parquet")
    assert (code, "has no 'b'" in err) == (2, True), err
    code, _, err = run_command(
        "embed", tmp_path / "run", tmp_path / "new.jsonl", "--embedding", "c", "-o", tmp_path / "c.parquet"
    )
    assert code == 0, err
    code, _, err = run_command("train", file, "--text", "label", "--embedding", "b")
    assert (code, "--embedding and --codes for vectors: leave one out" in err) == (2, True), err


@pytest.mark.parametrize(
    ("command", "file", "library"),
    [
        ("evaluate vectors.mat", "vectors.mat", "numpy"),
        ("init vectors.pkl", "vectors.pkl", "numpy"),
        ("audit vectors.h5", "vectors.h5", "h5py"),
        ("diagnose store", "store/chroma.sqlite3", "chromadb"),
        ("diagnose store", "store/birds.lance", "lancedb"),
        ("diagnose store/birds.lance", "store/birds.lance", "lancedb"),
    ],
)
def test_the_line_that_converts_another_store(
    command: str, file: str, library: str, run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("store").mkdir()
    Path(file).mkdir() if file.endswith(".lance") else Path(file).touch()
    if file.endswith(".mat"):
        savemat(file, {"embeddings": VALUES, "label": np.array(LABELS)})
    if file.endswith(".pkl"):
        Path(file).write_bytes(pickle.dumps({"embeddings": VALUES.tolist(), "label": LABELS}))
    code, _, err = run_command(*command.split())
    line = re.search(r"convert it, by your names: (import .*)\.\n", err)
    assert (code, err.count("\n")) == (2, 1), err
    assert line is not None, err
    compile(line[1], command, "exec")
    assert line[1].startswith(f"import {library}, ")
    assert repr("store" if "store" in file else file) in line[1]
    assert ("'birds'" in line[1]) == (library == "lancedb")
    if library == "numpy":  # the others are not installed here
        exec(line[1], {})
        read = read_vectors(Path("vectors.npz"))
        np.testing.assert_array_equal(read.embeddings, VALUES)
        assert read.labels["label"].tolist() == LABELS


def test_other_files_are_saved_again(tmp_path: Path) -> None:
    (tmp_path / "vectors.faiss").touch()
    sentence = (
        rf"must be in a file {', '.join(FORMATS)} or a run folder: got .*vectors\.faiss; save them in the program"
    )
    with pytest.raises(ValueError, match=sentence):
        read_vectors(tmp_path / "vectors.faiss")
