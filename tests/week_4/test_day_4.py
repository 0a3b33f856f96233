"""Day 4.4: document prompts: their segments, positions and mask, and the dense oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared.models import real_model
from shared.numbers import normal
from week_1.caches import attention_oracle
from week_1.numpy_model import FAMILIES, HKV, MAX_POSITIONS, B, D, H

from coursekit import lab as door
from coursekit.check import (
    CheckFailed,
    check,
    check_allowed,
    check_equal,
    check_raises,
    check_shape,
    check_untouched,
)
from coursekit.checking.objects import found_under
from coursekit.checking.wording import plural

from .document_model import NotingModel, V, all_logits
from .document_prompts import (
    HAND,
    QUESTION,
    SEED,
    SOME,
    SYSTEM,
    Lengths,
    additive,
    any_lengths,
    brief,
    ids_by_document,
    ids_of,
    laid_out,
    mistaken_masks,
    positions_of,
    sees_of,
    segments_of,
    starts_of,
    telling,
    token_id,
    whose,
)
from .toy_tokenizer import CONTROL, DROPPED, END, START, ToyTokenizer, pieces

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
some_lengths = pytest.mark.parametrize("lengths", SOME, ids=brief)
both_tokenizers = pytest.mark.parametrize("has_start", [True, False], ids=["start token", "no start token"])
any_text = st.text(alphabet="ae #.T\n", max_size=12)
SCRIPT = [4, 11, 4, 0, 9, 2, 8]


# Task 1: segments


def prompt_of(lab: Any, system: str, documents: Sequence[str], question: str) -> Any:
    return lab.documents.prompt.DocumentPrompt(system, tuple(documents), question)


def encode(lab: Any, prompt: Any, *limits: Any, has_start: bool = True, **options: Any) -> Any:
    return lab.documents.prompt.encode_prompt(prompt, ToyTokenizer(has_start), *limits, **options)


def stripped(who: str, segments: Sequence[str], separator: str) -> dict[str, tuple[str, ...]]:
    """What stripping gives; that of the separator's characters is told where it gives something else."""
    by_space, by_character = (
        tuple(map(str.strip, segments)),
        tuple(each.strip(separator) for each in segments),
    )
    wrong = {f"{who} stripped: the text stays as it is": by_space}
    if by_character != by_space:
        wrong[f"{who} stripped of the separator's characters: the text stays as it is"] = by_character
    return wrong


def check_prompt(
    prompt: Any,
    system: str,
    documents: tuple[str, ...],
    question: str,
    name: str,
    pieces: Sequence[str],
    separator: str = " # # ",
) -> None:
    """Compare a split text, segment by segment; ``pieces`` are what lies between the separators."""
    __tracebackhide__ = True
    assert prompt is not None, f"{name}: None found, a DocumentPrompt expected; is a `return` missing?"
    wrong = {
        "documents without text were left out: they stay, with no tokens": tuple(filter(None, documents)),
        **stripped("the documents were", documents, separator),
        "the system prompt is among the documents": tuple(pieces[:-1]),
        "the question is among the documents": tuple(pieces[1:]),
    }
    check_equal(prompt.documents, documents, name=f"the documents of {name}", suspects=wrong)
    alone = (
        {"a text without a separator is a question, not a system prompt": pieces[0]}
        if len(pieces) == 1
        else {}
    )
    for which, found, wanted in (
        ("system prompt", prompt.system, system),
        ("question", prompt.question, question),
    ):
        suspects = {
            cause: each[0] for cause, each in stripped(f"the {which} was", [wanted], separator).items()
        }
        suspects |= alone if which == "system prompt" else {}
        check_equal(found, wanted, name=f"the {which} of {name}", suspects=suspects)


@pytest.mark.parametrize(
    ("text", "system", "documents", "question"),
    [
        ("Who?", "", (), "Who?"),
        ("", "", (), ""),
        ("Be brief. # # Who?", "Be brief.", (), "Who?"),
        ("Be brief. # # A cat. # # Who?", "Be brief.", ("A cat.",), "Who?"),
        ("Be brief. # # A cat. # # A dog. # # An owl. # # ?", "Be brief.", ("A cat.", "A dog.", "An owl."), "?"),
        (" # # A cat. # # Who?", "", ("A cat.",), "Who?"),
        ("Be brief. # #  # # Who?", "Be brief.", ("",), "Who?"),
        ("Be brief. # #  # # A dog. # #  # #  # # Who?", "Be brief.", ("", "A dog.", "", ""), "Who?"),
        ("Be brief. # # A cat. # # ", "Be brief.", ("A cat.",), ""),
        (" # # ", "", (), ""),
        ("Twice. # # A. # # A. # # A.", "Twice.", ("A.", "A."), "A."),
    ],
)  # fmt: skip
def test_task_1_the_text_between_separators_is_a_segment(lab, text, system, documents, question):
    found = lab.documents.prompt.split_prompt(text)
    check_prompt(found, system, documents, question, repr(text), text.split(" # # "))


def test_task_1_nothing_is_stripped(lab):
    text = "\n Be brief. \n # # \tA cat.  # #  \n # #  Who? "
    found = lab.documents.prompt.split_prompt(text)
    check_prompt(found, "\n Be brief. \n", ("\tA cat. ", " \n"), " Who? ", repr(text), text.split(" # # "))


@pytest.mark.parametrize("text", ["a # b", "a ## b # c", "# # a #", "a #  # b", "a\n# #\nb"])
def test_task_1_only_the_whole_separator_separates(lab, text):
    check_prompt(lab.documents.prompt.split_prompt(text), "", (), text, repr(text), [text])


@pytest.mark.parametrize("separator", ["|", ".", "\n\n", "[doc]", "a+", "##"])
def test_task_1_any_text_may_be_the_separator(lab, separator):
    text = separator.join(["Be brief", "One # # cat", "Two", "Who?"])
    name = f"{text!r}, split at {separator!r}"
    found = check_allowed(
        lambda: lab.documents.prompt.split_prompt(text, separator),
        name=name,
        why="any text of at least one character separates",
    )
    check_prompt(found, "Be brief", ("One # # cat", "Two"), "Who?", name, text.split(separator), separator)


def test_task_1_separators_are_found_from_the_left_and_do_not_overlap(lab):
    text = "a # # # # b"
    check_prompt(lab.documents.prompt.split_prompt(text), "a", (), "# # b", repr(text), ["a", "# # b"])


@pytest.mark.parametrize("text", ["", "a", "a # # b"])
def test_task_1_an_empty_separator_is_refused(lab, text):
    check_raises(
        ValueError,
        lambda: lab.documents.prompt.split_prompt(text, ""),
        name=f"splitting {text!r} at an empty text",
    )


@QUICK
@given(system=any_text, documents=st.lists(any_text, max_size=5), question=any_text)
def test_task_1_what_was_joined_is_split_again(system, documents, question):
    lab = door.active()
    text = "|".join([system, *documents, question])
    found = lab.documents.prompt.split_prompt(text, "|")
    check_prompt(found, system, tuple(documents), question, f"{text!r}, split at '|'", text.split("|"), "|")


