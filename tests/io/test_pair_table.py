"""Tables of pairs: which columns are the sides, what is a negative, and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trivet.io.pair_table import PairTable, read_pairs


def listed(table: PairTable) -> list[tuple[str, str, float]]:
    return [
        (table.left.contents[left], table.right.contents[right], grade)
        for (left, right), grade in zip(table.pairs.tolist(), table.grades.tolist(), strict=True)
    ]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_equal_contents_are_one_item_and_negatives_have_the_grade_0(tmp_path: Path) -> None:
    path = written(
        tmp_path / "faq.csv",
        "Question,answer,negative_1,hard negative 2,topic\n"
        "how much?,ten,here,,x\nwhere?,here,ten,now,y\nhow much?,it costs ten,,,x\n",
    )
    table = read_pairs(path)
    assert listed(table) == [
        ("how much?", "ten", 1.0),
        ("how much?", "here", 0.0),
        ("where?", "here", 1.0),
        ("where?", "ten", 0.0),
        ("where?", "now", 0.0),
        ("how much?", "it costs ten", 1.0),
    ]
    assert (table.left.name, table.right.name, table.splits) == ("Question", "answer", None)
    assert list(table.left.ids) == ["Question-0", "Question-1"]
    assert table.notes == ()


def test_lists_of_negatives_and_scores_and_splits(tmp_path: Path) -> None:
    rows = [
        {"query": "a", "passage": "x", "negatives": ["y", "z"], "score": 2, "split": "train"},
        {"query": "b", "passage": "y", "negatives": [], "score": 0, "split": "dev"},
    ]
    path = written(tmp_path / "pairs.jsonl", "\n".join(map(json.dumps, rows)))
    table = read_pairs(path)
    assert listed(table) == [("a", "x", 2.0), ("a", "y", 0.0), ("a", "z", 0.0), ("b", "y", 0.0)]
    assert table.splits is not None
    assert table.splits.tolist() == ["train", "train", "train", "val"]


def test_a_pair_that_comes_again_has_its_highest_score(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "text1,text2,score\na,x,0\na,x,1\nb,y,1\nb,y,1\n")
    table = read_pairs(path)
    assert listed(table) == [("a", "x", 1.0), ("b", "y", 1.0)]
    assert table.notes == (
        "1 pair of t.csv come again with another score, or as a negative: the highest score counts.",
    )


def test_sides_that_names_do_not_say_are_named_by_a_setting(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "de,en\nhallo,hello\nwelt,world\n")
    with pytest.raises(ValueError, match=r"for each side, .* has de, en; name them with --left and --right"):
        read_pairs(path)
    assert listed(read_pairs(path, left="de", right="en")) == [("hallo", "hello", 1.0), ("welt", "world", 1.0)]
    with pytest.raises(ValueError, match=r"has no 'dee'; did you mean 'de'"):
        read_pairs(path, left="dee", right="en")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,answer\na,x\nb,\n", r"must have both sides: 1 of 2 have not, line 3; .* data\.skip_empty = true"),
        ("query,answer,score\na,x,1\nb,y,\n", r"both sides and a score: 1 of 2 have not, line 3"),
        ("premise,hypothesis,label\na,x,entailment\nb,y,neutral\n", r"'label' of .* holds texts; write 1 for pairs"),
    ],
)
def test_rows_that_are_no_pairs(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pairs(written(tmp_path / "t.csv", text))


def test_incomplete_rows_can_be_left_out(tmp_path: Path) -> None:
    table = read_pairs(written(tmp_path / "t.csv", "query,answer\na,x\nb,\nc,z\n"), skip_empty=True)
    assert listed(table) == [("a", "x", 1.0), ("c", "z", 1.0)]
    assert table.notes == ("1 of 3 rows of t.csv were left out as incomplete: line 3.",)


def test_scores_that_are_named_are_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "query,answer,how\na,x,much\nb,y,little\n")
    with pytest.raises(ValueError, match=r"'how' of .* holds others"):
        read_pairs(path, score="how")
    assert listed(read_pairs(path)) == [("a", "x", 1.0), ("b", "y", 1.0)]
