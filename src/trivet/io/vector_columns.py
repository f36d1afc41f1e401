"""Embeddings in the columns of a table, in whichever form; a new form is one more entry of `FORMS`."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trivet.config.base import nearest
from trivet.io.label_columns import is_numeric, is_text_name, text_column
from trivet.io.overwrite_guard import sharded
from trivet.io.table import DataTable, check_embeddings, integral, is_list, is_text, listed, read_errors
from trivet.io.vector_choice import Codes, VectorChoice
from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.progress import report
from trivet.runtime.text import abbreviated, typed

log = logging.getLogger("trivet")
EMBEDDING = "embedding"  # the column of embeddings in a table that Trivet writes
USUAL = re.compile("embed|vector|(?<![a-z])(emb|vec|feats?|features?|values)(?![a-z])")  # in names of such columns
LOOKED_AT = 100  # rows, whose texts say whether a column holds lists of numbers
MANY = 8  # numbers of a row, below which they may be a box, a place, scores or levels rather than an embedding

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_VALUE = rf"(?:{_NUMBER}|(?i:nan|[+-]?inf))"
_BETWEEN = r"(?:\s*[,;]\s*|\s+)"
# A list in brackets, also of shape (1, d) or cut as numpy does; or four decimals and more without brackets.
_BRACKETED = (
    rf"^\s*(?:tensor\(|array\()?(?:\[\s*)?[\[({{]\s*{_VALUE}(?:{_BETWEEN}(?:{_VALUE}|\.\.\.))*\s*[\])}}](?:\s*\])?"
    r"(?:,\s*d[^)]*)?\)?\s*$"
)
_BARE = rf"^\s*{_VALUE}(?:{_BETWEEN}{_VALUE}){{3,}}\s*$"
_DECIMAL = r"[0-9]?\.[0-9]|[0-9]\.|[0-9][eE][+-]?[0-9]"
_SCALAR = r"(?:np\.|numpy\.)?(?:float|int|uint)[0-9]+\(([^()]*)\)"  # as numpy writes one number
_COMMA = r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?"  # a number with a decimal comma
_KEY = r"['\"]?[0-9]+['\"]?"
# Numbers in a form that is not read -> what it is, and what to do.
_UNREADABLE = {
    rf"^\s*[\[({{]?\s*{_COMMA}(?:(?:\s*;\s*|,?\s+)(?:{_COMMA}|[+-]?[0-9]+)){{3,}}\s*[\])}}]?\s*$": (
        "decimal commas within a list; write decimal points"
    ),
    rf"^\s*\{{?\s*{_KEY}\s*:\s*{_VALUE}(?:[\s,]+{_KEY}\s*:\s*{_VALUE})+\s*\}}?(?:/[0-9]+)?\s*$": (
        "numbers by their positions, as of a sparse vector or a dict; write all d numbers as a list"
    ),
    rf"^\s*[\[({{]*\s*{_VALUE}(?:[\s,;:/|\[\](){{}}'\"]+{_VALUE}){{{MANY - 1},}}[\s\])}}]*$": (
        "many numbers, but no one list; write one list of d numbers"
    ),
}
BASE64 = "numbers in base64; decode them with numpy.frombuffer(base64.b64decode(text), numpy.float32)"
_AROUND = r"^(?:tensor|array)\(|,\s*d(?:type|evice)=.*\)$|\)$"
LISTED_NUMBERS = "lists of numbers, such as a column 'embedding', or numbered columns e0, e1 and so on"
_SETTING = "(in a settings file data.{})"

Rows = npt.NDArray[Any]


class VectorColumns(NamedTuple):
    """Columns that may hold the embeddings of a table.

    Attributes:
        names: the columns, first dimension first.
        integers: whether they seem to hold whole numbers.
        rows: makes `(B, d)` of a batch of those columns, given the numbers `(B,)` of its rows; d is that of the first
            row of the table, None before it.
        unreadable: what form of numbers they hold that `rows` refuses, and what to do; empty if they can be read.
    """

    names: list[str]
    integers: bool
    rows: Callable[[DataTable, Integers, pa.RecordBatch, int | None], Rows]
    unreadable: str = ""


def vector_columns(table: DataTable, named: str | None = None) -> dict[str, VectorColumns]:
    """All columns that may hold embeddings, by the name of the first; one that is named counts if it can at all."""
    candidates = {name: columns for form in FORMS for name, columns in form(table, named).items()}
    usable = {n: c for n, c in candidates.items() if not c.unreadable or n == named or is_usual(n)}
    return usable or candidates


def check_no_vectors(table: DataTable, text: str) -> None:
    """ValueError if a column that is named for its texts holds vectors, or numbers in another form."""
    if (columns := vector_columns(table).get(text)) is not None:
        what = (
            f"{columns.unreadable}, and read it"
            if columns.unreadable
            else "lists of numbers, which are vectors; read them"
        )
        raise ValueError(f"the column {text!r} of {table.path} must hold texts: it holds {what} without --text.")


def likely_text(table: DataTable, columns: Mapping[str, VectorColumns]) -> str | None:
    """The column of texts of a table whose columns of numbers are not likely to be embeddings, being short or odd."""
    likely = (is_usual(n) or (not c.unreadable and _dimension(table, c) >= MANY) for n, c in columns.items())
    if not columns or any(likely):
        return None
    column = text_column(table.without([name for some in columns.values() for name in some.names]))
    return column if column is not None and is_text_name(column) else None


def _dimension(table: DataTable, columns: VectorColumns) -> int:
    """Number of values in the first row."""
    batch = _first_rows(table, columns.names[:1])
    first = [] if batch is None else [value for value in batch.column(0).to_pylist() if value]
    if len(columns.names) > 1 or not first:
        return len(columns.names)
    return len(re.findall(_NUMBER, first[0])) if isinstance(first[0], str) else len(first[0])


def is_usual(name: str) -> bool:
    """Test whether a column is called as embeddings usually are."""
    return USUAL.search(name.lower()) is not None


def nested_vectors(types: Mapping[str, pa.DataType]) -> list[str]:
    """Paths of the lists of decimals within the objects and lists of columns, as in "data[0].embedding"."""
    paths: list[str] = []
    for name, kind in types.items():
        members = {}
        if pa.types.is_struct(kind):
            members = {f"{name}.{member.name}": member.type for member in kind}
        elif is_list(kind) and pa.types.is_nested(kind.value_type):
            members = {f"{name}[0]": kind.value_type}
        paths += [member for member, of in members.items() if is_list(of) and pa.types.is_floating(of.value_type)]
        paths += nested_vectors(members)
    return paths


def is_listing(text: str) -> bool:
    """Test whether one text is a list of two numbers and more, in any form."""
    texts = _unwrapped(pa.array([text]))
    listing = _share(texts, _BRACKETED) > 0 and len(re.findall(_NUMBER, text)) > 1
    return listing or bool(_unreadable(texts, listing=False))


def choose(
    path: Path, integers: Mapping[str, bool], named: str | None, *, names: Mapping[str, str], nested: Sequence[str] = ()
) -> str:
    """The one of several columns or arrays that is meant: the only one, or the only one with a usual name.

    Args:
        integers: those that may be the embeddings, and whether they hold whole numbers.
        named: the one that the user names; where there is no such column and only one of vectors, that is taken.
        names: all columns, and their types.
        nested: paths of vectors within columns.

    Raises:
        ValueError: if there is none, several may be meant, or what is named holds no vectors.
    """
    if named is not None:
        if named not in names and len(integers) == 1:  # such as a gallery beside queries of several columns
            (only,) = integers
            log.warning("%s has no column %r; its only vectors, %r, are taken.", path, named, only)
            return only
        if named not in integers:
            what = f"holds {names[named]} there" if named in names else f"has no {named!r}"
            allowed = nearest(named, integers) if integers else f"write the vectors as {LISTED_NUMBERS}."
            raise ValueError(f"--embedding must name a column of vectors: {path} {what}; {allowed}")
        return named
    usual = [name for name in integers if is_usual(name)]
    floats = [name for name in integers if not integers[name]]
    meant = [name for name in usual if name in floats] or usual or floats or list(integers)
    if not meant:
        odd = [f"{name!r} ({names[name]})" for name in names if is_usual(name)]
        raise ValueError(
            f"{path} must hold the embeddings as {LISTED_NUMBERS}: it has {listed(odd or list(names))}; "
            + (
                f"write those in {nested[0]} in a column of their own."
                if nested
                else "write each as one list of d numbers."
            )
        )
    if len(meant) > 1:
        raise ValueError(
            f"{path} holds vectors in {listed(meant)}, of which one must be meant: choose it with --embedding, such as "
            f"--embedding {typed(meant[0])} {_SETTING.format('embedding')}."
        )
    return meant[0]


def with_vectors(path: Path, table: DataTable, choice: VectorChoice) -> DataTable:
    """The table with the embeddings of its columns in memory, and without those columns.

    Args:
        path: of the embeddings, which errors about them name.

    Raises:
        ValueError: if no columns can be taken for embeddings, several can, or what they hold is not `(N, d)`, or
            `decoded` cannot tell.
    """
    if table.vectors is not None and choice.embedding is not None and path.suffix.lower() != ".npz":
        log.warning("%s has no column %r; its only vectors are taken.", path, choice.embedding)
    stored = stored_vectors(table, choice)
    assert stored.vectors is not None
    return replace(stored, vectors=decoded(path, stored.vectors, choice.codes))


def stored_vectors(table: DataTable, choice: VectorChoice) -> DataTable:
    """As `with_vectors`, with the numbers as they are stored."""
    if table.vectors is not None:
        return table
    candidates = vector_columns(table, choice.embedding)
    names = {name: _described(table, name, kind, candidates) for name, kind in table.types.items()}
    integers = {name: columns.integers for name, columns in candidates.items()}
    name = choose(table.path, integers, choice.embedding, names=names, nested=nested_vectors(table.types))
    chosen = candidates[name]
    if chosen.unreadable:
        form, _, remedy = chosen.unreadable.partition("; ")
        raise ValueError(
            f"each {name!r} of {table.path} must be a list of numbers: it holds {form}; {remedy}, or name another "
            "column with --embedding."
        )
    if choice.embedding is None and (text := likely_text(table, {name: chosen})) is not None:
        raise ValueError(
            f"the embeddings of {table.path} must be named, as it has texts in {text!r}, and {name!r} has only "
            f"{_dimension(table, chosen)} numbers a row: --embedding {typed(name)} if these are meant; init and "
            f"audit read texts with --text {typed(text)}."
        )
    vectors: Rows = np.empty((0, 0), np.float32)
    lacking, broken = np.ones(table.count, np.bool_), np.zeros(table.count, np.bool_)
    for numbers, rows in vector_blocks(table, chosen):
        if not len(vectors):
            vectors = np.zeros((table.count, rows.shape[1]), rows.dtype)
        vectors[numbers], lacking[numbers] = rows, False
        broken[numbers] = ~np.isfinite(rows).all(axis=1)
    if broken.any():
        lines, of_columns = np.flatnonzero(broken), np.flatnonzero(~np.isfinite(vectors[broken]).all(axis=0))
        wrong = [repr(chosen.names[column]) for column in of_columns] if len(chosen.names) > 1 else []
        where = f", in {'column' if len(wrong) == 1 else 'columns'} {abbreviated(wrong, 8)}" if wrong else ""
        raise ValueError(
            f"the embeddings of {table.path} must be finite: {broken.sum()} of {table.count} hold NaN or infinity, "
            f"{table.where(lines)}{where}; drop these rows, or embed them again."
        )
    if table.count and lacking.all():
        raise ValueError(f"{table.path} must hold embeddings: {listed(chosen.names)} has none in any row; embed them.")
    if chosen.integers and vectors.dtype.kind == "f" and integral(vectors):
        vectors = vectors.astype(np.int64)  # texts of whole numbers
    return replace(table.without(chosen.names), vectors=vectors, lacking=lacking if lacking.any() else None)


def _described(table: DataTable, name: str, kind: pa.DataType, candidates: Mapping[str, VectorColumns]) -> str:
    """Description of what a column holds, for errors."""
    first = next((first for first, columns in candidates.items() if name in columns.names[1:]), None)
    if first is not None:
        return f"one of the numbered columns that begin with {first!r}"
    if name in table.columns and is_numeric(table.values(name)):
        return "one number in each row"
    return "texts" if is_text(kind) else str(kind)


def vector_blocks(table: DataTable, columns: VectorColumns) -> Iterator[tuple[Integers, Rows]]:
    """The numbers `(B,)` of rows that have embeddings, and these `(B, d)`: all in order, some thousand at a time."""
    start, dimension = 0, None
    for batch in table.batches(columns.names):
        there = ~np.any([_empty(table, column) for column in batch.columns], axis=0)
        if there.any():
            numbers = start + np.flatnonzero(there)
            complete = batch if there.all() else batch.filter(pa.array(there))
            rows = columns.rows(table, numbers, complete, dimension)
            dimension = rows.shape[1]
            yield numbers, rows
        start += len(batch)
        report(f"reading {table.path.name}", start, table.count)


def decoded(path: Path, numbers: Rows, codes: Codes | None) -> Rows:
    """Embeddings `(N, d)` floating point of the numbers that are stored.

    Floating point stays as it is, but for its byte order. Whole numbers are asked about, also those of 8 and more a row
    that are stored as floating point, are all from 0 to 255 or from -128 to 127, and differ by 128 or more: "bits" are
    -1 and 1, from 8 bits a number as `numpy.packbits` writes them (also less 128, as int8), or from numbers that are 0
    and 1; "int8" are numbers from -128 to 127, of which unsigned ones are stored plus 128; "uint8" are numbers from 0
    to 255.

    Raises:
        ValueError: if the shape is not `(N, d)` with N, d >= 1, or whole numbers are not given a meaning, or have none.
    """
    check_embeddings(f"the embeddings of {path}", numbers.shape)
    dtype = numbers.dtype
    of_run = path.parent.name == "embeddings" and (path.parent.parent / "config.toml").is_file()
    if dtype.kind == "f" and _are_codes(numbers, codes) and not (of_run or sharded(path)):  # those are of a network
        numbers = numbers.astype(np.int16)
    if numbers.dtype.kind == "f":
        if codes is not None:
            raise ValueError(
                f"--codes gives whole numbers a meaning {_SETTING.format('codes')}: the vectors of {path} are {dtype}; "
                "leave it out."
            )
        return numbers if dtype.isnative else numbers.astype(dtype.newbyteorder("="))
    if dtype.kind not in "biuf":
        raise ValueError(f"the embeddings of {path} must be numbers: got {dtype}; save them as float32.")
    low, high = int(numbers.min()), int(numbers.max())
    signed = low < 0 or dtype == np.int8
    if not -128 <= low <= high <= (127 if signed else 255):
        raise ValueError(
            f"the embeddings of {path} must be floating point, or whole numbers of 8 bits: got {dtype} from {low} to "
            f"{high}; if they are measurements, convert them with .astype(np.float32)."
        )
    if codes is None or (codes == "uint8" and signed):
        raise ValueError(
            f"the vectors of {path} are whole numbers from {low} to {high} ({dtype}), which must be given a meaning: "
            "--codes bits if they hold bits, 8 in each as numpy.packbits writes them, --codes int8 if each is a number "
            f"from -128 to 127{'' if signed else ', stored plus 128, --codes uint8 if each is a number from 0 to 255'} "
            f"{_SETTING.format('codes')}."
        )
    if codes == "bits":
        packed = not 0 <= low <= high <= 1
        integers = (numbers + np.int16(128 * signed)).astype(np.uint8)
        return (np.unpackbits(integers, axis=1) if packed else integers) * np.float32(2) - np.float32(1)
    plus = codes == "int8" and (dtype == np.uint8 or high > 127)
    return numbers.astype(np.float32) - np.float32(128 * plus)


def _are_codes(numbers: Rows, codes: Codes | None) -> bool:
    """Test whether floating point `(N, d)` may be whole numbers of 8 bits; of most files a few rows tell.

    Without `codes` they must be as many and differ as much as packed bits do: counts and pixels of few levels do not.
    """
    for some in (numbers[:LOOKED_AT], numbers):
        low, high = some.min(), some.max()
        if not (low >= -128 and high <= (127 if low < 0 else 255) and (some == np.floor(some)).all()):
            return False
    return codes is not None or bool(numbers.shape[1] >= MANY and high - low >= 128)


def _first_rows(table: DataTable, names: list[str]) -> pa.RecordBatch | None:
    """Those columns of the first rows; None if there are none."""
    batch = next(table.batches(names), None) if names else None
    return None if batch is None or not len(batch) else batch.slice(0, LOOKED_AT)


def _find_lists(table: DataTable, named: str | None) -> dict[str, VectorColumns]:
    candidates = {}
    for name, kind in table.types.items():
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) and _is_flat(kind) else kind
        if not is_list(kind):
            continue
        of = kind.value_type
        integers = pa.types.is_integer(of) or pa.types.is_boolean(of)
        if pa.types.is_floating(of) or (integers and (name == named or is_usual(name) or _is_long(table, name))):
            candidates[name] = VectorColumns([name], integers, _list_rows)
    return candidates


def _is_flat(kind: pa.BaseExtensionType) -> bool:
    """Test whether a tensor has one dimension, but for those of size 1."""
    shape: list[int] = getattr(kind, "shape", [])
    return len([size for size in shape if size > 1]) <= 1


def _is_long(table: DataTable, name: str) -> bool:
    """Test whether the first lists are of one length, and no short ones."""
    batch = _first_rows(table, [name])
    lengths: set[int] = set() if batch is None else set(pc.list_value_length(batch.column(0).drop_null()).to_pylist())
    return len(lengths) == 1 and min(lengths) >= MANY


def _find_texts(table: DataTable, named: str | None) -> dict[str, VectorColumns]:
    names = [name for name, kind in table.types.items() if is_text(kind)]
    batch = _first_rows(table, names)
    candidates: dict[str, VectorColumns] = {}
    for name in [] if batch is None else names:
        assert batch is not None
        texts = _texts(table, batch.column(name))
        texts = texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), ""))
        unwrapped = _unwrapped(texts)
        decimal = _share(unwrapped, _DECIMAL) > 0.5
        listing = _share(unwrapped, _BRACKETED) > 0.5 or (decimal and _share(unwrapped, _BARE) > 0.5)
        if unreadable := _unreadable(unwrapped, listing=listing):
            candidates[name] = VectorColumns([name], False, _text_rows, unreadable)
        elif listing and (decimal or name == named or is_usual(name) or _is_wide(texts)):
            candidates[name] = VectorColumns([name], not decimal, _text_rows)
    return candidates


def _unreadable(texts: pa.Array, *, listing: bool) -> str:
    """The form of numbers that is not read, and what to do; empty if texts have none."""
    for pattern, form in _UNREADABLE.items():
        if _share(texts, pattern) > 0.5 and ("commas" in form or not listing):
            return form
    return BASE64 if _are_base64(texts) else ""


def _are_base64(texts: pa.Array) -> bool:
    """Test whether texts are as long, and the bytes of floating point of usual size."""
    if len(set(pc.binary_length(texts).to_pylist())) != 1 or _share(texts, r"^[A-Za-z0-9+/_-]{40,}={0,2}$") < 1:
        return False
    with contextlib.suppress(binascii.Error):
        content = b"".join(
            base64.b64decode(text, altchars=b"-_" if set(text) & set("-_") else None) for text in texts.to_pylist()
        )
        for dtype in ("<f4", "<f8"):
            if len(content) % np.dtype(dtype).itemsize == 0:
                sizes = np.abs(np.frombuffer(content, dtype))
                if ((sizes < 1e4) & ((sizes > 1e-9) | (sizes == 0))).all() and sizes.any():
                    return True
    return False


def _is_wide(texts: pa.Array) -> bool:
    """Test whether texts have as many separators each, and no few."""
    counts: set[int] = set(pc.count_substring_regex(texts, _BETWEEN).to_pylist())
    return len(counts) == 1 and min(counts) >= MANY - 1


def _unwrapped(texts: pa.Array) -> pa.Array:
    """The texts with the numbers alone that numpy writes with their types."""
    return (
        pc.replace_substring_regex(texts, _SCALAR, r"\1") if pc.any(pc.match_substring(texts, "t")).as_py() else texts
    )


def _share(texts: pa.Array, pattern: str) -> float:
    return float(pc.mean(pc.match_substring_regex(texts, pattern)).as_py() or 0)


def _texts(table: DataTable, column: pa.Array) -> pa.Array:
    with read_errors(table.path, table.path.suffix[1:]):
        texts = column.cast(pa.large_string())
        texts.validate(full=True)  # as UTF-8
        return texts


def _empty(table: DataTable, column: pa.Array) -> Booleans:
    """Mask of the cells without a value, or with nothing but white space."""
    empty: Booleans = column.is_null().to_numpy(zero_copy_only=False)
    if is_text(column.type):
        blank = pc.equal(pc.utf8_trim_whitespace(_texts(table, column)), "")
        empty = empty | pc.fill_null(blank, False).to_numpy(zero_copy_only=False)
    return empty


def _text_rows(table: DataTable, numbers: Integers, batch: pa.RecordBatch, dimension: int | None) -> Rows:
    name, texts = batch.schema.names[0], _texts(table, batch.column(0))
    trimmed = pc.utf8_trim_whitespace(_unwrapped(texts))
    trimmed = (
        pc.replace_substring_regex(trimmed, _AROUND, "") if pc.any(pc.ends_with(trimmed, ")")).as_py() else trimmed
    )
    inner = pc.utf8_trim(trimmed, characters="[](){} \t\r\n")
    # A plain separator is split at seven times as fast as a pattern.
    first = re.search(r"[,;\s]+", inner[0].as_py())
    lists = pc.split_pattern(inner, first[0] if first else ",")
    try:
        values = lists.flatten().cast(pa.float64())
    except pa.ArrowInvalid:
        lists = pc.split_pattern_regex(inner, _BETWEEN)
        try:
            values = lists.flatten().cast(pa.float64())
        except pa.ArrowInvalid:
            raise _no_number(table, name, numbers, lists.to_pylist(), texts) from None
    split = pa.record_batch({name: pa.ListArray.from_arrays(lists.offsets, values)})
    return _list_rows(table, numbers, split, dimension)


def _no_number(table: DataTable, name: str, numbers: Integers, rows: list[list[str]], texts: pa.Array) -> ValueError:
    """Error for the first of some texts that is no list of numbers."""
    row, value = next((row, v) for row, values in enumerate(rows) for v in values if not re.fullmatch(_VALUE, v))
    what = (
        "write lists with .tolist(), as numpy leaves out the middle of long arrays" if "..." in value else "correct it"
    )
    return ValueError(
        f"each {name!r} of {table.path} must be a list of numbers: {table.where(numbers[row : row + 1])} has "
        f"{value!r} in {texts[row].as_py()[:40]!r}; {what}."
    )


def _list_rows(table: DataTable, numbers: Integers, batch: pa.RecordBatch, dimension: int | None) -> Rows:
    name, lists = batch.schema.names[0], batch.column(0)
    lists = lists.storage if isinstance(lists, pa.ExtensionArray) else lists
    lengths = pc.list_value_length(lists).to_numpy()
    dimension = int(lengths[0]) if dimension is None else dimension
    wrong = np.flatnonzero(lengths != dimension)
    if len(wrong):
        raise ValueError(
            f"the embeddings of {table.path} must have the same length: {table.where(numbers[wrong[:1]])} has "
            f"{lengths[wrong[0]]} values, the first row has {dimension}; embed all rows with one model."
        )
    values = lists.flatten()
    if values.null_count:
        lacking = np.unique(values.is_null().to_numpy(zero_copy_only=False).nonzero()[0] // dimension)
        raise ValueError(
            f"the embeddings of {table.path} must be complete: {name!r} lacks a number in "
            f"{table.where(numbers[lacking])}; drop these rows, or embed them again."
        )
    rows: Rows = values.to_numpy(zero_copy_only=False).reshape(len(lists), dimension)
    return rows


def _find_numbered(table: DataTable, named: str | None) -> dict[str, VectorColumns]:
    """The sets of columns that hold one dimension each: one stem, and numbers from 0 or 1 on."""
    stems: dict[str, list[tuple[int, str]]] = {}
    for name, kind in table.types.items():
        match = re.fullmatch("(.*?)([0-9]{1,9})", name, re.DOTALL)
        if match and (pa.types.is_floating(kind) or pa.types.is_integer(kind) or is_text(kind)):
            stems.setdefault(match[1], []).append((int(match[2]), name))
    candidates = {}
    for columns in stems.values():
        numbers, names = [number for number, _ in sorted(columns)], [name for _, name in sorted(columns)]
        if len(names) < 2 or numbers not in (list(range(len(names))), list(range(1, len(names) + 1))):
            continue
        decimal = _decimals(table, names)
        if decimal or (decimal is False and (names[0] == named or len(names) >= MANY or is_usual(names[0]))):
            candidates[names[0]] = VectorColumns(names, not decimal, _numbered_rows)
    return candidates


def _decimals(table: DataTable, names: list[str]) -> bool | None:
    """Test whether columns, also of texts, hold numbers with decimals; None if they hold no numbers."""
    if any(pa.types.is_floating(table.types[name]) for name in names):
        return True
    texts = [name for name in names if is_text(table.types[name])]
    batch = _first_rows(table, texts)
    if batch is None:
        return None if texts else False
    columns = [_texts(table, batch.column(name)) for name in texts]
    columns = [_with_points(column) for column in columns]
    numeric = all(_share(column, rf"^\s*{_VALUE}\s*$") > 0.5 for column in columns)
    return any(_share(column, _DECIMAL) > 0 for column in columns) if numeric else None


def _with_points(texts: pa.Array) -> pa.Array:
    """Texts of numbers with points in place of decimal commas, where they may be nothing else: no text has a point, and
    not all commas stand before three digits, as those of thousands do."""
    thousands = r"^\s*[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+\s*$"
    commas = pc.match_substring_regex(texts, rf"^\s*{_COMMA}\s*$")
    if not pc.any(commas).as_py() or pc.any(pc.match_substring(texts, ".")).as_py():
        return texts
    if _share(texts.filter(commas), thousands) == 1:
        return texts
    return pc.if_else(commas, pc.replace_substring(texts, ",", "."), texts)


def _numbered_rows(table: DataTable, numbers: Integers, batch: pa.RecordBatch, dimension: int | None) -> Rows:
    values = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_text(column.type):
            texts = pc.utf8_trim_whitespace(_texts(table, column))
            try:
                column = _with_points(texts).cast(pa.float64())
            except pa.ArrowInvalid:
                raise _no_number(table, name, numbers, [[text] for text in texts.to_pylist()], texts) from None
        values.append(column.to_numpy())
    return np.stack(values, axis=1)


FORMS = (_find_lists, _find_texts, _find_numbered)
