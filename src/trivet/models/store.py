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
from trivet.io.atomic_files import atomic_file, write_atomic, write_json
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
from trivet.models.towers import SIDES, TOWERS, Towers
from trivet.runtime.record import Record
from trivet.runtime.safe_read import read_json

WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
MODEL = "model"  # its folder in that of a run
MODEL_FILES = (WEIGHTS, DESCRIPTION, ARCHITECTURE, TOKENIZER)  # the last two are of texts
LARGEST, MOST_PIXELS = 2**28, 65536  # numbers of an input; of a side of an image


class ModelFile(Record):
    """The content of `model.json`."""

    trivet: str = ""
    input_shape: list[int]
    resize: int | None = None
    model: dict[str, Any]


def save(model: Embedder, config: ModelConfig, input_shape: tuple[Any, ...], folder: Path) -> None:
    """Write `model.safetensors` and `model.json` into `folder`, each whole or not at all.

    A network of texts has two files more, of its transformer and its tokenizer. Low-rank changes are merged. The
    networks of two sides are folders of models, `left` and `right`, beside a `model.json`.
    """
    if isinstance(model, Towers):
        for side, network, settings, shape in zip(SIDES, model.networks, config.networks, input_shape, strict=True):
            save(network, settings, shape, folder / side)
        about = ModelFile(trivet=version("trivet"), input_shape=[], model=config.stored().model_dump(mode="json"))
        write_json(folder / DESCRIPTION, about.as_json())
        return
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

    Its method `embed` takes images, texts or vectors; of a model of two sides that of `left`, and that of `right`. None
    of the libraries that training needs is loaded: safetensors and pydantic are enough, with Pillow for images, and
    timm, torchvision or transformers for networks of these.

    Raises:
        ValueError: if a file is missing or broken, or they do not belong together.

    Example:
        model = load_model("runs/birds")
        embeddings = model.embed(["one.jpg", "another.jpg"])  # (2, d)
    """
    folder = Path(run)
    if not (folder / DESCRIPTION).exists() and (folder / MODEL).is_dir():
        folder = folder / MODEL
    file = _description(folder)
    with settings_of(Path(run)):
        if file.model.get("name") != TOWERS:
            return _single(folder, file)
        return Towers(*(_single(folder / side, _description(folder / side)) for side in SIDES)).eval()


def _description(folder: Path) -> ModelFile:
    """The description of a model; ValueError if it is missing or broken."""
    if not (folder / DESCRIPTION).is_file():
        raise ValueError(f"a model folder must hold {DESCRIPTION} and {WEIGHTS}: {folder} has no {DESCRIPTION}.")
    try:
        return ModelFile.read(read_json(folder / DESCRIPTION, "the description of a model"))
    except ValueError as error:
        raise _not_described(folder, error) from None


def _not_described(folder: Path, why: object) -> ValueError:
    return ValueError(f"{folder / DESCRIPTION} must describe a Trivet model: {why}; save it again.")


def _single(folder: Path, file: ModelFile) -> Embedder:
    """A model of one network; ValueError if a file is missing or broken, or they do not belong together."""
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"a model folder must hold {DESCRIPTION} and {WEIGHTS}: {folder} has no {WEIGHTS}.")
    shape, resize = tuple(file.input_shape), file.resize
    if not shape or min(shape) < 1 or math.prod(shape) > LARGEST:
        raise _not_described(folder, f"input_shape is {list(shape)[:9]}, not sizes")
    if resize is not None and not (len(shape) == 3 and min(shape[1:]) <= resize <= MOST_PIXELS):
        raise _not_described(folder, f"resize is {resize}, no shorter side of an image of shape {list(shape)[:9]}")
    config = ModelConfig.parse(file.model, source=str(folder / DESCRIPTION)).stored()
    if len(config.networks) > 1:
        raise _not_described(folder, "it is the network of a side, and has two sides itself")
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
