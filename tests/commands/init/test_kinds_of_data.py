"""A few steps on each kind of image list, to the page: layouts, tables, labels of people, archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from tests import miniatures
from tests.commands.conftest import Call

from trivet.commands.embed.run import embed_data
from trivet.commands.train.run import train
from trivet.io.image_file import decode_image
from trivet.reports.run_record import RunRecord
from trivet.training.components import Components, load_splits
from trivet.training.config import RunConfig

pytestmark = pytest.mark.usefixtures("undiagnosed")


def run(folder: Path, data: dict[str, Any]) -> RunRecord:
    settings = {
        "data": {"image_size": 8, **data},
        "batch": {"num_classes": 2, "samples_per_class": 2},
        "model": {"name": "mlp", "embedding_dim": 4},
        "loss": {"name": "triplet"},
        "training": {"steps": 2},
        "evaluation": {"nmi_plus": 1, "map_points": 10},
    }
    record = train(RunConfig.parse(settings, source="settings"), folder / "run", data_root=folder)
    assert record.status == "finished"
    return record


def cub(folder: Path) -> dict[str, Any]:
    miniatures.zipped(miniatures.cub(folder / "made"), folder / "cub" / "birds.zip", inside="CUB_200_2011/")
    return {"name": "cub", "boxes": True}


def market1501(folder: Path) -> dict[str, Any]:
    miniatures.market1501(folder / "market1501")
    return {"name": "market1501"}


def table(folder: Path) -> dict[str, Any]:
    rows = ["path;class;place"]
    for number in range(12):
        miniatures.picture(folder / f"{number}.png", 20 * number)
        rows.append(f"{number}.png;{'abcd'[number // 3]};Köln")
    (folder / "5.png").write_bytes(b"broken")
    (folder / "items.csv").write_text("\n".join(rows), encoding="latin-1")
    return {"name": "table", "path": str(folder / "items.csv"), "allow_corrupt": 0.1}


def cifar10(folder: Path) -> dict[str, Any]:
    clean = miniatures.cifar10(folder / "cifar10")
    np.savez(folder / "cifar10" / "cifar_n_labels.npz", c10_clean_label=clean, c10_worse_label=np.roll(clean, 1))
    return {"name": "cifar10", "level": "worse"}


@pytest.mark.parametrize("make", [cub, market1501, table, cifar10])
def test_a_few_steps_reach_the_page(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run(tmp_path, make(tmp_path))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    if make is table:
        assert record.data.skipped[0].id == "5.png, line 7 of items.csv"
        assert "line 7 of items.csv" in page
        embed_data(tmp_path / "run", "table", tmp_path / "out.parquet")
        kept = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
        assert set(kept["place"]) == {"Köln"}
        assert kept["split"] == ["train"] * 5 + ["unseen"] * 6
        again = tmp_path / "again.csv"
        again.write_text("path,place,split\n0.png,here,old\n5.png,there,new\n7.png,there,new\n")
        made = embed_data(tmp_path / "run", str(again), tmp_path / "again.parquet")
        assert [skip["id"] for skip in made["skipped"]] == ["5.png"]
        columns = pyarrow.parquet.read_table(tmp_path / "again.parquet").to_pydict()
        assert columns["id"] == ["0.png", "7.png"]
        assert (columns["place"], columns["split"]) == (["here", "there"], ["old", "new"])
        known = dict(zip(kept["id"], kept["embedding"], strict=True))
        np.testing.assert_allclose(columns["embedding"], [known["0.png"], known["7.png"]], rtol=1e-5)
        decoded: list[Any] = []
        monkeypatch.setattr(
            "trivet.datasets.inputs.decode_image", lambda file, **how: decoded.append(file) or decode_image(file, **how)
        )
        said = embed_data(tmp_path / "run", str(again), tmp_path / "shards")
        assert sorted(file.name for file in decoded) == ["0.png", "5.png", "7.png"]  # each once
        assert [skip["id"] for skip in said["skipped"]] == ["5.png"]
        shard = pyarrow.parquet.read_table(tmp_path / "shards" / "part-00000.parquet").to_pydict()
        assert shard["id"] == columns["id"]
        assert shard["split"] == columns["split"]
    else:
        assert f"{make.__name__} is not the published set" in record.warnings[0]
        assert record.warnings[0] in page
    if make is cifar10:
        assert record.data.noise.kind == "human"
        assert (tmp_path / "run" / "noise.csv").is_file()


def pictured(folder: Path, *parts: str) -> Path:
    """Three pictures of each of eight classes, in folders; a later part has all of them but the first picture."""
    for number, part in enumerate(parts):
        for value in range(24):
            if number == 0 or value % 3:
                miniatures.picture(folder / part / f"k{value // 3}" / f"{part}{value}.png", 8 * value + number)
    return folder


def folder_parts(folder: Path) -> dict[str, Any]:
    return {"name": "folder", "root": str(pictured(folder, "train", "test", "val")), "image_size": 8}


def folder_folds(folder: Path) -> dict[str, Any]:
    return {"name": "folder", "root": str(pictured(folder, "")), "image_size": 8, "folds": 2}


def listed(folder: Path, name: str, values: list[str], splits: bool) -> dict[str, Any]:
    """A table of 24 rows of eight classes, each with a part of it in train, test and dev, or to be divided."""
    rows = [f"{'text' if name == 'texts' else 'path'},class,split"]
    rows += [f"{value},k{i // 3},{('train', 'test', 'dev')[i % 3]}" for i, value in enumerate(values)]
    if splits:  # the classes of the others are trained on, by two items
        rows += [row.replace("test", "train").replace(",dev", ",train").replace(",k", "b,k") for row in rows[1:]]
    kept = rows if splits else [row.rpartition(",")[0] for row in rows]
    (folder / "items.csv").write_text("\n".join(kept) + "\n")
    return {"name": name, "path": str(folder / "items.csv")} | ({} if splits else {"folds": 2})


def table_parts(folder: Path) -> dict[str, Any]:
    for value in range(48):
        miniatures.picture(folder / f"{value // 2}{'b' if value % 2 else ''}", 5 * value)
    return listed(folder, "table", [str(value) for value in range(24)], splits=True) | {"image_size": 8}


def table_folds(folder: Path) -> dict[str, Any]:
    table_parts(folder)
    return listed(folder, "table", [str(value) for value in range(24)], splits=False) | {"image_size": 8}


def texts_parts(folder: Path) -> dict[str, Any]:
    return listed(folder, "texts", [f"word{value}" for value in range(24)], splits=True)


def vectors_folds(folder: Path) -> dict[str, Any]:
    rows = np.random.default_rng(0).standard_normal((24, 4)).astype(np.float32)
    np.savez(folder / "rows.npz", embeddings=rows, kind=np.array([f"k{i // 3}" for i in range(24)]))
    return {"name": "vectors", "path": str(folder / "rows.npz"), "folds": 2}


def cub_folds(folder: Path) -> dict[str, Any]:
    miniatures.cub(folder / "cub", classes=8)
    return {"name": "cub", "image_size": 8, "folds": 2}


def flowers_parts(folder: Path) -> dict[str, Any]:
    miniatures.flowers102(folder / "flowers102")
    return {"name": "flowers102", "image_size": 8, "split": "published"}


@pytest.mark.parametrize(
    ("make", "split"),
    [
        (folder_parts, "val"),
        (folder_folds, "validation"),
        (table_parts, "val"),
        (table_folds, "validation"),
        (texts_parts, "val"),
        (vectors_folds, "validation"),
        (cub_folds, "validation"),
        (flowers_parts, "val"),
    ],
)
def test_each_kind_has_items_by_which_a_step_is_chosen(make: Any, split: str, tmp_path: Path) -> None:
    values = {
        "data": make(tmp_path),
        "batch": {"num_classes": 2, "samples_per_class": 2},
        "model": {"name": "mlp", "embedding_dim": 4},
        "loss": {"name": "triplet"},
        "choosing": {"keep": "best"},
    }
    config = RunConfig.parse(values, source="settings")
    splits = load_splits(config, tmp_path)
    assert list(splits.evaluation)[-1] == split
    assert len(splits.evaluation) == 2
    parts = Components(config, splits)
    assert parts.split == split
    assert not set(parts.state.selection.items.ids) & {
        *splits.train.ids,
        *splits.evaluation[next(iter(splits.evaluation))].ids,
    }
    parts.state.selection.begin(parts.state.learner.model)
    assert parts.state.selection.checks[0].gain == 0
    assert parts.state.selection.active


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("9.png,", "every row of items.csv must have a class name of level 'class': 1 of 5 have none, line 6;"),
        ("../9.png,d", "a path must lie below .: line 6 of items.csv has '../9.png'"),
        ("0.png,d", "lines 2, 6 of items.csv both have '0.png'"),
        ('"9.png,d', "items.csv must be a complete csv file"),
    ],
)
def test_a_table_that_cannot_be_used_ends_in_one_sentence_and_nothing_is_written(
    row: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["path,class", *(f"{number}.png,{'abcd'[number]}" for number in range(4)), row]
    Path("items.csv").write_text("\n".join(lines) + "\n")
    Path("x.toml").write_text('[data]\nname = "table"\npath = "items.csv"\n[loss]\nname = "triplet"\n')
    code, _, err = run_command("train", "x.toml")
    assert code == 2
    said = err.replace(f"{tmp_path}/", "").replace(str(tmp_path), ".")
    assert message in " ".join(said.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.csv", "x.toml"]
