"""Runs side by side: paired differences by their definition, runs of several seeds, and what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from tests.made_runs import CLASSES, ITEMS, make_run, placed

from trivet.commands.compare.run import compare_runs
from trivet.io.parquet_files import write_embeddings
from trivet.metrics import retrieve

pytestmark = pytest.mark.usefixtures("few_pairs")

LABELS = np.repeat(np.arange(CLASSES), ITEMS // CLASSES)


def compared(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """The object that `trivet compare --json` prints."""
    return compare_runs(paths, **options).as_json(unset=False)


def judged(record: dict[str, Any], table: int = 0) -> list[Any]:
    return [one for one in record["tables"][table]["differences"] if one["measure"] == "recall@1"]


def hits(wrong: list[int]) -> np.ndarray:
    found = np.ones(ITEMS)
    found[wrong] = 0
    return found


def test_each_run_is_compared_with_the_first_on_the_same_queries(tmp_path: Path) -> None:
    some, many = [*range(0, 60, 10), *range(4, 60, 10)], [*range(0, 60, 2)]
    paths = [
        make_run(tmp_path / "first", some),
        # The rows in another order: queries are matched by their ids.
        make_run(tmp_path / "second", many, name="random", order=np.random.default_rng(1).permutation(ITEMS)),
        make_run(tmp_path / "third", [*some, 27], name="hard"),
    ]
    record = compared(paths)
    assert [(side["name"], side["runs"]) for side in record["sides"]] == [(p.name, [p.name]) for p in paths]
    assert record["confidence"] == 0.99
    for one, wrong in zip(judged(record), (many, [*some, 27]), strict=True):
        expected = hits(wrong) - hits(some)
        assert one["difference"] == pytest.approx(expected.mean(), abs=1e-12)
        assert (one["value"], one["reference"]) == pytest.approx((hits(wrong).mean(), hits(some).mean()))
        low, high = one["interval"]
        assert low < one["difference"] < high
    assert [one["outcome"] for one in judged(record)] == ["worse", "open"]
    (table,) = record["tables"]
    assert (table["split"], table["level"], table["queries"], table["classes"]) == ("unseen", "digit", 60, 6)
    assert [row["intervals"]["recall@1"] for row in table["rows"]] == [[0.3, 0.4]] * 3  # classes: there are six
    assert table["rows"][0]["references"] == {"raw inputs": 0.4}
    assert table["rows"][0]["measures"]["nmi"] == 0.5
    differing = {row["name"]: row["values"] for row in record["settings"]}
    assert differing == {"loss.positives": [["easy"], ["random"], ["hard"]]}
    assert record["notes"] == []
    assert judged(compared(paths[1::-1]))[0]["outcome"] == "better"


def test_runs_are_also_judged_by_the_measure_that_their_step_was_chosen_by(tmp_path: Path) -> None:
    settings = '[choosing]\nkeep = "best"\nmeasure = "mrr"\n'
    paths = [make_run(tmp_path / "first", [1]), make_run(tmp_path / "second", [1, 12, 23], settings=settings)]
    record = compared(paths)
    assert [run["chosen_by"] for run in record["runs"]] == [None, "mrr"]
    assert record["confidence"] == 0.99
    (by_rank,) = [one for one in record["tables"][0]["differences"] if one["measure"] == "mrr"]
    assert by_rank["interval"][0] < by_rank["difference"] < 0
    unchosen = '[choosing]\nmeasure = "mrr"\n'
    paths[1] = make_run(tmp_path / "third", [1, 12, 23], settings=unchosen)  # the last step is kept: by nothing
    assert not any(one["measure"] == "mrr" for one in compared(paths)["tables"][0]["differences"])


def test_runs_of_several_seeds_are_taken_together(tmp_path: Path) -> None:
    own = {0: [1], 1: [1, 12], 2: [1, 12, 23]}
    other = {seed: [*range(0, 60, 3)][: 18 + seed] for seed in own}
    # The second comes in another order: runs are paired by their seeds.
    paths = [make_run(tmp_path / f"easy-seed-{seed}", own[seed], seed=seed) for seed in (0, 1, 2)]
    paths += [make_run(tmp_path / f"random-{seed}", other[seed], seed=seed, name="random") for seed in (2, 0, 1)]
    record = compared(paths)
    assert [(side["name"], len(side["runs"])) for side in record["sides"]] == [("easy", 3), ("random", 3)]
    (one,) = judged(record)
    assert [(pair["of"], pair["less"]) for pair in one["pairs"]] == [
        (f"random-{seed}", f"easy-seed-{seed}") for seed in (2, 0, 1)
    ]
    by_seed = [hits(other[seed]) - hits(own[seed]) for seed in (2, 0, 1)]
    assert [pair["difference"] for pair in one["pairs"]] == pytest.approx([each.mean() for each in by_seed])
    averaged = np.mean(by_seed, axis=0)
    assert one["difference"] == pytest.approx(averaged.mean())
    assert one["outcome"] == "worse"
    shares = [1 - len(wrong) / ITEMS for wrong in own.values()]
    (mean,) = (m for m in record["tables"][0]["means"] if (m["side"], m["measure"]) == ("easy", "recall@1"))
    assert (mean["mean"], mean["deviation"]) == pytest.approx((fmean(shares), stdev(shares)))
    seeds = next(row["values"] for row in record["settings"] if row["name"] == "seed")
    assert seeds == [["0", "1", "2"], ["2", "0", "1"]]


def test_a_side_is_worse_only_if_every_pair_is(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"a-{seed}", [5] if seed < 4 else [1, 2, 3], seed=seed) for seed in range(5)]
    lost = [*range(0, 60, 3)]
    paths += [make_run(tmp_path / f"b-{n}", lost if n < 4 else [1], seed=n, name="random") for n in range(5)]
    (one,) = judged(compared(paths))
    assert one["interval"][1] < 0
    assert one["outcome"] == "open"


def test_runs_of_the_same_settings_are_compared_with_the_first(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / f"run-{seed}", [seed], seed=seed) for seed in range(3)]
    record = compared(paths)
    assert [side["name"] for side in record["sides"]] == ["run-0", "run-1", "run-2"]
    assert [one["less"] for one in judged(record)] == ["run-0", "run-0"]


def test_only_what_is_shared_is_compared_and_the_rest_is_said(tmp_path: Path) -> None:
    first = make_run(tmp_path / "first", [1])
    fewer = make_run(tmp_path / "fewer", [1], labels=LABELS[:20], name="random")
    swapped = make_run(tmp_path / "swapped", [1], labels=LABELS[::-1].copy(), name="hard")
    elsewhere = make_run(tmp_path / "elsewhere", [1], split="seen", settings="margin = 0.3")
    with pytest.raises(ValueError, match="must share an evaluation split with the same items: fewer and first cannot"):
        compared([first, fewer])
    stopped = make_run(
        tmp_path / "stopped", record={"status": "interrupted", "evaluation": {}}, settings="margin = 0.4"
    )
    same = make_run(tmp_path / "same", [2], name="random", settings="margin = 0.5")
    record = compared([first, same, fewer, swapped, elsewhere, stopped])
    assert [one["of"] for one in judged(record)] == ["same"]
    said = " ".join(record["notes"])
    assert "fewer and first cannot be compared on unseen: fewer (unseen) has 20 queries and first (unseen) 60" in said
    assert "swapped and first cannot be compared on unseen: digit differs" in said
    assert "elsewhere holds no embeddings of unseen." in said
    assert "stopped is interrupted and holds no embeddings" in said
    assert judged(compared([stopped, first, same]))[0]["less"] == "first"
    with pytest.raises(ValueError, match="same items: fewer than two that differ hold embeddings; give runs"):
        compared([first, stopped])
    assert said.count("stopped") == 2  # its name, and the folder in the command that finishes it


def test_a_record_that_tells_of_other_embeddings_is_named(tmp_path: Path) -> None:
    old = {"evaluation": {"unseen": [{"name": "trained", "levels": {"digit": {"recall@1": 0.25}}}]}}
    paths = [make_run(tmp_path / "now", [1]), make_run(tmp_path / "old", [2], record=old, name="random")]
    (note,) = compared(paths)["notes"]
    assert "The record of old does not tell of its embeddings: recall@1 on unseen by digit is 25.0 %" in note


@pytest.mark.parametrize(("keep", "ended", "said"), [("best", None, True), ("last", 40, True), ("last", None, False)])
def test_a_split_by_which_a_step_was_chosen_is_named(
    tmp_path: Path, keep: str, ended: int | None, *, said: bool
) -> None:
    chosen = {"choosing": {"keep": keep, "ended": ended, "measure": "map@r", "split": "unseen", "checks": []}}
    paths = [make_run(tmp_path / "a", [1]), make_run(tmp_path / "b", [2], record=chosen, name="random")]
    notes = ["The step of b was chosen by unseen, so measures there flatter."]
    assert compared(paths)["notes"] == (notes if said else [])


@pytest.mark.parametrize("count", [8, 9])
def test_the_runs_whose_neighbours_are_not_shown_are_told_of(tmp_path: Path, count: int) -> None:
    paths = [make_run(tmp_path / f"r{i}", [i]) for i in range(count)]
    compared(paths, report=tmp_path / "page.html")
    told = "Neighbours are shown of the first 8 runs." in (tmp_path / "page.html").read_text()
    assert told == (count > 8)


def test_folds_are_paired_with_folds(tmp_path: Path) -> None:
    for way, wrong in (("easy", [1]), ("random", [1, 2, 13, 24])):
        (tmp_path / way).mkdir()
        (tmp_path / way / "folds.toml").write_text("")
        for fold in (0, 1, 10):
            path = make_run(tmp_path / way / f"fold-{fold}", [w + fold for w in wrong], name=way, split="validation")
            text = (path / "config.toml").read_text().replace("[loss]", f"folds = 11\nfold = {fold}\n[loss]")
            (path / "config.toml").write_text(text)
    record = compared([tmp_path / "easy", tmp_path / "random"])
    assert [side["name"] for side in record["sides"]] == ["easy", "random"]
    (one,) = judged(record)
    assert [(pair["of"], pair["less"]) for pair in one["pairs"]] == [
        (f"random/fold-{fold}", f"easy/fold-{fold}") for fold in (0, 1, 10)
    ]
    assert [run["fold"] for run in record["runs"]] == [0, 1, 10] * 2


def test_queries_and_gallery_are_followed(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / "a", [1]), make_run(tmp_path / "b", [1, 2], name="random")]
    asked = np.arange(ITEMS) % 2 == 0
    for path, wrong in zip(paths, ([2], [2, 4, 14, 16, 27]), strict=True):
        columns = {"digit": [f"d{label}" for label in LABELS]}
        columns |= {"is_query": asked.tolist(), "is_gallery": (~asked).tolist()}
        file = path / "embeddings" / "unseen.parquet"
        ids = tuple(f"digits/{row:04d}" for row in range(ITEMS))
        write_embeddings(file, placed(wrong, LABELS), ids, columns, levels=["digit"])
    (table,) = compared(paths)["tables"]
    assert table["queries"] == 30
    one = table["differences"][0]
    assert (one["value"], one["reference"]) == pytest.approx((26 / 30, 29 / 30))


def test_runs_before_and_after_decisions_are_measured_on_what_has_one_label(tmp_path: Path) -> None:
    """Six items are relabelled and three dropped: measures are those of a plain evaluation of the other 51."""
    draw = np.random.default_rng(2)
    rows = {
        name: placed([], LABELS) + draw.normal(scale=0.6, size=(ITEMS, CLASSES + ITEMS)) for name in ("before", "after")
    }
    relabelled, dropped = np.arange(0, ITEMS, 10), [7, 23, 49]
    after = LABELS.copy()
    after[relabelled] = (after[relabelled] + 1) % CLASSES
    paths = [make_run(tmp_path / "before", embeddings=rows["before"]), tmp_path / "after"]
    left = np.setdiff1d(np.arange(ITEMS), dropped)
    make_run(paths[1], embeddings=rows["after"], labels=after, name="random", order=left)
    record = compared(paths)
    same = np.setdiff1d(left, relabelled)
    means = [retrieve(rows[name][same], LABELS[same], measures=["recall@1"]).mean()["recall@1"] for name in rows]
    (one,) = judged(record)
    assert (one["reference"], one["value"]) == pytest.approx(means)
    (table,) = record["tables"]
    assert table["queries"] == 51
    assert [row["measures"]["recall@1"] for row in table["rows"]] == pytest.approx(means)
    assert all("nmi" not in row["measures"] and not row["references"] and not row["intervals"] for row in table["rows"])
    assert record["notes"] == [
        "Items of unseen or their labels differ between before, after. Each is measured on the 51 of 60 items that "
        "have the same labels in all of them."
    ]
    other = make_run(tmp_path / "other", embeddings=rows["before"], labels=LABELS[::-1].copy(), name="hard")
    assert [one["of"] for one in judged(compared([*paths, other]))] == ["after"]


@pytest.mark.parametrize("texts", [True, False])
def test_row_numbers_name_other_items_once_a_row_is_dropped(texts: bool, tmp_path: Path) -> None:
    paths = [tmp_path / "before", tmp_path / "after"]
    for path, first in zip(paths, (0, 1), strict=True):
        make_run(path, settings="", name="easy" if first else "hard")
        labels = LABELS[first:]
        columns = {"digit": [f"d{label}" for label in labels]}
        if texts:
            columns["text"] = [f"text {row}" if row < 9 else "one of many" for row in range(first, ITEMS)]
            data = (path / "config.toml").read_text().replace('name = "digits"', 'name = "texts"\npath = "t.csv"')
            (path / "config.toml").write_text(data)
        ids = tuple(map(str, range(len(labels))))
        write_embeddings(
            path / "embeddings" / "unseen.parquet", placed([], LABELS)[first:], ids, columns, levels=["digit"]
        )
        record = json.loads((path / "record.json").read_text())
        record["data"] = {"train": {"items": 100}, "evaluation": {"unseen": {"items": len(labels)}}}
        (path / "record.json").write_text(json.dumps(record))
    if texts:
        (note,) = compared(paths)["notes"]
        assert "measured on the 45 of 60" in note
    else:
        with pytest.raises(ValueError, match="must share an evaluation split with the same items"):
            compared(paths)


def test_runs_on_other_texts_share_nothing(tmp_path: Path) -> None:
    paths = [tmp_path / "faq", tmp_path / "beir"]
    for path in paths:
        make_run(path, name="easy")
        columns = {"digit": [f"d{label}" for label in LABELS], "text": [f"{path.name} {row}" for row in range(ITEMS)]}
        data = (path / "config.toml").read_text().replace('name = "digits"', 'name = "texts"\npath = "t.csv"')
        (path / "config.toml").write_text(data)
        ids = tuple(f"{path.name}-{row}" for row in range(ITEMS))
        write_embeddings(path / "embeddings" / "unseen.parquet", placed([], LABELS), ids, columns, levels=["digit"])
    with pytest.raises(ValueError, match="must share an evaluation split with the same items"):
        compared(paths)
