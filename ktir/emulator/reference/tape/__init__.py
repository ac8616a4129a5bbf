"""What recording leaves for launches: steps, values and moves."""
