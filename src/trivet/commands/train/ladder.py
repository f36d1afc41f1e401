"""`trivet train` of a ladder: candidates are compared on held-out items, and the best is trained on all."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from trivet.collapse.modes import reference_modes
from trivet.collapse.monitor import CollapseMonitor
from trivet.commands.train.candidates import ENCODER, TRAINED, Candidate, settings_of
from trivet.commands.train.run import train
from trivet.commands.train.sided_candidates import make_proposer
from trivet.commands.train.training_time import EndedEarlyError, TrainingTime
from trivet.config.plugins import settings_of as settings_in
from trivet.datasets import Splits
from trivet.datasets.equal_items import distinct_texts, with_positive
from trivet.datasets.holdout import LEAST_CLASSES, HoldoutUnit, hold_out_fold, holdout_unit, holds_items_out, num_units
from trivet.datasets.item_table import LabelledItems
from trivet.io.atomic_files import atomic_file, commit_new, filled_folder, write_atomic, write_json
from trivet.metrics.folds import class_folds, stratified_folds
from trivet.models import Embedder
from trivet.models.towers import SIDES, TOWERS
from trivet.reports.ladder_record import CandidateRecord, ConfirmedRecord, LadderRecord
from trivet.reports.run_record import RunRecord
from trivet.runtime.arrays import Integers
from trivet.runtime.caller import for_caller
from trivet.runtime.progress import announce, reporter, show_progress, work
from trivet.runtime.text import noun, typed
from trivet.training.checkpoint_selection import Scores, compare_scores, make_selection, selection_split
from trivet.training.class_sample import class_sample, evaluation_sample
from trivet.training.components import begun, check_before_data, load_splits, new_network, trained_on
from trivet.training.config import RunConfig, resolved
from trivet.training.embed_dataset import embed
from trivet.training.features import feature_seconds, uses_features, with_features
from trivet.training.ladder_config import LadderSettings, Rung
from trivet.training.run_folder import (
    CONFIG,
    ITEMS,
    LADDER,
    LADDER_CONFIG,
    NAMES,
    RunFolder,
    candidate_file,
    is_unfinished_ladder,
)

MINUTES, GPU_MINUTES = 4.0, 30.0
SEVERAL = 16  # held-out classes, from which on half of them choose; of fewer, half of the items of each
COARSE, MODE_ITEMS = 0.75, 40  # share of classes with several modes, and items of each that are looked at, at least
ENOUGH = 24  # held-out classes to choose and confirm by
MOST_FOLDS, ITEM_FOLDS = 8, 5
VALIDATION = "validation"
WHY: dict[Rung, str] = {  # a rung is tried
    "encoder": "as it is",
    "whitening": "evens out its directions",
    "joined": "two may know more than one",
    "head": "few numbers to learn",
    "fine-tuning": "learns most, takes longest",
    "scratch": "drawn or small images are unlike photographs",
}
FORECAST = 20  # steps after which a collapse of a pretrained network is foretold


def climb(
    settings: LadderSettings,
    path: Path,
    *,
    data_root: Path | None = None,
    force: bool = False,
    command: str = "",
    progress: bool = False,
    items: LabelledItems | None = None,
) -> RunRecord | None:
    """Try the candidates of a ladder, and train the best on all training items as the run in the folder `path`.

    Each candidate is trained without a part of the training classes and measured on these; of few classes each half is
    held out in turn. By half of the classes, of few of them half of their items, candidates are compared: of
    the encoders the one of the highest MAP@R is the best; anything else, the inputs as well, must be better beyond
    doubt, see `compare_scores`, and of these again the highest is the best. By the other half the best is compared with
    the encoder that it begins as: where its MAP@R is lower, or its recall@1 beyond doubt, this encoder is the result.
    What is evaluated chooses nothing.

    Args:
        items: what is trained on, if it lies in no file: the folder of the run gets one, which the settings name.

    Returns:
        the record of the run; None if a signal came while candidates were tried, and `resume_climb` goes on.

    Raises:
        ValueError, OSError: as `trivet.commands.train.run.train`.
    """
    settings = _resolved(settings)
    with filled_folder(
        path,
        NAMES,
        mark=LADDER_CONFIG if is_unfinished_ladder(path) else CONFIG,
        what="a run",
        force=force,
        ended=RunFolder(path).ended,
        go_on=f", or continue it with trivet train --resume {typed(path)}",
    ):
        write_atomic(path / LADDER_CONFIG, settings.to_toml(unset=False).encode())
        if items is not None:
            items.write(path / ITEMS)
        try:
            best = _tried(settings, path, data_root, progress=progress)
        except ValueError:
            if not (path / LADDER).exists():  # the settings do not fit the data: nothing is to be gone on with
                (path / LADDER_CONFIG).unlink()
                (path / ITEMS).unlink(missing_ok=True)
            raise
    return _trained(best, path, command, progress=progress)


def resume_climb(
    path: Path, *, data_root: Path | None = None, command: str = "", progress: bool = False
) -> RunRecord | None:
    """Go on with a ladder that was stopped; what was measured stays as it is. See `climb`."""
    with settings_in(path):
        settings = LadderSettings.read(path / LADDER_CONFIG)
    with RunFolder(path).locked():
        best = _tried(settings, path, data_root, progress=progress)
    return _trained(best, path, command, progress=progress)


def _tried(
    settings: LadderSettings, path: Path, data_root: Path | None, *, progress: bool
) -> tuple[RunConfig, Splits] | None:
    """The settings of the best of all candidates, and its data; None if a signal came before."""
    with show_progress("trying candidates", show=progress):
        try:
            ladder = Ladder(settings, path, data_root)
            config = ladder.climb()
            return config, ladder.load(config)
        except KeyboardInterrupt:
            return None


def _trained(best: tuple[RunConfig, Splits] | None, path: Path, command: str, *, progress: bool) -> RunRecord | None:
    """Train the best on all training items, outside of the lock of the folder, which a run takes itself."""
    if best is None:
        return None
    config, splits = best
    return train(config, path, command=command, progress=progress, splits=splits)


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


class Folds(NamedTuple):
    """Parts of the training items, of which the first `used` are held out, one after the other."""

    total: int
    used: int
    of: HoldoutUnit


class Ladder:
    """Candidates that are tried one after the other.

    Args:
        folder: of the run: `ladder.json` in it is what was measured, `candidates/` the settings and scores of each.

    Attributes:
        record: what was measured.

    Raises:
        ValueError: as `load_splits`.
    """

    def __init__(self, settings: LadderSettings, folder: Path, data_root: Path | None) -> None:
        self._settings, self._folder, self._root = settings, folder, data_root
        self._loaded: dict[str, Splits] = {}
        with work("reading the data"):
            values = {"data": settings.data.model_dump(exclude_unset=True), "loss": {"name": "triplet"}}
            if settings.data.item_kind == "images and texts":
                values["model"] = {"name": TOWERS, **{side: {"name": "linear"} for side in SIDES}}
            splits = self.load(RunConfig.parse(values, source="the data of a ladder"))
        announce(splits.summary)
        self._folds = validation_folds(splits)
        self._proposer = make_proposer(settings, splits.train, splits.level, self._usable_classes(splits))
        self._best: Candidate | None = None
        self._scores: dict[str, Scores] = {}
        self._time = TrainingTime(settings.ladder.minutes or (GPU_MINUTES if torch.cuda.is_available() else MINUTES))
        record = RunFolder(folder).ladder()
        self.record = record or LadderRecord(
            missing=self._proposer.missing,
            minutes=self._time.minutes,
            unit=self._proposer.train.unit(self._proposer.level),
        )
        self.record.folds_of = "classes" if self._folds is None else self._folds.of

    def climb(self) -> RunConfig:
        """Try the candidates of each rung; returns the settings of the best."""
        rungs: list[Rung] = []
        if self._folds is not None:
            rungs = [rung for rung in self._proposer.rungs if rung in self._settings.ladder.rungs and rung != ENCODER]
        else:
            self.record.reason = (
                f"Fewer than {LEAST_CLASSES} training classes: none can be held out, so nothing else was tried."
            )
        if not self.record.candidates:
            announce(self._time_line(trains=any(rung in TRAINED for rung in rungs)))
        self._climb_rung(ENCODER)
        self._count_modes()
        for rung in rungs:
            self._climb_rung(rung)
        if self._best is None:  # no encoder of images is at hand
            self._climb_rung("scratch")
        self._time.end = math.inf
        result = self._confirmed()
        self._write()
        return resolved(settings_of(result))

    def _count_modes(self) -> None:
        """Find out whether the labels are coarse: most classes have several modes in the best encoder.

        Modes of pixels or n-grams say nothing of what items mean.
        """
        for best in [each for each in self._ranked()[:1] if each.pretrained or self._proposer.kind == "vectors"]:
            config = resolved(settings_of(best))
            splits = self.load(config)
            if splits.level in splits.train.relations:  # nor do they of pairs, whose losses name no class
                return
            rows = class_sample(splits.train.labels[splits.level], config.evaluation.sample, least=MODE_ITEMS, seed=0)
            network, splits = begun(config, replace(splits, train=splits.train.subset(rows), evaluation={}))
            embeddings = embed(network, splits.train.inputs)
            modes = reference_modes(embeddings, splits.train.labels[splits.level])
            if np.mean(modes.counts > 1) > COARSE:
                self._proposer.coarse, self.record.modes = True, modes.mean

    def _time_line(self, *, trains: bool) -> str:
        """A sentence on how long it will take: features by a few of them, and the minutes that training may take."""
        features = 0.0
        for candidate in self._proposer.candidates(ENCODER, []):
            config = resolved(settings_of(candidate))
            if uses_features(config):
                check_before_data(config)
                with work(f"timing {candidate.name}"):
                    splits = self.load(config)
                    network = new_network(config, splits.train.inputs.shape)
                    seconds = feature_seconds(config, splits, network)
                    items = sum(map(len, (splits.train, *splits.evaluation.values())))
                    self._time.features[candidate.name] = seconds / items
                    features += seconds / 60
        text, minutes = f"features {features:.1f}", self._time.minutes
        if trains and features < minutes:
            text += f", candidates and the training of the best up to {max(0.1, minutes - features):.1f}"
        elif trains:
            text += for_caller(
                f", which leaves nothing of {minutes:g} for training: --minutes {2 * math.ceil(features)} does"
            )
        minutes = max(features, minutes if trains else 0.0)
        return f"About {max(0.1, minutes):.2g} {noun(minutes, 'minute')} and the evaluation: {text}."

    def _climb_rung(self, rung: Rung) -> None:
        """Try the candidates of a rung; of those that only train longer, while this gains on the best encoder."""
        gained = dict[str, float]()  # MAP@R of each that is above the encoder beyond doubt
        for candidate in self._proposer.candidates(rung, self._ranked()):
            if candidate.longer_than and candidate.longer_than not in gained:
                continue
            record = self._try(candidate)
            shorter = gained.get(candidate.longer_than, 0.0)
            if record.low is not None and record.low > 0 and (record.map_at_r or 0.0) > shorter:
                gained[candidate.name] = record.map_at_r or 0.0

    def _ranked(self) -> list[Candidate]:
        """The encoders as they are, the best first; inputs are the first only where they are better beyond doubt."""
        tried = {each.name: each for each in self.record.candidates if each.rung == ENCODER}
        encoders = [each for each in self._proposer.candidates(ENCODER, []) if each.name in tried]

        def order(encoder: Candidate) -> tuple[bool, float]:
            record = tried[encoder.name]
            if self._proposer.by_trained:
                of_encoder = [each.map_at_r or 0.0 for each in self.record.candidates if each.encoder == encoder.name]
                return False, -max(of_encoder)
            return not (encoder.pretrained or record.better), -(record.map_at_r or 0.0)

        return sorted(encoders, key=order)

    def _try(self, candidate: Candidate) -> CandidateRecord:
        """Measure a candidate, which becomes the best if it is better."""
        earlier = next((each for each in self.record.candidates if each.name == candidate.name), None)
        if earlier is not None:
            if earlier.recall is not None:
                self._scores[candidate.name] = _read_scores(candidate_file(self._folder, candidate.name, "npz"))
            if earlier.better:
                self._best = candidate
            return earlier
        record = CandidateRecord(name=candidate.name, rung=candidate.rung, encoder=candidate.encoder)
        left = f"{max(0.0, self._time.minutes - self.record.seconds / 60):.1f} of {self._time.minutes:g} minutes left"
        with work(f"trying {candidate.name} ({WHY[candidate.rung]}; {left})"):
            began = time.perf_counter()
            config = resolved(settings_of(candidate))
            try:
                check_before_data(config)
                if self._folds is not None:
                    self._measure(candidate, config, record)
                else:
                    record.better = self._best is None
            except EndedEarlyError as error:
                record.reason = str(error)
            except ValueError as error:
                if candidate.rung == "encoder":
                    raise
                record.reason = f"Not tried: {error}"
            record.seconds = round(time.perf_counter() - began, 1)
        if record.better:
            self._best = candidate
        write_atomic(candidate_file(self._folder, candidate.name, "toml"), config.to_toml().encode())
        self.record.candidates.append(record)
        self.record.seconds = round(self.record.seconds + record.seconds, 1)
        self._write()
        announce(candidate_line(record))
        return record

    def _measure(self, candidate: Candidate, config: RunConfig, record: CandidateRecord) -> None:
        """Train a candidate without each fold, and compare it with the best encoder on the half that chooses."""
        assert self._folds is not None
        limited, trainings = candidate.trained and self._best is not None, self._folds.used + 1  # of the best on all
        if limited:
            self._time.seconds = self.record.seconds
            self._time.end = time.perf_counter() + 60 * self._time.minutes - self.record.seconds
            self._time.check(candidate, config, trainings=trainings, items=len(self._proposer.train))
        folds = self._divided(self.load(config))
        if limited:
            self._time.check_steps(candidate, self._fitted(config, folds[0]), folds[0], trainings=trainings)
        scores = _pooled([self._fold_scores(config, splits, record) for splits in folds])
        self._scores[candidate.name] = scores
        _write_scores(candidate_file(self._folder, candidate.name, "npz"), scores)
        chosen = _half(scores, 0)
        self.record.items, self.record.classes = len(chosen.values), self._num_classes(chosen)
        record.map_at_r, record.recall = map(float, chosen.values.mean(axis=0))
        highest = max((each.map_at_r or 0.0 for each in self.record.candidates if each.better), default=-1.0)
        record.better = record.map_at_r > highest
        if ranked := self._ranked():
            difference = compare_scores(chosen, _half(self._scores[ranked[0].name], 0))
            record.against = ranked[0].name
            record.difference, record.low, record.high, _ = difference
            record.better &= candidate.pretrained or difference.better

    def _fold_scores(self, config: RunConfig, splits: Splits, record: CandidateRecord) -> Scores:
        """The scores of the items of a fold, by a network that was trained on the others."""
        if record.rung == ENCODER:  # which needs no other items than those that are measured
            sample, seed = config.evaluation.sample, config.seed
            queries = {name: evaluation_sample(items, sample, seed=seed) for name, items in splits.evaluation.items()}
            known = evaluation_sample(splits.train, sample, seed=seed)
            splits = replace(splits, train=known, evaluation=queries)
        if config.training.steps:
            config = self._fitted(config, splits)
            network = self._trained(config, splits, record)
            splits = with_features(config, splits, network)
            record.parameters = network.num_parameters
        else:
            network, splits = begun(config, splits)
        return make_selection(config.choosing, config.evaluation, splits, seed=config.seed).scores(network)

    def _trained(self, config: RunConfig, splits: Splits, record: CandidateRecord) -> Embedder:
        """The network of a candidate, trained.

        Raises:
            EndedEarlyError: if it takes longer than was estimated and the minutes are over, or if a pretrained network
                will collapse, by the forecast of its first steps.
        """
        steps = config.training.num_steps
        monitor = CollapseMonitor(every=1, steps=steps) if record.rung == "fine-tuning" else None

        def check(step: int) -> None:
            if monitor is not None and step == FORECAST and step < steps and self._time.end < math.inf:
                forecast = monitor.forecast()
                if forecast is not None and forecast.outlook == "likely":
                    raise EndedEarlyError(f"Ended after {step} of {steps} steps. {forecast.sentence}")
            if step < steps and time.perf_counter() > self._time.end:
                ended = for_caller(
                    f"Ended after {step} of {steps} steps: the {self._time.minutes:g} minutes are over, as it took "
                    "longer than its first steps let expect; --minutes gives more."
                )
                raise EndedEarlyError(ended)

        return trained_on(config, splits, splits.train, "step", monitor=monitor, after_step=check)

    def _divided(self, splits: Splits) -> list[Splits]:
        """The data without each fold, which is the only split that is evaluated."""
        if name := selection_split(splits):
            return [replace(splits, evaluation={name: splits.evaluation[name]})]
        assert self._folds is not None
        total, used, of = self._folds
        return [_without_fold(splits, total, fold, of) for fold in range(used)]

    def _confirmed(self) -> Candidate:
        """The best candidate, or its encoder where it is below that on the half that did not choose."""
        assert self._best is not None
        best = self._best
        self.record.best = self.record.result = best.name
        encoders = self._ranked()
        if self._folds is None or not encoders or best.rung == ENCODER:
            return best
        encoder = next((each for each in encoders if each.name == best.encoder), encoders[0])
        halves = [_half(self._scores[each.name], 1) for each in (best, encoder)]
        self.record.confirmed = _compared(encoder, halves[0], halves[1], self._num_classes(halves[0]))
        result = best if self.record.confirmed.passed else encoder
        self.record.result = result.name
        train, level = self._proposer.train, self._proposer.level
        enough = num_units(train, level) >= LEAST_CLASSES
        if enough and self._folds.of == "items" and result.trained and holdout_unit(train, level) == "classes":
            scores = [*map(self._new_class_scores, (result, encoder))]
            self.record.new_classes = _compared(encoder, scores[0], scores[1], self._num_classes(scores[0]))
        return result

    @property
    def _tags(self) -> bool:
        return self._proposer.train.has_tags(self._proposer.level)

    def _num_classes(self, scores: Scores) -> int | None:
        """The number of classes of some items; None where they have tags, or each is of its own."""
        classes = len(np.unique(scores.classes))
        return None if self._tags or classes == len(scores.classes) else classes

    def _new_class_scores(self, candidate: Candidate) -> Scores:
        """The scores of half of the classes, by a network that was trained on the others."""
        config = resolved(settings_of(candidate))
        splits = _without_fold(self.load(config), 2, 0, "classes")
        record = CandidateRecord(name=candidate.name, rung=candidate.rung)
        with work(f"measuring {candidate.name} on new classes"):
            return self._fold_scores(config, splits, record)

    def _fitted(self, config: RunConfig, splits: Splits) -> RunConfig:
        """The settings with batches of the classes that are there, of as many items, as other classes are held out."""
        return config.model_copy(update={"batch": config.batch.of_at_most(self._usable_classes(splits))})

    def _usable_classes(self, splits: Splits) -> int:
        """The number of classes that a batch may hold: of equal texts it has one, and a class needs two of it."""
        if self._settings.data.item_kind != "texts" or splits.level in splits.train.relations:
            return len(splits.train.classes(splits.level))
        labels = splits.train.labels[splits.level]
        return len(np.unique(labels[with_positive(distinct_texts(splits.train, splits.level).rows, labels)]))

    def load(self, config: RunConfig) -> Splits:
        """The data as a candidate takes them; of the last two sizes or kinds they are kept, as most take the same."""
        data = config.data.model_dump(mode="json")
        data["augment"] = data["augment"] == "random-resized-crop"  # of which images are read larger
        key = json.dumps([data, *config.model.tokens_key])
        if key not in self._loaded:
            self._loaded = dict([*self._loaded.items()][-1:])
            self._loaded[key] = load_splits(config, self._root, reporter("reading images"))
        self._loaded[key] = self._loaded.pop(key)
        return self._loaded[key]

    def _write(self) -> None:
        write_json(self._folder / LADDER, self.record.as_json())
        commit_new(self._folder)


def validation_folds(splits: Splits) -> Folds | None:
    """Folds by which candidates are compared; None where there are too few classes.

    Where most queries are of trained classes, a fifth of the items of each class is held out, of pairs a fifth of the
    queries; else an eighth of 192
    classes or more, 24 of fewer, and of fewer than 48 each half in turn.
    """
    if selection_split(splits) is not None:
        return Folds(1, 1, "classes")
    if holds_items_out(splits):
        return Folds(ITEM_FOLDS, 1, "items")
    classes = num_units(splits.train, splits.level)
    if classes < LEAST_CLASSES:
        return None
    if classes < 2 * ENOUGH:
        return Folds(2, 2, "classes")
    return Folds(min(MOST_FOLDS, classes // ENOUGH), 1, "classes")


def _without_fold(splits: Splits, folds: int, fold: int, of: HoldoutUnit) -> Splits:
    """The data without a fold of the training items, which alone is evaluated."""
    divided = hold_out_fold(splits, folds, fold, of)
    return replace(divided, evaluation={VALIDATION: divided.evaluation[VALIDATION]})


def _compared(encoder: Candidate, scores: Scores, others: Scores, classes: int | None) -> ConfirmedRecord:
    """The scores of a candidate beside those of its encoder."""
    difference = compare_scores(scores, others)
    (measure, recall), (other_measure, other_recall) = (each.values.mean(axis=0).tolist() for each in (scores, others))
    return ConfirmedRecord(
        items=len(scores.values),
        classes=classes,
        encoder=encoder.name,
        recall=recall,
        encoder_recall=other_recall,
        map_at_r=measure,
        encoder_map_at_r=other_measure,
        low=difference.low,
        high=difference.high,
        passed=difference.mean >= 0 and not difference.recall_lower,
    )


def _pooled(folds: Sequence[Scores]) -> Scores:
    """The scores of all folds; no class is in two."""
    numbers, total = list[Integers](), 0
    for scores in folds:
        numbers.append(np.unique(scores.classes, return_inverse=True)[1] + total)
        total += len(np.unique(scores.classes))
    return Scores(np.concatenate([scores.values for scores in folds]), np.concatenate(numbers), {})


def _half(scores: Scores, half: int) -> Scores:
    """The scores of the items of one half of the classes, or of one half of the items of each of few classes."""
    if len(np.unique(scores.classes)) < SEVERAL:
        rows = np.flatnonzero(stratified_folds(scores.classes, 2, np.random.default_rng(1)) == half)
    else:
        rows = class_folds(scores.classes, 2, seed=1)[half]
    return Scores(scores.values[rows], scores.classes[rows], {})


def _write_scores(path: Path, scores: Scores) -> None:
    with atomic_file(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, values=scores.values, classes=scores.classes)


def _read_scores(path: Path) -> Scores:
    with np.load(path, allow_pickle=False) as arrays:
        return Scores(arrays["values"], arrays["classes"], {})


def candidate_line(record: CandidateRecord) -> str:
    """A line on how a candidate did on the items that choose."""
    if record.recall is None:
        return f"{record.name}: {record.reason}".rstrip(": ")
    text = f"{record.name}: recall@1 {100 * record.recall:.1f}, MAP@R {100 * (record.map_at_r or 0):.1f}"
    if record.against:
        text += f", {'better' if record.better else 'not better'}"
    return f"{text} ({record.seconds:.0f} s)"
