"""The choice of an isolation: the best that keeps its promises, and never silently a weaker one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confinement import CLOSED, run, usable

from coursekit.errors import CourseError
from grading.sandbox import bubblewrap, choosing, landlock
from grading.sandbox.bubblewrap import Bubblewrap
from grading.sandbox.choosing import choose, why_not
from grading.sandbox.isolation import Isolation
from grading.sandbox.landlock import LandlockAndSeccomp
from grading.sandbox.limits_only import LimitsOnly


class Missing(LimitsOnly):
    name = "a missing one"

    def missing(self) -> str | None:
        return "it is not installed"


class Leaky(LimitsOnly):
    name = "a leaky one"


def test_the_best_that_can_be_had_is_chosen() -> None:
    best = next((kind for kind in CLOSED if why_not(kind()) is None), None)
    if best is None:
        pytest.skip("there is no isolation here")
    assert type(choose()) is best
    assert CLOSED == choosing.ISOLATIONS


def test_an_isolation_that_lets_a_process_out_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "ISOLATIONS", (Leaky, Missing))
    with pytest.raises(CourseError) as caught:
        choose()
    said = str(caught.value)
    assert said.startswith(
        "there is no isolation for learners' code here. a leaky one: it doesn't keep its promises"
    )
    for what in ("read a file", "write a file", "connect to a server", "signal another process"):
        assert what in said
    assert said.endswith("a missing one: it is not installed")


def test_limits_only_are_taken_where_they_are_asked_for_and_nothing_else_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "ISOLATIONS", (Missing,))
    assert choose(without=True).name == "limits only"


def test_where_there_are_no_limits_either_each_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(CourseError) as caught:
        choose(without=True)
    said = str(caught.value)
    assert "bubblewrap is for Linux" in said
    assert "Landlock is for Linux" in said
    assert "limits only: Windows has no limits for processes" in said


def test_isolation_is_taken_also_where_none_would_be_accepted() -> None:
    if any(why_not(kind()) is None for kind in CLOSED):
        assert choose(without=True).name != "limits only"


def test_bubblewrap_is_missing_where_its_program_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda name: None)
    assert "install the system's package bubblewrap" in str(Bubblewrap().missing())


def test_bubblewrap_that_does_not_work_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program := tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = str(why_not(Bubblewrap()))
    assert reason.startswith("can't start ")
    assert "no namespaces here" in reason


def test_landlock_is_missing_where_its_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock.importlib.util, "find_spec", lambda name: None)
    assert "sandlock is not installed" in str(LandlockAndSeccomp().missing())


def test_landlock_of_an_old_kernel_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sandlock = pytest.importorskip("sandlock", reason="the package sandlock is not installed")
    monkeypatch.setattr(sandlock, "landlock_abi_version", lambda: -1)
    assert "this kernel's Landlock is version 0" in str(LandlockAndSeccomp().missing())


@pytest.mark.parametrize("kind", [Bubblewrap, LandlockAndSeccomp, LimitsOnly])
def test_other_systems_are_told_what_is_missing(
    kind: type[Isolation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    assert kind().missing()


@pytest.mark.parametrize("kind", CLOSED)
def test_the_trial_leaves_nothing_behind(kind: type[Isolation]) -> None:
    usable(kind)
    before = _children()
    assert why_not(kind()) is None
    assert _children() == before


def _children() -> int:
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return listing.count("grading.sandbox.guard")


WORK = """
import os, sys, threading
os.environ.update(NUMBA_CACHE_DIR=os.getcwd(), NUMBA_NUM_THREADS="2", OMP_NUM_THREADS="2")
sys.path.insert(0, sys.argv[1])
import numpy, torch
import compiled
torch.set_num_threads(2)
assert compiled.total(numpy.ones(100_000)) == 100_000
product = torch.ones(600, 600) @ torch.ones(600, 600)
assert float(product.sum()) == 600**3
results = []
threads = [threading.Thread(target=results.append, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(results) == 20
assert any(name.endswith(".nbc") for _, _, names in os.walk(".") for name in names)
print("worked")
"""
COMPILED = """
import numba

@numba.njit(cache=True, parallel=True)
def total(values):
    sum = 0.0
    for at in numba.prange(len(values)):
        sum += values[at]
    return sum
"""


@pytest.mark.parametrize("kind", CLOSED)
def test_ordinary_work_goes_on_inside(kind: type[Isolation], tmp_path: Path) -> None:
    (room := tmp_path / "room").mkdir()
    (room / "compiled.py").write_text(COMPILED)
    generous = choosing.Limits(seconds=100, cpu_seconds=100)
    confined = run(
        usable(kind), WORK, tmp_path / "scratch", read=[room], arguments=[str(room)], limits=generous
    )
    # Where it can't have shared memory, Numba warns first.
    assert confined.output().endswith("worked\n")
