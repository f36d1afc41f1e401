"""Settings of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PositiveInt, SerializeAsAny, model_validator

from trivet.batching import BatchConfig
from trivet.config import Config
from trivet.data import DataConfig
from trivet.models import ModelConfig
from trivet.plugins import absolute
from trivet.training.cleaning import CleaningConfig
from trivet.training.loss import LossConfig

GuardAction = Literal["warn", "stop", "repair"]


class TrainingConfig(Config):
    """How the weights are learned."""

    steps: int = Field(800, ge=1, description="Optimiser steps, one batch each.")
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = Field("adam", description="As torch.optim has them.")
    learning_rate: float = Field(1e-3, gt=0, description="Of the network; the loss's own parameters have theirs.")
    weight_decay: float = Field(0.0, ge=0, description="Of the network.")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd and rmsprop only.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="cosine falls to 0 at the end.")
    warmup_steps: int = Field(0, ge=0, description="Steps over which the learning rate rises from near 0.")
    precision: Literal["32", "bf16"] = Field("32", description="bf16: mixed precision; the loss stays in float32.")
    accelerator: Literal["auto", "cpu", "gpu"] = Field("auto", description="auto takes a GPU if there is one.")
    workers: int = Field(0, ge=0, le=64, description="Processes that prepare batches; 0 prepares them in the main one.")
    log_every: int = Field(10, ge=1, description="Steps between two rows of metrics.csv.")
    checkpoint_every: int = Field(200, ge=1, description="Steps between two checkpoints; the last two are kept.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is for sgd and rmsprop only: remove it for {self.optimizer}.")
        return self


class EvaluationConfig(Config):
    """What is measured, on the evaluation splits only."""

    k: tuple[PositiveInt, ...] = Field((1, 2, 4, 8), min_length=1, description="K of recall@K.")
    nmi_plus: PositiveInt | dict[str, PositiveInt] = Field(
        10, description="NMI+ takes this many clusters for each class; one number, or one for each label level."
    )
    distance: Literal["euclidean", "cosine"] = Field("euclidean", description="Of neighbours and clusters.")
    every: int = Field(100, ge=1, description="Steps between two looks at recall@1 during training.")
    sample: int = Field(2000, ge=2, description="Items of the first evaluation split that such a look takes.")
    map_points: int = Field(1000, ge=2, le=5000, description="Items in the embedding map of the report.")


class GuardConfig(Config):
    """What is done when the monitor sees a collapse coming, or another event."""

    action: GuardAction = Field(
        "warn",
        description="warn: say so, and train on. stop: end the training, evaluate and report. repair: return to the "
        "last healthy checkpoint, change the least that may help, and train on from there.",
    )
    every: int = Field(10, ge=1, description="Steps between two looks of the monitor at its rules.")
    max_repairs: int = Field(3, ge=1, le=3, description="Repairs of one run, at most.")


class RunConfig(Config):
    """A whole run: everything its result depends on, but for the versions of the software."""

    seed: int = Field(0, ge=0, le=2**63 - 1, description="Of the weights, the batches and every random choice.")
    data: SerializeAsAny[DataConfig]
    batch: BatchConfig = BatchConfig()
    model: SerializeAsAny[ModelConfig] = ModelConfig()
    loss: LossConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: GuardConfig = GuardConfig()
    cleaning: CleaningConfig | None = Field(
        None, description="What is done about labels that look wrong while training, a section of its own: [cleaning]."
    )


def resolved(config: RunConfig) -> RunConfig:
    """The settings with paths made absolute, also of code, so that the run folder can be used from anywhere."""
    whole = {name: path.resolve() for name, path in config.data if isinstance(path, Path)}
    data = config.data.model_copy(update={"name": absolute(config.data.name), **whole})
    model = config.model.model_copy(update={"name": absolute(config.model.name)})
    return config.model_copy(update={"data": data, "model": model, "loss": config.loss.absolute()})


def easy_positive_warnings(config: RunConfig) -> list[str]:
    """What about the settings would surprise the person who made them."""
    easy = config.loss.positives == "easy" or (
        isinstance(config.loss.positives, dict) and config.loss.positives.get("name") == "easy"
    )
    if easy and config.batch.samples_per_class == 2:
        return [
            "With batch.samples_per_class = 2 each anchor has one positive to choose from, so easy positives change "
            "nothing; take more samples of fewer classes."
        ]
    return []
