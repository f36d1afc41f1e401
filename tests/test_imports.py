"""Dependencies point one way, `import trivet` stays light, and files and classes stay of a size to be read."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.programs import Programs
from tests.sources import LIBRARY, SRC, files, library

SOURCE, PACKAGES = LIBRARY, SRC
ARCHITECTURE = runpy.run_path(str(SOURCE.parents[1] / "docs" / "make_architecture.py"))
LEVEL = {name: level for level, names in enumerate(ARCHITECTURE["LAYERS"]) for name in names}
LINES, METHODS = 600, 13
ATTRIBUTES = {"property", "lazy", "cached_property", "setter", "deleter"}  # decorators of what is no method to call


def test_imports_point_one_way() -> None:
    wrong = []
    for path, nodes in library().items():
        package = path.relative_to(SOURCE).parts[0]
        if package in ("__init__.py", "__main__.py"):
            continue
        assert package in LEVEL, f"{path} belongs to no layer of docs/make_architecture.py"
        for other in ARCHITECTURE["imports"](nodes, LEVEL) - {package}:
            if LEVEL[other] >= LEVEL[package]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {other}")
    assert wrong == [], "the layers are those of docs/make_architecture.py"


FRESH = """
import sys, torch
before = set(sys.modules)
import trivet
print(*sorted({name.split('.')[0] for name in set(sys.modules) - before if sys.modules[name] is not None
    and getattr(sys.modules[name], '__file__', '') and 'site-packages' in (sys.modules[name].__file__ or '')}))
"""


def test_import_needs_torch_and_numpy_only() -> None:
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) <= {"torch", "numpy", "trivet"}


def read_rooms(*rooms: str) -> None:
    """The program: read each of a library that has just been loaded."""
    for room in rooms:
        for name in [name for name in sys.modules if name.partition(".")[0] == "trivet"]:
            del sys.modules[name]
        trivet = import_module("trivet")
        assert f"trivet.{room}" not in sys.modules, room
        assert getattr(trivet, room) is sys.modules[f"trivet.{room}"], room
        assert not hasattr(trivet, f"{room}s_"), room


def test_a_room_is_loaded_when_it_is_read(programs: Programs, tmp_path: Path) -> None:
    rooms = ["samplers", "collapse", "metrics", "label_noise", "knn", "models"]
    run = programs.run("tests.test_imports:read_rooms", *rooms, folder=tmp_path)
    assert run.returncode == 0, run.stderr.decode()


def says_why(docstring: str) -> bool:
    """Whether a docstring gives a reason for the length of its file, in a sentence "One file, because ..."."""
    return re.search(r"\b[Oo]ne file,? because \w+ \w+ \w+", " ".join(docstring.split())) is not None


def callables(node: ast.ClassDef) -> set[str]:
    """The public methods of a class, whose attributes are no methods even where they are computed."""
    return {
        method.name
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and ATTRIBUTES.isdisjoint(ast.unparse(one).rpartition(".")[2] for one in method.decorator_list)
    }


def test_a_long_file_says_why_it_is_one() -> None:
    long = {
        str(path.relative_to(SOURCE)): lines
        for path, nodes in library().items()
        if (lines := len(path.read_text().splitlines())) > LINES and not says_why(ast.get_docstring(nodes[0]) or "")
    }
    assert long == {}, 'split them along their ideas, or say "One file, because ..." in the first docstring'


def test_a_class_has_few_public_methods() -> None:
    many = {
        f"{path.relative_to(SOURCE)}: {node.name}": sorted(callables(node))
        for path, nodes in library().items()
        for node in nodes
        if isinstance(node, ast.ClassDef) and len(callables(node)) > METHODS
    }
    assert many == {}, "take away what need not be public, or is another idea"


def test_the_library_never_imports_the_papers() -> None:
    sources = sorted(SOURCE.rglob("*.py"))
    imports = re.compile(r"^\s*(?:from|import)\s+trivet_papers\b", re.MULTILINE)
    assert [str(file) for file in sources if imports.search(file.read_text(encoding="utf-8"))] == []


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGES).with_suffix("").parts).removesuffix(".__init__")


def test_programs_beside_the_packages_import_what_is_there() -> None:
    """Studies and benchmarks run seldom: what they import of the library may be gone."""
    root, missing = SOURCE.parents[1], []
    programs = [
        path for folder in ("studies", "benchmarks", "examples", "docs") for path in (root / folder).glob("*.py")
    ]
    assert len(programs) > 50
    for path in programs:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (
                "trivet",
                "trivet_papers",
            ):
                module = import_module(node.module or "")
                missing += [
                    f"{path.name}: {node.module}.{each.name}"
                    for each in node.names
                    if not hasattr(module, each.name) and find_spec(f"{node.module}.{each.name}") is None
                ]
    assert not missing


def test_no_circle_of_imports_in_either_package() -> None:
    parsed = {module_of(file): nodes for file, nodes in files().items()}
    graph: dict[str, set[str]] = {}
    for name, nodes in parsed.items():
        used: set[str] = set()
        for node in nodes:
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                used |= {target if target in parsed else node.module for target in inner}
        graph[name] = (used & parsed.keys()) - {name}
    TopologicalSorter(graph).prepare()  # CycleError names the circle
