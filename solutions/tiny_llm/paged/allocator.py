"""Which blocks of the pool are free, and how many hold each of the others (Day 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

NULL_BLOCK = 0
"""Never handed out: what a table is filled up with, so that a stray read or write harms nobody."""


class OutOfBlocks(Exception):
    """There are not as many free blocks as were asked for. Nothing was taken."""


class BlockAllocator:
    """Hands out blocks by number and takes them back. It knows nothing of what lies in them.

    A block in use has as many references as there are sequences that hold it; at none it is free again.
    """

    def __init__(self, num_blocks: int) -> None:
        """All blocks are free, but for the null block.

        Args:
            num_blocks: how many there are, the null block included.

        Raises:
            ValueError: there is no block beside the null block.
        """
        if num_blocks < 2:
            raise ValueError(f"{num_blocks} blocks: the null block and one more are the least")
        self.num_blocks = num_blocks
        self.references = [0] * num_blocks  # by block; 0: free (or the null block)
        self.free_blocks = list(range(num_blocks - 1, NULL_BLOCK, -1))  # the next one last

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free blocks, with one reference each; all of them or none.

        A block that was freed last is handed out first: its memory may still be in a cache.

        Raises:
            OutOfBlocks: fewer than ``count`` are free; the message says how many were wanted and how many there are.
            ValueError: ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"can't allocate {count} blocks")
        if count > len(self.free_blocks):
            raise OutOfBlocks(f"{count} blocks wanted, {len(self.free_blocks)} of {self.num_blocks - 1} free")
        blocks = [self.free_blocks.pop() for _ in range(count)]
        for block in blocks:
            self.references[block] = 1
        return blocks

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each of some blocks in use: one more sequence holds them.

        Raises:
            ValueError: a block is free, the null block, or unknown, or is listed more often than it has references.
                No reference was added then.
        """
        self._require_used(blocks)
        for block in blocks:
            self.references[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Give up one reference to each block; whoever has none left is free.

        Raises:
            ValueError: a block is free already, is listed more often than it has references, is the null block, or
                unknown. Nothing was given up then.
        """
        self._require_used(blocks)
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free_blocks.append(block)

    def check(self) -> None:
        """Prove that every block but the null block is either free or in use, and none is both or lost.

        It changes nothing.

        Raises:
            RuntimeError: the books don't balance; the message says which blocks are wrong.
        """
        listed = Counter(self.free_blocks)
        if self.references[NULL_BLOCK] or listed[NULL_BLOCK]:
            raise RuntimeError(f"block {NULL_BLOCK} is the null block: never in use, never free")
        for block in range(NULL_BLOCK + 1, self.num_blocks):
            held, times = self.references[block], listed[block]
            if held < 0 or times != int(held == 0):
                raise RuntimeError(f"block {block}: {held} references, and {times} times on the free list")
        unknown = listed.keys() - range(self.num_blocks)
        if unknown:
            raise RuntimeError(f"the free list has blocks that don't exist: {sorted(unknown)}")

    def _require_used(self, blocks: Sequence[int]) -> None:
        """Refuse blocks that are not in use, or are listed more often than they are held.

        Raises:
            ValueError: there is such a block; the message names it.
        """
        for block, times in Counter(blocks).items():
            if not NULL_BLOCK < block < self.num_blocks:
                raise ValueError(f"there is no block {block} to hold: they are 1 to {self.num_blocks - 1}")
            if self.references[block] < times:
                raise ValueError(f"block {block} has {self.references[block]} references, not {times}")
