"""Write docs/settings.md from the models that read the settings: .venv/bin/python docs/make_settings.py"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from trivet.commands.sweep.search_space import SweepConfig
from trivet.config.base import arguments_help, descriptions_of
from trivet.datasets import DataConfig, NoiseConfig
from trivet.losses import LOSSES
from trivet.losses.engine import EmbeddingLoss
from trivet.mining import NEGATIVES, POSITIVES
from trivet.models import BackboneConfig, JoinedConfig, ModelConfig, TextNetworkConfig, TowersConfig
from trivet.samplers import BatchConfig
from trivet.training import EvaluationConfig, TrainingConfig
from trivet.training.config import ChoosingConfig, GuardConfig
from trivet.training.label_cleaning import CleaningConfig
from trivet.training.ladder_config import LadderConfig
from trivet.training.loss_config import Selector, StrategyConfig, loss_settings

HEAD = """# Settings

A settings file is TOML. An unknown key or value is an error that names the nearest one. `trivet train FILE --set
section.key=value` changes one. Paths are relative to the current folder. See `examples/`. `trivet settings training`
prints a section in the terminal.

**In an editor.** `trivet settings --schema > trivet.schema.json` writes the JSON schema of settings files. Editors with
Taplo, such as VS Code with *Even Better TOML*, then complete keys and values, show what each is for and underline what
is wrong, if the first line of the settings names that file, relative to the settings:
`#:schema ./trivet.schema.json`. `trivet init` writes that line where the schema lies beside the settings, or where
`--schema FILE` names it. Write the schema again after an update.

`seed` (default 0), at the top: seed of the weights, the batches and every random choice.
"""

BACKBONES = """### name = "timm:NAME" or "torchvision:NAME"

A backbone has these keys, too; what to choose is described in [networks.md](networks.md).
"""

LOSS = """## [loss]

