"""The modules that hold arrays, for MLX; everything else is in `tiny_llm` and serves both tracks.

With `--backend mlx` a module of `tiny_llm` that is here, too, is taken from here: `from tiny_llm.attention import
linear` then means this folder's `attention.py`. The files, functions and classes have the same names, and so have the
tests. What a module in `SHARED` needs of arrays it takes from `arrays.py`, which both packages have.
"""

SHARED = (
    "batch",
    "documents.attention",
    "documents.batch",
    "documents.bundle",
    "documents.oracle",
    "documents.page_cache",
    "documents.past",
    "documents.positions",
    "documents.prompt",
    "documents.scheduler",
    "engine_core",
    "fused_kv_cache",
    "generate",
    "kv_cache",
    "model",
    "paged.allocator",
    "paged.batch",
    "paged.limits",
    "paged.model_runner",
    "paged.paged_cache",
    "paged.places",
    "paged.sequence",
    "prefix.page_cache",
    "prefix.trie_cache",
    "ragged.banker",
    "ragged.batch",
    "ragged.batcher",
    "ragged.decode_state",
    "ragged.grpc_service",
    "ragged.sampling_state",
    "ragged.ticket",
    "request",
    "sampling_params",
    "scheduling.batch",
    "scheduling.fairness",
    "scheduling.levels",
    "scheduling.padded",
    "scheduling.preemption",
    "scheduling.scheduler",
    "static_batch",
)
"""The modules with tasks that are written once, in `tiny_llm`, and hold no array of one framework alone."""
