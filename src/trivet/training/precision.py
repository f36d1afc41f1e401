"""The device of a run, and the precision in which its network is computed; the loss is always computed in float32."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

PrecisionName = Literal["32", "bf16", "fp16"]
HALF: dict[PrecisionName, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def device_of(accelerator: Literal["auto", "cpu", "gpu"]) -> torch.device:
    """The device that the setting names: for "auto" a GPU, if torch finds one.

    Raises:
        ValueError: if there is no GPU and one is asked for.
    """
    if accelerator != "cpu" and torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator()
        assert device is not None
        return device
    if accelerator == "gpu":
        raise ValueError('training.accelerator = "gpu" needs a GPU: torch finds none here; use "auto" or "cpu".')
    return torch.device("cpu")


def check_precision(precision: PrecisionName, device: torch.device) -> None:
    """Raises ValueError if the device cannot compute a small convolution and its gradient in the precision."""
    if precision == "32":
        return
    with torch.random.fork_rng(devices=[]):
        layer = nn.Conv2d(1, 1, 3).to(device)
    try:
        with torch.autocast(device.type, HALF[precision]):
            value = layer(torch.ones(1, 1, 4, 4, device=device))
        value.float().sum().backward()
        works = bool(value.dtype == HALF[precision])
    except RuntimeError:
        works = False
    if not works:
        raise ValueError(
            f'training.precision = "{precision}" needs a device that computes in it: this {device.type.upper()} does '
            'not; use "32".'
        )


class Precision:
    """Computes in float32, or mixes it with bfloat16 or float16 by torch.autocast.

    The gradient of float16 has few bits for small numbers: the loss is scaled, and a step whose gradient is not finite
    is skipped, with half the scale from then on. A checkpoint keeps the scale.

    Args:
        name: as in the settings.
        device: where the network is computed.

    Attributes:
        skipped: steps left out.
    """

    def __init__(self, name: PrecisionName, device: torch.device) -> None:
        self._half, self._device = HALF.get(name), device
        self._scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
        self.skipped = 0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the network is computed."""
        return nullcontext() if self._half is None else torch.autocast(self._device.type, self._half)

    def step(self, value: Tensor, optimizer: torch.optim.Optimizer, *, clip_norm: float | None) -> None:
        """An optimiser step by the gradient of a loss, whose norm over all groups is at most `clip_norm`."""
        if self._scaler is None:
            value.backward()  # type: ignore[no-untyped-call]
        else:
            self._scaler.scale(value).backward()  # type: ignore[no-untyped-call]
            self._scaler.unscale_(optimizer)
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip_norm)
        if self._scaler is None:
            optimizer.step()
        else:
            before = self._scaler.get_scale()
            self._scaler.step(optimizer)
            self._scaler.update()
            self.skipped += self._scaler.get_scale() < before

    def state(self) -> Mapping[str, Any]:
        """All that a resumed run needs, as JSON; empty without a scale."""
        return {} if self._scaler is None else {"scaler": self._scaler.state_dict(), "skipped": self.skipped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; an empty one changes nothing."""
        if state and self._scaler is not None:
            self._scaler.load_state_dict(dict(state["scaler"]))
            self.skipped = state["skipped"]
