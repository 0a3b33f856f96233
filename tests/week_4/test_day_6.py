"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.arguments import check_leaves_alone, float_dtypes

from coursekit import lab as door
from coursekit.check import CheckFailed, check, check_equal, check_shape

from .step_sampling import best_first, log_softmax, penalize, penalty_suspects
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
    numbers = [("logprob", found.logprob, float), ("token_id", found.token_id, int)]
    numbers += [(f"top[{n}]", tuple(pair), tuple) for n, pair in enumerate(found.top)]
    for name, value, kind in numbers:
        plain = type(value) is kind and (kind is not tuple or [type(x) for x in value] == [int, float])
        wanted = "a tuple of an int and a float" if kind is tuple else f"a plain {kind.__name__}"
        assert plain, f"`{name}` of {what}: {wanted} expected, {value!r} found"
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
