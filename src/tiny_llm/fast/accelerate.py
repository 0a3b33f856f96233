"""The same model, fast (Day 4.7)."""

from __future__ import annotations

import copy

import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.block8 import Block8
from tiny_llm.fast.multiply import multiply
from tiny_llm.fast.parts import head_of, parts_of, table_of
from tiny_llm.fast.rooms import Rooms
from tiny_llm.fast.rows8 import make_rows8
from tiny_llm.fast.small import quantize_twice
from tiny_llm.fast.table8 import Embedding8
from tiny_llm.fast.weights8 import LaidOut
from tiny_llm.model import Transformer


class Linear8:
    """A projection of weights that are laid out, for inputs that count more than others: those of the head.

    An input becomes two rows in 8 bits, the second of which is what the first leaves. The weights are read once.
    """

    def __init__(self, weight: LaidOut) -> None:
        """Hold the weights; a bias isn't added."""
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply each input as two rows in 8 bits (:func:`quantize_twice`), and add the two products.

        One call of :func:`multiply` for all 2·T rows reads the weights once.

        Args:
            x: [..., K], any float dtype, in one piece or not; stays as it is. T inputs in all, which may be 0.

        Returns:
            [..., N], float32.
        """
        raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")


def accelerate(model: Transformer) -> Transformer:
    """The same model with its parts exchanged for faster ones.

    ``model`` itself stays as it is, its list of blocks included, and goes on as before. The new one shares with it
    what isn't exchanged: the configuration, the rope, the last norm.

    - Each block becomes a :class:`Block8` with its :func:`parts_of`. All of them get the same :class:`Rooms`: they
      run one after the other, so the memory of one is enough.
    - The embedding becomes an :class:`Embedding8`, in 8 bits. The head becomes a :class:`Linear8`: of the same table
      as the embedding, not another one, where the configuration says ``tied_embeddings``; otherwise of its own.
    - An embedding that is an :class:`Embedding8` already stays, and the head beside it, too (``load_fast``).

    Args:
        model: on the CPU, its blocks' matrices in 4 bits as :func:`load_weights` gives them with ``bits=4`` and
            ``matmul="plain"``, or laid out already.

    Returns:
        a model of the same interface, which gives float32. It runs one step at a time: steps that ran on two threads
        would use the same rooms.

    Raises:
        ValueError: as :func:`parts_of` and :func:`head_of` say.
    """
    raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")
