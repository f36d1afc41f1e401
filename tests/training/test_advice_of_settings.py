"""What an error says of settings, to set or to remove one, makes them settings that are taken."""

from __future__ import annotations

import ast
import copy
import re
import tomllib
from typing import Any

import pytest
from pydantic import ValidationError
from tests.sources import library
from tests.test_hints import SOURCE, Line, messages, raised_at

from trivet.commands.sweep.search_space import Range, SweepConfig
from trivet.config.base import Config, put
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderSettings

Values = dict[str, Any]
DIGITS = {"data.name": "digits", "loss.name": "triplet", "model.name": "conv4"}
NOISY = {**DIGITS, "data.noise.rate": 0.2, "data.noise.matrix": [[1.0]]}
TEXTS = {"data.name": "texts", "data.path": "a.csv", "loss.name": "triplet", "model.name": "text:F"}
PAIRS = {**TEXTS, "data.name": "pairs"}
CIFAR = {**DIGITS, "data.name": "cifar10", "data.level": "worse"}
TABLE = {**DIGITS, "data.name": "table", "data.path": "a.csv"}
TIMM = {**DIGITS, "model.name": "timm:resnet18"}
TOWERS = {**PAIRS, "model.name": "towers", "model.left.name": "text:F", "model.right.name": "text:F"}
OF_VECTORS = {"data.left_vectors": "l.npy", "data.right_vectors": "r.npy", "model.name": "linear"}
RUNS: list[tuple[Values, str, list[str]]] = [  # settings, the error, and what it says to do about them
    ({**NOISY, "data.noise.kind": "transition"}, "takes its rate", ["-data.noise.rate"]),
    ({**NOISY, "data.noise.kind": "symmetric"}, "is for kind", ["-data.noise.matrix"]),
    ({**DIGITS, "data.path": "x"}, "path is for name", ["-data.path"]),
    ({**CIFAR, "data.noise.kind": "symmetric", "data.noise.rate": 0.2}, "noise of people", ["-data.noise"]),
    ({**CIFAR, "data.split": "class-disjoint"}, "published training images", ["data.split=auto"]),
    ({**TABLE, "data.split": "class-disjoint", "data.holdout": 0.3}, "is used by split", ["-data.holdout"]),
    ({**TABLE, "data.box_form": "size"}, "box_form is used with box", ["-data.box_form"]),
    ({**DIGITS, "data.noise.kind": "symmetric"}, "needs rate", ["data.noise.rate=0.2"]),
    ({**DIGITS, "data.noise.kind": "transition"}, "needs matrix", ["data.noise.matrix=[[1.0]]"]),
    ({**PAIRS, "data.image_size": 9}, "is for images", ["-data.image_size"]),
    ({**PAIRS, **OF_VECTORS, "data.images": "both"}, "the images or their vectors", ["-data.images"]),
    ({**TABLE, "data.match": "all"}, "match is for tags", ["data.separator=;"]),
    ({**TIMM, "model.weights": "w", "model.pretrained": True}, "one start", ["-model.weights", "-model.pretrained"]),
    ({**TIMM, "model.lora": 8, "model.freeze": "stem"}, "trains nothing else", ["-model.freeze", "model.lora=0"]),
    ({**TIMM, "model.width": 8}, "width is for", ["-model.width"]),
    ({**DIGITS, "model.left.name": "linear"}, "network of a side", ["-model.left"]),
    ({**DIGITS, "model.pretrained": True}, "exist for backbones only", ["model.pretrained=false"]),
    ({**DIGITS, "model.embedding_dim": 1}, "leaves two points", ["model.normalize=false"]),
    ({**TEXTS, "model.pretrained": True}, "always begins pretrained", ["-model.pretrained"]),
    ({**TEXTS, "model.width": 8}, "networks from scratch", ["-model.width"]),
    ({**TEXTS, "model.lora": 8, "model.freeze": 1}, "trains nothing else", ["-model.freeze", "model.lora=0"]),
    ({**TOWERS, "model.left.normalize": False}, "embeddings alike", ["model.left.normalize=true"]),
    ({**DIGITS, "batch.size": 64, "batch.num_classes": 8}, "size shuffles all items", ["-batch.size"]),
    ({**DIGITS, "batch.mined": "m.parquet"}, "mined needs size", ["batch.size=128"]),
    ({**DIGITS, "training.accumulate_grad_batches": 2}, "is not offered", ["-training.accumulate_grad_batches"]),
    ({**DIGITS, "training.loggers": ["mlflow"], "training.mlflow_uri": "http://me:word@there"}, "no user and",
     ["-training.mlflow_uri"]),
    ({**DIGITS, "training.mlflow_uri": "http://localhost"}, "is for the logger mlflow", ["-training.mlflow_uri"]),
    ({**DIGITS, "training.momentum": 0.5}, "sgd and rmsprop only", ["-training.momentum"]),
    ({**TIMM, "model.freeze": "all", "model.head": "none"}, "nothing to train", ["training.steps=0"]),
    ({**DIGITS, "loss.margin": 9.0}, "diameter", ["model.normalize=false"]),
]  # fmt: skip
RANGE = {"low": 0.1, "high": 0.2}
CASES: list[tuple[type[Config], Values, str, list[str]]] = [
    *((RunConfig, *case) for case in RUNS),
    (LadderSettings, {"data.name": "digits", "data.folds": 4}, "makes its own", ["-data.folds"]),
    (LadderSettings, {"data.name": "digits", "loss.name": "triplet"}, "of a single run", ["-loss"]),
    (Range, {**RANGE, "log": True, "step": 0.1}, "leave out one of them", ["-log", "-step"]),
    (SweepConfig, {"vary": {"a": [1, 2], "a.b": [1, 2]}}, "leave out one", ["vary={a = [1, 2]}"]),
]


