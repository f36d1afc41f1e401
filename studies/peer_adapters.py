"""Losses, miners and measures of Trivet that are called as those of pytorch-metric-learning, for `peer_tests.py`.

Each class bears the name of theirs, takes its arguments, and calls what docs/coming_from.md names beside it. An option
that Trivet does not have is no error here: what such an object gives is marked as missing, with the reason.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn
from unittest import SkipTest

import numpy as np
import torch
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity, LpDistance
from pytorch_metric_learning.losses import CrossBatchMemory as TheirMemory
from pytorch_metric_learning.losses import SelfSupervisedLoss as TheirSelfSupervisedLoss
from pytorch_metric_learning.reducers import AvgNonZeroReducer, MeanReducer, SumReducer
from pytorch_metric_learning.utils.inference import CustomKNN
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_triplets
from torch import Tensor, nn

import trivet
from trivet import samplers
from trivet.metrics import clustering, retrieve

Options = dict[str, Any]


class NoCounterpartError(SkipTest, AttributeError):
    """Something of theirs that Trivet does not have."""


class Missing(Tensor):
    """What a call without a counterpart gives: any calculation with it is missing, too."""

    reason: str

    @staticmethod
    def because(reason: str, like: Tensor | None = None) -> Missing:
        empty = torch.full((), math.nan) if like is None else like
        found = empty.as_subclass(Missing)
        found.reason = reason
        return found

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: Options | None = None
    ) -> Any:
        found = missing_in([*arguments, *(options or {}).values()])
        assert found is not None
        if getattr(function, "__name__", "") == "__bool__":
            if CALLS.pending is None:
                raise NoCounterpartError(found.reason)
            return False  # the check in which it stands is not judged
        return found

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return missing_in(arguments)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Missing({self.reason})"


def missing_in(values: Sequence[Any]) -> Missing | None:
    """The first missing value among these, or in the lists and tuples among them."""
    for value in values:
        if isinstance(value, Missing):
            return value
        if isinstance(value, list | tuple) and (found := missing_in(value)) is not None:
            return found
    return None


class Calls:
    """What was asked of the adapters since `start`.

    Attributes:
        answered: how many calls were answered.
        missing: why others were not, each reason once.
        pending: why the last call was not answered, if that cannot be seen in what it gave.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.answered = 0
        self.missing: dict[str, None] = {}
        self.pending: str | None = None

    def ask(
        self, function: Callable[[], Any], otherwise: Callable[[str], Any] = Missing.because, *, seen: bool = True
    ) -> Any:
        """What the function gives, or what is missing, which is `seen` where the value itself is marked."""
        self.pending = None
        try:
            value = function()
        except NoCounterpartError as error:
            reason = str(error)
            self.missing[reason] = None
            self.pending = None if seen else reason
            return otherwise(reason)
        self.answered += 1
        return value


CALLS = Calls()


def none_for(**options: Any) -> None:
    """Refuse options that are set."""
    for name, value in options.items():
        if value is not None and value is not False:
            if isinstance(value, list | tuple | type) or inspect.isfunction(value):
                raise NoCounterpartError(name)
            shown = value if isinstance(value, bool | int | float | str) else type(value).__name__
            raise NoCounterpartError(f"{name}={shown}")


def geometry(distance: Any, default: Any) -> Options:
    """`distance` and `normalize` of a loss or miner."""
    given = default if distance is None else distance
    if type(given) is CosineSimilarity:
        return {"distance": "cosine", "normalize": True}
    if type(given) is LpDistance and given.p == 2 and given.power in (1, 2):
        name = "euclidean" if given.power == 1 else "squared_euclidean"
        return {"distance": name, "normalize": bool(given.normalize_embeddings)}
    raise NoCounterpartError(f"distance={type(given).__name__}")


def only_cosine(distance: Any) -> None:
    """Refuse any distance but the cosine similarity, where Trivet has no other."""
    if distance is not None and type(distance) is not CosineSimilarity:
        raise NoCounterpartError(f"distance={type(distance).__name__}")


def cosine_reducer(*, distance: Any = None, reducer: Any = None, **rest: Any) -> Any:
    """The reducer of a loss for which Trivet has the cosine similarity alone, and no other option."""
    none_for(**rest)
    only_cosine(distance)
    return reducer


