"""Hold-outs of pairs: nothing of a held-out query is trained on, whatever pairs connect."""

from __future__ import annotations

import csv
import itertools
import math
import os
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trivet.commands.train.ladder import validation_folds
from trivet.datasets import DataConfig, Dataset, Splits, load
from trivet.datasets.holdout import folds_advice, holdout_unit, holds_items_out
from trivet.datasets.judged_pairs import JudgedPairs
from trivet.datasets.pair_splits import EXCERPT
from trivet.training.class_sample import evaluation_sample

Rows = list[tuple[str, str]]


def loaded(folder: Path, rows: Rows, negatives: Sequence[tuple[str, str]] = (), **settings: object) -> Splits:
    path = folder / "pairs.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("query", "answer", "score"), *((*row, 1) for row in rows)])
        csv.writer(file).writerows((*row, 0) for row in negatives)
    return load(DataConfig.parse({"name": "pairs", "path": str(path), **settings}, source="x"), None)


def contents(items: Dataset) -> set[tuple[str, str]]:
    """The side and the text of each item."""
    return set(zip(items.columns["side"], items.columns["text"], strict=True))


def queries(items: Dataset) -> set[str]:
    assert items.protocol is not None
    return {text for text, query in zip(items.columns["text"], items.protocol.query, strict=True) if query}


