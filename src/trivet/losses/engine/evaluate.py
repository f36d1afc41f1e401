"""One evaluation of a loss: block after block, with the gradient of each taken at once.

The `(N, M)` matrix of distances between anchors and references is cut into row blocks. In each block the selectors
choose positives and negatives on detached distances, the loss's formula is evaluated with autograd, and the gradient
with respect to embeddings, references and parameters is accumulated; no more than one block exists at a time.
For a second derivative, and for `torch.compile`, a batch that fits one block is evaluated by ordinary autograd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trivet.distances import device
from trivet.distances.threads import single_thread
from trivet.losses.engine.block_view import BlockView, LossSum, LossTerms
from trivet.losses.engine.definition import LossDefinition
from trivet.losses.engine.formula_block import FormulaBlock, Gradients
from trivet.losses.engine.step_stats import BlockNotes, StepCounts, StepStats, block_notes, step_counts
from trivet.mining.batch import Batch
from trivet.mining.counter_rng import CounterRng
from trivet.mining.gather import Processes
from trivet.mining.index_tuples import IndexTuples
from trivet.mining.strategy import Strategy
from trivet.mining.trimming import MAX_SORTED, Cut, smallest, smallest_of, smallest_within, window

SMALL = 2**11  # pairs of a block whose tensors, of differences too, the allocator keeps anyway
MAX_STORED_TERMS = 64  # terms of an anchor that trimming holds, rather than to compute them again


class LossEvaluation:
    """One evaluation of a loss: its blocks, and what they add up to."""

    def __init__(
        self,
        loss: LossDefinition,
        batch: Batch,
        strategy: Strategy | IndexTuples,
        rng: CounterRng | None,
        processes: Processes | None,
    ) -> None:
        self.batch, self._processes = batch, processes
        numbers = strategy.numbers(batch) + loss.numbers(batch)
        self.spans = batch.blocks(loss.block_size, numbers)
        self._loss, self._strategy, self._rng = loss, strategy, rng
        self.count: Tensor | int | None = None  # of terms, or of active parts, whichever the reduction asks for
        self._counted: BlockNotes | Tensor | None = None  # for the record

    def rows(
        self, batch: Batch, number: int, *, leaves: bool = False, cut: tuple[Tensor, Tensor] | None = None
    ) -> BlockView:
        """The rows of a block; `batch` is that of the evaluation, or the same without its graph."""
        block = FormulaBlock(batch, self.spans[number], self._strategy, leaves=leaves)
        rows = BlockView(block, self._strategy, self._rng, cut=cut)
        if self._loss.reduction == "max" and self._loss.nearest_is_hardest:
            rows.settle_nearest()
        return rows

    def _all_terms(self) -> Iterator[LossTerms | LossSum]:
        """The terms of every block in turn, without a graph."""
        batch = self.batch.detach()
        for number in range(len(self.spans)):
            with torch.no_grad():
                yield self._loss.evaluate(self.rows(batch, number))

    def _cut(self, terms_of_batch: LossTerms | LossSum | None = None) -> Cut:
        """The cut of trimming, over the terms of the whole batch; they are computed again if they are not given."""
        stored: list[Tensor] = []  # where the terms are few

        def passes() -> Iterator[Tensor]:
            if stored:
                yield from stored
                return
            for terms in self._all_terms() if terms_of_batch is None else [terms_of_batch]:
                assert isinstance(terms, LossTerms)
                values, chosen = terms.values.detach(), terms.chosen
                every = terms.all_chosen and not self._loss.trim_positives_only
                if self._loss.trim_positives_only:
                    if terms.pull is None:
                        raise ValueError(
                            "trim_positives_only needs a loss whose terms have a positive: "
                            f"{type(self._loss).__name__} has none; leave it off."
                        )
                    values = terms.pull.detach()
                    chosen = chosen & (values > -torch.inf)
                values = values if every else values.where(chosen, torch.nan)
                if terms_of_batch is not None or values.shape[1] <= MAX_STORED_TERMS:
                    stored.append(values)
                yield values

        share, processes = 1 - self._loss.trim, self._processes
        if terms_of_batch is not None and processes is None:
            (values,) = passes()
            if values.numel() <= MAX_SORTED or not device.read_freely(values):
                return smallest_of(values, share)
        if processes is None:
            return smallest(passes, share, self.batch.embeddings)
        return smallest(passes, share, self.batch.embeddings, processes.add_up, processes.add_before)

    def _cut_at_a_distance(self) -> Cut | None:
        """As `_cut`, for a loss that trims at a distance; None where too many terms lie too close to the cut.

        Distances by products say about where it lies; around there they are made exact, and decide.
        """
        batch = self.batch.detach()

        def terms(cut: tuple[Tensor, Tensor] | None = None) -> Iterator[Tensor]:
            for number in range(len(self.spans)):
                with torch.no_grad():
                    result = self._loss.evaluate(self.rows(batch, number, cut=cut))
                assert isinstance(result, LossTerms)
                yield result.values.where(result.chosen, torch.nan)

        result = window(terms, 1 - self._loss.trim, batch.embeddings)
        if result is None or isinstance(result, Cut):
            return result
        after, low, high = result
        return smallest_within(terms((low, high)), after, low, high)

    def _largest(self, cut: Cut | None = None, terms_of_batch: LossTerms | None = None) -> Tensor:
        """Return which blocks `(K,)` hold a largest term of the whole batch; of terms not given, those that survive
        the cut.

        Blocks rather than the value: where another order of operations rounds a term anew, none may equal it later.
        """
        largest = self.batch.embeddings.new_full((len(self.spans),), -torch.inf)
        cut = None if cut is None else replace(cut)  # it counts down
        for number, terms in enumerate(self._all_terms() if terms_of_batch is None else [terms_of_batch]):
            assert isinstance(terms, LossTerms)
            if cut is not None:
                terms = terms.trim(cut, positives_only=self._loss.trim_positives_only)
            largest[number] = terms.largest
        most = largest.max() if len(largest) else largest.new_tensor(-torch.inf)
        return largest >= (most if self._processes is None else self._processes.largest(most))

    def add_up(self, batch: Batch, sums: Gradients | None, parameters: Sequence[Tensor] = ()) -> Tensor:
        """The sum of all terms: with `sums` the gradient of each block is added to them at once, otherwise autograd's.

        `batch` is that of the evaluation, or the same without its graph.
        """
        loss = self._loss
        total = self.count = self._counted = None
        if len(self.spans) != 1:
            # What outlives a block stands here, before the first: a small tensor kept from each would cut up the memory
            # that the next needs in one piece, and the process would grow with every block.
            total = torch.zeros((), dtype=torch.float64, device=batch.embeddings.device)
            self.count = torch.zeros_like(total, dtype=torch.int64)
            self._counted = total.new_zeros(len(StepCounts._fields))
        near = self._cut_at_a_distance() if self._trims_at_a_distance(batch) else None
        ranks_terms = loss.trim > 0 or (loss.reduction == "max" and not loss.nearest_is_hardest)
        if near is None and ranks_terms and self._strategy.selects_set:
            batch, self.batch = batch.by_differences(), self.batch.by_differences()
        # Of one block these are found once its terms are there. Where there is none, as with fewer proxies than
        # processes, the others wait for this one all the same.
        cut = self._cut() if near is None and loss.trim and len(self.spans) != 1 else near
        largest = self._largest(cut) if loss.reduction == "max" and len(self.spans) != 1 else None
        # Freed at once and never touched: after it glibc keeps the memory of one block for the next, instead of giving
        # it back to the system and faulting in every page again, which takes as long as the arithmetic.
        if len(self.spans) > 1 or batch.labels.shape[0] * batch.references.shape[0] > SMALL:
            torch.empty(2**25 - 2**14, dtype=torch.uint8)
        for number in range(len(self.spans)):
            at_cut = None if near is None else (near.value, near.value)
            rows = self.rows(batch, number, leaves=sums is not None, cut=at_cut)
            with torch.set_grad_enabled(sums is not None or torch.is_grad_enabled()):
                terms = loss.evaluate(rows)
                if loss.trim:
                    assert isinstance(terms, LossTerms)
                    cut = cut or self._cut(terms)
                    terms = terms.trim(cut, positives_only=loss.trim_positives_only)
                retained = terms
                if loss.reduction == "max":
                    assert isinstance(terms, LossTerms)
                    largest = self._largest(terms_of_batch=terms) if largest is None else largest
                    retained = terms.hardest(here=largest[number])
                block_total = retained.total
            self._note(rows, terms, retained)
            if sums is not None:
                rows.add_gradients(block_total, parameters, sums)
                block_total = block_total.detach()
            if total is not None:
                block_total = total + block_total if sums is None else total.add_(block_total)
            total = block_total
        assert total is not None
        kind = batch.embeddings.dtype
        return total if total.dtype == kind else total.to(kind)

    def _trims_at_a_distance(self, batch: Batch) -> bool:
        """Return whether so many terms are trimmed that counting them by rounded distances first takes less time."""
        loss = self._loss
        hinges = loss.term == "pair" and loss.negative_weight == "within-reach"
        if not (hinges and loss.trim and not loss.trim_positives_only and self._strategy.selects_set):
            return False
        many = batch.labels.shape[0] * batch.references.shape[0] > MAX_SORTED
        return many and self._processes is None and device.read_freely(batch.embeddings)

    def _note(self, block: BlockView, terms: LossTerms | LossSum, retained: LossTerms | LossSum) -> None:
        if self._loss.reduction in ("mean", "max", "mean-active"):
            count = retained.count_active if self._loss.reduction == "mean-active" else retained.count
            self.count = self.count.add_(count) if isinstance(self.count, Tensor) else count
        notes = block_notes(block, terms)
        if isinstance(self._counted, Tensor):
            self._counted += step_counts(notes)
        elif torch.compiler.is_compiling():
            self._counted = step_counts(notes)
        else:
            self._counted = notes  # added up when somebody reads the record

    def record(self) -> StepStats:
        """The step record, of all processes."""
        counted = self._counted
        assert counted is not None
        if self._processes is not None:
            counted = self._processes.add_up(counted if isinstance(counted, Tensor) else step_counts(counted))
        return StepStats(counted)


class Blocks(torch.autograd.Function):
    """Evaluate block after block, with the gradient of each taken at once, so that only one exists at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        evaluation: LossEvaluation,
        grad_enabled: bool,
        embeddings: Tensor,
        references: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        batch = evaluation.batch.detach()
        self_compared = batch.self_references
        if not (grad_enabled and any(ctx.needs_input_grad)):
            return evaluation.add_up(batch, None)
        anchors = torch.zeros_like(batch.embeddings)
        if self_compared:
            of_references = anchors
        else:
            of_references = torch.zeros_like(batch.references if ctx.needs_input_grad[3] else batch.references[:0])
        sums = Gradients(anchors, of_references, [torch.zeros_like(parameter) for parameter in parameters])
        total = evaluation.add_up(batch, sums, parameters)
        sums.finish(batch.references)
        ctx.evaluation = evaluation
        gradients = (
            sums.anchors,
            None if self_compared or not ctx.needs_input_grad[3] else sums.references,
            *sums.parameters,
        )
        ctx.save_for_backward(*gradients, embeddings, references, *parameters)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        gradients, inputs = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        if not torch.is_grad_enabled():
            with single_thread(gradients[0].numel()):
                return (None, None, *(None if gradient is None else gradient * grad for gradient in gradients))
        evaluation: LossEvaluation = ctx.evaluation
        if len(evaluation.spans) > 1:
            raise RuntimeError(
                "a second derivative needs the whole batch in one block: got create_graph=True with several; "
                "set block_size to the number of anchors."
            )
        # Views, as the references may have been made of the embeddings: what comes that way is not for us to add.
        views: list[Any] = [None if x is None else x.view_as(x) for x in inputs[:2]]
        batch, references = evaluation.batch, views[1]
        if references is None:
            references = batch.references_from(views[0])
        with device.without_autocast(references.device.type):
            total = evaluation.add_up(batch.with_rows(views[0], references, graph=batch.graph), None)
        leaves = [*views, *inputs[2:]]
        wanted = [x for x, needed in zip(leaves, ctx.needs_input_grad[2:], strict=True) if needed]
        grads = iter(torch.autograd.grad(total, wanted, grad, create_graph=True, allow_unused=True))
        return (None, None, *(next(grads) if needed else None for needed in ctx.needs_input_grad[2:]))
