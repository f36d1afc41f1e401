"""A network of texts as a folder that sentence-transformers reads."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save as serialised
from torch import nn

from trivet.models.heads import Residual, Whitening
from trivet.models.static_texts import MODULE, STATIC
from trivet.models.text_folder import quiet
from trivet.models.text_network import TextEmbedder
from trivet.runtime.extras import load

MODULES = "sentence_transformers.models"
IDENTITY, RELU = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.ReLU"


def write_sentence_folder(model: TextEmbedder, folder: Path) -> None:
    """Write the network, a Dense for each layer of the head, and Normalize if embeddings have length 1.

    Raises:
        ModuleNotFoundError: if transformers is not installed.
        OSError: if the folder cannot be written.
    """
    network: Any = model.encoder.network
    folder.mkdir(exist_ok=True)
    prefix = model.tokenizer.prefix
    prompts = {"prompts": {"trivet": prefix}, "default_prompt_name": "trivet"} if prefix else {}
    _json(folder / "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine"})
    if network.config.model_type == STATIC:
        _write_weights(folder, {"embedding.weight": network.embedding.weight.detach()})
        (folder / "tokenizer.json").write_text(model.tokenizer.to_json(), encoding="utf-8")
        modules = [("", MODULE)]
    else:
        _write_transformer(model, folder)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    head = model.body[1]  # type: ignore[index]  # a sequence
    if isinstance(head, Whitening) and head.unit:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    for layer, activation in _layers(head):
        path = f"{len(modules)}_Dense"
        out_features, in_features = layer["linear.weight"].shape
        sizes = {"in_features": in_features, "out_features": out_features, "bias": "linear.bias" in layer}
        _json(folder / path / "config.json", {**sizes, "activation_function": activation})
        _write_weights(folder / path, layer)
        modules.append((path, "Dense"))
    if model.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    for path, kind in modules:
        if kind == "Normalize":
            (folder / path).mkdir()
    listed = [
        {"idx": position, "name": str(position), "path": path, "type": f"{MODULES}.{kind}"}
        for position, (path, kind) in enumerate(modules)
    ]
    _json(folder / "modules.json", listed)


def _write_transformer(model: TextEmbedder, folder: Path) -> None:
    network: Any = model.encoder.network
    with quiet(load("transformers")):
        try:
            network.save_pretrained(folder)  # config.json and model.safetensors
        except SafetensorError as error:  # of a full disk
            raise OSError(errno.EIO, str(error).rpartition(": ")[2], str(folder)) from None
    _write_tokenizer(model, folder)
    _json(folder / "sentence_bert_config.json", {"max_seq_length": model.tokenizer.max_tokens, "do_lower_case": False})
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    pooling = {f"pooling_mode_{mode}": name == model.encoder.pooling for name, mode in modes.items()}
    _json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": network.config.hidden_size, **pooling})


def _write_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    (folder / "model.safetensors").write_bytes(serialised(tensors))


def _layers(head: nn.Module) -> list[tuple[dict[str, torch.Tensor], str]]:
    """The head as linear layers, each with the function after it."""
    if isinstance(head, nn.Identity):
        return []
    if isinstance(head, Residual):  # base and change are one linear map
        change = head.change.weight.detach()
        base = torch.eye(*change.shape) if head.base is None else head.base
        return [({"linear.weight": (base + change).contiguous()}, IDENTITY)]
    if isinstance(head, Whitening):
        return [({"linear.weight": head.weight, "linear.bias": -head.weight @ head.mean}, IDENTITY)]
    linear = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    functions = [*[RELU] * (len(linear) - 1), IDENTITY]
    states = [
        {f"linear.{name}": value.detach().clone().contiguous() for name, value in layer.state_dict().items()}
        for layer in linear
    ]
    return list(zip(states, functions, strict=True))


def _write_tokenizer(model: TextEmbedder, folder: Path) -> None:
    rules = load("tokenizers").Tokenizer.from_str(model.tokenizer.to_json())
    rules.no_truncation()
    pad = rules.id_to_token(model.encoder.pad_token_id) or "[PAD]"
    load("transformers").PreTrainedTokenizerFast(
        tokenizer_object=rules,
        pad_token=pad,
        model_max_length=model.tokenizer.max_tokens,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def _json(file: Path, values: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
