"""What a learner's file has lost comes back where it belongs, and nothing else moves."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from courses import SHAPES, make_course, write
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.editing.repair import add_function, add_names
from coursekit.editing.transplant import Learner
from coursekit.errors import CourseError
from coursekit.lessons.outline import stubbed
from coursekit.manifest import load_manifest
from coursekit.paths import Course

MODEL = '''"""A model."""

from __future__ import annotations

import math
import numpy as np
from os import path, sep as separator

LIMIT = math.pi


@decorated
def helper(x):
    return np.asarray(x) * LIMIT


class Box:
    """A box."""

    size = 1

    def first(self):
        raise NotImplementedError("Week 1 Day 1 Task 1: First")

    def second(self):
        raise NotImplementedError("Week 1 Day 1 Task 1: First")


def last():
    raise NotImplementedError("Week 1 Day 1 Task 2: Last")
'''


def without(source: str, *pieces: str) -> str:
    for piece in pieces:
        assert piece in source
        source = source.replace(piece, "")
    return source


def test_nothing_is_added_where_nothing_is_missing():
    assert add_names(MODEL, {"math", "helper", "Box"}, MODEL, "a.py") == (MODEL, [])
    assert add_function(MODEL, "Box.first", MODEL, "a.py") == (MODEL, [])


def test_names_that_the_course_does_not_know_are_left_alone():
    assert add_names("x = 1\n", {"unknown", "x"}, MODEL, "a.py") == ("x = 1\n", [])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("math", "import math"),
        ("np", "import numpy as np"),
        ("path", "from os import path"),
        ("separator", "from os import sep as separator"),
    ],
)
def test_only_the_missing_part_of_an_import_is_added(name, line):
    source = '"""Mine."""\n\nimport sys  # mine\n\nx = 1\n'
    expected = f'"""Mine."""\n\nimport sys  # mine\n{line}\n\nx = 1\n'
    assert add_names(source, {name}, MODEL, "a.py") == (expected, [name])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", "import math\nx = 1"),
        ("", "import math\n"),
        ("# note\n", "import math\n# note\n"),
        ('"""Doc."""', '"""Doc."""\n\n\nimport math'),
        ("\ufeffx = 1\r\n", "\ufeffimport math\r\nx = 1\r\n"),
        (
            "from __future__ import annotations\r\nx = 1\r\n",
            "from __future__ import annotations\r\nimport math\r\nx = 1\r\n",
        ),
    ],
)
def test_an_import_finds_its_place_in_any_file(source, expected):
    assert add_names(source, {"math"}, MODEL, "a.py") == (expected, ["math"])


def test_what_an_added_function_needs_is_added_too():
    source = without(MODEL, "import math\n", "import numpy as np\n", "LIMIT = math.pi\n\n\n")
    start, end = source.index("@decorated"), source.index("class Box")
    text, added = add_names(source[:start] + source[end:], {"helper"}, MODEL, "a.py")
    assert sorted(added) == ["LIMIT", "helper", "math", "np"]
    names = ["math", "np", "LIMIT", "@decorated", "def helper", "class Box"]
    places = [text.index(name) for name in names]
    assert places == sorted(places)
    ast.parse(text)


def test_a_method_comes_back_behind_the_one_before_it():
    source = without(
        MODEL, '    def second(self):\n        raise NotImplementedError("Week 1 Day 1 Task 1: First")\n\n\n'
    )
    text, added = add_function(source, "Box.second", MODEL, "a.py")
    assert added == ["Box.second"]
    assert set(stubbed(text)) == {"Box.first", "Box.second", "last"}
    assert (
        text.replace(
            ' First")\n\n    def second(self):\n        raise NotImplementedError("Week 1 Day 1 Task 1:', ""
        )
        == source
    )


def test_a_method_comes_back_in_a_class_that_is_laid_out_otherwise():
    source = "class Box(Base):\r\n\tdef own(self):\r\n\t\treturn 1\r\nx = 1"
    text, _ = add_function(source, "Box.first", MODEL, "a.py")
    assert text == (
        "class Box(Base):\r\n\tdef own(self):\r\n\t\treturn 1\r\n\r\n\tdef first(self):\r\n\t    "
        'raise NotImplementedError("Week 1 Day 1 Task 1: First")\r\nx = 1'
    )
    ast.parse(text)


def test_a_class_comes_back_whole_with_its_stubs():
    start, end = MODEL.index("class Box"), MODEL.index("def last")
    text, added = add_function(MODEL[:start] + MODEL[end:], "Box.second", MODEL, "a.py")
    assert added == ["Box"]
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(MODEL))


@pytest.mark.parametrize(
    ("source", "qualname", "says"),
    [
        ("x = 1\nfrom other import last\n", "last", r"a\.py:2: last is not what the course means by it"),
        ("Box = None\n", "Box.first", r"a\.py:1: Box is not what the course means by it"),
        ("class Box: pass\n", "Box.first", r"a\.py:1: put the body of class Box on lines of its own first"),
        ("def f(:\n", "last", r"a\.py:1: syntax error"),
    ],
)
def test_what_can_not_be_repaired_is_refused_with_file_and_line(source, qualname, says):
    with pytest.raises(CourseError, match=says):
        add_function(source, qualname, MODEL, "a.py")


# --- any part of a file may be gone ------------------------------------------------------------------------------

STATEMENTS = [statement for statement in ast.parse(SHAPES).body if not isinstance(statement, ast.Expr)][1:]

NAMED_TUPLE, SIZE = 1, 3


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return make_course(tmp_path_factory.mktemp("course"))


# A file that imports NamedTuple no more and uses it still was broken by its writer, so the two go together.
@settings(max_examples=50, deadline=None)
@given(
    gone=st.sets(st.sampled_from(range(len(STATEMENTS)))).map(
        lambda gone: gone | {SIZE} if NAMED_TUPLE in gone else gone
    ),
    crlf=st.booleans(),
)
def test_whatever_statements_are_gone_catching_up_makes_the_file_work(course, gone, crlf):
    manifest = load_manifest(course)
    path: Path = course.starter() / "shapes.py"
    lines = learner_of(course).splitlines()
    tree = ast.parse(learner_of(course)).body
    model = [statement for statement in tree if not isinstance(statement, ast.Expr)][1:]
    for statement in sorted((model[index] for index in gone), key=lambda s: -s.lineno):
        assert statement.end_lineno is not None
        del lines[statement.lineno - 1 : statement.end_lineno]
    kept = [line for line in lines if line]
    write(path, ("\r\n" if crlf else "\n").join(lines))
    learner = Learner(course, "tiny_llm", manifest)
    refs = [ref for day in ("1.1", "1.2") for ref in manifest.lesson(day).functions]
    text = learner.put_reference(refs).contents[path].decode()
    module: dict[str, object] = {"__name__": "shapes"}
    exec(compile(text, "shapes.py", "exec"), module)
    circle = module["Circle"]
    assert circle(2.0).area == pytest.approx(4 * math.pi)  # type: ignore[operator]
    assert module["perimeter"](module["Size"](2.0, 3.0)) == 10.0  # type: ignore[operator]
    given_lines = {line for line in kept if "NotImplementedError" not in line}
    assert given_lines <= set(text.splitlines())
    assert stubbed(text) == {}


def learner_of(course: Course) -> str:
    """The untouched starter's text, whatever lies on disk by now."""
    learner = Learner(course, "tiny_llm", load_manifest(course))
    return learner.starter_text("shapes.py")
