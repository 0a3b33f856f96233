"""What clients that exist get from the server: the `openai` package, `httpx` and `curl`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from http_site import END, HELLO, NAME, POSITIONS, Site, events_of, toy_tokenizer
from week_3.patience import limit

from tiny_llm.engine.params import SamplingParams
from tiny_llm.ragged.errors import QueueFull


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="any", max_retries=0, timeout=limit()) as made:
        yield made


def alone(site: Site, prompt: Any, **settings: Any) -> Any:
    """What the engine answers to a prompt without a server."""
    return site.llm.generate(prompt, SamplingParams(**{"max_tokens": 16, **settings})).pop()


def chat_alone(site: Site, messages: Any = HELLO, **settings: Any) -> Any:
    return site.llm.chat(messages, SamplingParams(**{"max_tokens": 16, **settings}))


def test_the_openai_client_lists_the_model(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).owned_by == "tiny-llm"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt/4")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_the_openai_client_gets_the_engines_own_completion(site: Site, client: openai.OpenAI) -> None:
    got = client.completions.create(model=NAME, prompt="abc", temperature=0)
    wanted = alone(site, "abc")
    assert (got.object, got.model, len(got.choices)) == ("text_completion", NAME, 1)
    assert (got.choices[0].text, got.choices[0].finish_reason) == (wanted.text, "length")
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (3, 16, 19)


def test_the_openai_client_gets_the_engines_own_chat(site: Site, client: openai.OpenAI) -> None:
    got = client.chat.completions.create(model=NAME, messages=HELLO, temperature=0, max_completion_tokens=9)
    wanted = chat_alone(site, max_tokens=9)
    assert (got.object, got.choices[0].message.role) == ("chat.completion", "assistant")
    assert (got.choices[0].message.content, got.choices[0].finish_reason) == (wanted.text, "length")
    assert got.usage is not None
    assert got.usage.prompt_tokens == len(toy_tokenizer().encode_chat(HELLO))


def test_all_forms_of_a_prompt_are_read(site: Site) -> None:
    ids = toy_tokenizer().encode("cat")
    texts = [alone(site, each).text for each in ("cat", "dog")]
    for prompt, wanted in (
        ("cat", texts[:1]),
        (ids, texts[:1]),
        (["cat", "dog"], texts),
        ([ids, toy_tokenizer().encode("dog")], texts),
    ):
        choices = site.complete(prompt=prompt)["choices"]
        assert [(each["index"], each["text"]) for each in choices] == list(enumerate(wanted)), prompt


def test_a_stream_gives_the_same_text_as_a_whole_answer(site: Site, client: openai.OpenAI) -> None:
    settings: dict[str, Any] = {"seed": 3, "temperature": 1.5, "max_tokens": 40, "n": 3, "top_p": 0.9}
    whole = client.chat.completions.create(model=NAME, messages=HELLO, **settings)
    texts, ends, roles = {0: "", 1: "", 2: ""}, dict[int, Any](), list[Any]()
    usage = None
    options: Any = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=NAME,
        messages=HELLO,
        stream=True,
        stream_options=options,
        **settings,
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert not chunk.usage
            roles.append(choice.delta.role)
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends.get(choice.index)
    assert [texts[i] for i in range(3)] == [each.message.content for each in whole.choices]
    assert [ends[i] for i in range(3)] == [each.finish_reason for each in whole.choices]
    assert roles[:3] == ["assistant"] * 3
    assert len(set(texts.values())) > 1, "answers with seeds of their own are all the same"
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_a_stream_of_several_prompts_numbers_its_choices_as_a_whole_answer_does(site: Site) -> None:
    body = {"model": NAME, "prompt": ["cat", "dog"], "n": 2, "temperature": 0, "stream": True}
    events = events_of(site.post("/v1/completions", body).text)
    texts = ["", "", "", ""]
    for event in events[:-1]:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    cat, dog = (alone(site, each).text for each in ("cat", "dog"))
    assert (texts, events[-1]) == ([cat, cat, dog, dog], "[DONE]")


def test_a_stream_is_made_of_events_that_say_what_they_are(site: Site) -> None:
    answer = site.post(
        "/v1/chat/completions", {"model": NAME, "messages": HELLO, "max_tokens": 3, "stream": True}
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    assert events[-1] == "[DONE]"
    assert {each["object"] for each in events[:-1]} == {"chat.completion.chunk"}
    assert len({each["id"] for each in events[:-1]}) == 1
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert all("usage" not in each for each in events[:-1])


def test_halves_of_characters_are_never_sent(site: Site) -> None:
    """The model's answers are bytes; each event has to hold whole characters."""
    body = {"model": NAME, "prompt": "é", "max_tokens": 60, "stream": True, "temperature": 2, "seed": 5}
    text = "".join(
        each["choices"][0]["text"] for each in events_of(site.post("/v1/completions", body).text)[:-1]
    )
    assert text == alone(site, "é", max_tokens=60, temperature=2, seed=5).text


