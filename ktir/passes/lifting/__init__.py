"""Kernels by hand as programs for the planner. Expects a kernel with a grid that states no level; guarantees logical KTIR without one."""
