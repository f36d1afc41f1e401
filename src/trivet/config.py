"""Settings: TOML files read into frozen pydantic models, with errors that name the key and the nearest allowed one."""

from __future__ import annotations

import inspect
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError, create_model, model_validator
from pydantic.errors import PydanticUserError

from trivet.arguments import nearest

__all__ = ["Config", "NamedConfig", "nearest", "own_settings", "settings_of"]

C = TypeVar("C", bound="Config")


class Config(BaseModel):
    """A frozen group of settings; an unknown key is an error, a derived value is a property."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, source: str) -> Self:
        """Check `values` and return the settings.

        Raises:
            ValueError: one sentence that names the key's path, what came and what is allowed.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ValueError(f"{source}: {_sentence(cls, error, values)}") from None

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Read a TOML file; `overrides` are "section.key=value" strings with TOML values (bare words are strings).

        Raises:
            ValueError: if the file is missing, is not TOML, or a setting is unknown or out of range.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"the settings file must exist: got {path}, which does not; check the path.") from None
        except IsADirectoryError:
            raise ValueError(f"the settings must be a TOML file: got the folder {path}; name the file in it.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a TOML file: {error}.") from None
        for override in overrides:
            _set(values, override)
        return cls.parse(values, source=str(path))

    def to_toml(self) -> str:
        """The settings, whole, as TOML; a value of None is left out, which reads back as None."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


class NamedConfig(Config):
    """Settings whose `name` decides which others there are: each has a class of its own, derived from this one."""

    name: str

    @classmethod
    @abstractmethod
    def named(cls, name: str) -> type[Self]:
        """The class of that name.

        Raises:
            ValueError: if there is none.
        """

    @model_validator(mode="wrap")
    @classmethod
    def _choose(cls, values: Any, check: Callable[[Any], Any]) -> Any:
        if isinstance(values, Mapping) and isinstance(values.get("name"), str):
            chosen = cls.named(values["name"])
            if chosen is not cls:
                return chosen.model_validate(values)
        return check(values)


def settings_of(function: Callable[..., Any], base: type[C], *, name: str, given: Collection[str]) -> type[C]:
    """Settings for what a user wrote: those of `base`, with `name` as their name, and the parameters of a function.

    Args:
        function: a function, or a class for the parameters of its constructor; a parameter without a type takes any.
        given: parameters that Trivet passes, which are no settings.

    Raises:
        ValueError: if a parameter cannot be a setting.
    """
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:  # a type that is not imported, no signature
        raise ValueError(f"the parameters of {name!r} must be readable: {error}; mend its code.") from None
    fields: dict[str, Any] = {}
    for key, one in parameters.items():
        if key in given:
            continue
        if key in base.model_fields or one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            what = "the name of another setting" if key in base.model_fields else "not passed by its name"
            raise ValueError(f"each parameter of {name!r} must be a setting of its own: {one} is {what}; rename it.")
        kind = Any if one.annotation is one.empty else one.annotation
        fields[key] = (kind, ... if one.default is one.empty else one.default)
    try:
        return create_model(base.__name__, __base__=base, name=(str, name), **fields)
    except (PydanticUserError, NameError, TypeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"the parameters of {name!r} must be of types that a settings file has: {reason}; use numbers, texts, "
            "truth values, paths, lists or tables."
        ) from None


def own_settings(config: Config, base: type[Config]) -> dict[str, Any]:
    """The settings that `settings_of` added to those of `base`, by name."""
    return {key: getattr(config, key) for key in type(config).model_fields if key not in base.model_fields}


def _set(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ValueError(f"--set needs section.key=value: got {override!r}.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *sections, key = path.strip().split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ValueError(f"--set {override}: {section!r} is a value, not a section.")
        values = inner
    values[key] = value


def _sentence(model: type[BaseModel], error: ValidationError, values: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    path, holder = _locate(model, first["loc"], values)
    kind, message = first["type"], first["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"unknown setting {path!r}; {nearest(path.rpartition('.')[2], holder.model_fields if holder else [])}"
    if kind == "literal_error" and isinstance(first["input"], str):
        return f"{path} = {first['input']!r} is not known; {nearest(first['input'], _quoted(first['ctx']['expected']))}"
    if kind == "union_tag_invalid":
        tag = first["ctx"]["tag"]
        return f"{path}.name = {tag!r} is not known; {nearest(tag, _quoted(first['ctx']['expected_tags']))}"
    if kind == "union_tag_not_found":
        return f"the setting '{path}.name' is missing; add it."
    if kind in ("model_type", "model_attributes_type"):
        return f"{path} must be a section, [{path}] in a file: got {first['input']!r}."
    if kind == "missing":
        return f"the setting {path!r} is missing; add it."
    if kind == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path} = {first['input']!r} cannot be used: {message[0].lower()}{message[1:]}."


def _quoted(expected: str) -> list[str]:
    return [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]


def _locate(model: type[BaseModel], loc: tuple[int | str, ...], values: Any) -> tuple[str, type[BaseModel] | None]:
    """The dotted path of a setting, without the tags of unions, and the model that should hold it."""
    path: list[str] = []
    holder: type[BaseModel] | None = model
    choices: dict[str, type[BaseModel]] = {}
    for part in map(str, loc):
        if part in choices:
            holder, choices = choices[part], {}
            continue
        values = values if isinstance(values, Mapping) else {}
        if holder is not None and issubclass(holder, NamedConfig) and "name" in values:
            holder = holder.named(values["name"])
        path.append(part)
        values = values.get(part)
        field = holder.model_fields.get(part) if holder else None
        if field is None:
            continue
        members = [member for member in (field.annotation, *get_args(field.annotation)) if _is_model(member)]
        if len(members) == 1:  # a section, or one that may be missing
            holder = members[0]
        elif members:
            holder, choices = None, {member.model_fields["name"].default: member for member in members}
    return ".".join(path), holder


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
