"""Measures the model of a run on its evaluation splits, with all that its report shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trivet.collapse import fine_coarse_index
from trivet.collapse.significance import RAW, UNTRAINED, ZERO_SHOT, compare, comparison_json
from trivet.commands.evaluate.baselines import baseline_retrieval
from trivet.datasets import Dataset
from trivet.datasets.preview import item_title, preview_record
from trivet.distances import unit_rows
from trivet.metrics import Retrieval, evaluate, nearest_pairs, neighbours, retrieve_levels
from trivet.metrics.intervals import intervals_json
from trivet.metrics.label_levels import CLUSTERING
from trivet.models import Embedder
from trivet.runtime.progress import reporter, steps, work
from trivet.training.checkpoint_selection import RECALL
from trivet.training.class_sample import map_sample
from trivet.training.config import EvaluationConfig
from trivet.training.embed_dataset import embed, label_names, raw_inputs

RAW_NUMBERS = 10**8  # raw inputs beyond this many numbers are not compared: 800 MB in float64
SCATTER_POINTS, QUERIES, NEIGHBOURS = 2000, 10, 6


def measure_splits(
    splits: Mapping[str, Dataset],
    level: str,
    model: Embedder,
    untrained: Embedder | None,
    config: EvaluationConfig,
    *,
    seed: int,
    store: Callable[[str, np.ndarray], None],
    diagnose: Callable[[str, np.ndarray, Mapping[str, np.ndarray]], None] | None = None,
    cache: Path | None = None,
    prefixes: Sequence[int] = (),
    normalize: bool = False,
    chosen_by: str | None = None,
) -> dict[str, Any]:
    """Evaluate every split, beside the untrained network and the raw inputs; the sections of the run record.

    Args:
        level: the label level trained on.
        store: called with the name of each split and its embeddings.
        diagnose: called with the name of each split, its embeddings and those of `run_references`.
        cache: the folder where measures of the untrained network and the raw inputs are kept, see `baselines`.
        prefixes, normalize: see `at_prefixes`.
        chosen_by: the measure by which a step was chosen; None where none was.
    """
    began = time.perf_counter()
    sections: dict[str, Any] = {
        "evaluation": {},
        "intervals": {},
        "comparisons": {},
        "chosen_comparisons": {},
        "prefixes": {},
        "collapse": {},
        "maps": {},
        "scatter": {},
        "neighbours": {},
    }
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
        rows = [{"name": "trained", "levels": {key: value.as_json() for key, value in by_level.items()}}]
        sections["intervals"][name] = {
            key: intervals_json(value.intervals(seed=seed)) for key, value in by_level.items()
        }
        references = run_references(untrained, dataset)
        ranking = [measure for measure in config.measures if measure not in CLUSTERING]
        retrieved = {
            key: baseline_retrieval(known, dataset, ranking, config.distance, cache)
            for key, known in references.items()
        }
        rows += [
            {"name": key, "levels": {level: levels_of.mean() for level, levels_of in levels.items()}}
            for key, levels in retrieved.items()
        ]
        sections["evaluation"][name] = rows
        references_of = {level: {key: levels[level] for key, levels in retrieved.items()} for level in by_level}
        sections["comparisons"][name] = {
            level: _compared(result.retrieval, references_of[level], level) for level, result in by_level.items()
        }
        if chosen_by not in (None, RECALL):
            sections["chosen_comparisons"][name] = {
                level: [
                    {
                        "measure": chosen_by,
                        "value": levels_of.pop("recall"),
                        "reference_value": levels_of.pop("reference_recall"),
                    }
                    | levels_of
                    for levels_of in _compared(result.retrieval, references_of[level], level, chosen_by)
                ]
                for level, result in by_level.items()
            }
        sections["prefixes"][name] = at_prefixes(
            embeddings, references, dataset, config, prefixes, normalize=normalize, cache=cache
        )
        index = collapse_index(embeddings, dataset)
        if index is not None:
            sections["collapse"][name] = index
        related = dataset.related(level)
        subset, points = dataset.subset(related), embeddings[related]
        sample = map_sample(subset, config.map_points, seed=seed)
        sections["maps"][name] = embedding_map(points, subset, sample, seed=seed)
        sections["scatter"][name] = triplet_scatter(points, subset, seed=seed)
        sections["neighbours"][name] = gallery(embeddings, dataset, level, seed=seed)
        if diagnose is not None:
            with work(f"diagnosing {name}"):
                diagnose(name, embeddings, references)
    sections["evaluation_seconds"] = time.perf_counter() - began
    return sections


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
) -> list[dict[str, Any]]:
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
        sections.append(
            {
                "prefix": prefix,
                "evaluated": [
                    {"name": name, "levels": {level: result.mean() for level, result in levels.items()}}
                    for name, levels in {"trained": trained, **reference_results}.items()
                ],
                "comparisons": {
                    level: _compared(result, {name: levels[level] for name, levels in reference_results.items()}, level)
                    for level, result in trained.items()
                },
            }
        )
    return sections


def _compared(
    trained: Retrieval | None, references: Mapping[str, Retrieval], level: str, measure: str = RECALL
) -> list[dict[str, Any]]:
    """Recall@1, or another measure in its place, beside that of each reference, see `Comparison`."""
    assert trained is not None
    hits, *others = (result.values[:, result.measures.index(measure)] for result in (trained, *references.values()))
    return [
        comparison_json(compare(hits, other, trained.classes, reference=reference, level=level))
        for reference, other in zip(references, others, strict=True)
    ]


def collapse_index(embeddings: np.ndarray, dataset: Dataset) -> dict[str, Any] | None:
    """The fine/coarse index of the two coarsest levels; None where there is one level or one coarse class."""
    if len(dataset.labels) < 2:
        return None
    coarse, fine, *_ = dataset.labels
    if len(np.unique(dataset.labels[coarse])) < 2 or not _nested(dataset.labels[coarse], dataset.labels[fine]):
        return None
    index = fine_coarse_index(embeddings, dataset.labels[coarse], dataset.labels[fine])
    return {"coarse": coarse, "fine": fine, "index": index} if np.isfinite(index) else None


def _nested(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """True if some coarse class contains two fine ones, so that a distance between them exists."""
    pairs = np.unique(np.stack([coarse, fine], axis=1), axis=0)
    return bool((np.unique(pairs[:, 0], return_counts=True)[1] > 1).any())


def embedding_map(embeddings: np.ndarray, dataset: Dataset, sample: np.ndarray, *, seed: int) -> dict[str, Any]:
    """A sample of items in the plane: a 2-D embedding as it is, else by PCA and by t-SNE."""
    names = label_names(dataset)
    previews = [dataset.show(i) for i in sample.tolist()]
    return {
        "coordinates": plane_coordinates(embeddings[sample], seed=seed),
        "labels": {level: [names[level][i] for i in sample.tolist()] for level in names},
        "ids": [item_title(dataset.ids[i], preview) for i, preview in zip(sample.tolist(), previews, strict=True)],
        "thumbnails": [preview_record(preview)["thumbnail"] for preview in previews],
    }


def plane_coordinates(embeddings: np.ndarray, *, seed: int) -> dict[str, list[list[float]]]:
    """Way of drawing -> the place of each row in the plane: a 2-D embedding as it is, else by PCA and, if it
    has more dimensions and items that differ, by t-SNE.
    """
    points = embeddings.astype(np.float64)
    if points.shape[1] == 2:
        coordinates = {"as is": points}
    else:
        coordinates = {"PCA": _plane(points)}
        if points.shape[1] > 2 and len(points) > 10 and np.ptp(points, axis=0).any():
            from sklearn.manifold import TSNE  # takes a second to load

            perplexity = min(30, (len(points) - 1) // 3)
            coordinates["t-SNE"] = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
    return {name: np.round(xy, 4).tolist() for name, xy in coordinates.items()}


def _plane(points: np.ndarray) -> np.ndarray:
    """The first two principal components `(N, 2)`; the second is 0 for one-dimensional points."""
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ axes[:2].T
    return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))


def triplet_scatter(embeddings: np.ndarray, dataset: Dataset, *, seed: int) -> dict[str, Any]:
    """Similarities of a sample of items to their nearest same-class and other-class item of the full set."""
    sections = {}
    for level, labels in dataset.labels.items():
        sizes = np.bincount(labels)[
            labels
        ]  # of the class of each item: both neighbours take another in it, and outside
        usable = np.flatnonzero((sizes > 1) & (sizes < len(labels)))
        sampled = np.sort(np.random.default_rng(seed).permutation(usable)[:SCATTER_POINTS])
        s_ap = s_an = np.empty(0)
        if len(sampled):
            pairs = nearest_pairs(embeddings, labels, sample=sampled)
            s_ap, s_an = pairs.s_ap, pairs.s_an
        sections[level] = {
            "s_ap": np.round(s_ap, 5).tolist(),
            "s_an": np.round(s_an, 5).tolist(),
            "ids": [dataset.ids[i] for i in sampled.tolist()],
        }
    return sections


def gallery(embeddings: np.ndarray, dataset: Dataset, level: str, *, seed: int) -> dict[str, Any]:
    """A few random queries with the nearest items that they may retrieve."""
    candidates = np.arange(len(dataset)) if dataset.protocol is None else np.flatnonzero(dataset.protocol.query)
    queries = np.sort(np.random.default_rng(seed).permutation(candidates)[:QUERIES])
    names = label_names(dataset)

    def item(i: int) -> dict[str, Any]:
        labels = {key: values[i] for key, values in names.items()}
        return {"id": dataset.ids[i], **preview_record(dataset.show(i)), "labels": labels}

    def near(query: int) -> list[dict[str, Any]]:
        rows = np.concatenate([[query], _retrievable(dataset, query)])
        nearest = neighbours(embeddings[rows], [0], min(NEIGHBOURS, len(rows) - 1), distance="cosine")
        positions, distances = rows[nearest.indices[0]].tolist(), nearest.distances[0].tolist()
        return [item(i) | {"similarity": round(1 - d, 4)} for i, d in zip(positions, distances, strict=True)]

    return {"level": level, "queries": [item(query) | {"neighbours": near(query)} for query in queries.tolist()]}


def _retrievable(dataset: Dataset, query: int) -> np.ndarray:
    """Positions of the items that a query may retrieve."""
    protocol = dataset.protocol
    rows = np.arange(len(dataset)) if protocol is None else protocol.retrieved
    mask = rows != query
    if protocol is not None and protocol.cameras is not None:
        finest = list(dataset.labels.values())[-1]
        mask &= (finest[rows] != finest[query]) | (protocol.cameras[rows] != protocol.cameras[query])
    allowed: np.ndarray = rows[mask]
    return allowed
