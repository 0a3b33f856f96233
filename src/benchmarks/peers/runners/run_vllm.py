"""vLLM on the CPU, its engine in this process."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from wire import Answer, Request, Run, serve

CACHE_BYTES = 2 * 2**30
"""Room for all requests of all workloads."""


def start(settings: dict[str, Any]) -> Run:
    """Load the model in bfloat16, and compile it."""
    from vllm import LLM

    llm = LLM(
        settings["folder"],
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_num_seqs=32,
        kv_cache_memory_bytes=CACHE_BYTES,
        max_model_len=4096,
        enable_prefix_caching=True,
    )
    return partial(run, llm.llm_engine)


def run(engine: Any, requests: list[Request], room: int) -> list[Answer]:
    """Add all requests, and step until none is left."""
    from vllm import SamplingParams

    answers = {str(number): Answer() for number in range(len(requests))}
    for name, each in zip(answers, requests, strict=True):
        params = SamplingParams(temperature=0, max_tokens=each.max_tokens, ignore_eos=True, detokenize=False)
        engine.add_request(name, {"prompt_token_ids": each.prompt}, params)
    while engine.has_unfinished_requests():
        for output in engine.step():
            answer = answers[output.request_id]
            answer.tokens = len(output.outputs[0].token_ids)
            answer.first = answer.first or time.perf_counter()
    return list(answers.values())


if __name__ == "__main__":
    serve(start)
