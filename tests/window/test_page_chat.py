"""The page's left side, in a real browser: the chat, its settings, its documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from made_states import crowd
from page_server import PageServer
from page_steps import expect

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, Page

pytest_plugins = ("page_fixtures",)

CHAT = "/v1/chat/completions"
HOSTILE = "<img src=x onerror=\"document.title='hurt'\"><b>bold</b>"


def file(name: str, content: bytes, kind: str = "text/plain") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": content}


def ask(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def test_an_answer_streams_and_ends_with_its_usage(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "Name three fruits.")
    answer = page.locator(".message.model")
    expect(answer.locator(".text")).to_have_text("Apples, pears and plums.")
    expect(answer.locator(".usage")).to_contain_text("34 prompt tokens, 32 of them cached · 5 output tokens")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    [body] = server.bodies(CHAT)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["model"] == server.setup["model"]
    assert body["messages"][-1] == {"role": "user", "content": "Name three fruits."}
    assert "documents" not in body
    assert "seed" not in body, "a field that is left empty isn't sent"


def test_the_next_question_brings_the_history_and_a_new_chat_does_not(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    ask(page, "Name three fruits.")
    expect(page.locator(".message .usage").first).to_contain_text("cached")
    ask(page, "And one more?")
    expect(page.locator(".message .usage").nth(1)).to_contain_text("cached")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".message")).to_have_count(0)
    ask(page, "Hello.")
    expect(page.locator(".message .usage").first).to_contain_text("cached")
    roles = [[each["role"] for each in body["messages"]] for body in server.bodies(CHAT)]
    assert roles == [["system", "user"], ["system", "user", "assistant", "user"], ["system", "user"]]


def test_stop_ends_the_answer_and_the_connection(page: Page, server: PageServer) -> None:
    server.endless = True
    page.goto(server.url)
    ask(page, "Count without end.")
    expect(page.locator(".message.model .text")).to_contain_text("Apples")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".message.model .usage")).to_contain_text("stopped by you")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert server.stopped.wait(20), "the page must close the connection of an answer that is stopped"


def test_markup_of_users_models_and_requests_stays_text(page: Page, server: PageServer) -> None:
    server.words = [HOSTILE]
    engine = crowd(3)
    engine.requests[0].label = engine.requests[0].text = HOSTILE
    server.show(engine.state())
    page.goto(server.url)
    page.get_by_role("option").first.click()
    page.set_input_files("#files", [file(f"{HOSTILE}.md".replace("/", ""), b"text")])
    ask(page, HOSTILE)
    expect(page.locator(".message.user .text")).to_have_text(HOSTILE)
    expect(page.locator(".message.model .text")).to_have_text(HOSTILE)
    expect(page.get_by_role("option").first).to_contain_text(HOSTILE)
    expect(page.locator(".file")).to_contain_text("<img")
    assert page.locator("img").count() == 0
    assert page.title() != "hurt"


def test_settings_and_system_prompt_are_sent(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_text("Settings").click()
    for name, value in {"System prompt": "Be short.", "Temperature": "0.7", "Top-p": "0.9"}.items():
        page.get_by_label(name).fill(value)
    page.get_by_label("Max tokens").fill("12")
    page.get_by_label("Seed").fill("7")
    ask(page, "Hello.")
    expect(page.locator(".usage")).to_contain_text("cached")
    [body] = server.bodies(CHAT)
    sent = {name: body[name] for name in ("temperature", "top_p", "max_tokens", "seed")}
    assert sent == {"temperature": 0.7, "top_p": 0.9, "max_tokens": 12, "seed": 7}
    assert body["messages"][0] == {"role": "system", "content": "Be short."}


def test_settings_out_of_range_are_not_sent(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.get_by_text("Settings").click()
    page.get_by_label("Temperature").fill("3")
    ask(page, "Hello.")
    expect(page.get_by_label("Temperature")).to_be_focused()
    assert page.get_by_label("Your message").input_value() == "Hello."
    assert server.bodies(CHAT) == []


def test_documents_are_sent_until_they_are_removed(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    page.set_input_files(
        "#files", [file("one.md", b"# One", "text/markdown"), file("two.txt", "zwölf".encode())]
    )
    ask(page, "What do they say?")
    expect(page.locator(".usage")).to_contain_text("cached")
    page.get_by_role("button", name="Remove one.md").click()
    ask(page, "And now?")
    expect(page.locator(".usage").nth(1)).to_contain_text("cached")
    assert [body["documents"] for body in server.bodies(CHAT)] == [["# One", "zwölf"], ["zwölf"]]


def test_a_dropped_file_becomes_a_document(page: Page, server: PageServer) -> None:
    page.goto(server.url)
    expect(page.locator("#chat")).to_be_visible()
    page.evaluate(
        """() => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["dropped text"], "dropped.txt", { type: "text/plain" }));
            document.querySelector("#messages").parentElement.dispatchEvent(
                new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator(".file")).to_have_text("dropped.txt")
    ask(page, "What does it say?")
    expect(page.locator(".usage")).to_contain_text("cached")
    assert server.bodies(CHAT)[0]["documents"] == ["dropped text"]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (("photo.png", b"\x89PNG", "image/png"), "no text or Markdown file"),
        (("large.txt", b"x" * 65_537, "text/plain"), "larger than 64 KiB"),
        (("latin.txt", b"\xe9t\xe9", "text/plain"), "no UTF-8 text"),
        (("blank.md", b" \n", "text/markdown"), "it is empty"),
    ],
)
def test_files_that_are_no_text_are_refused_with_the_reason(
    page: Page, server: PageServer, refused: tuple[str, bytes, str], reason: str
) -> None:
    page.goto(server.url)
    page.set_input_files("#files", [file(*refused), file("good.txt", b"text")])
    expect(page.get_by_role("alert")).to_contain_text(f"{refused[0]}: ")
    expect(page.get_by_role("alert")).to_contain_text(reason)
    expect(page.locator(".file")).to_have_text(["good.txt"])


