"""The model of Day 1.5 a second time: float64 NumPy, one token and one head after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

# No two sizes are equal, and H·D is not E, so that a mixed-up axis can't pass.
B, L, E, H, HKV, D, F, V, LAYERS = 2, 5, 20, 6, 2, 8, 28, 37, 3
MAX_POSITIONS = 24
ROPE_BASE = 500.0
EPS = 1e-3  # large enough that leaving it out shows

FAMILIES = {
    "llama": {"architecture": "llama", "tied_embeddings": False, "qkv_bias": False, "qk_norm": False},
    "qwen2": {"architecture": "qwen2", "tied_embeddings": True, "qkv_bias": True, "qk_norm": False},
    "qwen3": {"architecture": "qwen3", "tied_embeddings": False, "qkv_bias": False, "qk_norm": True},
}


def config_fields(family: str) -> dict[str, Any]:
    """The fields of a tiny `ModelConfig` of that family."""
    sizes = {
        "num_layers": LAYERS,
        "hidden_size": E,
        "num_heads": H,
        "num_kv_heads": HKV,
        "head_dim": D,
        "feed_forward_size": F,
        "vocab_size": V,
        "norm_eps": EPS,
        "rope_base": ROPE_BASE,
        "max_positions": MAX_POSITIONS,
        "bos_id": None,
        "end_ids": (0,),
    }
    return {**sizes, **FAMILIES[family]}


def random_tensors(family: str, seed: int = 15) -> dict[str, np.ndarray]:
    """Random weights under the course's names; float64 numbers that float32 holds exactly."""
    rng = np.random.default_rng(seed)
    switches = FAMILIES[family]
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (V, E), "norm.weight": (E,)}
    if not switches["tied_embeddings"]:
        shapes["head.weight"] = (V, E)
    for i in range(LAYERS):
        block = {
            "attention_norm.weight": (E,),
            "qkv.weight": ((H + 2 * HKV) * D, E),
            "attention_out.weight": (E, H * D),
            "mlp_norm.weight": (E,),
            "gate_up.weight": (2 * F, E),
            "down.weight": (E, F),
        }
        if switches["qkv_bias"]:
            block["qkv.bias"] = ((H + 2 * HKV) * D,)
        if switches["qk_norm"]:
            block["query_norm.weight"] = block["key_norm.weight"] = (D,)
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block.items()}
    return {name: _random(rng, name, shape) for name, shape in shapes.items()}


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.normal(size=shape) / np.sqrt(shape[-1])
    if name.endswith("norm.weight"):
        values = 1 + rng.normal(size=shape) / 2
    elif name == "embedding.weight" or name.endswith(".bias"):
        values = rng.normal(size=shape)
    return values.astype(np.float32).astype(np.float64)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float = EPS) -> np.ndarray:
    """One vector, scaled to a root mean square of 1, times the weight."""
    return x / np.sqrt(np.mean(x**2) + eps) * weight


def rms_norm_rows(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Every vector [E] of an array [B, L, E], normalized by itself."""
    return np.apply_along_axis(rms_norm, -1, x, weight)


def rotate(head: np.ndarray, position: int) -> np.ndarray:
    """One head of one token, each pair (i, i + D/2) turned by its angle as a complex number."""
    half = len(head) // 2
    pairs = head[:half] + 1j * head[half:]
    turned = pairs * np.exp(1j * position * ROPE_BASE ** (-np.arange(half) / half))
    return np.concatenate([turned.real, turned.imag])


def attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """One query [D] over the keys and values [S, D] that it may see."""
    scores = keys @ query * scale
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


def project(tensors: dict[str, np.ndarray], block: str, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """One token [E] → query [H, D], key [Hkv, D], value [Hkv, D], normalized if the family has such norms."""
    flat = tensors[f"{block}.qkv.weight"] @ x + tensors.get(f"{block}.qkv.bias", 0.0)
    heads = flat.reshape(H + 2 * HKV, D)
    query, key, value = heads[:H], heads[H : H + HKV], heads[H + HKV :]
    if f"{block}.query_norm.weight" in tensors:
        query = np.stack([rms_norm(head, tensors[f"{block}.query_norm.weight"]) for head in query])
        key = np.stack([rms_norm(head, tensors[f"{block}.key_norm.weight"]) for head in key])
    return query, key, value


def attention_layer(
    tensors: dict[str, np.ndarray], block: str, x: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """One row of tokens [L, E], standing at positions [L], each seeing itself and those before it: → [L, E]."""
    past_keys: list[np.ndarray] = []
    past_values: list[np.ndarray] = []
    out = []
    for token, position in zip(x, positions, strict=True):
        query, key, value = project(tensors, block, token)
        past_keys.append(np.stack([rotate(head, position) for head in key]))
        past_values.append(value)
        keys, values = np.stack(past_keys, axis=1), np.stack(past_values, axis=1)
        heads = [
            attend(rotate(query[h], position), keys[h // (H // HKV)], values[h // (H // HKV)], D**-0.5)
            for h in range(H)
        ]
        out.append(tensors[f"{block}.attention_out.weight"] @ np.concatenate(heads))
    return np.stack(out)


def mlp(tensors: dict[str, np.ndarray], block: str, x: np.ndarray) -> np.ndarray:
    """SwiGLU for one token [E] → [E]."""
    both = tensors[f"{block}.gate_up.weight"] @ x
    gate, up = both[:F], both[F:]
    return tensors[f"{block}.down.weight"] @ (gate / (1 + np.exp(-gate)) * up)


def stream(tensors: dict[str, np.ndarray], tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Token ids [B, L] at positions [B, L] → the stream after the last block [B, L, E]."""
    rows = []
    for ids, places in zip(tokens, positions, strict=True):
        x = tensors["embedding.weight"][ids]
        for i in range(LAYERS):
            block = f"blocks.{i}"
            normed = np.stack([rms_norm(v, tensors[f"{block}.attention_norm.weight"]) for v in x])
            x = x + attention_layer(tensors, block, normed, places)
            normed = np.stack([rms_norm(v, tensors[f"{block}.mlp_norm.weight"]) for v in x])
            x = x + np.stack([mlp(tensors, block, v) for v in normed])
        rows.append(x)
    return np.stack(rows)


def hidden(tensors: dict[str, np.ndarray], tokens: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Token ids [B, L] at positions [B, L] → the output of the last norm [B, L, E]."""
    return rms_norm_rows(stream(tensors, tokens, positions), tensors["norm.weight"])


def logits(tensors: dict[str, np.ndarray], states: np.ndarray) -> np.ndarray:
    """[..., E] → [..., V], by the head's own matrix where there is one, else by the embedding's."""
    return states @ tensors.get("head.weight", tensors["embedding.weight"]).T
