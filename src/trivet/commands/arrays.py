"""Commands as functions of arrays, for a notebook: the same numbers and words, without files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from trivet.runtime.extras import missing

if TYPE_CHECKING:
    from trivet.collapse import SamplingStrategy
    from trivet.commands.audit.result import AuditResult
    from trivet.commands.diagnose.result import DiagnosisResult
    from trivet.commands.evaluate.options import EvaluateOptions
    from trivet.commands.evaluate.result import EvaluationResult
    from trivet.commands.search.result import SearchResult
    from trivet.commands.train.result import TrainingResult
    from trivet.io.embedding_table import Vectors
    from trivet.io.tag_cells import TagMatch
    from trivet.knn.kinds import IndexKind
    from trivet.metrics.points import Metric

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def of_arrays(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Make errors of a function name its parameters in place of options, and the extra that it needs."""
    parameters = signature(function).parameters.values()
    first = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    others = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]

    @wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
        if len(arguments) > len(first):
            raise TypeError(
                f"{function.__name__} must be given all but {' and '.join(first)} by name: got {len(arguments)} values "
                f"without one; put a name before each of the others, of {', '.join(others)}."
            )
        try:
            return function(*arguments, **options)
        except ValueError as error:
            raise ValueError(re.sub("--([a-z][a-z-]*)", lambda m: m[1].replace("-", "_"), str(error))) from None
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(missing(error.name or ""), name=error.name) from None

    return call


@of_arrays
def evaluate(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    measures: str | Sequence[str] | None = None,
    distance: Metric = "cosine",
    separator: str | None = None,
    match: TagMatch = "any",
    without_positive: Literal["miss", "drop"] = "miss",
    folds: int = 0,
    sample: int = 0,
    seed: int = 0,
) -> EvaluationResult:
    """Measure retrieval, clustering and verification of embeddings in memory, as `trivet evaluate` does of a file.

    Args:
        embeddings: `(N, d)` floating point: an array, a tensor, a list of rows, a series of lists, or a data frame of
            numbers.
        labels: N integers or texts in any form, or lists of tags; several levels as a dict or a data frame of columns.
        gallery: `(M, d)` what is retrieved from; None for all other rows.
        gallery_labels: M labels, as `labels`.
        measures: names as of the option `--measures`; None for all.
        distance: "cosine" or "euclidean".
        separator: the mark between the tags of a text; "none" where each text is one class, whatever it holds.
        match: which tags belong together, see `trivet.Tags`.
        without_positive: whether a query without a positive counts as a miss, or is dropped.
        folds: class-disjoint folds within which retrieval is measured as well.
        sample: random queries; 0 for all.
        seed: of k-means, pairs, folds and the sample.

    Raises:
        ValueError: if shapes or label levels disagree, embeddings are not finite floating point, a row has no label, or
            options do not go together.
        ModuleNotFoundError: without the extra `train`.

    Example:
        >>> import numpy as np
        >>> rows = np.eye(4)[np.arange(40) % 4] + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
        >>> result = evaluate(rows, ["red", "blue", "green", "grey"] * 10, measures=["recall@1"])
        >>> result.record.evaluation["label"]["recall@1"]
        1.0
    """
    from trivet.commands.evaluate.options import EvaluateOptions

    request = EvaluateOptions(
        measures=_names(measures), distance=distance, without_positive=without_positive, folds=folds, sample=sample,
        seed=seed,
    )  # fmt: skip
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels go together: got one of them; give both.")
    retrieved = None if gallery is None else (gallery, gallery_labels)
    named = {"embeddings": embeddings}
    return _evaluated(named, list(named), labels, request, retrieved, separator=separator, match=match)


