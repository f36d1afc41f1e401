"""Queries and gallery of `trivet evaluate`: read from files, cut to prefixes, numbered by class, matched by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.inputs import run_distance
from trivet.datasets.dataset import Dataset
from trivet.datasets.equal_items import copies
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.leaks import NamedItems, leak_warning
from trivet.datasets.splitting import TRAIN
from trivet.datasets.vectors import VectorInputs
from trivet.distances import unit_rows
from trivet.io.embedding_table import Vectors, class_labels, class_numbers, counted_names
from trivet.io.label_columns import alike_labels, like_names
from trivet.io.read_embeddings import read_vectors
from trivet.io.table import listed
from trivet.knn.codes import code_bytes, quantized
from trivet.knn.kinds import Approximate, Postprocessing, Reranking
from trivet.knn.whitening import whitening_map
from trivet.metrics.points import Metric
from trivet.mining import Relation
from trivet.runtime.progress import work
from trivet.runtime.text import counted

ROUNDING = 1e-3  # of its length, by which the vector of an item differs from the same in other numbers or batches
BLOCK = 2**13  # vectors that are compared at once
FIRST = "Copies are found first: leave out those that are the same item."
POSTPROCESSED: Mapping[Postprocessing, str] = {
    "whitening": "whitened",
    "expansion": "queries expanded",
    "reciprocal": "re-ranked",
}


@dataclass(frozen=True, eq=False)
class QueriesAndGallery:
    """Queries and gallery of one embedding.

    Attributes:
        gallery: None if each query retrieves from all others.
        distance: how they are compared.
        cameras: leave out gallery items of the query's class and camera.
        junk: number of gallery items that the file marks as junk, and that are left out.
        rejected: queries out of scope.
        by_id: whether an id names one item in queries and gallery, as in one file and with --same-items; of two sets
            that may number their rows alike, the vector must agree as well.
        approximate: the kind of index that ranks the gallery; None for comparison with every row.
        prefix: how many numbers of each embedding are left; None for all.
        form: in which the embeddings are stored, and the bytes of each, where forms or prefixes are compared.
        postprocessing: what is done to the embeddings, or to what they find, where that is compared, or "none".
        rerank: how what they find is looked at again.
    """

    name: str
    queries: Vectors
    gallery: Vectors | None
    distance: Metric
    cameras: bool = False
    junk: int | None = None
    rejected: Vectors | None = None
    by_id: bool = False
    approximate: Approximate | None = None
    prefix: int | None = None
    form: str = ""
    bytes: int | None = None
    postprocessing: Literal["", "none", Postprocessing] = ""
    rerank: Reranking | None = None


def variants(sets: QueriesAndGallery, request: EvaluateOptions, path: Path | None = None) -> list[QueriesAndGallery]:
    """Embeddings in all the forms that are asked for: complete and cut to prefixes, post-processed, in fewer bits;
    without what is out of scope.

    Args:
        path: the run or file that they are of; None for arrays.
    """
    return [
        separate_scope(form, request.out_of_scope)
        for cut in cut_prefixes(sets, request.lengths)
        for variant in postprocessed(cut, path, request)
        for form in stored_forms(variant, path, request)
    ]


def cut_prefixes(sets: QueriesAndGallery, prefixes: Sequence[int]) -> Iterator[QueriesAndGallery]:
    """Complete embeddings, then each prefix of them."""
    yield sets
    length = sets.queries.embeddings.shape[1]
    for prefix in prefixes:
        if not 1 <= prefix <= length:
            raise ValueError(
                f"--prefixes must lie between 1 and {length}, the length of an embedding of {sets.name}: got {prefix}."
            )
        if prefix < length:
            queries, gallery = (
                None if vectors is None else replace(vectors, embeddings=vectors.embeddings[:, :prefix])
                for vectors in (sets.queries, sets.gallery)
            )
            assert queries is not None
            yield replace(sets, name=f"{sets.name}, first {prefix}", queries=queries, gallery=gallery, prefix=prefix)


def stored_forms(sets: QueriesAndGallery, path: Path | None, request: EvaluateOptions) -> Iterator[QueriesAndGallery]:
    """The embeddings as they are, and in each of the forms that they are to be stored in, then with rescoring.

    Ranges, means and groups are learned from the training embeddings of a run, else from what is retrieved from.

    Raises:
        ValueError: if a form is not known, or there are too few embeddings to learn it from.
    """
    if not request.forms and not request.lengths:
        yield sets
        return
    width = sets.queries.embeddings.shape[1]
    yield replace(sets, form="float32", bytes=code_bytes("float32", width))
    if not request.forms:
        return
    *sides, learned = _compared_rows(sets, path)
    for form in request.forms:
        each = code_bytes(form, width)
        queries, *gallery = (quantized(rows, learned, form) for rows in sides)
        yield replace(
            sets,
            name=f"{sets.name}, {form} ({counted(each, 'byte')} an item)",
            queries=replace(sets.queries, embeddings=queries),
            gallery=sets.gallery and replace(sets.gallery, embeddings=gallery[0]),
            form=form,
            bytes=each,
        )
        if request.rescore and form != "float16":
            named = f"rescored {form}"
            kind: Approximate = "ivf-pq" if form == "pq" else form
            yield replace(sets, name=f"{sets.name}, {named}", approximate=kind, form=named, bytes=each)


def postprocessed(sets: QueriesAndGallery, path: Path | None, request: EvaluateOptions) -> Iterator[QueriesAndGallery]:
    """The embeddings as they are, then whitened, and ranked in each other way that is asked for.

    A whitening is learned from the training embeddings of a run, else from what is retrieved from.
    """
    if not request.postprocessings:
        yield sets
        return
    yield replace(sets, postprocessing="none")
    for name in request.postprocessings:
        changed = replace(sets, name=f"{sets.name}, {POSTPROCESSED[name]}", postprocessing=name)
        if name == "whitening":
            *sides, learned = map(torch.from_numpy, _compared_rows(sets, path))
            whitening = whitening_map(learned)
            queries, *gallery = (whitening(rows).float().numpy() for rows in sides)
            yield replace(
                changed,
                queries=replace(sets.queries, embeddings=queries),
                gallery=sets.gallery and replace(sets.gallery, embeddings=gallery[0]),
            )
        else:
            yield replace(changed, rerank=name)


def _compared_rows(sets: QueriesAndGallery, path: Path | None) -> list[np.ndarray]:
    """Queries, gallery if there is one, and the rows to learn from, as an index holds them."""
    sides = [side.embeddings for side in (sets.queries, sets.gallery) if side is not None]
    learned = sides[-1]
    if path is not None and (path / "embeddings" / f"{TRAIN}.parquet").is_file():
        learned = read_vectors(path, split=TRAIN).embeddings[:, : learned.shape[1]]
    return [_as_compared(rows, sets.distance) for rows in (*sides, learned)]


def _as_compared(rows: np.ndarray, distance: Metric) -> np.ndarray:
    """Rows in float32, for cosine of length 1, as an index holds them."""
    rows = np.asarray(rows, np.float32)
    return unit_rows(torch.from_numpy(rows)).numpy() if distance == "cosine" else rows


def read_sets(path: Path, request: EvaluateOptions, read: EmbeddingReader) -> QueriesAndGallery:
    """The sets of a path; those that the file marks, if it does, without junk and with cameras if it has any."""
    levels, split, cameras = request.labels, request.split, request.cameras
    # A prefix has no unit length.
    distance = request.distance or ("cosine" if request.lengths else run_distance(path))
    if request.query is not None:
        if split is not None:
            raise ValueError("--split uses the rows of one split: leave it out with --query and --gallery.")
        queries, retrieved = (read(path, levels=levels, split=name) for name in (request.query, request.gallery))
        return two_sets(read.name(path), queries, retrieved, distance, request)
    vectors = read(path, levels=levels, split=split)
    protocol = vectors.protocol
    if protocol is None:
        return QueriesAndGallery(vectors.name, vectors, None, distance, cameras)
    queries, retrieved = vectors.select(protocol.query), vectors.select(protocol.retrieved)
    if vectors.ids is None:  # then the row identifies a query that is in the gallery itself
        queries, retrieved = (
            replace(vectors_of, ids=vectors_of.rows.astype(np.str_)) for vectors_of in (queries, retrieved)
        )
    junk = protocol.counts()["junk"] or None
    return QueriesAndGallery(vectors.name, queries, retrieved, distance, protocol.cameras is not None, junk, by_id=True)


def read_pair(request: EvaluateOptions) -> QueriesAndGallery:
    """The queries of one file and the gallery of another."""
    query, gallery = Path(request.query or ""), Path(request.gallery or "")
    levels, tags, choice, split, skip = request.labels, request.tags, request.choice, request.split, request.skip_empty
    its = replace(choice, table=None)
    queries = read_vectors(query, levels=levels, tags=tags, choice=choice, split=split, skip_empty=skip)
    others = read_vectors(gallery, levels=levels, tags=tags, choice=its, skip_empty=skip)
    if levels is None:
        # With one item for each class of a gallery, its labels look like ids; those of the queries tell.
        levels = [*queries.labels, *(level for level in others.labels if level in queries.passed_over)]
        if lacking := [level for level in levels if level in queries.passed_over]:
            queries = read_vectors(query, levels=levels, tags=tags, choice=choice, split=split, skip_empty=skip)
        if lacking or any(level in others.passed_over for level in levels):
            others = read_vectors(gallery, levels=levels, tags=tags, choice=its, skip_empty=skip)
    name, distance = f"{query.name} in {gallery.name}", request.distance or run_distance(query)
    return two_sets(name, queries, others, distance, request)


def two_sets(
    name: str, queries: Vectors, gallery: Vectors, distance: Metric, request: EvaluateOptions
) -> QueriesAndGallery:
    """Queries and gallery that are two splits or files; ValueError if they are to be matched by ids that they lack."""
    if request.same_items:
        lacking = [vectors.name for vectors in (queries, gallery) if vectors.ids is None]
        rows = self_rows(queries, gallery, by_id=True)
        if rows is None or not (rows >= 0).any():
            what = f"{lacking[0]} has no column id" if lacking else f"no query of {queries.name} has one of its ids"
            raise ValueError(
                f"--same-items matches queries with the gallery by id: {what}; correct the ids, or leave out "
                "--same-items."
            )
    return QueriesAndGallery(
        name, _labelled_like(queries, gallery), gallery, distance, request.cameras, by_id=request.same_items
    )


def _labelled_like(queries: Vectors, gallery: Vectors) -> Vectors:
    """Queries with the class names of the gallery where these write the same numbers or truths in another form."""
    labels, notes = dict(queries.labels), list(queries.notes)
    for level in queries.labels.keys() & gallery.labels.keys():
        (numbers,), names = class_numbers(labels[level])
        called = like_names(names, class_numbers(gallery.labels[level])[1])
        if called:
            labels[level] = np.array([called.get(name, name) for name in names])[numbers]
            first, other = next(iter(called.items()))
            notes.append(f"Labels of queries and gallery at {level!r} are matched by value: {first!r} is {other!r}.")
    return replace(queries, labels=labels, notes=tuple(notes))


def unlike_forms(sets: QueriesAndGallery, level: str) -> str:
    """Remedy for classes that the gallery lacks, which may differ only in form from some of it."""
    if sets.gallery is not None:
        queries, gallery = (counted_names(side.labels[level]) for side in (sets.queries, sets.gallery))
        both = queries | gallery
        differing = {name: count for name, count in both.items() if (name in queries) != (name in gallery)}
        if alike := alike_labels(differing):
            return f"write alike in both what differs only in form: {listed(alike)}"
    return "add items of them"


def number_classes(
    sets: QueriesAndGallery,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Level -> the class numbers of the queries, those of the gallery (nothing without one), and the class names."""
    queries, gallery = sets.queries, sets.gallery
    if not queries.labels:
        raise ValueError(
            f"evaluation needs a label for each row: {sets.name} has no label column{queries.why_none()}; name one "
            "with --labels."
        )
    if gallery is not None and list(gallery.labels) != list(queries.labels):
        raise ValueError(
            f"queries and gallery must have the same label levels: got {list(queries.labels)} and "
            f"{list(gallery.labels)}; name them with --labels."
        )
    labels, gallery_labels, names = {}, {}, {}
    if gallery is not None and queries.tags != gallery.tags:
        raise ValueError(
            f"queries and gallery must have tags at the same levels: {queries.name} has {listed([*queries.tags])}, "
            f"{gallery.name} {listed([*gallery.tags])}; name one level with --labels."
        )
    for level, column in queries.labels.items():
        columns = [column] if gallery is None else [column, gallery.labels[level]]
        numbers, names[level] = class_numbers(*columns)
        labels[level] = numbers[0]
        if gallery is not None:
            gallery_labels[level] = numbers[1]
    return labels, gallery_labels, names


