"""Networks that turn inputs into embeddings."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trivet.distances import unit_rows
from trivet.models.heads import Projection, Residual, Whitening
from trivet.models.inputs import Items, as_inputs
from trivet.models.pixels import in_unit_range
from trivet.models.stages import stages

if TYPE_CHECKING:
    from trivet.models.tokens import Tokenize


class Embedder(nn.Module):
    """A network from inputs `(B, *input_shape)` to embeddings `(B, d)`.

    Images are `(B, C, H, W)`, in [0, 1] or bytes, which are divided by 255. In place of images, a network on a backbone
    takes their features `(B, F)`, as the backbone gives them, and applies its last layer alone.

    Args:
        normalize: scale each embedding to length 1.
        mean, std: `(C,)` of the images the backbone was trained on: the body gets (image - mean) / std.
        on_backbone: the body is a sequence of a backbone, which may have been trained elsewhere, and a new last layer,
            or `nn.Identity` for none.
        channels_last: give the body images in the order of memory in which convolutions are fastest.
        still: the parts of the body that stay in evaluation mode, such as batch norm that keeps its statistics.
        notes: what its user should know, in sentences.

    Attributes:
        resize: the shorter side that images have before `embed` cuts their edges off; None: no edge is.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        body: nn.Module,
        *,
        input_shape: tuple[Any, ...],
        normalize: bool,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        on_backbone: bool = False,
        channels_last: bool = False,
        still: tuple[nn.Module, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.body = body
        self.on_backbone, self.channels_last = on_backbone, channels_last
        self.still, self.notes = still, notes
        self.resize: int | None = None
        self.input_shape = tuple(input_shape)
        self.normalize = normalize
        self.register_buffer("mean", torch.zeros(input_shape[0]) if mean is None else mean)
        self.register_buffer("std", torch.ones(input_shape[0]) if std is None else std)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """As of any module, but for the parts that stay in evaluation mode."""
        super().train(mode)
        for module in self.still:
            module.eval()
        return self

    @property
    def device(self) -> torch.device:
        """The device of its numbers."""
        return next(chain(self.parameters(), self.buffers())).device

    @property
    def num_parameters(self) -> int:
        """The number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    @property
    def networks(self) -> tuple[Embedder, ...]:
        """The networks that it consists of: itself, but of two sides that of each."""
        return (self,)

    @property
    def tokenize(self) -> Tokenize | tuple[Tokenize | None, ...] | None:
        """A function from texts to tokens; None for a network that takes no tokens, and of two sides that of each."""
        return None

    @property
    def unfitted(self) -> Residual | Projection | Whitening | None:
        """The last layer, if it begins as something that follows from features; see `Residual.fit_base`."""
        last = self.body[-1] if isinstance(self.body, nn.Sequential) else None
        return last if isinstance(last, Residual | Projection | Whitening) and last.fitted else None

    @property
    def backbone(self) -> Embedder | None:
        """The network without the new last layer, on the same weights; None where there is no backbone."""
        if not self.on_backbone:
            return None
        network = Embedder(
            nn.Sequential(cast("nn.Sequential", self.body)[0], nn.Identity()),
            input_shape=self.input_shape,
            normalize=self.normalize,
            mean=self.mean,
            std=self.std,
            on_backbone=True,
            channels_last=self.channels_last,
            still=self.still,
        )
        return network.train(self.training)

    @property
    def by_depth(self) -> list[list[nn.Parameter]]:
        """The parameters of the backbone, stage after stage; those of no stage belong to the first, or to the last.

        Raises:
            ValueError: if its stages are not known.
        """
        groups = [[values for module in stage for values in module.parameters()] for stage in self._stages()]
        inside = {values for group in groups for values in group}
        later = False
        for values in cast("nn.Sequential", self.body)[0].parameters():
            later = later or values in inside
            if values not in inside:  # positions of patches come before all stages, a norm or pooling after them
                groups[-1 if later else 0].append(values)
        return groups

    def _stages(self) -> list[list[nn.Module]]:
        backbone = cast("nn.Sequential", self.body)[0]
        network = backbone[0] if type(backbone) is nn.Sequential else backbone  # another pooling follows it
        return stages(network) or [[network]]

    @property
    def headless(self) -> bool:
        """True if embeddings are the features of the backbone."""
        return self.on_backbone and isinstance(cast("nn.Sequential", self.body)[-1], nn.Identity)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.on_backbone and self._are_features(inputs):
            return self._finished(cast("nn.Sequential", self.body)[1:](inputs))
        if tuple(inputs.shape[1:]) != self.input_shape:
            raise ValueError(
                f"this model takes inputs of shape {('B', *self.input_shape)}: got {tuple(inputs.shape)}; "
                "prepare them as in training."
            )
        first = (-1, *[1] * (len(self.input_shape) - 1))  # the channels of an image
        # In one order of memory, that of the network: sums round differently in another.
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        inputs = in_unit_range(inputs.contiguous(memory_format=order), self.mean.dtype)
        normalized = (inputs - self.mean.reshape(first)) / self.std.reshape(first)
        return self._finished(self.body(normalized))

    def _are_features(self, inputs: Tensor) -> bool:
        return inputs.ndim == 2 and inputs.is_floating_point() and len(self.input_shape) == 3

    def _finished(self, embeddings: Tensor) -> Tensor:
        return unit_rows(embeddings) if self.normalize else embeddings

    @torch.no_grad()
    def embed(self, items: Items, *, batch_size: int = 64) -> npt.NDArray[np.float32]:
        """Embeddings `(N, d)` of N items, made ready as `trivet embed` does it; in evaluation mode.

        Args:
            items: images, each a path, a picture of Pillow, or an array `(H, W)` or `(H, W, 3)` of bytes; texts; or
                vectors `(N, D)`: what the network was trained on.
            batch_size: of so many at once.

        Raises:
            ValueError: if there is no item, or one is no such thing or cannot be read.
        """
        if isinstance(items, str) or len(items) == 0:
            got = repr(items[:40]) if isinstance(items, str) else "none"
            raise ValueError(f"items must be a list with at least one image, text or vector: got {got}; give a list.")
        was_training, device = self.training, self.device
        self.eval()
        try:
            chunks = [
                self(self.prepared(items[start : start + batch_size]).to(device)).float().cpu().numpy()
                for start in range(0, len(items), batch_size)
            ]
        finally:
            self.train(was_training)
        return np.concatenate(chunks)

    def prepared(self, items: Items) -> Tensor:
        """Inputs `(B, ...)` of the network from B items; see `embed`."""
        return as_inputs(items, self.input_shape, self.resize)


def image_shape(name: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape of the images that a network takes; ValueError if its inputs are no images."""
    if len(input_shape) != 3:
        raise ValueError(
            f"{name} takes images, of shape (C, H, W): got inputs of shape {input_shape}; use residual, linear, "
            "mlp or a network of your own."
        )
    return input_shape
