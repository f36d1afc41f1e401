"""Names are words of the field, a class name is defined once, and a docstring begins with a noun or a verb."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest
from tests import sources

Nodes = tuple[ast.AST, ...]
EVERYDAY = frozenset(
    [
        "told",
        "tell",
        "said",
        "say",
        "found",
        "shown",
        "seen",
        "asked",
        "ask",
        "given",
        "held",
        "kept",
        "look",
        "looks",
        "beside",
        "apart",
        "own",
        "one",
        "ones",
        "whole",
        "part",
        "parts",
        "place",
        "places",
        "thing",
    ]
)
VAGUE = frozenset(["What", "Whether", "Of", "For", "Who", "How", "Which", "Where", "When", "Why"])


@pytest.fixture(scope="module")
def files() -> dict[str, Nodes]:
    return {path.relative_to(sources.SRC).as_posix(): nodes for path, nodes in sources.files().items()}


def words(name: str) -> set[str]:
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_"))


def bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that a file binds: functions, classes, parameters, variables, attributes of objects."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def test_names_are_words_of_the_field(files: dict[str, Nodes]) -> None:
    everyday = {
        file: names
        for file, nodes in files.items()
        if (names := sorted(n for n in set(bound(nodes)) if words(n) & EVERYDAY))
    }
    everyday |= {file: [file] for file in files if any(words(p) & EVERYDAY for p in re.split(r"[/.]", file))}
    assert everyday == {}, "say what a textbook, scikit-learn or PyTorch would say"


def test_the_sweep_sees_every_kind_of_name() -> None:
    code = (
        "import a as kept\nclass Told: pass\ndef seen(given, *own, **whole): found = held.part = 1\n"
        "try: pass\nexcept E as said: pass\nmatch x:\n    case [*one]: pass\n    case {'a': place}: pass\n"
        "lambda beside: 0\n[0 for apart in x]\n"
    )
    names = {
        "kept",
        "Told",
        "seen",
        "given",
        "own",
        "whole",
        "found",
        "part",
        "said",
        "one",
        "place",
        "beside",
        "apart",
    }
    assert set(bound(ast.walk(ast.parse(code)))) == names
    assert words("_toldApart_one") == {"", "told", "apart", "one"}


def test_a_class_name_is_defined_once(files: dict[str, Nodes]) -> None:
    places = defaultdict(list)
    for file, nodes in files.items():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("package", ["trivet", "trivet_papers"])
def test_docstrings_begin_with_a_noun_or_a_verb(package: str, files: dict[str, Nodes]) -> None:
    vague = [
        f"{file}: {text.splitlines()[0]}"
        for file, nodes in files.items()
        if file.split("/")[0] == package
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and text.split(maxsplit=1)[0].rstrip(",:") in VAGUE
    ]
    assert vague == []


def test_each_entry_of_args_is_names_and_a_description(files: dict[str, Nodes]) -> None:
    """The reference cannot be built of others."""
    entry = re.compile(r"\*{0,2}\w+(, \*{0,2}\w+)*:($| )")
    wrong = []
    for path, nodes in files.items():
        for node in nodes:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            for section in re.findall(r"^Args:\n((?: {4}.*\n|\n)*)", (ast.get_docstring(node) or "") + "\n", re.M):
                lines = [line[4:] for line in section.splitlines() if line.startswith("    ") and line[4:5] != " "]
                wrong += [f"{path}: {node.name}: {line}" for line in lines if not entry.match(line)]
    assert wrong == []
