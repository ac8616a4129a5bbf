"""Loads and stores of memory have no order within a kernel: kernels one behind the other have."""
