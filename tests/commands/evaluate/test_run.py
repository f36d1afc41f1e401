from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.result import EvaluationResult
from trivet.commands.evaluate.run import Evaluation, evaluate_files, per_class_csv
from trivet.io.parquet_files import write_embeddings
from trivet.metrics import retrieve
from trivet.metrics.folds import class_folds
from trivet.metrics.rejection import rejection

pytestmark = pytest.mark.usefixtures("few_digits")

NAMES = ("recall@1", "map@r", "nmi")
QUICK: dict[str, Any] = {"measures": NAMES}


def blobs(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 6, count)
    points = np.random.default_rng(7).normal(size=(6, 5))[labels] + 0.8 * generator.normal(size=(count, 5))
    return points.astype(np.float32), labels


POINTS, LABELS = blobs(120)
IDS, SPLIT = np.array([f"item {i}" for i in range(120)]), np.where(np.arange(120) % 2 == 0, "test", "train")


def write(path: Path, points: np.ndarray, **columns: Any) -> Path:
    np.savez(path, embeddings=points, **columns)
    return path


def evaluations(paths: list[Path], **options: Any) -> list[Evaluation]:
    return evaluate_files(EvaluateOptions(paths, **options))


def evaluate_one(path: Path, **options: Any) -> Evaluation:
    (evaluation,) = evaluations([path], **options)
    return evaluation


def record_of(path: Path, **options: Any) -> dict[str, Any]:
    """The object that `trivet evaluate --json` prints of one file."""
    return evaluate_one(path, **options).record.as_json(unset=False)


def summary(found: Sequence[Evaluation]) -> dict[str, Any]:
    """The object that `trivet evaluate --json` prints of several files."""
    return EvaluationResult(found).record.as_json(unset=False)


