"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from week_3.patience import limit
from week_3.serving_threads import ThreadErrors, run_async, within

from coursekit import lab as door
from coursekit.check import check_equal, check_raises

from .answering import (
    END,
    EOT,
    HAN,
    SMILE,
    UNFINISHED,
    VOCABULARY,
    Generating,
    Growing,
    Pieces,
    cancelled,
    failed,
    settled,
    whole_text,
)
from .serving_llm import LETTERS, POSITIONS, Serving, after, ids, outputs_of, wait_for

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)

# Task 1: stop strings

# Task 2: penalties and log-probabilities

# Task 3: a whole step at once


# Task 4: an answer that grows


def test_task_4_each_token_is_delivered_with_the_text_that_it_adds(lab):
    growing = Growing(lab, index=2)
    check_equal(growing.push(b"ab", b"#", b"abc"), ["ab", "#", "abc"], name="the texts of the deltas")
    ids = growing.tokenizer.ids(b"ab", b"#", b"abc")
    found = [(delta.index, delta.token_ids, delta.logprobs) for delta in growing.deltas]
    check_equal(
        found, [(2, (token,), ()) for token in ids], name="index, tokens and log-probabilities of each delta"
    )
    ends = [(delta.finish_reason, delta.error) for delta in growing.deltas]
    check_equal(ends, [(None, None)] * 3, name="reason and error of deltas that aren't the last")
    check_equal(growing.completion.token_ids, ids, name="`token_ids` of the completion")
    check_equal(growing.completion.text, "ab#abc", name="`text` of the completion")


def test_task_4_a_word_keeps_the_space_in_front_of_it(lab):
    """This tokenizer drops the space in front of the first token that it decodes."""
    growing = Growing(lab)
    growing.push(b" the", b" cat", b" ", b" cat")
    growing.finish()
    check_equal(
        growing.joined,
        "the cat  cat",
        name="the text of all deltas",
        suspects={"each token was decoded alone: keep one decoder for the answer": "thecatcat"},
    )


def test_task_4_half_a_character_is_held_back(lab):
    growing = Growing(lab)
    texts = growing.push(b"a", *SMILE, *HAN, b"b")
    name = "the texts of the deltas: an emoji of three tokens, then a character of two"
    check_equal(texts, ["a", "", "", "\N{SLIGHTLY SMILING FACE}", "", "漢", "b"], name=name)


def test_task_4_a_character_that_never_ends_comes_with_the_last_delta(lab):
    growing = Growing(lab)
    growing.push(b"ab", b"\xf0", b"\x9f")
    last = growing.finish()
    name = "the text of the last delta: what the decoder has held back"
    check_equal(last.text, UNFINISHED, name=name, suspects={"the decoder was not flushed": ""})
    check_equal(growing.completion.text, "ab" + UNFINISHED, name="`text` of the completion")


def test_task_4_a_stop_string_over_several_tokens_is_no_part_of_the_text(lab):
    growing = Growing(lab, stop=["b # c"])
    texts = growing.push(b"ab", b" # ", b"c")
    check_equal(texts, ["a", "", ""], name="the texts of the deltas, where the tokens spell ab # c")
    assert growing.completion.stopped, "the tokens spell the stop string, and the completion is not `stopped`"
    last = growing.finish()
    check_equal(last.text, "", name="the text of the last delta, behind a stop string")
    check_equal(growing.completion.text, "a", name="`text` of the completion, up to the stop string")
    check_equal(len(growing.completion.token_ids), 3, name="tokens: those of the stop string count, too")


def test_task_4_what_stands_behind_a_stop_string_is_no_part_of_the_text(lab):
    growing = Growing(lab, stop=["b"])
    check_equal(growing.push(b"abc"), ["a"], name="the text of the token abc, where b is a stop string")
    check_equal(growing.finish().text, "", name="the text of the last delta")


def test_task_4_text_held_back_comes_as_soon_as_it_is_no_stop_string(lab):
    growing = Growing(lab, stop=["###"])
    texts = growing.push(b"##", b"a", b"#")
    name = "the texts of the deltas for the tokens ##, a, #, where ### is a stop string"
    check_equal(texts, ["", "##a", ""], name=name)
    last = growing.finish()
    name = "the text of the last delta: # may have become a stop string, and has not"
    check_equal(last.text, "#", name=name, suspects={"the stop strings were not flushed": ""})
    check_equal(growing.completion.text, "##a#", name="`text` of the completion")


def test_task_4_both_rests_come_in_their_order(lab):
    """The decoder's rest is behind the text that the stop strings hold back."""
    growing = Growing(lab, stop=["ab##"])
    growing.push(b"c", b"ab", b"\xf0")
    last = growing.finish()
    name = "the text of the last delta: ab was held back for the stop string ab##, and then half a character"
    suspects = {
        "the decoder's rest comes first, though it is the end": UNFINISHED + "ab",
        "the decoder's rest is missing": "ab",
        "what the stop strings hold back is missing": UNFINISHED,
    }
    check_equal(last.text, "ab" + UNFINISHED, name=name, suspects=suspects)


def test_task_4_the_decoders_rest_may_complete_a_stop_string(lab):
    growing = Growing(lab, stop=["b" + UNFINISHED])
    growing.push(b"a", b"b", b"\xf0")
    last = growing.finish()
    name = "the text of the last delta, where the decoder's rest completes a stop string"
    check_equal(
        last.text, "", name=name, suspects={"the rest did not go through the stop strings": "b" + UNFINISHED}
    )
    check_equal(growing.completion.text, "a", name="`text` of the completion")
    check_equal(str(last.finish_reason), "stop", name="the reason in the last delta")
    check_equal(growing.reasons, ("stop", "b" + UNFINISHED), name="finish reason and stop reason")


@pytest.mark.parametrize("end", [END, EOT, b" cat"], ids=["end", "end of turn", "stop token"])
def test_task_4_the_token_that_ends_the_answer_adds_no_text(lab, end):
    growing = Growing(lab, stop_token_ids=[b" cat"])
    texts = growing.push(b"ab", end)
    check_equal(texts, ["ab", ""], name=f"the texts of the deltas, where {end.decode()!r} ends the answer")
    ids = growing.tokenizer.ids(b"ab", end)
    check_equal(growing.completion.token_ids, ids, name="`token_ids`: with the one that ends the answer")
    check_equal(growing.deltas[-1].token_ids, (ids[-1],), name="the token of its delta")
    check_equal(growing.finish().text, "", name="the text of the last delta")
    check_equal(growing.completion.text, "ab", name="`text` of the completion")


def test_task_4_the_text_of_an_end_token_completes_no_stop_string(lab):
    growing = Growing(lab, stop=["ab#", "end"], stop_token_ids=[b"#"])
    growing.push(b"ab", b"#")
    check_equal(
        growing.finish().text, "ab", name="the text of the last delta, where a stop token comes behind ab"
    )
    name = "finish reason and stop reason: the stop token adds no text, so there is no stop string"
    check_equal(growing.reasons, ("stop", growing.tokenizer.ids(b"#")[0]), name=name)
    growing = Growing(lab, stop=["end"])
    growing.push(b"ab", END)
    growing.finish()
    check_equal(
        growing.completion.text, "ab", name="`text`, where the end token's own text has a stop string"
    )


def test_task_4_half_a_character_before_the_end_token_is_not_lost(lab):
    growing = Growing(lab)
    growing.push(b"ab", b"\xf0", END)
    check_equal(growing.finish().text, UNFINISHED, name="the text of the last delta")


