"""`pdm run check --long`: random steps shared out over children, how far they are, and what one says that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from authoring.gates import LONG, choose
from authoring.gates.gate import Context
from authoring.gates.long import long
from coursekit.errors import CourseError
from coursekit.paths import Course

FAILING = """
import sys

first = sys.argv[sys.argv.index("--first") + 1]
print(1000)
if first == "1":
    sys.exit("trial 7 failed: page 3 is lost\\n  again: so and so")
"""


def test_the_long_gate_runs_alone_and_only_when_it_is_asked_for() -> None:
    assert choose(None, None, long=True) == [LONG]
    assert LONG not in choose(None, None)
    with pytest.raises(CourseError, match="--long runs alone"):
        choose("lint", None, long=True)
    with pytest.raises(CourseError, match="--long runs alone"):
        choose(None, "reference", long=True)


def test_random_steps_of_the_reference_pass() -> None:
    findings = long(Context(Course.find(), Console(quiet=True), workers=2), steps=3000)
    assert (findings.looked_at, findings.problems) == ("3,000 random steps", [])


def test_a_trial_that_fails_is_a_problem_with_all_its_words(tmp_path: Path) -> None:
    script = tmp_path / "tests" / "shared" / "random_steps.py"
    script.parent.mkdir(parents=True)
    script.write_text(FAILING)
    findings = long(Context(Course(tmp_path), Console(quiet=True), workers=3), steps=3000)
    assert findings.problems == ["trial 7 failed: page 3 is lost\n  again: so and so"]
