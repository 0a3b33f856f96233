"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.arguments import check_leaves_alone, float_dtypes
from week_1 import sampling_oracle as oracle
from week_2.continuous import new_request
from week_3.patience import limit
from week_3.serving_threads import ThreadErrors, within

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_raises, check_shape, check_untouched

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
from .beside_coroutines import (
    cancelled_after,
    cancelled_while_submitting,
    new_queue,
    result_beside,
    result_of,
    results_of,
)
from .beside_deltas import (
    collected,
    deltas_beside,
    first_delta_before_its_loop_closes,
    left_deltas,
    run_and_stream,
    touched_by_others,
)
from .coroutines import run_async
from .joined_engine import Engine, Noting, prompt_of, words
from .served import Failing, Served, after, answered, asked, completion_of, twin_of
from .serving_llm import LETTERS, POSITIONS, Serving, greedy_answer, ids, outputs_of, wait_for
from .step_sampling import (
    Twin,
    best_first,
    changed,
    check_generators,
    check_step,
    log_softmax,
    penalize,
    penalize_seen,
    penalty_suspects,
    wide,
)
from .stopping import Reader, cut, read

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)


# Task 1: stop strings

CASES = {
    "a stop string in the middle": (["END"], "an answer END and more"),
    "no stop strings": ([], "an answer of any kind"),
    "no stop string there": (["END"], "an answer that goes on"),
    "nothing but the stop string": (["END"], "END"),
    "the stop string first": (["END"], "END of it"),
    "the stop string last": (["END"], "the END"),
    "one character": (["."], "One. Two. Three."),
    "what only begins like one": (["STOP"], "STO STOO SSTO"),
    "what begins like one, and begins anew within that": (["aab"], "aaaab"),
    "a stop string that repeats its beginning": (["ababac"], "xababababac"),
    "the same one twice": (["##"], "a ## b ## c"),
    "the second of the list comes first": (["one", "two"], "zero two one"),
    "one that is complete within another": (["abcd", "bc"], "xabcd"),
    "one that is complete within another, listed first": (["bc", "abcd"], "xabcd"),
    "a long one that goes on behind a short one": (["ab", "abc"], "xabcabc"),
    "a long one first that goes on behind a short one": (["abc", "ab"], "xabcabc"),
    "two that are complete at the same character": (["cd", "abcd"], "xabcdx"),
    "two that are complete at the same character, the longer first": (["abcd", "cd"], "xabcdx"),
    "three that are complete at the same character": (["d", "abcd", "cd"], "xabcd"),
    "one that begins within the beginning of another": (["abcx", "bcd"], "xxabcd"),
    "one that begins within the beginning of another, which comes": (["bcd", "abcx"], "xxabcx"),
    "the beginning of two, and none of them": (["abcx", "bcd"], "xxabcefg"),
    "a beginning of the one in a beginning of the other": (["aaab", "ac"], "aaaaac"),
    "a later one that ends earlier": (["begins early, ends late", "early"], "it begins early, ends late"),
    "signs that a regular expression would read": ([".*", "(a|b)", "\\"], "a.b [x] ab .* (a|b)"),
    "line breaks": (["\n\n", "\nUser:"], "yes\nno\r\n\n\nUser: hello"),
    "spaces": ([" ."], "a. b . c"),
    "spaces before a stop string": (["END"], " the \n\n END"),
    "spaces that are held back at the end": ([" ."], " the end  "),
    "line breaks that are held back at the end": (["\n\n\n"], "the end\n\n"),
    "letters of two sizes": (["end"], "END End end"),
    "other alphabets": (["конец", "終わり", "🛑🏁"], "Это кон и 終わ и 🛑, 🛑🏁 !"),
    "a letter and its accent": (["e\u0301"], "caf\u00e9 cafe cafe\u0301"),
    "a stop string of 256 characters": (["ab" * 128], "ab" * 127 + "b" + "ab" * 129),
}  # fmt: skip
some_cases = pytest.mark.parametrize("case", CASES)


@some_cases
def test_task_1_a_text_in_one_piece_ends_before_its_stop_string(lab, case):
    stops, text = CASES[case]
    read(lab, stops, [text])


@some_cases
def test_task_1_a_text_that_comes_by_the_character_ends_in_the_same_way(lab, case):
    stops, text = CASES[case]
    read(lab, stops, list(text))


@some_cases
def test_task_1_wherever_a_text_is_cut_it_ends_in_the_same_way(lab, case):
    stops, text = CASES[case]
    for place in range(1, min(len(text), 60)):
        read(lab, stops, cut(text, [place]))
        read(lab, stops, cut(text, [place, place + 2]))


def test_task_1_without_stop_strings_everything_comes_at_once(lab):
    reader = Reader(lab, [])
    for piece in ("a", " few", "", " pieces\n"):
        check_equal(reader.push(piece), piece, name=f"push({piece!r}), where nothing ends the text")
    check_equal(reader.flush(), "a few pieces\n", name="the text")


def test_task_1_what_can_no_longer_become_a_stop_string_comes_at_once(lab):
    reader = Reader(lab, ["###", "END"])
    for piece, expected in (
        ("a #", "a "), ("#", ""), (" b", "## b"), ("E", ""), ("E", "E"), ("N", ""), ("E", "EN"), ("nd.", "End.")
    ):  # fmt: skip
        check_equal(
            reader.push(piece), expected, name=f"push({piece!r}), after {reader.text[: -len(piece)]!r}"
        )


def test_task_1_empty_pieces_change_nothing(lab):
    reader = Reader(lab, ["stop"])
    for piece in ("", "so s", "", "", "to", "", "p", "", "stop", ""):
        reader.push(piece)
    check_equal(reader.flush(), "so ", name="the text")


def test_task_1_after_a_stop_string_nothing_comes_any_more(lab):
    """Not even another stop string changes what ended the text."""
    reader = Reader(lab, ["one", "two"])
    for piece in ("a two", " and one", "", "two", "xyz on"):
        reader.push(piece)
    check_equal(reader.flush(), "a ", name="the text")
    check_equal(reader.watched.push("one"), "", name="push('one'), after the stop string and a flush")
    check_equal(reader.watched.found, "two", name="`found`, after other stop strings came behind it")


def test_task_1_what_stands_behind_the_stop_string_in_its_piece_is_no_text(lab):
    for piece in ("x STOP y", "x STOP STO", "x STOP S"):
        reader = Reader(lab, ["STOP"])
        check_equal(reader.push(piece), "x ", name=f"push({piece!r})")
        check_equal(reader.flush(), "x ", name=f"the text after push({piece!r}) and flush()")


def test_task_1_the_beginning_of_a_stop_string_at_the_end_is_text(lab):
    reader = Reader(lab, ["STOP", "TOP SECRET"])
    reader.push("it is STO")
    check_equal(reader.flush(), "it is STO", name="the text")
    check_equal(reader.watched.found, None, name="`found` of a text that ends in the middle of a stop string")


def test_task_1_an_empty_text_has_an_empty_end(lab):
    check_equal(Reader(lab, ["STOP"]).flush(), "", name="flush() before any text")
    reader = Reader(lab, ["STOP"])
    reader.push("")
    check_equal(reader.flush(), "", name="flush() after an empty text")


def test_task_1_two_answers_that_grow_in_turn_know_nothing_of_each_other(lab):
    one, other = Reader(lab, ["STOP"]), Reader(lab, ["STOP"])
    for piece in ("a S", "T", "O", "P b"):
        one.push(piece)
        other.push(piece.replace("T", "-"))
    check_equal(one.flush(), "a ", name="the first text")
    check_equal(other.flush(), "a S-OP b", name="the second text")


words_of = {letters: st.text(letters, min_size=1, max_size=5) for letters in ("ab", "abc")}


@pytest.mark.parametrize("letters", words_of)
@settings(QUICK, max_examples=250)
@given(data=st.data())
def test_task_1_any_text_in_any_pieces_ends_as_it_does_by_the_character(letters, data):
    """Few letters, so that stop strings overlap, repeat themselves and begin within one another."""
    lab = door.active()
    stops = data.draw(st.lists(words_of[letters], max_size=4), label="stops")
    text = data.draw(st.text(letters, max_size=24), label="text")
    places = data.draw(st.lists(st.integers(0, 24), max_size=8), label="cut at")
    read(lab, stops, cut(text, places))


# Task 2: penalties and log-probabilities


def scores_of(seed: int, size: int = 23) -> np.ndarray:
    """Scores of both signs, as float32 holds them."""
    return (2.5 * np.random.default_rng(seed).normal(size=size)).astype(np.float32).astype(np.float64)


OUTPUT = (5, 0, 5, 22, 5, 0, 7)
PENALTIES = [
    (1.5, 0.4),
    (0.5, 0.0),
    (0.0, 0.25),
    (-0.75, 0.0),
    (0.0, -1.5),
    (2.0, -2.0),
    (-1.0, 0.5),
    (0.3, -0.1),
]
some_penalties = pytest.mark.parametrize(("presence", "frequency"), PENALTIES)


@some_penalties
def test_task_2_penalties_lower_the_tokens_of_the_output(lab, presence, frequency):
    logits = scores_of(1)
    check(
        lab.engine.penalties.apply_count_penalties(lab.array(logits), list(OUTPUT), presence, frequency),
        penalize(logits, OUTPUT, presence, frequency),
        name=f"the scores with presence {presence}, frequency {frequency} and the output {list(OUTPUT)}",
        axes="V",
        suspects=penalty_suspects(logits, OUTPUT, presence, frequency),
    )


@some_penalties
def test_task_2_tokens_that_are_not_in_the_output_keep_their_scores(lab, presence, frequency):
    logits = scores_of(2)
    found = lab.engine.penalties.apply_count_penalties(lab.array(logits), list(OUTPUT), presence, frequency)
    found = check_shape(found, logits.shape, name="the scores", axes="V")
    others = [token for token in range(len(logits)) if token not in OUTPUT]
    name = f"the scores of tokens that are not in the output {list(OUTPUT)}"
    check(found[others], logits[others], name=name, framework="numpy", rtol=0, atol=0)


@pytest.mark.parametrize("output", [[3], [3] * 40, list(range(23)), [22, 0], [9, 4, 9]], ids=str)
def test_task_2_each_occurrence_counts_wherever_it_stands(lab, output):
    logits = scores_of(3)
    check(
        lab.engine.penalties.apply_count_penalties(lab.array(logits), output, 0.7, 0.2),
        penalize(logits, output, 0.7, 0.2),
        name=f"the scores with presence 0.7, frequency 0.2 and the output {output}",
        axes="V",
        suspects=penalty_suspects(logits, output, 0.7, 0.2),
        atol=1e-5,
    )


def test_task_2_the_output_may_be_any_sequence_and_stays_as_it_is(lab):
    logits, output = scores_of(4), list(OUTPUT)
    for given_ in (output, OUTPUT):
        check(
            lab.engine.penalties.apply_count_penalties(lab.array(logits), given_, 0.5, 0.25),
            penalize(logits, OUTPUT, 0.5, 0.25),
            name=f"the scores for an output that is a {type(given_).__name__}",
            axes="V",
        )
    check_equal(output, list(OUTPUT), name="the output, afterwards")


