"""Shards of embeddings: written by several processes, gone on with after a kill, and read as one file is."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from tests.commands.conftest import Call

from trivet.commands.diagnose.inputs import read_inputs
from trivet.commands.diagnose.options import DiagnoseOptions
from trivet.commands.embed import shards as embed_shards
from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.run import evaluate_files
from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.commands.search.options import SearchOptions
from trivet.commands.search.run import search_folder
from trivet.datasets.vectors import VectorInputs
from trivet.io import shards as module
from trivet.io.embedding_table import Vectors
from trivet.io.read_embeddings import read_vectors
from trivet.knn import codes
from trivet.models.config import ModelConfig
from trivet.models.networks import build
from trivet.models.store import save
from trivet.training.config import RunConfig

ITEMS, ROWS = 1000, 256
fork = multiprocessing.get_context("fork")


def make_run(path: Path, data: dict[str, Any], shape: tuple[int, ...], *, seed: int = 0) -> Path:
    """The folder of a run with a model, as far as `trivet embed` reads it."""
    path.mkdir()
    settings = {"data": data, "model": {"name": "linear", "embedding_dim": 6}, "loss": {"name": "nca"}}
    (path / "config.toml").write_text(RunConfig.parse(settings, source="").to_toml())
    config = ModelConfig(name="linear", embedding_dim=6)
    save(build(config, shape, seed=seed), config, shape, path / "model")
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Vectors with every kind of column; the last quarter are queries, the rest the gallery."""
    draw = np.random.default_rng(0)
    animal = np.arange(ITEMS) % 50
    asked = np.arange(ITEMS) >= 3 * ITEMS // 4
    path = tmp_path / "vectors.npz"
    np.savez(
        path,
        embeddings=(draw.normal(size=(50, 8))[animal] + 0.4 * draw.normal(size=(ITEMS, 8))).astype(np.float32),
        id=np.array([f"item {i}" for i in range(ITEMS)]),
        kind=np.array([f"kind {i // 10}" for i in animal]),
        animal=np.array([f"animal {i}" for i in animal]),
        note=np.array([f"écrit {i}" for i in range(ITEMS)]),
        is_query=asked,
        is_gallery=~asked,
        camera=np.arange(ITEMS) % 7,
    )
    return path


@pytest.fixture
def run(tmp_path: Path, vectors: Path) -> Path:
    return make_run(tmp_path / "run", {"name": "vectors", "path": str(vectors), "levels": ["kind", "animal"]}, (8,))


def contents(folder: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in sorted(folder.iterdir()) if not item.name.startswith(".")}


def assert_same(one: Vectors, other: Vectors) -> None:
    np.testing.assert_allclose(one.embeddings, other.embeddings, rtol=1e-5, atol=1e-6)
    assert {level: names.tolist() for level, names in one.labels.items()} == {
        level: names.tolist() for level, names in other.labels.items()
    }
    for name in ("ids", "splits", "cameras"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None and b is None) or a.tolist() == b.tolist(), name
    assert (one.protocol is None) == (other.protocol is None)
    if one.protocol is not None and other.protocol is not None:
        for name in ("query", "gallery", "junk", "cameras"):
            assert getattr(one.protocol, name).tolist() == getattr(other.protocol, name).tolist(), name
    assert one.columns == other.columns
    assert dict(one.others) == dict(other.others)


