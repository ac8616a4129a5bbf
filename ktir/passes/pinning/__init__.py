"""Beside the stages: kernels that an author has given a grid. Expects them as they are written; guarantees the tiled level, with the grid,
tiles, loops and addresses of the author."""