@of_arrays
def compare(
    embeddings: Mapping[str, Any] | Sequence[Any],
    labels: Any,
    *,
    measures: str | Sequence[str] | None = None,
    distance: Metric = "cosine",
    separator: str | None = None,
    match: TagMatch = "any",
    folds: int = 0,
    sample: int = 0,
    seed: int = 0,
) -> EvaluationResult:
    """Evaluate embeddings of the same items side by side, as `trivet evaluate` does of several files.

    Args:
        embeddings: name -> `(N, d)` as in `evaluate`; or two of them, which are called before and after. Each is
            compared with the first.
        labels, measures, distance, separator, match, folds, sample, seed: as in `evaluate`.

    Raises:
        ValueError: as `evaluate`, or if there are fewer than two.

    Example:
        >>> import numpy as np
        >>> noise, names = np.random.default_rng(0).normal(size=(2, 40, 4)), ["red", "blue", "green", "grey"] * 10
        >>> means = np.eye(4)[np.arange(40) % 4]
        >>> result = compare((means + noise[0], means + 0.1 * noise[1]), names, measures=["recall@1"])
        >>> result.record.differences["label"]["recall@1"][0].difference > 0.2
        True
    """
    from trivet.commands.evaluate.options import EvaluateOptions

    request = EvaluateOptions(measures=_names(measures), distance=distance, folds=folds, sample=sample, seed=seed)
    pair = ("before", "after")
    named = embeddings if isinstance(embeddings, Mapping) else dict(zip(pair, embeddings, strict=False))
    if len(named) < 2 or len(named) != len(embeddings):
        raise ValueError(
            f"compared embeddings must be two, or more by name: got {len(embeddings)}; pass a dict of them, such as "
            "{'before': ..., 'after': ...}."
        )
    codes = [f"embeddings[{key!r}]" for key in (named if isinstance(embeddings, Mapping) else range(len(named)))]
    return _evaluated(named, codes, labels, request, separator=separator, match=match)


@of_arrays
def diagnose(
    embeddings: Any,
    labels: Any,
    reference: Any = None,
    strategy: SamplingStrategy | None = None,
    *,
    fine: Any = None,
    level: str | None = None,
    distance: Metric | None = None,
    trained_levels: Collection[str] = (),
    trained_items: bool = False,
    ids: Any = None,
    texts: Any = None,
    separator: str | None = None,
    match: TagMatch = "any",
    seed: int = 0,
) -> DiagnosisResult:
    """Say whether an embedding is any good, and whether and how it collapsed, as `trivet diagnose` does of a file.

    The rules are those of `trivet.collapse.diagnose`, which also takes pairs and grades.

    Args:
        embeddings, labels, separator, match: as in `trivet.evaluate`.
        reference: `(N, d')` the same items in another embedding, such as that before training; several by name.
        strategy: how training chooses, to find a dead sampler and to name what to change.
        fine: classes inside the classes, as `labels`; without a name their level is "fine". Default: all levels of
            the labels that are finer.
        level: the level of the labels that is diagnosed. Default: the first.
        distance: "cosine" or "euclidean". Default: cosine, of one dimension euclidean.
        trained_levels: the levels whose classes the embedding was trained on: it is judged over other items of these
            classes, not over other classes.
        trained_items: whether it was trained on these very items: single ones may then lie elsewhere.
        ids: N different names of the items, for the page.
        texts: N texts that the page shows of them.
        seed: of the samples.

    Raises:
        ValueError: as `trivet.evaluate`, or if a reference is not of the same items.
        ModuleNotFoundError: without the extra `train`.

    Example:
        >>> import numpy as np
        >>> points = np.random.default_rng(0).normal(size=(200, 8))
        >>> [verdict.kind for verdict in diagnose(0 * points, ["a", "b"] * 100, distance="euclidean").verdicts]
        ['no-better-than-chance', 'network-collapse']
    """
    from trivet.commands.diagnose.inputs import input_of_vectors, matched_reference
    from trivet.commands.diagnose.result import DiagnosisResult
    from trivet.commands.diagnose.run import diagnose_input
    from trivet.datasets.arrays import read_arrays
    from trivet.datasets.frames import check_order

    cells: dict[str, Any] = {"separator": separator, "match": match}
    vectors = read_arrays(embeddings, labels, ids=ids, texts=texts, name="embeddings", **cells)
    level = _level(level, vectors)
    classes = {} if fine is None else fine
    finer = read_arrays(embeddings, classes, name="embeddings", unnamed="fine", variables=("embeddings", "fine")).labels
    vectors = replace(vectors, labels={**vectors.labels, **finer})
    subject = replace(
        input_of_vectors(vectors, level),
        strategy=strategy,
        fine=list(finer) or None,
        trained_levels=trained_levels,
        trained_items=trained_items,
    )
    subject = replace(subject, distance=distance or subject.distance)
    references = (
        {} if reference is None else reference if isinstance(reference, Mapping) else {"the reference": reference}
    )
    known, notes = {}, subject.notes
    for name, rows in references.items():
        code = f"reference[{name!r}]" if references is reference else "reference"
        check_order({"embeddings": embeddings, code: rows})
        read = read_arrays(rows, {}, name=name, variables=(code, "labels"))
        known[name], how = matched_reference(read, subject, vectors)
        notes += how
    return DiagnosisResult([diagnose_input(replace(subject, references=known, notes=notes), seed=seed)])


