"""Settings: TOML files read into frozen pydantic models, also derived from the signature of a class or a function.

Errors name the key and the nearest allowed one.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError

from trivet.runtime.arguments import nearest, requirement
from trivet.runtime.safe_read import LARGEST_SETTINGS, parse_toml, read_text

__all__ = ["Config", "nearest"]

DEEPEST = 8  # sections within sections


class Config(BaseModel):
    """A frozen group of settings; an unknown key is an error, a derived value is a property.

    The sections "Args" of a class and its bases describe its keys.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra=lambda schema, model: _describe(schema, model),
    )

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
        values = read_settings(path)
        return cls.parse(cls.with_overrides(values, overrides), source=str(path))

    @classmethod
    def with_overrides(cls, values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """See `overridden`; for settings of which some take the place of others."""
        return overridden(values, overrides)

    def to_toml(self, *, unset: bool = True) -> str:
        """The settings as TOML; a value of None is left out, which reads back as None.

        Args:
            unset: whether those are written that nobody set.
        """
        import tomli_w  # here: what only reads needs none

        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True, exclude_unset=not unset))


Settings = TypeVar("Settings", bound=Config)


def descriptions_of(model: type[Config]) -> dict[str, str]:
    """The sentences on each key."""
    described = {key: field.description for key, field in model.model_fields.items() if field.description}
    return {key: text for key, text in arguments_help(model).items() if key in model.model_fields} | described


def _describe(schema: dict[str, Any], model: type[Any]) -> None:
    """Add to a JSON schema what the class says of itself and of its keys."""
    schema["description"] = inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
    for key, text in descriptions_of(model).items():
        schema["properties"][key]["description"] = text


def read_settings(path: Path) -> dict[str, Any]:
    """The values of a settings file, as they stand in it; ValueError if the file is missing, or is not TOML."""
    try:
        return parse_toml(read_text(path, "the settings", LARGEST_SETTINGS))
    except FileNotFoundError:
        raise ValueError(f"the settings file must exist: got {path}, which does not; check the path.") from None
    except ValueError as error:
        raise ValueError(f"{path} must be a TOML file: {error}.") from None


class NamedConfig(Config):
    """Settings whose key `name` decides which others there are: each name has a class of its own, derived from this."""

    name: str

    def __new__(cls, *args: Any, **values: Any) -> Self:
        """An instance of the class of the name, which `__init__` then fills."""
        name = values.get("name")
        chosen = cls.named(name) if isinstance(name, str) else None
        return super().__new__(chosen if chosen is not None and issubclass(chosen, cls) else cls)

    @classmethod
    @abstractmethod
    def names(cls) -> Collection[str]:
        """The known names; a name of something outside Trivet is none of them."""

    @classmethod
    @abstractmethod
    def named(cls, name: str) -> type[Self] | None:
        """The settings of a name, or of something outside Trivet; None if there are none.

        Raises:
            ValueError: if what is outside cannot be used.
        """

    @model_validator(mode="wrap")
    @classmethod
    def _choose(cls, values: Any, check: Callable[[Any], Any]) -> Any:
        if not isinstance(values, Mapping) or ("name" not in values and cls.model_fields["name"].default):
            return check(values)
        if "name" not in values:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'name'"})
        chosen = cls.named(values["name"]) if isinstance(values["name"], str) else None
        if chosen is None:
            expected = ", ".join(map(repr, cls.names()))
            tags = {"discriminator": "'name'", "tag": str(values["name"]), "expected_tags": expected}
            raise PydanticKnownError("union_tag_invalid", tags)
        return check(values) if chosen is cls else chosen.model_validate(values)


