"""Twenty thousand random steps of Week 4's engine, and what a trial says when the engine is wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shared.random_steps import Counts, TrialFailed, run_trials

from coursekit.paths import Course

STEPS = 20_000


def test_the_books_balance_after_each_of_twenty_thousand_random_steps() -> None:
    counts = Counts()
    for _ in run_trials(0, 1, STEPS, counts):
        pass
    assert counts.steps >= STEPS
    for name in ("requests", "preemptions", "pushed_in", "reused", "evicted", "failures"):
        assert getattr(counts, name) > 100, f"the trials have too few {name} to say much"


def test_a_trial_that_fails_says_how_it_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny_llm.prefix.trie_cache import TrieCache

    monkeypatch.setattr(TrieCache, "withdraw", TrieCache.commit)  # what a failed step published stays
    with pytest.raises(TrialFailed) as caught:
        for _ in run_trials(0, 1, STEPS, Counts()):
            pass
    first, setting, again = str(caught.value).splitlines()
    number = first.split()[1]
    assert setting.startswith("  Setting(preemptive=")
    assert again == f"  again, in the folder tests: python -m shared.random_steps --first {number} --steps 1"
    with pytest.raises(TrialFailed, match=f"^trial {number} failed"):
        list(run_trials(int(number), 1, 1, Counts()))


def test_as_a_program_it_prints_how_far_it_is_and_what_it_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shared.random_steps", "--first", "3", "--stride", "2", "--steps", "2500"],
        cwd=Course.find().tests,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    *steps, counts = done.stdout.splitlines()
    assert steps[:2] == ["1000", "2000"]
    assert counts.startswith("Counts(steps=2")