def test_one_set_equals_the_library(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", POINTS, coarse=LABELS % 2, fine=LABELS)
    record = record_of(path, **QUICK)
    assert list(record["evaluation"]) == ["coarse", "fine"]
    found = retrieve(POINTS, LABELS, measures=("recall@1", "map@r"), distance="cosine")
    assert record["evaluation"]["fine"]["map@r"] == pytest.approx(found.mean()["map@r"], rel=1e-12)
    assert {name: record["macro"]["fine"][name] for name in found.measures} == pytest.approx(found.mean("macro"))
    assert (record["items"], record["dimension"], record["distance"]) == (120, 5, "cosine")
    low, high = record["intervals"]["fine"]["recall@1"]["classes"]
    assert low <= record["evaluation"]["fine"]["recall@1"] <= high
    assert record["clustering"]["fine"]["clusters"] == 6
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    only = record_of(path, **QUICK | {"labels": ("fine",), "distance": "euclidean"})
    assert list(only["evaluation"]) == ["fine"]
    assert only["distance"] == "euclidean"


def test_splits_of_one_file_and_two_files_are_the_same_task(tmp_path: Path) -> None:
    split = np.where(np.arange(120) % 3 == 0, "test", "train")
    whole = write(tmp_path / "whole.npz", POINTS, label=LABELS, split=split, id=IDS)
    asked = split == "test"
    query = write(tmp_path / "query.npz", POINTS[asked], label=LABELS[asked], id=IDS[asked])
    # The gallery holds some of the queries too; by their ids they are not found.
    held = ~asked | (np.arange(120) < 30)
    gallery = write(tmp_path / "gallery.npz", POINTS[held], label=LABELS[held], id=IDS[held])
    one = evaluate_one(whole, **QUICK | {"query": "test", "gallery": "train"})
    two = evaluations([], query=str(query), gallery=str(gallery), **QUICK)[0]
    assert (one.record.protocol.queries, one.record.protocol.gallery) == (40, 80)
    assert two.record.protocol.queries_in_gallery == 10
    expected = retrieve(
        POINTS[asked],
        LABELS[asked],
        gallery=POINTS[~asked],
        gallery_labels=LABELS[~asked],
        measures=("recall@1", "map@r"),
        distance="cosine",
    )
    np.testing.assert_allclose(one.levels["label"].retrieval.values, expected.values, atol=1e-12)
    assert (
        two.levels["label"].retrieval.positives[:10].tolist() != one.levels["label"].retrieval.positives[:10].tolist()
    )


def test_cameras_and_junk_reach_the_search(tmp_path: Path) -> None:
    cameras = np.arange(120) % 4
    names = np.where(LABELS == 5, "-1", LABELS.astype(str))
    split = np.where((np.arange(120) < 30) & (LABELS != 5), "query", "gallery")
    path = write(tmp_path / "a.npz", POINTS, person=names, camera=cameras, split=split)
    request = QUICK | {"query": "query", "gallery": "gallery", "cameras": True, "junk": "-1"}
    record = evaluate_one(path, **request)
    asked = split == "query"
    assert record.record.protocol.junk == int((names[~asked] == "-1").sum()) > 0
    expected = retrieve(
        POINTS[asked],
        LABELS[asked],
        gallery=POINTS[~asked],
        gallery_labels=LABELS[~asked],
        cameras=cameras[asked],
        gallery_cameras=cameras[~asked],
        junk=LABELS[~asked] == 5,
        measures=("recall@1", "map@r"),
        distance="cosine",
    )
    np.testing.assert_allclose(record.levels["person"].retrieval.values, expected.values, atol=1e-12)
    within = QUICK | {"cameras": True}
    assert record_of(path, **within)["protocol"]["same_camera_left_out"]


@pytest.mark.parametrize("junk", [None, "2"])
def test_queries_out_of_scope_are_rejected_and_not_asked(tmp_path: Path, junk: str | None) -> None:
    path = write(tmp_path / "a.npz", POINTS, intent=LABELS, split=SPLIT)
    request = QUICK | {"query": "test", "gallery": "train", "out_of_scope": "3", "distance": "euclidean", "junk": junk}
    record = record_of(path, **request)
    # What is junk is nobody's neighbour.
    known = POINTS[(SPLIT == "train") & (LABELS != 3) & ((LABELS != 2) | (junk is None))]
    outside = LABELS[SPLIT == "test"] == 3
    expected = rejection(POINTS[SPLIT == "test"], outside, known)
    assert record["rejection"]["auroc"] == pytest.approx(expected.auroc, abs=1e-12)
    assert record["rejection"]["out_of_scope"] == int(outside.sum())
    assert record["protocol"]["queries"] == int((~outside).sum())
    assert record["evaluation"]["intent"]["classes"] == 5


@pytest.mark.parametrize("by", ["split", "columns"])
def test_a_query_in_the_gallery_is_not_its_own_nearest_where_others_are_rejected(tmp_path: Path, by: str) -> None:
    points = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    names = np.where(np.arange(120) < 80, [f"class {i % 5}" for i in range(120)], "none")
    request = QUICK | {"out_of_scope": "none", "measures": ("recall@1",), "distance": "euclidean"}
    junk = np.arange(120) % 20 == 7
    if by == "split":
        junk[:] = False
        path = write(tmp_path / "a.npz", points, label=names, id=IDS, split=np.full(120, "test"))
        request = request | {"query": "test", "gallery": "test"}
    else:
        every = np.ones(120, dtype=np.bool_)
        path = write(tmp_path / "a.npz", points, label=names, id=IDS, is_query=every, is_gallery=every, is_junk=junk)
    record = record_of(path, **request)
    apart = np.linalg.norm(points[:, None].astype(np.float64) - points[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = apart[:, (names != "none") & ~junk].min(axis=1)
    inside, outside = nearest[names != "none"], nearest[names == "none"]
    area = np.mean((inside[:, None] < outside).astype(np.float64))
    assert record["protocol"]["queries_in_gallery"] == int((~junk)[:80].sum())
    assert record["rejection"]["auroc"] == pytest.approx(area, abs=1e-12)
    assert record["protocol"]["junk"] == (int(junk.sum()) or None)


@pytest.mark.parametrize("junk", [None, "2"])
def test_a_gallery_of_which_nothing_is_left_is_refused(tmp_path: Path, junk: str | None) -> None:
    retrieved = np.flatnonzero(LABELS == 3)[:3] if junk is None else np.flatnonzero(LABELS == 2)
    split = np.where(np.isin(np.arange(120), retrieved), "train", "test")
    path = write(tmp_path / "a.npz", POINTS, intent=LABELS, split=split, id=IDS)
    request = QUICK | {"query": "test", "gallery": "train", "out_of_scope": "3", "junk": junk}
    with pytest.raises(ValueError, match="gallery"):
        evaluate_one(path, **request)


def test_rejection_has_intervals_and_the_values_of_classes(tmp_path: Path) -> None:
    names = np.array([f"class {label}" for label in LABELS])
    path = write(tmp_path / "a.npz", POINTS, intent=names, split=SPLIT)
    request = QUICK | {"query": "test", "gallery": "train", "out_of_scope": "class 3", "distance": "euclidean"}
    evaluated = evaluate_one(path, **request)
    found = evaluated.record.as_json(unset=False)["rejection"]
    asked, known = POINTS[SPLIT == "test"], POINTS[(SPLIT == "train") & (LABELS != 3)]
    # Queries in scope first, as they are drawn.
    order = np.argsort(LABELS[SPLIT == "test"] == 3, kind="stable")
    asked, own = asked[order], LABELS[SPLIT == "test"][order]
    expected = rejection(asked, own == 3, known, labels=own)
    assert found["macro"]["auroc"] == pytest.approx(expected.macro, abs=1e-12)
    for key, average in (("intervals", "micro"), ("macro_intervals", "macro")):
        drawn = expected.intervals(average)
        assert found[key]["auroc"]["classes"] == pytest.approx(
            [drawn["auroc"]["classes"].low, drawn["auroc"]["classes"].high]
        )
    per_class_csv([evaluated], tmp_path / "classes.csv")
    rows = list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines()))
    assert [float(row["rejection-auroc"]) for row in rows] == pytest.approx(list(expected.per_class().values()))
    assert json.loads(json.dumps(evaluated.record.as_json(), allow_nan=False)) == evaluated.record.as_json()


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder, rows in (("a", POINTS), ("b", -(POINTS[:, ::-1] ** 2))):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "embeddings.npz", rows, label=LABELS))
    request = QUICK | {"measures": ("recall@1",)}
    evaluated = evaluations(paths, **request)
    names = [one.record.embeddings for one in evaluated]
    assert names == ["a/embeddings.npz", "b/embeddings.npz"]
    (difference,) = summary(evaluated)["differences"]["label"]["recall@1"]
    assert (difference["less"], difference["of"]) == tuple(names)
    cut = evaluations(paths, **request | {"prefixes": ["2"]})
    assert [one.record.embeddings for one in cut] == [f"{name}{end}" for name in names for end in ("", ", first 2")]
    other = write(tmp_path / "other.npz", POINTS, label=LABELS)
    for several in ([paths[0], other], [paths[0], paths[0]]):  # nothing to be told by a folder
        assert evaluations(several, **request)[0].record.embeddings == "embeddings.npz"


