"""The promises of SECURITY.md: each names tests that exist, and what a reading of the code can show of them."""

from __future__ import annotations

import ast
import contextlib
import pickle
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from tests import sources

from trivet.io.read_embeddings import read_vectors
from trivet.models.store import load_model
from trivet.training.checkpoint import read_checkpoint

ROOT = Path(__file__).resolve().parents[1]
POLICY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
UNPICKLE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
RUN = {"eval", "exec", "compile", "execfile", "__import__", "torch.jit.load", "torch.hub.load"}
PROGRAMS = {"subprocess", "pty", "ctypes", "multiprocessing", "webbrowser"}
STARTS = re.compile(r"os\.(system|popen|exec\w*|spawn\w*|posix_spawn\w*|fork\w*|startfile)")
UNPACK = re.compile(r"(.*\.)?(extract|extractall|unpack_archive|download_and_extract_archive|extract_archive)")


def used(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.Call | None]]:
    """What a file imports, and the dotted names that it calls, each with the call."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", None
            yield from ((f"{node.module}.{alias.name}", None) for alias in node.names)
        elif isinstance(node, ast.Call):
            yield dotted(node.func), node


def dotted(node: ast.expr) -> str:
    """The name of what is called, such as `os.open`; without what is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@cache
def files() -> dict[str, list[tuple[str, ast.Call | None]]]:
    """What each file of the library uses."""
    return {path.relative_to(ROOT).as_posix(): list(used(nodes)) for path, nodes in sources.files().items()}


def found(wrong: re.Pattern[str] | set[str]) -> list[str]:
    """Where something of that name is imported or called."""
    return [
        f"{path}: {name}"
        for path, names in files().items()
        for name, _ in names
        if (wrong.fullmatch(name) if isinstance(wrong, re.Pattern) else name in wrong or name.split(".")[0] in wrong)
    ]


@cache
def functions(file: str) -> set[str]:
    """The names of the functions of a file of tests."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_tests_that_exist() -> None:
    promised = POLICY[POLICY.index("## What is promised") : POLICY.index("## What is not")]
    parts = re.split(r"^\*\*", promised, flags=re.MULTILINE)[1:]
    assert len(parts) >= 7
    for part in parts:
        tests = re.findall(r"^- `(tests/[\w/]+\.py)::(\w+)`$", part, flags=re.MULTILINE)
        assert tests, part
        assert len(tests) == part.count("::"), part
        for file, name in tests:
            assert name in functions(file), f"{file} has no {name}"


def test_the_policy_is_linked_and_packed() -> None:
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](../SECURITY.md)" in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert "include SECURITY.md" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()


def test_nothing_in_the_code_unpickles_or_runs_a_text() -> None:
    assert found(UNPICKLE) == []
    assert found(RUN) == []
    for loaders, option, value in (
        ({"np.load", "numpy.load"}, "allow_pickle", "False"),
        ({"torch.load"}, "weights_only", "True"),
    ):
        loads = [(path, call) for path, names in files().items() for name, call in names if name in loaders]
        assert loads
        for path, call in loads:
            assert call is not None
            assert {one.arg: ast.unparse(one.value) for one in call.keywords}.get(option) == value, path
    runs = re.compile(r".*\.exec_module")
    assert {one.partition(":")[0] for one in found(runs)} == {"src/trivet/config/plugins.py"}  # code that settings name


def test_nothing_in_the_code_starts_a_program() -> None:
    locks = "src/trivet/io/file_locks.py"  # which calls Windows by ctypes, as Python itself has no such lock
    assert {one.partition(":")[0] for one in found(PROGRAMS)} == {locks}
    assert {one for one in found(PROGRAMS) if "ctypes" not in one} == set()
    assert re.findall(r"WinDLL\((.*?)[,)]", (ROOT / locks).read_text()) == ['"kernel32"']
    called = [ast.unparse(call.args[0]) for name, call in files()[locks] if name == "_function" and call is not None]
    assert called == ["'CreateFileW'", "'LockFileEx'", "'UnlockFileEx'"]
    assert found(STARTS) == []


def test_nothing_in_the_code_unpacks_an_archive() -> None:
    assert found(UNPACK) == []


def test_a_checkpoint_or_model_that_is_a_pickle_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "sprung",)

    trap = pickle.dumps(Trap())
    pickle.loads(trap)
    (tmp_path / "sprung").unlink()  # it works
    for name in ("step-00000004.safetensors", "model.safetensors"):
        (tmp_path / name).write_bytes(trap)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ValueError, match="must be a complete checkpoint"):
        read_checkpoint(tmp_path / "step-00000004.safetensors")
    with pytest.raises(ValueError, match="model"):
        load_model(tmp_path)
    for name in ("points.npy", "points.npz", "points.parquet"):
        (tmp_path / name).write_bytes(trap)
        with pytest.raises(ValueError, match="points"):
            read_vectors(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)
    np.savez(folder / "points.npz", embeddings=np.eye(4), label=np.array(list("aabb")))
    with zipfile.ZipFile(folder / "points.npz") as archive:
        label = archive.read("label.npy")
    with zipfile.ZipFile(folder / "points.npz", "a") as archive:
        for name in ("../outside.npy", "/tmp/trivet-outside.npy", "../../outside.npy"):
            archive.writestr(name, label)
    before = set(tmp_path.rglob("*"))
    assert read_vectors(folder / "points.npz", levels=["label"]).labels["label"].tolist() == list("aabb")
    assert set(tmp_path.rglob("*")) == before
    assert not Path("/tmp/trivet-outside.npy").exists()


@pytest.mark.parametrize(
    ("extra", "package", "holes"),
    [
        ("train", "torch", ["2.9.1"]),
        ("train", "pillow", ["10.2.0"]),
        ("use", "pillow", ["10.2.0"]),
        ("train", "scikit-learn", ["1.4.2"]),
        ("train", "jinja2", ["3.1.5"]),
        ("text", "sentence-transformers", ["3.0.0", "5.7.0"]),
        ("dev", "lightning", ["2.6.2", "2.6.3"]),
    ],
)
def test_no_version_with_a_known_hole_is_allowed(extra: str, package: str, holes: list[str]) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [requirements.Requirement(line) for line in project["optional-dependencies"][extra]]
    (allowed,) = (one.specifier for one in listed if one.name == package)
    assert not [version for version in holes if allowed.contains(version)]
    with contextlib.suppress(metadata.PackageNotFoundError):
        assert allowed.contains(metadata.version(package))
