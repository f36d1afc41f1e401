"""Items are judged by networks that have not seen their labels, and what an audit writes changes nobody's file."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from trivet.commands.audit import items as audit_items
from trivet.commands.audit import run as audit
from trivet.commands.audit.items import Items, out_of_fold
from trivet.commands.audit.options import AuditOptions
from trivet.commands.audit.run import audit_path, judge, summary
from trivet.commands.train.run import train
from trivet.datasets import Splits, load
from trivet.io.label_decisions import read_decisions
from trivet.io.read_embeddings import read_vectors
from trivet.label_noise import Suspects, find_suspects
from trivet.metrics.folds import stratified_folds
from trivet.mining.tags import Tags
from trivet.training import RunConfig
from trivet.training.components import trained_on
from trivet.training.embed_dataset import embed, label_names, raw_inputs
from trivet.training.loop import Batches, Learner

pytestmark = pytest.mark.usefixtures("rough_evaluation")

NAMES = "abc"
PROBABILITIES = ("probability_not_separable", "probability_proposed")
NEAR = ("neighbour_label", "neighbour_count")


def settings(root: Path, steps: int = 4, **data: Any) -> RunConfig:
    return RunConfig.parse(
        {
            "data": {"name": "folder", "root": str(root), "image_size": 8, "channels": 1, **data},
            "batch": {"num_classes": 3, "samples_per_class": 6},
            "model": {"name": "mlp", "embedding_dim": 8, "width": 64},
            "loss": {"name": "triplet", "positives": "all", "negatives": "all", "margin": 1.0},
            "training": {"steps": steps, "accelerator": "cpu", "learning_rate": 3e-3},
            "evaluation": {"map_points": 10, "sample": 6, "nmi_plus": 1, "k": [1]},
        },
        source="test",
    )


def networks_out_of_fold(config: RunConfig, splits: Splits, folds: int, seed: int = 0) -> tuple[Any, Any]:
    network, needed = partial(trained_on, config, splits), config.batch.needed_classes
    return out_of_fold(splits, network, folds, needed_classes=needed, seed=seed)


@pytest.fixture(scope="module", autouse=True)
def networks() -> Iterator[None]:
    """These pictures are so easy that their pixels would be the judge of every run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_items, "RAW", 0)
        yield


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 40 pictures that resemble each other, and two of each to evaluate."""
    root, random = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name in NAMES:
        pattern = random.integers(0, 200, (8, 8))
        for number in range(42):
            file = root / ("train" if number < 40 else "test") / name / f"{number:02}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pattern + random.integers(0, 55, (8, 8))).astype(np.uint8)).save(file)
    return root


NOISE = {"kind": "symmetric", "rate": 0.15, "exact": True}
STEPS, WRONG = 200, 18


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned some of the 18 wrong labels of its 120 training items by heart."""
    path = tmp_path_factory.mktemp("runs") / "run"
    record = train(settings(pictures, steps=STEPS, noise=NOISE), path)
    assert record.data.noise.wrong == WRONG
    return path


