"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.arguments import check_leaves_alone, float_dtypes
from week_1 import sampling_oracle as oracle
from week_2.continuous import new_request

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_raises, check_shape, check_untouched

from .joined_engine import Engine, Noting, prompt_of, words
from .served import Failing, Served, after, answered, asked, completion_of, twin_of
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


OUTPUT = [5, 0, 5, 22, 5, 0, 7]
PENALTIES = [
    (0.5, 0.0),
    (0.0, 0.25),
    (1.5, 0.4),
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
        lab.engine.penalties.apply_count_penalties(lab.array(logits), OUTPUT, presence, frequency),
        penalize(logits, OUTPUT, presence, frequency),
        name=f"the scores with presence {presence}, frequency {frequency} and the output {OUTPUT}",
        axes="V",
        suspects=penalty_suspects(logits, OUTPUT, presence, frequency),
    )


@some_penalties
def test_task_2_tokens_that_are_not_in_the_output_keep_their_scores(lab, presence, frequency):
    logits = scores_of(2)
    found = lab.engine.penalties.apply_count_penalties(lab.array(logits), OUTPUT, presence, frequency)
    found = check_shape(found, logits.shape, name="the scores", axes="V")
    others = [token for token in range(len(logits)) if token not in OUTPUT]
    name = f"the scores of tokens that are not in the output {OUTPUT}"
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
    for given_ in (output, tuple(output)):
        check(
            lab.engine.penalties.apply_count_penalties(lab.array(logits), given_, 0.5, 0.25),
            penalize(logits, OUTPUT, 0.5, 0.25),
            name=f"the scores for an output that is a {type(given_).__name__}",
            axes="V",
        )
    check_equal(output, OUTPUT, name="the output, afterwards")


def test_task_2_penalties_keep_the_dtype(lab):
    # Whole numbers and halves: every float dtype holds them exactly.
    logits = np.round(2 * scores_of(5)) / 2
    for dtype in float_dtypes(lab):
        check(
            lab.engine.penalties.apply_count_penalties(lab.array(logits, dtype), OUTPUT, 1.5, 0.5),
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
        return lab.engine.penalties.apply_count_penalties(logits, OUTPUT, presence, frequency)

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
        lab.engine.penalties.apply_count_penalties(lab.array(logits), OUTPUT, -2.0, -2.0),
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


@pytest.mark.parametrize("size", [1, 2, 9])
def test_task_3_greedy_rows_take_the_best_and_of_equal_scores_the_lowest_id(lab, size):
    logits = np.round(np.random.default_rng(size).normal(size=(size, 700)))
    for dtype in float_dtypes(lab):
        twins = [Twin(lab, PROMPT, [n]) for n in range(size)]
        check_step(
            lab, twins, logits, f"a step of {size} greedy rows in {dtype}, with many equal scores", dtype
        )


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
        logits = 2.5 * np.random.default_rng([seed, step]).normal(size=(len(twins), 301))
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
    {"temperature": 1e12, "top_k": 300},
    {"temperature": 1e12, "top_p": 0.999},
    {"temperature": 1e12, "min_p": 0.999},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 10**9, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 1e-12},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.0, "min_p": 1e-300},
    {"temperature": 1.0, "top_p": 1.0, "top_k": 255},
    {"temperature": 1.0, "top_k": 256},
    {"temperature": 1.0, "top_k": 257},
]


@pytest.mark.parametrize("size", [3, 255, 256, 257, 600])
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


