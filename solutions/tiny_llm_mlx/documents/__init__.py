"""Prompts with documents that don't see one another (Days 4.4 and 4.5), for MLX."""

from pathlib import Path

# What is not here comes from the folder of the same name in the package beside this one.
_here = Path(__file__).parent
__path__.append(str(_here.parent.with_name("tiny_llm") / _here.name))
