"""What the tests of the page do again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from page_server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page


def expect(found: Any) -> Any:
    """Playwright's, imported only where a browser runs: elsewhere the tests are left out."""
    from playwright.sync_api import expect

    return expect(found)


def opened(page: Page, server: PageServer, state: Any) -> None:
    """Show a state, and wait until the page has drawn it."""
    server.show(state)
    page.goto(server.url)
    expect(page.get_by_role("option")).to_have_count(len(state["requests"]))
