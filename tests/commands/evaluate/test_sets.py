"""Two sets that number their rows alike, and queries that can find nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.conftest import Call

from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.record import EvaluationRecord
from trivet.commands.evaluate.result import EvaluationResult
from trivet.commands.evaluate.run import evaluate_files

pytestmark = pytest.mark.usefixtures("few_pairs")

PAIRS = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
NOISY = PAIRS + 0.05 * np.random.default_rng(1).normal(size=PAIRS.shape).astype(np.float32)
CLASSES = np.arange(60) % 6
POINTS = (np.eye(6)[CLASSES] + 0.1 * np.random.default_rng(2).normal(size=(60, 6))).astype(np.float32)


def write(path: Path, points: np.ndarray, **columns: Any) -> str:
    np.savez(path, embeddings=points, **columns)
    return str(path)


def record(paths: list[Path] | None = None, **options: Any) -> EvaluationRecord:
    (result,) = evaluate_files(EvaluateOptions(paths, measures=["recall@1"], **options))
    return result.record


def recall(of: EvaluationRecord) -> Any:
    return of.evaluation["label"]["recall@1"]


@pytest.mark.parametrize("form", ["two files", "two splits"])
@pytest.mark.parametrize(
    ("queries", "gallery"), [(np.eye(3, dtype=np.float32),) * 2, (PAIRS, NOISY)], ids=["equal", "noisy"]
)
def test_rows_numbered_alike_are_other_items(
    tmp_path: Path, form: str, queries: np.ndarray, gallery: np.ndarray
) -> None:
    count = len(queries)
    columns = {"id": np.arange(count), "label": np.arange(count).astype(str)}
    sets = {
        name: write(tmp_path / f"{name}.npz", points, **columns)
        for name, points in (("query", queries), ("gallery", gallery))
    }
    paths = None
    if form == "two splits":
        twice = {name: np.concatenate([values, values]) for name, values in columns.items()}
        split = np.repeat(["query", "gallery"], count)
        paths = [Path(write(tmp_path / "both.npz", np.concatenate([queries, gallery]), split=split, **twice))]
        sets = {"query": "query", "gallery": "gallery"}
    measured = record(paths, labels=["label"], **sets)
    assert recall(measured) == 1
    assert (measured.protocol.queries_in_gallery, measured.protocol.ids_alike) == (0, count)
    taken = any("they were taken for other items" in line for line in measured.warnings)
    assert taken == (queries is not PAIRS)  # equal vectors, too: that is asked about
    same = record(paths, labels=["label"], same_items=True, **sets)
    assert recall(same) == 0
    assert same.protocol.queries_in_gallery == count
    assert any("none of the" in line and "themselves all that the gallery has" in line for line in same.warnings)


def test_a_query_of_equal_id_and_vector_is_itself(tmp_path: Path) -> None:
    ids = np.arange(60)
    query = write(tmp_path / "q.npz", POINTS[:20], id=ids[:20], label=CLASSES[:20])
    gallery = write(tmp_path / "g.npz", POINTS[6:], id=ids[6:], label=np.where(ids == 19, 9, CLASSES)[6:])
    measured = record(query=query, gallery=gallery)
    assert (measured.protocol.queries_in_gallery, measured.protocol.ids_alike) == (14, 0)
    half = write(tmp_path / "half.npz", POINTS[:20].astype(np.float16), id=ids[:20], label=CLASSES[:20])
    again = write(tmp_path / "again.npz", POINTS[:20] + np.float32(1e-6), id=ids[:20], label=CLASSES[:20])
    for rounded in (half, again):
        assert record(query=rounded, gallery=gallery).protocol.queries_in_gallery == 14
    alone = write(tmp_path / "alone.npz", POINTS[6:], id=ids[6:], label=np.where(ids == 19, 0, CLASSES + 1)[6:])
    some = write(tmp_path / "some.npz", POINTS[18:20], id=ids[18:20], label=[1, 0])
    assert record(query=some, gallery=alone).warnings[0].startswith("label: 1 of 2 queries have nothing to find")


def test_ids_are_needed_where_they_are_to_be_matched(tmp_path: Path, run_command: Call) -> None:
    bare = write(tmp_path / "bare.npz", POINTS, label=CLASSES)
    named = write(tmp_path / "named.npz", POINTS, label=CLASSES, id=np.arange(60))
    other = write(tmp_path / "other.npz", POINTS, label=CLASSES, id=np.arange(60, 120))
    for gallery, problem in ((bare, "bare.npz has no column id"), (other, "no query of named.npz has one of its ids")):
        with pytest.raises(ValueError, match=problem):
            record(query=named, gallery=gallery, same_items=True)
    code, _, err = run_command("evaluate", named, "--same-items")
    assert code == 2
    assert "leave out --same-items" in err
    assert record(query=named, gallery=other).protocol.queries_in_gallery == 0  # the remedy


CAMERA = {"camera": np.zeros(60, int)}
HALVES = {"is_query": np.arange(60) < 30, "is_gallery": np.arange(60) >= 30}


@pytest.mark.parametrize(
    ("columns", "gallery", "options", "cause"),
    [
        (CAMERA, CLASSES, {"cameras": True}, "of 30 all items of the class have the query's camera"),
        ({}, CLASSES + 10, {}, "30 are of 6 classes that the gallery lacks ('0', '1', '2' and 3 more), which has '10'"),
        ({}, np.where(CLASSES == 0, 10, CLASSES), {}, "5 are of 1 class that the gallery lacks ('0')"),
    ],
    ids=["one camera", "other classes", "one class absent"],
)
def test_why_nobody_can_be_found(
    tmp_path: Path,
    run_command: Call,
    columns: dict[str, Any],
    gallery: np.ndarray,
    options: dict[str, Any],
    cause: str,
) -> None:
    half = {name: values[:30] for name, values in columns.items()}
    sets = {
        "query": write(tmp_path / "q.npz", POINTS[:30], label=CLASSES[:30], **half),
        "gallery": write(tmp_path / "g.npz", POINTS[30:], label=gallery[30:], **half),
    }
    results = evaluate_files(EvaluateOptions(None, measures=["recall@1"], **sets, **options))
    (warning,) = results[0].record.warnings
    assert cause in warning
    EvaluationResult(results).write_page(tmp_path / "page.html")
    assert warning.replace("'", "&#39;").replace('"', "&#34;") in (tmp_path / "page.html").read_text()
    named = [text for name, path in sets.items() for text in (f"--{name}", path)]
    assert "Warning:" in run_command("evaluate", *named, *(["--cameras"] if options else []))[1]
    assert ('(without_positive="drop")' in warning) == ("1 class " in warning)
    if "1 class " in warning:
        assert recall(record(**sets, without_positive="drop")) == 1
    if recall(results[0].record) == 0:
        with pytest.raises(ValueError, match="leaves out every query"):
            record(**sets, **options, without_positive="drop")


def test_a_camera_column_that_removes_everybody_is_named(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "one.npz", POINTS, label=CLASSES, **CAMERA, **HALVES))
    (warning,) = record([path]).warnings
    assert warning.endswith("correct or remove its column camera.")
    without = Path(write(tmp_path / "without.npz", POINTS, label=CLASSES, **HALVES))
    assert not record([without]).warnings
    itself = record([Path(write(tmp_path / "a.npz", POINTS, label=CLASSES, **CAMERA))], cameras=True)
    assert itself.warnings[0].endswith("leave out --cameras.")


def test_a_run_of_which_nobody_can_be_found_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = np.tile(np.arange(12), 20)
    points = np.eye(12)[kinds] + 0.1 * np.random.default_rng(0).normal(size=(240, 12))
    tested, first = np.arange(240) >= 120, np.arange(240) < 180
    marks = {"is_query": tested & first, "is_gallery": tested & ~first, "camera": np.zeros(240, int)}
    write(tmp_path / "a.npz", points.astype(np.float32), label=kinds, split=np.where(tested, "test", "train"), **marks)
    Path("head.toml").write_text(
        '[data]\nname = "vectors"\npath = "a.npz"\n[model]\nname = "residual"\nembedding_dim = 12\n'
        '[batch]\nnum_classes = 6\n[loss]\nname = "triplet"\n[training]\nsteps = 2\n[evaluation]\nmap_points = 20\n'
    )
    code, out, _ = run_command("train", "head.toml", "-o", "run")
    said = " ".join(out.split())
    assert code == 0
    assert "Warning: seen: label: none of the 60 queries has anything to find" in said
    assert "Nothing can be found on known classes (seen by label), whatever the embedding" in said
    assert "No better than chance" not in said
    assert "have the query&#39;s camera" in Path("run/report.html").read_text()


def test_other_items_that_are_numbered_alike_are_not_compared(tmp_path: Path, run_command: Call) -> None:
    columns = {"id": np.arange(60), "label": CLASSES}
    texts = {name: np.array([f"{name} {i}" for i in range(60)]) for name in ("bird", "fish")}
    files = {name: write(tmp_path / f"{name}.npz", POINTS, text=texts[name], **columns) for name in texts}
    same = write(tmp_path / "same.npz", POINTS[::-1] * 2, text=texts["bird"], **columns)
    for command in (("evaluate", files["bird"]), ("diagnose", files["bird"], "--reference")):
        named = ("--labels", "label")
        code, _, err = run_command(*command, files["fish"], *named)
        assert (code, "60 of 60 have another text in fish.npz, first '0' ('bird 0'" in err) == (2, True)
        assert run_command(*command, same, *named)[0] == 0
