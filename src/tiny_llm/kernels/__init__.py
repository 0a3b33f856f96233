"""Compiled kernels, one a file: `*_cpu.py` with Numba."""
