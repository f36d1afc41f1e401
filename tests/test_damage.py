"""Damaged files: whatever was changed, a reader gives what is there or says in one sentence what is wrong.

Here the readers alone, on some changes; `tests/hostile/damage.py` runs the commands on many.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save as tensors
from tests.hostile.damage import DAMAGES, SETTINGS, prepare, read_rows

from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.commands.main import main
from trivet.commands.search.run import IndexFolder
from trivet.commands.shared_options import exists
from trivet.config.base import Config
from trivet.datasets.archives import Tree
from trivet.datasets.small_images import read_idx
from trivet.io.label_decisions import read_decisions
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.knn.hard_negatives import MiningRules, hard_negatives
from trivet.knn.index import Index, build_index
from trivet.models import ModelConfig, build, load_model, save
from trivet.reports.run_record import RunRecord
from trivet.runtime.safe_read import parse_json, read_json
from trivet.training.checkpoint import read_checkpoint
from trivet.training.config import RunConfig
from trivet.training.run_folder import RunFolder

CHECKPOINT = "run/checkpoints/step-00000006.safetensors"
RECORD: Any = {
    "status": "finished",
    "run": "run",
    "step": 6,
    "data": {"train": {"items": 4, "classes": {"digit": 2}}},
    "curves": {"step": [1, 2], "loss": [0.5, None]},
    "evaluation": {"seen": [{"name": "trained", "levels": {"digit": {"recall@1": 0.5}}}]},
    "guard": {"action": "stop", "snapshot": 1},
    "seconds": {"training": 1.5},
}


def found(path: Path) -> None:
    folder = IndexFolder(path.parent)
    folder.search_id("3", 5)
    folder.search_vectors(path.parent.parent / "q.npy", 3)


READERS: dict[str, Callable[[Path], Any]] = {
    "e.npz": read_vectors,
    "c.npz": read_vectors,
    "e.npy": read_vectors,
    "q.npy": lambda path: IndexFolder(path.parent / "found").search_vectors(path, 3),
    "e.csv": lambda path: read_vectors(path.with_suffix(".npy")),
    "e.parquet": read_vectors,
    "wide.parquet": read_vectors,
    "texts.csv": read_texts,
    "d.csv": read_decisions,
    "s.toml": RunConfig.read,
    "found/index.faiss": found,
    "hnsw/index.faiss": found,
    "ivf/index.faiss": found,
    "found/index.json": found,
    "found/items.parquet": found,
    "run/record.json": lambda path: RunFolder(path.parent).record(),
    "run/model/model.json": lambda path: load_model(path.parent),
    "run/model/model.safetensors": lambda path: load_model(path.parent),
    CHECKPOINT: read_checkpoint,
    "packed/data.arrow": lambda path: read_rows(path.parent),
    "dense/state.json": lambda path: read_rows(path.parent),
    "texts.jsonl": read_texts,
    "v.jsonl": read_vectors,
    "v.csv": read_vectors,
    "mnist/train-labels-idx1-ubyte": lambda path: read_idx(Tree(path.parent), path.name),
    "mnist/t10k-images-idx3-ubyte.gz": lambda path: read_idx(Tree(path.parent), path.stem),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    here = Path.cwd()
    prepare(folder)
    os.chdir(here)
    for kind, name in (("exact", "found"), ("hnsw", "hnsw"), ("ivf", "ivf")):
        make_index(IndexOptions(folder / "e.npz", folder / name, kind=kind))
    config = ModelConfig(name="linear", embedding_dim=3)
    save(build(config, (1, 8, 8), 0), config, (1, 8, 8), folder / "run" / "model")
    (folder / "run" / "config.toml").write_text((folder / "s.toml").read_text())
    (folder / "run" / "record.json").write_text(json.dumps(RunRecord.read(RECORD).as_json()))
    state = {"step": 6, "seconds": 1.5, "precision": {}, "monitor": {}, "history": []}
    state |= {"cleaning": {"checks": [], "left_out": [], "relabelled": []}, "sampling": []}
    state |= {"selection": {"step": 0, "checks": [], "measure": []}}
    metadata = {"state": json.dumps(state), "fingerprint": "x"}
    (folder / CHECKPOINT).parent.mkdir()
    (folder / CHECKPOINT).write_bytes(tensors({"model/weight": torch.ones(3, 4)}, metadata=metadata))
    return folder


@pytest.mark.parametrize("name", READERS)
def test_damage_is_read_or_refused_in_a_sentence(name: str, sound: Path) -> None:
    path = sound / name
    whole = path.read_bytes()
    READERS[name](path)
    refused = 0
    try:
        for damage, change in DAMAGES.items():
            for seed in range(12):
                path.write_bytes(change(whole, random.Random(f"{name} {damage} {seed}")))
                try:
                    READERS[name](path)
                except (ValueError, OSError):  # of which the command line makes exit code 2
                    refused += 1
    finally:
        path.write_bytes(whole)
    assert refused >= 5


def test_what_is_small_and_expands_is_refused_before_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.runtime.safe_read.EXPANDED", 2**20)

    def refused(read: Callable[[], Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            read()

    path = tmp_path / "zeros.parquet"
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1_000_000, np.float32)), 1000)
    pq.write_table(pa.table({"embedding": vectors}), path)
    refused(lambda: read_vectors(path), "stand for far more than it holds")
    text = pa.array(["x" * 10**4]).dictionary_encode()
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), text.dictionary)
    columns = {"embedding": pa.array([[1.0]] * 5000), "kind": many}
    pq.write_table(pa.table(columns), path)
    refused(lambda: read_vectors(path, text="kind"), "stand for far more than it holds")

    for shape in ((10**12, 3), (10**12, 10**12), (1, 2**62)):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n"
        (tmp_path / "e.npy").write_bytes(data)
        (tmp_path / "e.csv").write_text("id\n1\n")
        refused(lambda: read_vectors(tmp_path / "e.npy"), "it holds 0 bytes for an array of shape")
        with zipfile.ZipFile(tmp_path / "e.npz", "w") as archive:
            archive.writestr("embeddings.npy", data)
        refused(lambda: read_vectors(tmp_path / "e.npz"), "it holds 0 bytes for an array of shape")

    header = bytes((0, 0, 8, 3)) + b"\xff" * 12
    for name, data in (("images-idx3", header), ("images-idx3.gz", gzip.compress(header))):
        (tmp_path / name).write_bytes(data)
        refused(lambda: read_idx(Tree(tmp_path), "images-idx3"), "it holds 0 bytes for an array of shape")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([[1.0]]), pa.array(["a"]), pa.array(["b"])], ["embedding", "kind", "kind"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match="'kind' occurs twice; rename one"):
        read_vectors(tmp_path / "twice.parquet")


@pytest.mark.parametrize("deep", [60, 500, 1000, 100_000])
def test_nesting_ends_in_a_sentence(deep: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * deep + "]" * deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(path, "a record")
    for text in ("a = " + "[" * deep + "]" * deep, "a" + ".a" * deep + " = 1", "[a" + ".a" * deep + "]"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"^\S+ must be a TOML file|^\S+: "):
            RunConfig.read(path)
    (tmp_path / "s.toml").write_text(SETTINGS)
    for change in (f"training.steps={'[' * deep}{']' * deep}", "a" + ".a" * deep + "=1"):
        with pytest.raises(ValueError, match=r"--set|steps"):
            RunConfig.read(tmp_path / "s.toml", [change])


def test_devices_and_pipes_are_no_inputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    reads: list[Callable[[Path], Any]] = [
        lambda path: exists(path), Config.read, read_decisions, lambda path: read_json(path, "x")
    ]  # fmt: skip
    for name in ("pipe", "zero"):
        for read in reads:
            with pytest.raises(ValueError, match="is a device or a pipe"):
                read(tmp_path / name)


def test_what_is_no_number_in_json_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN is no number"):
        parse_json("[NaN]")


def test_an_index_whose_links_leave_it_is_refused(tmp_path: Path) -> None:
    """Faiss follows them: it would read beyond its memory."""
    rows = np.random.default_rng(0).normal(size=(50, 4))
    build_index(rows, distance="euclidean", kind="hnsw").save(tmp_path)
    path = tmp_path / "index.faiss"
    whole = path.read_bytes()
    links = len(whole) - (37 + 8 + 50 * 16) - 5 * 4 - 4  # the last, before five numbers and the vectors
    path.write_bytes(whole[:links] + struct.pack("<i", 10**9) + whole[links + 4 :])
    with pytest.raises(ValueError, match="it names rows that there are not"):
        Index.load(tmp_path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="1 bytes too many"):
        Index.load(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "train s.toml -o new --folds 1000000000000",
        "train s.toml -o new --set data.folds=1000000000000",
        "train s.toml -o new --set training.learning_rate=1e300",
        "train s.toml -o new --set training.weight_decay=1e300",
        "train s.toml -o new --set loss.name=proxy-anchor --set loss.proxy_learning_rate=1e38",
        "reproduce xuan2020 --seeds 1000000000000",
    ],
)
def test_numbers_beyond_reason_are_refused_before_memory_is_filled(
    line: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("s.toml", "e.npz"):
        (tmp_path / name).write_bytes((sound / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trivet", *line.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == 2, said
    assert "memory" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.npz", "s.toml"]


def test_more_candidates_than_items_take_no_more_memory() -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    index, labels = build_index(vectors), np.arange(12) % 3
    tracemalloc.start()
    wanted = hard_negatives(index, labels, rules=MiningRules(k=2, among=12))
    mined = hard_negatives(index, labels, rules=MiningRules(k=2, among=10**7))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert mined.negatives.tolist() == wanted.negatives.tolist()
    assert peak < 2**24
