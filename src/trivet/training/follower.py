"""What every process of a run but the main one does: it trains along."""

from __future__ import annotations

from contextlib import suppress

from trivet.training.checkpoint import put_state
from trivet.training.fit import NotFiniteError, fit
from trivet.training.parts import Parts
from trivet.training.world import World


def follow(parts: Parts, world: World) -> None:
    """Train along with the main process, from where it says and as it says, until it says that it is done.

    Nothing is measured, decided or written here. What the main process decides between two steps, it decides for all:
    training stops at the same step in every process.

    Raises:
        LostError: if another process is gone.
    """
    while (order := world.tell()) is not None:
        parts.guard.restore(order["guard"])
        parts.cleaning.restore(order["cleaning"])
        parts.put_in_force(parts.guard.settings)
        task = parts.task(lambda: None)
        put_state(world.share(), parts.model, parts.loss, task.optimizer, parts.average)
        task.step = order["step"]
        task.precision.restore(order["precision"])
        with suppress(NotFiniteError):  # which the main process meets in the same step
            fit(task, parts.batches_from(task.step), workers=parts.settings.training.workers)
