"""The page's right side, in a real browser: what is drawn of the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from made_states import crowd, prefix, too_few_pages
from page_server import PageServer
from page_steps import expect, opened

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest_plugins = ("page_fixtures",)


def test_an_engine_without_requests_says_what_to_do(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    expect(page.get_by_text("No request yet: send a message or start an example.")).to_be_visible()


@pytest.mark.parametrize("name", ["crowd", "prefix", "pages", "documents"])
def test_every_example_is_started_by_its_button(page: Page, server: PageServer, name: str) -> None:
    page.goto(server.url)
    page.locator(f"[data-scene={name}]").click()
    expect(page.locator("#scene-news")).to_contain_text("Started.")
    assert server.bodies("/window/scene") == [{"name": name}]


def test_an_example_that_still_runs_is_said(page: Page, server: PageServer) -> None:
    server.scene_runs = True
    page.goto(server.url)
    page.get_by_role("button", name="Shared prefix").click()
    expect(page.locator("#scene-news")).to_have_text("An example still runs: wait until it has ended.")


def test_the_bar_has_prompts_before_decodes_and_marks_the_budget(page: Page, server: PageServer) -> None:
    state = crowd(4).state()
    state["batch"] = [
        {"request": 1, "tokens": 1, "start": 30, "found": 0, "decode": True},
        {"request": 2, "tokens": 128, "start": 32, "found": 32, "decode": False},
        {"request": 3, "tokens": 1, "start": 40, "found": 0, "decode": True},
    ]
    opened(page, server, state)
    text = "Step 4: 130 tokens of the budget of 256; 128 of prompts, 2 of decodes"
    expect(page.locator("#step-line")).to_have_text(text)
    expect(page.locator("#bar")).to_have_attribute("aria-label", text)
    kinds = page.locator("#bar .part").evaluate_all("parts => parts.map(part => part.classList[1])")
    assert kinds == ["prompt", "decode", "decode"]
    width = page.locator("#bar").evaluate("bar => bar.clientWidth")
    assert page.locator("#bar .part").first.evaluate("part => part.offsetWidth") == pytest.approx(
        width / 2, abs=3
    )
    expect(page.locator("#prompt-parts")).to_contain_text("32 to 160, 32 found in the tree")
    expect(page.locator("#decode-parts button")).to_have_count(2)
    expect(page.locator("#budget-text")).to_have_text("budget 256")


def test_pages_show_owners_sharing_caching_and_room(page: Page, server: PageServer) -> None:
    state = prefix(6).state()
    state["pages"]["cached"] = [200, 201]
    opened(page, server, state)
    owned = {each for request in state["requests"] for each in request["pages"]}
    assert page.locator("#pages .cell").count() == 256
    assert page.locator("#pages .owned").count() == len(owned)
    assert page.locator("#pages .shared").count() == len(state["pages"]["shared"]) > 0
    assert page.locator("#pages .cached").count() == 2
    expect(page.locator("#pages-line")).to_contain_text(
        f"{len(owned)} held · {len(state['pages']['shared'])} of them"
    )
    assert page.locator(".grid .cell").nth(state["pages"]["shared"][0] - 1).get_attribute("data-tag") == "1"


def test_a_request_is_chosen_by_keyboard_and_shown_everywhere(page: Page, server: PageServer) -> None:
    state = prefix(8).state()
    opened(page, server, state)
    page.get_by_role("listbox", name="Requests").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    request = state["requests"][2]
    expect(page.get_by_role("option", selected=True)).to_contain_text(request["label"])
    expect(page.locator("#pages .mine")).to_have_count(len(request["pages"]))
    expect(page.locator("#tree .mine")).not_to_have_count(0)
    details = page.locator("#details")
    expect(details).to_contain_text(request["text"])
    expect(details.locator("rect.found")).to_have_count(1)
    expect(details.locator("rect:not(.found)")).to_have_count(len(request["chunks"]))
    expect(details).to_contain_text(f"{request['waited']:.2f} s")
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()


def test_a_page_is_looked_at_by_keyboard_and_chooses_its_owner(page: Page, server: PageServer) -> None:
    state = prefix(8).state()
    opened(page, server, state)
    grid = page.get_by_role("slider", name="Look at a page")
    grid.focus()
    page.keyboard.press("ArrowRight")
    expect(grid).to_have_attribute(
        "aria-valuetext", "Page 2: held by 10 requests: 1, 2, 3, 4, 5, 6, 7, 8 and 2 more"
    )
    page.keyboard.press("Enter")
    expect(page.locator("#details .chosen-name b")).to_have_text("1")
    page.keyboard.press("Enter")  # a shared page: the next one of its requests
    expect(page.locator("#details .chosen-name b")).to_have_text("2")
    page.keyboard.press("End")
    expect(grid).to_have_attribute("aria-valuetext", "Page 256: free")


def test_preemptions_are_said_in_words(page: Page, server: PageServer) -> None:
    server.setup |= {"pages": 48, "seats": 8}
    state = too_few_pages(30).state()
    opened(page, server, state)
    waiting = next(each for each in state["requests"] if each["state"] == "preempted")
    option = page.get_by_role("option", name=f"Request {waiting['request']}:")
    expect(option).to_contain_text("preempted")
    option.click()
    expect(page.locator("#details")).to_contain_text(f"{waiting['preemptions']} times")


def test_the_tree_has_a_line_for_pages_that_the_same_requests_hold(page: Page, server: PageServer) -> None:
    opened(page, server, prefix(8).state())
    rows = page.locator("#tree li")
    expect(rows.first).to_contain_text("6 pages, 1 to 6")
    expect(rows.first).to_contain_text("Level 1:")
    expect(rows.nth(1)).to_contain_text("Level 2:")


def test_lines_of_the_tree_begin_where_they_differ(page: Page, server: PageServer) -> None:
    state = prefix(8).state()
    texts = ("system\nuser\nName three fruits.", "system\nuser\nName two nuts.")
    nodes = [{"page": 7 + 93 * place, "parent": 0, "tokens": 16, "held": 1} for place in range(2)]
    state["tree"] = [{**node, "text": text} for node, text in zip(nodes, texts, strict=True)]
    opened(page, server, state)
    expect(page.locator("#tree q")).to_have_text(["…three fruits.", "…two nuts."])
    expect(page.locator("#tree q").first).to_have_attribute("title", texts[0])


@pytest.mark.parametrize("scene", ["crowd", "prefix", "pages", "documents"])
def test_recorded_states_of_the_engine_are_drawn(
    page: Page, server: PageServer, recorded: dict[str, list[Any]], scene: str
) -> None:
    server.setup |= {"pages": 96, "seats": 8}
    page.goto(server.url)
    for state in recorded[scene]:
        server.show(state)
        expect(page.get_by_role("option")).to_have_count(len(state["requests"]))
        total = sum(part["tokens"] for part in state["batch"])
        expect(page.locator("#step-line")).to_contain_text(
            f"Step {state['step']}: {total}" if total else "step"
        )
        owned = {each for request in state["requests"] for each in request["pages"]}
        expect(page.locator("#pages .owned")).to_have_count(len(owned))


def test_only_what_has_changed_is_drawn_anew(page: Page, server: PageServer) -> None:
    server.setup |= {"pages": 1024, "seats": 64}
    engine = crowd(12, 64, seats=64, pages=1024, budget=512)
    state = engine.state()
    opened(page, server, state)
    page.wait_for_timeout(200)
    page.evaluate(
        """() => {
            window.changes = [];
            const name = each => each.target.id || each.target.className;
            new MutationObserver(all => window.changes.push(...all.map(name)))
                .observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
        }"""
    )
    changed = {**state, "rate": [*state["rate"][:-1], 777]}
    server.show(state)
    server.show(changed)
    expect(page.locator("#rate-most")).to_contain_text("777")
    assert len(page.evaluate("window.changes")) < 20, page.evaluate("window.changes")


def test_the_page_says_that_the_server_is_away_and_connects_again(page: Page, server: PageServer) -> None:
    opened(page, server, crowd(4).state())
    expect(page.locator("#link")).to_have_text("Connected")
    server.stop()
    expect(page.locator("#link")).to_have_text("The server doesn't answer; trying again…")
    engine = crowd(9, 3)
    server.show(engine.state())
    server.start(server.port)
    expect(page.locator("#link")).to_have_text("Connected")
    expect(page.get_by_role("option")).to_have_count(3)