def reduction(reducer: Any, names: dict[type, str], default: type) -> str:
    """The reduction that stands for a reducer."""
    kind = default if reducer is None else type(reducer)
    if kind not in names:
        raise NoCounterpartError(f"reducer={kind.__name__}")
    return names[kind]


EACH = {AvgNonZeroReducer: "mean-active", MeanReducer: "mean", SumReducer: "sum"}
NEVER_ZERO = {AvgNonZeroReducer: "mean", MeanReducer: "mean", SumReducer: "sum"}  # where no term is 0
EVERYONE = {"positives": "all", "negatives": "all"}


# Losses


class Loss(nn.Module):
    """One of their losses. `ours` is the loss of Trivet, `why_not` the reason if there is none."""

    ours: trivet.EmbeddingLoss
    why_not: str | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        try:
            self.ours = self.build(*arguments, **options)
        except NoCounterpartError as error:
            self.why_not = str(error)

    def build(self, *arguments: Any, **options: Any) -> trivet.EmbeddingLoss:
        raise NotImplementedError  # each adapter has its own

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Any:
        if labels is None or (ref_emb is not None and ref_labels is None):
            raise NoCounterpartError("labels left out")

        def value() -> Tensor:
            if (found := missing_in(indices_tuple or ())) is not None:
                raise NoCounterpartError(found.reason)
            if indices_tuple is not None and ref_labels is not None:
                anchors, positives = indices_tuple[:2]
                if bool((labels[anchors] != ref_labels[positives]).any()):
                    raise NoCounterpartError("tuples that contradict the labels")
            return self.against(embeddings, labels, indices_tuple, references=ref_emb, reference_labels=ref_labels)

        return CALLS.ask(value)

    def against(
        self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None = None, **references: Any
    ) -> Tensor:
        """The value, of half precision in half precision."""
        if self.why_not:
            raise NoCounterpartError(self.why_not)
        value = self.value(embeddings, labels, indices, **references)
        return value.to(embeddings.dtype)

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        value: Tensor = self.ours(embeddings, labels, indices=indices, **references)
        return value

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise NoCounterpartError(self.why_not or f"attribute {name}") from None


def pairs_of(indices: Sequence[Tensor] | None) -> Sequence[Tensor] | None:
    """Pairs in place of triplets."""
    if indices is None or len(indices) == 4:
        return indices
    anchor, positive, negative = indices
    return anchor, positive, anchor, negative


class TripletMarginLoss(Loss):
    def build(
        self,
        margin: float = 0.05,
        *,
        swap: bool = False,
        smooth_loss: bool = False,
        triplets_per_anchor: Any = "all",
        distance: Any = None,
        reducer: Any = None,
        **rest: Any,
    ) -> trivet.EmbeddingLoss:
        none_for(swap=swap, triplets_per_anchor=None if triplets_per_anchor == "all" else triplets_per_anchor, **rest)
        metric = geometry(distance, LpDistance())
        if smooth_loss:
            every = reduction(reducer, NEVER_ZERO, AvgNonZeroReducer)
            return trivet.TripletLoss(soft=True, soft_margin=margin, reduction=every, **metric, **EVERYONE)
        every = reduction(reducer, EACH, AvgNonZeroReducer)
        return trivet.TripletLoss(margin=margin, reduction=every, **metric, **EVERYONE)


class ContrastiveLoss(Loss):
    def build(
        self, pos_margin: float = 0, neg_margin: float = 1, *, distance: Any = None, reducer: Any = None, **rest: Any
    ) -> trivet.EmbeddingLoss:
        none_for(**rest)
        metric = geometry(distance, LpDistance())
        if metric["distance"] == "cosine":  # a similarity counts from the other end
            pos_margin, neg_margin = 1 - pos_margin, 1 - neg_margin
            if min(pos_margin, neg_margin) < 0:
                raise NoCounterpartError("a margin of similarity above 1")
        every = reduction(reducer, EACH, AvgNonZeroReducer)
        return trivet.ContrastiveLoss(margin=neg_margin, positive_margin=pos_margin, reduction=every, **metric)

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        if self.ours.reduction == "sum":
            return super().value(embeddings, labels, pairs_of(indices), **references)
        if indices is None:
            indices = trivet.mine_pairs(embeddings, labels, **references)
        anchors, positives, negative_anchors, negatives = pairs_of(indices) or ()
        none = anchors[:0]
        pull = super().value(embeddings, labels, (anchors, positives, none, none), **references)
        return pull + super().value(embeddings, labels, (none, none, negative_anchors, negatives), **references)


