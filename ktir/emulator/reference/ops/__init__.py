"""Shared executors of ops: structured, pointwise and indirect work, maps and sets."""