def test_task_2_penalties_keep_the_dtype(lab):
    # Whole numbers and halves: every float dtype holds them exactly.
    logits = np.round(2 * scores_of(5)) / 2
    for dtype in float_dtypes(lab):
        check(
            lab.engine.penalties.apply_count_penalties(lab.array(logits, dtype), list(OUTPUT), 1.5, 0.5),
            penalize(logits, OUTPUT, 1.5, 0.5),
            name=f"the scores, in {dtype}",
            axes="V",
            dtype=dtype,
        )


def test_task_2_penalties_of_float64_scores_are_exact(lab):
    if "float64" not in float_dtypes(lab):
        pytest.skip("there is no float64 on this device")
    logits = np.array([1.0, 1.0 + 1e-12, 0.5])
    check(
        lab.engine.penalties.apply_count_penalties(lab.array(logits, "float64"), [0, 1, 1], 0.3, 0.1),
        penalize(logits, [0, 1, 1], 0.3, 0.1),
        name="the scores, in float64",
        dtype="float64",
        rtol=1e-14,
        atol=0,
    )


@some_penalties
def test_task_2_the_callers_scores_are_left_as_they_are_by_penalties(lab, presence, frequency):
    def call(logits: Any) -> Any:
        return lab.engine.penalties.apply_count_penalties(logits, list(OUTPUT), presence, frequency)

    check_leaves_alone(lab, call, the_logits=scores_of(6))


@pytest.mark.parametrize(
    ("output", "presence", "frequency"), [([], 0.5, 0.5), ((), 1.0, 0.0), (OUTPUT, 0.0, 0.0), (OUTPUT, 0, 0)]
)
def test_task_2_where_nothing_changes_the_scores_themselves_come_back(lab, output, presence, frequency):
    logits = lab.array(scores_of(7))
    what = f"the output {list(output)} with presence {presence} and frequency {frequency}"
    found = lab.engine.penalties.apply_count_penalties(logits, output, presence, frequency)
    check(found, scores_of(7), name=f"the scores for {what}", axes="V")
    assert found is logits, f"for {what} nothing changes: `logits` itself should come back, not a copy"


def test_task_2_a_token_that_can_not_come_stays_so(lab):
    logits = scores_of(8)
    logits[[0, 9]] = -np.inf
    check(
        lab.engine.penalties.apply_count_penalties(lab.array(logits), list(OUTPUT), -2.0, -2.0),
        penalize(logits, OUTPUT, -2.0, -2.0),
        name="the scores, of which two are -inf",
        axes="V",
    )


def told_logprobs(found: Any, what: str) -> Any:
    """A `TokenLogprob`, once it is known to hold plain numbers."""
    __tracebackhide__ = True
    if found is None:
        raise CheckFailed(f"{what}: None found, TokenLogprob expected; is a `return` missing?")
    check_equal(type(found).__name__, "TokenLogprob", name=f"the type of {what}")
    numbers = [("token_id", found.token_id, int), ("logprob", found.logprob, float)]
    for n, (token, logprob) in enumerate(found.top):
        numbers += [(f"top[{n}][0]", token, int), (f"top[{n}][1]", logprob, float)]
    for name, value, kind in numbers:
        assert type(value) is kind, f"`{name}` of {what}: a plain {kind.__name__} expected, {value!r} found"
    check_equal(type(found.top).__name__, "tuple", name=f"the type of `top` of {what}")
    return found


def check_logprobs(
    lab: Any, logits: np.ndarray, token: int, top: int, what: str, dtype: str = "float32"
) -> None:
    """Compare with a sum in float64."""
    __tracebackhide__ = True
    array = lab.array(logits, dtype)
    logits = lab.numpy(array).astype(np.float64)
    what = f"token_logprob of {what}, token {token}, top {top}"
    found = told_logprobs(lab.engine.logprobs.token_logprob(array, token, top), what)
    right, order = log_softmax(logits), best_first(logits)
    ids = order[:top]
    check_equal(found.token_id, token, name=f"`token_id` of {what}")
    check(
        found.logprob,
        float(right[token]),
        name=f"`logprob` of {what}",
        suspects={
            "the probability itself": float(np.exp(right[token])),
            "the score itself; its softmax is missing": float(logits[token]),
            "a logarithm to base 10": float(right[token] / np.log(10)),
            "a logarithm to base 2": float(right[token] / np.log(2)),
            "this is the best token's, not the chosen one's": float(right[order[0]]),
        },
    )
    name = f"the ids in `top` of {what}"
    tokens, logprobs = [pair[0] for pair in found.top], [pair[1] for pair in found.top]
    worst, tied = order[::-1][:top], sorted(range(len(logits)), key=lambda each: (-logits[each], -each))[:top]
    wrong = {
        "the chosen token stands before the best": [token, *ids],
        "the chosen token takes the place of the last of the best": [*ids[:-1], token],
        "the chosen token is left out; `top` has the best tokens, whichever was chosen": [
            each for each in order if each != token
        ][:top],
        "the least likely tokens": worst,
        "the best tokens in the order of their ids": sorted(ids),
        "the best token stands last": ids[::-1],
        "of equally likely tokens the lower ids come first": tied,
    }
    alone = {cause: given_ for cause, given_ in wrong.items() if list(wrong.values()).count(given_) == 1}
    check_equal(tokens, ids, name=name, suspects=alone)
    if ids:
        check(
            np.array(logprobs),
            right[ids],
            name=f"the numbers in `top` of {what}",
            framework="numpy",
            dtype=None,
        )


@pytest.mark.parametrize("top", [0, 1, 2, 5, 22, 23])
def test_task_2_log_probabilities_of_the_chosen_token_and_the_best(lab, top):
    logits = scores_of(9)
    for token in (best_first(logits)[0], best_first(logits)[3], best_first(logits)[-1]):
        check_logprobs(lab, logits, token, top, "23 scores")


def test_task_2_more_than_all_tokens_are_all(lab):
    check_logprobs(lab, scores_of(10, 7), 2, 20, "7 scores")
    check_logprobs(lab, np.zeros(3), 1, 20, "3 equal scores")
    check_logprobs(lab, np.zeros(1), 0, 5, "a single score")


@pytest.mark.parametrize("size", [5, 40, 5000, 49152])
@pytest.mark.parametrize("top", [1, 3, 20])
def test_task_2_of_equally_likely_tokens_the_lower_ids_come_first(lab, size, top):
    check_logprobs(lab, np.zeros(size), size - 1, top, f"{size} equal scores")
    logits = np.round(np.random.default_rng(size).normal(size=size))
    check_logprobs(lab, logits, size // 2, top, f"{size} scores that are whole numbers")


@pytest.mark.parametrize("better", [0, 1, 2, 3, 4])
def test_task_2_ties_with_the_last_of_the_best_are_cut_by_id(lab, better):
    logits = np.full(3000, -1.5)
    places = np.random.default_rng(better).permutation(3000)[:better]
    logits[places] = 1.0 + np.arange(better)
    check_logprobs(lab, logits, 7, 4, f"3000 scores, of which {better} are above the others")


def test_task_2_a_large_vocabulary(lab):
    logits = scores_of(11, 49152)
    check_logprobs(lab, logits, 4321, 20, "49152 scores")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_task_2_the_arithmetic_of_log_probabilities_is_float32(lab, dtype):
    if dtype not in float_dtypes(lab):
        pytest.skip(f"there is no {dtype} on this device")
    logits = scores_of(12, 700)
    for token in (0, 44, best_first(logits)[0]):
        check_logprobs(lab, logits, token, 6, f"700 scores in {dtype}", dtype)


def test_task_2_tokens_that_are_hardly_possible_have_finite_log_probabilities(lab):
    logits = np.array([0.0, 300.0, -300.0, 299.5, 100.0])
    for token in range(5):
        check_logprobs(lab, logits, token, 5, "scores from -300 to 300")
    check_logprobs(lab, logits + 2e4, 0, 3, "scores above 10000")


def test_task_2_a_token_that_can_not_come_has_minus_infinity(lab):
    logits = scores_of(13)
    logits[[2, 20]] = -np.inf
    found = told_logprobs(
        lab.engine.logprobs.token_logprob(lab.array(logits), 2, 3), "token 2, whose score is -inf"
    )
    check_equal(found.logprob, -math.inf, name="`logprob` of a token whose score is -inf")
    check_equal([each for each, _ in found.top], best_first(logits)[:3], name="the ids in `top` beside it")


def test_task_2_the_callers_scores_are_left_as_they_are_by_log_probabilities(lab):
    def call(logits: Any) -> Any:
        return lab.engine.logprobs.token_logprob(logits, 3, 4)

    check_leaves_alone(lab, call, the_logits=scores_of(14))


# Task 3: a whole step at once

GREEDY: list[dict[str, Any]] = [
    {},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.5},
    {"repetition_penalty": 1.5},
    {"presence_penalty": -1.0, "frequency_penalty": 0.25, "repetition_penalty": 0.8},
]
DRAWN: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.5, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"temperature": 3.0, "repetition_penalty": 1.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 2.0, "top_p": 0.75},
    {"temperature": 1.5, "min_p": 0.1},
    {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "min_p": 0.02, "frequency_penalty": -0.5},
    {"temperature": 1.2, "top_k": 12, "top_p": 0.8, "presence_penalty": 1.0, "repetition_penalty": 1.3},
]
PROMPT = [2, 5, 5, 17, 3]


def choices(twin: Twin, rows: Any, expected: Any = None, way: Any = None, **params: Any) -> list[int]:
    """The tokens that Day 1.7's sampler gives on scores that were penalized in some `way`.

    With `expected`, these are the output so far, whatever comes out.
    """
    alone, ids, tokens = twin.new_alone(**params), list(twin.ids), list[int]()
    for step, logits in enumerate(rows):
        scores = (
            penalize(logits, ids[twin.prompt_len :], *twin.penalties) if way is None else way(logits, ids)
        )
        tokens.append(int(alone(wide(twin.lab, scores), ids)))
        ids.append(tokens[-1] if expected is None else expected[step])
    return tokens


def wrong_choices(twin: Twin, rows: Any, expected: list[int]) -> dict[str, list[int]]:
    """What comes out where the penalties are applied otherwise."""
    presence, frequency = twin.penalties
    repetition = twin.params.get("repetition_penalty", 1.0)

    def turned(logits: np.ndarray, ids: list[int]) -> np.ndarray:
        scores = penalize_seen(logits, ids, repetition)
        return penalize(scores, ids[twin.prompt_len :], presence, frequency)

    ways: dict[str, Any] = {
        "the penalties for presence and frequency are left out": lambda logits, ids: logits,
        "these penalties look at the prompt, too; they count the output alone": lambda logits, ids: penalize(
            logits, ids, presence, frequency
        ),
        "these penalties look at the prompt in place of the output": lambda logits, ids: penalize(
            logits, ids[: twin.prompt_len], presence, frequency
        ),
    }
    wrong = {cause: choices(twin, rows, expected, way) for cause, way in ways.items()}
    wrong["the repetition penalty comes before them; it comes after them"] = choices(
        twin, rows, expected, turned, repetition_penalty=1.0
    )
    wrong["the repetition penalty is left out"] = choices(twin, rows, expected, repetition_penalty=1.0)
    return {cause: tokens for cause, tokens in wrong.items() if list(wrong.values()).count(tokens) == 1}


