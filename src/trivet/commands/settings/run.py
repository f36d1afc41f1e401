"""`trivet settings`: the settings of a run as a table, and as the JSON schema that editors use for their files."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from trivet.commands.sweep.search_space import SweepConfig
from trivet.config.base import NamedConfig, descriptions_of
from trivet.config.plugins import PLUGIN, PYTHON
from trivet.datasets import DataConfig
from trivet.mining import NEGATIVES, POSITIVES
from trivet.models import ModelConfig
from trivet.models.config import TEXT, TIMM, TORCHVISION
from trivet.runtime.arguments import check_name
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderConfig, LadderSettings
from trivet.training.loss_config import Selector, StrategyConfig

DRAFT = "http://json-schema.org/draft-07/schema#"
# The sections whose key `name` decides which others there are; names may also begin with one of these.
NAMED: dict[type[NamedConfig], tuple[str, ...]] = {
    DataConfig: (),
    ModelConfig: (TEXT, TIMM, TORCHVISION),
    StrategyConfig: (),
}
OUTSIDE = (PYTHON, PLUGIN)  # what begins the name of something outside Trivet, whose settings it decides itself
RULES: dict[str, Collection[str]] = {"positives": POSITIVES, "negatives": NEGATIVES}

Schema = dict[str, Any]


class SettingRow(NamedTuple):
    """A setting that files may have.

    Attributes:
        section: empty for those at the top of a file.
        key: in that section.
        default: as TOML; empty where there is none.
        description: in sentences.
    """

    section: str
    key: str
    default: str
    description: str


def list_settings(section: str | None = None) -> list[SettingRow]:
    """The settings of all sections, or of one; of data, model and loss those that all names share."""
    schema = settings_schema()
    sections: dict[str, list[SettingRow]] = {"": []}
    for key, entry in schema["properties"].items():
        if "$ref" in entry:
            section_schema = schema["$defs"][entry["$ref"].rpartition("/")[2]]
            sections[key] = [_setting(key, name, values) for name, values in _shared(schema, section_schema).items()]
        else:
            sections[""].append(_setting("", key, entry))
    if section is None:
        return [setting for settings in sections.values() for setting in settings]
    check_name(section, [name for name in sections if name], name="section")
    return sections[section]


def _shared(schema: Schema, section_schema: Schema) -> Mapping[str, Schema]:
    """The properties of a section, or those that all of its alternatives have; defaults where all have the same."""
    if "anyOf" not in section_schema:
        properties: dict[str, Schema] = section_schema["properties"]
        return properties
    several = [schema["$defs"][entry["$ref"].rpartition("/")[2]]["properties"] for entry in section_schema["anyOf"]]
    shared = {
        key: section_schema["properties"].get(key, entry)
        for key, entry in several[0].items()
        if all(key in p for p in several)
    }
    defaults = {key: [p[key].get("default") for p in several[:-1]] for key in shared}  # the last is of code outside
    return {
        key: {
            word: value
            for word, value in entry.items()
            if word != "default" or defaults[key].count(value) == len(several) - 1
        }
        for key, entry in shared.items()
    }


def _setting(section: str, key: str, values: Schema) -> SettingRow:
    default = json.dumps(values["default"]) if "default" in values else ""
    return SettingRow(section, key, default, values.get("description", ""))


def settings_schema() -> Schema:
    """The JSON schema (draft 7) of a settings file, of a run, a sweep or a ladder.

    It knows each setting with its type, range, default and description, which ones a name of data, model or loss has,
    and that others are wrong. What depends on several settings, and the options of a rule such as `negatives = {name =
    "hard"}`, it leaves to Trivet. Of names outside Trivet it allows any settings.
    """
    run = RunConfig.model_json_schema()
    sweep = SweepConfig.model_json_schema()
    ladder = LadderConfig.model_json_schema()
    defs: dict[str, Schema] = {**run.pop("$defs"), **sweep.pop("$defs", {}), **ladder.pop("$defs", {})}
    for base, prefixes in NAMED.items():
        defs[base.__name__] = _alternatives(base, prefixes, defs)
    sweep["properties"]["vary"] = {"type": "object", "description": sweep["properties"]["vary"]["description"]}
    others = {"sweep": "SweepConfig", "ladder": "LadderConfig"}
    defs |= {"SweepConfig": sweep, "LadderConfig": ladder}
    properties = run["properties"] | {key: {"$ref": f"#/$defs/{name}"} for key, name in others.items()}
    schema = {
        "$schema": DRAFT,
        "title": "Settings of Trivet",
        "description": "What trivet train, forecast and sweep read; see docs/settings.md.",
        "type": "object",
        "properties": {key: _section(entry) for key, entry in properties.items()},
        "additionalProperties": False,
        # Of a sweep, what varies may be missing, and a ladder has nothing that its candidates have.
        "anyOf": [{"required": run["required"]}, {"required": ["sweep"]}, {"required": ["ladder"]}],
        "dependencies": {"ladder": {"required": ["data"], "propertyNames": {"enum": [*LadderSettings.model_fields]}}},
        "$defs": defs,
    }
    tidied: Schema = _tidy(schema)
    used = _references(tidied)
    tidied["$defs"] = {name: entry for name, entry in sorted(tidied["$defs"].items()) if name in used}
    return tidied


def _section(entry: Schema) -> Schema:
    """Reference of a section alone: its default is many settings."""
    return {"$ref": entry["$ref"]} if "$ref" in entry else entry


def _alternatives(base: type[NamedConfig], prefixes: Collection[str], defs: dict[str, Schema]) -> Schema:
    """The settings that each name has, put into `defs`, of which one must fit."""
    by_class: dict[type[NamedConfig], list[str]] = {}
    for name in (*base.names(), *prefixes):
        chosen = base.named(name)
        assert chosen is not None
        by_class.setdefault(chosen, []).append(name)
    # First what is known best: the alternatives of an editor come in this order.
    references = [_alternative(base, chosen, names, prefixes, defs) for chosen, names in by_class.items()]
    outside = base.model_json_schema()
    defs |= outside.pop("$defs", {})
    outside["properties"] = outside["properties"] | {"name": {"type": "string", "pattern": _beginning(OUTSIDE)}}
    outside |= {"required": ["name"], "additionalProperties": True, "description": "Of your own code."}
    defs[f"Outside{base.__name__}"] = outside
    names = [{"enum": list(base.names())}, {"pattern": _beginning((*prefixes, *OUTSIDE))}]
    return {
        "type": "object",
        "description": _paragraph(base),
        "properties": {"name": {"type": "string", "description": _name_description(base), "anyOf": names}},
        "anyOf": [*references, {"$ref": f"#/$defs/Outside{base.__name__}"}],
    }


def _rule(rules: Collection[str]) -> Schema:
    """A rule by its name, or as a table with its name and options."""
    name = {"type": "string", "anyOf": [{"enum": list(rules)}, {"pattern": _beginning(OUTSIDE)}]}
    options = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    return {"anyOf": [name, options], "description": f"One of {', '.join(rules)}, or a table of its name and options."}


def _name_description(base: type[NamedConfig]) -> str:
    """Description of the key `name`."""
    return descriptions_of(base).get("name") or f"One of {', '.join(base.names())}, or one of your own."


def _paragraph(base: type[NamedConfig]) -> str:
    """The first paragraph of what a class says of itself."""
    return inspect.cleandoc(base.__doc__ or "").partition("\n\n")[0]


def _alternative(
    base: type[NamedConfig],
    chosen: type[NamedConfig],
    names: Collection[str],
    prefixes: Collection[str],
    defs: dict[str, Schema],
) -> Schema:
    made = chosen.model_json_schema()
    defs |= made.pop("$defs", {})
    beginnings = [name for name in names if name in prefixes]
    full_names = [name for name in names if name not in prefixes]
    key: Schema = {"type": "string", "description": _name_description(base)}
    key |= {"pattern": _beginning(beginnings)} if beginnings else {"enum": full_names}
    made["properties"] = {"name": key} | {k: entry for k, entry in made["properties"].items() if k != "name"}
    for role, rules in RULES.items():
        if role in chosen.model_fields and chosen.model_fields[role].annotation == Selector:
            made["properties"][role] |= _rule(rules)
    required = set(made.get("required", [])) - {"name"}
    if base.model_fields["name"].default not in full_names:
        required.add("name")
    made |= {"required": sorted(required), "description": _paragraph(chosen)}
    title = f"{base.__name__}-{(full_names or beginnings)[0].rstrip(':')}"
    defs[title] = made | {"title": ", ".join(names)}
    return {"$ref": f"#/$defs/{title}"}


def _beginning(names: Collection[str]) -> str:
    return f"^({'|'.join(map(re.escape, names))})"


def _tidy(schema: Any) -> Any:
    """Without null, which TOML has not, and the titles of keys, which repeat them; lists of fixed length as draft 7."""
    if isinstance(schema, list):
        return [_tidy(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    made: Schema = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            made[key] = {
                name: _tidy(_untitled(entry) if key == "properties" else entry) for name, entry in value.items()
            }
        elif key in ("default", "enum"):
            made[key] = value
        else:
            made[key] = _tidy(value)
    if "prefixItems" in made:
        made |= {"items": made.pop("prefixItems"), "additionalItems": False}
    if "const" in made:
        made["enum"] = [made.pop("const")]
    if made.get("default", 0) is None:
        del made["default"]
    if made.get("format") == "path":
        del made["format"]
    kinds = [entry for entry in made.get("anyOf", []) if entry != {"type": "null"}]
    if len(kinds) < len(made.get("anyOf", [])):
        del made["anyOf"]
        made = made | {"anyOf": kinds} if len(kinds) > 1 else kinds[0] | made
    return made


def _untitled(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _references(schema: Schema) -> set[str]:
    """The names of all definitions that are reached from the top."""
    used: set[str] = set()
    left: list[Any] = [{key: value for key, value in schema.items() if key != "$defs"}]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict):
            left += node.values()
            name = node["$ref"].rpartition("/")[2] if isinstance(node.get("$ref"), str) else None
            if name is not None and name not in used:
                used.add(name)
                left.append(schema["$defs"][name])
    return used