def test_folds_are_class_disjoint_sets_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", POINTS, label=LABELS)
    found = record_of(path, **QUICK | {"folds": 3, "distance": "euclidean"})["folds"]["label"]["map@r"]
    expected = [
        retrieve(POINTS[rows], LABELS[rows], measures=["map@r"]).mean()["map@r"] for rows in class_folds(LABELS, 3)
    ]
    assert found["values"] == pytest.approx(expected, rel=1e-12)
    assert found["interval"][0] < found["mean"] < found["interval"][1]


def test_a_sample_and_an_approximate_index(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", POINTS, label=LABELS, id=np.arange(120))
    some = evaluate_one(path, **QUICK | {"sample": 20, "seed": 3})
    assert len(some.levels["label"].retrieval.classes) == 20
    near = record_of(path, **QUICK | {"approximate": "hnsw"})
    exact = record_of(path, **QUICK)
    assert near["protocol"]["approximate"]["recall"] == 1
    assert near["evaluation"]["label"]["map@r"] == pytest.approx(exact["evaluation"]["label"]["map@r"], rel=1e-12)
    assert near["evaluation"]["label"]["nmi"] == exact["evaluation"]["label"]["nmi"]


def test_compared_by_ids_with_paired_intervals(tmp_path: Path) -> None:
    noisy = POINTS + np.random.default_rng(1).normal(size=POINTS.shape).astype(np.float32)
    order = np.random.default_rng(2).permutation(120)
    a = write(tmp_path / "a.npz", POINTS, label=LABELS, id=IDS)
    b = write(tmp_path / "b.npz", noisy[order], label=LABELS[order], id=IDS[order])
    found = evaluations([a, b, a], **QUICK)
    result = summary(found)
    rows = result["differences"]["label"]["map@r"]
    values = [one.record.evaluation["label"]["map@r"] for one in found]
    assert [row["difference"] for row in rows] == pytest.approx([values[1] - values[0], 0], abs=1e-12)
    assert rows[0]["queries"][0] < rows[0]["difference"] < rows[0]["queries"][1] < 0
    assert rows[1]["queries"] == rows[1]["classes"] == [0, 0]
    assert result == summary(evaluations([a, b, a], **QUICK)) | {"results": result["results"]}


def test_clustering_and_verification_are_compared_by_ids_too(tmp_path: Path) -> None:
    noisy = POINTS + np.random.default_rng(1).normal(size=POINTS.shape).astype(np.float32)
    order = np.random.default_rng(2).permutation(120)
    names = ("nmi", "ami", "nmi+", "roc-auc", "tar@far", "verification-accuracy")
    request = QUICK | {"measures": names, "nmi_plus": 2}
    a = write(tmp_path / "a.npz", POINTS, label=LABELS, id=IDS)
    b = write(tmp_path / "b.npz", noisy[order], label=LABELS[order], id=IDS[order])
    c = write(tmp_path / "c.npz", POINTS[order], label=LABELS[order], id=IDS[order])
    found = evaluations([a, b, c], **request)
    result = summary(found)
    differences = result["differences"]["label"]
    values = [one.record.evaluation["label"] for one in found]
    single = found[0].record.intervals["label"]
    assert differences.keys() == {
        "nmi",
        "ami",
        "nmi+",
        "roc-auc",
        "tar@far=0.01",
        "tar@far=0.001",
        "verification-accuracy",
    }
    for name, (noisier, same) in differences.items():
        assert noisier["difference"] == pytest.approx(values[1][name] - values[0][name], abs=1e-9)
        for over in ("queries", "classes"):
            if name == "tar@far=0.001":  # of 7 negative pairs accepted
                assert noisier[over] is same[over] is None
                continue
            low, high = noisier[over]
            assert low <= noisier["difference"] <= high
            if name.startswith(("roc", "tar", "verif")):  # k-means may have ended elsewhere
                assert [same["difference"], *same[over]] == pytest.approx([0, 0, 0], abs=1e-9)
    paired = found[1].levels["label"].differences(found[0].levels["label"])["nmi"]["classes"].interval
    assert differences["nmi"][0]["classes"] == pytest.approx([paired.low, paired.high])
    # Paired: narrower than the two intervals together.
    for over in ("queries", "classes"):
        widths = [
            one["intervals"]["label"]["roc-auc"][over] for one in (found[0].record.as_json(), found[1].record.as_json())
        ]
        low, high = differences["roc-auc"][0][over]
        assert high - low < sum(end[1] - end[0] for end in widths)
    assert single.keys() >= differences.keys()
    per_class_csv(found, tmp_path / "classes.csv")
    rows = list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines()))
    assert [int(row["queries"]) for row in rows[:6]] == np.bincount(LABELS).tolist()
    whole = sum(float(row["nmi"]) * int(row["queries"]) for row in rows[:6]) / 120
    assert whole == pytest.approx(values[0]["nmi"], abs=1e-9)
    macro = [float(row["roc-auc"]) for row in rows[:6]]
    assert found[0].record.macro["label"]["roc-auc"] == pytest.approx(np.mean(macro))
    low, high = found[0].record.macro_intervals["label"]["roc-auc"]["classes"]
    assert low < np.mean(macro) < high


