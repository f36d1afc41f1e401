"""`loss.prefixes`: trained at each prefix, and each is measured beside what was there before."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pydantic_core import to_jsonable_python
from tests.training.runs import record_of, write_vectors

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.record import RunSummary
from trivet.commands.train.run import train
from trivet.label_noise import loss_picks
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.metrics import retrieve
from trivet.runtime.json_numbers import as_json
from trivet.training import RunConfig
from trivet.training.components import Components, load_splits, make_loss
from trivet.training.dimension_check import check_width
from trivet.training.run_folder import RunFolder

ROWS = torch.nn.functional.normalize(torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
LABELS = torch.arange(8) % 3


def settings(loss: dict[str, Any], classes: int = 16, **model: Any) -> RunConfig:
    values = {"data": {"name": "digits", "level": "digit"}, "batch": {"num_classes": classes}}
    values |= {"model": {"embedding_dim": 6, **model}, "loss": {"name": "triplet", **loss}}
    return RunConfig.parse(values, source="x.toml")


def loss_of(loss: dict[str, Any], **model: Any) -> EmbeddingLoss | MatryoshkaLoss:
    config = settings(loss, **model)
    return make_loss(config.loss, config.model, 3, seed=config.seed)


def definition(rows: Sequence[Sequence[float]], lengths: Sequence[int], *, unit: bool, margin: float) -> float:
    """The mean hinge over all triplets of squared distances, added up over the prefixes, in plain Python."""
    total = 0.0
    for length in lengths:
        cut = [[x / (math.hypot(*row[:length]) if unit else 1) for x in row[:length]] for row in rows]
        total += fmean(
            max(0.0, math.dist(cut[a], cut[p]) ** 2 - math.dist(cut[a], cut[n]) ** 2 + margin)
            for a, p, n in product(range(len(rows)), repeat=3)
            if a != p and a % 3 == p % 3 != n % 3
        )
    return total


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("prefixes", [[2, 4], [2, 4, 6]], ids=["the whole always counts", "and may be listed"])
def test_the_loss_is_the_sum_over_the_prefixes_and_the_whole(prefixes: list[int], unit: bool) -> None:
    every = {"positives": "all", "negatives": "all", "margin": 0.3}
    loss = loss_of({"prefixes": prefixes, **every}, normalize=unit)
    want = definition(ROWS.tolist(), (2, 4, 6), unit=unit, margin=0.3)
    assert loss(ROWS, LABELS).item() == pytest.approx(want, rel=1e-9)


def test_the_whole_draws_and_learns_what_it_does_without_prefixes() -> None:
    for loss in ({"name": "arcface"}, {"positives": "random", "negatives": "random"}):
        cut, plain = (loss_of(loss | extra) for extra in ({"prefixes": [2]}, {}))
        assert isinstance(cut, MatryoshkaLoss)
        whole = of_batch(cut)
        assert of_batch(plain) is plain
        states = whole.state_dict(), plain.state_dict()
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
        cut.double()(ROWS, LABELS)
        plain.double()(ROWS, LABELS)
        assert whole.last is not None
        assert cut.last is whole.last
        if loss.get("name") == "arcface":
            assert [group["params"][0].shape for group in cut.optimizer_groups()] == [(3, 2), (3, 6)]
        else:
            picks = [as_json(loss_picks(of_batch(one), ROWS, LABELS)) for one in (cut, plain)]
            assert picks[0] == picks[1]


@pytest.mark.parametrize(
    ("prefixes", "said"),
    [
        ([4, 2], "loss: prefixes must be ascending, each length once: got [4, 2]; sort them."),
        ([2, 2], "loss: prefixes must be ascending, each length once: got [2, 2]"),
        ([2, 7], "loss.prefixes must not be longer than an embedding, model.embedding_dim = 6: got 7; leave it out"),
        ([0, 2], "loss.prefixes.0 must be above 0: got 0"),
        ([], "loss.prefixes = [] cannot be used"),
        ([2.5], "loss.prefixes.0 must be a whole number: got 2.5"),
    ],
)
def test_what_cannot_be_used(prefixes: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=r"^x\.toml: ") as error:
        settings({"prefixes": prefixes})
    assert said in str(error.value)


def test_a_prefix_that_is_too_narrow_for_the_batch_is_told() -> None:
    config = settings({"margin": 2.0, "prefixes": [2, 4]}, classes=5, name="linear", embedding_dim=32)
    parts = Components(config, load_splits(config, None, None))
    assert "2 dimensions have room for 4; raise loss.prefixes" in str(check_width(parts))


RUN: dict[str, Any] = {
    "seed": 3,
    "batch": {"num_classes": 3, "samples_per_class": 4},
    "model": {"name": "mlp", "embedding_dim": 6, "width": 16},
    "loss": {"name": "margin", "positives": "random", "prefixes": [2, 4]},
    "training": {"steps": 8, "checkpoint_every": 5, "accelerator": "cpu", "log_every": 1},
    "evaluation": {"every": 4, "map_points": 10, "nmi_plus": 2, "k": [1, 2], "distance": "cosine"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefixes")
    write_vectors(folder / "vectors.npz", 120, 5)
    data = {"name": "vectors", "path": str(folder / "vectors.npz")}
    train(RunConfig.parse({**RUN, "data": data}, source="test"), folder / "run")
    return folder / "run"


def test_each_prefix_is_measured_beside_that_of_the_network_before_and_of_the_vectors(finished: Path) -> None:
    table = pq.read_table(finished / "embeddings" / "unseen.parquet").to_pydict()
    rows, labels = np.array(table["embedding"]), np.unique(table["label"], return_inverse=True)[1]
    two, four = record_of(finished)["prefixes"]["unseen"]
    assert (two["prefix"], four["prefix"]) == (2, 4)
    assert [row["name"] for row in four["evaluated"]] == ["trained", "untrained network", "raw inputs"]
    for cut in (two, four):
        measures = ["recall@1", "recall@2", "r-precision", "map@r", "map", "mrr"]
        want = retrieve(rows[:, : cut["prefix"]], labels, measures=measures, distance="cosine").mean()
        assert cut["evaluated"][0]["levels"]["label"] == pytest.approx(want)
        compared = {one["reference"]: one["reference_recall"] for one in cut["comparisons"]["label"]}
        others = {row["name"]: row["levels"]["label"]["recall@1"] for row in cut["evaluated"][1:]}
        assert compared == pytest.approx(others)
    vectors = np.load(finished.parent / "vectors.npz")
    kept = np.isin(vectors["label"], np.unique(table["label"]).astype(int))
    raw = retrieve(vectors["embeddings"][kept][:, :2], vectors["label"][kept], distance="cosine").mean()
    assert others.keys() == {"untrained network", "raw inputs"}
    assert two["evaluated"][2]["levels"]["label"]["recall@1"] == pytest.approx(raw["recall@1"])


def test_prefixes_are_evaluated_again(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    shutil.rmtree(path / "embeddings")
    prefixes = evaluate_run(path).prefixes
    assert to_jsonable_python(prefixes, by_alias=True) == record_of(finished)["prefixes"]


def test_the_page_and_the_json_show_prefixes(finished: Path) -> None:
    found = RunFolder(finished).record()
    assert found is not None
    page = (finished / "report.html").read_text()
    for name in ("trained, first 2", "trained, first 4", "untrained network, first", "raw inputs, first 4"):
        assert name in page
    assert RunSummary.of(found, finished).prefixes == found.prefixes
