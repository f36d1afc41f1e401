"""`trivet audit --pairs`: wrong and missing pairs of texts, vectors and BEIR; decisions are applied to the table."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.commands.conftest import Call

pytestmark = pytest.mark.usefixtures("undiagnosed")

COLOURS = ("red", "blue", "green", "black", "white", "brown", "grey", "yellow", "pink", "golden")
THINGS = ("horse", "tree", "house", "bird", "stone", "cloud", "river", "table", "candle", "wagon")
SIZES = ("small", "large", "old")
WRONG = 15
CLINC = Path(os.environ.get("TRIVET_DATA", "")) / "clinc150/data_full.json"


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """300 queries with answers of the same words; those of the first 15 are moved on by a row."""
    monkeypatch.chdir(tmp_path)
    texts = [f"{size} {colour} {thing}" for size in SIZES for colour in COLOURS for thing in THINGS]
    texts = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))]
    answers = [f"this {text} is here" for text in texts]
    answers[:WRONG] = [*answers[1:WRONG], answers[0]]
    rows = [[query, answer] for query, answer in zip(texts, answers, strict=True)]
    with Path("faq.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["query", "answer"], *rows])
    return rows


def test_wrong_pairs_are_ranked_and_dropped(words: list[list[str]], run_command: Call) -> None:
    options = ("--out", "s.csv", "--decisions", "d.csv", "--drop-above", "0.5", "--report", "page.html", "--json")
    code, out, err = run_command("audit", "faq.csv", "--pairs", *options)
    assert (code, err) == (0, "")
    record = json.loads(out)
    called = {
        row["id"] for row in record["pair_suspects"] if row["kind"] == "listed" and row["probability_wrong"] > 0.5
    }
    assert called
    assert called <= {str(row) for row in range(WRONG)}
    assert record["pairs"] == 300
    least, most = (record["ranges"][0][end] for end in ("least", "most"))
    assert least <= WRONG / 300 + 1e-6 <= most + 2e-6
    rows = rows_of("s.csv")
    assert list(rows[0]) == ["id", "left", "right", "kind", "probability_wrong", "evidence", "decision"]
    assert [row["left"] for row in rows[:5]] == [words[int(row["id"])][0] for row in rows[:5]]
    assert "go together better" in rows[0]["evidence"]
    assert "Called wrong: " in Path("page.html").read_text()
    code, out, err = run_command("audit", "faq.csv", "--pairs", "--apply", "d.csv", "-o", "clean.csv", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["drop"] == len(called)
    left = [[row["query"], row["answer"]] for row in rows_of("clean.csv")]
    assert left == [row for number, row in enumerate(words) if str(number) not in called]


def test_the_console_says_the_result_first(words: list[list[str]], run_command: Call) -> None:
    code, out, _ = run_command("audit", "faq.csv", "--pairs")
    assert code == 0
    assert out.startswith("Called wrong: ")
    assert "% of the pairs do not belong together" in " ".join(out.split())


def test_right_pairs_are_not_accused(words: list[list[str]], run_command: Call) -> None:
    with Path("right.csv").open("w", newline="") as file:
        rows = [[query, f"this {query} is here"] for query, _ in words]
        csv.writer(file).writerows([["query", "answer"], *rows])
    _, out, _ = run_command("audit", "right.csv", "--pairs", "--json")
    assert all(row["probability_wrong"] < 0.5 for row in json.loads(out)["pair_suspects"] if row["kind"] == "listed")


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Six items of a kind on each side; each belongs to all of its kind, and is listed with one; 20 are wrong."""
    monkeypatch.chdir(tmp_path)
    random, kinds = np.random.default_rng(0), np.repeat(np.arange(60), 6)
    centres = random.normal(size=(60, 8))
    for side in ("l", "r"):
        points = centres[kinds] + 0.1 * random.normal(size=(360, 8))
        np.savez(f"{side}.npz", embeddings=points, id=[f"{side}{row}" for row in range(360)])
    partners = np.arange(360)
    partners[:120:6] = np.roll(partners[:120:6], 1)
    rows = [[f"l{row}", f"r{partner}"] for row, partner in enumerate(partners.tolist())]
    with Path("faq.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["query", "answer"], *rows])
    return kinds


VECTORS = ("--left-vectors", "l.npz", "--right-vectors", "r.npz")


def test_what_is_called_wrong_gets_an_answer_of_its_kind(kinds: np.ndarray, run_command: Call) -> None:
    options = ("--decisions", "d.csv", "--relabel-above", "0.5")
    code, _, err = run_command("audit", "faq.csv", "--pairs", *VECTORS, *options)
    assert (code, err) == (0, "")
    offered = {int(row["id"]): row["label"] for row in rows_of("d.csv") if row["decision"] == "relabel"}
    assert len(offered) > 10
    assert {*offered} <= {*range(0, 120, 6)}
    assert all(kinds[row] == kinds[int(answer[1:])] for row, answer in offered.items())


def test_missing_pairs_are_added(kinds: np.ndarray, run_command: Call) -> None:
    """Each once: as a row of its own, or in place of a wrong one; pairs that the file judges are not missing."""
    before = [(row["query"], row["answer"]) for row in rows_of("faq.csv")]
    options = ("--decisions", "d.csv", "--relabel-above", "0.5", "--out", "s.csv", "--report", "page.html")
    assert run_command("audit", "faq.csv", "--pairs", *VECTORS, *options)[0] == 0
    missing = {(row["id"], row["right"]) for row in rows_of("s.csv") if row["kind"] == "missing"}
    decided = {what: {(row["id"], row["label"]) for row in rows_of("d.csv") if row["decision"] == what}
               for what in ("add", "relabel")}  # fmt: skip
    assert len({id for id, _ in decided["add"]}) < len(decided["add"])  # some rows get several
    assert decided["add"] | decided["relabel"] == missing
    assert not decided["add"] & decided["relabel"]
    code, out, err = run_command("audit", "faq.csv", "--pairs", "--apply", "d.csv", "-o", "clean.csv")
    assert (code, err) == (0, "")
    count = len(decided["add"])
    assert out.startswith(f"clean.csv: {360 + count} rows from 360; {count} pairs added, 20 relabelled, 0 dropped,")
    after = {(row["query"], row["answer"]) for row in rows_of("clean.csv")}
    assert after == {pair for row, pair in enumerate(before) if row % 6 or row >= 120} | {
        (before[int(id)][0], label) for id, label in missing
    }
    code, out, err = run_command("audit", "clean.csv", "--pairs", *VECTORS, "--json")
    assert code == 0
    assert not [row for row in json.loads(out)["pair_suspects"] if row["kind"] == "missing"]
    code, _, err = run_command("audit", "clean.csv", "--pairs", "--apply", "d.csv", "-o", "again.csv")
    assert (code, "If these decisions were applied before, there is nothing to do" in err) == (2, True)

    options = ("--decisions", "drop.csv", "--drop-above", "0.5")
    assert run_command("audit", "faq.csv", "--pairs", *VECTORS, *options)[0] == 0
    code, out, err = run_command("audit", "faq.csv", "--pairs", "--apply", "drop.csv", "-o", "fewer.csv", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(out)[what] for what in ("drop", "keep", "add", "undecided")] == [20, 340, 0, 0]

    id, right = min(decided["add"])
    judged = [[*pair, 1] for pair in before] + [[before[int(id)][0], right, 0]]
    with Path("faq.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["query", "answer", "score"], *judged])
    _, out, _ = run_command("audit", "faq.csv", "--pairs", *VECTORS, "--json")
    pairs = {(row["id"], row["right"]) for row in json.loads(out)["pair_suspects"] if row["kind"] == "missing"}
    assert len(pairs) > 100
    assert (id, right) not in pairs


def test_vectors_of_two_spaces(words: list[list[str]], run_command: Call) -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(300, 12))
    right = points @ random.normal(size=(12, 7)) + random.normal(size=(300, 7)) / 5
    np.savez("l.npz", embeddings=points, id=[f"i{row}.png" for row in range(300)])
    np.savez("r.npz", embeddings=right, id=[f"c{row}" for row in range(300)])
    order = [*range(1, WRONG), 0, *range(WRONG, 300)]
    with Path("both.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "caption"], *([f"i{row}.png", f"c{order[row]}"] for row in range(300))])
    vectors = ("--left-vectors", "l.npz", "--right-vectors", "r.npz")
    Image.new("RGB", (8, 8), "red").save("i3.png")
    Path("i4.png").write_text("no image")
    code, out, err = run_command("audit", "both.csv", *vectors, "--json", "--report", "page.html")
    assert (code, err) == (0, "")
    suspects = json.loads(out)["pair_suspects"]
    assert {row["left"] for row in suspects[:10]} <= {f"i{row}.png" for row in range(WRONG)}
    assert Path("page.html").read_text().count("data:image/jpeg;base64,") == 1
    assert "of two spaces" in " ".join(json.loads(out)["notes"])
    code, _, err = run_command("audit", "both.csv", *vectors, "--encoder", "x")
    assert (code, "--encoder is for texts" in err) == (2, True)


def test_a_folder_of_beir(words: list[list[str]], run_command: Call) -> None:
    folder = Path("beir")
    (folder / "qrels").mkdir(parents=True)
    for name, side in (("queries", 0), ("corpus", 1)):
        lines = [json.dumps({"_id": f"{name[0]}{row}", "text": each[side]}) for row, each in enumerate(words)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    lines = [f"q{row}\tc{row}\t1" for row in range(300)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    code, out, err = run_command("audit", "beir", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["pair_suspects"][0]["id"].split()[0] in {f"q{row}" for row in range(WRONG)}
    code, _, err = run_command("audit", "beir", "--decisions", "d.csv")
    assert (code, "write --out FILE instead" in err) == (2, True)
    code, out, _ = run_command("audit", "beir", "--out", "s.csv", "--report", "page.html")
    assert code == 0
    remedy = "no rows to apply decisions to: remove what is wrong from its qrels"
    for text in (out, Path("page.html").read_text()):
        assert remedy in " ".join(text.split())
        assert "--apply" not in text


def test_a_run_on_pairs_is_audited_by_what_it_was_trained_on(words: list[list[str]], run_command: Call) -> None:
    """Its texts, not its network."""
    Path("runs/faq").mkdir(parents=True)
    path = Path("faq.csv").resolve()
    Path("runs/faq/config.toml").write_text(f'[data]\nname = "pairs"\npath = "{path}"\n[loss]\nname = "supcon"\n')
    records = []
    for asked in (("runs/faq",), ("faq.csv", "--pairs")):
        code, out, err = run_command("audit", *asked, "--json")
        assert (code, err) == (0, "")
        records.append(json.loads(out))
    assert records[0]["pair_suspects"] == records[1]["pair_suspects"]
    assert "does not judge them" in " ".join(records[0]["notes"])
    code, _, err = run_command("audit", "runs/faq", "--pairs")
    assert (code, "leave out --pairs" in err) == (2, True)


def test_a_run_on_pairs_is_trained_on_the_table_with_decisions(words: list[list[str]], run_command: Call) -> None:
    """Its rows are no items of the run; what the sentence says works."""
    Path("d.csv").write_text(f"id,decision,label\n3,add,{words[7][1]}\n5,drop,\n")
    model = '[loss]\nname = "supcon"\n[model]\nname = "linear"\n[training]\nsteps = 2\n'
    for name in ("faq", "new"):
        Path(f"{name}.toml").write_text(f'[data]\nname = "pairs"\npath = "{name}.csv"\n{model}')
    code, _, err = run_command("train", "faq.toml", "--labels", "d.csv", "-o", "run")
    assert (code, "data.decisions is for classes and tags" in err) == (2, True)
    remedy = re.search(r"with trivet (audit .*), and train on that", err)
    assert remedy is not None
    code, out, err = run_command(*remedy[1].replace("TABLE", "faq.csv").replace("NEW", "new.csv").split())
    assert (code, err) == (0, "")
    assert out.startswith("new.csv: 300 rows from 300; 1 pair added, 0 relabelled, 1 dropped")
    code, _, err = run_command("train", "new.toml", "-o", "run")
    assert (code, "300 pairs that belong together" in err) == (0, True)


def test_pairs_that_cannot_be_judged(words: list[list[str]], run_command: Call) -> None:
    with Path("faq.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["query", "answer"], *words[:40]])
    code, out, err = run_command("audit", "faq.csv", "--pairs", "--decisions", "d.csv", "--report", "page.html")
    assert (code, err) == (0, "")
    assert out.startswith("These embeddings cannot judge these pairs: there are 40 different pairs")
    assert not Path("d.csv").exists()
    assert "No suspects are listed" in Path("page.html").read_text()


def test_what_pairs_have_not(words: list[list[str]], run_command: Call) -> None:
    for option in ("--neighbours", "--folds", "--separator", "--split"):
        code, _, err = run_command("audit", "faq.csv", "--pairs", option, "3")
        assert code == 2
        assert f"{option} says nothing of pairs" in err
    assert run_command("audit", "faq.csv", "--pairs")[0] == 0  # as the sentence says


@pytest.mark.parametrize("cells", [False, True], ids=["paths", "cells"])
def test_a_side_of_images_needs_vectors(
    cells: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    """Letters of paths say nothing of images; the remedy works."""
    monkeypatch.chdir(tmp_path)
    paths, texts = [f"{row}.png" for row in range(100)], [f"number {row}" for row in range(100)]
    with Path("both.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "caption"], *zip(paths, texts, strict=True)])
    if cells:
        picture = io.BytesIO()
        Image.new("L", (4, 4)).save(picture, "PNG")
        table = pa.table({"image": [picture.getvalue() + bytes([row]) for row in range(100)], "caption": texts})
        pq.write_table(table, "both.parquet")
    code, _, err = run_command("audit", "both.parquet" if cells else "both.csv", "--pairs")
    assert (code, "'image' of " in err, "--left-vectors FILE --right-vectors FILE" in err) == (2, True, True), err
    points = np.random.default_rng(0).normal(size=(100, 8))
    np.savez("l.npz", embeddings=points, id=paths)
    np.savez("r.npz", embeddings=points, id=texts)
    code, out, err = run_command("audit", "both.csv", "--left-vectors", "l.npz", "--right-vectors", "r.npz")
    assert (code, out.splitlines()[0]) == (0, "Called wrong: 0 of 100 pairs"), err


@pytest.mark.skipif(not CLINC.is_file(), reason="needs CLINC150 in TRIVET_DATA")
def test_a_text_does_not_lack_itself(run_command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    intents = dict[str, list[str]]()
    for text, intent in json.loads(CLINC.read_text())["train"][::16]:
        intents.setdefault(intent, []).append(text)
    rows = [(text, texts[row - 3]) for texts in intents.values() for row, text in enumerate(texts)]
    with Path("same.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["sentence1", "sentence2"], *rows])
    assert run_command("audit", "same.csv", "--pairs", "--out", "s.csv")[0] == 0
    missing = [(row["left"], row["right"]) for row in rows_of("s.csv") if row["kind"] == "missing"]
    assert missing
    assert not [pair for pair in missing if pair[0] == pair[1]]
