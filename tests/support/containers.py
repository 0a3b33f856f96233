"""Runs programs as in a container: in a root of its own, with the system, this Python, and what a test puts there.

As root where the tests run as root, and in a namespace in which only root exists otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
OF_ETC = (
    "passwd",
    "group",
    "shadow",
    "gshadow",
    "nsswitch.conf",
    "ld.so.cache",
    "alternatives",
    "login.defs",
)
SECONDS = 300


class Container:
    """A root folder; ``folders`` are those that can be written in it, by their places inside."""

    def __init__(self, home: Path, **folders: Path) -> None:
        if reason := _why_not():
            pytest.skip(f"bubblewrap can't make a container here: {reason}")
        etc = home / "etc"
        etc.mkdir(parents=True)
        for name in OF_ETC:
            _copy(Path("/etc") / name, etc / name)
        self._folders = {"/etc": etc} | {f"/{name}": path for name, path in folders.items()}

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root, with no other variables than these and a PATH; its output is one text."""
        options = _options()
        python = {prefix: Path(prefix) for prefix in (sys.prefix, sys.base_prefix)}
        for how, places in (("--ro-bind", python), ("--bind", self._folders)):
            for place, folder in places.items():
                for parent in reversed(Path(place).parents):
                    options += ["--perms", "0755", "--dir", str(parent)]  # else only root may enter it
                options += [how, str(folder), place]
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        for name, value in variables.items():
            options += ["--setenv", name, value]
        return subprocess.run(
            [*options, "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
        )


@cache
def _why_not() -> str:
    """Why there can be no container; empty where there can."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return "there is no bwrap"
    tried = subprocess.run([*_options(), "--", "true"], capture_output=True, text=True)
    return tried.stderr.strip() if tried.returncode else ""


def _options() -> list[str]:
    options = [
        "bwrap",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
        "--new-session",
    ]
    if os.geteuid() != 0:
        options += ["--unshare-user", "--uid", "0", "--gid", "0"]
    for place in map(Path, SYSTEM):
        if place.is_symlink():
            options += ["--symlink", os.readlink(place), str(place)]
        elif place.exists():
            options += ["--ro-bind", str(place), str(place)]
    options += ["--ro-bind", "/sys", "/sys", "--proc", "/proc", "--dev", "/dev"]
    options += ["--perms", "1777", "--tmpfs", "/tmp", "--perms", "0755", "--dir", "/home", "--clearenv"]
    return options


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        elif source.exists():
            shutil.copy(source, target)
    except PermissionError:  # only root reads passwords
        target.write_bytes(b"")
