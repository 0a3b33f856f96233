"""A model on a CUDA device whose decode steps are recorded once and then played back (Day 4.7, given code).

On a GPU a small step takes less time than the host needs to ask for its hundreds of operations, one by one. A CUDA
graph asks for all of them at once. It always works on the same memory: so the numbers of a step are copied into the
tensors with which it was recorded, and a step of fewer sequences is filled up with some that belong to no request.

Source: CUDA graphs in vLLM and SGLang, which record a decode step for some batch sizes in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tiny_llm.kv_cache import LayerCache
from tiny_llm.layers import Linear
from tiny_llm.model import Transformer
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.paged_cache import PagedCache
from tiny_llm.paged.pool import KvPool
from tiny_llm.positional_encoding import Positions

MOST_ROWS = 64
"""Steps of more sequences run as before: their operations are long enough."""
_WARM_UPS = 2


def accelerate_on_cuda(model: Transformer) -> RecordedModel:
    """The same model, whose decode steps are played back; ``model`` itself stays as it is.

    Args:
        model: one on a CUDA device whose projections are all :class:`Linear`.

    Raises:
        ValueError: the model is elsewhere, or has other projections.
    """
    device = model.embedding.weight.device
    if device.type != "cuda":
        raise ValueError(f"the model is on the device {device}, and steps are recorded on CUDA devices only")
    for block in model.blocks:
        projections = block.attention.qkv, block.attention.out, block.mlp.gate_up, block.mlp.down
        if not all(isinstance(each, Linear) for each in projections):
            raise ValueError("the model's weights aren't floats: load_weights(…) without bits")
    return RecordedModel(model)


class RecordedModel(Transformer):
    """A model with the parts of another one. Steps that it can't play back run as they do there.

    It can play back a step in which each of up to :data:`MOST_ROWS` sequences brings one token, and attends by Day
    3.4's kernel. It runs one step at a time.
    """

    def __init__(self, model: Transformer) -> None:
        """Nothing is recorded yet."""
        vars(self).update(vars(model))
        self._pool: KvPool | None = None
        self.recordings: dict[tuple[int, int], Recording] = {}
        """By sequences and pages per sequence: powers of two. They are those of one pool, the one used last."""

    def hidden(
        self, tokens: Tensor, positions: Positions, caches: Sequence[LayerCache] | None = None
    ) -> Tensor:
        """As :meth:`Transformer.hidden`; results may differ in the last bits, as the kernel's parts do."""
        meta = decode_step(tokens, positions, caches)
        if meta is None or len(caches or ()) != len(self.blocks):
            return super().hidden(tokens, positions, caches)
        assert caches is not None
        assert isinstance(positions, Tensor)
        first = caches[0]
        assert isinstance(first, PagedCache)
        if first.pool is not self._pool:
            self._pool, self.recordings = first.pool, {}
        size = _power_of_2(len(meta.kv_lens)), _power_of_2(meta.block_table.shape[1])
        if size not in self.recordings:
            self.recordings[size] = Recording(super().hidden, first, len(self.blocks), *size)
        return self.recordings[size].play(tokens, positions, meta)


def decode_step(
    tokens: Tensor, positions: Positions, caches: Sequence[LayerCache] | None
) -> ForwardMeta | None:
    """The metadata of a step that can be played back, or None: a prompt is computed, or the way to attend is another.

    Questions about documents attend in a way that is made for one step (Day 4.5).
    """
    from tiny_llm.kernels.paged_attention_triton import paged_attention_triton

    if not caches or not isinstance(positions, Tensor):
        return None
    first = caches[0]
    if not isinstance(first, PagedCache) or first.attention is not paged_attention_triton:
        return None
    one_each = tuple(tokens.shape) == (1, len(first.meta.kv_lens))
    return first.meta if one_each and len(first.meta.kv_lens) <= MOST_ROWS else None


class Recording:
    """A decode step of ``rows`` sequences with up to ``width`` pages each, on memory of its own."""

    def __init__(
        self, hidden: Callable[..., Tensor], like: PagedCache, layers: int, rows: int, width: int
    ) -> None:
        """Record it, on sequences that belong to no request.

        Args:
            hidden: runs the model, as :meth:`Transformer.hidden`.
            like: a cache on the pool, with the way to attend.
            layers: how many there are. rows: sequences. width: pages of each at most.
        """
        pool, device = like.pool, like.pool.keys.device

        def numbers(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self.tokens = numbers(1, rows, dtype=torch.int64)
        # Rows of no request write to the null page and read what they have written.
        self._nowhere = torch.arange(rows, device=device) % pool.page_size + NULL_PAGE * pool.page_size
        self.meta = ForwardMeta(
            positions=numbers(rows, dtype=torch.int64),
            slot_mapping=self._nowhere.clone(),
            cu_seqlens_q=torch.arange(rows + 1, dtype=torch.int32, device=device),
            seq_lens_kv=numbers(rows) + 1,
            block_table=numbers(rows, width) + NULL_PAGE,
            last_rows=torch.arange(rows, device=device),
            starts=list(range(rows + 1)),
            kv_lens=[width * pool.page_size] * rows,  # the most: the kernel's grid is laid out for it
        )
        caches = [PagedCache(pool, layer, self.meta, like.attention) for layer in range(layers)]
        self._run = record(lambda: hidden(self.tokens, self.meta.positions, caches), device)

    def play(self, tokens: Tensor, positions: Tensor, meta: ForwardMeta) -> Tensor:
        """Run the step on other numbers.

        Args:
            tokens: [1, B], B ≤ rows.
            positions: [B], which needn't be those of ``meta``.
            meta: the step, with up to ``width`` pages per sequence.

        Returns:
            [1, B, E], memory that no later step changes.
        """
        count, width = meta.block_table.shape
        mine = self.meta
        mine.slot_mapping.copy_(self._nowhere)
        mine.seq_lens_kv.fill_(1)
        mine.block_table.fill_(NULL_PAGE)
        self.tokens[:, :count] = tokens
        mine.positions[:count] = positions
        mine.slot_mapping[:count] = meta.slot_mapping
        mine.seq_lens_kv[:count] = meta.seq_lens_kv
        mine.block_table[:count, :width] = meta.block_table
        return self._run()[:, :count].clone()


def record(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """What does the same as ``run`` on the same memory: a CUDA graph, or elsewhere ``run`` itself."""
    if device.type != "cuda":
        return run
    # What is done once, such as to compile a kernel, can't be recorded: so it is done before.
    beside = torch.cuda.Stream(device)
    beside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(beside):
        for _ in range(_WARM_UPS):
            run()
    torch.cuda.current_stream(device).wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = run()

    def play() -> Tensor:
        graph.replay()
        return result

    return play


def _power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