def test_task_4_with_ignore_end_an_end_token_is_a_token_like_any_other(lab):
    growing = Growing(lab, ignore_end=True, max_tokens=3)
    texts = growing.push(b"ab", END, b"c")
    check_equal(texts, ["ab", "<end>", "c"], name="the texts of the deltas, with `ignore_end`")
    growing.finish()
    check_equal(growing.reasons, ("length", None), name="finish reason and stop reason, with `ignore_end`")
    growing = Growing(lab, ignore_end=True)
    growing.push(b"ab", END)
    name = "finish reason and stop reason, where the last token is an end token and `ignore_end` is set"
    check_equal(growing.reasons, ("length", None), name=name)


REASONS: list[tuple[str, tuple[bytes, ...], dict[str, Any], tuple[str, Any]]] = [
    ("no token at all", (), {"stop": ["a"]}, ("length", None)),
    ("no token, and token 0 is a stop token", (), {"stop_token_ids": [b"zero"]}, ("length", None)),
    ("a token like any other", (b"ab",), {}, ("length", None)),
    ("the model's end token", (b"ab", END), {}, ("stop", None)),
    ("the model's other end token", (EOT,), {}, ("stop", None)),
    ("a stop token", (b"ab", b" cat"), {"stop_token_ids": [b" the", b" cat"]}, ("stop", b" cat")),
    ("the stop token 0", (b"ab", b"zero"), {"stop_token_ids": [b"zero"]}, ("stop", b"zero")),
    ("an end token beside stop tokens", (END,), {"stop_token_ids": [b" cat"]}, ("stop", None)),
    ("an end token that is a stop token", (END,), {"stop_token_ids": [END]}, ("stop", END)),
    ("the same, with ignore_end", (END,), {"stop_token_ids": [END], "ignore_end": True}, ("stop", END)),
    ("a stop string", (b"ab", b"c"), {"stop": ["zz", "bc"]}, ("stop", "bc")),
    (
        "a stop string with the last of max_tokens",
        (b"a", b"b"),
        {"stop": "b", "max_tokens": 2},
        ("stop", "b"),
    ),
    ("an end token with the last of max_tokens", (b"a", END), {"max_tokens": 2}, ("stop", None)),
    (
        "max_tokens, with a part of a stop string",
        (b"a",),
        {"stop": ["ab"], "max_tokens": 1},
        ("length", None),
    ),
]


@pytest.mark.parametrize(("what", "pieces", "settings", "wanted"), REASONS, ids=[each[0] for each in REASONS])
def test_task_4_an_answer_tells_why_it_has_ended(lab, what, pieces, settings, wanted):
    growing = Growing(lab, **settings)
    growing.push(*pieces)
    last = growing.finish()
    reason = growing.tokenizer.ids(wanted[1])[0] if isinstance(wanted[1], bytes) else wanted[1]
    check_equal(growing.reasons[0], wanted[0], name=f"the finish reason of an answer with {what}")
    found = growing.reasons[1]
    same = type(found) is type(reason) and found == reason
    assert same, f"the stop reason of an answer with {what} is {found!r}; it should be {reason!r}"
    check_equal(str(last.finish_reason), wanted[0], name=f"the reason in the last delta, with {what}")
    output = growing.completion.output()
    found = (output.text, str(output.finish_reason), output.stop_reason)
    check_equal(
        found, (growing.joined, wanted[0], reason), name=f"text and reasons of the output, with {what}"
    )


def test_task_4_a_finish_reason_is_one_of_the_two(lab):
    growing = Growing(lab)
    growing.push(b"ab")
    kind = lab.engine.output.FinishReason
    assert growing.completion.finish_reason is kind.LENGTH, "the finish reason is not FinishReason.LENGTH"
    assert growing.finish().finish_reason is kind.LENGTH, "the last delta's is not FinishReason.LENGTH"
    growing.push(END)
    assert growing.completion.finish_reason is kind.STOP, "the finish reason is not FinishReason.STOP"


def test_task_4_the_last_delta_has_no_tokens(lab):
    """Each token was delivered already."""
    growing = Growing(lab, index=1, stop=["##"])
    growing.push(b"ab", b"#")
    last = growing.finish()
    found = (last.index, last.text, last.token_ids, last.logprobs, last.error)
    name = "index, text, tokens, log-probabilities and error of the last delta"
    check_equal(found, (1, "#", (), (), None), name=name)


def test_task_4_each_token_comes_with_its_log_probability(lab):
    growing = Growing(lab, logprobs=1, stop=["b"], stop_token_ids=[b" cat"])
    kind, wanted = lab.engine.logprobs.TokenLogprob, list[Any]()
    for number, piece in enumerate((b"a", b"#", b" cat")):
        token = growing.tokenizer.ids(piece)[0]
        wanted.append(kind(token, -0.25 * number, ((token, -0.25 * number),)))
        growing.completion.sampler.newest = wanted[-1]
        growing.push(piece)
    found = [delta.logprobs for delta in growing.deltas]
    check_equal(
        found, [(each,) for each in wanted], name="the log-probabilities of the deltas, one per token"
    )
    growing.finish()
    check_equal(growing.completion.output().logprobs, wanted, name="the log-probabilities of the output")


def test_task_4_without_log_probabilities_there_are_none(lab):
    growing = Growing(lab)
    growing.push(b"a", b"b")
    growing.finish()
    found = [delta.logprobs for delta in growing.deltas]
    check_equal(found, [()] * 3, name="the log-probabilities of the deltas")
    check_equal(growing.completion.logprobs, [], name="`logprobs` of the completion")


def test_task_4_a_cancelled_answer_ends_with_its_error_and_no_rest(lab):
    growing = Growing(lab, index=3, stop=["##"])
    growing.push(b"ab", b"#", b"\xf0")
    last = growing.finish(cancelled())
    assert isinstance(last.error, CancelledError), (
        f"the answer was cancelled; the error of its last delta is {last.error!r}, not a CancelledError of "
        "`concurrent.futures`"
    )
    found = (last.index, last.text, last.token_ids, last.finish_reason)
    check_equal(
        found, (3, "", (), None), name="index, text, tokens and reason of a cancelled answer's last delta"
    )
    check_equal(growing.completion.text, "ab", name="`text` of the cancelled completion")


def test_task_4_the_token_of_the_step_that_runs_may_come_behind_a_cancel(lab):
    growing = Growing(lab)
    growing.push(b"ab")
    growing.finish(cancelled())
    check_equal(growing.push(b" cat"), [" cat"], name="the text of a token that comes behind the cancel")


def test_task_4_an_answer_that_has_failed_ends_with_its_error(lab):
    growing, error = Growing(lab, stop=["##"]), OSError("the disk is gone")
    growing.push(b"ab", b"#")
    last = growing.finish(failed(error))
    assert last.error is error, (
        f"the request failed with {error!r}; the error of its last delta is {last.error!r}"
    )
    name = "text, tokens and reason of the last delta of an answer that has failed"
    check_equal((last.text, last.token_ids, last.finish_reason), ("", (), None), name=name)


def test_task_4_what_is_delivered_is_part_of_the_completion_already(lab):
    """A caller may look at the completion as soon as it has a delta."""
    growing, seen = Growing(lab, stop=["##"]), list[tuple[str, list[int], int]]()
    completion = growing.completion
    completion.deliver = lambda delta: seen.append(
        (completion.text, list(completion.token_ids), len(completion.logprobs))
    )
    ids = growing.tokenizer.ids(b"ab", b"#")
    for number, token in enumerate(ids):
        completion.sampler.newest = lab.engine.logprobs.TokenLogprob(token, -0.5 - number, ())
        completion.push(token)
    completion.finish(settled(ids))
    wanted = [("ab", ids[:1], 1), ("ab", ids, 2), ("ab#", ids, 2)]
    name = "`text`, `token_ids` and the number of `logprobs` of the completion, as each delta is delivered"
    check_equal(seen, wanted, name=name)