def test_a_run_is_read_with_its_own_distance(tmp_path: Path) -> None:
    run = tmp_path / "run"
    names = tuple(str(label) for label in LABELS)
    write_embeddings(run / "embeddings" / "seen.parquet", POINTS, tuple(map(str, range(120))), {"label": names})
    (run / "config.toml").write_text(
        '[data]\nname = "digits"\n[loss]\nname = "triplet"\n[evaluation]\ndistance = "euclidean"\n'
    )
    record = record_of(run, **QUICK)
    assert (record["embeddings"], record["distance"]) == ("run (seen)", "euclidean")


def test_a_row_for_each_class(tmp_path: Path) -> None:
    found = evaluate_one(write(tmp_path / "a.npz", POINTS, label=LABELS), **QUICK)
    per_class_csv([found], tmp_path / "classes.csv")
    rows = list(csv.DictReader((tmp_path / "classes.csv").read_text().splitlines()))
    assert [row["class"] for row in rows] == [str(label) for label in range(6)]
    assert [int(row["queries"]) for row in rows] == np.bincount(LABELS).tolist()
    shares = found.levels["label"].retrieval.values[LABELS == 2, 0]
    assert float(rows[2]["recall@1"]) == pytest.approx(shares.mean())


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"query": "test"}, "go together"),
        ({"query": "test", "gallery": "train", "split": "test"}, "leave it out"),
        ({"query": "test", "gallery": "valid"}, "valid"),
        ({"cameras": True}, "needs a column camera"),
        ({"junk": "3"}, "give --query and --gallery"),
        ({"junk": "9", "query": "test", "gallery": "train"}, "no item has '9'"),
        ({"out_of_scope": "3"}, "give --query and --gallery"),
        ({"out_of_scope": "9", "query": "test", "gallery": "train"}, "not of all: 0 of 60 have '9'"),
        ({"sample": 500}, "at most the 120 items"),
        ({"sample": 5, "query": "test", "gallery": "train"}, "leave it out"),
        ({"folds": 7}, "at most the number of classes: got 7 for 6 at level label"),
        ({"labels": ()}, "needs a label for each row"),
    ],
)
def test_bad_input_is_a_stated_error(tmp_path: Path, request_: dict[str, Any], sentence: str) -> None:
    path = write(tmp_path / "a.npz", POINTS, label=LABELS, split=SPLIT)
    with pytest.raises(ValueError, match=sentence):
        evaluate_one(path, **QUICK | request_)


