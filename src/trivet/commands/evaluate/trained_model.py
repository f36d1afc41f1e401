"""`trivet evaluate RUN`: measures, diagnoses and reports the model of a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from trivet.collapse import fine_coarse_index
from trivet.collapse.significance import RAW, UNTRAINED, compare_with_reference, comparison_json
from trivet.commands.diagnose.causes import Trained, name_causes
from trivet.commands.diagnose.inputs import of_dataset, some_items, trained_levels
from trivet.commands.diagnose.run import diagnose_input
from trivet.commands.displayed_items import dataset_items
from trivet.commands.evaluate.baselines import baseline_retrieval, run_references
from trivet.commands.evaluate.embedding_sizes import embedding_sizes
from trivet.commands.train.page import write_run_report
from trivet.datasets import Dataset, Splits
from trivet.distances import unit_rows
from trivet.io.parquet_files import write_embeddings
from trivet.metrics import Retrieval, evaluate, nearest_pairs, retrieve_levels
from trivet.metrics.intervals import intervals_json
from trivet.metrics.label_levels import CLUSTERING, unanswerable, void
from trivet.models import Embedder
from trivet.reports.diagnosis_record import DiagnosisSection, RecallComparison
from trivet.reports.run_record import AtPrefix, ChosenCompared, CollapseIndex, Evaluated, RunRecord
from trivet.reports.shared_records import ScatterRecord
from trivet.runtime.cache import cache_folder
from trivet.runtime.progress import reporter, show_progress, steps, work
from trivet.training.checkpoint import trained_to_the_end
from trivet.training.checkpoint_selection import RECALL, monitored_split, selection_split
from trivet.training.class_sample import map_sample
from trivet.training.components import Components, begun, in_steps, load_splits
from trivet.training.config import EvaluationConfig
from trivet.training.embed_dataset import embed, item_columns
from trivet.training.features import with_features
from trivet.training.run_folder import REPORT, RunFolder, Which, model_hash, trained_model
from trivet.training.run_log import first_record, record_progress

SCATTER_POINTS = 2000
MEASURED = ("evaluation", "intervals", "comparisons", "chosen_comparisons", "prefixes", "collapse", "maps",
            "scatter")  # sections of a record  # fmt: skip
SELF_RETRIEVAL = "Here each item retrieves from all others that were diagnosed; the result follows queries and gallery."
BOTH_WAYS = "Here each item of either side retrieves from the other side, of the items that were diagnosed."


def evaluate_run(
    path: Path | str, *, data_root: Path | None = None, progress: bool = False, splits: Splits | None = None
) -> RunRecord:
    """Evaluate the model of a run again and write embeddings, record and report; returns the record.

    Args:
        data_root, progress, splits: as in `trivet.commands.train.run.train`.

    Raises:
        ValueError, OSError: as `train`; also if the folder holds no run with a model.
    """
    run = RunFolder.open(path)
    config = run.config()
    with show_progress("evaluation", show=progress), run.locked():
        model = trained_model(run)
        if splits is None:  # its tokenizer needs no folder but that of the run
            splits = load_splits(config, data_root, reporter("reading images"), tokenize=model.tokenize)
        config = in_steps(config, splits)
        splits = with_features(config, splits, model)
        record = run.record() or first_record(run.name, splits, "", config.recorded(), config.warnings)
        record.ladder = run.ladder()
        record.warnings = [*dict.fromkeys([*record.warnings, *splits.warnings])]
        if record.status in ("running", "interrupted"):
            checkpoints = run.checkpoints()
            done = bool(checkpoints) and trained_to_the_end(
                checkpoints[-1], steps=config.training.num_steps, patience=config.choosing.patience
            )
            stopped = record.guard.stopped_by is not None
            record.status = "stopped" if stopped else "finished" if done else "interrupted"
            if checkpoints and record.step is None:  # the record was lost: what is left tells
                state = Components(config, splits).state
                state.load(checkpoints[-1])
                record_progress(record, state, monitored_split(splits), config.training.num_steps)
        before: Embedder | None = None
        try:
            before, splits = begun(config, splits)
        except ValueError as error:  # what it begins from is gone
            warning = f"Nothing is compared with the network before training, which cannot be made again: {error}"
            record.warnings = [*[text for text in record.warnings if text != warning], warning]
        return write_evaluation(run, record, splits, model, before)


def write_evaluation(
    run: RunFolder,
    record: RunRecord,
    splits: Splits,
    model: Embedder,
    untrained: Embedder | None,
) -> RunRecord:
    """Evaluate a trained network and write embeddings, record and report; returns the record."""
    config, level = run.config(), splits.level
    record = record.model_copy(update={**{name: {} for name in MEASURED}, "sizes": None})
    trained = splits.train.subset(some_items(splits.train, seed=config.seed))
    datasets = {"train": trained, **splits.evaluation}
    model, cache = model.cpu(), cache_folder("baselines")
    diagnosed: dict[str, DiagnosisSection] = {}
    searched: set[str] = set()
    main = next((name for name in splits.evaluation if name != selection_split(splits)), None)
    began = time.perf_counter()
    for name, dataset in steps(datasets.items(), "evaluation"):
        embeddings = embed(model, dataset.inputs, reporter(f"embedding {name}"))
        if dataset is trained and not np.isfinite(embeddings).all():
            record.warnings.append("The embeddings are not finite, so nothing was evaluated.")
            return _written(run, record)
        if dataset is trained:
            of_training = embeddings
        file = run.path / "embeddings" / f"{name}.parquet"
        columns = item_columns([dataset])
        write_embeddings(file, embeddings, dataset.ids, columns, levels=dataset.level_lines, model=model_hash(run))
        references = run_references(untrained, dataset)
        if record.ladder is not None and record.step == 0:  # nothing was trained: it is the network itself
            references.pop(UNTRAINED, None)
        if dataset is not trained:
            measure_split(
                record,
                name,
                dataset,
                embeddings,
                references,
                config.evaluation,
                level=level,
                chosen_by=config.choosing.counted_measure,
                prefixes=config.loss.lengths(embeddings.shape[1])[:-1],
                normalize=config.model.normalize,
                trained=trained_levels(dataset, splits.train),
                seed=config.seed,
                cache=cache,
            )
        if len(np.unique(dataset.labels[level])) < 2:  # a single class has nothing to collapse into
            continue
        if name == main:
            record.sizes = embedding_sizes(
                embeddings,
                dataset,
                of_training,
                split=name,
                level=level,
                prefixes=config.loss.lengths(embeddings.shape[1])[:-1],
                normalize=config.model.normalize,
                distance=config.evaluation.distance,
                known_classes=level in trained_levels(dataset, splits.train),
                seed=config.seed,
            )
        if level in dataset.numbers and searched >= {*dataset.ids}:  # the same items the other way round
            continue
        searched |= set() if dataset is trained else {*dataset.ids}
        rows, count = some_items(dataset, seed=config.seed), len(splits.train if dataset is trained else dataset)
        known = {key: every[rows] for key, every in references.items()}
        subject = of_dataset(run, name, dataset.subset(rows), level, embeddings[rows], known, train=splits.train)
        notes = [f"{len(rows)} of {count} items were diagnosed."] if len(rows) < count else []
        if dataset.protocol is not None:
            notes.append(BOTH_WAYS if level in dataset.numbers else SELF_RETRIEVAL)
        # The record holds a map of each evaluation split already.
        points = config.evaluation.map_points if dataset is trained else 0
        with work(f"diagnosing {name}"):
            subject = replace(subject, notes=(*subject.notes, *notes))
            diagnosed[name] = diagnose_input(subject, seed=config.seed).section(map_points=points)
    seconds = time.perf_counter() - began
    trained_run = Trained(
        datasets,
        level,
        record.history,
        model,
        untrained,
        _steps(record, config.choosing.keep),
        training=config.training,
        distance=config.evaluation.distance,
        batch_norm_items=config.batch.piece_size,
        seed=config.seed,
    )
    name_causes(diagnosed, trained_run)
    record.diagnosis = diagnosed
    record.seconds["evaluation"] = round(seconds, 3)
    return _written(run, record)


def _steps(record: RunRecord, keep: Which) -> int | None:
    """Steps from the untrained network to the one that is measured."""
    best = record.choosing.step if record.choosing and keep == "best" else None
    return next((step for step in (best, record.guard.snapshot) if step is not None), record.step)


def _written(run: RunFolder, record: RunRecord) -> RunRecord:
    run.write_record(record)
    write_run_report(record, run.path / REPORT)
    return record


def measure_split(
    record: RunRecord,
    name: str,
    dataset: Dataset,
    embeddings: np.ndarray,
    references: Mapping[str, np.ndarray],
    config: EvaluationConfig,
    *,
    level: str,
    chosen_by: str | None,
    prefixes: Sequence[int],
    normalize: bool,
    seed: int,
    trained: Collection[str] = (),
    cache: Path | None = None,
) -> None:
    """Evaluate a split beside its references, into the sections `MEASURED` of a record.

    Args:
        references: see `run_references`.
        level: the label level trained on.
        chosen_by: the measure by which a step was chosen; None where none was.
        prefixes, normalize, trained: see `at_prefixes`.
        cache: the folder where measures of the references are kept, see `baselines`.
    """
    arguments = dataset.evaluation_arguments(embeddings)
    by_level = evaluate(
        **arguments, measures=config.measures, nmi_plus_multiple=config.nmi_plus, seed=seed, distance=config.distance
    )
    record.intervals[name] = {key: intervals_json(value.intervals()) for key, value in by_level.items()}
    retrieved = {
        key: baseline_retrieval(known, dataset, _ranking(config), config.distance, cache)
        for key, known in references.items()
    }
    of_run = Evaluated(name="trained", levels={key: value.as_json() for key, value in by_level.items()})
    record.evaluation[name] = [of_run, *itertools.starmap(_evaluated, retrieved.items())]
    record.comparisons[name] = {
        level: _compared(result.retrieval, retrieved, level, trained) for level, result in by_level.items()
    }
    if chosen_by is not None and chosen_by != RECALL:
        record.chosen_comparisons[name] = {
            level: [
                _by_measure(chosen_by, compared)
                for compared in _compared(result.retrieval, retrieved, level, trained, chosen_by)
            ]
            for level, result in by_level.items()
        }
    record.prefixes[name] = at_prefixes(
        embeddings, references, dataset, config, prefixes, normalize=normalize, trained=trained, cache=cache
    )
    index = collapse_index(embeddings, dataset)
    if index is not None:
        record.collapse[name] = index
    related = dataset.related(level)
    subset, points = dataset.subset(related), embeddings[related]
    sample = map_sample(subset, config.map_points, seed=seed)
    record.maps[name] = dataset_items(subset).plane_map(points, sample, seed=seed)
    record.scatter[name] = triplet_scatter(points, subset, seed=seed)
    counts = {key: len(dataset.classes(key)) for key in dataset.labels if key not in dataset.numbers}
    retrieved_from = len(dataset) - 1 if dataset.protocol is None else len(dataset.protocol.retrieved)
    lines = void(counts, retrieved_from, config.measures)
    for key, result in by_level.items() if dataset.protocol is not None else ():
        if (retrieval := result.retrieval) is not None and key not in dataset.relations:
            named = replace(retrieval, labels=np.array(dataset.names[key])[retrieval.labels])
            lines += unanswerable(key, named, "correct or remove the column camera")
    notes = [f"{name}: {line}" for line in lines]
    record.warnings = [*dict.fromkeys([*record.warnings, *notes])]


def _ranking(how: EvaluationConfig) -> list[str]:
    return [measure for measure in how.measures if measure not in CLUSTERING]


def _evaluated(name: str, retrieved: Mapping[str, Retrieval]) -> Evaluated:
    return Evaluated(name=name, levels={level: {**result.mean()} for level, result in retrieved.items()})


def at_prefixes(
    embeddings: np.ndarray,
    references: Mapping[str, np.ndarray],
    dataset: Dataset,
    config: EvaluationConfig,
    prefixes: Sequence[int],
    *,
    normalize: bool,
    trained: Collection[str],
    cache: Path | None,
) -> list[AtPrefix]:
    """Evaluate the first numbers of each embedding beside as many of each reference, without its clusters.

    Pixels are no reference: their first ones are a corner of the picture.

    Args:
        references: name -> embeddings of the same items; those that are shorter than a prefix are left out there.
        prefixes: how many numbers.
        normalize: whether embeddings have length 1: each prefix, also of a reference, is then brought to it.
        trained: levels whose classes were trained on.
        cache: see `measure_split`.
    """
    ranking = _ranking(config)
    others = {name: rows for name, rows in references.items() if name != RAW or len(dataset.inputs.shape) == 1}
    sections = []
    for prefix in prefixes:
        cut = {
            name: unit_rows(torch.from_numpy(rows[:, :prefix])).numpy() if normalize else rows[:, :prefix]
            for name, rows in {"trained": embeddings, **others}.items()
            if rows.shape[1] >= prefix
        }
        of_run = retrieve_levels(
            **dataset.evaluation_arguments(cut.pop("trained")), measures=ranking, distance=config.distance
        )
        others_cut = {
            name: baseline_retrieval(rows, dataset, ranking, config.distance, cache) for name, rows in cut.items()
        }
        comparisons = {level: _compared(result, others_cut, level, trained) for level, result in of_run.items()}
        evaluated = list(itertools.starmap(_evaluated, {"trained": of_run, **others_cut}.items()))
        sections.append(AtPrefix(prefix=prefix, evaluated=evaluated, comparisons=comparisons))
    return sections


def _compared(
    of_run: Retrieval | None,
    references: Mapping[str, Mapping[str, Retrieval]],
    level: str,
    trained: Collection[str],
    measure: str = RECALL,
) -> list[RecallComparison]:
    """Recall@1, or another measure in its place, beside that of each reference, see `Comparison`."""
    assert of_run is not None
    known = level in trained
    compared = [
        compare_with_reference(of_run, levels[level], name=reference, level=level, measure=measure, known_classes=known)
        for reference, levels in references.items()
    ]
    return [RecallComparison.read(comparison_json(each)) for each in compared]


def _by_measure(measure: str, compared: RecallComparison) -> ChosenCompared:
    """A comparison by another measure than recall@1."""
    fields = {name: value for name, value in compared if name not in ("recall", "reference_recall", "rank_biased")}
    return ChosenCompared(measure=measure, value=compared.recall, reference_value=compared.reference_recall, **fields)


def collapse_index(embeddings: np.ndarray, dataset: Dataset) -> CollapseIndex | None:
    """The fine/coarse index of the two coarsest levels, whose first may be one of tags, by their sets; None of others,
    or of one coarse class."""
    if len(dataset.labels) < 2:
        return None
    coarse, fine, *_ = dataset.labels
    if fine in dataset.relations:
        return None
    if len(np.unique(dataset.labels[coarse])) < 2 or not _nested(dataset.labels[coarse], dataset.labels[fine]):
        return None
    index = fine_coarse_index(embeddings, dataset.labels[coarse], dataset.labels[fine])
    return CollapseIndex(coarse=coarse, fine=fine, index=index) if np.isfinite(index) else None


def _nested(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """True if some coarse class contains two fine ones, so that a distance between them exists."""
    pairs = np.unique(np.stack([coarse, fine], axis=1), axis=0)
    return bool((np.unique(pairs[:, 0], return_counts=True)[1] > 1).any())


def triplet_scatter(embeddings: np.ndarray, dataset: Dataset, *, seed: int) -> dict[str, ScatterRecord]:
    """Similarities of a sample of items to their nearest same-class and other-class item of the full set.

    Levels of tags or pairs have no classes, and are left out.
    """
    sections = {}
    for level, labels in dataset.labels.items():
        if level in dataset.relations:
            continue
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
