"""An index folder finds items by id, image, text and vector, and refuses what it cannot use."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from tests.nightly import sampled
from tests.small_texts import WORDS, text_network

import trivet
from trivet.commands.embed.run import embed_data
from trivet.commands.index import run as index_module
from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import IndexResult
from trivet.commands.search import run as module
from trivet.commands.search.options import SearchOptions
from trivet.commands.search.run import IndexFolder
from trivet.commands.train.run import train
from trivet.io.parquet_files import write_embeddings
from trivet.knn.index import Index
from trivet.training import RunConfig

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")

SETTINGS = {
    "data": {"name": "digits"},
    "batch": {"num_classes": 2, "samples_per_class": 6},
    "model": {"name": "linear", "embedding_dim": 3},
    "loss": {"name": "triplet", "positives": "easy"},
    "training": {"steps": 4, "accelerator": "cpu"},
    "evaluation": {"map_points": 20, "sample": 50, "nmi_plus": 2},
}


def make_index(source: Path, output: Path, **options: Any) -> IndexResult:
    return index_module.make_index(IndexOptions(source, output, **options))


def search_folder(index: Path, query: str | None = None, **options: Any) -> dict[str, Any]:
    sheet = options.pop("sheet", None)
    result = module.search_folder(SearchOptions(index, query, **options), command="trivet search '<b>'")
    if sheet is not None:
        result.write_page(sheet)
    return result.record.as_json(unset=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "digits"
    train(RunConfig.parse(SETTINGS, source="test"), path)
    return path


@pytest.fixture(scope="module")
def index(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indexes") / "digits"
    make_index(run, path)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three animals and two tools."""
    path = tmp_path / "words.npz"
    np.savez(
        path,
        embeddings=np.array([[1, 0], [1, 0.1], [1, 0.3], [0, 1], [0.1, 1]], np.float32),
        id=np.array(["cat", "dog", "hen", "axe", "saw"]),
        kind=np.array(["animal"] * 3 + ["tool"] * 2),
    )
    return path


def rows_of(run: Path, *splits: str) -> list[dict[str, Any]]:
    rows = []
    for split in splits:
        rows += [row | {"split": split} for row in pq.read_table(run / "embeddings" / f"{split}.parquet").to_pylist()]
    return rows


def test_the_folder_of_a_run(run: Path, index: Path) -> None:
    assert {item.name for item in index.iterdir()} == {"index.faiss", "index.json", "items.parquet"}
    saved = json.loads((index / "index.json").read_text())
    assert {key: saved[key] for key in ("format", "distance", "dimension", "items", "kind", "seed")} == {
        "format": 1, "distance": "euclidean", "dimension": 3, "items": 122 + 195, "kind": "exact", "seed": 0,
    }  # fmt: skip
    assert saved["about"]["run"] == str(run)
    assert saved["about"]["splits"] == ["seen", "unseen"]
    assert saved["about"]["level"] == "parity"
    table = pq.read_table(index / "items.parquet")
    assert table.column_names == ["id", "split", "parity", "digit"]
    assert table.to_pylist() == [
        {key: row[key] for key in ("id", "split", "parity", "digit")} for row in rows_of(run, "seen", "unseen")
    ]
    assert make_index(run, index.with_name("part"), split="unseen", distance="cosine").items == 195


def test_by_id_finds_what_a_plain_loop_finds(run: Path, index: Path) -> None:
    rows = rows_of(run, "seen", "unseen")
    query = rows[200]
    far = {row["id"]: math.dist(query["embedding"], row["embedding"]) for row in rows}
    nearest = sorted((row for row in rows if row["id"] != query["id"]), key=lambda row: far[row["id"]])[:5]
    (found,) = search_folder(index, query["id"], k=5)["queries"]
    assert found["query"] == query["id"]
    assert found["labels"] == {"parity": query["parity"], "digit": query["digit"]}
    assert [item["id"] for item in found["neighbours"]] == [row["id"] for row in nearest]
    for item, row in zip(found["neighbours"], nearest, strict=True):
        assert item["labels"] == {"parity": row["parity"], "digit": row["digit"]}
        assert item["distance"] == pytest.approx(far[row["id"]], rel=1e-5)
        assert rows[item["row"]]["id"] == row["id"]


