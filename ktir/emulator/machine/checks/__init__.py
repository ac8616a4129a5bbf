"""The checks of a run that depend on time: accesses of LX and memory, FIFOs, what a step costs."""
