"""A browser for the tests of the page. Where there is none, the tests are skipped, and say why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from page_server import PageServer, page_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 20_000  # milliseconds: the machine may be busy
NAMES = ("chromium", "chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, for one module: a loop of Playwright's would be in the way of other modules' loops."""
    api = pytest.importorskip("playwright.sync_api", reason="the package playwright isn't installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine: `apt-get install chromium` brings it")
    api.expect.set_options(timeout=PATIENCE)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    """What the page talks to."""
    with page_server() as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: PageServer) -> Iterator[Page]:
    """An empty page. At the end it must have had no error, and no violation of its security policy."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    yield page
    page.close()
    # A server that is away, or that refuses, is what some tests are about.
    unexpected = [error for error in errors if not error.startswith("Failed to load resource: ")]
    assert unexpected == [], "the browser's console has errors"


@pytest.fixture(scope="session")
def recorded() -> dict[str, list[Any]]:
    """States of the reference engine on the real model, by scene."""
    states: dict[str, list[Any]] = json.loads((Path(__file__).parent / "states.json").read_text())
    return states
