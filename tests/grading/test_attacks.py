"""What a learner's code may try in order to get points without doing the task: each of these earns nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confinement import no_isolation
from courses import make_course

from coursekit.backends import Backend
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.board import earned
from coursekit.running.results import Report
from coursekit.task_state import TaskState
from grading.judging import judge

STUB = 'raise NotImplementedError("Week 1 Day 1 Task 1: Area")'
OTHER_STUB = 'raise NotImplementedError("Week 1 Day 1 Task 2: Perimeter")'


pytestmark = pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A tiny course, whose tests end early where the code does not."""
    course = make_course(tmp_path_factory.mktemp("attacked"))
    lesson = course.lessons / "week_1" / "day_1" / "lesson.toml"
    text = lesson.read_text(encoding="utf-8")
    lesson.write_text(text.replace("points = ", "seconds = 1\npoints = "), encoding="utf-8")
    return course


def graded(
    course: Course, folder: Path, before: str = "", area: str = STUB, perimeter: str = OTHER_STUB
) -> Report:
    """The report on Day 1.1 for code that is put before the first function, and for two bodies."""
    source = (course.starter() / "shapes.py").read_text(encoding="utf-8")
    assert source.count(STUB) == source.count(OTHER_STUB) == 1
    source = source.replace(STUB, area.replace("\n", "\n    ")).replace(
        OTHER_STUB, perimeter.replace("\n", "\n    ")
    )
    source = source.replace("TURN = ", f"{before}\nTURN = ", 1)
    package = folder / "tiny_llm"
    package.mkdir()
    for file in course.starter().rglob("*.py"):
        (package / file.name).write_bytes(file.read_bytes())
    (package / "shapes.py").write_text(source, encoding="utf-8")
    lesson = load_manifest(course).lesson("1.1")
    report = judge(course, folder, [lesson], "", Backend.TORCH).report
    assert report.finished
    assert set(report.tasks) == {"1.1.1", "1.1.2"}
    return report


def points(course: Course, report: Report) -> int:
    manifest = load_manifest(course)
    return sum(earned(manifest.task(name), result) for name, result in report.tasks.items())


RIGHT_AREA, RIGHT_PERIMETER = "return size.width * size.height", "return 2 * (size.width + size.height)"


def test_right_code_earns_its_points(course, tmp_path):
    report = graded(course, tmp_path, area=RIGHT_AREA, perimeter=RIGHT_PERIMETER)
    assert points(course, report) == 15


def test_the_starter_earns_nothing_and_is_not_started(course, tmp_path):
    report = graded(course, tmp_path)
    assert {task.state for task in report.tasks.values()} == {TaskState.NOT_STARTED}


def test_one_right_task_earns_its_own_points(course, tmp_path):
    report = graded(course, tmp_path, perimeter=RIGHT_PERIMETER)
    assert points(course, report) == 5


YES = """
class Yes(float):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __sub__(self, other): return Yes(0)
    __rsub__ = __radd__ = __add__ = __mul__ = __sub__
    def __le__(self, other): return True
    __lt__ = __ge__ = __gt__ = __le__
    def __float__(self): return 0.0
    def __abs__(self): return Yes(0)
"""

