"""The embedding in 8 bits (Day 4.7): one table for the model's first step and its last."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tiny_llm.fast.llvm_code import LANES
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.weights8 import LaidOut, record_bytes
from tiny_llm.layers import Embedding


class Embedding8(Embedding):
    """A table [V, E], laid out in 8 bits, from which rows are looked up in float32.

    ``weight`` stands for the table where its shape, device and dtype are asked for: the dtype is the one that keys
    and values are to have. It takes no memory, and each of its numbers is NaN, as nothing may compute with them.
    """

    def __init__(self, table: LaidOut) -> None:
        """Hold the table, which the head may hold, too."""
        super().__init__(torch.tensor(torch.nan, dtype=torch.bfloat16).expand(table.outputs, table.width))
        self.table = table
        size = record_bytes(8)
        records = table.records.reshape(table.outputs // LANES, table.width // GROUP, size)
        # block, group, register, output of the block, four inputs
        self._codes = records[..., : size - 64].reshape(*records.shape[:2], GROUP // 4, LANES, 4)
        self._numbers = records[..., size - 64 :].view(np.float16)  # block, group, 16 scales and 16 minima

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Ids [...] → float32 [..., E]: code · scale + minimum, exactly."""
        blocks, lanes = np.divmod(token_ids.numpy().reshape(-1), LANES)
        rows = self._codes[blocks, :, :, lanes].astype(np.float32)
        rows *= self._numbers[blocks, :, lanes].astype(np.float32)[..., None, None]
        rows += self._numbers[blocks, :, LANES + lanes].astype(np.float32)[..., None, None]
        return torch.from_numpy(rows).reshape(*token_ids.shape, self.table.width)
