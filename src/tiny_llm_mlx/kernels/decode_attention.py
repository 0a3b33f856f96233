"""Day 2.5's attention, from the kernel that this track has (given code): on the MLX track, that in Metal."""

from .decode_attention_metal import decode_attention

__all__ = ["decode_attention"]