@of_arrays
def audit(
    embeddings: Any,
    labels: Any,
    *,
    level: str | None = None,
    neighbours: int | None = None,
    distance: Metric | None = None,
    ids: Any = None,
    texts: Any = None,
    separator: str | None = None,
    match: TagMatch = "any",
    seed: int = 0,
) -> AuditResult:
    """Estimate how many labels are wrong, and rank which probably are, as `trivet audit` does of a file.

    Args:
        embeddings, labels, separator, match: as in `trivet.evaluate`. A network that was trained on these labels may
            hide wrong ones.
        level: the level of the labels that is audited. Default: the first.
        neighbours: nearest items that judge an item. Default: by the number of items.
        distance: "cosine" or "euclidean". Default: cosine, of one dimension euclidean.
        ids: N different names of the items. Default: the numbers of their rows.
        texts: N texts that are shown of them.
        seed: of the estimate.

    Raises:
        ValueError: as `trivet.evaluate`, or if there is too little to judge labels by.
        ModuleNotFoundError: without the extra `train`.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(80) % 4
        >>> rows = np.eye(4)[labels] + 0.05 * np.random.default_rng(0).normal(size=(80, 4))
        >>> labels[5] = 3
        >>> audit(rows, labels).record.suspects[0].id
        '5'
    """
    from trivet.commands.audit.items import items_of_vectors
    from trivet.commands.audit.options import AuditOptions
    from trivet.commands.audit.result import AuditResult
    from trivet.commands.audit.run import audit_items
    from trivet.datasets.arrays import read_arrays

    vectors = read_arrays(embeddings, labels, ids=ids, texts=texts, separator=separator, match=match, name="embeddings")
    items = items_of_vectors(vectors, _level(level, vectors), distance=distance)
    request = AuditOptions(Path(vectors.name), neighbours=neighbours, seed=seed)
    return AuditResult(audit_items(request, items))


