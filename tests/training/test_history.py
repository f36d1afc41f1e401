"""Training is seen on one sample of items, and a run that was stopped has seen what one never stopped has."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.runs import settings_of, write_pictures

from trivet.collapse.dynamics import SimulatedLoss
from trivet.commands.train.run import resume, train
from trivet.datasets import load
from trivet.losses.matryoshka import of_batch
from trivet.models import build
from trivet.training import RunConfig, embed
from trivet.training.components import Components, make_loss
from trivet.training.history import ITEMS, moments, motion_of, predicted_motion

pytestmark = pytest.mark.usefixtures("undiagnosed")

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit"},
    "batch": {"num_classes": 4, "samples_per_class": 4},
    "model": {"name": "linear", "embedding_dim": 3},
    "loss": {"name": "triplet", "positives": "easy", "negatives": "hard"},
    "training": {"steps": 7, "checkpoint_every": 3, "accelerator": "cpu", "optimizer": "adam"},
    "evaluation": {"map_points": 10, "sample": 20, "nmi_plus": 2, "k": [1]},
}


def config(**changes: dict[str, Any]) -> RunConfig:
    return settings_of(SETTINGS, **changes)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), 9)


def small(pictures: Path, **changes: dict[str, Any]) -> RunConfig:
    data = {"name": "folder", "root": str(pictures), "image_size": 8, "channels": 1, "level": "class"}
    settings = config(**changes).model_dump(mode="json", exclude_unset=True) | {"data": data}
    return RunConfig.parse(settings, source="test")


@pytest.fixture(scope="module")
def whole(pictures: Path) -> Path:
    path = pictures.parent / "whole"
    train(small(pictures), path)
    return path


def history(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "record.json").read_text())["history"]
    return found


def test_moments_are_dense_at_the_start_and_end_with_the_last_step() -> None:
    assert moments(1) == [0, 1]
    assert moments(7) == [0, 1, 2, 5, 7]
    assert moments(800) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 800]
    assert moments(1000) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


def test_the_record_has_the_history(whole: Path) -> None:
    seen = history(whole)
    assert seen.keys() == {"level", "items", "moments", "edges", "field"}
    assert (seen["level"], seen["items"]) == ("class", 36)
    assert [moment["step"] for moment in seen["moments"]] == moments(7)
    bins = len(seen["edges"]) - 1
    assert seen["edges"] == sorted(set(seen["edges"]))
    for moment in seen["moments"]:
        assert moment.keys() == {
            "step", "s_ap", "s_an", "mean_distance", "effective_rank", "recall@1", "class_spread", "within", "between",
        }  # fmt: skip
        assert len(moment["s_ap"]) == len(moment["s_an"]) == 36
        assert len(moment["within"]) == len(moment["between"]) == bins
        assert sum(moment["within"]) == pytest.approx(1, abs=1e-4)
        assert sum(moment["between"]) == pytest.approx(1, abs=1e-4)
    assert seen["moments"][0]["s_ap"] != seen["moments"][-1]["s_ap"]


def definition(points: list[list[float]], labels: list[int]) -> dict[str, float]:
    """The numbers of a moment in plain Python: squared distances in place of all that is faster."""
    n = len(points)
    apart = [[math.dist(a, b) for b in points] for a in points]
    pairs = [(i, j) for i in range(n) for j in range(i)]
    hits = [labels[min((j for j in range(n) if j != i), key=lambda j: apart[i][j])] == labels[i] for i in range(n)]
    ratios = []
    for one in set(labels):
        own = [i for i in range(n) if labels[i] == one]
        others = [i for i in range(n) if labels[i] != one]
        inside = fmean(apart[i][j] ** 2 for i in own for j in own if i != j)
        ratios.append(math.sqrt(inside / fmean(apart[i][j] ** 2 for i in own for j in others)))
    return {
        "mean_distance": fmean(apart[i][j] for i, j in pairs),
        "recall@1": fmean(hits),
        "class_spread": median(ratios),
        "short": fmean(apart[i][j] <= 0.5 for i, j in pairs if labels[i] == labels[j]),
    }


def test_a_moment_is_what_the_network_makes_of_the_sample(whole: Path, pictures: Path) -> None:
    settings = small(pictures)
    items = load(settings.data, None).train
    untrained = build(settings.model, items.inputs.shape, settings.seed)
    expected = definition(embed(untrained, items.inputs).tolist(), items.labels["class"].tolist())
    seen = history(whole)
    first = seen["moments"][0]
    assert first["mean_distance"] == pytest.approx(expected["mean_distance"], rel=1e-6)
    assert first["recall@1"] == pytest.approx(expected["recall@1"], abs=1e-9)
    assert first["class_spread"] == pytest.approx(expected["class_spread"], abs=1e-4)
    below = np.interp(0.5 / first["mean_distance"], seen["edges"], np.cumsum([0, *first["within"]]))
    assert below == pytest.approx(expected["short"], abs=0.02)


@pytest.mark.usefixtures("unevaluated")
def test_steps_that_are_added_leave_no_moment_that_is_none(pictures: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(small(pictures, training={"steps": 3}), path)
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("steps = 3", "steps = 6"))
    resume(path)
    assert [moment["step"] for moment in history(path)["moments"]] == [0, 1, 2, 5, 6]


def test_looking_changes_nothing_and_what_is_not_finite_is_not_seen() -> None:
    settings = config(model={"name": "conv2", "normalize": False})
    splits = load(settings.data, None)
    network = build(settings.model, splits.train.inputs.shape, 0).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    looked = Components(settings, splits).state.history
    looked.measure(0, network)
    looked.measure(3, network)  # no moment
    assert [moment.step for moment in looked.moments] == [0]
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    looked.measure(1, network)
    assert len(looked.moments) == 1


def test_a_constant_embedding_is_seen() -> None:
    settings = config(model={"normalize": False})
    splits = load(settings.data, None)
    network = build(settings.model, splits.train.inputs.shape, 0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    looked = Components(settings, splits).state.history
    assert looked.record() is None
    looked.measure(0, network)
    seen = looked.record()
    assert seen is not None
    (moment,) = seen.moments
    assert (moment.mean_distance, moment.effective_rank, moment.class_spread) == (0, 0, None)
    # Ties: the share of the others that have the class, as by chance.
    labels = looked._items.labels["digit"]
    assert moment.recall == pytest.approx(fmean(((labels == one).sum() - 1) / (ITEMS - 1) for one in labels))
    json.dumps(seen.as_json(), allow_nan=False)


def simulated(values: dict[str, Any]) -> SimulatedLoss | None:
    settings = RunConfig.parse(values, source="test")
    return motion_of(
        of_batch(make_loss(settings.loss, settings.model, 2, seed=settings.seed)), normalize=settings.model.normalize
    )


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        ({"name": "second-order"}, "second-order"),
        ({"name": "nca"}, "first-order"),
        ({"name": "nca", "temperature": 0.1}, None),
        ({"name": "triplet"}, "vanilla"),
        ({"name": "triplet", "distance": "euclidean"}, None),
        ({"name": "triplet", "distance": "cosine", "soft": True}, "first-order"),
        ({"name": "margin"}, None),
        ({"name": "selectively-contrastive"}, None),
    ],
)
def test_motion_is_predicted_where_the_theory_has_the_loss(loss: dict[str, Any], named: str | None) -> None:
    field = predicted_motion(simulated(SETTINGS | {"loss": loss}), low=-1)
    if named is None:
        assert field is None
        return
    assert field is not None
    assert (field.loss, field.gamma, field.entanglement) == (named, 0.5, 0.4)
    assert len(field.s_ap) == len(field.s_an) == len(field.change_ap) == len(field.change_an[0]) == 20
    assert -1 < field.s_ap[0] < -0.9
    # Where positive and negative are equally similar and far, the positive comes nearer.
    assert field.change_ap[10][10] > 0
    unnormalised = SETTINGS | {"loss": loss, "model": {"name": "linear", "normalize": False}}
    assert (predicted_motion(simulated(unnormalised)) is None) == (named == "vanilla")