def test_task_4_two_answers_have_nothing_in_common(lab):
    one, other = Growing(lab, stop=["##"]), Growing(lab, stop=["##"], index=1)
    one.push(b"a", b"#")
    other.push(b"#", b"c")
    one.push(b"#")
    check_equal((one.joined, other.joined), ("a", "#c"), name="the texts of two answers that grow at once")


PUSHES = st.lists(st.sampled_from(VOCABULARY[:-2]), max_size=12)
STOPS = st.lists(
    st.sampled_from(["#", "##", " # ", "ab", "bc", "abc", "a" + UNFINISHED, "漢", " c"]), max_size=3
)


@given(PUSHES, STOPS, st.sampled_from([None, END, b"#"]))
@QUICK
def test_task_4_deltas_join_to_the_whole_text(pieces, stops, end):
    """Whatever the tokens are, and wherever a stop string is."""
    lab = door.active()
    growing = Growing(lab, stop=stops, stop_token_ids=[b"#"] if end == b"#" else [])
    pieces = [*(piece for piece in pieces if piece != end), *([] if end is None else [end])]
    for piece in pieces:
        if not growing.completion.stopped:
            growing.push(piece)
    last = growing.finish()
    ids = growing.completion.token_ids
    text, stop = whole_text(ids, stops, growing.completion.end_ids)
    told = f"the tokens {[Pieces().vocabulary[token] for token in ids]} and the stop strings {stops}"
    check_equal(growing.joined, text, name=f"the text of all deltas, for {told}")
    check_equal(growing.completion.text, text, name=f"`text` of the completion, for {told}")
    ended = stop is not None or (bool(ids) and ids[-1] in growing.completion.end_ids)
    check_equal(str(last.finish_reason), "stop" if ended else "length", name=f"the reason, for {told}")
    if stop is not None:
        check_equal(growing.completion.stop_reason, stop, name=f"the stop reason, for {told}")


# Task 5: callers that wait


def test_task_5_cancel_gives_up_every_answer_that_is_not_complete(lab):
    hand = Generating(lab, 3)
    hand.end(1, b"ab")
    hand.generation.cancel()
    hand.generation.cancel()
    check_equal(
        hand.cancelled, [True, False, True], name="which futures were cancelled; the second was complete"
    )


@pytest.mark.parametrize(
    ("computed", "wanted"),
    [([3, 7, 2, 4], 3), ([10], 0), ([4], 6), ([1], 9), ([10, 1, 1], 0), ([14], 0), ([3, 12], 0)],
)
def test_task_5_cached_tokens_are_those_of_the_prompt_that_no_answer_has_computed(lab, computed, wanted):
    hand = Generating(lab, len(computed), prompt_tokens=10)
    for each, count in zip(hand.growing, computed, strict=True):
        each.completion.computed = count
    suspects = {"after a preemption it may not be negative": 10 - max(computed)}
    if len(computed) == 4:
        suspects = {
            "only the first answer was looked at": 7,
            "only the last answer was looked at": 6,
            "what an answer finds because another one has computed it was not there before": 8,
        }
    name = f"`cached_tokens` of a prompt of 10 tokens, of which the answers have computed {computed}"
    check_equal(hand.generation.cached_tokens, wanted, name=name, suspects=suspects)


def test_task_5_wait_gives_all_answers_in_their_order(lab):
    hand = Generating(lab, 2, prompt_tokens=10)
    for each, count in zip(hand.growing, (10, 1), strict=True):
        each.completion.computed = count
    hand.end(1, b"b", END)
    hand.end(0, b"a")
    output = within(hand.generation.wait, "`wait`, when all answers are complete,")
    check_equal(outputs_of(output), ["a", "b"], name="the texts of the answers")
    check_equal([each.index for each in output.outputs], [0, 1], name="the numbers of the answers")
    check_equal(
        (output.prompt_tokens, output.cached_tokens), (10, 0), name="tokens of the prompt, and cached"
    )


def test_task_5_wait_waits_for_each_answer(lab):
    hand = Generating(lab, 2)
    hand.end(0, b"a")
    returned = threading.Event()

    def wait() -> Any:
        try:
            return hand.generation.wait()
        finally:
            returned.set()

    def end() -> None:
        returned.wait(0.05)  # a `wait` that has gone wrong has returned by then
        hand.end(1, b"b")

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    output = within(wait, "`wait`")
    thread.join(limit())
    check_equal(
        outputs_of(output), ["a", "b"], name="the texts of the answers, the second of which came late"
    )


@pytest.mark.parametrize("late", [0, 1])
def test_task_5_wait_waits_for_the_last_text(lab, late):
    """A future wakes its waiters before it calls its callbacks, one of which brings the rest of the text."""
    hand = Generating(lab, 2, stop=["##"])
    hand.push(late, b"a", b"#")
    hand.futures[late].set_result([])
    hand.end(1 - late, b"b")
    returned = threading.Event()

    def wait() -> Any:
        try:
            return hand.generation.wait()
        finally:
            returned.set()

    def settle() -> None:
        returned.wait(0.05)  # a `wait` that has gone wrong has returned by then
        hand.settle(late)

    thread = threading.Thread(target=settle, daemon=True)
    thread.start()
    output = within(wait, "`wait`")
    thread.join(limit())
    name = "the text of an answer whose future was settled, and which had not `ended` yet"
    check_equal(output.outputs[late].text, "a#", name=name, suspects={"`wait` did not wait for `ended`": "a"})


def test_task_5_wait_raises_what_an_answer_has_failed_of(lab):
    hand, error = Generating(lab, 3), OSError("the disk is gone")
    hand.end(0, b"a")
    hand.fail(2, ValueError("the last"))
    hand.fail(1, error)
    found = check_raises(OSError, lambda: within(hand.generation.wait, "`wait`"), name="waiting for answers")
    assert found is error, f"answer 1 failed with {error!r}, and `wait` raised {found!r}: pass it on as it is"


def test_task_5_wait_raises_cancelled_error_for_a_cancelled_answer(lab):
    hand = Generating(lab, 2)
    hand.end(0, b"a")
    hand.generation.cancel()
    hand.settle(1)
    check_raises(
        CancelledError, lambda: within(hand.generation.wait, "`wait`"), name="waiting for a cancelled answer"
    )


def take(deltas: Any, count: int | None = None) -> list[Any]:
    """The next deltas, or all of them, within a time limit."""
    return list(within(lambda: list(itertools.islice(deltas, count)), "an iteration over deltas"))


def told(deltas: Sequence[Any]) -> list[tuple[int, str, str]]:
    """The number of the answer, the text and the reason of each delta."""
    return [(delta.index, delta.text, str(delta.finish_reason or "")) for delta in deltas]


def test_task_5_deltas_come_in_their_order_until_each_answer_has_ended(lab):
    hand, queue = Generating(lab, 2), SimpleQueue[Any]()
    hand.deliver(queue.put)
    hand.push(0, b"a")
    hand.push(1, b"b")
    hand.end(1, b"c")
    hand.end(0, END)
    queue.put(lab.engine.output.Delta(0, "behind the end"))
    found = told(take(hand.generation.deltas(queue)))
    wanted = [(0, "a", ""), (1, "b", ""), (1, "c", ""), (1, "", "length"), (0, "", ""), (0, "", "stop")]
    check_equal(found, wanted, name="answer, text and reason of each delta")
    check_equal(queue.qsize(), 1, name="deltas left in the queue: one is behind the end of both answers")
    check_equal(
        hand.cancelled, [False, False], name="which futures were cancelled, of answers that are complete"
    )


