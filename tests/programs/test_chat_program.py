"""`pdm run chat`: in a pipe and in a terminal, and what it keeps of the conversation."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from programs.chat import answer, talk
from programs.chat_screen import Screen
from programs.conversation import Conversation
from programs.safe_text import safe

COMMAND = [sys.executable, "-m", "programs", "chat", "--impl", "solution"]
LIMIT = 100  # seconds; nothing here takes as long


def piped(text: str | bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *options],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        env={**os.environ, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"},
        timeout=LIMIT,
    )


def test_in_a_pipe_each_line_is_a_message_and_the_output_is_the_answers(tmp_path: Path) -> None:
    note = tmp_path / "a note.txt"
    note.write_text("The dog of the mill sleeps in a red barrel.", "utf-8")
    lines = [
        "What is the capital of France?",
        "",
        "And of Italy?",
        "/stats",
        "/reset",
        f"/documents '{note}'",
        "Where does the dog sleep?",
    ]
    done = piped("\r\n".join(lines), "--max-tokens", "24")
    errors = done.stderr.decode()
    assert done.returncode == 0, errors
    france, italy, dog = done.stdout.decode().splitlines()
    assert (france, italy) == ("The capital of France is Paris.", "The capital of Italy is Rome.")
    assert dog.startswith("The dog of the mill"), "the mill stands in the document only"
    assert "32 of them found in pages" in errors
    assert f"document 1: {note}, 43 characters" in errors
    assert "> " not in errors
    assert b"\x1b" not in done.stdout + done.stderr


def test_a_line_without_an_answer_is_explained_and_the_others_are_answered() -> None:
    lines = [b"x " * 200, b"\xff\xfe", b"/what now", b"What is the capital of France?"]
    done = piped(b"\n".join(lines), "--pages", "6", "--max-tokens", "12")
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout) == (1, b"The capital of France is Paris.\n"), errors
    assert "The message was not sent" in errors
    assert "line 2 of the input is not text in UTF-8" in errors
    assert "there is no command /what; there are: /system, " in errors
    assert "Traceback" not in errors


class Terminal:
    """A chat in a terminal of its own."""

    def __init__(self, *options: str) -> None:
        import pty

        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", COLUMNS="120")
            os.execv(sys.executable, [*COMMAND, *options])
        self.shown = b""

    def until(self, text: str, seconds: float = LIMIT) -> bool:
        """Read until a text has come, which is then taken away with all before it."""
        end = time.monotonic() + seconds
        while text.encode() not in self.shown and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.fd, 65536)
                except OSError:  # the program has ended
                    break
        before, found, rest = self.shown.partition(text.encode())
        self.shown = rest if found else before
        return bool(found)

    def type(self, text: str, then: str) -> None:
        os.write(self.fd, text.encode())
        assert self.until(then), f"{then!r} doesn't come after {text!r}: {self.shown!r}"

    def interrupt(self, then: str) -> None:
        """Press Ctrl-C until something comes: between two waits of readline, it waits for the next key."""
        for _ in range(20):
            os.write(self.fd, b"\x03")
            if self.until(then, seconds=3):
                return
        raise AssertionError(f"{then!r} doesn't come after Ctrl-C: {self.shown!r}")

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(*options: str) -> Iterator[Terminal]:
    chat = Terminal(*options)
    try:
        assert chat.until("/help lists the commands")
        assert chat.until("> ")
        yield chat
    finally:
        try:
            os.kill(chat.pid, signal.SIGKILL)
            os.waitpid(chat.pid, 0)
        except (ProcessLookupError, ChildProcessError):  # it has left by itself
            pass
        os.close(chat.fd)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_in_a_terminal_ctrl_c_stops_the_answer_and_at_the_prompt_the_second_one_leaves() -> None:
    with terminal("--max-tokens", "4000") as chat:
        chat.type("Write a very long story about a dragon.\n", "dragon.\r\n")
        assert chat.until("dragon")  # some words of the story: an answer without any doesn't count
        chat.type("\x03", "stopped")
        assert chat.until("> ")
        chat.type("What is the capital of France?\n", "Paris")
        assert chat.until("> ")
        chat.type("/stats\n", "2 answers")
        assert chat.until("> ")
        chat.type("\x1b[A\x1b[A", "What is the capital of France?")
        chat.interrupt("Ctrl-C again leaves")
        assert chat.until("> ")
        time.sleep(0.5)
        os.write(chat.fd, b"\x03")
        chat.until("nothing more, but the end")
        assert chat.code() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_in_a_terminal_ctrl_d_leaves() -> None:
    with terminal() as chat:
        os.write(chat.fd, b"\x04")
        chat.until("nothing more, but the end")
        assert chat.code() == 0


class Engine:
    """Stands for an LLM that says the same words each time; one of them can be an error, or a call."""

    def __init__(self, *words: str | BaseException | Callable[[], object], prompt_tokens: int = 5) -> None:
        self.words = words
        self.asked: list[tuple[list[dict[str, str]], list[str]]] = []
        self.reader = SimpleNamespace(read_chat=self._read)
        self.core = SimpleNamespace(max_positions=64)
        self.cancelled = 0

    def _read(self, messages: Sequence[dict[str, str]], documents: Sequence[str]) -> list[int]:
        self.asked.append((list(messages), list(documents)))
        return [1] * 5

    def begin(self, prompt: list[int], params: Any, deliver: Callable[[Any], None]) -> Any:
        from tiny_llm.engine.generation import Generation
        from tiny_llm.engine.output import Delta, FinishReason

        generation: Any = Generation(len(prompt))
        generation.completions.append(SimpleNamespace(computed=3))
        generation.futures.append(SimpleNamespace(cancel=self._cancel))
        for word in self.words:
            if isinstance(word, BaseException):
                deliver(Delta(0, error=word))
            elif callable(word):
                word()
            else:
                deliver(Delta(0, word, (7,)))
        deliver(Delta(0, finish_reason=FinishReason.STOP))
        return generation

    def _cancel(self) -> None:
        self.cancelled += 1


def conversation(*words: Any, system: str | None = None) -> tuple[Conversation, Any]:
    engine: Any = Engine(*words)
    return Conversation(engine, SimpleNamespace(max_tokens=9), system), engine  # type: ignore[arg-type]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    return Screen()


def test_the_next_message_goes_on_from_the_answer_before_it_with_the_system_message() -> None:
    talked, engine = conversation("Good", " day", system="Be short.")
    first = talked.answer("Hello", lambda text: None)
    talked.answer("Again", lambda text: None)
    assert (first.text, first.prompt_tokens, first.cached_tokens) == ("Good day", 5, 2)
    system, hello = {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}
    said, again = {"role": "assistant", "content": "Good day"}, {"role": "user", "content": "Again"}
    assert [messages for messages, _ in engine.asked] == [[system, hello], [system, hello, said, again]]
    talked.forget()
    talked.answer("Again", lambda text: None)
    assert engine.asked[-1][0] == [system, again]


def test_an_answer_that_is_stopped_stays_as_far_as_it_has_come() -> None:
    talked, engine = conversation()
    engine.words = "one", talked.stop, "two"
    turn = talked.answer("Count", lambda text: None)
    assert (turn.text, turn.finish) == ("one", None)
    assert [each["content"] for each in talked.messages] == ["Count", "one"]
    assert engine.cancelled == 1
    talked.answer("Go on", lambda text: None)
    assert len(talked.messages) == 4, "the stop before counts for one answer"


def test_a_message_whose_answer_is_stopped_before_it_begins_is_no_part_of_the_conversation() -> None:
    talked, engine = conversation()
    engine.words = talked.stop, "one"
    assert talked.answer("Count", lambda text: None).text == ""
    assert (talked.messages, talked.turns) == ([], [])


def test_an_answer_that_fails_stays_as_far_as_it_has_come_and_the_chat_goes_on(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    from tiny_llm.ragged.errors import EngineFailed

    talked, _ = conversation("one", EngineFailed("RuntimeError: no memory"))
    assert not answer(talked, "Count", screen)
    captured = capsys.readouterr()
    assert captured.out == "one\n"
    assert "the answer has failed: RuntimeError: no memory" in captured.err
    assert [each["content"] for each in talked.messages] == ["Count", "one"]


def test_a_conversation_that_is_too_long_says_what_to_do_and_loses_nothing(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    talked, engine = conversation("one")
    assert answer(talked, "Count", screen)
    engine.begin = refuse
    assert not answer(talked, "More", screen)
    errors = capsys.readouterr().err
    assert "the prompt has 70 tokens" in errors
    assert "The message was not sent; /reset forgets the conversation so far" in errors
    assert [each["content"] for each in talked.messages] == ["Count", "one"]


def refuse(*arguments: Any) -> Any:
    raise ValueError("the prompt has 70 tokens; at most 63 fit this model")


def test_what_would_control_the_terminal_is_shown_and_not_done(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    talked, _ = conversation(
        "\x1b]0;title\x07 [red]bold[/red]\n", "\u202eevil\x9b2J\r\ttab é\N{PARTY POPPER}"
    )
    assert answer(talked, "Hi", screen)
    shown = "\\x1b]0;title\\x07 [red]bold[/red]\n\\u202eevil\\x9b2J\\x0d\ttab é\N{PARTY POPPER}\n"
    assert capsys.readouterr().out == shown
    assert talked.messages[-1]["content"].startswith("\x1b]0;"), "the model gets its own words back"
    screen.note("a file [/red]\x1b[2J")
    assert capsys.readouterr().err == "a file [/red]\\x1b[2J\n"


def test_every_control_character_but_line_end_and_tab_is_escaped() -> None:
    for code in (*range(0x20), *range(0x7F, 0xA0)):
        assert safe(chr(code)) == (chr(code) if chr(code) in "\n\t" else f"\\x{code:02x}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/reset now", "/reset stands alone: 'now' has no meaning there"),
        ("/documents 'no.txt", "No closing quotation"),
        ("/documents no.txt", "there is no file or folder no.txt"),
        ("/", "there is no command /; there are: /system"),
    ],
)
def test_a_command_that_can_not_run_is_explained(
    screen: Screen, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    talked, engine = conversation("one")
    lines(screen, line)
    assert not talk(talked, screen)
    assert message in capsys.readouterr().err
    assert engine.asked == []


def test_system_message_and_documents_count_from_the_next_message_on(
    screen: Screen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("Forty pears.", "utf-8")
    talked, engine = conversation("one")
    lines(
        screen,
        "/system Be short.",
        f"/documents {note}",
        " /slash",
        "/system",
        "/documents",
        "more",
        "/quit",
        "no",
    )
    assert talk(talked, screen)
    (first, documents), (second, none) = engine.asked
    assert first == [{"role": "system", "content": "Be short."}, {"role": "user", "content": " /slash"}]
    assert [each["role"] for each in second] == ["user", "assistant", "user"]
    assert (documents, none) == (["Forty pears.\n\n"], [])
    assert "document 1: " in capsys.readouterr().err


def test_quit_leaves_the_lines_behind_it_unread(screen: Screen) -> None:
    talked, engine = conversation("one")
    lines(screen, "Hello", "/quit", "no")
    assert talk(talked, screen)
    assert len(engine.asked) == 1


def test_help_lists_every_command(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    talked, _ = conversation()
    lines(screen, "/help")
    assert talk(talked, screen)
    shown = capsys.readouterr().err
    for name in ("/system TEXT", "/documents FILE…", "/stats", "/reset", "/help", "/quit", "Ctrl-C"):
        assert name in shown


def lines(screen: Screen, *typed: str) -> None:
    """Let these lines be piped in."""
    sys.stdin = io.TextIOWrapper(io.BytesIO("\n".join(typed).encode()))
    assert not screen.interactive


def test_an_answer_without_room_for_more_says_so(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    from programs.chat import ending
    from programs.conversation import Turn
    from tiny_llm.engine.output import FinishReason

    talked, _ = conversation()
    turn = Turn(60, text="a b c", finish=FinishReason.LENGTH)
    turn.timing.stamp()
    assert "64 positions, see /reset" in ending(talked, turn)
    for _ in range(8):
        turn.timing.stamp()
    assert ending(talked, turn) == "cut off at --max-tokens 9"
