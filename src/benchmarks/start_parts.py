"""A start of the engine, for `pdm run bench start`: says on standard output when each of its parts is done.

It is run in a process of its own, as `python -m benchmarks.start_parts KIND`; `tiny_llm` is whichever is on the path.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiny_llm.model import Transformer

MODEL = "smollm2-135m"
PROMPT = "The capital of France is"


def main(kind: str) -> None:
    """Start what is asked for: "torch" alone; "served", the engine of Day 4.6 in float32; or "fast", Day 4.7's."""
    done("python")
    if kind != "torch":
        import tiny_llm as tiny_llm  # its settings for libraries come before torch
    import torch as torch

    done("torch")
    if kind != "torch":
        _start_engine(kind == "fast")


def _start_engine(fast: bool) -> None:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.params import SamplingParams
    from tiny_llm.tokenizer import load_tokenizer

    done("imports")
    model, attention = _load(fast)
    done("weights")
    tokenizer = load_tokenizer(MODEL)
    done("tokenizer")
    with LLM(model, tokenizer, attention=attention) as llm:
        done("ready")
        llm.generate(PROMPT, SamplingParams(max_tokens=1))
        done("first")


def _load(fast: bool) -> tuple[Transformer, str]:
    """The model and the name of its way to attend, as ``LLM(fast=…)`` loads them."""
    if fast:
        from tiny_llm.fast.forms import load_form

        return load_form(MODEL, True)
    from tiny_llm.model import Transformer
    from tiny_llm.weights import load_weights

    weights = load_weights(MODEL)
    return Transformer(weights.config, weights), "auto"


def done(part: str) -> None:
    """Tell the bench, which looks at the clock."""
    print(part, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
