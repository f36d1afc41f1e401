"""Files of weights: their tensors, matched by name with those of a network. Nothing is left random silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

WRAPPED = ("state_dict", "model_state_dict", "model")  # entries of a torch file that hold the weights
SHOWN = 4  # names in a sentence


def load_weights(network: nn.Module, path: Path) -> str | None:
    """Give a network the weights of a file; returns what of the file was left out, in a sentence, or None.

    Every tensor of the network must be there, with its shape, under its name and anything that stands before the names
    of all, such as "module." or "model.backbone.". The first layer of a network for grey images takes that of one for
    colours, summed over these.

    Raises:
        ValueError: if the file cannot be read, or does not fit.
    """
    return fill(network, read_tensors(path), source=str(path))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of one of torch that holds nothing but tensors, numbers and texts.

    Raises:
        ValueError: if it is not there, is none, or holds no tensors.
    """
    if not path.is_file():
        raise ValueError(f"the file of weights must exist: got {path}, which does not; check model.weights.")
    try:
        held: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except SafetensorError as error:
        raise _unreadable(path, error) from None
    except Exception as error:  # torch and its unpickler raise many kinds
        raise _unreadable(path, error) from None
    while isinstance(held, Mapping) and (inner := next((key for key in WRAPPED if _is_mapping(held, key)), None)):
        held = held[inner]
    tensors = {key: value for key, value in held.items() if isinstance(value, Tensor)} if _is_mapping(held) else {}
    if not tensors:
        raise ValueError(f"a file of weights must hold tensors by name: {path} holds none; save a state_dict.")
    return tensors


def _unreadable(path: Path, error: Exception) -> ValueError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return ValueError(
        f"weights must be a safetensors file, or a torch file that holds tensors only: {path} cannot be read "
        f"({type(error).__name__}: {reason}); save a state_dict again."
    )


def _is_mapping(held: Any, key: str | None = None) -> bool:
    found = held if key is None else held.get(key)
    return isinstance(found, Mapping)


def fill(network: nn.Module, held: Mapping[str, Tensor], *, source: str) -> str | None:
    """As `load_weights`, from tensors that were read from `source`."""
    own = network.state_dict()
    prefix = _prefix(list(own), list(held), source)
    found = {name: held[prefix + name] for name in own if prefix + name in held}
    for name, value in found.items():
        wanted = own[name].shape
        if value.ndim == len(wanted) == 4 and (*value.shape[:1], 1, *value.shape[2:]) == tuple(wanted):
            found[name] = value.sum(dim=1, keepdim=True)
    missing = [name for name in own if name not in found and not name.endswith(".num_batches_tracked")]
    misfits = [
        f"{name} is {list(value.shape)} where {list(own[name].shape)} belongs"
        for name, value in found.items()
        if value.shape != own[name].shape
    ]
    broken = [name for name, value in found.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    problems = (
        (missing, f"{len(missing)} of its {len(own)} tensors are missing"),
        (misfits, f"{len(misfits)} are of another shape"),
        (broken, f"{len(broken)} hold NaN or infinity"),
    )
    said = [f"{what} ({_listed(names)})" for names, what in problems if names]
    if said:
        raise ValueError(
            f"the weights of {source} must fit the backbone: {', '.join(said)}; give the weights of this very network, "
            "or another model.name."
        )
    network.load_state_dict(found, strict=False)
    rest = [name for name in held if name.removeprefix(prefix) not in found or not name.startswith(prefix)]
    if not rest:
        return None
    return f"{len(rest)} tensors of {source} are not of the backbone and were left out: {_listed(rest)}."


def _prefix(own: list[str], held: list[str], source: str) -> str:
    """What stands before the names of the network in a file: that with which most are found."""
    known = set(held)
    tried = {name.removesuffix(one) for one in own[:2] for name in held if name.endswith(one)}
    counts = Counter({prefix: sum(prefix + one in known for one in own) for prefix in tried})
    (best, most), *others = counts.most_common(2) or [("", 0)]
    if most and any(count == most for _, count in others):
        first, second = sorted([best, others[0][0]])
        raise ValueError(
            f"{source} must hold one such network: it has one under {first!r} and another under {second!r}; save the "
            "one you want alone."
        )
    return best


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
