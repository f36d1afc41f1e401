"""`trivet train` and `trivet init` of pairs: both sides by their columns, groups held out, both directions measured."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands.conftest import Call

from trivet.commands.train import candidates as recipes

pytestmark = pytest.mark.usefixtures("rough_evaluation")


COLOURS = ["red rot", "blue blau", "green gruen", "black schwarz", "white weiss", "brown braun", "grey silbern"]
THINGS = ["circle kreis", "horse pferd", "tree baum", "house dach", "bird vogel", "stone fels", "cloud wolke"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """98 pairs of words that share few letters, which other pairs translate."""
    words = [(a.split(), b.split()) for a in COLOURS for b in THINGS]
    rows = [f"{a[0]} {b[0]}{mark},{a[1]} {b[1]}{mark}" for a, b in words for mark in ("", " small klein")]
    path = tmp_path / "words.csv"
    path.write_text("\n".join(["question,answer", *rows]) + "\n")
    return path


def test_pairs_are_trained_on_and_measured_in_both_directions(
    run_command: Call, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(recipes, "HEAD_STEPS", {60: 1e-2})
    code, output, _ = run_command(
        "train", table, "--pairs", "-o", run, "--minutes", 9, "--set=ladder.rungs=['encoder', 'head']"
    )
    assert code == 0
    assert "test-reversed" in output
    record = json.loads((run / "record.json").read_text())
    assert list(record["evaluation"]) == ["test", "test-reversed"]
    assert record["settings"]["data"]["name"] == "pairs"
    ladder = json.loads((run / "ladder.json").read_text())
    head = next(each for each in ladder["candidates"] if each["rung"] == "head")
    assert head["against"] == "character n-grams"
    assert head["low"] > 0
    assert ladder["result"] == head["name"]

    assert list(record["diagnosis"]) == ["train", "test"]  # the items of test-reversed are those of test
    for section in record["diagnosis"].values():
        assert [verdict["kind"] for verdict in section["verdicts"]] == ["healthy"]
        assert section["unit"] == "group"
        assert section["num_classes"] * 2 == section["items"]
        assert any(note.startswith("A collapse of classes cannot be told by pairs") for note in section["notes"])
    assert all(compared["outcome"] == "better" for compared in record["comparisons"]["test"]["pair"])

    texts, vectors = tmp_path / "texts.csv", tmp_path / "vectors.parquet"
    texts.write_text("text\nred horse\nrot pferd\nblau baum\n")
    assert run_command("embed", run, texts, "-o", vectors)[0] == 0
    left, right, other = pq.read_table(vectors)["embedding"].to_pylist()
    assert np.dot(left, right) > 0.5 > np.dot(left, other)

    # The stored embeddings hold the pairs: they are evaluated, diagnosed and compared by these.
    stored = json.loads(run_command("evaluate", run, "--split", "test", "--measures", "recall@1,ndcg@10", "--json")[1])
    trained = record["evaluation"]["test"][0]["levels"]["pair"]
    assert stored["evaluation"]["pair"]["recall@1"] == trained["recall@1"]
    assert stored["units"] == {"pair": "group"}
    code, output, _ = run_command("diagnose", run, "--fail-on", "collapse", "--fail-on", "worse", "--json")
    assert code == 0
    assert [(each["split"], each["verdicts"][0]["kind"]) for each in json.loads(output)["results"]] == [
        ("train", "healthy"),
        ("test", "healthy"),
    ]
    copy = shutil.copytree(run, tmp_path / "copy")
    code, output, _ = run_command("compare", run, copy, "--json")
    assert code == 0
    assert {each["split"] for each in json.loads(output)["tables"]} == {"test", "test-reversed"}

    # New pairs, by the run and by the letters that it began with.
    new = tmp_path / "new.csv"
    new.write_text("\n".join(["question,answer", *(row.replace(",", " old,") + " alt" for row in rows_of(table))]))
    measures = ("--measures", "recall@1", "--json")
    found = json.loads(run_command("evaluate", run, "--texts", new, "--pairs", *measures)[1])
    assert min(way["recall@1"] for way in found["evaluation"].values()) > 0.5
    assert found["evaluation"].keys() == {"left to right", "right to left"}
    code, output, _ = run_command("diagnose", run, "--texts", new, "--pairs", "--json")
    assert json.loads(output)["verdicts"][0]["kind"] == "spread-out"


def rows_of(table: Path) -> list[str]:
    """The rows that are not of small things."""
    return [row for row in table.read_text().split("\n")[1:] if row and "small" not in row]


def test_the_settings_of_pairs(run_command: Call, table: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pairs.toml"
    code, output, _ = run_command("init", table, "--pairs", "-o", settings)
    assert code == 0
    assert "pair: 98 groups of 2 items." in output
    assert 'split = "groups"' in settings.read_text()
    assert "nmi_plus" not in settings.read_text()
    joined = table.with_name("joined.csv")
    rows = table.read_text().splitlines()
    joined.write_text("\n".join([*rows, *(f"{row.split(',')[0]},all" for row in rows[1:])]))
    assert run_command("init", joined, "--pairs", "-o", tmp_path / "joined.toml")[0] == 0
    assert 'split = "queries"' in (tmp_path / "joined.toml").read_text()
    assert run_command("init", table, "--left", "answer", "--right", "question", "-o", settings, "--force")[0] == 0
    assert 'left = "answer"' in settings.read_text()


def test_a_folder_of_beir_is_known_by_its_files(run_command: Call, table: Path, tmp_path: Path) -> None:
    folder, settings = tmp_path / "beir", tmp_path / "x.toml"
    assert run_command("data", "export-beir", table, "-o", folder)[0] == 0
    code, output, _ = run_command("init", folder, "-o", settings)
    assert code == 0
    assert "196 texts in" in output
    assert 'name = "pairs"' in settings.read_text()
    assert 'split = "groups"' in settings.read_text()  # all of it is "test"


def test_tables_that_may_be_pairs_ask(run_command: Call, table: Path, tmp_path: Path) -> None:
    code, _, error = run_command("init", table, "-o", tmp_path / "x.toml")
    assert code == 2
    assert "or train on 'question' and 'answer' as pairs with --pairs." in error
    code, _, error = run_command("init", table, "--pairs", "--labels", "answer", "-o", tmp_path / "x.toml")
    assert code == 2
    assert "leave --labels out" in error


def test_a_head_for_each_of_two_encoders(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides are linear maps of what they share, of other lengths."""
    monkeypatch.setattr(recipes, "HEAD_STEPS", {100: 1e-2})
    random = np.random.default_rng(0)
    shared = random.standard_normal((300, 6)).astype(np.float32)
    names = {"left": [f"i{n}" for n in range(300)], "right": [f"c{n}" for n in range(300)]}
    for side, width in (("left", 10), ("right", 7)):
        rows = shared @ random.standard_normal((6, width)).astype(np.float32)
        np.savez(tmp_path / f"{side}.npz", embeddings=rows, id=names[side])
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["image,caption", *map(",".join, zip(*names.values(), strict=True))]))
    run = tmp_path / "run"
    sides = ("--left-vectors", tmp_path / "left.npz", "--right-vectors", tmp_path / "right.npz")
    rungs = "--set=ladder.rungs=['encoder', 'head']"
    assert run_command("train", pairs, *sides, "-o", run, "--minutes", 9, rungs)[0] == 0
    record = json.loads((run / "record.json").read_text())
    for split in ("test", "test-reversed"):
        trained, raw = (row["levels"]["pair"]["recall@1"] for row in record["evaluation"][split][:2])
        assert trained > 0.5 > raw
    assert run_command("embed", run, tmp_path / "right.npz", "-o", tmp_path / "right.parquet")[0] == 0


