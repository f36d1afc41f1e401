"""A browser for the tests of all pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from watched import Watched

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module", autouse=True)
def _maps_are_short(short_maps: None) -> None:
    """Nearly every page has one."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[[Path], Watched]]:
    """Opens a page, which is closed after the test."""
    opened: list[Watched] = []

    def open_page(path: Path) -> Watched:
        opened.append(Watched(browser, path))
        return opened[-1]

    yield open_page
    for watched in opened:
        watched.page.close()
