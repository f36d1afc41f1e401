"""Settings of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, PositiveInt, SerializeAsAny, model_validator

from trivet.batching import BatchConfig
from trivet.config import Config
from trivet.data import DataConfig
from trivet.models import ModelConfig
from trivet.plugins import absolute
from trivet.training.choosing import ChoosingConfig
from trivet.training.cleaning import CleaningConfig
from trivet.training.loss import LossConfig

GuardAction = Literal["warn", "stop", "repair"]


class TrainingConfig(Config):
    """How the weights are learned."""

    steps: int = Field(800, ge=1, description="Optimiser steps, one batch each.")
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = Field("adam", description="As in torch.optim.")
    learning_rate: float = Field(
        1e-3, gt=0, description="Learning rate of the network; parameters of the loss have their own."
    )
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the network.")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd and rmsprop only.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="cosine falls to 0 at the end.")
    warmup_steps: int = Field(0, ge=0, description="Steps over which the learning rate rises from near 0.")
    precision: Literal["32", "bf16"] = Field("32", description="bf16: mixed precision; the loss stays in float32.")
    accelerator: Literal["auto", "cpu", "gpu"] = Field("auto", description="auto uses a GPU if there is one.")
    workers: int = Field(0, ge=0, le=64, description="Processes that prepare batches; 0: the main process.")
    log_every: int = Field(10, ge=1, description="Steps between rows of metrics.csv.")
    checkpoint_every: int = Field(200, ge=1, description="Steps between checkpoints; the last two are kept.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is for sgd and rmsprop only: remove it for {self.optimizer}.")
        return self


class EvaluationConfig(Config):
    """What is measured, on the evaluation splits only."""

    k: tuple[Annotated[int, Field(ge=1, le=10**9)], ...] = Field(
        (1, 2, 4, 8), min_length=1, description="Values of K for recall@K; 1 is among them."
    )
    nmi_plus: PositiveInt | dict[str, PositiveInt] = Field(
        10, description="Clusters per class for NMI+; one number, or one per label level."
    )
    distance: Literal["euclidean", "cosine"] = Field("euclidean", description="Distance for neighbours and clusters.")
    every: int = Field(100, ge=1, description="Steps between measurements of recall@1 during training.")
    sample: int = Field(2000, ge=2, description="Items of the first evaluation split used for them.")
    map_points: int = Field(1000, ge=2, le=5000, description="Items in the embedding map of the report.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 1 not in self.k:
            raise ValueError(f"k must hold 1, as results are compared by recall@1: got {list(self.k)}; add it.")
        return self


class GuardConfig(Config):
    """What is done when the monitor sees a collapse coming, or another event."""

    action: GuardAction = Field(
        "warn",
        description="warn: report it and continue. stop: end the training, evaluate and report. repair: return to the "
        "last healthy checkpoint, apply the smallest change that may help, and continue from there.",
    )
    every: int = Field(
        10,
        ge=1,
        description="Steps between checks of the monitor; twice as many from step 300 on, three times from 600.",
    )
    max_repairs: int = Field(3, ge=1, le=3, description="Maximum number of repairs of a run.")


class RunConfig(Config):
    """A whole run: everything its result depends on, but for the versions of the software."""

    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of the weights, the batches and every random choice.")
    data: SerializeAsAny[DataConfig]
    batch: BatchConfig = BatchConfig()
    model: SerializeAsAny[ModelConfig] = ModelConfig()
    loss: LossConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: GuardConfig = GuardConfig()
    choosing: ChoosingConfig = ChoosingConfig()
    cleaning: CleaningConfig | None = Field(
        None, description="How to treat labels that look wrong during training; a separate section, [cleaning]."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model.normalize:
            loss = self.loss.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
            try:
                loss.check_unit_rows()
            except ValueError as error:
                raise ValueError(
                    f"loss.{str(error).removesuffix('.')}, or set model.normalize = false to train without length 1."
                ) from None
        if self.batch.samples_per_class == 1 and self.batch.size is None:
            loss = self.loss.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
            if loss.term != "proxy":
                raise ValueError(
                    f"batch.samples_per_class must be at least 2 for the loss {self.loss.name}, so that there is a "
                    "positive: got 1; use 2 or more, or the loss proxy-nca."
                )
        return self


def resolved(config: RunConfig) -> RunConfig:
    """The settings with paths made absolute, also of code, so that the run folder can be used from anywhere."""
    whole = {name: path.resolve() for name, path in config.data if isinstance(path, Path)}
    data = config.data.model_copy(update={"name": absolute(config.data.name), **whole})
    files = {name: path.resolve() for name, path in config.model if isinstance(path, Path)}
    model = config.model.model_copy(update={"name": absolute(config.model.name), **files})
    return config.model_copy(update={"data": data, "model": model, "loss": config.loss.absolute()})


def easy_positive_warnings(config: RunConfig) -> list[str]:
    """What about the settings would surprise the person who made them."""
    easy = config.loss.positives == "easy" or (
        isinstance(config.loss.positives, dict) and config.loss.positives.get("name") == "easy"
    )
    if easy and config.batch.size is None and config.batch.samples_per_class == 2:
        return [
            "With batch.samples_per_class = 2 each anchor has only one positive, so easy positives have no effect; "
            "use more samples of fewer classes."
        ]
    return []
