"""A network for each side of pairs, into one space: of queries and documents, of images and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from pydantic import SerializeAsAny, model_validator
from torch import Tensor, nn

from trivet.models.config import NETWORKS, ModelConfig
from trivet.models.embedder import Embedder
from trivet.models.inputs import Items
from trivet.models.tokens import Tokenize

SideName = Literal["left", "right"]
SIDES: tuple[SideName, SideName] = get_args(SideName)
TOWERS = "towers"  # the name of such a model
OF_BOTH = ("embedding_dim", "normalize")  # settings that both networks have alike


@dataclass(frozen=True, eq=False)
class SidedBatch:
    """Inputs of B items of two sides.

    Attributes:
        right: `(B,)` bool, True for an item of the right side.
        sides: the inputs `(L, ...)` of the items of the left side and `(R, ...)` of the right one, in their order.
    """

    right: Tensor
    sides: tuple[Tensor, Tensor]

    def __len__(self) -> int:
        return len(self.right)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> SidedBatch:
        """The same inputs on a device."""
        right, left_inputs, right_inputs = (
            tensor.to(device, non_blocking=non_blocking) for tensor in (self.right, *self.sides)
        )
        return SidedBatch(right, (left_inputs, right_inputs))

    def pin_memory(self) -> SidedBatch:
        """The same inputs in memory from which a GPU copies."""
        return SidedBatch(self.right.pin_memory(), (self.sides[0].pin_memory(), self.sides[1].pin_memory()))

    def joined(self, embeddings: Sequence[Tensor]) -> Tensor:
        """The rows `(B, d)` of all items from those of each side, `(L, d)` and `(R, d)`."""
        order = torch.argsort(torch.argsort(self.right, stable=True), stable=True)
        return torch.cat([*embeddings])[order]


class TowersConfig(ModelConfig):
    """A network for each side of pairs, which embed into one space.

    Raises:
        ValueError: if a side is missing, or has two sides itself.

    Args:
        left: the network of the left side, such as queries or images; a section of its own, [model.left].
        right: that of the right side, such as documents or texts; [model.right].
    """

    left: SerializeAsAny[ModelConfig]
    right: SerializeAsAny[ModelConfig]

    @model_validator(mode="before")
    @classmethod
    def _share(cls, values: Any) -> Any:
        """Give both sides what is set for both."""
        if not isinstance(values, Mapping):
            return values
        shared = {key: values[key] for key in OF_BOTH if key in values}
        return {
            key: {**shared, **value} if key in SIDES and isinstance(value, Mapping) else value
            for key, value in values.items()
        }

    @model_validator(mode="after")
    def _check_sides(self) -> Self:
        if self.name != TOWERS:
            raise ValueError(f'left and right are of name = "{TOWERS}": got {self.name!r}; remove them.')
        for side, network in zip(SIDES, self.networks, strict=True):
            if isinstance(network, TowersConfig):
                raise ValueError(f"the network of the {side} side must be a single one: got towers; name that network.")
        if self.left.normalize != self.right.normalize:
            raise ValueError("both sides must give embeddings alike: got normalize = true and false; set one of them.")
        return self

    @property
    def networks(self) -> tuple[ModelConfig, ...]:
        """The settings of the networks of both sides."""
        return (self.left, self.right)

    def with_networks(self, left: ModelConfig, right: ModelConfig) -> TowersConfig:
        """The settings with other ones of both sides.

        Raises:
            ValueError: if their embeddings are of two lengths.
        """
        if left.embedding_dim != right.embedding_dim:
            raise ValueError(
                f"both sides must have embeddings of one length: got {left.embedding_dim} on the left and "
                f"{right.embedding_dim} on the right; set model.embedding_dim, and a head for each side."
            )
        shared = {key: getattr(left, key) for key in OF_BOTH}
        return self.model_copy(update={"left": left, "right": right, **shared})

    def stored(self) -> TowersConfig:
        """The settings of networks whose weights are at hand."""
        return self.model_copy(update={"left": self.left.stored(), "right": self.right.stored()})


class Towers(Embedder):
    """Two networks, of which each embeds the items of its side of a `SidedBatch`.

    Features may stand for the inputs of a side, as for those of its network.

    Args:
        left, right: their embeddings are of one length.

    Attributes:
        left, right: the two, each of which embeds items of its side by itself.
    """

    def __init__(self, left: Embedder, right: Embedder) -> None:
        super().__init__(
            nn.ModuleDict({"left": left, "right": right}),
            input_shape=(left.input_shape, right.input_shape),
            normalize=left.normalize,
            mean=torch.empty(0),
            std=torch.empty(0),
            notes=tuple(dict.fromkeys((*left.notes, *right.notes))),
        )
        del self.mean, self.std  # of images

    @property
    def networks(self) -> tuple[Embedder, ...]:
        return (self.left, self.right)

    @property
    def left(self) -> Embedder:
        """The network of the left side."""
        return self._of_side("left")

    @property
    def right(self) -> Embedder:
        """The network of the right side."""
        return self._of_side("right")

    def _of_side(self, side: SideName) -> Embedder:
        network = self.body.get_submodule(side)
        assert isinstance(network, Embedder), "the constructor made it so"
        return network

    @property
    def tokenize(self) -> tuple[Tokenize | None, ...]:
        """Functions from texts to tokens, one of each side; None for a network that takes no tokens."""
        made = [network.tokenize for network in self.networks]
        return tuple(None if isinstance(tokenize, tuple) else tokenize for tokenize in made)  # each is a single network

    @property
    def backbone(self) -> Embedder | None:
        """Both networks without their last layers, where they are alike, so that these have a space in common."""
        left, right = (network.backbone for network in self.networks)
        if left is None or right is None or left.input_shape != right.input_shape:
            return None
        mine, its = left.state_dict(), right.state_dict()
        alike = mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)
        return Towers(left, right).train(self.training) if alike else None

    @property
    def headless(self) -> bool:
        return self.left.headless and self.right.headless

    def forward(self, inputs: SidedBatch) -> Tensor:  # type: ignore[override]  # items know their side here
        return self.embed_sides(inputs, lambda network, items: network(items))

    def embed_sides(self, inputs: SidedBatch, embed: Callable[[Embedder, Tensor], Tensor]) -> Tensor:
        """Embeddings `(B, d)` of a batch, which `embed` makes of the items of each side by its network."""
        made, unused = dict[SideName, Tensor](), torch.zeros((), device=inputs.right.device)
        for side, network, items in zip(SIDES, self.networks, inputs.sides, strict=True):
            if len(items):
                made[side] = embed(network, items)
            else:  # of several processes each adds up gradients of all weights, also of those that its part lacks
                unused = unused + sum(0 * weight.sum() for weight in network.parameters() if weight.requires_grad)
        nothing = next(iter(made.values()))[:0]
        embeddings = inputs.joined([made.get(side, nothing) for side in SIDES])
        return embeddings + unused if len(made) < len(SIDES) else embeddings

    def prepared(self, items: Items) -> Tensor:
        raise ValueError("this model has a network for each side: embed with model.left or model.right.")


def build_towers(config: TowersConfig, input_shape: tuple[Any, ...]) -> Towers:
    """The networks of the settings for inputs of two shapes, one for each side.

    Both draw alike, so that equal settings give equal networks.

    Raises:
        ValueError: if the inputs have no sides; as the networks.
    """
    if len(input_shape) != len(SIDES) or not all(isinstance(shape, tuple) for shape in input_shape):
        raise ValueError(f'model.name = "{TOWERS}" needs items of two sides, data.name = "pairs": got others.')
    state = torch.default_generator.get_state()
    built = []
    for network, shape in zip(config.networks, input_shape, strict=True):
        torch.default_generator.set_state(state)
        built.append(NETWORKS.entry(network.name).build(network, shape))
    return Towers(*built)