def test_a_gallery_of_one_item_for_each_class_has_the_labels_of_the_queries(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(30, 4))
    query, gallery = tmp_path / "query.npz", tmp_path / "gallery.npz"
    np.savez(query, embeddings=np.repeat(points, 2, axis=0), person=np.repeat(np.arange(30), 2))
    np.savez(gallery, embeddings=points, person=np.arange(30), path=[f"{i}.png" for i in range(30)])
    found = evaluations([], query=str(query), gallery=str(gallery), **QUICK)[0]
    assert list(found.levels) == ["person"]
    assert found.record.evaluation["person"]["recall@1"] == 1.0
    with pytest.raises(
        ValueError, match=r"has no label column \(nearly every row has its own person, .* own path\); name"
    ):
        evaluations([], query=str(gallery), gallery=str(gallery), **QUICK)[0]


def test_files_of_other_items_are_refused_before_any_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a.npz", POINTS, label=LABELS, id=IDS)
    others = {
        r"e\.npz has no 'item 0', which a\.npz has": write(
            tmp_path / "e.npz", POINTS, label=LABELS, id=np.char.add(IDS, "x")
        ),
        r"a\.npz has 120 queries and b\.npz 60": write(tmp_path / "b.npz", POINTS[:60], label=LABELS[:60]),
        "must have the same labels: label differs": write(tmp_path / "c.npz", POINTS, label=LABELS[::-1]),
        "must share a label level": write(tmp_path / "d.npz", POINTS, kind=LABELS),
    }
    monkeypatch.setattr("trivet.commands.evaluate.run._evaluate", lambda *rest, **options: pytest.fail("evaluated"))
    for sentence, other in others.items():
        with pytest.raises(ValueError, match=sentence):
            evaluations([first, other], **QUICK)


def test_labels_that_are_all_different_are_warned_of(tmp_path: Path) -> None:
    points, _ = blobs(20)
    path = write(tmp_path / "a.npz", points, label=np.arange(20))
    _named, warning = record_of(path, **QUICK | {"labels": ("label",), "measures": ("recall@1",)})["warnings"]
    assert warning.startswith("label has a class of its own for each item, so no neighbour is right")
    split = np.array(["test"] * 5 + ["train"] * 15)
    path = write(tmp_path / "b.npz", points, label=np.arange(20) % 15, split=split)  # one for each class of a gallery
    request = QUICK | {"labels": ("label",), "query": "test", "gallery": "train", "measures": ("recall@1",)}
    assert record_of(path, **request)["warnings"] == []
