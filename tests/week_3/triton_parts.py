"""One program and the grid of Day 3.4: launches of the learner's kernel, and what each part of a past gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coursekit.check import CheckFailed, check
from coursekit.checking.objects import replaced
from coursekit.paths import Course

from .beside_triton import called_watched, counting, launch_grid
from .beside_triton_memory import FAR, NAN, Program
from .pages import UNUSED, pages_needed
from .ragged_step import WRONG_RULES, ZERO_PEAKS, RaggedStep, Seen, attend_alone, bottom_right, everything

Share = Callable[[int, int], int]
ABSURD = 1e3  # all numbers here are near 1
# exp and division of a GPU, and sums in another order.
TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def spoilt(lab: Any, meta: Any, P: int) -> Any:
    """The step's metadata, with numbers of pages that don't exist behind those that are needed."""
    table = lab.numpy(meta.block_table)
    for b, kv_len in enumerate(meta.kv_lens):
        table[b, pages_needed(kv_len, P) :] = FAR
    return replaced(meta, block_table=lab.array(table, "int32"))


def paged(lab: Any) -> Callable[..., tuple[Any, Any]]:
    """The learner's paged_attention_triton, watched, as a cache calls it: of the query, the heads are turned.

    The tables end in pages that don't exist.
    """
    function = lab.kernels.paged_attention_triton.paged_attention_triton

    def attention(
        query: Any, keys: Any, values: Any, meta: Any, scale: float, causal: bool
    ) -> tuple[Any, Any]:
        turned = query.transpose(0, 1).contiguous().transpose(0, 1)
        meta = spoilt(lab, meta, keys.shape[1])
        actual = called_watched(function, turned, keys, values, meta, scale, causal)
        if str(query.dtype).endswith("bfloat16"):
            check_widened(lab, actual)
        return actual

    return attention


def counted(lab: Any, monkeypatch: Any) -> Any:
    """Notes every launch of attend_pages from now on in `launches`: its grid, and its arguments by name; of arrays
    only the dtype."""
    module = lab.kernels.paged_attention_triton
    noted = counting(module.attend_pages)
    monkeypatch.setattr(module, "attend_pages", noted)
    return noted


def check_widened(lab: Any, results: Any) -> None:
    """None of the numbers that came of bfloat16 arrays is absurdly large."""
    __tracebackhide__ = True
    for array in results if isinstance(results, tuple) else ():
        numbers = lab.numpy(array)
        largest = np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0)
        if largest > ABSURD:
            raise CheckFailed(
                f"with bfloat16 pages, there is a {largest:.3g} in what comes out: was arithmetic done on a bfloat16 "
                "tile, which the interpreter keeps as integers? Widen first (`.to(tl.float32)`), and multiply with "
                "the given `dot`, not with `tl.dot`"
            )


@dataclass
class Launch:
    """A launch of attend_pages over a step: the past in parts of PART keys, ROWS queries a program."""

    step: RaggedStep
    causal: bool = True
    ROWS: int = 16
    TILE: int = 64
    PART: int = 128
    read: dict[Program, set[int]] = field(default_factory=dict)  # rows of the keys, [N · P · Hkv]

    @property
    def parts(self) -> int:
        return -(-max(self.step.kv_lens) // self.PART)

    @property
    def grid(self) -> tuple[int, int, int]:
        group = self.step.query.shape[1] // self.step.keys.shape[2]
        blocks = -(-max(self.step.q_lens) * group // self.ROWS)  # of queries
        return len(self.step.q_lens), blocks * self.step.keys.shape[2], self.parts

    def run(self, lab: Any) -> tuple[Any, Any]:
        """out [parts, T, H, D] and lse [parts, T, H], as the programs left them; both were NaN."""
        __tracebackhide__ = True
        step = self.step
        (T, H, D), Hkv = step.query.shape, step.keys.shape[2]
        meta = spoilt(lab, step.meta(lab), step.P)
        _, keys, values = step.arguments(lab)
        out = lab.array(np.full((self.parts, T, H, D), NAN), "float32")
        lse = lab.array(np.full((self.parts, T, H), NAN), "float32")
        arguments = (
            lab.array(step.query, step.dtype),
            keys,
            values,
            meta.cu_seqlens_q,
            meta.seq_lens_kv,
            meta.block_table,
            out,
            lse,
            T,
            H,
            Hkv,
            meta.block_table.shape[1],
            step.scale,
        )
        options = {
            "causal": self.causal,
            "P": step.P,
            "D": D,
            "WIDTH": 1 << (D - 1).bit_length(),
            "ROWS": self.ROWS,
            "TILE": self.TILE,
            "PART": self.PART,
        }
        kernel = lab.kernels.paged_attention_triton.attend_pages
        read = launch_grid(kernel, self.grid, arguments, options, (keys, values), (out, lse))
        if step.dtype == "bfloat16":
            check_widened(lab, (out, lse))
        for program, rows in read.items():
            self.read.setdefault(program, set()).update(rows)
        return out, lse

    def _check_reads(self) -> None:
        """Every program stopped at the end of the tile in which the last key lies that any of its queries sees."""
        __tracebackhide__ = True
        step, Hkv = self.step, self.step.keys.shape[2]
        group, rule = step.query.shape[1] // Hkv, bottom_right if self.causal else everything
        for (b, block, part), rows in self.read.items():
            L, S = step.q_lens[b], step.kv_lens[b]
            own = range(block // Hkv * self.ROWS, min((block // Hkv + 1) * self.ROWS, L * group))
            last = max((rule(i // group, L, S) for i in own), default=0)
            begin, end = part * self.PART, min(last, (part + 1) * self.PART)
            stop = begin + -(-max(0, end - begin) // self.TILE) * self.TILE
            table = step.tables[b]
            seen = {table[p // step.P] * step.P + p % step.P for p in range(begin, min(stop, S))}
            more = len({row // Hkv for row in rows} - seen)
            if more:
                raise CheckFailed(
                    f"program ({b}, {block}, {part}) reads {more} keys in vain: "
                    + (
                        f"its {len(own)} queries see no key from number {max(begin, last)} on"
                        if own
                        else "no query is its own, and it should read none"
                    )
                    + "; let the loop end at the largest `seen` of the program's own queries"
                )

    def expected(
        self,
        seen: Seen | None = None,
        share: Share = lambda h, group: h // group,
        scale: float | None = None,
        first: Callable[[int], int] | None = None,
        last: Callable[[int], int] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same by the oracle, part by part; `first` and `last` say otherwise where a part begins and ends."""
        step, (T, H, D) = self.step, self.step.query.shape
        rule = seen or (bottom_right if self.causal else everything)
        out, lse = np.zeros((self.parts, T, H, D)), np.full((self.parts, T, H), -np.inf)
        for part in range(self.parts):
            begin = first(part) if first else part * self.PART
            end = last(part) if last else (part + 1) * self.PART
            for b, (start, stop) in enumerate(zip(step.starts, step.starts[1:], strict=False)):
                query, key, value = step.dense(b)
                S = len(key)

                def within(i: int, L: int, _: int, S: int = S, begin: int = begin, end: int = end) -> int:
                    return max(0, min(rule(i, L, S), end, S) - begin)

                got = attend_alone(
                    query,
                    key[begin:end],
                    value[begin:end],
                    step.scale if scale is None else scale,
                    within,
                    share,
                )
                out[part, start:stop], lse[part, start:stop] = got
        return out, lse

    def check(self, lab: Any, what: str, zeros: str = "", **options: Any) -> None:
        """All parts of all tokens are right; `zeros` is the cause to name where the output is all zeros."""
        __tracebackhide__ = True
        actual, wanted = self.run(lab), self.expected()
        kept = {"the causal rule was kept, and `causal` is False": bottom_right}
        rules = WRONG_RULES if self.causal else kept
        wrong: dict[str, Callable[..., Any]] = {
            why: partial(self.expected, seen) for why, seen in rules.items()
        }
        wrong |= {
            "query head h reads key head h % Hkv; neighbours should share one, h // group": lambda: (
                self.expected(share=lambda h, group: h)
            ),
            "the scores are not scaled": lambda: self.expected(scale=1.0),
            "every part begins at key 0": lambda: self.expected(first=lambda part: 0),
            "every part goes on to the last key": lambda: self.expected(last=lambda part: 1 << 30),
        }
        for n, (name, axes) in enumerate((("out", "parts T H D"), ("lse", "parts T H"))):
            check(
                actual[n],
                wanted[n],
                name=f"{name} {what}",
                axes=axes,
                suspects={why: lambda n=n, other=other: other()[n] for why, other in wrong.items()}
                | ({zeros: np.zeros_like(wanted[n])} if zeros and n == 0 else {})
                | ({ZERO_PEAKS: np.where(np.isinf(wanted[1]), 0.0, wanted[1])} if n else {}),
                nan=f"{UNUSED}, or a program didn't write all that is its own, or a load has a mask and "
                "no `other`",
                **(TOLERANCE | options),
            )
        self._check_reads()


def check_compiles(found: dict[str, Any], name: str) -> dict[str, list[str]]:
    """The learner's function `name` compiled for a GPU; gives its products, and the PTX's matrix instructions."""
    __tracebackhide__ = True
    result = found[name]
    if "error" not in result:
        return result
    lines = [f"{name} runs in the interpreter, which takes any Python, but can't be compiled for a GPU:"]
    lines.append(f"  {result['error']}")
    if "file" in result:
        path, root = Path(result["file"]), Course.find().root
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        lines += [f"  {shown}:{result['line']}", f"    {result['text']}"]
    raise CheckFailed("\n".join(lines))
