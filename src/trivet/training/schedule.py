"""The learning rate over the steps of a run: a pure function of the step, so that a resumed run has the same rates."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from trivet.training.config import TrainingConfig


def rate_factor(step: int, config: TrainingConfig) -> float:
    """The factor of the learning rates at a step: a linear rise, times the schedule.

    With w warm-up steps of T in all, the rise is min(1, (step + 1) / (w + 1)), and the schedule

        constant      1
        linear        1 - t,                  t = max(0, step - w) / (T - w)
        cosine        (1 + cos(pi t)) / 2
        step          gamma ** floor(step / step_size)
        multi-step    gamma ** (the number of milestones up to the step)

    Args:
        step: optimiser steps done before.

    Source:
        Those of torch.optim.lr_scheduler: LinearLR for the rise, LinearLR, CosineAnnealingLR, StepLR, MultiStepLR.
    """
    rise = min(1.0, (step + 1) / (config.num_warmup_steps + 1))
    if config.schedule == "constant":
        return rise
    if config.schedule == "step":
        assert config.step_size is not None
        return rise * float(config.gamma ** (step // config.step_size))
    if config.schedule == "multi-step":
        assert config.milestones is not None
        return rise * float(config.gamma ** bisect_right(config.milestones, step))
    done = max(0, step - config.num_warmup_steps) / max(1, config.num_steps - config.num_warmup_steps)
    return rise * (1 - done if config.schedule == "linear" else float(0.5 * (1 + np.cos(np.pi * done))))
