"""What a process prints, of which a bounded part is kept: the beginning and the end."""

from __future__ import annotations

from collections import deque


class Kept:
    """Takes bytes without end and keeps at most ``limit`` of them: the first half, and the last."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._taken = 0

    def take(self, part: bytes) -> None:
        self._taken += len(part)
        room = self._head_limit - len(self._head)
        self._head += part[:room]
        if rest := part[room:]:
            self._tail.append(rest)
            self._in_tail += len(rest)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._tail_limit:
            self._in_tail -= len(self._tail.popleft())

    def text(self) -> str:
        """What was kept, with a line in the middle that says how many bytes are missing; what isn't UTF-8
        becomes "�"."""
        tail = b"".join(self._tail)[-self._tail_limit :]
        dropped = self._taken - len(self._head) - len(tail)
        middle = f"\n[{dropped:,} bytes are left out here]\n".encode() if dropped else b""
        return (bytes(self._head) + middle + tail).decode(errors="replace")
