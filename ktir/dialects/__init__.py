"""Our dialects, one file each; `ktir.context.context()` loads them all."""
