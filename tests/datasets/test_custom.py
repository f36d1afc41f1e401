"""A data set and a network of a user's own file: the example of docs/data.md runs, and mistakes are one sentence."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from tests.conftest import without_evaluation, without_verdicts

from trivet.commands.embed.run import embed_data
from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.datasets import DataConfig, load
from trivet.models import ModelConfig, build, load_model
from trivet.training import RunConfig

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "data.md"
SECTION = DOCUMENT.read_text().partition("## Data and networks from your own code")[2]
CODE, IN_PYTHON = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(# stripes.toml.*?)```", SECTION, re.DOTALL)
FEW = [
    "training.steps=4", "training.accelerator=cpu", "evaluation.map_points=10", "evaluation.nmi_plus=2",
    "data.each=6", "batch.samples_per_class=3",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = list(sys.path)
    (tmp_path / "stripes.py").write_text(CODE)
    (tmp_path / "stripes.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name, module in list(sys.modules.items()):  # libraries stay: some cannot be imported twice
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


def test_the_example_trains_goes_on_and_is_evaluated_and_embedded_from_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.read(folder / "stripes.toml", FEW)
    whole = train(config, folder / "whole")
    assert whole.status == "finished"
    assert (whole.data.train.items, whole.data.train.classes) == (36, {"direction": 6})
    assert whole.settings["model"]["hidden"] == 24
    assert whole.settings["data"]["grain"] == 40  # a default of the function

    half = RunConfig.read(folder / "stripes.toml", [*FEW, "training.steps=2"])
    with without_evaluation():
        train(half, folder / "half")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    text = (folder / "half" / "config.toml").read_text()
    assert f'name = "python:{folder}/stripes.py:stripes"' in text
    (folder / "half" / "config.toml").write_text(text.replace("steps = 2", "steps = 4"))
    with without_verdicts():
        again = resume(folder / "half")
        once_more = evaluate_run(folder / "whole")
    assert again.curves.loss[-1] == whole.curves.loss[-1]
    assert again.evaluation == whole.evaluation

    assert once_more.evaluation == whole.evaluation
    embed_data(folder / "whole", f"python:{folder}/stripes.py:stripes", folder / "all.parquet")
    table = pyarrow.parquet.read_table(folder / "all.parquet")
    assert table.column_names == ["id", "direction", "split", "embedding"]
    assert len(table) == 72

    described = json.loads((folder / "whole" / "model" / "model.json").read_text())["model"]
    assert described["name"] == f"python:{folder}/stripes.py:RowReader"
    model = load_model(folder / "whole" / "model")
    images = load(RunConfig.read(folder / "half" / "config.toml").data, None).train.inputs.batch(np.arange(3))
    assert model(images).shape == (3, 8)
    torch.testing.assert_close(model(images).norm(dim=1), torch.ones(3))


def test_in_python(folder: Path) -> None:
    names: dict[str, object] = {}
    exec(IN_PYTHON, names)
    splits, network = names["splits"], names["network"]
    assert splits.train.names["direction"][1] == "22.5 degrees"
    assert network.body.read.hidden_size == 24


def data(code: str, **values: object) -> DataConfig:
    Path("mine.py").write_text(f"from __future__ import annotations\nfrom trivet.datasets import Splits\n{code}\n")
    return DataConfig.parse({"name": "python:mine.py:mine", **values}, source="x.toml")


@pytest.mark.parametrize(
    ("code", "values", "said"),
    [
        (
            "def mine(): ...",
            {},
            "must be a function that returns trivet.datasets.Splits, and says so: got <function mine",
        ),
        (
            "from os import system as mine",
            {"command": "touch made"},
            "must be a function that returns trivet.datasets.Spl",
        ),
        ("mine = 3", {}, "must be a function that returns trivet.datasets.Splits, and says so: got 3"),
        ("def mine(*, size: int) -> Splits: ...", {}, "the setting 'size' is missing"),
        ("def mine(*, size: int = 3) -> Splits: ...", {"szie": 4}, "unknown setting 'szie'; did you mean 'size'"),
        ("def mine(*, size: int = 3) -> Splits: ...", {"size": "x"}, "size must be a whole number: got 'x'"),
        ("def mine(*, fold: int = 3) -> Splits: ...", {}, "of mine must not be named 'fold', as another setting is"),
        ("def mine(**options) -> Splits: ...", {"size": 3}, "unknown setting 'size'"),
        ("def mine(size: Unknown) -> Splits: ...", {}, "must be a function that returns trivet.datasets.Splits"),
        ("class Odd: ...\ndef mine(odd: Odd) -> Splits: ...", {}, "of mine must be of types that settings can hold"),
        ("def mine() -> Splits: ...", {"root": "x"}, 'root is for name = "folder" or'),
        ("def mine() -> Splits: ...", {"fold": 3}, "fold must be below folds"),
    ],
)
def test_a_mistake_in_the_settings_or_the_signature_is_one_sentence(
    code: str, values: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as error:
        data(code, **values)
    assert "\n" not in str(error.value)
    assert not Path("made").exists()


WHOLE = """
import numpy as np
from trivet.datasets import Dataset, Splits, in_memory

