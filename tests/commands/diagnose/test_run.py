"""Files and runs are diagnosed with what is known of them, and a run's record holds what its page shows."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.made_runs import make_run

from trivet.collapse import THRESHOLDS, diagnose
from trivet.collapse.modes import class_modes
from trivet.commands.diagnose.inputs import DiagnosisInput, read_inputs, trained_levels, unpaired
from trivet.commands.diagnose.options import DiagnoseOptions
from trivet.commands.diagnose.result import DiagnosisResult
from trivet.commands.diagnose.run import _name_causes, diagnose_input, diagnose_paths, finer_levels
from trivet.commands.train.run import train
from trivet.datasets import DigitsConfig, load
from trivet.models import build
from trivet.reports.diagnosis_record import DiagnosisSection, VerdictRecord
from trivet.reports.run_record import RunRecord
from trivet.training import RunConfig, embed

pytestmark = pytest.mark.usefixtures("few_pairs")

SECTION = {
    "name", "split", "level", "distance", "items", "dimension", "num_classes", "unit", "reference", "verdicts",
    "measures", "notes",
    "thresholds", "histograms", "spectrum", "classes", "scatter", "map", "queries",
}  # fmt: skip


def summary_json(subject: DiagnosisInput, **options: Any) -> tuple[dict[str, Any], Any]:
    diagnosed = diagnose_input(subject, **options)
    return diagnosed.summary.as_json(), diagnosed.diagnosis


def section_json(subject: DiagnosisInput, *, map_points: int = 1000, **options: Any) -> dict[str, Any]:
    return diagnose_input(subject, **options).section(map_points=map_points).as_json()


def inputs(path: Path, **options: Any) -> list[DiagnosisInput]:
    return read_inputs(path, DiagnoseOptions([path], **options))


def diagnosed(paths: list[Path], **options: Any) -> tuple[dict[str, Any], set[str]]:
    """What `trivet diagnose --json` prints but for the page, and the kinds of all verdicts."""
    found, warnings, history = diagnose_paths(DiagnoseOptions(paths, **options))
    result = DiagnosisResult(found, warnings, history=history)
    if (report := options.get("report")) is not None:
        result.write_page(report)
    kinds = {verdict.kind for each in found for verdict in each.summary.verdicts}
    return result.record.as_json(unset=False), kinds


def settings(root: Path, **loss: Any) -> RunConfig:
    return RunConfig.parse(
        {
            "data": {"name": "folder", "root": str(root), "image_size": 8, "channels": 1},
            "batch": {"num_classes": 2, "samples_per_class": 6},
            "model": {"name": "linear", "embedding_dim": 3},
            "loss": {"name": "triplet", "positives": "easy", **loss},
            "training": {"steps": 4, "accelerator": "cpu"},
            "evaluation": {"map_points": 10, "sample": 20, "nmi_plus": 2, "k": [1]},
        },
        source="test",
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of two kinds with twelve pictures each, and three of each to evaluate."""
    root, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name in ("a/x", "a/y", "b/x", "b/y"):
        pattern = random.integers(0, 200, (8, 8))
        for number in range(15):
            file = root / ("train" if number < 12 else "test") / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pattern + random.integers(0, 55, (8, 8))).astype(np.uint8)).save(file)
    return root


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train(settings(pictures), path)
    return path