@pytest.mark.parametrize("params", [*GREEDY, *DRAWN], ids=str)
def test_task_3_alone_a_row_goes_through_all_penalties_and_filters(lab, params):
    twin = Twin(lab, PROMPT, [5, 8], seed=71, **params)
    rows = [scores_of(800 + step) for step in range(40)]
    expected = choices(twin, rows)
    ids = [[*twin.ids, *expected[:step]] for step in range(40)]
    found = [twin.sampler.choose_alone(lab.array(row), ids[step]) for step, row in enumerate(rows)]
    check_equal(
        found,
        expected,
        name=f"40 tokens, each chosen alone with {params}",
        suspects=wrong_choices(twin, rows, expected),
    )
    check_equal(
        ids, [[*PROMPT, 5, 8, *expected[:step]] for step in range(40)], name="the token ids, afterwards"
    )


def test_task_3_alone_the_output_begins_behind_the_prompt(lab):
    """Not behind the tokens that were there at the first call: a request may go on with an output."""
    for prompt, output, expected in (
        ([3], [], 3),
        ([3], [3], 1),
        ([], [3], 1),
        ([3, 1], [], 3),
        ([1], [3], 1),
    ):
        twin = Twin(lab, prompt, output, presence_penalty=2.0)
        logits = np.array([0.0, 2.0, 1.0, 3.0])
        found = twin.sampler.choose_alone(lab.array(logits), twin.ids)
        name = f"the token for the prompt {prompt} and the output {output}, with a presence penalty of 2"
        check(
            found,
            expected,
            name=name,
            suspects={"the output is not penalized": 3, "the prompt is penalized": 1},
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_task_3_alone_the_penalties_are_subtracted_in_float64(lab, dtype):
    """In a narrow dtype a small penalty is lost beside a large score."""
    logits = lab.array([0.0, 512.0, 512.0, -512.0], dtype)
    for params in ({"presence_penalty": 1e-6}, {"frequency_penalty": 1e-6}, {"presence_penalty": -1e-6}):
        twin = Twin(lab, [2], [0, 1], **params)
        expected = 1 if min(params.values()) < 0 else 2
        name = f"the token of the scores 0, 512, 512, -512 in {dtype}, after token 1, with {params}"
        check(twin.sampler.choose_alone(logits, twin.ids), expected, name=name)
        name = f"{name}, in a step"
        check_equal(lab.engine.step_sampler.choose_step(logits[None], [twin.row]), [expected], name=name)


def test_task_3_alone_the_callers_scores_are_left_as_they_are(lab):
    def call(logits: Any) -> None:
        for params in (*GREEDY, *DRAWN):
            twin = Twin(lab, PROMPT, [5, 8], **params)
            twin.sampler.choose_alone(logits, twin.ids)

    check_leaves_alone(lab, call, the_logits=scores_of(15))


def all_rows(size: int = 7, count: int = 9) -> np.ndarray:
    """Rows of scores of which many are -inf, at the beginning, in the middle and at the end."""
    scores = np.stack([scores_of(1300 + row, size) for row in range(count)])
    for row in range(count):
        scores[row, [(row + n) % size for n in range(row % size)]] = -np.inf
    return scores


def test_task_3_a_sum_must_exceed_the_number_in_each_row(lab):
    """The sums of 4 equal tokens are 0.25, 0.5, 0.75 and 1, without rounding."""
    below = [math.nextafter(edge, 0.0) for edge in (0.25, 0.5, 0.75, 1.0)]
    uniforms = [0.0, 0.25, 0.5, 0.75, *below]
    check(
        lab.engine.step_sampler.draw_rows(wide(lab, np.zeros((8, 4))), uniforms),
        np.array([0, 1, 2, 3, 0, 1, 2, 3]),
        name="the places drawn of 4 equal tokens at 0, 1/4, 1/2, 3/4, and just below 1/4, 1/2, 3/4, 1",
        dtype="int64",
        suspects={
            "the sum that reaches the number is taken: it must exceed it": np.array([0, 0, 1, 2, 0, 1, 2, 3]),
            "the random numbers were rounded to float32": np.array([0, 1, 2, 3, 1, 2, 3, 3]),
        },
    )


@pytest.mark.parametrize("size", [5, 101, 1024, 4999])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24, math.nextafter(1.0, 0.0)])
def test_task_3_a_token_that_was_filtered_out_is_never_drawn_not_even_by_rounding(lab, size, uniform):
    rows = np.stack([scores_of(size + n, size) for n in range(5)])
    rows[:, :2] = rows[:, -2:] = -np.inf
    expected = 2 if uniform == 0 else size - 3
    rows[:, expected] = rows.max(axis=1)
    what = f"draw_rows at {uniform} for 5 rows of {size} tokens"
    drawn = lab.engine.step_sampler.draw_rows(wide(lab, rows), [uniform] * 5)
    drawn = check_shape(drawn, (5,), name=what, axes="R")
    assert drawn.max() < size, (
        f"{what}: place {drawn.max()} is behind the last token. The last sum may be less than 1, and the number that "
        "is looked for must be less than that sum"
    )
    dropped = [int(place) for place, row in zip(drawn, rows, strict=True) if np.isneginf(row[int(place)])]
    assert not dropped, f"{what}: place {dropped[0]} was drawn; its score is -inf, so it must never be drawn"
    check(drawn, np.full(5, expected), name=what, framework="numpy", dtype="int64")


def test_task_3_the_sums_of_a_draw_have_the_digits_of_float64(lab):
    """The first share is 1e-10 above or below the number: the nearest float32 are further away."""
    if "float64" not in float_dtypes(lab):
        pytest.skip("there is no float64 on this device")
    shares = np.repeat([0.3, 0.37, 0.41, 0.23, 0.1, 0.71], 2)
    uniforms = shares + np.tile([-1e-10, 1e-10], 6)
    check(
        lab.engine.step_sampler.draw_rows(wide(lab, np.log([shares, 1 - shares]).T), uniforms.tolist()),
        np.tile([0, 1], 6),
        name="the places drawn where the first of two shares is 0.3, 0.37, …, at numbers 1e-10 below it and above it",
        dtype="int64",
    )


def test_task_3_each_row_is_drawn_with_its_own_number(lab):
    scores = all_rows()
    for uniform in np.arange(60) / 60:
        uniforms = [(uniform + row / 9) % 1 for row in range(9)]
        expected = [
            lab.sampler.draw(lab.array(row), each) for row, each in zip(scores, uniforms, strict=True)
        ]
        found = lab.engine.step_sampler.draw_rows(wide(lab, scores), uniforms)
        check(
            found,
            np.array(expected),
            name=f"the places drawn with {uniforms[0]:g}, {uniforms[1]:g}, …",
            dtype="int64",
        )


def test_task_3_drawing_leaves_its_arguments_as_they_are(lab):
    scores, uniforms = wide(lab, all_rows()), [n / 9 for n in range(9)]
    before = lab.numpy(scores)
    lab.engine.step_sampler.draw_rows(scores, uniforms)
    check_untouched(scores, before, name="the scores", dtype=lab.dtype(scores))
    check_equal(uniforms, [n / 9 for n in range(9)], name="the random numbers, afterwards")


SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.5, 2.5, 1e-3, 40.0]),
        "top_k": st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 8, 13, 40]),
        "top_p": st.sampled_from([1.0, 1.0, 0.95, 0.75, 0.5, 0.25, 1e-9]),
        "min_p": st.sampled_from([0.0, 0.0, 0.05, 0.5, 1.0]),
        "presence_penalty": st.sampled_from([0.0, 0.0, 0.5, -1.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.0, 0.5, -0.25]),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 2.0, 0.5]),
    }
)


FILTERS: list[dict[str, Any]] = [
    {"top_k": 4},
    {"top_k": 1},
    {"top_p": 0.5},
    {"min_p": 0.3},
    {"top_k": 200, "top_p": 0.3},
    {"top_k": 6, "top_p": 0.8, "min_p": 0.05},
    {"top_p": 0.9, "min_p": 0.2},
    {"min_p": 1.0},
]


def filtered_rows(lab: Any, scores: np.ndarray, drawn: list[dict[str, Any]]) -> Any:
    """What `keep_rows` gives for scores whose best is 0, and for these settings."""
    params = [lab.engine.params.SamplingParams(temperature=1.0, **each) for each in drawn]
    return lab.engine.step_sampler.keep_rows(wide(lab, scores), params)


def check_kept(lab: Any, scores: np.ndarray, drawn: list[dict[str, Any]], what: str) -> list[bool]:
    """Candidates, and what is kept of them, where these are said to be enough; returns where."""
    __tracebackhide__ = True
    found = filtered_rows(lab, scores, drawn)
    check_equal(
        [type(each).__name__ for each in found or ()],
        [type(wide(lab, scores)).__name__] * 3,
        name=f"the types of what keep_rows gives for {what}: ids, scores, and whether they are enough",
    )
    count = min(scores.shape[1], lab.engine.step_sampler.CANDIDATES)
    shape = (len(drawn), count)
    ids = check_shape(found[0], shape, name=f"the ids of the candidates of {what}", axes="R C")
    kept = check_shape(found[1], shape, name=f"the scores of the candidates of {what}", axes="R C")
    enough = check_shape(found[2], shape[:1], name=f"whether the candidates of {what} are enough", axes="R")
    for row, settings_ in enumerate(drawn):
        told = f"row {row} ({settings_}) of {what}"
        mine = ids[row].tolist()
        check_equal(mine, sorted(set(mine)), name=f"the ids of the candidates, in ascending order, of {told}")
        best = np.sort(scores[row])[::-1]
        check(
            np.sort(scores[row][mine])[::-1],
            best[:count],
            name=f"the scores of the best {count} tokens, best first, of {told}",
            framework="numpy",
            dtype=None,
        )
        wanted = kept_alone(scores[row], settings_)
        known = np.isfinite(wanted)
        narrow = not settings_.get("top_k", 0) > count
        apart = scores[row][known].min() > best[count - 1] and narrow
        assert enough[row] or count < scores.shape[1], (
            f"all {count} tokens of {told} are candidates, so these are enough; `keep_rows` says that they may not be"
        )
        assert enough[row] or not apart, (
            f"the candidates of {told} are enough: each token that is kept (in number, {known.sum()}) is better "
            "than the last candidate, and top-k keeps no more than the candidates; `keep_rows` says they may not be "
            "enough"
        )
        if enough[row]:
            outside = sorted(set(np.flatnonzero(known).tolist()) - set(mine))
            assert not outside, (
                f"token {outside[0]} is kept in {told}, and is no candidate; `keep_rows` says that the "
                "candidates are enough"
            )
            check(
                kept[row],
                wanted[mine],
                name=f"the scores of the candidates, -inf where they are filtered out, of {told}",
                axes="C",
                framework="numpy",
                dtype=None,
            )
    return [bool(each) for each in enough]