def related(labels: Mapping[str, np.ndarray], rules: Mapping[str, Relation]) -> dict[str, np.ndarray | Relation]:
    """Level -> who belongs together: class numbers `(N,)`, or a relation by the rule of the level."""
    return {
        level: rules[level].with_items(torch.from_numpy(numbers)) if level in rules else numbers
        for level, numbers in labels.items()
    }


def num_classes(labels: np.ndarray | Relation) -> int:
    """The number of classes or tags that some items have, or of the groups that pairs connect."""
    if isinstance(labels, JudgedPairs):
        return len(np.unique(labels.groups[labels.items.numpy()]))
    return len(np.unique(labels if isinstance(labels, np.ndarray) else labels.numbers(labels.items)))


def separate_scope(sets: QueriesAndGallery, out_of_scope: str | None) -> QueriesAndGallery:
    """Separate the queries that are out of scope, and remove such items from the gallery."""
    if out_of_scope is None:
        return sets
    if sets.gallery is None:
        raise ValueError("--out-of-scope needs a gallery of the known classes: give --query and --gallery.")
    level = next(iter(sets.queries.labels))
    outside = sets.queries.labels[level] == out_of_scope
    if outside.all() or not outside.any():
        raise ValueError(
            f"--out-of-scope must be the {level} of some queries, but not of all: {int(outside.sum())} of "
            f"{len(outside)} have {out_of_scope!r}."
        )
    known = sets.gallery.labels[level] != out_of_scope
    queries, rejected = sets.queries.select(~outside), sets.queries.select(outside)
    return replace(sets, queries=queries, gallery=sets.gallery.select(known), rejected=rejected)


