"""A model on disk: weights as safetensors, everything else as JSON."""

from __future__ import annotations

import json
import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialised

from trivet.config.plugins import settings_of
from trivet.io.atomic_files import atomic_file, write_atomic
from trivet.models.config import NAMES, ModelConfig
from trivet.models.embedder import Embedder
from trivet.models.lora import merged
from trivet.models.networks import build
from trivet.models.text_network import (
    ARCHITECTURE,
    TOKENIZER,
    TextEmbedder,
    build_stored,
    stored_config,
    text_files,
)
from trivet.models.text_settings import TextNetworkConfig
from trivet.runtime.record import Record
from trivet.runtime.safe_read import read_json

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
MODEL = "model"  # its folder in that of a run
LARGEST, MOST_PIXELS = 2**28, 65536  # numbers of an input; of a side of an image


class ModelFile(Record):
    """The content of `model.json`."""

    trivet: str = ""
    input_shape: list[int]
    resize: int | None = None
    model: dict[str, Any]


def save(model: Embedder, config: ModelConfig, input_shape: tuple[int, ...], folder: Path) -> None:
    """Write `model.safetensors` and `model.json` into `folder`, each whole or not at all.

    A network of texts has two files more, of its transformer and its tokenizer. Low-rank changes are merged.
    """
    files: dict[str, str] = {}
    model = merged(model)
    if isinstance(model, TextEmbedder):
        assert isinstance(config, TextNetworkConfig)
        config = stored_config(config, model)
        files = text_files(model)
    description = ModelFile(
        trivet=version("trivet"),
        input_shape=list(input_shape),
        resize=model.resize,
        model=config.stored().model_dump(mode="json"),
    )
    # Copies, because safetensors refuses tensors that share memory.
    state = {key: value.detach().cpu().clone().contiguous() for key, value in model.state_dict().items()}
    for name, content in files.items():
        write_atomic(folder / name, content.encode())
    with atomic_file(folder / WEIGHTS) as weights, atomic_file(folder / DESCRIPTION) as text:
        weights.write_bytes(serialised(state))  # save_file writes beside it first, and a kill would leave that
        text.write_text(json.dumps(description.as_json(), indent=2) + "\n", encoding="utf-8")


def load_model(run: Path | str) -> Embedder:
    """The model of a run folder, or of a model folder that `save` wrote, on the CPU, in evaluation mode.

    Its method `embed` takes images, texts or vectors. None of the libraries that training needs is loaded: safetensors
    and pydantic are enough, with Pillow for images, and timm, torchvision or transformers for networks of these.

    Raises:
        ValueError: if a file is missing or broken, or they do not belong together.

    Example:
        model = load_model("runs/birds")
        embeddings = model.embed(["one.jpg", "another.jpg"])  # (2, d)
    """
    folder = Path(run)
    if not (folder / DESCRIPTION).exists() and (folder / MODEL).is_dir():
        folder = folder / MODEL
    for name in (DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"a model folder must hold {DESCRIPTION} and {WEIGHTS}: {folder} has no {name}.")
    try:
        file = ModelFile.read(read_json(folder / DESCRIPTION, "the description of a model"))
        shape, resize = tuple(file.input_shape), file.resize
        if not shape or min(shape) < 1 or math.prod(shape) > LARGEST:
            raise ValueError(f"input_shape is {list(shape)[:9]}, not sizes")
        if resize is not None and not (len(shape) == 3 and min(shape[1:]) <= resize <= MOST_PIXELS):
            raise ValueError(f"resize is {resize}, no shorter side of an image of shape {list(shape)[:9]}")
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION} must describe a Trivet model: {error}; save it again.") from None
    with settings_of(Path(run)):
        config = ModelConfig.parse(file.model, source=str(folder / DESCRIPTION)).stored()
    for name in (ARCHITECTURE, TOKENIZER) if isinstance(config, TextNetworkConfig) else ():
        if not (folder / name).is_file():
            raise ValueError(f"the folder of a text network must hold {name}: {folder} does not; save it again.")
    try:
        _check_sizes(config, shape, folder)
        model = _new(config, shape, folder)
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(
            f"{folder / WEIGHTS} must hold the weights of the model in {DESCRIPTION}: "
            f"{' '.join(str(error).split())}; save the model again."
        ) from None
    model.resize = resize
    return model.eval()


def _new(config: ModelConfig, shape: tuple[int, ...], folder: Path) -> Embedder:
    """The network of a folder, with weights that mean nothing yet."""
    return build_stored(config, folder) if isinstance(config, TextNetworkConfig) else build(config, shape, seed=0)


def _check_sizes(config: ModelConfig, shape: tuple[int, ...], folder: Path) -> None:
    """RuntimeError unless the tensors of a file are of the shapes of the model, before these are given their memory."""
    if config.name not in NAMES and not isinstance(config, TextNetworkConfig):
        return  # what is outside Trivet may not be made without memory
    with torch.device("meta"):
        expected = {name: list(value.shape) for name, value in _new(config, shape, folder).state_dict().items()}
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        stored = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no mapping
    for name in expected.keys() | stored.keys():
        if expected.get(name) != stored.get(name):
            raise RuntimeError(f"{name} is {stored.get(name)} where {expected.get(name)} belongs")
