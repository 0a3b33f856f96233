"""How Day 2.5's kernels are called and what comes out of them is checked: NaN wherever nothing may be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coursekit.check import check

from .decode_oracle import NAN, TILE, Past, by_query, filled_up, folded, stored, top_left, with_nan_behind
from .flash_oracle import causal, grouped, suspects
from .full_caches import spoil_unused
from .packed import on_cpu

PEAK = "the new peak"
TOTAL = "the new total"


def check_numpy(actual: Any, expected: Any, **options: Any) -> None:
    __tracebackhide__ = True
    check(actual, np.asarray(expected, np.float64), framework="numpy", **{"atol": 5e-6} | options)


def fold(
    cpu_kernel: Any, scores: np.ndarray, seen: int, peak: float, total: float, out: np.ndarray
) -> tuple[np.ndarray, ...]:
    """What the learner's fold_scores makes of a tile: weights, peak, total and out, as NumPy arrays."""
    row, gathered = stored(scores, "float32").copy(), stored(out, "float32").copy()
    state = np.float32(peak), np.float32(total)
    new = cpu_kernel.fold_scores(row, seen, np.full(TILE, NAN, np.float32), *state, gathered)
    assert isinstance(new, tuple), f"fold_scores returns the new peak and the new total, not {new!r}"
    return row, np.array([new[0]]), np.array([new[1]]), gathered


def check_fold(
    cpu_kernel: Any, scores: np.ndarray, seen: int, peak: float, total: float, out: np.ndarray, where: str
) -> None:
    __tracebackhide__ = True
    actual = fold(cpu_kernel, scores, seen, peak, total, out)
    weights, new_peak, new_total, rescaled = folded(scores[:seen], peak, total, out)
    added = weights.sum()
    own = filled_up(np.exp(scores[:seen] - scores[:seen].max()))
    behind_seen = "a score from `seen` on was used, or the sums so far don't count exp(old peak − new peak)"
    options: dict[str, Any] = {"dtype": None, "atol": 1e-6, "nan": behind_seen}
    wrong_peaks = {
        "the peak has fallen: an earlier tile had a higher score": [scores[:seen].max()],
        "the peak starts at 0: it is the higher of `peak` and the scores": [max(new_peak, 0.0)],
        "peak and total are returned in the wrong order": [new_total],
    }
    check_numpy(actual[1], [new_peak], name=f"{PEAK} {where}", suspects=wrong_peaks, **options)
    check_numpy(
        actual[0],
        filled_up(weights),
        name=f"the weights {where}",
        axes="TILE",
        suspects={
            "each tile is measured against its own peak": own,
            "the keys not seen keep weights": scores,
        },
        **options,
    )
    behind = actual[0][seen:]
    name = f"the weights of keys not seen {where} (exponentials leaves something tiny there: write 0)"
    check_numpy(behind, np.zeros(len(behind)), name=name, rtol=0, atol=0)
    wrong_totals = {
        "the total so far is not rescaled": [total + added],
        "the total so far is forgotten": [added],
        "the weights of this tile are not added": [new_total - added],
    }
    check_numpy(actual[2], [new_total], name=f"{TOTAL} {where}", suspects=wrong_totals, **options)
    check_numpy(
        actual[3],
        rescaled,
        name=f"out {where}",
        axes="D",
        suspects={"out is not rescaled to the new peak": out},
        **options,
    )