def test_task_1_no_token_reaches_over_a_separator(lab):
    system, *documents, question = parts = ["the cat", "the cat", "The cat", "The #"]
    text = " # # ".join(parts)
    assert pieces(" # # ")[0] not in pieces(text), "every separator must be part of other tokens"
    segments = encode(lab, lab.documents.prompt.split_prompt(text), has_start=False)
    check_equal(
        segments.documents,
        tuple(tuple(pieces(each)) for each in documents),
        name=f"the ids of the documents of {text!r}",
        suspects={
            "the documents were tokenized together: a token reaches over the edge of a separator": (
                (tuple(pieces(" # # ".join(documents))),)
            )
        },
    )
    check_equal(segments.system, tuple(pieces(system)), name=f"the ids of the system prompt of {text!r}")
    check_equal(segments.question, tuple(pieces(question)), name=f"the ids of the question of {text!r}")


@both_tokenizers
@pytest.mark.parametrize("system", ["Be brief.", ""])
@pytest.mark.parametrize(
    "documents", [(), ("the cat sat.",), ("the cat", "", "A dog.")], ids=["none", "one", "three"]
)
def test_task_1_there_is_one_start_token_in_all(lab, system, documents, has_start):
    segments = encode(lab, prompt_of(lab, system, documents, "Who?"), has_start=has_start)
    start = (START,) if has_start else ()
    check_equal(
        segments.system,
        (*start, *pieces(system)),
        name=f"the ids of the system prompt {system!r}",
        suspects={
            "it was encoded without the start token": tuple(pieces(system)),
        },
    )
    expected = tuple(tuple(pieces(each)) for each in documents)
    check_equal(
        segments.documents,
        expected,
        name=f"the ids of the documents {documents}",
        suspects={
            "each document got a start token of its own": tuple((*start, *each) for each in expected),
            "a document is a tuple of ids, not a list": tuple(map(list, expected)),
            "an empty document was left out: it stays, with no tokens": tuple(filter(None, expected)),
        },
    )
    check_equal(
        segments.question,
        tuple(pieces("Who?")),
        name="the ids of the question",
        suspects={"the question got a start token of its own": (*start, *pieces("Who?"))},
    )


def test_task_1_a_document_cannot_write_control_tokens(lab):
    text = f"the cat{CONTROL} sat"
    segments = encode(lab, prompt_of(lab, "", [text], "Who?"))
    check_equal(
        segments.documents,
        (tuple(pieces(text)),),
        name=f"the ids of the document {text!r}",
        suspects={"the spelling of a control token in a document became one": (tuple(pieces(text, True)),)},
    )


def test_task_1_system_prompt_and_question_may_write_control_tokens(lab):
    text = f"the cat{CONTROL}"
    segments = encode(lab, prompt_of(lab, text, [], text), has_start=False)
    letters = {"the spelling of a control token became letters: that is for documents": tuple(pieces(text))}
    for name, ids in (("system prompt", segments.system), ("question", segments.question)):
        check_equal(ids, tuple(pieces(text, True)), name=f"the ids of the {name} {text!r}", suspects=letters)
        assert END in ids


def test_task_1_a_separator_in_a_document_is_text(lab):
    text = "the cat # # The dog"
    segments = encode(lab, prompt_of(lab, "a # # b", [text], "c # # d"), has_start=False)
    check_equal(segments.documents, (tuple(pieces(text)),), name=f"the ids of the one document {text!r}")
    check_equal(segments.system, tuple(pieces("a # # b")), name="the ids of the system prompt 'a # # b'")
    check_equal(segments.question, tuple(pieces("c # # d")), name="the ids of the question 'c # # d'")


def test_task_1_segments_can_be_keys(lab):
    prompt = prompt_of(lab, "Be brief.", ["the cat", ""], "Who?")
    for limit in (None, 2):
        segments = encode(lab, prompt, limit, True)
        same = encode(lab, prompt_of(lab, "Be brief.", ["the cat", ""], "Who?"), limit, True)
        what = "whether a dictionary has under equal segments what was put there (ids are in tuples)"
        check_equal(found_under(segments, same), True, name=what)


@pytest.mark.parametrize("question", ["", DROPPED, DROPPED * 3])
@both_tokenizers
def test_task_1_a_question_without_tokens_is_refused(lab, question, has_start):
    prompt = prompt_of(lab, "Be brief.", ["the cat"], question)
    check_raises(
        ValueError,
        lambda: encode(lab, prompt, has_start=has_start),
        name=f"the question {question!r}, which has no tokens",
    )


def both_encoders(lab: Any, documents: Sequence[str], *limits: Any) -> list[tuple[str, Callable[[], Any]]]:
    """Both functions that take a limit, by name, as calls for these documents."""
    prompt = prompt_of(lab, "Be brief.", documents, "Who?")
    return [
        ("encode_prompt", partial(encode, lab, prompt, *limits)),
        (
            "encode_documents",
            partial(lab.documents.prompt.encode_documents, documents, ToyTokenizer(), *limits),
        ),
    ]


LONG = "the cat sat"  # six tokens: "the ", "cat", " ", "s", "a", "t"


@pytest.mark.parametrize(
    "documents", [["A", LONG], [LONG, ""], ["A", "", LONG, "A"]], ids=["last", "first", "third"]
)
def test_task_1_a_document_that_is_too_long_is_refused_by_its_number(lab, documents):
    number = documents.index(LONG) + 1
    for function, call in both_encoders(lab, documents, 5):
        check_raises(
            ValueError,
            call,
            name=f"{function}: document {number} of {len(documents)}, with 6 tokens where 5 are allowed",
            match=(str(number), "6", "5"),
        )


def test_task_1_a_document_that_is_too_long_is_truncated_when_asked(lab):
    for limit in (5, 2, 1):
        documents = ("A", LONG, "", LONG)
        segments = check_allowed(
            partial(encode, lab, prompt_of(lab, "Be brief.", documents, "Who?"), limit, truncate=True),
            name=f"documents of 6 tokens where {limit} are allowed, with truncate=True",
            why="with truncate=True, documents lose their ends",
        )
        check_equal(
            segments.documents,
            tuple(tuple(pieces(each)[:limit]) for each in documents),
            name=f"the documents, truncated to {plural(limit, 'token')}",
            suspects={
                "a document lost its beginning, not its end": tuple(
                    tuple(pieces(each)[-limit:]) for each in documents
                ),
                "the text was cut, not the tokens": tuple(tuple(pieces(each[:limit])) for each in documents),
                "equal documents became one: each stays in its place": tuple(
                    tuple(pieces(each)[:limit]) for each in dict.fromkeys(documents)
                ),
                "nothing was cut": tuple(tuple(pieces(each)) for each in documents),
                "the limit was used up by all documents together": tuple(
                    tuple(ids) for ids in (pieces("A"), pieces(LONG)[: limit - 1], (), ())
                ),
            },
        )
        check_equal(segments.question, tuple(pieces("Who?")), name="the question, which is never truncated")
        check_equal(
            segments.system, (START, *pieces("Be brief.")), name="the system prompt, which is never truncated"
        )


def test_task_1_a_document_may_be_as_long_as_allowed(lab):
    for truncate in (False, True):
        documents = [LONG, LONG]
        segments = check_allowed(
            partial(encode, lab, prompt_of(lab, "Be brief.", documents, "Who is it?"), 6, truncate),
            name="two documents of 6 tokens, a longer system prompt and a longer question, where 6 are allowed",
            why="the limit is for each document, in tokens; a document may be exactly as long as it says",
        )
        expected = (tuple(pieces(LONG)),) * 2
        check_equal(segments.documents, expected, name="documents that are exactly as long as allowed")
        check_equal(
            segments.system, (START, *pieces("Be brief.")), name="a system prompt, which has no limit"
        )
        check_equal(segments.question, tuple(pieces("Who is it?")), name="a question, which has no limit")


