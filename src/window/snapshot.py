"""From a note to what is sent to the page."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from window.gate import Mode
from window.ledger import TAIL_LETTERS
from window.notes import Note, Part, RequestNote, TreeNode

LABEL_LETTERS = 80
MOST_KEPT = 4096
"""So many texts are kept, so that they need not be decoded again."""
CONTROL = re.compile(r"<\|[^<>|]{1,40}\|>")
"""How control tokens are spelled in the supported families."""
ROLES = ("system", "user", "assistant", "ipython", "tool")


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: Sequence[int], skip_control_tokens: bool = True) -> str:
        """The text of some ids."""


class Texts:
    """Texts that were made before, the oldest forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, str] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], str]) -> str:
        """The text of a key; it is made the first time."""
        text = self._known.get(key)
        if text is None:
            text = self._known[key] = make()
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return text


class Snapshots:
    """Makes what is sent to the page. Text is decoded here alone: only for what is sent, and only once."""

    def __init__(self, tokenizer: Decoder, budget: int) -> None:
        """Begin without any text.

        Args:
            tokenizer: the model's.
            budget: tokens per step.
        """
        self._tokenizer = tokenizer
        self._budget = budget
        self._texts = Texts()

    def build(self, note: Note, mode: Mode, now: float) -> dict[str, Any]:
        """The snapshot of a note.

        Args:
            note: what was noted.
            mode: the gate's.
            now: seconds since the watch began, for the tokens of each second.
        """
        holders = Counter(page for request in note.requests for page in request.pages)
        return {
            "step": note.step,
            "mode": str(mode),
            "time": round(note.time, 3),
            "budget": self._budget,
            "batch": [_part(each) for each in note.batch],
            "requests": [self._request(each) for each in note.requests],
            "pages": {
                "free": note.free,
                "cached": sorted(note.cached),
                "shared": sorted(page for page, times in holders.items() if times > 1),
            },
            "tree": [self._node(each) for each in note.tree],
            "counts": note.counts,
            "rate": note.rate(now),
        }

    def _request(self, note: RequestNote) -> dict[str, Any]:
        tail = note.tail
        if not isinstance(tail, str):
            ids = tail
            tail = self._texts.get(
                ("tail", note.number, note.output), lambda: self._tokenizer.decode(list(ids))[-TAIL_LETTERS:]
            )
        return {
            "request": note.number,
            "label": f"{note.name} {self._label(note)}".strip(),
            "state": str(note.state),
            "prompt": note.prompt,
            "computed": note.computed,
            "output": note.output,
            "pages": list(note.pages),
            "waited": round(note.waited, 3),
            "preemptions": note.preemptions,
            "priority": note.priority,
            "client": note.client,
            "chunks": [list(chunk) for chunk in note.chunks],
            "text": tail,
        }

    def _label(self, note: RequestNote) -> str:
        """The beginning of what the user has said last."""
        decode, ids = self._tokenizer.decode, note.prompt_ids
        return self._texts.get(
            ("label", note.number), lambda: label(decode(list(ids), skip_control_tokens=False))
        )

    def _node(self, node: TreeNode) -> dict[str, Any]:
        ids = [token[1] if isinstance(token, tuple) else token for token in node.key]  # a salt has no text
        return {
            "page": node.page,
            "parent": node.parent,
            "tokens": len(ids),
            "text": self._texts.get(
                ("page", *ids), lambda: self._tokenizer.decode(ids, skip_control_tokens=False)
            ),
            "held": node.held,
        }


def _part(part: Part) -> dict[str, Any]:
    return {
        "request": part.number,
        "tokens": part.tokens,
        "start": part.start,
        "found": part.found,
        "decode": part.decode,
    }


def label(text: str) -> str:
    """A short name of a prompt: the beginning of what the user has said last, or of a plain prompt.

    Args:
        text: the prompt with its control tokens.
    """
    pieces = [_without_role(piece) for piece in CONTROL.split(text)]
    said = next((piece for piece in reversed(pieces) if piece), "")
    line = " ".join(said.split())
    return line if len(line) <= LABEL_LETTERS else f"{line[: LABEL_LETTERS - 1]}…"


def _without_role(piece: str) -> str:
    first, _, rest = piece.strip().partition("\n")
    return rest.strip() if first.strip() in ROLES else piece.strip()
