"""Options that people type, and what to say when one cannot be used."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from types import NoneType
from typing import Any, ParamSpec, TypeVar

from trivet.runtime.counterparts import advice, call_advice

P = ParamSpec("P")
R = TypeVar("R")
# Annotation -> the class of its values, and a name of them.
KINDS: Mapping[str, tuple[type, str]] = {
    "float": (Real, "a number"),
    "int": (Integral, "a whole number"),
    "bool": (bool, "True or False"),
    "str": (str, "a text"),
    "None": (NoneType, "None"),
}
# Words of pydantic -> ours.
WORDS = {
    "a valid number": "a number",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid string": "a text",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
}


def nearest(name: object, allowed: Iterable[str], *, synonyms: Mapping[str, str] = {}) -> str:
    """The part of an error sentence that helps with an unknown name: the closest allowed one, then all of them.

    For a class of another library, or an object of it, what stands for it here.

    Args:
        synonyms: other name -> what is meant by it.

    Example:
        >>> nearest("esy", ["easy", "hard"]), nearest("easy", [])
        ("did you mean 'easy'? Allowed: easy, hard.", 'there is none.')
    """
    names = sorted(allowed)
    text = name if isinstance(name, str) else class_name(name)
    guess = advice(text) if text[:1].isupper() else ""
    if (
        not guess
        and isinstance(name, str)
        and (close := difflib.get_close_matches(text, {*names, *synonyms}, n=1, cutoff=0.5))
    ):
        guess = f"did you mean {close[0] if close[0] in names else synonyms[close[0]]!r}?"
    if not names:
        return guess or "there is none."
    return f"{guess and f'{guess} '}Allowed: {', '.join(names)}."


def requirement(message: str) -> str | None:
    """Requirement on a value in a message of pydantic, such as "a whole number" or "at least 2"; None in others."""
    limit = re.search("Input should be (.+?)(?:, (?:unable to|got) .+)?$", message)
    if limit is None:
        return None
    text = limit[1]
    for theirs, ours in WORDS.items():
        text = text.replace(theirs, ours)
    return text


def class_name(value: object) -> str:
    """The name of a class, or of that of an object."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


def brief_repr(value: object) -> str:
    """The first line of a representation; of a module that holds others its name."""
    return repr(value).partition("(\n")[0]


_signature = cache(signature)  # made anew it takes longer than the call


def explain_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function, so that an argument it does not have is an error that names the one it has.

    The error is a TypeError, as of any function. It costs nothing until there is one. In a constructor each number,
    word and switch is also checked to be one, by its annotation: a ValueError.
    """
    constructs = function.__name__ == "__init__"

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if constructs:
                _check_kinds(function, args, kwargs)
            return function(*args, **kwargs)
        except TypeError:
            if message := _wrong_call(function, args, kwargs):
                raise TypeError(message) from None
            raise

    return call


def _check_kinds(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise ValueError if an argument is none of the `KINDS` of its annotation, where that names no others."""
    call = _signature(function)
    for name, value in call.bind_partial(*args, **kwargs).arguments.items():
        annotation, default = call.parameters[name].annotation, call.parameters[name].default
        names = (annotation.__name__ if isinstance(annotation, type) else str(annotation)).split(" | ")
        if not KINDS.keys() >= {*names}:
            continue
        kinds = [KINDS[each] for each in names if each == "bool" or not isinstance(value, bool)]  # which is an int, too
        if not isinstance(value, tuple(kind for kind, _ in kinds)):
            came = repr(value) if isinstance(value, (str, Real, NoneType)) else class_name(value)
            rest = "pass one" if default is Parameter.empty else f"pass one, or leave it out for {default!r}"
            raise ValueError(f"{name} must be {' or '.join(KINDS[each][1] for each in names)}: got {came}; {rest}.")


def _wrong_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Description of a call with too many arguments by position or one of an unknown name; "" of any other call."""
    parameters = list(_signature(function).parameters.values())
    name, first = function.__name__, 0
    if parameters[0].name == "self":
        name, first = type(args[0]).__name__, 1
    by_position = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD][first:]
    by_name = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    if len(args) - first > len(by_position):
        call = call_advice(by_position, by_name)
        return (
            f"{name} takes {', '.join(by_position) or 'nothing'} by position: got {len(args) - first}; pass "
            f"the others by name: {', '.join(f'{each}=' for each in by_name)}{call and f'; {call}'}."
        )
    unknown = [each for each in kwargs if each not in {*by_position, *by_name}]
    if not unknown or any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return ""
    option, value, options = unknown[0], kwargs[unknown[0]], [*by_position, *by_name]
    if help_text := advice(option, callee=name, options=options, value=value):
        return f"{name} has no argument {option!r}; {help_text}"
    if first and option in (fixed := _fixed_options(args[0])):
        return f"{name} has no argument {option!r}, which is always {fixed[option]!r}: leave it out."
    if elsewhere := advice(option, value=value):
        return f"{name} has no argument {option!r}; leave it out: elsewhere it is {elsewhere}"
    return f"{name} has no argument {option!r}; {nearest(option, options)}"


def _fixed_options(instance: object) -> dict[str, Any]:
    """Values of the options of a dataclass that its constructor does not take."""
    every = fields(instance) if is_dataclass(instance) else ()
    return {field.name: field.default for field in every if not field.init and field.default is not MISSING}


def check_name(value: object, allowed: Iterable[str], *, name: str) -> None:
    """Raise ValueError, with the nearest allowed value, unless `value` is one of them."""
    allowed = list(allowed)
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} = {brief_repr(value)} is not known; {nearest(value, allowed)}")


def check_at_least(low: float, value: float, *, name: str) -> float:
    """The value, or ValueError if it is below `low` or not finite."""
    if not isinstance(value, Real) or not math.isfinite(value) or value < low:
        raise ValueError(f"{name} must be a finite number of at least {low:g}: got {value}.")
    return value


def check_above_zero(value: float, *, name: str) -> float:
    """The value, or ValueError if it is not a finite number above 0."""
    if not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0: got {value}.")
    return value


def check_count(value: int, *, name: str) -> int:
    """The value, or ValueError if it is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1: got {value}.")
    return value


# Metadata of a field: how `check_options` checks its value.
ABOVE_ZERO: Mapping[str, Any] = {"check": check_above_zero}
AT_LEAST_ZERO: Mapping[str, Any] = {"check": partial(check_at_least, 0)}
COUNT: Mapping[str, Any] = {"check": check_count}


def check_options(options: Any) -> None:
    """Raise ValueError if a field whose metadata says how to check it has a wrong value; None is always right."""
    for field in fields(options):
        check = field.metadata.get("check")
        if check is not None and (value := getattr(options, field.name)) is not None:
            check(value, name=field.name)
