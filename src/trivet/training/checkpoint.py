"""The state of a run, and checkpoints of it: all tensors and numbers in one safetensors file. Nothing is pickled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from trivet.io.atomic_files import write_atomic
from trivet.runtime.safe_read import parse_json
from trivet.training.checkpoint_selection import CheckpointSelection, patience_end
from trivet.training.guard import Guard
from trivet.training.history import History
from trivet.training.label_cleaning import LabelCleaning
from trivet.training.loop import Learner
from trivet.training.run_folder import RunFolder
from trivet.training.sampling_log import SamplingLog

RETAINED = 2  # newest checkpoints of a run that stay


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

    def state_dict(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON."""
        sections = {name: section.state_dict() for name, section in self._sections().items()}
        return {"step": self.learner.step, "seconds": self.seconds, **sections}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name, on the CPU."""
        best, snapshot = self.selection.weights, self.guard.weights
        return learner_tensors(self.learner) | _copied({"best": best, "snapshot": snapshot})

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` and `tensors` gave, the latter as a tree of dicts."""
        _load_learner(self.learner, tensors)
        self.load_sections(state)
        self.guard.weights = tensors.get("snapshot", {})
        if self.selection.continues(state["selection"]):
            self.selection.weights = tensors.get("best", {})

    def load_sections(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` alone."""
        self.learner.step, self.seconds = state["step"], state["seconds"]
        for name, section in self._sections().items():
            section.load_state_dict(state[name])

    def _sections(self) -> dict[str, Any]:
        return {
            "precision": self.learner.precision,
            "guard": self.guard,
            "cleaning": self.cleaning,
            "selection": self.selection,
            "history": self.history,
            "sampling": self.sampling,
        }


def save_checkpoint(run: RunFolder, state: TrainState, fingerprint: str) -> None:
    """Write a checkpoint, whole or not at all; the last two are kept.

    Args:
        fingerprint: of the settings and the data, see `load_checkpoint`.
    """
    metadata = {"state": json.dumps(state.state_dict()), "fingerprint": fingerprint}
    path = run.path / "checkpoints" / f"step-{state.learner.step:08d}.safetensors"
    write_atomic(path, save(state.tensors(), metadata=metadata))
    for old in run.checkpoints()[:-RETAINED]:
        old.unlink()


def load_checkpoint(path: Path, state: TrainState, fingerprint: str) -> None:
    """Restore the state of a run.

    Raises:
        ValueError: if the file is broken, or was written with other settings or data.
    """
    metadata, values, tensors = _read(path)
    if metadata.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} was written with other settings or data than the run folder now has; restore config.toml and the "
            "data to continue, or start a new run."
        )
    try:
        state.load(values, tensors)
    except (KeyError, TypeError) as error:
        raise _incomplete(path, error) from None


def forget_checkpoints(run: RunFolder) -> None:
    """Remove what the run would go on from."""
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.stem.removeprefix("step-"))


def learner_tensors(learner: Learner) -> dict[str, Tensor]:
    """All tensors that optimiser steps change, by name, on the CPU."""
    tree = {"model": learner.model.state_dict(), "loss": learner.loss.state_dict()}
    average = {} if learner.average is None else learner.average.state_dict()
    return _copied(tree | {"optimizer": learner.optimizer.state_dict()["state"], "average": average})


def load_learner_tensors(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `learner_tensors` gave."""
    _load_learner(learner, _unflatten(tensors))


def _load_learner(learner: Learner, tensors: Mapping[str, Any]) -> None:
    learner.model.load_state_dict(tensors["model"])
    learner.loss.load_state_dict(tensors.get("loss", {}))
    if learner.average is not None:
        learner.average.load_state_dict(tensors["average"])
    groups = learner.optimizer.state_dict()["param_groups"]
    slots = {int(number): values for number, values in tensors.get("optimizer", {}).items()}
    learner.optimizer.load_state_dict({"state": slots, "param_groups": groups})


def read_state(path: Path) -> dict[str, Any]:
    """The `TrainState.state_dict` that a checkpoint has.

    Raises:
        ValueError: if the file is broken.
    """
    return _read(path)[1]


def trained_to_the_end(path: Path, *, steps: int, patience: int | None) -> bool:
    """True if a checkpoint is of the last step of a run, or of that at which patience ended the training.

    Raises:
        ValueError: if the file is broken.
    """
    if step_of(path) >= steps:
        return True
    choice = read_state(path)["selection"]
    return patience_end(patience, choice["checks"], choice["step"]) is not None


def load_loss(path: Path, loss: nn.Module) -> None:
    """Restore the loss alone, whatever the settings of the run are now; one of other classes stays as it is.

    Raises:
        ValueError: if the file is broken.
    """
    saved: dict[str, Tensor] = _read(path)[2].get("loss", {})
    shapes = {name: value.shape for name, value in loss.state_dict().items()}
    if {name: value.shape for name, value in saved.items()} == shapes:
        loss.load_state_dict(saved)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Metadata, state and tensors of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata()
            state = dict(parse_json(metadata["state"]))
            tensors = _unflatten({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118  # no mapping
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise _incomplete(path, error) from None
    return metadata, state, tensors


def _incomplete(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{path} must be a complete checkpoint: {' '.join(str(error).split())}; delete it to resume from the one "
        "before, or from the start."
    )


def _copied(tree: Mapping[Any, Any]) -> dict[str, Tensor]:
    return {key: value.detach().cpu().clone().contiguous() for key, value in _flatten(tree)}


def _flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    for key, value in tree.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}/")
        else:
            assert value is None, f"{prefix}{key} is a {type(value).__name__}, which a checkpoint cannot hold"


def _unflatten(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in tensors.items():
        *keys, last = path.split("/")
        node = tree
        for key in keys:
            node = node.setdefault(key, {})
        node[last] = value
    return tree