def nested(values: Values) -> Values:
    made: Values = {}
    for key, value in values.items():
        put(made, key, copy.deepcopy(value))
    return made


def remedied(values: Values, change: str) -> Values:
    """The settings without one, or with another in place of it."""
    if change.startswith("-"):
        key = change[1:]
        return {name: each for name, each in values.items() if name != key and not name.startswith(f"{key}.")}
    key, _, value = change.partition("=")
    try:
        return {**values, key: tomllib.loads(f"x = {value}")["x"]}
    except tomllib.TOMLDecodeError:
        return {**values, key: value}


def refused(settings: type[Config], values: Values) -> tuple[str, Line]:
    """The error of settings, and where it was raised."""
    with pytest.raises(ValueError, match=r"^s: ") as stated:
        settings.parse(nested(values), source="s")
    with pytest.raises(ValidationError) as error:
        settings.model_validate(nested(values))
    return str(stated.value), raised_at(error.value.errors()[0]["ctx"]["error"])


@pytest.mark.parametrize("case", range(len(CASES)))
def test_what_an_error_says_to_set_or_to_remove_is_taken(case: int) -> None:
    settings, values, sentence, changes = CASES[case]
    message, _ = refused(settings, values)
    assert sentence in message
    for change in changes:
        key, equals, value = change.removeprefix("-").partition("=")
        name = key.rpartition(".")[2]
        taken = rf'( = "?{re.escape(value)}(?!\w)| to |\.$| too)'
        is_set = rf"(set|or|such as) \S*(?<!\w){name}{taken}|set one of them|leave out one\.$"
        removed = rf"(remove|leave) (it|out|\S*{name})|one of the|not both|not offered"
        assert re.search(is_set if equals else removed, message), (message, change)
        settings.parse(nested(remedied(values, change)), source="s")


ADVICE = re.compile(r"\b(?:set|remove|leave) (?:it|them|out|[a-z_.]+)\b")
OF_PARTS = {  # parts of settings that only their own kind reads
    "models/joined.py:_check_name",
    "models/towers.py:_check_sides",
}


def is_check(node: ast.AST) -> bool:
    """Whether pydantic calls a function to check settings."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any("validator" in ast.unparse(each) for each in decorators)


def test_each_check_of_settings_that_says_what_to_set_has_a_case() -> None:
    checks = {path: [node for node in nodes if is_check(node)] for path, nodes in library().items()}
    lines = {refused(*case[:2])[1] for case in CASES}
    left = {
        f"{each.path.relative_to(SOURCE).as_posix()}:{each.function}"
        for each in messages()
        if any(node.lineno <= each.line <= node.end_lineno for node in checks[each.path])
        and ADVICE.search(each.text)
        and (each.path, each.line) not in lines
    }
    assert left == OF_PARTS