def kept_alone(scores: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    """Top-k, top-p and min-p one after the other, by NumPy."""
    left = oracle.top_k(scores, params.get("top_k", 0))
    left = oracle.top_p(left, params.get("top_p", 1.0))
    return oracle.min_p(left, params.get("min_p", 0.0))


@pytest.mark.parametrize("size", [3, 40, 1024, 1025, 3600])
def test_task_3_filters_on_the_candidates_keep_what_they_keep_of_all(lab, size):
    scores = np.stack([3 * scores_of(1400 + row, size) for row in range(len(FILTERS))])
    scores -= scores.max(axis=1, keepdims=True)
    enough = check_kept(lab, scores, FILTERS, f"rows of {size} scores")
    check_equal(
        enough, [True] * len(FILTERS), name=f"whether the candidates of rows of {size} scores are enough"
    )


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2, "top_p": 0.52}, [0]),
        ({"top_k": 5, "top_p": 0.6, "min_p": 0.6}, [0, 1, 2]),
        ({"top_p": 0.56, "min_p": 0.6}, [0, 1, 2]),
        ({"top_k": 2, "min_p": 0.6}, [0, 1]),
    ],
    ids=str,
)
def test_task_3_each_filter_sees_what_the_one_before_it_leaves(lab, params, kept):
    """Top-k, then top-p, then min-p."""
    shares = np.array([0.3, 0.25, 0.2, 0.15, 0.06, 0.04])
    places = [3, 0, 5, 2, 1, 4]  # where the shares stand, the best first
    scores = np.empty((2, 6))
    scores[:, places] = np.log(shares / shares[0])
    found = filtered_rows(lab, scores, [params, {}])
    left = check_shape(found[1], (2, 6), name="the scores of the candidates", axes="R C")
    told = np.flatnonzero(np.isfinite(left[0])).tolist()
    check_equal(
        told,
        sorted(places[n] for n in kept),
        name=f"the tokens that {params} keep of shares 0.3, 0.25, 0.2, 0.15, 0.06, 0.04 at {places}",
    )
    check(
        left[1],
        scores[1],
        name="the scores of a row beside it, without filters",
        framework="numpy",
        dtype=None,
    )


@pytest.mark.parametrize("params", [{"top_k": 3}, {"top_p": 0.6}, {"top_k": 4, "top_p": 0.7}], ids=str)
def test_task_3_of_equal_scores_the_filters_keep_the_lower_ids(lab, params):
    """The shares are 1/5 each, or 1/4 of the four that top-k leaves."""
    kept = filtered_rows(lab, np.zeros((1, 5)), [params])[1]
    kept = check_shape(kept, (1, 5), name="the scores of the candidates", axes="R C")
    check_equal(
        np.flatnonzero(np.isfinite(kept[0])).tolist(),
        [0, 1, 2],
        name=f"the tokens that {params} keep of 5 equal scores",
        suspects={"of equal scores the higher ids were kept": [2, 3, 4]},
    )


def test_task_3_the_shares_of_top_p_are_those_of_all_tokens(lab):
    """A token has a smaller share of 2000 tokens than of the candidates."""
    scores = np.full((2, 2000), -6.0)
    scores[:, :4] = np.array([0.0, -0.125, -0.25, -0.375])
    scores[:, 4:300] = -5.0
    drawn: list[dict[str, Any]] = [{"top_p": 0.25}, {"top_k": 4, "top_p": 0.25}]
    for row, settings_ in enumerate(drawn):
        kept = np.isfinite(kept_alone(scores[row], settings_)).sum()
        assert kept == (3, 1)[row], "this test needs shares that differ"
    check_kept(lab, scores, drawn, "rows of 2000 scores, of which four stand out")


@pytest.mark.parametrize(
    ("params", "better"),
    [
        ({"top_k": 1200}, 0),
        ({"top_p": 0.999}, 0),
        ({"min_p": 1e-6}, 0),
        ({"top_k": 100}, 40),
        ({"min_p": 0.3}, 200),
    ],
    ids=str,
)
def test_task_3_where_another_token_may_be_kept_the_candidates_are_not_enough(lab, params, better):
    """Scores that are equal to the last candidate's: which of them are candidates is anybody's guess."""
    scores = np.full((1, 3600), -0.5)
    scores[0, np.random.default_rng(better).permutation(3600)[: better + 1]] = 0.0
    found = filtered_rows(lab, scores, [params])
    told = f"3600 scores, of which {3599 - better} are -0.5 and the others 0, with {params}"
    assert not lab.numpy(found[2])[0], (
        f"{told}: tokens that are no candidates are as good as some that are kept; the candidates may not be enough"
    )


def test_task_3_a_top_p_of_1_keeps_what_is_hardly_possible(lab):
    """The share of the best token is rounded to 1, so that the sum of the shares before the others is 1."""
    scores = np.array([[-60.0, 0.0, -50.0, -70.0]] * 3)
    check_kept(
        lab, scores, [{"top_p": 1.0}, {"top_k": 3}, {"min_p": 1e-25}], "rows of the scores -60, 0, -50, -70"
    )


@settings(QUICK, max_examples=150)
@given(
    drawn=st.lists(SETTINGS, min_size=1, max_size=4),
    size=st.sampled_from([2, 5, 13]),
    candidates=st.sampled_from([2, 4, 7]),
    seed=st.integers(0, 1000),
)
def test_task_3_candidates_are_called_enough_exactly_where_they_are(drawn, size, candidates, seed):
    """The scores are halves; a share of several equal ones is left out, since NumPy rounds its sum otherwise."""
    lab = door.active()
    scores = np.round(2 * np.random.default_rng(seed).normal(size=(len(drawn), size))) / 2
    scores -= scores.max(axis=1, keepdims=True)
    wanted = [{name: each[name] for name in ("top_k", "top_p", "min_p")} for each in drawn]
    rows = [n for n, each in enumerate(wanted) if clear_of_top_p(scores[n], each)]
    if rows:
        with changed(lab.engine.step_sampler, CANDIDATES=candidates):
            what = f"rows of {size} scores, with CANDIDATES {candidates}"
            check_kept(lab, scores[rows], [wanted[n] for n in rows], what)


def clear_of_top_p(scores: np.ndarray, params: dict[str, Any]) -> bool:
    """Whether no sum of shares is so near to top-p that rounding decides."""
    shares = oracle.probabilities(oracle.top_k(scores, params["top_k"]))
    return (
        float(np.abs(np.cumsum(np.sort(shares)[::-1]) - params["top_p"]).min()) > 1e-9 or params["top_p"] == 1
    )


def test_task_3_filtering_leaves_its_scores_as_they_are(lab):
    scores = np.stack([scores_of(1500 + row, 1200) for row in range(len(FILTERS))])
    scores -= scores.max(axis=1, keepdims=True)
    array = wide(lab, scores)
    params = [lab.engine.params.SamplingParams(temperature=1.0, **each) for each in FILTERS]
    lab.engine.step_sampler.keep_rows(array, params)
    check_untouched(array, scores, name="the scores", dtype=lab.dtype(array))


@pytest.mark.parametrize("params", [DRAWN[0], DRAWN[3], DRAWN[4], DRAWN[5]], ids=str)
def test_task_3_a_group_that_draws_leaves_its_scores_and_takes_a_number_for_each_row(lab, params):
    twins = [Twin(lab, seed=n, **params) for n in range(5)]
    array = wide(lab, np.stack([scores_of(1600 + row, 1200) for row in range(5)]))
    before = lab.numpy(array)
    expected = [int(twin.alone(array[row])) for row, twin in enumerate(twins)]
    found = lab.engine.step_sampler.choose_group(array, [twin.sampler for twin in twins])
    check_generators(twins, f"after a group of 5 rows with {params}")
    check_equal(found, expected, name=f"the tokens of a group of 5 rows with {params}")
    check_untouched(array, before, name="the scores of a group", dtype=lab.dtype(array))


def test_task_3_a_greedy_group_takes_the_best_and_no_numbers(lab):
    """Its scores have gone through the penalties already."""
    twins = [Twin(lab, [1, 2], [3, 4, 4], seed=n, presence_penalty=2.0) for n in range(5)]
    scores = np.round(np.stack([scores_of(1620 + row) for row in range(5)]))
    array = wide(lab, scores)
    found = lab.engine.step_sampler.choose_group(array, [twin.sampler for twin in twins])
    check_generators(twins, "after a greedy group of 5 rows")
    check_equal(found, scores.argmax(axis=1).tolist(), name="the tokens of a greedy group of 5 rows")
    check_untouched(array, scores, name="the scores of a group", dtype=lab.dtype(array))


@pytest.mark.parametrize("size", [1, 2, 9])
def test_task_3_greedy_rows_take_the_best_and_of_equal_scores_the_lowest_id(lab, size):
    logits = np.round(np.random.default_rng(size).normal(size=(size, 700)))
    for dtype in float_dtypes(lab):
        twins = [Twin(lab, PROMPT, [n]) for n in range(size)]
        check_step(
            lab, twins, logits, f"a step of {size} greedy rows in {dtype}, with many equal scores", dtype
        )


def test_task_3_greedy_rows_compare_the_scores_as_they_are(lab):
    """Scores that differ in their last digits alone: a narrower dtype would make them equal."""
    some: list[dict[str, Any]] = [{}, {"presence_penalty": 1.0}]
    for dtype, step in (("float32", 1e-6), ("float64", 1e-12), ("float16", 2e-3)):
        if dtype in float_dtypes(lab):
            logits = np.array([[1.0, 1.0 + step, 0.5], [0.5, 1.0, 1.0 + step], [1.0 + step, 1.0, 1.0]])
            for params in some:
                twins = [Twin(lab, [2], **params) for _ in range(3)]
                check_step(lab, twins, logits, f"a step of 3 greedy rows of {dtype}, 1 and 1 + {step}", dtype)


def test_task_3_a_step_without_rows_has_no_tokens(lab):
    check_equal(lab.engine.step_sampler.choose_step(lab.array(np.zeros((0, 23))), []), [], name="the tokens")


@pytest.mark.parametrize("params", [*GREEDY, *DRAWN], ids=str)
def test_task_3_a_step_of_one_row_gives_the_token_that_it_chooses_alone(lab, params):
    twin = Twin(lab, PROMPT, [5, 8], seed=5, **params)
    for step in range(12):
        check_step(lab, [twin], scores_of(900 + step)[None], f"step {step} of a row")


