"""Values near those of PyTorch in float64."""

import numpy as np
import torch


def close(found: np.ndarray, expected: torch.Tensor, rounding: float) -> None:
    """Within a rounding of the result, relative to the largest magnitude."""
    wide = expected.double().numpy()
    assert found.shape == wide.shape
    assert np.abs(found.astype(np.float64) - wide).max() <= rounding * max(1.0, np.abs(wide).max())


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64))
