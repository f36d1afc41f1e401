"""Training in every process of a run but the main one."""

from __future__ import annotations

from contextlib import suppress

from trivet.training.components import Components
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.label_cleaning import CleaningState
from trivet.training.loop import NotFiniteError, fit


def follow_main(components: Components, world: ProcessGroup) -> None:
    """Train along with the main process, from the step and the state that it sends, until it sends none.

    This process embeds its rows of what the main process measures. Nothing is measured, decided or written here: what
    the main process decides between two steps, it decides for all, and training stops at the same step in every
    process.

    Raises:
        LostError: if another process is gone.
    """
    state, learner = components.state, components.state.learner

    def after_step() -> None:
        if components.measures_at(learner.step):
            state.selection.embed_items(learner.measured, world.embed)

    learner.after_step = after_step
    while (order := world.broadcast()) is not None:
        state.cleaning.load(CleaningState.read(order["cleaning"]))
        components.take_items()
        learner.load(world.share())
        learner.step = order["step"]
        learner.precision.load(order["precision"])
        with suppress(NotFiniteError):  # which the main process meets in the same step
            fit(learner, components.batches_from(learner.step), workers=components.config.training.workers)