def mixed(lab: Any, seed: int = 0) -> list[Twin]:
    """A row of each kind of settings, in no order, and greedy ones between them."""
    settings_ = [*GREEDY, *DRAWN, {}, {}, *DRAWN]
    order = np.random.default_rng(seed).permutation(len(settings_))
    return [
        Twin(lab, PROMPT[: 1 + n % 5], [n % 23, 7][: n % 3], seed=n, **settings_[place])
        for n, place in enumerate(order)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_task_3_rows_of_all_kinds_in_one_step_get_what_each_chooses_alone(lab, seed):
    twins = mixed(lab, seed)
    for step in range(4):
        logits = 2.5 * np.random.default_rng([seed, step]).normal(size=(len(twins), 1201))
        check_step(
            lab, twins, logits.astype(np.float32).astype(np.float64), f"step {step} of {len(twins)} rows"
        )


def test_task_3_the_company_of_a_row_changes_nothing(lab):
    logits = np.stack([scores_of(950 + row) for row in range(23)])
    apart, together = mixed(lab, 1), mixed(lab, 1)
    assert len(apart) == len(logits), "this test needs a row of scores for each"
    wanted = [
        lab.engine.step_sampler.choose_step(lab.array(logits[row : row + 1]), [twin.row])[0]
        for row, twin in enumerate(apart)
    ]
    order = np.random.default_rng(3).permutation(23)
    rows = [together[row].row for row in order]
    found = lab.engine.step_sampler.choose_step(lab.array(logits[order]), rows)
    check_equal(
        found, [wanted[row] for row in order], name="the tokens of 23 rows, beside what each got alone"
    )


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("params", [GREEDY[4], DRAWN[0], DRAWN[6]], ids=str)
def test_task_3_groups_may_be_full_or_begun(lab, count, params):
    twins = [Twin(lab, PROMPT, [n], seed=n, **params) for n in range(count)]
    for step in range(2):
        logits = np.stack([scores_of(1000 + 40 * step + n) for n in range(count)])
        check_step(lab, twins, logits, f"a step of {count} rows with {params}")


def test_task_3_no_row_of_a_step_is_chosen_alone(lab, monkeypatch):
    """One argmax for the greedy rows, and groups of one kind for the others."""
    module, twins, chosen = lab.engine.step_sampler, mixed(lab, 2), list[Any]()
    whole, scores = module.choose_group, module.RowSampler.scores

    def alone(*_: Any) -> int:
        raise CheckFailed("a row of a step was chosen alone; `choose_step` chooses them together")

    def noting(scores: Any, samplers: Any) -> Any:
        chosen.append([sampler.kind.name for sampler in samplers])
        return whole(scores, samplers)

    def counting(sampler: Any, *arguments: Any) -> Any:
        assert sampler.kind.name != "PLAIN", (
            "the scores of a greedy row without penalties were computed in float64; one argmax of the logits serves "
            "all such rows"
        )
        return scores(sampler, *arguments)

    monkeypatch.setattr(module.RowSampler, "choose_alone", alone)
    monkeypatch.setattr(lab.sampler.Sampler, "__call__", alone)
    monkeypatch.setattr(module, "choose_group", noting)
    monkeypatch.setattr(module.RowSampler, "scores", counting)
    logits = np.stack([scores_of(1100 + row) for row in range(len(twins))])
    module.choose_step(lab.array(logits), [twin.row for twin in twins])
    kinds = sorted(kind for group in chosen for kind in group)
    wanted = [twin.sampler.kind.name for twin in twins if twin.sampler.kind.name != "PLAIN"]
    check_equal(kinds, sorted(wanted), name="the kinds of the rows that `choose_group` was given")
    mixed_up = [group for group in chosen if len(set(group)) > 1]
    assert not mixed_up, f"a group of `choose_group` has rows of one kind; found {mixed_up[0]}"
    assert max(map(len, chosen)) <= module.GROUP, (
        f"a group has {module.GROUP} rows at most; `choose_group` was given {max(map(len, chosen))}"
    )


def test_task_3_a_step_leaves_its_arguments_as_they_are(lab):
    twins = mixed(lab, 3)
    ids = [list(twin.ids) for twin in twins]

    def call(logits: Any) -> None:
        rows = [twin.row for twin in twins]
        before = list(rows)
        lab.engine.step_sampler.choose_step(logits, rows)
        assert rows == before, "`choose_step` changed the list of rows that it was given"

    check_leaves_alone(lab, call, the_logits=np.stack([scores_of(1200 + row) for row in range(len(twins))]))
    check_equal([twin.ids for twin in twins], ids, name="the token ids of the rows, afterwards")


EXTREMES: list[dict[str, Any]] = [
    {"temperature": 1e-310},
    {"temperature": 1e-50, "top_p": 0.5},
    {"temperature": 1e300},
    {"temperature": 1e12, "top_k": 1300},
    {"temperature": 1e12, "top_p": 0.999},
    {"temperature": 1e12, "min_p": 0.999},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 10**9, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 1e-12},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.0, "min_p": 1e-300},
    {"temperature": 1.0, "top_p": 1.0, "top_k": 1023},
    {"temperature": 1.0, "top_k": 1024},
    {"temperature": 1.0, "top_k": 1025},
]


@pytest.mark.parametrize("size", [3, 1023, 1024, 1025, 2000])
@pytest.mark.parametrize("kind", ["distinct", "equal", "few values", "some impossible"])
def test_task_3_extreme_settings_give_what_each_row_chooses_alone(lab, size, kind):
    """Alike scores reach over the edge of the candidates; so do the tokens that a high temperature leaves."""
    generator = np.random.default_rng(size)
    shape = (len(EXTREMES), size)
    logits = {
        "distinct": generator.permuted(np.tile(np.arange(size) / 64, (len(EXTREMES), 1)), axis=1),
        "equal": np.full(shape, -1.5),
        "few values": np.round(generator.normal(size=shape)),
        "some impossible": np.where(generator.random(shape) < 0.3, -np.inf, generator.integers(-9, 9, shape) / 4),
    }[kind]  # fmt: skip
    twins = [Twin(lab, seed=n, **params) for n, params in enumerate(EXTREMES)]
    for step in range(3):
        check_step(
            lab, twins, logits, f"step {step} of rows with extreme settings and {size} scores ({kind})"
        )


