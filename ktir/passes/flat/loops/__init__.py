"""Loops that are one, and loops that are split."""
