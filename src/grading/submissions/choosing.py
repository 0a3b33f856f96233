"""Where in a submission the learner's package lies: the layout of the course, one folder deeper, or loose files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from coursekit.paths import PACKAGES
from grading.submissions.layout import Layout
from grading.submissions.members import Refused, shown

DEEPEST = 2
"""How many folders may lie around the package, ``src`` not counted: a clone's own, and the learner's."""
REFERENCE = "solutions"


def find_files(paths: Collection[str], layout: Layout, may_be_loose: bool = True) -> dict[str, str]:
    """The files of one package in a submission.

    They lie in a folder of the package's name that has a file that counts, in ``src`` rather than elsewhere;
    where there is none, they are loose.

    Args:
        paths: all files of the submission, by their clean paths.
        layout: the package.
        may_be_loose: whether files outside of such a folder are looked at.

    Returns:
        By path within the package, the path in the submission; empty where the submission has nothing of it.

    Raises:
        Refused: there is more than one such folder.
    """
    folders = _folders(paths, layout)
    if folders:
        best = min(folders.values())
        first, *others = sorted(folder for folder, rank in folders.items() if rank == best)
        if others:
            raise Refused(f"it holds {layout.package} twice: {shown(first)} and {shown(others[0])}")
        return _under(first, paths)
    return _loose(paths, layout) if may_be_loose else {}


def _folders(paths: Collection[str], layout: Layout) -> dict[str, tuple[int, bool]]:
    """The folders that may be the package, each with its rank: the lowest is taken."""
    found = {}
    for path in paths:
        parts = path.split("/")
        for place in range(len(parts) - 1):
            around = parts[:place]
            in_src = bool(around) and around[-1] == "src"
            depth = len(around) - in_src
            counts = "/".join(parts[place + 1 :]) in layout.counted
            if parts[place] == layout.package and counts and depth <= DEEPEST and REFERENCE not in around:
                found["/".join(parts[: place + 1])] = (depth, not in_src)
    return found


def _under(folder: str, paths: Collection[str]) -> dict[str, str]:
    return {path.removeprefix(f"{folder}/"): path for path in paths if path.startswith(f"{folder}/")}


def _loose(paths: Collection[str], layout: Layout) -> dict[str, str]:
    """Files without the package's folder: at the top, or all in one folder; the folders between may be gone."""
    tops = {path.split("/")[0] for path in paths}
    if len(tops) == 1 and not tops & {*paths, *PACKAGES}:
        folder = next(iter(tops))
        inner = _loose([path.removeprefix(f"{folder}/") for path in paths], layout)
        return {file: f"{folder}/{path}" for file, path in inner.items()}
    found = {path: path for path in paths if path in layout.starter}
    for path in paths:
        file = layout.by_name.get(path)
        if file is not None and file not in found:
            found[file] = path
    return found if layout.counted & found.keys() else {}


def strangers(files: Collection[str], layout: Layout) -> list[str]:
    """The Python files of a package that the course doesn't know: the tests can't take account of them."""
    return sorted(
        file for file in files if PurePosixPath(file).suffix == ".py" and file not in layout.starter
    )
