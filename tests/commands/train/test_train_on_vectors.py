"""`trivet train --vectors` and `--texts`: one command from a file to a report, and one sentence for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call

from trivet.training.config import RunConfig

KINDS = tuple(f"k{i:02d}" for i in range(16))
SMALL = [f"--set={one}" for one in ("training.steps=4", "evaluation.every=2", "evaluation.map_points=20")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIVET_DATA", str(tmp_path))
    kinds = np.repeat(np.array(KINDS), 4)
    vectors = np.random.default_rng(0).standard_normal((len(kinds), 6)).astype(np.float32)
    np.savez("named.npz", embeddings=vectors, kind=kinds)
    rows = [f"what is {kind} {'abcd'[i % 4]},{kind}" for i, kind in enumerate(kinds.tolist())]
    Path("asked.csv").write_text("text,kind\n" + "".join(f"{row}\n" for row in rows))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_texts_reach_a_report_that_shows_them(run_command: Call) -> None:
    train = ("train", "--texts", "asked.csv", "--labels", "kind", "--json", *SMALL)
    code, out, err = run_command(*train)
    assert code == 0
    result = json.loads(out)
    assert result["run"] == "runs/asked"
    assert list(result["splits"]) == ["unseen", "validation"]
    assert "that begins as the vectors themselves, 4 steps; the step is chosen by one of 4 folds" in err
    config = RunConfig.read(Path("runs/asked/config.toml"))
    assert (config.data.folds, config.choosing.keep, config.batch.num_classes) == (4, "best", 6)
    assert "what is k" in Path("runs/asked/report.html").read_text()
    # New texts, without labels, by the n-grams of the texts that were trained on.
    Path("new.csv").write_text("text\nwhat is k00 a\nwhere is k03\n")
    embed = ("embed", "runs/asked", "new.csv", "--output", "new.parquet", "--json")
    code, out, _ = run_command(*embed)
    assert (code, json.loads(out)["items"], json.loads(out)["columns"]) == (0, 2, ["id", "text", "embedding"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--vectors", "named.npz", "--labels", "kinds"], "has no 'kinds'; did you mean 'kind'?"),
        (["--vectors", "named.npz", "--texts", "asked.csv"], "--resume RUN: got 2 of them."),
        (["--vectors", "named.npz", "--encoder", "mini"], "--encoder makes vectors of texts"),
        (["--vectors", "none.npz"], "none.npz does not exist"),
        (["--vectors", "asked.csv"], "must be a .npz, .npy or .parquet file"),
        (["--vectors", "named.npz", "--set", "model.name=conv4"], "conv4 takes images"),
        (["--vectors", "named.npz", "--folds", "17"], "data.folds must be at most the number of training classes"),
        (["--texts", "asked.csv", "--labels", "text"], "must be a different column from the texts"),
        (["--texts", "named.npz"], "texts must be in a file .csv, .tsv"),
        (["--resume", ".", "--vectors", "named.npz"], "leave out --vectors"),
        ([], "train needs one of a settings file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_sentence_and_writes_nothing(arguments: list[str], sentence: str, run_command: Call) -> None:
    code, out, err = run_command("train", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("trivet: ")
    assert not Path("runs").exists()
