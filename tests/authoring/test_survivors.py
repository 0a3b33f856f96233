"""`pdm run survivors`: what is changed, what is left alone, and what the list shows."""

from __future__ import annotations

import io
import os

import pytest
from courses import make_course, write
from rich.console import Console

from authoring import survivors as command
from authoring.gates.gate import Context
from authoring.mutation import mutations
from coursekit.errors import CourseError

SOURCE = '''
def kept(x):
    return x + 1


def clipped(x: float, limit: float = 3.0) -> float:
    """Not above 3.0."""
    if x < 0:
        raise ValueError("x is below 0")
    copy = x.clone()
    return min(copy, limit)
'''


def changes(source: str, name: str) -> set[tuple[str, str]]:
    return {(mutation.before, mutation.after) for mutation in mutations(source, name)}


def test_operators_statements_arguments_and_copies_are_changed():
    found = changes(SOURCE, "clipped")
    assert ("x < 0", "x <= 0") in {(b, a) for b, a in found} or ("< 0", "<= 0") in found
    assert ("x.clone()", "x") in found
    assert ("copy = x.clone()", "pass") in found
    assert ("min(copy, limit)", "min(copy, )") in found


def test_a_guard_is_removed_whole():
    guards = [mutation for mutation in mutations(SOURCE, "clipped") if mutation.before.startswith("if x < 0")]
    assert any("raise" not in mutation.content for mutation in guards)


def test_messages_signature_docstring_and_other_functions_stay():
    for mutation in mutations(SOURCE, "clipped"):
        assert "x is below 0" in mutation.content or "raise" not in mutation.content
        assert "limit: float = 3.0) -> float:" in mutation.content
        assert '"""Not above 3.0."""' in mutation.content
        assert "return x + 1" in mutation.content


def test_no_mutation_comes_twice_and_none_changes_nothing():
    contents = [mutation.content for mutation in mutations(SOURCE, "clipped")]
    assert len(contents) == len(set(contents))
    assert SOURCE not in contents


def test_each_is_said_to_be_on_the_line_where_it_is():
    lines = SOURCE.splitlines()
    for mutation in mutations(SOURCE, "clipped"):
        assert mutation.before.splitlines()[0] in lines[mutation.line - 1]


def test_a_finally_can_be_lost():
    source = (
        "def f():\n    try:\n        a()\n    except ValueError:\n        b()\n    finally:\n        c()\n"
    )
    assert any("finally" not in m.content and "except" in m.content for m in mutations(source, "f"))


def test_a_function_that_is_only_a_docstring_has_none():
    assert list(mutations('def f():\n    """Nothing."""\n', "f")) == []


@pytest.fixture
def context(tmp_path):
    course = make_course(tmp_path)
    return Context(course, Console(file=io.StringIO()), 2)


def test_the_list_names_what_no_test_notices_and_nothing_else(context, tmp_path, monkeypatch, capsys):
    path = context.course.solution() / "shapes.py"
    text = path.read_text(encoding="utf-8")
    write(path, text.replace("    # width times height\n", "    unread = 7\n"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setitem(os.environ, "TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setattr(command.Course, "find", lambda: context.course)
    command.survivors("1.1.1", workers=2)
    said = capsys.readouterr().out
    assert "1.1.1  shapes.py::area: 3 of" in said
    assert "- unread = 7\n    + unread = None" in said
    assert "- unread = 7\n    + pass" in said
    assert "- 7\n    + 8" in said
    assert "size.width / size.height" not in said
    assert "perimeter" not in said


@pytest.mark.parametrize("target", ["1.1.9", "9.9", "x"])
def test_a_day_or_task_that_is_not_there_is_refused(context, target):
    with pytest.raises(CourseError):
        command.generate(context, target)
