"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door
from coursekit.check import check_equal

from .answering import (
    END,
    EOT,
    HAN,
    SMILE,
    UNFINISHED,
    VOCABULARY,
    Growing,
    Pieces,
    cancelled,
    failed,
    settled,
    whole_text,
)

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)

# Task 1: stop strings

# Task 2: penalties and log-probabilities

# Task 3: a whole step at once


# Task 4: an answer that grows


def test_task_4_each_token_is_delivered_with_the_text_that_it_adds(lab):
    growing = Growing(lab, index=2)
    check_equal(growing.push(b" the", b" cat", b"ab"), ["the", " cat", "ab"], name="the texts of the deltas")
    ids = growing.tokenizer.ids(b" the", b" cat", b"ab")
    found = [(delta.index, delta.token_ids, delta.logprobs) for delta in growing.deltas]
    check_equal(
        found, [(2, (token,), ()) for token in ids], name="index, tokens and log-probabilities of each delta"
    )
    ends = [(delta.finish_reason, delta.error) for delta in growing.deltas]
    check_equal(ends, [(None, None)] * 3, name="reason and error of deltas that aren't the last")
    check_equal(growing.completion.token_ids, ids, name="`token_ids` of the completion")
    check_equal(growing.completion.text, "the catab", name="`text` of the completion")


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


def test_task_4_half_a_character_is_held_back(lab):
    growing = Growing(lab)
    texts = growing.push(b"a", *SMILE, *HAN, b"b")
    name = "the texts of the deltas: an emoji of three tokens, then a character of two"
    check_equal(texts, ["a", "", "", "\N{SLIGHTLY SMILING FACE}", "", "漢", "b"], name=name)


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
    check_equal(last.text, "", name=name, suspects={"the rest did not go through the stop strings": "b"})
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
    check_equal(growing.reasons, ("stop", None), name="finish reason and stop reason of an end token")


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
