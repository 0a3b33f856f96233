"""The page for everybody, in a real browser: keyboard, names of controls, small screens, dark, quiet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from made_states import crowd, prefix
from page_server import PageServer
from page_steps import expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest_plugins = ("page_fixtures",)

NAMED = {"button", "checkbox", "image", "link", "listbox", "option", "slider", "spinbutton", "textbox"}
ORDER = [
    "Skip to the engine",
    "New chat",
    "Messages",
    "Add documents",
    "Your message",
    "Send",
    "Settings",
    "Play",
    "Pause",
    "One step",
    "Slow motion",
    "Keys",
    "16 prompts at once",
    "Shared prefix",
    "Too few pages",
    "Documents",
    "Requests",
    "Look at a page",
]
LONG = "unbreakable" * 60


@contextmanager
def page_of(browser: Browser, server: PageServer, **options: Any) -> Iterator[Page]:
    """The page in a window with these options, when it has drawn the first state."""
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.goto(server.url)
        expect(page.locator("#link")).to_have_text("Connected")
        yield page


def names(page: Page, roles: set[str]) -> list[tuple[str, str]]:
    """Role and name of what assistive technology finds on the page."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree["nodes"]
        if not node["ignored"] and "role" in node
    ]
    return [(role, name) for role, name in found if role in roles]


def name_of_focus(page: Page) -> str:
    text: str = page.evaluate(
        """() => {
            const at = document.activeElement;
            const by = at.getAttribute("aria-labelledby");
            const label = by ? document.getElementById(by) : at.labels?.[0];
            return (at.getAttribute("aria-label") ?? (label ?? at).textContent).trim();
        }"""
    )
    return text


def test_the_tab_key_goes_through_everything_in_the_order_of_reading(page: Page, server: PageServer) -> None:
    server.show({**crowd(1).state(), "batch": []})
    page.goto(server.url)
    page.get_by_label("Your message").fill("Hello.")
    page.keyboard.press("Enter")
    expect(page.locator(".usage")).to_contain_text("cached")
    page.evaluate("document.activeElement.blur()")
    page.locator("h1").click()
    found = []
    for _ in range(len(ORDER) + 8):
        page.keyboard.press("Tab")
        found.append(name_of_focus(page))
    places = [
        next((place for place, name in enumerate(found) if name.startswith(each)), None) for each in ORDER[1:]
    ]
    assert None not in places, f"not every control can be reached: {found}"
    assert places == sorted(place for place in places if place is not None), found