def test_new_pairs_by_a_network_of_each_side(
    run_command: Call, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "HEAD_STEPS", {60: 1e-2})
    run, rungs = tmp_path / "run", "--set=ladder.rungs=['encoder', 'head']"
    options = ("--pairs", "--set=data.towers=separate", "--minutes", 9, rungs)
    assert run_command("train", table, *options, "-o", run)[0] == 0
    diagnosed = json.loads((run / "record.json").read_text())["diagnosis"]
    assert {split: section["verdicts"][0]["kind"] for split, section in diagnosed.items()} == {
        "train": "healthy",
        "test": "healthy",
    }
    new = tmp_path / "new.csv"
    new.write_text("\n".join(["question,answer", *(row.replace(",", " old,") + " alt" for row in rows_of(table))]))
    found = run_command("evaluate", run, "--texts", new, "--pairs", "--measures", "recall@1", "--json")
    assert min(way["recall@1"] for way in json.loads(found[1])["evaluation"].values()) > 0.5
    # Of single texts the side is not known; the vectors of each side are, as the error says.
    code, _, error = run_command("evaluate", run, "--texts", new, "--text", "question", "--labels", "answer")
    assert code == 2
    assert "--side left and --side right, and give both with --left-vectors and --right-vectors" in error
    pairs, files = tmp_path / "ids.csv", []
    rows = [row.split(",") for row in new.read_text().split("\n")[1:]]
    pairs.write_text("\n".join(["question,answer", *(f"q{n},a{n}" for n in range(len(rows)))]))
    for side, letter, column in (("left", "q", 0), ("right", "a", 1)):
        texts = tmp_path / f"{side}.csv"
        texts.write_text("\n".join(["id,text", *(f"{letter}{n},{row[column]}" for n, row in enumerate(rows))]))
        files += [f"--{side}-vectors", tmp_path / f"{side}.parquet"]
        assert run_command("embed", run, texts, "--side", side, "-o", files[-1])[0] == 0
    again = run_command("evaluate", pairs, *files, "--measures", "recall@1", "--json")
    for way, measures in json.loads(again[1])["evaluation"].items():
        assert measures["recall@1"] == json.loads(found[1])["evaluation"][way]["recall@1"]


@pytest.mark.parametrize(
    "command",
    [
        ("init", "--pairs", "-o", "x.toml"),
        ("train", "--pairs", "-o", "run", "--set", 'ladder.rungs=["encoder"]'),
        ("audit", "--pairs"),
    ],
    ids=lambda command: command[0],
)
def test_scores_ask_each_command_for_the_least(
    run_command: Call, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    header, *rows = table.read_text().splitlines()
    wrong = [f"{row.split(',')[0]},{other.split(',')[1]},0.2" for row, other in zip(rows, rows[3:], strict=False)]
    table.write_text("\n".join([f"{header},score", *(f"{row},0.9" for row in rows), *wrong]))
    name, *options = command
    code, _, error = run_command(name, table, *options)
    assert code == 2
    remedy = re.search(r"--relevant 0\.9", error)
    assert remedy is not None
    code, output, error = run_command(name, table, *options, *remedy.group().split())
    assert code == 0, error
    if name == "init":
        assert "relevant = 0.9" in Path("x.toml").read_text()
    assert {"init": "98 groups", "train": "78 of them trained on", "audit": "98 pairs"}[name] in output + error
