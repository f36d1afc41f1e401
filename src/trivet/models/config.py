"""Settings of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from trivet.config.base import NamedConfig, nearest
from trivet.config.plugins import is_reference
from trivet.config.registry import Registry
from trivet.models.embedder import Embedder

WIDTHS = {"conv2": 32, "conv3": 16, "conv4": 32, "mlp": 256}
NAMES = (*WIDTHS, "linear", "residual", "whitening")
TEXT = "text:"  # begins the name of a pretrained network of texts
TIMM, TORCHVISION = "timm:", "torchvision:"


class ModelConfig(NamedConfig):
    """The network that turns an input into an embedding.

    `ModelConfig.parse` gives the settings of the network that `name` names; a backbone has more of them, and one
    outside Trivet adds its own.

    Args:
        name: network: "conv2" to "conv4", "mlp", "linear", "residual" or "whitening" from scratch, pretrained
            "timm:", "torchvision:" or "text:NAME", several backbones "joined", "towers" for a network of each
            side of pairs, or "python:FILE.py:NAME".
        embedding_dim: length of an embedding: longer where classes are many, shorter to save room.
        normalize: scale each embedding to length 1; false for losses that use its length.
        pretrained: start from published weights, downloaded once: nearly always better for photographs.
        width: channels of the first layer of conv2 (32), conv3 (16) and conv4 (32), or hidden units of mlp (256): more
            to fit more.
    """

    name: str = "conv4"
    embedding_dim: int = Field(64, ge=1, le=65536)
    normalize: bool = True
    pretrained: bool = False
    width: int | None = Field(None, ge=1, le=4096)

    is_backbone: ClassVar[bool] = False

    @classmethod
    def names(cls) -> Collection[str]:
        """The names of the networks of Trivet, but for backbones."""
        return NAMES

    @classmethod
    def named(cls, name: str) -> type[ModelConfig]:
        """The settings of a network: these, and for a backbone or one outside Trivet its own."""
        entry = NETWORKS.find(name)
        return ModelConfig if entry is None else entry.settings

    def stored(self) -> ModelConfig:
        """The settings of a network whose weights are at hand, and need not be fetched again."""
        return self.model_copy(update={"pretrained": False})

    @property
    def networks(self) -> tuple[ModelConfig, ...]:
        """The settings of each network: these, but of a model of two sides those of both."""
        return (self,)

    @property
    def tokens_key(self) -> list[Any]:
        """Settings of each network on which depends what it reads of the items, as JSON: how texts become tokens."""
        keys = ("name", "prefix", "max_tokens")
        return [[getattr(each, key) for key in keys if hasattr(each, "max_tokens")] for each in self.networks]

    @model_validator(mode="before")
    @classmethod
    def _refuse_sides(cls, values: Any) -> Any:
        sides = [key for key in ("left", "right") if isinstance(values, Mapping) and key in values]
        if sides and values.get("name") != "towers" and "left" not in cls.model_fields:
            raise ValueError(
                f'{sides[0]} is the network of a side: set model.name = "towers", with [model.left] and [model.right], '
                "or remove it."
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not is_reference(self.name) and NETWORKS.find(self.name) is None:
            kinds = ("joined", "towers", "timm:NAME", "torchvision:NAME", "text:NAME", "python:FILE.py:NAME")
            raise ValueError(f"name = {self.name!r} is not a model; {nearest(self.name, [*NAMES, *kinds])}")
        if self.pretrained and not self.is_backbone:
            raise ValueError(
                f"pretrained weights exist for backbones only: {self.name} has none; set pretrained = false."
            )
        if self.width is not None and self.name not in WIDTHS:
            raise ValueError(f"width is for {', '.join(WIDTHS)} only: remove it for {self.name}.")
        if self.normalize and self.embedding_dim == 1:
            raise ValueError(
                "embedding_dim = 1 scaled to length 1 leaves two points: use 2 or more, or set normalize = false."
            )
        return self


class NetworkEntry(NamedTuple):
    """A network: its settings, and what builds it from them for inputs of a shape."""

    settings: type[ModelConfig]
    build: Callable[[Any, tuple[int, ...]], Embedder]


NETWORKS: Registry[NetworkEntry] = Registry("network")  # `networks` fills it
