"""Whitening, query expansion and re-ranking beside the plain ranking, and the answer that comes first."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands.conftest import Call

from trivet.commands.evaluate import reranking_gains
from trivet.commands.evaluate.postprocessing import postprocessing_line
from trivet.commands.evaluate.record import DifferenceRecord, EvaluationRecord
from trivet.commands.evaluate.reranking_gains import gain_variances, left_out
from trivet.distances import unit_rows
from trivet.io.parquet_files import write_embeddings
from trivet.knn.kinds import POSTPROCESSINGS, Reranking
from trivet.knn.retrieval_by_index import retrieve_by_index
from trivet.knn.whitening import whitening_map
from trivet.metrics import recall_at_k
from trivet.mining.tags import Tags

WANTED = ("--measures", "recall@1,map@r", "--distance", "cosine")
LABELS = np.repeat(np.arange(8), 15)
NUMBERS = np.random.default_rng(0)
POINTS = (NUMBERS.normal(size=(8, 12))[LABELS] + 1.1 * NUMBERS.normal(size=(120, 12))).astype(np.float32)
MEASURES = ("recall@1", "map@r")
DRAWS = 5


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rankings are made anew a few times for each variance."""
    monkeypatch.setattr(reranking_gains, "DRAWS", DRAWS)


@pytest.fixture
def run(run_command: Call) -> Call:
    return partial(run_command, "evaluate")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", embeddings=POINTS, label=LABELS)
    return tmp_path / "a.npz"


def ranked(way: Reranking | None, rows: np.ndarray = POINTS, labels: np.ndarray = LABELS, **options: Any) -> Any:
    found = retrieve_by_index(
        rows, {"label": labels}, kind="exact", rerank=way, measures=MEASURES, distance="cosine", **options
    )
    return found.levels["label"]


