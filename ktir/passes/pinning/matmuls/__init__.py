"""Matmuls of pinned kernels: on the array, or, of floats of 32 bits, on the vector unit."""
