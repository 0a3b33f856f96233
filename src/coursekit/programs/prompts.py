"""The fixed prompts of `pdm run batch-main`."""

PROMPTS = (
    "What is the capital of France?",
    "Name three things that float on water.",
    "Write one sentence about the sea.",
    "Why is the sky blue? Answer in one sentence.",
    "Give me a short recipe for pancakes.",
)