def test_task_5_a_delta_is_given_on_before_the_next_one_is_there(lab):
    hand, queue = Generating(lab), SimpleQueue[Any]()
    hand.deliver(queue.put)
    deltas = hand.generation.deltas(queue)
    for piece in (b"a", b"b"):
        hand.push(0, piece)
        check_equal(told(take(deltas, 1)), [(0, piece.decode(), "")], name="the delta that has come")
    deltas.close()


def test_task_5_deltas_raise_what_an_answer_has_failed_of(lab):
    hand, queue, error = Generating(lab, 3), SimpleQueue[Any](), OSError("the disk is gone")
    hand.deliver(queue.put)
    hand.push(0, b"a")
    hand.end(2, b"c")
    hand.fail(1, error)
    deltas = hand.generation.deltas(queue)
    found = told(take(deltas, 3))
    check_equal(found, [(0, "a", ""), (2, "c", ""), (2, "", "length")], name="what comes before the error")
    raised = check_raises(
        OSError, lambda: take(deltas, 1), name="the next delta, of an answer that has failed"
    )
    assert raised is error, f"an answer has failed with {error!r}, and the iteration raised {raised!r}"
    check_equal(hand.cancelled[0], True, name="whether the answer that was not complete was cancelled")


def test_task_5_an_iteration_that_is_left_cancels_the_answers(lab):
    hand, queue = Generating(lab, 2), SimpleQueue[Any]()
    hand.deliver(queue.put)
    hand.push(0, b"a")
    for _ in hand.generation.deltas(queue):
        break
    name = "which futures were cancelled, after a loop over the deltas was left early"
    check_equal(hand.cancelled, [True, True], name=name)


def test_task_5_an_error_in_the_callers_loop_cancels_the_answers(lab):
    hand, queue = Generating(lab), SimpleQueue[Any]()
    hand.deliver(queue.put)
    hand.push(0, b"a")
    deltas = hand.generation.deltas(queue)
    take(deltas, 1)
    check_raises(KeyboardInterrupt, lambda: deltas.throw(KeyboardInterrupt()), name="Ctrl-C in an iteration")
    check_equal(hand.cancelled, [True], name="which futures were cancelled, after Ctrl-C in an iteration")


def test_task_5_begin_submits_a_request_and_delivers_its_deltas(lab):
    deltas = list[Any]()
    with Serving(lab) as serving:
        generation = serving.llm.begin(ids("abc"), serving.params(max_tokens=3), deltas.append)
        wait_for(generation.futures[0].result, "the future of the answer")
        ended = "`ended` of a completion whose future is settled (does the future call `settle`?)"
        wait_for(generation.completions[0].ended.result, ended)
        output = wait_for(generation.wait, "`wait`")
        check_equal(len(serving.futures), 1, name="requests that were submitted")
        assert generation.futures[0] is serving.futures[0], "`futures` has not the future that `submit` gave"
    check_equal(outputs_of(output), ["def"], name="the text of the answer")
    name = "answer, text and reason of each delta"
    check_equal(told(deltas), [(0, "d", ""), (0, "e", ""), (0, "f", ""), (0, "", "length")], name=name)
    found = (output.prompt_tokens, output.cached_tokens, output.completion_tokens)
    check_equal(found, (3, 0, 3), name="tokens of the prompt, cached, and of the answer")


def test_task_5_begin_submits_one_request_for_each_answer(lab):
    deltas = list[Any]()
    with Serving(lab) as serving:
        generation = serving.llm.begin(ids("abc"), serving.params(max_tokens=2, n=3), deltas.append)
        output = wait_for(generation.wait, "`wait`")
        check_equal(len(serving.futures), 3, name="requests that were submitted for n = 3")
        name = "the numbers of the completions"
        check_equal([each.index for each in generation.completions], [0, 1, 2], name=name)
    check_equal(outputs_of(output), ["de"] * 3, name="the texts of the answers")
    for index in range(3):
        found = [each for each in told(deltas) if each[0] == index]
        wanted = [(index, "d", ""), (index, "e", ""), (index, "", "length")]
        check_equal(found, wanted, name=f"answer, text and reason of the deltas of answer {index}")


def test_task_5_answer_i_draws_with_the_seed_plus_i(lab):
    with Serving(lab) as serving:

        def texts(seed: int, n: int) -> list[str]:
            params = serving.params(temperature=2.5, seed=seed, n=n, max_tokens=8, ignore_end=True)
            return outputs_of(wait_for(serving.llm.begin(ids("a"), params).wait, "`wait`"))

        alone = [texts(5 + i, 1)[0] for i in range(3)]
        assert len(set(alone)) == 3, "the toy model's draws don't depend on the seed"
        name = "three answers with the seed 5, beside those that the seeds 5, 6 and 7 give alone"
        check_equal(texts(5, 3), alone, name=name)


def test_task_5_the_answers_share_the_pages_of_the_prompt(lab):
    """A prompt of 7 tokens fills two pages of 3; only the last token is computed again."""
    prompt = ids("abcdefg")
    with Serving(lab) as serving:
        for cached in (0, 6):
            generation = serving.llm.begin(prompt, serving.params(max_tokens=2, n=3))
            output = wait_for(generation.wait, "`wait`")
            found = [each.computed for each in generation.completions]
            name = f"tokens of the prompt that each answer has computed, of 7, where {cached} were cached"
            check_equal(found, [7 - cached, 1, 1], name=name)
            check_equal(output.cached_tokens, cached, name="`cached_tokens`")


def test_task_5_a_question_about_documents_may_have_several_answers(lab):
    segments = lab.documents.prompt.Segments(tuple(ids("ab")), (tuple(ids("cde")), tuple(ids("fg"))), (7,))
    with Serving(lab, enable_chunk_aware=True) as serving:
        generation = serving.llm.begin(segments, serving.params(max_tokens=2, n=2))
        output = wait_for(generation.wait, "`wait`")
    check_equal(outputs_of(output), ["ij", "ij"], name="the texts of the answers")
    suspects = {"the question alone was counted": 1}
    check_equal(output.prompt_tokens, 8, name="tokens of the prompt, documents included", suspects=suspects)


def test_task_5_a_refusal_in_the_middle_gives_up_the_answers_before_it(lab):
    deltas, full = list[Any](), lab.ragged.errors.QueueFull
    with Serving(lab, max_queue=2, held=True) as serving:
        params = serving.params(max_tokens=3, n=3)
        check_raises(
            full,
            lambda: serving.llm.begin(ids("abc"), params, deltas.append),
            name="n = 3, where two requests may wait",
        )
        found = [future.cancelled() for future in serving.futures]
        name = "which requests were cancelled: two had room in the queue, the third had none"
        check_equal(found, [True, True], name=name)
        serving.await_freed()
        assert not any(each.token_ids for each in deltas), "answers that were given up have got tokens"


@pytest.mark.parametrize("text", ["", "a" * POSITIONS])
def test_task_5_begin_refuses_a_prompt_that_can_never_run(lab, text):
    with Serving(lab) as serving:
        name = f"a prompt of {len(text)} tokens, where at most {POSITIONS - 1} fit"
        check_raises(ValueError, lambda: serving.llm.begin(ids(text), serving.params(n=2)), name=name)
        check_equal(len(serving.futures), 0, name="requests that were submitted")


