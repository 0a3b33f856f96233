"""The array code of Days 1.1 to 1.4 in MLX; everything else comes from `tiny_llm`.

The files, functions and classes are those of `tiny_llm`, and so are the tests: add `--backend mlx` to run them here.
"""