def test_task_1_without_a_limit_nothing_is_too_long(lab):
    for truncate in (False, True):
        segments = encode(lab, prompt_of(lab, "", [LONG * 50], "Who?"), None, truncate)
        check_equal(
            segments.documents, (tuple(pieces(LONG * 50)),), name="a document of 300 tokens without a limit"
        )


@pytest.mark.parametrize(
    "documents", [[], [""], ["A"]], ids=["no document", "an empty document", "a document"]
)
@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("truncate", [False, True])
def test_task_1_a_limit_below_one_token_is_refused(lab, limit, documents, truncate):
    for function, call in both_encoders(lab, documents, limit, truncate):
        name = f"{function} with max_chunk_len={limit}, truncate={truncate}"
        check_raises(ValueError, call, name=name, match="max_chunk_len")


@QUICK
@given(documents=st.lists(any_text, max_size=5), limit=st.none() | st.integers(1, 4))
def test_task_1_a_document_has_the_same_ids_in_any_company(documents, limit):
    lab = door.active()
    together = lab.documents.prompt.encode_documents(documents, ToyTokenizer(), limit, True)
    alone = [lab.documents.prompt.encode_documents([each], ToyTokenizer(), limit, True) for each in documents]
    expected = tuple(ids for one in alone for ids in one)
    check_equal(together, expected, name=f"the documents {documents}, encoded together and each alone")
    check_equal(
        together, tuple(tuple(pieces(each)[:limit]) for each in documents), name=f"the ids of {documents}"
    )


def test_task_1_the_list_of_documents_is_left_as_it_was(lab):
    documents = ["the cat", "", LONG]
    lab.documents.prompt.encode_documents(documents, ToyTokenizer(), 2, True)
    check_equal(documents, ["the cat", "", LONG], name="the caller's documents, afterwards")


# Task 2: positions


def strategies(lengths: Lengths) -> list[tuple[tuple[Any, ...], int | None]]:
    """The arguments for both strategies, with the stride of `offset`: a limit that just fits, and one with room."""
    longest = max([1, *lengths.documents])
    return [(("shared",), None), (("offset", longest), longest), (("offset", longest + 3), longest + 3)]


def start_suspects(lengths: Lengths, stride: int | None) -> dict[str, Any]:
    """What the usual mistakes give for the starts."""
    system, documents, _ = lengths
    starts, question = starts_of(lengths, stride)
    used = [system + sum(documents[:i]) for i in range(len(documents) + 1)]
    wrong: dict[str, Any] = {
        "each document starts where the one before it ends": (used[:-1], used[-1]),
        "the documents start at 0, and not behind the system prompt": (
            [start - system for start in starts],
            question,
        ),
        "the question starts where the sum of all documents ends": (starts, used[-1]),
        "the question starts where the system prompt ends": (starts, system),
        "one position was left free before the question": (starts, question + 1),
    }
    if not documents:
        return wrong
    if stride is not None:
        return wrong | offset_suspects(lengths, stride)
    order = ids_by_document(lengths)
    largest = documents[order.index(max(order))]
    return wrong | {
        "the question starts where the last document ends": (starts, system + documents[-1]),
        "the question starts where the first document ends": (starts, system + documents[0]),
        "the question starts where the shortest document ends": (starts, system + min(documents)),
        "the question starts behind the document with the largest ids, not the longest: `max` compared the "
        "documents, not their lengths": (starts, system + largest),
    }


def offset_suspects(lengths: Lengths, stride: int) -> dict[str, Any]:
    """What the usual mistakes give for the starts of documents that have `stride` positions each."""
    system, documents, _ = lengths
    starts, question = starts_of(lengths, stride)
    longest, count = max(documents), len(documents)
    by_longest = [system + i * longest for i in range(count + 1)]
    return {
        "the question starts where the last document ends: with `offset` it starts where another document would": (
            starts,
            starts[-1] + documents[-1],
        ),
        "the documents are as far apart as the longest is long: `max_chunk_len` says how far": (
            by_longest[:-1],
            by_longest[-1],
        ),
        "`offset` was laid out as `shared`": ([system] * count, system + longest),
        "the first document is one stride away from the system prompt": (
            [start + stride for start in starts],
            question + stride,
        ),
    }


def check_positions(lab: Any, lengths: Lengths, arguments: tuple[Any, ...], stride: int | None) -> None:
    """Starts and positions for these arguments."""
    __tracebackhide__ = True
    segments, wrong = segments_of(lab, lengths), start_suspects(lengths, stride)
    what = f"{' '.join(map(str, arguments))}; {lengths}"
    check_starts(lab.documents.positions.segment_starts(segments, *arguments), lengths, stride, what, wrong)
    found = lab.documents.positions.segment_positions(segments, *arguments)
    name = f"the position of each token ({what})"
    suspects = position_suspects(lengths, stride)
    check_equal(found, positions_of(lengths, stride), name=name, suspects=telling(found, suspects))


def position_suspects(lengths: Lengths, stride: int | None) -> dict[str, list[int]]:
    """What the usual mistakes give for the positions."""
    wrong = {
        mistake: laid_out(lengths, *starts) for mistake, starts in start_suspects(lengths, stride).items()
    }
    return {
        "the tokens were counted through, segment after segment": list(range(len(ids_of(lengths)))),
        **wrong,
    }


def check_starts(found: Any, lengths: Lengths, stride: int | None, what: str, wrong: dict[str, Any]) -> None:
    """Two parts: where the documents start, and where the question does."""
    __tracebackhide__ = True
    starts, question = starts_of(lengths, stride)
    two = "segment_starts gives a tuple: the list of the documents' starts, and the question's start"
    assert isinstance(found, tuple), f"{two}; found {found!r}"
    assert len(found) == 2, f"{two}; found {found!r}"
    alike = {mistake: part[0] for mistake, part in wrong.items()}
    check_equal(
        found[0], starts, name=f"where the documents start ({what})", suspects=telling(found[0], alike)
    )
    apart = {mistake: part[1] for mistake, part in wrong.items() if part[0] == starts}
    check_equal(
        found[1], question, name=f"where the question starts ({what})", suspects=telling(found[1], apart)
    )


def test_task_2_three_documents_of_ten_tokens_share_ten_positions(lab):
    segments = segments_of(lab, SEED)
    starts = lab.documents.positions.segment_starts(segments)
    check_starts(starts, SEED, None, str(SEED), start_suspects(SEED, None))
    expected = [*range(10), *range(10, 20), *range(10, 20), *range(10, 20), *range(20, 29)]
    found = lab.documents.positions.segment_positions(segments)
    suspects = telling(found, position_suspects(SEED, None))
    check_equal(found, expected, name=f"the position of each token ({SEED})", suspects=suspects)


