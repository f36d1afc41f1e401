"""Low-rank changes of the linear layers of a transformer, trained in place of its weights."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from trivet.models.embedder import Embedder

ATTENTION = (  # projections of the attention, as timm, torchvision and transformers call them
    *("query", "key", "value", "query_proj", "key_proj", "value_proj", "query_key_value", "attn_qkv", "in_proj"),
    *("q", "k", "v", "qkv", "q_lin", "k_lin", "v_lin", "q_proj", "k_proj", "v_proj", "qkv_proj", "Wqkv", "out_proj"),
)
SCALE = 2.0  # alpha / rank
Network = TypeVar("Network", bound=Embedder)


class LowRankChange(nn.Module):
    """A weight `(d_out, d_in)` and a learned change of it, at first 0.

        W + (alpha / r) B A

    alpha / r is 2, B `(d_out, r)` begins at 0, A `(r, d_in)` at random.

    Source:
        Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, section 4.1.
    """

    def __init__(self, shape: tuple[int, ...], rank: int) -> None:
        super().__init__()
        d_out, d_in = shape
        self.a = nn.Parameter(torch.empty(rank, d_in))
        self.b = nn.Parameter(torch.zeros(d_out, rank))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)  # as of a linear layer

    def forward(self, weight: Tensor) -> Tensor:
        return weight + SCALE * (self.b @ self.a)


def add_lora(network: nn.Module, rank: int) -> None:
    """Give each linear layer, of the attention and of what follows it, a `LowRankChange`; nothing else learns.

    Layers give the changed weight, so that code which reads it, such as the attention of torch, sees it too.

    Raises:
        ValueError: if the network has no attention.
    """
    linear = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not any(name.rpartition(".")[2] in ATTENTION for name, _ in linear):
        raise ValueError(
            "model.lora changes the layers of transformers: this network has no attention by a name that Trivet "
            "knows; remove model.lora, and freeze its first stages with model.freeze."
        )
    network.requires_grad_(False)
    for _, module in linear:
        parametrize.register_parametrization(module, "weight", LowRankChange(tuple(module.weight.shape), rank))


def merged(model: Network) -> Network:
    """The same network with its low-rank changes in its weights: a copy, or itself where there are none."""
    if not any(isinstance(module, LowRankChange) for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            # Not remove_parametrizations: it takes the weight from the class, which copies of a network share.
            plain = nn.Linear(module.in_features, module.out_features, bias=False, device="meta")
            plain.weight, plain.bias = nn.Parameter(module.weight.detach()), module.bias
            model.set_submodule(name, plain.train(module.training))
    return model
