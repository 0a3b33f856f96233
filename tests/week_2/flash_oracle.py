"""Float64 oracle of grouped attention, and inputs for Day 2.4."""

from collections.abc import Callable

import numpy as np
from shared.numbers import as_float32

HIDDEN = -np.inf

Heads = tuple[np.ndarray, np.ndarray, np.ndarray]


def causal(L: int, S: int, shift: int = 0) -> np.ndarray:
    """[L, S]: query i sees keys up to S − L + i (+ shift)."""
    late = np.arange(S)[None, :] > S - L + np.arange(L)[:, None] + shift
    return np.where(late, HIDDEN, 0.0)


def average(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """softmax(scores)·values for [..., rows, S] and [..., S, D], all keys at once; zeros for a row of −inf."""
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(peak == HIDDEN, 0.0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    return weights @ values / np.where(total == 0, 1.0, total)


def grouped(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float | None = None,
    mask: np.ndarray | None = None,
    share: Callable[[int], int] | None = None,
) -> np.ndarray:
    """Attention head by head; `share` says which key-value head a query head reads."""
    (B, H, L, D), (Hkv, S) = query.shape, key.shape[1:3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    mask = np.broadcast_to(np.zeros((L, S)) if mask is None else mask, (B, H, L, S))
    share = share or (lambda h: h // (H // Hkv))
    out = np.zeros((B, H, L, D))
    for h in range(H):
        keys, values = key[:, share(h)], value[:, share(h)]
        out[:, h] = average(query[:, h] @ keys.transpose(0, 2, 1) * scale + mask[:, h], values)
    return out


def lives_on(heads: Heads, scale: float | None, mask: np.ndarray, tile: int) -> np.ndarray:
    """What a state that outlives its tile of queries gives; L is a multiple of `tile`."""
    query, key, value = heads
    (B, H, L, D), Hkv = query.shape, key.shape[1]
    keys, values = (x.repeat(H // Hkv, axis=1) for x in (key, value))
    scores = query @ keys.swapaxes(2, 3) * (1 / np.sqrt(D) if scale is None else scale) + mask
    out = np.zeros((B, H, L, D))
    for stop in range(tile, L + 1, tile):
        # A row goes on from what the rows in its place in the earlier tiles have left.
        seen = np.concatenate([scores[:, :, end - tile : end] for end in range(tile, stop + 1, tile)], axis=3)
        out[:, :, stop - tile : stop] = average(seen, np.tile(values, (1, 1, stop // tile, 1)))
    return out


def tile_suspects(
    mask: np.ndarray | None, queries: slice, keys: slice, L: int, S: int
) -> dict[str, np.ndarray]:
    """What the usual mistakes would add to the scores of a causal tile."""
    size = queries.stop - queries.start, keys.stop - keys.start
    piece = np.zeros(size) if mask is None else mask[..., queries, keys]
    first = S - L + queries.start - keys.start + 1

    def stairs(diagonal: int) -> np.ndarray:
        late = np.arange(size[1]) >= diagonal + np.arange(size[0])[:, None]
        return piece + np.where(late, HIDDEN, 0.0)

    wrong = {
        "the causal rule is aligned at the top left: S − L is missing": stairs(first - (S - L)),
        "off by one: a token doesn't see itself (the first hidden key is one further)": stairs(first - 1),
        "off by one: a token sees the next one": stairs(first + 1),
        "the tile's `keys.start` is not taken into account": stairs(first + keys.start),
        "the tile's `queries.start` is not taken into account": stairs(first - queries.start),
        "−inf everywhere, where only a part is hidden": piece + np.full(size, HIDDEN),
    }
    if first < 0:
        wrong = {"a negative diagonal was cut off at 0: `triu` takes it as it is": stairs(0), **wrong}
    if L > S:
        wrong = {"S − L, which is negative here, was cut off at 0": stairs(first - (S - L)), **wrong}
    if mask is None:
        return wrong
    rule = np.where(np.arange(size[1]) >= first + np.arange(size[0])[:, None], HIDDEN, 0.0)
    return {
        "the causal rule is not applied where there is a mask": piece,
        "the caller's mask is lost: only the causal rule is there": np.broadcast_to(rule, piece.shape),
        **wrong,
    }


def random_heads(
    seed: int, H: int = 6, Hkv: int = 2, L: int = 5, S: int = 7, B: int = 3, D: int = 8
) -> Heads:
    """Query, keys and values."""
    rng = np.random.default_rng(seed)
    query, key, value = (rng.normal(size=size) for size in ((B, H, L, D), (B, Hkv, S, D), (B, Hkv, S, D)))
    return as_float32(query), as_float32(key), as_float32(value)


def random_mask(seed: int, *shape: int) -> np.ndarray:
    """Numbers to add to the scores, a third of them −inf, and one row of −inf alone."""
    rng = np.random.default_rng(seed)
    mask = np.where(rng.random(shape) < 1 / 3, HIDDEN, rng.normal(size=shape))
    mask[..., 1, :] = HIDDEN
    return as_float32(mask)


def suspects(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float | None = None,
    mask: np.ndarray | None = None,
    is_causal: bool = False,
) -> dict[str, Callable[[], np.ndarray]]:
    """What the usual mistakes would give."""
    (D, L), (Hkv, S) = (query.shape[3], query.shape[2]), key.shape[1:3]
    rule = causal(L, S) if is_causal else np.zeros((L, S))
    added = rule if mask is None else rule + mask
    usual = float(1 / np.sqrt(D))
    given = usual if scale is None else scale
    wrong = {
        "query head h reads key-value head h % Hkv instead of h // (H/Hkv)": lambda: grouped(
            query, key, value, scale, added, share=lambda h: h % Hkv
        ),
        "the scores are not scaled": lambda: grouped(query, key, value, 1.0, added),
        "the scores are scaled twice": lambda: grouped(query, key, value, given * given, added),
        "1/√D is used although a scale is given": lambda: grouped(query, key, value, usual, added),
    }
    if is_causal:
        top_left = causal(L, S, shift=L - S)
        wrong["the causal rule is not applied"] = lambda: grouped(query, key, value, scale, mask)
        wrong["the causal rule is aligned at the top left"] = lambda: grouped(
            query, key, value, scale, top_left if mask is None else top_left + mask
        )
    if mask is not None:
        wrong["the mask is not added"] = lambda: grouped(query, key, value, scale, rule)
        wrong["the mask is scaled together with the scores"] = lambda: grouped(
            query, key, value, scale, rule + np.where(mask == HIDDEN, HIDDEN, mask * given)
        )
    return wrong