def test_each_way_is_measured_beside_the_plain_ranking(file: Path, run: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = run(file, "--postprocess", "reciprocal,whitening,expansion", *WANTED, "--json", "--report", page)
    assert code == 0
    read = json.loads(out)
    assert [one["postprocessing"] for one in read["results"]] == ["none", *POSTPROCESSINGS]
    unit = unit_rows(torch.from_numpy(POINTS))
    whitened = recall_at_k(whitening_map(unit)(unit).float(), LABELS, (1,), distance="cosine")[1]
    recalls = [one["evaluation"]["label"]["recall@1"] for one in read["results"]]
    others = [ranked(way).mean()["recall@1"] for way in ("expansion", "reciprocal")]
    assert recalls == pytest.approx([recall_at_k(POINTS, LABELS, (1,), distance="cosine")[1], whitened, *others])
    assert len({*recalls}) == 4, "each does something"
    for measure in MEASURES:
        rows = read["differences"]["label"][measure]
        assert all(row["outcome"] in ("better", "worse", "equal", "open") for row in rows)
        assert [row["classes"] is None for row in rows] == [False, True, True]
        assert all(row["queries"][0] <= row["difference"] <= row["queries"][1] for row in rows)
    _, out, _ = run(file, "--postprocess", "reciprocal", *WANTED)
    answer = out.splitlines()[0]
    assert answer.startswith(
        ("label: More is found by re-ranking", "label: No more is found", "label: With re-ranking")
    )
    assert "re-ranking" in page.read_text()


def test_whitening_is_learned_from_the_training_items_of_a_run(tmp_path: Path, run: Call) -> None:
    train = tmp_path / "run" / "embeddings" / "train.parquet"
    train.parent.mkdir(parents=True)
    trained = POINTS * np.linspace(1, 30, 12, dtype=np.float32)
    for path, rows in ((train, trained), (train.with_name("test.parquet"), POINTS)):
        ids = np.array([f"{path.stem} {i}" for i in range(len(rows))])
        write_embeddings(path, rows, ids, {"label": LABELS.astype(str)}, levels=["label"])
    (tmp_path / "run" / "config.toml").write_text("")
    code, out, err = run(tmp_path / "run", "--split", "test", "--postprocess", "whitening", *WANTED, "--json")
    assert code == 0, err
    learned, unit = (unit_rows(torch.from_numpy(rows)) for rows in (trained, POINTS))
    expected = recall_at_k(whitening_map(learned)(unit).float(), LABELS, (1,), distance="cosine")[1]
    assert json.loads(out)["results"][1]["evaluation"]["label"]["recall@1"] == pytest.approx(expected)
    itself = recall_at_k(whitening_map(unit)(unit).float(), LABELS, (1,), distance="cosine")[1]
    assert expected != itself


def thinned_variance(way: Reranking) -> np.ndarray:
    """The jackknife by its definition: both rankings without a third of the items, some times."""
    generator, gains = np.random.default_rng(0), []
    for _ in range(DRAWS):
        without = left_out(LABELS, generator)
        assert np.bincount(LABELS[without]).tolist() == [5] * 8
        new, plain = (ranked(each, POINTS[~without], LABELS[~without]).mean() for each in (way, None))
        gains.append([new[measure] - plain[measure] for measure in MEASURES])
    each = np.array(gains)
    return 2 * ((each - each.mean(axis=0)) ** 2).sum(axis=0) / (DRAWS - 1)


@pytest.mark.parametrize("way", ["expansion", "reciprocal"])
def test_the_variance_of_a_gain_is_that_of_the_jackknife_or_of_independent_queries(
    way: Reranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = np.arange(len(LABELS))
    monkeypatch.setattr("trivet.commands.evaluate.reranking_gains.chosen_units", lambda *_: order)
    found = {"label": ranked(way)}
    variance = gain_variances(
        POINTS, {"label": LABELS}, found, {"label": ranked(None)}, rerank=way, options={"distance": "cosine"}
    )["label"]
    values = found["label"].values - ranked(None).values
    alone = (
        sum(
            np.square(values[label == LABELS] - values[label == LABELS].mean(axis=0)).sum(axis=0) * 15 / 14
            for label in range(8)
        )
        / len(LABELS) ** 2
    )
    expected = thinned_variance(way)
    np.testing.assert_allclose(variance.values, np.maximum(expected, alone), rtol=1e-6)
    assert variance.degrees == DRAWS - 1


def test_the_variance_is_at_least_that_of_independent_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trivet.commands.evaluate.reranking_gains.left_out", lambda classes, _: np.arange(len(classes)) < 9
    )
    found, plain = ranked("reciprocal"), ranked(None)
    variance = gain_variances(
        POINTS,
        {"label": LABELS},
        {"label": found},
        {"label": plain},
        rerank="reciprocal",
        options={"distance": "cosine"},
    )["label"]
    values = found.values - plain.values
    alone = [values[label == LABELS] - values[label == LABELS].mean(axis=0) for label in range(8)]
    np.testing.assert_allclose(variance.values, np.square(np.concatenate(alone)).sum(axis=0) * 15 / 14 / 120**2)


def test_queries_that_are_gallery_items_are_left_out_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.commands.evaluate.reranking_gains.chosen_units", lambda *_: np.arange(120))
    gallery, queries, own = POINTS[40:], POINTS[:80], np.where(np.arange(80) >= 40, np.arange(80) - 40, -1)
    options = {"distance": "cosine", "gallery": gallery, "gallery_labels": {"label": LABELS[40:]}, "self_rows": own}

    def both(items: np.ndarray, asked: np.ndarray) -> list[Any]:
        position = np.full(81, -1)
        position[items] = np.arange(len(items))
        rows = {"gallery": gallery[items], "gallery_labels": {"label": LABELS[40:][items]}}
        return [
            ranked(way, queries[asked], LABELS[:80][asked], **rows, self_rows=position[own[asked]])
            for way in ("reciprocal", None)
        ]

    found, plain = both(np.arange(80), np.arange(80))
    variance = gain_variances(
        queries, {"label": LABELS[:80]}, {"label": found}, {"label": plain}, rerank="reciprocal", options=options
    )["label"]
    generator, gains = np.random.default_rng(0), []
    for _ in range(DRAWS):
        # The units are the gallery items, then the queries that are none of them; no query is of class 6 or 7.
        without = left_out(np.concatenate([np.minimum(LABELS[40:], 6), LABELS[:40]]), generator)
        gone = np.concatenate([without[80:], without[:40]])
        new, old = both(np.flatnonzero(~without[:80]), np.flatnonzero(~gone))
        gains.append((new.values - old.values).mean(axis=0))
    expected = 2 * np.var(np.array(gains), axis=0, ddof=1)
    values = found.values - plain.values
    alone = (
        sum(
            np.square(rows - rows.mean(axis=0)).sum(axis=0) * len(rows) / (len(rows) - 1)
            for rows in (values[LABELS[:80] == label] for label in range(6))
        )
        / 80**2
    )
    np.testing.assert_allclose(variance.values, np.maximum(expected, alone), rtol=1e-6)


def test_tags_and_few_items() -> None:
    tags = Tags([[int(label), 8 + int(label) // 2] for label in LABELS])
    both = [
        retrieve_by_index(POINTS, {"tags": tags}, kind="exact", rerank=way, measures=MEASURES, distance="cosine").levels
        for way in ("expansion", None)
    ]
    variances = gain_variances(POINTS, {"tags": tags}, *both, rerank="expansion", options={"distance": "cosine"})
    assert (variances["tags"].values > 0).all()
    few = {"label": ranked("expansion", POINTS[:30], LABELS[:30])}
    variances = gain_variances(POINTS[:30], {"label": LABELS[:30]}, few, few, rerank="expansion", options={})
    assert np.isnan(variances["label"].values).all()


def records(*ways: str) -> list[EvaluationRecord]:
    return [EvaluationRecord(embeddings=way, postprocessing=way) for way in ways]


def row(outcome: str, difference: float) -> DifferenceRecord:
    return DifferenceRecord(difference=difference, queries=[difference - 0.01, difference + 0.01], outcome=outcome)


def test_the_answer_needs_more_early_and_no_fewer_first() -> None:
    both = records("none", "expansion", "reciprocal")
    good = {"map@r": [row("better", 0.02), row("better", 0.05)], "recall@1": [row("equal", 0.0), row("open", -0.02)]}
    line = postprocessing_line(both, good, "label")
    assert line is not None
    assert line.startswith("More is found by query expansion: MAP@R +2.0 (+1.0 to +3.0), recall@1 +0.0")
    assert "of trivet index --postprocess expansion is searched so" in line
    fewer = {"map@r": good["map@r"], "recall@1": [row("worse", -0.03), row("open", -0.02)]}
    line = postprocessing_line(both, fewer, "label")
    assert line is not None
    assert line.startswith("With re-ranking more of the right items come early, but fewer first: MAP@R +5.0")
    none = {"map@r": [row("open", 0.02), row("equal", 0.0)], "recall@1": good["recall@1"]}
    line = postprocessing_line(both, none, "label")
    assert line is not None
    assert line.startswith("No more is found by query expansion or re-ranking, as far as can be told")
    assert postprocessing_line(records("", ""), good, "label") is None


def test_what_does_not_go_together_is_refused(file: Path, run: Call) -> None:
    for options, words in (
        (["--postprocess", "wishing"], "--postprocess must name whitening, expansion, reciprocal: got wishing"),
        (["--postprocess", "expansion", "--quantize", "int8"], "leave out --postprocess"),
        (["--postprocess", "expansion", "--approximate", "hnsw"], "leave out --approximate"),
        (["--postprocess", "expansion", "--sample", "20"], "--postprocess expansion ranks for all items"),
    ):
        code, _, err = run(file, *options, *WANTED)
        assert code == 2, err
        assert words in err
