"""What happens to the graph of ATen operators before it becomes loops: decompositions, constants, numbers, roundings, sizes."""
