"""OpenVINO GenAI: its continuous batching, with the model as it reads it from a GGUF file of 16-bit floats."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from wire import Answer, Request, Run, serve

CACHE_GIGABYTES = 2
"""Room for all requests of all workloads."""


def start(settings: dict[str, Any]) -> Run:
    """Load the model."""
    import openvino_genai

    scheduling = openvino_genai.SchedulerConfig()
    scheduling.cache_size = CACHE_GIGABYTES
    scheduling.max_num_seqs = 32
    scheduling.enable_prefix_caching = True
    scheduling.max_num_batched_tokens = 2048
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        settings["gguf_16_bit"], scheduling, "CPU", {"INFERENCE_NUM_THREADS": settings["threads"]}
    )
    return partial(run, pipeline)


def run(pipeline: Any, requests: list[Request], room: int) -> list[Answer]:
    """Add all requests, and step until none is left."""
    import numpy as np
    import openvino
    import openvino_genai

    answers = [Answer() for _ in requests]
    handles = []
    for number, each in enumerate(requests):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos = each.max_tokens, True
        ids = openvino.Tensor(np.array([each.prompt], np.int64))
        handles.append(pipeline.add_request(number, ids, config))
    while pipeline.has_non_finished_requests():
        pipeline.step()
        now = time.perf_counter()
        for handle, answer in zip(handles, answers, strict=True):
            while handle.can_read():
                answer.tokens += sum(len(each.generated_ids) for each in handle.read().values())
                answer.first = answer.first or now
    return answers


if __name__ == "__main__":
    serve(start)
