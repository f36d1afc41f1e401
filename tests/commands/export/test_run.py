"""What is exported embeds as the run does, alone, in batches of any size; what does not is refused."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import signal
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.commands.conftest import Call
from tests.nightly import sampled
from tests.programs import Programs, forget
from torch import Tensor, nn

from trivet.commands.export import run as export
from trivet.commands.main import main
from trivet.commands.train.run import train
from trivet.models import load_model
from trivet.models.graphs import Graph, make_feed, make_graph, write_onnx, write_torch
from trivet.models.sentence_folder import write_sentence_folder
from trivet.training.config import RunConfig

pytestmark = pytest.mark.usefixtures("undiagnosed")

GRAPHS = ("onnx", "torch-export")
ONNX = ("onnx", "onnxscript", "onnxruntime")


def needs(to: str) -> None:
    for library in ONNX if to == "onnx" else ():
        pytest.importorskip(library)


def trained(folder: Path, data: dict[str, Any], model: dict[str, Any]) -> Path:
    values = {
        "data": data,
        "batch": {"num_classes": 3, "samples_per_class": 2},
        "model": model,
        "loss": {"name": "triplet"},
        "training": {"steps": 1},
        "evaluation": {"nmi_plus": 2, "map_points": 10},
    }
    train(RunConfig.parse(values, source="settings"), folder)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images that are resized to 24 pixels and cut to 16 x 20; its data stay where they are."""
    folder, draws = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for number in range(36):
        file = folder / "data" / f"<b>_{number % 6}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 255, (6, 8, 3), np.uint8)).resize((90, 120)).save(file)
    data = {"name": "folder", "root": str(folder / "data"), "image_size": [16, 20], "resize": 24}
    return trained(folder / "run", data, {"name": "conv3", "embedding_dim": 5})


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small_texts = pytest.importorskip("tests.small_texts")
    folder = tmp_path_factory.mktemp("texts")
    data = {"name": "texts", "path": str(small_texts.texts_file(folder / "texts.csv"))}
    model = {"name": f"text:{small_texts.text_network(folder / 'network', length=9, prompt='my ')}", "head": "linear"}
    return trained(folder / "run", data, model | {"embedding_dim": 5})


class NoTrivet(MetaPathFinder):
    """An importer beside which there is no Trivet."""

    def find_spec(self, name: str, *_: object) -> None:
        assert name.partition(".")[0] != "trivet"


def run_without_trivet(code: str) -> None:
    """The program, in a process that knows no Trivet."""
    forget("trivet")
    sys.meta_path.insert(0, NoTrivet())
    exec(f"{code}\n{PRINT}", {})


def embeddings_of(code: str, programs: Programs, folder: Path) -> np.ndarray:
    ended = programs.run("tests.commands.export.test_run:run_without_trivet", code, folder=folder)
    assert ended.returncode == 0, ended.stderr.decode()
    return np.array(json.loads(ended.stdout))


PRINT = "import json; print(json.dumps(np.asarray(embeddings).tolist()))"


