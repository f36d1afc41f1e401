"""`trivet forecast`: trains the first steps of a run and predicts its end, for one batch shape or a grid."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trivet.collapse.forecast import Forecast, pooled
from trivet.collapse.isometry import batch_hard_loss, diameter, diameter_bound
from trivet.collapse.monitor import CollapseMonitor
from trivet.commands.train.page import write_run_report
from trivet.datasets import Splits, load
from trivet.models import ModelConfig, tokenize_of
from trivet.reports.forecast_record import Bound, Cell, ForecastRecord, GridAxes, SeedRecord
from trivet.reports.monitor_record import Chance, EventRecord
from trivet.reports.page import significant
from trivet.reports.run_record import RunRecord
from trivet.runtime.arguments import check_count
from trivet.runtime.json_numbers import as_json
from trivet.runtime.progress import report, reporter
from trivet.runtime.text import typed
from trivet.samplers import BatchConfig
from trivet.training.components import check_before_data, first_task, in_steps
from trivet.training.config import RunConfig, resolved
from trivet.training.loop import NotFiniteError, fit
from trivet.training.run_folder import REPORT, RunFolder

SHARE, SHORT, LONG = 0.05, 20, 60  # of the steps of a run, and the fewest and most that a probe takes
FEWEST = 5
AXES = ("classes", "samples", "dim")


def forecast_run(
    config: RunConfig,
    *,
    steps: int | None = None,
    seeds: int = 1,
    data_root: Path | None = None,
) -> ForecastRecord:
    """Foretell the end of a run from its first steps, which are made and thrown away; nothing is written.

    Weights, batches and draws are those of the run itself. Several seeds, `config.seed` and those after it, are joined
    by `trivet.collapse.forecast.pooled`.

    Args:
        steps: of the probe, from 5 to `config.training.steps`. Default: 5 % of these, from 20 to 60, or all there are.
        seeds: runs to probe.
        data_root: where data sets lie, see `trivet.datasets.find_root`.

    Returns:
        `outlook` is "likely" from a probability of 0.8 on, "unlikely" up to 0.2, else "open"; numbers that are not
        finite are None, and so are `forecast` and `outlook` where a probe gave none.

        The bound is about the first batch before any step: its diameter less twice the loss of its hardest triplet, in
        plain distances of the embeddings as the loss gets them and without the margin; means over the seeds.

    Source:
        Xu et al., "Mathematical Justification of Hard Negative Mining via Isometric Approximation Theorem", ICLR 2024,
        equation (17); the forecast: `trivet.collapse.forecast`.
    """
    began = time.perf_counter()
    config = resolved(config)
    check_count(seeds, name="seeds")
    config, splits, steps = _read(config, steps, data_root)
    record = _forecast(config, splits, steps, seeds, _Counter(seeds * steps))
    record.seconds = round(time.perf_counter() - began, 3)
    return record


def forecast_grid(
    config: RunConfig,
    *,
    classes: Sequence[int] = (),
    samples: Sequence[int] = (),
    dims: Sequence[int] = (),
    steps: int | None = None,
    seeds: int = 1,
    data_root: Path | None = None,
) -> ForecastRecord:
    """The forecast of a run with each shape of batch and each dimension: the map of what collapses.

    Args:
        classes, samples: of each class, in a batch: at least 2.
        dims: of the embeddings: at least 1. An empty axis stays as in the settings.
        steps, seeds, data_root: as in `forecast_run`.

    Returns:
        The cells in the order of the axes; where a combination cannot be probed, `reason` says why.
    """
    began = time.perf_counter()
    config = resolved(config)
    check_count(seeds, name="seeds")
    batch, model = config.batch, config.model
    if batch.size is not None:
        raise ValueError(
            "a grid is of batches in classes: the settings shuffle them (batch.size); set batch.num_classes and "
            "batch.samples_per_class instead."
        )
    here = dict(zip(AXES, (batch.num_classes, batch.samples_per_class, model.embedding_dim), strict=True))
    requested = zip(AXES, (classes, samples, dims), (2, 2, 1), strict=True)
    axes = {axis: _axis(axis, values, low) or [here[axis]] for axis, values, low in requested}
    shapes = list(product(*axes.values()))
    config, splits, steps = _read(config, steps, data_root)
    counter = _Counter(len(shapes) * seeds * steps)
    cells = []
    for number, shape in enumerate(shapes):
        cell = Cell(**dict(zip(AXES, shape, strict=True)), forecast=None, outlook=None, bound=None, reason=None)
        try:
            forecast = _forecast(_shaped(config, splits, *shape), splits, steps, seeds, counter)
        except ValueError as error:
            cell.reason = " ".join(str(error).split())
        else:
            cell.forecast, cell.outlook, cell.bound = forecast.forecast, forecast.outlook, forecast.bound
            cell.reason = forecast.verdict if forecast.forecast is None else None
        cells.append(cell)
        counter.reach((number + 1) * seeds * steps)
    return ForecastRecord(
        steps=steps,
        of=config.training.num_steps,
        axes=GridAxes(**axes),
        here=here,
        cells=cells,
        seconds=round(time.perf_counter() - began, 3),
    )


def recorded_run(path: Path) -> RunFolder:
    """A run that `save_forecast` can add a forecast to."""
    run = RunFolder.open(path)
    if run.record() is None:
        raise ValueError(
            f"a run has a record once training has ended: {path} has none; resume with trivet train --resume "
            f"{typed(path)}."
        )
    return run


def save_forecast(run: RunFolder, forecast: ForecastRecord) -> str:
    """Put a forecast into the record of a run, in place of an older one, and write its page; returns its path."""
    with run.locked():
        record = run.record() or RunRecord()
        record.forecast = forecast
        run.write_record(record)
        write_run_report(record, run.path / REPORT)
    return str(run.path / REPORT)


def bound_of(batches: Sequence[tuple[Tensor, Tensor]]) -> Bound:
    """The bound of `forecast_run` from the untrained embeddings and labels of the first batch of each seed."""
    widths = [diameter(embeddings) for embeddings, _ in batches]
    losses = [batch_hard_loss(embeddings, labels) for embeddings, labels in batches]
    width, loss = statistics.fmean(widths), statistics.fmean(losses)
    bound = diameter_bound(width, loss)
    among = "the first batch" if len(batches) == 1 else f"the first batches of {len(batches)} seeds"
    source = "the bound of Xu et al. (ICLR 2024, equation 17)"
    sentence = (
        f"T{source[1:]} is vacuous: the diameter of {among}, {width:.3g}, less twice the loss of the hardest triplet, "
        f"{loss:.3g}, is {significant(bound)}, which every embedding exceeds."
        if bound <= 0
        else f"By {source} the nearest embedding that separates the classes of {among} is at least {bound:.3g} "
        f"wide: the diameter, {width:.3g}, less twice the loss of the hardest triplet, {loss:.3g}; training may end "
        "elsewhere."
    )
    return Bound(
        items=max(len(labels) for _, labels in batches),
        diameter=width,
        loss=loss,
        bound=bound,
        vacuous=bound <= 0,
        sentence=sentence,
    )


class _Counter:
    """Says how many steps of all probes are done."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def add(self) -> None:
        self.reach(self._done + 1)

    def reach(self, done: int) -> None:
        """Also where steps were left out."""
        self._done = done
        report("probing", done, self._total)


