"""Reads git repositories: none of their settings is obeyed, and nothing outside of them is read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from class_folders import COUNTING, FILES, as_folder, as_repository, git, torch_layout
from courses import make_course

from grading.submissions.entries import Entry
from grading.submissions.layout import Layout
from grading.submissions.members import Refused
from grading.submissions.reading import read_submission

TAKEN = {"tiny_llm/counting.py": COUNTING}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return torch_layout(make_course(tmp_path / "course"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return as_repository(tmp_path / "jo")


def files(path: Path, layout: Layout) -> object:
    return read_submission(Entry(path), [layout]).files


def refusal(path: Path, layout: Layout) -> str:
    with pytest.raises(Refused) as caught:
        files(path, layout)
    return str(caught.value)


def test_a_bare_repository_is_read_as_well(tmp_path: Path, repository: Path, layout: Layout) -> None:
    git(tmp_path, "clone", "-q", "--bare", "jo", "jo.git")
    assert files(tmp_path / "jo.git", layout) == TAKEN
    assert Entry(tmp_path / "jo.git").stem == "jo"


def test_packed_objects_and_branches_are_read(repository: Path, layout: Layout) -> None:
    git(repository, "gc", "-q")
    git(repository, "pack-refs", "--all")
    assert files(repository, layout) == TAKEN


def test_a_branch_of_its_own_or_none_may_be_checked_out(repository: Path, layout: Layout) -> None:
    git(repository, "checkout", "-q", "-b", "feature/day-1.2_a")
    as_folder(repository, {"src/tiny_llm/counting.py": b"new"})
    git(repository, "commit", "-q", "-a", "-m", "new")
    assert files(repository, layout) == {"tiny_llm/counting.py": b"new"}
    git(repository, "checkout", "-q", "--detach", "HEAD~1")
    assert files(repository, layout) == TAKEN


def test_a_shallow_clone_is_read(tmp_path: Path, repository: Path, layout: Layout) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "again")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    assert files(tmp_path / "shallow", layout) == TAKEN


def test_nothing_of_the_learners_settings_runs(tmp_path: Path, repository: Path, layout: Layout) -> None:
    trace = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho x >> {trace}\ncat\n", encoding="utf-8")
    script.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "filter.x.smudge",
        "filter.x.clean",
        "diff.x.textconv",
    ):
        git(repository, "config", name, str(script))
    git(repository, "config", "filter.x.required", "true")
    git(repository, "config", "core.hooksPath", str(tmp_path))
    (repository / ".gitattributes").write_text("*.py filter=x diff=x\n", encoding="utf-8")
    for hook in ("post-checkout", "post-index-change", "pre-commit"):
        shutil.copy(script, repository / ".git/hooks" / hook)
    trace.unlink(missing_ok=True)
    assert files(repository, layout) == TAKEN
    assert not trace.exists()


def test_settings_that_git_refuses_do_no_harm(repository: Path, layout: Layout) -> None:
    (repository / ".git/config").write_text("[core\nnonsense", encoding="utf-8")
    assert files(repository, layout) == TAKEN


def test_a_repository_that_promises_objects_fetches_none(
    tmp_path: Path, repository: Path, layout: Layout
) -> None:
    trace = tmp_path / "ran"
    blob = git(repository, "rev-parse", "HEAD:src/tiny_llm/counting.py")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    git(repository, "config", "core.repositoryFormatVersion", "1")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.url", f"ext::sh -c touch% {trace}")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "protocol.ext.allow", "always")
    assert refusal(repository, layout)
    assert not trace.exists()


def test_a_missing_file_is_a_refusal(repository: Path, layout: Layout) -> None:
    blob = git(repository, "rev-parse", "HEAD:src/tiny_llm/counting.py")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    assert refusal(repository, layout)


def test_a_damaged_object_is_a_refusal(repository: Path, layout: Layout) -> None:
    for name in ("HEAD", "HEAD:src/tiny_llm/counting.py", "HEAD^{tree}"):
        blob = git(repository, "rev-parse", name)
        path = repository / ".git/objects" / blob[:2] / blob[2:]
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(b"nonsense")
        assert refusal(repository, layout)
        path.write_bytes(content)
    assert files(repository, layout) == TAKEN


def test_a_repository_without_a_commit_is_refused(tmp_path: Path, layout: Layout) -> None:
    path = as_folder(tmp_path / "a")
    git(path, "init", "-q")
    assert "no commit yet" in refusal(path, layout)


@pytest.mark.parametrize("part", ["objects/info/alternates", "objects/info/http-alternates", "commondir"])
def test_a_repository_that_borrows_from_another_one_is_refused(
    part: str, repository: Path, layout: Layout
) -> None:
    (repository / ".git/objects/info").mkdir(exist_ok=True)
    (repository / ".git" / part).write_text("/somewhere\n", encoding="utf-8")
    assert part in refusal(repository, layout)


def test_a_git_that_is_a_file_or_a_link_is_refused(tmp_path: Path, repository: Path, layout: Layout) -> None:
    other = as_folder(tmp_path / "other")
    (other / ".git").write_text(f"gitdir: {repository / '.git'}\n", encoding="utf-8")
    assert "its .git leads to another folder" in refusal(other, layout)
    (other / ".git").unlink()
    (other / ".git").symlink_to(repository / ".git")
    assert "its .git leads to another folder" in refusal(other, layout)


@pytest.mark.parametrize("part", ["objects", "refs", "refs/heads", "refs/heads/main", "HEAD"])
def test_links_in_a_repository_are_not_followed(part: str, tmp_path: Path, layout: Layout) -> None:
    repository = as_repository(tmp_path / "a", FILES, "-b", "main")
    path = repository / ".git" / part
    shutil.move(path, tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert refusal(repository, layout)


def test_packed_branches_behind_a_link_are_not_read(tmp_path: Path, repository: Path, layout: Layout) -> None:
    git(repository, "pack-refs", "--all")
    shutil.move(repository / ".git/packed-refs", tmp_path / "moved")
    (repository / ".git/packed-refs").symlink_to(tmp_path / "moved")
    assert "packed-refs" in refusal(repository, layout)


@pytest.mark.parametrize(
    "head",
    [
        "ref: ../../secret",
        "ref: refs/../../x",
        "ref: /etc/passwd",
        "ref: HEAD",
        "ref: refs/heads/",
        "nonsense",
        "",
    ],
)
def test_a_head_that_names_no_branch_is_refused(head: str, repository: Path, layout: Layout) -> None:
    (repository / ".git/HEAD").write_text(f"{head}\n", encoding="utf-8")
    assert "names no branch" in refusal(repository, layout) or "no commit yet" in refusal(repository, layout)


def test_a_head_that_is_a_pipe_is_refused(repository: Path, layout: Layout) -> None:
    (repository / ".git/HEAD").unlink()
    os.mkfifo(repository / ".git/HEAD")
    assert "HEAD is no regular file" in refusal(repository, layout)


def test_a_commit_that_is_an_option_is_never_given_to_git(repository: Path, layout: Layout) -> None:
    (repository / ".git/HEAD").write_text("--upload-pack=x\n", encoding="utf-8")
    assert "no commit yet" in refusal(repository, layout)


def test_committed_links_and_submodules_are_refused(repository: Path, layout: Layout) -> None:
    (repository / "src/tiny_llm/shapes.py").symlink_to("/etc/passwd")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "link")
    assert refusal(repository, layout) == "src/tiny_llm/shapes.py is a link"
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    git(
        repository,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{git(repository, 'rev-parse', 'HEAD')},sub",
    )
    git(repository, "commit", "-q", "-m", "sub")
    assert refusal(repository, layout) == "sub is neither a file nor a folder"


def test_replacements_of_objects_are_not_seen(repository: Path, layout: Layout) -> None:
    old = git(repository, "rev-parse", "HEAD:src/tiny_llm/counting.py")
    (repository / "other").write_bytes(b"other")
    git(repository, "replace", old, git(repository, "hash-object", "-w", "other"))
    assert files(repository, layout) == TAKEN


def test_file_names_in_a_repository_may_be_strange(tmp_path: Path, layout: Layout) -> None:
    strange = {'a\nb\t"c" ä': b"", "ü" * 127: b"", "-x": b""}
    assert files(as_repository(tmp_path / "a", {**FILES, **strange}), layout) == TAKEN


def test_nothing_is_left_in_the_repository_or_the_temporary_folder(
    tmp_path: Path, repository: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = {path: path.stat().st_mtime_ns for path in repository.rglob("*")}
    assert files(repository, layout) == TAKEN
    assert {path: path.stat().st_mtime_ns for path in repository.rglob("*")} == before
    assert not list((tmp_path / "tmp").iterdir())
