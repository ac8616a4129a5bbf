"""`torch.autocast("spyre")` computes in the types in which CUDA's does."""

import copy

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


def test_an_unsafe_loss() -> None:
    with torch.autocast("spyre", torch.float16), pytest.raises(RuntimeError, match="BCELoss are unsafe to autocast"):
        F.binary_cross_entropy(X.abs().to("spyre"), X.abs().to("spyre"))


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


@pytest.mark.parametrize(
    "norm", [torch.nn.BatchNorm1d(4), torch.nn.InstanceNorm1d(4, affine=True), torch.nn.GroupNorm(2, 4), torch.nn.LayerNorm(3)], ids=str
)
def test_norms_of_narrower_numbers_have_gradients(norm: torch.nn.Module) -> None:
    x = torch.linspace(-1, 1, 24).square().reshape(2, 4, 3).half()
    found = []
    for device in ("cpu", "spyre"):
        own, here = copy.deepcopy(norm).to(device), x.to(device).detach().requires_grad_()
        y = own(here)
        (y * x.to(device)).sum().backward()
        gradients = [t.grad for t in (here, *own.parameters()) if t.grad is not None]
        assert len(gradients) == 3
        found.append([t.detach().cpu() for t in (y, *gradients, *own.buffers())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)  # as close as torch takes results in float16 to be


@pytest.mark.turn
def test_training_with_a_batch_norm() -> None:
    torch.manual_seed(0)
    parts = torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(12, 2)
    model, x = torch.nn.Sequential(*parts), torch.linspace(-1, 1, 64).sin().reshape(2, 2, 4, 4)
    losses: dict[str, list[float]] = {"cpu": [], "spyre": []}
    for device, said in losses.items():
        here = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(here.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            with torch.autocast(device, torch.float16):
                loss = here(x.to(device)).float().square().mean()
            loss.backward()
            optimizer.step()
            said.append(loss.item())
    assert losses["spyre"] == pytest.approx(losses["cpu"], rel=2e-3)
    assert losses["spyre"][1] < losses["spyre"][0]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN, torch.nn.LSTMCell])
def test_recurrent_networks_are_of_the_lower_type(kind: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    net = kind(4, 8)
    x = torch.rand(2, 3, 4) if "Cell" not in kind.__name__ else torch.rand(2, 4)
    wanted = copy.deepcopy(net).bfloat16()(x.bfloat16())[0]
    with torch.autocast("spyre", torch.bfloat16):
        found = net.to("spyre")(x.to("spyre"))[0]
    torch.testing.assert_close(found.cpu(), wanted, rtol=0.03, atol=0.03)
