"""A small model in 4 bits, and the same in float64 NumPy: with activations as they are, or rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from week_2.packed import Matrix

E, H, HKV, D, F, V, LAYERS, GROUP = 64, 4, 2, 32, 96, 80, 2, 32
EPS, BASE, POSITIONS = 1e-3, 500.0, 64
FAMILIES = {
    "plain": {"architecture": "llama", "tied_embeddings": True, "qkv_bias": False, "qk_norm": False},
    "biases": {"architecture": "qwen2", "tied_embeddings": False, "qkv_bias": True, "qk_norm": False},
    "norms of the heads": {
        "architecture": "qwen3",
        "tied_embeddings": True,
        "qkv_bias": False,
        "qk_norm": True,
    },
}
TIE = 2e-4
"""How near to a tie, in codes, float32 and float64 may round to different codes: 127 codes, ten roundings each."""

Rounding = Callable[[np.ndarray], np.ndarray]


def exactly(x: np.ndarray) -> np.ndarray:
    """Activations as they are."""
    return x


def in_8_bits(x: np.ndarray) -> np.ndarray:
    """Each group of 32 numbers to the nearest of 255 levels, evenly around 0, up to its largest magnitude."""
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // GROUP, GROUP)
    steps = np.abs(groups).max(axis=-1, keepdims=True) / 127
    return (np.rint(groups / np.where(steps == 0, 1, steps)) * steps).reshape(x.shape)


def in_bfloat16(x: np.ndarray) -> np.ndarray:
    """Each number to 8 significant bits, of two equally near ones to the even one."""
    share, power = np.frexp(x)
    return np.ldexp(np.rint(share * 256), power - 8)


def without_ties(x: np.ndarray) -> np.ndarray:
    """As :func:`in_8_bits`, of numbers none of which is so near to a tie that float32 might round it otherwise."""
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // GROUP, GROUP)
    codes = groups / np.abs(groups).max(axis=-1, keepdims=True) * 127
    nearest_tie = np.abs(np.abs(codes - np.floor(codes)) - 0.5).min()
    assert nearest_tie > TIE, f"these numbers come within {nearest_tie:.1e} of a tie: choose another seed"
    return in_8_bits(x)


def most_off(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How much the product [T, K] · [N, K]ᵀ may change, at most, when x is rounded: half a step for each number."""
    groups = np.abs(x.reshape(len(x), -1, GROUP)).max(axis=-1) / 127
    return np.repeat(groups / 2, GROUP, axis=1) @ np.abs(weight).T


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float = EPS) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def angles(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, float64 [T, D/2]."""
    turned = np.outer(positions, BASE ** (-np.arange(D // 2) / (D // 2)))
    return np.cos(turned), np.sin(turned)


def rotate(heads: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Heads [T, any, D], each by the angles of its token."""
    cos, sin = (table[:, None] for table in angles(positions))
    a, b = np.split(heads, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@dataclass(frozen=True)
class SmallModel:
    """The weights of a family."""

    family: str

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """By name: arrays in float64 that float32 holds exactly, and matrices in 4 bits."""
        dice, switches = np.random.default_rng(4706), FAMILIES[self.family]
        tensors: dict[str, Any] = {"embedding.weight": _table(dice), "norm.weight": _norm(dice, E)}
        if not switches["tied_embeddings"]:
            tensors["head.weight"] = _table(dice) / 8
        for i in range(LAYERS):
            block = {
                "attention_norm.weight": _norm(dice, E),
                "qkv.weight": _matrix(dice, (H + 2 * HKV) * D, E),
                "attention_out.weight": _matrix(dice, E, H * D),
                "mlp_norm.weight": _norm(dice, E),
                "gate_up.weight": _matrix(dice, 2 * F, E),
                "down.weight": _matrix(dice, E, F),
            }
            if switches["qkv_bias"]:
                block["qkv.bias"] = _single(dice.normal(size=(H + 2 * HKV) * D))
            if switches["qk_norm"]:
                block |= {f"{name}_norm.weight": _norm(dice, D) for name in ("query", "key")}
            tensors |= {f"blocks.{i}.{name}": tensor for name, tensor in block.items()}
        return tensors

    def model(self, lab: Any) -> Any:
        """The learner's `Transformer` with these weights."""
        config = lab.config.ModelConfig(
            num_layers=LAYERS,
            hidden_size=E,
            num_heads=H,
            num_kv_heads=HKV,
            head_dim=D,
            feed_forward_size=F,
            vocab_size=V,
            norm_eps=EPS,
            rope_base=BASE,
            max_positions=POSITIONS,
            bos_id=None,
            end_ids=(),
            **FAMILIES[self.family],
        )
        tensors = {
            name: each.tensor(lab) if isinstance(each, Matrix) else lab.array(each)
            for name, each in self.tensors.items()
        }
        return lab.model.Transformer(config, lab.weights.Weights(config, tensors))

    def part(self, name: str, block: int = 0) -> np.ndarray:
        """A tensor of a block, as numbers."""
        tensor = self.tensors[f"blocks.{block}.{name}"]
        return tensor.values if isinstance(tensor, Matrix) else tensor

    def before(
        self,
        x: np.ndarray,
        positions: np.ndarray,
        block: int = 0,
        rounding: Rounding = exactly,
        norm: str | None = "attention_norm",
        biased: bool = True,
        eps: float = EPS,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x [T, E] → rotated queries [T, H, D] and keys [T, Hkv, D], values [T, Hkv, D]."""
        normed = x if norm is None else rms_norm(x, self.part(f"{norm}.weight", block), eps)
        flat = rounding(normed) @ self.part("qkv.weight", block).T
        if FAMILIES[self.family]["qkv_bias"] and biased:
            flat = flat + self.part("qkv.bias", block)
        query, key, value = np.split(flat.reshape(len(x), -1, D), [H, H + HKV], axis=1)
        if FAMILIES[self.family]["qk_norm"]:
            query = rms_norm(query, self.part("query_norm.weight", block))
            key = rms_norm(key, self.part("key_norm.weight", block))
        return rotate(query, positions), rotate(key, positions), value

    def after(
        self,
        heads: np.ndarray,
        x: np.ndarray,
        block: int = 0,
        rounding: Rounding = exactly,
        norm: str | None = "mlp_norm",
        kept: tuple[bool, bool] = (True, True),
        stale: float = 0.0,
        eps: float = EPS,
    ) -> np.ndarray:
        """What attention gave [T, H·D] and x [T, E] → [T, E].

        `kept`: whether x stays, at each of the two sums. `stale`: what is in the place of gate and up already.
        """
        x = x * kept[0] + rounding(heads) @ self.part("attention_out.weight", block).T
        normed = x if norm is None else rms_norm(x, self.part(f"{norm}.weight", block), eps)
        gate, up = np.split(rounding(normed) @ self.part("gate_up.weight", block).T + stale, 2, axis=-1)
        return x * kept[1] + rounding(gate / (1 + np.exp(-gate)) * up) @ self.part("down.weight", block).T

    def logits(self, ids: list[int], rounding: Rounding = exactly, stored: Rounding = exactly) -> np.ndarray:
        """A whole sequence [L] → [L, V]. Keys and values are `stored`; what goes into the head isn't rounded."""
        positions, x = np.arange(len(ids)), self.tensors["embedding.weight"][ids]
        for block in range(LAYERS):
            query, key, value = self.before(x, positions, block, rounding)
            x = self.after(_attend(query, stored(key), stored(value)), x, block, rounding)
        head = self.tensors.get("head.weight", self.tensors["embedding.weight"])
        result: np.ndarray = rms_norm(x, self.tensors["norm.weight"]) @ head.T
        return result


def _attend(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Causal attention of a whole sequence → [L, H·D]."""
    key, value = (np.repeat(each, H // HKV, axis=1) for each in (key, value))
    scores = np.einsum("lhd,shd->hls", query, key) / np.sqrt(D)
    scores = np.where(np.tri(len(query), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hls,shd->lhd", weights, value).reshape(len(query), -1)


def _single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


def _norm(dice: np.random.Generator, width: int) -> np.ndarray:
    return _single(1 + dice.normal(size=width) / 3)


def _matrix(dice: np.random.Generator, outputs: int, width: int) -> Matrix:
    """Codes, scales and minima of weights that are spread as a model's are."""
    shape, spread = (outputs, width // GROUP), width**-0.5
    scales = (dice.uniform(0.2, 0.35, shape) * spread).astype(np.float16).astype(np.float64)
    minima = (scales * dice.uniform(-9, -6, shape)).astype(np.float16).astype(np.float64)
    return Matrix(dice.integers(0, 16, (outputs, width), np.uint8), scales, minima)


def _table(dice: np.random.Generator) -> np.ndarray:
    """[V, E] that 8 bits hold exactly: whole numbers up to 127, which is in each group, times a power of 2."""
    codes = np.clip(np.rint(dice.normal(size=(V, E)) * 45), -127, 127)
    codes[:, ::GROUP] = np.where(codes[:, ::GROUP] < 0, -127, 127)
    return codes / 64
