"""A loss: the options, what it says of itself, and the call that hands its formula to the engine."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trivet.distances import Distance, device
from trivet.distances.threads import single_thread
from trivet.losses.engine.definition import LossDefinition
from trivet.losses.engine.evaluate import Blocks, LossEvaluation
from trivet.losses.engine.penalties import norm_penalty, parameter_penalty
from trivet.losses.engine.step_stats import StepStats
from trivet.mining.batch import Batch, Labels, check_batch, check_numbered
from trivet.mining.counter_rng import CounterRng, new_key
from trivet.mining.gather import Processes, gather_batch, references_as_anchors, sum_over_processes
from trivet.mining.index_tuples import IndexTuples, check_disjoint, check_index_tuples, disjoint_tuples
from trivet.mining.negatives import negative_selector
from trivet.mining.positives import positive_selector
from trivet.mining.relations import Unlabelled
from trivet.mining.strategy import Strategy
from trivet.runtime.arguments import check_at_least, check_name, check_options, explain_arguments

MAX_PAIRS = 2**40  # squared distances whose sum must be finite


class EmbeddingLoss(LossDefinition, device.PreciseModule):
    """A loss that is a formula on row blocks: see `LossDefinition` for its options and what a subclass declares.

    On a device without float64, such as MPS, it stays on the CPU, where it computes exactly what it does for embeddings
    of the CPU; embeddings come there and their gradient goes back.

    Attributes:
        last: what the last call did; None before the first.
    """

    last: StepStats | None
    key: Tensor

    def __post_init__(self, generator: torch.Generator | None) -> None:
        vars(self).update(self._modules)  # an option that is a module is one like others: to be checked
        self._modules.clear()
        check_name(self.distance, get_args(Distance), name="distance")
        check_name(self.reduction, self.reductions, name="reduction")
        if not 0 <= self.trim < 1:
            raise ValueError(f"trim must lie in [0, 1), the share of terms left out: got {self.trim}.")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"block_size must be at least 1 anchor: got {self.block_size}; None chooses it by memory.")
        positives = positive_selector(self.positives)
        negatives = negative_selector(self.negatives, sets_only=self.needs_set)
        vars(self).update(positives=positives, negatives=negatives)
        check_options(self)
        margin = check_at_least(0, self.margin, name="margin")
        self.strategy = Strategy(positives, negatives, distance=self.distance, margin=margin)
        self.normalize = self.normalize or self.distance == "cosine"
        check_disjoint(self.disjoint, self.strategy)
        self.register_buffer("key", new_key(generator))  # a seed, and how many batches have drawn with it
        self.last = None
        self._reaches: dict[str, float] = {}

    def _formula_parameters(self) -> list[nn.Parameter]:
        """The learned parameters that `formula` reads; proxies reach it as references."""
        if self.term == "proxy" or not (self._parameters or self._modules):  # before every module is asked
            return []
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def extra_repr(self) -> str:
        """The options, as the constructor takes them."""
        options = []
        for name in inspect.signature(type(self)).parameters:
            value = getattr(self, name, getattr(self.strategy, name, None))
            if isinstance(value, Tensor):
                text = f"{value.item():.4g}" if value.ndim == 0 else f"<{value.numel()} numbers>"
            else:
                text = repr(value)
            options += [] if value is None else [f"{name}={text}"]
        return ", ".join(options)

    def _check_reach(self, **distances: float) -> None:
        """Raise ValueError if one exceeds every distance on the unit sphere and the embeddings lie on it."""
        self._reaches = {name: check_at_least(0, value, name=name) for name, value in distances.items()}
        if self.normalize or self.strategy.unit_rows_for is not None:
            self.check_unit_rows()

    def _check_objective(self, terms: str, reduction: str) -> None:
        """Raise ValueError if the paper's sum over all is wanted of a strategy that does not take all."""
        negatives = self.strategy.negatives
        of_all = self.strategy.positives.pairwise and negatives.selects_set and not negatives.selects_band
        if self.reduction == "objective" and not of_all:
            raise ValueError(
                f"reduction = 'objective' is the sum over all {terms}: got another strategy; "
                f"use positives='all' and negatives='all', or the reduction {reduction!r}."
            )

    def check_unit_rows(self) -> None:
        """Raise ValueError if a margin or a boundary exceeds every distance between embeddings of length 1.

        For who knows that they have that length although the loss does not bring it about, such as a run whose model
        normalises them.
        """
        diameter = 4.0 if self.strategy.distance == "squared_euclidean" else 2.0
        for name, value in self._reaches.items():
            if value > diameter:
                raise ValueError(
                    f"{name} must not exceed {diameter:g}, the diameter of the unit sphere in "
                    f"{self.strategy.distance}: got {value:g}, which no embedding can satisfy; choose a smaller one."
                )

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """Parameter groups for an optimiser, with the loss's own learning rates; empty without parameters."""
        return []

    @explain_arguments
    def forward(
        self,
        embeddings: Tensor,
        labels: Labels | None,
        *,
        references: Tensor | None = None,
        reference_labels: Labels | None = None,
        ids: Tensor | None = None,
        reference_ids: Tensor | None = None,
        with_batch: bool = False,
        indices: Sequence[Tensor] | None = None,
        gather: bool | dist.ProcessGroup = False,
    ) -> Tensor:
        """The loss of a batch, against itself or against `references`.

        Args:
            ids, reference_ids: the items of the rows; rows of the same item are never compared.
            with_batch: compare with the batch itself too, whose rows then stand before the references.
            indices: index tuples in place of the loss's own strategy, as `trivet.mine` and the miners of
                pytorch-metric-learning give them: anchors, positives and negatives of triplets, each `(T,)`; or
                anchors, positives `(P,)` and anchors, negatives `(Q,)` of pairs.
            gather: the batch is that of all processes of torch.distributed (or of a group), of which each brings its
                part and computes the terms of its own anchors. The value is that of one process with the whole batch,
                and so is the mean over the processes of the gradients of parameters, which DistributedDataParallel,
                FSDP, accelerate and Lightning take. The gradient of embeddings is W times that of the one process.
                `references`, the same on every process, come after the whole batch, also without `with_batch`.

        Shape:
            embeddings `(N, d)` float; labels `(N,)` integer, or a relation of N items; references `(M, d)`,
            reference_labels likewise. With `indices` labels may be None. `ids (N,)`, `reference_ids (M,)` integer.
            Returns a scalar, exactly 0 with a graph when nothing can be chosen.

        Raises:
            ValueError: if shapes or dtypes disagree, a row is not finite, or indices contradict the labels.
        """

        def checked() -> Batch:
            if gather and indices is not None:
                raise ValueError(
                    "indices must be left out with gather, as they count the rows of one process: got both; choose by "
                    "the positives and negatives of the loss."
                )
            if gather and references is embeddings:
                raise ValueError(
                    "references must be the same on every process: got the embeddings themselves with gather; leave "
                    "them out, because the rows of all processes are compared anyway."
                )
            known, known_of_references = labels, reference_labels
            if labels is None and indices is not None:  # which say all
                known = Unlabelled(len(embeddings))
                if references is not None and reference_labels is None:
                    known_of_references = Unlabelled(len(references), first=len(embeddings))
            batch = check_batch(
                embeddings,
                known,
                references=references,
                reference_labels=known_of_references,
                ids=ids,
                reference_ids=reference_ids,
                with_batch=with_batch and not gather,
                normalize=self.normalize,
                unit_rows_for=None if indices is not None else self.strategy.unit_rows_for,
                pairs=1 if self.normalize or self.strategy.distance == "euclidean" else MAX_PAIRS,
            )
            if self.parameters_per is not None:
                self._check_parameters(batch)
            return batch

        usable = isinstance(embeddings, Tensor) and not embeddings.is_meta  # what it is is checked inside
        with device.without_autocast(embeddings.device.type if usable else "cpu"):
            if gather:
                processes = Processes(None if gather is True else gather)
                batch, key = gather_batch(checked, self.key, processes.group)
                self.key.copy_(key)
                value = self._reduce(batch, None, processes)
            else:
                batch = checked()
                value = self._reduce(batch, indices, None)
        if self.parameter_weight:
            values: Tensor = getattr(self, self.parameter)
            value = value + parameter_penalty(values, batch, self.parameters_per, self.parameter_weight)
        if self.norm_weight:
            others = None if references is None or with_batch or gather else references.to(value)
            value = value + norm_penalty(embeddings.to(value), others, batch, self.norm_weight, gather)
        return value.to(embeddings.device)

    def _check_parameters(self, batch: Batch) -> None:
        """Raise ValueError unless the label, or id, of every anchor has its parameters."""
        of_class = self.parameters_per == "class"
        name, option = ("labels", "num_classes") if of_class else ("ids", "num_samples")
        numbers = batch.relation.numbers(batch.labels) if of_class else batch.ids
        if numbers is None or not (of_class or batch.items):
            raise ValueError(
                f"ids must be given for one {self.parameter} per sample: got none; pass ids=, from 0 to "
                "num_samples - 1."
            )
        if of_class and self.term != "proxy" and numbers is not batch.labels:
            raise ValueError(
                f"labels must be classes for one {self.parameter} per class: got {type(batch.relation).__name__}; "
                "leave num_classes out."
            )
        check_numbered(numbers, getattr(self, option), name=name, option=option, owned=f"a {self.parameter}")

    def _reduce(self, batch: Batch, indices: Sequence[Tensor] | None, processes: Processes | None) -> Tensor:
        if self.references_as_anchors:
            batch = references_as_anchors(batch, processes)
        strategy, rng = self._chooser(batch, indices)
        evaluation = LossEvaluation(self, batch, strategy, rng, processes)
        several = batch.compared_with_itself and batch.total > 1
        several = several and indices is None and torch.is_grad_enabled()  # an evaluation takes the batches that come
        if several and batch.adjacency.without_positives:
            warnings.warn(
                f"a batch must contain two items that belong together, so that there is a positive: got {batch.total} "
                f"of which no two do; {batch.relation.advice}.",
                stacklevel=2,
            )
        if several and batch.adjacency.without_negatives:
            warnings.warn(
                "a batch must contain two items that do not belong together, so that there is a negative: got "
                f"{batch.total} that all do; {batch.relation.advice}.",
                stacklevel=2,
            )
        if torch.compiler.is_compiling():
            total = evaluation.add_up(batch, None)
            total = total + batch.embeddings.sum() * 0  # exactly 0: ties an empty batch to the graph of its embeddings
        else:
            references = None if batch.self_references else batch.references
            with single_thread(batch.embeddings.numel() + batch.labels.shape[0] * batch.references.shape[0]):
                total = Blocks.apply(
                    evaluation, torch.is_grad_enabled(), batch.embeddings, references, *self._formula_parameters()
                )
        count, counted = evaluation.count, self.reduction in ("mean", "mean-active", "max")
        if processes is not None:
            if counted:  # on every process, whether it has one block or none
                assert count is not None
                count = processes.add_up(torch.as_tensor(count, device=total.device))
            total = sum_over_processes(total, gathered=batch.references, group=processes.group)
        object.__setattr__(self, "last", evaluation.record())  # no parameter: a module need not look whether it is one
        if counted:
            assert count is not None
            return total / (count.clamp_min(1) if isinstance(count, Tensor) else max(1, count))
        if self.reduction == "anchors":
            return total / max(1, batch.total)
        return (
            total
            if self.reduction == "sum"
            else total / max(1, batch.total * len(batch.references) ** self.objective_power)
        )

    def _chooser(
        self, batch: Batch, indices: Sequence[Tensor] | None
    ) -> tuple[Strategy | IndexTuples, CounterRng | None]:
        """Return what chooses for this batch, and the random numbers it needs."""
        if self.margin != self.strategy.margin:  # set since
            self.strategy = replace(self.strategy, margin=self.margin)
        strategy = self.strategy
        if indices is not None:
            return check_index_tuples(indices, batch, distance=strategy.distance, margin=strategy.margin), None
        rng = None
        if strategy.random or self.disjoint == "random":
            rng = CounterRng(self.key.to(batch.labels.device))  # a loss without parameters need not be moved
            self.key[1].add_(1)
        if self.disjoint:
            return disjoint_tuples(strategy, batch.with_all_anchors(), rng, order=self.disjoint), None
        return strategy, rng
