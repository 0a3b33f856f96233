"""The metadata of a step by counting, token by token, and what the usual mistakes make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check, check_equal

from .pages import allocator_of, place_of

TENSORS = {
    "positions": ("T", "int64"),
    "slot_mapping": ("T", "int64"),
    "cu_seqlens_q": ("B+1", "int32"),
    "seq_lens_kv": ("B", "int32"),
    "block_table": ("B pages", "int32"),
    "last_rows": ("B", "int64"),
}
"""The six tensors of a ForwardMeta: their axes, and their dtypes."""

Brought = tuple[Sequence[int], int, int]
"""Of one sequence: its pages, how many tokens are in them, and how many it brings."""


def table_of(lab: Any, rows: Sequence[Sequence[int]], width: int = 0) -> Any:
    """A table int32 [R, M] on the host, filled up with the null page; M is `width`, or more if a row needs it."""
    width = max(width, *(len(row) for row in rows))
    filled = [[*row, *[0] * (width - len(row))] for row in rows]
    return lab.arrays.host_array(filled).reshape(len(rows), width)


def placed(lab: Any, P: int, pages: Sequence[int], length: int, num_pages: int = 99) -> Any:
    """A sequence with these very pages, and so many tokens in the pool."""
    sequence = lab.paged.sequence.PagedSequence(allocator_of(lab, num_pages), P)
    sequence.pages, sequence.length = list(pages), length
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


def nowhere(lab: Any, array: Any) -> Any:
    """The same array, such that it is seen when a number of it is read.

    On torch's device "meta" there are no numbers; an MLX array that is yet to be computed is computed then.
    """
    return array + 0 if lab.backend == "mlx" else array.to("meta")


def check_nowhere(lab: Any, arrays: Iterable[Any], why: str) -> None:
    """None of what `nowhere` gave was read; `why` is the failure if one was. On torch the reading itself fails."""
    __tracebackhide__ = True
    unread = all(lab.backend != "mlx" or lab.pending_operations(array) for array in arrays)
    assert unread, why


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
    """What `ForwardMeta.build` must find for R sequences; those that bring no token have no row in it.

    Counted(4, [([1, 2, 4], 8, 1), ([3, 5], 3, 2), ([6], 0, 3)]).check(lab)
    """

    P: int
    steps: Sequence[Brought]
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positions: list[int] = []
        places, starts, kv_lens, tables = list[int](), [0], list[int](), list[list[int]]()
        for pages, past, new in self.taking_part:
            for position in range(past, past + new):
                positions.append(position)
                places.append(place_of(pages, position, self.P))
            starts.append(len(positions))
            kv_lens.append(past + new)
            tables.append([page for n, page in enumerate(pages) if n * self.P < past + new])
        width = max(len(table) for table in tables)
        self.fields = {
            "positions": positions,
            "slot_mapping": places,
            "cu_seqlens_q": starts,
            "seq_lens_kv": kv_lens,
            "block_table": [table + [0] * (width - len(table)) for table in tables],
            "last_rows": [stop - 1 for stop in starts[1:]],
        }

    @property
    def taking_part(self) -> list[Brought]:
        """The sequences that bring a token at least."""
        return [step for step in self.steps if step[2]]

    @property
    def arguments(self) -> tuple[list[Sequence[int]], list[int], list[int]]:
        """Pages, lengths and q_lens of all sequences."""
        return (
            [step[0] for step in self.steps],
            [step[1] for step in self.steps],
            [step[2] for step in self.steps],
        )

    def check(self, lab: Any, spare: int = 0) -> None:
        """Build the metadata, compare all of them, and see that the arguments are as before.

        Args:
            lab: the fixture.
            spare: how many columns the table has beyond the most pages of one sequence.
        """
        __tracebackhide__ = True
        rows, lengths, q_lens = self.arguments
        tables = table_of(lab, rows, max(map(len, rows)) + spare)
        before = lab.numpy(tables)
        given = list(lengths), list(q_lens)
        try:
            meta = lab.paged.metadata.ForwardMeta.build(tables, *given, self.P, lab.device)
        except IndexError as error:
            raise CheckFailed(
                f"`build` looks up an entry that a table doesn't have ({error}); lengths {lengths}, q_lens {q_lens}"
            ) from error
        self.compare(meta)
        check_equal(tables.tolist(), before.tolist(), name="the tables, afterwards")
        check_equal(given, (lengths, q_lens), name="the lists lengths and q_lens afterwards")

    def compare(self, meta: Any) -> None:
        """Compare all of some metadata."""
        __tracebackhide__ = True
        name = "how many sequences the metadata describe: those that bring a token (counted in kv_lens)"
        check_equal(len(meta.kv_lens), len(self.taking_part), name=name)
        suspects = self.suspects()
        for name, (axes, dtype) in TENSORS.items():
            options: dict[str, Any] = {"axes": axes, "dtype": dtype, "suspects": suspects[name]}
            check(getattr(meta, name), np.array(self.fields[name]), name=name, **options)
        for name, tensor in (("starts", "cu_seqlens_q"), ("kv_lens", "seq_lens_kv")):
            numbers = getattr(meta, name)
            check_equal(numbers, self.fields[tensor], name=f"the list {name}")
            plain = all(type(number) is int for number in numbers)
            assert plain, f"{name} is for code on the host: plain integers, not elements of a tensor"

    def suspects(self) -> dict[str, dict[str, Any]]:
        """For each field, mistake -> what it would give."""
        P, steps = self.P, self.taking_part
        new = [count for _, _, count in steps]
        rows, lengths, _ = self.arguments
        most = max(map(len, rows))
        full = [[*row, *[0] * (most - len(row))] for row in rows]
        table = np.array(self.fields["block_table"])
        owners = [owner for owner, count in enumerate(new) for _ in range(count)]
        places = [(owner, p) for owner, (_, past, n) in enumerate(steps) for p in range(past, past + n)]
        return {
            "positions": {
                "positions begin at 0 in every step": [i for n in new for i in range(n)],
                "positions count through all the tokens of the step": list(range(sum(new))),
                "rows are counted from 0 through the whole step: take off the row where the sequence begins": [
                    steps[owner][1] + row for row, owner in enumerate(owners)
                ],
                "`lengths` is read in the order of the rows that take part; it has one number for every sequence": [
                    lengths[owner] + p - steps[owner][1] for owner, p in places
                ],
            },
            "slot_mapping": {
                "these are page numbers, not places": [steps[owner][0][p // P] for owner, p in places],
                "the places of the first tokens of each sequence, not of its new ones": [
                    place_of(pages, p, P) for pages, _, n in steps for p in range(n)
                ],
                "these are positions, not places": self.fields["positions"],
                "`tables` is read in the order of the rows that take part; it has one row for every sequence": [
                    full[owner][min(p // P, most - 1)] * P + p % P for owner, p in places
                ],
            },
            "cu_seqlens_q": {
                "running sums of the lengths kv_len": np.cumsum([0, *self.fields["seq_lens_kv"]])
            },
            "seq_lens_kv": {
                "only the past was counted: the new tokens are keys too": [past for _, past, _ in steps],
                "only the new tokens were counted": new,
            },
            "block_table": {
                "filled up with −1, and not with the null page 0": np.where(table == 0, -1, table),
                "all pages that are reserved, not those that this step needs": [
                    full[row] for row, (_, _, count) in enumerate(self.steps) if count
                ],
                "the sequences that bring nothing have rows, too": full,
            },
            "last_rows": {
                "one row too far: each is the first of the next sequence": self.fields["cu_seqlens_q"][1:],
                "the first row of each sequence": self.fields["cu_seqlens_q"][:-1],
                "the last position of each sequence, not the row in this step": [
                    p + n - 1 for _, p, n in steps
                ],
            },
        }
