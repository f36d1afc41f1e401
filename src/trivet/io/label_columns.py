"""Columns of a table that are label levels or texts: which are meant, by name and by what they hold; odd labels."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trivet.io.table import ColumnValues, DataTable, arrow_column, is_list, is_readable, is_text, listed
from trivet.io.tag_cells import LIST, SINGLE, holds_lists, several_labels

ID, SPLIT, CAMERA = ("id",), ("split",), ("camera", "cam", "camid")
PROTOCOL_COLUMNS = ("is_query", "is_gallery", "is_junk")  # the columns that make a protocol; the last may be missing
RESERVED = {*ID, *SPLIT, *CAMERA, *PROTOCOL_COLUMNS}
SHARED = 0.2  # of the rows of a label level: at least so many have the class of another row
FEWEST_ROWS = 20  # rows, of which that can be told
FIRST = 1000  # values that tell what a column holds
NEARLY = 0.9  # of them at least

# Words in the names of columns, by languages: each line is one idea, the likelier first.
LABEL_WORDS = """
label labels etiqueta etichetta etiquette rotulo etikett метка 标签 ラベル 라벨
class classe clase klasse klas класс 类别 クラス
category categorie kategorie categoria kategori kategoria категория 分类 カテゴリ
target
intent intention intencion absicht intento
species scientific taxon especie espece specie art gattung breed rasse raza razza
sentiment stimmung sentimiento emotion topic thema tema genre subject fach
identity pid person
type typ tipo kind tag
product produkt producto produit
"""
TEXT_WORDS = """
text texts texto texte testo tekst текст 文本 本文
sentence satz frase phrase utterance query question frage pregunta prompt
description beschreibung descripcion content inhalt contenido contenu body narrative
review message nachricht mensaje comment kommentar comentario tweet post
title titel titulo headline betreff summary
"""
RATINGS = """rating ratings stars star overall score bewertung sterne calificacion note grade nota"""
POOR_WORDS = """
date datum fecha time zeit hora created updated erstellt timestamp year jahr month day monat hour minute second
user username usuario author autor auteur annotator reviewer login owner bearbeiter email mail vorname nachname phone
uuid guid asin sku isbn url link hash ip zip plz price preis precio prix amount count anzahl quantity age votes views
helpful length width height latitude longitude lat lon lng duration weight confidence probability version lang language
locale bbox is has num
"""
NAMES_OF_ROWS = """id ids index key no nr number"""
SPLIT_WORDS = {
    word: words[0]
    for words in (("train", "training"), ("test", "testing"), ("val", "valid", "validation", "dev"))
    for word in words
}  # what a column may call a part, in any case -> its name here
NO_LABEL = """nan <nan> none null nil na n/a #n/a <na> nat ? - -- unknown undefined missing"""
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*|True|False|true|false")
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://.*", re.DOTALL)
MONTH = "[^\\W\\d]{3,10}\\.?"
DATE = re.compile(
    rf"\s*(\d{{4}}[-/.]\d{{1,2}}([-/.]\d{{1,2}})?|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}|\d{{1,2}}\.? {MONTH} \d{{2,4}}"
    rf"|(\d{{1,2}}|{MONTH}) \d{{1,2}}, ?\d{{4}}|\d{{1,2}}:\d\d)([T ,].*|:\d\d.*)?"
)