def run_parts(
    cpu_kernel: Any,
    past: Past,
    count: int,
    run: Callable[..., Any] = lambda kernel, *arguments: kernel(*arguments),
    dtype: str = "float32",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the learner's attend_parts writes to out, peaks and totals; `run` calls the kernel."""
    __tracebackhide__ = True
    (B, Hkv, G, L, D), S = past.query.shape, past.key.shape[2]
    out = np.full((B, Hkv, count, G * L, D), NAN, np.float32)
    peaks, totals = np.full((2, *out.shape[:-1]), NAN, np.float32)
    query = stored(past.query, "float32").reshape(B, Hkv, G * L, D)
    key, value = (with_nan_behind(x, dtype, axis=2) for x in (past.key, past.value))
    run(cpu_kernel.attend_parts, query, key, value, L, S, np.float32(past.scale), out, peaks, totals)
    return out, peaks, totals


def check_parts(
    cpu_kernel: Any, past: Past, count: int, where: str, dtype: str = "float32", atol: float = 2e-5
) -> None:
    __tracebackhide__ = True
    found = run_parts(cpu_kernel, past, count, dtype=dtype)
    bits = {
        "the bits of bfloat16 are taken for whole numbers: tiles pass through as_floats": past.of_bits(
            dtype
        ).parts(count)
    }
    check_found(found, past, count, where, atol, bits)


def check_found(
    found: Sequence[np.ndarray],
    past: Past,
    count: int,
    where: str,
    atol: float = 2e-5,
    more: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> None:
    """Check out, peaks and totals of a past that was cut into `count` parts; `more` are further mistakes."""
    __tracebackhide__ = True
    (_, _, G, L, _), S = past.query.shape, past.key.shape[2]
    right = past.parts(count)
    wrong = {
        **(more or {}),
        "a query doesn't see its own key": past.parts(count, causal(L, S, shift=-1)),
        "a part goes on into the keys of the next": past.parts(count, whole_tiles=True),
        "the last keys belong to no part: part p ends at (p + 1) · S // parts, not (p + 1) · (S // parts)": (
            past.parts(count, keys=S // count * count)
        ),
        "the peak starts at 0: before the first key it is −inf": past.parts(count, lowest=0.0),
        "out is divided by the total already": (
            right[0] / np.maximum(right[2], 1e-30)[..., None],
            *right[1:],
        ),
        "where a query sees nothing of a tile, its raw scores were taken for weights": (
            right[0] + past.leftovers(count),
            *right[1:],
        ),
    }
    if L > 1:
        wrong |= {
            "every query sees every key": past.parts(count, np.zeros((L, S))),
            "query i sees keys up to i instead of S − L + i": past.parts(count, top_left(L, S)),
            "query i of the Q stands for token i % L, not i // (H/Hkv)": past.parts(count, by_query(G, L, S)),
        }
    for place, (name, array) in enumerate(zip(("out", "peaks", "totals"), found, strict=True)):
        check_numpy(
            array,
            right[place],
            name=f"{name} {where}",
            atol=atol,
            suspects={cause: parts[place] for cause, parts in wrong.items()},
            nan=f"{name} was not written everywhere, or keys behind the past were read",
        )


def decode_kernel(lab: Any) -> Any:
    """The module with the track's kernel."""
    return lab.kernels.decode_attention_metal if lab.backend == "mlx" else lab.kernels.decode_attention_cpu


def fused_cache(lab: Any, capacity: int = 4) -> Any:
    cache = lab.fused_kv_cache.FusedKvCache()
    cache.first_capacity = capacity
    return cache


def attend(lab: Any, cache: Any, query: np.ndarray, keys: np.ndarray, values: np.ndarray, new: slice) -> Any:
    """Attend to tokens `new` of a sequence; the unused storage is spoiled before and after."""
    spoil_unused(cache)
    out = cache.attend(*(on_cpu(lab, x[:, :, new]) for x in (query, keys, values)), 0.4)
    spoil_unused(cache)
    return out


def check_decode(
    lab: Any,
    past: Past,
    dtype: str = "float32",
    *,
    scale: float | None = None,
    arguments: Sequence[Any] = (),
    name: str = "attention",
    nan: str | None = None,
    **options: Any,
) -> None:
    """Check the learner's decode_attention of `past`, or of `arguments` that say the same."""
    __tracebackhide__ = True
    query, key, value = past.heads(), past.key, past.value
    given = arguments or (on_cpu(lab, query), on_cpu(lab, key, dtype), on_cpu(lab, value, dtype))
    mask = causal(query.shape[2], key.shape[2])
    check(
        decode_kernel(lab).decode_attention(*given, scale=scale, **options),
        grouped(query, key, value, scale, mask),
        name=name,
        axes="B H L D",
        atol=1e-5,
        suspects=suspects(query, key, value, scale, is_causal=True),
        nan=nan,
    )
