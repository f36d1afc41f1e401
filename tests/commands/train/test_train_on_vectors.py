"""`trivet train --vectors` and `--texts`: one command from a file to a report, and one sentence for each mistake."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call

from trivet.commands.train.train_on_vectors import head_settings
from trivet.training.checkpoint_selection import make_selection
from trivet.training.components import load_splits
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
        (["--vectors", "asked.csv"], "asked.csv must hold the embeddings as lists of numbers"),
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


def known_classes(folder: Path, *, each: int = 12, same: bool = True) -> Path:
    """Vectors whose class lies in 4 of 16 numbers; the split test has the classes of train, or others."""
    draw = np.random.default_rng(0)
    kinds = np.tile(np.arange(20), each)
    parts = np.repeat(["train", "test"], [20 * each * 2 // 3, 20 * each - 20 * each * 2 // 3])
    vectors = np.where(np.arange(16) < 4, 0.3, 0.8) * draw.normal(size=(len(kinds), 16))
    vectors[:, :4] += draw.normal(size=(20, 4))[kinds]
    names = np.where((parts == "test") & (not same), "z", "k") + kinds.astype("U2").astype(object)
    path = folder / "known.npz"
    np.savez(path, embeddings=vectors.astype(np.float32), kind=names.astype("U3"), split=parts)
    texts = [f"{name} said so {i}" for i, name in enumerate(names)]
    lines = (",".join(row) for row in zip(texts, names, parts.tolist(), strict=True))
    (folder / "known.csv").write_text("\n".join(["text,kind,split", *lines]) + "\n")
    return path


@pytest.mark.parametrize("kind", ["vectors", "texts"])
@pytest.mark.parametrize(
    ("same", "changes", "expected"),
    [
        (True, [], (5, "items", "best")),
        (False, [], (4, "classes", "best")),
        (True, ["data.folds_of=classes"], (4, "classes", "best")),
        (True, ["data.folds=0"], (0, "classes", "last")),
        (True, ["data.folds=3"], (3, "classes", "best")),
        (True, ["data.folds=3", "data.folds_of=items"], (3, "items", "best")),
    ],
    ids=str,
)
def test_the_step_is_chosen_by_what_queries_are(
    tmp_path: Path, kind: str, same: bool, changes: list[str], expected: tuple[int, str, str]
) -> None:
    path = known_classes(tmp_path, same=same).with_suffix(".npz" if kind == "vectors" else ".csv")
    settings, summary = head_settings({"name": kind, "path": str(path), "levels": ["kind"]}, changes)
    assert (settings.data.folds, settings.data.folds_of, settings.choosing.keep) == expected
    assert ("as the queries are of trained classes" in summary) == (expected[1] == "items")
    splits = load_splits(settings, None)
    assert any("chooses by items of these" in line for line in splits.warnings) == (changes == ["data.folds=3"])
    held_out = splits.evaluation.get("validation")
    assert (held_out is not None) == (expected[0] > 0)
    if held_out is not None:
        shared = set(held_out.labels["kind"]) & set(splits.train.labels["kind"])
        assert bool(shared) == (expected[1] == "items")
        assert not set(held_out.ids) & set(splits.train.ids)


@pytest.mark.usefixtures("folder")
def test_a_head_that_helps_queries_of_trained_classes_is_kept(run_command: Call, tmp_path: Path) -> None:
    known_classes(tmp_path, each=30)
    quick = ("training.steps=80", "training.learning_rate=0.01", "evaluation.map_points=20", "evaluation.k=[1]")
    code, out, _ = run_command("train", "--vectors", "known.npz", *(f"--set={one}" for one in quick))
    assert code == 0
    record = json.loads(Path("runs/known/record.json").read_text())
    trained, raw = ({e["name"]: e for e in record["evaluation"]["seen"]}[name] for name in ("trained", "raw inputs"))
    assert trained["levels"]["kind"]["recall@1"] > raw["levels"]["kind"]["recall@1"] + 0.1
    assert record["choosing"]["step"] > 0
    assert "how it does on new ones was not measured" in Path("runs/known/report.html").read_text()
    (command,) = re.findall(r"how it does on new ones was not measured: trivet (.*?) does\.", " ".join(out.split()))
    code, _, err = run_command(*shlex.split(command), "--set=training.steps=2", "--set=evaluation.every=2")
    assert code == 0, err
    counts = json.loads(Path("runs/known-classes/record.json").read_text())["data"]["evaluation"]["validation"]
    assert (counts["trained_classes"]["kind"], counts["classes"]["kind"] > 1) == (0, True)


@pytest.mark.parametrize(("each", "alone"), [(6, True), (30, False)])
def test_held_out_items_that_are_alone_are_looked_for_among_the_training_items(
    tmp_path: Path, each: int, alone: bool
) -> None:
    path = known_classes(tmp_path, each=each)
    settings, _ = head_settings({"name": "vectors", "path": str(path), "levels": ["kind"]})
    splits = load_splits(settings, None)
    selection = make_selection(settings.choosing, settings.evaluation, splits, seed=0)
    assert (selection.known is not None) == alone
    assert (settings.data.folds, settings.data.folds_of) == (5, "items")


def test_folds_that_cannot_be_say_what_can(tmp_path: Path) -> None:
    data = {"name": "vectors", "path": str(known_classes(tmp_path, each=3)), "levels": ["kind"]}
    with pytest.raises(ValueError, match="0 to hold none out: got 1"):
        head_settings(data, ["data.folds=1"])
    with pytest.raises(ValueError, match=r"at least 4, .* set data.folds_of = \"classes\", or data.folds = 0"):
        head_settings(data, ["data.folds=2", "data.folds_of=items"])
    for remedy in (["data.folds_of=classes"], ["data.folds=0"]):
        assert head_settings(data, remedy)[0]


@pytest.mark.usefixtures("folder")
def test_a_run_that_holds_nothing_out_says_what_to_do(run_command: Call, tmp_path: Path) -> None:
    known_classes(tmp_path)
    assert run_command("init", "known.npz", "--labels", "kind")[0] == 0
    short = ("training.steps=2", "training.warmup_steps=0", "evaluation.every=2", "evaluation.map_points=20")
    train = ("train", "trivet.toml", *(f"--set={one}" for one in short), "--set", "data.folds=0")
    code, _, err = run_command(*train)
    assert (code, 'or choosing.keep = "last"' in err) == (2, True)
    assert run_command(*train, "--set", "choosing.keep=last")[0] == 0
