"""Day 4.6: stop strings, penalties, log-probabilities, a whole step at once, and the engine that programs talk to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door
from coursekit.check import check_equal

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


# Task 3: a whole step at once
