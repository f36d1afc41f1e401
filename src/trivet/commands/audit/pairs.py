"""Audit of pairs: which do not belong together, and which are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trivet.commands.audit.audited import Audited, nearest_items
from trivet.commands.audit.items import Items, encoded_texts
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.record import AuditRecord, KindRange, PairSuspect, Suspect
from trivet.datasets.judged_pairs import SIDES, JudgedPairs
from trivet.datasets.pair_contents import judged_pairs, read_pair_table
from trivet.datasets.pair_images import sides_of_images
from trivet.datasets.pair_vectors import vectors_by_id
from trivet.datasets.pairs_config import LEVEL, PairsConfig
from trivet.datasets.preview import Preview, to_thumbnail
from trivet.datasets.tags import column_relations
from trivet.io.beir import is_beir
from trivet.io.embedding_table import Vectors
from trivet.io.image_cells import named_images
from trivet.io.image_file import SUFFIXES, decode_image
from trivet.io.overwrite_guard import PAIR_SUSPECTS, is_run_folder
from trivet.io.pair_table import PairSide, PairTable
from trivet.io.read_embeddings import read_texts
from trivet.io.tag_cells import PAIRS, SINGLE, TagCells
from trivet.label_noise import PairSuspects, find_pair_suspects
from trivet.runtime.arrays import Integers
from trivet.runtime.text import counted, percents
from trivet.training.run_folder import RunFolder

NEIGHBOURS = 8
MOST = 1000  # rows on a page
LISTED, MISSING = "listed", "missing"
TOGETHER = "not listed, and goes together as listed pairs do"
SHARED_SPACE = "The vectors of both sides were taken to be of one space."
SEPARATE_SPACES = (
    "The vectors of both sides were taken to be of two spaces, which are compared by what the other pairs say."
)
OF_RUN = "The network of the run was trained on these pairs and does not judge them."
OF_TABLE = "Decisions are applied to the file, by trivet audit {path} --pairs --apply."
OF_BEIR = "A folder of BEIR has no rows to apply decisions to: remove what is wrong from its qrels."


class PairRows(NamedTuple):
    """The rows of a table of pairs, or the judgements of a folder of BEIR, that say what belongs together.

    Attributes:
        ids: N texts.
        pairs: `(N, 2)` positions of both contents.
    """

    ids: Sequence[str]
    pairs: Integers


def settings_of_pairs(request: AuditOptions) -> PairsConfig | None:
    """The settings of the pairs that are audited; None where a file or run is one of classes or tags."""
    path, sides = request.embeddings, request.sides
    if is_run_folder(path) and not is_beir(path):
        data = RunFolder.open(path).config().data
        if not isinstance(data, PairsConfig):
            return None
        if sides is not None:
            raise ValueError("a run knows its pairs: leave out --pairs and what names their sides.")
        return data
    if sides is None and not is_beir(path):
        return None
    named = {} if sides is None else {name: value for name, value in sides._asdict().items() if value is not None}
    return PairsConfig(path=path, skip_empty=request.skip_empty, **named)


def audit_pairs(request: AuditOptions, config: PairsConfig) -> Audited:
    """Audit pairs by what their sides are: texts, or vectors made elsewhere.

    Raises:
        ValueError: if the pairs cannot be read, or an option is asked for that they have not.
    """
    _check_options(request)
    if request.decisions is not None and is_beir(config.path):
        raise ValueError(
            "--decisions is for the rows of a table, and a folder of BEIR has none: write --out FILE instead, and "
            "remove what is wrong from the qrels."
        )
    table, of_run = read_pair_table(config), config.path != request.embeddings
    _check_texts(table, config)
    relation = judged_pairs(table, config)
    listed = np.unique(relation.pairs - np.array([0, len(table.left.contents)]), axis=0)
    rows = _rows(request, config, table, listed)
    left, right, shared, note = _vectors(request, config, table)
    suspects = find_pair_suspects(left, right, listed, shared=shared, seed=request.seed)
    remedy = (OF_BEIR,) if is_beir(config.path) else (OF_TABLE.format(path=config.path),) if of_run else ()
    name = RunFolder.open(request.embeddings).name if of_run else config.path.name
    notes = (note, *((OF_RUN,) if of_run else ()), *remedy, *table.notes)
    items = _items(name, table, rows, left, notes, lambda content: _preview(content, config.path.parent))
    return _audited(items, table, listed, rows, suspects)


def audit_paired_vectors(request: AuditOptions, vectors: Vectors) -> Audited:
    """Audit pairs of vectors by their level of pairs, of which each content is a row.

    Raises:
        ValueError: if an option is asked for that pairs have not.
    """
    _check_options(request)
    relation = column_relations(vectors.labels[LEVEL], match=PAIRS)[0][0]
    assert isinstance(relation, JudgedPairs)
    numbers, first_of_right = relation.items.numpy(), relation.first_of_right
    rows = np.argsort(numbers)  # of the contents, those of the left side first
    listed = np.unique(relation.pairs - np.array([0, first_of_right]), axis=0)
    names, contents = vectors.names(), vectors.texts or vectors.names()
    sides = rows[:first_of_right].tolist(), rows[first_of_right:].tolist()
    left, right = (
        PairSide(name, [contents[row] for row in side], [names[row] for row in side])
        for name, side in zip(SIDES, sides, strict=True)
    )
    table = PairTable(Path(vectors.name), left, right, listed, np.ones(len(listed)), None)
    pairs = PairRows([f"{left.ids[i]} {right.ids[j]}" for i, j in listed.tolist()], listed)
    of_left, of_right = (vectors.embeddings[side] for side in sides)
    suspects = find_pair_suspects(of_left, of_right, listed, shared=True, seed=request.seed)
    items = _items(vectors.name, table, pairs, of_left, (SHARED_SPACE,), str)
    return _audited(items, table, listed, pairs, suspects)


def _check_options(request: AuditOptions) -> None:
    for option, value in (
        ("--neighbours", request.neighbours),
        ("--folds", request.folds),
        ("--distance", request.distance),
        ("--separator", request.separator),
        ("--split", request.split),
    ):
        if value is not None:
            raise ValueError(f"{option} says nothing of pairs, which are all judged, by cosine: leave it out.")


def _items(
    name: str,
    table: PairTable,
    rows: PairRows,
    left: npt.NDArray[Any],
    notes: tuple[str, ...],
    show: Callable[[str], Preview],
) -> Items:
    """The rows of pairs as items, whose labels are their right contents.

    Args:
        left: `(L, d)` the vectors of the left contents.
        show: what a page shows of a left content.
    """
    lefts = [table.left.contents[i] for i in rows.pairs[:, 0].tolist()]
    return Items(
        name=name,
        split=None,
        level=f"{table.left.name} and {table.right.name}",
        ids=rows.ids,
        labels=np.array([table.right.contents[j] for j in rows.pairs[:, 1].tolist()], object),
        embeddings=left[rows.pairs[:, 0]],
        fold=None,
        distance="cosine",
        show=lambda i: show(lefts[i]),
        texts=lefts,
        notes=notes,
    )


def _check_texts(table: PairTable, config: PairsConfig) -> None:
    """ValueError if a side holds images, which are no texts, unless vectors come by their paths."""
    of_images = sides_of_images(table)
    in_cells = any(of_images) and bool(named_images(table.path).names)
    if in_cells or (any(of_images) and config.left_vectors is None):
        side = (table.left, table.right)[of_images.index(True)]
        raise ValueError(
            f"an audit of pairs compares texts, or vectors made elsewhere: {side.name!r} of {table.path} holds images; "
            "give a table of their paths, and vectors of both sides by the same paths and texts as ids, with "
            "--left-vectors FILE --right-vectors FILE."
        )


def _preview(content: str, folder: Path) -> Preview:
    """The image that a left content is the path of, from the folder of the table; else the content itself."""
    if Path(content).suffix.lower() in SUFFIXES:
        with suppress(Exception):  # a file that is not there, or is no image
            return to_thumbnail(decode_image(folder / content, size=64, channels=3, overflow=True))
    return content


def _rows(request: AuditOptions, config: PairsConfig, table: PairTable, listed: Integers) -> PairRows:
    """The rows of the table whose pair belongs together; of BEIR the pairs themselves, with both ids."""
    if is_beir(config.path):
        ids = [f"{table.left.ids[i]} {table.right.ids[j]}" for i, j in listed.tolist()]
        return PairRows(ids, listed)
    vectors = read_texts(
        config.path,
        text=table.left.name,
        levels=[table.right.name],
        tags=TagCells(SINGLE),
        skip_empty=config.skip_empty,
    )
    lefts, rights = ({text: i for i, text in enumerate(side.contents)} for side in (table.left, table.right))
    belongs = {tuple(pair) for pair in listed.tolist()}
    texts = zip(vectors.texts or (), vectors.labels[table.right.name].tolist(), strict=True)
    of_rows = [(lefts.get(first.strip(), -1), rights.get(second.strip(), -1)) for first, second in texts]
    rows = [row for row, pair in enumerate(of_rows) if pair in belongs]
    names = vectors.names()
    return PairRows([names[row] for row in rows], np.array([of_rows[row] for row in rows], np.int64).reshape(-1, 2))


def _vectors(
    request: AuditOptions, config: PairsConfig, table: PairTable
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], bool, str]:
    """The vectors of both sides, whether they are of a space, and a note on what they are."""
    if config.left_vectors is not None and config.right_vectors is not None:
        if request.encoder is not None:
            raise ValueError("--encoder is for texts, and the vectors of both sides are there: leave it out.")
        left = vectors_by_id(table.left, config.left_vectors, config)
        right = vectors_by_id(table.right, config.right_vectors, config)
        shared = config.towers == "shared" or (config.towers == "auto" and left.shape[1] == right.shape[1])
        return left, right, shared, SHARED_SPACE if shared else SEPARATE_SPACES
    count = len(table.left.contents)
    vectors, note = encoded_texts([*table.left.contents, *table.right.contents], request.encoder, request.seed)
    return vectors[:count], vectors[count:], True, note


def _audited(items: Items, table: PairTable, listed: Integers, rows: PairRows, suspects: PairSuspects) -> Audited:
    judged = suspects.verdict == "judged"
    position = {tuple(pair): number for number, pair in enumerate(listed.tolist())}
    number = np.array([position[tuple(pair)] for pair in rows.pairs.tolist()], np.int64)
    wrong, above = suspects.probability_wrong[number], suspects.random_above[number]
    order = np.lexsort((np.arange(len(number)), -above, -wrong)) if judged else np.arange(0)
    called = int((suspects.probability_wrong > 0.5).sum())
    texts, contents = items.texts or (), table.right.contents
    judged_pairs = {tuple(pair) for pair in table.pairs.tolist()}  # those that do not belong together, too
    missing = {
        (i, j): probability
        for (i, j), probability in zip(suspects.missing.tolist(), suspects.probability_missing.tolist(), strict=True)
        if (i, j) not in judged_pairs and table.left.contents[i] != contents[j]
    }
    row_of = {i: row for row, i in reversed([*enumerate(rows.pairs[:, 0].tolist())])}  # the first one
    better = dict(reversed(missing))  # the likeliest one

    def evidence(row: int) -> str:
        return f"{100 * above[row]:.1f} % of pairs put together at random go together better"

    def listed_suspect(row: int) -> Suspect:
        i, j = rows.pairs[row].tolist()
        right = better.get(i, j) if wrong[row] > 0.5 else j
        return Suspect(
            id=rows.ids[row],
            label=contents[j],
            proposed_label=contents[right],
            probability_wrong=_short(wrong[row]),
            probability_not_separable=_short(wrong[row]),
            probability_proposed=_short(wrong[row] * missing.get((i, right), 0.0)),
            evidence=evidence(row),
            text=texts[row],
        )

    def missing_suspect(i: int, j: int) -> Suspect:
        row = row_of[i]
        return Suspect(
            id=rows.ids[row],
            label="(not listed)",
            missing=True,
            proposed_label=contents[j],
            probability_wrong=_short(missing[i, j]),
            probability_proposed=_short(missing[i, j]),
            evidence=f"{TOGETHER}; listed is {contents[rows.pairs[row, 1]]}",
            text=texts[row],
        )

    offered = {(i, better[i]) for i in rows.pairs[wrong > 0.5, 0].tolist() if i in better}  # in place of a wrong one
    added = [pair for pair in missing if pair not in offered and pair[0] in row_of]
    ranked = [(listed_suspect(row), row) for row in order.tolist()]
    ranked += [(missing_suspect(*pair), row_of[pair[0]]) for pair in added]
    ranked.sort(key=lambda each: -(each[0].probability_wrong or 0.0))
    pair_suspects = [
        PairSuspect(
            id=rows.ids[row],
            left=texts[row],
            right=str(items.labels[row]),
            kind=LISTED,
            probability_wrong=_short(wrong[row]),
            evidence=evidence(row),
        )
        for row in order.tolist()
    ] + [
        PairSuspect(
            id=rows.ids[row_of[i]] if i in row_of else "",
            left=table.left.contents[i],
            right=contents[j],
            kind=MISSING,
            probability_wrong=_short(probability),
            evidence=TOGETHER,
        )
        for (i, j), probability in missing.items()
    ]
    least, most = suspects.wrong
    details = [f"{items.name}: {counted(len(listed), 'pair')} of {items.level}, in {counted(len(rows.ids), 'row')}"]
    if judged:
        details.insert(0, f"{percents(least, most)} of the pairs do not belong together")
        details.append(f"{counted(len(missing), 'pair')} that are not listed go together as those do")
    record = AuditRecord(
        headline=f"Called wrong: {called} of {counted(len(listed), 'pair')}" if judged else suspects.reason,
        details=details,
        name=items.name,
        level=items.level,
        items=len(rows.ids),
        distance=items.distance,
        pairs=len(listed),
        ranges=[KindRange(kind=LISTED, least=round(least, 6), most=round(most, 6), called=called)] if judged else [],
        pair_suspects=pair_suspects,
        notes=list(items.notes),
    )
    return Audited(
        items=items,
        record=record,
        suspects=[suspect for suspect, _ in ranked],
        positions=np.array([row for _, row in ranked[:MOST]], np.int64),
        reasons=lambda number: [str(ranked[number][0].evidence)],
        near=nearest_items(items, NEIGHBOURS),
        columns=[*PAIR_SUSPECTS, "decision"],
        rows=([*(getattr(row, name) for name in PAIR_SUSPECTS), ""] for row in pair_suspects),
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")
