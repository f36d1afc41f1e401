"""Pretrained networks of texts that are trained end to end: a transformer, its pooling and a last layer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.models.config import TEXT, ModelConfig
from trivet.models.embedder import Embedder
from trivet.models.heads import make_head
from trivet.models.inputs import Items
from trivet.models.lora import add_lora
from trivet.models.text_folder import architecture, briefly, open_text, read_network, without_pooler
from trivet.models.text_settings import Pooling, TextNetworkConfig
from trivet.models.tokens import VOCABULARY, Tokenize, Tokenizer, read_tokenizer
from trivet.runtime.extras import load
from trivet.runtime.safe_read import read_json

ARCHITECTURE, TOKENIZER = "transformer.json", "tokenizer.json"  # beside the weights of a saved model
AT_ONCE = 32  # texts of a like length that are embedded together where nothing is learned


class TextEncoder(nn.Module):
    """A transformer and its pooling: token ids `(B, L)` int64, -1 where a text has ended, to vectors `(B, d)`.

    Args:
        network: of transformers; it gives a `last_hidden_state` `(B, L, d)`.
        pooling: "mean" over the tokens, "cls", the first one, or "max".
    """

    def __init__(self, network: Any, pooling: Pooling) -> None:
        super().__init__()
        self.network, self.pooling = network, pooling
        pad = getattr(network.config, "pad_token_id", None)
        self.pad_token_id = pad if isinstance(pad, int) and pad >= 0 else 0

    def forward(self, ids: Tensor) -> Tensor:
        there = ids >= 0
        tokens = self.network(
            input_ids=torch.where(there, ids, self.pad_token_id), attention_mask=there.long()
        ).last_hidden_state
        return pooled(tokens, there, self.pooling)

    def freeze(self, what: str | int) -> tuple[nn.Module, ...]:
        """Let the embeddings of the tokens, so many of the first layers too, or everything keep its weights; say what.

        Raises:
            ValueError: if there are fewer layers.
        """
        if what == "none":
            return ()
        if what == "all":
            return (self.requires_grad_(False),)
        stages = self.stages()
        count = 0 if isinstance(what, str) else what
        if count >= len(stages):
            raise ValueError(f"model.freeze must be at most the number of layers, {len(stages) - 1}: got {count}.")
        return tuple(module.requires_grad_(False) for stage in stages[: count + 1] for module in stage)

    def stages(self) -> list[list[nn.Module]]:
        """Modules before the layers, such as the embeddings of the tokens, and each layer.

        Raises:
            ValueError: if there is no list of layers.
        """
        path, layers = _layers(self.network)
        top = path.partition(".")[0]
        names = [name for name, _ in self.network.named_children()]
        before = [self.network.get_submodule(name) for name in names[: names.index(top)]]
        return [before, *([layer] for layer in layers)]


def pooled(tokens: Tensor, there: Tensor, pooling: Pooling) -> Tensor:
    """Vectors `(B, d)` of texts from those of their tokens `(B, L, d)`.

    Args:
        there: `(B, L)`, False where a text has ended.
        pooling: "mean", "max" over the tokens that are there, "cls": the first.
    """
    if pooling == "cls":
        return tokens[:, 0]
    if pooling == "max":
        return tokens.masked_fill(~there[:, :, None], -torch.inf).amax(dim=1)
    weights = there[:, :, None].to(tokens.dtype)
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1)


class TextEmbedder(Embedder):
    """A network from texts, as token ids `(B, L)` int64, -1 where a text has ended, to embeddings `(B, d)`.

    L is at most `max_tokens`, the only number of its `input_shape`. Where no gradient is asked for, texts of a like
    length are embedded together, so that little time goes to what is not there.
    In place of texts it takes their features `(B, F)`, see `Embedder`.
    Its `body` is the encoder and a last layer.
    """

    def __init__(
        self, body: nn.Sequential, tokenizer: Tokenizer, *, normalize: bool, still: tuple[nn.Module, ...] = ()
    ) -> None:
        super().__init__(body, input_shape=(tokenizer.max_tokens,), normalize=normalize, on_backbone=True, still=still)
        del self.mean, self.std  # of images
        self.tokenizer = tokenizer

    @property
    def tokenize(self) -> Tokenize:
        return self.tokenizer

    @property
    def encoder(self) -> TextEncoder:
        """The transformer and its pooling."""
        encoder = self.body[0]  # type: ignore[index]  # a sequence, as the constructor asks for
        assert isinstance(encoder, TextEncoder)
        return encoder

    def _stages(self) -> list[list[nn.Module]]:
        return self.encoder.stages()

    @property
    def backbone(self) -> TextEmbedder:
        """The network without the last layer, on the same weights."""
        body = nn.Sequential(self.encoder, nn.Identity())
        network = TextEmbedder(body, self.tokenizer, normalize=self.normalize, still=self.still)
        return network.train(self.training)

    def tokens(self, texts: Sequence[str]) -> Tensor:
        """The token ids of texts, which the network takes."""
        return self.tokenizer(texts).padded(np.arange(len(texts)))

    def prepared(self, items: Items) -> Tensor:
        """The token ids of texts; see `embed`."""
        wrong = next((item for item in items if not isinstance(item, str)), None)
        if wrong is not None:
            raise ValueError(f"this model takes texts: got {type(wrong).__name__}; give a list of str.")
        return self.tokens(list(items))

    def _are_features(self, inputs: Tensor) -> bool:
        width: int = self.encoder.network.config.hidden_size
        return inputs.is_floating_point() and inputs.shape[1:] == (width,)

    def forward(self, inputs: Tensor) -> Tensor:
        if self._are_features(inputs):
            return self._finished(self.body[1:](inputs))  # type: ignore[index]  # a sequence, as above
        if inputs.ndim != 2 or inputs.is_floating_point() or not 0 < inputs.shape[1] <= self.input_shape[0]:
            raise ValueError(
                f"this model takes token ids of shape (B, L), L from 1 to {self.input_shape[0]}: got {inputs.dtype} of "
                f"shape {tuple(inputs.shape)}; make them with model.tokens(texts)."
            )
        at_once = torch.is_grad_enabled() or len(inputs) <= 1
        return self._finished(self.body(inputs) if at_once else self._by_length(inputs))

    def _by_length(self, inputs: Tensor) -> Tensor:
        lengths = (inputs >= 0).sum(dim=1)
        order = torch.argsort(lengths, stable=True)
        chunks = [self.body(inputs[rows, : int(lengths[rows[-1]])]) for rows in torch.split(order, AT_ONCE)]
        return torch.cat(chunks)[torch.argsort(order)]


def tokenize_of(config: ModelConfig) -> Tokenize | tuple[Tokenize | None, ...] | None:
    """The tokenizer of the network of the settings, None for one that takes no tokens; of two sides that of each.

    Raises:
        ValueError: if it cannot be had.
    """
    known = [open_text(each).tokenizer if isinstance(each, TextNetworkConfig) else None for each in config.networks]
    return known[0] if len(known) == 1 else tuple(known)


def build_text(config: TextNetworkConfig, input_shape: tuple[int, ...] = ()) -> TextEmbedder:
    """The pretrained network with a last layer, in training mode; what is new draws from the global generator.

    The settings alone decide what it takes.

    Raises:
        ValueError: if it cannot be had, or the settings do not fit it.
    """
    folder, config, tokenizer, shape = open_text(config)
    if not config.dropout:
        for key, value in vars(shape).items():
            if "drop" in key and isinstance(value, float):
                setattr(shape, key, 0.0)
    network = read_network(folder, shape)
    model = _assemble(config, network, tokenizer)
    _check_longest(model, config)
    if config.lora:
        add_lora(network, config.lora)
    model.still = model.encoder.freeze(config.freeze)
    return model.train()


def _assemble(config: TextNetworkConfig, network: nn.Module, tokenizer: Tokenizer) -> TextEmbedder:
    encoder = TextEncoder(network, config.pooling or "mean")
    width: int = encoder.network.config.hidden_size
    head = make_head(config.head, width, config.embedding_dim, as_features=True, unit=config.normalize)
    return TextEmbedder(nn.Sequential(encoder, head), tokenizer, normalize=config.normalize)


def _check_longest(model: TextEmbedder, config: TextNetworkConfig) -> None:
    """ValueError unless the network takes a text of the most tokens."""
    begin = model.tokens(["a"])
    ids = begin[:, :1].expand(2, model.input_shape[0])
    try:
        with torch.no_grad():
            got = model.eval()(ids)
    except Exception as error:  # a network from elsewhere raises many kinds
        raise ValueError(
            f"{config.name} must take texts of model.max_tokens = {config.max_tokens} tokens: it cannot "
            f"({briefly(error)}); lower it, or use another network."
        ) from None
    if not bool(torch.isfinite(got).all()):
        raise ValueError(f"{config.name} must give finite vectors: it gives others; use another network.")


def _layers(network: nn.Module) -> tuple[str, nn.ModuleList]:
    """The layers of a transformer, and what they are called."""
    lists = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ValueError(
            "model.freeze and training.layer_decay need a transformer whose layers are a list: this one has none; "
            "remove them."
        )
    return max(lists, key=lambda entry: sum(p.numel() for p in entry[1].parameters()))


def text_files(model: TextEmbedder) -> dict[str, str]:
    """The files that a saved network needs beside its weights and settings: name -> text."""
    config = {key: value for key, value in model.encoder.network.config.to_dict().items() if value is not None}
    config.pop("_name_or_path", None)  # a folder of this machine
    return {ARCHITECTURE: json.dumps(config, indent=2, default=str) + "\n", TOKENIZER: model.tokenizer.to_json()}


def stored_config(config: TextNetworkConfig, model: TextEmbedder) -> TextNetworkConfig:
    """The settings that a saved network is read by: nothing is trained, and the folder it is from is not needed."""
    width = model.encoder.network.config.hidden_size
    origin = Path(config.name.removeprefix(TEXT))
    stored = {
        "name": f"{TEXT}{origin.name}" if origin.is_absolute() or origin.parts[0] == "~" else config.name,
        "embedding_dim": config.embedding_dim or width,
        "pooling": model.encoder.pooling,
        "max_tokens": model.tokenizer.max_tokens,
        "prefix": model.tokenizer.prefix,
        "freeze": "none",
        "lora": 0,
    }
    return config.model_copy(update=stored)


def build_stored(config: TextNetworkConfig, folder: Path) -> TextEmbedder:
    """The network of a model folder, with weights that mean nothing yet.

    Raises:
        ValueError: if a file is broken, or of a network that transformers does not know.
    """
    file = folder / ARCHITECTURE
    try:
        shape = architecture(read_json(file, "the configuration of a transformer"))
        network = load("transformers").AutoModel.from_config(shape, trust_remote_code=False)
        network = without_pooler(network).float().eval()
        with torch.no_grad():  # some settings are first used here
            network(input_ids=torch.zeros((1, 2), dtype=torch.int64)).last_hidden_state.sum()
    except ModuleNotFoundError:
        raise
    except Exception as error:  # transformers raises many kinds
        raise ValueError(
            f"{file} must be the configuration of a transformer ({briefly(error)}); save the model again."
        ) from None
    tokenizer = read_tokenizer(
        folder / TOKENIZER,
        max_tokens=config.max_tokens or 1,
        prefix=config.prefix or "",
        vocabulary=getattr(shape, "vocab_size", VOCABULARY),
    )
    return _assemble(config, network.train(), tokenizer)
