"""A memory of past batches, which a loss compares the current batch with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trivet.geometry import check_embeddings
from trivet.mining.batch import check_batch
from trivet.rows import RowLoss


class References(NamedTuple):
    """The current batch and the memory after it, named as a loss takes them; see `CrossBatchMemory.references`."""

    references: Tensor
    reference_labels: Tensor
    reference_ids: Tensor


class CrossBatchMemory(nn.Module):
    """The last `size` embeddings of training, first in, first out, so that a small batch meets many others.

    Calling it is one training step: the loss of the batch against itself and the memory, and then the batch is
    remembered. Rows of the batch carry gradient in both roles, as anchors and as references; remembered rows are
    constants. Rows of the same id are never compared, so an item meets neither itself nor what it was some steps ago.

    In evaluation mode (`memory.eval()`) a call remembers nothing. The whole content is in `state_dict`, so a resumed
    run goes on exactly. Rows are kept as given, not normalized, in float32; `memory.to(...)` changes device and dtype
    as of any module. An id may be there several times if its item was met again; `size` up to the number of training
    items keeps that rare.

    Args:
        size: M, rows in a full memory, at least 1.
        embedding_dim: d, at least 1.

    Shape:
        embeddings `(N, d)` float; labels and ids `(N,)` integer, the id being the item's number in the data set.
        N may be 0, or exceed `size`: then the last `size` rows are remembered.

    Raises:
        ValueError: if shapes, dtypes, lengths or devices disagree, or a row is not finite; then nothing is remembered.

    Source:
        Wang, Zhang, Huang, Scott, "Cross-batch memory for embedding learning", CVPR 2020. There the batch is put into
        the memory before the comparison, and met there without gradient.

    Example:
        >>> from trivet import TripletLoss
        >>> memory = CrossBatchMemory(size=1024, embedding_dim=1)
        >>> loss = TripletLoss(margin=1.5, distance="euclidean", positives="easy", negatives="hard")
        >>> labels = torch.tensor([0, 1])
        >>> memory(loss, torch.tensor([[0.0], [4.0]]), labels, ids=torch.tensor([10, 11]))  # no positive yet
        tensor(0.)
        >>> memory(loss, torch.tensor([[1.0], [3.0]]), labels, ids=torch.tensor([12, 13]))
        tensor(0.5000)
        >>> memory.ids
        tensor([10, 11, 12, 13])
    """

    stored_embeddings: Tensor
    stored_labels: Tensor
    stored_ids: Tensor
    added: Tensor

    def __init__(self, *, size: int, embedding_dim: int) -> None:
        super().__init__()
        for name, value in [("size", size), ("embedding_dim", embedding_dim)]:
            if value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}; a memory needs a row and a dimension.")
        self.size = size
        self.embedding_dim = embedding_dim
        self.register_buffer("stored_embeddings", torch.zeros(size, embedding_dim, dtype=torch.float32))
        self.register_buffer("stored_labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("stored_ids", torch.zeros(size, dtype=torch.int64))
        # Rows ever added. Row number t lies at t modulo size, which gives both the next place and the filled part.
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        """Rows in the memory, 0 to `size`; read back from the memory's device."""
        return min(int(self.added), self.size)

    @property
    def embeddings(self) -> Tensor:
        """The remembered rows `(len, d)`: a view, overwritten by later calls, in the order of their places.

        That is the order in which they came until the memory is full; then a new row takes the place of the oldest.
        """
        return self.stored_embeddings[: len(self)]

    @property
    def labels(self) -> Tensor:
        """Labels `(len,)` int64 of the remembered rows, a view."""
        return self.stored_labels[: len(self)]

    @property
    def ids(self) -> Tensor:
        """Ids `(len,)` int64 of the remembered rows, a view."""
        return self.stored_ids[: len(self)]

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor, ids: Tensor) -> None:
        """Remember a copy of the batch in place of the oldest rows; see the class for shapes and errors."""
        self._check(embeddings, labels, ids)
        rows = embeddings.to(self.stored_embeddings.dtype)
        if rows.dtype != embeddings.dtype:
            check_embeddings(rows, name=f"embeddings as {rows.dtype}")
        places = (torch.arange(len(rows), device=rows.device) + self.added)[-self.size :] % self.size
        for stored, values in [(self.stored_embeddings, rows), (self.stored_labels, labels), (self.stored_ids, ids)]:
            stored[places] = values[-self.size :].to(stored)
        self.added.add_(len(rows))

    def references(self, embeddings: Tensor, labels: Tensor, ids: Tensor) -> References:
        """The batch, with its gradient, and after it the memory: `(N + len, d)`, labels and ids `(N + len,)`; a copy.

        Use it where a step is more than one loss:

            references = memory.references(embeddings, labels, ids)
            value = loss(embeddings, labels, ids=ids, **references._asdict())
            memory.add(embeddings, labels, ids)
        """
        self._check(embeddings, labels, ids)
        count = len(self)
        return References(
            torch.cat([embeddings, self.stored_embeddings[:count]]),
            torch.cat([labels.to(torch.int64), self.stored_labels[:count]]),
            torch.cat([ids.to(torch.int64), self.stored_ids[:count]]),
        )

    def forward(self, loss: RowLoss, embeddings: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        """The loss of the batch against itself and the memory, a scalar; then, in training mode, remember the batch."""
        # Not the other way round: the batch would meet itself twice, once without gradient.
        value: Tensor = loss(embeddings, labels, ids=ids, **self.references(embeddings, labels, ids)._asdict())
        if self.training:
            self.add(embeddings, labels, ids)
        return value

    def _check(self, embeddings: Tensor, labels: Tensor, ids: Tensor) -> None:
        if ids is None:
            raise ValueError("ids must tell which item each row is: got None; pass its number in the data set.")
        check_batch(embeddings, labels, ids=ids)
        if embeddings.shape[1] != self.embedding_dim:
            raise ValueError(
                f"embeddings must have the dimension of the memory: got {embeddings.shape[1]} and "
                f"{self.embedding_dim}; make the memory with embedding_dim={embeddings.shape[1]}."
            )
        home = self.stored_embeddings.device
        for name, values in [("embeddings", embeddings), ("labels", labels), ("ids", ids)]:
            if values.device != home:
                move = f"memory.to('{values.device}')" if name == "embeddings" else f"{name}.to('{home}')"
                raise ValueError(
                    f"{name} must lie on the memory's device: got {values.device} and {home}; move with {move}."
                )
