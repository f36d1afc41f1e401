"""Encoders on disk are diagnosed as the embeddings that they make of the items are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.commands.diagnose.encoders import EmbeddingReader
from trivet.commands.diagnose.options import DiagnoseOptions
from trivet.commands.diagnose.result import DiagnosisResult
from trivet.commands.diagnose.run import diagnose_paths
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.run import evaluate_files
from trivet.commands.migrate.options import MigrateOptions
from trivet.commands.migrate.run import judge_migration
from trivet.models import ModelConfig, build, load_model
from trivet.models.store import save

LABELS = np.repeat(np.arange(10), 12)
KINDS = np.array([f"kind {label}" for label in LABELS])


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three encoders of texts, the embeddings that they make beside them, and the names of those that were used."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(10, 8))[LABELS] + 0.2 * random.normal(size=(len(LABELS), 8))
    made = {"before": rows, "after": rows + 2 * random.normal(size=rows.shape), "later": rows + random.normal(size=8)}
    used: list[str] = []

    def vectors(texts: Sequence[str], folder: str, progress: object) -> np.ndarray:
        assert list(texts) == [f"text {row}" for row in range(len(LABELS))]
        used.append(Path(folder).name)
        return made[Path(folder).name]

    monkeypatch.setattr("trivet.commands.diagnose.encoders.encoder_vectors", vectors)
    for name, embeddings in made.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "modules.json").touch()
        np.savez(tmp_path / f"{name}.npz", embeddings=embeddings, intent=KINDS)
    table = "\n".join(["intent,phrase", *(f"{kind},text {row}" for row, kind in enumerate(KINDS))])
    (tmp_path / "texts.csv").write_text(table + "\n")
    request = {"texts": tmp_path / "texts.csv", "text": "phrase"}
    monkeypatch.setattr("tests.commands.diagnose.test_encoders.REQUEST", request)
    monkeypatch.setattr("tests.commands.diagnose.test_encoders.USED", used)
    return [tmp_path / name for name in made]


REQUEST: dict[str, Any] = {}  # of the texts of a test
USED: list[str] = []


def diagnosed(paths: list[Path], references: list[Path], **options: Any) -> list[dict[str, Any]]:
    """The summaries, without what names their files."""
    results, *_ = diagnose_paths(DiagnoseOptions(paths, reference=references, **options))
    if (report := options.get("report")) is not None:
        DiagnosisResult(results).write_page(report)
    text = json.dumps([result.summary.as_json() | {"notes": []} for result in results]).replace(".npz", "")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_two_encoders_have_the_verdict_of_their_embeddings(folders: list[Path], tmp_path: Path) -> None:
    before, after, later = folders
    page = tmp_path / "page.html"
    by_encoder = diagnosed([after, later], [before], labels="intent", report=page, **REQUEST)
    files = [folder.with_suffix(".npz") for folder in folders]
    assert by_encoder == diagnosed(files[1:], files[:1], labels="intent")
    assert by_encoder[0]["verdicts"][0]["kind"] == "worse-than-reference"
    assert sorted(USED) == ["after", "before", "later"]
    assert "text 7" in page.read_text()
    results, *_ = diagnose_paths(DiagnoseOptions([after], reference=[before], **REQUEST))
    assert not any("in their order" in note for note in results[0].summary.notes)
    mixed = diagnosed([after], [files[0]], labels="intent", **REQUEST)
    assert mixed == by_encoder[:1]


def test_they_are_evaluated_and_a_change_of_them_is_judged(folders: list[Path]) -> None:
    encoders, files = folders[:2], [folder.with_suffix(".npz") for folder in folders[:2]]
    options: dict[str, Any] = {"labels": ["intent"]}

    def evaluations(paths: list[Path], **items: Any) -> list[object]:
        request = EvaluateOptions(paths, measures=["recall@1,map@r"], **options, **items)
        return [(each.record.evaluation, each.record.distance) for each in evaluate_files(request)]

    assert evaluations(encoders, **REQUEST) == evaluations(files)
    of_encoders = judge_migration(MigrateOptions(embeddings=encoders, **options, **REQUEST))
    of_files = judge_migration(MigrateOptions(embeddings=files, **options))
    assert of_encoders.levels == of_files.levels
    assert of_encoders.outcome == "worse"


@pytest.mark.parametrize(
    ("request_of", "match"),
    [
        (lambda p: DiagnoseOptions([p / "after"], reference=[p / "after"], **REQUEST), "holds the very rows"),
        (lambda p: DiagnoseOptions([p], **REQUEST), "has no modules.json, config.json or model.json; check"),
        (lambda p: DiagnoseOptions([p / "after"]), "is an encoder: give what it embeds with --texts FILE"),
        (lambda p: DiagnoseOptions([p / "after"], texts=p / "texts.csv"), "a column 'text': .* 'phrase'"),
        (lambda p: DiagnoseOptions([p / "after"], labels="mood", **REQUEST), "no 'mood'"),
        (lambda p: DiagnoseOptions([p / "after"], reference=[p / "short.npz"], **REQUEST), "has 9 rows and after 120"),
        (lambda p: DiagnoseOptions([p / "after"], images=p), "must name the architecture|no config.json"),
    ],
)
@pytest.mark.usefixtures("folders")
def test_what_is_no_encoder_of_the_items_is_an_error(
    request_of: Callable[[Path], DiagnoseOptions], match: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "short.npz", embeddings=np.random.default_rng(0).normal(size=(9, 8)), intent=KINDS[:9])
    with pytest.raises(ValueError, match=match):
        diagnose_paths(request_of(tmp_path))


@pytest.mark.parametrize("options", [{"labels": "mood"}, {"fine": ["mood"]}, {"labels": "intent", "fine": ["mood"]}])
def test_a_label_that_is_not_there_is_named_before_anything_is_embedded(
    options: dict[str, Any], folders: list[Path]
) -> None:
    with pytest.raises(ValueError, match="no 'mood'"):
        diagnosed([folders[1]], [folders[0]], **options, **REQUEST)
    assert USED == []


def test_an_encoder_is_a_folder_or_a_file_of_weights(folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    found = [tmp_path / name for name in ("before", "before.npz", "model.safetensors")]
    assert list(map(EmbeddingReader(DiagnoseOptions([], **REQUEST)).encodes, found)) == [True, False, True]
    assert list(map(EmbeddingReader(DiagnoseOptions([])).encodes, found)) == [False] * 3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"texts": Path("a"), "images": Path("b")}, "two kinds of items"),
        ({"text": "phrase"}, "give the file with --texts"),
        ({"network": "timm:resnet18"}, "give these with --images"),
    ],
)
def test_options_that_do_not_go_together_are_an_error(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        DiagnoseOptions([Path("a")], **options).check([Path("a")])


def test_two_encoders_of_images_have_the_verdict_of_their_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, images, config = np.random.default_rng(0), [], ModelConfig(name="linear", embedding_dim=6)
    for kind in range(4):
        pattern = random.integers(0, 200, (8, 8))
        for number in range(10):
            images.append(tmp_path / "images" / f"kind {kind}" / f"{number}.png")
            images[-1].parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pattern + random.integers(0, 55, (8, 8))).astype(np.uint8)).save(images[-1])
    for seed, name in enumerate(("before", "after")):
        network = build(config, (1, 8, 8), seed)
        if name == "after":
            torch.nn.init.zeros_(next(network.parameters())[:, 2:])
        save(network, config, (1, 8, 8), tmp_path / name)
        rows = load_model(tmp_path / name).embed(images)
        ids = [str(image.relative_to(tmp_path / "images")) for image in images]
        np.savez(
            tmp_path / f"{name}.npz", embeddings=rows, id=ids, **{"class": [image.parent.name for image in images]}
        )
    by_encoder = diagnosed([tmp_path / "after"], [tmp_path / "before"], images=tmp_path / "images")
    by_file = diagnosed([tmp_path / "after.npz"], [tmp_path / "before.npz"])
    assert by_encoder[0]["verdicts"] == by_file[0]["verdicts"]
    assert by_encoder == by_file
    monkeypatch.delattr("trivet.commands.diagnose.encoders.embed")
    with pytest.raises(ValueError, match="no 'species'"):
        diagnosed([tmp_path / "after"], [], images=tmp_path / "images", labels="species")
    (tmp_path / "texts.csv").write_text("text,intent\na,b\n")
    with pytest.raises(ValueError, match="--texts needs a model of texts"):
        diagnosed([tmp_path / "after"], [], texts=tmp_path / "texts.csv")
