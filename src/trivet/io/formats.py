"""The formats of tables: what opens each, by the ending of its file or by what lies in its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trivet.config.base import nearest
from trivet.io.hf_dataset import read_saved
from trivet.io.json_files import json_lines_table, json_table
from trivet.io.npz_files import matrix_table, npy_table, npz_table
from trivet.io.overwrite_guard import SHARDS, is_saved, sharded
from trivet.io.parquet_files import parquet_table
from trivet.io.shards import shards_table
from trivet.io.table import DataTable, arrow_table
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.io.vector_columns import likely_text, vector_columns, with_vectors
from trivet.runtime.progress import work
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import typed


class Format(NamedTuple):
    """The format of a file.

    Attributes:
        open: gives its columns, which are read when they are asked for.
        rows: whether it may hold paths of images, texts or pairs; all may hold embeddings.
    """

    open: Callable[[Path, VectorChoice], DataTable]
    rows: bool = True


FORMATS = {
    ".csv": Format(matrix_table),
    ".tsv": Format(matrix_table),
    ".txt": Format(matrix_table),
    ".parquet": Format(lambda path, _: parquet_table(path)),
    ".jsonl": Format(lambda path, _: json_lines_table(path)),
    ".ndjson": Format(lambda path, _: json_lines_table(path)),
    ".json": Format(lambda path, _: json_table(path)),
    ".npz": Format(npz_table, rows=False),
    ".npy": Format(npy_table, rows=False),
}
TABLES = tuple(ending for ending, form in FORMATS.items() if form.rows)
_HDF5 = (
    "import h5py, numpy; a = h5py.File({path!r}); "
    "numpy.savez('vectors.npz', embeddings=a['embeddings'][:], label=a['label'].asstr()[:])"
)
_PICKLE = (
    "import numpy, pathlib, pickle; a = pickle.loads(pathlib.Path({path!r}).read_bytes()); "
    "numpy.savez('vectors.npz', embeddings=numpy.array(a['embeddings']), label=numpy.array(a['label']))"
)
# The name or ending of a file of another program, or of one in the folder of a store -> Python that converts it.
STORES = {
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".mat": "import numpy, scipy.io; a = scipy.io.loadmat({path!r}); "
    "numpy.savez('vectors.npz', embeddings=a['embeddings'], label=numpy.char.strip(a['label']))",
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    "chroma.sqlite3": "import chromadb, numpy; a = chromadb.PersistentClient({folder!r}).get_collection('NAME')"
    ".get(include=['embeddings', 'metadatas']); numpy.savez('vectors.npz', "
    "embeddings=a['embeddings'], id=a['ids'], label=[m['label'] for m in a['metadatas']])",
    ".lance": "import lancedb, pyarrow.parquet; a = lancedb.connect({folder!r}).open_table({name!r}); "
    "pyarrow.parquet.write_table(a.to_arrow(), 'vectors.parquet')",
}


def open_rows(path: Path, what: str = "a table", choice: VectorChoice = NO_CHOICE) -> DataTable:
    """The columns of a table of at least one row, by the suffix of its file; or of a Hugging Face data set on disk.

    Args:
        what: it is, for errors.
        choice: of a pair of files, the other one.

    Raises:
        ValueError: if the file is missing, broken, empty or of another kind.
    """
    if path.is_dir():
        if not is_saved(path):
            raise ValueError(
                f"{what} in a folder must be a Hugging Face data set as save_to_disk writes it: {path} has no "
                "state.json; give a file, or save the data set again."
            )
        table = arrow_table(path, read_saved(path))
    elif not path.is_file():
        raise ValueError(f"{what} must be in a file or a folder: {path} does not exist; check the path.")
    elif path.suffix.lower() not in TABLES:
        raise ValueError(f"{what} must be in a file {', '.join(TABLES)}: got {path}; {remedy(path)}.")
    else:
        table = FORMATS[path.suffix.lower()].open(path, choice)
    if table.count == 0:
        raise ValueError(f"{path} must hold at least one row: it has none; add some.")
    return table


def open_vectors(path: Path, choice: VectorChoice) -> DataTable:
    """The embeddings and the other columns of a file, a Hugging Face data set on disk or a folder of shards.

    Raises:
        ValueError: if it is missing, broken or of another kind, or leaves open what `choice` does not say.
    """
    with work(f"reading {path.name}"):
        if sharded(path):
            return with_vectors(path, shards_table(path), choice)
        if is_table(path):
            return with_vectors(path, open_rows(path, "embeddings", choice), choice)
        if not path.is_file():
            raise ValueError(
                f"embeddings must be read from a file or a run folder: {path} does not exist; check the path."
            )
        form = FORMATS.get(path.suffix.lower())
        if form is None:
            raise ValueError(
                f"embeddings must be in a file {', '.join(FORMATS)} or a run folder: got {path}; "
                + remedy(
                    path,
                    'save them in the program that wrote it with numpy.savez("vectors.npz", embeddings=..., label=...)',
                )
                + "."
            )
        return with_vectors(path, form.open(path, choice), choice)


def remedy(path: Path, otherwise: str = "save it as one of these") -> str:
    """Advice on a file or a folder of no format that is read."""
    ending = path.suffix.lower()
    if ending in (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".zst", ".7z", ".rar"):
        return "unpack it, and give what is in it"
    if ending in (".xlsx", ".xls", ".xlsm", ".ods"):
        return "save it as csv"
    for file in (path, *(sorted(path.iterdir()) if path.is_dir() else ())):
        if code := STORES.get(file.name, STORES.get(file.suffix.lower())):
            code = code.format(path=str(file), folder=str(file.parent), name=file.stem)
            return f"convert it, by your names: {code}"
    return otherwise


def is_table(path: Path) -> bool:
    """Test whether a path is of a table, which may hold texts."""
    return is_saved(path) or path.suffix.lower() in TABLES


def holds_vectors(path: Path, choice: VectorChoice) -> bool:
    """Test whether a path holds embeddings rather than texts: all but tables do, and those with columns of vectors."""
    if not is_table(path):
        return True
    table = open_rows(path, choice=choice)
    columns = vector_columns(table, choice.embedding)
    named = choice.embedding is not None
    return table.vectors is not None or (bool(columns) and (named or likely_text(table, columns) is None))


def run_embeddings(path: Path, split: str | None) -> Path:
    """The file of the embeddings of a split of a run; by default of its main one.

    Raises:
        ValueError: if the folder is no run, or has none.
    """
    if not (path / "config.toml").is_file():
        made = "give the folder `trivet train` or `trivet embed` made, or a file of embeddings"
        raise ValueError(
            f"a folder of embeddings must be a run, with a config.toml, or of shards, with a {SHARDS}: {path} has "
            f"neither; {remedy(path, made)}."
        )
    files = {file.stem: file for file in sorted((path / "embeddings").glob("*.parquet"))}
    if not files:
        raise ValueError(
            f"a run must hold embeddings: {path} has no embeddings/*.parquet; write them with `trivet evaluate "
            f"{typed(path)}`."
        )
    if split is None:
        return files.get(_main_split(path), next(iter(files.values())))
    if split not in files:
        raise ValueError(f"the run {path} has no embeddings of the split {split!r}; {nearest(split, files)}")
    return files[split]


def _main_split(path: Path) -> str:
    """The first split of the record; empty where there is no record, or not one that can be read."""
    try:
        record = read_json(path / "record.json", "the record of a run")
        return str(next(iter(record["evaluation"])))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):  # missing, no JSON, or of another form
        return ""
