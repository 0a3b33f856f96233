"""How requests look on the page, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from made_states import MadeEngine, crowd
from page_server import PageServer
from page_steps import expect
from test_page_access import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest_plugins = ("page_fixtures",)


def test_64_requests_all_look_different(browser: Browser, server: PageServer) -> None:
    server.setup |= {"pages": 1024, "seats": 64}
    engine = crowd(3, 64, seats=64, pages=1024, budget=4096)
    server.show(engine.state())
    with page_of(browser, server) as page:
        expect(page.get_by_role("option")).to_have_count(64)
        looks = page.locator("#requests .swatch").evaluate_all("all => all.map(each => each.className)")
        assert len(set(looks)) == 64
        before = dict(zip(range(1, 65), looks, strict=True))
        engine.requests[0].state = "finished"
        engine.add(20, 4)
        engine.step()
        server.show(engine.state())
        expect(page.get_by_role("option")).to_have_count(65)
        again = page.get_by_role("option", name="Request 40:").locator(".swatch").get_attribute("class")
        assert again == before[40], "a request keeps its look"


def test_numbers_stand_in_the_pages_where_there_is_room_and_patterns_where_there_is_not(
    browser: Browser, server: PageServer
) -> None:
    image = "getComputedStyle(document.querySelectorAll('#pages .owned.pat-1')[0]).backgroundImage"
    label = "getComputedStyle(document.querySelectorAll('#pages .owned.pat-1')[0], '::before').content"
    found = {}
    for pages in (96, 1024):
        engine: MadeEngine = crowd(3, pages=pages)
        server.setup["pages"] = pages
        server.show(engine.state())
        with page_of(browser, server) as page:
            expect(page.locator("#pages .owned").first).to_be_visible()
            found[pages] = (page.evaluate(image) != "none", page.evaluate(label))
    assert found == {96: (False, '"2"'), 1024: (True, "none")}
