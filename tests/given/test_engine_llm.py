"""The engine's given parts: its requests, its batch, its constructor, and the methods that only pass things on."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from week_3.patience import limit
from week_3.serving_threads import within
from week_4.serving_llm import END, POSITIONS, Alphabet, P, Serving, greedy_answer, ids, outputs_of, toy_model

from coursekit.lab import Lab

LAB = Lab()
CHAT = [{"role": "user", "content": "abc"}]  # Alphabet puts a z around it: the answer is the end token
PAGES = 8


def segments(system: str, documents: tuple[str, ...], question: str) -> Any:
    whole = tuple(tuple(ids(each)) for each in documents)
    return LAB.documents.prompt.Segments(tuple(ids(system)), whole, tuple(ids(question)))


def request_of(prompt: Any, *, pages: int = PAGES, positions: int = POSITIONS, **settings: Any) -> Any:
    """The request that an engine makes for a prompt."""
    limits = LAB.engine.limits.Limits(4, pages, P, 32)
    params = LAB.engine.params.SamplingParams(**settings)
    completion = LAB.engine.completion.Completion(params, Alphabet(), 1)
    return LAB.engine.request.RequestMaker(positions, limits)(prompt, completion)


def test_a_request_has_the_settings_of_its_completion():
    request = request_of(ids("abc"), max_tokens=7, priority=2, client="someone", stop_token_ids=[5])
    assert (request.prompt_ids, request.max_tokens) == ([0, 1, 2], 7)
    assert (request.priority, request.client, sorted(request.end_ids)) == (2, "someone", [5, END])
    assert request.sample is request.completion.sampler


def test_with_ignore_end_only_stop_tokens_end_a_request():
    assert sorted(request_of(ids("a"), ignore_end=True, stop_token_ids=[5]).end_ids) == [5]


@pytest.mark.parametrize(
    ("prompt", "pages", "positions", "room"),
    [
        (ids("abc"), 20, 40, 37),  # the model's positions
        (ids("abc"), 4, 40, 10),  # the pool: the last token needs no place
        (ids("a" * 40), 20, 40, 1),  # no room at all: it will be refused
        (segments("ab", ("cdefg",), "hi"), 8, 64, 14),  # 3 of 8 pages for the branch
        (segments("ab", (), "hi"), 8, 64, 20),  # 1 of 8 pages for the system prompt
    ],
    ids=["positions", "pages", "none", "a document", "no document"],
)
def test_without_a_limit_an_answer_may_have_as_many_tokens_as_there_is_room_for(
    prompt, pages, positions, room
):
    assert request_of(prompt, pages=pages, positions=positions, max_tokens=None).max_tokens == room


@pytest.mark.parametrize(
    "prompt", [ids("abcd"), segments("ab", ("cde", "fg"), "hi")], ids=["text", "documents"]
)
def test_an_answer_without_a_limit_fills_the_pool_and_is_not_refused(prompt):
    with Serving(LAB, pages=PAGES, enable_chunk_aware=True) as serving:
        params = serving.params(max_tokens=None, ignore_end=True)
        output = within(serving.llm.begin(prompt, params).wait, "an answer without a limit")
        assert output.completion_tokens == request_of(prompt, max_tokens=None).max_tokens
        assert output.outputs[0].finish_reason == "length"


def test_a_request_is_finished_when_its_completion_has_a_stop_string():
    for prompt in (ids("abc"), segments("a", ("b",), "c")):
        request = request_of(prompt, stop="e", max_tokens=9)
        for token in ids("de"):
            assert not request.finished(POSITIONS)
            request.completion.push(token)
        assert request.finished(POSITIONS)


@pytest.mark.parametrize("prompt", [ids("abc"), segments("a", ("b",), "c")], ids=["text", "documents"])
def test_a_renewed_request_is_of_the_same_kind_and_begins_with_its_prompt(prompt):
    request = request_of(prompt, stop="e", max_tokens=9, priority=2, client="someone")
    request.token_ids.append(3)
    request.error = "failed"

    def sample(logits: Any, token_ids: Any) -> int:
        return 0

    renewed = request.renewed(sample)
    assert type(renewed) is type(request)
    assert renewed.completion is request.completion
    assert (renewed.output, renewed.error, renewed.sample) == ([], None, sample)
    assert (renewed.max_tokens, renewed.priority, renewed.client) == (9, 2, "someone")
    renewed.token_ids.append(7)
    assert (request.output, request.error) == ([3], "failed")


def test_the_ticket_of_a_document_request_has_one_too():
    whole = segments("a", ("bc", "d"), "e")
    request = LAB.documents.request.DocumentRequest(whole, 5, (END,), priority=1)
    ticket = LAB.ragged.ticket.Ticket(request, lambda token: None, LAB.ragged.metrics.Metrics())
    copy = ticket.request
    assert type(copy) is type(request)
    assert (copy.segments, copy.documents, copy.start, copy.digest) == (
        request.segments,
        request.documents,
        request.start,
        request.digest,
    )
    assert (copy.max_tokens, copy.end_ids, copy.priority) == (5, request.end_ids, 1)


def test_a_batch_has_the_sizes_that_were_asked_for():
    limits = LAB.engine.limits.Limits(num_seats=3, num_pages=10, page_size=P, token_budget=7)
    core = LAB.engine.make_batch.make_batch(toy_model(LAB), limits, "reference", max_waiting=4)
    assert core.idle == 3 + 4
    assert (core.num_seats, core.token_budget, core.max_positions) == (3, 7, POSITIONS)
    assert len(core.allocator.free_pages) == 10  # and the null page
    assert core.scheduler.cache.page_size == P


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tokenizer": None}, "needs its tokenizer"),
        ({"chunk_position_strategy": "elsewhere"}, "chunk_position_strategy is 'elsewhere'"),
        ({"chunk_position_strategy": "offset"}, "max_chunk_len must be given"),
        ({"chunk_separator": ""}, "chunk_separator is empty"),
        ({"max_chunk_len": 0}, "max_chunk_len is 0"),
        ({"max_queue": 0}, "a queue of 0"),
        ({"attention": "magic"}, "no way 'magic' to attend"),
    ],
)
def test_an_engine_that_can_not_work_is_refused(options, reason):
    arguments = {"tokenizer": Alphabet(), "attention": "reference", **options}
    with pytest.raises(ValueError, match=reason):
        LAB.engine.llm.LLM(toy_model(LAB), **arguments)


def test_as_many_requests_may_wait_in_the_engine_as_in_the_queue():
    with LAB.engine.llm.LLM(
        toy_model(LAB),
        Alphabet(),
        limits=LAB.engine.limits.Limits(num_seats=2, num_pages=10, page_size=P),
        max_queue=5,
        attention="reference",
    ) as llm:
        assert (llm.core.idle, llm.batcher.max_queue) == (2 + 5, 5)


def test_generate_takes_one_prompt_or_several_in_any_form():
    with Serving(LAB) as serving:
        llm, params = serving.llm, serving.params(max_tokens=2)
        assert [outputs_of(each) for each in llm.generate("abc", params)] == [["de"]]
        assert [outputs_of(each) for each in llm.generate(ids("abc"), params)] == [["de"]]
        assert [outputs_of(each) for each in llm.generate(["abc", ids("k")], params)] == [["de"], ["lm"]]
        assert llm.generate([], params) == []


def test_each_prompt_may_have_settings_of_its_own():
    with Serving(LAB) as serving:
        each = [serving.params(max_tokens=count, n=count) for count in (1, 2)]
        found = [outputs_of(one) for one in serving.llm.generate(["abc", "k"], each)]
        assert found == [["d"], ["lm", "lm"]]
        with pytest.raises(ValueError, match="2 prompts, and settings for 1"):
            serving.llm.generate(["abc", "k"], each[:1])


def test_without_settings_an_answer_is_greedy():
    with Serving(LAB) as serving:
        answer = serving.llm.generate("abc")[0].outputs[0]
        assert answer.text == greedy_answer("c", 23)
        assert (answer.finish_reason, answer.token_ids[-1]) == ("stop", END)


def test_a_control_token_in_a_prompt_is_one_only_where_it_is_asked_for():
    with Serving(LAB) as serving:
        params = serving.params(max_tokens=1)
        assert serving.llm.generate("<end>", params, control_tokens=True)[0].prompt_tokens == 1
        assert serving.llm.generate("<end>", params)[0].prompt_tokens == 5


def test_a_chat_is_answered_whole_and_in_pieces():
    with Serving(LAB) as serving:
        params = serving.params(max_tokens=3, ignore_end=True)
        whole = serving.llm.chat(CHAT, params)
        assert (whole.text, whole.prompt_tokens) == ("ab", 5)  # the end token has no text
        deltas = list(serving.llm.stream_chat(CHAT, params))
        assert "".join(each.text for each in deltas) == "ab"
        assert deltas[-1].finish_reason == "length"


def test_documents_reach_the_engine_from_each_method():
    with Serving(LAB, enable_chunk_aware=True) as serving:
        params = serving.params(max_tokens=2, documents=["de", "fg"])
        assert serving.llm.generate("k", params)[0].prompt_tokens == 5
        assert serving.llm.chat(CHAT, params).prompt_tokens == 9
        assert "".join(each.text for each in serving.llm.stream("k", params)) == "lm"
        assert serving.llm.generate("a # # de # # k", serving.params(max_tokens=2))[0].text == "lm"


def test_a_stream_begins_when_its_first_delta_is_asked_for_and_ends_where_it_is_left():
    with Serving(LAB, held=True) as serving:
        deltas = serving.llm.stream("abc", serving.params(max_tokens=40, ignore_end=True))
        assert not serving.futures
        serving.core.let(2)
        assert next(deltas).text == "d"  # on this thread: no other one may hold the stream, or it isn't left
        del deltas
        gc.collect()
        assert [future.cancelled() for future in serving.futures] == [True]
        serving.await_freed()


def test_the_same_methods_for_coroutines():
    with Serving(LAB, enable_chunk_aware=True) as serving:
        engine = LAB.engine.async_llm.AsyncLLM(serving.llm)
        params = serving.params(max_tokens=2, documents=["de"])

        async def main() -> Any:
            parts = [each.text async for each in engine.stream("k", params)]
            chat = [each.text async for each in engine.stream_chat(CHAT, params)]
            return await engine.generate("k", params), await engine.chat(CHAT, params), parts, chat

        whole, chat, parts, chat_parts = within(lambda: asyncio.run(main()), "four methods of AsyncLLM")
        assert (whole.text, whole.prompt_tokens, "".join(parts)) == ("lm", 3, "lm")
        assert (chat.prompt_tokens, "".join(chat_parts)) == (7, chat.text)


def test_a_closed_engine_takes_no_more_prompts_and_may_be_closed_again():
    with Serving(LAB) as serving:
        with serving.llm as llm:
            assert llm is serving.llm
            assert llm.generate("a", serving.params(max_tokens=1))[0].text == "b"
        with pytest.raises(LAB.ragged.errors.Closed):
            llm.generate("a")
        assert llm.close(timeout=limit())


def test_closing_with_drain_finishes_what_has_begun():
    with Serving(LAB, held=True) as serving:
        generation = serving.llm.begin(ids("a"), serving.params(max_tokens=3))
        assert not serving.llm.close(drain=True, timeout=0)
        serving.core.open()
        assert serving.llm.close(drain=True, timeout=limit())
        assert within(generation.wait, "an answer that had begun").text == "bcd"


def test_the_loop_drives_what_was_put_around_the_engine():
    with Serving(LAB) as serving:
        serving.llm.generate("abc", serving.params(max_tokens=2))
        assert [sum(count for _, count in step) for step in serving.core.steps] == [3, 1]
        assert serving.llm.core is not serving.core
