"""Who may call the server, how much a client may send, and what each response carries."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from http_site import HELLO, NAME, Site
from test_http_requests import error_of
from week_3.patience import limit

from coursekit.check import check_raises
from tiny_llm.server import guard
from tiny_llm.server.settings import Settings, is_loopback

KEY = "k\u00e9y of the test"
BODY = {"model": NAME, "prompt": "a", "max_tokens": 1}
ASKED = json.dumps(BODY).encode()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(Settings(NAME, max_body=10_000)) as started:
        yield started


@pytest.fixture(scope="module")
def locked() -> Iterator[Site]:
    with Site(Settings(NAME, api_key=KEY, cors=("https://friend.example",))) as started:
        yield started


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "", "127.0.0.1.example.org"])
def test_other_machines_need_a_key_unless_they_are_allowed_by_name(host: str) -> None:
    check_raises(ValueError, lambda: Settings(host=host), match="set an API key")
    assert not Settings(host=host, api_key="secret").local
    assert not Settings(host=host, allow_open=True).local


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "a.localhost", "::1", "[::1]"]
)
def test_this_machine_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).local


@pytest.mark.parametrize("field", [{"api_key": ""}, {"api_key": "  "}, {"model_name": ""}, {"max_body": 0}])
def test_settings_that_are_a_mistake_are_refused(field: dict[str, Any]) -> None:
    check_raises(ValueError, lambda: Settings(**field))


def with_key(value: bytes) -> dict[bytes, bytes]:
    return {b"Authorization": value, b"Content-Type": b"application/json"}


def test_a_key_opens_what_no_key_and_no_other_key_opens(locked: Site) -> None:
    with locked.client() as client:
        right = with_key(b"Bearer " + KEY.encode())
        answer = client.post("/v1/completions", content=ASKED, headers=right)
        assert answer.status_code == 200, answer.text
        for wrong in (b"", b"Bearer", KEY.encode(), b"Bearer x", b"Basic " + KEY.encode()):
            error = error_of(client.post("/v1/completions", content=ASKED, headers=with_key(wrong)), 401)
            assert error["code"] == "invalid_api_key"
        error_of(client.post("/v1/completions", content=ASKED), 401)


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/completions", "/metrics", "/openapi.json", "/nothing", "/"]
)
def test_nothing_but_the_state_can_be_seen_without_the_key(locked: Site, path: str) -> None:
    with locked.client() as client:
        answer = client.get(path)
        error_of(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == client.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:1234", 200),
        ("[::1]:8000", 200),
        ("app.localhost:8000", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8000", 403),
        ("evil.example#localhost", 403),
        ("192.168.1.7", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(site: Site, host: str, status: int) -> None:
    with site.client() as client:
        answer = client.get("/v1/models", headers={"Host": host})
        if status == 200:
            assert answer.status_code == 200, answer.text
        else:
            error_of(answer, status)


def test_elsewhere_than_on_loopback_any_name_is_right() -> None:
    with Site(Settings(NAME, host="0.0.0.0", api_key="k")) as site, site.client() as client:
        headers = {"Host": "my-server.example", "Authorization": "Bearer k"}
        assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8000"}, 200),  # the host of these requests
        ({"Origin": "https://localhost:8000"}, 403),
        ({"Origin": "http://localhost:8001"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),  # a link on another page
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),  # an image on another page
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
    ],
)
def test_only_the_servers_own_pages_may_call_from_a_browser(
    site: Site, headers: dict[str, str], status: int
) -> None:
    with site.client() as client:
        answer = client.get("/v1/models", headers={"Host": "localhost:8000", **headers})
        assert answer.status_code == status, answer.text


def test_a_form_on_another_page_can_not_ask_anything(site: Site) -> None:
    headers = {"Host": "localhost:8000", "Content-Type": "text/plain"}
    browsers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    with site.client() as client:
        for more in ({"Origin": "http://evil.example"}, {"Origin": "null"}, browsers):
            error_of(client.post("/v1/completions", content=ASKED, headers={**headers, **more}), 403)


def test_an_origin_that_is_allowed_may_call_and_others_may_not(locked: Site) -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    with locked.client() as client:
        friend = {"Origin": "https://friend.example"}
        answer = client.options("/v1/completions", headers={**friend, **preflight})
        assert answer.status_code == 200, "a browser asks without the key whether it may send one"
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        headers = with_key(b"Bearer " + KEY.encode()) | {b"Origin": b"https://friend.example"}
        answer = client.post("/v1/completions", content=ASKED, headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        error_of(client.get("/v1/models", headers=friend), 401)
        other = {"Origin": "https://friend.example.evil.example"}
        assert client.options("/v1/completions", headers={**other, **preflight}).status_code == 400
        assert "access-control-allow-origin" not in client.get("/v1/models", headers=other).headers
        error_of(client.get("/v1/models", headers=other), 403)


def test_every_origin_can_be_allowed() -> None:
    with Site(Settings(NAME, cors=("*",))) as site, site.client() as client:
        answer = client.get("/v1/models", headers={"Origin": "https://any.example"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")


def padded(length: int) -> bytes:
    """A body that is right, with spaces up to a length."""
    return ASKED[:-1] + b" " * (length - len(ASKED)) + b"}"


def test_a_body_may_have_the_limit_and_not_a_byte_more(site: Site) -> None:
    assert site.post("/v1/completions", padded(10_000)).status_code == 200
    error = error_of(site.post("/v1/completions", padded(10_001)), 413)
    assert "10000 bytes" in error["message"]


def test_a_body_whose_length_nobody_tells_is_counted_while_it_is_read(site: Site) -> None:
    def pieces(count: int) -> Iterator[bytes]:
        whole = padded(count)
        for start in range(0, count, 777):
            yield whole[start : start + 777]

    headers = {"Content-Type": "application/json"}
    with site.client() as client:
        answer = client.post("/v1/completions", content=pieces(10_000), headers=headers)
        assert "content-length" not in answer.request.headers
        assert answer.status_code == 200
        error_of(client.post("/v1/completions", content=pieces(10_001), headers=headers), 413)


def test_a_client_that_sends_50_megabytes_hears_why_they_were_refused(site: Site) -> None:
    error_of(site.post("/v1/completions", b" " * 50_000_000), 413)


def test_a_body_beyond_all_measure_is_refused_unread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "READ_ON", 20_000)
    port = int(site.url.rpartition(":")[2])
    for more in (b"Content-Length: 20001", b"Content-Length: 10001\r\nExpect: 100-continue"):
        with socket.create_connection(("127.0.0.1", port), limit()) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                + more
                + b"\r\n\r\n"
            )
            assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_every_response_carries_what_keeps_browsers_careful(site: Site) -> None:
    streamed = site.post("/v1/completions", {**BODY, "stream": True})
    with site.client() as client:
        for answer in (
            client.get("/v1/models"),
            client.get("/nothing"),
            client.get("/v1/models", headers={"Origin": "http://evil.example"}),
            site.post("/v1/completions", b"{"),
            streamed,
        ):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert "server" not in answer.headers


def test_a_route_may_have_a_policy_and_an_open_address_of_its_own() -> None:
    from fastapi.responses import HTMLResponse

    site = Site(Settings(NAME, api_key="k"))

    @site.app.get("/page")
    async def page() -> HTMLResponse:
        return HTMLResponse("a page", headers={"Content-Security-Policy": "script-src 'self'"})

    site.app.state.open_paths.add("/page")
    with site, site.client() as client:
        answer = client.get("/page")
        assert (answer.status_code, answer.text) == (200, "a page")
        assert answer.headers["content-security-policy"] == "script-src 'self'"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:40]),
)
def test_what_is_no_http_is_a_400_and_the_server_goes_on(site: Site, raw: bytes) -> None:
    port = int(site.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), limit()) as connection:
        connection.sendall(raw)
        answer = connection.recv(1000)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"HTTP/1.1 415 ")), answer
    assert httpx.get(f"{site.url}/health").status_code == 200


def test_a_chat_of_the_servers_own_page_is_answered(site: Site) -> None:
    body = {"model": NAME, "messages": HELLO, "max_tokens": 1}
    assert site.post("/v1/chat/completions", body, Origin=site.url).status_code == 200
