"""A function for `ktir-capture`: it returns a model and the inputs to capture it with.

ktir-capture examples/capture.py:softmax --stage=logical -o softmax_model.mlir
ktir-compile softmax_model.mlir -o package && ktir-report package
"""

from __future__ import annotations

import torch


def softmax() -> tuple[torch.nn.Module, torch.Tensor]:
    """Softmax over rows that are no whole number of sticks."""
    return torch.nn.Softmax(-1), torch.ones(57, 100, dtype=torch.float16)
