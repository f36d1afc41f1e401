"""Distillation: a student learns whom a teacher finds similar, whatever the lengths of their embeddings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import kl_div
from torch.utils.checkpoint import checkpoint

from trivet.distances import check_embeddings, device, unit_rows_of
from trivet.mining.batch import NUMBERS_PER_BLOCK
from trivet.mining.gather import LocalBatch, sum_over_processes
from trivet.mining.gather import gather as gather_batches
from trivet.runtime.arguments import check_above_zero, explain_arguments


class DistillationLoss(nn.Module):
    """The divergence of the student's similarities from those of a teacher, of each item to all others.

    Mean over the items a of KL(q_a || p_a) = sum_j q_aj log(q_aj / p_aj), where q_aj and p_aj are the softmax over j of
    the cosine similarities S_aj / temperature by the teacher and by the student. j goes through the other items of the
    batch, or through all references. It needs no labels, and can be added to a loss that does. The teacher's rows have
    no gradient.

    Args:
        temperature: > 0; a low one is about the nearest items only, a high one about all.
        block_size: items whose similarities are held at once; None chooses it by memory.

    Shape:
        embeddings `(N, d)` and teacher `(N, t)` float, rows of the same items; references `(M, d)` and
        teacher_references `(M, t)` likewise, of other items. Returns a scalar, exactly 0 with a graph where there is
        nothing to compare with.

    Raises:
        ValueError: if shapes disagree, or a row is not finite.

    Source:
        Abbasi Koohpayegani, Tejankar, Pirsiavash, "CompRess: Self-Supervised Learning by Compressing Representations",
        NeurIPS 2020, section 3, where the references are a memory of past batches of student and teacher. It is the
        loss of Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015, of similarities in place
        of logits.

    Example:
        >>> teacher = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        >>> student = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> DistillationLoss(temperature=1.0)(student, teacher)
        tensor(0.2311)
    """

    @explain_arguments
    def __init__(self, *, temperature: float = 0.05, block_size: int | None = None) -> None:
        super().__init__()
        self.temperature = check_above_zero(temperature, name="temperature")
        if block_size is not None and block_size < 1:
            raise ValueError(f"block_size must be at least 1 item: got {block_size}; None chooses it by memory.")
        self.block_size = block_size

    def extra_repr(self) -> str:
        """The options."""
        return f"temperature={self.temperature}, block_size={self.block_size}"

    @explain_arguments
    def forward(
        self,
        embeddings: Tensor,
        teacher: Tensor,
        *,
        references: Tensor | None = None,
        teacher_references: Tensor | None = None,
        gather: bool | dist.ProcessGroup = False,
    ) -> Tensor:
        """Compute the loss.

        Args:
            gather: the batch is that of all processes of torch.distributed (or of a group), of which each brings its
                rows, as with the other losses.
        """
        if gather:
            return self._of_processes(embeddings, teacher, references, None if gather is True else gather)
        if (references is None) != (teacher_references is None):
            raise ValueError("references and teacher_references must be given together: got one; pass both or neither.")
        rows, others = _unit_rows(embeddings, references, "embeddings", "references")
        both = _unit_rows(teacher, teacher_references, "teacher", "teacher_references")
        targets, target_others = (each.detach() for each in both)
        _check_items(rows, targets, "embeddings", "teacher")
        _check_items(others, target_others, "references", "teacher_references")
        if len(rows) == 0 or len(others) == 0:
            return (rows.sum() + others.sum()) * 0
        first = 0 if references is None else None
        return self._add_up(rows, others, targets, target_others, first) / len(rows)

    def _of_processes(
        self, embeddings: Tensor, teacher: Tensor, references: Tensor | None, group: dist.ProcessGroup | None
    ) -> Tensor:
        local: list[Tensor] = []

        def check() -> LocalBatch:
            if references is not None:
                raise ValueError(
                    "references must be left out with gather: got both; without gather each process compares its rows "
                    "with the references, and the mean over the processes is the loss of all."
                )
            rows, targets = _unit(embeddings, "embeddings"), _unit(teacher, "teacher").detach()
            _check_items(rows, targets, "embeddings", "teacher")
            local.extend([rows, targets])
            dtype = torch.promote_types(rows.dtype, targets.dtype)
            dimension = torch.full((len(rows),), rows.shape[1], device=rows.device)
            return LocalBatch(torch.cat([rows.to(dtype), targets.to(dtype)], dim=1), dimension, None, (0, 0))

        gathered = gather_batches(check, group)
        rows, targets = local
        if (gathered.labels != rows.shape[1]).any():
            raise ValueError(
                "every process must pass embeddings of one dimension, and a teacher of one: got "
                f"{sorted({*gathered.labels.tolist()})} of embeddings; embed with the same models."
            )
        others, target_others = torch.split(gathered.embeddings, [rows.shape[1], targets.shape[1]], dim=1)
        others, target_others = others.to(rows.dtype), target_others.to(targets.dtype).detach()
        total = self._add_up(rows, others, targets, target_others, gathered.start)
        return sum_over_processes(total, gathered=gathered.embeddings, group=group) / sum(gathered.counts)

    def _add_up(
        self, rows: Tensor, others: Tensor, targets: Tensor, target_others: Tensor, first: int | None
    ) -> Tensor:
        """The sum of the divergences of all items, block by block; for `first` see `block`."""
        block: Callable[..., Tensor] = partial(self.block, first=first)
        spans = self._spans(rows, len(others))
        if torch.is_grad_enabled() and len(spans) > 1:  # computed again for the gradient, so that one block exists
            block = partial(checkpoint, block, use_reentrant=False)
        sums = [block(span, rows, others, targets, target_others) for span in spans]
        return torch.stack(sums).sum()

    def block(
        self,
        span: slice,
        rows: Tensor,
        others: Tensor,
        targets: Tensor,
        target_others: Tensor,
        *,
        first: int | None,
    ) -> Tensor:
        """The sum of the divergences of the items in `span`.

        Args:
            first: which of the others is the first of the rows; None if they are other items.
        """
        similarities = rows[span] @ others.T, (targets[span] @ target_others.T).to(rows.dtype)
        exponents = [each / self.temperature for each in similarities]
        if first is not None:
            row, column = (torch.arange(len(each), device=rows.device) for each in (rows, others))
            least = torch.finfo(rows.dtype).min / 2  # whose share is 0, and finite
            exponents = [each.masked_fill(first + row[span, None] == column, least) for each in exponents]
        student, teacher = (each.log_softmax(dim=1) for each in exponents)
        return kl_div(student, teacher, reduction="sum", log_target=True)

    def _spans(self, rows: Tensor, others: int) -> list[slice]:
        size = self.block_size or max(1, device.numbers_at_once(rows, cached=NUMBERS_PER_BLOCK) // (8 * others))
        return [slice(start, start + size) for start in range(0, len(rows), size)]


def _unit_rows(rows: Tensor, others: Tensor | None, name: str, name_of_others: str) -> tuple[Tensor, Tensor]:
    """Rows of length 1, and the others, which are the rows themselves where there are none."""
    units = _unit(rows, name)
    if others is None:
        return units, units
    other_units = _unit(others, name_of_others).to(units.dtype)
    if others.shape[1] != rows.shape[1]:
        raise ValueError(
            f"{name_of_others} must have the dimension of {name}: got {others.shape[1]} and {rows.shape[1]}; embed "
            "both with the same model."
        )
    return units, other_units


def _unit(rows: Tensor, name: str) -> Tensor:
    norms = check_embeddings(rows, name=name)
    return unit_rows_of(rows if rows.dtype in (torch.float32, torch.float64) else rows.float(), norms)


def _check_items(rows: Tensor, others: Tensor, *names: str) -> None:
    if len(rows) != len(others):
        raise ValueError(
            f"{names[0]} and {names[1]} must be of the same items: got {len(rows)} and {len(others)} rows."
        )
