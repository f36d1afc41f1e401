"""Settings of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveInt, SerializeAsAny, model_validator

from trivet.config.base import Config, overridden
from trivet.config.plugins import absolute
from trivet.datasets import DataConfig
from trivet.metrics.label_levels import CLUSTERING, standard
from trivet.metrics.tie_expectations import check_measures
from trivet.models import ModelConfig, TextNetworkConfig, TowersConfig, resolved_text
from trivet.models.towers import SIDES
from trivet.runtime.arguments import check_name
from trivet.samplers import BatchConfig
from trivet.training.label_cleaning import CleaningConfig
from trivet.training.loss_config import LossConfig
from trivet.training.precision import PrecisionName

LoggerName = Literal["tensorboard", "mlflow", "wandb"]
Schedule = Literal["constant", "linear", "cosine", "step", "multi-step"]
TO_THE_END = ("linear", "cosine")  # their rates depend on the number of steps, from the first step on
SCHEDULED = {"step_size": ("step",), "milestones": ("multi-step",), "gamma": ("step", "multi-step")}  # what for which
GuardAction = Literal["warn", "stop"]
STEPS = 800  # of a run whose settings name neither steps nor epochs
LENGTH = ("steps", "epochs")
OF_SEVERAL_RUNS = {
    "sweep": "trivet sweep, which tries many settings: give the file to that.",
    "ladder": "trivet train FILE, which tries several candidates: give config.toml of the run that it makes, which has "
    "the settings of the best.",
}
ACCUMULATE = ("accumulate", "gradient_accumulation", "gradient_accumulation_steps", "accumulate_grad_batches")


class TrainingConfig(Config):
    """Learning of the weights.

    Args:
        steps: optimiser steps, one batch each (800 without epochs): more where the loss still falls, 0 for none.
        epochs: in place of steps, where the length is to follow the number of training items: passes over them.
        optimizer: as in torch.optim: adamw to fine-tune with weight decay, sgd or rmsprop to follow a paper.
        learning_rate: of the network: lower it when the loss jumps or collapses, to 1e-5 for fine-tuning.
        backbone_learning_rate: of a pretrained backbone, lower than that of a new head; by default the same.
        layer_decay: factor of the rate from a stage of a backbone to the one before it, 0.65 to 0.9 for transformers.
        weight_decay: pulls weights of two dimensions or more to 0: raise it where training items are learned by heart.
        momentum: of sgd and rmsprop only, usually 0.9.
        clip_norm: largest norm of the whole gradient, against single steps that throw the network off.
        schedule: fall of the learning rate, to settle at the end: linear or cosine to 0, or in steps of yours.
        warmup_steps: steps over which the rate rises from near 0, for pretrained networks and early collapse; or "all".
        step_size: for the schedule step only: steps between two falls.
        milestones: for the schedule multi-step only: the steps of the falls.
        gamma: for step and multi-step only: what the rate is multiplied by at each fall.
        precision: "bf16" or "fp16" for mixed precision, which is faster on a GPU; the loss stays in float32.
        ema: decay of an average of the weights, such as 0.99, which is then the result, against noisy steps.
        accelerator: "cpu" or "gpu" to insist on one; "auto" uses a GPU if there is one.
        devices: processes on this machine that share each batch, one a GPU, to train faster; auto for all GPUs.
        workers: processes that decode or change images, to raise where the GPU waits for files.
        log_every: steps between rows of metrics.csv: fewer for a finer curve.
        checkpoint_every: steps between checkpoints, of which two stay: fewer to lose less where a run is killed.
        loggers: where else to send what is measured, "tensorboard", "mlflow" or "wandb", to follow many runs.
        mlflow_uri: address of MLflow, where it is neither in MLFLOW_TRACKING_URI nor to be a file in the run folder.
    """

    steps: int | None = Field(None, ge=0, le=10**9)
    epochs: int | None = Field(None, ge=1, le=10**9)
    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    backbone_learning_rate: float | None = Field(None, gt=0)
    layer_decay: float = Field(1.0, gt=0, le=1)
    weight_decay: float = Field(0.0, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    clip_norm: float | None = Field(None, gt=0)
    schedule: Schedule = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    step_size: int | None = Field(None, ge=1)
    milestones: tuple[PositiveInt, ...] | None = Field(None, min_length=1)
    gamma: float = Field(0.1, gt=0, le=1)
    precision: PrecisionName = "32"
    ema: float | None = Field(None, gt=0, lt=1)
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: Annotated[int, Field(ge=1)] | Literal["auto"] = 1
    workers: int = Field(0, ge=0, le=64)
    log_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(200, ge=1)
    loggers: tuple[LoggerName, ...] = ()
    mlflow_uri: str | None = None

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the run; epochs are counted in steps by `components.in_steps` first."""
        assert self.steps is not None, "epochs are not yet counted in steps"
        return self.steps

    @property
    def num_warmup_steps(self) -> int:
        """Steps over which the rate rises."""
        return max(0, self.num_steps - 1) if self.warmup_steps == "all" else self.warmup_steps

    @model_validator(mode="before")
    @classmethod
    def _check_length(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        for key in ACCUMULATE:
            if key in values:
                raise ValueError(
                    f"{key} is not offered, as the pairs of several small batches are not those of a large one: set "
                    "batch.micro, the items that are embedded at once, and use a larger batch."
                )
        lengths = [key for key in LENGTH if values.get(key) is not None]
        if len(lengths) == 2:
            raise ValueError(f"steps or epochs must be given, not both: got {values['steps']} and {values['epochs']}.")
        return values if lengths else {**values, "steps": STEPS}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mlflow_uri is not None and "mlflow" not in self.loggers:
            raise ValueError('mlflow_uri is for the logger mlflow: add "mlflow" to loggers, or remove it.')
        if "@" in (self.mlflow_uri or ""):
            raise ValueError(
                "mlflow_uri must hold no user and password, as settings are written as they are: remove it, and set "
                "MLFLOW_TRACKING_URI in the environment."
            )
        if self.momentum and self.optimizer not in ("sgd", "rmsprop"):
            raise ValueError(f"momentum is for sgd and rmsprop only: remove it for {self.optimizer}.")
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        schedule = self.schedule
        for name, schedules in SCHEDULED.items():
            default = type(self).model_fields[name].default
            if getattr(self, name) != default and schedule not in schedules:
                raise ValueError(f"{name} has no effect with the schedule {schedule}: remove it.")
            if getattr(self, name) is None and schedule in schedules:
                raise ValueError(f"the schedule {schedule} needs {name}; add it.")
        milestones = list(self.milestones or ())
        if milestones != sorted(set(milestones)):
            raise ValueError(f"milestones must ascend, each once: got {milestones}; sort them.")
        if not self.steps:  # None, with epochs: it is checked again once they are counted in steps; 0: no rate is used
            return
        last = {"step_size": self.step_size or 0, "milestones": max([0, *milestones])}
        for name, step in {"warmup_steps": self.num_warmup_steps, **last}.items():
            if step >= self.steps:
                raise ValueError(
                    f"{name} must lie before the end of the training, {self.steps} steps: got {step}; at most "
                    f"{self.steps - 1} will do, or train longer."
                )


class EvaluationConfig(Config):
    """Measures, on the evaluation splits only.

    Args:
        k: values of K for recall@K, 1 among them: those of the paper to compare with.
        further: further measures for graded lists: found@K, precision@K, map@K, ndcg@K, ndcg.
        nmi_plus: clusters per class for NMI+, one number or one per label level: fewer to save time.
        distance: for neighbours and clusters: the one that searches will use later.
        every: steps between two looks at held-out items: fewer for a finer choice of the step, more to save time.
        sample: items at most of each look: more for a surer choice, fewer to save time.
        map_points: items in the map of the report: fewer for a smaller page.
    """

    k: tuple[Annotated[int, Field(ge=1, le=10**9)], ...] = Field((1, 2, 4, 8), min_length=1)
    further: tuple[str, ...] = ()
    nmi_plus: PositiveInt | dict[str, PositiveInt] = 10
    distance: Literal["euclidean", "cosine"] = "euclidean"
    every: int = Field(100, ge=1)
    sample: int = Field(2000, ge=2)
    map_points: int = Field(1000, ge=2, le=5000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 1 not in self.k:
            raise ValueError(f"k must hold 1, as results are compared by recall@1: got {list(self.k)}; add it.")
        if self.further:
            check_measures(self.further)
        return self

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures of a run."""
        return tuple(dict.fromkeys((*standard(self.k), *self.further)))


class GuardConfig(Config):
    """Action when the monitor sees a collapse coming, or another event.

    Args:
        action: "stop" ends a run that collapses with the best network of its probe as the result; "warn" only says so.
        probe: held-out items that decide whether a suspicion is right: 0 to leave none out, more to be surer.
        forecast: make and throw away the first 5 % of the steps, to hear of a likely collapse before it costs time.
    """

    action: GuardAction = "warn"
    probe: int | None = Field(None, ge=0)
    forecast: bool = False

    @property
    def leaves_out(self) -> bool:
        """True if training items may be left out for it."""
        return self.action != "warn" if self.probe is None else self.probe > 0


class ChoosingConfig(Config):
    """Choice of the step that is the result of a run, and of an early end.

    Args:
        keep: "best" makes the best step on validation the result, where long training harms; needs data.folds or val.
        measure: what is highest at the best step, by which a search is judged: one of evaluation, not of clusters.
        level: the label level of the measure, where it is not the one trained on.
        patience: looks without a higher measure after which training ends, to save time; by default it never does.
    """

    keep: Literal["last", "best"] = "last"
    measure: str = "map@r"
    level: str | None = None
    patience: int | None = Field(None, ge=1)

    @property
    def counted_measure(self) -> str | None:
        """The measure on which the result of a run depends; None where the last step is the result in any case."""
        return None if self.keep == "last" and self.patience is None else self.measure


class RunConfig(Config):
    """A whole run: everything its result depends on, but for the versions of the software.

    Args:
        seed: seed of the weights, the batches and every random choice: another one shows how much results vary.
        cleaning: how to treat labels that look wrong during training; a separate section, [cleaning].
    """

    seed: int = Field(0, ge=0, le=2**63 - 1)
    data: SerializeAsAny[DataConfig]
    batch: BatchConfig = BatchConfig()
    model: SerializeAsAny[ModelConfig] = ModelConfig()
    loss: LossConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    guard: GuardConfig = GuardConfig()
    choosing: ChoosingConfig = ChoosingConfig()
    cleaning: CleaningConfig | None = None

    @classmethod
    def with_overrides(cls, values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """As `overridden`; steps take the place of epochs that were in `values`, and the reverse."""
        changed = overridden(values, overrides)
        lengths = [key for key in LENGTH if f"training.{key}" in map(name_of, overrides)]
        if len(lengths) == 1:
            changed["training"] = {
                key: v for key, v in changed["training"].items() if key not in LENGTH or key in lengths
            }
        return changed

    @model_validator(mode="before")
    @classmethod
    def _refuse_other_files(cls, values: Any) -> Any:
        for section, why in OF_SEVERAL_RUNS.items():
            if isinstance(values, Mapping) and section in values:
                raise ValueError(f"the section [{section}] is for {why}")
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_sides()
        if self.model.normalize:
            loss = self.loss.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
            try:
                loss.check_unit_rows()
            except ValueError as error:
                raise ValueError(
                    f"loss.{str(error).removesuffix('.')}, or set model.normalize = false to train without length 1."
                ) from None
        if self.model.embedding_dim:  # 0: that of a pretrained network of texts, which is not known yet
            self.loss.lengths(self.model.embedding_dim)
        heads = [getattr(each, "head", "") for each in self.model.networks]
        frozen = [getattr(each, "freeze", "none") == "all" for each in self.model.networks]
        if all(frozen) and {*heads} <= {"none", "whitening"} and self.training.steps != 0:
            raise ValueError(
                f'model.freeze = "all" with model.head = "{heads[0]}" leaves nothing to train: use another head, or '
                "set training.steps = 0, which evaluates the network as it is."
            )
        measures = [name for name in self.evaluation.measures if name not in CLUSTERING]
        check_name(self.choosing.measure, measures, name="choosing.measure")
        if self.batch.samples_per_class == 1 and self.needs_positives:
            raise ValueError(
                f"batch.samples_per_class must be at least 2 for the loss {self.loss.name}, so that there is a "
                "positive: got 1; use 2 or more, or a loss on proxies such as proxy-nca."
            )
        return self

    def _check_sides(self) -> None:
        """ValueError unless the networks take what the items are, side by side where they have sides."""
        kinds, networks = self.data.side_kinds, self.model.networks
        if isinstance(self.model, TowersConfig) and kinds is None:
            raise ValueError(
                f'model.name = "towers" has a network for each side of pairs: data.name = {self.data.name!r} has no '
                "sides; name one network."
            )
        if kinds is not None and kinds[0] != kinds[1] and len(networks) == 1:
            raise ValueError(
                f"{kinds[0]} on the left and {kinds[1]} on the right need a network each: got model.name = "
                f'{self.model.name!r}; set model.name = "towers", with the sections [model.left] and [model.right].'
            )
        for side, network in zip(SIDES, networks, strict=False):
            kind = self.data.item_kind if kinds is None or len(networks) == 1 else kinds[SIDES.index(side)]
            key = "model.name" if len(networks) == 1 else f"model.{side}.name"
            if isinstance(network, TextNetworkConfig) and kind != "texts":
                where = repr(self.data.name) if len(networks) == 1 else f"the {side} side"
                raise ValueError(f"{key} = {network.name!r} needs texts: {where} has {kind}; name another network.")
            if network.is_backbone and kind != "images" and kinds is not None:
                raise ValueError(f"{key} = {network.name!r} needs images: the side has {kind}; swap the networks.")

    @property
    def needs_positives(self) -> bool:
        """True if each item of a batch needs another of its class: not in shuffled batches, nor beside proxies."""
        loss = self.loss.build(num_classes=2, embedding_dim=1, generator=torch.Generator())
        return self.batch.size is None and loss.term != "proxy"

    @property
    def warnings(self) -> list[str]:
        """Sentences on settings that would surprise the person who made them."""
        positives = self.loss.positives
        easy = (positives["name"] if isinstance(positives, dict) else positives) == "easy"
        if easy and self.batch.size is None and self.batch.samples_per_class == 2:
            return [
                "With batch.samples_per_class = 2 each anchor has only one positive, so easy positives have no effect; "
                "use more samples of fewer classes."
            ]
        return []

    def recorded(self) -> dict[str, dict[str, Any]]:
        """The sections as JSON, as a record has them: without settings that are not set."""
        settings = self.model_dump(mode="json", exclude_none=True)
        return {"run": {"seed": settings.pop("seed")}, **settings}


def resolved(config: RunConfig) -> RunConfig:
    """The settings with paths made absolute, also of code, so that the run folder can be used from anywhere.

    Of a network of texts also with what its folder decides, such as the length of an embedding.

    Raises:
        ValueError: if there is no such folder, or the settings do not fit it.
    """
    resolved_fields: dict[str, Any] = {name: path.resolve() for name, path in config.data if isinstance(path, Path)}
    data = config.data.model_copy(update={"name": absolute(config.data.name), **resolved_fields})
    model = config.model
    if config.data.separate and len(model.networks) == 1:
        model = TowersConfig(name="towers", left=model, right=model)
    if isinstance(model, TowersConfig):
        model = model.with_networks(_resolved_network(model.left), _resolved_network(model.right))
    else:
        model = _resolved_network(model)
    mined = config.batch.mined
    batch = config.batch if mined is None else config.batch.model_copy(update={"mined": mined.resolve()})
    return config.model_copy(update={"data": data, "batch": batch, "model": model, "loss": config.loss.absolute()})


def _resolved_network(model: ModelConfig) -> ModelConfig:
    """See `resolved`, of the settings of a network."""
    files = {name: path.resolve() for name, path in model if isinstance(path, Path)}
    model = model.model_copy(update={"name": absolute(model.name), **files})
    return resolved_text(model) if isinstance(model, TextNetworkConfig) else model


def name_of(override: str) -> str:
    """The setting that "section.key=value" is for."""
    return override.partition("=")[0].strip()


def with_length(config: RunConfig, changes: Sequence[str]) -> RunConfig:
    """The settings of a run that is to go on, with another number of steps or epochs, or of devices.

    Args:
        changes: "training.steps=value", or the same of epochs or devices.

    Raises:
        ValueError: if other settings are to change, or if the steps made so far would have been others.
    """
    for change in changes:
        if name_of(change) not in (f"training.{key}" for key in (*LENGTH, "devices")):
            raise ValueError(
                "--resume takes the settings of the run, of which --set may change training.steps or training.epochs, "
                f"and training.devices only: got {name_of(change)}; start a new run for other settings."
            )
    longer = any(name_of(change) in (f"training.{key}" for key in LENGTH) for change in changes)
    if longer and config.training.schedule in TO_THE_END:
        raise ValueError(
            f"the length of a run with the schedule {config.training.schedule} must stay, as its learning rates follow "
            "from it from the first step on: start a new run, or resume this one without --set."
        )
    values = config.model_dump(mode="json", exclude_none=True)
    return type(config).parse(type(config).with_overrides(values, changes), source="--set")