def test_task_5_cancel_frees_seats_and_pages_after_the_step_that_is_running(lab):
    with Serving(lab, held=True) as serving:
        generation = serving.llm.begin(ids("abcdefg"), serving.params(max_tokens=40, n=3, ignore_end=True))
        serving.core.let(3)
        for _ in range(3):
            serving.core.await_step()
        check_equal(len(serving.core.requests), 3, name="requests in the engine before the cancel")
        generation.cancel()
        serving.core.let(1)
        probe = serving.llm.begin(ids("a"), serving.params(max_tokens=1))
        serving.core.await_step()
        check_equal(len(serving.core.requests), 1, name="requests in the engine one step after the cancel")
        serving.core.open()
        wait_for(probe.wait, "another request")
        kept = [each.num_generated for each in serving.core.requests]
        check_equal(kept, [], name="requests in the engine at the end")


def test_task_5_the_text_is_complete_when_wait_returns(lab):
    """The callback of the future brings the rest of the text, on the batcher's thread."""
    returned = threading.Event()

    def deliver(delta: Any) -> None:
        if delta.finish_reason is not None:
            returned.wait(0.05)  # a `wait` that has gone wrong has returned by then

    with Serving(lab) as serving:
        generation = serving.llm.begin(ids("a"), serving.params(max_tokens=2, stop="cz"), deliver)

        def wait() -> Any:
            try:
                return generation.wait()
            finally:
                returned.set()

        output = within(wait, "`wait`")
        check_equal(
            output.text, "bc", name="the text: c was held back, for it may have become the stop string cz"
        )
        assert generation.completions[0].ended.done(), (
            "`wait` has returned, and the completion has not `ended`"
        )


def test_task_5_run_all_gives_the_answers_in_the_order_of_the_prompts(lab):
    with Serving(lab, seats=3) as serving:
        letters, counts = "dkaqbm", [9, 1, 5, 2, 7, 3]
        params = [serving.params(max_tokens=count, n=1 + count % 2) for count in counts]
        found = within(lambda: serving.llm.run_all([ids(each) for each in letters], params), "`run_all`")
    wanted = [[after(each, count)] * (1 + count % 2) for each, count in zip(letters, counts, strict=True)]
    check_equal(
        [outputs_of(each) for each in found], wanted, name="the texts of the answers, prompt by prompt"
    )


def test_task_5_run_all_of_no_prompts_is_no_answers(lab):
    with Serving(lab) as serving:
        check_equal(serving.llm.run_all([], []), [], name="the answers to no prompts")


@pytest.mark.parametrize(("max_queue", "n"), [(1, 1), (3, 1), (3, 2), (5, 3), (4, 4)])
def test_task_5_a_long_list_does_not_fill_the_queue(lab, max_queue, n):
    with Serving(lab, max_queue=max_queue, seats=2, held=True) as serving:
        usual = serving.llm.batcher.submit

        def submit(*arguments: Any) -> Any:
            """Steps go on as soon as the caller waits for an answer."""
            future = usual(*arguments)
            result = future.result
            future.result = lambda *rest: (serving.core.open(), result(*rest))[1]
            threading.Timer(0.3, serving.core.open).start()  # it may wait in another way
            return future

        serving.llm.batcher.submit = submit
        params = [serving.params(max_tokens=2, n=n)] * 7
        try:
            found = within(lambda: serving.llm.run_all([ids("abc")] * 7, params), "`run_all`")
        except lab.ragged.errors.QueueFull:
            raise AssertionError(
                f"seven prompts with n = {n} have filled the queue, in which {max_queue} requests may wait: no more "
                "requests of one call than that may be on their way"
            ) from None
        check_equal([outputs_of(each) for each in found], [["de"] * n] * 7, name="the texts of the answers")
        name = f"requests on their way at once, of seven prompts with n = {n}, where {max_queue} may wait"
        assert serving.peak <= max_queue, f"{name}: {serving.peak}"


def test_task_5_run_all_lets_its_prompts_run_together(lab):
    with Serving(lab, held=True, max_queue=3) as serving:
        params = [serving.params(max_tokens=2)] * 5

        def begun() -> None:
            serving.await_submitted(
                3, "five prompts, where three requests may wait, and none is complete yet"
            )
            serving.core.open()

        thread = threading.Thread(target=begun, daemon=True)
        with ThreadErrors().collected():
            thread.start()
            try:
                within(lambda: serving.llm.run_all([ids("abc")] * 5, params), "`run_all`", 2 * limit())
            finally:
                serving.core.open()
                thread.join(limit())


REFUSED: list[tuple[str, list[str], list[dict[str, Any]], str, int]] = [
    ("an empty prompt", ["abc", ""], [{}, {}], "empty", 2),
    ("a prompt that is too long", ["abc", "abc", "a" * POSITIONS, ""], [{}] * 4, "64 tokens", 3),
    ("an n that the queue has no room for", ["abc", "abc"], [{}, {"n": 6}], "n is 6; at most 5", 2),
    ("the only prompt", [""], [{}], "empty", 0),
    ("the only prompt's n", ["abc"], [{"n": 6}], "n is 6; at most 5", 0),
]


@pytest.mark.parametrize(
    ("what", "texts", "wanted", "reason", "number"), REFUSED, ids=[each[0] for each in REFUSED]
)
def test_task_5_a_prompt_that_can_never_run_is_found_before_any_has_begun(
    lab, what, texts, wanted, reason, number
):
    with Serving(lab, max_queue=5) as serving:
        params = [serving.params(max_tokens=2, **each) for each in wanted]
        error = check_raises(
            ValueError,
            lambda: within(lambda: serving.llm.run_all([ids(each) for each in texts], params), "`run_all`"),
            name=what,
            match=reason,
        )
        check_equal(len(serving.futures), 0, name=f"requests that were submitted, where there is {what}")
        if number:
            assert f"prompt {number}:" in str(error), (
                f"the message says which of {len(texts)} prompts can't run, counted from 1: `prompt {number}: …`; it "
                f"is: {error}"
            )
        else:
            assert "prompt 1:" not in str(error), (
                f"there is one prompt, and the message gives it a number: {error}"
            )


def test_task_5_after_an_error_run_all_gives_up_the_other_answers(lab):
    with Serving(lab, broken="d", held=True) as serving:
        params = [serving.params(max_tokens=3), *[serving.params(max_tokens=40, ignore_end=True, n=2)] * 2]
        serving.core.let(4)
        name = "`run_all`, where the first answer fails"
        prompts = [ids("c"), ids("g"), ids("g")]
        check_raises(
            OSError, lambda: within(lambda: serving.llm.run_all(prompts, params), "`run_all`"), name=name
        )
        found = [future.cancelled() for future in serving.futures]
        name = "which requests were cancelled, after the first answer has failed"
        check_equal(found, [False, True, True, True, True], name=name)
        serving.await_freed()


