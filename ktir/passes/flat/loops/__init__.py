"""Loops that are one."""
