"""As much of a chapter's Markdown as the book's tools need: fenced blocks, prose, headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_OWN_ID = re.compile(r"\s*\{#(?P<id>[\w-]+)\}\s*$")  # mdBook's: `## Title {#id}`
_HTML_LINK = re.compile(r"""\b(?:href|src)=["'](?P<target>[^"']+)["']""")
_HTML_ID = re.compile(r"""\bid=["'](?P<id>[^"']+)["']""")
_PARSER = MarkdownIt("commonmark").enable("table")


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
    def _tokens(self) -> list[Token]:
        return _PARSER.parse(self.text)

    @cached_property
    def fences(self) -> tuple[Fence, ...]:
        lines = self.text.splitlines()
        fences: list[Fence] = []
        before: int | None = None
        for start, end, token in self._fenced:
            follows = before is not None and not any(line.strip(" >") for line in lines[before:start])
            fences.append(Fence(token.info.strip(), token.content, start + 2, follows))
            before = end
        return tuple(fences)

    @cached_property
    def prose(self) -> tuple[tuple[int, str], ...]:
        """The lines outside fenced blocks, each with its number."""
        fenced = {number for start, end, _ in self._fenced for number in range(start, end)}
        return tuple(
            (index + 1, line) for index, line in enumerate(self.text.splitlines()) if index not in fenced
        )

    @property
    def title(self) -> str | None:
        """The text of the first heading."""
        return next((_OWN_ID.sub("", heading.content) for heading in self._headings), None)

    def anchors(self) -> set[str]:
        """The ids that a link may name after `#`: those of the headings, as mdBook makes them, and HTML ids."""
        html = (token.content for _, token in self._inline if _is_html(token))
        anchors = {found["id"] for text in html for found in _HTML_ID.finditer(text)}
        for heading in self._headings:
            own = _OWN_ID.search(heading.content)
            anchors.add(_free(own["id"] if own else _slug(heading), anchors))
        return anchors

    def links(self) -> list[tuple[int, str]]:
        """The target of every link and image, with its line; code spans are no links."""
        targets = []
        for line, token in self._inline:
            if _is_html(token):
                targets += [(line, found["target"]) for found in _HTML_LINK.finditer(token.content)]
            elif token.type in ("link_open", "image"):
                targets.append((line, str(token.attrs["href" if token.type == "link_open" else "src"])))
        return targets

    def code_spans(self) -> list[tuple[int, str]]:
        """The inline code, with its line."""
        return [(line, token.content.strip()) for line, token in self._inline if token.type == "code_inline"]

    @property
    def _fenced(self) -> Iterator[tuple[int, int, Token]]:
        """Every fenced block, with its first line and the one after its last, from 0."""
        for token in self._tokens:
            if token.type == "fence" and token.map:
                yield token.map[0], token.map[1], token

    @property
    def _headings(self) -> Iterator[Token]:
        """What the headings hold."""
        pairs = zip(self._tokens, self._tokens[1:], strict=False)
        return (inner for opening, inner in pairs if opening.type == "heading_open")

    @property
    def _inline(self) -> Iterator[tuple[int, Token]]:
        """Every piece of running text and of HTML, with its line."""
        for token in self._tokens:
            line = token.map[0] + 1 if token.map else 0
            if token.type == "html_block":
                for more, text in enumerate(token.content.splitlines()):
                    yield line + more, replace(token, content=text)
            for child in token.children or []:
                yield line, child
                line += child.type in ("softbreak", "hardbreak")


def _is_html(token: Token) -> bool:
    return token.type in ("html_block", "html_inline")


def _slug(heading: Token) -> str:
    """mdBook's id for a heading: lower case, spaces to hyphens, other marks dropped."""
    words = "".join(part.content for part in heading.children or [] if part.type in ("text", "code_inline"))
    return "".join(
        c if c.isalnum() or c in "_-" else "-" if c.isspace() else "" for c in words.strip().lower()
    )


def _free(anchor: str, taken: set[str]) -> str:
    candidate, count = anchor, 0
    while candidate in taken:
        count += 1
        candidate = f"{anchor}-{count}"
    return candidate