def test_task_5_after_ctrl_c_run_all_gives_up_all_answers(lab):
    with Serving(lab, held=True) as serving:
        usual = serving.llm.batcher.submit

        def interrupted(timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

        def submit(*arguments: Any) -> Any:
            future = usual(*arguments)
            if len(serving.futures) == 1:
                future.result = future.exception = interrupted  # Ctrl-C while the caller waits for it
            return future

        serving.llm.batcher.submit = submit
        params = [serving.params(max_tokens=40, ignore_end=True)] * 3
        run = partial(within, lambda: serving.llm.run_all([ids("c")] * 3, params), "`run_all`")
        check_raises(KeyboardInterrupt, run, name="Ctrl-C while `run_all` waits")
        found = [future.cancelled() for future in serving.futures]
        check_equal(found, [True] * 3, name="which requests were cancelled, after Ctrl-C")
        serving.await_freed()


def test_task_5_what_a_failed_step_says_reaches_run_all(lab):
    with Serving(lab) as serving:
        serving.model.failure = ZeroDivisionError("a bad step")
        run = partial(
            within, lambda: serving.llm.run_all([ids("c")], [serving.params(max_tokens=3)]), "`run_all`"
        )
        check_raises(lab.ragged.errors.EngineFailed, run, name="a step that fails", match="a bad step")
        found = within(lambda: serving.llm.run_all([ids("c")], [serving.params(max_tokens=3)]), "`run_all`")
        check_equal(outputs_of(found[0]), ["def"], name="the text of an answer after a step that has failed")


def test_task_5_many_threads_ask_at_once(lab):
    with Serving(lab) as serving:
        results: list[Future[Any]] = [Future() for _ in range(8)]

        def ask(number: int) -> None:
            params = [serving.params(max_tokens=number + 1 + i, n=1 + i) for i in range(3)]
            try:
                results[number].set_result(serving.llm.run_all([[number], [number, 3], [5]], params))
            except BaseException as error:
                results[number].set_exception(error)

        for number in range(8):
            threading.Thread(target=ask, args=(number,), daemon=True).start()
        for number, future in enumerate(results):
            found = [outputs_of(each) for each in within(future.result, "one of eight threads")]
            wanted = [
                [after(letter, number + 1 + i)] * (1 + i)
                for i, letter in enumerate((LETTERS[number], "d", "f"))
            ]
            check_equal(found, wanted, name=f"the answers that thread {number} gets")


def test_task_5_a_stream_gives_each_token_while_the_next_is_not_computed_yet(lab):
    with Serving(lab, held=True) as serving:
        deltas = serving.llm.deltas(ids("abc"), serving.params(max_tokens=2))
        for letter in "de":
            serving.core.let(2 if letter == "d" else 1)  # the test's own request has the first step
            check_equal(told(take(deltas, 1)), [(0, letter, "")], name="the next delta")
        check_equal(told(take(deltas)), [(0, "", "length")], name="the last delta")


def test_task_5_a_stream_of_several_answers_ends_with_the_last_of_them(lab):
    with Serving(lab) as serving:
        found = told(take(serving.llm.deltas(ids("abc"), serving.params(max_tokens=3, n=3))))
        for index in range(3):
            mine = [(text, reason) for number, text, reason in found if number == index]
            wanted = [("d", ""), ("e", ""), ("f", ""), ("", "length")]
            check_equal(mine, wanted, name=f"text and reason of the deltas of answer {index}, of three")


def test_task_5_leaving_a_stream_frees_seats_and_pages(lab):
    with Serving(lab, held=True) as serving:
        deltas = serving.llm.deltas(ids("abc"), serving.params(max_tokens=40, n=2, ignore_end=True))
        serving.core.let(3)
        take(deltas, 3)
        deltas.close()
        found = [future.cancelled() for future in serving.futures]
        check_equal(found, [True, True], name="which requests were cancelled, after the stream was closed")
        serving.await_freed()


def test_task_5_a_stream_raises_what_an_answer_has_failed_of(lab):
    with Serving(lab, broken="f") as serving:
        deltas = serving.llm.deltas(ids("c"), serving.params(max_tokens=9))
        check_equal(told(take(deltas, 2)), [(0, "d", ""), (0, "e", "")], name="what comes before the error")
        check_raises(
            OSError, lambda: take(deltas, 1), name="the next delta, where the answer fails", match="for f"
        )


def test_task_5_a_stream_of_a_full_queue_says_so(lab):
    with Serving(lab, max_queue=1, held=True) as serving:
        waits = serving.llm.begin(ids("a"), serving.params(max_tokens=1))
        full = lab.ragged.errors.QueueFull
        name = "a stream, when the queue is full"
        check_raises(
            full, lambda: take(serving.llm.deltas(ids("abc"), serving.params(max_tokens=2))), name=name
        )
        serving.core.open()
        wait_for(waits.wait, "the request that was in the queue")


def test_task_5_when_the_engine_is_closed_waiting_callers_are_told(lab):
    closed = lab.ragged.errors.Closed
    with Serving(lab, held=True) as serving:
        generation = serving.llm.begin(ids("a"), serving.params(max_tokens=5))
        deltas = serving.llm.deltas(ids("b"), serving.params(max_tokens=5))
        serving.llm.close(timeout=0)
        serving.core.open()
        check_raises(
            closed, lambda: within(generation.wait, "`wait`"), name="an answer, when the engine is closed"
        )
        check_raises(closed, lambda: take(deltas), name="a stream, when the engine is closed")
        check_raises(
            closed,
            lambda: serving.llm.begin([1], serving.params()),
            name="a prompt after the engine was closed",
        )


# Task 6: coroutines


async def turns() -> None:
    """Let every coroutine that can go on do so, until each waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def held_up(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that runs the coroutine until it waits for its answers."""
    task = asyncio.ensure_future(coroutine)
    await turns()
    assert not task.done(), f"it has ended before its answers were there: {task}"
    return task


def async_of(serving: Any) -> Any:
    return serving.lab.engine.async_llm.AsyncLLM(serving.llm)


def test_task_6_wait_async_gives_all_answers_in_their_order(lab):
    hand = Generating(lab, 2)
    hand.end(1, b"b", END)
    hand.end(0, b"a")
    output = run_async(hand.generation.wait_async, "`wait_async`, when all answers are complete,")
    check_equal(outputs_of(output), ["a", "b"], name="the texts of the answers")
    check_equal(output.prompt_tokens, 10, name="tokens of the prompt")


def test_task_6_wait_async_lets_the_event_loop_go_on(lab):
    hand = Generating(lab, 2)

    async def main() -> Any:
        task = await held_up(hand.generation.wait_async())
        hand.end(0, b"a")
        await asyncio.sleep(0)
        hand.end(1, b"b")
        return await task

    output = run_async(
        main, "`wait_async`, beside another coroutine that ends the answers (is the loop blocked?),"
    )
    check_equal(outputs_of(output), ["a", "b"], name="the texts of the answers")


@pytest.mark.parametrize("late", [0, 1])
def test_task_6_wait_async_waits_for_the_last_text(lab, late):
    """As for `wait`: a future may be settled before the rest of the text is there."""
    hand = Generating(lab, 2, stop=["##"])
    hand.push(late, b"a", b"#")
    hand.futures[late].set_result([])
    hand.end(1 - late, b"b")

    async def main() -> Any:
        task = asyncio.ensure_future(hand.generation.wait_async())
        await turns()
        hand.settle(late)
        return await task

    output = run_async(main, "`wait_async` (is the event loop blocked while an answer has not `ended`?)")
    name = "the text of an answer whose future was settled, and which had not `ended` yet"
    check_equal(output.outputs[late].text, "a#", name=name, suspects={"`ended` was not waited for": "a"})


@pytest.mark.parametrize("when", ["at once", "later"])
def test_task_6_when_an_answer_fails_wait_async_gives_up_the_others(lab, when):
    hand, error = Generating(lab, 3), OSError("the disk is gone")
    hand.end(0, b"a")

    async def main() -> Any:
        if when == "at once":
            hand.fail(2, error)
        task = asyncio.ensure_future(hand.generation.wait_async())
        await turns()
        if when == "later":
            hand.fail(2, error)
        try:
            await task
        except OSError as raised:
            return raised
        return None

    raised = run_async(main, "`wait_async`, where answer 2 fails and answer 1 isn't complete,")
    assert raised is error, f"answer 2 failed with {error!r}, and what came through is {raised!r}"
    check_equal(
        hand.cancelled, [False, True, False], name="which answers were cancelled, after one has failed"
    )


def test_task_6_when_the_coroutine_is_cancelled_so_are_the_answers(lab):
    hand = Generating(lab, 2)
    hand.end(1, b"b")

    async def main() -> str:
        task = await held_up(hand.generation.wait_async())
        task.cancel()
        return await ending(task)

    check_equal(
        run_async(main, "`wait_async`, after a cancel,"), "cancelled", name="how the coroutine has ended"
    )
    check_equal(hand.cancelled, [True, False], name="which answers were cancelled; the second was complete")


async def ending(task: asyncio.Task[Any]) -> str:
    """How a task has ended, in a word."""
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    except Exception as error:
        return type(error).__name__
    return "complete"


def test_task_6_a_cancel_while_the_last_text_is_on_its_way_harms_no_one(lab):
    """The callback of the future is still to come."""
    hand = Generating(lab, 1, stop=["##"])
    hand.push(0, b"a", b"#")
    hand.futures[0].set_result([])

    async def main() -> str:
        task = asyncio.ensure_future(hand.generation.wait_async())
        await turns()
        task.cancel()
        return await ending(task)

    check_equal(
        run_async(main, "`wait_async`, after a cancel,"), "cancelled", name="how the coroutine has ended"
    )
    hand.settle(0)
    check_equal(
        hand.growing[0].joined, "a#", name="the text of all deltas, though the coroutine was cancelled"
    )


def test_task_6_async_deltas_come_in_their_order_until_each_answer_has_ended(lab):
    hand = Generating(lab, 2)

    async def main() -> Any:
        queue = asyncio.Queue[Any]()
        hand.deliver(queue.put_nowait)
        hand.push(0, b"a")
        hand.push(1, b"b")
        hand.end(1, b"c")
        hand.end(0, END)
        queue.put_nowait(lab.engine.output.Delta(0, "behind the end"))
        return told([delta async for delta in hand.generation.deltas_async(queue)]), queue.qsize()

    found, left = run_async(main, "an iteration over deltas")
    wanted = [(0, "a", ""), (1, "b", ""), (1, "c", ""), (1, "", "length"), (0, "", ""), (0, "", "stop")]
    check_equal(found, wanted, name="answer, text and reason of each delta")
    check_equal(left, 1, name="deltas left in the queue: one is behind the end of both answers")
    check_equal(
        hand.cancelled, [False, False], name="which futures were cancelled, of answers that are complete"
    )


def test_task_6_async_deltas_let_the_event_loop_go_on(lab):
    hand = Generating(lab)

    async def main() -> Any:
        queue, found = asyncio.Queue[Any](), list[Any]()
        hand.deliver(queue.put_nowait)
        deltas = hand.generation.deltas_async(queue)
        for piece in (b"a", b"b"):
            task = await held_up(anext(deltas))
            hand.push(0, piece)
            found.append(await task)
        await deltas.aclose()
        return told(found)

    found = run_async(
        main, "an iteration over deltas, beside another coroutine that brings them (is the loop blocked?),"
    )
    check_equal(found, [(0, "a", ""), (0, "b", "")], name="the deltas")


def test_task_6_async_deltas_raise_what_an_answer_has_failed_of(lab):
    hand, error = Generating(lab, 2), OSError("the disk is gone")

    async def main() -> Any:
        queue, found = asyncio.Queue[Any](), list[Any]()
        hand.deliver(queue.put_nowait)
        hand.push(0, b"a")
        hand.fail(1, error)
        try:
            async for delta in hand.generation.deltas_async(queue):
                found.append(delta)
        except OSError as raised:
            return told(found), raised
        return told(found), None

    found, raised = run_async(main, "an iteration over deltas of which one has an error")
    check_equal(found, [(0, "a", "")], name="what comes before the error")
    assert raised is error, f"an answer has failed with {error!r}, and the iteration raised {raised!r}"
    check_equal(hand.cancelled, [True, False], name="which answers were cancelled, after one has failed")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_task_6_an_async_iteration_that_is_left_cancels_the_answers(lab, how):
    hand = Generating(lab, 2)

    async def main() -> None:
        queue = asyncio.Queue[Any]()
        hand.deliver(queue.put_nowait)
        deltas = hand.generation.deltas_async(queue)
        hand.push(0, b"a")
        await anext(deltas)
        if how == "closed":
            await deltas.aclose()
        else:
            task = await held_up(anext(deltas))
            task.cancel()
            await ending(task)

    run_async(main, f"an iteration over deltas that is {how}")
    check_equal(
        hand.cancelled, [True, True], name=f"which answers were cancelled, after the iteration was {how}"
    )


def test_task_6_run_gives_what_generate_gives(lab):
    with Serving(lab) as serving:
        engine, params = async_of(serving), serving.params(max_tokens=3, n=2, stop="fz")
        found = run_async(lambda: engine.run(ids("abc"), params), "`run`")
        check_equal(outputs_of(found), ["def", "def"], name="the texts of the answers")
        check_equal(
            (found.prompt_tokens, found.cached_tokens), (3, 0), name="tokens of the prompt, and cached"
        )
        check_equal(len(serving.futures), 2, name="requests that were submitted for n = 2")


def test_task_6_the_event_loop_goes_on_while_an_answer_is_computed(lab):
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        async def main() -> Any:
            task = asyncio.ensure_future(engine.run(ids("abc"), serving.params(max_tokens=3)))
            while not serving.futures:
                await asyncio.sleep(0)
            for _ in range(4):  # the first one is the step of the test's own request
                await turns()
                serving.core.let(1)  # without this coroutine, no step goes on
            return await task

        found = run_async(
            main, "`run`, where another coroutine lets each step go on (is the event loop blocked?),"
        )
    check_equal(outputs_of(found), ["def"], name="the text of the answer")


def test_task_6_many_coroutines_ask_at_once(lab):
    with Serving(lab) as serving:
        engine = async_of(serving)

        async def main() -> Any:
            params = [serving.params(max_tokens=1 + i % 3, n=1 + i % 2) for i in range(12)]
            return await asyncio.gather(*(engine.run([i], each) for i, each in enumerate(params)))

        found = run_async(main, "twelve coroutines that ask at once")
    wanted = [[after(LETTERS[i], 1 + i % 3)] * (1 + i % 2) for i in range(12)]
    check_equal([outputs_of(each) for each in found], wanted, name="the answers that each coroutine gets")


def test_task_6_cancelling_the_task_frees_seats_and_pages(lab):
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        async def main() -> str:
            params = serving.params(max_tokens=40, n=3, ignore_end=True)
            task = asyncio.ensure_future(engine.run(ids("abc"), params))
            while len(serving.futures) < 3:
                await asyncio.sleep(0)
            serving.core.let(3)
            await asyncio.to_thread(serving.core.await_step)
            task.cancel()
            return await ending(task)

        check_equal(run_async(main, "`run`, after a cancel,"), "cancelled", name="how the task has ended")
        found = [future.cancelled() for future in serving.futures]
        check_equal(found, [True] * 3, name="which requests were cancelled, with their task")
        serving.await_freed()


def test_task_6_run_raises_what_begin_raises(lab):
    with Serving(lab, max_queue=2, held=True) as serving:
        engine, full = async_of(serving), lab.ragged.errors.QueueFull
        ask = partial(run_async, lambda: engine.run(ids("abc"), serving.params(n=3)), "`run`")
        check_raises(full, ask, name="n = 3, where two requests may wait")
        ask = partial(run_async, lambda: engine.run([], serving.params()), "`run`")
        check_raises(ValueError, ask, name="an empty prompt", match="empty")
        serving.await_freed()


def test_task_6_run_raises_what_an_answer_has_failed_of(lab):
    with Serving(lab, broken="f") as serving:
        engine = async_of(serving)
        ask = partial(run_async, lambda: engine.run(ids("c"), serving.params(max_tokens=9)), "`run`")
        check_raises(OSError, ask, name="an answer that fails", match="for f")


async def collect(deltas: Any) -> list[Any]:
    return [delta async for delta in deltas]


def test_task_6_only_the_event_loop_touches_its_queue(lab, monkeypatch):
    """An asyncio.Queue isn't made for several threads: a delta may be lost, and a coroutine may sleep on."""
    others, put = list[str](), asyncio.Queue.put_nowait

    with Serving(lab) as serving:
        engine = async_of(serving)

        async def main() -> Any:
            loop, mine = asyncio.get_running_loop(), threading.get_ident()
            call = loop.call_soon

            def put_nowait(queue: Any, item: Any) -> None:
                if threading.get_ident() == mine:
                    put(queue, item)
                else:
                    others.append("has put a delta into an asyncio.Queue")
                    loop.call_soon_threadsafe(put, queue, item)

            def call_soon(callback: Any, *arguments: Any, context: Any = None) -> Any:
                if threading.get_ident() == mine:
                    return call(callback, *arguments, context=context)
                others.append("has called the event loop's `call_soon`")
                return loop.call_soon_threadsafe(callback, *arguments, context=context)

            monkeypatch.setattr(asyncio.Queue, "put_nowait", put_nowait)
            loop.call_soon = call_soon  # type: ignore[method-assign]
            return await collect(engine.deltas(ids("abc"), serving.params(max_tokens=3)))

        deltas = run_async(main, "`deltas`")
        monkeypatch.undo()
    assert not others, (
        f"another thread than the event loop's {others[0]}: ask the loop to do it, with `call_soon_threadsafe`"
    )
    check_equal("".join(each.text for each in deltas), "def", name="the text of all deltas")


def test_task_6_deltas_of_a_coroutine_are_those_of_the_engine(lab):
    with Serving(lab) as serving:
        engine, params = async_of(serving), serving.params(max_tokens=3, n=2)
        found = told(run_async(lambda: collect(engine.deltas(ids("abc"), params)), "`deltas`"))
    for index in range(2):
        mine = [(text, reason) for number, text, reason in found if number == index]
        wanted = [("d", ""), ("e", ""), ("f", ""), ("", "length")]
        check_equal(mine, wanted, name=f"text and reason of the deltas of answer {index}, of two")


def test_task_6_each_delta_comes_while_the_next_token_is_not_computed_yet(lab):
    """The steps go on only when the coroutine that has the delta lets them."""
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        async def main() -> Any:
            found, deltas = list[Any](), engine.deltas(ids("abc"), serving.params(max_tokens=2))
            serving.core.let(1)  # the step of the test's own request
            for _ in range(2):
                task = asyncio.ensure_future(anext(deltas))
                while not serving.futures:
                    await asyncio.sleep(0)
                serving.core.let(1)
                found.append(await task)
            return told([*found, *await collect(deltas)])

        what = "`deltas`, where each step waits for the delta before it (is the event loop blocked, or not woken?),"
        found = run_async(main, what)
    check_equal(found, [(0, "d", ""), (0, "e", ""), (0, "", "length")], name="the deltas")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_task_6_leaving_the_deltas_frees_seats_and_pages(lab, how):
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        async def main() -> None:
            deltas = engine.deltas(ids("abc"), serving.params(max_tokens=40, n=2, ignore_end=True))
            serving.core.let(2)
            await anext(deltas)
            await anext(deltas)
            if how == "closed":
                await deltas.aclose()
                now = [future.cancelled() for future in serving.futures]
                name = "which requests were cancelled as soon as the iteration was closed"
                check_equal(now, [True] * 2, name=name)
                return
            task = asyncio.ensure_future(anext(deltas))
            await turns()
            task.cancel()
            await ending(task)

        run_async(main, f"`deltas`, when the iteration is {how},")
        found = [future.cancelled() for future in serving.futures]
        check_equal(found, [True] * 2, name=f"which requests were cancelled, after the iteration was {how}")
        serving.await_freed()


def test_task_6_nothing_begins_before_the_first_delta_is_asked_for(lab):
    with Serving(lab) as serving:
        engine = async_of(serving)

        async def main() -> None:
            await engine.deltas(ids("abc"), serving.params(max_tokens=2)).aclose()

        run_async(main, "`deltas`, closed before the first one was asked for,")
        check_equal(len(serving.futures), 0, name="requests that were submitted")


def test_task_6_deltas_raise_what_an_answer_has_failed_of(lab):
    with Serving(lab, broken="f") as serving:
        engine, found = async_of(serving), list[Any]()

        async def main() -> None:
            async for delta in engine.deltas(ids("c"), serving.params(max_tokens=9)):
                found.append(delta)

        check_raises(
            OSError, partial(run_async, main, "`deltas`"), name="an answer that fails", match="for f"
        )
        check_equal(told(found), [(0, "d", ""), (0, "e", "")], name="what comes before the error")


def test_task_6_two_event_loops_share_an_engine(lab):
    """Each on a thread of its own, with one object for both."""
    with Serving(lab) as serving:
        engine, results = async_of(serving), [Future[Any](), Future[Any]()]

        def ask(number: int) -> None:
            async def main() -> Any:
                params = serving.params(max_tokens=5, n=2)
                whole, parts = await asyncio.gather(
                    engine.run([number], params), collect(engine.deltas([number], params))
                )
                texts = ["".join(each.text for each in parts if each.index == index) for index in range(2)]
                return outputs_of(whole), texts

            try:
                results[number].set_result(asyncio.run(main(), debug=True))
            except BaseException as error:
                results[number].set_exception(error)

        for number in range(2):
            threading.Thread(target=ask, args=(number,), daemon=True).start()
        for number, future in enumerate(results):
            wanted = [after("ab"[number], 5)] * 2
            found = within(future.result, "one of two event loops")
            check_equal(found, (wanted, wanted), name=f"the answers that event loop {number} gets")


def test_task_6_an_event_loop_that_is_gone_harms_no_other_caller(lab, caplog):
    """Its deltas have nowhere to go: the answer ends, and the engine goes on."""
    caplog.set_level(logging.CRITICAL, logger="concurrent.futures")
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        def leave() -> Any:
            loop = asyncio.new_event_loop()
            deltas = engine.deltas(ids("a"), serving.params(max_tokens=40, ignore_end=True))
            first = loop.run_until_complete(anext(deltas))
            loop.close()
            return first, deltas

        serving.core.let(2)
        first, _deltas = within(leave, "the first delta of an event loop")
        check_equal(first.text, "b", name="the text of the first delta")
        serving.core.open()
        other = within(lambda: serving.llm.run_all([ids("c")], [serving.params(max_tokens=3)]), "`run_all`")
        check_equal(outputs_of(other[0]), ["def"], name="the text of another caller's answer")
        serving.await_freed()
        count = sum(len(step) for step in serving.core.steps)
        assert count < 20, "an answer whose event loop is gone has got all of its 40 tokens"
