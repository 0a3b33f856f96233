"""Compiled kernels, one per file: `*_cpu.py` with Numba."""
