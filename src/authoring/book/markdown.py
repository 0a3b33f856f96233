"""As much of a chapter's Markdown as the book's tools need: fenced blocks, prose, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent>[\s>]*)(?P<mark>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*(?:\{#(?P<id>[\w-]+)\})?\s*$")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HTML_LINK = re.compile(r"""\b(?:href|src)=["'](?P<target>[^"']+)["']""")
_HTML_ID = re.compile(r"""\bid=["'](?P<id>[^"']+)["']""")
_CODE_SPAN = re.compile(r"(?P<mark>`+)(?P<text>[^`]+|.+?)(?P=mark)(?!`)")


@dataclass(frozen=True)
class Fence:
    """One fenced block.

    `info` is what stands after the opening marks, `line` the line of the chapter on which `text` begins (from
    1), and `follows` tells whether only empty lines stand between it and the fenced block before it.
    """

    info: str
    text: str
    line: int
    follows: bool

    @property
    def language(self) -> str:
        return re.split(r"[\s,]", self.info, maxsplit=1)[0]


@dataclass(frozen=True)
class Page:
    """One Markdown file, `name` being its path as the reader of an error message should see it."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path, name: str) -> Page:
        return cls(name, path.read_text(encoding="utf-8"))

    @cached_property
    def _parts(self) -> tuple[tuple[Fence, ...], tuple[tuple[int, str], ...]]:
        return _split(self.text)

    @property
    def fences(self) -> tuple[Fence, ...]:
        return self._parts[0]

    @property
    def prose(self) -> tuple[tuple[int, str], ...]:
        """The lines outside fenced blocks, each with its number."""
        return self._parts[1]

    @property
    def title(self) -> str | None:
        """The text of the first heading."""
        for _, line in self.prose:
            if found := _HEADING.match(line):
                return found["title"]
        return None

    def anchors(self) -> set[str]:
        """The ids that a link may name after `#`: those of the headings, as mdBook makes them, and HTML ids."""
        anchors: set[str] = set()
        for _, line in self.prose:
            anchors.update(found["id"] for found in _HTML_ID.finditer(line))
            if found := _HEADING.match(line):
                anchors.add(_free(found["id"] or _slug(found["title"]), anchors))
        return anchors

    def links(self) -> list[tuple[int, str]]:
        """The target of every link and image, with its line; code spans are no links."""
        targets = []
        for number, line in self.prose:
            bare = _CODE_SPAN.sub("code", line)
            for pattern in (_LINK, _HTML_LINK):
                targets += [(number, found["target"]) for found in pattern.finditer(bare)]
        return targets

    def code_spans(self) -> list[tuple[int, str]]:
        """The inline code, with its line."""
        return [
            (number, found["text"].strip())
            for number, line in self.prose
            for found in _CODE_SPAN.finditer(line)
        ]


def _split(text: str) -> tuple[tuple[Fence, ...], tuple[tuple[int, str], ...]]:
    fences: list[Fence] = []
    prose: list[tuple[int, str]] = []
    follows = False
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            prose.append((number, line))
            follows = follows and not line.strip(" >")
            continue
        body = []
        for _, inner in lines:
            if inner.strip(" >\t") == opening["mark"]:
                break
            body.append(inner.removeprefix(opening["indent"]))
        fences.append(Fence(opening["info"].strip(), "\n".join(body) + "\n", number + 1, follows))
        follows = True
    return tuple(fences), tuple(prose)


def _slug(title: str) -> str:
    """mdBook's id for a heading: lower case, spaces to hyphens, other marks dropped."""
    words = re.sub(r"<[^>]*>|`", "", title).strip().lower()
    return "".join(c if c.isalnum() or c in "_-" else "-" if c.isspace() else "" for c in words)


def _free(anchor: str, taken: set[str]) -> str:
    candidate, count = anchor, 0
    while candidate in taken:
        count += 1
        candidate = f"{anchor}-{count}"
    return candidate
