"""A memory of past batches, which a loss compares the current batch with."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from trivet.distances import check_embeddings
from trivet.distances.device import PreciseModule, precise
from trivet.losses.engine import EmbeddingLoss
from trivet.mining.batch import Batch, Labels, check_batch
from trivet.mining.gather import Gathered, LocalBatch
from trivet.mining.gather import gather as gather_rows
from trivet.mining.relations import Relation
from trivet.runtime.arguments import explain_arguments


class References(NamedTuple):
    """The current batch and the memory after it, named as a loss takes them; see `CrossBatchMemory.references`."""

    references: Tensor
    reference_labels: Labels
    reference_ids: Tensor


class CrossBatchMemory(PreciseModule):
    """The last `size` embeddings of training, first in, first out, so that a small batch meets many others.

    Calling it is one training step: the loss of the batch against itself and the memory, and then the batch is
    remembered. Rows of the batch carry gradient in both roles, as anchors and as references; remembered rows are
    constants. Rows of the same id are never compared, so an item meets neither itself nor what it was some steps ago.

    In evaluation mode (`memory.eval()`) a call remembers nothing. The whole content is in `state_dict`, so a resumed
    run goes on exactly. Rows are kept as given, not normalized, in float32; `memory.to(...)` changes device and dtype
    as of any module. An id may be there several times if its item was met again; `size` up to the number of training
    items keeps that rare.

    With `gather`, the processes of torch.distributed share a batch, see `EmbeddingLoss.forward`: each brings its part,
    all remember all parts, those of process 0 first, and so all hold the same memory. Pass it in every call or in none.

    Args:
        size: M, rows in a full memory, at least 1.
        embedding_dim: d, at least 1.

    Shape:
        embeddings `(N, d)` float; labels and ids `(N,)` integer, the id being the item's number in the data set; or
        labels as a relation of N items, which takes its rows of all items in every batch, `relation[rows]`.
        N may be 0 without `gather`, or exceed `size`: then the last `size` rows are remembered.

    Raises:
        ValueError: if shapes, dtypes, lengths or devices disagree, or a row is not finite; then nothing is remembered.
            With `gather`, on every process, and no process remembers anything.

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
    signature: Tensor
    added: Tensor

    @explain_arguments
    def __init__(self, *, size: int, embedding_dim: int) -> None:
        super().__init__()
        for name, value in [("size", size), ("embedding_dim", embedding_dim)]:
            if value < 1:
                raise ValueError(f"{name} must be at least 1: got {value}; a memory needs a row and a dimension.")
        self.size = size
        self.embedding_dim = embedding_dim
        self.register_buffer("stored_embeddings", torch.zeros(size, embedding_dim, dtype=torch.float32))
        self.register_buffer("stored_labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("signature", torch.zeros((), dtype=torch.int64))  # of the relation of the labels
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

    def add(self, embeddings: Tensor, labels: Labels, ids: Tensor, *, gather: bool | dist.ProcessGroup = False) -> None:
        """Remember a copy of the batch in place of the oldest rows; see the class for shapes and errors.

        Args:
            gather: remember the rows of all processes of torch.distributed, or of a group.
        """
        self._remember(self._batch(embeddings, labels, ids, gather))

    def references(self, embeddings: Tensor, labels: Labels, ids: Tensor) -> References:
        """The batch, with its gradient, and after it the memory: `(N + len, d)`, labels and ids `(N + len,)`; a copy.

        Use it where a step is more than one loss:

            references = memory.references(embeddings, labels, ids)
            value = loss(embeddings, labels, ids=ids, **references._asdict())
            memory.add(embeddings, labels, ids)
        """
        count = len(self)
        relation = self._check(embeddings, labels, ids).relation
        return References(
            torch.cat([precise(embeddings), self.stored_embeddings[:count]]),
            relation.with_items(torch.cat([relation.items, self.stored_labels[:count]])),
            torch.cat([precise(ids).to(torch.int64), self.stored_ids[:count]]),
        )

    @explain_arguments
    def forward(
        self,
        loss: EmbeddingLoss,
        embeddings: Tensor,
        labels: Labels,
        ids: Tensor,
        *,
        gather: bool | dist.ProcessGroup = False,
    ) -> Tensor:
        """The loss of the batch against itself and the memory, a scalar; then, in training mode, remember the batch.

        Args:
            gather: the batch is that of all processes of torch.distributed, or of a group; see `EmbeddingLoss.forward`
                for the value and the gradients.
        """
        batch = self._batch(embeddings, labels, ids, gather)
        # Before the batch is remembered, which would then meet itself twice, once without gradient.
        value: Tensor = loss(
            embeddings,
            labels,
            ids=ids,
            references=self.embeddings,
            reference_labels=labels.with_items(self.labels) if isinstance(labels, Relation) else self.labels,
            reference_ids=self.ids,
            with_batch=True,
            gather=gather,
        )
        if self.training:
            self._remember(batch)
        return value

    @torch.no_grad()
    def _batch(
        self, embeddings: Tensor, labels: Labels, ids: Tensor, gather: bool | dist.ProcessGroup
    ) -> LocalBatch | Gathered:
        """The batch to remember, that of all processes with `gather`; an error of one is then raised on all."""

        def checked() -> LocalBatch:
            batch = self._check(embeddings, labels, ids)
            kind = self.stored_embeddings.dtype
            if kind != batch.embeddings.dtype:
                check_embeddings(batch.embeddings.to(kind), name=f"embeddings as {kind}")
            signature = batch.relation.signature
            return LocalBatch(batch.embeddings, batch.labels, batch.ids, seeds=(0, 0), signature=signature)

        if not gather:
            return checked()
        return gather_rows(checked, None if gather is True else gather)

    @torch.no_grad()
    def _remember(self, batch: LocalBatch | Gathered) -> None:
        assert batch.ids is not None
        count = len(batch.labels)
        slots = (torch.arange(count, device=batch.labels.device) + self.added)[-self.size :] % self.size
        self.stored_embeddings[slots] = batch.embeddings[-self.size :].to(self.stored_embeddings)
        self.stored_labels[slots] = batch.labels[-self.size :]
        self.stored_ids[slots] = batch.ids[-self.size :]
        self.added.add_(count)

    def _check(self, embeddings: Tensor, labels: Labels, ids: Tensor) -> Batch:
        if ids is None:
            raise ValueError("ids must identify the item of each row: got None; pass its index in the data set.")
        batch = check_batch(embeddings, labels, ids=ids)
        if embeddings.shape[1] != self.embedding_dim:
            raise ValueError(
                f"embeddings must have the dimension of the memory: got {embeddings.shape[1]} and "
                f"{self.embedding_dim}; make the memory with embedding_dim={embeddings.shape[1]}."
            )
        home = self.stored_embeddings.device
        for name, values in [("embeddings", embeddings), ("labels", batch.labels), ("ids", ids)]:
            if precise(values).device != home:
                move = f"memory.to('{values.device}')" if name == "embeddings" else f"{name}.to('{home}')"
                raise ValueError(
                    f"{name} must lie on the memory's device: got {values.device} and {home}; move with {move}."
                )
        if len(self) == 0:
            self.signature.fill_(batch.relation.signature)
        elif int(self.signature) != batch.relation.signature:
            raise ValueError(
                "labels must be of one relation in all batches that a memory compares: got another; make it of all "
                "items once, and take the rows of each batch, relation[rows]."
            )
        return batch
