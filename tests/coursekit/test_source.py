"""Single functions change; everything around them stays byte for byte."""

from __future__ import annotations

import ast
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit.editing.source import function_source, replace_function, stub, stubbed
from coursekit.errors import CourseError

MESSAGE = "Week 1 Day 3 Task 2: Grouped-query attention"
RAISE = f'raise NotImplementedError("{MESSAGE}")'


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_stub_keeps_decorators_signature_and_docstring():
    source = dedent('''
        import functools

        @functools.cache  # kept
        # between
        def f(
            x: int,  # the input
            *,
            y: str = "a:b",
        ) -> int:  # noqa: E501
            """One line.

              An indented one.
            """
            # a comment that gives it away
            def inner():
                return x
            return inner()  # so does this
            # and this

        # about g
        def g(): return 1
    ''')
    assert stub(source, {"f": MESSAGE}) == dedent(f'''
        import functools

        @functools.cache  # kept
        # between
        def f(
            x: int,  # the input
            *,
            y: str = "a:b",
        ) -> int:  # noqa: E501
            """One line.

              An indented one.
            """
            {RAISE}

        # about g
        def g(): return 1
    ''')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(): return 1\n", f"def f():\n    {RAISE}\n"),
        ("def f(): return 1  # hint", f"def f():\n    {RAISE}"),
        ('def f(): "Doc."; return 1\n', f'def f():\n    "Doc."\n    {RAISE}\n'),
        ('def f():\n    "Doc."; return 1\n', f'def f():\n    "Doc."\n    {RAISE}\n'),
        ('def f():\n    """Doc."""\n', f'def f():\n    """Doc."""\n    {RAISE}\n'),
        ("async def f():\n    await g()\n", f"async def f():\n    {RAISE}\n"),
        ("def f():\n    yield 1\n", f"def f():\n    {RAISE}\n"),
        ("def f():\n    x = '''\nnot indented\n'''\n    return x\n", f"def f():\n    {RAISE}\n"),
        (
            "if True:\n  def f():\n    return 1\n",
            f"if True:\n  def f():\n    {RAISE}\n".replace("    r", "      r"),
        ),
    ],
)
def test_stub_of_bodies_of_every_kind(before, after):
    result = stub(before, {"f": MESSAGE})
    assert stubbed(result) == {"f": MESSAGE}
    if not before.startswith("if"):
        assert result == after


def test_stub_escapes_quotes_in_the_message():
    message = 'Week 1 Day 1 Task 1: The "seam" \\ and é'
    result = stub("def f():\n    return 1\n", {"f": message})
    assert stubbed(result) == {"f": message}


def test_stub_changes_several_functions_at_once_and_only_those():
    methods = "    def c(self):\n        return 2\n\n    def d(self):\n        return 3\n"
    source = "def a():\n    return 1\n\nclass B:\n" + methods
    result = stub(source, {"a": "Week 1 Day 1 Task 1: A", "B.d": "Week 1 Day 1 Task 2: D"})
    assert stubbed(result) == {"a": "Week 1 Day 1 Task 1: A", "B.d": "Week 1 Day 1 Task 2: D"}
    assert function_source(result, "B.c") == "def c(self):\n        return 2"


def test_only_the_courses_own_messages_make_a_stub():
    source = dedent("""
        def abstract():
            raise NotImplementedError

        def other():
            raise NotImplementedError("subclasses do this")

        def begun():
            x = 1
            raise NotImplementedError("Week 1 Day 1 Task 1: Softmax")

        def stub():
            '''Doc.'''
            raise NotImplementedError("Week 1 Day 1 Task 1: Softmax")
    """)
    assert stubbed(source) == {"stub": "Week 1 Day 1 Task 1: Softmax"}


def test_the_last_of_two_definitions_counts():
    source = f"def f():\n    {RAISE}\n\ndef f():\n    return 1\n"
    assert stubbed(source) == {}
    assert replace_function(source, "f", "def f():\n    return 2\n") == source.replace("return 1", "return 2")


def test_replacing_takes_the_donors_decorators_signature_and_docstring():
    learner = "@wrong\ndef f(a, b):\n    '''Mine.'''\n    return a\n"
    donor = 'import math\n\n\n@right\ndef f(a):\n    """Doc."""\n    return math.pi\n\n\n# the end\n'
    expected = '@right\ndef f(a):\n    """Doc."""\n    return math.pi\n'
    assert replace_function(learner, "f", donor) == expected


@pytest.mark.parametrize("tail", ["", "    # the last word\n", "\n# apart\n  # deeper\n", "\n\nx = 1\n"])
def test_comments_behind_the_donors_function_do_not_come_along(tail):
    donor = f"def f():\n    return 2\n{tail}"
    assert (
        replace_function("def f():\n    return 1\n\n\ny = 1\n", "f", donor)
        == "def f():\n    return 2\n\n\ny = 1\n"
    )


def test_replacing_leaves_the_inside_of_strings_alone_where_indentation_differs():
    learner = "class A:\n\tdef f(self):\n\t\treturn 1\n\tx = 1\n"
    donor = 'class A:\n    def f(self):\n        text = """\n    four\n"""\n        return text\n'
    result = replace_function(learner, "A.f", donor)
    assert result == 'class A:\n\tdef f(self):\n\t\ttext = """\n    four\n"""\n\t\treturn text\n\tx = 1\n'


