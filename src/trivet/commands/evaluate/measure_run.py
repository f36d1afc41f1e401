"""Measures the model of a run on its evaluation splits, with all that its report shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from trivet.collapse import fine_coarse_index
from trivet.collapse.significance import RAW, UNTRAINED, ZERO_SHOT, compare, comparison_json
from trivet.commands.displayed_items import dataset_items, nearest_items, retrievable
from trivet.commands.evaluate.baselines import baseline_retrieval
from trivet.datasets import Dataset
from trivet.distances import unit_rows
from trivet.metrics import Retrieval, evaluate, nearest_pairs, retrieve_levels
from trivet.metrics.intervals import intervals_json
from trivet.metrics.label_levels import CLUSTERING
from trivet.models import Embedder
from trivet.reports.diagnosis_record import RecallComparison
from trivet.reports.run_record import AtPrefix, ChosenCompared, CollapseIndex, Evaluated, RunRecord
from trivet.reports.shared_records import Gallery, QueryRecord, ScatterRecord
from trivet.runtime.progress import reporter, steps, work
from trivet.training.checkpoint_selection import RECALL
from trivet.training.class_sample import map_sample
from trivet.training.config import EvaluationConfig
from trivet.training.embed_dataset import embed, raw_inputs

RAW_NUMBERS = 10**8  # raw inputs beyond this many numbers are not compared: 800 MB in float64
SCATTER_POINTS, QUERIES, NEIGHBOURS = 2000, 10, 6
MEASURED = ("evaluation", "intervals", "comparisons", "chosen_comparisons", "prefixes", "collapse", "maps", "scatter",
            "neighbours")  # sections of a record  # fmt: skip


def measure_splits(
    record: RunRecord,
    splits: Mapping[str, Dataset],
    level: str,
    model: Embedder,
    untrained: Embedder | None,
    config: EvaluationConfig,
    *,
    seed: int,
    store: Callable[[str, np.ndarray], None],
    diagnose: Callable[[str, np.ndarray, Mapping[str, np.ndarray]], None],
    cache: Path | None = None,
    prefixes: Sequence[int] = (),
    normalize: bool = False,
    chosen_by: str | None = None,
) -> None:
    """Evaluate every split, beside the untrained network and the raw inputs, into the sections of a record.

    Args:
        record: its sections `MEASURED` are filled in.
        level: the label level trained on.
        store: called with the name of each split and its embeddings.
        diagnose: called with the name of each split, its embeddings and those of `run_references`.
        cache: the folder where measures of the untrained network and the raw inputs are kept, see `baselines`.
        prefixes, normalize: see `at_prefixes`.
        chosen_by: the measure by which a step was chosen; None where none was.
    """
    for name, dataset in steps(splits.items(), "evaluation"):
        embeddings = embed(model, dataset.inputs, reporter(f"embedding {name}"))
        store(name, embeddings)
        by_level = evaluate(
            **dataset.evaluation_arguments(embeddings),
            measures=config.measures,
            nmi_plus_multiple=config.nmi_plus,
            seed=seed,
            distance=config.distance,
        )
        rows = [Evaluated(name="trained", levels={key: value.as_json() for key, value in by_level.items()})]
        record.intervals[name] = {key: intervals_json(value.intervals(seed=seed)) for key, value in by_level.items()}
        references = run_references(untrained, dataset)
        ranking = [measure for measure in config.measures if measure not in CLUSTERING]
        retrieved = {
            key: baseline_retrieval(known, dataset, ranking, config.distance, cache)
            for key, known in references.items()
        }
        rows += [
            Evaluated(name=key, levels={level: {**levels_of.mean()} for level, levels_of in levels.items()})
            for key, levels in retrieved.items()
        ]
        record.evaluation[name] = rows
        references_of = {level: {key: levels[level] for key, levels in retrieved.items()} for level in by_level}
        record.comparisons[name] = {
            level: _compared(result.retrieval, references_of[level], level) for level, result in by_level.items()
        }
        if chosen_by is not None and chosen_by != RECALL:
            record.chosen_comparisons[name] = {
                level: [
                    _by_measure(chosen_by, compared)
                    for compared in _compared(result.retrieval, references_of[level], level, chosen_by)
                ]
                for level, result in by_level.items()
            }
        record.prefixes[name] = at_prefixes(
            embeddings, references, dataset, config, prefixes, normalize=normalize, cache=cache
        )
        index = collapse_index(embeddings, dataset)
        if index is not None:
            record.collapse[name] = index
        related = dataset.related(level)
        subset, points = dataset.subset(related), embeddings[related]
        sample = map_sample(subset, config.map_points, seed=seed)
        record.maps[name] = dataset_items(subset).plane_map(points, sample, seed=seed)
        record.scatter[name] = triplet_scatter(points, subset, seed=seed)
        record.neighbours[name] = gallery(embeddings, dataset, level, seed=seed)
        with work(f"diagnosing {name}"):
            diagnose(name, embeddings, references)


def run_references(untrained: Embedder | None, dataset: Dataset) -> dict[str, np.ndarray]:
    """Name -> embeddings `(N, d)` of the items that a trained network must not fall below.

    The untrained network, its backbone alone where it has one, and the inputs as they are unless they are too many. A
    network that is nothing but its backbone stands there once, as that.

    Args:
        untrained: None where it cannot be made again.
    """
    references = {} if untrained is None or untrained.headless else {UNTRAINED: embed(untrained, dataset.inputs)}
    if untrained is not None and untrained.backbone is not None:
        references[ZERO_SHOT] = embed(untrained.backbone, dataset.inputs)
    if len(dataset) * int(np.prod(dataset.inputs.shape)) <= RAW_NUMBERS:
        references[RAW] = raw_inputs(dataset.inputs)
    return references


def at_prefixes(
    embeddings: np.ndarray,
    references: Mapping[str, np.ndarray],
    dataset: Dataset,
    config: EvaluationConfig,
    prefixes: Sequence[int],
    *,
    normalize: bool,
    cache: Path | None,
) -> list[AtPrefix]:
    """Evaluate the first numbers of each embedding beside as many of each reference, without its clusters.

    Pixels are no reference: their first ones are a corner of the picture.

    Args:
        references: name -> embeddings of the same items; those that are shorter than a prefix are left out there.
        prefixes: how many numbers.
        normalize: whether embeddings have length 1: each prefix, also of a reference, is then brought to it.
        cache: see `measure_splits`.
    """
    ranking = [measure for measure in config.measures if measure not in CLUSTERING]
    others = {name: rows for name, rows in references.items() if name != RAW or len(dataset.inputs.shape) == 1}
    sections = []
    for prefix in prefixes:
        cut = {
            name: unit_rows(torch.from_numpy(rows[:, :prefix])).numpy() if normalize else rows[:, :prefix]
            for name, rows in {"trained": embeddings, **others}.items()
            if rows.shape[1] >= prefix
        }
        trained = retrieve_levels(
            **dataset.evaluation_arguments(cut.pop("trained")), measures=ranking, distance=config.distance
        )
        reference_results = {
            name: baseline_retrieval(rows, dataset, ranking, config.distance, cache) for name, rows in cut.items()
        }
        comparisons = {
            level: _compared(result, {name: levels[level] for name, levels in reference_results.items()}, level)
            for level, result in trained.items()
        }
        evaluated = [
            Evaluated(name=name, levels={level: {**result.mean()} for level, result in levels.items()})
            for name, levels in {"trained": trained, **reference_results}.items()
        ]
        sections.append(AtPrefix(prefix=prefix, evaluated=evaluated, comparisons=comparisons))
    return sections


def _compared(
    trained: Retrieval | None, references: Mapping[str, Retrieval], level: str, measure: str = RECALL
) -> list[RecallComparison]:
    """Recall@1, or another measure in its place, beside that of each reference, see `Comparison`."""
    assert trained is not None
    hits, *others = (result.values[:, result.measures.index(measure)] for result in (trained, *references.values()))
    return [
        RecallComparison.read(comparison_json(compare(hits, other, trained.classes, reference=reference, level=level)))
        for reference, other in zip(references, others, strict=True)
    ]


def _by_measure(measure: str, compared: RecallComparison) -> ChosenCompared:
    """A comparison by another measure than recall@1."""
    fields = {name: value for name, value in compared if name not in ("recall", "reference_recall")}
    return ChosenCompared(measure=measure, value=compared.recall, reference_value=compared.reference_recall, **fields)


def collapse_index(embeddings: np.ndarray, dataset: Dataset) -> CollapseIndex | None:
    """The fine/coarse index of the two coarsest levels; None where there is one level or one coarse class."""
    if len(dataset.labels) < 2:
        return None
    coarse, fine, *_ = dataset.labels
    if len(np.unique(dataset.labels[coarse])) < 2 or not _nested(dataset.labels[coarse], dataset.labels[fine]):
        return None
    index = fine_coarse_index(embeddings, dataset.labels[coarse], dataset.labels[fine])
    return CollapseIndex(coarse=coarse, fine=fine, index=index) if np.isfinite(index) else None


def _nested(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """True if some coarse class contains two fine ones, so that a distance between them exists."""
    pairs = np.unique(np.stack([coarse, fine], axis=1), axis=0)
    return bool((np.unique(pairs[:, 0], return_counts=True)[1] > 1).any())


def triplet_scatter(embeddings: np.ndarray, dataset: Dataset, *, seed: int) -> dict[str, ScatterRecord]:
    """Similarities of a sample of items to their nearest same-class and other-class item of the full set."""
    sections = {}
    for level, labels in dataset.labels.items():
        sizes = np.bincount(labels)[labels]  # both neighbours take another item in the class, and one outside
        usable = np.flatnonzero((sizes > 1) & (sizes < len(labels)))
        sampled = np.sort(np.random.default_rng(seed).permutation(usable)[:SCATTER_POINTS])
        s_ap = s_an = np.empty(0)
        if len(sampled):
            pairs = nearest_pairs(embeddings, labels, sample=sampled)
            s_ap, s_an = pairs.s_ap, pairs.s_an
        sections[level] = ScatterRecord(
            s_ap=np.round(s_ap, 5).tolist(),
            s_an=np.round(s_an, 5).tolist(),
            ids=[dataset.ids[i] for i in sampled.tolist()],
        )
    return sections


def gallery(embeddings: np.ndarray, dataset: Dataset, level: str, *, seed: int) -> Gallery:
    """A few random queries with the nearest items that they may retrieve."""
    candidates = np.arange(len(dataset)) if dataset.protocol is None else np.flatnonzero(dataset.protocol.query)
    queries = np.sort(np.random.default_rng(seed).permutation(candidates)[:QUERIES])
    items, finest = dataset_items(dataset), list(dataset.labels.values())[-1]

    def query_record(query: int) -> QueryRecord:
        near = nearest_items(embeddings, query, NEIGHBOURS, retrievable(dataset.protocol, finest, query))
        return QueryRecord(**dict(items.record(query)), neighbours=items.neighbours(near))

    return Gallery(level=level, queries=[query_record(query) for query in queries.tolist()])
