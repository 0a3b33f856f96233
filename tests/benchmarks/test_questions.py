"""The question set: what counts as an answer, what a file must be, and what the course ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_ways import GOOD, encoded, item, toy_loaded

from benchmarks.questions import KINDS, load_questions
from coursekit.errors import CourseError


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("The FOX.", True),
        ("a fox", True),
        ("red fox, of course", True),
        ("foxes", False),
        ("", False),
        ("afox", False),
    ],
)
def test_an_answer_is_right_if_it_has_an_accepted_spelling_as_whole_words(text: str, right: bool) -> None:
    assert item(accepted=("red fox", "fox")).is_right(text) is right


def test_signs_in_an_accepted_spelling_are_signs() -> None:
    assert item(accepted=("7:15",)).is_right("at 7:15.")
    assert not item(accepted=("7.15",)).is_right("at 7:15.")


def test_an_item_becomes_segments_with_a_line_for_each_document() -> None:
    loaded = toy_loaded()
    [made] = encoded(loaded, item("a fox ran", "a dog sat"))
    decode = loaded.tokenizer.decode
    assert [decode(each) for each in made.segments.documents] == ["a fox ran\n", "a dog sat\n"]
    assert decode(made.segments.question) == "Question: who ran?\nAnswer:".replace("Q", "Q")
    assert decode(made.answer_ids) == " a fox"


def test_the_course_has_questions_of_each_kind_that_do_not_tell_their_answers() -> None:
    items = load_questions()
    assert len(items) >= 36
    for kind in KINDS:
        assert sum(each.kind == kind for each in items) >= 12
    for each in items:
        assert 2 <= len(each.documents) <= 8
        assert not each.is_right(each.question), each.question
        assert each.is_right(" ".join(each.documents)), each.question
    assert len({each.question for each in items}) == len(items)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no questions in {}"),
        ("items = []", "there are no questions in {}"),
        ("items = 3", "there are no questions in {}"),
        ("items = [3]", "question 1 in {} must have these entries"),
        ("[[items", "the questions in {} are not valid TOML"),
        (
            GOOD + GOOD.replace('"one"', '"many"'),
            "question 2 in {} has the kind 'many'; the kinds are: one, two",
        ),
        (
            GOOD.replace('answer = "A fox"', ""),
            "question 1 in {} must have these entries, and no others: kind, ",
        ),
        (GOOD + "hint = 3", "question 1 in {} must have these entries, and no others: kind, documents"),
        (GOOD.replace('["A fox ran."]', "[]"), "question 1 in {}: 'documents' must be a list of texts"),
        (
            GOOD.replace('["A fox ran."]', '["", "b"]'),
            "question 1 in {}: 'documents' must be a list of texts",
        ),
        (GOOD.replace('"Who ran?"', '" "'), "question 1 in {}: 'question' must be a text that is not empty"),
        (GOOD.replace('["fox"]', '["dog"]'), "question 1 in {}: the answer 'A fox' has none of the accepted"),
    ],
)
def test_a_question_set_that_is_not_as_it_must_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CourseError) as refused:
        load_questions(path)
    assert str(refused.value).startswith(message.format(path))


def test_a_question_set_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="No such file"):
        load_questions(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CourseError, match="not valid TOML"):
        load_questions(tmp_path / "bytes.toml")
