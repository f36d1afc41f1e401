"""`trivet drift`: the answer on the console, as JSON and on the page, and exit codes, for each form of data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.conftest import Call

from trivet.drift import changes
from trivet.drift.changes import PERMUTATIONS

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def few_permutations_of_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """199 of each test, not 999."""
    monkeypatch.setattr(changes, "PERMUTATIONS", 10)


def made(count: int = 900) -> Arrays:
    """Items of eight kinds by thirty authors, with a sentence each."""
    draw = np.random.default_rng(0)
    kind = draw.integers(8, size=count)
    rows = 3 * np.random.default_rng(9).normal(size=(8, 12))[kind] + draw.normal(size=(count, 12))
    names = np.array([f"kind {number}" for number in kind])
    texts = np.array([f"sentence {row} on {name}" for row, name in enumerate(names.tolist())])
    author = np.array([f"author {number}" for number in draw.integers(30, size=count)])
    return {"embeddings": rows.astype(np.float32), "kind": names, "text": texts, "author": author}


def write(name: str, rows: np.ndarray[Any, Any], *columns: str) -> None:
    arrays = made()
    np.savez(name, **{column: arrays[column][rows] for column in ("embeddings", "text", *columns)})


@pytest.fixture
def new() -> np.ndarray[Any, Any]:
    """The items of the later data: a third at random, and all of kind 5."""
    return (np.arange(900) >= 600) | (made()["kind"] == "kind 5")


def test_no_change(run_command: Call) -> None:
    write("before.npz", np.arange(600), "kind")
    write("now.npz", np.arange(600, 900), "kind")
    code, out, _ = run_command(
        "drift", "before.npz", "now.npz", "--fail-on", "change", "--fail-on", "unclear", "--report", "page.html"
    )
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(
        "No change found in now.npz against before.npz (false-alarm rate 5 %); a new cluster of "
    )
    assert lines[0].endswith(" % of its items would have been found in 80 % of draws.")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "The items as a whole",
        "Out of scope",
        "Clusters that are new or have grown",
        "The shares of the classes",
        "The items within 8 classes",
        "Report",
    ]
    page = Path("page.html").read_text()
    assert lines[0] in page
    assert "More than before" not in page
    assert "Classes that changed" not in page


def test_a_change_with_what_is_new(
    new: np.ndarray[Any, Any], run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "PERMUTATIONS", PERMUTATIONS)
    write("before.npz", ~new, "kind")
    write("now.npz", new, "kind")
    options = ("before.npz", "now.npz", "--report", "page.html")
    code, out, _ = run_command("drift", *options, "--fail-on", "cluster")
    text = " ".join(out.split())
    assert code == 1
    assert text.startswith("now.npz differs from before.npz (p = 0.005 at a false-alarm rate of 5 %).")
    assert "The shares of the classes differ (p = 0.005): 'kind 5' 0.0 → " in text
    assert "most of them 'kind 5': 'sentence " in text
    page = Path("page.html").read_text()
    for heading in (
        "New cluster: ",
        "Farthest from the reference",
        "More than before",
        "Fewer than before",
        "Classes that changed",
    ):
        assert heading in page
    code, out, _ = run_command("drift", *options, "--json", "--fail-on", "unclear")
    record = json.loads(out)
    assert (code, record["answer"], record["level"]) == (0, "differs", "kind")
    assert [each["question"] for each in record["questions"] if each["changed"]] == [
        "items",
        "scope",
        "clusters",
        "shares",
    ]
    (cluster,) = record["clusters"]
    kinds = made()["kind"][new]
    assert {kinds[int(id)] for id in cluster["ids"]} == {"kind 5"}
    assert len(cluster["ids"]) == cluster["items"]
    assert cluster["new"]
    assert cluster["examples"][0]["text"].endswith("kind 5")
    assert record["classes"][0]["name"] == "kind 5"
    low, high = record["scope"]["interval"]
    assert 0 < low < record["scope"]["excess"] < high


@pytest.mark.parametrize(("reason", "expected"), [("change", 1), ("scope", 1), ("recall", 0), ("unclear", 0)])
def test_exit_codes(reason: str, expected: int, new: np.ndarray[Any, Any], run_command: Call) -> None:
    write("before.npz", ~new)
    write("now.npz", new)
    code, out, _ = run_command("drift", "before.npz", "now.npz", "--fail-on", reason)
    assert code == expected
    assert "classes" not in out


def test_bare_numbers_and_few_items(run_command: Call) -> None:
    np.save("before.npy", made()["embeddings"][:9])
    np.save("now.npy", made()["embeddings"][9:11])
    code, out, _ = run_command("drift", "before.npy", "now.npy", "--fail-on", "unclear")
    assert code == 1
    assert out.splitlines()[0] == (
        "Cannot tell whether now.npy differs from before.npy: with 9 items and 2 items even a change of all items "
        "would often be missed at a false-alarm rate of 5 %; give more items."
    )


def test_groups(run_command: Call) -> None:
    arrays = made()
    draw = np.random.default_rng(3)
    rows = arrays["embeddings"] + 4 * draw.normal(size=(30, 12))[np.arange(900) % 30]
    new = np.arange(900) % 30 >= 20
    for name, some in (("before.npz", ~new), ("now.npz", new)):
        authors = np.array([f"author {number % 30}" for number in np.arange(900)])[some]
        np.savez(name, embeddings=rows[some].astype(np.float32), author=authors)
    answers = [
        json.loads(run_command("drift", "before.npz", "now.npz", "--json", *options)[1])
        for options in ((), ("--group", "author"))
    ]
    assert answers[0]["answer"] == "differs"
    assert answers[1]["answer"] != "differs"
    assert [answers[1][side]["groups"] for side in ("reference", "now")] == [20, 10]
    assert answers[1]["level"] is None
    code, _, err = run_command("drift", "before.npz", "now.npz", "--group", "place")
    assert code == 2
    assert "--group must name a column: before.npz has no 'place'; it has author" in err


def test_canaries(run_command: Call) -> None:
    arrays = made()
    mixed = arrays["kind"].copy()
    mixed[500:800] = np.random.default_rng(0).permutation(mixed[500:800])  # the labels of the later index are damaged
    for name, some, labels in (
        ("before", slice(0, 500), arrays["kind"]),
        ("now", slice(500, 800), mixed),
        ("canaries", slice(780, 900), arrays["kind"]),
    ):
        np.savez(f"{name}.npz", embeddings=arrays["embeddings"][some], kind=labels[some])
    options = ("before.npz", "now.npz", "--canaries", "canaries.npz", "--fail-on", "recall")
    code, out, _ = run_command("drift", *options, "--json")
    canaries = json.loads(out)["canaries"]
    assert code == 1
    assert canaries["fell"]
    assert canaries["gallery"] == 280  # without the twenty canaries, and as many of the reference
    assert canaries["reference"] > 0.95
    assert canaries["now"] < 0.4
    assert canaries["interval"][0] <= canaries["difference"] <= canaries["interval"][1] < 0
    assert "Canaries: recall@1 of 120 queries fell: " in run_command("drift", *options)[1]
    np.savez("now.npz", embeddings=arrays["embeddings"][500:780], kind=arrays["kind"][500:780])
    code, out, _ = run_command("drift", *options)
    assert code == 0
    assert "Canaries: recall@1 of 120 queries did not change beyond doubt: " in out


def test_tags(run_command: Call) -> None:
    arrays = made()
    for name, some in (("before", slice(0, 600)), ("now", slice(600, 900))):
        tags = [
            f"{kind};{'rare' if row % 9 == 0 or name == 'now' else 'usual'}"
            for row, kind in enumerate(arrays["kind"][some])
        ]
        np.savez(f"{name}.npz", embeddings=arrays["embeddings"][some], tags=np.array(tags))
    code, out, _ = run_command("drift", "before.npz", "now.npz", "--labels", "tags", "--separator", ";", "--json")
    assert code == 0
    record = json.loads(out)
    assert [each["question"] for each in record["questions"] if each["changed"]] == ["shares"]
    assert {each["name"] for each in record["classes"] if each["share_p"] <= 0.05} == {"rare", "usual"}


def test_several_label_columns_are_not_guessed(run_command: Call) -> None:
    for name, some in (("before.npz", slice(0, 600)), ("now.npz", slice(600, 900))):
        kind = made()["kind"][some]
        np.savez(name, embeddings=made()["embeddings"][some], kind=kind, colour=np.char.replace(kind, "kind", "hue"))
    out = run_command("drift", "before.npz", "now.npz")[1]
    assert "Note: Several columns may be labels ('kind', 'colour'): name one with --labels to compare by class." in out
    assert "within" not in out
    assert "within 8 classes" in run_command("drift", "before.npz", "now.npz", "--labels", "kind")[1]
    assert "within 8 classes" in run_command("drift", "before.npz", "now.npz", "--group", "colour")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a.npz", "short.npz"], "reference and now must have the same dimension: got 12 and 4; embed both"),
        (["a.npz", "b.npz", "--labels", "colour"], "each label level must be a column: a.npz has no 'colour'"),
        (["a.npz", "b.npz", "--false-alarms", "0"], "level must lie between 0 and 1: got 0.0"),
        (["a.npz", "c.npz", "--canaries", "b.npz"], "--canaries needs labels of the canaries"),
        (["a.npz", "b.npz", "--canaries", "a.npz", "--labels", "author"], "canaries must be other items than those"),
        (["a.npz", "b.npz", "--labels", "author", "--canaries", "c.npz"], "each label level must be a column: c.npz"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, run_command: Call) -> None:
    write("a.npz", np.arange(600), "kind", "author")
    write("b.npz", np.arange(600, 900), "kind", "author")
    write("c.npz", np.arange(600, 900))
    np.savez("short.npz", embeddings=made()["embeddings"][:, :4])
    code, out, err = run_command("drift", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_texts_by_an_encoder(folder: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files are embedded, with their labels, groups and texts; the encoder itself is tested elsewhere."""
    arrays = made()
    vectors = dict(zip(arrays["text"].tolist(), arrays["embeddings"], strict=True))
    monkeypatch.setattr(
        "trivet.commands.diagnose.encoders.encoder_vectors",
        lambda texts, path, progress: np.stack([vectors[text] for text in texts]),
    )
    (folder / "encoder").mkdir()
    (folder / "encoder" / "config.json").write_text("{}")
    new = (np.arange(900) >= 600) | (arrays["kind"] == "kind 5")
    for name, some in (("before.csv", ~new), ("now.csv", new)):
        columns = [arrays[column][some].tolist() for column in ("text", "kind", "author")]
        rows = [",".join(row) for row in zip(*columns, strict=True)]
        Path(name).write_text("\n".join(["question,kind,author", *rows]) + "\n")
    options = ("before.csv", "now.csv", "--encoder", "encoder", "--text", "question")
    code, out, _ = run_command("drift", *options, "--json", "--group", "author")
    record = json.loads(out)
    assert (code, record["level"], record["now"]["groups"]) == (0, "kind", 30)
    out = run_command("drift", *options)[1]
    assert out.startswith("now.csv differs from before.csv")
    assert "most of them 'kind 5': 'sentence " in out
