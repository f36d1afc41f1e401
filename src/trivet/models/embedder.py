"""Networks that turn inputs into embeddings."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from trivet.geometry import unit_rows
from trivet.models import outside
from trivet.models.config import WIDTHS, ModelConfig
from trivet.models.heads import Residual
from trivet.models.pixels import in_unit_range
from trivet.plugins import is_reference


class Embedder(nn.Module):
    """A network from inputs `(B, *input_shape)` to embeddings `(B, d)`.

    Images are `(B, C, H, W)`, in [0, 1] or bytes, which are divided by 255.

    Args:
        body: inputs in, `(B, d)` out.
        input_shape: that of one input.
        normalize: scale each embedding to length 1.
        mean, std: `(C,)` of the images the backbone was trained on: the body gets (image - mean) / std.
        on_backbone: the body is a sequence of a backbone, which may have been trained elsewhere, and a new last layer.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        body: nn.Module,
        *,
        input_shape: tuple[int, ...],
        normalize: bool,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        on_backbone: bool = False,
    ) -> None:
        super().__init__()
        self.body = body
        self.on_backbone = on_backbone
        self.input_shape = tuple(input_shape)
        self.normalize = normalize
        self.register_buffer("mean", torch.zeros(input_shape[0]) if mean is None else mean)
        self.register_buffer("std", torch.ones(input_shape[0]) if std is None else std)

    @property
    def num_parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    @property
    def unfitted(self) -> Residual | None:
        """The last layer, if it begins as a projection that follows from its features; see `Residual.fit_base`."""
        last = self.body[-1] if isinstance(self.body, nn.Sequential) else None
        return last if isinstance(last, Residual) and last.fitted else None

    @property
    def backbone(self) -> Embedder | None:
        """The network without the new last layer, on the same weights; None where there is no backbone."""
        if not self.on_backbone:
            return None
        part = cast("nn.Sequential", self.body)[0]
        return Embedder(part, input_shape=self.input_shape, normalize=self.normalize, mean=self.mean, std=self.std)

    def forward(self, inputs: Tensor) -> Tensor:
        if tuple(inputs.shape[1:]) != self.input_shape:
            raise ValueError(
                f"this model takes inputs of shape {('B', *self.input_shape)}: got {tuple(inputs.shape)}; "
                "prepare them as in training."
            )
        first = (-1, *[1] * (len(self.input_shape) - 1))  # the channels of an image
        inputs = in_unit_range(inputs, self.mean.dtype)
        embeddings: Tensor = self.body((inputs - self.mean.reshape(first)) / self.std.reshape(first))
        return unit_rows(embeddings) if self.normalize else embeddings


def build(config: ModelConfig, input_shape: tuple[int, ...], seed: int) -> Embedder:
    """A new network for inputs of a shape, (C, H, W) for images, on the CPU, in training mode.

    Its weights follow from `seed` alone (and the published ones, if pretrained); the global generator is not touched.

    Raises:
        ValueError: if the inputs do not fit the network, or pretrained weights cannot be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if config.name.startswith("timm:"):
            return _build_timm(config, input_shape)
        make = outside.body if is_reference(config.name) else _small_body
        return Embedder(make(config, input_shape), input_shape=input_shape, normalize=config.normalize)


def _small_body(config: ModelConfig, input_shape: tuple[int, ...]) -> nn.Sequential:
    d, w = config.embedding_dim, config.width or WIDTHS.get(config.name, 0)
    if config.name == "mlp":
        inputs = math.prod(input_shape)
        hidden = (nn.Linear(inputs, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU())
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(w, d))
    if config.name == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), d))
    if config.name == "residual":
        return nn.Sequential(nn.Flatten(), Residual(math.prod(input_shape), d))
    channels, height, width = _image_shape(config, input_shape)
    if config.name == "conv2":
        if min(height, width) < 6:
            raise ValueError(
                f"conv2 needs images of at least 6 x 6 pixels: got {height} x {width}; "
                "raise data.image_size, or use mlp."
            )
        # The network of the MNIST experiment of Levi et al. (2021); no padding.
        features = 2 * w * ((height - 4) // 2) * ((width - 4) // 2)
        return nn.Sequential(
            *(nn.Conv2d(channels, w, 3), nn.ReLU(), nn.BatchNorm2d(w)),
            *(nn.Conv2d(w, 2 * w, 3), nn.ReLU(), nn.BatchNorm2d(2 * w)),
            nn.MaxPool2d(2),
            nn.Flatten(),
            *(nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, d)),
        )
    layers: list[nn.Module] = []
    for out in (w, 2 * w, 4 * w) if config.name == "conv3" else (w, w, 2 * w, 2 * w):
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        channels, height, width = out, (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, d))


def _image_shape(config: ModelConfig, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(input_shape) != 3:
        raise ValueError(
            f"{config.name} takes images, of shape (C, H, W): got inputs of shape {input_shape}; use residual, linear, "
            "mlp or a network of your own."
        )
    return input_shape


def _build_timm(config: ModelConfig, input_shape: tuple[int, ...]) -> Embedder:
    import timm  # here: it takes seconds to load

    name = config.name.removeprefix("timm:")
    channels, _, _ = _image_shape(config, input_shape)
    if config.pretrained:
        try:
            backbone = _with_published_weights(name, channels)
        except Exception as error:  # the network, the hub's client and timm raise many kinds
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"the pretrained weights of {config.name} could not be loaded ({type(error).__name__}: {reason}); set "
                "model.pretrained = false, or copy ~/.cache/huggingface from a machine that has them."
            ) from None
    else:
        backbone = timm.create_model(name, num_classes=0, in_chans=channels)
    cfg = cast("dict[str, Any]", backbone.pretrained_cfg)
    try:
        with torch.no_grad():
            features = backbone.eval()(torch.zeros(1, *input_shape)).shape[1]
    except Exception as error:  # each backbone has its own way to say that a size does not fit
        expected = cfg.get("input_size", (3, 224, 224))[-1]
        raise ValueError(
            f"{config.name} cannot take images of shape {input_shape} ({error}); set data.image_size = {expected}."
        ) from None
    mean, std = (torch.tensor(cfg[key]) if channels == 3 and key in cfg else None for key in ("mean", "std"))
    body = nn.Sequential(backbone.train(), nn.Linear(features, config.embedding_dim))
    return Embedder(body, input_shape=input_shape, normalize=config.normalize, mean=mean, std=std, on_backbone=True)


def _with_published_weights(name: str, channels: int) -> nn.Module:
    """The backbone with its weights; unlike the hub's client alone, a missing network is met once, without warnings."""
    import huggingface_hub as hub
    import timm
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        cfg = timm.get_pretrained_cfg(name)
        repository = cfg.hf_hub_id if cfg is not None else None
        if repository is not None:
            cached = Path(hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "snapshots"
            if not cached.exists():
                _reach(repository)
        return timm.create_model(name, pretrained=True, num_classes=0, in_chans=channels)
    finally:
        hub_logging.set_verbosity(verbosity)


def _reach(repository: str) -> None:
    """Ask the hub one thing, because its downloads repeat a failed connection for a minute."""
    import huggingface_hub as hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, "config.json"))
    except HfHubHTTPError:  # an answer; whether the weights are there is for the download to say
        return
