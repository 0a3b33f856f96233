"""The configuration of a model: its sizes, and the points in which the Llama, Qwen2 and Qwen3 families differ."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from dataclasses import dataclass

from tiny_llm.loading.errors import WeightsError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""The families that the model class can run. SmolLM2 is a Llama; Qwen2.5 is a Qwen2."""

ROPE_BASES = (1.0, 1e12)
"""The least and the greatest base of the rotary frequencies. Models have 10,000 to 10,000,000."""

NORM_EPSILONS = (1e-30, 1.0)
"""The least and the greatest number that RMSNorm may add. Models have 1e-6 or 1e-5."""

MOST_HEAD_DIM = 1024
"""The widest head that is believed. Today's models have up to 512."""


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of one model. `load_weights` builds it from the model's own files."""

    architecture: str  # one of ARCHITECTURES
    num_layers: int  # transformer blocks
    hidden_size: int  # E, the width of a token's vector between blocks
    num_heads: int  # H, query heads
    num_kv_heads: int  # Hkv, key-value heads; divides num_heads
    head_dim: int  # D, the width of one head; need not be hidden_size / num_heads
    feed_forward_size: int  # F, the width inside the MLP
    vocab_size: int  # V, rows of the embedding
    norm_eps: float  # the number that RMSNorm adds to the mean square
    rope_base: float  # the base of the rotary frequencies
    max_positions: int  # the longest sequence that the model was made for, in tokens
    tied_embeddings: bool  # the head is the embedding's own matrix
    qkv_bias: bool  # the query, key and value projections have a bias (Qwen2)
    qk_norm: bool  # each query and key head goes through an RMSNorm of its own (Qwen3)
    bos_id: int | None  # the token that starts a text, for models that have one
    end_ids: tuple[int, ...]  # tokens that the model's files declare as the end; a tokenizer may know more
    rope_divisors: tuple[
        float, ...
    ] = ()  # D/2 numbers that divide the rotary frequencies (Llama 3.1), or none

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            WeightsError: an unknown architecture, a size that isn't a whole number above 0 or is absurdly large,
                heads that don't divide evenly among the key-value heads, a head size that rotary pairs can't halve,
                or the id of a token that has no row in the embedding.
        """
        if self.architecture not in ARCHITECTURES:
            raise WeightsError(
                f"the architecture {self.architecture!r} isn't supported; choose a model of one of these: "
                + ", ".join(ARCHITECTURES)
            )
        for name, most in _SIZES.items():
            _check_whole(name, getattr(self, name), 1, most)
        _check_number("norm_eps", self.norm_eps, *NORM_EPSILONS)
        _check_number("rope_base", self.rope_base, *ROPE_BASES)
        if self.num_heads % self.num_kv_heads:
            raise WeightsError(
                f"{self.num_heads} query heads can't share {self.num_kv_heads} key-value heads evenly: "
                "the model's config is broken"
            )
        if self.head_dim % 2:
            raise WeightsError(f"the model's head_dim {self.head_dim} is odd: rotary positions need pairs")
        for divisor in self.rope_divisors:
            _check_number("rope_divisors", divisor, *_DIVISORS)
        if len(self.rope_divisors) not in (0, self.head_dim // 2):
            raise WeightsError(
                f"{len(self.rope_divisors)} rope_divisors don't fit {self.head_dim // 2} rotary pairs: "
                "the model's config is broken"
            )
        for token in self.end_ids if self.bos_id is None else (self.bos_id, *self.end_ids):
            _check_whole("bos_id or end_ids", token, 0, self.vocab_size - 1)

    def to_json(self) -> str:
        """The config as one line of JSON; `from_json` reads it back."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """The config that `to_json` wrote.

        Raises:
            ValueError, TypeError: the text isn't JSON, or has other fields than this class.
        """
        fields = json.loads(text)
        lists = {name: tuple(fields[name]) for name in ("end_ids", "rope_divisors")}
        return cls(**{**fields, **lists})


_MOST = 2**31 - 1
_SIZES = {
    "num_layers": 1024,  # today's deepest models have 126
    "hidden_size": _MOST,
    "num_heads": _MOST,
    "num_kv_heads": _MOST,
    "head_dim": MOST_HEAD_DIM,
    "feed_forward_size": _MOST,
    "vocab_size": _MOST,
    "max_positions": _MOST,
}
"""How large each size may be. Layers and heads have a limit because they are counted out before a tensor is seen."""
_DIVISORS = (1e-6, 1e6)


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise WeightsError(
            f"the model's {name} is {reprlib.repr(value)}, not a whole number from {low} to {high}: "
            "its config is broken"
        )


def _check_number(name: str, value: object, low: float, high: float) -> None:
    """From `low` to `high`, so neither NaN nor infinity."""
    if not isinstance(value, int | float) or not low <= value <= high:
        raise WeightsError(
            f"the model's {name} is {reprlib.repr(value)}, not a number from {low:g} to {high:g}: "
            "its config is broken"
        )
