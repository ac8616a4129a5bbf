"""Decompositions by kind: of numbers, along a dim, of images."""