def test_an_image_file_is_embedded_as_the_run_did(index: Path, tmp_path: Path) -> None:
    images = load_digits().images
    row = 492
    Image.fromarray((images[row] * 255 / 16).round().astype(np.uint8)).save(tmp_path / "drawn.png")
    (found,) = search_folder(index, str(tmp_path / "drawn.png"), k=2)["queries"]
    assert (found["kind"], found["labels"]) == ("image", {})
    assert found["neighbours"][0]["id"] == f"digits/{row:04}"
    assert found["neighbours"][0]["distance"] < 0.01 < found["neighbours"][1]["distance"] + 0.01
    with Image.open(tmp_path / "drawn.png") as picture:
        result = trivet.search(index, [picture, picture], k=2)
        several = result.ids
        assert result.save(tmp_path / "sheet.html").read_text().count('<img class="thumb pixels" src="data:image') == 6
    assert several == [[item["id"] for item in found["neighbours"]]] * 2
    assert trivet.search(index, [str(tmp_path / "drawn.png")], k=2).ids == several[:1]
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"images that can be read: item 0, .*broken\.png, cannot"):
        search_folder(index, str(tmp_path / "broken.png"))


def test_another_model_or_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    make_index(copy, tmp_path / "index")
    Image.new("L", (8, 8)).save(tmp_path / "black.png")
    weights = copy / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="must be the one that made the index"):
        search_folder(tmp_path / "index", str(tmp_path / "black.png"))
    shutil.rmtree(copy)
    with pytest.raises(ValueError, match="is missing; restore it"):
        search_folder(tmp_path / "index", str(tmp_path / "black.png"))


def test_vector_files(file: Path, tmp_path: Path) -> None:
    make_index(file, tmp_path / "index")
    np.save(tmp_path / "one.npy", np.array([2.0, 0.0]))
    np.save(tmp_path / "two.npy", np.array([[0.0, 5.0], [1.0, 0.09]]))
    (one,) = search_folder(tmp_path / "index", str(tmp_path / "one.npy"), k=2)["queries"]
    assert [item["id"] for item in one["neighbours"]] == ["cat", "dog"]
    assert [item["distance"] for item in one["neighbours"]] == pytest.approx([0, 1 - 1 / math.sqrt(1.01)], abs=1e-7)
    two = search_folder(tmp_path / "index", str(tmp_path / "two.npy"), k=1)["queries"]
    assert [query["neighbours"][0]["id"] for query in two] == ["axe", "dog"]
    assert [query["query"] for query in two] == ["two.npy row 0", "two.npy row 1"]
    own = search_folder(tmp_path / "index", str(file), k=1)["queries"]  # a file of vectors finds the items themselves
    assert [(q["query"], q["neighbours"][0]["id"]) for q in own] == [
        (id, id) for id in ("cat", "dog", "hen", "axe", "saw")
    ]
    assert own[3]["labels"] == {"kind": "tool"}
    np.save(tmp_path / "wide.npy", np.ones((2, 3)))
    with pytest.raises(ValueError, match="queries must have the 2 dimensions of the index: got 3"):
        search_folder(tmp_path / "index", str(tmp_path / "wide.npy"))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects, which are never loaded"):
        search_folder(tmp_path / "index", str(tmp_path / "objects.npy"))


class Encoder:
    """Stands in for sentence_transformers.SentenceTransformer."""

    def __init__(self, name: str, model_kwargs: dict[str, Any]) -> None:
        if name == "gone":
            raise OSError("gone is not a local folder and is not a valid model identifier\nmore")
        assert model_kwargs == {"use_safetensors": True}
        self.name = name

    def encode(self, texts: list[str], show_progress_bar: bool) -> np.ndarray:
        kinds = np.array([[float("tool" not in text), float("tool" in text)] for text in texts])
        return np.pad(kinds, ((0, 0), (0, 1))) if self.name == "wide" else kinds


