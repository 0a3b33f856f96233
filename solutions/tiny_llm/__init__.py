"""An LLM serving engine, built one day at a time.

Start at Day 1.1: `attention.py`. Each chapter of the book says which file it is about.

How a request becomes tokens in the engine of Week 3: a driver (`engine_core.generate_all`, or the server's `Batcher`)
pushes a `Request` into a `RaggedBatch`, and asks it for step after step. In a step `SamplingState` says which seat
brings how many tokens, `DecodeState` gives the seats their pages, `ModelRunner.run` runs the model over all these
tokens at once, and `ModelRunner.sample` lets each request that has no token due after that accept its next one.
"""
