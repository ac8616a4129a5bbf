"""Matmuls of weights that lie packed in words, several in one: kernels for them, and how graphs that unpack them come to call these."""
