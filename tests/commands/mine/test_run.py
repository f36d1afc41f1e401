"""`trivet mine` writes what `hard_negatives` finds, in chunks that are kept when it is stopped."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands.conftest import Call

from trivet.commands.mine import run as module
from trivet.commands.mine.options import MineOptions
from trivet.commands.mine.run import MiningResult
from trivet.knn.hard_negatives import HardNegatives, MiningRules, hard_negatives
from trivet.knn.index import build_index

DRAW = np.random.default_rng(0)
ITEMS, KIND = DRAW.standard_normal((70, 4)).astype(np.float32), np.arange(70) % 6
OTHERS, OTHER_KIND = DRAW.standard_normal((30, 4)).astype(np.float32), np.arange(30) % 5


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "CHUNK", 16)
    names = np.array([f"item {i}" for i in range(70)])
    texts = np.array([f"words of {i}" for i in range(70)])
    split = np.where(np.arange(70) % 3 == 0, "test", "train")
    np.savez("items.npz", embeddings=ITEMS, id=names, kind=KIND, text=texts, split=split)
    np.savez("others.npz", embeddings=OTHERS, kind=OTHER_KIND)  # without ids: row numbers


def mine_file(source: str = "items.npz", output: str = "mined.parquet", **options: Any) -> MiningResult:
    return module.mine_file(MineOptions(Path(source), Path(output), **options))


def read(path: str = "mined.parquet") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return found


def rows(table: dict[str, list[Any]]) -> list[tuple[int, int, int]]:
    return list(zip(*(table[f"{role}_row"] for role in ("anchor", "positive", "negative")), strict=True))


def same(table: dict[str, list[Any]], mined: HardNegatives) -> None:
    assert rows(table) == list(zip(mined.anchors, mined.positives, mined.negatives, strict=True)) != []
    assert table["to_positive"] == mined.to_positive.tolist()
    assert table["to_negative"] == mined.to_negative.tolist()


def test_a_file_by_its_only_label_column() -> None:
    rules = MiningRules(k=2, negatives="random", among=9, relative_margin=0.2, seed=5)
    made = mine_file(**asdict(rules), text="text")
    mined, table = hard_negatives(build_index(ITEMS), KIND, rules=rules), read()
    same(table, mined)
    for role in ("anchor", "positive", "negative"):
        assert table[role] == [f"item {row}" for row in table[f"{role}_row"]]
        assert table[f"{role}_text"] == [f"words of {row}" for row in table[f"{role}_row"]]
    assert made.counts == mined.counts._asdict()
    assert (made.chunks, made.reused, made.triplets) == (5, 0, len(mined))
    assert made.nearer == (mined.to_negative < mined.to_positive).mean()
    assert made.to_negative == pytest.approx(mined.to_negative.mean())
    written = json.loads(pq.read_schema("mined.parquet").metadata[b"trivet.mined"])
    assert written == {
        name: value for name, value in made.as_json().items() if name not in ("output", "chunks", "reused")
    }
    assert sorted(path.name for path in Path().iterdir()) == ["items.npz", "mined.parquet", "others.npz"]


def test_a_split_keeps_the_row_numbers_of_the_file() -> None:
    mine_file(k=1, split="test")
    chosen = np.arange(0, 70, 3)
    mined = hard_negatives(build_index(ITEMS[chosen]), KIND[chosen], rules=MiningRules(k=1))
    assert rows(read()) == list(
        zip(chosen[mined.anchors], chosen[mined.positives], chosen[mined.negatives], strict=True)
    )


def test_a_corpus_by_labels_and_by_pairs() -> None:
    mine_file(corpus=Path("others.npz"), labels="kind")
    index = build_index(OTHERS)
    same(read(), hard_negatives(index, OTHER_KIND, anchors=ITEMS, anchor_labels=KIND))
    pairs = np.array([[7, 3], [2, 29], [7, 4], [61, 3]])
    lines = "".join(f"item {anchor},{positive}\n" for anchor, positive in pairs)
    Path("pairs.csv").write_text("anchor,positive\n" + lines)
    files = {"corpus": Path("others.npz"), "pairs": Path("pairs.csv")}
    made = mine_file(output="pairs.parquet", margin=0.1, **files)
    same(read("pairs.parquet"), hard_negatives(index, anchors=ITEMS, pairs=pairs, rules=MiningRules(margin=0.1)))
    assert (made.counts["anchors"], made.counts["pairs"]) == (3, 4)


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_goes_on_after_a_stop_from_the_chunks_that_are_there(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"k": 2, "negatives": "random", "kind": kind}
    mine_file(output="whole.parquet", **arguments)
    asked: list[int] = []

    def stopping(*given: Any, rows: np.ndarray, **options: Any) -> HardNegatives:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(int(rows[0]))
        return hard_negatives(*given, rows=rows, **options)

    monkeypatch.setattr(module, "hard_negatives", stopping)
    with pytest.raises(KeyboardInterrupt):
        mine_file(**arguments)
    assert not Path("mined.parquet").exists()
    (parts,) = Path().glob(".mined*")
    (parts / ".part-00002.parquet.1.trivet").write_text("half")  # what a kill leaves
    asked.clear()
    monkeypatch.setattr(module, "build_index", None)  # the index is kept, too
    with pytest.raises(KeyboardInterrupt):
        mine_file(**arguments)
    assert asked == [32, 48]
    monkeypatch.setattr(module, "hard_negatives", hard_negatives)
    made = mine_file(**arguments)
    assert made.reused == 4
    assert pq.read_table("mined.parquet").equals(pq.read_table("whole.parquet"), check_metadata=True)
    assert not list(Path().glob(".mined*"))


def test_a_stopped_command_says_that_chunks_are_kept(monkeypatch: pytest.MonkeyPatch, run_command: Call) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_summary", lambda parts: signal.raise_signal(signal.SIGTERM))
        code, _, err = run_command("mine", "items.npz", "-o", "mined.parquet")
        assert (code, "chunks that were mined are kept" in err) == (1, True)
    code, out, _ = run_command("mine", "items.npz", "-o", "mined.parquet")
    assert (code, "5 of 5 chunks were there" in out) == (0, True)


def test_other_data_or_options_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise OSError("disk full")

    changes: list[tuple[dict[str, Any] | None, int]] = [
        ({}, 5),
        ({"k": 1}, 0),
        ({"distance": "euclidean"}, 0),
        (None, 0),
    ]
    for change, kept in changes:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_write_output", stop)
            with pytest.raises(OSError, match="disk full"):
                mine_file()
        if change is None:
            moved = ITEMS.copy()
            moved[-1] += 1e-3
            np.savez("items.npz", embeddings=moved, kind=KIND)
        made = mine_file(**(change or {}))
        assert made.reused == kept


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("others.npz -o x.parquet --corpus others.npz", "leave out --corpus"),
        ("two.npz -o x.parquet", "two.npz has kind, shade; name one with --labels"),
        ("items.npz -o x.parquet --labels kin", "did you mean 'kind'"),
        ("items.npz -o x.parquet --corpus wide.npz", "4 dimensions, wide.npz has 2"),
        ("items.npz -o x.parquet --pairs pairs.csv", "items.npz has no 'item 70', of row 1 of pairs.csv"),
        ("items.npz -o x.parquet --pairs pairs.csv --positives hard", "leave out --positives"),
        ("items.npz -o x.parquet --k 5 --among 4", "among must be at least skip"),
        ("items.npz -o x.parquet --distance euclidean --relative-margin 0.05", "use margin"),
        ("items.npz -o x.parquet --kind ivf-pq", "at least 10000 rows"),
        ("items.npz -o x.csv", "must name a .parquet file"),
        ("nan.npz -o x.parquet --corpus others.npz", "anchors must be finite"),
    ],
)
def test_what_cannot_be_mined_is_one_sentence(options: str, message: str, run_command: Call) -> None:
    np.savez("two.npz", embeddings=OTHERS, kind=OTHER_KIND, shade=OTHER_KIND)
    np.savez("wide.npz", embeddings=OTHERS[:, :2], kind=OTHER_KIND)
    np.savez("nan.npz", embeddings=np.where(np.arange(70)[:, None] == 69, np.nan, ITEMS), kind=KIND)
    Path("pairs.csv").write_text("anchor,positive\nitem 1,item 2\nitem 70,item 3\n")
    code, out, err = run_command("mine", *options.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not list(Path().glob("x.*"))
    assert not list(Path().glob(".x*"))


def test_the_example_of_the_page_runs() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "hard_negatives.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    exec(code, {})


def test_the_command_says_what_was_left_out_and_why(monkeypatch: pytest.MonkeyPatch, run_command: Call) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    command = ("mine", "items.npz", "-o", "mined.parquet", "--k=1", "--among=50", "--margin=0.6", "--max-distance=1.1")
    code, printed, _ = run_command(*command)
    made = json.loads(run_command(*command, "--force", "--json")[1])
    assert code == 0
    counts = made["counts"]
    assert printed.splitlines()[0] == (
        f"{counts['taken']} triplets of 70 pairs in mined.parquet, cosine distance, exact index"
    )
    for text, name in (
        ("taken", "taken"),
        ("--margin", "near_positive"),
        ("--max-distance", "too_far"),
        ("--k", "not_needed"),
    ):
        (line,) = [line for line in printed.splitlines() if line.startswith("│") and text in line]
        assert line.split("│")[2].strip() == str(counts[name]) != "0"
    assert f"{counts['without_negative']} pairs without any negative left" in printed
    code, _, err = run_command(*command)
    assert (code, "--force" in err) == (2, True)
