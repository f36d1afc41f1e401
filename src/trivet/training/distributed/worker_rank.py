"""What every process of a run but the main one does: it trains along."""

from __future__ import annotations

from contextlib import suppress

from trivet.training.checkpoint import put_state
from trivet.training.components import Components
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.loop import NotFiniteError, TrainState, fit


class WorkerRank:
    """Trains along with the main process, from where it says and as it says, until it says that it is done.

    It embeds its part of what the main process looks at. Nothing is measured, decided or written here: what the main
    process decides between two steps, it decides for all, and training stops at the same step in every process.
    """

    def __init__(self, parts: Components, world: ProcessGroup) -> None:
        self._parts, self._world = parts, world
        self._task: TrainState | None = None

    def follow(self) -> None:
        """Train along.

        Raises:
            LostError: if another process is gone.
        """
        parts, world = self._parts, self._world
        while (order := world.broadcast()) is not None:
            parts.guard.restore(order["guard"])
            parts.clean_as(parts.guard.settings)
            parts.cleaning.restore(order["cleaning"])
            parts.put_in_force(parts.guard.settings)
            self._task = task = parts.task(self._after_step)
            put_state(world.share(), parts.model, parts.loss, task.optimizer, parts.average)
            task.step = order["step"]
            task.precision.restore(order["precision"])
            with suppress(NotFiniteError):  # which the main process meets in the same step
                fit(task, parts.batches_from(task.step), workers=parts.settings.training.workers)

    def _after_step(self) -> None:
        assert self._task is not None
        if self._parts.looks_at(self._task.step):
            self._parts.choosing.embed_items(self._parts.measured, self._world.embed)