def test_a_folder_of_shards_is_read_as_one_file_is(run: Path, vectors: Path, tmp_path: Path) -> None:
    one, many = tmp_path / "one.parquet", tmp_path / "many"
    whole = embed_data(run, str(vectors), one)
    made = embed_data(run, str(vectors), many, rows_per_shard=ROWS)
    assert {name: made[name] for name in whole if name != "output"} == {
        name: whole[name] for name in whole if name != "output"
    }
    assert made["shards"] == {"count": 4, "rows": ROWS, "written": 4, "reused": 0, "missing": 0}
    assert [pq.read_metadata(part).num_rows for part in sorted(many.glob("*.parquet"))] == [256, 256, 256, 232]
    file, folder = (read_vectors(path, others=True) for path in (one, many))
    assert_same(file, folder)
    assert list(folder.labels) == ["kind", "animal"]
    assert isinstance(folder.embeddings, np.memmap)

    # Each command takes the folder as it takes the file.
    found = [
        evaluate_files(EvaluateOptions([path], measures=("recall@1", "map")))[0].record.as_json(unset=False)
        for path in (one, many)
    ]
    assert found[0]["evaluation"] == found[1]["evaluation"]
    assert found[1]["protocol"]["queries"] == 250
    assert read_inputs(many, DiagnoseOptions([many]))[0].level == "kind"
    for path in (one, many):
        make_index(IndexOptions(path, tmp_path / f"index of {path.name}", run=run))
    answers = [
        search_folder(SearchOptions(tmp_path / f"index of {path.name}", str(path), k=3)).ids[-1] for path in (one, many)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 3

    # Shards without the mapped copy of their vectors are read into memory, and embedded again they are an input, too.
    (many / module.VECTORS).unlink()
    assert_same(file, read_vectors(many, others=True))
    assert not isinstance(read_vectors(many).embeddings, np.memmap)
    other = make_run(tmp_path / "other", {"name": "vectors", "path": str(many)}, (6,))
    assert embed_data(other, str(many), tmp_path / "again", rows_per_shard=300)["shards"]["count"] == 4
    with pytest.raises(ValueError, match="--output must not name what is read"):
        embed_data(other, str(many), many, force=True)
    assert read_vectors(tmp_path / "again").ids.tolist() == file.ids.tolist()


def test_the_commands(
    run: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        code, out, err = run_command(*arguments)
        return code, out or err

    embed = ("embed", "run", "vectors.npz", "-o", "many")
    code, said = call(*embed, "--shard-rows", "256")
    assert (code, said) == (0, "1000 embeddings of dimension 6 in many\n4 of 4 shards written\n")
    (tmp_path / "many" / "part-00003.parquet").unlink()
    assert call(*embed)[1].endswith("1 of 4 shards written, 3 were there\n")
    code, said = call(*embed, "--json")
    assert json.loads(said)["shards"] == {"count": 4, "rows": 256, "written": 0, "reused": 4, "missing": 0}
    code, said = call("embed", "run", "vectors.npz", "-o", "run")
    assert (code, "must not name what is read" in said) == (2, True)
    index = ("index", "many", "-o", "found", "--kind", "ivf-pq")
    code, said = call(*index)
    assert (code, said.count("\n"), "are learned from at least 10000 rows" in said) == (2, 1, True)
    code, said = call("index", "many", "-o", "found", "--kind", "exact", "--recall", "0.9")
    assert (code, "leave out --recall" in said) == (2, True)
    monkeypatch.setattr(codes, "LEAST_ROWS", 500)
    code, said = call(*index, "--recall", "0.5")
    assert code == 0
    assert "14 bytes per item in memory, 24 more on disk" in said
    made = json.loads((tmp_path / "found" / "index.json").read_text())
    assert f"recall@10 {100 * made['recall']:.1f} % relative to exact search" in said
    code, said = call("search", "found", "item 5", "--k", "2", "--recall", "0.5", "--json")
    assert json.loads(said)["recall"] == made["recall"]
    code, said = call("search", "found", "item 5", "--recall", "2")
    assert (code, "recall must be a share" in said) == (2, True)


def test_no_more_than_a_shard_is_held(
    run: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, embed = [], embed_shards.embed

    def watched(model: Any, inputs: Any, progress: Any) -> np.ndarray:
        sizes.append(len(inputs))
        return embed(model, inputs, progress)

    monkeypatch.setattr(embed_shards, "embed", watched)
    embed_data(run, str(vectors), tmp_path / "many", rows_per_shard=100)
    assert sizes == [100] * 10


@pytest.mark.usefixtures("few_digits")
def test_a_data_set_of_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards whose rows are of two splits; and the splits are read one by one."""
    run = make_run(tmp_path / "run", {"name": "digits"}, (1, 8, 8))
    embed_data(run, "digits", tmp_path / "one.parquet")
    embed_data(run, "digits", tmp_path / "many", rows_per_shard=96)
    assert_same(read_vectors(tmp_path / "one.parquet"), read_vectors(tmp_path / "many"))
    monkeypatch.chdir(tmp_path)
    for output in ("digits", "digits/"):  # a folder that is called like the data set
        assert embed_data(run, "digits", Path(output), rows_per_shard=300)["items"] == 500
    seen = read_vectors(tmp_path / "many", split="seen")
    assert set(seen.splits.tolist()) == {"seen"}
    shards = [set(pq.read_table(part)["split"].to_pylist()) for part in sorted((tmp_path / "many").glob("*.parquet"))]
    assert max(map(len, shards)) > 1


def test_unreadable_images_are_left_out_of_their_shard(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"name": "digits"}, (1, 8, 8))
    photos = tmp_path / "photos"
    for number in range(9):
        place = photos / f"class {number % 3}" / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 20 * number).save(place)
        if number in (0, 3, 8):  # the first two are a whole shard
            place.write_bytes(b"no image")
    made = embed_data(run, str(photos), tmp_path / "many", rows_per_shard=2)
    assert [skip["id"] for skip in made["skipped"]] == ["class 0/0.png", "class 0/3.png", "class 2/8.png"]
    assert (made["items"], made["shards"]["count"]) == (6, 5)
    assert pq.read_metadata(tmp_path / "many" / "part-00000.parquet").num_rows == 0
    embed_data(run, str(photos), tmp_path / "one.parquet")
    assert_same(read_vectors(tmp_path / "one.parquet"), read_vectors(tmp_path / "many"))
    assert embed_data(run, str(photos), tmp_path / "many")["skipped"] == made["skipped"]
    for place in photos.rglob("*.png"):
        place.write_bytes(b"no image")
    with pytest.raises(ValueError, match="must hold images that can be read: none of 9 can, first class 0/0"):
        embed_data(run, str(photos), tmp_path / "none", rows_per_shard=4)


def drawn(folder: Path, rows: range, *, shade: int) -> None:
    """Images of the same size, in bytes and pixels, whatever the shade; their times are those of the files replaced."""
    folder.mkdir(exist_ok=True)
    for row in rows:
        path = folder / f"{row}.bmp"
        before = path.stat() if path.exists() else None
        Image.new("L", (8, 8), shade + row).save(path)
        if before is not None:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_changed_images_are_embedded_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, photos, many = (
        make_run(tmp_path / "run", {"name": "digits"}, (1, 8, 8)),
        tmp_path / "photos",
        tmp_path / "many",
    )
    drawn(photos, range(10), shade=0)
    data = photos
    if kind == "table":
        data = tmp_path / "items.csv"
        data.write_text("path,label\n" + "".join(f"photos/{row}.bmp,{row % 2}\n" for row in range(10)))

    def embedded(**options: Any) -> tuple[int, np.ndarray]:
        made = embed_data(run, str(data), many, **options)
        vectors = read_vectors(many)
        rows = np.argsort([int(Path(id).stem) for id in vectors.names()])
        return made["shards"]["written"], np.array(vectors.embeddings)[rows]

    def afresh() -> np.ndarray:
        embed_data(run, str(data), tmp_path / "one.parquet", force=True)
        vectors = read_vectors(tmp_path / "one.parquet")
        return vectors.embeddings[np.argsort([int(Path(id).stem) for id in vectors.names()])]

    written, first = embedded(rows_per_shard=3)
    assert written == 4
    (photos / "0.bmp").touch()
    shutil.copy(photos / "1.bmp", tmp_path)
    (tmp_path / "1.bmp").replace(photos / "1.bmp")
    assert embedded()[0] == 0  # the bytes are the same
    drawn(photos, range(6, 10), shade=90)
    before = contents(many)
    with pytest.raises(
        ValueError, match=r"2 shards of .*many changed .*part-00002\.parquet; embed these again with --f"
    ):
        embedded()
    assert contents(many) == before
    written, second = embedded(force=True)
    assert written == 2
    np.testing.assert_array_equal(second[:6], first[:6])
    np.testing.assert_allclose(second, afresh(), rtol=1e-6)
    assert np.abs(second[6:] - first[6:]).max() > 0.01
    assert embedded(force=True)[0] == 0

    # Images that are replaced while the shards are written.
    write = embed_shards._write

    def replaced(job: Any, folder: Path, manifest: Any, number: int) -> None:
        write(job, folder, manifest, number)
        if number == 1:
            drawn(photos, range(10), shade=120)

    drawn(photos, range(10), shade=60)
    monkeypatch.setattr(embed_shards, "_write", replaced)
    with pytest.raises(ValueError, match=r"2 shards of .* changed since they were embedded, first of part-00000"):
        embedded(force=True)
    monkeypatch.undo()
    assert embedded(force=True)[0] == 2
    np.testing.assert_allclose(embedded()[1], afresh(), rtol=1e-6)

    decode = embed_shards._readable

    def while_read(*given: Any) -> Any:
        drawn(photos, range(10), shade=30)
        return decode(*given)

    monkeypatch.setattr(embed_shards, "_readable", while_read)
    with pytest.raises(ValueError, match=r"must stay as they are while they are embedded: those of part-00000"):
        embed_data(run, str(data), tmp_path / "new", rows_per_shard=20)


def in_processes(works: list[Callable[[], object]]) -> list[multiprocessing.process.BaseProcess]:
    started: list[multiprocessing.process.BaseProcess] = [fork.Process(target=work) for work in works]
    for process in started:
        process.start()
    return started


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_killed_processes_leave_whole_shards_and_others_go_on(
    run: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes at once, killed at any moment; what is there in the end is what one process writes alone."""
    torch.set_num_threads(1)
    alone, many = tmp_path / "alone", tmp_path / "many"
    embed_data(run, str(vectors), alone, rows_per_shard=50)
    write, log = embed_shards.write_shard, tmp_path / "written"
    log.mkdir()

    def slow(folder: Path, manifest: Any, mark: Any, *rest: Any) -> None:
        time.sleep(0.01)
        (log / f"{mark.number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        write(folder, manifest, mark, *rest)

    monkeypatch.setattr(embed_shards, "write_shard", slow)

    def work() -> None:
        embed_data(run, str(vectors), many, rows_per_shard=50)

    draw = np.random.default_rng(int(time.time()))
    for _ in range(6):
        crew = in_processes([work] * 2)
        time.sleep(draw.uniform(0, 0.35))
        for process in crew:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
        for part in many.glob("part-*.parquet") if many.exists() else ():
            assert pq.read_table(part).num_rows == 50
    for item in (*log.iterdir(), *(part for number in range(20) if (part := module.shard_path(many, number)).exists())):
        if item.parent == log or int(item.name[5:10]) % 2:  # so that there is work left
            item.unlink()
    left = 20 - len(list(many.glob("part-*.parquet")))
    assert left >= 10
    crew = in_processes([work] * 3)
    for process in crew:
        process.join()
        assert process.exitcode == 0
    numbers = [name.name.partition("-")[0] for name in log.iterdir()]
    assert len(numbers) == len(set(numbers)) == left  # no shard by two of them
    many.joinpath(".part-00004.parquet.trivet-lock").touch()  # as of a process that was killed once its shard was whole
    embed_data(run, str(vectors), many)
    assert contents(many) == contents(alone)
    assert [item.name for item in many.iterdir() if item.name.startswith(".")] == [".lock"]


def test_while_another_writes_a_shard_the_rest_is_written(run: Path, vectors: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    embed_data(run, str(vectors), many, rows_per_shard=ROWS)
    (many / "part-00002.parquet").unlink()
    (many / "part-00001.parquet").unlink()
    (many / module.VECTORS).unlink()
    with embed_shards.claimed(many / "part-00001.parquet") as mine:
        assert mine
        done = embed_data(run, str(vectors), many)["shards"]
        assert done == {"count": 4, "rows": ROWS, "written": 1, "reused": 2, "missing": 1}
        with pytest.raises(ValueError, match=r"1 of 4 are missing, first part-00001\.parquet; go on with"):
            read_vectors(many)
    assert embed_data(run, str(vectors), many)["shards"]["written"] == 1
    assert isinstance(read_vectors(many).embeddings, np.memmap)


def test_what_another_left_undone_meanwhile_is_taken_up(
    run: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, write = tmp_path / "many", embed_shards.write_shard
    embed_data(run, str(vectors), many, rows_per_shard=ROWS)
    for item in (*many.glob("part-*.parquet"), many / module.VECTORS):
        item.unlink()
    other = ExitStack()
    other.enter_context(embed_shards.claimed(many / "part-00001.parquet"))

    def ends(folder: Path, manifest: Any, mark: Any, *rest: Any) -> None:
        if mark.number == 2:
            other.close()
        write(folder, manifest, mark, *rest)

    monkeypatch.setattr(embed_shards, "write_shard", ends)
    done = embed_data(run, str(vectors), many, rows_per_shard=ROWS)["shards"]
    assert (done["written"], done["missing"]) == (4, 0)


def test_other_embeddings_are_refused(run: Path, vectors: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    embed_data(run, str(vectors), many, rows_per_shard=ROWS)
    before = contents(many)
    other = make_run(tmp_path / "other", {"name": "vectors", "path": str(vectors)}, (8,), seed=1)
    with pytest.raises(ValueError, match="holds shards of another model, or of this one before"):
        embed_data(other, str(vectors), many)
    with pytest.raises(ValueError, match="holds shards of 256 rows, not 100; choose another --output, or add --force"):
        embed_data(run, str(vectors), many, rows_per_shard=100)
    arrays = dict(np.load(vectors))
    arrays["embeddings"][500, 3] += 1
    np.savez(tmp_path / "changed.npz", **arrays)
    with pytest.raises(ValueError, match=r"of other data: 1000 items of .*vectors\.npz"):
        embed_data(run, str(tmp_path / "changed.npz"), many)
    with pytest.raises(ValueError, match="--shard-rows is for a folder of shards"):
        embed_data(run, str(vectors), tmp_path / "one.parquet", rows_per_shard=3)
    assert contents(many) == before
    with embed_shards.shared_folder(many, lambda alone: None), pytest.raises(ValueError, match="another process is"):
        embed_data(other, str(vectors), many, force=True)
    assert contents(many) == before
    assert embed_data(other, str(vectors), many, force=True)["shards"]["written"] == 4
    assert contents(many).keys() == before.keys()
    assert all(contents(many)[name] != before[name] for name in before)
    (many / "thesis.tex").write_text("my own")
    with pytest.raises(ValueError, match=r"is not just shards of embeddings, it holds thesis\.tex"):
        embed_data(run, str(vectors), many, force=True)


def test_what_is_broken_is_said_in_one_sentence(run: Path, vectors: Path, tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    embed_data(run, str(vectors), whole, rows_per_shard=ROWS)
    embed_data(run, str(vectors), other, rows_per_shard=ROWS + 1)

    def broken(change: Callable[[Path], object]) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        change(copy)
        with pytest.raises(ValueError, match=r"\w") as raised:
            read_vectors(copy)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    part = "part-00001.parquet"
    table = pq.read_table(whole / part)
    manifest = json.loads((whole / "shards.json").read_text())

    def cut(file: Path) -> None:
        file.write_bytes(file.read_bytes()[:-9])

    def narrow(folder: Path) -> None:
        rows = np.stack(table["embedding"].to_numpy())[:, :5]
        lists = module.table_of(rows, ["x"] * 256, {}, levels=(), metadata={})["embedding"]
        pq.write_table(table.set_column(len(table.column_names) - 1, "embedding", lists), folder / part)

    def holes(folder: Path) -> None:
        np.save(folder / module.VECTORS, np.full((ITEMS, 6), np.nan, np.float32))

    assert "must hold all its shards: 1 of 4 are missing" in broken(lambda folder: (folder / part).unlink())
    assert "is of other embeddings than shards.json says" in broken(lambda folder: shutil.copy(other / part, folder))
    assert "is number 0 than" in broken(lambda folder: shutil.copy(folder / "part-00000.parquet", folder / part))
    assert "must be a complete parquet file" in broken(lambda folder: cut(folder / part))
    assert "must be a complete npy file" in broken(lambda folder: cut(folder / module.VECTORS))
    assert "must be 6 numbers in float32" in broken(narrow)
    assert "must hold 256 items: it has 255" in broken(lambda folder: pq.write_table(table[1:], folder / part))
    assert "must have the columns id, kind, animal" in broken(
        lambda folder: pq.write_table(table.drop_columns("kind"), folder / part)
    )
    assert "must be a shard that trivet embed wrote" in broken(
        lambda folder: pq.write_table(table.replace_schema_metadata({}), folder / part)
    )
    for array in (np.eye(6, dtype=np.float32), np.ones((ITEMS, 6))):
        assert "1000 x 6 numbers in float32" in broken(
            lambda folder, array=array: np.save(folder / module.VECTORS, array)
        )
    for values, sentence in (({"items": 0}, "counts less than one"), ({"key": 3}, "key must be a text")):
        text = json.dumps(manifest | values)
        assert sentence in broken(lambda folder, text=text: (folder / "shards.json").write_text(text))
    copy = tmp_path / "copy"
    shutil.rmtree(copy)
    shutil.copytree(whole, copy)
    holes(copy)
    with pytest.raises(ValueError, match="must be finite: rows 0, 1"):
        evaluate_files(EvaluateOptions([copy], measures=("recall@1",)))
    with pytest.raises(ValueError, match=r"or of shards, with a shards\.json"):
        read_vectors(tmp_path)


def test_an_embedding_that_is_not_finite_ends_all_processes_with_its_name(
    run: Path, vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = VectorInputs.batch

    def broken(inputs: VectorInputs, index: np.ndarray) -> torch.Tensor:
        found = batch(inputs, index)
        found[inputs.rows[index] == 300] = torch.inf
        return found

    monkeypatch.setattr(VectorInputs, "batch", broken)
    for _ in range(2):
        with pytest.raises(ValueError, match="those of item 300 hold NaN or infinity"):
            embed_data(run, str(vectors), tmp_path / "many", rows_per_shard=ROWS)
    assert sorted(contents(tmp_path / "many")) == ["part-00000.parquet", "shards.json"]
