"""Seventh stage. Expects the divided level; guarantees the tiled level: blocks whose working sets fit the scratchpad."""
