"""The engine as programs use it: `LLM`, its parameters, and what it answers (Day 4.6)."""
