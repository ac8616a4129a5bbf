"""Memory of emulated cards: segments and pools of addresses, allocations, and the forms in which these hold their data."""
