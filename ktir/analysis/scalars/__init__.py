"""Scalars of bodies: as trees, and what they lie between."""
