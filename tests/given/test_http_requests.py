"""Which requests the server takes, and what it says about the others: always OpenAI's error object, never a 500."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_site import HELLO, NAME, POSITIONS, Site, toy_tokenizer
from openai.resources.chat.completions import Completions as ChatCompletions
from openai.resources.completions import Completions

from tiny_llm.engine.params import LONGEST_STOP, MOST_COMPLETIONS, MOST_LOGPROBS, MOST_STOPS, SamplingParams
from tiny_llm.ragged.errors import EngineFailed
from tiny_llm.server.fields import Only
from tiny_llm.server.protocol import Asked, ChatBody, CompletionBody

COMPLETION: dict[str, Any] = {"model": NAME, "prompt": "a", "max_tokens": 2}
CHAT: dict[str, Any] = {"model": NAME, "messages": HELLO, "max_tokens": 2}
PATHS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}
OF_HTTP = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


def error_of(answer: Any, status: int) -> dict[str, Any]:
    """OpenAI's error object in an answer with this status."""
    __tracebackhide__ = True
    assert answer.status_code == status, f"{answer.status_code}: {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert len(answer.text) < 1000, "an error gives back what was sent, however long it is"
    return dict(body["error"])


@pytest.mark.parametrize(("kind", "api"), [(CompletionBody, Completions), (ChatBody, ChatCompletions)])
def test_each_parameter_of_openais_api_is_known_by_name(kind: type[Asked], api: Any) -> None:
    known = set(kind.model_fields)
    theirs = set(inspect.signature(api.create).parameters) - OF_HTTP
    assert theirs <= known, f"not mentioned: {sorted(theirs - known)}"


def only_fields(kind: type[Asked]) -> dict[str, Only]:
    """The parameters that may only have their neutral values."""
    return {
        name: marked
        for name, field in kind.model_fields.items()
        for marked in field.metadata
        if isinstance(marked, Only)
    }


@pytest.mark.parametrize("path", PATHS)
def test_a_parameter_that_is_not_served_may_have_its_neutral_value_and_no_other(
    site: Site, path: str
) -> None:
    only = only_fields(ChatBody if "chat" in path else CompletionBody)
    assert len(only) > 3
    for name, marked in only.items():
        for value in (None, *marked.neutral):
            assert site.post(path, {**PATHS[path], name: value}).status_code == 200, (name, value)
        for value in ("something", 7, True, [1], {"a": 1}, 0, ""):
            if value in marked.neutral and type(value) is not int:
                continue
            error = error_of(site.post(path, {**PATHS[path], name: value}), 400)
            assert (error["param"], "isn't supported here" in error["message"]) == (name, True), error