class MarginLoss(Loss):
    def build(
        self,
        margin: float = 0.2,
        nu: float = 0,
        beta: float = 1.2,
        *,
        triplets_per_anchor: Any = "all",
        learn_beta: bool = False,
        num_classes: int | None = None,
        distance: Any = None,
        **rest: Any,
    ) -> trivet.EmbeddingLoss:
        none_for(triplets_per_anchor=None if triplets_per_anchor == "all" else triplets_per_anchor, **rest)
        options = geometry(distance, LpDistance()) | EVERYONE
        penalty = float(nu) if learn_beta else 0.0
        return trivet.MarginLoss(
            margin=margin, beta=beta, num_classes=num_classes, learn_beta=learn_beta, beta_penalty=penalty, **options
        )

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        if indices is None:
            indices = trivet.mine(embeddings, labels, **EVERYONE, **references)
        triplets = convert_to_triplets(tuple(indices), labels)
        return super().value(embeddings, labels, triplets, **references)

    @property
    def beta(self) -> Tensor:
        beta: Tensor = CALLS.ask(lambda: self.ours.beta.reshape(-1))
        return beta


class _OfSets(Loss):
    """A loss that compares an anchor with a set."""

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        return super().value(embeddings, labels, pairs_of(indices), **references)


class MultiSimilarityLoss(_OfSets):
    def build(self, alpha: float = 2, beta: float = 50, base: float = 0.5, **options: Any) -> trivet.EmbeddingLoss:
        reducer = cosine_reducer(**options)
        every = reduction(reducer, {MeanReducer: "anchors", SumReducer: "sum"}, MeanReducer)
        return trivet.MultiSimilarityLoss(
            positive_scale=alpha, negative_scale=beta, threshold=base, reduction=every, **EVERYONE
        )


class NTXentLoss(_OfSets):
    def build(self, temperature: float = 0.07, **options: Any) -> trivet.EmbeddingLoss:
        reducer = cosine_reducer(**options)
        every = reduction(reducer, {MeanReducer: "mean", SumReducer: "sum"}, MeanReducer)
        return trivet.NPairLoss(temperature=temperature, normalize=True, positives="all", reduction=every)


class SupConLoss(_OfSets):
    def build(self, temperature: float = 0.1, **options: Any) -> trivet.EmbeddingLoss:
        reducer = cosine_reducer(**options)
        every = reduction(reducer, {AvgNonZeroReducer: "mean", SumReducer: "sum"}, AvgNonZeroReducer)
        return trivet.SupConLoss(temperature=temperature, reduction=every)


class CircleLoss(_OfSets):
    def build(self, m: float = 0.4, gamma: float = 80, **options: Any) -> trivet.EmbeddingLoss:
        reducer = cosine_reducer(**options)
        every = reduction(reducer, {AvgNonZeroReducer: "mean", SumReducer: "sum"}, AvgNonZeroReducer)
        return trivet.CircleLoss(margin=m, scale=gamma, reduction=every)


class NPairsLoss(Loss):
    """The first two items of each class: an anchor, and the positive that all anchors are compared with."""

    def build(self, *, distance: Any = None, reducer: Any = None, **rest: Any) -> trivet.EmbeddingLoss:
        none_for(**rest)
        given = DotProductSimilarity() if distance is None else distance
        if type(given) is not DotProductSimilarity:
            raise NoCounterpartError(f"distance={type(given).__name__}")
        every = reduction(reducer, {MeanReducer: "mean", SumReducer: "sum"}, MeanReducer)
        return trivet.NPairLoss(normalize=bool(given.normalize_embeddings), reduction=every)

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        if indices is not None or references.get("references") is not None:
            raise NoCounterpartError("tuples or references of NPairsLoss")
        firsts = [(labels == label).nonzero()[:2, 0] for label in labels.unique()]
        pairs = torch.stack([*(pair for pair in firsts if len(pair) == 2), labels.new_zeros(2)])[:-1]
        anchors, positives = pairs.unbind(dim=1)
        return super().value(
            embeddings[anchors],
            labels[anchors],
            None,
            references=embeddings[positives],
            reference_labels=labels[positives],
        )


