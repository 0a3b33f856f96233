"""The metadata of a step by counting, token by token, and what the usual mistakes make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coursekit.check import check, check_equal

from .pages import allocator_of, slot_of

TENSORS = {
    "positions": ("T", None),
    "slot_mapping": ("T", None),
    "cu_seqlens_q": ("B+1", "int32"),
    "seq_lens_kv": ("B", "int32"),
    "block_table": ("B blocks", "int32"),
    "last_rows": ("B", None),
}


def placed(lab: Any, P: int, blocks: Sequence[int], length: int, num_pages: int = 99) -> Any:
    """A sequence with these very blocks, and so many tokens in the pool."""
    sequence = lab.paged.sequence.PagedSequence(allocator_of(lab, num_pages), P)
    sequence.blocks, sequence.length = list(blocks), length
    return sequence


def check_on_meta(tensors: Mapping[str, Any], where: str) -> None:
    """Each of them is on torch's device "meta"; `where` says that it should be."""
    __tracebackhide__ = True
    elsewhere = {
        name: str(getattr(tensor, "device", "no device"))
        for name, tensor in tensors.items()
        if str(getattr(tensor, "device", None)) != "meta"
    }
    found = ", ".join(f"{name} on {device}" for name, device in elsewhere.items())
    assert not elsewhere, f"{where}; found {found}"


def without_numbers(call: Callable[[], Any], why: str) -> Any:
    """Call what may not read tensors on the device "meta"; `why` is the failure if it does."""
    __tracebackhide__ = True
    try:
        return call()
    except RuntimeError as error:
        if "meta tensor" not in str(error) and "device" not in str(error):
            raise
        raise AssertionError(f"{why} ({error})") from error


@dataclass
class Counted:
    """What `ForwardMeta.build` must find for sequences (blocks, past, new)."""

    P: int
    steps: Sequence[tuple[Sequence[int], int, int]]
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positions: list[int] = []
        slots, starts, kv_lens, tables = list[int](), [0], list[int](), list[list[int]]()
        for blocks, past, new in self.steps:
            for position in range(past, past + new):
                positions.append(position)
                slots.append(slot_of(blocks, position, self.P))
            starts.append(len(positions))
            kv_lens.append(past + new)
            tables.append([block for n, block in enumerate(blocks) if n * self.P < past + new])
        width = max(len(table) for table in tables)
        self.fields = {
            "positions": positions,
            "slot_mapping": slots,
            "cu_seqlens_q": starts,
            "seq_lens_kv": kv_lens,
            "block_table": [table + [0] * (width - len(table)) for table in tables],
            "last_rows": [stop - 1 for stop in starts[1:]],
        }

    def suspects(self) -> dict[str, dict[str, Any]]:
        """For each field, mistake -> what it would give."""
        P, steps = self.P, self.steps
        new = [count for _, _, count in steps]
        most = max(len(blocks) for blocks, _, _ in steps)
        table = np.array(self.fields["block_table"])
        return {
            "positions": {
                "positions begin at 0 in every step": [i for n in new for i in range(n)],
                "positions count through all the tokens of the step": list(range(sum(new))),
            },
            "slot_mapping": {
                "these are block numbers, not slots": [
                    b[p // P] for b, past, n in steps for p in range(past, past + n)
                ],
                "the slots of the first tokens of each sequence, not of its new ones": [
                    slot_of(b, p, P) for b, _, n in steps for p in range(n)
                ],
                "these are positions, not slots": self.fields["positions"],
            },
            "cu_seqlens_q": {
                "running sums of the lengths kv_len": np.cumsum([0, *self.fields["seq_lens_kv"]])
            },
            "seq_lens_kv": {
                "only the past was counted: the new tokens are keys too": [past for _, past, _ in steps],
                "only the new tokens were counted": new,
            },
            "block_table": {
                "filled up with −1, and not with the null block 0": np.where(table == 0, -1, table),
                "all blocks that are reserved, not those that this step needs": [
                    [*blocks, *[0] * (most - len(blocks))] for blocks, _, _ in steps
                ],
            },
            "last_rows": {
                "one row too far: each is the first of the next sequence": self.fields["cu_seqlens_q"][1:],
                "the first row of each sequence": self.fields["cu_seqlens_q"][:-1],
                "the last position of each sequence, not the row in this step": [
                    p + n - 1 for _, p, n in steps
                ],
            },
        }

    def check(self, lab: Any) -> None:
        """Build the metadata, compare all of it, and see that the sequences are as before."""
        __tracebackhide__ = True
        sequences = [placed(lab, self.P, blocks, past) for blocks, past, _ in self.steps]
        q_lens = [new for _, _, new in self.steps]
        self.compare(lab.paged.metadata.ForwardMeta.build(sequences, q_lens, lab.device))
        for sequence, (blocks, past, _) in zip(sequences, self.steps, strict=True):
            check_equal(sequence.length, past, name="a sequence's length afterwards: nothing has run yet")
            check_equal(sequence.blocks, list(blocks), name="a sequence's blocks afterwards")

    def compare(self, meta: Any, more: Mapping[str, dict[str, Any]] | None = None) -> None:
        """Compare all of some metadata; `more` has further mistakes by field, as `suspects` gives them."""
        __tracebackhide__ = True
        suspects = {name: found | (more or {}).get(name, {}) for name, found in self.suspects().items()}
        for name, (axes, dtype) in TENSORS.items():
            options: dict[str, Any] = {"axes": axes, "dtype": dtype, "suspects": suspects[name]}
            check(getattr(meta, name), np.array(self.fields[name]), name=name, **options)
        for name, tensor in (("starts", "cu_seqlens_q"), ("kv_lens", "seq_lens_kv")):
            numbers = getattr(meta, name)
            check_equal(numbers, self.fields[tensor], name=f"the list {name}")
            plain = all(type(number) is int for number in numbers)
            assert plain, f"{name} is for code on the host: plain integers, not elements of a tensor"
