"""The window's addresses: the page with its headers, and what other pages and bad bodies get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from toys import Letters, requests, toy_core, toy_llm

from tiny_llm.server.app import make_app
from tiny_llm.server.settings import Settings
from window import files
from window.gate import Mode
from window.routes import Setup, Window, add_window, llm_window
from window.scenes import Scene, SceneRunning
from window.watched import WatchedCore

BASE = "http://127.0.0.1:8765"


class Stage:
    """A director that notes what it is told."""

    scenes: Sequence[Scene] = (Scene("one", "One", "The first."), Scene("two", "Two", "The second."))

    def __init__(self) -> None:
        self.started: list[str] = []
        self.error: Exception | None = None
        self.closed = False

    def start(self, name: str) -> None:
        if self.error is not None:
            raise self.error
        self.started.append(name)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def director() -> Stage:
    return Stage()


@pytest.fixture
def window(director: Stage) -> Window:
    return Window(
        WatchedCore(toy_core("ragged"), Mode.PAUSE),
        Setup("toy", "S6 ragged", 6, 64, 16, 16),
        director,
        Letters(),
    )


@pytest.fixture
def client(window: Window) -> Iterator[TestClient]:
    app = FastAPI()
    add_window(app, window)
    with TestClient(app, BASE) as made:
        yield made


def test_the_page_has_the_policy_that_forbids_scripts_and_styles_of_others(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"


def test_every_file_of_the_page_is_there_with_its_type(client: TestClient) -> None:
    page = client.get("/").text
    named = set(re.findall(r'(?:src|href)="/window/([^"]+)"', page))
    assert named
    assert named <= files.names()
    for name in files.names():
        answer = client.get(f"/window/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == files.TYPES[Path(name).suffix]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == (files.FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "..%2froutes.py", "%2e%2e%2froutes.py", "..%5croutes.py", "%2fetc%2fpasswd", "app.js%00", "."],
)  # fmt: skip
def test_no_other_file_can_be_had(client: TestClient, name: str) -> None:
    assert client.get(f"/window/{name}").status_code == 404


def test_the_setup_says_what_the_engine_is(client: TestClient) -> None:
    assert client.get("/window/setup").json() == {
        "model": "toy",
        "chat": False,
        "stage": "S6 ragged",
        "documents": False,
        "seats": 6,
        "pages": 64,
        "page_size": 16,
        "token_budget": 16,
        "scenes": [
            {"name": "one", "title": "One", "about": "The first."},
            {"name": "two", "title": "Two", "about": "The second."},
        ],
        "needs_key": False,
    }


@pytest.mark.parametrize("mode", ["play", "slow", "pause"])
def test_the_mode_can_be_changed(client: TestClient, window: Window, mode: str) -> None:
    answer = client.post("/window/control", json={"mode": mode})
    assert (answer.status_code, answer.json()) == (200, {"mode": mode})
    assert window.watched.gate.mode == mode


def test_one_step_pauses_and_grants_a_step_where_there_is_one_to_make(
    client: TestClient, window: Window
) -> None:
    gate = window.watched.gate
    gate.set(Mode.PLAY)
    assert client.post("/window/control", json={"mode": "step"}).json() == {"mode": "pause"}
    assert not gate.wait(0), "a step was granted, and no request was there; a later one would have made it"
    window.watched.push(requests(1)[0])
    assert client.post("/window/control", json={"mode": "step"}).json() == {"mode": "pause"}
    assert [gate.wait(0), gate.wait(0)] == [True, False]


@pytest.mark.parametrize(
    "body", [{}, {"mode": "stop"}, {"mode": None}, {"mode": "play", "x": 1}, [], "play", {"mode": ["play"]}]
)
@pytest.mark.parametrize("address", ["/window/control", "/window/scene"])
def test_a_bad_body_is_refused(client: TestClient, window: Window, address: str, body: Any) -> None:
    answer = client.post(address, json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][0] == "body"
    assert window.watched.gate.mode is Mode.PAUSE


def test_a_body_that_is_no_json_is_refused(client: TestClient) -> None:
    for content in (b"", b"{", b"\xff"):
        answer = client.post("/window/control", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), content


def test_a_scene_is_started(client: TestClient, director: Stage) -> None:
    answer = client.post("/window/scene", json={"name": "two"})
    assert (answer.status_code, director.started) == (202, ["two"])


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (SceneRunning(), 409, "another scene runs"),
        (ValueError("the queue is full"), 503, "the queue is full"),
    ],
)
def test_a_scene_that_cant_start_says_why(
    client: TestClient, director: Stage, error: Exception, status: int, text: str
) -> None:
    director.error = error
    answer = client.post("/window/scene", json={"name": "one"})
    assert answer.status_code == status
    assert text in answer.json()["detail"]


def test_a_scene_that_is_not_there_is_not_started(client: TestClient, director: Stage) -> None:
    answer = client.post("/window/scene", json={"name": "three"})
    assert (answer.status_code, director.started) == (404, [])
    assert "'three'" in answer.json()["detail"]


OTHERS = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:8766"},
    {"Origin": "https://127.0.0.1:8765"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": BASE, "Sec-Fetch-Site": "cross-site"},
)


@pytest.mark.parametrize("headers", OTHERS)
def test_pages_of_other_origins_can_change_nothing_and_see_nothing(
    client: TestClient, window: Window, director: Stage, headers: dict[str, str]
) -> None:
    answers = [
        client.post("/window/control", json={"mode": "play"}, headers=headers),
        client.post("/window/scene", json={"name": "one"}, headers=headers),
        client.get("/window/setup", headers=headers),
        client.get("/window/events", headers=headers),
    ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert (window.watched.gate.mode, director.started) == (Mode.PAUSE, [])


@pytest.mark.parametrize("headers", [{}, {"Origin": BASE}, {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}])
def test_the_windows_own_page_and_programs_may_act(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/window/control", json={"mode": "slow"}, headers=headers).status_code == 200


def test_a_window_that_is_closed_ends_its_scene_its_streams_and_every_pause(
    client: TestClient, window: Window, director: Stage
) -> None:
    window.close()
    assert director.closed
    assert window.watched.gate.wait(0)
    answer = client.get("/window/events")
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_in_a_server_with_a_key_the_page_is_open_and_the_engine_is_not() -> None:
    with toy_llm() as llm:
        app = make_app(llm, Settings("toy", api_key="secret"))
        window = llm_window(llm, "toy", needs_key=True)
        add_window(app, window)
        with TestClient(app, BASE) as client:
            assert client.get("/").status_code == 200
            for name in files.names():
                assert client.get(f"/window/{name}").status_code == 200
            setup = client.get("/window/setup").json()
            assert (setup["needs_key"], setup["chat"], setup["documents"]) == (True, True, True)
            assert [each["name"] for each in setup["scenes"]] == ["crowd", "prefix", "pages", "documents"]
            assert client.get("/window/events").status_code == 401
            control = {"json": {"mode": "pause"}}
            assert client.post("/window/control", **control).status_code == 401  # type: ignore[arg-type]
            key = {"Authorization": "Bearer secret"}
            assert client.post("/window/control", headers=key, **control).status_code == 200  # type: ignore[arg-type]
            bad = client.post("/window/control", headers=key, json={"mode": "stop"})
            assert bad.status_code == 400
            assert "mode" in bad.json()["error"]["message"]
            window.let_end()