def test_task_2_three_documents_of_ten_tokens_at_multiples_of_twelve(lab):
    segments = segments_of(lab, SEED)
    starts = lab.documents.positions.segment_starts(segments, "offset", 12)
    suspects = telling(starts, start_suspects(SEED, 12))
    check_equal(starts, ([10, 22, 34], 46), name=f"the starts (offset 12; {SEED})", suspects=suspects)
    expected = [*range(10), *range(10, 20), *range(22, 32), *range(34, 44), *range(46, 55)]
    found = lab.documents.positions.segment_positions(segments, "offset", 12)
    suspects = telling(found, position_suspects(SEED, 12))
    check_equal(found, expected, name=f"the position of each token (offset 12; {SEED})", suspects=suspects)


def test_task_2_offset_takes_a_document_that_just_fits(lab):
    lengths = Lengths(6, (4, 0, 4), 7)
    for call, expected in zip(
        refusals(lab, segments_of(lab, lengths)),
        (starts_of(lengths, 4), positions_of(lengths, 4)),
        strict=True,
    ):
        name = f"documents of 4 tokens at multiples of 4 positions ({lengths})"
        found = check_allowed(
            partial(call, "offset", 4), name=name, why="a document may use all its positions"
        )
        check_equal(found, expected, name=name)


@pytest.mark.parametrize("documents", list(permutations((1, 4, 2))), ids=str)
def test_task_2_the_question_starts_behind_the_longest_document_wherever_it_is(lab, documents):
    check_positions(lab, Lengths(3, documents, 2), ("shared",), None)


@some_lengths
def test_task_2_each_segment_stands_where_the_strategy_says(lab, lengths):
    for arguments, stride in strategies(lengths):
        check_positions(lab, lengths, arguments, stride)


@QUICK
@given(lengths=any_lengths, room=st.integers(0, 4), offset=st.booleans())
@example(lengths=HAND, room=0, offset=True)
def test_task_2_any_lengths_stand_where_the_strategy_says(lengths, room, offset):
    stride = max([1, *lengths.documents]) + room if offset else None
    arguments = ("offset", stride) if offset else ("shared",)
    check_positions(door.active(), lengths, arguments, stride)


def test_task_2_equal_documents_have_places_of_their_own(lab):
    lengths = Lengths(2, (3, 3, 3), 2)
    segments = segments_of(lab, lengths, equal=True)
    for arguments, stride in strategies(lengths):
        found = lab.documents.positions.segment_positions(segments, *arguments)
        name = (
            f"the position of each token, where all documents are the same ({' '.join(map(str, arguments))})"
        )
        check_equal(found, positions_of(lengths, stride), name=name)


@pytest.mark.parametrize("limit", [None, 0, -2, 1, 2, 100])
def test_task_2_shared_positions_do_not_look_at_the_limit(lab, limit):
    segments = segments_of(lab, HAND)
    for function, expected in (
        (lab.documents.positions.segment_starts, starts_of(HAND)),
        (lab.documents.positions.segment_positions, positions_of(HAND)),
    ):
        name = f"{function.__name__} of shared, with max_chunk_len={limit} ({HAND})"
        why = "shared positions don't look at max_chunk_len"
        found = check_allowed(partial(function, segments, "shared", max_chunk_len=limit), name=name, why=why)
        check_equal(found, expected, name=name)


def refusals(lab: Any, segments: Any) -> list[Callable[..., Any]]:
    """Both functions, on these segments."""
    functions = lab.documents.positions.segment_starts, lab.documents.positions.segment_positions
    return [partial(function, segments) for function in functions]


@pytest.mark.parametrize("strategy", ["Shared", "", "own", "shared "])
def test_task_2_an_unknown_strategy_is_refused(lab, strategy):
    for lengths in (HAND, Lengths(3, (), 2)):
        for call in refusals(lab, segments_of(lab, lengths)):
            for rest in ((), (9,)):
                name = f"the strategy {strategy!r}" + (f", with max_chunk_len={rest[0]}" if rest else "")
                check_raises(ValueError, partial(call, strategy, *rest), name=name)


@pytest.mark.parametrize("limit", [None, 0, -1])
@pytest.mark.parametrize("lengths", [HAND, Lengths(3, (), 2), Lengths(3, (0,), 2)], ids=brief)
def test_task_2_offset_needs_a_limit(lab, lengths, limit):
    for call in refusals(lab, segments_of(lab, lengths)):
        name = f"offset with max_chunk_len={limit} ({lengths})"
        check_raises(ValueError, partial(call, "offset", limit), name=name, match="max_chunk_len")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_task_2_offset_refuses_a_document_that_would_run_into_the_next(lab, number):
    documents = [4, 0, 4]
    documents[number - 1] = 5
    lengths = Lengths(6, tuple(documents), 7)
    for call in refusals(lab, segments_of(lab, lengths)):
        name = f"document {number} of 5 tokens, at multiples of 4 positions"
        check_raises(ValueError, partial(call, "offset", 4), name=name, match=str(number))


# Task 3: the mask


def check_added(mask: Any, name: str) -> None:
    """A mask of True and False can't be added to scores."""
    __tracebackhide__ = True
    if mask is not None and door.active().dtype(mask) == "bool":
        raise CheckFailed(
            f"{name}: bool found; a mask is added to the scores: 0 where a token sees another, −inf elsewhere"
        )


def check_mask(
    lengths: Lengths, mask: Any, name: str, dtype: str = "float32", nan: str | None = None
) -> None:
    __tracebackhide__ = True
    check_added(mask, name)
    check(
        mask,
        additive(sees_of(lengths)),
        name=name,
        axes="query key",
        dtype=dtype,
        rtol=0,
        atol=0,
        suspects=mistaken_masks(lengths),
        nan=nan,
    )


def check_ids(lab: Any, lengths: Lengths, segments: Any) -> None:
    __tracebackhide__ = True
    expected = ids_of(lengths)
    present = [number for number, count in enumerate(lengths.documents) if count]
    closed_up = [present.index(each) if each >= 0 else each for each in expected]
    check_equal(
        lab.documents.positions.segment_ids(segments),
        expected,
        name=f"the segment of each token ({lengths})",
        suspects={
            "an empty document got no number, and the documents behind it are one too low": closed_up,
            "the documents were counted from 1: the first one is 0": [
                each + 1 if each >= 0 else each for each in expected
            ],
            "the ids of system prompt and question were exchanged": [
                {SYSTEM: QUESTION, QUESTION: SYSTEM}.get(each, each) for each in expected
            ],
            "the question got a document's number: it is none": [
                len(lengths.documents) if each == QUESTION else each for each in expected
            ],
            "equal documents got the same number: they are different documents": [
                min(each, 0) for each in expected
            ],
        },
    )


def test_task_3_a_small_mask_by_hand(lab):
    rows = [  # two tokens of the system prompt, documents of two and one, two tokens of the question
        "x......",
        "xx.....",
        "xxx....",
        "xxxx...",
        "xx..x..",
        "xxxxxx.",
        "xxxxxxx",
    ]
    lengths = Lengths(2, (2, 1), 2)
    expected = additive(np.array([[sign == "x" for sign in row] for row in rows]))
    mask = lab.documents.mask.document_mask(segments_of(lab, lengths))
    check_added(mask, f"the mask ({lengths})")
    check(
        mask,
        expected,
        name=f"the mask ({lengths})",
        axes="query key",
        suspects=mistaken_masks(lengths),
    )


@some_lengths
def test_task_3_each_token_has_the_number_of_its_segment(lab, lengths):
    check_ids(lab, lengths, segments_of(lab, lengths))