def derived_settings(
    make: Callable[..., Any],
    base: type[Settings],
    *,
    exclude: Container[str],
    types: Mapping[str, Any],
    name: str | None = None,
) -> type[Settings]:
    """Settings for the arguments of a class or a function: types and defaults of its signature, help of its docstring.

    Args:
        base: has what the arguments do not.
        exclude: arguments that are no settings.
        types: of settings whose type is another than that of the argument.
        name: the value of the key `name`; None if there is no such key.

    Raises:
        ValueError: if an argument has a type that settings cannot hold, or the name of a setting of `base`.
    """
    descriptions, fields = arguments_help(make), {}
    try:
        for key, argument in inspect.signature(make, eval_str=True).parameters.items():
            if key in exclude or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                continue
            if key == "name" or (key not in types and (key in base.model_fields or hasattr(base, key))):
                raise ValueError(
                    f"an argument of {make.__name__} must not be named {key!r}, as another setting is: rename it."
                )
            default = ... if argument.default is argument.empty else argument.default
            kind = Any if argument.annotation is argument.empty else argument.annotation
            fields[key] = (types.get(key, kind), Field(default, description=descriptions.get(key)))
        if name is not None:
            fields["name"] = (types["name"], name)
        # Typed by pydantic for fields that are known beforehand.
        return create_model(f"{make.__name__}Config", __base__=base, __doc__=make.__doc__, **fields)  # type: ignore[call-overload, no-any-return]
    except (NameError, TypeError, PydanticUserError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"the arguments of {make.__name__} must be of types that settings can hold, such as float, int, bool, str "
            f"or a Literal: {reason}; annotate them so."
        ) from None


def added_settings(config: Config, base: type[Config]) -> dict[str, Any]:
    """The settings that `derived_settings` added to those of `base`, by name."""
    return {key: getattr(config, key) for key in type(config).model_fields if key not in base.model_fields}


def arguments_help(documented: Callable[..., Any]) -> dict[str, str]:
    """The sentences on each argument in the sections "Args" of a function, or of a class and its bases."""
    descriptions: dict[str, str] = {}
    for owner in reversed(getattr(documented, "__mro__", [documented])):
        section = re.search(r"^Args:\n(.*?)(\n\S|\Z)", inspect.cleandoc(owner.__doc__ or ""), re.DOTALL | re.MULTILINE)
        for names, text in re.findall(
            r"^    (\w[\w, ]*): (.*(?:\n     .*)*)", section[1] if section else "", re.MULTILINE
        ):
            if not text.startswith("see "):
                words = " ".join(text.split())
                descriptions |= dict.fromkeys(names.split(", "), words[0].upper() + words[1:])
    return descriptions


