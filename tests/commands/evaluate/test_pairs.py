"""`trivet evaluate` and `trivet diagnose` of a table of pairs, as a user calls them: both directions, and verdicts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.conftest import Call

COUNT = 60
GRADES = {(i, i): 2.0 for i in range(COUNT)} | {(i, i + 1): 1.0 for i in range(0, COUNT - 1, 2)}
MEASURES = ("recall@1", "recall@4", "map", "mrr", "ndcg@10")
ROWS = np.random.default_rng(0).normal(size=(COUNT, 8))
LEFT, RIGHT = ROWS, ROWS + 0.4 * np.random.default_rng(1).normal(size=ROWS.shape)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"i{a},c{b},{grade:g}" for (a, b), grade in GRADES.items()]
    (tmp_path / "pairs.csv").write_text("\n".join(["image,caption,score", *rows, "i0,c5,0"]))
    saved(tmp_path, "images", LEFT, "i")
    saved(tmp_path, "captions", RIGHT, "c")
    return tmp_path / "pairs.csv"


def saved(folder: Path, name: str, rows: np.ndarray, letter: str) -> Path:
    np.savez(folder / f"{name}.npz", embeddings=rows, id=[f"{letter}{n}" for n in range(len(rows))])
    return folder / f"{name}.npz"


def sides(table: Path, *names: str) -> list[object]:
    """The options for files of vectors, of the left and the right side in turn."""
    options = ("--left-vectors", "--right-vectors") * (len(names) // 2)
    files = [table.parent / f"{name}.npz" for name in names]
    return [each for pair in zip(options, files, strict=True) for each in pair]


def definition(query: np.ndarray, gallery: np.ndarray, grades: list[float]) -> dict[str, float]:
    """The measures of a query, in plain Python."""
    ranked = sorted(range(len(gallery)), key=lambda row: math.dist(query, gallery[row]))
    gains = [grades[row] for row in ranked]
    hits = [rank for rank, gain in enumerate(gains, 1) if gain]
    best = sorted(gains, reverse=True)[:10]
    return {
        "recall@1": float(hits[0] == 1),
        "recall@4": float(hits[0] <= 4),
        "map": sum(n / rank for n, rank in enumerate(hits, 1)) / len(hits),
        "mrr": 1 / hits[0],
        "ndcg@10": sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:10], 1))
        / sum(gain / math.log2(rank + 1) for rank, gain in enumerate(best, 1)),
    }


def both_ways(left: np.ndarray, right: np.ndarray) -> dict[str, dict[str, float]]:
    forward = [definition(left[i], right, [GRADES.get((i, j), 0.0) for j in range(COUNT)]) for i in range(COUNT)]
    back = [definition(right[j], left, [GRADES.get((i, j), 0.0) for i in range(COUNT)]) for j in range(COUNT)]
    return {
        way: {name: float(np.mean([row[name] for row in rows])) for name in MEASURES}
        for way, rows in (("left to right", forward), ("right to left", back))
    }


def asked(run_command: Call, *arguments: object) -> Any:
    code, out, err = run_command("evaluate", *arguments, "--measures", ",".join(MEASURES), "--json")
    assert code == 0, err
    return json.loads(out)


def test_vectors_of_both_sides_are_measured_in_both_directions(run_command: Call, table: Path) -> None:
    saved(table.parent, "worse", LEFT + 0.8 * np.random.default_rng(2).normal(size=LEFT.shape), "i")
    names = ("images", "captions", "worse", "captions")
    page = table.parent / "page.html"
    found = asked(run_command, table, *sides(table, *names), "--distance", "euclidean", "--report", page)
    worse = np.load(table.parent / "worse.npz")["embeddings"]
    for result, left in zip(found["results"], (LEFT, worse), strict=True):
        assert list(result["evaluation"]) == ["left to right", "right to left"]
        for way, measures in both_ways(left, RIGHT).items():
            assert {name: result["evaluation"][way][name] for name in MEASURES} == pytest.approx(measures)
            assert result["evaluation"][way]["items"] == COUNT
            assert result["evaluation"][way]["classes"] == COUNT // 2  # groups that pairs connect
            low, high = result["intervals"][way]["recall@1"]["classes"]
            assert low < measures["recall@1"] < high
    for way in ("left to right", "right to left"):
        (row,) = found["differences"][way]["recall@1"]
        assert row["of"] == "worse.npz, captions.npz"
        assert row["difference"] < row["classes"][1] < 0
    assert "nearest item of the other side belongs to" in page.read_text()


def test_what_belongs_to_nothing_is_no_query(run_command: Call, table: Path) -> None:
    rows = [row.rsplit(",", 1)[0] for row in table.read_text().splitlines()[1:-1]]
    table.write_text("\n".join(["image,caption,score", *(f"{row},1" for row in rows), "i0,c99,0", "i1,c98,0"]))
    with np.load(table.parent / "captions.npz") as captions:
        ids = [*captions["id"].tolist(), "c98", "c99"]
    np.savez(table.parent / "captions.npz", embeddings=np.concatenate([RIGHT, -RIGHT[:2]]), id=ids)
    found = asked(run_command, table, *sides(table, "images", "captions"), "--distance", "euclidean")
    back = found["evaluation"]["right to left"]
    assert back["items"] == COUNT
    assert back["recall@1"] == pytest.approx(both_ways(LEFT, RIGHT)["right to left"]["recall@1"])
    chance = sum(len([j for i, j in GRADES if i == row]) for row in range(COUNT)) / COUNT / (COUNT + 2)
    assert found["evaluation"]["left to right"]["chance_recall@1"] == pytest.approx(chance)


def test_a_diagnosis_of_pairs_has_references_and_fails_on_a_collapse(run_command: Call, table: Path) -> None:
    folder = table.parent
    spots = {name: np.full_like(LEFT, value) + 1e-9 * LEFT for name, value in (("i", 1.0), ("c", -1.0))}
    saved(folder, "spot_i", spots["i"], "i")
    saved(folder, "spot_c", spots["c"], "c")
    reference = ["--reference", folder / "images.npz", "--reference", folder / "captions.npz"]
    for names, code in ((("images", "captions"), 0), (("spot_i", "spot_c"), 1), (("spot_i", "captions"), 1)):
        known = reference if code else []
        found, out, err = run_command(
            "diagnose", table, *sides(table, *names), *known, "--fail-on", "collapse", "--json"
        )
        assert found == code, err
        result = json.loads(out)
        assert (result["unit"], result["num_classes"], result["items"]) == ("group", COUNT // 2, 2 * COUNT)
        if not code:
            assert any(note.startswith("A collapse of classes cannot be told by pairs") for note in result["notes"])
    saved(folder, "near", LEFT + 0.01 * RIGHT, "i")
    code, out, err = run_command("diagnose", table, *sides(table, "near", "captions"), *reference, "--json")
    assert [verdict["kind"] for verdict in json.loads(out)["verdicts"]] == ["healthy"]


def test_folders_of_beir_and_splits(run_command: Call, table: Path) -> None:
    folder = table.parent / "beir"
    (folder / "qrels").mkdir(parents=True)
    for name, count in (("queries", COUNT), ("corpus", COUNT + 9)):
        letter = "i" if name == "queries" else "c"
        lines = [json.dumps({"_id": f"{letter}{n}", "text": f"{name} {n}"}) for n in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    for split, rows in (("train", range(20)), ("test", range(20, COUNT))):
        lines = [f"i{a}\tc{b}\t{grade:g}" for (a, b), grade in GRADES.items() if a in rows]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    saved(table.parent, "corpus", np.concatenate([RIGHT, RIGHT[:9] + 5]), "c")
    found = asked(run_command, folder, *sides(table, "images", "corpus"), "--distance", "euclidean", "--split", "test")
    gallery = np.concatenate([RIGHT, RIGHT[:9] + 5])
    grades = [[GRADES.get((i, j), 0.0) for j in range(len(gallery))] for i in range(20, COUNT)]
    rows = [definition(LEFT[i], gallery, grades[i - 20]) for i in range(20, COUNT)]
    for name in MEASURES:
        expected = np.mean([row[name] for row in rows])
        assert found["evaluation"]["left to right"][name] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pairs"], "give the table with --texts FILE"),
        (["--left-vectors", "images.npz"], "go together: got 1 and 0; give one of each"),
        (["images.npz", *("--left-vectors", "images.npz", "--right-vectors", "captions.npz")], "the only argument"),
        (["--left-vectors", "captions.npz", "--right-vectors", "images.npz"], "60 of 60 are not, first 'i0'"),
        (["--left-vectors", "images.npz", "--right-vectors", "short.npz"], "got 8 in images.npz and 5 in short.npz"),
        (["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--split", "test"], "no column split"),
        (
            ["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--folds", "3"],
            "have pairs at level",
        ),
        (
            ["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--sample", "3"],
            "have two; leave it out",
        ),
        (["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--labels", "image"], "no labels"),
        (
            ["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--per-class", "x.csv"],
            "by class or tag",
        ),
        (["--left-vectors", "images.npz", "--right-vectors", "captions.npz", "--relevant", "9"], "lower it"),
    ],
)
def test_what_does_not_go_together_is_refused(
    run_command: Call, table: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(table.parent)
    saved(table.parent, "short", RIGHT[:, :5], "c")
    code, _, err = run_command("evaluate", "pairs.csv", *arguments)
    assert code == 2
    assert message in " ".join(err.split())


def test_scores_of_fractions_ask_for_the_least_that_belongs_together(run_command: Call, table: Path) -> None:
    table.write_text(table.read_text().replace(",1\n", ",0.4\n").replace(",2\n", ",0.9\n"))
    code, _, err = run_command("evaluate", table, *sides(table, "images", "captions"))
    assert code == 2
    assert "--relevant 0.9" in err
    found = asked(run_command, table, *sides(table, "images", "captions"), "--relevant", "0.4")
    assert found["evaluation"]["left to right"]["recall@1"] > 0.5
