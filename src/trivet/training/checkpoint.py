"""The state of a run, and checkpoints of it: all tensors and numbers in one safetensors file. Nothing is pickled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from trivet.io.atomic_files import write_atomic
from trivet.reports.history_record import Moment
from trivet.runtime.record import Number, Record
from trivet.runtime.safe_read import parse_json
from trivet.training.checkpoint_selection import CheckpointSelection, SelectionState, patience_end
from trivet.training.guard import Guard
from trivet.training.history import History
from trivet.training.label_cleaning import CleaningState, LabelCleaning
from trivet.training.loop import Learner, named_tensors, tensors_of
from trivet.training.run_folder import RunFolder
from trivet.training.sampling_log import SamplingLog

RETAINED = 2  # newest checkpoints of a run that stay


class SavedState(Record):
    """The state of a run without its tensors, see `TrainState`."""

    step: int
    seconds: Number
    precision: Mapping[str, Any]
    monitor: Mapping[str, Any]
    cleaning: CleaningState
    selection: SelectionState
    history: list[Moment]
    sampling: list[Mapping[str, Any]]


class Checkpoint(NamedTuple):
    """The contents of a file; the fingerprint is of the settings and the data."""

    fingerprint: str
    state: SavedState
    tensors: Mapping[str, Tensor]


@dataclass
class TrainState:
    """All that training changes; a checkpoint holds this and nothing else.

    Attributes:
        learner: network, loss, optimiser, and the steps done.
        guard: what the monitor saw, and the best network by the probe.
        cleaning: the labels in use.
        selection: the best step so far.
        history: measures of a sample of the training items.
        sampling: which triplets the loss selected.
        seconds: of training.
    """

    learner: Learner
    guard: Guard
    cleaning: LabelCleaning
    selection: CheckpointSelection
    history: History
    sampling: SamplingLog
    seconds: float = 0.0

    def save(self, run: RunFolder, fingerprint: str) -> None:
        """Write a checkpoint, whole or not at all; the last two are kept.

        Args:
            fingerprint: of the settings and the data, see `load`.
        """
        state = SavedState(
            step=self.learner.step,
            seconds=self.seconds,
            precision=self.learner.precision.state(),
            monitor=self.guard.monitor.state_dict(),
            cleaning=self.cleaning.state(),
            selection=self.selection.state(),
            history=self.history.moments,
            sampling=self.sampling.state(),
        )
        tensors = self.learner.tensors() | named_tensors("best", self.selection.weights)
        tensors |= named_tensors("snapshot", self.guard.best.weights)
        path = run.path / "checkpoints" / f"step-{self.learner.step:08d}.safetensors"
        write_atomic(path, save(tensors, metadata={"state": json.dumps(state.as_json()), "fingerprint": fingerprint}))
        for old in run.checkpoints()[:-RETAINED]:
            old.unlink()

    def load(self, path: Path, fingerprint: str | None = None) -> None:
        """Go on from a checkpoint.

        Args:
            fingerprint: of the settings and data that it must have been written with; None for any.

        Raises:
            ValueError: if the file is broken, or was written with other settings or data.
        """
        saved = read_checkpoint(path)
        if fingerprint not in (None, saved.fingerprint):
            raise ValueError(
                f"{path} was written with other settings or data than the run folder now has; restore config.toml and "
                "the data to continue, or start a new run."
            )
        try:
            self.learner.load(saved.tensors)
            self.learner.step, self.seconds = saved.state.step, saved.state.seconds
            self.learner.precision.load(saved.state.precision)
            self.guard.monitor.load_state_dict(saved.state.monitor)
            self.guard.best.load(tensors_of("snapshot", saved.tensors))
            self.cleaning.load(saved.state.cleaning)
            self.selection.load(saved.state.selection, tensors_of("best", saved.tensors))
            self.history.load(saved.state.history)
            self.sampling.load(saved.state.sampling)
        except (KeyError, TypeError, RuntimeError) as error:
            raise _incomplete(path, error) from None


def read_checkpoint(path: Path) -> Checkpoint:
    """The contents of a checkpoint.

    Raises:
        ValueError: if the file is broken.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            # Copies: a file that is mapped could not be removed on Windows once there is a newer one.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118  # no mapping
            return Checkpoint(metadata["fingerprint"], SavedState.read(parse_json(metadata["state"])), tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _incomplete(path, error) from None


def _incomplete(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} must be a complete checkpoint: {' '.join(str(error).split())}; delete it to resume from the one "
        "before, or from the start."
    )


def forget_checkpoints(run: RunFolder) -> None:
    """Remove what the run would go on from."""
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.stem.removeprefix("step-"))


def trained_to_the_end(path: Path, *, steps: int, patience: int | None) -> bool:
    """True if a checkpoint is of the last step of a run, or of that at which patience ended the training.

    Raises:
        ValueError: if the file is broken.
    """
    if step_of(path) >= steps:
        return True
    choice = read_checkpoint(path).state.selection
    return patience_end(patience, choice.checks, choice.step) is not None


def load_loss(path: Path, loss: nn.Module) -> None:
    """Restore the loss alone, whatever the settings of the run are now; one of other classes stays as it is.

    Raises:
        ValueError: if the file is broken.
    """
    saved = tensors_of("loss", read_checkpoint(path).tensors)
    shapes = {name: value.shape for name, value in loss.state_dict().items()}
    if {name: value.shape for name, value in saved.items()} == shapes:
        loss.load_state_dict(saved)
