"""A data set with queries and a gallery, trained on, evaluated, embedded and evaluated again from the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.run import evaluate_files
from trivet.commands.train.run import train
from trivet.config import trusted_code
from trivet.datasets import DataConfig, Dataset, Splits, in_memory, load
from trivet.metrics import QueryGallery, evaluate
from trivet.training.class_sample import evaluation_sample
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import raw_inputs

pytestmark = pytest.mark.usefixtures("few_pairs")

PEOPLE = '''
import numpy as np

from trivet.datasets import Dataset, Splits, in_memory
from trivet.metrics import QueryGallery


def people(*, answered: bool = True) -> Splits:
    """Noisy pictures of people: 0-3 trained on, 4-7 asked for, 8 a crowd that nobody asks for, one item junk."""
    generator = np.random.default_rng(0)
    person = np.repeat(np.arange(9), 12)
    pixels = generator.integers(0, 256, (9, 1, 6, 6))[person] + generator.normal(0, 90, (len(person), 1, 6, 6))
    whole = Dataset(
        name="people",
        inputs=in_memory(pixels.clip(0, 255).astype(np.uint8)),
        labels={"person": person},
        names={"person": tuple(f"p{i}" for i in range(9))},
        ids=tuple(f"item {i}" for i in range(len(person))),
        columns={"place": tuple("ab"[i % 2] for i in range(len(person)))},
    )
    kept = np.flatnonzero(person >= 4)
    held_out = whole.subset(kept)
    number = np.arange(len(kept)) % 12
    query = (number < 3) & (held_out.labels["person"] < 8)
    gallery = (number >= 3) if answered else (number >= 3) & (held_out.labels["person"] != 5)
    junk = number == 11
    protocol = QueryGallery(query, gallery, junk, cameras=number % 3)
    from dataclasses import replace

    return Splits(whole.subset(np.flatnonzero(person < 4)), {"unseen": replace(held_out, protocol=protocol)}, "person")
'''


@pytest.fixture(scope="module", autouse=True)
def _code_of_this_test() -> Iterator[None]:
    with trusted_code():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    (folder / "people.py").write_text(PEOPLE)
    settings = {
        "data": {"name": f"python:{folder / 'people.py'}:people"},
        "model": {"name": "mlp", "embedding_dim": 8},
        "batch": {"num_classes": 4, "samples_per_class": 4},
        "loss": {"name": "triplet"},
        "training": {"steps": 4, "accelerator": "cpu"},
        "evaluation": {"nmi_plus": 2},
    }
    train(RunConfig.parse(settings, source="test"), folder / "run")
    return folder / "run"


def test_a_run_is_measured_by_the_protocol_of_its_data(run: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    counts = record["data"]["evaluation"]["unseen"]["protocol"]
    assert counts == {"queries": 12, "gallery": 40, "junk": 5, "cameras": True}
    splits = load(DataConfig.parse({"name": f"python:{run.parent / 'people.py'}:people"}, source="test"), None)
    held_out = splits.evaluation["unseen"]
    table = pq.read_table(run / "embeddings" / "unseen.parquet").to_pydict()
    assert table["place"] == list(held_out.columns["place"])
    points = np.array(table["embedding"])
    measured = {row["name"]: row["levels"]["person"] for row in record["evaluation"]["unseen"]}
    by_protocol = evaluate(**held_out.evaluation_arguments(points), measures=("recall@1", "map"))["person"]
    assert measured["trained"]["items"] == 12
    assert measured["trained"]["map"] == pytest.approx(by_protocol.mean()["map"])
    raw = evaluate(**held_out.evaluation_arguments(raw_inputs(held_out.inputs)), measures=("map",))
    assert measured["raw inputs"]["map"] == pytest.approx(raw["person"].mean()["map"])
    shown = {int(id.split()[1]) // 12 for id in record["maps"]["unseen"]["ids"]}
    assert shown == {4, 5, 6, 7}  # without the crowd


def test_what_embed_writes_is_evaluated_by_the_same_protocol(run: Path, tmp_path: Path) -> None:
    result = embed_data(run, f"python:{run.parent / 'people.py'}:people", tmp_path / "all.parquet")
    assert result["columns"] == [
        *("id", "person", "place", "is_query", "is_gallery", "is_junk", "camera", "split", "embedding")
    ]
    record = json.loads((run / "record.json").read_text())
    recorded = record["evaluation"]["unseen"][0]["levels"]["person"]
    for path in (tmp_path / "all.parquet", run):
        found = evaluate_files(EvaluateOptions([path], distance="euclidean"))[0].record.as_json(unset=False)
        assert found["protocol"]["queries"] == 12
        assert found["protocol"]["junk"] == 5
        assert found["protocol"]["same_camera_left_out"] is True
        assert found["evaluation"]["person"]["map"] == pytest.approx(recorded["map"])


def test_a_class_of_queries_without_answers_is_refused(run: Path) -> None:
    settings = DataConfig.parse({"name": f"python:{run.parent / 'people.py'}:people", "answered": False}, source="test")
    with pytest.raises(
        ValueError, match=r"each class of a query needs an item in the gallery of 'unseen': 'p5' \(1 of 4"
    ):
        load(settings, None)


def test_a_sample_for_training_keeps_whole_classes_that_are_asked_for() -> None:
    labels = np.repeat(np.arange(6), 5)
    query = np.arange(30) % 5 == 0
    query[25:] = False
    protocol = QueryGallery(query, ~query, np.zeros(30, bool))
    data = Dataset(
        "six",
        in_memory(np.zeros((30, 1, 2, 2), np.uint8)),
        {"class": labels},
        {"class": tuple("abcdef")},
        tuple(map(str, range(30))),
        protocol=protocol,
    )
    part = evaluation_sample(data, 12, seed=1)
    counts = np.bincount(part.labels["class"], minlength=6)
    assert sorted(counts.tolist()) == [0, 0, 0, 0, 5, 5]
    assert counts[5] == 0
    assert part.protocol is not None
    assert isinstance(Splits(data, {"test": part}, "class").evaluation["test"].protocol, QueryGallery)
