"""What executions of words touch and move: sticks, elements, shadows, indices from data."""
