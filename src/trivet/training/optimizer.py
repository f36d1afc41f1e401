"""The optimiser of a run: groups of parameters with their own learning rates, weight decay for matrices alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.models import Embedder, Towers
from trivet.training.config import TrainingConfig

LARGEST_RATE = 1e30
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


def parameter_groups(model: nn.Module, config: TrainingConfig) -> list[dict[str, Any]]:
    """The parameters of the network that learn, in groups of one learning rate and one weight decay.

    Weight decay is for matrices and filters: parameters of one dimension, such as biases and the scales of norms, have
    none. The backbone is a group of its own if it has a rate of its own; with `layer_decay`, stage i of n has that rate
    times layer_decay^(n - i).

    Raises:
        ValueError: if a backbone has a rate and there is none or its stages are not known, or if no parameter learns
            and there are steps.

    Source:
        Clark et al., "ELECTRA", ICLR 2020, appendix B; Bao et al., "BEiT", ICLR 2022, for images.
    """
    if isinstance(model, Towers) and config.steps != 0:
        learning = [each for each in model.networks if any(weight.requires_grad for weight in each.parameters())]
        if learning:
            return [group for each in learning for group in parameter_groups(each, _of_side(config, each, learning))]
    learns = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learns and config.steps == 0:
        return [{"params": []}]
    if not learns:
        raise ValueError(
            "a network must have parameters that learn: this one has none, or all are frozen; freeze fewer of its "
            "layers, or give it a new last layer."
        )
    rates: list[tuple[dict[str, float], list[nn.Parameter]]] = [({}, learns)]
    decay = config.layer_decay
    if config.backbone_learning_rate is not None or decay < 1:
        if not isinstance(model, Embedder) or not model.on_backbone:
            setting = "layer_decay" if config.backbone_learning_rate is None else "backbone_learning_rate"
            raise ValueError(
                f"training.{setting} needs a network on a backbone, such as timm:resnet18: this one has none; remove "
                "it, and use training.learning_rate."
            )
        rate = config.backbone_learning_rate or config.learning_rate
        body = cast("nn.Sequential", model.body)
        depths = [list(body[0].parameters())] if decay == 1 else model.by_depth
        rates = [({"lr": rate * decay ** (len(depths) - i)}, depth) for i, depth in enumerate(depths, start=1)]
        rates = [(options, [p for p in depth if p.requires_grad]) for options, depth in rates]
        inside = {p for _, depth in rates for p in depth}
        rates.append(({}, [p for p in learns if p not in inside]))
    groups: list[dict[str, Any]] = []
    for options, members in rates:
        matrices = [parameter for parameter in members if parameter.ndim > 1 or not config.weight_decay]
        vectors = [parameter for parameter in members if parameter.ndim <= 1 and config.weight_decay]
        groups += [{"params": matrices, **options}, {"params": vectors, **options, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _of_side(config: TrainingConfig, network: Embedder, learning: list[Embedder]) -> TrainingConfig:
    """The settings of a network beside others: without a backbone, where another has one, the rate of new layers."""
    if network.on_backbone or not any(each.on_backbone for each in learning):
        return config
    return config.model_copy(update={"backbone_learning_rate": None, "layer_decay": 1.0})


def make_optimizer(
    model: nn.Module, loss: EmbeddingLoss | MatryoshkaLoss, config: TrainingConfig
) -> torch.optim.Optimizer:
    """The optimiser of the settings, with the loss's own parameter groups; each group keeps its "initial_lr".

    Raises:
        ValueError: as `parameter_groups`; also if a rate or the weight decay is too large for float32.
    """
    groups = [*parameter_groups(model, config), *loss.optimizer_groups()]
    options: dict[str, float] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer in ("sgd", "rmsprop"):
        options["momentum"] = config.momentum
    optimizer = OPTIMIZERS[config.optimizer](groups, **options)
    for group in optimizer.param_groups:
        if max(group["lr"], group["weight_decay"]) > LARGEST_RATE:
            raise ValueError(
                f"learning rates and weight decay must be at most {LARGEST_RATE:g}, so that a step fits into single "
                f"precision: got {group['lr']:g} and {group['weight_decay']:g}; choose smaller ones."
            )
        group["initial_lr"] = group["lr"]
    return optimizer


def move_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Bring what an optimiser remembers to the devices of its parameters; its counts of steps stay on the CPU."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and name != "step":
                state[name] = value.to(parameter.device)
