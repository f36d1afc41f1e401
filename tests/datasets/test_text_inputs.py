"""Texts as tokens: once for the data set, padded to the longest of a batch, the same for another file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trivet.datasets import DataConfig, load, load_file
from trivet.models import Tokens
from trivet.training.embed_dataset import raw_inputs


def letters(texts: Sequence[str]) -> Tokens:
    """Each letter is a token, five at most."""
    ids = [[ord(letter) - 96 for letter in text][:5] for text in texts]
    return Tokens(
        np.array([one for text in ids for one in text], np.int32),
        np.cumsum([0, *map(len, ids)]),
        5,
        sum(len(text) > 5 for text in texts),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = ["ab,x", "abc,x", "a,y", "cab,y", "ba,z", "bacabac,z", "b,w", "bb,w"]
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(["text,kind", *rows]) + "\n")
    return path


def test_a_batch_is_padded_to_its_longest_text(file: Path, tmp_path: Path) -> None:
    config = DataConfig.parse({"name": "texts", "path": str(file)}, source="x")
    splits = load(config, tmp_path, tokenize=letters)
    train, unseen = splits.train, splits.evaluation["unseen"]
    assert train.inputs.shape == (5,)
    assert splits.warnings == ("1 of 8 texts have more than 5 tokens and are cut there; model.max_tokens says where.",)
    assert train.inputs.batch(np.array([2, 3])).tolist() == [[2, -1], [2, 2]]
    assert [train.show(i) for i in range(len(train))] == ["ab", "abc", "b", "bb"]
    assert unseen.inputs.batch(np.array([3, 0, 3])).tolist() == [[2, 1, 3, 1, 2], [1, -1, -1, -1, -1], [2, 1, 3, 1, 2]]
    few = unseen.subset(np.array([2, 1]))
    assert few.inputs.batch(np.arange(2)).tolist() == [[2, 1, -1], [3, 1, 2]]
    assert few.columns["text"] == ("ba", "cab")


def test_another_file_is_made_tokens_of_and_needs_no_labels(file: Path, tmp_path: Path) -> None:
    config = DataConfig.parse({"name": "texts", "path": "gone.csv"}, source="x")
    other = tmp_path / "new.csv"
    other.write_text("text,more\ncc,1.5\nabcab,2.5\n")
    part = load_file(config, other, tmp_path, tokenize=letters)
    assert part.inputs.batch(np.arange(2)).tolist() == [[3, 3, -1, -1, -1], [1, 2, 3, 1, 2]]


def test_only_texts_are_tokens(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs texts: .* in place of 'digits'"):
        load(DataConfig.parse({"name": "digits"}, source="x"), tmp_path, tokenize=letters)


def test_the_raw_inputs_are_the_ngrams_that_a_run_without_a_network_takes(file: Path, tmp_path: Path) -> None:
    config = DataConfig.parse({"name": "texts", "path": str(file)}, source="x")
    tokens, vectors = load(config, tmp_path, tokenize=letters), load(config, tmp_path)
    for name, part in {"train": tokens.train, **tokens.evaluation}.items():
        same = vectors.train if name == "train" else vectors.evaluation[name]
        assert (raw_inputs(part.inputs) == raw_inputs(same.inputs)).all()
