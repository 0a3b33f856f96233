"""Compiled kernels, one per file: `*_cpu.py` with Numba, `*_triton.py` with Triton, and the choice between them."""
