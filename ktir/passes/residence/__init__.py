"""Sixth stage. Expects and guarantees the divided level; tensors between kernels stay in the scratchpad or go over the ring."""
