"""The site of the documents: its links, its reference, and the built pages in a browser without a network."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

import trivet

ROOT = Path(__file__).resolve().parents[1]
MAKE = runpy.run_path(str(ROOT / "docs" / "make_site.py"))
NAMED = MAKE["navigation"](tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])


@pytest.mark.parametrize(
    ("path", "link", "there"),
    [
        ("docs/data.md", "../SECURITY.md", "SECURITY.md"),
        ("docs/guides/texts.md", "../data.md#a", "../data.md#a"),
        ("docs/reproduce/README.md", "../reproduce.md", "../reproduce.md"),
        ("docs/collapse.md", "../examples/monitor_plain.py", "examples/monitor_plain.py.md"),
        ("docs/label_noise.md", "../benchmarks/results/a.md#b", "benchmarks/results/a.md#b"),
        ("benchmarks/results/core.md", "core.png", "core.png"),
        ("benchmarks/results/core.md", "../../docs/results.md", "../../results.md"),
        ("CONTRIBUTING.md", "docs/architecture.md", "architecture.md"),
        ("docs/data.md", "https://a.org/b.md", "https://a.org/b.md"),
        ("docs/data.md", "#levels", "#levels"),
    ],
)
def test_a_link_of_the_repository_leads_to_the_same_file_on_the_site(path: str, link: str, there: str) -> None:
    assert MAKE["relinked"](f"See [that]({link}).", path) == f"See [that]({there})."


def test_what_stands_in_code_is_no_link() -> None:
    text = "```python\nx[0](../a.md)\n```\n`[a](../b.md)` and [`c`](../SECURITY.md)\n"
    assert MAKE["links"](text) == ["../SECURITY.md"]


def test_a_page_is_called_by_its_title_and_code_in_tables_has_plain_bars() -> None:
    text = "[data.md](data.md#levels), [here](data.md)\n\n| `a\\|b` | c \\| d |\n"
    page = "[Data](data.md#levels), [here](data.md)\n\n| `a|b` | c \\| d |\n"
    assert MAKE["as_on_site"](text, "docs/search.md") == page


def test_files_that_pages_link_to_come_along_with_what_they_link_to() -> None:
    files = MAKE["site_files"](["docs/collapse.md", "docs/results.md"])
    assert files["collapse.md"].startswith("# ")
    assert files["examples/monitor_plain.py.md"].startswith("# `examples/monitor_plain.py`\n\n```python\n")
    assert "data.md" in files
    assert files["studies/results/robust_training.png"] == ROOT / "studies" / "results" / "robust_training.png"


def test_a_notebook_is_a_page_with_its_outputs() -> None:
    files = MAKE["site_files"](["docs/notebooks.md"])
    assert "(examples/texts.ipynb.md)" in files["notebooks.md"]
    page = files["examples/texts.ipynb.md"]
    assert page.startswith("# Texts\n")
    assert re.search(r"```python\nresult = .*?\n```\n\n```text\n256 items of 8 classes", page, re.DOTALL)
    assert "[how to run it](../notebooks.md)" in page


def test_a_link_that_leads_to_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("![A picture](no.png)\n")
    monkeypatch.setitem(MAKE["site_files"].__globals__, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"a\.md links to no\.png; correct"):
        MAKE["site_files"](["a.md"])


def test_every_module_with_public_names_is_in_the_reference() -> None:
    named = {Path(page).stem for page in NAMED if page.startswith("reference/")} - {"index"}
    rooms = {room for room in dir(trivet) if (ROOT / "src" / "trivet" / room / "__init__.py").exists()}
    internal = {"commands", "config", "distances", "io", "reports", "runtime"}
    assert {name.split(".")[0] for name in named} == rooms - internal
    assert all(find_spec(f"trivet.{name}") for name in named)


def test_every_name_of_trivet_is_in_the_reference() -> None:
    pages = MAKE["reference"]([Path(page).stem for page in NAMED if page.startswith("reference/")][1:])
    modules = [path.removeprefix("reference/").removesuffix(".md") for path in pages if "index" not in path]
    offered = {name for each in modules for name in getattr(import_module(f"trivet.{each}"), "__all__", ())}
    alone = set(trivet.__all__) - offered - {"__version__"}
    assert {"audit", "watch", "Watch", "Tags"} <= alone
    listed = [f"::: {getattr(trivet, name).__module__}.{name}\n" in pages["reference/index.md"] for name in alone]
    assert all(listed)


def test_a_comment_after_an_attribute_is_its_description() -> None:
    pytest.importorskip("griffe")
    made = runpy.run_path(str(ROOT / "docs" / "docstrings.py"))
    assert made["comment"]("values: Floats  # (Q, m) of each query") == "(Q, m) of each query."
    assert made["comment"]("items: int  # >= 2") == "\\>= 2."
    assert made["comment"]('name: str = "a # b"') == ""
    assert made["sections"]("One.\n\nExample:\n    >>> 1\n") == "One.\n\nExamples:\n    >>> 1\n"
    assert made["sections"]("One.\n\nArgs:\n    a, b: >= 2\n") == "One.\n\nArgs:\n    a, b: \\>= 2\n"
    assert made["sections"]("One.\n\nShape:\n    labels `(N,)`\n") == "One.\n\n**Shape.** labels `(N,)`\n"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the site is built from, and the site in build/site."""
    if not all(map(find_spec, ("zensical", "mkdocstrings"))):
        pytest.skip("the extra docs is not installed")
    folder = tmp_path_factory.mktemp("project")
    for name in ("src", "docs"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "zensical.toml", folder)
    MAKE["experiments"]()
    MAKE["write_pages"](folder / "build" / "pages")
    run = build(folder)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture
def site(project: Path) -> Path:
    return project / "build" / "site"


def test_a_link_to_a_part_that_is_missing_fails_the_build(project: Path) -> None:
    page = project / "build" / "pages" / "scale.md"
    text = page.read_text()
    page.write_text(f"{text}\n[that](data.md#no-such-part)\n[this](reference/losses.md#trivet.losses.NoLoss)\n")
    run = build(project)
    page.write_text(text)
    assert run.returncode != 0
    line = text.count("\n") + 2
    assert [f"scale.md:{number}:" in run.stderr + run.stdout for number in (line, line + 1)] == [True, True]


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    page = context.new_page()
    yield page
    page.close()


def test_search_works_from_files_and_asks_no_other_host(site: Path, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click(".md-search__button")
    page.get_by_role("combobox").fill("semihard")
    page.get_by_role("option").first.click()
    page.wait_for_url("**/reference/mining.html?*")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_no_page_is_wider_than_its_window(site: Path, page: Page) -> None:
    for path in ("index.html", "coming_from.html", "command_line.html", "guides/texts.html", "reference/losses.html"):
        page.goto((site / path).as_uri())
        for width in (390, 1300):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
