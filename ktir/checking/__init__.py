"""Differential checks: one program at every level, same inputs, same values."""

from ktir.checking.levels import LevelResult, Mismatch, check_levels

__all__ = ["LevelResult", "Mismatch", "check_levels"]