`name` chooses the loss: one of those below, or one of your own, see [strategies.md](strategies.md#your-own).
Other keys are the arguments of its constructor. These are shared; what they do is described in
[strategies.md](strategies.md):
"""

SWEEP = """## [sweep]

For `trivet sweep` only, see [sweeps.md](sweeps.md).
"""

LADDER = """## [ladder]

For `trivet train` of several candidates, see [ladder.md](ladder.md). Beside it a file has `seed`, `[data]` and
`[evaluation]` only.
"""

JOINED = "Several backbones as one, see [networks.md](networks.md#two-networks-joined)."
TOWERS = "A network of each side of pairs, see [networks.md](networks.md#a-network-of-each-side)."
TEXTS = "A pretrained network of texts has these too, see [networks.md](networks.md#text-networks)."


def rules(names: Iterable[str], example: str) -> str:
    """The help of a setting that takes a rule."""
    known = ", ".join(f'"{name}"' for name in names)
    return f"A name, or a table with a name and options, such as {{{example}}}: {known}, or one of your own."


RULES = {
    "positives": rules(POSITIVES, 'name = "easy", k = 2, max_positive_similarity = 0.9999'),
    "negatives": rules(NEGATIVES, 'name = "semihard", k = 2, otherwise = "drop"'),
}
SHARED = ("positives", "negatives", "prefixes", "distance", "normalize", "trim", "trim_positives_only", "disjoint")


def _types(annotation: Any) -> set[Any]:
    """The types that a type is made of."""
    return {annotation}.union(*map(_types, get_args(annotation)))


def kind(field: FieldInfo) -> str:
    """The type of a setting, as words a user of TOML knows."""
    text = str(field.annotation if not isinstance(field.annotation, type) else field.annotation.__name__)
    if "Literal" in text:
        values = [v for part in (field.annotation, *get_args(field.annotation)) for v in get_args(part)]
        words = sorted({json.dumps(v) for v in values if isinstance(v, str | int)})
        return " or ".join([*words, *(["whole number"] if int in _types(field.annotation) else [])])
    if "NoiseConfig" in text or text == "ModelConfig":
        return "section"
    if field.annotation == Selector:
        return "text or table"
    names = {"str": "text", "float": "number", "int": "whole number", "bool": "true or false", "Path": "path"}
    for name, word in names.items():
        if text == name:
            return word
    if text.startswith("dict["):
        return "section"
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


def table(model: type[BaseModel], without: Container[str] = ()) -> str:
    """A table of the settings of a section."""
    lines = ["| key | type | default | |", "|---|---|---|---|"]
    descriptions = descriptions_of(model)
    for name, field in model.model_fields.items():
        if name in without:
            continue
        text = descriptions.get(name, "").replace("|", "\\|")
        lines.append(f"| `{name}` | {kind(field)} | {default(field)} | {text} |")
    return "\n".join(lines)


def settings() -> str:
    """The whole document."""
    parts = [HEAD]
    sections: dict[str, type[Any]] = {
        "data": DataConfig, "data.noise": NoiseConfig, "batch": BatchConfig, "model": ModelConfig,
        "training": TrainingConfig, "evaluation": EvaluationConfig,
        "guard": GuardConfig, "choosing": ChoosingConfig, "cleaning": CleaningConfig,
    }  # fmt: skip
    for name, model in sections.items():
        parts.append(f"## [{name}]\n\n{table(model)}\n")
        if model is ModelConfig:
            shared = [key for key in ModelConfig.model_fields if key != "embedding_dim"]
            parts.append(f'### name = "text:NAME"\n\n{TEXTS}\n\n{table(TextNetworkConfig, without=shared)}\n')
        if name == "model":
            parts.append(f"{BACKBONES}\n{table(BackboneConfig, without=ModelConfig.model_fields)}\n")
            parts.append(
                f'### name = "joined"\n\n{JOINED}\n\n{table(JoinedConfig, without=ModelConfig.model_fields)}\n'
            )
            parts.append(
                f'### name = "towers"\n\n{TOWERS}\n\n{table(TowersConfig, without=ModelConfig.model_fields)}\n'
            )
    parts.append(losses())
    parts.append(f"{SWEEP}\n{table(SweepConfig)}\n")
    parts.append(f"{LADDER}\n{table(LadderConfig)}\n")
    return "\n".join(parts)


def losses() -> str:
    """The section of the losses: what they share once, then the rest of each."""
    models = {name: loss_settings(name) for name in LOSSES}
    own = {"prefixes": descriptions_of(StrategyConfig)["prefixes"]}
    said = arguments_help(EmbeddingLoss) | RULES | own
    fields = {key: {name: model.model_fields.get(key) for name, model in models.items()} for key in SHARED}
    shared, differ = ["| key | type | default | |", "|---|---|---|---|"], []
    for key, by_loss in fields.items():
        having = [field for field in by_loss.values() if field is not None]
        without = [name for name, field in by_loss.items() if field is None]
        one = len({field.default for field in having}) == 1
        if not one:
            differ.append(key)
        text = said[key] + (f" Not of {', '.join(without)}." if one and without else "")
        shared.append(f"| `{key}` | {kind(having[0])} | {default(having[0]) if one else 'see below'} | {text} |")
    defaults = ["| loss |" + "".join(f" `{key}` |" for key in differ), "|---|" + "---|" * len(differ)]
    for name in models:
        cells = [fields[key][name] for key in differ]
        defaults.append(f"| `{name}` |" + "".join(f" {'–' if cell is None else default(cell)} |" for cell in cells))
    between = "\nDefaults that differ; a dash means that the loss has no such key:\n"
    parts = [LOSS, "\n".join(shared), between, "\n".join(defaults) + "\n"]
    for name, model in models.items():
        parts.append(f'### name = "{name}"\n\n{table(model, without=("name", *SHARED))}\n')
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings(), encoding="utf-8")
