"""`trivet train PATH` of vectors and texts: what is held out, what new items take, and one sentence for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call
from tests.training.runs import known_classes, record_of

from trivet.commands.train import candidates
from trivet.commands.train.ladder import validation_folds
from trivet.datasets import DataConfig, load
from trivet.reports.ladder_record import LadderRecord

pytestmark = pytest.mark.usefixtures("undiagnosed")

ROUGH = ("--set=evaluation.map_points=20", "--set=evaluation.nmi_plus=1", "--set=evaluation.k=[1]")
ENCODER = '--set=ladder.rungs=["encoder"]'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIVET_DATA", str(tmp_path))
    kinds = np.repeat([f"k{i:02d}" for i in range(16)], 4)
    vectors = np.random.default_rng(0).standard_normal((len(kinds), 6)).astype(np.float32)
    np.savez("named.npz", embeddings=vectors, kind=kinds)
    rows = [f"what is {kind} {'abcd'[i % 4]},{kind}" for i, kind in enumerate(kinds.tolist())]
    Path("asked.csv").write_text("text,kind\n" + "".join(f"{row}\n" for row in rows))
    Path("run.toml").write_text('[data]\nname = "vectors"\npath = "named.npz"\n[ladder]\nrungs = ["encoder"]\n')
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_texts_reach_a_report_that_shows_them_and_a_run_that_embeds_others(run_command: Call) -> None:
    code, out, err = run_command("train", "asked.csv", "--labels", "kind", "--json", ENCODER, *ROUGH)
    assert code == 0, err
    result = json.loads(out)
    assert (result["run"], list(result["splits"])) == ("runs/asked", ["unseen"])
    assert "what is k" in Path("runs/asked/report.html").read_text()
    # New texts, without labels, by the n-grams of the texts that were trained on.
    Path("new.csv").write_text("text\nwhat is k00 a\nwhere is k03\n")
    code, out, _ = run_command("embed", "runs/asked", "new.csv", "--output", "new.parquet", "--json")
    assert (code, json.loads(out)["items"], json.loads(out)["columns"]) == (0, 2, ["id", "text", "embedding"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["named.npz", "--labels", "kinds"], "--labels = 'kinds' is not known; did you mean 'kind'?"),
        (["none.npz"], "none.npz does not exist"),
        (["named.npz", "--text", "kind"], "--text names the column of texts of a table: named.npz holds vectors"),
        (["asked.csv", "--text", "kind", "--labels", "kind"], "must be a different column from the texts"),
        (["asked.csv", "--labels", "asked.csv"], "--labels names a column of your data: got the file asked.csv"),
        (["named.npz", "--set", "model.name=conv4"], "the section [model] is of a single run, and a ladder chooses it"),
        (["named.npz", "--folds", "4"], "a ladder holds out a fold of its own: leave out --folds"),
        (["run.toml", "--folds", "4"], "a ladder holds out a fold of its own: leave out --folds"),
        (["run.toml", "--minutes", "4"], "a settings file says is changed with --set: leave out --minutes"),
        (["--resume", ".", "named.npz"], "leave out the settings or data"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_sentence_and_writes_nothing(arguments: list[str], sentence: str, run_command: Call) -> None:
    code, out, err = run_command("train", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("trivet: ")
    assert not Path("runs").exists()


@pytest.mark.usefixtures("folder")
def test_other_commands_name_the_settings_of_the_run_that_it_makes(run_command: Call) -> None:
    for command in ("forecast", "sweep"):
        code, _, err = run_command(command, "run.toml")
        assert (code, "for trivet train FILE" in err, "give config.toml of the run that it makes" in err) == (2, 1, 1)
    assert run_command("train", "run.toml", *ROUGH)[0] == 0
    code, _, err = run_command("train", "runs/run/config.toml", "-o", "again", *ROUGH)
    assert code == 0, err


@pytest.mark.parametrize("kind", ["vectors", "texts"])
@pytest.mark.parametrize(("same", "expected"), [(True, (5, 1, "items")), (False, (2, 2, "classes"))])
def test_what_is_held_out_is_as_the_queries_are(
    tmp_path: Path, kind: str, same: bool, expected: tuple[int, int, str]
) -> None:
    path = known_classes(tmp_path, same=same).with_suffix(".npz" if kind == "vectors" else ".csv")
    data = {"name": kind, "path": str(path), "levels": ["kind"]}
    assert validation_folds(load(DataConfig.parse(data, source="test"), None)) == expected


@pytest.mark.usefixtures("folder")
def test_a_head_that_helps_queries_of_trained_classes_is_the_result(
    run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "HEAD_STEPS", {40: 2e-2})
    known_classes(tmp_path, each=21)
    code, out, err = run_command("train", "known.npz", '--set=ladder.rungs=["head"]', *ROUGH)
    assert code == 0, err
    record = record_of(Path("runs/known"))
    ladder = LadderRecord.read(record["ladder"])
    assert (ladder.folds_of, ladder.result) == ("items", "the vectors, head of 40 steps")
    trained, raw = ({e["name"]: e for e in record["evaluation"]["seen"]}[name] for name in ("trained", "raw inputs"))
    assert trained["levels"]["kind"]["recall@1"] > raw["levels"]["kind"]["recall@1"] + 0.1
    assert "on known classes" in " ".join(out.split())
