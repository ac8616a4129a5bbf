"""Fourth stage. Expects the laid-out level; guarantees an entry function that calls kernels, each a barrier."""
