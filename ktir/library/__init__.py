"""Operators of PyTorch made of kernels: of the kernel language, or of a file of KTIR (docs/library.md).

@ktir.library.operator("mine::softmax", softmax)
def softmax_op(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
"""

from ktir.library.implementations import implement
from ktir.library.operators import operator

__all__ = ["implement", "operator"]
