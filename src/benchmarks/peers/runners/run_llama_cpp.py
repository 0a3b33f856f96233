"""llama.cpp by its C functions, with the scheduling of its server: one batch of new tokens of all requests per step.

A step has a token of each request that generates, and prompt tokens as long as there is room. Each request has a
stream of the cache for itself; requests that run together share nothing, as in the server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wire import Answer, Request, Run, serve

BATCH = 2048
"""Tokens per step, as the server has it."""
CACHE_MULTIPLE = 256


def start(settings: dict[str, Any]) -> Run:
    """Load the 4-bit file."""
    return LlamaCpp(settings["gguf"], settings["threads"]).run


@dataclass
class Running:
    """A request on its way."""

    number: int
    request: Request
    answer: Answer = field(default_factory=Answer)
    computed: int = 0  # tokens of the prompt
    last: int = 0  # the newest token
    row: int = -1  # of the batch, whose logits choose the next token

    @property
    def done(self) -> bool:
        return self.answer.tokens == self.request.max_tokens


class LlamaCpp:
    """A model and a context, which is made anew when requests need another size."""

    def __init__(self, path: str, threads: int) -> None:
        import llama_cpp

        self.lib: Any = llama_cpp
        self.threads = threads
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.context: Any = None
        self.size = (0, 0)

    def run(self, requests: list[Request], room: int) -> list[Answer]:
        """Bring all requests to their ends."""
        self._fit(len(requests), room)
        sequences = [Running(number, each) for number, each in enumerate(requests)]
        while left := [each for each in sequences if not each.done]:
            self._step(left)
        return [each.answer for each in sequences]

    def _fit(self, sequences: int, room: int) -> None:
        """Have a context with an empty cache of this size: the warm-up makes it, the measured run finds it."""
        size = (sequences, -(-room // CACHE_MULTIPLE) * CACHE_MULTIPLE)
        if size != self.size:
            if self.context is not None:
                self.lib.llama_free(self.context)
            params = self.lib.llama_context_default_params()
            params.n_seq_max, params.n_ctx = sequences, sequences * size[1]
            params.n_batch, params.kv_unified = BATCH, False
            params.n_threads = params.n_threads_batch = self.threads
            self.context = self.lib.llama_init_from_model(self.model, params)
            self.size = size
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def _step(self, left: Sequence[Running]) -> None:
        self.batch.n_tokens = 0
        for each in left:
            each.row = -1
            if each.computed == len(each.request.prompt):
                self._add(each, each.last, each.computed + each.answer.tokens - 1, True)
        for each in left:
            if each.computed < len(each.request.prompt):
                self._add_prompt(each)
        if self.lib.llama_decode(self.context, self.batch):
            raise RuntimeError("llama_decode has failed")
        for each in left:
            if each.row >= 0:
                self._take(each)

    def _add_prompt(self, each: Running) -> None:
        prompt = each.request.prompt
        for position in range(each.computed, min(len(prompt), each.computed + BATCH - self.batch.n_tokens)):
            self._add(each, prompt[position], position, position == len(prompt) - 1)
            each.computed += 1

    def _add(self, each: Running, token: int, position: int, wants_logits: bool) -> None:
        batch, row = self.batch, self.batch.n_tokens
        batch.token[row], batch.pos[row] = token, position
        batch.n_seq_id[row], batch.seq_id[row][0] = 1, each.number
        batch.logits[row] = wants_logits
        batch.n_tokens += 1
        if wants_logits:
            each.row = row

    def _take(self, each: Running) -> None:
        """Take the best token."""
        import numpy as np

        logits = self.lib.llama_get_logits_ith(self.context, each.row)
        each.last = int(np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax())
        each.answer.tokens += 1
        if each.answer.first is None:
            each.answer.first = time.perf_counter()


if __name__ == "__main__":
    serve(start)
