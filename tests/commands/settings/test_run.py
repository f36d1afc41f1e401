"""`trivet settings`: its schema takes every settings file that Trivet takes, and refuses what is wrong in itself."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, ValidationError
from tests.commands.conftest import Call

from trivet.commands.settings.run import list_settings, settings_schema
from trivet.config.base import put
from trivet.datasets import DATA_SETS
from trivet.losses import LOSSES
from trivet.mining import NEGATIVES, POSITIVES
from trivet.models.config import NAMES
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderSettings

SCHEMA = settings_schema()
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
OWN = {  # what a data set of one's own needs beside its name
    "folder": {"root": "photos"},
    "table": {"path": "items.csv"},
    "vectors": {"path": "vectors.npz"},
    "texts": {"path": "texts.csv"},
    "pairs": {"path": "pairs.csv"},
}
RUN: dict[str, Any] = {"data": {"name": "digits"}, "loss": {"name": "triplet"}}


def wrong(values: Any) -> list[str]:
    """Each fault with the key that it is about; of several forms, the faults by each."""

    def faults(error: ValidationError) -> list[str]:
        return [f"{error.json_path}: {error.message}", *(fault for form in error.context for fault in faults(form))]

    return [fault for error in Draft7Validator(SCHEMA).iter_errors(values) for fault in faults(error)]


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    values = copy.deepcopy(RUN)
    for key, value in changes.items():
        put(values, key, value)
    return values


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_fit(path: Path) -> None:
    assert wrong(tomllib.loads(path.read_text())) == []


@pytest.mark.parametrize("name", DATA_SETS)
def test_whole_settings_of_each_data_set_fit(name: str) -> None:
    config = RunConfig.parse({"data": {"name": name, **OWN.get(name, {})}, "loss": {"name": "triplet"}}, source=name)
    assert wrong(tomllib.loads(config.to_toml())) == []


@pytest.mark.parametrize("name", LOSSES)
def test_whole_settings_of_each_loss_fit(name: str) -> None:
    loss = {"name": name} | ({"margin": 1.0} if name == "contrastive" else {})
    assert wrong(tomllib.loads(RunConfig.parse({**RUN, "loss": loss}, source=name).to_toml())) == []


@pytest.mark.parametrize("name", [*NAMES, "timm:resnet18", "torchvision:resnet18"])
def test_whole_settings_of_each_network_fit(name: str) -> None:
    config = RunConfig.parse({**RUN, "model": {"name": name}}, source=name)
    assert wrong(tomllib.loads(config.to_toml())) == []


FITS: tuple[dict[str, Any], ...] = (
    {"model": {"name": "text:a folder", "freeze": 3, "lora": 0}, "data": {"name": "texts", "path": "a.csv"}},
    {"model": {"embedding_dim": 8}},  # conv4
    {"model": {"name": "timm:resnet18", "freeze": "stem", "head": "none"}},
    {"model": {"name": "python:mine.py:Net", "anything": [1, 2]}},
    {"data": {"name": "plugin:mine", "anything": 1}, "loss.name": "python:losses:Mine", "loss.sharp": 2},
    {"loss.positives": {"name": "easy", "k": 2}, "loss.negatives": "python:mine.py:Rule"},
    {"loss.negatives": {"name": "distance-weighted", "upper_cutoff": float("inf")}},
    {"data": {"name": "folder", "root": "photos", "image_size": [128, 64]}},
    {"loss.prefixes": [8, 32], "batch": {"size": 64, "mined": "triplets.parquet"}},
    {"evaluation.nmi_plus": {"class": 2}, "training.devices": "auto", "training.milestones": [3, 4]},
    {"data.noise": {"kind": "symmetric", "rate": 0.2}, "cleaning": {"action": "drop"}},
    {"sweep": {"vary": {"loss": {"margin": [0.1, 0.2]}}, "trials": 3}},
)
FAILS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"data.name": "digit"}, ".data"),
    ({"data.imagesize": 8}, ".data"),
    ({"data.image_size": 9000}, ".data"),
    ({"data.root": "photos"}, ".data"),  # of another data set
    ({"data": {"name": "folder"}}, ".data"),  # without a root
    ({"data": {"name": "folder", "root": "photos", "image_size": [128, 64, 3]}}, ".data"),
    ({"data.noise": {"kind": "symetric", "rate": 0.2}}, "symetric"),
    ({"loss.name": "tripelt"}, ".loss"),
    ({"loss.margn": 0.1}, "margn"),
    ({"loss.beta": 0.1}, "beta"),  # of another loss
    ({"loss.prefixes": []}, ".loss"),
    ({"loss.prefixes": [0, 8]}, ".loss"),
    ({"loss.negatives": "semi-hard"}, "semi-hard"),
    ({"loss.negatives": {"k": 2}}, "negatives"),
    ({"loss": {"name": "proxy-nca", "positives": "easy"}}, ".loss"),  # which chooses none
    ({"model.name": "conv5"}, "conv5"),
    ({"model.weights": "file"}, "weights"),
    ({"model.embedding_dim": 0}, "embedding_dim"),
    ({"batch.num_classes": 1}, ".batch.num_classes: 1 is less than the minimum of 2"),
    ({"batch.num_classes": "2"}, ".batch.num_classes: '2' is not of type 'integer'"),
    ({"training.optimizer": "adamax"}, ".training.optimizer"),
    ({"training.ema": 1.0}, ".training.ema"),
    ({"evaluation.k": []}, ".evaluation.k"),
    ({"trainig.steps": 3}, "'trainig' was unexpected"),
    ({"seed": -1}, ".seed"),
    ({"seed": 0.5}, ".seed"),
)


@pytest.mark.parametrize("changes", FITS, ids=lambda changes: next(iter(changes)))
def test_what_may_be_written_fits(changes: dict[str, Any]) -> None:
    assert wrong(changed(changes)) == []


@pytest.mark.parametrize(("changes", "said"), FAILS, ids=[next(iter(changes)) for changes, _ in FAILS])
def test_what_is_wrong_is_found_and_trivet_refuses_it_too(changes: dict[str, Any], said: str) -> None:
    values = changed(changes)
    assert said in " ".join(wrong(values))
    if changes != {"batch.num_classes": "2"}:  # which is read as a number
        with pytest.raises(ValueError, match="s:"):
            RunConfig.parse(values, source="s")


def test_a_file_needs_data_and_loss_or_a_sweep_or_a_ladder() -> None:
    assert wrong({"data": {"name": "digits"}}) != []
    assert wrong({"loss": {"name": "triplet"}, "sweep": {"vary": {"data": {"image_size": [4, 8]}}}}) == []
    assert wrong({"data": {"name": "digits"}, "ladder": {"rungs": ["encoder"], "start": ["mine"], "minutes": 5}}) == []
    assert "is not one of" in wrong({"data": {"name": "digits"}, "ladder": {"rungs": ["heads"]}})[0]
    assert "'data' is a required property" in wrong({"ladder": {}})[0]
    for section in ("model", "loss", "sweep"):
        both = {"data": {"name": "digits"}, "ladder": {}, section: {}}
        assert f"'{section}' is not one of" in " ".join(wrong(both))
        with pytest.raises(ValueError, match=section):
            LadderSettings.parse(both, source="s")


def test_everything_that_is_referred_to_is_there_and_every_rule_is_named() -> None:
    text = json.dumps(SCHEMA, allow_nan=False)
    referred = {part.partition('"')[0] for part in text.split("#/$defs/")[1:]}
    assert referred == SCHEMA["$defs"].keys()
    triplet = SCHEMA["$defs"]["StrategyConfig-triplet"]["properties"]
    assert triplet["positives"]["anyOf"][0]["anyOf"][0]["enum"] == list(POSITIVES)
    assert triplet["negatives"]["anyOf"][0]["anyOf"][0]["enum"] == list(NEGATIVES)


def test_settings_are_listed_with_their_defaults() -> None:
    found = {(one.section, one.key): one.default for one in list_settings()}
    assert found["", "seed"] == "0"
    assert found["batch", "num_classes"] == "16"
    assert found["loss", "positives"] == found["data", "name"] == found["model", "embedding_dim"] == ""  # they differ
    assert ("data", "image_size") not in found
    sections = {section for section, _ in found} - {""}
    assert sections == {*RunConfig.model_fields, "sweep", "ladder"} - {"seed"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["settings", "guard"], 0, "forecast"),
        (["settings", "guard", "--json"], 0, '"key": "forecast"'),
        (["settings", "--schema"], 0, '"$schema": "http://json-schema.org/draft-07/schema#"'),
        (["settings", "gard"], 2, "did you mean 'guard'?"),
        (["settings", "guard", "--schema"], 2, "--schema is of all sections: leave out guard."),
    ],
)
def test_the_command(arguments: list[str], code: int, said: str, run_command: Call) -> None:
    ended, out, err = run_command(*arguments)
    assert ended == code
    assert said in (err if code else out)
    assert (out == "") == (code == 2)
