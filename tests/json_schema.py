"""The words of JSON schema (draft 7) that the schema of settings is made of; another word is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

KINDS: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float)}
SAID = {"title", "description", "default", "$schema", "$defs"}


def errors(value: Any, schema: Any, whole: dict[str, Any], at: str = "") -> Iterator[str]:
    """What is wrong with a value, each with its place."""
    if isinstance(schema, bool):
        if not schema:
            yield f"{at}: not allowed"
        return
    if "$ref" in schema:  # beside which draft 7 reads nothing
        yield from errors(value, resolved(schema["$ref"], whole), whole, at)
        return
    for word, rule in schema.items():
        if word not in SAID and word != "additionalItems":
            yield from WORDS[word](value, rule, schema, whole, at)


def resolved(reference: str, whole: dict[str, Any]) -> Any:
    found: Any = whole
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found[part] if part else found
    return found


def kind(value: Any, rule: str, *rest: Any) -> Iterator[str]:
    if rule == "integer":
        right = (isinstance(value, int) or (isinstance(value, float) and value.is_integer())) and value is not True
    else:
        right = isinstance(value, KINDS[rule])
    if not right or (isinstance(value, bool) and rule != "boolean"):
        yield f"{rest[-1]}: {value!r} is no {rule}"


def one_of_values(value: Any, rule: list[Any], *rest: Any) -> Iterator[str]:
    if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in rule):
        yield f"{rest[-1]}: {value!r} is none of {rule}"


def any_of(value: Any, rule: list[Any], schema: Any, whole: Any, at: str) -> Iterator[str]:
    found = [list(errors(value, one, whole, at)) for one in rule]
    if all(found):
        yield f"{at}: fits none of {len(rule)}: {min(found, key=len)}"


def properties(value: Any, rule: dict[str, Any], schema: Any, whole: Any, at: str) -> Iterator[str]:
    for key, one in rule.items():
        if isinstance(value, dict) and key in value:
            yield from errors(value[key], one, whole, f"{at}.{key}")


def additional(value: Any, rule: Any, schema: Any, whole: Any, at: str) -> Iterator[str]:
    for key in value if isinstance(value, dict) else ():
        if key not in schema.get("properties", {}):
            yield from errors(value[key], rule, whole, f"{at}.{key}")


def required(value: Any, rule: list[str], *rest: Any) -> Iterator[str]:
    yield from (f"{rest[-1]}: lacks {key}" for key in rule if isinstance(value, dict) and key not in value)


def items(value: Any, rule: Any, schema: Any, whole: Any, at: str) -> Iterator[str]:
    if not isinstance(value, list):
        return
    for i, one in enumerate(value):
        if isinstance(rule, list):
            place = rule[i] if i < len(rule) else schema.get("additionalItems", True)
            yield from errors(one, place, whole, f"{at}.{i}")
        else:
            yield from errors(one, rule, whole, f"{at}.{i}")


def pattern(value: Any, rule: str, *rest: Any) -> Iterator[str]:
    if isinstance(value, str) and not re.search(rule, value):
        yield f"{rest[-1]}: {value!r} does not match {rule}"


def _limit(wrong: Any, of: Any = lambda value: value, kinds: Any = (int, float)) -> Any:
    def check(value: Any, rule: Any, *rest: Any) -> Iterator[str]:
        if isinstance(value, kinds) and not isinstance(value, bool) and wrong(of(value), rule):
            yield f"{rest[-1]}: {value!r} is beyond {rule}"

    return check


WORDS: dict[str, Any] = {
    "type": kind,
    "enum": one_of_values,
    "anyOf": any_of,
    "properties": properties,
    "additionalProperties": additional,
    "required": required,
    "items": items,
    "pattern": pattern,
    "minimum": _limit(lambda v, r: v < r),
    "maximum": _limit(lambda v, r: v > r),
    "exclusiveMinimum": _limit(lambda v, r: v <= r),
    "exclusiveMaximum": _limit(lambda v, r: v >= r),
    "minItems": _limit(lambda v, r: v < r, len, list),
    "maxItems": _limit(lambda v, r: v > r, len, list),
    "minLength": _limit(lambda v, r: v < r, len, str),
    "maxLength": _limit(lambda v, r: v > r, len, str),
}
