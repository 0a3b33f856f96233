"""The cache of one sequence with fused attention over it (Day 2.5).

It has a file of its own because it imports the compiled kernel, and with it Numba: programs that use only the caches
of `kv_cache.py` never load the compiler.
"""

from __future__ import annotations

from tiny_llm.arrays import Tensor
from tiny_llm.flash_attention import flash_attention
from tiny_llm.kernels.decode_attention import decode_attention
from tiny_llm.kv_cache import FullKvCache

FEW_QUERIES = 8
"""The most new tokens per call for which the kernel of Day 2.5 is faster than flash attention."""


class FusedKvCache(FullKvCache):
    """A `FullKvCache` whose attention makes neither a mask nor an array of L × S scores.

    With torch it runs on the CPU only, because `decode_attention` does.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Append the new tokens, then attend with the compiled kernel, or with flash attention if L is large.

        With at most `FEW_QUERIES` new tokens, the kernel reads the storage where it lies.
        """
        keys, values = self.append(key, value)
        assert self.keys is not None
        assert self.values is not None
        if query.shape[2] > FEW_QUERIES:
            return flash_attention(query, keys, values, scale, causal=True)
        return decode_attention(query, self.keys, self.values, scale, self.length)
