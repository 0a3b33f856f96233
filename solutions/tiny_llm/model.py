"""The model: attention layer, block, transformer (Day 1.5). Later weeks leave this file as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiny_llm.arrays import Tensor, device_of, split
from tiny_llm.attention import merge_heads
from tiny_llm.config import ModelConfig
from tiny_llm.kv_cache import LayerCache, NoCache
from tiny_llm.layers import MLP, Embedding, Projection, RMSNorm
from tiny_llm.positional_encoding import Angles, Positions, RoPE
from tiny_llm.weights import Weights


class Attention:
    """The attention of one layer, with rotary positions and grouped heads."""

    def __init__(
        self,
        qkv: Projection,
        out: Projection,
        rope: RoPE,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        query_norm: RMSNorm | None = None,
        key_norm: RMSNorm | None = None,
    ) -> None:
        """Hold the parts.

        Args:
            qkv: [..., E] → [..., (H + 2·Hkv)·D]: all query heads, then all key heads, then all value heads.
            out: [..., H·D] → [..., E].
            rope: rotates queries and keys by the angles of their positions.
            num_heads: H. num_kv_heads: Hkv. head_dim: D.
            query_norm: applied to each query head before the rotation (Qwen3), or None; key_norm likewise.
        """
        self.qkv = qkv
        self.out = out
        self.rope = rope
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.scale = 1 / math.sqrt(head_dim)
        self.query_norm = query_norm
        self.key_norm = key_norm

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values, normalized if the model has such norms, and not rotated yet.

        Args:
            x: [B, L, E].

        Returns:
            query [B, L, H, D], key [B, L, Hkv, D], value [B, L, Hkv, D].
        """
        B, L, _ = x.shape
        heads = self.qkv(x).reshape(B, L, -1, self.head_dim)
        sizes = (self.num_heads, self.num_kv_heads, self.num_kv_heads)
        query, key, value = split(heads, sizes, axis=2)
        if self.query_norm is not None:
            query = self.query_norm(query)
        if self.key_norm is not None:
            key = self.key_norm(key)
        return query, key, value

    def __call__(self, x: Tensor, angles: Angles, cache: LayerCache) -> Tensor:
        """Project, rotate queries and keys, let the cache attend, project back.

        Args:
            x: [B, L, E].
            angles: cos and sin for the positions of the L tokens, from :meth:`RoPE.angles`.
            cache: the cache of this layer, which knows the earlier tokens.

        Returns:
            [B, L, E].
        """
        query, key, value = self.project(x)
        query = self.rope.rotate(query, angles)
        key = self.rope.rotate(key, angles)
        heads = cache.attend(query.swapaxes(1, 2), key.swapaxes(1, 2), value.swapaxes(1, 2), self.scale)
        return self.out(merge_heads(heads))


class TransformerBlock:
    """One layer: attention and MLP, each on a normalized copy of the stream, each added back to it."""

    def __init__(self, attention_norm: RMSNorm, attention: Attention, mlp_norm: RMSNorm, mlp: MLP) -> None:
        """Hold the parts."""
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def __call__(self, x: Tensor, angles: Angles, cache: LayerCache) -> Tensor:
        """[B, L, E] → [B, L, E]; ``angles`` and ``cache`` as in :class:`Attention`."""
        x = x + self.attention(self.attention_norm(x), angles, cache)
        return x + self.mlp(self.mlp_norm(x))


class Transformer:
    """A decoder-only language model of the Llama family: Llama, SmolLM2, Qwen2, Qwen2.5 and Qwen3."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        """Build the layers around the weights. The names of the tensors are in the book's notation page."""
        self.config = config
        self.rope = RoPE(
            config.head_dim,
            config.max_positions,
            config.rope_base,
            device=device_of(weights.tensor("embedding.weight")),
            divisors=config.rope_divisors or None,
        )
        self.embedding = Embedding(weights.tensor("embedding.weight"))
        self.blocks = [self._block(weights, f"blocks.{i}") for i in range(config.num_layers)]
        self.norm = self._norm(weights, "norm")
        self.head: Projection = self.embedding.as_linear if config.tied_embeddings else weights.linear("head")

    def _norm(self, weights: Weights, name: str) -> RMSNorm:
        return RMSNorm(weights.tensor(f"{name}.weight"), self.config.norm_eps)

    def _block(self, weights: Weights, name: str) -> TransformerBlock:
        config = self.config
        attention = Attention(
            weights.linear(f"{name}.qkv"),
            weights.linear(f"{name}.attention_out"),
            self.rope,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            self._norm(weights, f"{name}.query_norm") if config.qk_norm else None,
            self._norm(weights, f"{name}.key_norm") if config.qk_norm else None,
        )
        return TransformerBlock(
            self._norm(weights, f"{name}.attention_norm"),
            attention,
            self._norm(weights, f"{name}.mlp_norm"),
            MLP(weights.linear(f"{name}.gate_up"), weights.linear(f"{name}.down")),
        )

    def __call__(
        self, tokens: Tensor, positions: Positions, caches: Sequence[LayerCache] | None = None
    ) -> Tensor:
        """Token ids [B, L] → logits [B, L, V]: :meth:`hidden`, then :meth:`logits` for every token."""
        return self.logits(self.hidden(tokens, positions, caches))

    def hidden(
        self, tokens: Tensor, positions: Positions, caches: Sequence[LayerCache] | None = None
    ) -> Tensor:
        """Run the blocks and the last norm.

        Args:
            tokens: token ids, integer [B, L].
            positions: where the L tokens stand: a slice, a list of B slices, or an integer array (see RoPE).
            caches: one for each layer, in a list that stays as it is; None means that the tokens are whole sequences,
                seen causally.

        Returns:
            [B, L, E]: for each token, the vector from which the next token is predicted.

        Raises:
            ValueError: there are not as many caches as layers (raised before any cache has taken in a token),
                or not as many positions as tokens.
        """
        if caches is None:
            caches = [NoCache() for _ in self.blocks]
        if len(caches) != len(self.blocks):
            raise ValueError(f"{len(caches)} caches were given for {len(self.blocks)} layers")
        angles = self.rope.angles(positions)
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, angles, cache)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary: [..., E] → [..., V].

        A call of its own, because the head is a fifth of the default model's weights: an engine runs it only on
        the rows that it samples.
        """
        return self.head(hidden)
