"""Checkpoints: model, loss and optimiser in one safetensors file. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from trivet.datasets import Splits
from trivet.io.atomic_files import write_atomic
from trivet.runtime.safe_read import parse_json
from trivet.training.checkpoint_selection import ended
from trivet.training.config import RunConfig
from trivet.training.mined_batches import mined_fingerprint
from trivet.training.probe import probe_items
from trivet.training.run_folder import RunFolder
from trivet.training.schedule import TO_THE_END

STATES = ("guard", "cleaning", "choosing", "precision")
# Settings that came later: at their defaults they are left out of the fingerprint, so that earlier runs can go on.
ADDED = ("epochs", "backbone_learning_rate", "clip_norm", "step_size", "milestones", "gamma", "ema")


class Progress(NamedTuple):
    """How far a run is: optimiser steps done, seconds of training, what `training.history` saw, and states.

    `picks` are the looks of `training.sampling_log`; `choosing` and `precision` are the states of these modules.
    """

    step: int
    seconds: float
    moments: Sequence[dict[str, Any]] = ()
    guard: Mapping[str, Any] = MappingProxyType({})
    cleaning: Mapping[str, Any] = MappingProxyType({})
    picks: Sequence[dict[str, Any]] = ()
    choosing: Mapping[str, Any] = MappingProxyType({})
    precision: Mapping[str, Any] = MappingProxyType({})


def save_checkpoint(
    run: RunFolder,
    progress: Progress,
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    fingerprint: str,
    healthy: int,
    best: Mapping[str, Tensor] = MappingProxyType({}),
    held: Mapping[str, Tensor] = MappingProxyType({}),
    average: nn.Module | None = None,
) -> None:
    """Write a checkpoint, whole or not at all; the last two are kept, and those that a repair may return to.

    Args:
        fingerprint: of the settings and the data, see `load_checkpoint`.
        healthy: the last step at which all was well; the newest checkpoint up to it is kept, and that of step 0.
        best: the weights of the best step so far, where one is chosen.
        held: the weights that the guard holds, see `training.guard`.
        average: of the weights of the model, where there is one.
    """
    tensors = state_of(model, loss, optimizer, average) | _copied({"best": dict(best), "held": dict(held)})
    *done, guard, cleaning, picks, choosing, precision = progress
    states = {"guard": json.dumps(dict(guard)), "cleaning": json.dumps(dict(cleaning)), "picks": json.dumps(picks)}
    states |= {"choosing": json.dumps(dict(choosing)), "precision": json.dumps(dict(precision))}
    metadata = {"progress": json.dumps(done), **states, "fingerprint": fingerprint}
    data = save(tensors, metadata=metadata)
    write_atomic(run.path / "checkpoints" / f"step-{progress.step:08d}.safetensors", data)
    files = run.checkpoints()
    retained = {*files[-2:], *[file for file in files if step_of(file) <= healthy][-1:]}
    for old in files:
        if old not in retained and step_of(old):
            old.unlink()


def forget_checkpoints(run: RunFolder) -> None:
    """Remove what the run would go on from."""
    shutil.rmtree(run.path / "checkpoints", ignore_errors=True)


def state_of(
    model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer, average: nn.Module | None
) -> dict[str, Tensor]:
    """All tensors that training changes, by name, on the CPU."""
    state = {"model": model.state_dict(), "loss": loss.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    state["average"] = {} if average is None else average.state_dict()
    return _copied(state)


def put_state(
    tensors: Mapping[str, Tensor],
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: nn.Module | None,
) -> None:
    """Put back what `state_of` gave."""
    _restore(_unflatten(tensors), model, loss, optimizer, average)


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.stem.removeprefix("step-"))


def load_checkpoint(
    path: Path,
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    fingerprint: str,
    average: nn.Module | None = None,
) -> Progress:
    """Restore model, loss, optimiser and the average of the weights, if there is one; returns how far the run was.

    Raises:
        ValueError: if the file is broken, or was written with other settings or data.
    """
    metadata, progress, state = _read(path)
    if metadata.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} was written with other settings or data than the run folder now has; restore config.toml and the "
            "data to continue, or start a new run."
        )
    _restore(state, model, loss, optimizer, average)
    return progress


def _restore(
    state: Mapping[str, Any],
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: nn.Module | None,
) -> None:
    model.load_state_dict(state["model"])
    loss.load_state_dict(state["loss"])
    if average is not None:
        average.load_state_dict(state["average"])
    groups = optimizer.state_dict()["param_groups"]
    slots = {int(number): values for number, values in state.get("optimizer", {}).items()}
    optimizer.load_state_dict({"state": slots, "param_groups": groups})


def read_progress(path: Path) -> Progress:
    """How far the run was.

    Raises:
        ValueError: if the file is broken.
    """
    return _read(path)[1]


def trained_to_the_end(config: RunConfig, path: Path) -> bool:
    """Whether a checkpoint is of the last step of the settings, or of that at which patience ended the training.

    Raises:
        ValueError: if the file is broken.
    """
    if step_of(path) >= config.training.num_steps:
        return True
    choice = read_progress(path).choosing
    if not choice:
        return False
    return ended(config.choosing.patience, choice["looks"], choice["step"], choice.get("since", 0)) is not None


def load_snapshots(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of the best step so far, and those that the guard holds; empty where there are none.

    Raises:
        ValueError: if the file is broken.
    """
    state = _read(path)[2]
    return state.get("best", {}), state.get("held", {})


