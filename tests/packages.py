"""The sdist and the wheel, built and tried in clean virtual environments, with the lowest and the newest dependencies.

    python tests/packages.py                          # 3.11 to 3.14, as far as uv finds them
    python tests/packages.py --wheels                 # nothing is installed: which systems have wheels of all that is
    python tests/packages.py --pythons 3.13 --tests   # and the whole suite, from the sdist
    python tests/packages.py --pythons FOLDER/python.exe --resolutions highest   # Windows' embeddable Python, in Wine

Needs uv (on PyPI) and, for the types, pyright, which needs node. Each environment gets the wheel alone and runs the
example of the README; then the wheel with its extras, and `trivet demo`, `init`, `train`, `export` as a user would run
them; then mypy and pyright read a program of a user. Lowest: of every dependency that pyproject.toml names, the lowest
version with a wheel for this Python that the others allow.

Windows' Python gets its packages beside it. numpy and torch need more of the C runtime than Wine has: let ucrtbase.dll
and msvcp140.dll of Windows lie beside it, too, and WINEDLLOVERRIDES name them. Types are not checked there.

--wheels asks the index whether each system and each Python has a wheel of everything that Trivet with its extras
requires, at its lowest and its newest. Every result goes to `studies/results/packages.md`, through `packages.json`, as
soon as it is known: a run replaces the columns of what it tries.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "studies" / "results" / "packages.json"
LOGS = ROOT / "build"
EXTRAS = ("train", "use", "export", "sweep")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = {
    "Linux, x86-64": "x86_64-unknown-linux-gnu",
    "Linux, ARM": "aarch64-unknown-linux-gnu",
    "macOS 14, ARM": "aarch64-apple-darwin",
    "Windows, x86-64": "x86_64-pc-windows-msvc",
}
MAC = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
SHOWN = ("torch", "numpy", "scipy", "torchvision", "lightning", "timm", "scikit-learn", "pyarrow", "pydantic", "onnx")

PHOTOS = """
from pathlib import Path
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
digits = load_digits()
for number in range(600):
    folder = Path("photos") / str(digits.target[number])
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray((15 * digits.images[number]).astype(np.uint8)).save(folder / f"{number}.png")
np.savez("vectors.npz", embeddings=digits.data, digit=digits.target)
"""

TYPED = """
from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import trivet
from trivet.samplers import CrossBatchMemory, PKBatches
from trivet.collapse import CollapseMonitor, Diagnosis, Event
from trivet.metrics import LevelResult, evaluate


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 4)

    def forward(self, rows: Tensor) -> Tensor:
        made: Tensor = self.last(rows)
        return made


def train(labels: Tensor) -> list[Event]:
    network, monitor = Network(), CollapseMonitor()
    loss: trivet.TripletLoss = trivet.TripletLoss(positives="easy", negatives="semihard", normalize=True)
    margin = trivet.MarginLoss(num_classes=8)
    memory = CrossBatchMemory(embedding_dim=4, size=256)
    optimizer = torch.optim.Adam([*network.parameters(), *margin.parameters()])
    events: list[Event] = []
    for batch in PKBatches(labels, num_classes=4, samples_per_class=4, seed=0):
        rows, classes = network(torch.randn(len(batch), 8)), labels[batch]
        value: Tensor = loss(rows, classes) + margin(rows, classes)
        optimizer.zero_grad()
        torch.autograd.backward([value])
        optimizer.step()
        memory.add(rows.detach(), classes, torch.tensor(batch))
        events += monitor.update(rows.detach(), classes)
    return events