@some_lengths
def test_task_3_the_mask_follows_the_rules(lab, lengths):
    mask = lab.documents.mask.document_mask(segments_of(lab, lengths))
    check_mask(lengths, mask, f"the mask ({lengths})")


@QUICK
@given(lengths=any_lengths)
@example(lengths=Lengths(0, (0, 0), 0))
@example(lengths=Lengths(0, (3, 3), 1))
@example(lengths=Lengths(1, (0, 2, 0, 1), 0))
def test_task_3_any_lengths_follow_the_rules(lengths):
    lab = door.active()
    check_ids(lab, lengths, segments_of(lab, lengths))
    mask = lab.documents.mask.document_mask(segments_of(lab, lengths))
    check_mask(lengths, mask, f"the mask ({lengths})")


@pytest.mark.parametrize("lengths", [SEED, Lengths(2, (3, 3, 3), 2), Lengths(0, (1, 1), 1)], ids=brief)
def test_task_3_equal_documents_do_not_see_one_another(lab, lengths):
    segments = segments_of(lab, lengths, equal=True)
    check_ids(lab, lengths, segments)
    name = f"the mask, where all tokens are the same ({lengths})"
    check_mask(lengths, lab.documents.mask.document_mask(segments), name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "float32"])
def test_task_3_the_mask_has_the_dtype_of_like(lab, dtype):
    if dtype == "float64" and (lab.backend != "torch" or lab.device == "mps"):
        dtype = "float32"
    like = np.full((3, 2), np.nan)
    given_array = lab.array(like, dtype)
    for lengths in (HAND, Lengths(0, (), 0)):
        mask = lab.documents.mask.document_mask(segments_of(lab, lengths), given_array)
        check_mask(
            lengths,
            mask,
            f"the mask for an array of {dtype} ({lengths})",
            dtype,
            nan="the numbers in `like` are NaN here: only its dtype and its device count",
        )
    check_untouched(given_array, like, name="`like`", dtype=dtype)


def test_task_3_the_segments_are_left_as_they_were(lab):
    segments, same = segments_of(lab, HAND), segments_of(lab, HAND)
    lab.documents.positions.segment_ids(segments)
    lab.documents.mask.document_mask(segments)
    found, expected = ((each.system, each.documents, each.question) for each in (segments, same))
    check_equal(found, expected, name="the segments, afterwards (system, documents, question)")


# Task 4: the oracle


