"""What a confined process may use. Every attempt ends by itself, too, so that a limit that fails does no harm."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from confinement import EVERY, SMALL, run, usable

from grading.sandbox.isolation import Isolation
from grading.sandbox.landlock import LandlockAndSeccomp
from grading.sandbox.limits import MIB

every = pytest.mark.parametrize("kind", EVERY)


@every
def test_a_huge_array_is_refused_and_the_process_goes_on(kind: type[Isolation], tmp_path: Path) -> None:
    code = "try: bytearray(100 << 30)\nexcept MemoryError: print('refused')"
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert confined.output() == "refused\n"
    assert confined.why_ended() == "ended itself with exit code 0"


SHARED = """
import mmap, time
shared = mmap.mmap(-1, 1 << 30)
for page in range(0, {bytes}, 4096):
    shared[page] = 1
time.sleep({seconds})
print("had it all")
"""


@every
def test_memory_that_is_touched_ends_the_process(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), SHARED.format(bytes=800 * MIB, seconds=20), tmp_path / "scratch")
    assert confined.why_ended() == "was ended: it used more than 400 MiB of memory"
    assert confined.output() == ""


@every
def test_memory_below_the_limit_may_be_used(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), SHARED.format(bytes=300 * MIB, seconds=0.3), tmp_path / "scratch")
    assert confined.output() == "had it all\n"


@every
def test_the_memory_of_several_processes_counts_together(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import subprocess, sys
hold = "import time; held = b'x' * (150 << 20); time.sleep(20)"
for process in [subprocess.Popen([sys.executable, "-I", "-S", "-c", hold]) for _ in range(4)]:
    process.wait()
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert confined.why_ended() == "was ended: it used more than 400 MiB of memory"


@every
def test_memory_that_processes_share_counts_once(kind: type[Isolation], tmp_path: Path) -> None:
    if kind is LandlockAndSeccomp:
        pytest.skip("copies of a process can't be made there")
    code = """
import os, time
held = b"x" * (200 << 20)
children: list[int] = []
while len(children) < 3 and 0 not in children:
    children.append(os.fork())
if 0 in children:
    time.sleep(0.5)
    os._exit(0)
for child in children:
    os.waitpid(child, 0)
print("done")
"""
    assert run(usable(kind), code, tmp_path / "scratch").output() == "done\n"


@every
def test_an_endless_loop_ends(kind: type[Isolation], tmp_path: Path) -> None:
    code = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
    confined = run(usable(kind), code, tmp_path / "scratch", limits=replace(SMALL, cpu_seconds=1))
    assert confined.why_ended() == "was ended: it used more than 1 s of CPU time"


@every
def test_the_cpu_time_of_children_counts(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import subprocess, sys
for _ in range(15):
    burn = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", burn])
"""
    confined = run(usable(kind), code, tmp_path / "scratch", limits=replace(SMALL, cpu_seconds=2))
    assert confined.why_ended() == "was ended: it used more than 2 s of CPU time"


@every
def test_sleep_ends_by_the_clock(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(
        usable(kind), "import time; time.sleep(60)", tmp_path / "scratch", limits=replace(SMALL, seconds=0.5)
    )
    assert confined.why_ended() == "was ended: it took more than 0.5 s"


BOMB = """
import os, time
try:
    for _ in range(7):
        os.fork()
except PermissionError:
    print("no copies")
else:
    time.sleep(5)
    print("all of them")
"""


@every
def test_a_fork_bomb_ends(kind: type[Isolation], tmp_path: Path) -> None:
    confined = run(usable(kind), BOMB, tmp_path / "scratch")  # 128 processes at most
    assert "all of them" not in confined.output()
    if kind is LandlockAndSeccomp:
        assert confined.output() == "no copies\n"
    elif os.geteuid() == 0:  # else the kernel may refuse before the guard sees it
        assert confined.why_ended() == "was ended: it had more than 60 processes and threads"


@every
def test_threads_count_as_processes(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import threading
stop = threading.Event()
for _ in range(100):
    threading.Thread(target=stop.wait, args=(5,), daemon=True).start()
stop.wait(5)
print("all of them")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    assert "all of them" not in confined.output()


@every
def test_of_much_output_the_beginning_and_the_end_are_kept(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import os, sys
os.write(1, b"beginning")
for _ in range(200):
    os.write(1, b"x" * (1 << 20))
os.write(2, b"end")
"""
    confined = run(usable(kind), code, tmp_path / "scratch")
    said = confined.output()
    assert said.startswith("beginning")
    assert said.endswith("end")
    assert f"[{200 * MIB + 12 - 4000:,} bytes are left out here]" in said
    assert len(said) < 4100


@every
def test_open_files_are_bounded(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
held = []
try:
    for _ in range(200):
        held.append(open("/dev/null"))
except OSError:
    print(len(held) < 64)
"""
    assert run(usable(kind), code, tmp_path / "scratch").output() == "True\n"


@every
def test_a_crash_leaves_no_image_of_memory(kind: type[Isolation], tmp_path: Path) -> None:
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    assert run(usable(kind), code, tmp_path / "scratch").output() == "(0, 0)\n"
