"""Settings of a model."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from trivet.config.base import NamedConfig, nearest
from trivet.config.plugins import is_reference
from trivet.models.heads import HeadName

WIDTHS = {"conv2": 32, "conv3": 16, "conv4": 32, "mlp": 256}
NAMES = (*WIDTHS, "linear", "residual")
TEXT = "text:"  # begins the name of a pretrained network of texts
TIMM, TORCHVISION = "timm:", "torchvision:"
PoolingName = Literal["avg", "max", "gem"]


class ModelConfig(NamedConfig):
    """The network that turns an input into an embedding.

    `ModelConfig.parse` gives the settings of the network that `name` names; a backbone has more of them, and one
    outside Trivet adds its own.
    """

    name: str = Field(
        "conv4",
        description='"conv2", "conv3", "conv4" (small convolutional nets), "mlp", "linear", "residual" (linear, begins '
        'as the input), "timm:NAME" or "torchvision:NAME" for a backbone of these libraries, such as "timm:resnet18", '
        '"text:NAME" for a pretrained network of texts, by name or folder, or '
        '"python:FILE.py:NAME" for a class of your own.',
    )
    embedding_dim: int = Field(64, ge=1, le=65536, description="Length of an embedding.")
    normalize: bool = Field(True, description="Scale each embedding to Euclidean length 1.")
    pretrained: bool = Field(
        False, description="Of backbones: start from pretrained weights, which are downloaded once."
    )
    width: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Channels of the first layer of conv2 (32), conv3 (16) and conv4 (32), hidden units of mlp (256).",
    )

    @classmethod
    def names(cls) -> Collection[str]:
        """The names of the networks of Trivet, but for backbones."""
        return NAMES

    @classmethod
    def named(cls, name: str) -> type[ModelConfig]:
        """The settings of a network: these, and for a backbone or one outside Trivet its own."""
        from trivet.models.custom import settings  # here: these settings are part of those of every network
        from trivet.models.text_settings import TextNetworkConfig

        if name.startswith(TEXT):
            return TextNetworkConfig
        if is_backbone(name):
            return BackboneConfig
        return settings(name) if is_reference(name) else ModelConfig

    def stored(self) -> ModelConfig:
        """The settings of a network whose weights are at hand, and need not be fetched again."""
        return self.model_copy(update={"pretrained": False})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name.startswith(TEXT):
            return self  # it has settings of its own, which check themselves
        if is_backbone(self.name):
            check_backbone_name(self.name)
        elif self.name not in NAMES and not is_reference(self.name):
            kinds = ("timm:NAME", "torchvision:NAME", "text:NAME", "python:FILE.py:NAME")
            known = nearest(self.name, [*NAMES, *kinds])
            raise ValueError(f"name = {self.name!r} is not a model; {known}")
        elif self.pretrained:
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


class BackboneConfig(ModelConfig):
    """A network of timm or torchvision without its classifier, and a last layer on its features.

    Without a last layer, `embedding_dim` is the number of features; it may be left out.

    Raises:
        ValueError: if there is no such network, there are two kinds of weights, or nothing is left to learn.

    Source:
        Radenovic, Tolias, Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2018, for "gem".
    """

    weights: Path | None = Field(
        None,
        description="A file of weights to start from: safetensors, or one of torch that holds tensors only. They are "
        "matched by name, ignoring a prefix that all share; those of a classifier are left out.",
    )
    head: HeadName = Field(
        "linear",
        description="The last layer. linear: on pretrained features it begins as the projection that keeps most of "
        "them, else at random. residual: that projection, which stays, and a learned change. mlp: two layers, begun at "
        "random. none: embeddings are the features.",
    )
    pooling: PoolingName | None = Field(
        None,
        description="How a feature map becomes one vector: its mean, its maximum, or the generalised mean, whose power "
        "is learned and begins at 3. Default: as in the network.",
    )
    freeze: Literal["none", "stem", "all"] | Annotated[int, Field(ge=1, le=1000)] = Field(
        "none",
        description="What is not trained: the first layer, the whole backbone, or a number: the first layer and so "
        "many stages after it.",
    )
    batch_norm: Literal["train", "frozen"] | None = Field(
        None,
        description="frozen: batch norm keeps the statistics it begins with, and uses them in training too; its scale "
        "and shift are learned. Default: frozen where weights are pretrained.",
    )

    @property
    def begins_trained(self) -> bool:
        """True if the backbone has weights that were trained elsewhere."""
        return self.pretrained or self.weights is not None

    @property
    def freezes_batch_norm(self) -> bool:
        """True if batch norm keeps its statistics in training."""
        return self.batch_norm == "frozen" if self.batch_norm is not None else self.begins_trained

    def stored(self) -> ModelConfig:
        """Settings of a network that continues this one, whose weights are at hand."""
        norm = "frozen" if self.freezes_batch_norm else "train"
        return self.model_copy(update={"pretrained": False, "weights": None, "batch_norm": norm})

    @field_validator("freeze", mode="before")
    @classmethod
    def _stages(cls, value: Any) -> Any:
        if value in ("none", "stem", "all") or (type(value) is int and value >= 1):
            return value
        raise ValueError(f'it must be "none", "stem", "all" or a number of stages from 1 on: got {value!r}.')

    @model_validator(mode="before")
    @classmethod
    def _width(cls, values: Any) -> Any:
        """Without a last layer, an embedding is as long as the features."""
        if not isinstance(values, Mapping) or values.get("head") != "none" or "embedding_dim" in values:
            return values
        from trivet.models.backbones import num_features  # here: it takes seconds to load

        check_backbone_name(values.get("name", ""))
        return {**values, "embedding_dim": num_features(values["name"])}

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if not is_backbone(self.name):
            raise ValueError(f"name must be timm:NAME or torchvision:NAME for a backbone: got {self.name!r}.")
        if self.pretrained and self.weights is not None:
            raise ValueError("a backbone has one start: set pretrained = true or weights = FILE, not both.")
        if self.freeze == "all" and self.head == "none":
            raise ValueError('freeze = "all" with head = "none" leaves nothing to learn: use head = "linear".')
        return self


def is_backbone(name: str) -> bool:
    """True for a network of timm or torchvision."""
    return name.startswith((TIMM, TORCHVISION))


def check_backbone_name(name: str) -> None:
    """Raises ValueError, with the nearest names, if the library has no such network."""
    library, _, network_name = name.partition(":")
    if f"{library}:" == TIMM:
        import timm  # here: it takes seconds to load, and most models need none of it

        if timm.is_model(network_name):
            return
        known, listed = timm.list_models(), "import timm; print(timm.list_models('*net*'))"
    else:
        from torchvision import models

        known = models.list_models(module=models)
        if network_name in known:
            return
        listed = "from torchvision import models as m; print(m.list_models(module=m))"
    close = difflib.get_close_matches(network_name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(f'{library} has no model {network_name!r}; {guess}List them with: python -c "{listed}".')
