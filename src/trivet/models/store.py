"""A model on disk: weights as safetensors, everything else as JSON."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from trivet.documents import check_types, read_json
from trivet.files import whole_file
from trivet.models.config import NAMES, ModelConfig
from trivet.models.embedder import Embedder, build

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
LARGEST = 2**28  # numbers of an input


class Description(TypedDict):
    """What `model.json` holds."""

    trivet: str
    input_shape: list[int]
    model: dict[str, Any]


def save(model: Embedder, config: ModelConfig, input_shape: tuple[int, ...], folder: Path) -> None:
    """Write `model.safetensors` and `model.json` into `folder`, each whole or not at all."""
    description = {
        "trivet": version("trivet"),
        "input_shape": list(input_shape),
        "model": config.stored().model_dump(mode="json"),
    }
    # Copies, because safetensors refuses tensors that share memory.
    state = {key: value.detach().cpu().clone().contiguous() for key, value in model.state_dict().items()}
    with whole_file(folder / WEIGHTS) as weights, whole_file(folder / DESCRIPTION) as text:
        save_file(state, weights)
        text.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load_model(folder: Path) -> Embedder:
    """The model that `save` wrote, on the CPU, in evaluation mode.

    Raises:
        ValueError: if a file is missing or broken, or the two do not belong together.
    """
    for name in (DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"a model folder must hold {DESCRIPTION} and {WEIGHTS}: {folder} has no {name}.")
    try:
        description = read_json(folder / DESCRIPTION, "the description of a model")
        check_types(Description, description)
        values, shape = description["model"], tuple(description["input_shape"])
        if not shape or min(shape) < 1 or math.prod(shape) > LARGEST:
            raise ValueError(f"input_shape is {list(shape)[:9]}, not sizes")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{folder / DESCRIPTION} must describe a Trivet model: {type(error).__name__}: {error}; save it again."
        ) from None
    config = ModelConfig.parse(values, source=str(folder / DESCRIPTION)).stored()
    try:
        _check_sizes(config, shape, folder / WEIGHTS)
        model = build(config, shape, seed=0)
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(
            f"{folder / WEIGHTS} must hold the weights of the model in {DESCRIPTION}: "
            f"{' '.join(str(error).split())}; save the model again."
        ) from None
    return model.eval()


def _check_sizes(config: ModelConfig, shape: tuple[int, ...], weights: Path) -> None:
    """RuntimeError unless the tensors of a file are of the shapes of the model, before these are given their memory."""
    if config.name not in NAMES:  # what is outside Trivet may not be made without memory
        return
    with torch.device("meta"):
        own = {name: list(value.shape) for name, value in build(config, shape, seed=0).state_dict().items()}
    with safe_open(weights, framework="pt") as file:
        held = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
    for name in own.keys() | held.keys():
        if own.get(name) != held.get(name):
            raise RuntimeError(f"{name} is {held.get(name)} where {own.get(name)} belongs")
