"""What tests of operators on tensors of the device share: tensors, comparison with the host, and the warnings of what falls back."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree

from ktir.device.operators import fallback
from ktir.device.operators.fallback import FallbackWarning


@contextmanager
def hearing() -> Iterator[list[str]]:
    """To be filled with the warnings of operators that fall back, all of them in order; each operator is new."""
    fallback._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        found: list[str] = []
        yield found
    assert [str(w.message) for w in caught if w.category is FallbackWarning] == found


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def there(value: Any) -> Any:
    return pytree.tree_map(lambda x: x.to("spyre") if isinstance(x, torch.Tensor) else x, value)


def close(got: Any, expected: Any) -> None:
    """Same types, shapes and strides, values within the bounds of the type."""
    for ours, theirs in zip(*map(pytree.tree_leaves, (got, expected)), strict=True):
        assert ours.device.type == "spyre"
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs, equal_nan=True)