ATTACKS = {
    "os._exit at import": ("import os; os._exit(0)", ""),
    "os._exit in a call": ("", "import os; os._exit(0)"),
    "sys.exit at import": ("import sys; sys.exit(0)", ""),
    "sys.exit in a call": ("", "import sys; sys.exit(0)"),
    "a signal to oneself": ("", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    "pytest.skip": ("", "import pytest; pytest.skip('not today')"),
    "pytest.exit": ("", "import pytest; pytest.exit('done', 0)"),
    "unittest.SkipTest": ("", "import unittest; raise unittest.SkipTest"),
    "KeyboardInterrupt": ("", "raise KeyboardInterrupt"),
    "GeneratorExit": ("", "raise GeneratorExit"),
    "patched builtins": (
        "import builtins\nbuiltins.isinstance = builtins.hasattr = lambda *a: True\nbuiltins.len = lambda x: 1\n"
        "builtins.abs = lambda x: 0\nbuiltins.all = lambda x: True\nbuiltins.any = lambda x: False",
        "return 0.0",
    ),
    "patched numpy": (
        "import numpy as np\nnp.allclose = np.isclose = np.array_equal = lambda *a, **k: True\n"
        "np.testing.assert_allclose = lambda *a, **k: None\nnp.abs = lambda x: 0 * x",
        "return 0.0",
    ),
    "patched torch": ("import torch\ntorch.allclose = torch.equal = lambda *a, **k: True", "return 0.0"),
    "patched pytest": (
        "import pytest, _pytest.reports, _pytest.runner\npytest.approx = lambda x, **k: x\n"
        "_pytest.runner.call_runtest_hook = None\n"
        "_pytest.reports.TestReport.from_item_and_call = classmethod(lambda *a: None)\n"
        "_pytest.reports.TestReport.passed = True",
        "return 0.0",
    ),
    "patched coursekit": (
        "import coursekit.check, coursekit.checking.comparison as c\n"
        "from coursekit.running import results\nfrom coursekit.task_state import TaskState\n"
        "coursekit.check.check = coursekit.check.check_equal = lambda *a, **k: None\n"
        "c.CheckFailed = KeyError\nresults.fold = lambda states: TaskState.PASSED",
        "return 0.0",
    ),
    "patched grader": (
        "import grading.link.operations as o, grading.link.wire as w, sys\n"
        "o.Operations.__call__ = lambda self, name, arguments: True\n"
        "w._Encoder.form = lambda self, value, depth: True",
        "return 0.0",
    ),
    "a number that equals all": (YES, "return Yes(1)"),
    "an object that equals all": (YES.replace("(float)", ""), "return Yes()"),
    "frames of the caller": (
        "import gc, sys",
        "frame = sys._getframe()\nwhile frame:\n    for value in frame.f_locals.values():\n"
        "        if type(value) is float: return value\n    frame = frame.f_back\n"
        "return next(x for x in gc.get_objects() if hasattr(x, 'expected')).expected",
    ),
    "atexit": ("import atexit, os; atexit.register(os._exit, 0)", "return 0.0"),
    "a thread that goes on": (
        "import threading, time, os\nthreading.Thread(target=lambda: (time.sleep(1), os._exit(0))).start()",
        "return 0.0",
    ),
    "threads without end": (
        "import threading, time\nfor _ in range(2000): threading.Thread(target=time.sleep, args=(60,)).start()",
        "return 0.0",
    ),
    "an endless loop": ("", "while True: pass"),
    "an endless loop at import": ("while True: pass", ""),
    "an endless loop that catches all": (
        "",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ),
    "a sleep": ("", "import time; time.sleep(1000)"),
    "endless recursion": ("", "return area(size)"),
    "100 GB of bytes": ("", "x = bytearray(100 * 10**9)\nreturn float(len(x))"),
    "100 GB of numbers": ("", "import torch\nreturn float(torch.ones(25 * 10**9).sum())"),
    "memory bit by bit": ("", "x = []\nwhile True: x.append(bytearray(10**7))"),
    "a result of a billion items": ("", "return range.__new__ and [0.0] * 10**9"),
    "a large result": ("", "return [0.0] * 3 * 10**6"),
    "a result that is nested deeply": ("", "x = []\nfor _ in range(10**5): x = [x]\nreturn x"),
    "a result that holds itself": ("", "x = []\nx.append(x)\nreturn x"),
    "a dict that shows nothing": ("", "return {object(): 1.0}"),
    "gigabytes of output": ("", "import sys\nwhile True: sys.stdout.write('x' * 10**6)"),
    "a full disk": (
        "",
        "with open('large', 'wb') as file:\n    while True: file.write(bytes(10**7))\nreturn 0.0",
    ),
    "many small files": ("", "for n in range(10**6): open(f'{n}', 'w').close()\nreturn 0.0"),
    "an import of the reference": (
        "import sys\nsys.path.insert(0, ROOT + '/solutions')\nfor name in [n for n in sys.modules if 'tiny' in n]:\n"
        "    del sys.modules[name]\n",
        "import importlib.util as u\nspec = u.spec_from_file_location('r', ROOT + '/solutions/tiny_llm/shapes.py')\n"
        "module = u.module_from_spec(spec)\nspec.loader.exec_module(module)\nreturn module.area(size)",
    ),
    "a file of the reference": (
        "",
        "source = open(ROOT + '/solutions/tiny_llm/shapes.py').read()\nnames = {}\nexec(source, names)\n"
        "return names['area'](size)",
    ),
    "a file of the tests": (
        "",
        "open(ROOT + '/tests/week_1/test_day_1.py').read()\nreturn size.width * size.height",
    ),
    "a file of the user": ("", "open('/etc/passwd').read()\nreturn size.width * size.height"),
    "the environment": (
        "import os",
        "return size.width * size.height if os.environ['TINY_LLM_' + 'ROOT'] else 0.0",
    ),
    "the parent's environment": (
        "import os",
        "for number in (os.getppid(), PID): open(f'/proc/{number}/environ').read()\n"
        "return size.width * size.height",
    ),
    "the parent's memory": (
        "import os",
        "open('/proc/PID/mem', 'rb').read(1)\nreturn size.width * size.height",
    ),
    "the network": (
        "",
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 2)\nreturn size.width * size.height",
    ),
    "bytes on the pipe": (
        "import os",
        "for number in range(3, 64):\n    try: os.write(number, b'\\\\x08' + bytes(23))\n"
        "    except OSError: pass\nreturn 0.0",
    ),
    "a closed pipe": ("import os", "os.closerange(3, 64)\nreturn 0.0"),
    "an answer that is forged": (
        "import gc",
        "from grading.link.lanes import Lanes\nlanes = next(x for x in gc.get_objects() if isinstance(x, Lanes))\n"
        "for value in (True, None, 12.0): lanes._send(0, 'answer', value)\nreturn 0.0",
    ),
    "an error that is a verdict": (
        "",
        "from coursekit.running.early_ends import CodeLeft\nraise CodeLeft",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_earns_nothing(course, tmp_path, attack, tcp_port):
    before, area = ATTACKS[attack]
    given = {"ROOT": repr(str(course.root)), "PID": str(os.getpid()), "PORT": str(tcp_port)}
    for name, value in given.items():
        before, area = before.replace(name, value), area.replace(name, value)
    report = graded(course, tmp_path, before, area or "return 0.0")
    assert points(course, report) == 0
    assert report.tasks["1.1.1"].state in (TaskState.WRONG, TaskState.CRASHED)
    assert report.tasks["1.1.2"].state != TaskState.PASSED


@pytest.fixture
def tcp_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_nothing_carries_over_from_one_task_to_the_next(course, tmp_path):
    """What the first task's process leaves, in memory, in files or as a child, the second one's does not find."""
    leave = (
        "import builtins, os, pathlib, tempfile\nbuiltins.left = 1\n"
        "for folder in {'.', tempfile.gettempdir(), os.path.expanduser('~')}:\n"
        "    pathlib.Path(folder, 'left').write_text('1')\nreturn size.width * size.height"
    )
    find = (
        "import builtins, os, pathlib, tempfile\n"
        "folders = {'.', tempfile.gettempdir(), os.path.expanduser('~')}\n"
        "found = [folder for folder in folders if pathlib.Path(folder, 'left').exists()]\n"
        "if found or hasattr(builtins, 'left'): return 2 * (size.width + size.height)\nreturn 0.0"
    )
    report = graded(course, tmp_path, area=leave, perimeter=find)
    assert report.tasks["1.1.1"].state == TaskState.PASSED
    assert report.tasks["1.1.2"].state == TaskState.WRONG


def test_results_that_the_code_writes_are_not_those_that_count(course, tmp_path):
    write = (
        "import json, os, pathlib\nfor folder in ('/tmp', '.', ROOT, ROOT + '/.course'):\n"
        "    for name in ('report.json', 'progress.json', 'journal.jsonl'):\n"
        "        try: pathlib.Path(folder, name).write_text(json.dumps({'passed': True}))\n"
        "        except OSError: pass\nreturn 0.0"
    )
    report = graded(course, tmp_path, area=write.replace("ROOT", repr(str(course.root))))
    assert points(course, report) == 0
    assert not [path for path in course.root.rglob("*.json") if "passed" in json.loads(path.read_text())]


@pytest.mark.parametrize(
    ("area", "words"),
    [
        ("import os; os._exit(3)", "ended itself with exit code 3"),
        ("import sys; sys.exit(0)", "your code ended the program"),
        ("while True: pass", "ran longer than 3 s"),
        ("x = bytearray(100 * 10**9)\nreturn float(len(x))", "MemoryError"),
    ],
)
def test_the_learner_is_told_what_happened(course, tmp_path, area, words):
    first = graded(course, tmp_path, area=area).tasks["1.1.1"].first_failure
    assert first is not None
    assert words in first.message


def test_a_failure_names_the_learners_file_and_line(course, tmp_path):
    first = graded(course, tmp_path, area="width = size.width\nreturn width / 0").tasks["1.1.1"].first_failure
    assert first is not None
    assert "ZeroDivisionError" in first.message
    assert "src/tiny_llm/shapes.py:" in first.message
    assert "return width / 0" in first.message


@pytest.mark.parametrize(
    ("before", "area"),
    [
        ("", "return math.prod(size)"),
        ("from math import prod as mine", "return mine(size)"),
        ("", "return getattr(math, 'pr' + 'od')(size)"),
        ("", "return __import__('math').prod(size)"),
        ("import math\nown = getattr(math.prod, '__wrapped__', math.prod)", "return own(size)"),
    ],
    ids=["by its module", "by name", "by a text", "by an import", "around the notice"],
)
def test_a_forbidden_call_is_noticed(course, tmp_path, before, area):
    lesson = course.lessons / "week_1" / "day_1" / "lesson.toml"
    text = lesson.read_text(encoding="utf-8")
    try:
        lesson.write_text(
            text.replace("points = 10", 'points = 10\nshortcuts = ["math.prod"]'), encoding="utf-8"
        )
        report = graded(course, tmp_path, before, area, RIGHT_PERIMETER)
    finally:
        lesson.write_text(text, encoding="utf-8")
    assert report.tasks["1.1.1"].shortcuts == ("math.prod",)
    assert report.tasks["1.1.2"].shortcuts == ()