@pytest.mark.parametrize("size", [8, 10, 23, 1300])
def test_task_3_a_sum_that_reaches_top_p_exactly_ends_where_it_does_alone(lab, size):
    """Of equal scores, a share has the same rounding here and there."""
    shares = [k / 20 for k in range(1, 20)] + [k / size for k in range(1, size, max(1, size // 12))]
    twins = [Twin(lab, seed=n, temperature=1.0, top_p=share) for n, share in enumerate(shares)]
    for step in range(6):
        what = f"step {step} of rows with top_p {shares[0]}, {shares[1]}, … and {size} equal scores"
        check_step(lab, twins, np.zeros((len(twins), size)), what)


@settings(QUICK, max_examples=150)
@given(
    drawn=st.lists(SETTINGS, max_size=9),
    size=st.sampled_from([2, 4, 5, 13]),
    candidates=st.sampled_from([1, 2, 4, 1024]),
    group=st.sampled_from([1, 3, 8]),
    seed=st.integers(0, 1000),
)
def test_task_3_any_mix_of_settings_gives_what_each_row_chooses_alone(drawn, size, candidates, group, seed):
    """With few candidates and small groups, so that their edges are met; and with halves: some scores are equal."""
    lab = door.active()
    generator = np.random.default_rng(seed)
    twins = [
        Twin(
            lab,
            generator.integers(0, size, 3).tolist(),
            generator.integers(0, size, n % 4).tolist(),
            seed=n,
            **params,
        )
        for n, params in enumerate(drawn)
    ]
    dtype = float_dtypes(lab)[seed % len(float_dtypes(lab))]
    with changed(lab.engine.step_sampler, CANDIDATES=candidates, GROUP=group):
        for step in range(3):
            logits = np.round(3 * generator.normal(size=(len(twins), size))) / 2
            what = (
                f"step {step} of {len(twins)} rows and {size} scores in {dtype}, with CANDIDATES {candidates}"
            )
            check_step(lab, twins, logits, what, dtype)


def test_task_3_only_rows_whose_candidates_are_not_enough_are_filtered_as_on_day_1_7(lab, monkeypatch):
    module = lab.engine.step_sampler
    whole, calls = module.keep, list[Any]()

    def counting(scores: Any, params: Any) -> Any:
        calls.append(params)
        return whole(scores, params)

    monkeypatch.setattr(module, "keep", counting)
    some: list[dict[str, Any]] = [
        {"top_k": 5},
        {"top_k": 1400},
        {"top_p": 0.5},
        {"min_p": 0.2},
        {"top_k": 1300},
        {},
    ]
    twins = [Twin(lab, seed=n, temperature=1.0, **each) for n, each in enumerate(some)]
    logits = np.stack([3 * scores_of(1700 + row, 2000) for row in range(6)])
    check_step(
        lab, twins, logits, "a step of 6 rows, of which two keep 1400 and 1300 tokens, and one has no filter"
    )
    assert len(calls) <= 2, (
        f"{len(calls)} rows were filtered as on Day 1.7, which sorts all of V; of the 6 rows, one has no filter, "
        "and for 3 the candidates are enough"
    )


def test_task_3_the_head_runs_once_on_the_rows_that_get_a_token(lab):
    served = Served(lab)
    requests = [
        answered(lab, PROMPT),
        new_request(lab, [4, 5], 3),
        answered(lab, [7, 8, 9]),
        answered(lab, [6]),
    ]
    one, two, three, four = (
        served.standing(each, due) for each, due in zip(requests, (0, 0, 2, 0), strict=True)
    )
    question = asked(lab, 5, (6, 3))
    branch = served.branches(question)[0]
    served.sample(served.plan(three, one, branch, two, four))
    check_equal(
        served.head,
        [[1, 3, 4]],
        name="the rows of the plan that each run of the head had (row 0 has tokens due, row 2 is a branch)",
        suspects={
            "the head ran on all rows": [[0, 1, 2, 3, 4]],
            "the head ran for each row": [[1], [3], [4]],
        },
    )


def test_task_3_where_no_request_gets_a_token_the_head_does_not_run(lab):
    served, question = Served(lab), asked(lab, 5, (6, 3))
    waits = served.standing(answered(lab, [7, 8, 9]), due=1)
    served.sample(served.plan(waits, *served.branches(question), counts=(2, 11, 8)))
    check_equal(served.head, [], name="the runs of the head in a step in the middle of all prompts")
    check_equal(
        question.completion.computed,
        19,
        name="`computed` of the question, of which two branches were computed",
    )
    check_equal(
        waits.request.completion.computed, 2, name="`computed` of a request, of which 2 tokens were computed"
    )


STEP: list[dict[str, Any]] = [{}, DRAWN[0], DRAWN[6], GREEDY[4], DRAWN[3], {}, DRAWN[7]]


@pytest.mark.parametrize("seed", range(3))
def test_task_3_each_request_gets_the_token_of_its_own_row(lab, seed):
    """Among them branches, requests with tokens due, and requests that are no `Answered`."""
    served, order = Served(lab, seed), np.random.default_rng(seed).permutation(14)
    requests = [answered(lab, PROMPT, [5, n], seed=n, **params) for n, params in enumerate(STEP)]
    twins = {id(each): twin_of(lab, each, seed=n, **STEP[n]) for n, each in enumerate(requests)}
    noting = [Noting(lab) for _ in range(3)]
    plain = [new_request(lab, [3, n], 5, sample=each) for n, each in enumerate(noting)]
    waits = [answered(lab, [7, 8, 9]), new_request(lab, [7, 8, 9], 5, sample=Noting(lab))]
    question = asked(lab, 5, (6, 3))
    members = [served.standing(each) for each in (*requests, *plain)]
    members += [*(served.standing(each, 2) for each in waits), *served.branches(question)]
    line = [members[place] for place in order]
    before = [list(each.request.token_ids) for each in line]
    served.sample(served.plan(*line))
    for row, (each, token_ids) in enumerate(zip(line, before, strict=True)):
        request = each.request
        if request in plain:
            new = [int(served.table[row].argmax())]
            told = f"request {row} of the plan, which takes the best of its row by a sampler of its own"
        elif request in requests:
            new, told = (
                [twins[id(request)].wanted(served.table[row])],
                f"request {row} of the plan ({twins[id(request)].told()})",
            )
        else:
            new, told = [], f"row {row} of the plan, which is a branch, or has tokens due"
        check_equal(request.error, None, name=f"the error of {told}")
        check_equal(request.token_ids[len(token_ids) :], new, name=f"the new tokens of {told}")
    for each, request in zip(noting, plain, strict=True):
        check_equal(each.ids, [request.prompt_ids], name="the token ids that the sampler of a request gets")
    check_generators([twins[id(each)] for each in requests], "after the step")


def test_task_3_a_request_accepts_with_the_scores_of_its_own_row(lab):
    """The log-probabilities are of the model's own scores, before penalties."""
    served = Served(lab)
    params: list[dict[str, Any]] = [
        {"presence_penalty": 2.0},
        {"temperature": 2.0, "top_k": 3},
        {},
        {"temperature": 1.0},
    ]
    requests = [answered(lab, PROMPT, [n], logprobs=2, **each) for n, each in enumerate(params)]
    plain = new_request(lab, [3], 5, sample=Noting(lab))
    waits = answered(lab, [7, 8, 9])
    line = [waits, requests[3], plain, *requests[:3]]
    served.sample(served.plan(*(served.standing(each, 2 if each is waits else 0) for each in line)))
    for row, request in enumerate(line):
        if request in requests:
            newest = request.completion.sampler.newest
            assert newest is not None, (
                "a request that asks for log-probabilities has none: its sampler was not called"
            )
            logprobs, ids = log_softmax(served.table[row]), best_first(served.table[row])[:2]
            told = f"of request {row} of the plan"
            check_equal(newest.token_id, request.output[-1], name=f"the token of the log-probability {told}")
            check(newest.logprob, float(logprobs[newest.token_id]), name=f"the log-probability {told}")
            check_equal([token for token, _ in newest.top], ids, name=f"the two best tokens {told}")


def test_task_3_all_tokens_are_chosen_at_once_before_any_is_accepted(lab, monkeypatch):
    served, module, calls = Served(lab), lab.engine.batch, list[Any]()
    whole = module.choose_step
    requests = [answered(lab, PROMPT, seed=n, **params) for n, params in enumerate(STEP)]
    requests[2:2] = [asked(lab, 5, (6, 3), temperature=1.0), asked(lab, 4, ())]
    plain = new_request(lab, [4], 3)
    line = [*requests[:3], plain, *requests[3:]]
    lengths = [len(each.token_ids) for each in line]

    def noting(logits: Any, rows: Any) -> Any:
        found = [len(each.token_ids) for each in line]
        check_equal(found, lengths, name="how many tokens the requests have when `choose_step` is called")
        calls.append((list(lab.numpy(logits).shape), [row.sampler for row in rows]))
        return whole(logits, rows)

    monkeypatch.setattr(module, "choose_step", noting)
    served.sample(served.plan(*map(served.standing, line)))
    check_equal(len(calls), 1, name="how often `choose_step` is called in a step")
    check_equal(
        calls[0][0], [len(requests), len(served.table[0])], name="the shape of the scores of `choose_step`"
    )
    known = [each.completion.sampler for each in requests]
    places = [known.index(each) if each in known else None for each in calls[0][1]]
    check_equal(places, list(range(len(known))), name="whose rows `choose_step` is given")


def test_task_3_requests_accept_their_tokens_in_the_order_of_the_plan(lab):
    served, order = Served(lab), list[int]()
    line = [
        answered(lab, [n + 1], **STEP[n % 3]) if n % 2 else new_request(lab, [n + 1], 3) for n in range(6)
    ]
    for n, request in enumerate(line):
        request.sample = after(partial(order.append, n), request.sample)
    served.sample(served.plan(*map(served.standing, line)))
    check_equal(order, list(range(6)), name="the order in which 6 requests accept their tokens")


def test_task_3_requests_without_answers_alone_choose_their_own_tokens(lab):
    served = Served(lab)
    line = [new_request(lab, [3, n], 5, sample=Noting(lab)) for n in range(4)]
    served.sample(served.plan(*map(served.standing, line)))
    expected = served.table[:4].argmax(axis=1).tolist()
    check_equal(
        [each.output for each in line], [[token] for token in expected], name="the outputs of 4 requests"
    )


@pytest.mark.parametrize("failing", [0, 2, 3, 5])
def test_task_3_a_request_that_raises_ends_alone(lab, failing):
    served = Served(lab)
    line = [
        answered(lab, [n + 1], seed=n, **STEP[n]) if n % 2 else new_request(lab, [n + 1], 3) for n in range(6)
    ]
    twins = {n: twin_of(lab, line[n], seed=n, **STEP[n]) for n in (1, 3, 5)}
    line[failing].sample = Failing(KeyError("out of order"))
    served.sample(served.plan(*map(served.standing, line)))
    for n, request in enumerate(line):
        best = int(served.table[n].argmax())
        new = [] if n == failing else [twins[n].wanted(served.table[n]) if n % 2 else best]
        told = f"request {n}, where the sampler of request {failing} raised a KeyError"
        error = "KeyError: 'out of order'" if n == failing else None
        check_equal((request.output, request.error), (new, error), name=f"the output and the error of {told}")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_task_3_ctrl_c_in_a_sampler_comes_through(lab, kind):
    served = Served(lab)
    line = [answered(lab, [1]), new_request(lab, [2], 3), answered(lab, [3])]
    line[1].sample = Failing(kind("as the test wanted"))
    check_raises(
        kind, lambda: served.sample(served.plan(*map(served.standing, line))), name=f"a {kind.__name__}"
    )


def test_task_3_what_was_computed_is_noted_for_requests_without_output(lab):
    served, question = Served(lab), asked(lab, 5, (6, 3))
    first, going = answered(lab, PROMPT), answered(lab, PROMPT, [4])
    last = served.standing(first)
    branches = served.branches(question)
    line = [last, served.standing(going), *branches, served.standing(new_request(lab, [4], 3))]
    served.sample(served.plan(*line, counts=(3, 1, 11, 4, 1)))
    check_equal(
        first.completion.computed,
        3,
        name="`computed` of a request that got its first token after 3 of its tokens",
    )
    check_equal(going.completion.computed, 0, name="`computed` of a request that has an output")
    check_equal(
        question.completion.computed,
        15,
        name="`computed` of a question, of whose branches 15 tokens were computed",
    )
    last.sequence.length = len(first.token_ids)
    served.sample(served.plan(last))
    check_equal(first.completion.computed, 3, name="`computed` of a request, after its second token")


def test_task_3_the_states_are_left_as_they_are(lab):
    served = Served(lab)
    line = [served.standing(each, due) for each, due in ((answered(lab, [1, 2]), 1), (answered(lab, [3]), 0))]
    hidden = lab.array(np.array([[0.0, 0.0], [1.0, 1.0]]))
    plan = served.plan(*line)
    served.core.sample(plan, hidden)
    check_untouched(hidden, np.array([[0.0, 0.0], [1.0, 1.0]]), name="the states")
    assert [each.running for each in plan] == line, "`sample` changed the plan that it was given"


@pytest.mark.parametrize("seed", range(3))
def test_task_3_in_an_engine_each_request_gets_the_tokens_that_it_gets_alone(lab, seed):
    """Prompts in chunks, few pages, documents: the steps are others, the tokens are not."""
    served = Engine(lab, pages=40, num_seats=6, token_budget=9)
    served.core = lab.engine.batch.ServedBatch(served.runner, served.scheduler)
    requests = [of_engine(lab, n, seed) for n in range(8)]
    for n, request in enumerate(requests):
        served.core.push(request)
        if n % 3 == 2:
            served.step()
    served.finish()
    for n, request in enumerate(requests):
        alone, same = Engine(lab), of_engine(lab, n, seed)
        alone.core.push(same)
        alone.finish()
        check_equal(request.error, None, name=f"the error of request {n}")
        check_equal(
            request.output,
            same.output,
            name=f"the output of request {n}, beside what Day 4.5's engine gives it",
        )


def of_engine(lab: Any, n: int, seed: int) -> Any:
    """One of a few requests for the small model; some ask about documents, one is no `Answered`."""
    params = {**STEP[n % len(STEP)], "seed": n}
    if n == 5:
        return new_request(lab, words(6, 90 + seed), 5)
    if n % 3 == 1:
        segments = prompt_of(lab, 4, (5, 3)[: 1 + n % 2], seed=seed)
        completion = completion_of(lab, len(segments.question), **params)
        return lab.engine.request.AnsweredDocumentRequest(segments, 4 + n % 3, completion)
    return answered(lab, words(3 + 2 * n, 70 + n + seed), max_tokens=4 + n % 3, **params)


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
    cause = "the stop strings did not get the decoder's rest, or were flushed before they got it"
    check_equal(last.text, "", name=name, suspects={cause: "b" + UNFINISHED})
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
    check_equal(
        growing.reasons,
        ("stop", growing.tokenizer.ids(b"#")[0]),
        name="finish reason and stop reason, where ab# is a stop string, and the stop token # comes behind ab",
        suspects={"the stop token's text has completed the stop string": ("stop", "ab#")},
    )
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
        "a stop token, behind which the rest completes a stop string",
        (b"a", b"\xf0", b"#"),
        {"stop": "a" + UNFINISHED, "stop_token_ids": [b"#"]},
        ("stop", "a" + UNFINISHED),
    ),
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
    check_equal(
        growing.finish().logprobs, (), name="the log-probabilities of the last delta: it has no token"
    )
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
    growing, seen = Growing(lab, stop=["##"], logprobs=0), list[tuple[str, list[int], int]]()
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
    name = "waiting for three answers, of which answer 2 has failed first, and then answer 1"
    found = check_raises(OSError, lambda: within(hand.generation.wait, "`wait`"), name=name)
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
    computed = generation.completions[0].computed
    assert computed >= 8, (
        f"the documents were not computed: the first answer has computed {computed} of 8 tokens"
    )


def test_task_5_a_refusal_in_the_middle_gives_up_the_answers_before_it(lab):
    deltas, full = list[Any](), lab.ragged.errors.QueueFull
    with Serving(lab, max_queue=2, held=True) as serving:
        params = serving.params(max_tokens=3, n=3)
        check_raises(
            full,
            lambda: serving.llm.begin(ids("abc"), params, deltas.append),
            name="n = 3, where two requests may wait",
        )
        found = serving.cancelled()
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
    wanted = [
        [greedy_answer(each, count)] * (1 + count % 2) for each, count in zip(letters, counts, strict=True)
    ]
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
        counts = [1, n] * 4
        params = [serving.params(max_tokens=2, n=count) for count in counts]
        try:
            found = within(lambda: serving.llm.run_all([ids("abc")] * 8, params), "`run_all`")
        except lab.ragged.errors.QueueFull:
            raise AssertionError(
                f"eight prompts with n = 1 and n = {n} in turn have filled the queue, in which {max_queue} requests "
                "may wait: no more requests of one call than that may be on their way"
            ) from None
        check_equal(
            [outputs_of(each) for each in found],
            [["de"] * count for count in counts],
            name="the texts of the answers",
        )
        turns_of = f"eight prompts with n = 1 and n = {n} in turn"
        name = f"requests on their way at once, of {turns_of}, where {max_queue} may wait"
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


def test_task_5_when_the_oldest_prompt_is_complete_the_next_one_begins(lab):
    with Serving(lab, held=True, max_queue=2) as serving:
        params = [serving.params(max_tokens=count, ignore_end=True) for count in (1, 30, 1)]

        def begun() -> None:
            try:
                serving.await_submitted(2, "three prompts, where two requests may wait")
                serving.core.let(2)  # the step of the test's own request; then the first prompt's only token
                what = "three prompts, where two may wait, and the first is complete, but not the second"
                serving.await_submitted(3, what)
            finally:
                serving.core.open()

        thread = threading.Thread(target=begun, daemon=True)
        with ThreadErrors().collected():
            thread.start()
            try:
                within(lambda: serving.llm.run_all([ids("abc")] * 3, params), "`run_all`", 3 * limit())
            finally:
                thread.join(2 * limit())


def test_task_5_a_queue_that_others_have_filled_is_an_error_of_run_all(lab):
    with Serving(lab, held=True, max_queue=2) as serving:
        other = serving.llm.begin(ids("a"), serving.params(max_tokens=1))
        params = [serving.params(max_tokens=2)] * 2
        run = partial(within, lambda: serving.llm.run_all([ids("abc")] * 2, params), "`run_all`")
        full = lab.ragged.errors.QueueFull
        check_raises(
            full, run, name="two prompts, where two requests may wait, and another caller has one there"
        )
        found = serving.cancelled()
        name = "which requests were cancelled: another caller's, and the first of this call"
        check_equal(found, [False, True], name=name)
        serving.core.open()
        wait_for(other.wait, "another caller's request")


REFUSED: list[tuple[str, list[str], list[dict[str, Any]], str, int]] = [
    ("an empty prompt", ["abc", ""], [{}, {}], "empty", 2),
    ("an empty prompt before others", ["", "abc"], [{}, {}], "empty", 1),
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
        found = serving.cancelled()
        name = "which requests were cancelled, after the first answer has failed"
        check_equal(found, [False, True, True, True, True], name=name)
        serving.await_freed()


@pytest.mark.parametrize(
    ("max_queue", "submitted"), [(50, 3), (1, 1)], ids=["with room", "while the next prompt has no room"]
)
def test_task_5_after_ctrl_c_run_all_gives_up_all_answers(lab, max_queue, submitted):
    with Serving(lab, held=True, max_queue=max_queue) as serving:
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
        found = serving.cancelled()
        check_equal(found, [True] * submitted, name="which requests were cancelled, after Ctrl-C")
        serving.await_freed()


def test_task_5_ctrl_c_while_a_prompt_begins_gives_up_the_answers_before_it(lab):
    with Serving(lab, held=True) as serving:
        usual = serving.llm.batcher.submit

        def submit(*arguments: Any) -> Any:
            if len(serving.futures) == 2:
                raise KeyboardInterrupt
            return usual(*arguments)

        serving.llm.batcher.submit = submit
        params = serving.params(max_tokens=40, n=3, ignore_end=True)
        run = partial(within, lambda: serving.llm.begin(ids("c"), params), "`begin`")
        check_raises(KeyboardInterrupt, run, name="Ctrl-C before the third of three answers is submitted")
        found = serving.cancelled()
        check_equal(found, [True, True], name="which requests were cancelled, after Ctrl-C in `begin`")
        serving.await_freed()


@pytest.mark.parametrize("count", [1, 3])
def test_task_5_each_prompt_needs_its_settings(lab, count):
    with Serving(lab) as serving:
        params = [serving.params(max_tokens=2)] * count
        run = partial(within, lambda: serving.llm.run_all([ids("c")] * 2, params), "`run_all`")
        check_raises(ValueError, run, name=f"two prompts, and settings for {count}")
        name = f"requests that were submitted, of two prompts with settings for {count}"
        check_equal(len(serving.futures), 0, name=name)


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
                [greedy_answer(letter, number + 1 + i)] * (1 + i)
                for i, letter in enumerate((LETTERS[number], "d", "f"))
            ]
            check_equal(found, wanted, name=f"the answers that thread {number} gets")


def test_task_5_a_stream_gives_each_token_while_the_next_is_not_computed_yet(lab):
    with Serving(lab, held=True) as serving:
        deltas = serving.llm.deltas(ids("abc"), serving.params(max_tokens=2, temperature=0))
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
        deltas = serving.llm.deltas(
            ids("abc"), serving.params(max_tokens=40, n=2, ignore_end=True, temperature=0)
        )
        serving.core.let(3)
        take(deltas, 3)
        deltas.close()
        found = serving.cancelled()
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


def async_of(serving: Any) -> Any:
    return serving.lab.engine.async_llm.AsyncLLM(serving.llm)


def test_task_6_wait_async_gives_all_answers_in_their_order(lab):
    hand = Generating(lab, 2)
    hand.end(1, b"b", END)
    hand.end(0, b"a")
    what = "`wait_async`, when all answers are complete,"
    output = run_async(what, result_of, (hand.generation.wait_async,))
    check_equal(outputs_of(output), ["a", "b"], name="the texts of the answers")
    check_equal(output.prompt_tokens, 10, name="tokens of the prompt")


def test_task_6_wait_async_lets_the_event_loop_go_on(lab):
    hand = Generating(lab, 2)

    what = "`wait_async`, beside another coroutine that ends the answers (is the loop blocked?),"
    steps = [partial(hand.end, 0, b"a"), partial(hand.end, 1, b"b")]
    output = run_async(what, result_beside, (hand.generation.wait_async,), steps)
    check_equal(outputs_of(output), ["a", "b"], name="the texts of the answers")


@pytest.mark.parametrize("late", [0, 1])
def test_task_6_wait_async_waits_for_the_last_text(lab, late):
    """As for `wait`: a future may be settled before the rest of the text is there."""
    hand = Generating(lab, 2, stop=["##"])
    hand.push(late, b"a", b"#")
    hand.futures[late].set_result([])
    hand.end(1 - late, b"b")

    what = "`wait_async` (is the event loop blocked while an answer has not `ended`?)"
    call, steps = (hand.generation.wait_async,), [partial(hand.settle, late)]
    output = run_async(what, result_beside, call, steps, waits=False)
    name = "the text of an answer whose future was settled, and which had not `ended` yet"
    check_equal(output.outputs[late].text, "a#", name=name, suspects={"`ended` was not waited for": "a"})


@pytest.mark.parametrize("when", ["at once", "later"])
def test_task_6_when_an_answer_fails_wait_async_gives_up_the_others(lab, when):
    hand, error = Generating(lab, 3), OSError("the disk is gone")
    hand.end(0, b"a")

    fail = partial(hand.fail, 2, error)
    if when == "at once":
        fail()
    what = "`wait_async`, where answer 2 fails and answer 1 isn't complete,"
    call, steps = (hand.generation.wait_async,), [fail] if when == "later" else []
    wait = partial(run_async, what, result_beside, call, steps, waits=False)
    raised = check_raises(OSError, wait, name="waiting for an answer that fails")
    assert raised is error, f"answer 2 failed with {error!r}, and what came through is {raised!r}"
    check_equal(
        hand.cancelled, [False, True, False], name="which answers were cancelled, after one has failed"
    )


def test_task_6_when_the_coroutine_is_cancelled_so_are_the_answers(lab):
    hand = Generating(lab, 2)
    hand.end(1, b"b")

    call = (hand.generation.wait_async,)
    end, _ = run_async("`wait_async`, after a cancel,", cancelled_after, call, lambda: hand.cancelled)
    check_equal(end, "cancelled", name="how the coroutine has ended")
    check_equal(hand.cancelled, [True, False], name="which answers were cancelled; the second was complete")


def test_task_6_a_cancel_while_the_last_text_is_on_its_way_harms_no_one(lab):
    """The callback of the future is still to come."""
    hand = Generating(lab, 1, stop=["##"])
    hand.push(0, b"a", b"#")
    hand.futures[0].set_result([])

    call = (hand.generation.wait_async,)
    end, _ = run_async(
        "`wait_async`, after a cancel,", cancelled_after, call, lambda: hand.cancelled, waits=False
    )
    check_equal(end, "cancelled", name="how the coroutine has ended")
    hand.settle(0)
    check_equal(
        hand.growing[0].joined, "a#", name="the text of all deltas, though the coroutine was cancelled"
    )


def test_task_6_async_deltas_come_in_their_order_until_each_answer_has_ended(lab):
    hand, queue, found = Generating(lab, 2), new_queue(), list[Any]()
    hand.deliver(queue.put_nowait)
    hand.push(0, b"a")
    hand.push(1, b"b")
    hand.end(1, b"c")
    hand.end(0, END)
    queue.put_nowait(lab.engine.output.Delta(0, "behind the end"))
    run_async("an iteration over deltas", collected, (hand.generation.deltas_async, queue), found.append)
    wanted = [(0, "a", ""), (1, "b", ""), (1, "c", ""), (1, "", "length"), (0, "", ""), (0, "", "stop")]
    check_equal(told(found), wanted, name="answer, text and reason of each delta")
    check_equal(queue.qsize(), 1, name="deltas left in the queue: one is behind the end of both answers")
    check_equal(
        hand.cancelled, [False, False], name="which futures were cancelled, of answers that are complete"
    )


def test_task_6_async_deltas_let_the_event_loop_go_on(lab):
    hand, queue, found = Generating(lab), new_queue(), list[Any]()
    hand.deliver(queue.put_nowait)
    what = "an iteration over deltas, beside another coroutine that brings them (is the loop blocked?),"
    call, steps = (
        (hand.generation.deltas_async, queue),
        [partial(hand.push, 0, each) for each in (b"a", b"b")],
    )
    run_async(what, deltas_beside, call, found.append, steps)
    check_equal(told(found), [(0, "a", ""), (0, "b", "")], name="the deltas")


def test_task_6_async_deltas_raise_what_an_answer_has_failed_of(lab):
    hand, error, queue, found = Generating(lab, 2), OSError("the disk is gone"), new_queue(), list[Any]()
    hand.deliver(queue.put_nowait)
    hand.push(0, b"a")
    hand.fail(1, error)
    what, call = "an iteration over deltas of which one has an error", (hand.generation.deltas_async, queue)
    raised = check_raises(OSError, partial(run_async, what, collected, call, found.append), name=what)
    check_equal(told(found), [(0, "a", "")], name="what comes before the error")
    assert raised is error, f"an answer has failed with {error!r}, and the iteration raised {raised!r}"
    check_equal(hand.cancelled, [True, False], name="which answers were cancelled, after one has failed")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_task_6_an_async_iteration_that_is_left_cancels_the_answers(lab, how):
    hand, queue = Generating(lab, 2), new_queue()
    hand.deliver(queue.put_nowait)
    hand.push(0, b"a")
    call = (hand.generation.deltas_async, queue)
    end, now = run_async(
        f"an iteration over deltas that is {how}", left_deltas, call, 1, how, lambda: hand.cancelled
    )
    check_equal(end, how, name="how the task has ended that was cancelled while it waited for a delta")
    check_equal(now, [True, True], name=f"which answers were cancelled, after the iteration was {how}")


def test_task_6_run_gives_what_generate_gives(lab):
    with Serving(lab) as serving:
        engine, params = async_of(serving), serving.params(max_tokens=3, n=2, stop="fz")
        found = run_async("`run`", result_of, (engine.run, ids("abc"), params))
        check_equal(outputs_of(found), ["def", "def"], name="the texts of the answers")
        check_equal(
            (found.prompt_tokens, found.cached_tokens), (3, 0), name="tokens of the prompt, and cached"
        )
        check_equal(len(serving.futures), 2, name="requests that were submitted for n = 2")


def test_task_6_the_event_loop_goes_on_while_an_answer_is_computed(lab):
    with Serving(lab, held=True) as serving:
        engine = async_of(serving)

        what = "`run`, where another coroutine lets each step go on (is the event loop blocked?),"
        call = (engine.run, ids("abc"), serving.params(max_tokens=3))
        steps = [partial(serving.core.let, 1)] * 4  # the first one is for the step of the test's own request
        found = run_async(what, result_beside, call, steps, partial(serving.submitted_all, 1))
    check_equal(outputs_of(found), ["def"], name="the text of the answer")


def test_task_6_many_coroutines_ask_at_once(lab):
    with Serving(lab) as serving:
        engine = async_of(serving)

        params = [serving.params(max_tokens=1 + i % 3, n=1 + i % 2) for i in range(12)]
        calls = [(engine.run, [i], each) for i, each in enumerate(params)]
        found = run_async("twelve coroutines that ask at once", results_of, calls)
    wanted = [[greedy_answer(LETTERS[i], 1 + i % 3)] * (1 + i % 2) for i in range(12)]
    check_equal([outputs_of(each) for each in found], wanted, name="the answers that each coroutine gets")


def test_task_6_cancelling_the_task_frees_seats_and_pages(lab):
    with Serving(lab, held=True) as serving:
        params = serving.params(max_tokens=40, n=3, ignore_end=True, temperature=0)
        end, found = run_async(
            "`run`, after a cancel,",
            cancelled_after,
            (async_of(serving).run, ids("abc"), params),
            serving.cancelled,
            steps=[partial(serving.core.let, 3), serving.core.await_step],
            ready=partial(serving.submitted_all, 3),
        )
        check_equal(end, "cancelled", name="how the task has ended")
        check_equal(found, [True] * 3, name="which requests were cancelled, with their task")
        serving.await_freed()


@pytest.mark.parametrize("method", ["run", "deltas"])
def test_task_6_a_cancel_while_the_requests_are_submitted_reaches_them(lab, method):
    """On the event loop's own thread the cancel comes behind `begin`; on another one it may come in the middle."""
    with Serving(lab, held=True) as serving:
        call = (
            getattr(async_of(serving), method),
            ids("abc"),
            serving.params(max_tokens=40, n=2, ignore_end=True),
        )
        what = f"`{method}`, cancelled while its requests are submitted,"
        end = run_async(what, cancelled_while_submitting, serving.llm.batcher, call, method == "deltas")
        check_equal(end, "cancelled", name="how the task has ended")
        found = serving.cancelled()
        name = f"which requests were cancelled, where the task was cancelled while `{method}` submitted them"
        check_equal(found, [True] * 2, name=name)
        serving.await_freed()


def test_task_6_run_raises_what_begin_raises(lab):
    with Serving(lab, max_queue=2, held=True) as serving:
        engine, full = async_of(serving), lab.ragged.errors.QueueFull
        ask = partial(run_async, "`run`", result_of, (engine.run, ids("abc"), serving.params(n=3)))
        check_raises(full, ask, name="n = 3, where two requests may wait")
        ask = partial(run_async, "`run`", result_of, (engine.run, [], serving.params()))
        check_raises(ValueError, ask, name="an empty prompt", match="empty")
        serving.await_freed()


def test_task_6_run_raises_what_an_answer_has_failed_of(lab):
    with Serving(lab, broken="f") as serving:
        call = (async_of(serving).run, ids("c"), serving.params(max_tokens=9))
        ask = partial(run_async, "`run`", result_of, call)
        check_raises(OSError, ask, name="an answer that fails", match="for f")


def test_task_6_only_the_event_loop_touches_its_queue(lab):
    """An asyncio.Queue isn't made for several threads: a delta may be lost, and a coroutine may sleep on."""
    with Serving(lab) as serving:
        deltas, call = list[Any](), (async_of(serving).deltas, ids("abc"), serving.params(max_tokens=3))
        others = run_async("`deltas`", touched_by_others, call, deltas.append)
    assert not others, (
        f"another thread than the event loop's {others[0]}: ask the loop to do it, with `call_soon_threadsafe`"
    )
    check_equal("".join(each.text for each in deltas), "def", name="the text of all deltas")


def test_task_6_deltas_of_a_coroutine_are_those_of_the_engine(lab):
    with Serving(lab) as serving:
        found, call = list[Any](), (async_of(serving).deltas, ids("abc"), serving.params(max_tokens=3, n=2))
        run_async("`deltas`", collected, call, found.append)
    for index in range(2):
        mine = [(text, reason) for number, text, reason in told(found) if number == index]
        wanted = [("d", ""), ("e", ""), ("f", ""), ("", "length")]
        check_equal(mine, wanted, name=f"text and reason of the deltas of answer {index}, of two")


def test_task_6_each_delta_comes_while_the_next_token_is_not_computed_yet(lab):
    """The steps go on only when the coroutine that has the delta lets them."""
    with Serving(lab, held=True) as serving:
        found, params = list[Any](), serving.params(max_tokens=2, temperature=0)
        call, steps = (async_of(serving).deltas, ids("abc"), params), [partial(serving.core.let, 1)] * 2
        serving.core.let(1)  # the step of the test's own request
        what = "`deltas`, where each step waits for the delta before it (does the loop wait for something else?),"
        ready = partial(serving.submitted_all, 1)
        run_async(what, deltas_beside, call, found.append, steps, ready, rest=True)
    check_equal(told(found), [(0, "d", ""), (0, "e", ""), (0, "", "length")], name="the deltas")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
def test_task_6_leaving_the_deltas_frees_seats_and_pages(lab, how):
    with Serving(lab, held=True) as serving:
        # greedy: a token that is drawn may be one without text
        params = serving.params(max_tokens=40, n=2, ignore_end=True, temperature=0)
        call, what = (async_of(serving).deltas, ids("abc"), params), f"`deltas`, when the iteration is {how},"
        steps = [partial(serving.core.let, 2)]  # the test's own request has the first one
        begun = partial(serving.submitted_all, 2)
        end, now = run_async(what, left_deltas, call, 2, how, serving.cancelled, steps, begun)
        check_equal(end, how, name="how the task has ended that was cancelled while it waited for a delta")
        check_equal(now, [True] * 2, name=f"which requests were cancelled as soon as the iteration was {how}")
        serving.await_freed()


def test_task_6_nothing_begins_before_the_first_delta_is_asked_for(lab):
    with Serving(lab) as serving:
        call = (async_of(serving).deltas, ids("abc"), serving.params(max_tokens=2))
        what = "`deltas`, closed before the first one was asked for,"
        run_async(what, left_deltas, call, 0, "closed", serving.cancelled)
        check_equal(len(serving.futures), 0, name="requests that were submitted")


def test_task_6_deltas_raise_what_an_answer_has_failed_of(lab):
    with Serving(lab, broken="f") as serving:
        call, found = (async_of(serving).deltas, ids("c"), serving.params(max_tokens=9)), list[Any]()
        iterate = partial(run_async, "`deltas`", collected, call, found.append)
        check_raises(OSError, iterate, name="an answer that fails", match="for f")
        check_equal(told(found), [(0, "d", ""), (0, "e", "")], name="what comes before the error")


def test_task_6_two_event_loops_share_an_engine(lab):
    """Each on a thread of its own, with one object for both."""
    with Serving(lab) as serving:
        engine, results = async_of(serving), [Future[Any](), Future[Any]()]

        def ask(number: int) -> None:
            asked = ([number], serving.params(max_tokens=5, n=2))
            what, calls = f"event loop {number}", ((engine.run, *asked), (engine.deltas, *asked))
            try:
                whole, parts = run_async(what, run_and_stream, *calls)
                texts = ["".join(each.text for each in parts if each.index == index) for index in range(2)]
                results[number].set_result((outputs_of(whole), texts))
            except BaseException as error:
                results[number].set_exception(error)

        for number in range(2):
            threading.Thread(target=ask, args=(number,), daemon=True).start()
        for number, future in enumerate(results):
            wanted = [greedy_answer("ab"[number], 5)] * 2
            found = within(future.result, "one of two event loops")
            check_equal(found, (wanted, wanted), name=f"the answers that event loop {number} gets")


def test_task_6_an_event_loop_that_is_gone_harms_no_other_caller(lab, caplog):
    """Its deltas have nowhere to go: the answer ends, and the engine goes on."""
    caplog.set_level(logging.CRITICAL, logger="concurrent.futures")
    with Serving(lab, held=True) as serving:
        call = (async_of(serving).deltas, ids("a"), serving.params(max_tokens=40, ignore_end=True))
        serving.core.let(2)
        leave = partial(first_delta_before_its_loop_closes, call)
        first, _deltas = within(leave, "the first delta of an event loop")
        check_equal(first.text, "b", name="the text of the first delta")
        serving.core.open()
        other = within(lambda: serving.llm.run_all([ids("c")], [serving.params(max_tokens=3)]), "`run_all`")
        check_equal(outputs_of(other[0]), ["def"], name="the text of another caller's answer")
        serving.await_freed()
        count = sum(len(step) for step in serving.core.steps)
        assert count < 20, "an answer whose event loop is gone has got all of its 40 tokens"
