"""What recording keeps track of: memory, scratchpad, accesses, checks, trips of loops."""
