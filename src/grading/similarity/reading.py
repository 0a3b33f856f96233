"""Reads the functions of the tasks out of a submission, whatever state it is in."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.lessons.outline import Function, functions, parse, read_source, stub_message
from coursekit.manifest import FunctionRef
from grading.similarity.tokens import Token, tokens
from grading.similarity.winnowing import Fingerprint, fingerprints

LARGEST = 1_000_000  # bytes of a file: ten times the longest that a learner writes


@dataclass(frozen=True)
class Unread:
    """A file that can't be compared, and why."""

    submission: str
    file: str
    why: str


@dataclass(frozen=True)
class Written:
    """A function that a learner wrote: its text, which begins on ``line`` of its file, and its fingerprints."""

    ref: FunctionRef
    line: int
    text: str
    prints: tuple[Fingerprint, ...]

    @cached_property
    def hashes(self) -> frozenset[int]:
        return frozenset(each.hash for each in self.prints)


def written(
    submission: str, package: Path, refs: Iterable[FunctionRef]
) -> tuple[dict[FunctionRef, Written], list[Unread]]:
    """The functions that have code, and the files that can't be read; a file that is missing is neither."""
    found: dict[FunctionRef, Written] = {}
    unread = []
    for file, wanted in _by_file(refs).items():
        try:
            source, tree = _read(package, file)
            nodes = functions(tree)
            for ref in wanted:
                if ref.qualname in nodes and stub_message(node := nodes[ref.qualname][-1]) is None:
                    found[ref] = _function(ref, source, node)
        except FileNotFoundError:
            continue
        except OSError as error:
            unread.append(Unread(submission, file, f"can't read {file}: {error.strerror}"))
        except CourseError as error:
            unread.append(Unread(submission, file, str(error)))
        except (RecursionError, MemoryError):
            unread.append(Unread(submission, file, f"{file} is nested too deeply to be read"))
    return found, unread


def all_tokens(package: Path, refs: Iterable[FunctionRef]) -> dict[str, list[list[Token]]]:
    """By file the tokens of every function that a package has in the files of ``refs``; stubs have some too.

    Raises:
        CourseError: a file isn't Python.
    """
    found = {}
    for file in _by_file(refs):
        if (package / file).is_file():
            nodes = functions(parse(read_source(package / file, file), file))
            found[file] = [tokens(node) for each in nodes.values() for node in each]
    return found


def _by_file(refs: Iterable[FunctionRef]) -> Mapping[str, list[FunctionRef]]:
    files: dict[str, list[FunctionRef]] = {}
    for ref in refs:
        files.setdefault(ref.file, []).append(ref)
    return files


def _read(package: Path, file: str) -> tuple[str, ast.Module]:
    """The text and the tree of a file of a submission; a link or a pipe in its place is refused."""
    path = package / file
    if any(
        part.is_symlink() for part in (path, *path.parents) if part != package and package in part.parents
    ):
        raise CourseError(f"{file} is a link, which isn't followed")
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_file():
        raise CourseError(f"{file} is not a file")
    if path.stat().st_size > LARGEST:
        raise CourseError(f"{file} is larger than {LARGEST:,} bytes")
    source = read_source(path, file)
    return source, parse(source, file)


def _function(ref: FunctionRef, source: str, node: Function) -> Written:
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return Written(ref, node.lineno, text, fingerprints(tokens(node)))