def camera_options(sets: QueriesAndGallery) -> dict[str, np.ndarray]:
    columns = [vectors.cameras for vectors in (sets.queries, sets.gallery) if vectors is not None]
    if any(column is None for column in columns):
        raise ValueError(
            f"--cameras needs a column camera in each file: {sets.name} has none; add it, or leave out --cameras."
        )
    numbers, _ = class_numbers(*[column for column in columns if column is not None])
    return dict(zip(("cameras", "gallery_cameras"), numbers, strict=False))


def junk_items(sets: QueriesAndGallery, name: str) -> np.ndarray:
    if sets.gallery is None:
        raise ValueError("--junk excludes gallery items: give --query and --gallery.")
    level = next(iter(sets.gallery.labels))
    junk: np.ndarray = sets.gallery.labels[level] == name
    if not junk.any():
        raise ValueError(f"--junk must be the {level} of some gallery items: no item has {name!r}.")
    return junk


def sample_queries(sets: QueriesAndGallery, sample: int, seed: int) -> np.ndarray:
    if sets.gallery is not None:
        raise ValueError("--sample draws queries from one set: leave it out with --query and --gallery.")
    if sample > len(sets.queries):
        raise ValueError(f"--sample must be at most the {len(sets.queries)} items: got {sample}.")
    return np.sort(np.random.default_rng(seed).permutation(len(sets.queries))[:sample])


