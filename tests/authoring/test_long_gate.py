"""`pdm run check --long`: random steps shared out over children, how far they are, and what one says that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from authoring.gates import LONG, choose, prove
from authoring.gates.gate import Context
from authoring.gates.long import PER_SEED, long
from coursekit.errors import CourseError
from coursekit.paths import Course

FAILING = """
import sys

first = sys.argv[sys.argv.index("--first") + 1]
print(1000)
if first == "1":
    sys.exit("trial 7 failed: page 3 is lost\\n  again: so and so")
"""

SAYING = """
import sys

sys.exit(f'first {sys.argv[sys.argv.index("--first") + 1]}')
"""
CONSOLE = Console(quiet=True)


def test_the_long_gate_runs_alone_and_only_when_it_is_asked_for() -> None:
    assert choose(None, None, long=True) == [LONG]
    assert LONG not in choose(None, None)
    with pytest.raises(CourseError, match="--long runs alone"):
        choose("lint", None, long=True)
    with pytest.raises(CourseError, match="--long runs alone"):
        choose(None, "reference", long=True)


def test_random_steps_of_the_reference_pass() -> None:
    findings = long(Context(Course.find(), CONSOLE, workers=2), steps=3000)
    assert (findings.looked_at, findings.problems) == ("3,000 random steps, --seed 0", [])


def test_each_seed_has_trials_of_its_own(tmp_path: Path) -> None:
    said = {}
    for seed in (0, 1, 7):
        findings = long(
            Context(_course(tmp_path / str(seed), SAYING), CONSOLE, workers=2, seed=seed), steps=3000
        )
        assert findings.looked_at == f"3,000 random steps, --seed {seed}"
        said[seed] = findings.problems
    assert said == {seed: [f"first {seed * PER_SEED}", f"first {seed * PER_SEED + 1}"] for seed in said}


def test_a_seed_without_the_long_gate_is_refused() -> None:
    with pytest.raises(CourseError, match="--seed is for --long"):
        prove(only="lint", seed=3)


def test_a_trial_that_fails_is_a_problem_with_all_its_words(tmp_path: Path) -> None:
    findings = long(Context(_course(tmp_path, FAILING), CONSOLE, workers=3), steps=3000)
    assert findings.problems == ["trial 7 failed: page 3 is lost\n  again: so and so"]


def _course(root: Path, script: str) -> Course:
    """A course that has only this in the place of the random steps."""
    file = root / "tests" / "shared" / "random_steps.py"
    file.parent.mkdir(parents=True)
    file.write_text(script)
    return Course(root)
