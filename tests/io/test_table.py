"""Texts of a csv file: columns and rows, and one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.miniatures import hugging_face

from trivet.io.read_embeddings import read_texts


def test_a_file_is_read_with_its_columns_by_rows_of_its_split(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    long = "word " * 400
    file.write_text(f'id,text,kind,split\nx,"one, two",a,train\ny,three,b,test\nz,"{long}\nline",a,train\n')
    found = read_texts(file, split="train")
    assert found.texts == ["one, two", f"{long}\nline"]
    assert found.embeddings.shape == (2, 0)
    assert found.ids is not None
    assert (found.name, found.ids.tolist(), list(found.labels)) == ("texts.csv", ["x", "z"], ["kind"])
    assert found.labels["kind"].tolist() == ["a", "a"]
    assert len(read_texts(file)) == 3


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("words,kind\nx,a\n", "must have a column 'text': .* has 'words', 'kind'; name the one .* with --text"),
        ("text,kind\n", "at least one row"),
        ("text,kind\nx,a\n,b\n  ,b\n", "must have a text: 2 of 3 have none, lines 3, 4;"),
        ("text,kind\nx,a\ny\n", "must be a complete csv file"),
        ("text,text\nx,a\n", "'text' occurs twice"),
        ("text,kind\nx,a\ny,\n", "class name of level 'kind': 1 of 2"),
        ("id,text,kind\n1,x,a\n1,y,a\n", "ids of .* must be unique"),
        ("", "must be a complete csv file"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "texts.csv").write_text(content)
    with pytest.raises(ValueError, match=sentence) as error:
        read_texts(tmp_path / "texts.csv")
    assert "\n" not in str(error.value)


def test_texts_of_a_hugging_face_data_set_saved_on_disk(tmp_path: Path) -> None:
    hugging_face(tmp_path, {"text": ["a b", "c d"], "intent": [1, 0]}, intent=("pay", "ask"))
    vectors = read_texts(tmp_path)
    assert vectors.texts == ["a b", "c d"]
    assert vectors.labels["intent"].tolist() == ["ask", "pay"]
