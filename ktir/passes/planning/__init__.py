"""Second stage. Expects flat KTIR; guarantees it with attributes that decide layouts, kernels, divisions. It predicts the later stages."""