@pytest.mark.parametrize("path", PATHS)
def test_a_parameter_that_does_not_exist_is_refused_by_name(site: Site, path: str) -> None:
    error = error_of(site.post(path, {**PATHS[path], "temprature": 0}), 400)
    assert (error["param"], error["type"]) == ("temprature", "invalid_request_error")
    assert "no such parameter" in error["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("param", "values"),
    [
        ("temperature", [-0.1, 101, "1", True, [0]]),
        ("top_p", [0, 1.01, "1", False]),
        ("n", [0, -1, MOST_COMPLETIONS + 1, 1.5, "2", True]),
        ("max_tokens", [0, -5, 2**31, 10**30, 1.5, "2", True]),
        ("seed", [2**63, -(2**63) - 1, 10**300, 0.5, "1", True]),
        ("presence_penalty", [-2.1, 2.1, "0"]),
        ("frequency_penalty", [-2.1, 2.1, "0"]),
        ("user", [5, ["a"], "a" * 257, "a\nb"]),
        ("stream", [1, "true", []]),
        ("stop", [5, [5], [""], "", ["a"] * (MOST_STOPS + 1), "a" * (LONGEST_STOP + 1), [["a"]], {}]),
        ("top_k", [-1, 1.5, "2", True]),
        ("min_p", [-0.1, 1.1, "0"]),
        ("repetition_penalty", [0, 0.001, 101, "1"]),
        ("priority", [-1, 4, "0"]),
        ("documents", ["a", [1], [None], {}, ["a"] * 257]),
        ("stop_token_ids", [5, ["a"], [-1], [2**31], [True], [10**30]]),
        ("ignore_eos", [1, "true"]),
        ("model", [None, 5, [NAME]]),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused_by_name(
    site: Site, path: str, param: str, values: list[Any]
) -> None:
    for value in values:
        error = error_of(site.post(path, {**PATHS[path], param: value}), 400)
        assert error["param"] == param, (value, error)


@pytest.mark.parametrize(
    ("path", "param", "values"),
    [
        (
            "/v1/completions",
            "prompt",
            [None, 5, {}, [], [[]], ["a", 1], [1, "a"], [1.5], [True], [[1], "a"], [[1], []]],
        ),
        ("/v1/completions", "prompt", [[-1], [259], [10**30], [[1], [2**31]], "", [""]]),
        ("/v1/completions", "logprobs", [-1, MOST_LOGPROBS + 1, True, "1"]),
        ("/v1/completions", "control_tokens", [1, "yes"]),
        (
            "/v1/chat/completions",
            "messages",
            [None, 5, "hi", {}, [], [{"role": "user", "content": "a"}] * 4097],
        ),
        ("/v1/chat/completions", "messages[0]", [[5], ["hi"], [None]]),
        ("/v1/chat/completions", "logprobs", [1, 0, "yes"]),
        ("/v1/chat/completions", "top_logprobs", [-1, MOST_LOGPROBS + 1, True, 2]),
        ("/v1/chat/completions", "max_completion_tokens", [0, "2", True, 3]),
    ],
)
def test_what_only_one_of_the_two_has_is_refused_by_name_too(
    site: Site, path: str, param: str, values: list[Any]
) -> None:
    for value in values:
        field = param.partition("[")[0]
        error = error_of(site.post(path, {**PATHS[path], field: value}), 400)
        assert error["param"] == param, (value, error)


@pytest.mark.parametrize(
    ("message", "param", "says"),
    [
        ({"role": "user"}, "content", "required"),
        ({"content": "a"}, "role", "required"),
        ({"role": "tool", "content": "a"}, "role", "'system', 'user' or 'assistant'"),
        ({"role": "developer", "content": "a"}, "role", "'system', 'user' or 'assistant'"),
        ({"role": "user", "content": None}, "content", "a string, or a list of text parts"),
        ({"role": "user", "content": 5}, "content", "a string, or a list of text parts"),
        ({"role": "user", "content": ["a"]}, "content", 'part 0 must be an object with a "type"'),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}],
            },
            "content",
            "part 1 is of type 'image_url'",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, "content", '"text"'),
        ({"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}, "content", "nothing else"),
        ({"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}, "tool_calls", "isn't supported"),
        ({"role": "user", "content": "a", "name": "ann"}, "name", "isn't supported"),
        ({"role": "user", "content": "a", "colour": "red"}, "colour", "no such parameter"),
    ],
)
def test_a_message_that_can_not_be_read_is_refused_by_name(
    site: Site, message: dict[str, Any], param: str, says: str
) -> None:
    body = {**CHAT, "messages": [*HELLO, message]}
    error = error_of(site.post("/v1/chat/completions", body), 400)
    assert error["param"] == f"messages[1].{param}"
    assert says in error["message"]


def test_a_message_as_the_openai_package_dumps_it_is_taken(site: Site) -> None:
    said: dict[str, Any] = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "annotations": [],
        "tool_calls": None,
    }
    assert site.post("/v1/chat/completions", {**CHAT, "messages": [*HELLO, said, *HELLO]}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b'"a"',
        b"{",
        b'{"model": "toy", "prompt": "a',
        b'{"model": "toy" "prompt"}',
        b"{'model': 'toy'}",
        b'{"model": "toy"}}',
        b"\xff\xfe",
        b'{"model": "toy", "prompt": "\xc3\x28", "messages": "\xc3\x28"}',
        b'{"model": "\\ud800", "prompt": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"[" * 100_000,
        b'{"prompt":' * 50_000,
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": -Infinity}',
        b'{"seed": 1' + b"0" * 10_000 + b"}",
        b'{"temperature": 1e999999}',
        b"\x00" * 1000,
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_no_json_object_is_a_400(site: Site, path: str, body: bytes) -> None:
    error_of(site.post(path, body), 400)


@pytest.mark.parametrize("path", PATHS)
def test_one_wrong_value_among_right_ones_in_bytes(site: Site, path: str) -> None:
    """As no JSON library would write them."""
    for value in (b"NaN", b"1e400", b"1" + b"0" * 400, b"-1e-400000", b"1" + b"0" * 5000):
        whole = json.dumps({**PATHS[path], "temperature": 12345}).encode().replace(b"12345", value)
        answer = site.post(path, whole)
        if answer.status_code != 200:  # some of them are numbers that are very close to 0
            error_of(answer, 400)
        else:
            assert value == b"-1e-400000"


def test_a_hundred_thousand_stop_strings_are_refused(site: Site) -> None:
    error = error_of(site.post("/v1/completions", {**COMPLETION, "stop": ["a"] * 100_000}), 400)
    assert (error["param"], "100000 strings" in error["message"]) == ("stop", True)


def test_a_text_that_no_model_here_can_take_is_never_tokenized(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    encode = type(toy_tokenizer()).encode

    def look(self: Any, text: str, *others: Any, **named: Any) -> Any:
        read.append(text)
        return encode(self, text, *others, **named)

    monkeypatch.setattr(type(toy_tokenizer()), "encode", look)
    longest = toy_tokenizer().longest_token
    most = (POSITIONS - 1) * longest
    for path, fields in (
        ("/v1/completions", {"prompt": "a" * (most + 1)}),
        ("/v1/completions", {"prompt": ["a", "a" * (most + 1)]}),
        ("/v1/completions", {"prompt": [1] * (most + 1)}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * (most // 2 + 1)}] * 2}),
        ("/v1/completions", {"documents": ["a" * 300_000] * 10}),
    ):
        error = error_of(site.post(path, {**PATHS[path], **fields}), 400)
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == next(iter(fields))
    assert not read


def test_a_prompt_that_can_never_run_is_a_400_that_says_why(site: Site) -> None:
    error = error_of(site.post("/v1/completions", {**COMPLETION, "prompt": [[1], [1] * POSITIONS]}), 400)
    assert error["param"] == "prompt"
    assert error["message"].startswith("prompt 2: ")
    assert str(POSITIONS) in error["message"]


def test_more_answers_at_once_than_may_wait_are_refused_before_any_begins(site: Site) -> None:
    body = {**COMPLETION, "prompt": ["a"] * 51, "n": 2}
    error = error_of(site.post("/v1/completions", body), 400)
    assert error["message"].startswith("prompt: with n, these are 102 answers")
    error = error_of(site.post("/v1/chat/completions", {**CHAT, "n": 128}), 400)
    assert "n is 128" in error["message"]


def test_documents_beside_token_ids_or_without_room_are_refused(site: Site) -> None:
    error = error_of(site.post("/v1/completions", {**COMPLETION, "prompt": [1, 2], "documents": ["a"]}), 400)
    assert error["param"] == "documents"
    assert site.post("/v1/completions", {**COMPLETION, "documents": []}).status_code == 200


def test_documents_that_an_engine_can_not_take_are_to_blame_themselves() -> None:
    for options in ({"max_chunk_len": 3}, {"enable_chunk_aware": False}):
        with Site(**options) as site:
            for path, body in PATHS.items():
                error = error_of(site.post(path, {**body, "documents": ["longer"]}), 400)
                assert error["param"] == "documents", error


def test_documents_in_a_prompt_are_blamed_on_the_prompt() -> None:
    with Site(max_chunk_len=3, chunk_separator="|") as site:
        body = {**COMPLETION, "prompt": "a|longer document|b"}
        error = error_of(site.post("/v1/completions", body), 400)
        assert "document 1 has" in error["message"]
        assert error["param"] == "prompt"


def test_options_of_a_stream_go_with_a_stream_only(site: Site) -> None:
    empty: dict[str, Any] = {}
    for options in (empty, {"include_usage": True}):
        error = error_of(site.post("/v1/completions", {**COMPLETION, "stream_options": options}), 400)
        assert error["param"] == "stream_options"
    streamed = {**COMPLETION, "stream": True}
    for field, value in (("include_usage", 1), ("x", 1), ("include_obfuscation", True)):
        error = error_of(site.post("/v1/completions", {**streamed, "stream_options": {field: value}}), 400)
        assert error["param"] == f"stream_options.{field}"
    assert site.post("/v1/completions", {**streamed, "stream_options": None}).status_code == 200


def test_another_models_name_is_a_404(site: Site) -> None:
    for path, body in PATHS.items():
        for name in ("gpt-4", "", NAME.upper(), "\u2028" * 50):
            error = error_of(site.post(path, {**body, "model": name}), 404)
            assert (error["param"], error["code"]) == ("model", "model_not_found")


def test_addresses_and_methods_that_are_not_there(site: Site) -> None:
    with site.client() as client:
        for path in (
            "/",
            "/v1",
            "/v1/embeddings",
            "/v1/completions/",
            "/docs",
            "/redoc",
            "/%ff",
            "/../etc/passwd",
        ):
            error_of(client.get(path), 404)
        for path in PATHS:
            answer = client.get(path)
            error_of(answer, 405)
            assert answer.headers["allow"] == "POST"
            error_of(client.delete(path), 405)
        error_of(client.post("/health", content=b"", headers={"Content-Type": "application/json"}), 405)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_that_does_not_say_it_is_json_is_a_415(site: Site, path: str, kind: str) -> None:
    error = error_of(site.post(path, PATHS[path], **{"Content-Type": kind}), 415)
    assert "Content-Type: application/json" in error["message"]
    assert (
        site.post(path, PATHS[path], **{"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200
    )


def test_a_full_queue_is_a_429_that_says_when_to_come_back() -> None:
    with Site(max_queue=1) as site:
        site.llm.core.max_requests = 1
        site.hold()
        streamed = json.dumps({**COMPLETION, "stream": True})
        request: dict[str, Any] = {"headers": {"Content-Type": "application/json"}, "content": streamed}
        with site.client() as client, client.stream("POST", "/v1/completions", **request):
            site.until_running()
            with client.stream("POST", "/v1/completions", **request):
                site.until(lambda: site.llm.batcher.stats().waiting == 1, "one request waits")
                for path, body in PATHS.items():
                    answer = site.post(path, body)
                    error = error_of(answer, 429)
                    assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
                    assert int(answer.headers["retry-after"]) >= 1
        site.model.open.set()
        site.until_at_rest()
        assert site.post("/v1/completions", COMPLETION).status_code == 200


def test_a_step_that_fails_is_a_500_and_the_next_request_is_served(site: Site) -> None:
    site.model.failure = KeyError("as the test wants it")
    error = error_of(site.post("/v1/completions", COMPLETION), 500)
    assert error["type"] == "server_error"
    assert "as the test wants it" not in error["message"]
    assert EngineFailed.__name__ in error["message"]
    assert site.post("/v1/completions", COMPLETION).status_code == 200


def test_a_mistake_of_the_servers_own_is_told_as_such_and_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(site.llm.reader, "read", fail)
    error = error_of(site.post("/v1/completions", COMPLETION), 500)
    assert "secret" not in error["message"]
    assert any(record.exc_info and record.exc_info[0] is ZeroDivisionError for record in caplog.records)


def test_a_server_that_was_closed_refuses_with_503() -> None:
    with Site() as site:
        site.llm.close()
        for path, body in PATHS.items():
            error = error_of(site.post(path, body), 503)
            assert error["type"] == "server_error"


def test_a_model_without_a_chat_form_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.llm.tokenizer, "_template", None)
    error = error_of(site.post("/v1/chat/completions", CHAT), 400)
    assert (error["param"], "chat" in error["message"]) == ("messages", True)
    assert "--raw" not in error["message"]


def test_the_bounds_are_the_engines_own(site: Site) -> None:
    """What the engine takes, a body may ask for: the least and the greatest of each."""
    for path, body in PATHS.items():
        for name, values in {
            "n": (1, 60),
            "top_p": (1e-9, 1),
            "presence_penalty": (-2, 2),
            "frequency_penalty": (-2, 2),
            "repetition_penalty": (0.01, 100),
            "min_p": (0, 1),
            "priority": (0, 3),
            "top_k": (0, 2**31 - 1),
            "temperature": (0, 1e-300, 100),
            "seed": (-(2**63), 2**63 - 1),
            "max_tokens": (1, 2**31 - 1),
        }.items():
            for value in values:
                SamplingParams(**{name: value})  # type: ignore[arg-type]
                answer = site.post(path, {**body, name: value})
                assert answer.status_code == 200, (name, value, answer.text)


def test_the_description_of_the_api_names_each_field(site: Site) -> None:
    with site.client() as client:
        schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for kind in (CompletionBody, ChatBody):
        schema = schemas[kind.__name__]
        assert set(schema["properties"]) == set(kind.model_fields)
        assert schema["additionalProperties"] is False
