"""`pdm run grade --gradescope OUT.zip`: the command, what it takes, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import make_course
from submitting import contents

from coursekit.cli import REFUSED, Command, execute
from coursekit.paths import Course

COMMANDS = {"grade": Command("grading.command:grade", "")}
SEED = "xyzzy-secret"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.delenv("TINY_LLM_SEED", raising=False)
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path / "course"))
    return make_course(tmp_path / "course")


@pytest.mark.usefixtures("course")
def test_the_command_says_what_it_made_and_not_the_seed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.zip"
    assert (
        execute(COMMANDS, ["grade", "--gradescope", str(out), "--week", "1", "--day", "1", "--seed", SEED])
        == 0
    )
    printed = capfd.readouterr()
    assert printed.out.startswith(f"Day 1.1, 15 points: {out} ({out.stat().st_size:,} bytes)\n")
    assert "It holds your seed" in printed.out
    assert SEED not in printed.out + printed.err
    assert execute(COMMANDS, ["grade", "--gradescope", str(out), "--week", "1", "--seed", SEED]) == 0
    assert capfd.readouterr().out.startswith("2 days, 35 points: ")


@pytest.mark.usefixtures("course")
def test_arguments_that_an_autograder_has_no_use_for_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.zip"
    valued = {
        "--roster": "r.csv",
        "--out": "grades",
        "--jobs": "2",
        "--report": "html",
        "--scheduler": "here:1",
    }
    flags = ["--similar", "--without-isolation", "--again", "--dry-run"]
    given = ["grade", str(tmp_path), *flags, *(word for pair in valued.items() for word in pair)]
    assert execute(COMMANDS, [*given, "--gradescope", str(out)]) == REFUSED
    said = " ".join(capfd.readouterr().err.split())
    for name in ("DIR", *valued, *flags):
        assert name in said
    assert not out.exists()
    assert execute(COMMANDS, ["grade"]) == REFUSED
    assert "name the folder of the submissions" in capfd.readouterr().err


@pytest.mark.usefixtures("course")
def test_all_that_an_autograder_goes_by_is_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    policy, secret, out = tmp_path / "rules.toml", tmp_path / "secret", tmp_path / "out.zip"
    policy.write_text("[[day]]\nname = '2.1'\n", encoding="utf-8")
    secret.write_text(SEED, encoding="utf-8")
    given = [
        "--week",
        "2",
        "--day",
        "1",
        "--backend",
        "torch",
        "--policy",
        str(policy),
        "--seed-file",
        str(secret),
    ]
    assert execute(COMMANDS, ["grade", "--gradescope", str(out), *given]) == 0, capfd.readouterr().err
    found = contents(out)
    assert (found["seed"].decode(), found["course.toml"]) == (SEED, policy.read_bytes())
