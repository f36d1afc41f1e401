"""Several pretrained networks as one: their features of an image, each of length 1, beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from trivet.models.backbones import BackboneConfig, build_backbone
from trivet.models.config import ModelConfig
from trivet.models.embedder import Embedder, image_shape
from trivet.models.heads import AS_WIDE, HeadName, make_head

WITHOUT_LAST = {"head": "none", "freeze": "all", "normalize": True}


class JoinedConfig(ModelConfig):
    """Several backbones that stay as they are, whose features are joined, and a last layer on these.

    Without a learned last layer, `embedding_dim` may be left out: it is the number of features of all.

    Raises:
        ValueError: if a member is no backbone of images, or has a last layer.

    Args:
        members: the backbones, each a table of settings such as name and weights.
        head: last layer: residual, linear or mlp to train one, whitening, or none.
        freeze: "all": the backbones stay as they are, always.
    """

    members: tuple[BackboneConfig, ...] = Field(min_length=2, max_length=8)
    head: HeadName = "none"
    freeze: Literal["all"] = "all"

    @model_validator(mode="before")
    @classmethod
    def _members(cls, values: Any) -> Any:
        members = values.get("members") if isinstance(values, Mapping) else None
        if not isinstance(members, list | tuple):
            return values
        made = [_member(member) for member in members]
        width = {}
        if values.get("head", "none") in AS_WIDE and "embedding_dim" not in values:
            width = {"embedding_dim": sum(member.embedding_dim for member in made)}
        return {**values, "members": tuple(made), **width}

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if self.name != "joined":
            raise ValueError(f'members are of name = "joined": got {self.name!r}; remove them.')
        return self

    def stored(self) -> JoinedConfig:
        """The settings of a network whose weights are at hand."""
        return self.model_copy(update={"members": tuple(member.stored() for member in self.members)})


def _member(values: Any) -> BackboneConfig:
    if isinstance(values, BackboneConfig):
        return values
    config = ModelConfig.model_validate({**WITHOUT_LAST, **values} if isinstance(values, Mapping) else values)
    if not isinstance(config, BackboneConfig):
        raise ValueError(
            f"a member must be a backbone of images, timm:NAME or torchvision:NAME: got {config.name!r}. Vectors and "
            "texts have nothing to join here: put their vectors beside each other in one table."
        )
    wrong = [key for key, value in WITHOUT_LAST.items() if getattr(config, key) != value]
    if wrong:
        raise ValueError(f"a member gives its features, and does not learn: remove its {wrong[0]}.")
    return config


class Joined(nn.Module):
    """Features `(B, F_1 + ... + F_n)` of images `(B, C, H, W)` in [0, 1]: those of each network, of length 1.

    Each gets the colours that it was trained on. A cosine of what is joined is the mean of the cosines of the networks.
    """

    def __init__(self, members: list[Embedder]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([member(images) for member in self.members], dim=1)


def build_joined(config: JoinedConfig, input_shape: tuple[int, ...]) -> Embedder:
    """The networks of the settings as the backbone of one, for images `(C, H, W)`.

    Raises:
        ValueError: as `build_backbone`.
    """
    shape = image_shape(config.name, input_shape)
    members = [build_backbone(member, shape) for member in config.members]  # which stay in evaluation mode
    features = sum(member.embedding_dim for member in config.members)
    head = make_head(config.head, features, config.embedding_dim, as_features=True, unit=config.normalize)
    return Embedder(
        nn.Sequential(Joined(members), head),
        input_shape=shape,
        normalize=config.normalize,
        on_backbone=True,
        notes=tuple(note for member in members for note in member.notes),
    )