def check_same_items(first: tuple[str, Vectors], other: tuple[str, Vectors]) -> None:
    """The items of two files, given with their names, must be the same, with the same labels."""
    (name, vectors), (its_name, others) = first, other
    if not vectors.labels.keys() & others.labels.keys():
        raise ValueError(
            f"compared embeddings must share a label level: {name} has {list(vectors.labels)}, {its_name} "
            f"{list(others.labels)}; name the column alike in both."
        )
    rows = same_queries((name, its_name), vectors.ids, others.ids, (len(vectors), len(others)))
    check_same_texts((name, vectors), (its_name, others), rows)
    for level in vectors.labels.keys() & others.labels.keys():
        pairs = zip(vectors.labels[level].tolist(), others.labels[level][rows].tolist(), strict=True)
        if unlike := next((pair for pair in pairs if pair[0] != pair[1]), None):
            raise ValueError(
                f"compared embeddings must have the same labels: {level} differs between {name} and {its_name}, first "
                f"{unlike[0]!r} and {unlike[1]!r}; give files made from one data set, with labels written alike."
            )


def check_same_texts(first: tuple[str, Vectors], other: tuple[str, Vectors], rows: np.ndarray) -> None:
    """ValueError if most rows of the first have another text than those at the positions `rows` of the other.

    Files of other items may number their rows alike, and have as many of each class.
    """
    (name, vectors), (its_name, others) = first, other
    if vectors.texts is None or others.texts is None:
        return
    unlike = [i for i, row in enumerate(rows.tolist()) if vectors.texts[i] != others.texts[row]]
    if 2 * len(unlike) > len(rows):
        i = unlike[0]
        raise ValueError(
            f"compared embeddings must be of the same items: {len(unlike)} of {len(rows)} have another text in "
            f"{its_name}, first {vectors.names()[i]!r} ({vectors.texts[i][:40]!r} in {name}, "
            f"{others.texts[int(rows[i])][:40]!r} there); give files made from one data set."
        )


