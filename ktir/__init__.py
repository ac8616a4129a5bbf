"""KTIR: a compiler toolchain for tile programs on the Spyre accelerator.

Importing this package loads nothing else. Take what you need from the submodules: `ktir.assembly` reads and prints KTIR text,
`ktir.pipeline` runs passes over it, `ktir.context` makes the MLIR context in which both work.
"""

__version__ = "0.1.0"
