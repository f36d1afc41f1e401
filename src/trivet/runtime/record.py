"""Records: JSON files and the output of `--json` as classes, with a default for every key that may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

Number = float | int  # an int is written as it is
_TYPES = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "none_required": "null",
}


class Record(BaseModel):
    """Part of a record: its fields in the order of the JSON keys; a key that is no Python name is an alias.

    Keys that are unknown are ignored, and no value is converted.

    Example:
        >>> from pydantic import Field
        >>> class Point(Record):
        ...     x: Number
        ...     recall: Number | None = Field(None, alias="recall@1")
        >>> Point.read({"x": 2, "later": []}).as_json()
        {'x': 2, 'recall@1': None}
    """

    model_config = ConfigDict(strict=True, extra="ignore", populate_by_name=True, protected_namespaces=())

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """A record from parsed JSON.

        Raises:
            ValueError: if a key is missing that must be there, or a value is of another type; the sentence names the
                first one, and is without its end.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ValueError(_sentence(error)) from None

    def as_json(self, *, unset: bool = True) -> dict[str, Any]:
        """The record as plain JSON values.

        Args:
            unset: whether keys are written that were neither read nor set.
        """
        return self.model_dump(by_alias=True, exclude_unset=not unset)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(key) for key in first["loc"] if key not in ("float", "int")) or "the record"
    if first["type"] == "missing":
        return f"{where} must be there, and is missing"
    text = repr(first["input"])
    text = text if len(text) <= 80 else f"{text[:80]}…"
    return f"{where} must be {_TYPES.get(first['type'], first['msg'])}: got {text}"
