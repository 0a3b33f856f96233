"""``junit.xml``: a suite per learner and day, a case per task.

Valid under the XML Schema of Ant's JUnit report (windyroad/JUnit-Schema) and under the one of Jenkins' xUnit plugin.
Wrong tasks are failures, crashed ones errors; a task that isn't started, or whose points a forbidden call has cost,
is a failure too, so that a suite is green only where all points are earned. How long a single task took isn't known:
times are 0, and the submission's seconds are a property.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, TaskMark
from grading.reports.class_view import by_name
from grading.reports.learner_view import calls, forbidden, learner_name
from grading.reports.text import block, line

_KINDS = {TaskState.CRASHED: "error", TaskState.SKIPPED: "skipped", TaskState.PASSED: ""}
NO_TIME = "0.000"


def junit_xml(class_marks: Sequence[Marks]) -> bytes:
    """The suites of all learners, sorted by name; a submission that couldn't be graded is a suite with one error."""
    root = ET.Element("testsuites")
    for marks in by_name(class_marks):
        if marks.refusal:
            case = _case("submission", "submission")
            _add(case, "error", "not graded", "the submission could not be graded", marks.refusal)
            _add_suite(root, marks, "submission", [case])
        for day in () if marks.refusal else marks.days:
            _add_suite(root, marks, f"Day {day.name}", [_task_case(day, task) for task in day.tasks])
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _add_suite(root: ET.Element, marks: Marks, name: str, cases: Iterable[ET.Element]) -> None:
    suite = ET.SubElement(root, "testsuite", name=f"{learner_name(marks)}: {line(name)}", package=_id(marks))
    suite.set("id", str(len(root) - 1))
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("student", _id(marks)),
        ("seconds", f"{marks.seconds:.3f}"),
        ("isolation", marks.isolation),
    ):
        ET.SubElement(properties, "property", name=key, value=line(value))
    suite.extend(cases)
    for stream in ("system-out", "system-err"):
        ET.SubElement(suite, stream)
    found = suite.findall("testcase")
    suite.set("tests", str(len(found)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in found)))
    suite.set("hostname", "localhost")
    suite.set("timestamp", _timestamp(marks.graded))
    suite.set("time", NO_TIME)


def _task_case(day: DayMark, task: TaskMark) -> ET.Element:
    case = _case(f"{line(task.name)} {line(task.title)}", f"day_{re.sub(r'[^0-9A-Za-z]', '_', day.name)}")
    if forbidden(task):
        said = f"calls {calls(task)}, which may not do this task's work"
        _add(case, "failure", "forbidden call", said, said)
    elif kind := _KINDS.get(task.state, "failure"):
        _add(case, kind, task.state.value, task.sentence or task.state.value, _story(task))
    return case


def _story(task: TaskMark) -> str:
    """The message and its place, as far as they are known."""
    place = f"{line(task.where, 200)}\n" if task.where else ""
    needs = f"needs {line(task.needs)} first\n" if task.needs else ""
    return place + needs + task.failure


def _case(name: str, group: str) -> ET.Element:
    return ET.Element("testcase", name=name, classname=group, time=NO_TIME)


def _add(case: ET.Element, kind: str, type_name: str, message: str, text: str) -> None:
    ET.SubElement(case, kind, type=type_name, message=line(message, 300)).text = block(text)


def _id(marks: Marks) -> str:
    return line(marks.student.id) or "(no id)"


def _timestamp(time: datetime) -> str:
    """In UTC where the zone is known; the schema allows none to be written."""
    known = time.astimezone(UTC) if time.tzinfo else time
    return f"{known:%Y-%m-%dT%H:%M:%S}"
