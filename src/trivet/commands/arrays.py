"""Commands as functions of arrays, for a notebook: the same numbers and words, without files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from trivet.commands.call_options import INSTEAD, parsed_options
from trivet.runtime.arguments import nearest
from trivet.runtime.caller import in_python
from trivet.runtime.extras import missing
from trivet.runtime.progress import is_watched, show_progress

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
    from trivet.knn.kinds import Approximate, IndexKind, Postprocessing, Reranking, Stored
    from trivet.metrics.points import Metric

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def of_arrays(
    title: str | None,
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Make errors of a function name its parameters in place of options, what to do instead, and the extra that it
    needs; and show its progress in a terminal or a notebook.

    Args:
        title: of the progress; None for a function that shows its own.
    """

    def made(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        parameters = signature(function).parameters.values()
        first = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        others = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]

        @wraps(function)
        def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
            if len(arguments) > len(first):
                paired = any(type(value).__name__ == "Pairs" for value in arguments)
                sides = f" Both sides of pairs go in one tuple: {function.__name__}((left, right), pairs)." * paired
                raise TypeError(
                    f"{function.__name__} must be given all but {' and '.join(first)} by name: got {len(arguments)} "
                    f"values without one; put a name before each of the others, of {', '.join(others)}.{sides}"
                )
            if unknown := options.keys() & INSTEAD.keys() - {*first, *others}:
                name = min(unknown)
                raise TypeError(f"{function.__name__} takes no {name}: {INSTEAD[name]}.")
            if unknown := options.keys() - {*first, *others}:
                name = min(unknown)
                raise TypeError(f"{function.__name__} takes no {name}: {nearest(name, [*first, *others])}")
            try:
                with nullcontext() if title is None else show_progress(title, show=is_watched()):
                    return function(*arguments, **options)
            except ValueError as error:
                raise ValueError(in_python(str(error))) from None
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(missing(error.name or ""), name=error.name) from None

        return call

    return made


