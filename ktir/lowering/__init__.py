"""Lowering between levels that have different producers or consumers: torch to KTIR, KTIR to the instruction stream."""
