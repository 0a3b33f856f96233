"""Kernels in Metal's language, one per file: `*_metal.py`. What is not here is the torch track's, in `tiny_llm`."""

from pathlib import Path

__path__.append(str(Path(__file__).parents[2] / "tiny_llm" / "kernels"))
