"""A text network is trained end to end: from its pretrained start, bit for bit after a kill, then without a source."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from tests.commands.conftest import Call
from tests.small_texts import WIDTH, text_network, texts_file
from tests.training.runs import check_same_run

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.commands.search.options import SearchOptions
from trivet.commands.search.run import search_folder
from trivet.commands.train.run import resume, train
from trivet.models import TextEmbedder, load_model
from trivet.training.config import RunConfig
from trivet.training.trainer import Trainer


def settings(folder: Path, **model: Any) -> RunConfig:
    values = {
        "data": {"name": "texts", "path": str(texts_file(folder / "texts.csv"))},
        "batch": {"num_classes": 3, "samples_per_class": 3},
        "model": {"name": f"text:{text_network(folder / 'network', length=9)}", **model},
        "loss": {"name": "triplet", "positives": "random", "negatives": "hard", "margin": 1.0},
        "training": {"steps": 6, "learning_rate": 0.01, "checkpoint_every": 2, "log_every": 1},
        "evaluation": {"nmi_plus": 2, "map_points": 10},
    }
    return RunConfig.parse(values, source="settings")


def columns(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pyarrow.parquet.read_table(path).to_pydict()
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose pretrained network is gone."""
    folder = tmp_path_factory.mktemp("whole")
    train(settings(folder), folder / "run")
    shutil.rmtree(folder / "network")
    return folder / "run"


@pytest.mark.usefixtures("unevaluated")
def test_a_killed_run_with_dropout_and_workers_ends_with_the_same_weights(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path)
    workers = config.training.model_copy(update={"workers": 2})
    after_step = Trainer._after_step

    def until_killed(self: Trainer) -> None:
        after_step(self)
        if self.state.learner.step == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", until_killed)
        with pytest.raises(RuntimeError, match="killed"):
            train(config.model_copy(update={"training": workers}), tmp_path / "run")
    resume(tmp_path / "run")
    check_same_run(run, tmp_path / "run")


def test_the_record_compares_with_the_pretrained_network_once_and_with_ngrams(tmp_path: Path) -> None:
    config = settings(tmp_path)
    still = config.training.model_copy(update={"learning_rate": 1e-30, "steps": 1})
    record = train(config.model_copy(update={"training": still}), tmp_path / "run")
    rows = record.evaluation["unseen"]
    assert len(rows) == 3
    assert [row.name for row in rows[1:]] == ["zero-shot backbone", "raw inputs"]
    trained, before, raw = (row.levels["intent"]["recall@1"] for row in rows)
    assert trained == before
    assert record.settings["model"]["embedding_dim"] == WIDTH
    assert record.settings["model"]["max_tokens"] == 9
    assert 0 < raw < 1
    kept = columns(tmp_path / "run" / "embeddings" / "unseen.parquet")
    assert kept["text"][:2] == ["is", "is my"]


def test_a_run_embeds_evaluates_and_searches_texts_without_the_folder_it_began_from(run: Path, tmp_path: Path) -> None:
    record = evaluate_run(run)
    assert record.status == "finished"
    assert any("cannot be made again: model.name must name a folder that exists" in one for one in record.warnings)
    (tmp_path / "new.csv").write_text("text,more\ncard lost,1\nunheard rent,2\n")
    embed_data(run, str(tmp_path / "new.csv"), tmp_path / "new.parquet")
    new = columns(tmp_path / "new.parquet")
    assert new["text"] == ["card lost", "unheard rent"]
    model = load_model(run / "model")
    assert isinstance(model, TextEmbedder)
    mine = model(model.tokens(["card lost", "unheard rent"])).detach().numpy()
    assert np.array(new["embedding"]) == pytest.approx(mine, abs=1e-6)

    make_index(IndexOptions(run, tmp_path / "index"))
    kept = columns(run / "embeddings" / "unseen.parquet")
    result = search_folder(SearchOptions(tmp_path / "index", text=kept["text"][4], k=1))
    result.save(tmp_path / "page.html")
    (nearest,) = result.record.as_json()["queries"][0]["neighbours"]
    same = [id for id, text in zip(kept["id"], kept["text"], strict=True) if text == kept["text"][4]]
    assert nearest["id"] in same
    assert nearest["distance"] == pytest.approx(0, abs=1e-5)
    assert kept["text"][4] in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("data", ["digits", "."])
def test_a_run_on_texts_embeds_nothing_else(run: Path, tmp_path: Path, data: str) -> None:
    with pytest.raises(ValueError, match="a network of texts takes texts"):
        embed_data(run, data, tmp_path / "out.parquet")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('name = "digits"', "needs texts: 'digits' has"),
        ('name = "texts"\npath = "texts.csv"', "that exists"),
    ],
)
def test_what_cannot_be_trained_ends_in_one_sentence_and_writes_nothing(
    data: str, message: str, tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts_file(tmp_path / "texts.csv")
    Path("x.toml").write_text(f'[data]\n{data}\n[model]\nname = "text:./gone"\n[loss]\nname = "triplet"\n')
    code, _, err = run_command("train", "x.toml")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "runs").exists()
