"""The layout of BEIR: a folder of a corpus, queries, and judgements of relevance for each split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from trivet.io.atomic_files import atomic_folder
from trivet.io.csv_files import csv_table
from trivet.io.label_columns import SPLIT_WORDS
from trivet.io.pair_table import PairSide, PairTable, score_numbers
from trivet.runtime.safe_read import check_regular, parse_json
from trivet.runtime.text import counted

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
COLUMNS = ("query-id", "corpus-id", "score")
FILES = (CORPUS, QUERIES, f"{QRELS}/*.tsv")  # what such a folder holds
DEV = {"val": "dev"}  # splits that the layout calls otherwise


def is_beir(path: Path) -> bool:
    """Test whether a folder has the layout of BEIR."""
    return (path / CORPUS).is_file() and (path / QUERIES).is_file() and (path / QRELS).is_dir()


def read_beir(path: Path) -> PairTable:
    """Read queries and the documents that are relevant to them.

    `corpus.jsonl` has `_id`, `title` and `text` in each line, `queries.jsonl` `_id` and `text`, and `qrels/SPLIT.tsv`
    the columns query-id, corpus-id and score. The content of a document is its title and its text. Queries, or
    documents, of equal content are one item, named as the first. Queries without a judgement are left out.

    Raises:
        ValueError: if a file is missing or broken, or a judgement names a query or document that is not there.

    Source:
        Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models",
        NeurIPS 2021 Datasets and Benchmarks.
    """
    corpus, documents, notes = _side(path / CORPUS, "document")
    queries, numbers, further = _side(path / QUERIES, "query")
    files = sorted((path / QRELS).glob("*.tsv"))
    if not files:
        raise ValueError(f"a folder of BEIR must have judgements in {QRELS}/SPLIT.tsv: {path} has none; add them.")
    grades: dict[tuple[str, int, int], float] = {}
    for file in files:
        split = SPLIT_WORDS.get(file.stem.casefold(), file.stem)
        table = csv_table(file)
        if missing := [name for name in COLUMNS if name not in table.names]:
            raise ValueError(
                f"{file} must begin with a line of the columns {', '.join(COLUMNS)}, between tabs: it has no "
                f"{missing[0]!r}; add that line."
            )
        ids = [table.column(name, "an id").to_pylist() for name in COLUMNS[:2]]
        scores = score_numbers(table, COLUMNS[2])
        for row, (query, document, score) in enumerate(zip(*ids, scores.tolist(), strict=True)):
            for name, known, kind in ((query, numbers, QUERIES), (document, documents, CORPUS)):
                if name not in known:
                    raise ValueError(
                        f"each judgement must be of a query and a document that exist: {table.where(np.array([row]))} "
                        f"of {file} names {name!r}, which is not in {kind}; add it, or leave this line out."
                    )
            if np.isnan(score):
                raise ValueError(
                    f"each judgement must have a score: {table.where(np.array([row]))} of {file} has none."
                )
            key = (split, numbers[query], documents[document])
            grades[key] = max(grades.get(key, score), score)
    judged = np.unique(np.array([query for _, query, _ in grades], np.int64))
    if unjudged := len(queries.contents) - len(judged):
        further = (*further, f"{counted(unjudged, 'query')} without a judgement left out.")
    position = np.full(len(queries.contents), -1)
    position[judged] = np.arange(len(judged))
    pairs = np.array([[query, document] for _, query, document in grades], np.int64).reshape(-1, 2)
    pairs[:, 0] = position[pairs[:, 0]]
    queries = PairSide(
        queries.name,
        [queries.contents[row] for row in judged.tolist()],
        [queries.ids[row] for row in judged.tolist()],
    )
    return PairTable(
        path,
        queries,
        corpus,
        pairs,
        np.array(list(grades.values()), np.float64),
        np.array([split for split, _, _ in grades]),
        collection=True,
        notes=(*notes, *further),
    )


def write_beir(table: PairTable, path: Path, *, force: bool = False) -> None:
    """Write pairs in the layout of BEIR; pairs that no split is named of are those of "test".

    Args:
        path: the folder to make.
        force: replace a folder of this layout.

    Raises:
        ValueError: if the folder exists and may not be replaced, or a score is no whole number.
    """
    if (fractional := table.grades != np.floor(table.grades)).any():
        raise ValueError(
            f"the judgements of BEIR must be whole numbers: {table.path} has {table.grades[fractional][0]:g}; round "
            "them, or write 1 for pairs that belong together and 0 for others."
        )
    splits = np.full(len(table.pairs), "test") if table.splits is None else table.splits
    titles = table.right.titles or [""] * len(table.right.contents)
    with atomic_folder(
        path, frozenset({CORPUS, QUERIES, QRELS}), mark=CORPUS, what="a folder of BEIR", force=force
    ) as folder:
        with (folder / CORPUS).open("w", encoding="utf-8") as file:
            for name, content, title in zip(table.right.ids, table.right.contents, titles, strict=True):
                text = content.removeprefix(title).strip() if title else content
                file.write(json.dumps({"_id": name, "title": title, "text": text}, ensure_ascii=False) + "\n")
        with (folder / QUERIES).open("w", encoding="utf-8") as file:
            for name, content in zip(table.left.ids, table.left.contents, strict=True):
                file.write(json.dumps({"_id": name, "text": content}, ensure_ascii=False) + "\n")
        (folder / QRELS).mkdir()
        for split in sorted(set(splits.tolist())):
            with (folder / QRELS / f"{DEV.get(split, split)}.tsv").open("w", encoding="utf-8") as file:
                file.write("\t".join(COLUMNS) + "\n")
                for row in np.flatnonzero(splits == split).tolist():
                    left, right = table.pairs[row].tolist()
                    file.write(f"{table.left.ids[left]}\t{table.right.ids[right]}\t{int(table.grades[row])}\n")


def _side(path: Path, kind: str) -> tuple[PairSide, dict[str, int], tuple[str, ...]]:
    """The different contents of a file, the number of the content of each id, and notes."""
    check_regular(path, "a file of BEIR")
    contents: dict[str, int] = {}
    ids, titles = list[str](), list[str]()
    numbers: dict[str, int] = {}
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                row = parse_json(text)
                name, title = row["_id"], row.get("title") or ""
                content = f"{title} {row['text']}".strip()
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(
                    f'each line of {path} must be an object such as {{"_id": "7", "text": "..."}}: line {line} is '
                    "none; correct it."
                ) from None
            if not isinstance(name, str) or name in numbers or not content:
                wrong = "is no text" if not isinstance(name, str) else "comes twice" if content else "has no text"
                raise ValueError(f"each {kind} must have an id and a text: {name!r} in line {line} of {path} {wrong}.")
            if content not in contents:
                contents[content] = len(contents)
                ids.append(name)
                titles.append(title.strip())
            numbers[name] = contents[content]
    if not contents:
        raise ValueError(f"{path} must hold at least one {kind}: it has none; add some.")
    copies = len(numbers) - len(contents)
    notes = (f"{copies:,} of {len(numbers):,} in {path.name} equal an earlier one and are one item with it.",)
    side = PairSide(kind, list(contents), ids, titles if any(titles) else ())
    return side, numbers, notes if copies else ()