@pytest.mark.parametrize("to", [*GRAPHS, "safetensors"])
def test_images_are_embedded_as_by_the_run_by_the_program_on_the_card(
    to: Any, images: Path, programs: Programs, tmp_path: Path
) -> None:
    needs(to)
    made = export.export_run(images, to, tmp_path / "out")
    assert made.largest_difference < 1e-5
    assert made.note is None
    assert "items of unseen: the largest difference" in made.checked
    assert sorted(made.files) == sorted(path.name for path in (tmp_path / "out").iterdir())
    card = (tmp_path / "out" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    photo = tmp_path / "out" / "photo.jpg"
    photo.write_bytes(next((images.parent / "data").rglob("7.jpg")).read_bytes())
    if to == "safetensors":
        names: dict[str, Any] = {}
        exec(code.replace("FOLDER", str(tmp_path / "out")).replace("photo.jpg", str(photo)), names)
        found = names["embeddings"]
    else:
        found = embeddings_of(code, programs, tmp_path / "out")
    assert found == pytest.approx(load_model(images).embed([photo]), abs=1e-5)


@pytest.mark.parametrize("to", sampled(sorted(GRAPHS), 2))
def test_texts_are_embedded_as_by_the_run_by_the_program_on_the_card(
    to: Any, texts: Path, programs: Programs, tmp_path: Path
) -> None:
    needs(to)
    assert export.export_run(texts, to, tmp_path / "out").largest_difference < 1e-5
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    some = ["card lost", "top up failed again where is my rent due again and again"]
    found = embeddings_of(code.replace('["a text", "another one"]', repr(some)), programs, tmp_path / "out")
    assert found == pytest.approx(load_model(texts).embed(some), abs=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("head", ["none", "linear", "residual", "mlp", "whitening"])
def test_sentence_transformers_embed_as_the_network(pooling: str, head: str, tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    small_texts = pytest.importorskip("tests.small_texts")
    from trivet.models import ModelConfig, TextEmbedder, build

    name = f"text:{small_texts.text_network(tmp_path / 'network', length=9, lower=True, prompt='my ')}"
    width = {} if head == "none" else {"embedding_dim": 11 if head == "residual" else 5}
    settings = {"name": name, "pooling": pooling, "head": head, "normalize": head != "linear", **width}
    model = build(ModelConfig.parse(settings, source="settings"), (1,), seed=0).eval()
    assert isinstance(model, TextEmbedder)
    with torch.no_grad():
        for values in model.body[1].state_dict().values():
            values.normal_(generator=torch.Generator().manual_seed(1))
    (tmp_path / "out").mkdir()
    write_sentence_folder(model, tmp_path / "out")
    some = ["card lost", "TOP UP failed", "where is my rent due again and again where is it"]
    found = library.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(some, show_progress_bar=False)
    assert found == pytest.approx(model.embed(some), abs=1e-5)


def test_a_run_of_texts_becomes_a_folder_of_sentence_transformers(texts: Path, tmp_path: Path) -> None:
    made = export.export_run(texts, "sentence-transformers", tmp_path / "out")
    assert {"modules.json", "2_Dense/model.safetensors", "1_Pooling/config.json"} <= set(made.files)
    if export.installed("sentence_transformers"):
        assert made.largest_difference < 1e-5
    else:
        assert made.checked.startswith("Not checked, because sentence-transformers is not installed")
    export.export_run(texts, "sentence-transformers", tmp_path / "out", force=True)


def test_a_difference_ends_with_one_and_leaves_nothing(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    def wrong(inputs: Tensor) -> Any:
        return tuple(values[::-1].copy() for values in make_feed(inputs))

    monkeypatch.setattr(export, "make_feed", wrong)
    code, out, err = run_command(*f"export {images} --to torch-export -o {tmp_path / 'out'}".split())
    assert (code, out) == (1, "")
    assert "trivet: what is exported must embed as the run does: the largest difference is " in err
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote_and_replaces_with_force_only(
    images: Path, tmp_path: Path, run_command: Call
) -> None:
    line = f"export {images} --to safetensors -o {tmp_path / 'out'}"
    code, out, _ = run_command(*line.split())
    assert (code, out.splitlines()[0]) == (
        0,
        f"README.md, model.json, model.safetensors, preprocessing.json in {tmp_path / 'out'}",
    )
    assert "holds an exported model; choose another --output, or add --force" in run_command(*line.split())[2]
    said = json.loads(run_command(*f"{line} --force --json".split())[1])
    assert said["largest_difference"] < said["tolerance"] == 1e-4
    assert said["items"] == 18
    (tmp_path / "out" / "mine.txt").touch()
    assert "holds mine.txt" in run_command(*f"{line} --force".split())[2]


def test_without_its_data_a_run_is_checked_on_random_inputs(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: object, **more: object) -> None:
        raise ValueError("no such folder")

    monkeypatch.setattr(export, "load_splits", gone)
    made = export.export_run(images, "torch-export", tmp_path / "out")
    assert made.note == "the data of the run cannot be read (no such folder)"
    assert "on 64 random inputs" in made.checked
    assert made.largest_difference < 1e-5


def test_what_the_run_kept_is_compared_not_what_its_model_gives_now(images: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(images, tmp_path / "run")
    weights = tmp_path / "run" / "model" / "model.safetensors"
    save_file({name: value * 1.01 for name, value in load_file(weights).items()}, weights)
    with pytest.raises(export.DiffersError, match="of unseen; nothing was written"):
        export.export_run(tmp_path / "run", "safetensors", tmp_path / "out")


@pytest.mark.parametrize(
    "to",
    [*(pytest.param(graph, marks=pytest.mark.nightly) for graph in GRAPHS), *("safetensors", "sentence-transformers")],
)
def test_until_it_is_whole_an_export_lies_in_one_place_and_a_stopped_one_is_gone(
    to: Any, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(to)
    run = request.getfixturevalue("texts" if to == "sentence-transformers" else "images")

    def stop(*given: object) -> None:
        assert sorted(item.name for item in tmp_path.iterdir()) == [".out.trivet-lock", ".out.trivet-new"]
        assert any(tmp_path.glob("*/model.*"))
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "preprocessing", stop)
    with pytest.raises(KeyboardInterrupt):
        export.export_run(run, to, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def export_with_room_for(room: int, *arguments: str) -> None:
    """The program: files of that many bytes and no more can be written, but for what it prints."""
    sys.argv = ["trivet", "export", *arguments]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            main()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        sys.stderr.write(errors.getvalue())


@pytest.mark.parametrize("room", sampled([4000, 100], 2))
@pytest.mark.parametrize("to", [*GRAPHS, "safetensors", "sentence-transformers"])
def test_a_full_disk_ends_in_a_sentence(
    to: Any, room: int, request: pytest.FixtureRequest, programs: Programs, tmp_path: Path
) -> None:
    """The process ends by itself."""
    needs(to)
    run = request.getfixturevalue("texts" if to == "sentence-transformers" else "images")
    (tmp_path / "disk").mkdir()
    arguments = str(run), "--to", to, "-o", str(tmp_path / "disk" / "out")
    function = "tests.commands.export.test_run:export_with_room_for"
    ended = programs.run(function, room, *arguments, folder=tmp_path)
    said = ended.stderr.decode().splitlines()[-1]
    assert ended.returncode == 2
    assert re.fullmatch(r"trivet: .*out.* must be readable and writable: File too large.*; free disk space.*", said)
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_form_that_the_model_has_not_is_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'takes networks of texts \(model.name = "text:..."\)'):
        export.export_run(images, "sentence-transformers", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", ONNX)
def test_a_missing_library_is_named_with_its_extra(
    library: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    for other in ONNX:
        if not export.installed(other):
            monkeypatch.setitem(sys.modules, other, sys)  # as if it were there
    monkeypatch.setitem(sys.modules, library, None)
    code, _, err = run_command(*f"export {images} --to onnx -o {tmp_path / 'out'}".split())
    assert code == 2
    assert f"this needs {library}, which is not installed: run pip install 'trivet[export]'." in err


class Other(nn.Module):
    """A network that no exporter takes: by what it is asked for."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why

    def forward(self, inputs: Tensor) -> Tensor:
        if self.why == "operator":
            return torch.special.bessel_j0(inputs)
        return inputs if inputs.sum() > 0 else -inputs


@pytest.mark.parametrize(
    ("write", "why", "message"),
    [
        (write_onnx, "operator", r"ONNX must have every operator of the network: it has none for \S*bessel_j0;"),
        (write_onnx, "branch", "must be one that ONNX can write for batches of any size: "),
        (write_torch, "branch", "must be one that torch.export can write for batches of any size: "),
    ],
)
def test_a_network_that_cannot_be_exported_is_said_in_one_sentence(
    write: Any, why: str, message: str, tmp_path: Path
) -> None:
    needs("onnx" if write is write_onnx else "torch-export")
    graph = Graph(Other(why), ("inputs",), (torch.rand(2, 3),), ({0: torch.export.Dim.DYNAMIC},))
    with pytest.raises(ValueError, match=message) as error:
        write(graph, tmp_path / "graph")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "graph").exists()


@pytest.mark.parametrize("name", [pytest.param("timm:resnet10t", marks=pytest.mark.nightly), "residual"])
def test_backbones_and_heads_become_graphs_for_any_batch(name: str, tmp_path: Path) -> None:
    needs("onnx")
    from trivet.models import ModelConfig, build
    from trivet.models.graphs import onnx_runner

    shape = (12,) if name == "residual" else (3, 32, 32)
    model = build(ModelConfig.parse({"name": name, "embedding_dim": 8}, source="settings"), shape, seed=0).eval()
    graph = make_graph(model)
    write_onnx(graph, tmp_path / "model.onnx")
    run = onnx_runner(tmp_path / "model.onnx", graph.inputs)
    for size in (1, 3):
        inputs = torch.rand(size, *shape)
        with torch.no_grad():
            assert run(make_feed(inputs)) == pytest.approx(model(inputs).numpy(), abs=1e-5)
