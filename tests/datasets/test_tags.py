"""Data sets of items with tags: the relation of a level, splits, folds, and what needs classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import trivet
from trivet.datasets import Dataset, Splits, load
from trivet.datasets.config import DataConfig

COLOURS, SHAPES = ("red", "blue", "green"), ("round", "square")
TAGS = [[COLOURS[i % 3], *SHAPES[: i % 3]] for i in range(60)]  # of each item one to three


def table(folder: Path, kind: str = "texts", divided: bool = False) -> Path:
    """Items whose tags are in any order; even items are of sort a."""
    generator = np.random.default_rng(0)
    rows = ["id,tags,sort" + (",split" if divided else "") + (",text" if kind == "texts" else ",e0,e1,e2,e3")]
    for i, tags in enumerate(TAGS):
        cells = [f"i{i}", ";".join(generator.permutation(tags)), "ab"[i % 2]]
        cells += ["test" if i >= 45 else "train"] if divided else []
        cells += [f"item {i} of {tags[0]}"] if kind == "texts" else [f"{i % 3}.5", f"{i}.25", "1.5", "0.5"]
        rows.append(",".join(cells))
    path = folder / f"{kind}.csv"
    path.write_text("\n".join(rows))
    return path


def loaded(folder: Path, kind: str = "texts", *, divided: bool = False, **settings: object) -> Splits:
    path = table(folder, kind, divided)
    values = {"name": kind, "path": str(path), "levels": ["tags"], "separator": ";", **settings}
    return load(DataConfig.parse(values, source="data"), None)


def check_relation(items: Dataset, match: object = "any") -> None:
    """The relation is that of the tags of each item."""
    numbers = [int(id[1:]) for id in items.ids]
    wanted, found = trivet.Tags([TAGS[i] for i in numbers], match), items.relation("tags")
    assert isinstance(found, trivet.Relation)
    assert torch.equal(found.positive(found.items, found.items), wanted.positive(wanted.items, wanted.items))
    assert torch.equal(found.relevance(found.items, found.items), wanted.relevance(wanted.items, wanted.items))
    assert set(found.names[items.classes("tags")]) == {tag for i in numbers for tag in TAGS[i]}


@pytest.mark.parametrize("kind", ["texts", "vectors"])
@pytest.mark.parametrize("match", ["any", "all", 0.5])
def test_a_level_of_tags_has_their_relation(kind: str, match: object, tmp_path: Path) -> None:
    splits = loaded(tmp_path, kind, match=match)
    for items in (splits.train, *splits.evaluation.values()):
        check_relation(items, match)
        check_relation(items.subset(np.arange(len(items))[::-2]), match)
        assert items.has_tags("tags")
        assert items.num_classes("tags") == 5
    assert splits.train.labels["tags"].max() < 9  # each set of tags is a class of its own


def test_a_share_of_the_items_is_held_out(tmp_path: Path) -> None:
    splits = loaded(tmp_path)
    assert (len(splits.train), len(splits.evaluation["seen"])) == (48, 12)
    parts = loaded(tmp_path, divided=True)
    assert (len(parts.train), len(parts.evaluation["seen"])) == (45, 15)
    folds = [loaded(tmp_path, divided=True, folds=3, fold=fold).evaluation["validation"] for fold in range(3)]
    assert sorted(id for fold in folds for id in fold.ids) == sorted(parts.train.ids)
    assert {len(fold) for fold in folds} == {15}
    for fold in folds:
        check_relation(fold)


@pytest.mark.parametrize("match", ["any", "all"])
def test_a_tag_of_every_item_leaves_no_negative(match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TAGS", [[*tags, "thing"] for tags in TAGS])
    sentence = "two items that share no tag, so that there is a negative: all 48 share one at level 'tags'; leave out"
    with pytest.raises(ValueError, match=sentence):
        loaded(tmp_path, match=match)
    monkeypatch.setitem(globals(), "TAGS", [*TAGS[:-1], ["other"]])
    assert len(loaded(tmp_path, match=match).train) == 48


def test_classes_beside_tags_stay_classes(tmp_path: Path) -> None:
    splits = loaded(tmp_path, levels=["sort", "tags"], level="tags")
    assert not splits.train.has_tags("sort")
    assert isinstance(splits.train.relation("sort"), np.ndarray)
    assert splits.train.level_lines == ["sort", "tags\tany"]


NEEDS_CLASSES = {
    "data.noise": {"noise": {"kind": "symmetric", "rate": 0.1}},
    "split": {"split": "class-disjoint"},
}


@pytest.mark.parametrize("setting", NEEDS_CLASSES)
def test_what_needs_classes_is_refused(setting: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{setting}.* needs one class for each item: .* level .tags."):
        loaded(tmp_path, **NEEDS_CLASSES[setting])


def test_decisions_are_sets_of_tags(tmp_path: Path) -> None:
    """One may be new; the evaluation splits know it, too, and stay as they are."""
    before = loaded(tmp_path, divided=True)
    (tmp_path / "fix.csv").write_text(
        "id,decision,label\ni0,relabel,square;green\ni1,drop,\ni2,relabel,red\ni3,keep,\ni50,relabel,red\n"
    )
    after = loaded(tmp_path, divided=True, decisions=str(tmp_path / "fix.csv"))
    assert after.decisions == {"keep": 1, "relabel": 2, "drop": 1, "add": 0, "undecided": 0}
    assert [id for id in before.train.ids if id != "i1"] == list(after.train.ids)
    tags = {"i0": ["green", "square"], "i2": ["red"]}
    wanted = trivet.Tags([tags.get(id, TAGS[int(id[1:])]) for id in after.train.ids])
    found = after.train.relation("tags")
    assert isinstance(found, trivet.Relation)
    assert torch.equal(found.positive(found.items, found.items), wanted.positive(wanted.items, wanted.items))
    assert "green;square" in after.train.names["tags"]
    for items in after.evaluation.values():
        check_relation(items)
        assert items.names == after.train.names
    assert "1 decision of fix.csv would change items that are evaluated" in after.warnings[-1]
    (tmp_path / "fix.csv").write_text("id,decision,label\ni0,relabel,square;gren\n")
    with pytest.raises(ValueError, match=r"'gren' is none; did you mean 'green'\?"):
        loaded(tmp_path, divided=True, decisions=str(tmp_path / "fix.csv"))


def test_tags_are_added(tmp_path: Path) -> None:
    """Any number to an item, beside a new set or alone; what stays is the union."""

    def trained(*rows: str) -> dict[str, set[str]]:
        (tmp_path / "fix.csv").write_text("\n".join(["id,decision,label", *rows]))
        train = loaded(tmp_path, divided=True, decisions=str(tmp_path / "fix.csv")).train
        names = train.names["tags"]
        return {id: set(names[label].split(";")) for id, label in zip(train.ids, train.labels["tags"], strict=True)}

    every = {tag for tags in TAGS for tag in tags}
    lacks = sorted(every - {*TAGS[0]})
    after = trained(f"i0,add,{lacks[0]}", f"i0,add,{lacks[1]}", "i1,add,green", "i1,relabel,red")
    wanted = {id: {*TAGS[int(id[1:])]} for id in after}
    assert after == wanted | {"i0": {*TAGS[0], *lacks[:2]}, "i1": {"red", "green"}}
    with pytest.raises(
        ValueError, match=f"add needs a label that 'i0' does not have yet: line 2 .* has '{TAGS[0][0]}'"
    ):
        trained(f"i0,add,{TAGS[0][0]}")
    with pytest.raises(ValueError, match=r"a tag is added to an item that stays: line 3 .*; remove the row"):
        trained("i0,drop,", f"i0,add,{lacks[0]}")
    assert "i0" not in trained("i0,drop,")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"match": 0.0}, "match must be"),
        ({"match": "some"}, "match"),
        ({"match": "all", "separator": None}, "match is for tags: set separator too"),
        ({"separator": ""}, "separator"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        loaded(tmp_path, **settings)