def overridden(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Settings with others in place of some; those given stay as they are.

    Args:
        overrides: "section.key=value" with TOML values (bare words are strings).

    Raises:
        ValueError: if one has another form.
    """
    changed = copy.deepcopy(dict(values))
    for override in overrides:
        _set(changed, override)
    return changed


def _set(values: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ValueError(f"--set needs section.key=value: got {override!r}.")
    try:
        value = parse_toml(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except ValueError as error:
        raise ValueError(f"--set {path.strip()} must have a TOML value: {error}.") from None
    if path.count(".") > DEEPEST:
        raise ValueError(f"--set needs section.key=value: got {path.count('.')} sections.")
    try:
        put(values, path.strip(), value)
    except ValueError as error:
        raise ValueError(f"--set {override}: {error}") from None


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Set one setting of nested sections, which are made as needed.

    Args:
        path: "section.key".

    Raises:
        ValueError: if what should be a section is a value.
    """
    *sections, key = path.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ValueError(f"{section!r} is a value, not a section.")
        values = inner
    values[key] = value


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings of nested sections as "section.key" -> value."""
    pairs: dict[str, Any] = {}
    for key, value in values.items():
        pairs |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return pairs


def _sentence(model: type[BaseModel], error: ValidationError, values: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    path, holder = _locate(model, first["loc"], values)
    key = f"{path}.name" if path else "name"
    kind, message = first["type"], first["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        known = holder.model_fields if holder else []
        return f"unknown setting {path!r}; {nearest(path.rpartition('.')[2], known, synonyms=_synonyms(model, values))}"
    if kind == "literal_error" and isinstance(first["input"], str):
        return f"{path} = {first['input']!r} is not known; {nearest(first['input'], _quoted(first['ctx']['expected']))}"
    if kind == "union_tag_invalid":
        tag = first["ctx"]["tag"]
        return f"{key} = {tag!r} is not known; {nearest(tag, _quoted(first['ctx']['expected_tags']))}"
    if kind in ("model_type", "model_attributes_type"):
        return f"{path} must be a section, [{path}] in a file: got {first['input']!r}."
    if kind in ("missing", "union_tag_not_found"):
        last = path.rpartition(".")[2]
        if holder is not None and issubclass(holder, NamedConfig) and last not in {*holder.model_fields} - {"name"}:
            key = path if last == "name" else key
            return f"the setting {key!r} is missing; add it, one of {', '.join(holder.names())}."
        return f"the setting {path!r} is missing; add it."
    if kind == "value_error":
        return f"{path}: {message}" if path else message
    if kind == "tuple_type":
        value = first["input"]
        listed = json.dumps(value.strip("[] ")) if isinstance(value, str) else value
        return f"{path} must be a list, such as [{listed}]: got {value!r}; write it so."
    if (needed := requirement(message)) is not None:
        return f"{path} must be {needed}: got {first['input']!r}."
    return f"{path} = {first['input']!r} cannot be used: {message[0].lower()}{message[1:]}."


def _synonyms(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, str]:
    """The last name of a setting, the first letters of its words, or a further word of it -> "section.key"."""
    paths = sorted(_settings(model, values), key=lambda path: path.count("."))
    keys = {path: path.rpartition(".")[2] for path in paths if "." in path}
    words = {path: key.split("_") for path, key in keys.items() if "_" in key}
    synonyms = {word: path for path, several in reversed(words.items()) for word in several[1:]}
    synonyms |= {"".join(word[:1] for word in several): path for path, several in reversed(words.items())}
    return synonyms | {key: path for path, key in reversed(keys.items())}


def _settings(model: type[BaseModel], values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Dotted paths of the settings of a model, of two sections at most, and of the alternatives that `values` name."""
    for key, field in model.model_fields.items():
        yield f"{before}{key}"
        if before.count(".") < 2 and _sections(field):
            inner = values[key] if isinstance(values.get(key), Mapping) else {}
            _, holder = _locate(model, (key, str(inner.get("name")), ""), values)
            yield from () if holder is None else _settings(holder, inner, f"{before}{key}.")


def _quoted(expected: str) -> list[str]:
    return [name.strip(" '") for name in expected.replace(" or ", ", ").split(",")]


def _locate(
    model: type[BaseModel], loc: tuple[int | str, ...], values: Mapping[str, Any]
) -> tuple[str, type[BaseModel] | None]:
    """The dotted path of a setting, without the tags of unions, and the model that should hold it."""
    path: list[str] = []
    holder: type[BaseModel] | None = model
    choices: dict[str, type[BaseModel]] = {}
    for key in map(str, loc):
        if key in choices:
            holder, choices = choices[key], {}
            continue
        if holder is not None and issubclass(holder, NamedConfig):
            name = values.get("name", holder.model_fields["name"].default)
            holder = (holder.named(name) if isinstance(name, str) else None) or holder
        values = values[key] if isinstance(values.get(key), Mapping) else {}
        path.append(key)
        field = holder.model_fields.get(key) if holder else None
        if field is None:
            continue
        members = _sections(field)
        if len(members) == 1:  # a section, or one that may be missing
            holder = members[0]
        elif members:
            holder, choices = None, {member.model_fields["name"].default: member for member in members}
    return ".".join(path), holder


def _sections(field: FieldInfo) -> list[type[BaseModel]]:
    """The models of a field that is a section; several where its name chooses."""
    members = (field.annotation, *get_args(field.annotation))
    return [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]
