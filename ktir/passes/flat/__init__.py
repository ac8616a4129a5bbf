"""First stage. Expects logical KTIR; guarantees the flat level: memory and generics, no op that only
moves, at most three tensors per op."""
