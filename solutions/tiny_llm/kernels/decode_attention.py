"""Day 2.5's attention, from the kernel that this track has (given code): on the torch track, that for the CPU."""

from tiny_llm.kernels.decode_attention_cpu import decode_attention

__all__ = ["decode_attention"]