def new_heads(seed: int, count: int, rows: int = B) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query, key and value of new tokens."""
    return (
        normal(seed, rows, H, count, D),
        normal(seed + 1, rows, HKV, count, D),
        normal(seed + 2, rows, HKV, count, D),
    )


def test_task_4_a_masked_cache_hands_out_its_mask_once(lab):
    lengths = Lengths(1, (2, 2), 1)
    cache = lab.documents.oracle.MaskedCache(lab.array(additive(sees_of(lengths))))
    for seed, count in ((480, 6), (490, 1), (500, 2), (510, 6)):
        _, key, value = new_heads(seed, count)
        answer = cache.update_and_fetch(lab.array(key), lab.array(value))
        three = f"update_and_fetch gives a tuple: keys, values and the mask; found {type(answer).__name__}"
        assert isinstance(answer, tuple), three
        assert len(answer) == 3, f"{three} of {len(answer)}"
        mask, S = answer[2], cache.length
        if seed == 480:
            check_mask(lengths, mask, "the mask of the first call")
        else:
            check_later_mask(mask, lengths, count, S)


def check_later_mask(mask: Any, lengths: Lengths, count: int, S: int) -> None:
    """The mask of a call for `count` new tokens, S in all, that is not the first."""
    __tracebackhide__ = True
    name = f"the mask for {plural(count, 'new token')} after {S - count} (not the first call's)"
    if mask is not None and np.array_equal(door.active().numpy(mask), additive(sees_of(lengths))):
        raise CheckFailed(f"{name}: the constructor's mask found; it is for the first call alone")
    if count == 1:
        if mask is not None:
            raise CheckFailed(f"{name}: an array found, None expected: a single new token sees everything")
        return
    if mask is None:
        raise CheckFailed(f"{name}: None found; new tokens must not see those behind them")
    check(mask, additive(np.tri(count, S, S - count, dtype=bool)), name=name, axes="query key")


def test_task_4_a_masked_cache_attends_first_under_its_mask_and_then_to_everything(lab):
    lengths = Lengths(2, (3, 0, 2), 2)
    first = additive(sees_of(lengths))
    mask = lab.array(first)
    cache = lab.documents.oracle.MaskedCache(mask)
    keys, values = np.zeros((B, HKV, 0, D)), np.zeros((B, HKV, 0, D))
    for seed, count in ((440, len(first)), (450, 1), (460, 3), (470, 1)):
        query, key, value = new_heads(seed, count)
        keys, values = np.concatenate([keys, key], axis=2), np.concatenate([values, value], axis=2)
        S = keys.shape[2]
        causal = additive(np.tri(count, S, S - count, dtype=bool))
        expected = attention_oracle(query, keys, values, 0.3, first if seed == 440 else causal)
        when = f"{plural(count, 'new token')} after {S - count}"
        name = f"attention for the {S} tokens of the first call" if seed == 440 else f"attention for {when}"
        wrong = {} if seed != 440 else {"the mask of the constructor wasn't used in the first call": (
            lambda q=query, k=keys, v=values, c=causal: attention_oracle(q, k, v, 0.3, c)
        )}  # fmt: skip
        found = cache.attend(lab.array(query), lab.array(key), lab.array(value), 0.3)
        check(found, expected, name=name, axes="B H L D", suspects=wrong)
        check_equal(cache.length, S, name=f"how many tokens the cache holds after {when}")
    check_untouched(mask, first, name="the mask", axes="query key")


def generate(lab: Any, model: Any, segments: Any, max_tokens: int, *rest: Any, **options: Any) -> Any:
    return lab.documents.oracle.generate_documents(model, segments, max_tokens, *rest, **options)


def output(lab: Any, model: Any, segments: Any, max_tokens: int, *rest: Any, **options: Any) -> list[int]:
    """All that is generated, or one token more than there should be: the output of wrong code may have no end."""
    return list(islice(generate(lab, model, segments, max_tokens, *rest, **options), max_tokens + 1))


def too_many(max_tokens: int) -> dict[str, list[int]]:
    """What :func:`output` gives if the output goes on."""
    return {"`max_tokens` was not kept: the output goes on": [*SCRIPT, *[V - 1] * 9][: max_tokens + 1]}


def runs_of(lengths: Lengths, count: int, stride: int | None = None) -> list[tuple[list[int], list[int]]]:
    """The ids and positions of each run of the model that `count` tokens of the script need."""
    prompt, positions = len(ids_of(lengths)), positions_of(lengths, stride, count)
    first = [token_id(place) for place in range(prompt)], positions[:prompt]
    return [first, *([([SCRIPT[n]], [positions[prompt + n]]) for n in range(count - 1)])]


def check_run_count(model: Any, count: int, what: str = "") -> None:
    """One run of the model for each token."""
    __tracebackhide__ = True
    on_last = len(model.runs) == count + 1 and model.runs[-1][0] == [SCRIPT[count - 1]]
    check_equal(
        len(model.runs),
        count,
        name=f"how often the model ran for {plural(count, 'token')}{what}",
        suspects={"it ran on the last token, too, behind which no token is wanted": count + 1}
        if on_last
        else {},
    )


def check_runs(model: Any, lengths: Lengths, count: int, stride: int | None = None) -> None:
    """What the model was run on."""
    __tracebackhide__ = True
    expected = runs_of(lengths, count, stride)
    check_run_count(model, count)
    last, tokens = expected[0][1][-1], len(expected[0][0])
    for n, ((ids, places), (wanted_ids, wanted_places)) in enumerate(zip(model.runs, expected, strict=True)):
        run = "the first run" if n == 0 else f"run {n + 1}"
        known = [i for run_ids, _ in expected[: n + 1] for i in run_ids]
        check_equal(
            ids,
            wanted_ids,
            name=f"the ids that the model got in {run}",
            suspects={"the caches hold the earlier tokens: only the new one goes in": known} if n else {},
        )
        wrong = {
            "the tokens were counted through: positions come from `segment_positions`": list(range(len(ids))),
            "`strategy` and `max_chunk_len` weren't passed on: this is `shared`": positions_of(lengths),
        } if n == 0 else {
            "a new token was put at the number of tokens before it: count on from the question's last position": (
                [tokens + n - 1]
            ),
            "the new token stands where the question's last token stands": [last],
        }  # fmt: skip
        check_equal(places, wanted_places, name=f"the positions of {run}", suspects=wrong)


@some_lengths
def test_task_4_the_prompt_is_run_once_and_then_token_after_token(lab, lengths):
    if not lengths.question:
        lengths = lengths._replace(question=3)
    for arguments, stride in strategies(lengths):
        limit = None if stride is None else stride
        model = NotingModel(lab, SCRIPT, max_positions=100)
        options = {"strategy": arguments[0], "max_chunk_len": limit}
        tokens = check_allowed(
            partial(output, lab, model, segments_of(lab, lengths), 4, **options),
            name=f"{' '.join(map(str, arguments))}; {lengths}",
            why="`strategy` and `max_chunk_len` both go to `segment_positions`; 100 positions are enough",
        )
        check_equal(
            tokens,
            SCRIPT[:4],
            name="the tokens generated with max_tokens=4",
            suspects={"the first row was scored, not the last": [12, *SCRIPT[1:4]], **too_many(4)},
        )
        check_runs(model, lengths, 4, stride)


@some_lengths
def test_task_4_each_layer_shows_each_token_what_it_may_see(lab, lengths):
    if not lengths.question:
        lengths = lengths._replace(question=3)
    model = NotingModel(lab, SCRIPT)
    output(lab, model, segments_of(lab, lengths), 4)
    expected = [np.flatnonzero(row).tolist() for row in sees_of(lengths, more=3)]
    for layer, seen in enumerate(model.seen):
        check_equal(len(seen), len(expected), name=f"how many tokens the cache of layer {layer} got")
        for token, (found, wanted) in enumerate(zip(seen, expected, strict=True)):
            check_equal(
                found,
                wanted,
                name=f"in layer {layer}, the tokens seen by {whose(lengths, token)} ({lengths})",
                suspects={"it sees every token before it: the mask wasn't used": list(range(token + 1))},
            )


def test_task_4_without_a_strategy_documents_share_their_positions(lab):
    model = NotingModel(lab, SCRIPT)
    output(lab, model, segments_of(lab, HAND), 3)
    check_runs(model, HAND, 3)


def test_task_4_the_mask_has_the_dtype_of_the_model(lab):
    model = NotingModel(lab, SCRIPT, dtype="bfloat16")
    check_equal(output(lab, model, segments_of(lab, HAND), 2), SCRIPT[:2], name="the tokens in bfloat16")


def test_task_4_only_the_last_row_goes_through_the_head(lab):
    model = NotingModel(lab, SCRIPT)
    output(lab, model, segments_of(lab, HAND), 3)
    all_rows = {"all rows went through the head: cut out the last one first": [8, 1, 1]}
    check_equal(
        model.head_rows, [1, 1, 1], name="rows of hidden states given to model.logits", suspects=all_rows
    )


@pytest.mark.parametrize("max_tokens", [1, 2, 6])
def test_task_4_max_tokens_is_kept(lab, max_tokens):
    model = NotingModel(lab, SCRIPT)
    tokens = output(lab, model, segments_of(lab, HAND), max_tokens)
    check_equal(
        tokens,
        SCRIPT[:max_tokens],
        name=f"the tokens generated with max_tokens={max_tokens}",
        suspects=too_many(max_tokens),
    )
    check_run_count(model, max_tokens)


def test_task_4_where_no_token_is_wanted_nothing_runs(lab):
    model = NotingModel(lab, SCRIPT)
    check_equal(output(lab, model, segments_of(lab, HAND), 0), [], name="the tokens with max_tokens=0")
    check_equal(len(model.runs), 0, name="how often the model ran for no token")


def test_task_4_a_token_is_there_before_the_next_is_computed(lab):
    model = NotingModel(lab, SCRIPT)
    tokens = generate(lab, model, segments_of(lab, HAND), 6)
    check_equal(len(model.runs), 0, name="how often the model ran before a token was asked for")
    for n in range(3):
        check_equal(next(tokens), SCRIPT[n], name=f"token {n}")
        check_equal(len(model.runs), n + 1, name=f"how often the model ran for {n + 1} tokens")
    tokens.close()
    check_equal(
        len(model.runs), 3, name="how often the model ran, when the generator is closed after 3 tokens"
    )


@pytest.mark.parametrize("end_ids", [(9,), {9, 12}, [12, 9]], ids=["tuple", "set", "list"])
def test_task_4_an_end_token_is_the_last(lab, end_ids):
    model = NotingModel(lab, SCRIPT)
    tokens = output(lab, model, segments_of(lab, HAND._replace(question=1)), 7, end_ids)
    check_equal(
        tokens,
        SCRIPT[:5],
        name="the tokens up to and with the end token 9",
        suspects={
            "the end token is swallowed: yield it before you stop": SCRIPT[:4],
            "generation went on after the end token": SCRIPT,
        },
    )
    check_equal(len(model.runs), 5, name="how often the model ran")


def test_task_4_an_end_token_in_the_prompt_does_not_end_the_output(lab):
    model = NotingModel(lab, [9, 11, 10, 12])
    segments = segments_of(lab, HAND)
    tokens = output(lab, model, segments, 4, (*segments.system, *segments.question))
    check_equal(tokens, [9, 11, 10, 12], name="the tokens, where the end tokens are in the prompt alone")


def test_task_4_sample_gets_the_question_and_what_was_produced(lab):
    lengths = Lengths(2, (3, 2), 3)
    segments, seen = segments_of(lab, lengths), list[list[int]]()
    model = NotingModel(lab, SCRIPT)

    def sample(logits: Any, token_ids: Sequence[int]) -> int:
        shape = check_shape(logits, (13,), name="the logits given to sample", axes="V")
        check_equal(int(np.argmax(shape)), SCRIPT[len(seen)], name=f"the highest score for token {len(seen)}")
        seen.append(list(token_ids))
        return [6, 2, 10][len(seen) - 1]

    tokens = output(lab, model, segments, 3, (), sample)
    check_equal(tokens, [6, 2, 10], name="the tokens, which sample chooses")
    for n, ids in enumerate(seen):
        produced = [6, 2, 10][:n]
        check_equal(
            ids,
            [*segments.question, *produced],
            name=f"the ids given to sample for token {n}",
            suspects={
                "sample is shown the whole prompt: a repetition penalty would keep it from quoting a document": [
                    *segments.token_ids,
                    *produced,
                ],
                "sample is shown the system prompt, too": [*segments.system, *segments.question, *produced],
                "sample is shown the question alone": list(segments.question),
                "sample is shown the output alone": produced,
            },
        )
    check_equal([ids for ids, _ in model.runs[1:]], [[6], [2]], name="the ids of the runs after the first")


@pytest.mark.parametrize("room", [1, 2, 5])
def test_task_4_the_output_fills_the_positions_and_no_more(lab, room):
    for lengths in (Lengths(2, (5, 5, 4), 3), Lengths(0, (), 4), Lengths(3, (), 2), Lengths(1, (0,), 1)):
        for arguments, stride in strategies(lengths):
            positions = positions_of(lengths, stride)
            limit = positions[-1] + 1 + room
            model = NotingModel(lab, SCRIPT, max_positions=limit)
            segments = segments_of(lab, lengths)
            options = {"strategy": arguments[0], "max_chunk_len": stride}
            call = partial(output, lab, model, segments, 100, **options)
            name = (
                f"a model of {limit} positions, {positions[-1] + 1} of them used ({arguments[0]}; {lengths})"
            )
            tokens = check_allowed(
                call, name=name, why="positions count, not tokens; one is enough for one more token"
            )
            wrong = {
                "the model's last position was left unused": SCRIPT[: room - 1],
                "only `max_tokens` ended the output: it must also end with the model's positions": (
                    tokens if len(tokens) >= 100 else []
                ),
            }
            check_equal(tokens, SCRIPT[:room], name=f"the tokens generated by {name}", suspects=wrong)
            check_run_count(model, room, f": {name}")


def test_task_4_there_may_be_more_tokens_than_positions(lab):
    lengths = Lengths(2, (9, 9, 9, 9), 3)
    model = NotingModel(lab, SCRIPT, max_positions=16)
    tokens = check_allowed(
        lambda: output(lab, model, segments_of(lab, lengths), 100),
        name=f"{lengths}, for a model of 16 positions",
        why="documents share their positions: these 41 tokens use 14",
    )
    check_equal(tokens, SCRIPT[:2], name="the tokens generated")
    check_runs(model, lengths, 2)


def too_long(lab: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """Prompts that leave no room in a model of 16 positions, each with its name and options."""
    offset = {"strategy": "offset", "max_chunk_len": 4}
    return [
        ("a prompt that uses 16 of 16 positions", segments_of(lab, Lengths(3, (9, 2), 4)), {}),
        ("a prompt that uses 17 of 16 positions", segments_of(lab, Lengths(3, (9, 2), 5)), {}),
        ("a prompt that uses 30 of 16 positions", segments_of(lab, Lengths(3, (9, 2), 18)), {}),
        ("8 tokens that use 16 of 16 positions", segments_of(lab, Lengths(2, (1, 0, 3), 2)), offset),
    ]  # fmt: skip


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_task_4_a_prompt_that_leaves_no_room_is_refused(lab, max_tokens):
    for name, segments, options in too_long(lab):
        model = NotingModel(lab, SCRIPT, max_positions=16)
        check_raises(
            ValueError,
            partial(output, lab, model, segments, max_tokens, **options),
            name=f"{name}, with max_tokens={max_tokens}",
        )
        check_equal(len(model.runs), 0, name=f"how often the model ran on {name}")


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("lengths", [Lengths(3, (2, 4), 0), Lengths(3, (), 0), Lengths(0, (), 0)], ids=brief)
def test_task_4_an_empty_question_is_refused(lab, lengths, max_tokens):
    model = NotingModel(lab, SCRIPT)
    check_raises(
        ValueError,
        lambda: output(lab, model, segments_of(lab, lengths), max_tokens),
        name=f"a prompt without a question, with max_tokens={max_tokens} ({lengths})",
        match="question",
    )
    check_equal(len(model.runs), 0, name="how often the model ran on a prompt that was refused")


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("an unknown strategy", {"strategy": "own"}),
        ("offset without max_chunk_len", {"strategy": "offset"}),
        ("offset with documents that are too long", {"strategy": "offset", "max_chunk_len": 2}),
    ],
)
def test_task_4_positions_that_cannot_be_are_refused(lab, what, options):
    model = NotingModel(lab, SCRIPT)
    check_raises(ValueError, lambda: output(lab, model, segments_of(lab, HAND), 2, **options), name=what)
    check_equal(len(model.runs), 0, name=f"how often the model ran with {what}")


def test_task_4_a_prompt_is_refused_when_the_first_token_is_asked_for_and_not_before(lab):
    refused = [*too_long(lab), ("a prompt without a question", segments_of(lab, Lengths(3, (2,), 0)), {})]
    for name, segments, options in [
        *refused,
        ("no such strategy", segments_of(lab, HAND), {"strategy": "own"}),
    ]:
        model = NotingModel(lab, SCRIPT, max_positions=16)
        tokens = check_allowed(
            partial(generate, lab, model, segments, 2, **options),
            name=f"making the generator for {name}",
            why="nothing runs before the first token is asked for: `yield` belongs into generate_documents itself",
        )
        check_raises(ValueError, partial(next, tokens), name=f"asking for the first token of {name}")


def test_task_4_the_end_is_found_among_the_sampled_tokens(lab):
    chosen = iter([6, 2, 10, 1])
    model = NotingModel(lab, SCRIPT)
    tokens = generate(lab, model, segments_of(lab, HAND), 4, (2,), lambda logits, token_ids: next(chosen))
    check_equal(list(tokens), [6, 2], name="the tokens up to and with the end token 2")


def test_task_4_two_generators_side_by_side_do_not_mix(lab):
    other = Lengths(1, (2,), 4)
    one, two = NotingModel(lab, SCRIPT), NotingModel(lab, SCRIPT[::-1])
    first, second = (
        generate(lab, one, segments_of(lab, HAND), 4),
        generate(lab, two, segments_of(lab, other), 4),
    )
    pairs = list(zip(first, second, strict=True))
    check_equal([a for a, _ in pairs], SCRIPT[:4], name="the tokens of the first of two generators")
    check_equal([b for _, b in pairs], SCRIPT[::-1][:4], name="the tokens of the second of two generators")
    check_runs(one, HAND, 4)


def vary(lengths: Lengths, seed: int) -> list[list[int]]:
    """Random ids of the tiny model for each segment: system prompt, documents, question."""
    draw = np.random.default_rng(seed)
    return [draw.integers(0, 37, n).tolist() for n in (lengths.system, *lengths.documents, lengths.question)]


def build(lab: Any, parts: list[list[int]]) -> Any:
    system, *documents, question = map(tuple, parts)
    return lab.documents.prompt.Segments(system, tuple(documents), question)


def oracle_suspects(
    family: str, lengths: Lengths, ids: list[int], stride: int | None, more: int
) -> dict[str, Any]:
    """The last row's logits that the usual mistakes give."""
    right, sees = positions_of(lengths, stride, more), sees_of(lengths, more)
    causal, through = np.tri(len(ids), dtype=bool), list(range(len(ids)))
    after_all = laid_out(
        lengths, starts_of(lengths, stride)[0], lengths.system + sum(lengths.documents), more
    )
    return {
        "documents see the documents before them: the mask isn't used": lambda: all_logits(
            family, ids, right, causal
        )[-1],
        "the tokens were counted through: positions come from `segment_positions`": lambda: all_logits(
            family, ids, through, sees
        )[-1],
        "the question starts where the sum of all documents ends": lambda: all_logits(
            family, ids, after_all, sees
        )[-1],
    }


