"""Anchors and the references they are compared with: checked once, cut into row blocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from trivet.distances import Products, RowNorms, check_dense, check_embeddings, device, unit_rows_of
from trivet.mining.adjacency import Adjacency
from trivet.mining.label_groups import LabelGroups
from trivet.mining.relations import Classes, Relation
from trivet.runtime.arrays import how_to_align, how_to_number, how_to_tensor
from trivet.runtime.lazy import lazy

EXACT_ELSEWHERE = 2**27  # numbers that a GPU takes differences of in the time in which it is asked for one
NUMBERS_PER_BLOCK = 2**21  # a float32 matrix of 8 MiB stays in the processor's cache from one pass to the next

Labels = Tensor | Relation
OF_ROWS = frozenset({"products", "precise_products", "reference_squares"})  # what is computed of the rows of a batch


@dataclass(frozen=True)
class Batch:
    """N anchors and M references with labels.

    Attributes:
        relation: what the labels mean: it knows them as the numbers of its items.
        ids, reference_ids: `(N,)` and `(M,)` int64, which rows are the same item; None where no anchor is among
            the references, and the places in the whole batch where `items` is None.
        items: the references of each item, where ids were given; otherwise an item is the same as its own row
            only.
        shared: how many of the references, the first ones, are the anchors; then these alone have a gradient.
        exact: whether all distances are computed by differences, which takes many times as long as by products.
    """

    embeddings: Tensor  # (N, d) float32 or float64
    labels: Tensor  # (N,) int64
    references: Tensor  # (M, d); the embeddings themselves where nothing else was given
    reference_labels: Tensor  # (M,) int64
    ids: Tensor | None
    reference_ids: Tensor | None
    relation: Relation
    items: LabelGroups | None
    total: int  # anchors in the whole batch, of which these may be one process's part
    first: int = 0  # place of the first anchor in the whole batch
    self_references: int = 0
    taken: Tensor | None = None  # (M,) bool, references that may not be chosen any more; None where all may
    exact: bool = False
    graph: bool = field(default_factory=torch.is_grad_enabled)  # whether gradients are wanted

    @lazy
    def products(self) -> Products:
        """All squared distances, by products; there must be a reference."""
        with torch.set_grad_enabled(self.graph):  # whoever reads it first
            return Products(self.embeddings, self.references)

    @lazy
    def precise_products(self) -> Products:
        """The same in float64."""
        if self.references.dtype == torch.float64:
            return self.products
        with torch.set_grad_enabled(self.graph):
            references = self.references.double()
            return Products(references if self.references is self.embeddings else self.embeddings.double(), references)

    @lazy
    def reference_squares(self) -> Tensor:
        """Squared norms `(M,)` of the references."""
        with torch.set_grad_enabled(self.graph):
            return self.references.square().sum(dim=1)

    @lazy
    def adjacency(self) -> Adjacency:
        """The references that belong to each anchor by the labels, and those that do not."""
        return self.relation.compare(self.labels, self.reference_labels)

    @lazy
    def compared_with_itself(self) -> bool:
        """Return whether each anchor is the reference in the column of its place, and the same as no other."""
        return self.ids is not None and self.items is None

    @property
    def dimension(self) -> int:
        """d of the embeddings."""
        return self.embeddings.shape[1]

    def with_all_anchors(self) -> Batch:
        """The batch with the anchors of all processes."""
        if self.total == len(self.labels):
            return self
        reference_ids = None if self.reference_ids is None else self.reference_ids[: self.total]
        rows, labels = self.references[: self.total], self.reference_labels[: self.total]
        return replace(self, embeddings=rows, labels=labels, ids=reference_ids, first=0)

    def detach(self) -> Batch:
        """The same batch without a graph."""
        embeddings = self.embeddings.detach()
        shared = self.references is self.embeddings
        return self.with_rows(embeddings, embeddings if shared else self.references.detach(), graph=False)

    def with_rows(self, embeddings: Tensor, references: Tensor, *, graph: bool) -> Batch:
        """The same labels with other rows."""
        return self._with(embeddings=embeddings, references=references, graph=graph)

    def without(self, taken: Tensor) -> Batch:
        """The same batch without the references `taken (M,)` bool, which may change."""
        return self._with(taken=taken)

    def by_differences(self) -> Batch:
        """The same batch with all distances by differences."""
        return self if self.exact else self._with(exact=True)

    def _with(self, **changed: Tensor | bool) -> Batch:
        """A copy with other rows, or other distances; what is known of the labels stays known."""
        batch = object.__new__(Batch)
        batch.__dict__.update({name: self.__dict__[name] for name in self.__dict__ if name not in OF_ROWS}, **changed)
        return batch

    def references_from(self, embeddings: Tensor) -> Tensor:
        """The references, of which the first are the `embeddings`, with their graph."""
        rest = self.references[self.self_references :]
        return torch.cat([embeddings, rest]) if len(rest) else embeddings

    def blocks(self, size: int | None, numbers: int) -> list[tuple[int, int]]:
        """Ranges of anchors: `size` each, or so many that a block holds about two million numbers, `numbers` each.

        On another device than a CPU as many numbers as its memory allows.
        One range under `torch.compile`, whose graph is one.
        """
        anchors = self.labels.shape[0]
        if torch.compiler.is_compiling():
            size = max(1, anchors)
        elif size is None:
            size = max(1, device.numbers_at_once(self.labels, cached=NUMBERS_PER_BLOCK) // max(1, numbers))
        return [(start, min(start + size, anchors)) for start in range(0, anchors, size)]


def check_batch(
    embeddings: Tensor,
    labels: Labels | None,
    *,
    references: Tensor | None = None,
    reference_labels: Labels | None = None,
    ids: Tensor | None = None,
    reference_ids: Tensor | None = None,
    with_batch: bool = False,
    normalize: bool = False,
    unit_rows_for: str | None = None,
    pairs: int = 1,
) -> Batch:
    """Check a batch and bring it to the dtypes the selectors work in.

    Half precision becomes float32, and what lies on a device without float64 comes to the CPU. Without `references`, or
    with the embeddings themselves as references, the batch is compared with itself, and without `ids` an item is the
    same as another only if it is the same row.

    Args:
        with_batch: whether the batch itself stands before the references.
        normalize: divide rows by their norm.
        unit_rows_for: the strategy that needs unit rows, checked unless `normalize` is set.
        pairs: how many squared distances of the rows as given must add up to a finite number.

    Raises:
        ValueError: if shapes, dtypes or lengths disagree, a row is not finite, or only one of a pair was given.
    """
    original = embeddings
    embeddings, norms = _rows(embeddings, "embeddings", pairs)
    reference_norms = norms
    relation = _relation(labels, "labels", embeddings)
    _check_both(references=references, reference_labels=reference_labels)
    is_self_compared, reference_numbers = references is None, relation.items
    if references is None or reference_labels is None:
        if reference_ids is not None:
            raise ValueError("reference_ids need references: got none; pass references, or ids alone.")
    else:
        if references is original and ids is None and reference_ids is None:
            ids = reference_ids = torch.arange(len(embeddings), device=embeddings.device)
        references, reference_norms = _rows(references, "references", pairs)
        relation, reference_numbers = relation.joined(_relation(reference_labels, "reference_labels", references))
        if references.shape[1] != embeddings.shape[1]:
            raise ValueError(
                f"references must have the dimension of the embeddings: got {references.shape[1]} and "
                f"{embeddings.shape[1]}; embed both with the same model."
            )
        if references.dtype != embeddings.dtype:
            references = references.to(embeddings.dtype)
            reference_norms = RowNorms(reference_norms.values.to(references.dtype), *reference_norms[1:])
        _check_both(ids=ids, reference_ids=reference_ids)
    if unit_rows_for is not None and not normalize:
        for each in [norms] if references is None else [norms, reference_norms]:
            _check_unit(each, unit_rows_for)
    if normalize:
        embeddings = unit_rows_of(embeddings, norms)
        references = None if references is None else unit_rows_of(references, reference_norms)
    named, anchors, numbers = ids is not None, embeddings.shape[0], relation.items
    if ids is not None:
        ids = _integers(ids, "ids", anchors)
    elif is_self_compared or with_batch:
        ids = torch.arange(anchors, device=embeddings.device)
    if is_self_compared:
        reference_ids = ids
    elif reference_ids is not None and references is not None:
        reference_ids = _integers(reference_ids, "reference_ids", len(references))
    learned = anchors if is_self_compared else 0
    if references is None:
        references = embeddings
    elif with_batch and ids is not None:
        if not references.requires_grad and not torch.compiler.is_compiling():  # then the gradient is that of the batch
            learned = anchors
        strangers = -1 - torch.arange(len(references), device=ids.device)  # no row of the batch
        reference_ids = torch.cat([ids, strangers if reference_ids is None else reference_ids])
        references = torch.cat([embeddings.detach() if learned else embeddings, references])
        reference_numbers = torch.cat([numbers, reference_numbers])
    wide = embeddings.numel() * references.shape[0]
    waits = not (device.read_freely(embeddings) or torch.compiler.is_compiling())
    return Batch(
        embeddings,
        numbers,
        references,
        reference_numbers,
        ids,
        reference_ids,
        relation,
        LabelGroups(reference_ids) if named and reference_ids is not None else None,
        total=anchors,
        self_references=learned,
        exact=waits and wide <= EXACT_ELSEWHERE,  # no entry need be looked up then
    )


def check_numbered(values: Tensor, number: int, *, name: str, option: str, owned: str) -> None:
    """Raise ValueError unless the labels or ids `values (N,)` count from 0 to below `number`, to own a thing each."""
    if len(values) == 0:
        return
    if torch.compiler.is_compiling():
        torch._assert_async(((values >= 0) & (values < number)).all(), f"{name} must lie in [0, {number}).")
        return
    low, high = device.read_extremes(values)
    if low < 0 or high >= number:
        raise ValueError(
            f"{name} must lie in [0, {number}) to have {owned} each: got {low} to {high}; "
            f"number them from 0, or set {option} to their count."
        )


def _check_both(**arguments: Labels | None) -> None:
    missing = [name for name, value in arguments.items() if value is None]
    if len(missing) == 1:
        raise ValueError(
            f"{' and '.join(arguments)} must be given together: got no {missing[0]}; pass both or neither."
        )


def _rows(embeddings: Tensor, name: str, pairs: int) -> tuple[Tensor, RowNorms]:
    embeddings = device.precise(embeddings) if isinstance(embeddings, Tensor) else embeddings
    norms = check_embeddings(embeddings, name=name, pairs=pairs)
    return embeddings if embeddings.dtype in (torch.float32, torch.float64) else embeddings.float(), norms


def _relation(labels: Labels | None, name: str, embeddings: Tensor) -> Relation:
    count = embeddings.shape[0]
    if not isinstance(labels, Relation):
        return Classes(_integers(labels, name, count))
    if len(labels) != count:
        raise ValueError(
            f"{name} must be a relation of one item per embedding: got {len(labels)} for {count} embeddings; take the "
            f"rows of the batch, {name}[rows]."
        )
    return labels if labels.items.device == embeddings.device else labels.to(embeddings.device)


def _integers(values: Tensor | None, name: str, length: int) -> Tensor:
    if not isinstance(values, Tensor) and np.asarray(values).dtype.kind in "iu":
        raise ValueError(f"{name} must be a tensor: got {type(values).__name__}; {how_to_tensor(values, name)}.")
    if isinstance(values, Tensor):
        check_dense(values, name=name)
    kinds = (torch.bool, torch.complex32, torch.complex64, torch.complex128)
    if not isinstance(values, Tensor) or values.dtype in kinds or values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"{name} must be a tensor of integers: got {kind}; {how_to_number(values, name, tensor=True)}."
        )
    if values.shape != (length,):
        raise ValueError(
            f"{name} must hold one number per embedding: got shape {tuple(values.shape)} for {length} embeddings; "
            f"{how_to_align(values, name, length)}."
        )
    values = device.precise(values)
    return values if values.dtype == torch.int64 else values.to(torch.int64)


def _check_unit(norms: RowNorms, strategy: str) -> None:
    if torch.compiler.is_compiling():
        fitting = ((norms.values >= 0.99) & (norms.values <= 1.01)).all()
        torch._assert_async(fitting, f"{strategy} needs embeddings of unit norm: pass normalize=True to the loss.")
    elif norms.least < 0.99 or norms.largest > 1.01:
        raise ValueError(
            f"{strategy} needs embeddings of unit norm: got norms from {norms.least:.3g} to {norms.largest:.3g}; "
            "pass normalize=True to the loss, or normalise the embeddings."
        )
