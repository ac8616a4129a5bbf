"""Generators of the KTIR that the benchmarks run."""
