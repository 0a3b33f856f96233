"""What a confined process must not be able to do. Each attempt works where nothing but limits is in force."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confinement import CLOSED, bystander, run, usable

from grading.sandbox.bubblewrap import Bubblewrap
from grading.sandbox.isolation import Isolation
from grading.sandbox.landlock import LandlockAndSeccomp
from grading.sandbox.limits_only import LimitsOnly

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is isolation on Linux only")

HEAD = """
import ctypes, json, os, resource, socket, sys
aim = json.loads(sys.argv[1])
library = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if library.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def reach(family, kind, address):
    with socket.socket(family, kind) as way:
        way.settimeout(5)
        way.connect(address)
        way.send(b"x")
try:
"""
TAIL = """
except (OSError, ValueError) as error:
    print("refused:", error)
else:
    print("did it")
"""

FILES = {
    "read a file": "open(aim['file']).read()",
    "read a file by a link": "os.symlink(aim['file'], 'link'); open('link').read()",
    "read a file by a second name": "os.link(aim['file'], 'name'); open('name').read()",
    "read a file by its parent": "open('../outside/file').read()",
    "list a folder": "os.listdir(aim['folder'])",
    "append to a file": "open(aim['file'], 'a')",
    "cut a file off": "os.truncate(aim['file'], 1)",
    "make a file": "open(aim['folder'] + '/new', 'w')",
    "make a folder": "os.mkdir(aim['folder'] + '/new folder')",
    "delete a file": "os.unlink(aim['file'])",
    "rename a file": "os.rename(aim['file'], aim['file'] + '2')",
    "change a file's mode": "os.chmod(aim['file'], 0o644)",
    "change a file's mode by its folder": (
        "folder = os.open(aim['folder'], os.O_PATH); os.chmod('file', 0o644, dir_fd=folder)"
    ),
    "change a file's owner": "os.chown(aim['file'], os.getuid(), os.getgid())",
    "change a file's time": "os.utime(aim['file'], (1, 1))",
    "change a file's attributes": "os.setxattr(aim['file'], 'user.x', b'1')",
    "read shared memory": "open(aim['shared']).read()",
}
NETWORK = {
    "connect by TCP": "reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', aim['tcp']))",
    "send by UDP": ("reach(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', aim['udp']))"),
    "connect to a socket in a folder": "reach(socket.AF_UNIX, socket.SOCK_STREAM, aim['socket'])",
    "connect to an abstract socket": "reach(socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + aim['abstract'])",
}
PROCESSES = {
    "signal a process": "os.kill(aim['process'], 0)",
    "signal its group": "os.killpg(os.getpgid(aim['process']), 0)",
    "see its arguments": "open('/proc/%d/cmdline' % aim['process']).read()",
    "change its limits": "resource.prlimit(aim['process'], resource.RLIMIT_CORE, (0, 0))",
}
# Where root has no privileges, these fail without isolation, too; so does much of it where the kernel is careful.
ALWAYS_HARD = {
    "read its environment": "open('/proc/%d/environ' % aim['process']).read()",
    "read its memory": "open('/proc/%d/mem' % aim['process'], 'rb')",
    "read its map": "open('/proc/%d/maps' % aim['process']).read()",
    "read the grader's environment": "open('/proc/%d/environ' % aim['grader']).read()",
    "see the grader": "open('/proc/%d/status' % aim['grader']).read()",
    "change its priority": "os.setpriority(os.PRIO_PROCESS, aim['process'], 19)",
    "change its cores": "os.sched_setaffinity(aim['process'], os.sched_getaffinity(0))",
    "change its scheduling": "os.sched_setscheduler(aim['process'], os.SCHED_IDLE, os.sched_param(0))",
    "trace it": "call(101 if os.uname().machine == 'x86_64' else 117, 16, aim['process'], 0, 0)",
    "read the passwords": "open('/etc/shadow').read()",
    "raise its own limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (65, 65))",
    "ask for memory without a name": "os.memfd_create('x')",
    "ask for a ring of calls": "call(425, 1, ctypes.create_string_buffer(200))",
    "make a namespace for users": "call(272 if os.uname().machine == 'x86_64' else 97, 0x10000000)",
    "read the user's keys": "call(250 if os.uname().machine == 'x86_64' else 219, 0, -3, 1)",
    "mount": "call(165 if os.uname().machine == 'x86_64' else 40, 0, b'/', 0, 4096, 0)",
    "write to the root": "open('/new', 'w')",
    "write to the devices": "open('/dev/new', 'w')",
    "write to Python's folder": "open(sys.prefix + '/new', 'w')",
}
EASY = {**FILES, **NETWORK, **PROCESSES}


@dataclass(frozen=True)
class Aims:
    text: str
    file: Path
    folder: Path
    process: int


@pytest.fixture
def aims(tmp_path: Path) -> Iterator[Aims]:
    folder = tmp_path / "outside"
    folder.mkdir()
    (file := folder / "file").write_text("secret")
    file.chmod(0o640)
    name = f"sandbox test {os.getpid()}"
    with (
        tempfile.TemporaryDirectory() as short,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as shared,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as in_folder,
        socket.socket(socket.AF_UNIX) as abstract,
        bystander() as process,
    ):
        udp.bind(("127.0.0.1", 0))
        in_folder.bind(f"{short}/s")
        abstract.bind("\0" + name)
        for server in (in_folder, abstract):
            server.listen()
        text = json.dumps(
            {
                "file": str(file), "folder": str(folder), "shared": shared.name,
                "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1],
                "socket": f"{short}/s", "abstract": name, "process": process.pid, "grader": os.getpid(),
            }
        )  # fmt: skip
        yield Aims(text, file, folder, process.pid)
        udp.setblocking(False)
        assert process.poll() is None


def attempt(isolation: Isolation, code: str, aims: Aims, tmp_path: Path) -> str:
    confined = run(isolation, HEAD + "    " + code + TAIL, tmp_path / "scratch", arguments=[aims.text])
    return confined.output()


@pytest.mark.parametrize("kind", CLOSED)
@pytest.mark.parametrize("what", [*EASY, *ALWAYS_HARD])
def test_a_confined_process_cannot(what: str, kind: type[Isolation], aims: Aims, tmp_path: Path) -> None:
    if what == "send by UDP" and kind is Bubblewrap:
        pytest.skip(
            "its network is its own: what is sent there arrives nowhere; see the test of what arrives"
        )
    before = aims.file.stat()
    said = attempt(usable(kind), {**EASY, **ALWAYS_HARD}[what], aims, tmp_path)
    assert said.startswith("refused:")
    after = aims.file.stat()
    assert (after.st_mode, after.st_size, after.st_mtime) == (before.st_mode, before.st_size, before.st_mtime)
    assert os.listdir(aims.folder) == ["file"]


@pytest.mark.parametrize("what", EASY)
def test_with_limits_only_the_same_attempt_succeeds(what: str, aims: Aims, tmp_path: Path) -> None:
    if what == "change a file's attributes" and not _has_attributes(aims.file):
        pytest.skip("this file system has no attributes")
    assert attempt(usable(LimitsOnly), EASY[what], aims, tmp_path) == "did it\n"


def _has_attributes(file: Path) -> bool:
    try:
        os.setxattr(file, "user.try", b"1")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", CLOSED)
def test_what_is_sent_by_udp_does_not_arrive(kind: type[Isolation], tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        port = udp.getsockname()[1]
        code = f"""