def probe_steps(config: RunConfig, steps: int | None) -> int:
    """Number of first steps that are trained to predict the end of a run: those asked for, or 5 %, from 20 to 60."""
    total = config.training.num_steps
    if steps is None:
        steps = min(total, max(SHORT, min(LONG, round(SHARE * total))))
    if total < FEWEST:
        raise ValueError(f"a probe needs a run of at least {FEWEST} steps: got training.steps = {total}; raise it.")
    if not FEWEST <= steps <= total:
        raise ValueError(
            f"steps of the probe must be a whole number from {FEWEST} to training.steps = {total}: got {steps}; the "
            f"default is 5 % of the run, from {SHORT} to {LONG}."
        )
    return steps


def _axis(axis: str, values: Sequence[int], low: int) -> list[int]:
    if values and min(values) < low:
        raise ValueError(
            f"{axis} of the grid must be whole numbers of at least {low}: got {min(values)}; leave it out."
        )
    return sorted(set(values))


def _read(config: RunConfig, steps: int | None, data_root: Path | None) -> tuple[RunConfig, Splits, int]:
    """The settings with their epochs counted in steps, the data, and the steps of the probe."""
    if config.training.epochs is None:
        probe_steps(config, steps)  # here, before what takes long
    check_before_data(config)
    splits = load(config.data, data_root, reporter("reading images"), tokenize=tokenize_of(config.model))
    config = in_steps(config, splits)
    return config, splits, probe_steps(config, steps)


