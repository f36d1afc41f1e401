"""For all tests: what they share, and that commands print the same in any terminal."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import settings
from tests.programs import Programs

from trivet.runtime import progress

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext
    from tests.watched import Watched

FEW = 500
PROGRAMS, SMALL_PROGRAMS = pytest.StashKey[Programs](), pytest.StashKey[Programs]()
# It makes a system of the process that imports it.
collect_ignore = ["pretended_windows"]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

settings.register_profile("nightly", max_examples=1000)  # of 100


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives to the end: looking through it for garbage, again and again, takes a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # libraries clear up after themselves at the very end


def pytest_sessionstart(session: pytest.Session) -> None:
    """Small programs are forked from what is there before the tests are loaded, and with them torch."""
    session.config.stash[SMALL_PROGRAMS] = Programs()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[object]:
    """Other programs are forked from what is there before the first test."""
    if any("programs" in getattr(item, "fixturenames", ()) for item in session.items):
        import_module("torch._dynamo")  # optimizers load it at their first use
        session.config.stash[PROGRAMS] = Programs()
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for key in (PROGRAMS, SMALL_PROGRAMS):
        if (programs := session.config.stash.get(key, None)) is not None:
            programs.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process names tests alike: by no address in its memory."""
    named = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named:
        raise pytest.UsageError(f"a test must have the same name in each process: got {named[0]!r}; give ids.")


