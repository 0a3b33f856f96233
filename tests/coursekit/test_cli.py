"""A room's command line in a process of its own: wrong options, outputs that are closed or full, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOM = """
from coursekit.cli import Command, run

commands = {
    "speak": Command("speaking:speak", "say it"),
    "speak up": Command("speaking:speak_up", "say it loudly"),
    "slow": Command("slow:nothing", "take long to import"),
}
run(commands)
"""

SPEAKING = '''
import atexit
import sys
import time
from typing import Annotated

import typer


def speak(
    text: Annotated[str, typer.Option(help="What.")],
    times: Annotated[int, typer.Option(min=1, max=9)] = 1,
    wait: Annotated[str, typer.Option(help="When.")] = "never",
) -> None:
    """Say it."""

    def rest() -> None:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)

    for _ in range(times):
        print(text)
    if wait == "after":
        atexit.register(rest)
    if wait == "now":
        rest()
    print("said", file=sys.stderr)


def speak_up(text: Annotated[str, typer.Option(help="What.")]) -> None:
    print(text.upper())
'''

SLOW = """
import sys
import time

print("ready", file=sys.stderr, flush=True)
try:
    time.sleep(60)
except BaseException:
    raise ImportError("numpy.core failed to import") from None
"""

needs_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no SIGINT to send to another process"
)
needs_full_device = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="only Linux has a device that is always full"
)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "speaking.py").write_text(SPEAKING, "utf-8")
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    file = tmp_path / "room.py"
    file.write_text(ROOM, "utf-8")
    return file


def run(room: Path, *arguments: str | bytes, buffered: bool = True, **kinds: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the room's command line."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    if not buffered:
        environment["PYTHONUNBUFFERED"] = "1"
    pipes: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kinds}
    done = subprocess.run([sys.executable, room, *arguments], env=environment, timeout=60, **pipes)  # type: ignore
    out, err = ((stream or b"").decode() for stream in (done.stdout, done.stderr))
    return done.returncode, out, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing option '--text'"),
        (("--text",), "Option '--text' requires an argument"),
        (("--text", "a", "b"), "unexpected extra argument"),
        (("--texts", "a"), "No such option: --texts"),
        (
            ("--text", "a", "--times", "10"),
            "Invalid value for '--times': Input should be less than or equal to 9",
        ),
        (("--text", "a", "--times", "many"), "Invalid value for '--times': Input should be a valid integer"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_command_that_lists_the_options(
    room: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(room, "speak", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.endswith(" (its options: pdm run speak --help)\n")
    assert err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows passes arguments as UTF-16, never as bytes")
def test_a_command_may_have_two_words_of_which_the_first_is_a_command_too(room: Path) -> None:
    assert run(room, "speak", "up", "--text", "a")[:2] == (0, "A\n")
    assert run(room, "speak", "--text", "up")[:2] == (0, "up\n")
    code, _, errors = run(room, "speak", "up", "--texts", "a")
    assert (code, "pdm run speak up --help" in errors) == (2, True)


def test_an_argument_of_bytes_that_are_no_text_is_refused(room: Path) -> None:
    code, out, err = run(room, "speak", "--text", b"caf\xe9")
    assert (code, out, err) == (2, "", "error: the argument 'caf?' isn't valid text in UTF-8\n")


@pytest.mark.parametrize("buffered", [True, False])
def test_when_the_reader_of_its_output_is_gone_a_command_ends_without_a_word(
    room: Path, buffered: bool
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code, _, err = run(room, "speak", "--text", "x" * 100_000, stdout=writer, buffered=buffered)
    finally:
        os.close(writer)
    assert code == 141
    assert err in ("", "said\n")


@needs_full_device
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", [("speak", "--text", "x"), ("speak", "--help"), ("--help",)], ids=str)
def test_a_full_output_is_one_line_and_exit_code_2(
    room: Path, arguments: tuple[str, ...], buffered: bool
) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = run(room, *arguments, stdout=full, buffered=buffered)
    assert code == 2
    assert err.removeprefix("said\n") == "error: can't write to standard output: No space left on device\n"


@needs_full_device
def test_messages_that_can_not_be_written_do_not_stop_the_work(room: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run(room, "speak", "--text", "x", stderr=full) == (0, "x\n", "")
        assert run(room, "speak", stderr=full) == (2, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX closes the streams")
def test_closed_outputs_take_everything(room: Path) -> None:
    for closing in (">&-", "2>&-", ">&- 2>&-"):
        command = f'"{sys.executable}" "{room}" speak --text x {closing}'
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr


@needs_signals
@pytest.mark.parametrize(
    "arguments",
    [("slow",), ("speak", "--text", "x", "--wait", "now"), ("speak", "--text", "x", "--wait", "after")],
    ids=["in an import", "at work", "when all is done"],
)
def test_ctrl_c_is_exit_code_130_and_no_traceback(room: Path, arguments: tuple[str, ...]) -> None:
    process = subprocess.Popen([sys.executable, room, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while process.stderr.readline() not in ("ready\n", ""):
        pass
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1].strip() in ("interrupted", "")
    assert process.returncode == 130
