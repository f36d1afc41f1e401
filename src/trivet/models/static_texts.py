"""Static networks of texts: a vector for each token and no layer on it, as fast on a CPU as texts can be embedded."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn

from trivet.models.tokens import Tokenizer, read_tokenizer
from trivet.runtime.extras import load

STATIC = "trivet-static"  # as a kind of network of transformers
MODULE = "StaticEmbedding"  # as sentence-transformers calls it


@cache
def register_static() -> None:
    """Let transformers know the network, so that it is read, saved and trained as any of its own."""
    library: Any = load("transformers")

    class StaticConfig(library.PretrainedConfig):  # type: ignore[misc]  # of a library without types
        """Sizes of the network."""

        model_type = STATIC

        def __init__(self, vocab_size: int = 1, hidden_size: int = 1, **others: Any) -> None:
            super().__init__(**others)
            self.vocab_size, self.hidden_size = vocab_size, hidden_size

    class StaticNetwork(library.PreTrainedModel):  # type: ignore[misc]  # of a library without types
        """Token ids `(B, L)` to their vectors `(B, L, d)`."""

        config_class = StaticConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
            self.post_init()

        def _init_weights(self, module: nn.Module) -> None:
            pass  # as torch has made them

        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SimpleNamespace:
            return SimpleNamespace(last_hidden_state=self.embedding(input_ids))

    library.AutoConfig.register(STATIC, StaticConfig, exist_ok=True)
    library.AutoModel.register(StaticConfig, StaticNetwork, exist_ok=True)


def static_shape(file: Any) -> dict[str, Any]:
    """The values of a configuration of such a network, by its file of weights.

    Raises:
        ValueError: if it is none.
    """
    try:
        with safe_open(file, framework="pt") as tensors:
            vocabulary, width = tensors.get_slice("embedding.weight").get_shape()
    except Exception as error:  # the library raises many kinds
        raise ValueError(f"{file} holds no matrix embedding.weight ({' '.join(str(error).split())})") from None
    return {"model_type": STATIC, "vocab_size": vocabulary, "hidden_size": width}


def static_tokenizer(folder: Any, *, max_tokens: int, prefix: str, vocabulary: int) -> Tokenizer:
    """The tokenizer of such a network, which puts no token before or after a text."""
    tokenizer = read_tokenizer(folder / "tokenizer.json", max_tokens=2**16, prefix=prefix, vocabulary=vocabulary)
    tokenizer.rules.post_processor = load("tokenizers.processors").TemplateProcessing(single="$A", pair="$A $B")
    return Tokenizer(tokenizer.rules, max_tokens=max_tokens, prefix=prefix, vocabulary=vocabulary)
