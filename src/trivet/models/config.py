"""Settings of a model."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Self

from pydantic import Field, model_validator

from trivet.config import NamedConfig, nearest
from trivet.plugins import is_reference

WIDTHS = {"conv2": 32, "conv3": 16, "conv4": 32, "mlp": 256}
NAMES = (*WIDTHS, "linear", "residual")
TEXT = "text:"  # begins the name of a pretrained network of texts


class ModelConfig(NamedConfig):
    """The network that turns an input into an embedding.

    `ModelConfig.parse` gives the settings of the network that `name` names; one outside Trivet adds its own.
    """

    name: str = Field(
        "conv4",
        description='"conv2", "conv3", "conv4" (small convolutional nets), "mlp", "linear", "residual" (linear, begins '
        'as the input), "timm:NAME" for a backbone of the timm library, such as "timm:resnet18", '
        '"text:NAME" for a pretrained network of texts, by name or folder, or '
        '"python:FILE.py:NAME" for a class of your own.',
    )
    embedding_dim: int = Field(64, ge=1, le=65536, description="Length of an embedding.")
    normalize: bool = Field(True, description="Scale each embedding to Euclidean length 1.")
    pretrained: bool = Field(False, description="timm only: start from pretrained weights, which are downloaded once.")
    width: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Channels of the first layer of conv2 (32), conv3 (16) and conv4 (32), hidden units of mlp (256).",
    )

    @classmethod
    def names(cls) -> Collection[str]:
        """Of the networks of Trivet, but for backbones of timm."""
        return NAMES

    @classmethod
    def named(cls, name: str) -> type[ModelConfig]:
        """The settings of a network: these, and for one outside Trivet its own."""
        from trivet.models.outside import settings  # here: these settings are part of those of every network
        from trivet.models.text_settings import TextNetworkConfig

        if name.startswith(TEXT):
            return TextNetworkConfig
        return settings(name) if is_reference(name) else ModelConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name.startswith(TEXT):
            return self  # it has settings of its own, which check themselves
        if self.name.startswith("timm:"):
            _check_timm_name(self.name.removeprefix("timm:"))
        elif self.name not in NAMES and not is_reference(self.name):
            known = nearest(self.name, [*NAMES, "timm:NAME", "text:NAME", "python:FILE.py:NAME"])
            raise ValueError(f"name = {self.name!r} is not a model; {known}")
        elif self.pretrained:
            raise ValueError(
                f"pretrained weights exist for timm models only: {self.name} has none; set pretrained = false."
            )
        if self.width is not None and self.name not in WIDTHS:
            raise ValueError(f"width is for {', '.join(WIDTHS)} only: remove it for {self.name}.")
        if self.normalize and self.embedding_dim == 1:
            raise ValueError(
                "embedding_dim = 1 scaled to length 1 leaves two points: use 2 or more, or set normalize = false."
            )
        return self


def _check_timm_name(name: str) -> None:
    import timm  # here: it takes seconds to load, and most models need none of it

    if timm.is_model(name):
        return
    close = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(
        f"timm has no model {name!r}; {guess}"
        "List them with: python -c \"import timm; print(timm.list_models('*net*'))\"."
    )