class _OfProxies(Loss):
    """A loss with proxies, which are the columns of `W` or the rows of `proxies`."""

    def value(self, embeddings: Tensor, labels: Tensor, indices: Sequence[Tensor] | None, **references: Any) -> Tensor:
        if indices is not None or references.get("references") is not None:
            raise NoCounterpartError("tuples or references of a loss with proxies")
        self.ours.to(embeddings.dtype)
        value: Tensor = self.ours(embeddings, labels)
        return value

    def get_logits(self, embeddings: Tensor) -> Any:
        return CALLS.ask(lambda: _none("get_logits"))

    def __getattr__(self, name: str) -> Any:
        if name in ("W", "proxies") and not self.why_not:
            return self.ours.proxies if name == "proxies" else self.ours.proxies.T
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "proxies":
            self.ours.proxies = value
        elif name == "W":
            self.ours.proxies.data = value.detach().T.clone()
        else:
            super().__setattr__(name, value)


def _none(reason: str) -> NoReturn:
    raise NoCounterpartError(reason)


OF_PROXIES = {MeanReducer: "mean", SumReducer: "sum"}


class ProxyAnchorLoss(_OfProxies):
    def build(
        self, num_classes: int, embedding_size: int, *, margin: float = 0.1, alpha: float = 32, **options: Any
    ) -> trivet.EmbeddingLoss:
        none_for(reducer=cosine_reducer(**options))
        return trivet.ProxyAnchorLoss(num_classes, embedding_size, margin=margin, scale=alpha)


class ProxyNCALoss(_OfProxies):
    """The softmax that includes the own class: squared distances of unit rows are 2 - 2 S."""

    def build(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        softmax_scale: float = 1,
        distance: Any = None,
        reducer: Any = None,
        **rest: Any,
    ) -> trivet.EmbeddingLoss:
        none_for(**rest)
        if geometry(distance, LpDistance(power=2)) != {"distance": "squared_euclidean", "normalize": True}:
            raise NoCounterpartError(f"distance={type(distance).__name__}")
        every = reduction(reducer, OF_PROXIES, MeanReducer)
        return trivet.CosFaceLoss(num_classes, embedding_size, margin=0, scale=2 * softmax_scale, reduction=every)


class NormalizedSoftmaxLoss(_OfProxies):
    def build(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        temperature: float = 0.05,
        distance: Any = None,
        reducer: Any = None,
        **rest: Any,
    ) -> trivet.EmbeddingLoss:
        none_for(**rest)
        given = DotProductSimilarity() if distance is None else distance
        if type(given) is not DotProductSimilarity or not given.normalize_embeddings:
            raise NoCounterpartError("embeddings that are not normalised")
        every = reduction(reducer, OF_PROXIES, MeanReducer)
        return trivet.CosFaceLoss(num_classes, embedding_size, margin=0, scale=1 / temperature, reduction=every)


class CosFaceLoss(_OfProxies):
    def build(
        self, num_classes: int, embedding_size: int, *, margin: float = 0.35, scale: float = 64, **options: Any
    ) -> trivet.EmbeddingLoss:
        every = reduction(cosine_reducer(**options), OF_PROXIES, MeanReducer)
        return trivet.CosFaceLoss(num_classes, embedding_size, margin=margin, scale=scale, reduction=every)


class ArcFaceLoss(_OfProxies):
    def build(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        margin: float = 28.6,
        scale: float = 64,
        sub_centers: int = 1,
        **options: Any,
    ) -> trivet.EmbeddingLoss:
        every = reduction(cosine_reducer(**options), OF_PROXIES, MeanReducer)
        angle = math.radians(margin)
        return trivet.ArcFaceLoss(
            num_classes, embedding_size, margin=angle, scale=scale, sub_centers=sub_centers, reduction=every
        )