def _shaped(config: RunConfig, splits: Splits, classes: int, samples: int, dim: int) -> RunConfig:
    """The settings with another shape of batch and another dimension."""
    most = int(np.unique(splits.train.labels[splits.level], return_counts=True)[1].max())
    if samples > most:
        raise ValueError(f"the largest class must have {samples} items: it has {most}; use fewer samples per class.")
    batch = {"num_classes": classes, "samples_per_class": samples}
    model = config.model.model_dump(exclude_unset=True) | {"embedding_dim": dim}
    return config.model_copy(
        update={
            "batch": BatchConfig.parse(config.batch.model_dump(exclude_unset=True) | batch, source="batch"),
            "model": ModelConfig.parse(model, source="model"),
        }
    )


def _forecast(config: RunConfig, splits: Splits, steps: int, seeds: int, counter: _Counter) -> ForecastRecord:
    probes, firsts = [], []
    for seed in range(config.seed, config.seed + seeds):
        monitor, forecast, first = _probe(config.model_copy(update={"seed": seed}), splits, steps, counter)
        probes.append((seed, monitor, forecast))
        firsts.append(first)
    known = [forecast for _, _, forecast in probes if forecast is not None]
    total = config.training.num_steps
    ahead = pooled(known) if len(known) == seeds else None
    if ahead is not None:
        verdict = (f"Mean of {seeds} seeds. " if seeds > 1 else "") + ahead.sentence
    else:
        after = f"the first {steps} of {total} steps" + (f" with each of {seeds} seeds" if seeds > 1 else "")
        verdict = f"No forecast: after {after} the embeddings were all equal or not finite."
    return ForecastRecord(
        steps=steps,
        of=total,
        forecast=None if ahead is None else Chance.read(as_json(ahead)),
        outlook=None if ahead is None else ahead.outlook,
        verdict=verdict,
        changes=[] if ahead is None or ahead.outlook == "unlikely" else _changes(config),
        bound=bound_of(firsts),
        seeds=[
            SeedRecord(
                seed=seed,
                forecast=None if forecast is None else Chance.read(as_json(forecast)),
                bound=bound_of([first]),
                events=[EventRecord.read(as_json(event)) for event in monitor.events],
                series=as_json(monitor.series),
            )
            for (seed, monitor, forecast), first in zip(probes, firsts, strict=True)
        ],
    )


def _probe(
    config: RunConfig, splits: Splits, steps: int, counter: _Counter
) -> tuple[CollapseMonitor, Forecast | None, tuple[Tensor, Tensor]]:
    """Make the first steps of a run: what a monitor saw and foretells, and what the loss got first."""
    monitor = CollapseMonitor(every=1, steps=config.training.num_steps)
    task, batches = first_task(config, splits.train, splits.level, steps=steps, after_step=counter.add, monitor=monitor)
    first: list[tuple[Tensor, Tensor]] = []

    def record_first(module: torch.nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        if not first:
            first.append((inputs[0].detach().float().cpu(), inputs[1].cpu()))

    with task.loss.register_forward_pre_hook(record_first):
        try:
            went_on = fit(task, batches, workers=config.training.workers)
        except NotFiniteError:
            return monitor, None, first[0]
    if not went_on:
        raise KeyboardInterrupt
    return monitor, monitor.forecast(), first[0]


def _changes(config: RunConfig) -> list[str]:
    """One to three things to change, with what they are now, the most effective first."""
    loss, batch, rate = config.loss, config.batch, config.training.learning_rate
    changes = []
    negatives = loss.negatives["name"] if isinstance(loss.negatives, dict) else loss.negatives
    if getattr(loss, "reduction", None) == "max":
        changes.append("Train on the mean over the batch, not on its hardest triplet: --set loss.reduction=mean.")
    if negatives == "hard":
        changes.append("Use semi-hard negatives instead of the hardest: --set loss.negatives=semihard-hardest.")
    shape = f"{batch.num_classes} x {batch.samples_per_class}" if batch.size is None else f"{batch.size} items"
    changes.append(
        f"Use smaller batches (now {shape}) or wider embeddings (now {config.model.embedding_dim}): --grid shows the "
        "effect."
    )
    changes.append(f"Lower the learning rate (now {rate:g}): --set training.learning_rate={rate / 3:.2g}.")
    return changes[:3]
