"""Pages, for MLX: what holds no array is in the folder of the same name in `tiny_llm`, and is found there."""

from pathlib import Path

__path__.append(str(Path(__file__).parents[2] / "tiny_llm" / Path(__file__).parent.name))
