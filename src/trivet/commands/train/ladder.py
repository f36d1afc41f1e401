"""`trivet train` of a ladder: tries candidates, each on held-out items beside the best before it, and keeps the best."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trivet.collapse.alarms import COLLAPSED, Event
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.candidates import Candidate, Proposer, settings_of
from trivet.commands.train.run import resume, train
from trivet.config.plugins import settings_of as settings_in
from trivet.datasets import DataConfig, Splits
from trivet.datasets.dataset import holds_items_out
from trivet.io.atomic_files import commit_new, filled_folder, locked_folder, write_atomic, write_json
from trivet.metrics.folds import class_folds
from trivet.models import Embedder
from trivet.reports.ladder_record import CandidateRecord, ConfirmedRecord, LadderRecord
from trivet.reports.run_record import RunRecord, SelectionCheck
from trivet.runtime.progress import announce, reporter, show_progress, work
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import counted, typed
from trivet.training.checkpoint_selection import Scores, compare_scores, make_selection, selection_split
from trivet.training.components import begun, check_before_data, load_splits
from trivet.training.config import RunConfig, resolved
from trivet.training.features import with_features
from trivet.training.guard import event_line
from trivet.training.ladder_config import RUNGS, LadderSettings
from trivet.training.run_folder import CANDIDATES, CONFIG, LADDER, LADDER_CONFIG, NAMES, RunFolder, trained_model

MINUTES, GPU_MINUTES = 4.0, 30.0
FEW_CLASSES = 6  # to train on, below which none can be held out to choose by
HELD_OUT = 24  # classes that are held out of many
ITEM_FOLDS = 5
OVER = "the time was over"


def climb(
    settings: LadderSettings,
    path: Path,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
) -> RunRecord | None:
    """Try the candidates of a ladder; the best becomes the run in the folder `path`, evaluated as any.

    The items that are held out of training are cut in two halves, of different classes. By the first the step of each
    candidate is chosen, and a candidate among the others: it is better than the best before it by the rule of
    `training.checkpoint_selection`. By the other half the best is compared with the encoder that it begins as; where it
    is below it, this encoder is the result. What is evaluated chooses nothing.

    Returns:
        the record of the run; None if a signal came before, and `resume_climb` goes on.

    Raises:
        ValueError, OSError: as `trivet.commands.train.run.train`.
    """
    settings = _resolved(settings)
    with filled_folder(
        path,
        NAMES,
        mark=CONFIG if (path / CONFIG).exists() else LADDER_CONFIG,
        what="a run",
        force=force,
        ended=RunFolder(path).ended,
        go_on=f", or continue it with trivet train --resume {typed(path)}",
    ):
        write_atomic(path / LADDER_CONFIG, settings.to_toml().encode())
        try:
            ended = _climbed(settings, path, data_root, command, progress=progress)
        except ValueError:
            if not (path / LADDER).exists():  # the settings do not fit the data: nothing is to be gone on with
                (path / LADDER_CONFIG).unlink()
            raise
    return _evaluated(path, data_root, progress=progress) if ended else None


def resume_climb(
    path: Path, *, data_root: Path | None = None, command: str = "", progress: bool = False
) -> RunRecord | None:
    """Go on with a ladder that was stopped; what was tried stays as it is. See `climb`."""
    with settings_in(path):
        settings = LadderSettings.read(path / LADDER_CONFIG)
    with locked_folder(path, NAMES, what="a run", ended=RunFolder(path).ended):
        ended = _climbed(settings, path, data_root, command, progress=progress)
    return _evaluated(path, data_root, progress=progress) if ended else None


def is_unfinished(path: Path) -> bool:
    """True if a folder holds a ladder whose result is not there yet."""
    return (path / LADDER_CONFIG).is_file() and not (path / CONFIG).is_file()


def _climbed(settings: LadderSettings, path: Path, data_root: Path | None, command: str, *, progress: bool) -> bool:
    """Try all candidates and make the best the run; returns False if a signal came before."""
    with show_progress("trying candidates", show=progress):
        try:
            ladder = Ladder(settings, path, data_root)
            ladder.climb()
            ladder.finish(command)
        except KeyboardInterrupt:
            return False
    return True


def _evaluated(path: Path, data_root: Path | None, *, progress: bool) -> RunRecord:
    config = RunFolder(path).config()
    with show_progress("evaluation", show=progress):
        splits = load_splits(config, data_root, reporter("reading images"))
        chosen_by = selection_split(splits)
        evaluation = {name: items for name, items in splits.evaluation.items() if name != chosen_by}
        return evaluate_run(
            path, data_root=data_root, progress=progress, splits=replace(splits, evaluation=evaluation or splits.evaluation)
        )


def _resolved(settings: LadderSettings) -> LadderSettings:
    """The settings with absolute paths, as `resolved`."""
    ladder = settings.ladder
    paths = {
        "weights": {name: file.resolve() for name, file in ladder.weights.items()},
        "start": tuple(folder.resolve() for folder in ladder.start),
    }
    files = {name: value.resolve() for name, value in settings.data if isinstance(value, Path)}
    return settings.model_copy(
        update={"ladder": ladder.model_copy(update=paths), "data": settings.data.model_copy(update=files)}
    )


@dataclass(frozen=True)
class _Tried:
    """A candidate that was measured."""

    candidate: Candidate
    scores: Scores


class Ladder:
    """Candidates that are tried one after the other.

    Args:
        folder: of the run; `candidates/` in it holds what was trained.
    """

    def __init__(self, settings: LadderSettings, folder: Path, data_root: Path | None) -> None:
        self._folder, self._root = folder, data_root
        self._splits: dict[str, Splits] = {}
        self._networks: dict[str, Embedder] = {}
        data, splits = self._held_out(settings.data)
        self.settings = settings.model_copy(update={"data": data})
        self._chooses = selection_split(splits)
        self._proposer = Proposer(self.settings, splits.train, splits.level)
        self.record = self._begun(splits)
        self._best: _Tried | None = None

    def _held_out(self, data: DataConfig) -> tuple[DataConfig, Splits]:
        """The settings with a fold of the training items held out, and the data as these divide them."""
        with work("reading the data"):
            splits = self._load(data, {})
        if selection_split(splits) is not None or data.folds is not None:
            return data, splits
        classes = len(np.unique(splits.train.labels[splits.level]))
        folds: dict[str, Any] = {"folds": 0}
        if holds_items_out(splits):
            folds = {"folds": ITEM_FOLDS, "folds_of": "items"}
        elif classes >= FEW_CLASSES:
            folds = {"folds": 2 if classes < 2 * FEW_CLASSES else int(np.clip(round(classes / HELD_OUT), 3, 8))}
        data = DataConfig.parse(data.model_dump(exclude_unset=True) | folds, source="data")
        return data, self._load(data, {})

    def _load(self, data: DataConfig, model: dict[str, Any]) -> Splits:
        """The data of candidates whose items are read alike, read once."""
        values = {"data": data.model_dump(), "loss": {"name": "triplet"}}
        text = model if str(model.get("name", "")).startswith("text:") else {}
        key = json.dumps([data.model_dump(mode="json"), text.get("name"), text.get("prefix")])
        if key not in self._splits:
            config = RunConfig.parse({**values, **({"model": model} if text else {})}, source="data")
            self._splits = {key: load_splits(config, self._root, reporter("reading images"))}
        return self._splits[key]

    def _begun(self, splits: Splits) -> LadderRecord:
        """The record of what was tried before, or a new one."""
        file = self._folder / LADDER
        if file.is_file():
            return LadderRecord.read(read_json(file, "the record of a ladder"))
        record = LadderRecord(missing=self._proposer.missing, minutes=self._minutes)
        if self._chooses is not None:
            choosing = self._half(splits, 0).evaluation[self._chooses]
            of_items = self.settings.data.folds_of == "items" or self._chooses != "validation"
            record.held_out = "items" if of_items else "classes"
            record.items, record.classes = len(choosing), len(np.unique(choosing.labels[splits.level]))
        return record

    @property
    def _minutes(self) -> float:
        return self.settings.ladder.minutes or (GPU_MINUTES if torch.cuda.is_available() else MINUTES)

    def _half(self, splits: Splits, half: int) -> Splits:
        """The splits with one half of the held-out items, by class, as the only ones to evaluate."""
        if self._chooses is None:
            return splits
        items = splits.evaluation[self._chooses]
        rows = class_folds(items.labels[splits.level], 2, seed=1)[half]
        return replace(splits, evaluation={self._chooses: items.subset(rows)})

    def climb(self) -> None:
        """Try the candidates of each rung."""
        ladder, tried = self.settings.ladder, list[_Tried]()
        rungs = [rung for rung in RUNGS if rung in ladder.rungs] if self._chooses is not None else ["encoder"]
        for rung in rungs:
            ranked = self._ranked(tried)
            for candidate in self._proposer.candidates(rung, ranked):
                one = self._try(candidate)
                if one is not None and rung == "encoder":
                    tried.append(one)
        if self._best is None:
            for candidate in self._proposer.candidates("scratch", []):
                self._try(candidate)
        if self._best is None:
            raise ValueError(
                "a ladder needs something to try: no pretrained encoder is on this machine; download one with trivet "
                "encoders --download, give its weights with --weights NAME=FILE, or let ladder.rungs have scratch."
            )
        self._confirm()

    def _ranked(self, tried: Sequence[_Tried]) -> list[Candidate]:
        """The encoders as they are, the best first."""
        if self._best is None:
            return []
        others = sorted(tried, key=lambda one: -float(one.scores.values[:, 0].mean()))
        encoder = self._best.candidate.encoder
        return sorted((one.candidate for one in others), key=lambda candidate: candidate.name != encoder)

    def _try(self, candidate: Candidate) -> _Tried | None:
        """Measure a candidate, and make it the best if it is better beyond doubt; None if there is nothing to measure."""
        earlier = next((item for item in self.record.candidates if item.name == candidate.name), None)
        if earlier is not None and earlier.recall is None:
            return None
        record = earlier or CandidateRecord(name=candidate.name, rung=candidate.rung, encoder=candidate.encoder)
        began = time.perf_counter()
        if earlier is None and candidate.trained and self._best is not None and self._over(0):
            record.reason = f"Not tried, as the {self._minutes:g} minutes were over."
            self._note(record)
            return None
        with work(f"trying {candidate.name}"):
            try:
                network, scores = self._measured(candidate, record)
            except ValueError as error:
                if candidate.rung == "encoder":
                    raise
                record.reason = f"Not tried: {error}"
                self._note(record)
                return None
        one = _Tried(candidate, scores)
        if earlier is not None:
            if earlier.better or self._best is None:
                self._best = one
            return one
        record.recall, record.map_at_r = (float(scores.values[:, column].mean()) for column in (1, 0))
        if self._best is not None:
            difference = compare_scores(scores, self._best.scores)
            record.against = self._best.candidate.name
            record.difference, record.low, record.high, record.better = difference
        if self._best is None or record.better:
            self._best = one
        record.seconds = round(time.perf_counter() - began, 1)
        self._note(record)
        return one

    def _measured(self, candidate: Candidate, record: CandidateRecord) -> tuple[Embedder, Scores]:
        """The network of a candidate, trained if it is to be, and its scores on the half that chooses."""
        config = resolved(settings_of(candidate, chooses=self._chooses is not None))
        check_before_data(config)
        record.dimensions = config.model.embedding_dim
        splits = self._half(self._load(config.data, candidate.values.get("model", {})), 0)
        if not candidate.trained:
            network, splits = begun(config, splits)
        else:
            run = self._trained(candidate, config, splits)
            record.step = run.choosing.step if run.choosing is not None else run.step
            if run.guard.stopped_by is not None:
                record.reason = f"Stopped at step {run.step}: {run.guard.stopped_by}."
            network = trained_model(RunFolder(self._run(candidate)))
            splits = with_features(config, splits, network)
            record.parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
        return network, make_selection(config.choosing, config.evaluation, splits, seed=config.seed).scores(network)

    def _trained(self, candidate: Candidate, config: RunConfig, splits: Splits) -> RunRecord:
        path, limited = self._run(candidate), candidate.rung == "fine-tuning"

        def watch(checks: Sequence[SelectionCheck], events: Sequence[Event]) -> str | None:
            collapsed = next((e for e in events if e.kind in COLLAPSED and not e.suspected), None)
            if collapsed is not None:
                return event_line(collapsed)
            return OVER if limited and self._over(self._seconds) else None

        self._seconds = time.perf_counter()
        record = RunFolder(path).record() if (path / CONFIG).is_file() else None
        if record is None:
            shutil.rmtree(path, ignore_errors=True)
            record = train(config, path, splits=splits, watch=watch)
        elif record.status not in ("finished", "stopped"):
            record = resume(path, splits=splits, watch=watch)
        if record.status == "interrupted":
            raise KeyboardInterrupt
        return record

    def _over(self, began: float) -> bool:
        """True if the time for trying is over.

        Args:
            began: of the present candidate; 0 if there is none.
        """
        return self.record.seconds + (time.perf_counter() - began if began else 0) > 60 * self._minutes

    def _run(self, candidate: Candidate) -> Path:
        return self._folder / CANDIDATES / "".join(c if c.isalnum() or c in "-_." else "-" for c in candidate.name)

    def _note(self, record: CandidateRecord) -> None:
        """Add a candidate to what was tried, and say how it did."""
        self.record.candidates.append(record)
        self.record.seconds = round(self.record.seconds + record.seconds, 1)
        write_json(self._folder / LADDER, self.record.as_json())
        commit_new(self._folder)
        announce(candidate_line(record))

    def _confirm(self) -> None:
        """Compare the best with its own encoder on the other half."""
        assert self._best is not None
        best = self._best.candidate
        self.record.best = self.record.result = best.name
        if self._chooses is None or not best.encoder or best.name == best.encoder:
            return
        encoder = next(one for one in self._proposer.candidates("encoder", []) if one.name == best.encoder)
        with work("confirming the best"):
            scores, others = (self._confirmed_scores(candidate) for candidate in (best, encoder))
        (measure, recall), (other_measure, other_recall) = scores.values.mean(axis=0), others.values.mean(axis=0)
        passed = bool(measure >= other_measure and recall >= other_recall)
        self.record.confirmed = ConfirmedRecord(
            items=len(scores.values),
            classes=len(np.unique(scores.classes)),
            encoder=encoder.name,
            recall=float(recall),
            encoder_recall=float(other_recall),
            map_at_r=float(measure),
            encoder_map_at_r=float(other_measure),
            passed=passed,
        )
        if not passed:
            self.record.result = encoder.name
            self._best = _Tried(encoder, others)

    def _confirmed_scores(self, candidate: Candidate) -> Scores:
        config = resolved(settings_of(candidate, chooses=True))
        splits = self._half(self._load(config.data, candidate.values.get("model", {})), 1)
        if candidate.trained:
            network = trained_model(RunFolder(self._run(candidate)))
            splits = with_features(config, splits, network)
        else:
            network, splits = begun(config, splits)
        return make_selection(config.choosing, config.evaluation, splits, seed=config.seed).scores(network)

    def finish(self, command: str) -> None:
        """Make the run of the best candidate that of the folder; of the others their settings stay."""
        assert self._best is not None
        result = self._best.candidate
        path = self._run(result)
        config = resolved(settings_of(result, chooses=self._chooses is not None))
        if not (path / CONFIG).is_file():
            splits = self._half(self._load(config.data, result.values.get("model", {})), 0)
            train(config, path, splits=splits, watch=lambda *_: None)
        run = RunFolder(path)
        record = run.record()
        assert record is not None
        if record.guard.stopped_by is not None and record.step:
            run.change([f"training.steps={record.step}"])
            record.settings["training"]["steps"] = record.step
        record.guard.stopped_by, record.status = None, "finished"
        record.run, record.command, record.ladder = RunFolder(self._folder).name, command, self.record
        run.write_record(record)
        for folder in (self._folder / CANDIDATES).iterdir():
            if folder.is_dir() and folder != path:
                (folder / CONFIG).rename(folder.with_suffix(".toml"))
                shutil.rmtree(folder)
        for item in sorted(path.iterdir(), key=lambda item: item.name == CONFIG):  # the settings last: then all is there
            item.rename(self._folder / item.name)
        path.rmdir()
        (self._folder / LADDER).unlink()


def candidate_line(record: CandidateRecord) -> str:
    """A line on how a candidate did."""
    if record.recall is None:
        return f"{record.name}: {record.reason}"
    text = f"{record.name}: recall@1 {100 * record.recall:.1f}, MAP@R {100 * (record.map_at_r or 0):.1f}"
    if record.against:
        text += ", better than" if record.better else ", not surely better than"
        text += f" {record.against}"
    return f"{text} ({record.seconds:.0f} s)"
