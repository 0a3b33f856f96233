"""Ctrl-C shows what there is; nothing that ends `pdm run test` leaves its tests running."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from courses import make_course, solve, write
from runs import change, environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
COMMAND = [sys.executable, "-m", "coursekit", "test", "--week", "1"]
WAITING = "open('pid', 'w').write(str(os.getpid()))"
LOOPS = {
    "python": "while True:\n            pass",
    "compiled": "import collections, itertools; collections.deque(itertools.count(), maxlen=0)",
}


@pytest.fixture
def course(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.1", "1.2")
    return course


def loop(course, kind):
    """Let the second test of Day 1.2 never end; it says first that it is running."""
    lines = f"import os; {WAITING}\n        {LOOPS[kind]}\n        return x, y"
    change(course, "return x, y", lines)


def start(course, **streams):
    return subprocess.Popen(
        COMMAND,
        cwd=course.root,
        env=environment(course),
        stdin=subprocess.DEVNULL,
        **{
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "encoding": "utf-8",
            **streams,
        },
    )


def wait_for_loop(course):
    """The id of the process in which the tests run."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            return int((course.root / "pid").read_text())
        time.sleep(0.05)
    raise AssertionError("the test did not begin")


def has_ended(pid):
    """Whether a process ends within a while; one that its parent has not asked after counts as ended."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
        if not state.strip() or state.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP"])
def test_no_test_goes_on_when_its_run_is_ended(course, name, kind):
    if kind == "compiled" and sys.platform != "linux":
        pytest.skip("only Linux ends at once what holds the interpreter; elsewhere the time limit does")
    loop(course, kind)
    running = start(course)
    child = wait_for_loop(course)
    running.send_signal(getattr(signal, name))
    running.communicate(timeout=30)
    assert has_ended(child)
    if name != "SIGKILL":
        assert running.returncode == 128 + getattr(signal, name)


@pytest.mark.parametrize("kind", LOOPS)
def test_ctrl_c_through_a_pipe_shows_the_board_though_the_reader_is_gone(course, kind):
    loop(course, kind)
    running = start(course)
    child = wait_for_loop(course)
    running.stdout.close()  # as `cat` does, which has the Ctrl-C, too
    running.send_signal(signal.SIGINT)
    said = running.stderr.read()
    assert running.wait(timeout=30) == 130
    assert "passed       10/10  1.1.1" in said
    assert "1.2.1  A circle  (1 of its 2 tests ran)" in said
    assert "interrupted: the rest did not run" in said
    assert "Traceback" not in said
    assert has_ended(child)


def test_ctrl_c_through_a_pipe_that_is_read_on_shows_the_board_there(course):
    loop(course, "python")
    running = start(course)
    wait_for_loop(course)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "interrupted: the rest did not run" in said
    assert errors == ""


def test_a_second_ctrl_c_changes_nothing(course):
    loop(course, "compiled")
    running = start(course)
    wait_for_loop(course)
    for _ in range(5):
        running.send_signal(signal.SIGINT)
        time.sleep(0.1)
    said, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "passed       10/10  1.1.1" in said
    assert errors == ""


def test_ctrl_c_while_tests_are_read_leaves_with_130_and_no_traceback(course):
    write(course.tests / "conftest.py", f"import os\nimport time\n\n{WAITING}\ntime.sleep(60)\n")
    running = start(course)
    child = wait_for_loop(course)
    os.kill(child, signal.SIGINT)
    running.send_signal(signal.SIGINT)
    said, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert (said, errors.strip()) == ("", "interrupted")


def test_a_reader_that_leaves_early_is_no_error_and_costs_no_result(course):
    running = start(course)
    running.stdout.close()  # as `head -1` does
    errors = running.stderr.read()
    assert running.wait(timeout=60) == 141
    assert errors == ""
    results = json.loads((course.state / "progress.json").read_text(encoding="utf-8"))["results"]
    assert results["tiny_llm"]["1.2.1"]["state"] == "passed"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_an_output_that_is_full_is_one_line(course):
    with open("/dev/full", "w") as full:
        running = start(course, stdout=full)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 2
    assert len(errors.splitlines()) == 1
    assert "No space left on device" in errors