def load_weights(
    path: Path, model: nn.Module, loss: nn.Module, average: nn.Module | None = None
) -> Sequence[dict[str, Any]]:
    """Restore the model and its average, and the loss as `load_loss` does; returns what `training.history` had seen.

    Layers of another shape stay as they are: the last one, where a repair has widened the embedding.

    Raises:
        ValueError: if the file is broken.
    """
    _, progress, state = _read(path)
    for name, network in {"model": model, "average": average}.items():
        if network is not None:
            current = network.state_dict()
            matching = {key: value for key, value in state[name].items() if value.shape == current[key].shape}
            network.load_state_dict(current | matching)
    _restore_loss(state, loss)
    return progress.moments


def load_loss(path: Path, loss: nn.Module) -> None:
    """Restore the loss alone, whatever the settings of the run are now; one of other classes stays as it is.

    Raises:
        ValueError: if the file is broken.
    """
    _restore_loss(_read(path)[2], loss)


def _restore_loss(state: Mapping[str, Any], loss: nn.Module) -> None:
    current = loss.state_dict()
    saved: dict[str, Tensor] = state.get("loss", {})
    if {name: value.shape for name, value in saved.items()} == {name: value.shape for name, value in current.items()}:
        loss.load_state_dict(saved)


def _read(path: Path) -> tuple[dict[str, str], Progress, dict[str, Any]]:
    """Metadata, progress and tensors of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata()
            states = {name: parse_json(metadata.get(name, "{}")) for name in STATES}
            states["picks"] = tuple(parse_json(metadata.get("picks", "[]")))
            progress = Progress(*parse_json(metadata["progress"]))._replace(**states)
            state = _unflatten({key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118  # no mapping
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a complete checkpoint: {' '.join(str(error).split())}; delete it to resume from the one "
            "before, or from the start."
        ) from None
    return metadata, progress, state


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


def fingerprint(config: RunConfig, splits: Splits) -> str:
    """What a checkpoint depends on: the settings, but for those that change no step before it, and the items.

    Of decisions on labels, and of mined triplets, it is what they say of these, and not where their file lies.
    """
    training, fields = config.training, type(config.training).model_fields
    changes_nothing = set() if training.schedule in TO_THE_END else {"steps"}
    changes_nothing |= {"log_every", "checkpoint_every", "workers", "loggers", "mlflow_uri", "devices", "nodes"}
    changes_nothing |= {name for name in ADDED if getattr(training, name) == fields[name].default}
    left_out: dict[str, Any] = {
        "evaluation": True,
        "guard": True,
        "training": changes_nothing,
        "data": {"decisions"},
        "batch": {"mined"},
        "choosing": {"patience"},
    }
    settings = config.model_dump(mode="json", exclude=left_out)
    if config.choosing.keep == "last":  # no step depends on it; before there was a choice, the settings had no section
        settings.pop("choosing")
    elif config.choosing.level is None:
        del settings["choosing"]["level"]
    for section, setting in (("batch", "micro"), ("loss", "prefixes")):  # settings that earlier runs did not have
        if settings[section][setting] is None:
            del settings[section][setting]
    if training.weight_decay:
        settings["training"]["decayed"] = "matrices"  # of earlier runs it was all
    decided: list[Any] = [] if splits.decisions is None else [splits.train.labels[splits.level].tolist()]
    probe = probe_items(config, splits)
    if probe is not None and probe.split is None:
        decided.append(probe.rows.tolist())  # left out of training
    if config.batch.mined is not None:
        decided.append(mined_fingerprint(config.batch.mined, splits.train))
    text = json.dumps([settings, splits.train.ids, *decided], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
