"""What a scheduler knows of a request, and what the request brings to a step (Day 4.2, given code)."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_llm.paged.running import Running


@dataclass(eq=False)
class Standing(Running):
    """A request, its sequence, and where it stands among the others. While it waits, its sequence is empty.

    Day 4.2 needs what :class:`Running` has; the rest is for Day 4.3.
    """

    level: int = 0  # its priority, and one more for each time that it has waited long
    waited: int = 0  # steps that it has waited as the first of its client and level, in all
    resumes: bool = False  # whether it was preempted
    charged: int = 0  # how many of its tokens its client has been charged for


@dataclass(frozen=True)
class Chunk:
    """What one request brings to a step. A decode is a chunk of one token."""

    running: Standing
    count: int  # tokens to compute, 1 or more
    had: int  # tokens in the pool before this step, as `Scheduler.had` notes; 0 for a request that begins
    found: int  # tokens that the page cache has found for it in this step: they stand between those two
    decode: bool  # whether it decoded before this step: then it reads nothing that others write in it
