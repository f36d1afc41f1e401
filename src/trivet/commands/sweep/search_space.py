"""Search space of a sweep: the section [sweep] beside the settings of a run, and the settings of its trials."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SkipValidation, field_validator, model_validator

from trivet.commands.sweep.storage_address import storage_name, written_address
from trivet.config.base import Config, overridden, put, read_settings
from trivet.config.plugins import absolute
from trivet.datasets import Splits
from trivet.metrics.label_levels import CLUSTERING, standard
from trivet.runtime.arguments import check_name
from trivet.training.components import check_before_data, check_levels, in_steps, make_batches
from trivet.training.config import LENGTH, OF_SEVERAL_RUNS, RunConfig, resolved

Value = bool | int | float | str | dict[str, Any] | list[Any]

TRIALS = 20  # of a sweep that does not say how many
MOST_CHECKED = 64  # values of a range in steps that are all checked before the first trial
# What may vary of the data: how items are shown, and never which there are, as trials are compared on the same ones.
OF_DATA = ("augment", "jitter", "erase", "image_size", "channels", "resize")
OF_EVALUATION = ("distance",)
FIXED = {
    "seed": "seeds says how many seeds each trial has",
    "choosing.measure": "trials are compared by one measure, sweep.measure",
    "choosing.level": "trials are compared at one label level",
}


class Range(Config):
    """Numbers from low to high: whole ones if low and high are."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high: got {self.low} and {self.high}.")
        if self.log and self.low <= 0:
            raise ValueError(f"low must be above 0 for log = true: got {self.low}.")
        if self.log and self.step is not None:
            raise ValueError("step is for log = false: leave out one of them.")
        if self.integral and isinstance(self.step, float):
            raise ValueError(f"step must be whole where low and high are: got {self.step}.")
        return self

    @property
    def integral(self) -> bool:
        """Test whether the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def steps(self) -> list[int | float] | None:
        """All values of a range in steps, or of whole numbers where no scale is logarithmic; None of others."""
        step = self.step or (1 if self.integral and not self.log else None)
        if step is None:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        values = (self.low + index * step for index in range(count))
        return [value if self.integral else float(f"{value:.12g}") for value in values]

    def values_to_check(self) -> list[int | float]:
        """Values that settings are checked with: all of few, else the ends and one that is neither round nor an end."""
        steps = self.steps
        if steps is not None:
            return steps if len(steps) <= MOST_CHECKED else [*steps[: MOST_CHECKED - 1], steps[-1]]
        if self.integral:
            return [self.low, round(math.sqrt(self.low * self.high)), self.high]
        return [self.low, self.low + 0.381966 * (self.high - self.low), self.high]


Varied = Range | tuple[Value, ...]


class SweepConfig(Config):
    """Search over the settings of a run; see docs/sweeps.md.

    Args:
        vary: what varies, in [sweep.vary]: loss.margin = [0.1, 0.2] for choices, training.learning_rate = {low = 1e-4,
            high = 1e-2, log = true} for a range.
        trials: settings that are tried, more where many vary; by default 20, of a grid all.
        seeds: runs of each trial with seed, seed + 1, ...: more where results vary by chance.
        folds: how many of the data.folds folds each trial is validated on: more for a surer choice.
        measure: what the best trial has most of on validation; by default choosing.measure.
        sampler: "grid" tries each combination, "random" any, "tpe" more often what is like the best so far.
        pruning: end trials that collapse or fall below the median early; false to train each to its end.
        storage: where workers meet, "postgresql://USER@HOST/DATABASE" for several machines; by default study.db.
        name: of the study, where a storage has several; by default the name of the folder.
        heartbeat: seconds between signs of life of a worker, dead after four missed ones: more for slow storage.
    """

    vary: dict[str, SkipValidation[Varied]] = Field(min_length=1)
    trials: int | None = Field(None, ge=1, le=100_000)
    seeds: int = Field(1, ge=1, le=50)
    folds: int = Field(1, ge=1, le=50)
    measure: str | None = None
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    pruning: bool = True
    storage: str | None = None
    name: str | None = Field(None, min_length=1, max_length=200)
    heartbeat: int = Field(15, ge=1, le=3600)

    @field_validator("vary", mode="before")
    @classmethod
    def _read_vary(cls, values: Any) -> Any:
        return dict(_varied(values, "")) if isinstance(values, Mapping) else values

    @field_validator("storage")
    @classmethod
    def _check_storage(cls, url: str | None) -> str | None:
        if url is not None:
            storage_name(url)
        return url

    @model_validator(mode="after")
    def _check(self) -> Self:
        keys = sorted(self.vary)
        for key, longer in itertools.pairwise(keys):
            if longer.startswith(f"{key}."):
                raise ValueError(f"vary has both {key} and {longer}, which is part of it: leave out one.")
        if self.sampler == "grid":
            for key, varied in self.vary.items():
                if isinstance(varied, Range) and varied.steps is None:
                    raise ValueError(f'sampler = "grid" needs a list, or a range with a step: {key} has none; add it.')
        return self


def _varied(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Varied]]:
    """Dotted name -> what it varies over; the sections in between may be nested."""
    for name, value in values.items():
        key = f"{before}{name}"
        if isinstance(value, Range | tuple):
            yield key, value
        elif isinstance(value, list):
            if len({_text(item) for item in value}) < max(2, len(value)):
                raise ValueError(f"{key} must have two or more different values: got {_text(value)}.")
            yield key, tuple(value)
        elif not isinstance(value, Mapping):
            raise ValueError(
                f"{key} must be a list of values or a range {{low = ..., high = ...}}: got {_text(value)}; what does "
                "not vary stands outside of [sweep]."
            )
        elif {"low", "high"} & value.keys():
            yield key, Range.parse(value, source=key)
        else:
            yield from _varied(value, f"{key}.")


@dataclass(frozen=True)
class Sweep:
    """Settings of a run, and how they are searched.

    Attributes:
        base: the settings of a run as their TOML has them, also when they are not whole without what varies.
        config: see `SweepConfig`.
    """

    base: Mapping[str, Any]
    config: SweepConfig

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Sweep:
        """Read a TOML file with a section [sweep]; `overrides` as for `trivet.config.base.Config.read`."""
        values = read_settings(path)
        sweep_overrides = [
            override for override in overrides if override.partition("=")[0].strip().startswith("sweep.")
        ]
        others = [override for override in overrides if override not in sweep_overrides]
        return cls.parse(RunConfig.with_overrides(overridden(values, sweep_overrides), others), source=str(path))

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, source: str) -> Sweep:
        """The settings with what varies, checked before any data are read."""
        if "ladder" in values:
            raise ValueError(f"{source}: the section [ladder] is for {OF_SEVERAL_RUNS['ladder']}")
        if not isinstance(values.get("sweep"), Mapping):
            raise ValueError(
                f"{source}: a sweep needs a section [sweep] that says what varies: there is none; add [sweep.vary] "
                "with loss.margin = [0.1, 0.2], for instance."
            )
        base = {key: value for key, value in values.items() if key != "sweep"}
        config = SweepConfig.parse(values["sweep"], source=f"{source}: [sweep]")
        sweep = cls(copy.deepcopy(base), config)
        sweep.check(source)
        return sweep

    def check(self, source: str) -> None:
        """Check that each value can be used, with the first one of all others."""
        for key in self.config.vary:
            _check_key(key, source)
        data = self.base.get("data", {})
        folds = data.get("folds") if isinstance(data, Mapping) else None
        if self.config.folds > 1 and (not isinstance(folds, int) or folds < self.config.folds):
            raise ValueError(
                f"{source}: [sweep]: folds must be at most data.folds: got {self.config.folds} of {folds or 'none'}; "
                f"set data.folds = {max(4, self.config.folds)}."
            )
        self._check_measure(source)
        training = self.base.get("training", {})
        if isinstance(training, Mapping) and training.get("devices", 1) != 1:
            raise ValueError(
                f"{source}: each trial of a sweep trains in one process: got training.devices = "
                f"{training['devices']}; remove it, and start a worker for each device with trivet sweep --join."
            )
        networks = []
        for context, values in self._settings_to_check():
            try:
                config = resolved(self.run(values))
                if config.model not in networks:  # to build one takes most of the time
                    networks.append(config.model)
                    check_before_data(config)
            except ValueError as error:
                raise ValueError(f"{source}: {context} {str(error).removeprefix('a trial: ')}") from None

    def _check_measure(self, source: str) -> None:
        evaluation = self.settings(self.first).get("evaluation", {})
        k = evaluation.get("k", RunConfig.model_fields["evaluation"].default.k)
        if isinstance(k, list | tuple) and all(isinstance(cutoff, int) for cutoff in k):  # else that is said of them
            further = evaluation.get("further", ())
            further = [str(name) for name in further] if isinstance(further, list | tuple) else []
            known = [name for name in (*standard(k), *further) if name not in CLUSTERING]
            try:
                check_name(self.measure, known, name="sweep.measure")
            except ValueError as error:
                raise ValueError(f"{source}: {error}") from None

    def check_data(self, splits: Splits) -> None:
        """Check that batches can be made of these data with each value."""
        for context, values in self._settings_to_check():
            try:
                config = self.run(values)
                check_levels(config, splits.train.labels)
                config = in_steps(config, splits)
                make_batches(config, splits.train, splits.level)
            except ValueError as error:
                raise ValueError(f"{context} {error}") from None

    def _settings_to_check(self) -> Iterator[tuple[str, dict[str, Value]]]:
        """Settings to check, each with a name for messages: the first value of each setting, then each value of one."""
        yield "sweep.vary: with the first value of each:", self.first
        for key, varied in self.config.vary.items():
            for value in values_to_check(varied)[1:]:
                yield f"sweep.vary: with {key} = {_text(value)}:", self.first | {key: value}

    @property
    def first(self) -> dict[str, Value]:
        """The first value of each setting that varies."""
        return {key: values_to_check(varied)[0] for key, varied in self.config.vary.items()}

    @property
    def measure(self) -> str:
        """Measure that trials are compared by."""
        choosing = self.base.get("choosing", {})
        name = choosing.get("measure", "map@r") if isinstance(choosing, Mapping) else "map@r"
        return self.config.measure or str(name)

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs of a trial on a fold."""
        first = self.base.get("seed", 0)
        return [first + offset for offset in range(self.config.seeds)]

    @property
    def folds(self) -> list[int | None]:
        """The folds that a trial is validated on; None where the data have a validation part of their own."""
        data = self.base["data"]
        if data.get("folds") is None:
            return [None]
        return [data.get("fold", 0)] if self.config.folds == 1 else list(range(self.config.folds))

    @property
    def trials(self) -> int:
        """Number of settings that are tried."""
        if self.config.sampler != "grid":
            return self.config.trials or TRIALS
        every = math.prod(len(grid_values(varied)) for varied in self.config.vary.values())
        return min(self.config.trials or every, every)

    def settings(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """The settings of a run, with values in place of what varies."""
        merged = copy.deepcopy(dict(self.base))
        for key, value in values.items():
            put(merged, key, copy.deepcopy(value))
        lengths = [key for key in LENGTH if f"training.{key}" in values]
        if len(lengths) == 1:  # steps take the place of epochs, and the reverse
            merged["training"] = {k: v for k, v in merged["training"].items() if k not in LENGTH or k in lengths}
        put(merged, "choosing.measure", self.measure)
        return merged

    def run(self, values: Mapping[str, Value], *, seed: int | None = None, fold: int | None = None) -> RunConfig:
        """The settings of a run of a trial."""
        settings = self.settings(values)
        if seed is not None:
            settings["seed"] = seed
        if fold is not None:
            put(settings, "data.fold", fold)
        return RunConfig.parse(settings, source="a trial")

    def best(self, values: Mapping[str, Value]) -> RunConfig:
        """The settings to train with: on all training classes, unless a step is to be chosen by some of them."""
        settings = self.settings(values)
        config = RunConfig.parse(settings, source="the best trial")
        if config.choosing.keep == "last" and config.choosing.patience is None:
            settings["data"] = {key: value for key, value in settings["data"].items() if key not in ("folds", "fold")}
        return resolved(RunConfig.parse(settings, source="the best trial"))

    def grid(self) -> list[dict[str, Value]]:
        """All combinations, the last setting varying fastest."""
        every = [grid_values(varied) for varied in self.config.vary.values()]
        return [dict(zip(self.config.vary, values, strict=True)) for values in itertools.product(*every)]

    def to_toml(self) -> str:
        """All as TOML, with absolute paths and without a password."""
        import tomli_w

        complete = resolved(self.run(self.first))
        base = _absolute(dict(self.base))
        for section, config in (("data", complete.data), ("model", complete.model)):
            if isinstance(base.get(section), dict):
                dumped = config.model_dump(mode="json")
                base[section] |= {key: dumped[key] for key in base[section] if _is_path(dumped.get(key))}
        sweep_values = self.config.model_dump(mode="json", exclude_none=True, exclude={"vary"})
        if self.config.storage is not None:
            sweep_values["storage"] = written_address(self.config.storage)
        vary = {
            key: varied.model_dump(exclude_none=True) if isinstance(varied, Range) else _absolute(list(varied))
            for key, varied in self.config.vary.items()
        }
        return tomli_w.dumps(base | {"sweep": sweep_values | {"vary": vary}})


def values_to_check(varied: Varied) -> list[Any]:
    """The values that settings are checked with."""
    return varied.values_to_check() if isinstance(varied, Range) else list(varied)


def grid_values(varied: Varied) -> list[Any]:
    """The values of a grid."""
    return (varied.steps or []) if isinstance(varied, Range) else list(varied)


def _check_key(key: str, source: str) -> None:
    section, _, name = key.partition(".")
    reason = FIXED.get(key)
    if section == "data" and name.partition(".")[0] not in OF_DATA:
        reason = f"of the data only {', '.join(OF_DATA)} may vary, as trials are compared on the same items"
    if section == "evaluation" and name not in OF_EVALUATION:
        reason = f"of the evaluation only {', '.join(OF_EVALUATION)} may vary, as trials are compared by the same looks"
    if key == "training.devices":
        reason = "each trial trains in one process"
    if section == "choosing" and not name:
        reason = "trials are compared by one measure: vary choosing.keep and the like instead"
    if reason is not None:
        raise ValueError(f"{source}: [sweep]: {key} must not vary: {reason}; leave it out of [sweep.vary].")


def _absolute(value: Any) -> Any:
    """A copy with the files of code as absolute paths."""
    if isinstance(value, Mapping):
        return {key: _absolute(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_absolute(inner) for inner in value]
    return absolute(value) if isinstance(value, str) else value


def _is_path(value: object) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