class SubCenterArcFaceLoss(ArcFaceLoss):
    def __init__(self, *arguments: Any, sub_centers: int = 3, **options: Any) -> None:
        super().__init__(*arguments, sub_centers=sub_centers, **options)


class CrossBatchMemory(nn.Module):
    """Their memory of `memory_size` rows holds the batch, too: so ours has that many fewer.

    Of a batch of which a part is put into the memory, the rest is compared with the memory alone.
    """

    def __init__(self, loss: nn.Module, embedding_size: int, memory_size: int = 1024, miner: Any = None) -> None:
        super().__init__()
        self.loss, self.miner, self.memory_size, self.embedding_size = loss, miner, memory_size, embedding_size
        self.seen = self.queued = 0
        self.memory: samplers.CrossBatchMemory | None = None

    @staticmethod
    def supported_losses() -> list[str]:
        return list(TheirMemory.supported_losses())

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Any = None, enqueue_mask: Tensor | None = None
    ) -> Any:
        number = len(labels) if enqueue_mask is None else int(enqueue_mask.sum())
        self.curr_batch_idx = (torch.arange(number, device=labels.device) + self.queued) % self.memory_size
        self.queued += number
        return CALLS.ask(lambda: self._value(embeddings, labels, indices_tuple, enqueue_mask))

    def _value(self, embeddings: Tensor, labels: Tensor, indices_tuple: Any, enqueue_mask: Tensor | None) -> Tensor:
        loss, size = self.loss, self.memory_size
        if indices_tuple is not None:
            raise NoCounterpartError("tuples for a memory that chooses, too")
        if not isinstance(loss, Loss):
            raise NoCounterpartError(f"a memory for {type(loss).__name__}")
        if self.miner is not None and not isinstance(self.miner, Miner):
            raise NoCounterpartError(f"a memory with {type(self.miner).__name__}")
        if self.memory is None and (enqueue_mask is not None or size > len(labels)):
            rows = size if enqueue_mask is not None else size - len(labels)
            self.memory = samplers.CrossBatchMemory(size=rows, embedding_dim=self.embedding_size).to(embeddings.dtype)
        ids = torch.arange(len(labels), device=labels.device) + self.seen
        self.seen += len(ids)
        memory = self.memory
        if memory is None:  # there is room for the batch alone
            return self._chosen(loss, embeddings, labels, {})
        if enqueue_mask is not None:
            rest = ~enqueue_mask
            memory.add(embeddings[enqueue_mask], labels[enqueue_mask], ids[enqueue_mask])
            remembered = {"references": memory.embeddings, "reference_labels": memory.labels}
            return self._chosen(loss, embeddings[rest], labels[rest], remembered)
        if self.miner is None and type(loss).value in (Loss.value, _OfSets.value) and not loss.why_not:
            value: Tensor = memory(loss.ours, embeddings, labels, ids)
            return value.to(embeddings.dtype)
        references = {**memory.references(embeddings, labels, ids)._asdict(), "ids": ids}
        value = self._chosen(loss, embeddings, labels, references)
        memory.add(embeddings, labels, ids)
        return value

    def _chosen(self, loss: Loss, embeddings: Tensor, labels: Tensor, references: Options) -> Tensor:
        tuples = None if self.miner is None else self.miner.tuples(embeddings, labels, **references)
        return loss.against(embeddings, labels, tuples, **references)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise NoCounterpartError(f"attribute {name}") from None


class SelfSupervisedLoss(nn.Module):
    """Row i of two sets belong together; `symmetric` compares all rows of both with each other."""

    def __init__(self, loss: nn.Module, symmetric: bool = True) -> None:
        super().__init__()
        self.loss, self.symmetric = loss, symmetric

    @staticmethod
    def supported_losses() -> list[str]:
        return list(TheirSelfSupervisedLoss.supported_losses())

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Any:
        def value() -> Tensor:
            if not isinstance(self.loss, Loss):
                raise NoCounterpartError(f"SelfSupervisedLoss of {type(self.loss).__name__}")
            rows = torch.arange(len(embeddings), device=embeddings.device)
            if self.symmetric:
                return self.loss.against(torch.cat([embeddings, ref_emb]), rows.repeat(2))
            return self.loss.against(embeddings, rows, references=ref_emb, reference_labels=rows)

        return CALLS.ask(value)


