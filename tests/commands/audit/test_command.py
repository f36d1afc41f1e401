"""`trivet audit`: the noise rate and the suspects, JSON of a stated form, one sentence for each mistake."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Embeddings of two classes in a folder that is entered; the labels of items 3 and 40 are wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIVET_DATA", raising=False)
    random = np.random.default_rng(0)
    truth = np.repeat([0, 1], 30)
    points = np.eye(5)[truth] + 0.1 * random.normal(size=(60, 5))
    labels = truth.copy()
    labels[[3, 40]] = 1 - labels[[3, 40]]
    ids = np.array([f"[red]item {i}" for i in range(60)])
    np.savez("pets.npz", embeddings=points, id=ids, kind=np.array(["cat", "dog"])[labels])
    words = np.where(truth == 1, "bark loud", "soft purr")
    lines = [
        f'{i},"{word}, {i}",{["cat", "dog"][label]}' for i, (word, label) in enumerate(zip(words, labels, strict=True))
    ]
    Path("pets.csv").write_text("\n".join(["name,text,kind", *lines]) + "\n")
    Path("run/embeddings").mkdir(parents=True)
    Path("run/config.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "triplet"\n')
    return tmp_path


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "audit")


def test_json_and_files(files: Path, run: Call) -> None:
    outputs = ("--out", "s.csv", "--decisions", "d.csv", "--relabel-above", "0.5", "--report", "r.html")
    code, out, err = run("pets.npz", *outputs, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found.keys() == {
        "noise_rate", "suspects", "above_half", "called_wrong", "expected_wrong", "name", "split", "level", "items",
        "classes", "distance", "folds",
        "neighbours", "method", "transition", "notes", "out", "decisions", "report", "duplicates", "outliers",
    }  # fmt: skip
    assert found["noise_rate"].keys() == {"verdict", "estimate", "interval", "reason"}
    low, high = found["noise_rate"]["interval"]
    assert 0 <= low <= 2 / 60 <= high <= 1
    assert (found["items"], found["classes"], len(found["suspects"])) == (60, 2, 60)
    assert found["transition"].keys() == {"classes", "matrix", "low", "high"}
    first = found["suspects"][0]
    assert first.keys() == {
        "id", "label", "proposed_label", "probability_wrong", "evidence", "neighbour_agreement", "positive_margin",
        "mode_share", "duplicate", "duplicate_of", "duplicate_label", "outlier", "text",
        "probability_not_separable", "probability_proposed", "neighbour_label", "neighbour_count",
    }  # fmt: skip
    assert {one["id"] for one in found["suspects"][:2]} == {"[red]item 3", "[red]item 40"}
    labels = {"[red]item 3": ("dog", "cat"), "[red]item 40": ("cat", "dog")}
    assert all(labels[one["id"]] == (one["label"], one["proposed_label"]) for one in found["suspects"][:2])
    with Path("s.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [one["id"] for one in found["suspects"]]
    lines = Path("d.csv").read_text().splitlines()
    assert (lines[0], len(lines)) == ("id,decision,label", 61)
    assert sum(",relabel," in line for line in lines) == found["above_half"] == 2
    page = Path("r.html").read_text()
    assert "trivet audit pets.npz --out s.csv" in page


def test_the_rate_and_the_most_suspect_are_printed(files: Path, run: Call) -> None:
    code, out, _ = run("pets.npz", "--top", "2", "--out", "s.csv")
    assert code == 0
    assert " % of the labels are wrong (95 % interval: " in out.splitlines()[0]
    assert "pets.npz, by kind: 60 items of 2 classes, judged in one embedding" in out
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert sum("[red]item" in row for row in rows) == 2
    assert "Note: If the network that made these embeddings" in out
    assert out.splitlines()[-1] == "Suspects: s.csv"
    assert "┃" not in run("pets.npz", "--top", "0")[1]


def test_a_refusal_comes_after_the_results(files: Path, monkeypatch: pytest.MonkeyPatch, run: Call) -> None:
    random = np.random.default_rng(0)
    kinds = np.repeat([0, 1], 100)  # two classes that overlap
    points = random.normal(size=(200, 2)) + np.where(kinds == 1, 1.0, -1.0)[:, None]
    np.savez("mixed.npz", embeddings=points, kind=np.array(["cat", "dog"])[kinds], text=np.array(["a text"] * 200))
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("mixed.npz", "--distance", "euclidean", "--out", "s.csv", "--decisions", "d.csv")
    code, out, err = run(*asked, "--relabel-above", "0.5")
    assert code == 2
    assert "--relabel-above needs labels that must be wrong" in err
    assert out.startswith("Cannot tell how many labels are wrong: between 0.0 and ")
    lines = out.splitlines()
    assert lines[-1] == "Decisions, none filled in: d.csv"
    tables = [line for line in lines if line.startswith("┃") and " id " in line]
    assert [" text " in line for line in tables] == [True, False]  # what one reads first, and no column follows
    assert max(map(len, lines)) <= 80
    told = " ".join(out.split())
    for part in ('"wrong": overlap of classes does not', '"wrong or not separable": the', "How far to go: review from"):
        assert part in told
    with Path("s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert f"explain the label: {sum(float(row['probability_wrong']) > 0.5 for row in rows)} above 50 %" in told
    with Path("d.csv").open(newline="") as file:
        assert {row["decision"] for row in csv.DictReader(file)} == {""}
    code, out, err = run(*asked, "--relabel-above", "0.5", "--force", "--json")
    assert (code, json.loads(out)["refused"] in err) == (2, True)
    code, out, _ = run(*asked, "--force", "--json")
    assert (code, "refused" in json.loads(out)) == (0, False)


def test_texts_are_compared_and_shown_and_their_file_stays(
    files: Path, monkeypatch: pytest.MonkeyPatch, run: Call
) -> None:
    before = Path("pets.csv").read_bytes()
    outputs = ("--out", "s.csv", "--report", "r.html")
    code, out, _ = run("pets.csv", "--level", "kind", *outputs, "--json")
    assert code == 0
    found = json.loads(out)
    assert {one["id"] for one in found["suspects"][:2]} == {"3", "40"}
    assert found["above_half"] == 2
    assert "compared by their character n-grams (2 to 5 characters)" in found["notes"][0]
    page = Path("r.html").read_text()
    assert "soft purr, 3" in page
    assert "trivet train --labels" not in page  # texts are not trained on
    assert Path("pets.csv").read_bytes() == before
    # An encoder that knows nothing of the words: all are of one length.
    monkeypatch.setattr(
        "trivet.commands.audit.items.encoder_vectors", lambda texts, name, progress: np.ones((len(texts), 2))
    )
    code, out, _ = run("pets.csv", "--level", "kind", "--encoder", "small", "--json")
    found = json.loads(out)
    assert (code, found["notes"][0]) == (0, "The texts were compared by their embeddings from small.")
    assert (found["noise_rate"]["verdict"], found["suspects"]) == ("uninformative", [])
    assert run("pets.csv", "--text", "name", "--level", "kind")[0] == 0


def test_decisions_are_applied_to_the_file(files: Path, run: Call) -> None:
    assert run("pets.csv", "--level", "kind", "--decisions", "d.csv", "--relabel-above", "0.5")[0] == 0
    code, out, _ = run("pets.csv", "--level", "kind", "--apply", "d.csv", "-o", "clean.csv")
    assert (code, out) == (
        0, "clean.csv: 60 rows from 60; 2 relabelled, 0 dropped, 58 kept as they are, 0 not decided on\n",
    )  # fmt: skip
    with Path("clean.csv").open(newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    assert kinds == ["cat"] * 30 + ["dog"] * 30
    asked = ("pets.csv", "--level", "kind", "--decisions", "d2.csv", "--drop-above", "0.5")
    code, out, _ = run(*asked)
    assert (code, "Note: The decision file leaves out 2 of 60 items (3.3 %)" in out) == (0, True)
    code, out, _ = run("pets.csv", "--level", "kind", "--apply", "d2.csv", "-o", "left.csv")
    assert (code, out) == (
        0, "left.csv: 58 rows from 60; 0 relabelled, 2 dropped, 58 kept as they are, 0 not decided on\n",
    )  # fmt: skip
    code, out, _ = run("pets.csv", "--level", "kind", "--apply", "d.csv", "-o", "2.csv", "--json")
    assert json.loads(out) == {
        "rows": 60, "left": 60, "keep": 58, "relabel": 2, "drop": 0, "add": 0, "undecided": 0, "output": "2.csv",
    }  # fmt: skip


def test_texts_are_printed_in_one_line_each(files: Path, monkeypatch: pytest.MonkeyPatch, run: Call) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    long = "word " * 60
    rows = [
        f'{i},"{long if i == 3 else ""}{"bark" if i > 29 else "purr"} {i}",{"ab"[(i > 29) != (i == 3)]}'
        for i in range(60)
    ]
    Path("long.csv").write_text("id,text,kind\n" + "\n".join(rows) + "\n")
    _, out, _ = run("long.csv", "--top", "60")
    table = out[out.index("text") : out.index("proposed")]
    (line,) = [line for line in table.splitlines() if line.startswith("│ 3 ")]
    assert line.rstrip(" │").endswith("word…")
    assert max(map(len, out[: out.index("Note")].splitlines())) <= 70


SETTINGS = """
[data]
name = "digits"
level = "digit"
[batch]
num_classes = 2
samples_per_class = 6
[model]
name = "linear"
embedding_dim = 3
[loss]
name = "triplet"
[training]
steps = 4
accelerator = "cpu"
[evaluation]
map_points = 20
sample = 50
nmi_plus = 2
"""


def test_train_takes_what_the_audit_of_its_table_wrote(run_command: Call, few_classes: Path) -> None:
    """Its rows have no ids, and half of its classes are not trained on."""
    code, _, err = run_command("audit", "few.npz", "--decisions", "all.csv", "--relabel-above", "0.9")
    assert code == 0, err
    assert 0 < Path("all.csv").read_text().count("relabel") < 60
    rough = ('--set=ladder.rungs=["encoder"]', "--set=evaluation.map_points=9", "--set=evaluation.nmi_plus=1")
    head = ("train", "few.npz", *rough, "-o", "made")
    code, _, err = run_command(*head, "--labels", "all.csv")
    assert code == 2
    remedy = err.splitlines()[-1].rpartition("use ")[2].rstrip(".")
    assert remedy == "--set data.decisions=all.csv"
    code, _, err = run_command(*head, "--labels", "label", *remedy.split())
    assert code == 0, err
    record = json.loads(Path("made/record.json").read_text())
    assert record["data"]["decisions"]["relabel"] > 0
    assert any("would change items that are evaluated" in warning for warning in record["warnings"])


@pytest.fixture
def few_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve clear classes, of whose 360 labels some are wrong."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    truth = np.arange(360) % 12
    points = np.eye(12)[truth] * 4 + draw.normal(size=(360, 12)) * 0.5
    labels = np.where(draw.random(360) < 0.15, draw.integers(0, 12, 360), truth)
    np.savez("few.npz", embeddings=points.astype(np.float32), label=np.array([f"class {label}" for label in labels]))
    return tmp_path


def test_train_takes_the_decisions(files: Path, run_command: Call) -> None:
    Path("small.toml").write_text(SETTINGS)
    Path("bad.csv").write_text("id,decision,label\ndigits/0000,relable,\n")
    code, out, err = run_command("train", "small.toml", "--labels", "bad.csv")
    assert (code, out) == (2, "")
    assert err.startswith("trivet: a decision must be keep, relabel, drop or add")
    assert not Path("runs").exists()
    code, _, err = run_command("train", "--resume", "run", "--labels", "bad.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "leave out --labels" in err
    Path("1").write_text("id,decision,label\ndigits/0100,drop,\n")
    code, _, err = run_command("train", "small.toml", "--labels", "1", "-o", "out", "--json")
    assert code == 0, err
    record = json.loads(Path("out/record.json").read_text())
    assert record["data"]["decisions"] == {"keep": 0, "relabel": 0, "drop": 1, "add": 0, "undecided": 0}
    assert record["data"]["train"]["items"] == 182