def same_queries(
    names: tuple[str, str], ids: np.ndarray | None, others: np.ndarray | None, counts: tuple[int, int]
) -> np.ndarray:
    """Positions of the queries of the first, with these ids, among those of the other."""
    if counts[0] != counts[1]:
        raise ValueError(
            f"compared embeddings must be of the same items: {names[0]} has {counted(counts[0], 'query')} and "
            f"{names[1]} {counts[1]}; give files made from one data set."
        )
    if ids is None or others is None:
        return np.arange(counts[0])
    rows = positions_of(ids, others)
    if (rows < 0).any():
        raise ValueError(
            f"compared embeddings must be of the same items: {names[1]} has no {str(ids[rows < 0][0])!r}, which "
            f"{names[0]} has; give files made from one data set."
        )
    return rows


def in_order(first: QueriesAndGallery, other: QueriesAndGallery) -> QueriesAndGallery:
    """The other, its queries, and its gallery where that is of the same items, in the order of the first."""
    rows = same_queries(
        (first.name, other.name), first.queries.ids, other.queries.ids, (len(first.queries), len(other.queries))
    )
    queries, gallery = other.queries, other.gallery
    if (rows != np.arange(len(rows))).any():
        queries = queries.select(rows)
    if first.gallery is not None and gallery is not None and len(gallery) == len(first.gallery):
        retrieved = self_rows(first.gallery, gallery, by_id=True)
        if retrieved is not None and (retrieved >= 0).all() and (retrieved != np.arange(len(retrieved))).any():
            gallery = gallery.select(retrieved)
    return replace(other, queries=queries, gallery=gallery)


def self_rows(queries: Vectors, gallery: Vectors, *, by_id: bool) -> np.ndarray | None:
    """Position of each query itself in the gallery, -1 if absent; None where not both have ids.

    Args:
        by_id: whether the id tells; else the vector must agree, too, to a thousandth of its length: that of an item
            which is embedded twice differs by rounding.
    """
    if queries.ids is None or gallery.ids is None:
        return None
    rows = positions_of(queries.ids, gallery.ids)
    if by_id:
        return rows
    there = np.flatnonzero(rows >= 0)
    if queries.embeddings.shape[1] != gallery.embeddings.shape[1]:
        there = there[:0]
    itself = np.full(len(rows), -1)
    for some in np.array_split(there, 1 + len(there) // BLOCK):
        first, second = (
            np.asarray(vectors[positions], np.float64)
            for vectors, positions in ((queries.embeddings, some), (gallery.embeddings, rows[some]))
        )
        agree = np.linalg.norm(first - second, axis=1) <= ROUNDING * np.linalg.norm(first, axis=1)
        itself[some[agree]] = rows[some[agree]]
    return itself


def copied_vectors(sets: QueriesAndGallery, self_rows: np.ndarray | None) -> list[str]:
    """Sentences on queries that are copies of gallery items, or rows of one set of each other or its split train.

    Args:
        self_rows: `(Q,)` the gallery item that each query is, -1 for none.
    """
    queries, gallery = sets.queries, sets.gallery
    if gallery is not None:
        others = np.arange(len(gallery))
        others = others if self_rows is None else np.setdiff1d(others, self_rows)
        pairs = [("queries", queries, "the gallery", gallery.select(others))]
    elif queries.splits is not None and (trained := queries.splits == TRAIN).any():
        names = np.unique(queries.splits[~trained]).tolist()
        pairs = [(name, queries.select(queries.splits == name), TRAIN, queries.select(trained)) for name in names]
    else:
        return copies(queries.embeddings)
    with work("looking for copies"):
        messages = [
            leak_warning(_named(name, items), _named(its_name, searched), "vectors", FIRST)
            for name, items, its_name, searched in pairs
            if len(searched) and items.embeddings.shape[1] == searched.embeddings.shape[1]
        ]
    return [message for message in messages if message]


def _named(name: str, vectors: Vectors) -> NamedItems:
    """Vectors as items of their last label level."""
    labels, names = class_labels(vectors)
    rows, ids = np.arange(len(vectors)), tuple(vectors.names())
    inputs = VectorInputs(vectors.embeddings, ids, rows, Path(vectors.name))
    return NamedItems(name, Dataset(name, inputs, labels, names, ids), list(labels)[-1])


def positions_of(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Position of each id among the others, -1 if absent."""
    if not len(others):
        return np.full(len(ids), -1)
    order = np.argsort(others)
    positions = order[np.searchsorted(others, ids, sorter=order).clip(max=len(order) - 1)]
    rows: np.ndarray = np.where(others[positions] == ids, positions, -1)
    return rows