def test_text(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(file, tmp_path / "none")
    with pytest.raises(ValueError, match=r"words\.npz does not; index it again with --text-model"):
        search_folder(tmp_path / "none", text="a tool")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"run pip install 'trivet\[text\]'"):
        make_index(file, tmp_path / "index", text_model="small")
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Encoder
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    for name, message in (("gone", r"could not be loaded \(OSError: gone is not"), ("wide", "2 dimensions .* gives 3")):
        with pytest.raises(ValueError, match=message):
            make_index(file, tmp_path / "index", text_model=name)
    make_index(file, tmp_path / "index", text_model="small")
    (found,) = search_folder(tmp_path / "index", text="a tool", k=2)["queries"]
    assert (found["query"], found["kind"]) == ("a tool", "text")
    assert {item["id"] for item in found["neighbours"]} == {"axe", "saw"}


ANIMALS = ("ant", "bee", "cow", "dog", "elk", "fox")


class Lengths(Encoder):
    """Each text has numbers of its own, which another name makes other ones."""

    def encode(self, texts: list[str], show_progress_bar: bool) -> np.ndarray:
        seeds = [list(f"{self.name} {text}".encode()) for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=6) for seed in seeds])


def of_texts(folder: Path, way: str) -> dict[str, Any]:
    """What is indexed, and the options that say the way from texts to it."""
    rows = [(f"the {ANIMALS[i % 6]} number {7919 * (i + 1) ** 2}", ANIMALS[i % 6]) for i in range(54)]
    table, vectors = folder / "texts.csv", folder / "vectors.npz"
    table.write_text("".join(f"{text},{name}\n" for text, name in [("text", "animal"), *rows]))
    texts, names = np.array([text for text, _ in rows]), np.array([name for _, name in rows])
    prefixed = [f"query: {text}" if way == "a run on vectors" else text for text in texts.tolist()]
    np.savez(vectors, embeddings=Lengths("mini", {"use_safetensors": True}).encode(prefixed, False), text=texts,
             animal=names)  # fmt: skip
    if way == "a file":
        return {"source": vectors, "text_model": "mini"}
    data: dict[str, Any] = {"name": "texts", "path": str(table)}
    if way == "a run on vectors":
        data = {"name": "vectors", "path": str(vectors)}
    model: dict[str, Any] = {"name": "linear", "embedding_dim": 4}
    if way == "a run of a network of texts":
        rows = [(" ".join(WORDS[4 + n % 14] for n in (i, i // 14, 3 * i)), ANIMALS[i % 6]) for i in range(54)]
        table.write_text("".join(f"{text},{name}\n" for text, name in [("text", "animal"), *rows]))
        model = {"name": f"text:{text_network(folder / 'network')}", "embedding_dim": 4, "head": "linear"}
    settings = {**SETTINGS, "data": data, "loss": {"name": "triplet"}, "model": model}
    train(RunConfig.parse(settings, source="test"), folder / "run")
    if way == "a run on vectors":
        return {"source": folder / "run", "text_model": "mini", "text_prefix": "query: "}
    if way == "a file of a run":
        embed_data(folder / "run", str(table), folder / "made.parquet")
        return {"source": folder / "made.parquet", "run": folder / "run"}
    return {"source": folder / "run"}


@pytest.mark.parametrize("distance", sampled(["cosine", "euclidean"], 2))
@pytest.mark.parametrize(
    "way", ["a run of a network of texts", "a run on n-grams", "a run on vectors", "a file", "a file of a run"]
)
def test_a_text_goes_the_whole_way_of_the_indexed_ones(
    way: str, distance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the words of an indexed text its own row is found, and then what is found by its id."""
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Lengths
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    options, index = of_texts(tmp_path, way), tmp_path / "index"
    about = make_index(output=index, distance=distance, **options).about
    assert len(about.texts) == 8
    several = trivet.search(index, [example.text for example in about.texts], k=1)
    assert several.indices[:, 0].tolist() == [example.row for example in about.texts]
    for example in about.texts:
        (by_text,) = search_folder(index, text=example.text, k=6)["queries"]
        id = by_text["neighbours"][0]["id"]
        assert by_text["neighbours"][0]["row"] == example.row
        assert by_text["neighbours"][0]["distance"] == pytest.approx(0, abs=1e-5)
        (by_id,) = search_folder(index, id=id, k=5)["queries"]
        assert [item["id"] for item in by_text["neighbours"][1:]] == [item["id"] for item in by_id["neighbours"]]

    if "text_model" not in options:  # the texts that n-grams were fitted on
        (tmp_path / "texts.csv").write_text((tmp_path / "texts.csv").read_text().replace("number", "nr"))
    else:
        library.SentenceTransformer = lambda name, **options: Lengths(f"later {name}", **options)
    if way != "a run of a network of texts":  # which has all of its weights
        with pytest.raises(ValueError, match="a text query must be embedded as the indexed texts were"):
            search_folder(index, text="the ant number 1")
    if "text_model" in options:
        with pytest.raises(ValueError, match="index with the --text-model, and --text-prefix, that made"):
            make_index(output=tmp_path / "wrong", **options)
        assert not (tmp_path / "wrong").exists()


def test_the_encoder_alone_is_not_the_way_to_what_a_run_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Lengths
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    options, wrong = of_texts(tmp_path, "a file of a run"), tmp_path / "wrong"
    for made in (options["source"], tmp_path / "run" / "embeddings" / "seen.parquet"):
        if made.is_file():
            with pytest.raises(ValueError, match=r"the model of a run made those of .*; name that run with --run"):
                make_index(made, wrong, text_model="mini")
    with pytest.raises(ValueError, match="has its own way from its data to embeddings; leave it out"):
        make_index(tmp_path / "run", wrong, text_model="mini")
    of_vectors = tmp_path / "of vectors"
    of_vectors.mkdir()
    options = of_texts(of_vectors, "a run on vectors")
    with pytest.raises(ValueError, match="of their length away from their embeddings; index with the --text-model"):
        make_index(output=wrong, **{**options, "text_prefix": ""})
    make_index(options["source"], tmp_path / "index")
    assert make_index(of_vectors / "vectors.npz", tmp_path / "plain").about.texts == []
    with pytest.raises(ValueError, match="index it again with --text-model, the encoder that made the vectors"):
        search_folder(tmp_path / "index", text="the ant number 1")


def test_a_query_must_be_one_thing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(file, tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    Path("cat").write_bytes(b"a file of the name of an item")
    index = tmp_path / "index"
    with pytest.raises(ValueError, match=r"is the id of an item and also a file; use --id cat"):
        search_folder(index, "cat")
    assert search_folder(index, id="cat", k=1)["queries"][0]["neighbours"][0]["id"] == "dog"
    with pytest.raises(ValueError, match="such as 'cat', 'dog', 'hen', or a file: 'cow' is neither"):
        search_folder(index, "cow")
    with pytest.raises(ValueError, match="has the id 'cow'"):
        search_folder(index, id="cow")
    with pytest.raises(ValueError, match="--k must be a whole number of at least 1"):
        search_folder(index, id="cat", k=0)
    with pytest.raises(ValueError, match="an image can be embedded for an index of a run only"):
        search_folder(index, "./cat")
    assert len(search_folder(index, id="cat", k=99)["queries"][0]["neighbours"]) == 4


def test_only_the_row_groups_that_hold_the_rows_are_read(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.commands.index.run.ITEMS_PER_GROUP", 2)
    make_index(file, tmp_path / "index")
    folder = IndexFolder(tmp_path / "index")
    assert folder._table.num_row_groups == 3
    items = folder._read_items([1, 3, 4])
    assert {row: item["id"] for row, item in items.items()} == {1: "dog", 3: "axe", 4: "saw"}
    assert [folder.row_of(id) for id in ("cat", "saw", "cow")] == [0, 4, None]
    read: list[int] = []
    original = folder._table.read_row_group

    class Watched:
        metadata, num_row_groups = folder._table.metadata, 3

        def read_row_group(self, group: int, *columns: Any) -> Any:
            read.append(group)
            return original(group, *columns)

    folder._table = Watched()
    folder._read_items([4])
    assert read == [2]


def test_rows_without_ids_are_named_by_number(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", embeddings=np.eye(3, dtype=np.float32) + 0.1 * np.arange(3, dtype=np.float32))
    make_index(tmp_path / "plain.npz", tmp_path / "index")
    (found,) = search_folder(tmp_path / "index", "1")["queries"]
    assert found["query"] == "1"
    assert {item["id"] for item in found["neighbours"]} == {"0", "2"}
    assert found["neighbours"][0]["labels"] == {}


def test_replaced_on_demand_only_and_put_back_after_a_failure(file: Path, run: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    make_index(file, index)
    with pytest.raises(ValueError, match="holds an index; choose another --output, or add --force"):
        make_index(file, index)
    before = (index / "index.faiss").read_bytes()
    np.savez(tmp_path / "broken.npz", embeddings=np.array([[1, np.nan], [0, 1]], np.float32))
    with pytest.raises(ValueError, match="embeddings must be finite: row 0 holds NaN"):
        make_index(tmp_path / "broken.npz", index, force=True)
    assert (index / "index.faiss").read_bytes() == before
    with pytest.raises(ValueError, match="row 0 holds NaN"):
        make_index(tmp_path / "broken.npz", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    make_index(file, index, force=True, distance="euclidean")
    assert Index.load(index).info.distance == "euclidean"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["broken.npz", "index", "words.npz"]
    with pytest.raises(
        ValueError, match=r"--text-model is for vectors of an encoder .* its data to embeddings; leave it out"
    ):
        make_index(run, tmp_path / "new", text_model="small")
    shutil.copytree(run, tmp_path / "stopped")
    (tmp_path / "stopped" / "record.json").write_text('{"status": "interrupted"}')
    with pytest.raises(ValueError, match="a run must have been evaluated to be indexed"):
        make_index(tmp_path / "stopped", tmp_path / "new")
    with pytest.raises(ValueError, match="a run folder must hold config"):
        make_index(index, tmp_path / "new")


def test_a_broken_index_folder(file: Path, run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an index folder must hold index\.json: .* does not"):
        search_folder(run, id="x")
    make_index(file, tmp_path / "index")
    items = tmp_path / "index" / "items.parquet"
    whole = items.read_bytes()
    items.write_bytes(whole[:40])
    with pytest.raises(ValueError, match=r"items\.parquet must hold the items of the index"):
        search_folder(tmp_path / "index", id="cat")
    items.unlink()
    with pytest.raises(ValueError, match=r"items\.parquet must hold the items of the index"):
        search_folder(tmp_path / "index", id="cat")
    np.savez(tmp_path / "other.npz", embeddings=np.eye(3, dtype=np.float32), kind=np.array(["a", "b", "c"]))
    make_index(tmp_path / "other.npz", tmp_path / "other")
    description = tmp_path / "other" / "index.json"
    beyond = json.loads(description.read_text())
    beyond["about"]["texts"] = [{"row": 3, "text": "d"}]
    (shutil.copytree(tmp_path / "other", tmp_path / "beyond") / "index.json").write_text(json.dumps(beyond))
    with pytest.raises(ValueError, match=r"must describe an index: it has texts of rows that are not there"):
        search_folder(tmp_path / "beyond", id="0")
    shutil.copy(tmp_path / "other" / "items.parquet", items)
    with pytest.raises(ValueError, match=r"an item for each of the 5 vectors .*: it has 3 rows"):
        search_folder(tmp_path / "index", id="cat")


def page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "script-src &#39;none&#39;" in text
    assert len(text) < 200_000
    return text


def test_sheet_of_a_run_shows_the_pictures(index: Path, tmp_path: Path) -> None:
    found = search_folder(index, "digits/0492", k=6, sheet=tmp_path / "sheet.html")
    text = page(tmp_path / "sheet.html")
    assert text.count('<img class="thumb pixels" src="data:image/png;base64,') == 7
    neighbours = found["queries"][0]["neighbours"]
    query = found["queries"][0]["labels"]["parity"]
    marks = ["right" if item["labels"]["parity"] == query else "wrong" for item in neighbours]
    assert re.findall(r'<figure class="item (\w+)">', text) == ["query", *marks]
    right = marks.count("right")
    assert f"{right} of 6 with the same" in text
    shown = re.findall(r'<span class="name id" title="([^"]*)">', text)
    assert shown == ["digits/0492", *(item["id"] for item in neighbours)]


def test_sheet_of_training_items_shows_them(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    ids = ("digits/0098", "digits/0084", "digits/0097", "digits/0225")
    embeddings = np.eye(4, 8, dtype=np.float32)
    columns = {"parity": ["even", "odd"] * 2}
    write_embeddings(tmp_path / "run/embeddings/train.parquet", embeddings, ids, columns, levels=["parity"])
    make_index(tmp_path / "run", tmp_path / "index", split="train")
    search_folder(tmp_path / "index", "digits/0084", k=3, sheet=tmp_path / "sheet.html")
    assert page(tmp_path / "sheet.html").count('<img class="thumb pixels" src="data:image/png;base64,') == 4


def test_sheet_of_an_image_query_judges_nothing(index: Path, tmp_path: Path) -> None:
    Image.new("L", (8, 8), 99).save(tmp_path / "grey.png")
    search_folder(index, str(tmp_path / "grey.png"), k=2, sheet=tmp_path / "sheet.html")
    text = page(tmp_path / "sheet.html")
    assert text.count("<img") == 3
    assert text.count('<figure class="item ">') == 2
    assert "with the same" not in text


def test_sheet_of_a_file_is_text_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "file.npz",
        embeddings=np.eye(3, dtype=np.float32),
        id=np.array(["<b>a</b>", "</figure>", '"onerror="x']),
        kind=np.array(["<i>x</i>", "<i>x</i>", "y"]),
    )
    make_index(tmp_path / "file.npz", tmp_path / "index")
    search_folder(tmp_path / "index", "<b>a</b>", sheet=tmp_path / "sheet.html")
    text = page(tmp_path / "sheet.html")
    assert "<img" not in text
    assert "<b>a</b>" not in text
    assert "<i>x" not in text
    assert text.count("</figure>") == 3
    assert '"onerror' not in text
    assert "&lt;b&gt;a&lt;/b&gt;" in text
    assert text.count('<figure class="item right">') == text.count('<figure class="item wrong">') == 1


def test_sheet_of_a_folder_of_images_reads_only_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    for name in "abcd":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = draw.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    settings = SETTINGS | {"data": {"name": "folder", "root": str(tmp_path / "photos"), "image_size": 8}}
    train(RunConfig.parse(settings, source="test"), tmp_path / "run")
    make_index(tmp_path / "run", tmp_path / "index")

    def whole(*_: object) -> None:
        raise AssertionError("the whole data set was read")

    monkeypatch.setattr(module, "load", whole)
    (tmp_path / "photos" / "d" / "5.png").unlink()
    found = search_folder(tmp_path / "index", "c/0.png", k=99, sheet=tmp_path / "sheet.html")
    assert {item["id"] for item in found["queries"][0]["neighbours"]} == {
        f"{name}/{number}.png" for name in "cd" for number in range(6)
    } - {"c/0.png"}
    text = page(tmp_path / "sheet.html")
    assert (text.count("<img"), text.count("no image")) == (11, 1)


def test_a_file_that_a_run_embedded_is_searched_by_an_image(run: Path, tmp_path: Path) -> None:
    photos, made = tmp_path / "photos", tmp_path / "photos.parquet"
    for shade in range(4):
        (photos / str(shade % 2)).mkdir(parents=True, exist_ok=True)
        rows = np.full((8, 8), 40, np.uint8)
        rows[:, : 2 * shade + 1] = 255
        Image.fromarray(rows).save(photos / str(shade % 2) / f"{shade}.png")
    embed_data(run, str(photos), made)
    about = make_index(made, tmp_path / "index", run=run).about
    assert (about.run, len(about.model or "")) == (str(run.resolve()), 64)
    folder = IndexFolder(tmp_path / "index")
    (query,) = folder.search(str(photos / "1" / "3.png"), 2)
    assert (query.kind, query.neighbours[0].id, query.neighbours[0].distance) == (
        "image",
        "1/3.png",
        pytest.approx(0, abs=1e-5),
    )
    folder.sheet([query], tmp_path / "sheet.html", k=2)

    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "run"
    shutil.copytree(run, other)
    weights = other / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="was made by another than that of"):
        make_index(made, tmp_path / "wrong", run=other)
    np.savez(tmp_path / "wide.npz", embeddings=np.eye(5), label=np.arange(5))
    with pytest.raises(ValueError, match=r"gives 3 dimensions, .* has 5"):
        make_index(tmp_path / "wide.npz", tmp_path / "wrong", run=run)
    with pytest.raises(ValueError, match="is a run itself"):
        make_index(run, tmp_path / "wrong", run=run)
    assert not (tmp_path / "wrong").exists()
