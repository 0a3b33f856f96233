"""How a confined command ends, and all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confinement import EVERY, run, start, usable

from grading.sandbox.ending import Cause, Ending
from grading.sandbox.isolation import Isolation

every = pytest.mark.parametrize("kind", EVERY)
WAIT = "import time; time.sleep(100)"
LEAVE_A_CHILD = """
import os, subprocess, sys
inner = "import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-S', '-c', {wait!r}], start_new_session=True, pass_fds=[{fd}])"
subprocess.run([sys.executable, "-I", "-S", "-c", inner], start_new_session=True, pass_fds=[{fd}])
print("left", flush=True)
{then}
"""  # noqa: E501


def is_held(end: int) -> bool:
    """Whether a process has the other end of a pipe open."""
    os.set_blocking(end, False)
    try:
        return os.read(end, 1) != b""
    except BlockingIOError:
        return True


@every
def test_the_exit_code_is_told(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), "import os; os._exit(3)", tmp_path / "scratch")
    assert confined.why_ended() == "ended itself with exit code 3"
    assert confined.ending == Ending(Cause.ITSELF, code=3)


@every
def test_the_signal_is_told(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), "import os; os.kill(os.getpid(), 11)", tmp_path / "scratch")
    assert confined.why_ended() == "was ended by the signal SIGSEGV"
    assert confined.ending == Ending(Cause.ITSELF, signal=11)


@every
def test_as_long_as_it_runs_it_says_so(kind: type[Isolation], tmp_path: Path) -> None:
    with start(usable(kind), f"print('x', flush=True); {WAIT}", tmp_path / "scratch") as confined:
        assert not confined.poll()
        assert not confined.wait(0.2)
        assert (confined.why_ended(), confined.output(), confined.ending) == ("is running", "", None)
        confined.kill()
        assert confined.poll()
        assert confined.wait(0)
        assert confined.why_ended() == "was ended: it was no longer needed"


@every
def test_to_kill_twice_is_to_kill_once(kind: type[Isolation], tmp_path: Path) -> None:
    confined = start(usable(kind), WAIT, tmp_path / "scratch")
    confined.kill()
    confined.kill()
    assert confined.ending == Ending(Cause.KILLED)


@every
def test_to_kill_what_has_ended_changes_nothing(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), "print('hello')", tmp_path / "scratch")
    confined.kill()
    assert (confined.ending, confined.output()) == (Ending(Cause.ITSELF, code=0), "hello\n")


@every
def test_the_end_of_the_block_ends_it(kind: type[Isolation], tmp_path: Path) -> None:
    read, write = os.pipe()
    with (
        pytest.raises(KeyError),
        start(usable(kind), WAIT, tmp_path / "scratch", pass_fds=[write]) as confined,
    ):
        raise KeyError
    os.close(write)
    assert confined.poll()
    assert not is_held(read)
    os.close(read)


@every
@pytest.mark.parametrize("then", ["", WAIT])
def test_children_end_with_it_also_those_that_left_its_session(
    then: str, kind: type[Isolation], tmp_path: Path
) -> None:
    read, write = os.pipe()
    said, saying = os.pipe()
    code = LEAVE_A_CHILD.format(wait=WAIT, fd=write, then=f"import os; os.write({saying}, b'x'); {then}")
    with start(usable(kind), code, tmp_path / "scratch", pass_fds=[write, saying]) as confined:
        os.close(write)
        assert os.read(said, 1) == b"x"
        if not then:
            assert confined.wait(60)
            assert confined.why_ended() == "ended itself with exit code 0"
    assert confined.output() == "left\n"
    assert not is_held(read)
    for end in (read, said, saying):
        os.close(end)


GRADER = """
import sys
from pathlib import Path
import confinement
kind = {kind.__name__: kind for kind in confinement.EVERY}[sys.argv[1]]
held = int(sys.argv[3])
code = sys.argv[4]
confined = confinement.start(kind(), code, Path(sys.argv[2]), pass_fds=[held])
print("started", flush=True)
confined.wait()
"""


@every
def test_all_of_it_ends_when_the_grader_is_killed(kind: type[Isolation], tmp_path: Path) -> None:
    usable(kind)
    read, write = os.pipe()
    code = LEAVE_A_CHILD.format(wait=WAIT, fd=write, then=WAIT)
    arguments = [kind.__name__, str(tmp_path / "scratch"), str(write), code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", GRADER, *arguments],
        stdout=subprocess.PIPE,
        pass_fds=[write],
        env=environment,
    ) as grader:
        os.close(write)
        assert grader.stdout is not None
        assert grader.stdout.readline() == b"started\n"
        grader.send_signal(signal.SIGKILL)
    assert os.read(read, 1) == b""  # comes when the last process that could write has ended
    os.close(read)


@every
def test_the_command_ends_when_its_guard_is_killed(kind: type[Isolation], tmp_path: Path) -> None:
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'x'); {WAIT}"
    confined = start(usable(kind), code, tmp_path / "scratch", pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.kill(confined._guard.pid, signal.SIGKILL)
    assert os.read(read, 1) == b""
    assert confined.wait(60)
    assert confined.why_ended() == "was ended: the process that guards it was ended from outside"
    os.close(read)


@every
def test_it_goes_on_when_the_thread_that_started_it_ends(kind: type[Isolation], tmp_path: Path) -> None:
    isolation, started = usable(kind), []
    code = (
        "import sys; print(sys.stdin.read() == '', flush=True); import time; time.sleep(0.5); print('here')"
    )
    thread = threading.Thread(target=lambda: started.append(start(isolation, code, tmp_path / "scratch")))
    thread.start()
    thread.join()
    with started[0] as confined:
        assert confined.wait(60)
    assert confined.output() == "True\nhere\n"