# Miners


class Miner(nn.Module):
    """One of their miners."""

    why_not: str | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        try:
            self.build(*arguments, **options)
        except NoCounterpartError as error:
            self.why_not = str(error)

    def build(self, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError  # each adapter has its own

    def forward(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor | None = None, ref_labels: Tensor | None = None
    ) -> Any:
        references = {"references": ref_emb, "reference_labels": ref_labels}
        empty = torch.zeros(0, dtype=torch.int64)
        return CALLS.ask(
            lambda: self.tuples(embeddings, labels, **references),
            lambda reason: tuple(Missing.because(reason, empty) for _ in range(self.columns)),
            seen=False,
        )

    mine = forward

    columns = 3

    def tuples(self, embeddings: Tensor, labels: Tensor, **references: Any) -> tuple[Tensor, ...]:
        if self.why_not:
            raise NoCounterpartError(self.why_not)
        return self.chosen(embeddings, labels, **references)

    def chosen(self, embeddings: Tensor, labels: Tensor, **references: Any) -> tuple[Tensor, ...]:
        return tuple(trivet.mine(embeddings, labels, **self.options, **references))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise NoCounterpartError(self.why_not or f"attribute {name}") from None


class BatchHardMiner(Miner):
    def build(self, *, distance: Any = None, **rest: Any) -> None:
        none_for(**rest)
        self.options = {"positives": "hard", "negatives": "hard", **geometry(distance, LpDistance())}


class BatchEasyHardMiner(Miner):
    HARD, SEMIHARD, EASY, ALL = "hard", "semihard", "easy", "all"
    columns = 4

    def __init__(self, pos_strategy: str = "easy", neg_strategy: str = "semihard", **options: Any) -> None:
        negatives: Any = "semihard-hardest" if neg_strategy == "semihard" else neg_strategy
        strategy: Options = {"positives": pos_strategy, "negatives": negatives}
        trivet.TripletLoss(**strategy)  # raises ValueError where the two do not go together
        super().__init__(strategy=strategy, **options)

    def build(
        self,
        *,
        strategy: Options,
        allowed_pos_range: Any = None,
        allowed_neg_range: Any = None,
        distance: Any = None,
        **rest: Any,
    ) -> None:
        none_for(allowed_pos_range=allowed_pos_range, allowed_neg_range=allowed_neg_range, **rest)
        self.options = strategy | geometry(distance, LpDistance())

    def chosen(self, embeddings: Tensor, labels: Tensor, **references: Any) -> tuple[Tensor, ...]:
        if "all" not in (self.options["positives"], self.options["negatives"]):
            return tuple(pairs_of(super().chosen(embeddings, labels, **references)) or ())
        pairs = trivet.mine_pairs(embeddings, labels, **self.options, **references)
        sets = [torch.stack(pairs[i : i + 2]).unique(dim=1).unbind() for i in (0, 2)]
        return (*sets[0], *sets[1])


class TripletMarginMiner(Miner):
    def build(self, margin: float = 0.2, type_of_triplets: str = "all", *, distance: Any = None, **rest: Any) -> None:
        none_for(**rest)
        if margin < 0:
            raise NoCounterpartError("a margin below 0")
        if type_of_triplets == "easy":
            raise NoCounterpartError("triplets that hold the margin")
        self.kind = type_of_triplets
        self.options = {"positives": "all", "margin": margin, **geometry(distance, LpDistance())}

    def chosen(self, embeddings: Tensor, labels: Tensor, **references: Any) -> tuple[Tensor, ...]:
        rows = references.get("references")
        number = max(1, len(embeddings if rows is None else rows))
        negatives: trivet.mining.NegativeSelector
        if self.kind == "semihard":
            negatives = trivet.SemihardNegative(otherwise="drop", k=number)
        else:
            negatives = trivet.ViolatingNegative(margin=0.0 if self.kind == "hard" else None, k=number)
        return tuple(trivet.mine(embeddings, labels, negatives=negatives, **self.options, **references))


class DistanceWeightedMiner(Miner):
    def build(self, cutoff: float = 0.5, nonzero_loss_cutoff: float = 1.4, **options: Any) -> None:
        none_for(**options)
        if nonzero_loss_cutoff <= 0:
            raise NoCounterpartError("no distance that may be chosen")
        negatives = trivet.DistanceWeighted(
            cutoff=max(cutoff, 1e-6), upper_cutoff=nonzero_loss_cutoff, otherwise="drop"
        )
        self.options = {"positives": "all", "negatives": negatives, "distance": "euclidean", "normalize": True}


class MultiSimilarityMiner(Miner):
    columns = 4

    def build(self, epsilon: float = 0.1, **options: Any) -> None:
        none_for(reducer=cosine_reducer(**options))
        self.options = {
            "positives": trivet.MultiSimilarityPositives(epsilon),
            "negatives": trivet.MultiSimilarityNegatives(epsilon),
            "distance": "cosine",
        }

    def chosen(self, embeddings: Tensor, labels: Tensor, **references: Any) -> tuple[Tensor, ...]:
        return tuple(trivet.mine_pairs(embeddings, labels, **self.options, **references))


# Samplers and measures


class MPerClassSampler:
    """The items of `PKBatches` one after another."""

    def __init__(
        self, labels: Tensor, m: int, batch_size: int | None = None, length_before_new_iter: int = 100_000
    ) -> None:
        def batches() -> samplers.PKBatches:
            if batch_size is not None and (length_before_new_iter < batch_size or batch_size % m):
                raise NoCounterpartError("batches that do not fit length_before_new_iter or m")
            if batch_size == m:
                raise NoCounterpartError("batches of one class")
            classes = len(np.unique(labels)) if batch_size is None else batch_size // m
            return samplers.PKBatches(labels, num_classes=classes, samples_per_class=m, seed=0)

        self.batch_size = batch_size
        self.batches = CALLS.ask(batches, seen=False)

    def __iter__(self) -> Iterator[int]:
        def items() -> list[int]:
            if isinstance(self.batches, Missing):
                raise NoCounterpartError(self.batches.reason)
            return [item for batch in self.batches for item in batch]

        return iter(CALLS.ask(items, lambda _: [0] * (self.batch_size or 0), seen=False))

    def __len__(self) -> int:
        CALLS.ask(lambda: _none("length_before_new_iter"), seen=False)
        return len(self.batches) * self.batches.batch_size


MEASURES = {
    "precision_at_1": "recall@1",
    "r_precision": "r-precision",
    "mean_average_precision_at_r": "map@r",
    "mean_average_precision": "map",
    "mean_reciprocal_rank": "mrr",
    "NMI": "nmi",
    "AMI": "ami",
}


class AccuracyCalculator:
    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        avg_of_avgs: bool = False,
        return_per_class: bool = False,
        k: Any = None,
        label_comparison_fn: Any = None,
        device: Any = None,
        knn_func: Any = None,
        kmeans_func: Any = None,
    ) -> None:
        self.names = [name for name in include or MEASURES if name not in exclude]
        self.average, self.per_class, self.k = "macro" if avg_of_avgs else "micro", return_per_class, k
        self.why_not: str | None = None
        try:
            if avg_of_avgs and return_per_class:
                raise NoCounterpartError("the check of two averages at once")
            if not (k is None or k == "max_bin_count" or (isinstance(k, int) and k > 0)):
                raise NoCounterpartError("the check of k")
            none_for(label_comparison_fn=label_comparison_fn)
            if getattr(knn_func, "index_init_fn", None) is not None:
                kind = knn_func.index_init_fn
                none_for(index_init_fn=None if kind.__name__ == "IndexFlatL2" else kind)
            elif type(knn_func) is CustomKNN:
                inner = getattr(knn_func.distance, "distance", knn_func.distance)
                if geometry(inner, inner) != {"distance": "squared_euclidean", "normalize": False}:
                    raise NoCounterpartError("knn_func of another distance")
            self.kmeans_func = kmeans_func
        except NoCounterpartError as error:
            self.why_not = str(error)

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, Any]:
        names = [name for name in include or self.names if name not in exclude]
        if reference is None:
            reference, reference_labels, ref_includes_query = query, query_labels, True

        def found() -> dict[str, Any]:
            if self.why_not:
                raise NoCounterpartError(self.why_not)
            rows = (torch.as_tensor(query).float(), torch.as_tensor(reference).float())
            labels = (_whole(query_labels), _whole(reference_labels))
            return self._found(names, rows, labels, ref_includes_query)

        def missing(reason: str) -> Any:
            return {name: Missing.because(reason) for name in names}

        values: dict[str, Any] = CALLS.ask(found, missing)
        if self.why_not is None and (lacking := missing_in(list(values.values()))) is not None:
            CALLS.missing[lacking.reason] = None
        return values

    def _found(
        self, names: list[str], rows: tuple[Tensor, Tensor], labels: tuple[Tensor, Tensor], own: bool
    ) -> dict[str, Any]:
        ranked = [name for name in names if name not in ("NMI", "AMI")]
        values: dict[str, Any] = {}
        if ranked:
            gallery: Options = {"gallery": rows[1], "gallery_labels": labels[1]}
            if own:
                same = rows[0].shape == rows[1].shape and bool((rows[0] == rows[1]).all())
                gallery = {} if same else {**gallery, "own": torch.arange(len(rows[0]))}
            measures = [MEASURES[name] for name in ranked]
            result = retrieve(rows[0], labels[0], measures=measures, without_positive="drop", **gallery)
            if self.per_class:
                each = list(result.per_class().values())
                values = {name: [one[MEASURES[name]] for one in each] for name in ranked}
            else:
                means = result.mean("macro" if self.average == "macro" else "micro")
                values = {name: means[MEASURES[name]] for name in ranked}
            most = int(result.positives.max())
            for name in ranked:
                if (reason := self._cut(name, most, len(rows[1]) - own)) is not None:
                    values[name] = Missing.because(reason)
        if len(ranked) < len(names):
            if self.kmeans_func is not None:
                clusters = None
            else:
                number = len(labels[0].unique())
                clusters = clustering.cluster(rows[0], number, seed=0).assignment
            for name in set(names) - set(ranked):
                if clusters is None:
                    values[name] = Missing.because("kmeans_func")
                else:
                    values[name] = (clustering.nmi if name == "NMI" else clustering.ami)(labels[0].numpy(), clusters)
        return values

    def _cut(self, name: str, most: int, references: int) -> str | None:
        """Why a list of `k` items cannot give the measure, if so."""
        if name == "precision_at_1" or self.k is None:
            return None
        if name in ("r_precision", "mean_average_precision_at_r"):
            return None if self.k == "max_bin_count" or self.k >= most else "k below the number of positives"
        return None if self.k != "max_bin_count" and self.k >= references else "k below the number of references"

    def __getattr__(self, name: str) -> Any:
        raise NoCounterpartError(f"attribute {name}")


