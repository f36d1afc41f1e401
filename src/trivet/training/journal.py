"""What a run writes during training: rows of `metrics.csv`, and its record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trivet.data import Dataset
from trivet.evaluation import retrieve_levels
from trivet.evaluation.inputs import Metric
from trivet.models import Embedder
from trivet.records import RunRecord
from trivet.rows import RowLoss
from trivet.training.embedding import embed
from trivet.training.fit import Task
from trivet.training.parts import Parts
from trivet.training.record import first_record
from trivet.training.run_folder import METRICS, Metrics, RunFolder

Show = Callable[[str, int, int, str], None]
"""Called with the title of a work, parts done, parts in all, and a note."""

STEP_COLUMNS = ["loss", "active", "hard", "d_ap", "d_an", "dropped"]


class Journal:
    """`metrics.csv` and `record.json` of a run while it trains.

    Args:
        step: optimiser steps done; rows of later ones are dropped.
        seconds: of training before a resume.

    Attributes:
        metrics: the rows.
        record: what is known of the run.
        stopped_by: the event that ended the training, as a line.
    """

    def __init__(self, run: RunFolder, parts: Parts, show: Show, command: str, *, step: int, seconds: float) -> None:
        self._run, self._parts, self._show = run, parts, show
        self._before, self._began = seconds, time.perf_counter()
        self._recall: dict[str, float] = {}
        self.stopped_by: str | None = None
        columns = [*STEP_COLUMNS, *(f"recall@1/{level}" for level in parts.sample.labels)]
        earlier = run.record()
        self.metrics = Metrics(
            run.path / METRICS, columns, upto=step, attempt=parts.guard.attempt, known=_rows_known(earlier)
        )
        self.record = first_record(run, parts.config, parts.splits, command)
        self.record["forecast"] = earlier and earlier["forecast"]  # one that was made of this run stays with it
        self.record["warnings"] += parts.model.notes
        self.record["warnings"] += parts.cleaning.warnings(parts.config.training.steps)
        self.record["model"] = {"parameters": parts.model.num_parameters}
        self.cover()

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._before + time.perf_counter() - self._began

    def start_clock(self) -> None:
        """Count the seconds of training from now."""
        self._began = time.perf_counter()

    def cover(self) -> None:
        """Note how much of the data the batches in force reach."""
        self.record["data"]["coverage"] = dict(self._parts.batches.coverage(0)._asdict())

    def note_step(self, task: Task) -> None:
        """Add a row and show progress, and measure recall@1, where the settings say so."""
        config, step = self._parts.settings, task.step
        last = step == config.training.steps
        values: dict[str, float] = {}
        if step % config.training.log_every == 0 or last:
            values |= step_values(self._parts.loss, task.value)
        if step % config.evaluation.every == 0 or last:
            self._recall = recall_of(self._parts.model, self._parts.sample, config.evaluation.distance)
            values |= {f"recall@1/{level}": share for level, share in self._recall.items()}
        if values:
            self.metrics.add(step, values)
            self._show("training", step, config.training.steps, self._note(task))

    def _note(self, task: Task) -> str:
        done = self._parts.loss.last
        assert done is not None
        note = (
            f"loss {task.value:.4f}  active {100 * done.active_fraction:.0f} %  "
            f"d_ap {done.mean_to_positive:.3f}  d_an {done.mean_to_negative:.3f}"
        )
        return note + "".join(f"  R@1 {level} {100 * share:.1f} %" for level, share in self._recall.items())

    def write(self, **known: Any) -> None:
        """Write the record with what is known by now, such as `status`."""
        parts, record = self._parts, self.record
        record |= known
        record["curves"] = self.metrics.series(*STEP_COLUMNS)
        recalls = [column for column in self.metrics.columns if column.startswith("recall@1/")]
        looks = self.metrics.series(*recalls)
        record["validation"] = {
            "split": parts.split,
            "items": len(parts.sample),
            "step": looks.pop("step"),
            "attempt": looks.pop("attempt"),
            "recall@1": {column.removeprefix("recall@1/"): values for column, values in looks.items()},
        }
        record["history"] = parts.history.as_json()
        record["label_noise"] = {"strategy": parts.picks.as_json()}
        stopped = {} if self.stopped_by is None else {"stopped_by": self.stopped_by}
        record["guard"] = parts.guard.as_json() | stopped
        record["monitor"] = parts.guard.seen()
        record["cleaning"] = parts.cleaning.as_json()
        record["choosing"] = parts.choosing.as_json(parts.split)
        record["seconds"]["training"] = round(self.seconds, 3)
        self._run.write_record(record)


def _rows_known(record: RunRecord | None) -> list[tuple[float, float]]:
    """Attempts and steps of the rows that `metrics.csv` had when the record was written."""
    if record is None:
        return []
    parts = (record["curves"], record["validation"])
    return sorted({place for part in parts for place in zip(part["attempt"], part["step"], strict=False)})


def step_values(loss: RowLoss, value: float) -> dict[str, float]:
    """A row of `metrics.csv` from the loss's record of its last step; a distance that was not measured is left out."""
    done = loss.last
    assert done is not None
    values = {
        "loss": value,
        "active": done.active_fraction,
        "hard": done.hard_fraction,
        "d_ap": done.mean_to_positive,
        "d_an": done.mean_to_negative,
        "dropped": float(sum(done.dropped.values())),
    }
    return {name: number for name, number in values.items() if np.isfinite(number)}


def recall_of(model: Embedder, sample: Dataset, distance: Metric) -> dict[str, float]:
    """Recall@1 of a sample at each level; empty where embeddings are not finite."""
    embeddings = embed(model, sample.inputs)
    if not np.isfinite(embeddings).all():
        return {}
    found = retrieve_levels(**sample.asked(embeddings), measures=("recall@1",), distance=distance)
    return {level: retrieved.mean()["recall@1"] for level, retrieved in found.items()}
