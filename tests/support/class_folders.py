"""Submissions in every form, for the tests of grading a class; the course is the tiny one of `courses`."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from coursekit.backends import Backend
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.submissions.layout import Layout
from grading.submissions.starter import make_layouts

COUNTING = b"def count_up(last):\n    return range(1, last + 1)\n\n\ndef total(last):\n    return 0\n"
FILES = {"src/tiny_llm/counting.py": COUNTING}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@b.c",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@b.c",
    "GIT_COMMITTER_DATE": "1770000000 +0100",
}


def torch_layout(course: Course) -> Layout:
    return make_layouts(course, load_manifest(course), Backend.TORCH)[0]


def as_folder(path: Path, files: Mapping[str, bytes] = FILES) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def as_zip(path: Path, files: Mapping[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def as_tar(path: Path, files: Mapping[str, bytes] = FILES, *others: tarfile.TarInfo, how: str = "gz") -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info in others:
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(COMPRESS[how](buffer.getvalue()))
    return path


def as_repository(path: Path, files: Mapping[str, bytes] = FILES, *options: str) -> Path:
    """A git repository whose files are committed."""
    as_folder(path, files)
    git(path, "init", "-q", *options)
    git(path, "add", "-A", "-f")
    git(path, "commit", "-q", "-m", "all", "--allow-empty")
    return path


def git(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ["git", *arguments], cwd=folder, env=GIT, check=True, capture_output=True, text=True, timeout=60
    )
    return ran.stdout.strip()
