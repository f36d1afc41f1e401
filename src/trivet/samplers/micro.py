"""Micro-batches: the loss and the exact gradient of a large batch, in the memory of a small one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from trivet.runtime.arguments import check_count

Embed = Callable[[Any], Tensor]


def micro_batches(
    model: Embed, loss: Callable[[Tensor, Tensor], Tensor], inputs: Any, labels: Tensor, size: int = 64
) -> Tensor:
    """The loss of a batch that is embedded in pieces, see `embed_in_pieces`; `backward()` works as on any other.

    The loss sees all N embeddings at once: what it compares, its value and its gradient are those of the whole batch,
    in the memory of one piece and O(N d).

    Args:
        model: a module, or a method of one, that gives embeddings `(B, d)` of B items.
        loss: called once, as loss(embeddings, labels).
        inputs: of N items: a tensor `(N, ...)`, or a dict, list or tuple that holds such.
        labels: `(N,)` integer.
        size: the most items of a piece.

    Returns:
        A scalar with a graph.

    Raises:
        ValueError: as `embed_in_pieces`; also if there is not one label for each item.

    Source:
        Gao, Zhang, Han, Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP
        2021, section 3.2: gradient caching.

    Example:
        >>> from trivet import TripletLoss
        >>> model, loss = torch.nn.Linear(8, 2), TripletLoss()
        >>> micro_batches(model, loss, torch.randn(256, 8), torch.arange(256) % 4, size=32).backward()
    """
    count = _length(inputs)
    if len(labels) != count:
        raise ValueError(f"labels must hold one class per item: got {len(labels)} labels for {count} items.")
    return loss(embed_in_pieces(model, inputs, size), labels)


def embed_in_pieces(model: Embed, inputs: Any, size: int | None) -> Tensor:
    """Embeddings `(N, d)` with a graph that holds the activations of one piece of the batch at a time.

    The batch is cut into the fewest pieces of at most `size` items, of nearly equal length. Each is embedded and its
    activations are thrown away, but for the last piece; on the way back it is embedded again, with the same random
    numbers and under the same autocast, and its gradient taken at once, before the next piece.

    Random numbers, as for dropout, are drawn piece after piece: both times the same, but not those of one pass over the
    whole batch. Batch norm in training mode normalises each piece over itself; of P pieces each takes every P-th item,
    so that a batch that comes class by class gives pieces of all classes. Its running statistics, as all buffers of the
    model, are those of the first time; what a model computes must not depend on buffers that it changes then.

    Args:
        model, inputs: as in `micro_batches`. Tensors without dimensions and what is no tensor, as in the dict of a
            tokenizer, are given to each piece as they are.
        size: the most items of a piece; with None, or N and more, the whole batch is embedded at once.

    Raises:
        ValueError: if `size` is below 1, the inputs hold no tensor or tensors of several lengths, or the model is no
            module or gives no embedding `(B, d)` of each item.
    """
    if size is not None:
        check_count(size, name="size")
    count = _length(inputs)
    if size is None or count <= size:
        return model(inputs)
    again = _RestoredBuffers(_module_of(model))

    def embed(*tensors: Tensor) -> Tensor:
        embeddings = model(_with_tensors(inputs, (tensor.contiguous() for tensor in tensors)))
        if not isinstance(embeddings, Tensor) or len(embeddings) != len(tensors[0]):
            got = tuple(embeddings.shape) if isinstance(embeddings, Tensor) else type(embeddings).__name__
            raise ValueError(
                f"the model must give embeddings (B, d) of B items: got {got} of {len(tensors[0])} items; wrap it in a "
                "module that returns the embeddings alone."
            )
        return embeddings

    number = math.ceil(count / size)
    slices = [[tensor[start::number] for tensor in _tensors(inputs)] for start in range(number)]
    pieces = [
        # The tensors are arguments of their own, as it is by them that `checkpoint` knows whose random state to keep.
        checkpoint(embed, *tensors, use_reentrant=False, context_fn=lambda: (nullcontext(), again))
        for tensors in slices[:-1]
    ]
    pieces.append(embed(*slices[-1]))  # the way back begins with it, and is done with it before another comes
    full = count // number  # rows that all pieces have
    in_order = torch.stack([piece[:full] for piece in pieces], dim=1).flatten(0, 1)
    return torch.cat([in_order, *(piece[full:] for piece in pieces)])


class _RestoredBuffers:
    """A context that leaves the buffers of a module as they were."""

    def __init__(self, module: nn.Module) -> None:
        self._buffers = list(module.buffers())
        self._before: list[Tensor] = []

    def __enter__(self) -> None:
        self._before = [buffer.clone() for buffer in self._buffers]

    def __exit__(self, *_: object) -> None:
        for buffer, before in zip(self._buffers, self._before, strict=True):
            buffer.data.copy_(before)  # `data`: the change is undone, so autograd need not know of either
        self._before = []


def _module_of(model: Embed) -> nn.Module:
    module = getattr(model, "__self__", model)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"model must be a module or a method of one, as its batch norm is to be seen: got {type(model).__name__}; "
            "put it into the forward of a torch.nn.Module."
        )
    if any(isinstance(module_of_model, DistributedDataParallel) for module_of_model in module.modules()):
        raise ValueError(
            "model must not be DistributedDataParallel, which counts its passes: got one; let the forward of a module "
            "call this with the model, and wrap that module in DistributedDataParallel."
        )
    return module


def _length(inputs: Any) -> int:
    lengths = sorted({len(tensor) for tensor in _tensors(inputs)})
    if len(lengths) != 1:
        got = f"tensors of {' and '.join(map(str, lengths))} items" if lengths else type(inputs).__name__
        raise ValueError(
            f"inputs must be a tensor (N, ...), or a dict, list or tuple of such with one N: got {got}; stack them."
        )
    return lengths[0]


def _tensors(inputs: Any) -> list[Tensor]:
    """The tensors that are cut, in order."""
    if isinstance(inputs, Tensor):
        return [inputs] if inputs.ndim else []
    items = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _with_tensors(inputs: Any, tensors: Iterator[Tensor]) -> Any:
    """The inputs with other tensors in place of those of `_tensors`."""
    if isinstance(inputs, Tensor):
        return next(tensors) if inputs.ndim else inputs
    if isinstance(inputs, Mapping):
        return {key: _with_tensors(item, tensors) for key, item in inputs.items()}
    if isinstance(inputs, list | tuple):
        return type(inputs)([_with_tensors(item, tensors) for item in inputs])
    return inputs
