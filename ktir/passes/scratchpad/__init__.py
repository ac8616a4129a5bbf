"""Eighth stage. Expects the tiled level; guarantees the allocated level: every tensor of a kernel has an address."""
