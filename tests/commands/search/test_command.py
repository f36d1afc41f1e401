"""`trivet index` and `trivet search`: one JSON object, a table, or one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    draw = np.random.default_rng(0)
    np.savez(
        "some.npz",
        embeddings=draw.standard_normal((50, 4)).astype(np.float32),
        id=np.array([f"item {i}" for i in range(50)]),
        shade=np.array(["[red]", "[/blue]"] * 25),
    )


@pytest.mark.usefixtures("vectors")
def test_index_and_search(run_command: Call) -> None:
    code, out, _ = run_command("index", "some.npz", "-o", "made", "--json")
    made = json.loads(out)
    assert code == 0
    assert {key: made[key] for key in ("index", "items", "dimension", "kind", "distance")} == {
        "index": "made", "items": 50, "dimension": 4, "kind": "exact", "distance": "cosine",
    }  # fmt: skip
    assert made["about"]["levels"] == ["shade"]
    code, out, _ = run_command("search", "made", "item 3", "--k", "4", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["index"], found["k"], len(found["queries"])) == ("made", 4, 1)
    neighbours = found["queries"][0]["neighbours"]
    assert set(neighbours[0]) == {"row", "id", "distance", "labels"}
    assert [item["id"] for item in neighbours] == [f"item {item['row']}" for item in neighbours]
    distances = [item["distance"] for item in neighbours]
    assert distances == sorted(distances)
    assert 3 not in [item["row"] for item in neighbours]

    code, out, _ = run_command("search", "made", "--id", "item 3", "--k", "4")
    assert code == 0
    assert "id item 3 (shade [/blue])" in out
    lines = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line][:3] for line in lines] == [
        [str(rank), item["id"], item["labels"]["shade"]] for rank, item in enumerate(neighbours, start=1)
    ]
    code, out, _ = run_command("search", "made", "item 3", "--k", "70")
    assert (code, "Only 49 other items exist; 70 were requested." in out) == (0, True)


@pytest.mark.usefixtures("vectors")
def test_an_approximate_index_says_its_parameters_and_recall(run_command: Call) -> None:
    arguments = ("index", "some.npz", "-o", "made", "--kind", "ivf", "--distance", "euclidean", "--seed", "3")
    code, out, _ = run_command(*arguments)
    assert code == 0
    assert "50 items of dimension 4 in made, euclidean distance" in out
    assert (
        "ivf: nlist = 1, nprobe = 1, training_rows = 50; recall@10 100.0 % relative to exact search, measured on 50"
    ) in out
    saved = json.loads(Path("made/index.json").read_text())
    assert (saved["seed"], saved["recall"], saved["recall_at"], saved["recall_queries"]) == (3, 1.0, 10, 50)


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["index", "gone.npz", "-o", "made"], "gone.npz does not exist"),
        (["index", "some.npz", "-o", "some.npz"], "--output must not name what is read: got some.npz"),
        (["index", "some.npz", "-o", "made", "--kind", "flat"], "flat"),
        (["index", "some.npz"], "--output"),
        (["search", ".", "item 3"], "an index folder must hold index.json"),
        (["search", "."], "search needs one query"),
        (["search", ".", "item 3", "--text", "red"], "search needs one query"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], said: str, run_command: Call) -> None:
    code, out, err = run_command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("trivet: ")
    assert err.count("\n") == 1
    assert said in err
    assert not Path("made").exists()


@pytest.mark.usefixtures("vectors")
def test_sheet(run_command: Call) -> None:
    run_command("index", "some.npz", "-o", "made")
    code, out, _ = run_command("search", "made", "item 3", "--sheet", "s.html")
    assert (code, "Sheet: s.html" in out) == (0, True)
    assert "trivet search made &#39;item 3&#39; --sheet s.html" in Path("s.html").read_text()