def seed(name: str) -> None:
    """Make what the libraries draw without a seed depend on this name, and not on the tests before."""
    number = crc32(name.encode())
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(number)  # `torch.manual_seed` takes a millisecond without a GPU


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    seed(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed(item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """No test cuts the power, and files are written by the thousand: each would wait some milliseconds for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written into the home folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIVET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def no_terminal() -> Iterator[None]:
    """Parallel test processes pass on a width, at which printed sentences would break."""
    with pytest.MonkeyPatch.context() as patch:  # of its own: the fixture's order of undoing is that of the tests
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(scope="module")
def short_maps() -> Iterator[None]:
    """The maps of pages are of PCA alone: t-SNE takes half a second, and as long as two pages to load."""
    from trivet.commands import displayed_items  # loads torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(displayed_items, "_t_sne", lambda points, _seed: displayed_items._plane(points))
        yield


@pytest.fixture(scope="module")
def few_pairs() -> Iterator[None]:
    """Intervals rest on the pairs of 100 items, drawn once, not of 600: for tests of what is beyond doubt."""
    from trivet.metrics import sampling_variance  # loads torch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_variance, "LIMIT", 100)
        patch.setattr(sampling_variance, "DRAWS", 1)
        yield


@pytest.fixture(scope="module")
def few_permutations() -> Iterator[None]:
    """What comes by chance rests on 300 permutations, not on 2,000: likewise."""
    from trivet.collapse import relation_chance, significance

    with pytest.MonkeyPatch.context() as patch:
        for module in (relation_chance, significance):
            patch.setattr(module, "PERMUTATIONS", 300)
        yield


@pytest.fixture(scope="module")
def rough_evaluation(short_maps: None, few_pairs: None, few_permutations: None) -> Iterator[None]:
    """What the evaluation of a run repeats, it repeats a few times: batches of the strategy, pairs of intervals, maps.

    Few items are ranked, and judged by their labels.
    For tests that need a whole run and look at none of these; most of a short run's time is its evaluation.
    """
    from trivet.collapse import measures
    from trivet.commands.diagnose import causes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "sampling", partial(measures.sampling, batches=4))
        patch.setattr(measures, "RANKED", 100)
        patch.setattr(causes, "JUDGED", 100)
        yield


@contextmanager
def without_verdicts() -> Iterator[None]:
    """Runs are measured and not diagnosed, which takes half of the time of an evaluation: for tests of other things."""
    from trivet.commands.evaluate import trained_model
    from trivet.reports.diagnosis_record import DiagnosisSection

    blank = SimpleNamespace(section=lambda **_: DiagnosisSection())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained_model, "diagnose_input", lambda *_, **__: blank)
        patch.setattr(trained_model, "name_causes", lambda *_: None)
        patch.setattr(trained_model, "embedding_sizes", lambda *_, **__: None)
        yield


@pytest.fixture(scope="module")
def undiagnosed(rough_evaluation: None) -> Iterator[None]:
    with without_verdicts():
        yield


@pytest.fixture(scope="module")
def digits_read_once() -> Iterator[None]:
    """For modules that load the digits again and again."""
    from sklearn import datasets  # takes a second to load

    whole = datasets.load_digits()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_digits", lambda: whole)
        yield


@pytest.fixture(scope="module")
def few_digits(rough_evaluation: None) -> Iterator[None]:
    """The first 500 digits stand for all: most of a short run's time is the evaluation of its 1,148 held-out digits."""
    from sklearn import datasets  # takes a second to load

    whole = datasets.load_digits()
    few = type(whole)(images=whole.images[:FEW], target=whole.target[:FEW])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load_digits", lambda: few)
        yield


@contextmanager
def without_evaluation() -> Iterator[None]:
    """Runs end with their model: their evaluation takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "trivet.commands.train.run.write_evaluation",
            lambda run, record, *_, **__: run.write_record(record) or record,
        )
        yield


@pytest.fixture
def unevaluated() -> Iterator[None]:
    with without_evaluation():
        yield


@pytest.fixture
def heard() -> Iterator[list[tuple[str, float, float]]]:
    """What the work of a test says of its progress: (title, parts done, parts in all), 0 where nothing is counted."""
    said: list[tuple[str, float, float]] = []

    class Heard(progress.ProgressLine):
        def work(self, title: str, total: float = 0, done: float = 0) -> AbstractContextManager[None]:
            said.append((title, done, total))
            return super().work(title, total, done)

        def report(self, title: str, done: float, total: float, note: str = "") -> None:
            super().report(title, done, total, note)
            said.append((title, done, total))

    token = progress._current.set(Heard())
    yield said
    progress._current.reset(token)


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    """Runs a function in a process of its own, in which torch is loaded."""
    return pytestconfig.stash[PROGRAMS]


@pytest.fixture(scope="session")
def small_programs(pytestconfig: pytest.Config) -> Programs:
    """Runs a function in a process of its own, in which little is loaded."""
    return pytestconfig.stash[SMALL_PROGRAMS]


@pytest.fixture(scope="session")
def crews(tmp_path_factory: pytest.TempPathFactory, worker_id: str, programs: Programs) -> Path:
    """The folder of what several processes wrote: they run once, also where xdist shares the tests out."""
    from filelock import FileLock
    from tests.mining.crew import start  # loads torch

    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "crews"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            start(programs, folder)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright  # here: few tests open a page

    with sync_playwright() as playwright:
        # One process draws all pages: to start another, and one in reserve, takes longer than to load a page.
        arguments = ["--no-sandbox", "--disable-gpu", "--process-per-site", "--renderer-process-limit=1"]
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield found
        found.close()


@pytest.fixture(scope="session")
def context(browser: Browser) -> BrowserContext:
    """The one of all pages that are watched, for the same reason; the process lives as long as one of them is open."""
    found = browser.new_context(viewport={"width": 1200, "height": 900})
    found.new_page().goto(Path(__file__).as_uri())
    return found


@pytest.fixture
def watch(context: BrowserContext) -> Iterator[Callable[[Path], Watched]]:
    """Opens a page, which is closed after the test, and with it what it stored; no text of a plot was read as HTML."""
    from tests.watched import Watched  # here: few tests open a page

    opened: list[Watched] = []

    def open_page(path: Path) -> Watched:
        opened.append(Watched(context, path))
        return opened[-1]

    yield open_page
    for watched in opened:
        assert watched.page.locator(".plot svg a, .plot svg tspan[style*=bold]").count() == 0
        watched.page.evaluate("localStorage.clear()")
        watched.page.close()
