"""Runs with a network for each side of pairs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from tests.commands.conftest import Call
from tests.small_texts import WORDS, text_network
from tests.training.runs import check_same_run

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.models import SidedBatch, Towers, load_model
from trivet.training.components import first_task, load_splits
from trivet.training.config import RunConfig, resolved
from trivet.training.loop import fit
from trivet.training.trainer import Trainer


def words(folder: Path) -> Path:
    """60 questions of three words, and the same words the other way round as answers."""
    known, path = WORDS[4:], folder / "faq.csv"
    rows = [(known[i % 13], known[(3 * i + 1) % 13], known[(i // 5) % 13]) for i in range(60)]
    lines = [f"{' '.join(row)},{' '.join(reversed(row))} due" for row in dict.fromkeys(rows)]
    path.write_text("\n".join(["question,answer", *lines]) + "\n")
    return path


def settings(folder: Path, **sections: Any) -> RunConfig:
    if not (folder / "network").exists():
        text_network(folder / "network", length=9)
    values = {
        "data": {"name": "pairs", "path": str(words(folder)), "towers": "separate"},
        "batch": {"size": 16},
        "model": {"name": f"text:{folder / 'network'}"},
        "loss": {"name": "supcon", "temperature": 0.1},
        "training": {"steps": 6, "learning_rate": 0.01, "checkpoint_every": 2, "log_every": 1, "accelerator": "cpu"},
        "evaluation": {"map_points": 10, "distance": "cosine"},
    }
    return RunConfig.parse({**values, **sections}, source="x")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose pretrained network is gone."""
    folder = tmp_path_factory.mktemp("towers")
    train(settings(folder), folder / "run")
    shutil.rmtree(folder / "network")
    return folder / "run"


def test_both_networks_learn(run: Path) -> None:
    model = load_model(run)
    assert isinstance(model, Towers)
    mine, its = model.left.state_dict(), model.right.state_dict()
    assert any(not torch.equal(mine[name], its[name]) for name in mine)


