"""Day 4.6's table of parameters, and what the server does with them."""

from __future__ import annotations

import re

import pytest

from coursekit.paths import Course
from tiny_llm.server.fields import Only
from tiny_llm.server.protocol import ChatBody, ChatMessage, CompletionBody, StreamOptions

WORK, BEYOND, NEUTRAL = "work", "work, beyond OpenAI's API", "only with the value that asks for nothing"
FIELDS = [
    (name, field)
    for body in (CompletionBody, ChatBody, ChatMessage, StreamOptions)
    for name, field in body.model_fields.items()
]


@pytest.fixture(scope="module")
def table() -> dict[str, set[str]]:
    """The names in each row of the chapter's table."""
    text = (Course.find().root / "book/src/week_4/day_6.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|`]+) \| ([^|]+) \|$", text.split("| parameters | |")[1], re.MULTILINE)
    return {head: set(re.findall("`([^`]+)`", names)) for head, names in rows}


def test_the_chapter_names_each_parameter_that_works(table):
    served = {name for name, field in FIELDS if not any(isinstance(mark, Only) for mark in field.metadata)}
    assert table[WORK] | table[BEYOND] == served
    assert not table[WORK] & table[BEYOND]


def test_the_chapter_names_each_parameter_that_may_only_have_a_neutral_value(table):
    neutral = {name for name, field in FIELDS if any(isinstance(mark, Only) for mark in field.metadata)}
    assert table[NEUTRAL] == neutral