def name_words(name: str) -> list[str]:
    """The words of a column name: in small letters without accents, also those of `camelCase`."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", plain).casefold().replace("_", " ").replace("-", " ").split()


def _has(name: str, words: str) -> bool:
    return not set(name_words(name)).isdisjoint(words.split())


def _idea(name: str, ideas: str) -> int | None:
    """The number of the first idea that a column name has a word of; None if of none."""
    return next((number for number, words in enumerate(ideas.strip().splitlines()) if _has(name, words)), None)


def label_rank(name: str, column: ColumnValues) -> tuple[int, int]:
    """Rank of a column by how likely it is meant as the label: the larger, the likelier.

    First its kind: 4 named so, 3 words, 2 whole numbers, 1 ratings, names and numbers of rows, 0 dates, measures,
    people, texts, and columns that are mostly empty. Then the negative number of the idea in `LABEL_WORDS`.
    """
    idea = _idea(name, LABEL_WORDS)
    if column.missing.mean() > 0.5 or _has(name, POOR_WORDS) or _mostly(DATE, _some(column)):
        kind = 0
    elif idea is not None:
        kind = 4
    elif _has(name, TEXT_WORDS):
        kind = 0
    elif _has(name, f"{NAMES_OF_ROWS} {RATINGS} name"):
        kind = 1
    else:
        kind = 2 if is_numeric(column) else 3
    return kind, -(idea or 0)


def split_column(source: DataTable, but: Collection[str] = ()) -> str | None:
    """The column that says which part each row belongs to: `split`, else the one that holds words such as "Train" and
    "testing" alone, "train" among them; None without one.

    Args:
        but: columns that are known to be something else.

    Raises:
        ValueError: if there are several such columns.
    """
    there = [name for name in SPLIT if name in source.columns] or [
        name
        for name in source.types
        if name not in {*but, *source.levels, *source.tags} and _holds_splits(source, name)
    ]
    if len(there) > 1:
        raise ValueError(
            f"one column must say which rows are trained on: {listed(there)} of {source.path} hold train and other "
            f"parts; rename the one that is meant to {SPLIT[0]!r}."
        )
    return there[0] if there else None


def _holds_splits(source: DataTable, name: str) -> bool:
    """Test whether a column holds names of parts alone, those of the part to train on and of another among them."""
    if not is_text(source.types[name]):
        return False
    batch = next(source.batches([name]), None)
    first = [] if batch is None else batch.column(0).slice(0, FIRST).unique().to_pylist()
    if not all(value is None or value.strip().casefold() in {"", *SPLIT_WORDS} for value in first):
        return False
    subsets = {SPLIT_WORDS.get(value.strip().casefold()) for value in different(source.values(name)) if value.strip()}
    return "train" in subsets and len(subsets) > 1 and None not in subsets


def split_names(names: Iterable[str]) -> dict[str, str]:
    """The names of parts in a column -> as they are called here: "train", "test" and "val" for their words in any case.

    Different words that would be called alike, such as "valid" and "dev", stay as they are.
    """
    words = {name: name.strip().casefold() for name in names}
    alike = Counter(SPLIT_WORDS.get(word) for word in {*words.values()})
    return {
        name: SPLIT_WORDS[word] if word in SPLIT_WORDS and alike[SPLIT_WORDS[word]] == 1 else name
        for name, word in words.items()
    }


def text_column(source: DataTable) -> str | None:
    """The column of texts: one with a usual name, else the one of the longest texts of those that hardly repeat."""
    ranks = {}
    for name in source.columns:
        column = source.values(name)
        if name in RESERVED or is_index(name) or column.values.dtype.kind not in "UO":
            continue
        some, idea = _some(column), _idea(name, TEXT_WORDS)
        if any(_mostly(pattern, some) for pattern in (NUMBER, DATE, ADDRESS)) or _has(name, POOR_WORDS + NAMES_OF_ROWS):
            continue
        named = 0 if idea is None or _idea(name, LABEL_WORDS) is not None else 9 - idea
        if some and (named or nearly_distinct(column)):
            ranks[name] = (name.lower() == "text", named, sum(map(len, some)) / len(some))
    return max(ranks, key=lambda name: ranks[name], default=None)


def is_text_name(name: str) -> bool:
    """Test whether a column is called as texts are."""
    return _idea(name, TEXT_WORDS) is not None


def is_numeric(column: ColumnValues) -> bool:
    """Test whether the values are numbers, or texts of such."""
    return _mostly(NUMBER, _some(column))


def _some(column: ColumnValues) -> list[str]:
    return [str(value) for value in column.values[np.flatnonzero(~column.missing)[:FIRST]].tolist()]


def _mostly(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    return bool(texts) and sum(pattern.fullmatch(text) is not None for text in texts) >= NEARLY * len(texts)


def label_columns(source: DataTable) -> tuple[dict[str, ColumnValues], dict[str, str]]:
    """The columns that may be label levels, and why others are not, each as "path has a value of its own in most rows";
    what is never one, such as ids and vectors, is in neither."""
    levels, others = {}, {}
    for name in source.types:
        if name in RESERVED or is_index(name) or (source.levels and name not in source.levels):
            continue
        if not source.levels and name not in source.tags and _holds_splits(source, name):
            others[name] = f"{name} says which rows are trained on"
            continue
        column = _single_value(source, name)
        if isinstance(column, str):
            if column:
                others[name] = f"{name} holds {column}"
        elif is_list(source.types[name]) and column.missing.any():
            others[name] = f"{name} holds lists, some of them empty"
        elif nearly_distinct(column) and not source.tags.get(name):
            others[name] = f"nearly every row has its own {name}"
        elif column.plain:
            several = None if source.levels or name in source.tags else several_labels(different(column))
            if several is None:
                levels[name] = column
            else:
                others[name] = f"{name} holds several labels in a cell, such as {several.cell!r}"
    if hot := [] if source.levels else _binary_indicators(levels):
        for name in hot:
            del levels[name]
        others[hot[0]] = (
            f"{listed(hot)} are one-hot: in each row a single one is 1; write its name in one column, as pandas does "
            "by idxmax(axis=1)"
        )
    return levels, others


def _binary_indicators(columns: Mapping[str, ColumnValues]) -> list[str]:
    """The names of the columns of 0 and 1, or false and true, if in each row a single one of three or more is 1."""
    marks = {}
    for name, column in columns.items():
        coded = pa.array(column.values).dictionary_encode()
        truths = [TRUTH.get(str(value).casefold().removesuffix(".0")) for value in coded.dictionary.to_pylist()]
        if len(truths) < 3 and None not in truths and not column.missing.any():
            marks[name] = np.array(truths)[coded.indices.to_numpy()]
    return list(marks) if len(marks) > 2 and (np.sum(list(marks.values()), axis=0) == 1).all() else []


def label_levels(source: DataTable) -> tuple[dict[str, ColumnValues], dict[str, str]]:
    """As `label_columns`, but dates, measures, names, texts and ratings are levels only if there are no others."""
    levels, others = label_columns(source)
    ranks = {name: 2 if source.levels else label_rank(name, column)[0] for name, column in levels.items()}
    least = min(2, max(ranks.values(), default=0))
    for name in [name for name, rank in ranks.items() if rank < least]:
        del levels[name]
        others[name] = f"{name} holds {'ratings' if ranks[name] else 'dates, measures, names or texts'}"
    return levels, others


def label_values(source: DataTable, name: str) -> ColumnValues:
    """The values of a column that is named as a label level; lists of one entry are that entry.

    Raises:
        ValueError: if the column holds lists of several, objects of several values, or texts that are several labels
            and nobody said what they are.
    """
    column = _single_value(source, name)
    if isinstance(column, str):
        tags = (
            f"read them as tags with --separator {LIST} (data.separator in settings), "
            if holds_lists(source.types[name])
            else ""
        )
        raise ValueError(
            f"a label must be one value in each row: {name!r} of {source.path} holds {column or source.types[name]}; "
            f"{tags}write the one that is meant in a column of its own, or leave out this column."
        )
    several = None if name in source.tags else several_labels(different(column))
    if several is not None and not nearly_distinct(column):
        raise ValueError(
            f"a label must be one class in each row, or tags: {name!r} of {source.path} holds several in a cell, such "
            f'as {several.cell!r}; read them as tags with --separator "{several.separator}", or each cell as one '
            f"class with --separator {SINGLE} (data.separator in settings)."
        )
    return column


def _single_value(source: DataTable, name: str) -> ColumnValues | str:
    """The values of a column, with the entry of each list of one; else what it holds, empty if that is no label."""
    kind = source.types[name]
    if name in source.columns:
        return source.values(name)
    if pa.types.is_struct(kind):
        return "" if kind.get_field_index("bytes") >= 0 else f"objects of {listed([field.name for field in kind])}"
    if not is_list(kind) or pa.types.is_floating(kind.value_type) or not is_readable(kind.value_type):
        return ""
    lists = source.read(name).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    if (lengths > 1).any():
        return f"lists, such as {lists[int(lengths.argmax())].as_py()}"
    values = np.full(len(lengths), None, object)
    values[lengths == 1] = lists.flatten().to_pylist()
    return arrow_column(source.path, name, pa.chunked_array([pa.array(values.tolist(), kind.value_type)]))


def different(column: ColumnValues) -> list[str]:
    """The different values that are texts."""
    values = column.values[~column.missing]
    return [str(value) for value in pa.array(values).unique().to_pylist()] if values.dtype.kind in "UO" else []


def nearly_distinct(column: ColumnValues) -> bool:
    """Test whether less than a fifth of 20 rows or more share their value with another, as among texts or file names.

    Where classes have two items each, all of them do; of the 13,233 faces of LFW, with 4,069 people seen once, 69 %.
    """
    values = column.values[~column.missing]
    counts = pa.array(values).value_counts().field("counts").to_numpy()
    return bool(len(values) >= FEWEST_ROWS and counts[counts > 1].sum() < SHARED * len(values))


def is_index(column: str) -> bool:
    """Test whether pandas wrote the column to keep the numbers of the rows."""
    return column == "" or re.fullmatch("Unnamed: 0|__index_level_[0-9]+__", column) is not None


def odd_labels(level: str, counts: Mapping[str, int]) -> list[str]:
    """Sentences on class names that differ only in form, and on those that missing values are written as.

    Args:
        counts: class name -> number of its items.
    """
    notes = []
    if alike := alike_labels(counts):
        notes.append(
            f"Class names of {level!r} that differ only in form count as different classes: {listed(alike)}. Write "
            "them alike if they mean the same."
        )
    empty = NO_LABEL.split()
    if gaps := [f"{name!r} ({count:,})" for name, count in counts.items() if name.strip().casefold() in empty]:
        notes.append(
            f"Class names of {level!r} that often stand for a missing label count as classes: {listed(gaps)}. If they "
            "do here, leave these items out."
        )
    return notes


def alike_labels(counts: Mapping[str, int]) -> list[str]:
    """The class names, each with the number of its items, that differ only in white space, case, Unicode form or the
    digits of a number, such as "'1' (20) and '1.0' (3)"."""
    groups = defaultdict[object, list[str]](list)
    for name in counts:
        plain = name
        if not name.isascii():
            plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
        plain = " ".join(plain.split())
        groups[label_value(plain.casefold() if len(plain) > 1 else plain)].append(name)  # "a" and "A" are letters
    alike = []
    for names in groups.values():
        if len(names) > 1:
            spelled = ascii if len({unicodedata.normalize("NFC", name) for name in names}) < len(names) else repr
            alike.append(" and ".join(f"{spelled(name)} ({counts[name]:,})" for name in names))
    return alike


def label_value(name: str) -> object:
    """Value that a class name writes: the number, or "true" or "false" in any case; else the name itself."""
    text = name.strip()
    if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?", text):
        return Fraction(text)
    return text.casefold() if text.casefold() in ("true", "false") else name


def like_names(names: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Names that others lack -> the one of the others that writes the same number or truth; none where two of either
    do."""
    values, wanted = ({label_value(name): name for name in side} for side in (names, others))
    if len(values) < len(names) or len(wanted) < len(others):
        return {}
    return {name: wanted[value] for value, name in values.items() if wanted.get(value, name) != name}
