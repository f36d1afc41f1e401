"""Data sets from outside Trivet: a function of yours, or of an installed package, named in the settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from trivet.config.base import added_settings, derived_settings
from trivet.config.plugins import python_object
from trivet.datasets.config import DataConfig, DatasetEntry
from trivet.datasets.dataset import Splits, choose_level
from trivet.datasets.image_decoding import Progress

SUPPLIED = ("data_root", "progress")


class OutsideConfig(DataConfig):
    """Settings of a data set outside Trivet; the parameters of its function are settings, too."""

    mirrored = True


def entry(reference: str) -> DatasetEntry:
    """The data set that a reference names.

    Raises:
        ValueError: if it cannot be imported, or is no function that says it returns `Splits`.
    """
    function = python_object(reference, kind="datasets")
    # Settings may be those of a stranger's run: nothing is called that was not written to be.
    if not callable(function) or _returns(function) is not Splits:
        raise ValueError(
            f"{reference!r} must be a function that returns trivet.datasets.Splits, and says so: "
            f"got {function!r}; write def NAME(...) -> Splits."
        )
    return _entry(reference, function)


@cache  # one class for one reference, so that equal settings are equal
def _entry(reference: str, function: Callable[..., Any]) -> DatasetEntry:
    parameters = inspect.signature(function).parameters
    config = derived_settings(function, OutsideConfig, exclude=SUPPLIED, types={"name": str}, name=reference)

    def load(config: OutsideConfig, data_root: Path, progress: Progress | None) -> Splits:
        supplied = {"data_root": data_root, "progress": progress}
        wanted = {key: value for key, value in supplied.items() if key in parameters}
        splits = function(**added_settings(config, OutsideConfig), **wanted)
        if not isinstance(splits, Splits):
            raise ValueError(f"{reference!r} must return trivet.datasets.Splits: got {type(splits).__name__}.")
        for name in splits.evaluation:  # each has a file of its own
            if name == "train" or Path(name).name != name:
                raise ValueError(
                    f"an evaluation split must have a name that a file can have, and not train: {reference!r} has "
                    f"{name!r}; rename it."
                )
        level = splits.level if config.level is None else config.level
        return replace(splits, level=choose_level(level, splits.train.labels))

    return DatasetEntry(config, load, description=inspect.getdoc(function) or "your own data")


def _returns(function: Callable[..., Any]) -> Any:
    try:
        return inspect.signature(function, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):  # a type that is not imported, no signature
        return None
