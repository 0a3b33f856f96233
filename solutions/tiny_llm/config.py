"""The configuration of a model: its sizes, and the points in which the Llama, Qwen2 and Qwen3 families differ."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tiny_llm.loading.errors import WeightsError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""The families that the model class can run. SmolLM2 is a Llama; Qwen2.5 is a Qwen2."""


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

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            WeightsError: an unknown architecture, a size that isn't a whole number above 0, heads that don't
                divide evenly among the key-value heads, or a head size that rotary pairs can't halve.
        """
        if self.architecture not in ARCHITECTURES:
            raise WeightsError(
                f"the architecture {self.architecture!r} isn't supported; choose a model of one of these: "
                + ", ".join(ARCHITECTURES)
            )
        for name in _SIZES:
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise WeightsError(
                    f"the model's {name} is {size!r}, not a whole number above 0: its config is broken"
                )
        for name in ("norm_eps", "rope_base"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise WeightsError(
                    f"the model's {name} is {value!r}, not a number above 0: its config is broken"
                )
        if self.num_heads % self.num_kv_heads:
            raise WeightsError(
                f"{self.num_heads} query heads can't share {self.num_kv_heads} key-value heads evenly: "
                "the model's config is broken"
            )
        if self.head_dim % 2:
            raise WeightsError(f"the model's head_dim {self.head_dim} is odd: rotary positions need pairs")

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
        return cls(**{**fields, "end_ids": tuple(fields["end_ids"])})


_SIZES = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "feed_forward_size",
    "vocab_size",
    "max_positions",
)