import socket
try:
    print(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port})))
except OSError as error:
    print("refused", error)
"""
        assert run(usable(kind), code, tmp_path / "scratch").output()
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(1)


def test_in_bubblewrap_a_process_has_a_network_of_its_own(tmp_path: Path) -> None:
    code = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        client.send(b"hello")
        print(server.accept()[0].recv(10))
"""
    assert run(usable(Bubblewrap), code, tmp_path / "scratch").output() == "b'hello'\n"


def test_with_landlock_two_joined_sockets_work(tmp_path: Path) -> None:
    code = "import socket; a, b = socket.socketpair(); a.send(b'hello'); print(b.recv(10))"
    assert run(usable(LandlockAndSeccomp), code, tmp_path / "scratch").output() == "b'hello'\n"


@pytest.mark.parametrize("kind", CLOSED)
def test_a_signal_to_all_processes_reaches_none_outside(kind: type[Isolation], tmp_path: Path) -> None:
    isolation = usable(kind)
    if kind is LandlockAndSeccomp and os.geteuid() == 0:
        pytest.skip("not as root: were it to fail, it would end every process of the machine")
    with bystander() as process:
        probe = f"import os\ntry: os.kill({process.pid}, 0)\nexcept OSError: print('kept in')"
        assert run(isolation, probe, tmp_path / "scratch").output() == "kept in\n"
        code = "import os\ntry: os.kill(-1, 15)\nexcept ProcessLookupError: pass\nprint('here')"
        assert run(isolation, code, tmp_path / "scratch").output() == "here\n"
        assert process.poll() is None


@pytest.mark.parametrize("kind", CLOSED)
def test_other_processes_are_not_listed(kind: type[Isolation], tmp_path: Path) -> None:
    code = """
import os
try:
    print([name for name in os.listdir("/proc") if name.isdigit() and int(name) > 9])
except PermissionError:
    print([])
"""
    assert run(usable(kind), code, tmp_path / "scratch").output() == "[]\n"


@pytest.mark.parametrize("kind", CLOSED)
def test_shared_memory_ends_with_the_process(kind: type[Isolation], tmp_path: Path) -> None:
    name = f"sandbox-test-{os.getpid()}"
    code = f"try: open('/dev/shm/{name}', 'w').write('x')\nexcept OSError: pass\nprint('ended')"
    assert run(usable(kind), code, tmp_path / "scratch").output() == "ended\n"
    assert not Path("/dev/shm", name).exists()
