"""Metal kernels where there is no Metal: compiled as C++ and run on the CPU, one threadgroup after another."""