def test_the_skip_link_comes_first_and_leads_to_the_engine(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    expect(page.get_by_label("Your message")).to_be_visible()
    page.keyboard.press("Tab")
    assert name_of_focus(page) == ORDER[0]
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert name_of_focus(page) == "Play"


@pytest.mark.parametrize("chat", [True, False])
def test_every_control_has_a_name(page: Page, server: PageServer, chat: bool) -> None:
    server.setup |= {"chat": chat, "needs_key": True}
    server.show(prefix(8).state())
    page.goto(server.url)
    page.get_by_role("option").first.click()
    if chat:
        page.get_by_text("Settings").click()
        page.set_input_files("#files", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"})
        expect(page.locator(".file")).to_have_text("a.txt")
    found = names(page, NAMED)
    assert len(found) > 20
    assert [role for role, name in found if not name.strip()] == []
    headings = [name for role, name in names(page, {"heading"}) if role == "heading"]
    assert {"tiny-llm", "The engine at work", "This step", "Requests", "Pages", "Tree"} <= set(headings)


def test_an_answer_is_announced_once_and_not_word_by_word(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.evaluate(
        """() => {
            window.said = [];
            const live = document.querySelectorAll("[role=status], [role=alert], [aria-live=polite]");
            for (const each of live) {
                new MutationObserver(() => window.said.push(each.textContent)).observe(each, {childList: true});
            }
        }"""
    )
    page.get_by_label("Your message").fill("Hello.")
    page.keyboard.press("Enter")
    expect(page.locator(".usage")).to_contain_text("cached")
    said = [text.strip() for text in page.evaluate("window.said") if text.strip() not in ("", "Connected")]
    assert said == ["The model answers.", "Answer: Apples, pears and plums."]
    assert page.locator("#messages").get_attribute("aria-live") == "off"


def test_playing_steps_are_not_announced(page: Page, server: PageServer) -> None:
    engine = crowd(2)
    server.show(engine.state())
    page.goto(server.url)
    expect(page.locator("#mode-news")).to_have_text("Running")
    page.evaluate(
        """() => {
            window.said = [];
            for (const each of document.querySelectorAll("[role=status], [role=alert]")) {
                const note = () => window.said.push(each.textContent);
                new MutationObserver(note).observe(each, {childList: true, subtree: true, characterData: true});
            }
        }"""
    )
    for _ in range(5):
        engine.step()
        server.show(engine.state())
        expect(page.locator("#step-line")).to_contain_text(f"Step {engine.step_number}:")
    assert page.evaluate("window.said") == []


@pytest.mark.parametrize("width", [360, 768, 1024, 1280, 1920])
def test_nothing_is_wider_than_the_window(browser: Browser, server: PageServer, width: int) -> None:
    engine = prefix(8)
    engine.requests[0].label = engine.requests[0].text = LONG
    engine.tree[0]["text"] = LONG
    server.setup |= {"model": LONG, "needs_key": True}
    server.words = [LONG]
    server.show(engine.state())
    with page_of(browser, server, viewport={"width": width, "height": 800}) as page:
        wide = "[document.documentElement.scrollWidth, document.querySelector('.left:not([hidden])').scrollWidth]"
        page.get_by_label("Your message").fill(LONG)
        page.keyboard.press("Enter")
        expect(page.locator(".usage")).to_contain_text("cached")
        page.get_by_text("Settings").click()
        assert max(page.evaluate(wide)) <= width
        if width <= 820:
            page.get_by_role("button", name="Engine", exact=True).click()
        page.get_by_role("option").first.click()
        expect(page.locator("#details")).to_be_visible()
        assert max(page.evaluate(wide)) <= width


def test_on_a_phone_chat_and_engine_are_two_views(browser: Browser, server: PageServer) -> None:
    server.show(crowd(4).state())
    with page_of(browser, server, viewport={"width": 360, "height": 740}) as page:
        expect(page.get_by_label("Your message")).to_be_visible()
        expect(page.locator("#engine")).to_be_hidden()
        page.get_by_role("button", name="Engine", exact=True).click()
        expect(page.get_by_label("Your message")).to_be_hidden()
        expect(page.get_by_role("button", name="Pause")).to_be_in_viewport()
        expect(page.get_by_role("button", name="Engine", exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )


def test_the_page_follows_the_system_into_the_dark(browser: Browser, server: PageServer) -> None:
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    found = {}
    for scheme in ("light", "dark"):
        with page_of(browser, server, color_scheme=scheme) as page:
            found[scheme] = page.evaluate(colours)
    assert found["light"][0] != found["dark"][0]
    assert found["light"][1] != found["dark"][1]


def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, server: PageServer) -> None:
    server.endless = True
    beat = "getComputedStyle(document.querySelector('.busy .text'), '::after').animationName"
    found = {}
    for motion in ("reduce", "no-preference"):
        with page_of(browser, server, reduced_motion=motion) as page:
            page.get_by_label("Your message").fill("Hello.")
            page.keyboard.press("Enter")
            expect(page.locator(".busy .text")).to_contain_text("Apples")
            found[motion] = page.evaluate(beat)
            assert motion != "reduce" or page.evaluate("document.getAnimations().length") == 0
    assert found == {"reduce": "none", "no-preference": "beat"}