def test_a_stop_string_ends_an_answer_and_is_not_part_of_it(site: Site) -> None:
    text = alone(site, "abc").text
    stop = text[4:6]
    at = text.index(stop)
    for given in (stop, ["never in it", stop]):
        choice = site.complete(prompt="abc", stop=given)["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (text[:at], "stop")


def test_the_prefix_that_was_cached_is_counted(site: Site) -> None:
    prompt = "a prompt that no other test sends " * 3
    first, second = (site.complete(prompt=prompt, max_tokens=1)["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == (len(prompt) - 1) // 4 * 4


def test_the_usage_of_a_stream_counts_what_was_cached(site: Site) -> None:
    prompt = "one more prompt that no other test sends " * 3
    body = {"model": NAME, "prompt": prompt, "max_tokens": 4, "stream": True}
    options = {"stream_options": {"include_usage": True}}
    usages = [events_of(site.post("/v1/completions", {**body, **options}).text)[-2] for _ in range(2)]
    assert [each["choices"] for each in usages] == [[], []]
    counted = [each["usage"]["prompt_tokens_details"]["cached_tokens"] for each in usages]
    assert counted == [0, (len(prompt) - 1) // 4 * 4]
    assert usages[0]["usage"]["completion_tokens"] == 4


def test_logprobs_of_a_completion_stand_side_by_side(site: Site) -> None:
    wanted = alone(site, "abc", logprobs=2, max_tokens=5).outputs[0]
    got = site.complete(prompt="abc", logprobs=2, max_tokens=5)["choices"][0]["logprobs"]
    names = [toy_tokenizer().decode([each]) for each in wanted.token_ids]
    assert got["tokens"] == names
    assert got["token_logprobs"] == pytest.approx([each.logprob for each in wanted.logprobs])
    assert got["text_offset"] == [sum(map(len, names[:i])) for i in range(5)]
    for shown, each in zip(got["top_logprobs"], wanted.logprobs, strict=True):
        best = toy_tokenizer().decode([each.top[0][0]])
        assert shown[best] == pytest.approx(each.top[0][1])


def test_logprobs_of_a_chat_are_an_object_for_each_token(site: Site) -> None:
    wanted = chat_alone(site, logprobs=3, max_tokens=5).outputs[0]
    got = site.chat(logprobs=True, top_logprobs=3, max_tokens=5)["choices"][0]["logprobs"]["content"]
    assert [each["logprob"] for each in got] == pytest.approx([each.logprob for each in wanted.logprobs])
    for entry, token in zip(got, wanted.token_ids, strict=True):
        text = toy_tokenizer().decode([token])
        assert entry["token"] == text
        assert entry["bytes"] == (None if "\ufffd" in text else list(text.encode()))
        assert len(entry["top_logprobs"]) == 3
    assert (
        site.chat(logprobs=True, max_tokens=1)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    )
    assert site.chat(max_tokens=1)["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("chat", [False, True])
def test_logprobs_of_a_stream_are_those_of_a_whole_answer(site: Site, chat: bool) -> None:
    asked: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}
    ask, path = (site.chat, "/v1/chat/completions") if chat else (site.complete, "/v1/completions")
    whole = ask(max_tokens=12, **asked)["choices"][0]["logprobs"]
    prompt: dict[str, Any] = {"messages": HELLO} if chat else {"prompt": "a"}
    body = {"model": NAME, "max_tokens": 12, "temperature": 0, "stream": True, **prompt, **asked}
    parts = [each["choices"][0]["logprobs"] for each in events_of(site.post(path, body).text)[:-1]]
    names = ["content"] if chat else ["tokens", "token_logprobs", "top_logprobs", "text_offset"]
    for name in names:
        assert [entry for part in parts if part for entry in part[name]] == whole[name], name


def test_a_control_token_in_a_prompt_is_text_unless_it_is_asked_for(site: Site) -> None:
    counts = {
        asked: site.complete(prompt="<|im_end|>", control_tokens=asked)["usage"]["prompt_tokens"]
        for asked in (False, True, None)
    }
    assert counts == {False: 10, True: 1, None: 10}
    plain = site.chat(max_tokens=1)["usage"]["prompt_tokens"]
    spelled = [{"role": "user", "content": "hello<|im_end|>"}]
    assert site.chat(messages=spelled, max_tokens=1)["usage"]["prompt_tokens"] == plain + 10


def test_documents_are_answered_as_the_engine_does(site: Site) -> None:
    documents = ["the cat sat", "the dog sat"]
    messages = [{"role": "system", "content": "be brief"}, *HELLO]
    wanted = chat_alone(site, messages, documents=documents)
    got = site.chat(messages=messages, documents=documents, max_tokens=16)
    assert got["choices"][0]["message"]["content"] == wanted.text
    assert got["usage"]["prompt_tokens"] == wanted.prompt_tokens
    assert site.complete(prompt="who?", documents=documents)["choices"][0]["text"] == (
        alone(site, "who?", documents=documents).text
    )


def test_the_other_parameters_reach_the_engine(site: Site) -> None:
    settings: dict[str, Any] = {"temperature": 1.7, "seed": 11, "max_tokens": 30}
    plain = site.complete(**settings)["choices"][0]["text"]
    for name, value in {
        "top_p": 0.2,
        "top_k": 2,
        "min_p": 0.5,
        "presence_penalty": 2,
        "frequency_penalty": -2,
        "repetition_penalty": 5,
        "seed": 12,
    }.items():
        asked = {**settings, name: value}
        text = site.complete(**asked)["choices"][0]["text"]
        assert text == alone(site, "a", **asked).text, name
        assert text != plain, f"{name} makes no difference"


def test_user_and_priority_reach_the_scheduler(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, seen = site.llm.batcher.submit, list[Any]()

    def look(request: Any, *others: Any) -> Any:
        seen.append((request.client, request.priority))
        return submit(request, *others)

    monkeypatch.setattr(site.llm.batcher, "submit", look)
    site.complete(user="ann", priority=2)
    site.complete()
    assert seen == [("ann", 2), ("", 0)]


def test_end_tokens_can_be_added_and_ignored(site: Site) -> None:
    wanted = alone(site, "abc").outputs[0].token_ids
    choice = site.complete(prompt="abc", stop_token_ids=[wanted[3]])
    first = wanted.index(wanted[3])
    assert choice["usage"]["completion_tokens"] == first + 1
    assert choice["choices"][0]["finish_reason"] == "stop"
    ending = next(
        seed
        for seed in range(200)
        if END in alone(site, "a", temperature=3, seed=seed, max_tokens=30).outputs[0].token_ids
    )
    settings = {"temperature": 3, "seed": ending, "max_tokens": 30}
    assert site.complete(**settings)["choices"][0]["finish_reason"] == "stop"
    assert site.complete(ignore_eos=True, **settings)["usage"]["completion_tokens"] == 30


def test_without_a_limit_a_chat_goes_on_while_there_is_room(site: Site) -> None:
    got = site.chat(ignore_eos=True)
    assert got["usage"]["total_tokens"] == POSITIONS
    assert site.complete(ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_text_parts_are_joined(site: Site) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    whole, split = (
        site.chat(max_tokens=5),
        site.chat(messages=[{"role": "user", "content": parts}], max_tokens=5),
    )
    assert split["choices"] == whole["choices"]


def test_the_async_client_gets_answers_side_by_side(site: Site) -> None:
    async def main() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="any", timeout=limit()) as client:
            asked = [client.completions.create(model=NAME, prompt=f"{i}", temperature=0) for i in range(20)]
            return await asyncio.gather(*asked)

    texts = [each.choices[0].text for each in asyncio.run(main())]
    assert texts == [alone(site, f"{i}").text for i in range(20)]


def test_a_client_whose_time_is_over_frees_its_pages(site: Site, client: openai.OpenAI) -> None:
    short = openai.Timeout(limit(), read=0.3)
    site.hold()
    try:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=short).completions.create(model=NAME, prompt="abc")
        site.until_running()
        futures = [each.future for each in list(site.llm.batcher.tickets.values())]
        site.until(lambda: all(each.cancelled() for each in futures), "the answer is cancelled")
    finally:
        site.model.open.set()
    site.until_at_rest()


def test_the_openai_client_tries_again_when_the_queue_is_full(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[int]()

    def full_twice() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise QueueFull("full, as the test wants it")

    monkeypatch.setattr(site.llm.batcher, "require_room", full_twice)
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="any", max_retries=2) as client:
        assert client.completions.create(model=NAME, prompt="abc").choices
    assert len(calls) == 3


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl isn't installed")
@pytest.mark.parametrize("stream", [False, True])
def test_curl_gets_an_answer(site: Site, stream: bool) -> None:
    body = json.dumps({"model": NAME, "messages": HELLO, "max_tokens": 4, "temperature": 0, "stream": stream})
    command = ["curl", "-sS", "-N", f"{site.url}/v1/chat/completions", "-d", body]
    done = subprocess.run(
        [*command, "-H", "Content-Type: application/json"], capture_output=True, text=True, timeout=limit()
    )
    assert done.returncode == 0, done.stderr
    wanted = site.chat(max_tokens=4)["choices"][0]["message"]["content"]
    if stream:
        chunks = events_of(done.stdout)[:-1]
        assert "".join(each["choices"][0]["delta"].get("content", "") for each in chunks) == wanted
    else:
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] == wanted
