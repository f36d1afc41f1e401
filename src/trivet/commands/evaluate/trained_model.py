"""`trivet evaluate RUN`: measures, diagnoses and reports the model of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.commands.diagnose.causes import Trained, name_causes
from trivet.commands.diagnose.inputs import of_dataset, some_items
from trivet.commands.diagnose.run import diagnosis_section
from trivet.commands.evaluate.baselines import FOLDER
from trivet.commands.evaluate.measure_run import MEASURED, measure_splits, run_references
from trivet.commands.train.page import write_run_report
from trivet.datasets import Splits
from trivet.datasets.download import find_root
from trivet.io.parquet_files import write_embeddings
from trivet.metrics.label_levels import void
from trivet.models import Embedder, TextEmbedder
from trivet.reports.diagnosis_record import DiagnosisSection
from trivet.reports.run_record import RunRecord
from trivet.runtime.progress import reporter, show_progress
from trivet.training.checkpoint import trained_to_the_end
from trivet.training.checkpoint_selection import monitored_split
from trivet.training.components import Components, in_steps, load_splits, untrained
from trivet.training.embed_dataset import embed, item_columns
from trivet.training.run_folder import REPORT, RunFolder, Which, trained_model
from trivet.training.run_log import first_record, record_progress

SELF_RETRIEVAL = "Here each item retrieves from all others that were diagnosed; the result follows queries and gallery."


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
        tokenize = (
            model.tokenizer if isinstance(model, TextEmbedder) else None
        )  # it needs no folder but that of the run
        if splits is None:
            splits = load_splits(config, data_root, reporter("reading images"), tokenize=tokenize)
        config = in_steps(config, splits)
        record = run.record() or first_record(run.name, splits, "", config.recorded(), config.warnings)
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
            before = untrained(config.model, config.data, splits.train, seed=config.seed)
        except ValueError as error:  # what it begins from is gone
            warning = f"Nothing is compared with the network before training, which cannot be made again: {error}"
            record.warnings = [*[text for text in record.warnings if text != warning], warning]
        return write_evaluation(run, record, splits, model, before, data_root=data_root)


def write_evaluation(
    run: RunFolder,
    record: RunRecord,
    splits: Splits,
    model: Embedder,
    untrained: Embedder | None,
    *,
    data_root: Path | None = None,
) -> RunRecord:
    """Evaluate a trained network and write embeddings, record and report; returns the record."""
    config = run.config()
    record = record.model_copy(update={name: {} for name in MEASURED})
    trained = splits.train.subset(some_items(splits.train, seed=config.seed))
    datasets = {"train": trained, **splits.evaluation}
    counts = {name: len(dataset) for name, dataset in datasets.items()} | {"train": len(splits.train)}
    diagnosed: dict[str, DiagnosisSection] = {}

    def store(name: str, embeddings: np.ndarray) -> None:
        dataset = datasets[name]
        write_embeddings(
            run.path / "embeddings" / f"{name}.parquet",
            embeddings,
            dataset.ids,
            item_columns([dataset]),
            levels=dataset.labels,
        )

    def diagnose(name: str, embeddings: np.ndarray, references: Mapping[str, np.ndarray]) -> None:
        dataset = datasets[name]
        if len(np.unique(dataset.labels[splits.level])) < 2:  # a single class has nothing to collapse into
            return
        rows = some_items(dataset, seed=config.seed)
        known = {key: every[rows] for key, every in references.items()}
        subject = of_dataset(run, name, dataset.subset(rows), splits.level, embeddings[rows], known)
        if len(rows) < counts[name]:
            subject = replace(subject, notes=(*subject.notes, f"{len(rows)} of {counts[name]} items were diagnosed."))
        # The record holds a map of each evaluation split already.
        points = config.evaluation.map_points if name == "train" else 0
        if dataset.protocol is not None:
            subject = replace(subject, notes=(*subject.notes, SELF_RETRIEVAL))
        diagnosed[name] = diagnosis_section(subject, seed=config.seed, map_points=points)

    model = model.cpu()
    began = time.perf_counter()
    embeddings = embed(model, trained.inputs, reporter("diagnosis"))
    if not np.isfinite(embeddings).all():
        record.warnings.append("The embeddings are not finite, so nothing was evaluated.")
        return _written(run, record)
    store("train", embeddings)
    diagnose("train", embeddings, run_references(untrained, trained))
    measure_splits(
        record,
        splits.evaluation,
        splits.level,
        model,
        untrained,
        config.evaluation,
        seed=config.seed,
        store=store,
        diagnose=diagnose,
        cache=find_root(data_root) / FOLDER,
        prefixes=config.loss.lengths(embeddings.shape[1])[:-1],
        normalize=config.model.normalize,
        chosen_by=config.choosing.counted_measure,
    )
    seconds = time.perf_counter() - began
    trained_run = Trained(
        datasets,
        splits.level,
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
    for name, dataset in splits.evaluation.items():
        counts_of = {level: len(np.unique(labels)) for level, labels in dataset.labels.items()}
        retrievable = len(dataset) - 1 if dataset.protocol is None else len(dataset.protocol.retrieved)
        notes = void(counts_of, retrievable, config.evaluation.measures)
        record.warnings = [*dict.fromkeys([*record.warnings, *(f"{name}: {line}" for line in notes)])]
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
