"""The time that trainings of a ladder take, and whether it is left."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from trivet.commands.train.candidates import Candidate
from trivet.datasets import Splits
from trivet.runtime.caller import for_caller
from trivet.training.components import first_task
from trivet.training.config import RunConfig
from trivet.training.ladder_config import Rung
from trivet.training.loop import fit

TIMED = 5  # steps by which the time of a candidate is estimated
FORWARD = 1 / 5  # share of the time of a step that is the forward pass, at least: short texts are padded in a batch


class EndedEarlyError(Exception):
    """A training that was not worth its end."""


@dataclass
class TrainingTime:
    """Time of trainings, each of which must end in the minutes of a ladder.

    Args:
        minutes: of trying.

    Attributes:
        seconds: that earlier candidates took.
        end: time at which a training that is tried must end.
        features: seconds of the features of an item, by the encoder, where they were timed.
        steps: seconds of a step, by the encoder and the rung.
    """

    minutes: float
    seconds: float = 0.0
    end: float = math.inf
    features: dict[str, float] = field(default_factory=dict)
    steps: dict[tuple[str, Rung], float] = field(default_factory=dict)

    def check(self, candidate: Candidate, config: RunConfig, *, trainings: int, items: int) -> None:
        """Check that a candidate may fit in what is left, before anything of it is prepared.

        The least that it takes is the forward pass, of which features, or an earlier candidate, say how long it is.

        Args:
            trainings: how many there are, each as long.
            items: to train on.

        Raises:
            EndedEarlyError: if it does not fit.
        """
        key = (candidate.encoder, candidate.rung)
        if key not in self.steps and candidate.rung == "fine-tuning":
            batch = min(config.batch.batch_size, items)
            self.steps[key] = self.features.get(candidate.encoder, 0.0) * batch / FORWARD
        self._check(self.steps.get(key, 0.0) * config.training.num_steps * trainings, FORWARD)

    def check_steps(self, candidate: Candidate, config: RunConfig, splits: Splits, *, trainings: int) -> None:
        """Check that a candidate fits in what is left, by its first steps.

        Args:
            splits: of the first of its trainings.
            trainings: how many there are, each as long.

        Raises:
            EndedEarlyError: if it does not fit.
        """
        steps = config.training.num_steps * trainings
        step = self.steps[candidate.encoder, candidate.rung] = _step_seconds(config, splits, steps, self.end)
        self._check(step * steps, 1.0)

    def _check(self, seconds: float, share: float) -> None:
        """Refuse a candidate of about so many seconds if a share of them is not left."""
        left = self.end - time.perf_counter()
        if max(0.0, share * seconds) <= left:
            return
        reason = f"Not tried: the {self.minutes:g} minutes are over; --minutes gives more."
        if seconds > 0:
            enough = math.ceil(1.2 * (self.seconds + seconds) / 60)
            reason = (
                f"Not tried: it takes about {max(0.1, seconds / 60):.1f} minutes, and of {self.minutes:g} minutes "
                f"{max(0.0, left / 60):.1f} are left; --minutes {enough} should be enough for it."
            )
        raise EndedEarlyError(for_caller(reason))


def _step_seconds(config: RunConfig, splits: Splits, steps: int, end: float) -> float:
    """The time that a step takes, by the first few; by fewer where all steps will clearly not end in time.

    Args:
        steps: how many are to be done.
        end: time at which they must have ended.
    """
    times = list[float]()

    def check() -> None:
        times.append(time.perf_counter())
        if FORWARD * steps * min(np.diff(times[1:]), default=0.0) > end - times[-1]:
            learner.should_stop = True

    learner, batches = first_task(config, splits.train, splits.level, steps=TIMED, after_step=check)
    times.append(time.perf_counter())
    if not fit(learner, batches):
        raise KeyboardInterrupt
    seconds = np.diff(times)
    return float(np.median(seconds[1:] if len(seconds) > 1 else seconds))  # the first takes longer
