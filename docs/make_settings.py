"""Write docs/settings.md from the models that read the settings: .venv/bin/python docs/make_settings.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from trivet.batching import BatchConfig
from trivet.data import DataConfig, NoiseConfig
from trivet.models import ModelConfig
from trivet.training import EvaluationConfig, TrainingConfig
from trivet.training.cleaning import CleaningConfig
from trivet.training.config import GuardConfig
from trivet.training.loss import LossConfig

HEAD = """# Settings

A settings file is TOML. An unknown key or value is an error that names the nearest one. `trivet train FILE --set
section.key=value` changes one. Paths are relative to the current folder. See `examples/`.

`seed` (default 0), at the top: of the weights, the batches and every random choice.
"""


def kind(field: FieldInfo) -> str:
    """The type of a setting, as words a user of TOML knows."""
    text = str(field.annotation if not isinstance(field.annotation, type) else field.annotation.__name__)
    if "Literal" in text:
        values = [v for part in (field.annotation, *get_args(field.annotation)) for v in get_args(part)]
        return " or ".join(sorted({json.dumps(v) for v in values if isinstance(v, str | int)}))
    if "NoiseConfig" in text:
        return "section"
    names = {"str": "text", "float": "number", "int": "whole number", "bool": "true or false", "Path": "path"}
    for name, word in names.items():
        if text == name:
            return word
    if "tuple" in text:
        return "list"
    if "dict" in text:
        return "text or table" if text.startswith("str") else "whole number or table"
    return next((word for name, word in names.items() if name in text), text)


def default(field: FieldInfo) -> str:
    """The default as TOML, or a dash."""
    if field.default is PydanticUndefined:
        return "needed"
    if field.default is None:
        return "–"
    return f"`{json.dumps(field.default)}`"


def table(model: type[BaseModel]) -> str:
    """A table of the settings of a section."""
    lines = ["| key | type | default | |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        text = " ".join((field.description or "").split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {kind(field)} | {default(field)} | {text} |")
    return "\n".join(lines)


def settings() -> str:
    """The whole document."""
    parts = [HEAD]
    sections: dict[str, type[Any]] = {
        "data": DataConfig, "data.noise": NoiseConfig, "batch": BatchConfig, "model": ModelConfig,
        "training": TrainingConfig, "evaluation": EvaluationConfig,
        "guard": GuardConfig, "cleaning": CleaningConfig,
    }  # fmt: skip
    for name, model in sections.items():
        parts.append(f"## [{name}]\n\n{table(model)}\n")
    parts.append("## [loss]\n\n`name` chooses the loss. Strategies are described in [strategies.md](strategies.md).\n")
    for model in get_args(get_args(LossConfig)[0]):
        parts.append(f'### name = "{model.model_fields["name"].default}"\n\n{table(model)}\n')
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings(), encoding="utf-8")
