"""The gate of mutants: planted mistakes that tests find or miss, and mutant files with something wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import write
from gate_courses import MUTANTS, add_test, make_gated_course, plant, run, write_mutants

from authoring.gates import children
from authoring.gates import mutants as mutants_module
from authoring.gates.mutants import mutants
from coursekit.paths import Course

DAY = "week_1/day_1"
AREA = "return size.width * size.height"


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_gated_course(tmp_path)


def test_every_mutant_of_a_good_course_is_found(course):
    found = run(mutants, course)
    assert found.problems == found.notes == []
    assert found.looked_at == "10 of 10 mutants found, 5 tasks"


def test_a_mutant_that_survives_is_named_with_its_why_and_its_place(course):
    plant(course, DAY, "task_1", "area of a square only", "shapes.py", AREA, AREA.replace("*", "* 1 *"))
    (problem,) = run(mutants, course, day="1.1").problems
    assert "1.1.1 Area: 'area of a square only' (lessons/week_1/day_1/mutants.toml:" in problem
    assert problem.endswith("survives: the task's tests pass")


def test_only_the_tests_of_the_mutants_own_task_count(course):
    plant(course, DAY, "task_2", "the area is wrong", "shapes.py", AREA, "return size.width")
    (problem,) = run(mutants, course, day="1.1").problems
    assert "'the area is wrong'" in problem
    assert "survives" in problem


def test_a_mutant_that_raises_a_stub_is_no_mutant(course):
    stub = 'raise NotImplementedError("Week 1 Day 1 Task 1: Area")'
    plant(course, DAY, "task_1", "nothing done", "shapes.py", AREA, stub)
    (problem,) = run(mutants, course, day="1.1").problems
    assert "reads 'not started'" in problem


def test_a_mutant_that_never_ends_is_found_and_noted(course, monkeypatch):
    monkeypatch.setattr(mutants_module, "LEAST_SECONDS", 3.0)
    monkeypatch.setattr(mutants_module, "PATIENCE", 0)
    plant(course, DAY, "task_1", "goes round", "shapes.py", AREA, "while True:\n        pass")
    found = run(mutants, course, day="1.1")
    assert found.problems == []
    assert "5 of 5" in found.looked_at
    (note,) = (note for note in found.notes if "'goes round'" in note)
    assert "never ends" in note


def test_a_mutant_that_takes_python_down_is_found(course):
    plant(course, DAY, "task_1", "out of bounds", "shapes.py", AREA, "__import__('os').abort()")
    found = run(mutants, course, day="1.1")
    assert found.problems == []
    assert "5 of 5" in found.looked_at


def test_a_mutant_whose_message_holds_the_words_it_asks_for_is_found(course):
    plant(
        course,
        DAY,
        "task_1",
        "adds one",
        "shapes.py",
        AREA,
        AREA + " + 1",
        says="multiplies Width by height:  assert 7",
    )
    assert run(mutants, course, day="1.1").problems == []


def test_a_mutant_whose_message_says_something_else_is_a_problem_that_quotes_it(course):
    plant(course, DAY, "task_1", "adds one", "shapes.py", AREA, AREA + " + 1", says="one too many")
    found = run(mutants, course, day="1.1")
    (problem,) = found.problems
    assert "'adds one'" in problem
    assert "is found, but the message does not say 'one too many'\n" in problem
    assert "assert 7 == 6" in problem
    assert "5 of 5 mutants found" in found.looked_at


def test_a_mutant_that_survives_is_not_asked_for_its_words_too(course):
    plant(course, DAY, "task_1", "nothing", "shapes.py", AREA, AREA.replace("*", "* 1 *"), says="anything")
    (problem,) = run(mutants, course, day="1.1").problems
    assert problem.endswith("survives: the task's tests pass")


def test_a_task_needs_two_mutants_that_state_their_words(course):
    path = course.lessons / DAY / "mutants.toml"
    write(path, path.read_text(encoding="utf-8").replace('says = "perimeter"\n', "", 1))
    (problem,) = run(mutants, course, day="1.1").problems
    assert problem == (
        "lessons/week_1/day_1/mutants.toml: task_2 (Perimeter): 1 of its mutants state what their message says, "
        "2 or more should"
    )


def test_words_that_are_empty_are_refused(course):
    plant(course, DAY, "task_1", "adds one", "shapes.py", AREA, AREA + " + 1", says=" ")
    (problem,) = run(mutants, course, day="1.1").problems
    assert problem.endswith("says must be text, and not empty")


def test_the_message_of_each_mutant_is_noted_on_demand(course):
    plant(course, DAY, "task_1", "adds one", "shapes.py", AREA, AREA + " + 1")
    assert run(mutants, course, day="1.1").notes == []
    (note,) = (note for note in run(mutants, course, day="1.1", messages=True).notes if "'adds one'" in note)
    assert "reads\n" in note
    assert "assert 7 == 6" in note


def test_mutants_of_a_day_that_fails_without_them_are_not_counted_as_found(course):
    add_test(course, "week_1/test_day_1.py", "def test_task_2_fails(lab):\n    assert lab.shapes.TURN == 6\n")
    found = run(mutants, course, day="1.1")
    (problem,) = found.problems
    assert problem.startswith("Day 1.1 (torch) on the reference: 1.1.2 Perimeter is 'wrong', not 'passed'")
    assert found.looked_at == "0 of 0 mutants found, 4 not run, 2 tasks"


def test_a_task_without_tests_is_a_problem(course):
    write(course.tests / "week_1" / "test_day_1.py", "def test_task_10_is_not_task_1(lab):\n    pass\n")
    problems = run(mutants, course, day="1.1").problems
    assert problems == [
        "1.1.1 Area has no tests to run on its mutants",
        "1.1.2 Perimeter has no tests to run on its mutants",
    ]


FAULTS = {
    "find is not there": (
        ("task_1", "why", "shapes.py", "no such text", "x"),
        "find stands 0 times in shapes.py",
    ),
    "find is there twice": (
        ("task_1", "why", "shapes.py", "size.", "1"),
        "find stands 2 times in shapes.py",
    ),
    "no such file": (("task_1", "why", "shape.py", AREA, "x"), "tiny_llm has no file 'shape.py'"),
    "no such task": (
        ("task_3", "why", "shapes.py", AREA, "x"),
        "there is no 'task_3'; there are: task_1, task_2",
    ),
    "nothing changes": (("task_1", "why", "shapes.py", AREA, AREA), "changes nothing"),
    "no reason": (("task_1", " ", "shapes.py", AREA, "x"), "why and find must not be empty"),
    "not Python": (("task_1", "why", "shapes.py", AREA, "return ("), "is not Python"),
}


def test_text_that_other_functions_hold_too_is_planted_in_the_tasks_own(course):
    solution = course.solution() / "shapes.py"
    twin = f"\n\ndef twin(size):\n    {AREA}\n"
    write(solution, solution.read_text(encoding="utf-8") + twin)
    found = run(mutants, course, day="1.1")
    assert found.problems == []
    assert "4 of 4 mutants found" in found.looked_at


@pytest.mark.parametrize(("entry", "problem"), FAULTS.values(), ids=FAULTS.keys())
def test_a_faulty_mutant_is_a_problem_with_file_and_line(course, entry, problem):
    plant(course, DAY, *entry)
    (found,) = run(mutants, course, day="1.1").problems
    assert found.startswith("lessons/week_1/day_1/mutants.toml:33: ")
    assert problem in found


def test_an_unknown_key_is_a_problem(course):
    path = course.lessons / DAY / "mutants.toml"
    write(path, path.read_text(encoding="utf-8") + "\nseconds = 3\n")
    (problem,) = run(mutants, course, day="1.1").problems
    assert "unknown key 'seconds'" in problem


def test_a_missing_key_is_a_problem(course):
    path = course.lessons / DAY / "mutants.toml"
    write(path, path.read_text(encoding="utf-8").replace('why = "adds"\n', ""))
    (problem,) = run(mutants, course, day="1.1").problems
    assert problem == "lessons/week_1/day_1/mutants.toml:1: why: missing, or not text"


def test_a_task_with_one_mutant_needs_another(course):
    write_mutants(course, DAY, MUTANTS[DAY][1:])
    (problem,) = run(mutants, course, day="1.1").problems
    assert problem.endswith("task_1 (Area) has 1 mutants, needs 2 or more")


@pytest.mark.parametrize("text", [None, "", "[[mutant]\n"], ids=["no file", "an empty file", "not TOML"])
def test_a_day_without_readable_mutants_is_a_problem(course, text):
    path = course.lessons / DAY / "mutants.toml"
    path.unlink()
    if text is not None:
        write(path, text)
    problems = run(mutants, course, day="1.1").problems
    assert problems
    assert all(problem.startswith("lessons/week_1/day_1/mutants.toml: ") for problem in problems)


def test_line_ends_of_the_reference_do_not_matter(course):
    path = course.solution() / "counting.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert run(mutants, course, day="2.1").problems == []


def test_mutants_are_judged_the_same_in_children_that_are_not_forked(course, monkeypatch):
    monkeypatch.setattr(children, "METHOD", "spawn")
    plant(course, "week_1/day_2", "task_1", "the area is wrong", "shapes.py", AREA, "return size.width")
    found = run(mutants, course, day="1.2")
    assert found.looked_at == "2 of 3 mutants found, 1 task"
    assert len(found.problems) == 1


def test_the_course_is_left_as_it_was(course):
    before = sorted(course.root.rglob("*"))
    run(mutants, course, day="1.2")
    assert sorted(course.root.rglob("*")) == before
