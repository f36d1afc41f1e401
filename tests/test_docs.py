"""The documents say what the code does."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
from pathlib import Path

import pytest

import trivet

ROOT = Path(__file__).resolve().parents[1]


def test_settings_are_those_of_the_code() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))["settings"]()
    assert (ROOT / "docs" / "settings.md").read_text() == made, "run .venv/bin/python docs/make_settings.py"
    rows = [line.split("|") for line in made.splitlines() if line.startswith("| `")]
    undescribed = [row[1].strip() for row in rows if not row[4].strip() and row[1].strip() != "`name`"]
    assert undescribed == []


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(code, {"__name__": "__main__"})
    assert re.fullmatch(r"loss \d\.\d{3}, active \d+ %, dropped \{.*\}\n", capsys.readouterr().out)


def test_every_strategy_and_loss_is_described() -> None:
    text = (ROOT / "docs" / "strategies.md").read_text()
    for name, rule in [*trivet.mining.POSITIVES.items(), *trivet.mining.NEGATIVES.items()]:
        assert f"| `{name}`, `{rule.__name__}" in text
    for name, loss in trivet.losses.LOSSES.items():
        assert f"| `{loss.__name__}`, `{name}` |" in text


@pytest.mark.parametrize("page", ["data.md", "collapse_method.md", "coming_from.md"])
def test_tables_are_those_of_the_code(page: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["page"](page)
    assert (ROOT / "docs" / page).read_text() == made, "run .venv/bin/python docs/make_tables.py"


@pytest.mark.parametrize(
    ("program", "page"),
    [
        ("make_commands.py", "docs/command_line.md"),
        ("make_json.py", "docs/json.md"),
        ("make_llms.py", "docs/llms.txt"),
        ("make_experiments.py", "src/trivet_papers/experiments.json"),
    ],
)
def test_what_is_written_from_the_code_is_that_of_the_code(program: str, page: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / program))["page"]()
    assert (ROOT / page).read_text() == made, f"run .venv/bin/python docs/{program}"


def test_the_pictures_of_the_packages_are_drawn_from_the_imports_and_the_page() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))
    assert made["PICTURE"].read_text() == made["picture"](), "run .venv/bin/python docs/make_architecture.py"
    assert made["WAYS"].read_text() == made["picture_of_ways"](), "run .venv/bin/python docs/make_architecture.py"


def test_each_way_of_the_architecture_visits_a_package_once() -> None:
    ways = runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))["ways"]()
    assert len(ways) == 3
    for title, packages in ways.items():
        assert len(packages) >= 5, title
        assert len(set(packages)) == len(packages), title


def test_files_named_by_the_architecture_exist() -> None:
    named = re.findall(r"`(\w+/[\w/]+\.py)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 20
    missing = [path for path in named if not (ROOT / "src" / "trivet" / path).is_file() and not (ROOT / path).is_file()]
    assert missing == []


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md")),
]
PAGES += [str(p.relative_to(ROOT)) for p in ROOT.glob("docs/guides/*.md")]


FILES = ("toml", "schema")  # `trivet.toml` is no module
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"(?<![\w./-])trivet(?:_papers)?(?:\.\w+)+")


def named(text: str) -> set[str]:
    """The modules, classes and functions of the program that a page names in its sentences and Python."""
    names = {name for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)) for name in PATH.findall(code)}
    for kind, block in BLOCK.findall(text):
        for node in ast.walk(ast.parse(block)) if kind == "python" else ():
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("trivet"):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Attribute) and PATH.fullmatch(ast.unparse(node)):
                names.add(ast.unparse(node))
    return {name for name in names if name.split(".")[1] not in FILES}


def resolve(path: str) -> object:
    """The module, class, function or attribute of this path; AttributeError if there is none."""
    package, *names = path.split(".")
    found: object = importlib.import_module(package)
    for number, name in enumerate(names, start=1):
        module = ".".join([package, *names[:number]])
        if not hasattr(found, name) and importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_program_exist(page: str) -> None:
    for path in sorted(named((ROOT / page).read_text())):
        resolve(path)


def test_names_that_do_not_exist_are_found() -> None:
    text = "`trivet.losses.Nothing` in `trivet.toml`\n```python\nfrom trivet.samplers import PKBatches, Other\n```\n"
    assert named(text) == {"trivet.losses.Nothing", "trivet.samplers.PKBatches", "trivet.samplers.Other"}
    assert resolve("trivet.samplers.PKBatches") is trivet.samplers.PKBatches
    with pytest.raises(AttributeError):
        resolve("trivet.losses.Nothing")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", (ROOT / page).read_text()):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads], anchor


@pytest.mark.parametrize("page", ["json.md", "search.md", "hard_negatives.md"])
def test_keys_of_json_are_words_of_the_code(page: str) -> None:
    words = {word for path in (ROOT / "src").rglob("*.py") for word in re.findall(r"\b[\w+@.-]+", path.read_text())}
    code = "\n".join(words)
    blocks = [block for kind, block in BLOCK.findall((ROOT / "docs" / page).read_text()) if not kind]
    keys = {key for block in blocks for key in re.findall(r'"([\w+@.-]+)"', block)}
    assert len(keys) > 10
    assert [key for key in sorted(keys) if not re.search(rf"\b{re.escape(key.partition('+_')[0])}", code)] == []
