"""The files around the course say what is so: workflows, hooks, container, templates, CONTRIBUTING and CHANGELOG."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from authoring.book import book
from authoring.book.agreement import command_problems, link_problems
from authoring.book.commands import Command, KnownCommands
from authoring.gates import GATES
from authoring.gates.lint import HANDWRITTEN, TOOLS
from coursekit.book.markdown import Page
from coursekit.manifest import load_manifest
from coursekit.paths import PACKAGES, Course
from programs.serve import PORT

COURSE = Course.find()
ROOT = COURSE.root
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", ".github/pull_request_template.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def pages() -> dict[str, Page]:
    return {name: Page.read(ROOT / name, name) for name in PAGES}


def hooks() -> dict[str, dict[str, Any]]:
    """The hooks that run before a commit, by their names."""
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local", "a hook from elsewhere brings a version of its own"
    return {hook["name"]: hook for hook in repository["hooks"]}


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


def command_lines(workflow: Path) -> list[str]:
    return [line.strip() for step in steps(workflow) for line in step.get("run", "").splitlines()]


def written_by_hand() -> list[str]:
    """The Python files that the gate `lint` looks at, without the code that protoc wrote."""
    files = [path for place in HANDWRITTEN for path in (ROOT / place).rglob("*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return [name for name in names if not re.search(r"_pb2(_grpc)?\.py$", name)]


def test_pages_name_only_commands_days_and_files_that_are_there():
    problems = command_problems(COURSE, load_manifest(COURSE), pages())
    assert problems + link_problems(COURSE, pages()) == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_only_commands_that_are_there(workflow):
    checker = KnownCommands(COURSE, load_manifest(COURSE))
    lines = command_lines(workflow)
    commands = [Command(line, number) for number, line in enumerate(lines) if line.startswith("pdm run ")]
    assert [problem for command in commands if (problem := checker.problem(command))] == []
    assert commands or ".ci/run" in lines


def test_a_command_of_two_words_is_checked_with_its_own_options():
    checker = KnownCommands(COURSE, load_manifest(COURSE))
    assert checker.problem(Command("pdm run bench peers --with vllm --only chat", 1)) is None
    assert "--week" in (checker.problem(Command("pdm run bench peers --week 2", 1)) or "")
    assert "--with" in (checker.problem(Command("pdm run bench --with vllm", 1)) or "")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_ends_in_time(workflow):
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    assert content["concurrency"]["group"]
    assert all(0 < job["timeout-minutes"] <= 120 for job in content["jobs"].values())


def test_a_pull_request_is_checked_whole_on_linux_and_quickly_elsewhere():
    (ci,) = [path for path in WORKFLOWS if path.name == "ci.yml"]
    jobs = yaml.safe_load(ci.read_text(encoding="utf-8"))["jobs"].values()
    systems = {system for job in jobs for system in job.get("strategy", {}).get("matrix", {}).get("os", [])}
    assert systems == {"macos-latest", "windows-latest"}
    assert ".ci/run" in command_lines(ci)
    assert "pdm run test --week 1 --impl solution" in command_lines(ci)


def test_gates_named_on_pages_and_in_workflows_are_there():
    texts = [page.text for page in pages().values()] + [
        path.read_text(encoding="utf-8") for path in WORKFLOWS
    ]
    named = [
        gates for text in texts for gates in re.findall(r"pdm run check --(?:only|except) ([\w,-]+)", text)
    ]
    assert {gate for gates in named for gate in gates.split(",")} - {*GATES} == set()


def test_the_hooks_run_the_tools_of_the_gate_lint_from_the_projects_environment():
    found = hooks()
    assert found.keys() >= TOOLS.keys()
    for name, (tool, *arguments) in TOOLS.items():
        words = found[name]["entry"].split()
        assert words[:3] == ["pdm", "run", tool]
        assert [each for each in arguments if not each.startswith("--output")] == [
            each for each in words[3:] if each != "--force-exclude"
        ]
        assert found[name]["language"] == "system"
        assert "rev" not in found[name]


def test_the_hooks_look_at_what_the_gate_lint_looks_at():
    generated = [f"src/{package}/attention.py" for package in PACKAGES]
    assert all(project()["tool"]["ruff"]["extend-exclude"].count(f"src/{package}") for package in PACKAGES)
    for name, hook in hooks().items():
        if name.startswith("ruff"):
            assert "--force-exclude" in hook["entry"].split(), "ruff checks excluded files that it is named"
            assert "exclude" not in hook
        elif name in TOOLS:
            assert [file for file in written_by_hand() if re.search(hook["exclude"], file)] == []
            assert [file for file in generated if not re.search(hook["exclude"], file)] == []


def test_the_hook_of_the_starter_checks_and_writes_nothing():
    (hook,) = [hook for hook in hooks().values() if hook["id"] == "starter"]
    assert hook["entry"] == "pdm run starter --check"
    assert hook["pass_filenames"] is False
    for file in ("solutions/tiny_llm/model.py", "lessons/week_1/day_1/lesson.toml", "src/tiny_llm/model.py"):
        assert re.search(hook["files"], file)
    assert not re.search(hook["files"], "src/coursekit/lab.py")


def test_the_container_installs_as_the_readme_says_and_forwards_the_ports():
    container = json.loads(read(".devcontainer/devcontainer.json"))
    steps = container["postCreateCommand"].split(" && ")
    assert steps == ['pip install "pdm[locked]"', "pdm install"]
    assert "\n".join(["```sh", *steps, "pdm run main "]) in read("README.md")
    assert container["forwardPorts"] == [signature(book).parameters["port"].default, PORT]
    assert {int(port) for port in container["portsAttributes"]} == {*container["forwardPorts"]}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "book/src/setup.md"])
def test_commands_to_copy_work_in_every_shell(name):
    """cmd passes single quotes on; Windows PowerShell 5 has no `&&`."""
    blocks = re.findall(r"```sh\n(.*?)```", read(name), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    assert len(lines) > 1
    assert [line for line in lines if "'" in line or "&&" in line] == []


def test_set_up_and_readme_give_the_same_first_commands():
    readme, setup = (
        re.search(r"```sh\n(pip install.*?)```", read(name), re.DOTALL)
        for name in ("README.md", "book/src/setup.md")
    )
    assert readme
    assert setup
    assert readme[1] == setup[1]


def test_the_issue_form_asks_for_day_command_and_machine():
    form = yaml.safe_load(read(".github/ISSUE_TEMPLATE/day.yml"))
    fields = {field["id"]: field for field in form["body"]}
    assert fields.keys() >= {"task", "command", "doctor"}
    assert "`pdm run doctor`" in fields["doctor"]["attributes"]["label"]


def test_the_newest_released_version_in_the_changelog_is_the_projects():
    headings = re.findall(r"^## (\S+)(?: - (\d{4}-\d\d-\d\d))?$", read("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    version, date = headings[1]
    assert version == project()["project"]["version"]
    assert date


def test_the_examples_of_style_stand_in_the_files_that_they_name():
    section = read("CONTRIBUTING.md").partition("## Style")[2].partition("## Releases")[0]
    examples = re.findall(r"\(`([^`]+)`\):\n\n```\w+\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 5
    drifted = [name for name, text in examples if text not in read(name)]
    assert drifted == [], f"CONTRIBUTING.md quotes {drifted}, which read otherwise now: quote them anew"
