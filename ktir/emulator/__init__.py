"""Execution of programs without an accelerator: KTIR on NumPy (`reference`) and instruction streams (`machine`)."""