def definition(rows: Rows, negatives: Rows, held_out: set[str]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The contents that are trained on and evaluated, by sets of texts."""
    answers = {answer for query, answer in rows if query in held_out}
    rest = [(query, answer) for query, answer in rows if query not in held_out and answer not in held_out]
    asked, known = {query for query, _ in rest}, {answer for _, answer in rest}
    known |= {bad for query, bad in negatives if query in asked and bad not in answers | held_out}
    in_no_pair = {bad for _, bad in negatives} - {answer for _, answer in rows}
    trained = {("query", text) for text in asked} | {("answer", text) for text in known}
    evaluated = {("query", text) for text in held_out}
    return trained, evaluated | {("answer", text) for text in answers | (in_no_pair - known - asked)}


def random_rows(seed: int, *, shared: bool) -> tuple[Rows, Rows]:
    """Pairs and negatives, some of whose texts stand on both sides if `shared`."""
    generator = random.Random(seed)
    texts = [f"t{i}" for i in range(30)] if shared else [f"d{i}" for i in range(30)]
    rows = list({(f"t{generator.randrange(40)}", generator.choice(texts)) for _ in range(50)})
    others = [(f"t{i}", text) for i, text in itertools.product(range(40), [*texts, "n1", "n2", "n3"])]
    others = [pair for pair in others if pair not in rows and pair[0] != pair[1]]
    return rows, generator.sample(others, 15)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_queries_are_held_out_by_the_definition(tmp_path: Path, seed: int, shared: bool) -> None:
    rows, negatives = random_rows(seed, shared=shared)
    splits = loaded(tmp_path, rows, negatives, split="queries", seed=seed)
    test = splits.evaluation["test"]
    trained, evaluated = definition(rows, negatives, queries(test))
    assert contents(splits.train) == trained
    assert contents(test) == evaluated
    assert len(queries(test)) == math.ceil(0.2 * len({query for query, _ in rows}))
    fold = loaded(tmp_path, rows, negatives, split="queries", seed=seed, folds=3, folds_of="items")
    asked = queries(fold.evaluation["validation"])
    inner = [(query, answer) for query, answer in rows if {("query", query), ("answer", answer)} <= trained]
    refused = [(query, bad) for query, bad in negatives if {("query", query), ("answer", bad)} <= trained]
    assert (contents(fold.train), contents(fold.evaluation["validation"])) == definition(inner, refused, asked)
    assert len({query for query, _ in inner}) // 3 <= len(asked) <= len({query for query, _ in inner}) // 3 + 1


def test_what_both_parts_share_is_said(tmp_path: Path) -> None:
    rows = [(f"a{i}", f"x{(i + j) % 20}") for i in range(20) for j in (0, 1)]
    splits = loaded(tmp_path, rows)
    test = splits.evaluation["test"]
    asked = queries(test)
    answers = {answer for query, answer in rows if query in asked}
    known = {answer for query, answer in rows if query not in asked}
    (note,) = splits.warnings
    first = min(answers & known, key=lambda text: int(text[1:]))
    assert note == (
        f"20 contents of 'query' hang together, so single ones are held out; {len(answers & known)} answers of pairs "
        f"of 'test' are trained on, too, such as '{first}' of 2 queries: a network may know them."
    )
    assert not {("query", text) for text in asked} & contents(splits.train)
    with pytest.raises(ValueError, match=r"of 20 contents of 'query' in .* 20 hang .*; set data\.split = \"queries\""):
        loaded(tmp_path, rows, split="groups")
    assert contents(loaded(tmp_path, rows, split="queries").train) == contents(splits.train)
    with pytest.raises(ValueError, match=r"at least 4 different contents of 'query', .* has 3; add some"):
        loaded(tmp_path, rows[:6])


def test_an_equal_text_of_the_other_side_leaves_too(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(40)]
    rows = [(texts[i], texts[(i + j) % 40]) for i in range(40) for j in (1, 2)]
    splits = loaded(tmp_path, rows)
    asked = queries(splits.evaluation["test"])
    assert not asked & {text for _, text in contents(splits.train)}
    lost = sum(query not in asked and answer in asked for query, answer in rows)
    answers = {answer for query, answer in rows if query in asked}
    known = {answer for _, answer in rows if answer in answers} & {text for _, text in contents(splits.train)}
    assert f" {len(known)} answers of pairs of 'test' are trained on" in splits.warnings[0]
    assert f"; {lost} pairs are in neither part, as their answer equals a held-out query." in splits.warnings[0]


def banking(form: str) -> Rows:
    """Pairs of the texts of BANKING77: with a text of the same intent, its intent, or its intent and a shared hint."""
    path = Path(os.environ.get("TRIVET_DATA", "")) / "banking77/train.csv"
    if not path.is_file():
        pytest.skip("needs BANKING77 in TRIVET_DATA")
    with path.open(newline="") as file:
        rows = [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)][::4]
    generator = random.Random(0)
    if form == "texts":
        by_intent = {intent: [text for text, of in rows if of == intent] for _, intent in rows}
        return [(text, generator.choice(by_intent[intent])) for text, intent in rows]
    hints = ["Open the app.", "Call us.", "Have your card ready."] if form == "hints" else []
    return rows + [(text, generator.choice(hints)) for text, _ in rows if hints]


@pytest.mark.parametrize("form", ["texts", "intents", "hints"])
def test_real_pairs_do_not_leak(tmp_path: Path, form: str) -> None:
    rows = banking(form)
    splits = loaded(tmp_path, rows)
    total = len({query for query, _ in rows})
    relation = splits.train.relations["pair"]
    assert isinstance(relation, JudgedPairs)
    for split, whole in (("test", splits), ("validation", loaded(tmp_path, rows, folds=4))):
        items, train = whole.evaluation[split], whole.train
        asked = {text for side, text in contents(items) if side == "query"}
        assert not asked & {text for _, text in contents(train)}
        assert 0.15 < len(asked) / total < 0.27
        if form == "hints":
            assert {("answer", "Call us.")} <= contents(train) & contents(items)
        else:
            assert not {text for _, text in contents(train)} & {text for _, text in contents(items)}
            labels = items.labels["pair"]
            assert np.bincount(labels).max() < 0.5 * len(labels)
    assert bool(splits.warnings) == (form == "hints")
    unit = "items" if form == "hints" else "classes"
    assert holdout_unit(splits.train, "pair") == unit
    folds = validation_folds(splits)
    assert folds is not None
    assert folds.of == unit


def test_queries_choose_where_answers_are_known(tmp_path: Path) -> None:
    rows = [(f"q{i}", f"a{i % 12}") for i in range(120)]
    new = loaded(tmp_path, rows)
    known = loaded(tmp_path, rows, split="queries")
    assert not holds_items_out(new)
    assert holds_items_out(known)
    assert folds_advice(new).startswith(", or set data.folds = 4, which holds out a part of the training classes")
    together = loaded(tmp_path, rows + [(f"q{i}", "a99") for i in range(0, 120, 2)])
    assert folds_advice(together).endswith("data.folds = 4, which holds out a part of the training queries")
    again = loaded(tmp_path, rows + [(f"q{i}", "a99") for i in range(0, 120, 2)], folds=4)
    assert again.warnings[-1].startswith("Pairs connect most of the training queries, so the folds are of queries")


@pytest.mark.parametrize("split", ["test", "test-reversed", "validation"])
def test_a_sample_has_whole_answers(tmp_path: Path, split: str) -> None:
    rows = [(f"q{i}", f"a{(i + j) % 90}") for i in range(90) for j in (0, 7)]
    items = loaded(tmp_path, rows, holdout=0.4, folds=3).evaluation[split]
    few = evaluation_sample(items, 15, seed=0)
    assert 10 <= len(few) <= 15
    pairs = {frozenset((("query", query), ("answer", answer))) for query, answer in rows}
    side = "answer" if split == "test-reversed" else "query"
    assert {of for of, text in contents(few) if text in queries(few)} == {side}
    for content in contents(few):
        if content[1] in queries(few):
            partners = {other for pair in pairs if content in pair for other in pair - {content}} & contents(items)
            assert partners <= contents(few)
    assert evaluation_sample(items, 1, seed=0).protocol is not None
    assert contents(evaluation_sample(items, len(items), seed=0)) == contents(items)


def test_a_long_answer_is_cut_in_the_note(tmp_path: Path) -> None:
    rows = [(f"q{i}", f"{'word ' * 40}{j}") for i in range(12) for j in (0, 1)]
    (note,) = loaded(tmp_path, rows).warnings
    assert f"{'word ' * 40}"[:EXCERPT] in note
    assert "word " * 13 not in note
