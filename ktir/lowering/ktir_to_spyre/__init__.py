"""Allocated KTIR -> the instruction stream."""