@pytest.mark.parametrize(
    "edit",
    [
        lambda s: replace_function(s, "g", "def g(): pass\n", "src/a.py"),
        lambda s: stub(s, {"g": "m"}, "src/a.py"),
    ],
)
def test_a_missing_function_is_named(edit):
    with pytest.raises(CourseError, match=r"src/a\.py has no function g"):
        edit("def f():\n    return 1\n")


def test_a_syntax_error_names_file_and_line():
    with pytest.raises(CourseError, match=r"^src/a\.py:2: syntax error: .*mend that line first$") as caught:
        replace_function("x = 1\ny = (\n", "f", "def f(): pass\n", "src/a.py")
    assert "\n" not in str(caught.value)


# --- whatever stands around a function ---------------------------------------------------------------------------

NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
INDENTS = st.sampled_from(["    ", "  ", "\t", "   "])
# Top-level pieces in which ">" stands for one indent; none of them is a comment indented deeper than the function.
PIECES = [
    "",
    "   ",
    "\t",
    "# plain",
    "# é \u2028 \x0c odd separators",
    "x = 1   ",
    "\x0cy = 2",
    "z = (1,\n         2)  # continued",
    's = """text\n    def target(): return 0\n"""',
    "if x: pass",
    "t = 1; u = 2",
    "class Other:\n>def target(self): return 9\n>v = 3",
    "def other():\n>return 1\n>># trailing",
    "v = x + \\\n  1",
]
AROUND = st.lists(st.sampled_from(PIECES), max_size=6)
OLD = st.sampled_from(
    [
        "def target(a):\n>return a",
        "@first\n@second(\n  1)\n"
        "def target(a, *,\n     b=1):  # c\n>'''Doc.'''\n>if a:\n>>return b\n>return a  # end",
        "async def target(): pass",
        "def target():\n>x = '''\nunindented\n'''\n>return x\n\n># the last word",
        f"def target():\n>{RAISE}",
    ]
)
DONOR_FUNCTION = (
    'def target(a: int) -> int:\n    """New."""\n    for i in range(a):\n        a += i\n\n    return a'
)
DONOR = f"import os\n\n\n{DONOR_FUNCTION}\n"


def laid_out(text: str, prefix: str, indent: str, newline: str) -> str:
    """The text with `prefix` before every line but the first and blank ones, and other indents and line ends."""
    lines = text.split("\n")
    out = []
    for number, line in enumerate(lines):
        depth = (len(line) - len(line.lstrip(" "))) // 4
        out.append((prefix if number and line else "") + indent * depth + line.lstrip(" "))
    return newline.join(out)


def placed(pieces: list[str], indent: str, newline: str) -> str:
    return "\n".join(pieces).replace(">", indent).replace("\n", newline)


@settings(deadline=None)
@given(AROUND, OLD, AROUND, INDENTS, NEWLINES, st.booleans(), st.booleans())
def test_replacing_a_function_changes_no_other_byte(before, old, after, indent, newline, final, mark):
    head = ("\ufeff" if mark else "") + placed([*before, ""], indent, newline)
    tail = placed(["", *after, *([""] if final else [])], indent, newline) if after or final else ""
    source = head + placed([old], indent, newline) + tail
    ast.parse(source.removeprefix("\ufeff"))
    result = replace_function(source, "target", DONOR)
    own = indent if "\n>" in old else "    "
    assert result == head + laid_out(DONOR_FUNCTION, "", own, newline_used(source, newline)) + tail


@settings(deadline=None)
@given(AROUND, OLD, AROUND, INDENTS, NEWLINES, st.booleans())
def test_stubbing_a_function_changes_no_other_byte(before, old, after, indent, newline, final):
    head = placed([*before, ""], indent, newline)
    tail = placed(["", *after, *([""] if final else [])], indent, newline) if after or final else ""
    result = stub(head + placed([old], indent, newline) + tail, {"target": MESSAGE})
    assert result.startswith(head)
    assert result.endswith(tail)
    middle = result[len(head) : len(result) - len(tail)]
    assert middle.endswith(RAISE)
    assert stubbed(middle.replace("\r\n", "\n").replace("\r", "\n")) == {"target": MESSAGE}


METHOD_LINES = st.lists(
    st.sampled_from(["", "   ", ">x = 1", "># of the class", ">def other(self): return 1", "# outer"]),
    max_size=5,
)


@settings(deadline=None)
@given(METHOD_LINES, OLD, METHOD_LINES, AROUND, INDENTS, NEWLINES)
def test_replacing_a_method_changes_no_other_byte(before, old, after, rest, indent, newline):
    head = placed(["w = 0", "class Own(Base):", *before, ">"], indent, newline)
    unindented = old.replace("\nunindented\n", "\n")
    body = placed([unindented.replace("\n", "\n>").replace("\n>\n", "\n\n")], indent, newline)
    tail = placed(["", *after, "", *rest], indent, newline)
    source = head + body + tail
    ast.parse(source)
    donor = "class Own:\n" + textwrap.indent(DONOR_FUNCTION + "\n", "    ")
    result = replace_function(source, "Own.target", donor)
    own = indent if "\n>" in old else "    "
    assert result == head + laid_out(DONOR_FUNCTION, indent, own, newline) + tail


@settings(deadline=None)
@given(AROUND, OLD, AROUND, INDENTS, NEWLINES)
def test_replacing_a_function_by_itself_changes_nothing(before, old, after, indent, newline):
    source = placed([*before, old, *after], indent, newline)
    result = replace_function(source, "target", source)
    assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(source))


def newline_used(source: str, newline: str) -> str:
    return newline if newline in source else "\n"