def mine(*, label: str = "int64", ids: int = 8, split: str = "seen", shape: int = 3) -> Splits:
    pixels = np.zeros((8, 1, 4, 4)[: shape + 1], np.uint8)
    labels = (np.arange(8) % 2).astype(label)
    whole = Dataset("mine", in_memory(pixels), {"kind": labels}, {"kind": ("a", "b")}, tuple(map(str, range(ids))))
    half, rest = whole.subset(np.arange(4)), whole.subset(np.arange(4, len(whole)))
    return Splits(train=half, evaluation={split: rest} if split else {}, level="kind")
"""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"label": "float64"}, r"labels of level 'kind' must be int64 of shape \(8,\) from 0 to 1.*got float64"),
        ({"ids": 7}, "got 8 inputs, 7 ids"),
        ({"split": "train"}, "a name that a file can have, and not train: .* has 'train'"),
        ({"split": "../x"}, "a name that a file can have"),
        ({"split": ""}, "at least one evaluation split"),
        ({"level": "kin"}, "data.level = 'kin' is not a label level of these data; did you mean"),
        ({"shape": 1, "augment": "crop-flip"}, r"data.augment is for images \(C, H, W\): .* the shape \(1,\)"),
    ],
)
def test_data_that_cannot_be_used_are_one_sentence(values: dict[str, object], said: str) -> None:
    config = data(WHOLE, **values)
    with pytest.raises(ValueError, match=said) as error:
        load(config, None)
    assert "\n" not in str(error.value)


def test_a_function_receives_the_folder_of_data_sets_and_must_return_splits(tmp_path: Path) -> None:
    config = data("def mine(*, data_root, mark: str = 'x') -> Splits:\n    (data_root / mark).touch()\n    return 3")
    with pytest.raises(ValueError, match=r"must return trivet\.datasets\.Splits: got int"):
        load(config, tmp_path)
    assert (tmp_path / "x").exists()


NETWORK = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, input_shape, embedding_dim: int, *, extra: int = 0) -> None:
        super().__init__()
        self.layer = nn.Linear(input_shape[0], embedding_dim + extra)

    def forward(self, rows):
        return self.layer(rows)

def function(): ...
"""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": "python:net.py:function"}, "must be a class derived from torch.Module: got a function"),
        ({"extar": 1}, "unknown setting 'extar'; did you mean 'extra'"),
        ({"extra": "x"}, "extra must be a "),
        ({"width": 3}, "width is for conv2, conv3, conv4, mlp only"),
        ({"pretrained": True}, "pretrained weights exist for backbones only"),
        ({"extra": 1}, r"must map inputs \(B, 5\) to embeddings \(B, 4\): two gave \(2, 5\)"),
        ({"extra": -9}, r"must be a network for inputs of shape \(5,\), made with input_shape and embedding_dim: "),
    ],
)
def test_a_network_that_cannot_be_used_is_one_sentence(values: dict[str, object], said: str) -> None:
    Path("net.py").write_text(NETWORK)
    given = {"name": "python:net.py:Mine", "embedding_dim": 4, **values}
    with pytest.raises(ValueError, match=said) as error:
        build(ModelConfig.parse(given, source="x.toml"), (5,), seed=0)
    assert "\n" not in str(error.value)


def test_a_network_takes_inputs_of_any_shape_and_its_weights_follow_from_the_seed() -> None:
    Path("net.py").write_text(NETWORK)
    config = ModelConfig.parse({"name": "python:net.py:Mine", "embedding_dim": 4}, source="x.toml")
    one, same, other = (build(config, (5,), seed=seed) for seed in (1, 1, 2))
    inputs = torch.rand(3, 5)
    assert torch.equal(one(inputs), same(inputs))
    assert not torch.equal(one(inputs), other(inputs))
    assert build(ModelConfig(name="mlp"), (5,), seed=0)(inputs).shape == (3, 64)
    with pytest.raises(ValueError, match=r"conv4 takes images, of shape \(C, H, W\): got inputs of shape \(5,\)"):
        build(ModelConfig(name="conv4"), (5,), seed=0)


def test_a_package_offers_data_and_networks_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def declared(*, group: str) -> list[EntryPoint]:
        names = {"trivet.datasets": "stripes", "trivet.models": "RowReader"}
        return [EntryPoint("mine", f"stripes:{names[group]}", group)]

    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.setattr("trivet.config.plugins.entry_points", declared)
    config = DataConfig.parse({"name": "plugin:mine", "directions": 4}, source="x.toml")
    network = build(ModelConfig.parse({"name": "plugin:mine", "hidden": 7}, source="x.toml"), (1, 12, 12), seed=0)
    assert network(load(config, None).train.inputs.batch(np.arange(2))).shape == (2, 64)
    with pytest.raises(ValueError, match=r"is no entry point of an installed package in the group 'trivet\.datasets'"):
        DataConfig.parse({"name": "plugin:yours"}, source="x.toml")
