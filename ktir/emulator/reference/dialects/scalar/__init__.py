"""Executors of ops on numbers: `arith`, `math`, `affine`."""