def test_a_refusal_is_shown_and_the_question_comes_back(page: Page, server: PageServer) -> None:
    server.refusal = (429, "The queue is full.")
    page.goto(server.url)
    ask(page, "Hello.")
    expect(page.get_by_role("alert")).to_have_text("The queue is full. Try again in 3 s.")
    expect(page.get_by_label("Your message")).to_have_value("Hello.")
    expect(page.locator(".message")).to_have_count(0)


def test_the_key_goes_with_every_post_and_is_kept_nowhere(page: Page, server: PageServer) -> None:
    server.setup["needs_key"] = True
    page.goto(server.url)
    page.get_by_label("API key").fill("secret-key")
    ask(page, "Hello.")
    expect(page.locator(".usage")).to_contain_text("cached")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Shared prefix").click()
    expect(page.locator("#scene-news")).to_contain_text("Started")
    assert [key for _, _, key in server.posted] == ["Bearer secret-key"] * 3
    kept = page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert "secret-key" not in kept


def test_without_a_need_there_is_no_field_for_a_key_or_documents(page: Page, server: PageServer) -> None:
    server.setup["documents"] = False
    page.goto(server.url)
    expect(page.get_by_label("Your message")).to_be_visible()
    expect(page.get_by_label("API key")).to_be_hidden()
    expect(page.get_by_role("button", name="Add documents")).to_be_hidden()


def test_an_answer_names_its_request_and_chooses_it(page: Page, server: PageServer) -> None:
    engine = crowd(2)
    server.show(engine.state())
    page.goto(server.url)
    expect(page.get_by_role("option").first).to_be_visible()
    ask(page, "Name three fruits.")  # the crowd has asked that, too, but before
    expect(page.locator(".usage")).to_contain_text("cached")
    engine.add(30, 5, "Name three fruits.")
    engine.step()
    server.show(engine.state())
    page.get_by_role("button", name="request 17").click()
    expect(page.locator("#details .chosen-name b")).to_have_text("17")


def test_without_a_chat_the_requests_and_their_texts_are_shown(page: Page, server: PageServer) -> None:
    server.setup["chat"] = False
    server.show(crowd(12).state())
    page.goto(server.url)
    expect(page.get_by_role("heading", name="Requests and answers")).to_be_visible()
    expect(page.get_by_label("Your message")).to_be_hidden()
    card = page.locator("#answers > li").nth(1)
    expect(card).to_contain_text("What is the capital of France?")
    expect(card).to_contain_text("the page holds keys")
    card.get_by_role("button").click()
    expect(page.locator("#details .chosen-name b")).to_have_text("2")
