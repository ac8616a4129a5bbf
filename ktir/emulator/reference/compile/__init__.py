"""From MLIR ops to recording actions: each op once, from plain data."""
