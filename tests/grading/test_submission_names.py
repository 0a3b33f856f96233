"""Which names a submission may hold: they are looked at before anything is read."""

from __future__ import annotations

import pytest

from grading.submissions.members import (
    Bounds,
    Budget,
    Kind,
    Member,
    Refused,
    checked,
    clean_path,
    is_passed_over,
    shown,
)

SMALL = Bounds(entries=3, depth=3, name=8)


def files(*paths: str) -> list[Member]:
    return [Member(path, Kind.FILE) for path in paths]


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("a/b.py", "a/b.py"),
        ("./a//b.py", "a/b.py"),
        ("a\\b.py", "a/b.py"),
        ("a/./b/", "a/b"),
        ("..a/b..", "..a/b.."),
        ("ä b\n.py", "ä b\n.py"),
        ("", ""),
        ("1:/x", "1:/x"),
        ("x/C:/y", "x/C:/y"),
    ],
)
def test_a_path_is_written_in_one_way(path: str, clean: str) -> None:
    assert clean_path(path) == clean


@pytest.mark.parametrize(
    "path",
    ["/a", "/", "\\a", "\\\\server\\a", "C:\\x", "c:x", "./C:/x", "..", "../a", "a/../b", "a\\..\\b", "a/.."],
)
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(Refused, match=r"absolute path|leads out"):
        clean_path(path)
    with pytest.raises(Refused):
        checked(files(path), Bounds())


def test_the_files_come_with_the_paths_that_the_submission_has() -> None:
    members = [Member("a/", Kind.FOLDER), *files("a\\b.py", "./c.py")]
    assert checked(members, Bounds()) == {"a/b.py": "a\\b.py", "c.py": "./c.py"}


def test_nothing_is_no_file() -> None:
    assert checked([], Bounds()) == {}


@pytest.mark.parametrize("kind", [Kind.LINK, Kind.OTHER])
def test_links_and_devices_are_refused_by_name(kind: Kind) -> None:
    with pytest.raises(Refused, match=f"a/x is {kind}"):
        checked([*files("b"), Member("a/x", kind)], Bounds())


def test_what_a_password_hides_is_refused() -> None:
    with pytest.raises(Refused, match="a is encrypted"):
        checked([Member("a", Kind.FILE, encrypted=True)], Bounds())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/B.py", "A/b.py"),
        ("a.py", "a.py"),
        ("a.py", "./a.py"),
        ("\u00e4", "a\u0308"),
        ("STRASSE", "straße"),
    ],
)
def test_two_files_that_some_systems_take_for_one_are_refused(one: str, other: str) -> None:
    with pytest.raises(Refused, match="the same name for some systems"):
        checked(files(one, other), Bounds())


def test_folders_that_come_twice_are_no_harm() -> None:
    members = [Member("a", Kind.FOLDER), Member("a/", Kind.FOLDER), Member("A", Kind.FOLDER), *files("a/b")]
    assert checked(members, Bounds()) == {"a/b": "a/b"}


def test_as_many_entries_as_allowed_are_fine_and_one_more_is_not() -> None:
    members = [Member("d", Kind.FOLDER), *files("a", "b")]
    assert list(checked(members, SMALL)) == ["a", "b"]
    with pytest.raises(Refused, match="more than 3 files and folders"):
        checked([*members, *files(".git/x")], SMALL)


def test_entries_are_counted_while_they_come() -> None:
    def endless():
        number = 0
        while True:
            number += 1
            assert number < 10
            yield Member(f".git/{number}", Kind.FILE)

    with pytest.raises(Refused, match="more than 3"):
        checked(endless(), SMALL)


def test_depth_and_names_are_bounded_at_the_edge() -> None:
    assert checked(files("a/b/12345678"), SMALL)
    with pytest.raises(Refused, match="more than 3 folders deep"):
        checked(files("a/b/c/d"), SMALL)
    with pytest.raises(Refused, match="a name of more than 8 bytes"):
        checked(files("123456789"), SMALL)
    with pytest.raises(Refused, match="more than 8 bytes"):
        checked(files("ääääa/b"), SMALL)  # 9 bytes
    with pytest.raises(Refused, match="folders deep"):
        checked([Member("a/b/c/d", Kind.FOLDER)], SMALL)


def test_a_name_that_is_no_utf_8_is_counted_in_its_bytes() -> None:
    assert checked(files("\udcff" * 8), SMALL)
    with pytest.raises(Refused, match="more than 8 bytes"):
        checked(files("\udcff" * 9), SMALL)


@pytest.mark.parametrize("name", [".venv", ".git", "__MACOSX", "__pycache__", "Venv", "env", "node_modules"])
def test_what_systems_and_tools_leave_behind_is_passed_over_with_its_links(name: str) -> None:
    assert is_passed_over(name)
    members = [
        Member(f"x/{name}/bin/python", Kind.LINK),
        Member(f"{name}/a", Kind.FILE),
        Member(f"{name}/A", Kind.FILE),
        Member(f"{name}/deep/deep/deep/a-long-name", Kind.FILE, encrypted=True),
    ]
    assert checked([*members, *files("b")], Bounds(depth=2, name=12)) == {"b": "b"}


def test_a_path_that_leads_out_is_refused_even_where_it_would_be_passed_over() -> None:
    with pytest.raises(Refused, match="leads out"):
        checked(files(".git/../../x"), Bounds())


def test_a_budget_may_be_used_up_and_not_more() -> None:
    budget = Budget(2 << 20)
    budget.take(1 << 20)
    budget.take(1 << 20)
    assert budget.left == 0
    with pytest.raises(Refused, match="more than the 2 MiB that"):
        budget.take(1)
    with pytest.raises(Refused, match="more than the 5 bytes that"):
        Budget(5).take(6)


def test_a_name_is_shown_in_one_harmless_line() -> None:
    assert shown("a\nb\x1b[31m") == "a\ufffdb\ufffd[31m"
    assert shown("ä b") == "ä b"
    assert shown("x" * 100) == "x" * 100
    assert shown("x" * 101) == "x" * 99 + "…"
