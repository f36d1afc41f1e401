"""`batch.mined`: batches of mined triplets, found by ids, the same after a kill, and refused where they do not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.training.runs import check_same_run, killed, settings_of

from trivet.commands.mine.options import MineOptions
from trivet.commands.mine.run import mine_file
from trivet.commands.train.run import resume, train
from trivet.datasets import Splits
from trivet.training import RunConfig
from trivet.training.components import Components, load_splits, make_batches

DRAW = np.random.default_rng(0)
KIND = np.arange(96) % 8
ITEMS = (DRAW.normal(size=(8, 5))[KIND] + DRAW.normal(size=(96, 5))).astype(np.float32)
SETTINGS: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "vectors", "path": "items.npz"},
    "batch": {"size": 24, "mined": "mined.parquet"},
    "model": {"name": "mlp", "embedding_dim": 4, "width": 8},
    "loss": {"name": "triplet", "negatives": "hard"},
    "training": {"steps": 8, "checkpoint_every": 5, "accelerator": "cpu"},
    "evaluation": {"map_points": 10, "nmi_plus": 2, "k": [1]},
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the classes are trained on; the triplets are of all items, whose nearest others are of both halves."""
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", embeddings=ITEMS, id=np.array([f"item {i}" for i in range(96)]), kind=KIND)
    mine_file(MineOptions(Path("items.npz"), Path("mined.parquet"), k=3))


def config(**changes: dict[str, Any]) -> RunConfig:
    return settings_of(SETTINGS, "x.toml", **changes)


def splits() -> Splits:
    return load_splits(config(), None, None)


def mined(keep: Callable[[list[str]], bool] = lambda names: True) -> list[list[str]]:
    """The triplets of the file, as ids."""
    table = pq.read_table("mined.parquet").to_pydict()
    found = zip(table["anchor"], table["positive"], table["negative"], strict=True)
    return [names for names in map(list, found) if keep(names)]


def write(triplets: list[list[str]]) -> None:
    columns = list(zip(*triplets, strict=True))
    pq.write_table(pa.table(dict(zip(("anchor", "positive", "negative"), columns, strict=True))), "mined.parquet")


def test_an_epoch_has_all_mined_triplets_of_training_items_and_each_batch_whole_groups_of_them() -> None:
    data = splits()
    trained, groups = set(data.train.ids), dict[tuple[str, str], set[str]]()
    for anchor, positive, negative in mined(lambda names: set(names) <= trained):
        groups.setdefault((anchor, positive), set()).add(negative)
    assert 12 < len(groups) < len(data.train)
    batches = make_batches(config(), data.train, "kind")
    most = 2 + max(map(len, groups.values()))
    assert batches.steps_per_epoch == -(-len(groups) // (24 // most))
    seen: set[tuple[str, str]] = set()
    for step in range(batches.steps_per_epoch):
        rows = batches.batch(1, step).tolist()
        names = {data.train.ids[row] for row in rows}
        assert len(names) == len(rows) <= 24
        here = {pair for pair, negatives in groups.items() if {*pair, *negatives} <= names}
        assert names == {name for pair in here for name in (*pair, *groups[pair])}
        seen |= here
    assert seen == set(groups)
    items = {name for pair, negatives in groups.items() for name in (*pair, *negatives)}
    assert batches.coverage(0).items == pytest.approx(len(items) / len(data.train))


def test_a_killed_run_goes_on_to_the_same_result_but_not_with_other_triplets(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    train(config(), tmp_path / "whole")
    request.getfixturevalue("unevaluated")
    killed(tmp_path / "whole", tmp_path / "killed")
    shutil.copytree("killed", "other")
    resume(tmp_path / "killed")
    check_same_run(tmp_path / "whole", tmp_path / "killed")
    told = json.loads((tmp_path / "whole" / "record.json").read_text())["warnings"]
    trained = set(splits().train.ids)
    left = len(mined(lambda names: not set(names) <= trained))
    assert f"{left} of {len(mined())} mined triplets hold items that are not trained on, and are left out." in told
    write(mined()[9:])
    with pytest.raises(ValueError, match="was written with other settings or data"):
        resume(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": None}, "x.toml: batch: mined needs size, the most items of a batch"),
        ({"num_classes": 4}, "x.toml: batch: size shuffles all items, so num_classes has no effect"),
        ({"size": 4}, "batch.size must hold an anchor with its positive and its 3 mined negatives: got 4; set 5 or"),
        ({"mined": "none.parquet"}, "batch.mined must be a file of triplets: "),
        ({"mined": "items.npz"}, "batch.mined must be in a file .csv"),
    ],
)
def test_settings_that_do_not_go_together_are_one_sentence(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch") as error:
        train(config(batch=change), tmp_path / "run")
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("triplet", "said"),
    [
        (["item 0", "item 1", "item 2"], "has 'item 1', of '1', as a positive of 'item 0', of '0' (1 such triplet)"),
        (["item 0", "item 8", "item 16"], "has 'item 16', also of '0', as a negative of 'item 0', of '0'"),
        (["item 4", "item 12", "item 5"], "none of mined.parquet is"),  # of classes that are not trained on
        (["0", "8", "1"], "none of mined.parquet is"),  # of other items
    ],
)
def test_triplets_of_other_items_or_classes_are_one_sentence(triplet: list[str], said: str) -> None:
    write([triplet])
    with pytest.raises(ValueError, match=r"^batch\.mined must ") as error:
        Components(config(), splits())
    assert said in str(error.value)


def test_what_lacks_a_role_is_no_file_of_triplets() -> None:
    pq.write_table(pa.table({"anchor": ["item 0"], "positive": ["item 8"]}), "mined.parquet")
    with pytest.raises(ValueError, match=r"the negatives of batch\.mined must be a column: mined\.parquet has no 'neg"):
        Components(config(), splits())


def test_items_that_cleaning_leaves_out_or_relabels_are_in_no_triplet() -> None:
    data = splits()
    rows = np.arange(20, len(data.train))
    left = data.train.subset(rows)
    changed = mined(lambda names: set(names) <= set(left.ids))[0][0]
    row = left.ids.index(changed)
    left.labels["kind"][row] = (left.labels["kind"][row] + 1) % 4
    batches = make_batches(config(), left, "kind")
    seen = {left.ids[i] for step in range(batches.steps_per_epoch) for i in batches.batch(0, step).tolist()}
    groups = mined(lambda names: set(names) <= set(left.ids))
    kinds = {name: int(name.split()[1]) % 8 for name in left.ids} | {changed: int(left.labels["kind"][row])}
    fit = [names for names in groups if kinds[names[0]] == kinds[names[1]] != kinds[names[2]]]
    assert seen == {name for names in fit for name in names}
    assert len(fit) < len(groups)
