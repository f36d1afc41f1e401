"""The learning rate over the steps of a run: a pure function of the step, so that a resumed run has the same rates."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from trivet.training.config import TrainingConfig

Schedule = Literal["constant", "linear", "cosine", "step", "multi-step"]
TO_THE_END = ("linear", "cosine")  # their rates depend on the number of steps, from the first step on


def rate_factor(step: int, config: TrainingConfig, *, since: int = 0) -> float:
    """What the learning rates are multiplied with at a step: a linear rise, times the schedule.

    With w warm-up steps of T in all, the rise is min(1, (step - since + 1) / (w + 1)), and the schedule

        constant      1
        linear        1 - t,                  t = max(0, step - w) / (T - w)
        cosine        (1 + cos(pi t)) / 2
        step          gamma ** floor(step / step_size)
        multi-step    gamma ** (the number of milestones up to the step)

    Args:
        step: optimiser steps done before.
        since: the step from which the rise counts; the schedule counts from the first in any case.

    Source:
        Those of torch.optim.lr_scheduler: LinearLR for the rise, LinearLR, CosineAnnealingLR, StepLR, MultiStepLR.
    """
    rise = min(1.0, (step - since + 1) / (config.warmup_steps + 1))
    if config.schedule == "constant":
        return rise
    if config.schedule == "step":
        assert config.step_size is not None
        return rise * float(config.gamma ** (step // config.step_size))
    if config.schedule == "multi-step":
        assert config.milestones is not None
        return rise * float(config.gamma ** bisect_right(config.milestones, step))
    done = max(0, step - config.warmup_steps) / max(1, config.num_steps - config.warmup_steps)
    return rise * (1 - done if config.schedule == "linear" else float(0.5 * (1 + np.cos(np.pi * done))))


def check_schedule(config: TrainingConfig) -> None:
    """Raises ValueError if the schedule lacks a setting, has one that it does not use, or reaches past the end."""
    schedule = config.schedule
    if schedule == "step" and config.step_size is None:
        raise ValueError("the schedule step needs step_size, the steps between two falls of the learning rate; add it.")
    if schedule == "multi-step" and config.milestones is None:
        raise ValueError("the schedule multi-step needs milestones, the steps at which the rate falls; add them.")
    if config.step_size is not None and schedule != "step":
        raise ValueError(f"step_size is for the schedule step only: remove it for {schedule}.")
    if config.milestones is not None and schedule != "multi-step":
        raise ValueError(f"milestones are for the schedule multi-step only: remove them for {schedule}.")
    if config.gamma != type(config).model_fields["gamma"].default and schedule not in ("step", "multi-step"):
        raise ValueError(f"gamma is for the schedules step and multi-step only: remove it for {schedule}.")
    milestones = list(config.milestones or ())
    if milestones != sorted(set(milestones)):
        raise ValueError(f"milestones must ascend, each once: got {milestones}; sort them.")
    if config.steps is None:  # epochs: it is checked again once they are counted in steps
        return
    last = {
        "warmup_steps": config.warmup_steps,
        "step_size": config.step_size or 0,
        "milestones": max([0, *milestones]),
    }
    for name, step in last.items():
        if step >= config.steps:
            raise ValueError(
                f"{name} must lie before the end of the training, {config.steps} steps: got {step}; lower it, or train "
                "longer."
            )