@pytest.mark.parametrize("size", [8, 10, 23, 600])
def test_task_3_a_sum_that_reaches_top_p_exactly_ends_where_it_does_alone(lab, size):
    """Of equal scores, a share has the same rounding here and there."""
    shares = [k / 20 for k in range(1, 20)] + [k / size for k in range(1, size, max(1, size // 12))]
    twins = [Twin(lab, seed=n, temperature=1.0, top_p=share) for n, share in enumerate(shares)]
    for step in range(6):
        what = f"step {step} of rows with top_p {shares[0]}, {shares[1]}, … and {size} equal scores"
        check_step(lab, twins, np.zeros((len(twins), size)), what)


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


@settings(QUICK, max_examples=150)
@given(
    drawn=st.lists(SETTINGS, max_size=9),
    size=st.sampled_from([2, 4, 5, 13]),
    candidates=st.sampled_from([1, 2, 4, 256]),
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


def all_rows(size: int = 7, count: int = 9) -> np.ndarray:
    """Rows of scores of which many are -inf, at the beginning, in the middle and at the end."""
    scores = np.stack([scores_of(1300 + row, size) for row in range(count)])
    for row in range(count):
        scores[row, [(row + n) % size for n in range(row % size)]] = -np.inf
    return scores


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


@pytest.mark.parametrize("size", [5, 101, 1024, 4999])
@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24, math.nextafter(1.0, 0.0)])
def test_task_3_a_token_that_was_filtered_out_is_never_drawn_not_even_by_rounding(lab, size, uniform):
    rows = np.stack([scores_of(size + n, size) for n in range(5)])
    rows[:, :2] = rows[:, -2:] = -np.inf
    expected = 2 if uniform == 0 else size - 3
    rows[:, expected] = rows.max(axis=1)
    check(
        lab.engine.step_sampler.draw_rows(wide(lab, rows), [uniform] * 5),
        np.full(5, expected),
        name=f"the places drawn at {uniform} of {size} tokens",
        dtype="int64",
        suspects={
            "a token whose score is -inf was drawn: 0 must draw the first whose sum exceeds it": np.zeros(5),
            "the number points past the last token: the last sum may be less than 1": np.full(5, size),
        },
    )


def test_task_3_a_sum_must_exceed_the_number_in_each_row(lab):
    uniforms = [0.0, 0.25, 0.5, 0.75]
    check(
        lab.engine.step_sampler.draw_rows(wide(lab, np.zeros((4, 4))), uniforms),
        np.arange(4),
        name=f"the places drawn at {uniforms} of 4 equal tokens",
        dtype="int64",
        suspects={"the sum that reaches the number is taken: it must exceed it": np.array([0, 0, 1, 2])},
    )


def test_task_3_drawing_leaves_its_arguments_as_they_are(lab):
    scores, uniforms = wide(lab, all_rows()), [n / 9 for n in range(9)]
    before = lab.numpy(scores)
    lab.engine.step_sampler.draw_rows(scores, uniforms)
    check_untouched(scores, before, name="the scores", dtype=lab.dtype(scores))
    check_equal(uniforms, [n / 9 for n in range(9)], name="the random numbers, afterwards")


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
        apart = count == scores.shape[1] or (scores[row][known].min() > best[count - 1] and narrow)
        assert enough[row] or not apart, (
            f"the candidates of {told} are enough: only {known.sum()} tokens are kept, all are better than the last "
            "candidate, and top-k keeps no more than the candidates; `keep_rows` says they may not be enough"
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


@pytest.mark.parametrize("size", [3, 40, 256, 257, 900])
def test_task_3_filters_on_the_candidates_keep_what_they_keep_of_all(lab, size):
    scores = np.stack([3 * scores_of(1400 + row, size) for row in range(len(FILTERS))])
    scores -= scores.max(axis=1, keepdims=True)
    enough = check_kept(lab, scores, FILTERS, f"rows of {size} scores")
    check_equal(
        enough, [True] * len(FILTERS), name=f"whether the candidates of rows of {size} scores are enough"
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
        ({"top_k": 300}, 0),
        ({"top_p": 0.999}, 0),
        ({"min_p": 1e-6}, 0),
        ({"top_k": 100}, 40),
        ({"min_p": 0.3}, 200),
    ],
    ids=str,
)
def test_task_3_where_another_token_may_be_kept_the_candidates_are_not_enough(lab, params, better):
    """Scores that are equal to the last candidate's: which of them are candidates is anybody's guess."""
    scores = np.full((1, 900), -0.5)
    scores[0, np.random.default_rng(better).permutation(900)[: better + 1]] = 0.0
    found = filtered_rows(lab, scores, [params])
    told = f"900 scores, of which {899 - better} are -0.5 and the others 0, with {params}"
    assert not lab.numpy(found[2])[0], (
        f"{told}: tokens that are no candidates are as good as some that are kept; the candidates may not be enough"
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
    scores = np.stack([scores_of(1500 + row, 300) for row in range(len(FILTERS))])
    scores -= scores.max(axis=1, keepdims=True)
    array = wide(lab, scores)
    params = [lab.engine.params.SamplingParams(temperature=1.0, **each) for each in FILTERS]
    lab.engine.step_sampler.keep_rows(array, params)
    check_untouched(array, scores, name="the scores", dtype=lab.dtype(array))


@pytest.mark.parametrize("params", [DRAWN[0], DRAWN[3], DRAWN[4], DRAWN[5]], ids=str)
def test_task_3_a_group_that_draws_leaves_its_scores_and_takes_a_number_for_each_row(lab, params):
    twins = [Twin(lab, seed=n, **params) for n in range(5)]
    array = wide(lab, np.stack([scores_of(1600 + row, 300) for row in range(5)]))
    before = lab.numpy(array)
    expected = [int(twin.alone(array[row])) for row, twin in enumerate(twins)]
    found = lab.engine.step_sampler.choose_group(array, [twin.sampler for twin in twins])
    check_equal(found, expected, name=f"the tokens of a group of 5 rows with {params}")
    check_generators(twins, f"after a group of 5 rows with {params}")
    check_untouched(array, before, name="the scores of a group", dtype=lab.dtype(array))


def test_task_3_a_greedy_group_takes_the_best_and_no_numbers(lab):
    """Its scores have gone through the penalties already."""
    twins = [Twin(lab, [1, 2], [3, 4, 4], seed=n, presence_penalty=2.0) for n in range(5)]
    scores = np.round(np.stack([scores_of(1620 + row) for row in range(5)]))
    array = wide(lab, scores)
    found = lab.engine.step_sampler.choose_group(array, [twin.sampler for twin in twins])
    check_equal(found, scores.argmax(axis=1).tolist(), name="the tokens of a greedy group of 5 rows")
    check_generators(twins, "after a greedy group of 5 rows")
    check_untouched(array, scores, name="the scores of a group", dtype=lab.dtype(array))


def test_task_3_only_rows_whose_candidates_are_not_enough_are_filtered_as_on_day_1_7(lab, monkeypatch):
    module = lab.engine.step_sampler
    whole, calls = module.keep, list[Any]()

    def counting(scores: Any, params: Any) -> Any:
        calls.append(params)
        return whole(scores, params)

    monkeypatch.setattr(module, "keep", counting)
    some: list[dict[str, Any]] = [
        {"top_k": 5},
        {"top_k": 400},
        {"top_p": 0.5},
        {"min_p": 0.2},
        {"top_k": 300},
    ]
    twins = [Twin(lab, seed=n, temperature=1.0, **each) for n, each in enumerate(some)]
    logits = np.stack([3 * scores_of(1700 + row, 900) for row in range(5)])
    check_step(lab, twins, logits, "a step of 5 rows, of which two keep 400 and 300 tokens")
    assert len(calls) <= 2, (
        f"{len(calls)} rows were filtered as on Day 1.7, which sorts all of V; for 3 of the 5 rows the candidates "
        "are enough"
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
    for row, (each, ids) in enumerate(zip(line, before, strict=True)):
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
        check_equal(request.token_ids[len(ids) :], new, name=f"the new tokens of {told}")
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