@of_arrays
def train(
    items: Any,
    labels: Any,
    *,
    out: Path | str | None = None,
    ids: Any = None,
    split: Any = None,
    match: TagMatch = "any",
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Train an embedding of items in memory, evaluate it and compare it with encoders as they are.

    This is `trivet train`, of items that lie in no file: the same candidates, settings and verdict.

    Args:
        items: vectors `(N, d)` as an array, a tensor, a list of rows or a data frame; or a list of N texts, of N paths
            of image files, or of N images of Pillow.
        labels: N integers or texts in any form, or lists of tags; several levels, coarse first, as a dict or a data
            frame of columns.
        out: the run folder, which must be new. Without one it is a temporary folder, removed with the result.
        ids: N different names of the items; by default their numbers, or the paths of images.
        split: the part that each item belongs to: "train", or another one that is evaluated, such as "test". By default
            classes are held out, as `trivet init` proposes.
        match: which tags belong together, see `trivet.Tags`.
        settings: "section.key" -> value of settings in place of those that are proposed, such as
            {"ladder.minutes": 2}.
        force: replace the run in the folder.
        progress: show progress on standard error.

    Raises:
        ValueError: if items and labels do not fit, the settings cannot be, there are too few classes, or the folder
            holds something.
        ModuleNotFoundError: without the extra `train`.
        KeyboardInterrupt: if Ctrl-C came; `trivet train --resume` goes on with a run folder that has a name.

    Example:
        >>> result = train(["where is my card", "I lost my card"], ["arrival", "lost"])  # doctest: +SKIP
        >>> result.embed(["my card is gone"]).shape  # doctest: +SKIP
        (1, 256)
    """
    from trivet.commands.train.items import train_items
    from trivet.datasets.item_table import item_table

    table = item_table(items, labels, ids=ids, split=split, match=match)
    return train_items(table, out, settings or {}, force=force, progress=progress)


@of_arrays
def search(
    index: Any,
    queries: Any,
    *,
    k: int = 10,
    labels: Any = None,
    ids: Any = None,
    distance: Metric | None = None,
    kind: IndexKind | None = None,
    recall: float | None = None,
) -> SearchResult:
    """Find the items nearest to each query, in an index folder or among vectors.

    Args:
        index: a folder of `trivet index`; or vectors `(N, d)` as an array, a tensor, a list of rows or a data frame.
        queries: vectors `(Q, d)` in any such form, or one `(d,)`; of an index also a text or several, paths of image
            files, or images of Pillow, if it knows the encoder or the run that embeds them.
        k: how many to find.
        labels: N labels of the vectors, or several levels of them as a dict or a data frame, which the result shows.
        ids: N different names of the vectors; by default their numbers.
        distance: "cosine", which is the default, or "euclidean"; that of an index is its own.
        kind: of the index that is made of the vectors; "auto" is exact up to 100,000 of them.
        recall: share of the nearest 10 to find, where the index is approximate.

    Raises:
        ValueError: if queries and index do not fit, or an option is for vectors and there is an index.
        ModuleNotFoundError: without the extra `train`.

    Example:
        >>> import numpy as np
        >>> result = search(np.eye(3), np.array([[1.0, 0.2, 0.0]]), k=2, labels=["red", "green", "blue"])
        >>> result.ids
        [['0', '1']]
        >>> result.distances.round(3).tolist()
        [[0.019, 0.804]]
    """
    from trivet.commands.search.items import search_items

    return search_items(index, queries, k, labels=labels, ids=ids, distance=distance, kind=kind, recall=recall)


def _level(level: str | None, vectors: Vectors) -> str:
    """The level of that name, or the first."""
    from trivet.config.base import nearest

    if not vectors.labels:
        raise ValueError("labels must have a level: got none; pass one label for each row.")
    if level is not None and level not in vectors.labels:
        raise ValueError(f"level must be one of the labels: there is no {level!r}; {nearest(level, vectors.labels)}")
    return level or next(iter(vectors.labels))


def _evaluated(
    embeddings: Mapping[str, Any],
    codes: Sequence[str],
    labels: Any,
    request: EvaluateOptions,
    gallery: tuple[Any, Any] | None = None,
    *,
    separator: str | None,
    match: TagMatch,
) -> EvaluationResult:
    """Evaluate embeddings of the same items, by name.

    Args:
        codes: how the caller writes each of them.
        gallery: what is retrieved from, and its labels.
    """
    from trivet.commands.evaluate.result import EvaluationResult
    from trivet.commands.evaluate.run import evaluate_sets
    from trivet.commands.evaluate.sets import QueriesAndGallery, two_sets
    from trivet.datasets.arrays import read_arrays
    from trivet.datasets.frames import check_order

    assert request.distance is not None
    all_sets, cells = [], dict[str, Any](separator=separator, match=match)
    check_order(dict(zip(codes, embeddings.values(), strict=True)))
    for code, (name, rows) in zip(codes, embeddings.items(), strict=True):
        queries = read_arrays(rows, labels, name=name, variables=(code, "labels"), **cells)
        if gallery is None:
            all_sets.append(QueriesAndGallery(name, queries, None, request.distance))
        else:
            others = read_arrays(*gallery, name="gallery", variables=("gallery", "gallery_labels"), **cells)
            all_sets.append(two_sets(name, queries, others, request.distance, request))
    return EvaluationResult(evaluate_sets(all_sets, request))


def _names(names: str | Sequence[str] | None) -> list[str] | None:
    return None if names is None else [names] if isinstance(names, str) else list(names)