def follow(lab: Any, model: Any, segments: Any, chosen: Sequence[int], **options: Any) -> list[Any]:
    """The logits from which each token is chosen, where ``chosen`` are the tokens."""
    rows: list[Any] = []

    def sample(logits: Any, token_ids: Sequence[int]) -> int:
        rows.append(lab.numpy(logits))
        return chosen[len(rows) - 1]

    tokens = output(lab, model, segments, len(chosen), (), sample, **options)
    check_equal(tokens, list(chosen), name="the tokens, which sample chooses")
    return rows


def exact_model(lab: Any, family: str) -> tuple[Any, dict[str, Any]]:
    """The tiny model in float64 where the lab has it, and how near its logits must be."""
    if lab.backend == "torch" and lab.device != "mps":
        return real_model(lab, family, lambda x: lab.array(x, "float64")), {"rtol": 1e-5, "atol": 1e-5}
    return real_model(lab, family), {"rtol": 1e-4, "atol": 2e-5}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "lengths",
    [Lengths(4, (3, 5, 0, 2), 3), Lengths(0, (2, 6), 2), Lengths(3, (), 5), Lengths(3, (8, 9, 8), 4)],
    ids=brief,
)
def test_task_4_logits_are_those_of_recomputing_everything(lab, family, lengths):
    model, near = exact_model(lab, family)
    chosen, parts = [30, 4, 17, 8], vary(lengths, 44)
    prompt = [token for part in parts for token in part]
    longest = max([1, *lengths.documents])
    for stride in (None, longest + 1):
        if stride and positions_of(lengths, stride)[-1] + len(chosen) >= MAX_POSITIONS:
            continue
        options = {} if stride is None else {"strategy": "offset", "max_chunk_len": stride}
        rows = follow(lab, model, build(lab, parts), chosen, **options)
        for n, row in enumerate(rows):
            ids = prompt + chosen[:n]
            check(
                row,
                all_logits(family, ids, positions_of(lengths, stride, n), sees_of(lengths, n))[-1],
                name=f"the logits for token {n} ({'shared' if stride is None else 'offset'}; {lengths})",
                axes="V",
                dtype=None,
                framework="numpy",
                suspects=oracle_suspects(family, lengths, ids, stride, n),
                **near,
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_task_4_greedy_tokens_are_those_of_recomputing_everything(lab, family):
    lengths = Lengths(4, (3, 5, 2), 3)
    parts, expected = vary(lengths, 45), list[int]()
    prompt = [token for part in parts for token in part]
    for n in range(8):
        scores = all_logits(family, prompt + expected, positions_of(lengths, None, n), sees_of(lengths, n))[
            -1
        ]
        best, second = np.sort(scores)[::-1][:2]
        assert best - second > 1e-3, "this test needs a model that is sure of its next token"
        expected.append(int(np.argmax(scores)))
    tokens = output(lab, real_model(lab, family), build(lab, parts), 8)
    check_equal(tokens, expected, name="the tokens generated by the greedy choice")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_task_4_one_document_or_none_is_an_ordinary_prompt(lab, dtype):
    model = real_model(lab, "qwen2", lambda x: lab.array(x, dtype))
    for lengths in (Lengths(4, (5,), 3), Lengths(4, (), 3), Lengths(0, (), 6), Lengths(2, (0, 6, 0), 2)):
        parts = vary(lengths, 46)
        prompt = [token for part in parts for token in part]
        expected = list(lab.generate.generate(model, prompt, 5))
        tokens = output(lab, model, build(lab, parts), 5)
        check_equal(
            tokens, expected, name=f"the tokens in {dtype}, where no document has another to see ({lengths})"
        )


def document_logits(lab: Any, model: Any, parts: list[list[int]]) -> np.ndarray:
    """[L, V]: the logits of every token of the prompt, from one run under the mask."""
    segments = build(lab, parts)
    mask = lab.documents.mask.document_mask(segments)
    caches = [lab.documents.oracle.MaskedCache(mask) for _ in range(model.config.num_layers)]
    positions = lab.array(np.array(lab.documents.positions.segment_positions(segments)))
    return lab.numpy(model(lab.array(np.array([segments.token_ids])), positions, caches))[0]


def test_task_4_no_document_changes_when_another_one_does(lab):
    lengths = Lengths(4, (3, 5, 4), 3)
    model, parts = real_model(lab, "qwen3"), vary(lengths, 47)
    before, ids = document_logits(lab, model, parts), np.array(ids_of(lengths))
    for number in range(3):
        changed = [list(part) for part in parts]
        changed[1 + number] = [(token + 1) % 37 for token in parts[1 + number]]
        after = document_logits(lab, model, changed)
        for segment in (SYSTEM, 0, 1, 2):
            rows = ids == segment
            who = "the system prompt" if segment == SYSTEM else f"document {segment + 1}"
            name = f"the logits of {who} before and after document {number + 1} changed"
            if segment != number:
                check(after[rows], before[rows], name=name, axes="L V", framework="numpy", rtol=0, atol=0)
        assert not np.allclose(after[ids == QUESTION], before[ids == QUESTION]), (
            f"the logits of the question are the same after document {number + 1} changed: it must see all documents"
        )


def test_task_4_the_order_of_the_documents_makes_no_difference_when_they_share_positions(lab):
    lengths, chosen = Lengths(4, (3, 5, 4), 3), [30, 4]
    (model, near), parts = exact_model(lab, "llama"), vary(lengths, 48)
    before = follow(lab, model, build(lab, parts), chosen)
    for order in list(permutations(range(3)))[1:]:
        moved = [parts[0], *(parts[1 + number] for number in order), parts[-1]]
        after = follow(lab, model, build(lab, moved), chosen)
        for n in range(2):
            name = f"the logits for token {n}, with the documents in the order {[number + 1 for number in order]}"
            check(after[n], before[n], name=name, axes="V", dtype=None, framework="numpy", **near)


@settings(QUICK, max_examples=25)
@given(lengths=any_lengths, seed=st.integers(0, 999), extra=st.integers(1, 4))
def test_task_4_any_document_prompt_gives_the_logits_of_recomputing_everything(lengths, seed, extra):
    lab = door.active()
    lengths = lengths._replace(question=lengths.question + 1)
    (model, near), parts = exact_model(lab, "llama"), vary(lengths, seed)
    chosen = np.random.default_rng(seed).integers(0, 37, extra).tolist()
    rows = follow(lab, model, build(lab, parts), chosen)
    ids = [token for part in parts for token in part] + chosen[:-1]
    expected = all_logits("llama", ids, positions_of(lengths, None, extra - 1), sees_of(lengths, extra - 1))
    for n, row in enumerate(rows):
        name = f"the logits for token {n} ({lengths})"
        wanted = expected[len(ids) - extra + n]
        check(row, wanted, name=name, axes="V", dtype=None, framework="numpy", **near)
