"""What `pip install .` gives: an interpreter of its own that sees torch, numpy, scipy and what they require."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from PIL import Image

from trivet.models import ModelConfig, build, load_model, save

SOURCE = Path(__file__).resolve().parents[1] / "src"


def required(*names: str) -> set[str]:
    """The distributions that these require, themselves included, as far as they are installed."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            requirements = map(Requirement, wanted)
            left += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment without extras."""
    return environment(tmp_path_factory.mktemp("base"))


def environment(folder: Path, *more: str) -> Path:
    """The interpreter of a new environment; what it may see is linked into it, which takes no time."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in required(*(Requirement(one).name for one in base()), *more):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    (site / "trivet.pth").write_text(f"{SOURCE}\n")
    return folder / "bin" / "python"


def base() -> list[str]:
    """What Trivet requires without extras."""
    return [one for one in metadata.requires("trivet") or [] if "extra ==" not in one]


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", *arguments], capture_output=True, text=True, cwd=python.parent, env={"OMP_NUM_THREADS": "1"}
    )


def test_the_environment_has_no_extra(python: Path) -> None:
    assert sorted(Requirement(one).name for one in base()) == ["numpy", "scipy", "torch"]
    find = "from importlib.util import find_spec; print([name for name in {} if find_spec(name)])"
    extras = ["typer", "rich", "pydantic", "faiss", "sklearn", "lightning", "pyarrow", "torchvision", "plotly"]
    assert run(python, "-c", find.format(extras)).stdout == "[]\n"
    assert run(python, "-c", find.format(["torch", "numpy", "scipy"])).stdout == "['torch', 'numpy', 'scipy']\n"


LIBRARY = """
import numpy as np, torch, trivet
from trivet import label_noise, metrics
from trivet.samplers import CrossBatchMemory, PKBatches
labels = np.arange(600) % 4
rows = np.eye(8)[labels] + 0.1 * np.random.default_rng(0).normal(size=(600, 8))
tight = np.eye(8)[labels] + 1e-4 * rows
found = trivet.collapse.diagnose(tight, labels, reference=np.random.default_rng(1).normal(size=(600, 8)))
print(found.verdicts[0].kind, found.measures.nmi, [note for note in found.notes if "pip install" in note])
draws = np.random.default_rng(2)
wrong = np.where(draws.random(600) < 0.25, (labels + draws.integers(1, 4, 600)) % 4, labels)
print(trivet.collapse.diagnose(rows, wrong).verdicts[0].kind)
print(metrics.evaluate(rows, {"label": labels}, measures=["recall@1", "map", "roc-auc"])["label"].mean()["recall@1"])
print(label_noise.find_suspects(rows, wrong).probability_wrong.max() > 0.5)
embeddings = torch.tensor(rows, requires_grad=True)
loss = trivet.MarginLoss(positives="easy", negatives="distance-weighted", num_classes=4)
loss(embeddings, torch.tensor(labels)).backward()
monitor = trivet.CollapseMonitor()
monitor.update(embeddings.detach(), torch.tensor(labels), 0.1)
print(len(trivet.mine(embeddings.detach(), torch.tensor(labels)).anchor) > 0, bool(embeddings.grad.any()))
for call in (lambda: metrics.cluster(rows, 4, seed=0), lambda: trivet.evaluate(rows, labels)):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
"""


def test_the_library_does_with_torch_numpy_and_scipy(python: Path) -> None:
    done = run(python, "-c", LIBRARY)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    note = "nmi and nmi+ were not measured: they need faiss and scikit-learn, pip install 'trivet[train]'."
    assert lines[0] == f'class-collapse None ["{note}"]'
    assert lines[1] == "noisy-labels"
    assert lines[2:] == [
        "1.0",
        "True",
        "True True",
        "this needs faiss, which is not installed: run pip install 'trivet[train]'.",
        "this needs typer, which is not installed: run pip install 'trivet[train]'.",
    ]


EMBED = """
import json, sys
import numpy as np
from trivet.models import load_model
print(load_model(sys.argv[1]).embed([np.zeros((9, 9, 3), np.uint8), sys.argv[2]]).tolist())
for folder in sys.argv[3:]:
    print(load_model(folder).embed(np.ones((1, 6))).tolist())
print(json.dumps("torch._dynamo" in sys.modules))  # which takes two seconds
"""


def test_a_model_embeds_with_the_extra_use(tmp_path: Path) -> None:
    extras = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    python = environment(tmp_path / "use", *(Requirement(one).name for one in extras["use"]))
    for name, shape in (("conv3", (3, 8, 8)), ("residual", (6,)), ("whitening", (6,))):
        config = ModelConfig(name=name, embedding_dim=4)
        save(build(config, shape, seed=0), config, shape, tmp_path / name / "model")
    photo = tmp_path / "photo.png"
    Image.new("RGB", (12, 9), "red").save(photo)
    models = [tmp_path / name for name in ("conv3", "residual", "whitening")]
    done = run(python, "-c", EMBED, *map(str, (models[0], photo, *models[1:])))
    assert done.stderr == ""
    expected = [
        load_model(models[0]).embed([np.zeros((9, 9, 3), np.uint8), photo]),
        *(load_model(model).embed(np.ones((1, 6))) for model in models[1:]),
    ]
    *found, compiler = map(json.loads, done.stdout.splitlines())
    for line, rows in zip(found, expected, strict=True):
        assert np.array(line) == pytest.approx(rows, abs=1e-6)
    assert not compiler


@pytest.mark.parametrize("program", [["-m", "trivet"], ["-c", "from trivet.commands.main import main; main()"]])
def test_the_command_line_names_its_extra(python: Path, program: list[str]) -> None:
    done = run(python, *program, "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "trivet: this needs typer, which is not installed: run pip install 'trivet[train]'.\n"
