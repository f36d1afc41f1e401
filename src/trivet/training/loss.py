"""Settings of the losses, and the loss they describe."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import AllowInfNan, Field, TypeAdapter, ValidationError, model_validator

from trivet.config import Config, nearest
from trivet.geometry import Distance
from trivet.losses import (
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NCATripletLoss,
    NPairLoss,
    ProxyNCALoss,
    SecondOrderTripletLoss,
    SelectivelyContrastiveLoss,
    TripletLoss,
    UnhingedMarginLoss,
    UnhingedTripletLoss,
)
from trivet.losses.triplet import Variant
from trivet.mining import NEGATIVES, POSITIVES, NegativeSelector, PositiveSelector
from trivet.rows import Reduction, RowLoss

Selector = str | dict[str, str | Annotated[float, AllowInfNan(True)] | int]

_POSITIVES = (
    'A name, or a table with options such as {name = "easy", k = 2, max_positive_similarity = 0.9999}: "easy", "hard", '
    '"semihard", "random", "all", "multi-similarity".'
)
_NEGATIVES = (
    'A name, or a table with options such as {name = "semihard", k = 2, otherwise = "drop"}: "random", "easy", "hard", '
    '"semihard", "semihard-hardest", "violating", "distance-weighted", "multi-similarity", "all".'
)
_DISTANCE = '"cosine" is 1 - similarity, on rows of length 1.'
_REDUCTION = "What the sum of the terms is divided by; docs/strategies.md says which a loss takes."
_BAND = 'Width of the bands of "semihard" and "violating", in 1 - similarity; the loss itself has none.'
_TRIM = "Share of the terms, those with the largest loss, that is left out."
_TRIM_POSITIVES = "Trim positives alone, those that pull hardest; docs/strategies.md says what remains."
_DISJOINT = (
    "Each item of a batch in at most one triplet, anchors by index or in a random order; for strategies with one "
    "positive and one negative per anchor."
)


class StrategyConfig(Config, ABC):
    """What every loss has: whom it compares."""

    name: str
    positives: Selector = Field(description=_POSITIVES)
    negatives: Selector = Field(description=_NEGATIVES)
    trim: float = Field(0.0, ge=0, lt=1, description=_TRIM)

    @abstractmethod
    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> RowLoss:
        """The loss; `num_classes` counts the labels it may meet, `embedding_dim` is the length of an embedding."""

    def _selectors(self) -> tuple[PositiveSelector, NegativeSelector]:
        positives: PositiveSelector = _selector("positives", self.positives, POSITIVES)
        negatives: NegativeSelector = _selector("negatives", self.negatives, NEGATIVES)
        return positives, negatives

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
        return self


class PositivesConfig(StrategyConfig):
    """Of a loss whose positives can be trimmed."""

    trim_positives_only: bool = Field(False, description=_TRIM_POSITIVES)


class TripletsConfig(PositivesConfig):
    """Of a loss that can take one positive and one negative per anchor."""

    disjoint: Literal[False, True, "random"] = Field(False, description=_DISJOINT)


class TripletConfig(TripletsConfig):
    """See `trivet.TripletLoss`."""

    name: Literal["triplet"] = "triplet"
    positives: Selector = Field("random", description=_POSITIVES)
    negatives: Selector = Field("semihard", description=_NEGATIVES)
    margin: float = Field(0.2, ge=0, description="In the unit of the distance.")
    distance: Distance = Field("squared_euclidean", description=_DISTANCE)
    reduction: Reduction = Field("mean", description=_REDUCTION)
    variant: Variant = Field("an", description='"pn" takes the distance from the positive to the negative.')
    soft: bool = Field(False, description="log(1 + exp) for the hinge; the margin is then that of the bands only.")

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> TripletLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return TripletLoss(
            margin=self.margin,
            distance=self.distance,
            positives=positives,
            negatives=negatives,
            reduction=self.reduction,
            variant=self.variant,
            soft=self.soft,
            normalize=_needs_unit_rows(positives, negatives),
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class ContrastiveConfig(TripletsConfig):
    """See `trivet.ContrastiveLoss`."""

    name: Literal["contrastive"] = "contrastive"
    positives: Selector = Field("all", description=_POSITIVES)
    negatives: Selector = Field("all", description=_NEGATIVES)
    margin: float = Field(ge=0, description="In the unit of the distance.")
    distance: Distance = Field("squared_euclidean", description=_DISTANCE)
    reduction: Reduction = Field("objective", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> ContrastiveLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return ContrastiveLoss(
            margin=self.margin,
            distance=self.distance,
            positives=positives,
            negatives=negatives,
            reduction=self.reduction,
            normalize=_needs_unit_rows(positives, negatives),
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class MarginConfig(TripletsConfig):
    """See `trivet.MarginLoss`."""

    name: Literal["margin"] = "margin"
    positives: Selector = Field("random", description=_POSITIVES)
    negatives: Selector = Field("distance-weighted", description=_NEGATIVES)
    margin: float = Field(0.2, ge=0, description="In the unit of the distance.")
    beta: float = Field(1.2, description="Initial boundary, in the unit of the distance.")
    beta_per: Literal["class", "set"] = Field("class", description="One boundary for each class, or one in all.")
    learn_beta: bool = Field(True, description="Otherwise beta stays as given.")
    beta_learning_rate: float = Field(5e-4, ge=0, description="Of beta, which has no weight decay.")
    beta_penalty: float = Field(0.0, ge=0, description="Weight of the sum of all betas in the loss.")
    distance: Distance = Field("euclidean", description=_DISTANCE)
    normalize: bool = Field(True, description="Scale embeddings to length 1 inside the loss.")
    reduction: Reduction = Field("mean-active", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> MarginLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return MarginLoss(
            margin=self.margin,
            beta=self.beta,
            num_classes=num_classes if self.beta_per == "class" else None,
            learn_beta=self.learn_beta,
            beta_learning_rate=self.beta_learning_rate,
            beta_penalty=self.beta_penalty,
            distance=self.distance,
            positives=positives,
            negatives=negatives,
            normalize=self.normalize,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class MultiSimilarityConfig(TripletsConfig):
    """See `trivet.MultiSimilarityLoss`."""

    name: Literal["multi-similarity"] = "multi-similarity"
    positives: Selector = Field("multi-similarity", description=_POSITIVES)
    negatives: Selector = Field("multi-similarity", description=_NEGATIVES)
    positive_scale: float = Field(2.0, gt=0, description="a: how much the least similar positives count.")
    negative_scale: float = Field(50.0, gt=0, description="b: how much the most similar negatives count.")
    threshold: float = Field(1.0, description="Lambda, a similarity; docs/strategies.md says what 1 means.")
    skip_if_any_empty: bool = Field(False, description="Leave out anchors without a mined positive or negative.")
    reduction: Reduction = Field("anchors", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> MultiSimilarityLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return MultiSimilarityLoss(
            positive_scale=self.positive_scale,
            negative_scale=self.negative_scale,
            threshold=self.threshold,
            positives=positives,
            negatives=negatives,
            skip_if_any_empty=self.skip_if_any_empty,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class NCATripletConfig(TripletsConfig):
    """See `trivet.NCATripletLoss`."""

    name: Literal["nca"] = "nca"
    positives: Selector = Field("easy", description=_POSITIVES)
    negatives: Selector = Field("hard", description=_NEGATIVES)
    temperature: float = Field(1.0, gt=0, description="Of the difference of similarities.")
    margin: float = Field(0.2, ge=0, description=_BAND)
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> NCATripletLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return NCATripletLoss(
            temperature=self.temperature,
            positives=positives,
            negatives=negatives,
            margin=self.margin,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class SecondOrderTripletConfig(TripletsConfig):
    """See `trivet.SecondOrderTripletLoss`."""

    name: Literal["second-order"] = "second-order"
    positives: Selector = Field("easy", description=_POSITIVES)
    negatives: Selector = Field("hard", description=_NEGATIVES)
    margin: float = Field(0.2, ge=0, description=_BAND)
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> SecondOrderTripletLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return SecondOrderTripletLoss(
            positives=positives,
            negatives=negatives,
            margin=self.margin,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class SelectivelyContrastiveConfig(TripletsConfig):
    """See `trivet.SelectivelyContrastiveLoss`."""

    name: Literal["selectively-contrastive"] = "selectively-contrastive"
    positives: Selector = Field("easy", description=_POSITIVES)
    negatives: Selector = Field("hard", description=_NEGATIVES)
    hard_weight: float = Field(1.0, ge=0, description="Lambda: weight of a triplet with the negative nearer.")
    temperature: float = Field(0.1, gt=0, description="Of the difference of similarities.")
    margin: float = Field(0.2, ge=0, description=_BAND)
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> SelectivelyContrastiveLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return SelectivelyContrastiveLoss(
            hard_weight=self.hard_weight,
            temperature=self.temperature,
            positives=positives,
            negatives=negatives,
            margin=self.margin,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class NPairConfig(PositivesConfig):
    """See `trivet.NPairLoss`."""

    name: Literal["n-pair"] = "n-pair"
    positives: Selector = Field("random", description=_POSITIVES)
    negatives: Selector = Field("all", description='A set: "all" or "multi-similarity".')
    temperature: float = Field(1.0, gt=0, description="Of the difference of dot products.")
    l2_weight: float = Field(0.0, ge=0, description="Weight of the mean squared norm of the embeddings.")
    normalize: bool = Field(False, description="Scale embeddings to length 1 inside the loss.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> NPairLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return NPairLoss(
            temperature=self.temperature,
            l2_weight=self.l2_weight,
            positives=positives,
            negatives=negatives,
            normalize=self.normalize or _needs_unit_rows(positives, negatives),
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            generator=generator,
        )


class ProxyNCAConfig(StrategyConfig):
    """See `trivet.ProxyNCALoss`."""

    name: Literal["proxy-nca"] = "proxy-nca"
    positives: Literal["all"] = Field("all", description="The proxy of the item's class.")
    negatives: Literal["all"] = Field("all", description="All other proxies.")
    scale: float = Field(9.0, gt=0, description="Of the squared distance; 1 is the paper's equation.")
    proxy_learning_rate: float = Field(1e-2, ge=0, description="Of the proxies, which have no weight decay.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> ProxyNCALoss:
        """The loss."""
        return ProxyNCALoss(
            num_classes,
            embedding_dim,
            scale=self.scale,
            proxy_learning_rate=self.proxy_learning_rate,
            reduction=self.reduction,
            trim=self.trim,
            generator=generator,
        )


class UnhingedTripletConfig(TripletsConfig):
    """See `trivet.UnhingedTripletLoss`."""

    name: Literal["unhinged-triplet"] = "unhinged-triplet"
    positives: Selector = Field("all", description=_POSITIVES)
    negatives: Selector = Field("all", description=_NEGATIVES)
    margin: float = Field(0.2, ge=0, description="In the unit of the distance; a constant, but for the bands.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> UnhingedTripletLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return UnhingedTripletLoss(
            margin=self.margin,
            positives=positives,
            negatives=negatives,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


class UnhingedMarginConfig(TripletsConfig):
    """See `trivet.UnhingedMarginLoss`."""

    name: Literal["unhinged-margin"] = "unhinged-margin"
    positives: Selector = Field("all", description=_POSITIVES)
    negatives: Selector = Field("all", description=_NEGATIVES)
    margin: float = Field(0.2, ge=0, description="In the unit of the distance; a constant, but for the bands.")
    beta: float = Field(1.4, ge=0, description="Boundary, in the unit of the distance; fixed.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> UnhingedMarginLoss:
        """The loss."""
        positives, negatives = self._selectors()
        return UnhingedMarginLoss(
            margin=self.margin,
            beta=self.beta,
            positives=positives,
            negatives=negatives,
            reduction=self.reduction,
            trim=self.trim,
            trim_positives_only=self.trim_positives_only,
            disjoint=self.disjoint,
            generator=generator,
        )


LossConfig = Annotated[
    TripletConfig
    | ContrastiveConfig
    | MarginConfig
    | MultiSimilarityConfig
    | NCATripletConfig
    | SecondOrderTripletConfig
    | SelectivelyContrastiveConfig
    | NPairConfig
    | ProxyNCAConfig
    | UnhingedTripletConfig
    | UnhingedMarginConfig,
    Field(discriminator="name"),
]


def _selector(role: str, value: Selector, table: Mapping[str, type[Any]]) -> Any:
    """The selector a setting describes."""
    options = {"name": value} if isinstance(value, str) else dict(value)
    if "name" not in options:
        raise ValueError(f"{role} as a table needs a name: got {options}; add name, one of {', '.join(sorted(table))}.")
    name = str(options.pop("name"))
    if name not in table:
        raise ValueError(f"{role} = {name!r} is not a strategy; {nearest(name, table)}")
    known = [field.name for field in dataclasses.fields(table[name])]
    for key in options:
        if key not in known:
            raise ValueError(
                f"{role} {name!r} has no option {key!r}; {nearest(key, known) if known else 'it has none.'}"
            )
    try:
        return TypeAdapter(table[name]).validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if key:
            message = f"{key} = {first['input']!r} cannot be used: {message[0].lower()}{message[1:]}."
        raise ValueError(f"{role} {name!r}: {message}") from None


def _needs_unit_rows(positives: PositiveSelector, negatives: NegativeSelector) -> bool:
    return positives.unit_rows or negatives.unit_rows
