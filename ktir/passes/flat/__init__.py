"""First stage. Expects logical KTIR; guarantees its flat form: memory and generics, no op that only moves, at most three tensors per op."""
