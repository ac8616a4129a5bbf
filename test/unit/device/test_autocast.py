"""`torch.autocast("spyre")` computes in the types in which CUDA's does."""

import pytest
import torch
from torch.nn import functional as F

X = torch.linspace(-1, 1, 64).reshape(4, 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
def test_types(dtype: torch.dtype) -> None:
    x, low = X.to("spyre"), X.to("spyre", dtype)
    with torch.autocast("spyre", dtype):
        assert torch.mm(x, x.t()).dtype == dtype
        assert F.linear(x, x).dtype == dtype
        assert torch.softmax(low, -1).dtype == torch.float32
        assert F.layer_norm(low, [16]).dtype == torch.float32
        assert torch.addcmul(x, low, low).dtype == torch.float32
        assert (low + low).dtype == dtype
        assert (x + low).dtype == torch.float32
        with torch.autocast("spyre", enabled=False):
            assert torch.mm(x, x.t()).dtype == torch.float32
    assert torch.mm(x, x.t()).dtype == torch.float32


def test_values(on_chip: None) -> None:
    with torch.autocast("spyre", torch.float16):
        got = torch.mm(X.to("spyre"), X.t().to("spyre"))
    torch.testing.assert_close(got.cpu(), torch.mm(X.half(), X.t().half()))


def test_a_type_that_is_none() -> None:
    with pytest.warns(UserWarning, match="autocast"), torch.autocast("spyre", torch.float64):
        assert torch.mm(X.to("spyre"), X.t().to("spyre")).dtype == torch.float32


def test_in_a_graph() -> None:
    @torch.compile
    def product(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("spyre", dtype=torch.float16):
            return torch.mm(x, x)

    with torch.no_grad():
        assert product(torch.ones(3, 3, device="spyre")).dtype == torch.float16
