"""What a registry names can be imported from `trivet`, and type checkers know the names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import trivet
from trivet.losses import LOSSES
from trivet.mining import NEGATIVES, POSITIVES, NegativeName, PositiveName, negatives, positives


@pytest.mark.parametrize(
    ("registry", "exported"),
    [(LOSSES, trivet.losses.__all__), (POSITIVES, positives.__all__), (NEGATIVES, negatives.__all__)],
    ids=["losses", "positives", "negatives"],
)
def test_what_is_registered_is_exported(registry: dict[str, type[Any]], exported: list[str]) -> None:
    assert sorted(made.__name__ for made in registry.values()) == sorted(exported)
    assert set(exported) <= set(trivet.__all__)
    assert all(getattr(trivet, made.__name__) is made for made in registry.values())


def test_dir_lists_the_names_and_packages_that_are_public_alone() -> None:
    packages = {file.parent.name for file in Path(trivet.__path__[0]).glob("*/__init__.py")}
    assert set(dir(trivet)) == {*trivet.__all__, *packages}


@pytest.mark.parametrize(("names", "registry"), [(PositiveName, POSITIVES), (NegativeName, NEGATIVES)])
def test_names_for_type_checkers_are_those_of_the_registry(names: Any, registry: dict[str, type[Any]]) -> None:
    assert sorted(get_args(names)) == sorted(registry)