@pytest.mark.usefixtures("unevaluated")
def test_a_killed_run_ends_with_the_same_weights(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(tmp_path)
    after_step = Trainer._after_step

    def killed(self: Trainer) -> None:
        after_step(self)
        if self.state.learner.step == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_after_step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            train(config, tmp_path / "run")
    resume(tmp_path / "run")
    for side in ("left", "right"):
        name = f"model/{side}/model.safetensors"
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes()
    check_same_run(tmp_path / "run", run)


def check_run_index(run: Path, index: Path, run_command: Call, every: int = 1) -> None:
    """The index of a run has the items of the searched side, once each, and the answer of an item is its partner."""
    rows = pq.read_table(run / "embeddings" / "test.parquet").to_pylist()
    for options, side, texts in (
        ((), "right", "question"),
        (("--split", "test"), "right", "question"),
        (("--side", "left"), "left", "answer"),
        (("--split", "test-reversed"), "left", "answer"),
    )[::every]:
        assert run_command("index", run, "-o", index, "--force", *options)[0] == 0
        about = json.loads((index / "index.json").read_text())["about"]
        assert (about["side"], about["levels"], about.get("level")) == (side, [], None)
        indexed = pq.read_table(index / "items.parquet").to_pylist()
        assert {*indexed[0]} == {"id", "split"}
        wanted = {row["id"]: row for row in rows if row["pair"].startswith(side)}
        assert sorted(row["id"] for row in indexed) == sorted(wanted)
        query = next(row for row in rows if row["side"] == texts)
        code, output, _ = run_command("search", index, "--text", query["text"], "--k", 3, "--json")
        assert code == 0
        near = json.loads(output)["queries"][0]["neighbours"]
        similar = {id: float(np.dot(query["embedding"], row["embedding"])) for id, row in wanted.items()}
        assert [similar[each["id"]] for each in near] == pytest.approx(sorted(similar.values())[:-4:-1], abs=1e-5)


def test_each_side_embeds_and_is_searched(run: Path, tmp_path: Path, run_command: Call) -> None:
    texts, index = tmp_path / "texts.csv", tmp_path / "index"
    texts.write_text("text\nlost card\ntop up\npay rent again\n")
    made = {}
    for side in ("left", "right"):
        embed_data(run, str(texts), tmp_path / f"{side}.parquet", side=side)
        made[side] = np.stack(pq.read_table(tmp_path / f"{side}.parquet")["embedding"].to_numpy())
    model = load_model(run)
    assert isinstance(model, Towers)
    np.testing.assert_allclose(made["left"], model.left.embed(["lost card", "top up", "pay rent again"]), rtol=1e-5)
    assert not np.allclose(made["left"], made["right"])
    code, _, error = run_command("embed", run, texts, "-o", tmp_path / "x.parquet")
    assert code == 2
    assert "both take texts: say whose items these are with --side left or --side right" in error

    # A question is embedded by the network of questions where answers are searched, and the other way round.
    for side, query in (("right", model.left), ("left", model.right)):
        assert run_command("index", tmp_path / f"{side}.parquet", "--run", run, "-o", index, "--force")[0] == 0
        code, output, _ = run_command("search", index, "--text", "top up again", "--k", 1, "--json")
        assert code == 0
        (row,) = query.embed(["top up again"])
        (found,) = json.loads(output)["queries"][0]["neighbours"]
        assert found["row"] == int(np.argmax(made[side] @ row))
        assert found["distance"] == pytest.approx(1 - float((made[side] @ row).max()), abs=1e-5)

    check_run_index(run, index, run_command)
    before = json.loads((run / "record.json").read_text())["evaluation"]
    record = evaluate_run(run)
    for split, rows in before.items():
        assert record.evaluation[split][0].levels["pair"]["recall@1"] == rows[0]["levels"]["pair"]["recall@1"]


def test_side_is_for_two_networks(run_command: Call, tmp_path: Path) -> None:
    config = settings(tmp_path, data={"name": "pairs", "path": str(words(tmp_path))}, training={"steps": 0})
    train(config, tmp_path / "one")
    code, _, error = run_command("embed", tmp_path / "one", tmp_path / "faq.csv", "--side", "left", "-o", "x.parquet")
    assert code == 2
    assert "--side is for a run with a network of each side" in error
    check_run_index(tmp_path / "one", tmp_path / "index", run_command, every=2)  # a side by default, and the other


def test_an_index_of_a_side_is_of_pairs(run: Path, run_command: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", embeddings=np.eye(3))
    code, _, error = run_command("index", tmp_path / "some.npz", "--side", "left", "-o", tmp_path / "index")
    assert code == 2
    assert "--side is for items of pairs: " in error
    table = pq.read_table(run / "embeddings" / "test.parquet").drop(["is_query", "is_gallery", "is_junk"])
    pq.write_table(table.filter(pc.equal(table["side"], "question")), tmp_path / "questions.parquet")
    arguments = ("index", tmp_path / "questions.parquet", "-o", tmp_path / "index")
    code, _, error = run_command(*arguments, "--side", "right")
    assert code == 2
    assert "has none on the right; leave --side out" in error
    assert run_command(*arguments)[0] == 0


def test_micro_batches_are_those_of_the_whole(tmp_path: Path) -> None:
    model = {"name": f"text:{tmp_path / 'network'}", "dropout": False}
    weights = []
    for micro in (None, 3):
        training = {"steps": 2, "optimizer": "sgd", "learning_rate": 0.1, "accelerator": "cpu"}
        config = resolved(settings(tmp_path, model=model, batch={"size": 16, "micro": micro}, training=training))
        splits = load_splits(config, None)
        learner, batches = first_task(config, splits.train, splits.level, steps=2)
        inputs, _ = next(iter(batches))
        assert isinstance(inputs, SidedBatch)
        assert {*map(len, inputs.sides)} == {8}
        assert fit(learner, batches)
        weights.append(learner.model.state_dict())
    for name, values in weights[0].items():
        torch.testing.assert_close(values, weights[1][name], rtol=1e-3, atol=1e-4)


def test_a_network_that_stays_has_features_and_the_other_learns(tmp_path: Path) -> None:
    """Its own prefix, too."""
    text = {"name": f"text:{tmp_path / 'network'}", "embedding_dim": 8}
    model = {
        "name": "towers",
        "embedding_dim": 8,
        "left": {**text, "freeze": "all", "head": "linear", "prefix": "where is "},
        "right": text,
    }
    config = resolved(settings(tmp_path, model=model))
    splits = load_splits(config, None)
    learner, batches = first_task(config, splits.train, splits.level, steps=2)
    inputs, _ = next(iter(batches))
    assert isinstance(inputs, SidedBatch)
    assert [side.dtype for side in inputs.sides] == [torch.float32, torch.int64]
    before = {name: values.clone() for name, values in learner.model.state_dict().items()}
    assert fit(learner, batches)
    changed = {name for name, values in learner.model.state_dict().items() if not torch.equal(values, before[name])}
    assert {name for name in changed if name.startswith("body.left")} == {
        "body.left.body.1.weight",
        "body.left.body.1.bias",
    }
    assert any(name.startswith("body.right") for name in changed)


def test_settings_that_do_not_fit_the_sides(tmp_path: Path) -> None:
    sides = {"left": {"name": "linear"}, "right": {"name": "linear"}}
    with pytest.raises(ValueError, match=r"data\.name = 'digits' has no sides; name one network"):
        settings(tmp_path, data={"name": "digits"}, model={"name": "towers", **sides})
    with pytest.raises(ValueError, match=r"model\.left\.name = 'timm:resnet18' needs images: the side has texts"):
        settings(tmp_path, model={"name": "towers", **sides, "left": {"name": "timm:resnet18"}})


def test_the_network_of_a_side_is_exported(run: Path, tmp_path: Path, run_command: Call) -> None:
    code, _, error = run_command("export", run, "--to", "safetensors", "-o", tmp_path / "model")
    assert code == 2
    assert "say which is to be written with --side left or --side right" in error
    code, output, _ = run_command("export", run, "--to", "safetensors", "--side", "right", "-o", tmp_path / "model")
    assert code == 0
    assert "of test: the largest difference" in output
    expected = load_model(run)
    assert isinstance(expected, Towers)
    texts = ["top up", "lost card again"]
    assert (load_model(tmp_path / "model").embed(texts) == expected.right.embed(texts)).all()
