"""Settings of the losses, derived from their constructors, and the loss they describe."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import AllowInfNan, Field, PositiveInt, SerializeAsAny, ValidationError, model_validator

from trivet.config.base import Config, NamedConfig, derived_settings, nearest
from trivet.config.plugins import absolute, is_reference, python_object
from trivet.losses import LOSSES, MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.mining import NEGATIVES, POSITIVES, NegativeSelector, PositiveSelector
from trivet.runtime.arguments import requirement

Selector = str | dict[str, str | bool | int | Annotated[float, AllowInfNan(True)]]


class StrategyConfig(NamedConfig):
    """Settings that every loss has: whom it compares, and at which prefixes of an embedding.

    The rest are the arguments of its constructor.

    Args:
        prefixes: matryoshka: lengths such as [32, 64] that are trained and measured too, so that embeddings can be cut
            to save room.
    """

    loss: ClassVar[type[EmbeddingLoss]]
    positives: Selector
    negatives: Selector
    prefixes: tuple[PositiveInt, ...] | None = Field(None, min_length=1)

    @classmethod
    def names(cls) -> Collection[str]:
        """Names of the losses of Trivet."""
        return LOSSES

    @classmethod
    def named(cls, name: str) -> type[StrategyConfig] | None:
        """See `loss_settings`."""
        return loss_settings(name) if name in LOSSES or is_reference(name) else None

    def build(self, *, num_classes: int, embedding_dim: int, generator: torch.Generator) -> EmbeddingLoss:
        """The loss of whole embeddings.

        Args:
            num_classes: of the labels it may meet.
            embedding_dim: the length of an embedding.
            generator: seeds its random choices and its parameters.
        """
        arguments = inspect.signature(self.loss).parameters
        run = {"num_classes": num_classes, "embedding_dim": embedding_dim, "generator": generator}
        values: dict[str, Any] = {key: value for key, value in run.items() if key in arguments}
        values |= {key: getattr(self, key) for key in type(self).model_fields if key in arguments}
        for role, table, base in (
            ("positives", POSITIVES, PositiveSelector),
            ("negatives", NEGATIVES, NegativeSelector),
        ):
            if role in arguments:
                values[role] = rule = _selector(role, values[role], table, base)
                if rule.unit_rows and "normalize" in arguments and not arguments["normalize"].default:
                    values["normalize"] = True
        return self.loss(**values)

    def build_at_prefixes(
        self, *, num_classes: int, embedding_dim: int, normalize: bool, generator: torch.Generator
    ) -> EmbeddingLoss | MatryoshkaLoss:
        """The loss that is trained on: with `prefixes` a sum, each with random choices and parameters of its own.

        Args:
            num_classes, embedding_dim, generator: see `build`.
            normalize: whether embeddings have length 1, so that each prefix is brought to it.

        Raises:
            ValueError: if a prefix is longer than an embedding.
        """
        # The whole first: with prefixes it draws what it draws without.
        lengths = self.lengths(embedding_dim)
        made = [
            self.build(num_classes=num_classes, embedding_dim=length, generator=generator)
            for length in reversed(lengths)
        ]
        for loss in made[1:]:
            loss.normalize = loss.normalize or normalize
        return made[0] if self.prefixes is None else MatryoshkaLoss(made[::-1], lengths)

    def lengths(self, embedding_dim: int) -> tuple[int, ...]:
        """The lengths at which embeddings are compared in training, ascending; the last is the whole.

        Raises:
            ValueError: if a prefix is longer than that.
        """
        prefixes = self.prefixes or ()
        if prefixes and prefixes[-1] > embedding_dim:
            raise ValueError(
                f"loss.prefixes must not be longer than an embedding, model.embedding_dim = {embedding_dim}: got "
                f"{prefixes[-1]}; leave it out, or raise model.embedding_dim."
            )
        return (*prefixes, *(() if embedding_dim in prefixes else (embedding_dim,)))

    def absolute(self) -> StrategyConfig:
        """The same settings from any folder."""
        values = self.model_dump()
        for key in ("positives", "negatives"):
            if isinstance(values[key], dict):
                values[key] |= {"name": absolute(values[key]["name"])}
            else:
                values[key] = absolute(values[key])
        return loss_settings(absolute(self.name)).model_validate(values | {"name": absolute(self.name)})

    @model_validator(mode="after")
    def _check(self) -> Self:
        prefixes = self.prefixes or ()
        if list(prefixes) != sorted(set(prefixes)):
            raise ValueError(f"prefixes must be ascending, each length once: got {list(prefixes)}; sort them.")
        try:
            self.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
        except ValueError:
            raise
        except Exception as error:  # a loss of a user's own raises anything
            raise ValueError(
                f"{self.name} cannot be created: {type(error).__name__}: {error}; fix its code."
            ) from error
        return self


class _WithoutRules(StrategyConfig):
    """With the one value of rules that a constructor does not take.

    Args:
        positives: not chosen by this loss.
        negatives: not chosen by this loss.
    """

    positives: Literal["all"] = "all"
    negatives: Literal["all"] = "all"


def loss_settings(name: str) -> type[StrategyConfig]:
    """The settings of a loss by its name in `LOSSES`, or of one outside Trivet.

    Raises:
        ValueError: if what the name refers to cannot be imported or is no loss.
    """
    return _derived(
        name, python_object(name, kind="losses", base=EmbeddingLoss) if is_reference(name) else LOSSES[name]
    )


LossConfig = SerializeAsAny[StrategyConfig]


@functools.cache
def _derived(name: str, loss: type[EmbeddingLoss]) -> type[StrategyConfig]:
    types: dict[str, Any] = {"name": Literal[name], "positives": Selector, "negatives": Selector}
    types["reduction"] = Literal[loss.reductions]
    model = derived_settings(loss, _WithoutRules, exclude=loss.not_settings, types=types, name=name)
    model.loss = loss
    return model


class _Options(Config, allow_inf_nan=True):
    """Options of a rule; a limit may be infinite."""


@functools.cache
def _options_of(rule: Callable[..., Any]) -> type[_Options]:
    return derived_settings(rule, _Options, exclude=(), types={})


def _selector(role: str, value: Selector, table: Mapping[str, type[Any]], base: type[Any]) -> Any:
    """The rule a setting describes."""
    options = {"name": value} if isinstance(value, str) else dict(value)
    if "name" not in options:
        raise ValueError(f"{role} as a table needs a name: got {options}; add name, one of {', '.join(sorted(table))}.")
    name = str(options.pop("name"))
    if name not in table and not is_reference(name):
        raise ValueError(f"{role} = {name!r} is not a strategy; {nearest(name, table)}")
    rule: Callable[..., Any] = table[name] if name in table else python_object(name, kind=role, base=base)
    model = _options_of(rule)
    for key in options:
        if key not in model.model_fields:
            known = nearest(key, model.model_fields) if model.model_fields else "it has none."
            raise ValueError(f"{role} {name!r} has no option {key!r}; {known}")
    try:
        settings = model.model_validate(options)
        return rule(**{key: getattr(settings, key) for key in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        key, message = ".".join(map(str, first["loc"])), first["msg"]
        needed, value = requirement(message), repr(first["input"])
        if first["type"] == "missing":
            problem = "is missing; add it"
        elif needed is not None:
            problem = f"must be {needed}: got {value}"
        else:
            problem = f"= {value} cannot be used: {message[0].lower()}{message[1:]}"
        raise ValueError(f"{role} {name!r}: {key} {problem}.") from None
    except ValueError as error:
        raise ValueError(f"{role} {name!r}: {error}") from None
