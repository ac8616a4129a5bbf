"""Fifth stage. Expects kernels with `ktir.rows`; guarantees the divided level: a grid and `ktir.work` on each kernel."""
