"""Exchanges between tiles: a table of who receives which part of whose tensor, and the rounds of the ring that it takes."""