@pytest.fixture(scope="module")
def audited(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an audit of it out of fold says, and the files that it wrote."""
    before, folder = contents(run), run.parent
    names = {"out": "suspects.csv", "decisions": "decisions.csv", "report": "page.html"}
    outputs = {"relabel_above": 0.5, **{option: folder / name for option, name in names.items()}}
    found = audit_json(run, **outputs)
    assert contents(run) == before
    return found, outputs


class Shifted(torch.nn.Module):
    """The first 8 pixels, plus a number."""

    device = torch.device("cpu")

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.tensor(float(number)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :8] + self.number


def audit_json(path: Path, **options: Any) -> dict[str, Any]:
    """The object that `trivet audit --json` prints."""
    return audit_path(AuditOptions(path, **options)).record.as_json(unset=False)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test_folds_are_even_in_all_and_in_each_class() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([2, 5, 6, 9], [7, 1, 30, 12]))
    fold = stratified_folds(labels, 4, np.random.default_rng(0))
    for rows in (np.ones(50, bool), *(labels == label for label in (2, 5, 6, 9))):
        counts = np.bincount(fold[rows], minlength=4)
        assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(fold, stratified_folds(labels, 4, np.random.default_rng(0)))
    assert (fold != stratified_folds(labels, 4, np.random.default_rng(1))).any()


def test_each_network_is_trained_without_the_items_it_embeds(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(pictures)
    splits = load(config.data, None)
    trained: list[Batches] = []

    def mark(task: Learner, batches: Batches, *, workers: int) -> bool:
        """In place of training, shift the network by how many were trained."""
        trained.append(batches)
        task.model = Shifted(len(trained))
        return True

    monkeypatch.setattr("trivet.training.components.fit", mark)
    embeddings, fold = networks_out_of_fold(config, splits, 4, seed=1)
    np.testing.assert_array_equal(fold, stratified_folds(splits.train.labels["class"], 4, np.random.default_rng(1)))
    for number, batches in enumerate(trained):
        assert set(batches.dataset.ids) == {splits.train.ids[i] for i in np.flatnonzero(fold != number)}
        assert (batches.start, batches.steps, batches.seed) == (0, 4, 0)
    pixels = splits.train.inputs.batch(np.arange(120)).flatten(1)[:, :8].numpy()
    np.testing.assert_allclose(embeddings, pixels + fold[:, None] + 1)

    # Without a fold the pair has one item left, which is not trained on either.
    few = np.concatenate([np.arange(42), np.arange(80, 120)])
    smaller = replace(splits, train=splits.train.subset(few))
    two = config.model_copy(update={"batch": config.batch.model_copy(update={"num_classes": 2})})
    trained.clear()
    networks_out_of_fold(two, smaller, 3)
    pair = set(smaller.train.ids[40:42])
    seen = [len(pair & set(batches.dataset.ids)) for batches in trained]
    assert sorted(seen) == [0, 0, 2]
    relations = {"class": Tags([["a"], ["a", "b"], ["b"], ["b", "c"]])}  # a set of tags may come once
    tagged = replace(smaller, train=replace(smaller.train, relations=relations))
    trained.clear()
    networks_out_of_fold(two, tagged, 3)
    assert sorted(len(pair & set(batches.dataset.ids)) for batches in trained) == [1, 1, 2]
    with pytest.raises(ValueError, match=r"needs 3 classes of two items.*without fold \d of 3 there are 2"):
        networks_out_of_fold(config, smaller, 3)
    for folds in (1, 42):
        with pytest.raises(ValueError, match=r"folds must be from 2 to half the number of items, 41"):
            networks_out_of_fold(config, smaller, folds)


def test_a_network_is_trained_as_the_run_trained_its_own(
    pictures: Path, run: Path, heard: list[tuple[str, float, float]]
) -> None:
    config = RunConfig.read(run / "config.toml")
    splits = load(config.data, None)
    model = trained_on(config, splits, splits.train, "title")
    stored = read_vectors(run, split="train")
    assert stored.ids is not None
    assert stored.ids.tolist() == list(splits.train.ids)
    np.testing.assert_array_equal(embed(model, splits.train.inputs), stored.embeddings)
    said = [one for one in heard if one[0] == "title"]
    assert said == [("title", step, STEPS) for step in range(1, STEPS + 1)]


def test_rows_of_different_networks_are_not_compared(run: Path) -> None:
    """Each network may turn space over: nothing is said that depends on it."""
    splits = load(RunConfig.read(run / "config.toml").data, None)
    points = raw_inputs(splits.train.inputs)
    fold = stratified_folds(splits.train.labels["class"], 2, np.random.default_rng(0))
    items = Items(
        name="x", split=None, level="class", ids=splits.train.ids, labels=np.array(label_names(splits.train)["class"]),
        embeddings=points, fold=fold, distance="euclidean",
    )  # fmt: skip
    turned = replace(items, embeddings=np.where(fold[:, None] == 0, points, -points))
    judged = judge(items)
    one, other = summary(items, judged).as_json(), summary(turned, judge(turned)).as_json()
    assert one["folds"] == other["folds"] == 2
    assert one["suspects"] == other["suspects"]
    neighbours = judged.suspects.neighbours
    assert neighbours.shape == (120, 50)
    assert judge(items, neighbours=4).suspects.neighbours.shape == (120, 4)
    assert (fold[neighbours] == fold[:, None]).all()
    assert summary(replace(items, fold=None), judge(replace(items, fold=None))).folds == 0


def wrong_items(run: Path) -> dict[str, str]:
    """The true label of each item that was given a wrong one."""
    with (run / "noise.csv").open(newline="") as file:
        return {row["id"]: row["true_label"] for row in csv.DictReader(file)}


def test_labels_learned_by_heart_hide_from_the_network_but_not_out_of_fold(
    run: Path, audited: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    truth, seen = wrong_items(run), audited[0]
    hidden = audit_json(run, folds=0)
    by_heart, out_of_fold = (
        sum(one["probability_wrong"] > 0.5 for one in found["suspects"] if one["id"] in truth)
        for found in (hidden, seen)
    )
    assert by_heart <= out_of_fold
    assert out_of_fold >= WRONG - 3
    assert any("memorised wrong labels" in note for note in hidden["notes"])
    assert seen["notes"] == []
    assert (seen["folds"], hidden["folds"]) == (2, 0)
    items = load(RunConfig.read(run / "config.toml").data, None).train.ids
    assert sorted(one["id"] for one in seen["suspects"]) == sorted(items)
    proposed = [one["proposed_label"] == truth[one["id"]] for one in seen["suspects"] if one["id"] in truth]
    assert sum(proposed) >= WRONG - 3
    low, high = seen["noise_rate"]["interval"]
    assert low <= 0.15 <= high
    assert low <= seen["noise_rate"]["estimate"] <= high


def test_few_items_in_a_fold_are_said_to_be_few(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.training.components.trained_on", lambda *rest: Shifted(0))
    notes = audit_json(run, folds=3)["notes"]
    assert [note[:44] for note in notes] == ["The median class has only 13 items per fold,"]
    monkeypatch.setattr(audit_items, "FEW", 13)
    found = audit_json(run)
    assert (found["folds"], found["notes"]) == (3, [])


def test_what_is_decided_on_suspects_is_trained_on(
    run: Path, audited: tuple[dict[str, Any], dict[str, Any]], pictures: Path, tmp_path: Path
) -> None:
    found, outputs = audited
    assert (found["out"], found["report"]) == (str(outputs["out"]), str(outputs["report"]))
    with outputs["out"].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:5] == ["id", "label", "proposed_label", "probability_wrong", "evidence"]
    assert list(rows[0])[5:] == [
        *PROBABILITIES,
        *NEAR,
        "duplicate",
        "duplicate_of",
        "duplicate_label",
        "outlier",
        "text",
    ]
    assert [{column: row[column] for column in audit.SUSPECTS} for row in rows] == [
        {column: str(one[column]) for column in audit.SUSPECTS} for one in found["suspects"]
    ]
    chances = [float(row["probability_wrong"]) for row in rows]
    assert chances == sorted(chances, reverse=True)
    read = read_decisions(outputs["decisions"])
    assert [(one.id, one.label) for one in read] == [(row["id"], row["proposed_label"]) for row in rows]
    assert [one.decision for one in read] == ["relabel" if chance > 0.5 else "keep" for chance in chances]
    assert sum(chance > 0.5 for chance in chances) == found["above_half"]

    config = settings(pictures, noise=NOISE, decisions=str(outputs["decisions"]))
    record = train(config, tmp_path / "again")
    truth = wrong_items(run)
    changed = {one.id: one.label for one in read if one.decision == "relabel"}
    assert record.data.decisions["relabel"] == len(changed) == found["above_half"]
    mended = sum(truth.get(name) == label for name, label in changed.items())
    spoiled = len(changed.keys() - truth.keys())
    assert record.data.noise.wrong == WRONG - mended + spoiled < WRONG - 9
    # An audit of the new run is one of the labels as they were decided.
    again = audit_json(tmp_path / "again", folds=0)
    labels = {one["id"]: one["label"] for one in again["suspects"]}
    assert changed.items() <= labels.items()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The records of pages, which are not written."""
    records: list[Any] = []
    monkeypatch.setattr(
        "trivet.commands.audit.page.write_audit_report", lambda record, path: records.append(record.as_json())
    )
    return records


def test_the_page_is_given_what_it_shows(
    run: Path, given: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.commands.audit.result.PAGE_ITEMS", 5)
    found = audit_json(run, folds=0, neighbours=4, report=tmp_path / "x.html")
    (page,) = given
    assert page["class_names"] == list(NAMES)
    assert [one["id"] for one in page["selected"]] == [one["id"] for one in found["suspects"][:5]]
    table = pq.read_table(run / "embeddings" / "train.parquet").to_pydict()
    place = {name: i for i, name in enumerate(table["id"])}
    points = np.array(table["embedding"], np.float64)
    for one, suspect in zip(page["selected"], found["suspects"], strict=False):
        assert (one["label"], one["proposed_label"]) == (suspect["label"], suspect["proposed_label"])
        assert "; ".join(one["reasons"]) == suspect["evidence"]
        assert one["thumbnail"].startswith("data:image/png")
        assert len(one["neighbours"]) == 4
        apart = np.sort(np.linalg.norm(points - points[place[one["id"]]], axis=1))[1:5]
        assert [near["distance"] for near in one["neighbours"]] == pytest.approx(apart.tolist(), abs=1e-4)
        same = sum(near["label"] == one["label"] for near in one["neighbours"])
        assert one["reasons"][0].startswith(f"{same} of 4 neighbours")
        assert suspect["neighbour_agreement"] == same / 4
        beside = Counter(near["label"] for near in one["neighbours"])
        assert suspect["neighbour_count"] == beside[suspect["neighbour_label"]] == max(beside.values())


def test_raw_inputs_judge_where_networks_know_no_more(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_items, "RAW", 64)
    train = load(settings(pictures).data, None).train
    (labels,), folds = train.labels.values(), np.arange(120) % 2
    random = np.random.default_rng(0)
    noise = random.normal(size=(120, 8)).astype(np.float32)
    raw, (note,) = audit_items._raw_if_better(train, "class", noise, folds, "euclidean", seed=0)
    assert raw is not None
    assert raw.shape == (120, 64)
    assert "100.0 % with the raw inputs" in note
    better = noise.copy()
    better[np.arange(120), labels] += 20
    monkeypatch.setattr(audit_items, "raw_inputs", lambda inputs: noise)
    assert audit_items._raw_if_better(train, "class", better, folds, "euclidean", seed=0) == (None, [])
    monkeypatch.setattr(audit_items, "RAW", 63)
    assert audit_items._raw_if_better(train, "class", noise, folds, "euclidean", seed=0) == (None, [])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    labels = np.repeat(np.array(["cat", "dog"]), 30)
    points = random.normal(size=(2, 5))[np.repeat([0, 1], 30)] + 0.2 * random.normal(size=(60, 5))
    texts = np.array([f"text {i}" for i in range(60)])
    np.savez("pets.npz", embeddings=points, text=texts, kind=labels, id=np.char.add("pet ", np.arange(60).astype(str)))
    np.savez("bare.npz", embeddings=points, kind=labels, split=np.array(["one", "two"])[np.arange(60) % 2])
    np.savez("line.npz", embeddings=points[:, :1], kind=labels)
    return tmp_path


def test_a_file_is_judged_in_its_own_embedding(files: Path, given: list[Any]) -> None:
    found = audit_json(Path("pets.npz"), report=Path("x.html"))
    assert (found["name"], found["split"], found["level"], found["folds"]) == ("pets.npz", None, "kind", 0)
    assert (found["items"], found["classes"], found["distance"]) == (60, 2, "cosine")
    assert found["transition"]["classes"] == ["cat", "dog"]
    assert len(found["notes"]) == 1
    shown = given[0]["selected"][0]
    assert shown["text"] == f"text {shown['id'].removeprefix('pet ')}"
    assert shown["thumbnail"] is None
    assert -1 <= shown["neighbours"][0]["similarity"] <= 1
    found = audit_json(Path("bare.npz"), split="two", distance="euclidean")
    assert (found["items"], found["split"], found["distance"]) == (30, "two", "euclidean")
    assert sorted(one["id"] for one in found["suspects"]) == sorted(map(str, range(1, 60, 2)))  # of the file
    assert "identified by their number" in found["notes"][1]
    assert audit_json(Path("line.npz"))["distance"] == "euclidean"


def test_duplicates_and_outliers_are_named(files: Path) -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(80, 8))
    points[1], points[3], points[79] = points[0], points[2] + 0.01, 20.0
    labels = np.repeat(["a", "b"], 40)
    labels[3] = "b"
    np.savez("twice.npz", embeddings=points, kind=labels)
    found = audit_json(Path("twice.npz"), distance="euclidean", out=Path("s.csv"))
    assert found["duplicates"] == {"exact": 2, "near": 2, "other_label": 2}
    assert found["outliers"] == 1
    with Path("s.csv").open(newline="") as file:
        further = [name for name in audit.FURTHER if name not in (*PROBABILITIES, *NEAR)]
        rows = {row["id"]: [row[name] for name in further] for row in csv.DictReader(file)}
    assert {name: row for name, row in rows.items() if any(row)} == {
        "0": ["exact", "1", "same", "", ""],
        "1": ["exact", "0", "same", "", ""],
        "2": ["near", "3", "other", "", ""],
        "3": ["near", "2", "other", "", ""],
        "79": ["", "", "", "yes", ""],
    }
    # Texts are the same whatever their capitals and blanks, and blank ones are not.
    texts = [f"text {i}" for i in range(80)]
    texts[5:9] = ["Some  words", "some words ", " ", ""]
    apart = random.normal(size=(80, 8)) + 3 * (labels == "a")[:, None]
    np.savez("texts.npz", embeddings=apart, kind=labels, text=np.array(texts))
    judged = {one["id"]: one for one in audit_json(Path("texts.npz"))["suspects"]}
    assert [name for name, one in judged.items() if one["duplicate"] == "exact"] in (["5", "6"], ["6", "5"])
    assert judged["5"]["text"] == "Some  words"


def told(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits judge as they do, but come to this verdict."""

    def judged(*arguments: Any, **options: Any) -> Suspects:
        found = find_suspects(*arguments, **options)
        parts: dict[str, Any] = {"verdict": verdict, "rate": None, "interval": (0.0, 0.4), "reason": "For a reason."}
        if verdict == "uninformative":
            parts["interval"] = None
            found = replace(found, probability_wrong=np.full(60, np.nan))
        return replace(found, noise=replace(found.noise, **parts))

    monkeypatch.setattr(audit, "find_suspects", judged)


def test_where_it_cannot_be_told_nothing_accuses(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told("cannot-tell", monkeypatch)
    outputs = {"out": Path("s.csv"), "decisions": Path("d.csv"), "report": Path("r.html")}
    for refused in ("cannot-tell", "uninformative"):
        told(refused, monkeypatch)
        found = audit_json(Path("pets.npz"), **outputs, relabel_above=0.5)
        assert found["refused"].startswith("--relabel-above needs labels that must be wrong, or")
        instead = ", or leave out the doubtful by --drop-above alone" if refused == "cannot-tell" else ""
        assert found["refused"].endswith(f" No decision was filled in; decide on each item yourself{instead}.")
        assert {"out", "report"} <= found.keys()  # nothing that was computed is lost
        if refused == "cannot-tell":
            assert {one.decision for one in read_decisions(Path("d.csv"))} == {"undecided"}
        for name in ("s.csv", "d.csv", "r.html"):
            Path(name).unlink(missing_ok=True)
    told("cannot-tell", monkeypatch)
    found = audit_json(Path("pets.npz"), **outputs)
    assert found["noise_rate"] == {
        "verdict": "cannot-tell", "estimate": None, "interval": [0.0, 0.4], "reason": "For a reason.",
    }  # fmt: skip
    assert (len(found["suspects"]), found["transition"]) == (60, None)
    assert {one.decision for one in read_decisions(Path("d.csv"))} == {"undecided"}
    assert "refused" not in found
    told("uninformative", monkeypatch)
    Path("d.csv").unlink()
    found = audit_json(Path("pets.npz"), **outputs, drop_above=0.5, force=True)
    assert found["refused"] == (
        "--drop-above needs an embedding that knows the labels: For a reason. No decision was filled in."
    )
    assert not Path("d.csv").exists()
    found = audit_json(Path("pets.npz"), **outputs, force=True)
    assert found["noise_rate"] == {
        "verdict": "uninformative", "estimate": None, "interval": None, "reason": "For a reason.",
    }  # fmt: skip
    assert (found["suspects"], found["above_half"], "decisions" in found) == ([], None, False)
    assert not Path("d.csv").exists()
    assert found["notes"][-1] == "No decision file was written to d.csv, as no label is suspected."
    with Path("s.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["proposed_label"], row["probability_wrong"], row["evidence"]) for row in rows} == {("", "", "")}
    assert "No suspects are listed" in Path("r.html").read_text()


def test_what_is_doubtful_is_dropped_and_each_class_keeps_two(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging, parts = find_suspects, {"interval": (0.0, 0.9)}

    def doubtful(*arguments: Any, **options: Any) -> Suspects:
        """Of the cats 3 and 4 are above one half, 5 is at it, 3 is probably a dog; all dogs are above, 30 the least."""
        found = judging(*arguments, **options)
        chances, proposed = np.full(60, 0.1), arguments[1].copy()
        chances[[3, 4, 5]], chances[30:], proposed[3] = (0.9, 0.8, 0.5), np.linspace(0.6, 0.95, 30), 1
        return replace(
            found,
            probability_wrong=chances / 10,
            probability_not_separable=chances,
            probability_proposed=np.full(60, 0.7),
            proposed=proposed,
            order=np.argsort(-chances, kind="stable"),
            noise=replace(found.noise, verdict="cannot-tell", rate=None, reason="For a reason.", **parts),
        )

    monkeypatch.setattr(audit, "find_suspects", doubtful)

    def decided(**above: float) -> tuple[dict[str, list[int]], dict[str, Any]]:
        found = audit_json(Path("pets.npz"), decisions=Path("d.csv"), force=True, **above)
        rows = read_decisions(Path("d.csv"))
        assert [one.id for one in rows] == [one["id"] for one in found["suspects"]]
        parted = {one.decision: [] for one in rows}
        for one in rows:
            parted[one.decision].append(int(one.id[4:]))
        return {name: sorted(ids) for name, ids in parted.items()}, found

    dogs = list(range(32, 60))
    kept = [i for i in range(32) if i not in (3, 4)]
    parted, found = decided(drop_above=0.5)  # also where no label must be wrong: it accuses none
    assert parted == {"drop": [3, 4, *dogs], "keep": kept}
    assert found["notes"][-1] == (
        "The decision file leaves out 30 of 60 items (50.0 %), whose labels are wrong, or whose classes overlap there, "
        "with a probability above 50 %."
    )
    # Relabelling is refused, and half of what was asked for is not done in its place.
    parted, found = decided(drop_above=0.5, relabel_above=0.5)
    assert parted == {"undecided": list(range(60))}
    parts["interval"] = (0.1, 0.9)
    assert decided(drop_above=0.5, relabel_above=0.5)[0] == {"relabel": [3], "drop": [4, *dogs], "keep": kept}
    assert decided(drop_above=0.5, relabel_above=0.8)[0] == {"drop": [3, 4, *dogs], "keep": kept}


def test_where_it_cannot_be_told_the_neighbours_class_is_offered(
    files: Path, given: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label among strangers, whose probability to be wrong is held down: nothing is proposed, a person may choose."""
    with np.load("pets.npz") as file:
        parts = dict(file)
    parts["kind"][7] = "dog"
    np.savez("one.npz", **parts)
    judging = find_suspects

    def held_down(*arguments: Any, **options: Any) -> Suspects:
        found = judging(*arguments, **options)
        noise = replace(found.noise, verdict="cannot-tell", rate=None, interval=(0.0, 0.4), reason="For a reason.")
        return replace(found, noise=noise, proposed=arguments[1], probability_wrong=found.probability_wrong / 100)

    monkeypatch.setattr(audit, "find_suspects", held_down)
    outputs = {"decisions": Path("d.csv"), "report": Path("r.html")}
    found = audit_json(Path("one.npz"), neighbours=9, **outputs)
    first, shown = found["suspects"][0], given[0]["selected"][0]
    assert (first["id"], first["label"], first["proposed_label"]) == ("pet 7", "dog", "dog")
    assert (first["neighbour_label"], first["neighbour_count"]) == ("cat", 9)
    assert (shown["proposed_label"], shown["neighbour_label"]) == ("dog", "cat")
    assert (found["called_wrong"], found["above_half"]) == (0, 1)
    assert found["expected_wrong"] == round(sum(one["probability_wrong"] for one in found["suspects"]), 1)
    decided = read_decisions(Path("d.csv"))
    assert (decided[0].id, decided[0].decision, decided[0].label) == (
        "pet 7",
        "undecided",
        "cat",
    )  # for a person to choose
    assert all(one.label == ("cat" if int(one.id[4:]) < 30 else "dog") for one in decided)


def test_no_output_takes_the_place_of_a_file_that_no_audit_wrote(files: Path) -> None:
    outputs = {"out": Path("s.csv"), "decisions": Path("d.csv"), "report": Path("r.html")}
    audit_json(Path("pets.npz"), **outputs)
    before = contents(files)
    for wrong, sentence in (
        ({"out": Path("s.csv")}, "s.csv exists: choose another --out, or add --force to replace it"),
        ({"decisions": Path("d.csv")}, "d.csv exists: choose another --decisions"),
        ({"report": Path("r.html")}, "r.html exists: choose another --report"),
        ({"decisions": Path("s.csv"), "force": True}, "a file that it wrote itself: s.csv exists and is none"),
        ({"out": Path("x.csv"), "decisions": Path("./x.csv")}, "outputs must be different files"),
        ({"decisions": Path("x.csv"), "relabel_above": 1.5}, "a probability from 0 to 1: got 1.5"),
        ({"decisions": Path("x.csv"), "drop_above": -0.1}, "--drop-above must be a probability from 0 to 1: got -0.1"),
    ):
        with pytest.raises(ValueError, match=sentence):
            audit_json(Path("pets.npz"), **wrong)
        assert contents(files) == before
    audit_json(Path("pets.npz"), seed=1, **outputs, force=True)
    assert {one.decision for one in read_decisions(Path("d.csv"))} == {"undecided"}


def test_files_with_too_little_say_what_is_too_little(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    points = random.normal(size=(60, 8))
    apart = points + 6 * np.eye(8)[labels]

    def audited(points: np.ndarray, names: np.ndarray) -> dict[str, Any]:
        np.savez(tmp_path / "items.npz", embeddings=points, label=names)
        return audit_json(tmp_path / "items.npz", level="label")

    single = audited(points, np.arange(60))
    assert single["noise_rate"]["reason"].startswith("Every class has a single item, so nothing tells")
    assert "The median class has only 1 item, too few to judge labels by their neighbours." in single["notes"]
    few = audited(points[:15], labels[:15])
    assert few["noise_rate"]["reason"].startswith("There are too few items, or too few outside")
    unknowing = audited(random.normal(size=(400, 4)), np.arange(400) % 3)
    assert unknowing["noise_rate"]["reason"].startswith("The embedding and the labels agree too little")
    assert not any("may be too high" in note for one in (single, few, unknowing) for note in one["notes"])
    lone = audited(apart, np.array([*labels[:-1], 9]))
    assert lone["noise_rate"]["verdict"] == "estimated"
    assert "The class 9 has a single item, and no other tells whether its label is right." in lone["notes"]