@of_arrays("evaluation")
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
    junk: Any = None,
    out_of_scope: Any = None,
    without_positive: Literal["miss", "drop"] = "miss",
    nmi_plus: int | None = None,
    folds: int = 0,
    sample: int = 0,
    prefixes: int | Sequence[int] | None = None,
    approximate: Approximate | None = None,
    quantize: Stored | Sequence[Stored] | None = None,
    rescore: bool = False,
    postprocess: Postprocessing | Sequence[Postprocessing] | None = None,
    seed: int = 0,
) -> EvaluationResult:
    """Measure retrieval, clustering and verification of embeddings in memory, as `trivet evaluate` does of a file.

    Options have the names and meanings of those of the command.

    Args:
        embeddings: `(N, d)` floating point: an array, a tensor, a list of rows, a series of lists, or a data frame of
            numbers.
        labels: N integers or texts in any form, or lists of tags; several levels as a dict or a data frame of columns;
            or `trivet.Pairs` of two sides, whose embeddings are a tuple of both, or one above the other.
        gallery: `(M, d)` what is retrieved from; None for all other rows.
        gallery_labels: M labels, as `labels`.
        measures: names as of the option `--measures`; None for all.
        distance: "cosine" or "euclidean".
        separator: the mark between the tags of a text; "none" where each text is one class, whatever it holds.
        match: which tags belong together, see `trivet.Tags`.
        junk: class of gallery items that are ignored.
        out_of_scope: class of queries that belong to nothing in the gallery; measures how well they are rejected.
        without_positive: whether a query without a positive counts as a miss, or is dropped.
        nmi_plus: clusters per class in NMI+. Default: 10.
        folds: class-disjoint folds within which retrieval is measured as well.
        sample: random queries; 0 for all.
        prefixes: lengths; the first numbers of each embedding are evaluated too and compared, for each (Matryoshka).
        approximate: the kind of index that ranks the gallery; its recall is part of the result.
        quantize: numbers or codes in which the embeddings are stored, evaluated and compared with float32: "float16",
            "int8", "binary", "pq".
        rescore: with quantize, evaluate also what codes find when the embeddings themselves rank it.
        postprocess: what is compared with the plain ranking: "whitening", "expansion" (of queries), "reciprocal".
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
    request = _evaluation(locals())
    galleries = {} if gallery is None else {"embeddings": gallery}
    return _evaluated(
        {"embeddings": embeddings}, [""], labels, request, galleries, gallery_labels, separator=separator, match=match
    )


@of_arrays("evaluation")
def compare(
    embeddings: Mapping[str, Any] | Sequence[Any],
    labels: Any,
    *,
    gallery: Mapping[str, Any] | Sequence[Any] | None = None,
    gallery_labels: Any = None,
    measures: str | Sequence[str] | None = None,
    distance: Metric = "cosine",
    separator: str | None = None,
    match: TagMatch = "any",
    junk: Any = None,
    out_of_scope: Any = None,
    without_positive: Literal["miss", "drop"] = "miss",
    nmi_plus: int | None = None,
    folds: int = 0,
    sample: int = 0,
    prefixes: int | Sequence[int] | None = None,
    approximate: Approximate | None = None,
    quantize: Stored | Sequence[Stored] | None = None,
    rescore: bool = False,
    postprocess: Postprocessing | Sequence[Postprocessing] | None = None,
    seed: int = 0,
) -> EvaluationResult:
    """Evaluate embeddings of the same items side by side, as `trivet evaluate` does of several files.

    Args:
        embeddings: name -> `(N, d)` as in `evaluate`; or two of them, which are called before and after. Each is
            compared with the first.
        gallery: what is retrieved from, `(M, d)` by each embedding, in the same form and order.
        labels, gallery_labels, separator, match: as in `evaluate`.
        measures, distance, junk, out_of_scope, without_positive, nmi_plus, folds, sample, seed: as in `evaluate`.
        prefixes, approximate, quantize, rescore, postprocess: as in `evaluate`.

    Raises:
        ValueError: as `evaluate`, or if there are fewer than two, or as many galleries are not there.

    Example:
        >>> import numpy as np
        >>> noise, names = np.random.default_rng(0).normal(size=(2, 40, 4)), ["red", "blue", "green", "grey"] * 10
        >>> means = np.eye(4)[np.arange(40) % 4]
        >>> result = compare((means + noise[0], means + 0.1 * noise[1]), names, measures=["recall@1"])
        >>> result.record.differences["label"]["recall@1"][0].difference > 0.2
        True
    """
    request = _evaluation(locals())
    pair, together = ("before", "after"), isinstance(embeddings, Mapping)
    named = dict(embeddings) if isinstance(embeddings, Mapping) else dict(zip(pair, embeddings, strict=False))
    if len(named) < 2 or len(named) != len(embeddings):
        raise ValueError(
            f"compared embeddings must be two, or more by name: got {len(embeddings)}; pass a dict of them, such as "
            "{'before': ..., 'after': ...}."
        )
    keys = [repr(key) for key in (named if together else range(len(named)))]
    galleries = gallery if isinstance(gallery, Mapping) else dict(zip(named, gallery or (), strict=False))
    if gallery is not None and (galleries.keys() != named.keys() or len(gallery) != len(named)):
        raise ValueError(
            f"each of the compared embeddings must have a gallery of its own: got {len(gallery)} for {list(named)}; "
            "pass them in the same form."
        )
    return _evaluated(named, keys, labels, request, galleries, gallery_labels, separator=separator, match=match)


@of_arrays("diagnosis")
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

    The rules are those of `trivet.collapse.diagnose`, which also takes grades.

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
    from trivet.io.tag_cells import PAIRS

    cells: dict[str, Any] = {"separator": separator, "match": match}
    vectors = read_arrays(embeddings, labels, ids=ids, texts=texts, name="embeddings", **cells)
    level = _level(level, vectors)
    paired = vectors.tags.get(level) == PAIRS
    if paired and fine is not None:
        raise ValueError("fine holds classes inside classes, and pairs have none: leave it out.")
    finer: Mapping[str, Any] = {}
    if fine is not None:
        variables = ("embeddings", "fine")
        finer = read_arrays(embeddings, fine, name="embeddings", unnamed="fine", variables=variables).labels
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
        read = read_arrays(rows, labels if paired else {}, name=name, variables=(code, "labels"))
        known[name], how = matched_reference(read, subject, vectors)
        notes += how
    return DiagnosisResult([diagnose_input(replace(subject, references=known, notes=notes), seed=seed)])


@of_arrays("audit")
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
    top: int = 10,
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
        top: suspects that are printed.
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
    options = parsed_options("audit", locals()).params
    from trivet.commands.audit.items import items_of_vectors
    from trivet.commands.audit.options import AuditOptions
    from trivet.commands.audit.pairs import audit_paired_vectors
    from trivet.commands.audit.result import AuditResult
    from trivet.commands.audit.run import audit_items
    from trivet.datasets.arrays import read_arrays
    from trivet.io.tag_cells import PAIRS

    vectors = read_arrays(embeddings, labels, ids=ids, texts=texts, separator=separator, match=match, name="embeddings")
    request = AuditOptions(**{**options, "embeddings": Path(vectors.name)})
    level = _level(level, vectors)
    if vectors.tags.get(level) == PAIRS:
        return AuditResult(audit_paired_vectors(request, vectors), top=request.top)
    items = items_of_vectors(vectors, level, distance=distance)
    return AuditResult(audit_items(request, items), top=request.top)


@of_arrays(None)
def train(
    items: Any,
    labels: Any,
    *,
    out: Path | str | None = None,
    ids: Any = None,
    split: Any = None,
    separator: str | None = None,
    match: TagMatch = "any",
    weights: Mapping[str, Path | str] | None = None,
    start: Path | str | Sequence[Path | str] | None = None,
    minutes: float | None = None,
    download: str | Sequence[str] | None = None,
    accept_licence: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Train an embedding of items in memory, evaluate it and compare it with encoders as they are.

    This is `trivet train`, of items that lie in no file: the same candidates, settings and verdict.

    Args:
        items: vectors `(N, d)` as an array, a tensor, a list of rows or a data frame; or a list of N texts, of N paths
            of image files, or of N images of Pillow; of pairs a tuple of both sides, which are texts or images.
        labels: N integers or texts in any form, or lists of tags; several levels, coarse first, as a dict or a data
            frame of columns; or `trivet.Pairs`, of which each item is in one.
        out: the run folder, which must be new. Without one it is a temporary folder, removed with the result.
        ids: N different names of the items; by default their numbers, or the paths of images.
        split: the part that each item belongs to: "train", or another one that is evaluated, such as "test". By default
            classes are held out, as `trivet init` proposes.
        separator: the mark between the tags of a text, as in `evaluate`.
        match: which tags belong together, see `trivet.Tags`.
        weights: name -> file or folder of the weights of a pretrained encoder to compare.
        start: folders of checkpoints of yours that are compared as further encoders.
        minutes: time within which a training must end to be tried. Default: 4, with a GPU 30.
        download: names of further encoders to download and compare, or "all".
        accept_licence: encoders whose licence forbids commercial use, which is accepted.
        settings: "section.key" -> value of settings in place of those that are proposed, such as
            {"ladder.head_steps": 200}.
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
    options = parsed_options("train", locals()).params
    from trivet.commands.train.items import train_items
    from trivet.datasets.item_table import item_table

    table = item_table(items, labels, ids=ids, split=split, separator=separator, match=match)
    return train_items(table, out, settings or {}, options, force=force, progress=progress)


@of_arrays("search")
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
    postprocess: Literal["none"] | Reranking | None = None,
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
        postprocess: "expansion" of the queries, "reciprocal" to rank what is found anew by reciprocal neighbours, or
            "none". Default: as the index.

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
    options = parsed_options("search", locals()).params
    from trivet.commands.search.items import search_items

    return search_items(index, queries, options, labels=labels, ids=ids, distance=distance, kind=kind)


def _level(level: str | None, vectors: Vectors) -> str:
    """The level of that name, or the first."""
    from trivet.config.base import nearest

    if not vectors.labels:
        raise ValueError("labels must have a level: got none; pass one label for each row.")
    if level is not None and level not in vectors.labels:
        raise ValueError(f"level must be one of the labels: there is no {level!r}; {nearest(level, vectors.labels)}")
    return level or next(iter(vectors.labels))


def _evaluation(arguments: Mapping[str, Any]) -> EvaluateOptions:
    """The evaluation that arguments ask for."""
    from trivet.commands.evaluate.command import check_options
    from trivet.commands.evaluate.options import EvaluateOptions

    context = parsed_options("evaluate", arguments)
    request = EvaluateOptions(**context.params)
    check_options(context, request)
    return request


def _evaluated(
    embeddings: Mapping[str, Any],
    keys: Sequence[str],
    labels: Any,
    request: EvaluateOptions,
    galleries: Mapping[str, Any],
    gallery_labels: Any,
    *,
    separator: str | None,
    match: TagMatch,
) -> EvaluationResult:
    """Evaluate embeddings of the same items, by name.

    Args:
        keys: by which the caller reaches each of them; empty for the only one.
        galleries: what is retrieved from, by the same names; empty without.
    """
    from trivet.commands.evaluate.result import EvaluationResult
    from trivet.commands.evaluate.run import evaluate_sets
    from trivet.commands.evaluate.sets import QueriesAndGallery, two_sets, variants
    from trivet.datasets.arrays import read_arrays
    from trivet.datasets.frames import check_order

    assert request.distance is not None
    if (not galleries) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels go together: got one of them; give both.")
    all_sets, cells = list[QueriesAndGallery](), dict[str, Any](separator=separator, match=match)
    of_each = [f"[{key}]" if key else "" for key in keys]
    check_order({f"embeddings{key}": rows for key, rows in zip(of_each, embeddings.values(), strict=True)})
    for key, (name, rows) in zip(of_each, embeddings.items(), strict=True):
        queries = read_arrays(rows, labels, name=name, variables=(f"embeddings{key}", "labels"), **cells)
        sets = QueriesAndGallery(name, queries, None, request.distance)
        if galleries:
            variables = (f"gallery{key}", "gallery_labels")
            others = read_arrays(galleries[name], gallery_labels, name="gallery", variables=variables, **cells)
            sets = two_sets(name, queries, others, request.distance, request)
        all_sets += variants(sets, request)
    return EvaluationResult(evaluate_sets(all_sets, request))
