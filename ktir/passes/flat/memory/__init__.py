"""Values that only move become views of memory: windows, concatenations, insertions, tiles through indices."""
