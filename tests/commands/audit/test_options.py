"""`trivet audit`: the noise rate and the suspects, JSON of a stated form, one sentence for each mistake."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from trivet.commands.main import main

pytestmark = pytest.mark.usefixtures("few_digits")


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
    np.savez("one-class.npz", embeddings=points, kind=np.zeros(60, int))
    np.savez("few.npz", embeddings=points[[0, 1, 30, 31]], kind=labels[[0, 1, 30, 31]])
    np.savez("bare.npz", embeddings=points)
    broken = points.copy()
    broken[7] = np.nan
    np.savez("broken.npz", embeddings=broken, kind=labels)
    words = np.where(truth == 1, "bark loud", "soft purr")
    lines = [
        f'{i},"{word}, {i % 10}",{["cat", "dog"][label]}'
        for i, (word, label) in enumerate(zip(words, labels, strict=True))
    ]
    Path("pets.csv").write_text("\n".join(["name,text,kind", *lines]) + "\n")
    Path("wordless.csv").write_text("words,kind\na,b\n")
    Path("blank.csv").write_text("text,kind\na,b\n,c\n")
    Path("folder").mkdir()
    Path("run/embeddings").mkdir(parents=True)
    Path("run/config.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "triplet"\n')
    return tmp_path


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["trivet", "audit", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return int(str(ended.value.code)), shown.out, shown.err


def test_json_and_files(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = ("--out", "s.csv", "--decisions", "d.csv", "--relabel-above", "0.5", "--report", "r.html")
    code, out, err = run(capsys, monkeypatch, "pets.npz", *outputs, "--json")
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


def test_the_rate_and_the_most_suspect_are_printed(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(capsys, monkeypatch, "pets.npz", "--top", "2", "--out", "s.csv")
    assert code == 0
    assert " % of the labels are wrong (95 % interval: " in out.splitlines()[0]
    assert "pets.npz, by kind: 60 items of 2 classes, judged in one embedding" in out
    rows = [line for line in out.splitlines() if line.startswith("│")]
    assert sum("[red]item" in row for row in rows) == 2
    assert "Note: If the network that made these embeddings" in out
    assert out.splitlines()[-1] == "Suspects: s.csv"
    assert "┃" not in run(capsys, monkeypatch, "pets.npz", "--top", "0")[1]


def test_a_refusal_comes_after_the_results(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    kinds = np.repeat([0, 1], 100)  # two classes that overlap
    points = random.normal(size=(200, 2)) + np.where(kinds == 1, 1.0, -1.0)[:, None]
    np.savez("mixed.npz", embeddings=points, kind=np.array(["cat", "dog"])[kinds], text=np.array(["a text"] * 200))
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("mixed.npz", "--distance", "euclidean", "--out", "s.csv", "--decisions", "d.csv")
    code, out, err = run(capsys, monkeypatch, *asked, "--relabel-above", "0.5")
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
    code, out, err = run(capsys, monkeypatch, *asked, "--relabel-above", "0.5", "--force", "--json")
    assert (code, json.loads(out)["refused"] in err) == (2, True)
    code, out, _ = run(capsys, monkeypatch, *asked, "--force", "--json")
    assert (code, "refused" in json.loads(out)) == (0, False)


def test_texts_are_compared_and_shown_and_their_file_stays(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Path("pets.csv").read_bytes()
    outputs = ("--out", "s.csv", "--report", "r.html")
    code, out, _ = run(capsys, monkeypatch, "pets.csv", "--level", "kind", *outputs, "--json")
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
    code, out, _ = run(capsys, monkeypatch, "pets.csv", "--level", "kind", "--encoder", "small", "--json")
    found = json.loads(out)
    assert (code, found["notes"][0]) == (0, "The texts were compared by their embeddings from small.")
    assert (found["noise_rate"]["verdict"], found["suspects"]) == ("uninformative", [])
    assert run(capsys, monkeypatch, "pets.csv", "--text", "name", "--level", "kind")[0] == 0


def test_decisions_are_applied_to_the_file(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        run(capsys, monkeypatch, "pets.csv", "--level", "kind", "--decisions", "d.csv", "--relabel-above", "0.5")[0]
        == 0
    )
    code, out, _ = run(capsys, monkeypatch, "pets.csv", "--level", "kind", "--apply", "d.csv", "-o", "clean.csv")
    assert (code, out) == (
        0, "clean.csv: 60 of 60 rows; 2 relabelled, 0 dropped, 58 kept as they are, 0 not decided on\n",
    )  # fmt: skip
    with Path("clean.csv").open(newline="") as file:
        kinds = [row["kind"] for row in csv.DictReader(file)]
    assert kinds == ["cat"] * 30 + ["dog"] * 30
    asked = ("pets.csv", "--level", "kind", "--decisions", "d2.csv", "--drop-above", "0.5")
    code, out, _ = run(capsys, monkeypatch, *asked)
    assert (code, "Note: The decision file leaves out 2 of 60 items (3.3 %)" in out) == (0, True)
    code, out, _ = run(capsys, monkeypatch, "pets.csv", "--level", "kind", "--apply", "d2.csv", "-o", "left.csv")
    assert (code, out) == (
        0, "left.csv: 58 of 60 rows; 0 relabelled, 2 dropped, 58 kept as they are, 0 not decided on\n",
    )  # fmt: skip
    code, out, _ = run(capsys, monkeypatch, "pets.csv", "--level", "kind", "--apply", "d.csv", "-o", "2.csv", "--json")
    assert json.loads(out) == {
        "rows": 60, "left": 60, "keep": 58, "relabel": 2, "drop": 0, "undecided": 0, "output": "2.csv",
    }  # fmt: skip


def test_texts_are_printed_in_one_line_each(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    long = "word " * 60
    rows = [
        f'{i},"{long if i == 3 else ""}{"bark" if i > 29 else "purr"} {i}",{"ab"[(i > 29) != (i == 3)]}'
        for i in range(60)
    ]
    Path("long.csv").write_text("id,text,kind\n" + "\n".join(rows) + "\n")
    _, out, _ = run(capsys, monkeypatch, "long.csv", "--top", "60")
    table = out[out.index("text") : out.index("proposed")]
    (line,) = [line for line in table.splitlines() if line.startswith("│ 3 ")]
    assert line.rstrip(" │").endswith("word…")
    assert max(map(len, out[: out.index("Note")].splitlines())) <= 70


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["one-class.npz"], "labels must hold at least two classes: got 1"),
        (["few.npz", "--neighbours", "4"], "must not exceed the 3 others that each item can be compared with: got 4"),
        (["pets.npz", "--neighbours", "60"], "must not exceed the 59 others"),
        (["pets.npz", "--neighbours", "0"], "neighbours must be a whole number of at least 1: got 0"),
        (["broken.npz"], "embeddings must be finite: row"),
        (["bare.npz"], "has no label column; add one"),
        (["pets.npz", "--level", "kine"], "did you mean 'kind'?"),
        (["pets.npz", "--text", "wordz"], "has no 'wordz'"),
        (["pets.npz", "--split", "test"], "must have a column 'split'"),
        (["pets.npz", "--folds", "3"], "pets.npz is a file, so leave out --folds"),
        (["gone.npz"], "gone.npz does not exist"),
        (["pets.npz", "--encoder", "small"], "pets.npz holds embeddings; leave it out"),
        (["wordless.csv"], "must have a column 'text': wordless.csv has 'words', 'kind'"),
        (["blank.csv"], "every row of blank.csv must have a text: 1 of 2 have none, rows 1"),
        (["pets.csv", "--level", "kine"], "did you mean 'kind'?"),
        (["pets.csv", "--level", "text"], "a different column from the texts: got 'text' for both"),
        (["pets.csv", "--folds", "2"], "pets.csv is a file, so leave out --folds"),
        (["gone.csv"], "gone.csv does not exist"),
        (["run", "--encoder", "small"], "leave out --split, --text and --encoder"),
        (["folder"], "a run folder must hold config.toml"),
        (["run", "--level", "digits"], "run has no 'digits'; did you mean 'digit'?"),
        (["run", "--folds", "1"], "from 2 to half the number of items, 91, or 0 for none: got 1"),
        (["run", "--folds", "0"], "a run has a model once it has ended: run has none"),
        (["run", "--split", "seen"], "leave out --split, --text and --encoder"),
        (["pets.npz", "--out", "pets.npz"], "--out must not name what is read: got pets.npz"),
        (["pets.npz", "--out", "pets.csv", "--force"], "a file that it wrote itself: pets.csv exists and is none"),
        (["pets.npz", "--report", "nowhere/page.html"], "make the folder first"),
        (["pets.npz", "--relabel-above", "0.5"], "name one with --decisions FILE"),
        (["pets.npz", "--drop-above", "0.5"], "--drop-above fills in a decision file: name one with --decisions FILE"),
        (
            ["pets.npz", "--apply", "d.csv", "-o", "x.npz", "--drop-above", "1"],
            "judges nothing: leave out --drop-above",
        ),
        (["pets.npz", "--distance", "far"], "--distance"),
        (["pets.npz", "--apply", "d.csv"], "--apply writes a new file: name it with --output FILE"),
        (["pets.npz", "--output", "x.npz"], "--output is for --apply; an audit writes to --out, --report and"),
        (["pets.npz", "--apply", "d.csv", "-o", "x.npz", "--force", "--top", "3"], "leave out --top, --force"),
        (["pets.npz", "--apply", "d.csv", "-o", "x.npz", "--out", "s.csv"], "judges nothing: leave out --out"),
        (
            ["pets.npz", "--apply", "gone.csv", "-o", "x.npz"],
            "a decision file must exist: gone.csv does not exist; check the path",
        ),
        (["run", "--apply", "d.csv", "-o", "x.npz"], "for a run, use trivet train --labels"),
        ([], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    files: Path,
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len([line for line in err.splitlines() if line.startswith("trivet:")]) == 1
    assert "Traceback" not in err


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


def test_train_takes_the_decisions(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trivet", "train", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(str(ended.value.code)), shown.out, shown.err

    Path("small.toml").write_text(SETTINGS)
    Path("bad.csv").write_text("id,decision,label\ndigits/0000,relable,\n")
    code, out, err = train("small.toml", "--labels", "bad.csv")
    assert (code, out) == (2, "")
    assert err.startswith("trivet: a decision must be keep, relabel or drop")
    assert not Path("runs").exists()
    code, _, err = train("--resume", "run", "--labels", "bad.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "leave out --labels" in err
    Path("1").write_text("id,decision,label\ndigits/0100,drop,\n")
    code, _, err = train("small.toml", "--labels", "1", "-o", "out", "--json")
    assert code == 0, err
    record = json.loads(Path("out/record.json").read_text())
    assert record["data"]["decisions"] == {"keep": 0, "relabel": 0, "drop": 1, "undecided": 0}
    assert record["data"]["train"]["items"] == 182
