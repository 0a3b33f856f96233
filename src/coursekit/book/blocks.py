"""The Python blocks of a chapter: their code, what the book shows that they print, which others they build on."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType

from coursekit.book.markdown import Fence, Page
from coursekit.lessons.outline import bound_names, parse, used_names


@dataclass(frozen=True)
class Block:
    """One Python block; `number` counts from 1, `line` is the chapter's line on which the code begins.

    `shown` is what the book says that it prints, None where it doesn't say.
    """

    number: int
    code: str
    line: int
    shown: str | None

    def compile(self, filename: str) -> CodeType:
        """The code, such that a traceback names the chapter's own lines.

        Raises:
            SyntaxError: the code is not Python.
        """
        return compile("\n" * (self.line - 1) + self.code, filename, "exec")

    def prints_what_is_shown(self, printed: str) -> bool:
        """Whether `printed` is what the book shows, apart from spaces at line ends."""
        return self.shown is None or _trimmed(printed) == _trimmed(self.shown)


def blocks_of(page: Page) -> list[Block]:
    """The Python blocks of a chapter, in order."""
    places = [index for index, fence in enumerate(page.fences) if fence.language == "python"]
    return [
        Block(number, page.fences[index].text, page.fences[index].line, _shown(page.fences, index))
        for number, index in enumerate(places, 1)
    ]


def needed_for(number: int, blocks: Sequence[Block]) -> list[Block]:
    """The block of that number, and before it the blocks that bind names that it uses, or work on them.

    A name that an import binds counts only where it is bound: two blocks that both use torch have nothing in common.
    """
    trees = [parse(block.code, f"block {block.number}") for block in blocks[:number]]
    imported = {name for tree in trees for statement in tree.body for name in _imported(statement)}
    wanted, chosen = used_names(trees[-1]), [blocks[number - 1]]
    for tree, block in reversed(list(zip(trees[:-1], blocks, strict=False))):
        binds = {name for statement in tree.body for name in bound_names(statement)}
        if wanted & (binds | (used_names(tree) - imported)):
            wanted |= used_names(tree)
            chosen.append(block)
    return chosen[::-1]


def _imported(statement: ast.stmt) -> set[str]:
    return bound_names(statement) if isinstance(statement, ast.Import | ast.ImportFrom) else set()


def _shown(fences: Sequence[Fence], index: int) -> str | None:
    after = fences[index + 1] if index + 1 < len(fences) else None
    return after.text if after is not None and after.follows and after.language == "output" else None


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
