"""Items that are equal: texts in their letters or words, vectors and pixels number for number, files byte for byte."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trivet.datasets.dataset import Dataset
from trivet.datasets.inputs import FileInputs
from trivet.datasets.vectors import VectorInputs
from trivet.io.image_file import Source
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted

LONGEST = 60  # characters of a text in a message
COMPARED = 2**30  # bytes of vectors up to which all are compared
VALUES = 2**22  # that are compared at once
SAMPLE = 4096  # bytes from the middle of files of equal size, before these are read as a whole


def content_keys(datasets: Sequence[Dataset], *, texts: bool = False) -> list[Hashable]:
    """A value for each item of some data sets, one after the other, which equal items share.

    Args:
        datasets: of one kind; images in files are compared by their bytes and boxes, others by their pixels.
        texts: whether what the items show is the text that they are.
    """
    if texts:
        return [items.show(i) for items in datasets for i in range(len(items))]
    keys: list[Hashable] = []
    files = [inputs for items in datasets if isinstance(inputs := items.inputs, FileInputs)]
    if len(files) == len(datasets):
        keys += file_keys([inputs.sources[row] for inputs in files for row in inputs.rows.tolist()])
        if all(inputs.boxes is not None for inputs in files):
            boxes = [tuple(box) for inputs in files for box in np.asarray(inputs.boxes)[inputs.rows].tolist()]
            keys = list(zip(keys, boxes, strict=True))
        return keys
    for items in datasets:
        if isinstance(items.inputs, VectorInputs):
            keys += row_keys(items.inputs.vectors[row] for row in items.inputs.rows.tolist())
            continue
        step = max(1, VALUES // max(1, items.inputs.batch(np.arange(1)).numel()))
        for start in range(0, len(items), step):
            keys += row_keys(items.inputs.batch(np.arange(start, min(start + step, len(items)))).numpy())
    return keys


def normalised_words(text: str) -> tuple[str, ...]:
    """The words of a text in one Unicode form, without case and punctuation; without any word its characters.

    Signs that are no punctuation are part of a word, or words: C++ is not C#.

    Example:
        >>> normalised_words("Don’t  STOP! C++?")
        ('dont', 'stop', 'c++')
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return tuple(re.findall(r"[\w+#]+|[%$€£=<>&@*^]", re.sub(r"['’]", "", folded)) or folded.split())


def shortened(text: str) -> str:
    """A text in quotation marks, of which a message has 60 characters."""
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 3] + "...")


def row_keys(rows: Iterable[npt.NDArray[Any]]) -> list[Hashable]:
    """A value for each row of numbers, which equal rows share."""
    return [hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in rows]


def copies(vectors: npt.NDArray[Any]) -> list[str]:
    """Sentences on how many vectors, of the first GiB, equal an earlier one; none where all differ."""
    rows = vectors[: max(1, COMPARED // vectors[0].nbytes)]
    same = len(rows) - len(set(row_keys(rows)))
    if not same:
        return []
    return [
        f"Copies of other vectors, number for number: {same:,} of {len(rows):,}.",
        "A copy is found first, and raises recall: leave copies out, unless they are items of their own.",
    ]


def file_keys(sources: Sequence[Source]) -> list[Hashable]:
    """A value for each file, which files of equal bytes share; one that cannot be read shares it with none.

    Only files of equal size are opened, and only those that also agree in their middle are read.
    """
    keys: list[Hashable] = [
        source.stat().st_size if isinstance(source, Path) and source.is_file() else -1 for source in sources
    ]
    for most in (SAMPLE, -1):
        often = Counter(keys)
        keys = [(key, _digest(file, most)) if often[key] > 1 else key for key, file in zip(keys, sources, strict=True)]
    return keys


def _digest(source: Source, most: int) -> Hashable:
    """Digest of at most so many bytes from the middle of a file; of all, if `most` is -1 or it is in a larger one."""
    try:
        if not isinstance(source, Path):
            return hashlib.blake2b(source.read(), digest_size=16).digest()  # type: ignore[union-attr]  # else: as broken
        with source.open("rb") as file:
            if most >= 0:
                file.seek(source.stat().st_size // 2)
            return hashlib.blake2b(file.read(most), digest_size=16).digest()
    except Exception:  # a damaged archive makes zipfile and zlib raise many kinds
        return object()


class Distinct(NamedTuple):
    """Selection of the texts that are trained on where some repeat.

    Attributes:
        rows: `(M,)` the positions of the texts of one class only, each once: where it comes first.
        repeated: how many items are left out because an earlier one has their text and class.
        contrary: the positions of the items whose text has several classes, which are left out.
    """

    rows: Integers
    repeated: int
    contrary: Integers


def distinct_texts(items: Dataset, level: str) -> Distinct:
    """The items of which no two have the same text, letter by letter, and no text has two classes at a level."""
    texts = [items.show(i) for i in range(len(items))]
    number: dict[object, int] = {}
    same = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
    first = np.unique(same, return_index=True)[1]
    labels = items.labels[level]
    torn = np.zeros(len(first), bool)
    torn[same[labels != labels[first][same]]] = True
    rows = np.sort(first[~torn])
    contrary = np.flatnonzero(torn[same])
    return Distinct(rows, len(items) - len(rows) - len(contrary), contrary)


def with_positive(rows: Integers, labels: Integers) -> Integers:
    """Those of the rows whose class `labels[rows]` another of them has."""
    selected: Integers = rows[np.bincount(labels[rows])[labels[rows]] > 1]
    return selected


def duplicate_text_warnings(items: Dataset, level: str) -> tuple[str, ...]:
    """Sentences on what is left out of the batches of training texts; none where all texts differ."""
    distinct = distinct_texts(items, level)
    messages = []
    if distinct.repeated:
        messages.append(
            f"Of {len(items)} training texts, {distinct.repeated} came before in the same class: batches hold each "
            "text once."
        )
    if len(distinct.contrary):
        first = distinct.contrary[0]
        text = str(items.show(int(first)))
        others = [int(i) for i in distinct.contrary if items.show(int(i)) == text]
        classes = list(dict.fromkeys(items.names[level][items.labels[level][i]] for i in others))
        messages.append(
            f"{len(distinct.contrary)} of {len(items)} training texts have another class elsewhere, and are left out "
            f"of batches: first {shortened(text)}, which is {' and '.join(map(repr, classes[:3]))} (items "
            f"{', '.join(items.ids[i] for i in others[:5])}); trivet audit shows them, and its decisions mend them."
        )
    labels = items.labels[level]
    alone = np.setdiff1d(labels[distinct.rows], labels[with_positive(distinct.rows, labels)])
    gone = np.setdiff1d(labels, labels[distinct.rows])
    if messages and len(alone) + len(gone):
        name = items.names[level][[*alone, *gone][0]]
        messages.append(
            f"{counted(len(alone) + len(gone), 'class')} at level {level!r} with one text or none left, such as "
            f"{name!r}: in no batch that needs two items of a class."
        )
    return tuple(messages)
