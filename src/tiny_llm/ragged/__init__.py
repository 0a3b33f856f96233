"""Ragged batches: the memory of a step, its tokens, and a server around them (Week 3)."""
