"""A model on disk: weights as safetensors, everything else as JSON."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trivet.files import whole_file
from trivet.models.config import ModelConfig
from trivet.models.embedder import Embedder, build

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"


def save(model: Embedder, config: ModelConfig, input_shape: tuple[int, ...], folder: Path) -> None:
    """Write `model.safetensors` and `model.json` into `folder`, each whole or not at all."""
    description = {
        "trivet": version("trivet"),
        "input_shape": list(input_shape),
        "model": config.model_dump(mode="json"),
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
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        values, shape = description["model"], tuple(description["input_shape"])
        if not shape or not all(isinstance(side, int) and side > 0 for side in shape):
            raise ValueError(f"input_shape is {list(shape)}, not sizes")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / DESCRIPTION} must describe a Trivet model: {type(error).__name__}: {error}; save it again."
        ) from None
    config = ModelConfig.parse(values, source=str(folder / DESCRIPTION))
    model = build(config.model_copy(update={"pretrained": False}), shape, seed=0)
    try:
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"{folder / WEIGHTS} must hold the weights of the model in {DESCRIPTION}: "
            f"{' '.join(str(error).split())}; save the model again."
        ) from None
    return model.eval()
