"""Environments of `bench peers`, installed whole or not at all, from a package of the test's own; its catalogue."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.peers import environment
from benchmarks.peers.catalogue import Peer, choose_peers, load_peers
from benchmarks.peers.environment import Environment, own_environment
from coursekit.errors import CourseError

QUIET = Console(quiet=True)
METADATA = "Metadata-Version: 2.1\nName: warp\nVersion: {}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with two versions of a package, which pip takes from there alone."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        with zipfile.ZipFile(folder / f"warp-{version}-py3-none-any.whl", "w") as wheel:
            about = f"warp-{version}.dist-info"
            wheel.writestr("warp.py", f"VERSION = {version!r}\n")
            wheel.writestr(f"{about}/METADATA", METADATA.format(version))
            wheel.writestr(f"{about}/WHEEL", WHEEL)
            wheel.writestr(f"{about}/RECORD", "")
    return folder


@pytest.fixture
def peer(wheels: Path) -> Peer:
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    return Peer("warp", "Warp", "8-bit", Path("run_warp.py"), ("warp==1.0",), build=offline)


def version_in(made: Environment) -> str:
    done = subprocess.run(
        [made.python, "-c", "import warp; print(warp.VERSION)"],
        capture_output=True,
        text=True,
        env=own_environment(),
        check=True,
    )
    return done.stdout.strip()


def folders(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.is_dir())


def test_an_environment_is_installed_once_and_new_versions_take_the_place_of_old_ones(
    tmp_path: Path, peer: Peer, wheels: Path
) -> None:
    first = Environment(peer, tmp_path / "peers")
    assert not first.installed
    first.install(QUIET)
    assert first.installed
    assert version_in(first) == "1.0"
    made = first.python.stat().st_mtime_ns
    (wheels / "warp-1.0-py3-none-any.whl").unlink()
    first.install(QUIET)
    assert first.python.stat().st_mtime_ns == made, "it is there: pip isn't asked"
    second = Environment(replace(peer, packages=("warp==2.0",)), tmp_path / "peers")
    assert not second.installed
    second.install(QUIET)
    assert version_in(second) == "2.0"
    assert folders(tmp_path / "peers" / "warp") == [second.folder.name]


def test_the_course_s_packages_are_not_in_it(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = Environment(peer, tmp_path / "peers")
    made.install(QUIET)
    tried = [str(made.python), "-c", "import numpy"]
    done = subprocess.run(tried, capture_output=True, text=True, env=own_environment(), check=False)
    assert "No module named 'numpy'" in done.stderr


def test_what_pip_can_not_install_is_an_error_with_its_last_words_and_leaves_nothing(
    tmp_path: Path, peer: Peer
) -> None:
    made = Environment(replace(peer, packages=("warp==3.0",)), tmp_path / "peers")
    with pytest.raises(CourseError) as caught:
        made.install(QUIET)
    message = str(caught.value)
    assert message.startswith("warp could not be installed. The last that was said:\n")
    assert "No matching distribution found for warp==3.0" in message
    assert message.endswith("try again: pdm run bench peers --with warp")
    assert not made.installed
    assert folders(tmp_path / "peers" / "warp") == []


@pytest.mark.parametrize("broken", [KeyboardInterrupt, SystemExit])
def test_breaking_off_leaves_nothing_half_made_and_no_process(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch, broken: type[BaseException]
) -> None:
    started: list[subprocess.Popen[Any]] = []

    @contextmanager
    def breaking_off(*_: object) -> Iterator[Any]:
        def say(line: str) -> None:
            if "warp" in line.partition(":")[2]:
                raise broken

        yield say

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        started.append(real(*arguments, **options))
        return started[-1]

    real = subprocess.Popen
    monkeypatch.setattr(environment, "waiting", breaking_off)
    monkeypatch.setattr(environment.subprocess, "Popen", start)
    made = Environment(peer, tmp_path / "peers")
    with pytest.raises(broken):
        made.install(QUIET)
    assert folders(tmp_path / "peers" / "warp") == []
    assert len(started) == 2, "one made the environment, pip was in the middle of its work"
    assert all(process.returncode is not None for process in started)


def test_variables_may_name_the_folder_and_none_leads_to_the_course_s_packages(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    made = Environment(replace(peer, run={"WARP_CACHE": "{folder}/cache"}), tmp_path)
    variables = made.variables()
    assert variables["WARP_CACHE"] == f"{made.folder}/cache"
    assert "PYTHONPATH" not in variables
    assert variables["PATH"] == os.environ["PATH"]


def test_what_is_not_wanted_is_removed_again(tmp_path: Path, peer: Peer) -> None:
    made = Environment(replace(peer, unwanted=("warp",)), tmp_path / "peers")
    made.install(QUIET)
    with pytest.raises(subprocess.CalledProcessError):
        version_in(made)


def test_what_a_killed_command_left_is_neither_taken_for_an_environment_nor_kept(
    tmp_path: Path, peer: Peer
) -> None:
    made = Environment(peer, tmp_path / "peers")
    half_made = tmp_path / "peers" / "warp" / "half-made" / "bin"
    half_made.mkdir(parents=True)
    (half_made / "python").touch()
    assert not made.installed
    made.install(QUIET)
    assert folders(tmp_path / "peers" / "warp") == [made.folder.name]


def test_a_place_that_can_not_be_written_is_a_one_line_error(tmp_path: Path, peer: Peer) -> None:
    (tmp_path / "peers").write_text("a file")
    with pytest.raises(CourseError, match=r"^warp could not be installed in .*peers/warp/\w+: "):
        Environment(peer, tmp_path / "peers").install(QUIET)


def test_torch_comes_from_its_own_index_only_where_pip_finds_none(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "TORCH_CPU_INDEX", "the-index-of-torch")
    said: list[str] = []

    @contextmanager
    def listening(*_: object) -> Iterator[Any]:
        yield said.append

    monkeypatch.setattr(environment, "waiting", listening)
    made = Environment(replace(peer, torch="warp==1.0"), tmp_path / "peers")
    made.install(QUIET)
    assert not any("the-index-of-torch" in line for line in said)
    online = {name: value for name, value in peer.build.items() if name != "PIP_NO_INDEX"}
    online |= {"PIP_INDEX_URL": "an-index-of-nothing", "PIP_EXTRA_INDEX_URL": ""}
    missing = Environment(replace(peer, torch="engine==1.0", build=online), tmp_path / "peers")
    with pytest.raises(CourseError, match="No matching distribution found for engine==1"):
        missing.install(QUIET)
    assert any("the-index-of-torch" in line for line in said)


# The catalogue.


def test_every_engine_has_a_runner_and_exact_versions() -> None:
    peers = load_peers()
    assert set(peers) == {"transformers", "openvino", "llama.cpp", "vllm"}
    for peer in peers.values():
        assert peer.runner.is_file(), peer.name
        wanted = [*peer.packages, *([peer.torch] if peer.torch else [])]
        assert all(re.fullmatch(r"[\w-]+==[\w.+]+", each) for each in wanted), peer.name


def test_peers_are_chosen_by_name_in_the_order_of_the_catalogue() -> None:
    peers = load_peers()
    assert [peer.name for peer in choose_peers(peers, "vllm, openvino")] == ["openvino", "vllm"]
    with pytest.raises(CourseError, match="--with names ''; there are: "):
        choose_peers(peers, "")
