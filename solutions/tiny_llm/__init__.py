"""An LLM serving engine, built one day at a time.

Start at Day 1.1: `attention.py`. Each chapter of the book says which file it is about.

How a request becomes tokens in the engine of Week 3: a driver (`engine_core.generate_all`, or the server's `Batcher`)
pushes a `Request` into a `RaggedBatch`, and asks it for step after step. In a step `SamplingState` says which seat
brings how many tokens, `DecodeState` gives the seats their pages, `ModelRunner.run` runs the model over all these
tokens at once, and `ModelRunner.sample` lets each request that has no token due after that accept its next one.
"""

import os
from pathlib import Path

# Where the arrays are MLX's, the modules that hold arrays come from the package beside this one.
if os.environ.get("TINY_LLM_BACKEND") == "mlx":
    __path__.insert(0, str(Path(__file__).parent.with_name("tiny_llm_mlx")))

# How long a thread that has nothing to do keeps looking for work before it sleeps, in turns of a loop: some 0.1 ms. A
# sleeping thread is woken too late for the next layer; by default it keeps its core from others for 10 ms and more.
# It counts for torch and Numba alike, which share the threads of GNU's OpenMP, and only if torch isn't loaded yet.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")
