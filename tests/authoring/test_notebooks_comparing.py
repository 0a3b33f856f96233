"""What differs between a committed notebook and a fresh one, and what does not count."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from authoring.notebooks.comparing import cells_differ, output_problems, printed_errors


def cell(outputs: list[Any], source: str = "x", tags: tuple[str, ...] = ()) -> Any:
    metadata = {"tags": list(tags)} if tags else {}
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata=metadata, id="cell-0")


def book(*cells: Any) -> Any:
    for number, each in enumerate(cells):
        each["id"] = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=list(cells), metadata={"a": 1})


def stream(text: str, name: str = "stdout") -> Any:
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(**data: str) -> Any:
    return nbformat.v4.new_output(
        "display_data", data={kind.replace("_", "/"): text for kind, text in data.items()}
    )


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ([stream("a\n")], [stream("b\n")]),
        ([stream("a\n")], [stream("a\n"), stream("b\n")]),
        ([stream("a\n")], []),
        ([stream("a", "stderr")], [stream("a")]),
        ([shown(image_png="1", text_plain="a bar")], [shown(image_png="1", text_plain="two bars")]),
        ([shown(image_png="1", text_plain="a bar")], [shown(text_plain="a bar")]),
    ],
)
def test_outputs_that_differ_are_found(now, then):
    (problem,) = output_problems(book(cell(now)), book(cell(then)))
    assert problem.startswith("cell-0 (x) gives another output than the committed one:\ncommitted: ")


def test_the_last_digits_of_a_drawing_are_the_machines():
    now = cell([shown(image_png="1", text_plain="a bar")])
    then = cell([shown(image_png="2", text_plain="a bar")])
    assert list(output_problems(book(now), book(then))) == []


def test_a_measured_cell_must_only_have_an_output():
    def measured(*outputs: Any) -> Any:
        return book(cell(list(outputs), tags=("measured",)))

    assert list(output_problems(measured(stream("1")), measured(stream("2"), stream("3")))) == []
    assert len(list(output_problems(measured(stream("1")), measured()))) == 1
    assert len(list(output_problems(measured(), measured(stream("1"))))) == 1


def test_cells_differ_by_text_kind_tags_and_what_the_notebook_was_made_from():
    one = book(cell([], "x"))
    assert not cells_differ(one, book(cell([stream("output")], "x")))
    assert cells_differ(one, book(cell([], "y")))
    assert cells_differ(one, book(cell([], "x", ("measured",))))
    assert cells_differ(one, book(cell([], "x"), cell([], "x")))
    other = book(cell([], "x"))
    other.metadata["a"] = 2
    assert cells_differ(one, other)


def test_only_standard_error_counts_as_a_warning():
    assert list(printed_errors(book(cell([stream("fine")]), nbformat.v4.new_markdown_cell("a")))) == []
    assert len(list(printed_errors(book(cell([stream("bad", "stderr")]))))) == 1


def test_a_notebook_of_an_older_format_differs_by_its_cells_that_have_no_names():
    old = book(cell([], "x"))
    del old.cells[0]["id"]
    assert cells_differ(book(cell([], "x")), old)


def test_cells_differ_by_their_kind_and_their_names():
    code, text = book(cell([], "x")), book(nbformat.v4.new_markdown_cell("x"))
    assert cells_differ(code, text)
    renamed = book(cell([], "x"))
    renamed.cells[0]["id"] = "another"
    assert cells_differ(code, renamed)


def test_the_first_line_that_differs_is_named_or_else_how_many_there_are():
    now, then = book(cell([stream("a\nb\nc\n")])), book(cell([stream("a\nx\ny\n")]))
    (problem,) = output_problems(now, then)
    assert problem.splitlines()[1:] == ["committed: x", "now:       b"]
    (problem,) = output_problems(now, book(cell([stream("a\n")])))
    assert problem.splitlines()[1:] == ["committed: 2 lines", "now:       4 lines"]


def test_every_cell_that_differs_is_told_and_text_and_measured_cells_are_passed_over():
    text, measured = nbformat.v4.new_markdown_cell("a"), cell([stream("1")], tags=("measured",))
    now = book(text, measured, cell([stream("a")], "\n  first\nsecond"), cell([stream("b")], ""))
    then = book(text, measured, cell([stream("c")]), cell([stream("d")]))
    places = [problem.splitlines()[0].split(" gives")[0] for problem in output_problems(now, then)]
    assert places == ["cell-2 (first)", "cell-3 ()"]


def test_what_is_written_to_standard_error_is_cited_and_cut():
    (problem,) = printed_errors(book(cell([stream("fine"), stream("  bad" + "!" * 300, "stderr")])))
    assert problem == "cell-0 (x) writes to standard error: bad" + "!" * 197