def judge(points: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tuple[LevelResult, Diagnosis]:
    classes = np.arange(len(points)) % 8
    return evaluate(points, {"class": classes})["class"], trivet.collapse.diagnose(points, classes)


assert isinstance(train(torch.arange(64) % 8), list)
judge(np.random.default_rng(0).normal(size=(64, 4)))
triplets = trivet.mine(torch.randn(16, 4), torch.arange(16) % 4, positives="easy", negatives="hard")
anchor: Tensor = triplets.anchor
"""

ABOUT = """
import platform, sys
from importlib.metadata import distributions
versions = {one.name: one.version for one in distributions()}
named = (f"{name} {versions[name]}" for name in sys.argv[1:] if name in versions)
print(platform.system(), f"Python {platform.python_version()}", *named, sep=", ")
"""
ABOUTS = ("date", "versions")  # of an environment, beside its steps

COMMANDS = (
    "trivet --version",
    "trivet demo --force",
    "trivet init photos",
    "trivet train trivet.toml --output runs/photos",
    "trivet export runs/photos --to onnx -o exported",
    "trivet train vectors.npz --labels digit --minutes 1 --output runs/vectors",
    "trivet evaluate vectors.npz --labels digit --report page.html",
    "trivet diagnose vectors.npz --labels digit",
)


class StepError(Exception):
    """A step that did not end well: its command with the last lines it printed, and all of these."""

    def __init__(self, command: tuple[str | Path, ...], lines: list[str]) -> None:
        super().__init__(f"{' '.join(map(str, command[:3]))}: {' / '.join(lines[-3:])}")
        self.lines = lines


def run(*command: str | Path, folder: Path, bin: Path | None = None) -> str:
    path = f"{bin}{os.pathsep}{os.environ['PATH']}" if bin else os.environ["PATH"]
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "UV_LINK_MODE": "hardlink"} | MAC
    environment.pop("PYTHONPATH", None)
    made = subprocess.run(  # what runs in Wine writes Windows-1252
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, errors="replace", check=False
    )
    if made.returncode:
        raise StepError(command, (made.stdout + made.stderr).strip().splitlines())
    return made.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of what is committed; the wheel is built from the sdist, as an index would."""
    run("git", "archive", "--output", folder / "source.tar", "HEAD", folder=ROOT)
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(folder / "source", filter="data")
    run("uv", "build", "--out-dir", folder / "dist", folder / "source", folder=folder)
    run(
        "uv", "tool", "run", "--quiet", "twine", "check", "--strict", *(folder / "dist").glob("trivet-*"), folder=folder
    )
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def named_dependencies(extras: tuple[str, ...]) -> tuple[str, ...]:
    """What pyproject.toml asks for, with these extras; extras of its own apart."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    return tuple(one for one in named if not one.startswith("trivet["))


def named(python: str) -> str:
    """What results call this version or interpreter."""
    if python.endswith(".exe"):
        return f"{Path(python).parent.name} in Wine"
    path = Path(python)
    return run(python, "--version", folder=path.parent).split()[1].rpartition(".")[0] if path.exists() else python


def environment(folder: Path, python: str, resolution: str, wheel: Path, extras: tuple[str, ...]) -> Path:
    """The folder of programs of a new environment with the wheel and its extras."""
    wanted = f"trivet[{','.join(extras)}] @ {wheel.as_uri()}" if extras else f"trivet @ {wheel.as_uri()}"
    direct = named_dependencies(extras) if resolution == "lowest-direct" else ()  # else the wheel alone were direct
    options = ("--resolution", resolution, "--only-binary", ":all:")
    install = ("uv", "pip", "install", "--quiet", *options, wanted, *direct)
    if python.endswith(".exe"):
        beside = Path(python).parent / "site-packages"
        shutil.rmtree(beside, ignore_errors=True)
        version = run("wine", python, "--version", folder=folder.parent).split()[1].rpartition(".")[0]
        where = ("--python-platform", SYSTEMS["Windows, x86-64"], "--python-version", version)
        run(*install, *where, "--target", beside, folder=folder.parent)
        (paths,) = beside.parent.glob("python3*._pth")  # all of its sys.path
        paths.write_text(f"{paths.stem}.zip\n.\n{beside.name}\n")
        return beside
    run("uv", "venv", "--quiet", "--python", python, folder, folder=folder.parent)
    interpreter = ("--python", folder / "bin" / "python")
    run(*install, *interpreter, folder=folder.parent)
    run("uv", "pip", "check", *interpreter, folder=folder.parent)
    return folder / "bin"


def resolved(system: str, python: str, resolution: str) -> str:
    """The number of packages that Trivet with its extras requires there, or why they cannot be had as wheels."""
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    where = ("--python-platform", system, "--python-version", python, "--only-binary", ":all:")
    command = ("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", *where, "--resolution", resolution)
    try:
        lines = run(*command, *extras, "pyproject.toml", folder=ROOT).splitlines()
    except StepError as failure:
        return str(failure)
    (torch,) = (line.partition("==")[2] for line in lines if line.startswith("torch=="))
    return f"{len(lines)} wheels, torch {torch}"


def wheels() -> list[list[str]]:
    """The rows of a table of systems and Pythons."""
    rows = []
    for resolution in ("lowest-direct", "highest"):
        for name, system in SYSTEMS.items():
            entries = [resolved(system, python, resolution) for python in PYTHONS]
            rows.append([f"{name}, {resolution.partition('-')[0]}", *entries])
            print(*rows[-1], sep=" | ", flush=True)
    return rows


def tried(
    python: str, resolution: str, wheel: Path, sdist: Path, folder: Path, tests: bool
) -> Iterator[dict[str, str]]:
    """What became of each step, "passed" or what went wrong, and with what it was tried; again after each step."""
    work = folder / "work"
    work.mkdir()
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for name, text in {"example.py": example, "photos.py": PHOTOS, "typed.py": TYPED}.items():
        (work / name).write_text(text)
    windows = python.endswith(".exe")
    begins = {"python": ("wine", python), "trivet": ("wine", python, "-m", "trivet")} if windows else {}
    found: dict[str, str] = {"date": datetime.now(UTC).date().isoformat()}

    def step(name: str, *command: str | Path, bin: Path) -> dict[str, str]:
        begun = time.monotonic()
        program, *rest = command
        try:
            run(*begins.get(str(program), (program,)), *rest, folder=work, bin=bin)
            found[name] = "passed"
        except StepError as failure:
            found[name] = str(failure)
        print(f"{python} {resolution} {name}: {found[name]}, {time.monotonic() - begun:.0f} s", flush=True)
        return found

    alone = environment(folder / "alone", python, resolution, wheel, ())
    yield step("wheel alone: README", "python", "example.py", bin=alone)
    whole = environment(folder / "whole", python, resolution, wheel, EXTRAS)
    found["versions"] = run(*begins.get("python", ("python",)), "-c", ABOUT, *SHOWN, folder=work, bin=whole).strip()
    yield step("typed program", "python", "typed.py", bin=whole)
    if not windows:
        types = ("--python-executable", whole / "python")
        yield step("mypy --strict", "uv", "tool", "run", "--quiet", "mypy", "--strict", *types, "typed.py", bin=whole)
        types = ("--pythonpath", whole / "python")
        yield step("pyright", "uv", "tool", "run", "--quiet", "pyright", *types, "typed.py", bin=whole)
    run(*begins.get("python", ("python",)), "photos.py", folder=work, bin=whole)
    for command in COMMANDS:
        yield step(" ".join(command.split()[:3]), *command.split(), bin=whole)
    if tests:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = folder.glob("trivet-*")
        interpreter = ("--python", whole / "python")
        run("uv", "pip", "install", "--quiet", *interpreter, *named_dependencies(("dev",)), folder=folder)
        run("uv", "pip", "install", "--quiet", *interpreter, "--no-deps", "--editable", source, folder=folder)
        chosen = ("-q", "--numprocesses", "2", "--dist", "worksteal", "--timeout", "900", "-rfE", "tests")
        begun = time.monotonic()
        try:
            last = run("python", "-m", "pytest", *chosen, folder=source, bin=whole).strip().splitlines()[-1]
            found["tests"] = f"passed: {last}"
        except StepError as failure:
            LOGS.mkdir(exist_ok=True)
            (LOGS / f"tests-{Path(python).name}.log").write_text("\n".join(failure.lines) + "\n")
            failed = [line.partition(" - ")[0] for line in failure.lines if line.startswith(("FAILED ", "ERROR "))]
            found["tests"] = " / ".join([*failed, failure.lines[-1]])
        print(f"{python} {resolution} tests: {found['tests']}, {time.monotonic() - begun:.0f} s", flush=True)
        yield found


def table(first: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    lines = [[first, *columns]]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def write(**new: dict[str, Any]) -> None:
    """Put new results beside those of earlier runs, and all on a page."""
    results: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())
    for part, entries in new.items():
        results[part] |= entries
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    environments, wheels = results["environments"], results["wheels"]
    steps = list(dict.fromkeys(step for one in environments.values() for step in one if step not in ABOUTS))
    lines = [
        "# The packages in clean environments, and which systems have wheels",
        "",
        "Written by `tests/packages.py`. A step without an entry was not tried.",
        "",
        *table("step", environments, ([step, *(one.get(step, "") for one in environments.values())] for step in steps)),
        "",
        *(f"- {name}: on {one['date']}, {one.get('versions', 'nothing')}." for name, one in environments.items()),
        "",
        f"## Wheels of all that Trivet with its extras {', '.join(EXTRAS)} requires",
        "",
        f"Asked on {wheels['date']}; nothing was installed.",
        "",
        *table("system", PYTHONS, wheels["rows"]),
    ]
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, help="versions or interpreters")
    parser.add_argument("--wheels", action="store_true", help="ask the index alone")
    parser.add_argument("--resolutions", nargs="+", default=["lowest-direct", "highest"])
    parser.add_argument("--tests", action="store_true", help="run the suite of the sdist on its source, too")
    options = parser.parse_args()
    if shutil.which("uv") is None:
        parser.error("uv must be on the path: pip install uv")
    if options.wheels:
        write(wheels={"date": datetime.now(UTC).date().isoformat(), "rows": wheels()})
        return
    passed = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder)
        for number, (python, resolution) in enumerate(product(options.pythons, options.resolutions)):
            place = folder / f"{number}"
            place.mkdir()
            name = f"{named(python)}, {resolution.partition('-')[0]}"
            one: dict[str, str] = {}
            try:
                for one in tried(python, resolution, wheel, sdist, place, options.tests):
                    write(environments={name: one})
            except StepError as failure:
                one |= {"date": datetime.now(UTC).date().isoformat(), "installed": str(failure)}
                write(environments={name: one})
                print(f"{name}: {failure}", flush=True)
            passed &= all(value.startswith("passed") for step, value in one.items() if step not in ABOUTS)
            shutil.rmtree(place)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
