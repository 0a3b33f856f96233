"""A test that would take all memory is stopped at a limit, and told so."""

import subprocess
import sys

import pytest
from courses import make_course, solve
from runs import change, run_plugin

from coursekit.running.memory_limit import LEAST, MOST, allowed, is_out_of_memory

GIB = 1 << 30
WATCHED = """
import sys
from coursekit.running.memory_limit import end_above

with open(sys.argv[1], "w") as faults:
    end_above(1 << 20, faults)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux refuses memory")
def test_a_list_that_grows_for_ever_is_stopped_with_its_line_and_the_limit(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.1", "1.2")
    change(
        course,
        "return 2 *",
        "rows = []\n    while True:\n        rows.append(bytearray(1 << 26))\n    return 2 *",
    )
    ran, found = run_plugin(course, "--coursekit-memory", str(2 * GIB), "tests/week_1")
    assert ran.returncode == 1
    task = found["tasks"]["1.1.2"]
    assert task["state"] == "crashed"
    assert task["first_failure"].startswith("MemoryError\n  src/tiny_llm/shapes.py:")
    assert "rows.append(bytearray(1 << 26))" in task["first_failure"]
    assert "the tests may take 2 GiB of memory: does something grow without end" in task["first_failure"]
    assert found["tasks"]["1.2.1"]["state"] == "passed"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell how much memory was used")
def test_where_memory_is_not_refused_the_process_is_ended_above_the_limit(tmp_path):
    faults = tmp_path / "faults"
    ran = subprocess.run([sys.executable, "-c", WATCHED, str(faults)], timeout=30)
    assert ran.returncode == 1
    said = faults.read_text(encoding="utf-8")
    assert said.startswith("used more than the 0.000977 GiB of memory that the tests may take")
    assert "in end_above" in said


def test_the_limit_is_generous():
    assert LEAST <= allowed() <= MOST


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes"), True),
        (RuntimeError("[malloc] Unable to allocate 4000 bytes."), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("Unable to allocate"), False),
    ],
)
def test_each_library_has_words_of_its_own_for_memory_that_was_refused(error, is_one):
    assert is_out_of_memory(error) == is_one