@pytest.fixture
def points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings, classes and the two kinds inside each."""
    random = np.random.default_rng(1)
    fine = np.repeat(np.arange(10), 12)
    rows = (
        random.normal(size=(10, 6))[fine]
        + 0.4 * random.normal(size=(5, 6))[fine // 2]
        + 0.2 * random.normal(size=(120, 6))
    )
    return rows, fine // 2, fine


def cosine(a: Any, b: Any) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def test_a_run_records_a_diagnosis_of_its_training_items_and_of_each_split(run: Path) -> None:
    record = json.loads((run / "record.json").read_text())
    assert list(record["diagnosis"]) == ["train", "seen"]
    for split, section in record["diagnosis"].items():
        assert section.keys() == SECTION
        assert (section["name"], section["split"], section["level"]) == ("run", split, "level1")
        assert (section["items"], section["dimension"]) == ({"train": 48, "seen": 12}[split], 3)
        assert (section["distance"], section["reference"]) == ("euclidean", "untrained network, raw inputs")
        assert section["measures"]["reference_shrinkage"] is not None
        compared = [*section["measures"]["comparisons"], *section["measures"]["rankings"]]
        compared += [one for levels in record["comparisons"].values() for level in levels.values() for one in level]
        assert all(one["known_classes"] for one in compared)
        assert section["measures"]["sampling"]["batches"] > 0
        assert list(section["measures"]["fine"]) == ["level2"]
        assert [row["name"] for row in section["thresholds"]] == list(THRESHOLDS)
        assert section["histograms"]["reference_within"] is not None
        assert len(section["spectrum"]["reference"]) == 3
    assert record["diagnosis"]["seen"]["map"] is None
    shown = record["diagnosis"]["train"]["map"]
    assert shown.keys() == record["maps"]["seen"].keys()
    assert len(shown["thumbnails"]) == len(shown["ids"]) == 10
    assert shown["thumbnails"][0].startswith("data:image/png")


def test_levels_are_trained_ones_where_all_classes_of_a_split_are(run: Path) -> None:
    data = load(DigitsConfig(), None)
    by_split = {name: trained_levels(split, data.train) for name, split in data.evaluation.items()}
    assert by_split == {"seen": ["parity", "digit"], "unseen": []}
    assert [one.trained_items for one in inputs(run)] == [True, False]
    assert [(one.trained_items, list(one.trained_levels)) for one in inputs(run, split="seen")] == [
        (False, ["level1", "level2"])
    ]


def test_the_training_items_are_stored_and_diagnosed_again_to_the_same(run: Path) -> None:
    stored = pq.read_table(run / "embeddings" / "train.parquet").to_pydict()
    assert (len(stored["id"]), sorted(set(stored["level2"]))) == (48, ["a/x", "a/y", "b/x", "b/y"])
    recorded = json.loads((run / "record.json").read_text())["diagnosis"]
    asked = [one for split in (None, "train", "seen") for one in inputs(run, split=split)]
    assert [subject.split for subject in asked] == ["train", "seen", "train", "seen"]
    assert unpaired(asked) == []
    for subject in asked:
        section = section_json(subject, seed=0, map_points=10)
        for part in SECTION - {"map"}:
            assert json.loads(json.dumps(section[part])) == recorded[str(subject.split)][part], part
        assert section["map"]["ids"]


def test_a_split_of_a_run_that_is_worse_is_told_beside_training_items_that_are_not(tmp_path: Path) -> None:
    run, before = make_run(tmp_path / "run", split="train"), make_run(tmp_path / "before")
    for whole, wrong, split in ((run, range(0, 60, 2), "unseen"), (before, range(1), "train")):
        other = make_run(tmp_path / split, wrong, split=split) / "embeddings" / f"{split}.parquet"
        shutil.copy(other, whole / "embeddings")
    alone = make_run(tmp_path / "alone", labels=np.zeros(10, int), split="alone")
    shutil.copy(alone / "embeddings" / "alone.parquet", run / "embeddings")  # one class: nothing can be said of it
    result, kinds = diagnosed([run], reference=(before,))
    told = {one["split"]: [verdict["kind"] for verdict in one["verdicts"]] for one in result["results"]}
    assert list(told) == ["train", "unseen"]
    assert told["unseen"][0] == "worse-than-reference"
    assert "worse-than-reference" not in told["train"]
    assert "worse-than-reference" in kinds
    assert "warnings" not in result
    file = before / "embeddings" / "train.parquet"  # which holds no other items
    assert [one.split for one in inputs(run, reference=(file,))] == ["train"]


def test_of_other_splits_of_a_run_some_items_are_diagnosed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.commands.diagnose.inputs.ITEMS", 6)
    train, seen = inputs(run)
    assert (len(train.ids), len(seen.ids), len(seen.embeddings)) == (48, 6, 6)
    assert seen.notes[-1] == "6 of 12 items were diagnosed; --split seen takes all."
    assert all(len(rows) == 6 for rows in seen.references.values())
    assert len(inputs(run, split="seen")[0].ids) == 12


def test_the_reference_of_a_run_is_the_network_it_began_as(run: Path, pictures: Path) -> None:
    config = settings(pictures)
    items = load(config.data, None).train
    before = embed(build(config.model, items.inputs.shape, config.seed), items.inputs).astype(np.float64)
    stored = pq.read_table(run / "embeddings" / "train.parquet").to_pydict()
    place = {name: i for i, name in enumerate(items.ids)}
    before = before[[place[name] for name in stored["id"]]]
    after = np.array(stored["embedding"])
    ratio = np.mean([math.dist(a, b) for a in after for b in after]) / np.mean(
        [math.dist(a, b) for a in before for b in before]
    )
    recorded = json.loads((run / "record.json").read_text())["diagnosis"]["train"]["measures"]
    assert recorded["reference_shrinkage"] == pytest.approx(ratio, rel=1e-5)


def test_a_run_without_its_data_is_diagnosed_with_a_note(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace("pictures", "moved"))
    subject, _ = inputs(path)
    found, _ = summary_json(subject)
    assert found["reference"] is None
    assert "the data cannot be loaded" in found["notes"][-1]
    assert found["measures"]["sampling"] is not None
    (path / "embeddings" / "train.parquet").unlink()
    assert [one.split for one in inputs(path)] == ["seen"]
    shutil.rmtree(path / "embeddings")
    with pytest.raises(ValueError, match=r"a run must hold embeddings: .* write them with `trivet evaluate"):
        inputs(path)


def test_another_level_of_a_run_is_diagnosed_without_its_batches(run: Path) -> None:
    subject, _ = inputs(run, labels="level2")
    found, _ = summary_json(subject)
    assert (found["level"], found["measures"]["classes"], found["measures"]["sampling"]) == ("level2", 4, None)


def test_a_loss_that_knows_classes_is_tried_with_what_it_learned(pictures: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(settings(pictures, name="margin", positives="random", beta=1.0, beta_learning_rate=0.3), path)
    subject, _ = inputs(path)
    assert subject.strategy is not None
    beta = dict(subject.strategy.loss.named_parameters())["beta"]
    assert len(beta) == 2
    assert ((beta - 1.0).abs() > 0.01).all()
    recorded = json.loads((path / "record.json").read_text())["diagnosis"]
    assert summary_json(subject)[0]["measures"] == recorded["train"]["measures"]


def test_every_number_of_a_section_against_its_definition(
    points: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    rows, labels, fine = points
    np.savez(tmp_path / "x.npz", embeddings=rows, label=labels, kind=fine)
    np.savez(tmp_path / "before.npz", embeddings=2 * rows[:, :4])
    (subject,) = inputs(tmp_path / "x.npz", reference=(tmp_path / "before.npz",), distance="euclidean")
    section = section_json(subject)
    before = {"before.npz": 2 * rows[:, :4]}
    said = diagnose(rows, labels, before, fine={"kind": fine}, level="label", distance="euclidean").as_json()
    note = "Rows are compared with those of before.npz in their order: not both have ids."
    assert {key: section[key] for key in said} == said | {"notes": [*said["notes"], note]}

    similar = [[cosine(a, b) for b in rows] for a in rows]
    own = [[j for j in range(120) if labels[j] == labels[i] and j != i] for i in range(120)]
    others = [[j for j in range(120) if labels[j] != labels[i]] for i in range(120)]
    s_ap = [max(similar[i][j] for j in own[i]) for i in range(120)]
    s_an = [max(similar[i][j] for j in others[i]) for i in range(120)]
    assert section["scatter"]["s_ap"] == pytest.approx(s_ap, abs=1e-5)
    assert section["scatter"]["s_an"] == pytest.approx(s_an, abs=1e-5)
    assert section["scatter"]["ids"] == [str(i) for i in range(120)]
    assert section["scatter"]["labels"] == [str(label) for label in labels]

    rank = [sum(similar[i][j] > s_ap[i] for j in others[i]) for i in range(120)]
    order = sorted(range(120), key=lambda i: (rank[i], s_an[i] - s_ap[i]))
    classes: list[int] = []
    turns = []  # of each item in the order: how many of its class are before it
    for i in order[::-1]:
        turns.append((classes.count(labels[i]), len(turns), i))
        classes.append(labels[i])
    assert [query["id"] for query in section["queries"]["worst"]] == [str(i) for *_, i in sorted(turns)[:6]]
    assert len({query["labels"]["label"] for query in section["queries"]["random"]}) == 5
    assert rank[order[-1]] > 0
    worst = section["queries"]["worst"][0]
    assert re.match("1 item of another class is closer|[0-9]+ items of other classes are closer", worst["why"])
    assert int(worst["why"].split()[0]) == rank[order[-1]]
    assert len(worst["neighbours"]) == 6
    nearest = max((j for j in range(120) if j != order[-1]), key=lambda j: similar[order[-1]][j])
    assert worst["neighbours"][0]["id"] == str(nearest)
    assert worst["neighbours"][0]["labels"] == {"label": str(labels[nearest]), "kind": str(fine[nearest])}

    apart = {(i, j): math.dist(rows[i], rows[j]) for i in range(120) for j in range(i)}
    mean = sum(apart.values()) / len(apart)
    inside = [value / mean for (i, j), value in apart.items() if labels[i] == labels[j]]
    histograms = section["histograms"]
    edges = histograms["edges"]
    counted = [sum(low <= value < high for value in inside) for low, high in pairwise(edges)]
    assert histograms["within"] == pytest.approx([count / len(inside) for count in counted], abs=0.01)
    for side in ("within", "between", "reference_within", "reference_between"):
        assert sum(histograms[side]) == pytest.approx(1, abs=1e-4)

    table = section["classes"]
    assert 2 in [row[5] for row in table["rows"]]
    assert table["columns"] == ["class", "items", "spread", "effective_rank", "recall@1", "modes", "retention"]
    assert [row[:2] for row in table["rows"]] == [[str(c), 24] for c in range(5)]
    assert [row[5] for row in table["rows"]] == class_modes(rows, labels).counts.tolist()
    assert all(0.2 < row[6] <= 1 for row in table["rows"])
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    assert section["spectrum"]["values"] == pytest.approx((values / values.sum()).tolist(), abs=1e-7)
    assert len(section["spectrum"]["reference"]) == 4
    assert section["map"]["thumbnails"] == []
    json.dumps(section, allow_nan=False)


def test_the_most_confused_pairs_of_classes_come_first_each_with_an_item(tmp_path: Path) -> None:
    rows, labels = np.random.default_rng(0).normal(size=(60, 3)), np.repeat(np.arange(4), 15)
    np.savez(tmp_path / "x.npz", embeddings=rows, label=labels)
    (subject,) = inputs(tmp_path / "x.npz")
    nearest = [max((j for j in range(60) if j != i), key=lambda j: cosine(rows[i], rows[j])) for i in range(60)]
    pairs = Counter(frozenset((labels[i], labels[j])) for i, j in enumerate(nearest) if labels[i] != labels[j])
    queries = section_json(subject)["queries"]["confused"]
    assert len(queries) == len(pairs) == 6
    for query, count in zip(queries, sorted(pairs.values(), reverse=True), strict=True):
        why = re.fullmatch(r"(\d) and (\d): (\d+) of 30 items have one of the other class as nearest\.", query["why"])
        assert why is not None
        left, right, confused = map(int, why.groups())
        assert pairs[frozenset((left, right))] == confused == count
        assert {left, right} == {int(query["labels"]["label"]), int(query["neighbours"][0]["labels"]["label"])}


def test_finer_levels_are_found_by_nesting() -> None:
    coarse = np.repeat(["a", "b"], 6)
    labels = {
        "coarse": coarse,
        "fine": np.repeat(["p", "q", "r"], 4),  # q lies in both
        "inside": np.repeat(["1", "2", "3", "4"], 3),
        "same": np.repeat(["y", "x"], 6),
        "file": np.array([str(i) for i in range(12)]),
        "one": np.repeat(["all"], 12),
    }
    assert finer_levels(labels, "coarse") == ["inside"]
    assert finer_levels(labels, "one") == ["coarse", "fine", "inside", "same"]
    assert finer_levels(labels, "inside") == []


def test_a_reference_is_matched_by_id(points: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    rows, labels, _ = points
    ids = np.array([f"item {i}" for i in range(120)])
    np.savez(tmp_path / "x.npz", embeddings=rows, label=labels, id=ids)
    order = np.random.default_rng(0).permutation(120)
    more = np.concatenate([np.ones((3, 6)), rows[order]])
    np.savez(tmp_path / "r.npz", embeddings=4 * more, id=np.concatenate([["p", "q", "r"], ids[order]]))
    (subject,) = inputs(tmp_path / "x.npz", reference=(tmp_path / "r.npz",), distance="euclidean")
    found, _ = summary_json(subject)
    assert found["measures"]["reference_shrinkage"] == pytest.approx(0.25)
    assert found["reference"] == "r.npz"
    np.testing.assert_array_equal(subject.references["r.npz"], 4 * rows)
    np.savez(tmp_path / "less.npz", embeddings=rows[1:], id=ids[1:])
    with pytest.raises(ValueError, match=r"less\.npz has no 'item 0' \(1 of 120"):
        inputs(tmp_path / "x.npz", reference=(tmp_path / "less.npz",))
    np.savez(tmp_path / "bare.npz", embeddings=rows[1:])
    with pytest.raises(ValueError, match=r"bare\.npz has 119 rows and x\.npz 120"):
        inputs(tmp_path / "x.npz", reference=(tmp_path / "bare.npz",))


def test_a_split_and_its_reference(points: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    rows, labels, _ = points
    split = np.where(np.arange(120) % 3, "train", "test")
    np.savez(tmp_path / "x.npz", embeddings=rows, label=labels, split=split)
    np.savez(tmp_path / "r.npz", embeddings=5 * rows, split=split)
    request: dict[str, Any] = {"split": "test", "reference": (tmp_path / "r.npz",), "distance": "euclidean"}
    (subject,) = inputs(tmp_path / "x.npz", **request)
    found, _ = summary_json(subject)
    assert (found["items"], found["split"]) == (40, "test")
    assert found["measures"]["reference_shrinkage"] == pytest.approx(0.2)


def test_edge_cases_are_diagnosed(tmp_path: Path, points: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    rows, labels, _ = points

    def kinds(name: str, embeddings: np.ndarray, classes: np.ndarray) -> tuple[dict[str, Any], list[str]]:
        np.savez(tmp_path / f"{name}.npz", embeddings=embeddings, label=classes)
        (subject,) = inputs(tmp_path / f"{name}.npz", labels="label")
        section = section_json(subject, map_points=20)
        json.dumps(section, allow_nan=False)
        return section, [verdict["kind"] for verdict in section["verdicts"]]

    section, found = kinds("constant", np.ones_like(rows), labels)
    assert found == ["no-better-than-chance", "network-collapse"]
    assert section["histograms"]["within"][0] == 1
    section, found = kinds("zeros", np.zeros_like(rows), labels)
    assert found == ["no-better-than-chance", "network-collapse"]
    section, _ = kinds("singles", rows, np.arange(120))
    assert any("single item" in note for note in section["notes"])
    assert section["queries"] == {"confused": [], "random": [], "worst": []}
    section, found = kinds("line", (labels + np.random.default_rng(0).normal(size=120))[:, None], labels)
    assert (found, section["distance"], section["dimension"]) == (["spread-out"], "euclidean", 1)
    assert set(section["map"]["coordinates"]) == {"PCA"}
    section, _ = kinds("two", rows[[0, 119]], np.array([0, 1]))
    assert section["items"] == 2


def test_columns_that_nobody_named_may_be_faulty(
    tmp_path: Path, points: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    rows, labels, fine = points
    np.save(tmp_path / "x.npy", rows)
    lines = [f"{a},{b},{'x' if a else ''},{a / 2}" for a, b in zip(labels, fine, strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["label,kind,mark,half", *lines]))
    with pytest.raises(ValueError, match="'mark'"):
        inputs(tmp_path / "x.npy")
    (subject,) = inputs(tmp_path / "x.npy", labels="label")
    assert list(subject.labels) == ["label"]
    (subject,) = inputs(tmp_path / "x.npy", labels="half", fine=("kind",))
    assert list(summary_json(subject)[0]["measures"]["fine"]) == ["kind"]
    with pytest.raises(ValueError, match="must split at least one coarse class"):
        summary_json(inputs(tmp_path / "x.npy", labels="kind", fine=("label",))[0])


def test_embeddings_of_other_items_are_not_compared_in_silence(
    tmp_path: Path, points: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    rows, labels, _ = points
    np.savez(tmp_path / "x.npz", embeddings=rows, label=labels)
    np.savez(tmp_path / "less.npz", embeddings=rows[:100], label=labels[:100])
    np.savez(tmp_path / "other.npz", embeddings=rows, label=labels[::-1])
    report = tmp_path / "page.html"
    both, _ = diagnosed([tmp_path / "x.npz", tmp_path / "less.npz"], report=report)
    (warning,) = both["warnings"]
    assert warning.startswith("These embeddings are not of the same items (x.npz and less.npz")
    assert warning in report.read_text()
    with pytest.raises(ValueError, match=r"label differs in 96 of 120 rows of other.npz, first in row 0"):
        inputs(tmp_path / "x.npz", reference=(tmp_path / "other.npz",))


def test_the_page_of_a_run_shows_its_training(run: Path, tmp_path: Path) -> None:
    diagnosed([run], split="seen", report=tmp_path / "run.html")
    assert 'id="history-step"' in (tmp_path / "run.html").read_text()
    diagnosed([run, run], split="seen", report=tmp_path / "two.html")
    assert 'id="history-step"' not in (tmp_path / "two.html").read_text()


def test_a_run_is_told_the_cause_that_it_found_when_it_was_evaluated() -> None:
    def section(cause: str, level: str = "class") -> DiagnosisSection:
        verdict = VerdictRecord(kind="worse-than-reference", cause=cause, changes=[cause])
        return DiagnosisSection(split="unseen", level=level, reference="untrained network", verdicts=[verdict])

    record = RunRecord(diagnosis={"unseen": section("The rate was too high.")})
    now, other = section("unknown"), section("unknown", level="kind")
    for one in (now, other):
        _name_causes(one, record)
    assert now == section("The rate was too high.")
    assert other == section("unknown", level="kind")


def test_classes_that_lost_are_named(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    classes = np.repeat(np.arange(10), 40)
    before = random.standard_normal((10, 16))[classes] + 1.1 * random.standard_normal((400, 16))
    after = before[:, :12] + 2.0 * np.eye(12)[classes]
    for one in (2, 5):
        after[classes == one] = 3 * random.standard_normal((40, 12))
    names = np.array([f"kind {chr(97 + one)}" for one in classes])
    np.savez(tmp_path / "before.npz", embeddings=before, label=names)
    np.savez(tmp_path / "after.npz", embeddings=after, label=names)
    result, _ = diagnosed([tmp_path / "after.npz"], reference=(tmp_path / "before.npz",))
    lost = sorted(result["measures"]["lost"], key=lambda one: one["recall"] - one["reference_recall"])
    assert {one["number"] for one in lost} == {2, 5}
    said = ", ".join(
        f"kind {chr(97 + one['number'])} ({100 * one['reference_recall']:.1f} to {100 * one['recall']:.1f} %)"
        for one in lost
    )
    assert result["notes"][0] == f"2 classes lost 20 points of recall@1 or more: {said}."
