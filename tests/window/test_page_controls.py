"""The page's controls, in a real browser: the buttons and keys for pause, one step, slow motion, play."""

from __future__ import annotations

from typing import TYPE_CHECKING

from made_states import crowd
from page_server import PageServer
from page_steps import expect, opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest_plugins = ("page_fixtures",)

CONTROL = "/window/control"


def modes(server: PageServer, page: Page, count: int) -> list[str]:
    """What was posted, as soon as so many bodies are there."""
    for _ in range(200):
        if len(server.bodies(CONTROL)) >= count:
            break
        page.wait_for_timeout(50)
    return [body["mode"] for body in server.bodies(CONTROL)]


def test_the_buttons_post_their_modes(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    for name in ("Pause", "One step", "Slow motion", "Play"):
        page.get_by_role("button", name=name, exact=True).click()
    assert modes(server, page, 4) == ["pause", "step", "slow", "play"]
    expect(page.get_by_role("button", name="Play", exact=True)).to_have_attribute("aria-pressed", "true")


def test_the_keys_do_the_same(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    expect(page.locator("#mode-news")).to_have_text("Running")
    for count, (key, words) in enumerate(
        [
            ("Space", "Paused after step 4"),
            (".", "Paused after step 4"),
            ("s", "Slow motion"),
            ("Space", "Paused"),
            ("Space", "Running"),
        ]
    ):
        page.keyboard.press(key)
        modes(server, page, count + 1)
        expect(page.locator("#mode-news")).to_contain_text(words)
    assert modes(server, page, 5) == ["pause", "step", "slow", "pause", "play"]


def test_a_click_on_a_button_leaves_the_space_bar_free(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    page.get_by_role("button", name="Shared prefix").click()
    expect(page.locator("#scene-news")).to_contain_text("Started")
    page.keyboard.press("Space")
    assert modes(server, page, 1) == ["pause"]
    assert len(server.bodies("/window/scene")) == 1


def test_a_button_with_the_focus_is_pressed_by_space_and_nothing_else_happens(
    page: Page, server: PageServer
) -> None:
    opened(page, server, crowd(4).state())
    page.get_by_role("button", name="Slow motion").focus()
    page.keyboard.press("Space")
    assert modes(server, page, 1) == ["slow"]
    page.wait_for_timeout(200)
    assert modes(server, page, 1) == ["slow"]


def test_the_keys_are_letters_while_one_types(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    page.get_by_label("Your message").press_sequentially("s. s")
    expect(page.get_by_label("Your message")).to_have_value("s. s")
    page.get_by_label("Your message").blur()
    page.keyboard.press("Space")
    assert modes(server, page, 1) == ["pause"], "only the key that was pressed outside the text counts"


def test_the_keys_can_be_turned_off(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    page.get_by_text("Keys", exact=True).click()
    page.get_by_label("Use these keys").uncheck()
    page.get_by_label("Use these keys").blur()
    page.keyboard.press(".")
    page.get_by_role("button", name="Play", exact=True).click()
    assert modes(server, page, 1) == ["play"]