def _whole(labels: Any) -> Tensor:
    """Labels as whole numbers."""
    given = torch.as_tensor(labels)
    if given.ndim != 1:
        raise NoCounterpartError("labels of several columns")
    if given.is_floating_point() and bool((given != given.round()).any()):
        raise NoCounterpartError("labels that are no whole numbers")
    return given.long()


LOSSES: tuple[type, ...] = (
    TripletMarginLoss,
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NTXentLoss,
    SupConLoss,
    CircleLoss,
    NPairsLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    NormalizedSoftmaxLoss,
    CosFaceLoss,
    ArcFaceLoss,
    SubCenterArcFaceLoss,
    CrossBatchMemory,
    SelfSupervisedLoss,
)
MINERS: tuple[type, ...] = (
    BatchHardMiner,
    BatchEasyHardMiner,
    TripletMarginMiner,
    DistanceWeightedMiner,
    MultiSimilarityMiner,
)
# Where each stands in their library.
REPLACED: dict[str, tuple[type, ...]] = {
    "pytorch_metric_learning.losses": LOSSES,
    "pytorch_metric_learning.miners": MINERS,
    "pytorch_metric_learning.samplers": (MPerClassSampler,),
    "pytorch_metric_learning.utils.accuracy_calculator": (AccuracyCalculator,),
}
