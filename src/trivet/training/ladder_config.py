"""Settings of a ladder: several candidates are trained, of which the best on held-out items is the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, SerializeAsAny, model_validator

from trivet.config.base import Config
from trivet.datasets import DataConfig
from trivet.training.config import EvaluationConfig, RunConfig

Rung = Literal["encoder", "whitening", "joined", "head", "fine-tuning", "scratch"]
RUNGS: tuple[Rung, ...] = get_args(Rung)


class LadderConfig(Config):
    """Candidates that are compared on held-out items, each with the best encoder as it is; see docs/ladder.md.

    Args:
        rungs: what is tried, in this order: encoders as they are, always, whitening, two joined, a head, fine-tuning, a
            small network from scratch; fewer to save time.
        encoders: names of the encoders to compare, or their networks, such as "python:FILE.py:NAME"; by default all of
            trivet encoders that are on this machine.
        weights: NAME = file or folder of weights, for encoders that trivet encoders has not downloaded.
        start: folders of checkpoints of yours, of timm, sentence-transformers or transformers, as further encoders.
        minutes: of trying, within which a training must end to be tried: more for fine-tuning; by default 4, with a GPU
            30.
    """

    rungs: tuple[Rung, ...] = Field(RUNGS, min_length=1)
    encoders: tuple[str, ...] | None = None
    weights: dict[str, Path] = Field({})
    start: tuple[Path, ...] = ()
    minutes: float | None = Field(None, gt=0)


class LadderSettings(Config):
    """A settings file with a section [ladder]: the data, what is tried, and how all of it is measured.

    Args:
        seed: seed of each candidate.
    """

    seed: int = Field(0, ge=0, le=2**63 - 1)
    data: SerializeAsAny[DataConfig]
    ladder: LadderConfig = LadderConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_sections_of_a_run(cls, values: Any) -> Any:
        of_a_run = RunConfig.model_fields.keys() - cls.model_fields.keys()
        if isinstance(values, Mapping) and (sections := [key for key in values if key in of_a_run]):
            raise ValueError(
                f"the section [{sections[0]}] is of a single run, and a ladder chooses it for each candidate: leave it "
                "out, or change it in config.toml of the run that the ladder makes, and train that."
            )
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.data.folds is not None:
            raise ValueError("data.folds are those of a single run, and a ladder makes its own: remove it.")
        return self
