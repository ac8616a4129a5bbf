"""Matmuls of weights that lie packed in words, several in one: kernels for them, and how graphs that unpack them come to call these."""

from ktir.library.packed.matching import call_kernels

REWRITES = (call_kernels,)
"""What is done to graphs of operators before they are lowered (`ktir.registry.rewrites`)."""
