"""Hugging Face transformers: all requests as one static batch, padded on the left."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from wire import Answer, Request, Run, serve

PADDING = 0


def start(settings: dict[str, Any]) -> Run:
    """Load the model in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(settings["threads"])
    model = AutoModelForCausalLM.from_pretrained(settings["folder"], dtype=torch.bfloat16)
    model.eval()
    model.generation_config.eos_token_id = None
    return partial(run, model)


def run(model: Any, requests: list[Request], room: int) -> list[Answer]:
    """Generate for all until the longest answer is there: that is what a static batch is."""
    import torch

    longest = max(len(each.prompt) for each in requests)
    tokens = torch.full((len(requests), longest), PADDING)
    mask = torch.zeros_like(tokens)
    for row, each in enumerate(requests):
        tokens[row, longest - len(each.prompt) :] = torch.tensor(each.prompt)
        mask[row, longest - len(each.prompt) :] = 1
    steps: list[float] = []
    with torch.inference_mode():
        made = model.generate(
            tokens,
            attention_mask=mask,
            max_new_tokens=max(each.max_tokens for each in requests),
            do_sample=False,
            pad_token_id=PADDING,
            stopping_criteria=[partial(_stamp, steps)],
        )
    count = made.shape[1] - longest
    return [Answer(min(count, each.max_tokens), steps[0]) for each in requests]


def _stamp(steps: list[float], tokens: Any, scores: Any, **_: Any) -> Any:
    """Called after each step; it never stops."""
    import torch

    steps.append(time.perf_counter())
    return torch.zeros(tokens.shape[0], dtype=torch.bool)


if __name__ == "__main__":
    serve(start)
