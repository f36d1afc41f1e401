"""Pairs as a data set: groups that share no content are held out, and both sides are searched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from trivet.datasets import DataConfig, Dataset, Splits, load, load_file
from trivet.datasets.config import with_validation_fold
from trivet.datasets.judged_pairs import JudgedPairs, pair_cells, pairs_of_cells
from trivet.datasets.tags import column_relations
from trivet.metrics import retrieve, retrieve_levels


def loaded(path: Path | object, **settings: object) -> Splits:
    return load(DataConfig.parse({"name": "pairs", "path": str(path), **settings}, source="x"), None)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def shows(items: Dataset) -> list[str]:
    return [str(items.show(i)) for i in range(len(items))]


def positives(items: Dataset) -> set[tuple[str, str]]:
    """The pairs of contents that belong together, by the relation of the items."""
    relation, texts = items.relation("pair"), shows(items)
    assert isinstance(relation, JudgedPairs)
    rows, columns = relation.positive(relation.items, relation.items).nonzero().T.tolist()
    return {(texts[row], texts[column]) for row, column in zip(rows, columns, strict=True)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """30 questions of 20 answers, every second of which has two, and a negative of each."""
    rows = [f"question {i},answer {i % 20},wrong {i % 7}" for i in range(30)]
    return written(tmp_path / "faq.csv", "\n".join(["question,answer,negative", *rows]))


def test_groups_are_held_out_whole(table: Path) -> None:
    splits = loaded(table)
    assert list(splits.evaluation) == ["test", "test-reversed"]
    test, back = splits.evaluation.values()
    trained = set(shows(splits.train))
    assert not trained & set(shows(test))
    assert {f"wrong {i}" for i in range(7)} <= trained
    pairs = positives(splits.train) | positives(test)
    assert {(f"question {i}", f"answer {i % 20}") for i in range(30)} == {
        pair for pair in pairs if pair[0].startswith("q")
    }
    assert test.protocol is not None
    assert back.protocol is not None
    assert [name.split()[0] for name in np.array(shows(test))[test.protocol.query]] == ["question"] * 7
    assert {name.split()[0] for name in np.array(shows(back))[back.protocol.query]} == {"answer"}
    assert splits.summary == (
        "faq.csv: 30 of 'question', 27 of 'answer', 30 pairs that belong together, 23 of them trained on."
    )
    assert shows(loaded(table, seed=1).evaluation["test"]) != shows(test)


def test_both_directions_are_retrieved(table: Path) -> None:
    for split, items in loaded(table).evaluation.items():
        texts = shows(items)
        number = torch.tensor([int(text.split()[1]) % 20 + 50 * text.startswith("w") for text in texts])
        embeddings = torch.nn.functional.one_hot(number, 60).double().numpy()
        result = retrieve_levels(**items.evaluation_arguments(embeddings), measures=("recall@1",))["pair"]
        assert result.mean() == {"recall@1": 1.0}, split
        wrong = retrieve_levels(**items.evaluation_arguments(np.roll(embeddings, 1, 0)), measures=("recall@1",))
        assert wrong["pair"].mean()["recall@1"] < 1


def test_a_fold_of_training_pairs_is_measured_in_both_directions(table: Path) -> None:
    splits = loaded(table, folds=3)
    held = splits.evaluation["validation"]
    assert held.protocol is not None
    asked = [text.split()[0] for text in np.array(shows(held))[held.protocol.query].tolist()]
    assert set(asked) == {"question", "answer"}
    assert not set(shows(held)) & set(shows(splits.train))
    assert {text.split()[1] for text in shows(held) if text.startswith("q")} >= {
        text.split()[1] for text in shows(held) if text.startswith("a")
    }


def test_the_file_says_what_is_held_out(tmp_path: Path) -> None:
    rows = ["a,x,train", "b,y,train", "c,y,test", "d,z,test", "e,w,dev", "f,v,dev"]
    path = written(tmp_path / "t.csv", "\n".join(["query,answer,split", *rows]))
    splits = loaded(path)
    assert list(splits.evaluation) == ["test", "test-reversed", "val", "val-reversed"]
    assert sorted(shows(splits.train)) == ["a", "b", "x", "y"]
    assert sorted(shows(splits.evaluation["test"])) == ["c", "d", "y", "z"]
    assert splits.warnings == ("1 answer of pairs of 'test' are trained on, too: a network may know them.",)
    path.write_text(path.read_text().replace("c,y,test", "a,y,test"))
    with pytest.raises(ValueError, match=r"no query may be both .*: 1 of 'test' are, first 'a'; put all rows of each"):
        loaded(path)


def test_a_collection_is_searched_whole(tmp_path: Path) -> None:
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    texts = {f"d{i}": f"document {i}" for i in range(6)}
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps({"_id": k, "text": v}) for k, v in texts.items()))
    (folder / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": f"q{i}", "text": f"query {i}"}) for i in range(4))
    )
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(head + "q0\td0\t2\nq1\td1\t1\nq0\td2\t0\n")
    (folder / "qrels" / "test.tsv").write_text(head + "q2\td2\t1\nq3\td3\t2\nq3\td1\t1\n")
    splits = loaded(folder)
    assert splits.train.ids == ("q0", "q1", "d0", "d1", "d2")
    test, back = splits.evaluation["test"], splits.evaluation["test-reversed"]
    assert test.ids == ("q2", "q3", *texts)
    assert back.ids == ("q2", "q3", "d1", "d2", "d3")
    relation = test.relation("pair")
    assert isinstance(relation, JudgedPairs)
    assert relation.relevance(relation.items[:2], relation.items[2:]).tolist() == [
        [0, 0, 1, 0, 0, 0],
        [0, 1, 0, 2, 0, 0],
    ]
    (folder / "qrels" / "train.tsv").unlink()
    with pytest.raises(
        ValueError, match=r'must be train and another to evaluate: .* has test; .*data\.split = "queries"'
    ):
        loaded(folder)


def test_a_content_on_both_sides_is_no_negative_of_itself(tmp_path: Path) -> None:
    rows = [f"text {i},text {i + 100}" for i in range(10)] + ["text 100,text 200"]
    items = loaded(written(tmp_path / "t.csv", "\n".join(["sentence1,sentence2", *rows]))).train
    relation, texts = items.relation("pair"), shows(items)
    assert isinstance(relation, JudgedPairs)
    ignored = relation.ignored(relation.items, relation.items)
    assert ignored is not None
    left, right = (i for i, text in enumerate(texts) if text == "text 100")
    assert ignored[left, right]
    assert ignored[right, left]
    assert items.labels["pair"][left] == items.labels["pair"][right]
    # The queries "text 0" and "text 100" are of one group, as the text stands on both sides.
    whole = items.relations["pair"]
    assert isinstance(whole, JudgedPairs)
    embeddings = np.eye(len(whole.items))
    sides = whole.items[:11], whole.items[11:]
    result = retrieve(embeddings[:11], whole[sides[0]], gallery=embeddings[11:], gallery_labels=whole[sides[1]])
    assert len(np.unique(result.classes)) == 10


def test_scores_say_what_belongs_together(tmp_path: Path) -> None:
    rows = [f"a{i},x{i},{i % 2 * 4.5}" for i in range(20)]
    path = written(tmp_path / "t.csv", "\n".join(["text1,text2,score", *rows]))
    with pytest.raises(
        ValueError, match=r"has scores from 0 to 4\.5; say it with --relevant, such as --relevant 4\.5, or"
    ):
        loaded(path)
    splits = loaded(path, relevant=4)
    assert len(positives(splits.train)) + len(positives(splits.evaluation["test"])) == 20
    with pytest.raises(ValueError, match=r"no score reaches data\.relevant = 5; lower it"):
        loaded(path, relevant=5)


def test_folds_leave_pairs_to_train_on(table: Path) -> None:
    splits = loaded(table)
    config = DataConfig.parse({"name": "pairs", "path": str(table), "folds": 2, "fold": 1}, source="x")
    again = with_validation_fold(splits, config)
    assert positives(again.train)
    assert positives(again.train) | positives(again.evaluation["validation"]) == positives(splits.train)


def vector_files(folder: Path, widths: tuple[int, int]) -> dict[str, object]:
    """A table of 12 pairs of ids, and the vectors of each side in files of their own, in another order."""
    random = np.random.default_rng(0)
    (folder / "pairs.csv").write_text("\n".join(["image,caption", *(f"i{n},c{n}" for n in range(12))]))
    settings: dict[str, object] = {"path": str(folder / "pairs.csv")}
    for side, letter, width in zip(("left", "right"), "ic", widths, strict=True):
        order = random.permutation(14)
        rows = np.arange(14)[order, None] + np.arange(width) / 100
        np.savez(folder / f"{side}.npz", embeddings=rows.astype(np.float32), id=[f"{letter}{n}" for n in order])
        settings[f"{side}_vectors"] = str(folder / f"{side}.npz")
    return settings


def vectors_by_id(items: Dataset) -> dict[str, list[float]]:
    return dict(zip(shows(items), items.inputs.batch(np.arange(len(items))).tolist(), strict=True))


def test_vectors_of_two_encoders_have_numbers_of_their_own(tmp_path: Path) -> None:
    settings = vector_files(tmp_path, (3, 2))
    config = DataConfig.parse({"name": "pairs", **settings}, source="x")
    assert config.item_kind == "vectors"
    splits = load(config, None)
    rows = vectors_by_id(splits.train) | vectors_by_id(splits.evaluation["test"])
    assert rows["i7"] == pytest.approx([7, 7.01, 7.02, 0, 0])
    assert rows["c4"] == pytest.approx([0, 0, 0, 4, 4.01])
    other = load_file(config, tmp_path / "right.npz", None)
    assert vectors_by_id(other)["c13"] == pytest.approx([0, 0, 0, 13, 13.01])
    np.savez(tmp_path / "long.npz", embeddings=np.ones((2, 4), np.float32), id=["a", "b"])
    with pytest.raises(ValueError, match=r"the length of a side that the run was trained on, 3 or 2: got 4"):
        load_file(config, tmp_path / "long.npz", None)


def test_vectors_of_one_space_stay_as_they_are(tmp_path: Path) -> None:
    settings = vector_files(tmp_path, (2, 2))
    assert vectors_by_id(loaded(**settings).train)["c4"] == pytest.approx([4, 4.01])
    separate = {**settings, "towers": "separate"}
    assert vectors_by_id(loaded(**separate).train)["c4"] == pytest.approx([0, 0, 4, 4.01])
    with pytest.raises(ValueError, match="must say of which side they are, and both have 2"):
        load_file(DataConfig.parse({"name": "pairs", **separate}, source="x"), tmp_path / "left.npz", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"towers": "shared"}, "needs vectors of one length: got 3 on the left and 2 on the right"),
        ({"right_vectors": None}, "left_vectors and right_vectors go together"),
        ({"left": "caption", "right": "image"}, r"each 'caption' of .* must be an id in .*: 12 of 12 are not, first"),
    ],
)
def test_vectors_that_do_not_fit(tmp_path: Path, change: dict[str, object], message: str) -> None:
    settings = {**vector_files(tmp_path, (3, 2)), **change}
    with pytest.raises(ValueError, match=message):
        loaded(**{key: value for key, value in settings.items() if value is not None})


def test_cells_of_a_file_hold_the_relation_of_its_items() -> None:
    judged = np.array([[0, 0], [0, 2], [1, 1], [2, 2], [3, 0], [3, 4]])
    grades = np.array([1.0, 2.0, 1.0, 0.0, 3.5, 1.0])
    relation = JudgedPairs(4, 6, judged, grades, relevant=1.0, equal=np.array([[1, 5], [2, 0]]))
    cells = np.array(pair_cells(relation, relation.items.numpy()))
    assert cells.tolist() == [
        "left;0;0", "left;1;1;=5", "left;2;=0", "left;3;0:3.5",
        "right;0", "right;1", "right;2;0:2", "right;3", "right;4;3", "right;5",
    ]  # fmt: skip
    order = np.random.default_rng(0).permutation(len(cells))
    for rows in (order, order[order != 2], order[[0, 3, 5, 6, 7]]):
        read = column_relations(cells[rows], match="pairs")[0][0]
        known = relation[rows]
        for mine, its in zip(
            read.compared(read.items, read.items), known.compared(known.items, known.items), strict=True
        ):
            assert torch.equal(mine, its)
        assert torch.equal(read.relevance(read.items, read.items), known.relevance(known.items, known.items))
    for wrong in (["query;1"], ["left;x", "right;1"], ["right"], ["left;0;x", "right;0"]):
        with pytest.raises(ValueError, match="cells of pairs must be sides and numbers"):
            pairs_of_cells(wrong)


def test_cells_are_short_where_a_content_belongs_to_hundreds() -> None:
    judged = np.array([[0, right] for right in range(900)] + [[left, 900] for left in range(1, 900)])
    relation = JudgedPairs(900, 901, judged, np.ones(len(judged)), relevant=1.0, equal=np.zeros((0, 2), np.int64))
    cells = pair_cells(relation, relation.items.numpy())
    assert max(map(len, cells)) < 20
    read = pairs_of_cells(sorted(cells))
    assert np.bincount(np.bincount(read.pairs[:, 0])).tolist() == [0, 899] + 898 * [0] + [1]
    assert np.bincount(np.bincount(read.pairs[:, 1] - 900)).tolist() == [0, 900] + 897 * [0] + [1]
