"""Each op of the scope at odd shapes: logical KTIR that verifies, round-trips through text and gives eager's values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

Check = Callable[..., str]
Functions = dict[str, Callable[..., Any]]
SHAPES = [(57, 100), (10, 65), (1, 64), (3, 10, 57), (100,), (57, 1), (2, 1, 65), (1, 1)]
FEW = [(57, 100), (1, 65), (3, 10, 57)]


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def positive(*shape: int) -> torch.Tensor:
    return half(*shape).abs() + 0.25


UNARY: Functions = {
    "neg": lambda x: -x,
    "abs": torch.abs,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "erf": torch.erf,
    "square": torch.square,
    "cube": lambda x: x**3,
    "pow5": lambda x: torch.pow(x, 5),
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "relu6": F.relu6,
    "scale": lambda x: (x * 3 + 0.1) / 7 - 2,
    "rsub": lambda x: 1 - x,
    "softmax": lambda x: torch.softmax(x, -1),
    "mean": lambda x: x.mean(-1),
    "mean_keep": lambda x: x.mean(-1, keepdim=True),
    "sum": lambda x: x.sum(-1),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin(-1, keepdim=True),
    "center": lambda x: x - x.mean(-1, keepdim=True),
    "half_steps": lambda x: ((x.float() * 3).half() + 1).float(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
}
POSITIVE: Functions = {
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "one_over": lambda x: 1 / x,
    "pow_minus_2": lambda x: x**-2,
    "pow_half": lambda x: x**0.5,
}
BINARY: Functions = {
    "add": torch.add,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=2),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda x, y: x / (y.abs() + 1),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
}


ROWWISE = ["softmax", "mean", "mean_keep", "sum", "amax", "amin", "center", "layer_norm", "rms_norm", "relu"]


def check_all(check: Check, cases: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]], **tolerances: float) -> None:
    """Functions with operands of their own, side by side in one graph: a compilation costs more than what is compiled."""
    functions = {name: function for name, (function, _) in cases.items()}
    check(
        lambda *inputs: {name: function(*given) for (name, function), given in zip(functions.items(), inputs, strict=True)},
        *(given for _, given in cases.values()),
        **tolerances,
    )


@pytest.mark.parametrize("name", UNARY)
def test_unary(check: Check, name: str) -> None:
    shapes = SHAPES if name in ROWWISE else FEW
    check_all(check, {str(shape): (UNARY[name], (half(*shape),)) for shape in shapes})


@pytest.mark.parametrize("shape", [(57, 100), (1, 65)], ids=str)
def test_positive(check: Check, shape: tuple[int, ...]) -> None:
    check_all(check, {name: (function, (positive(*shape),)) for name, function in POSITIVE.items()})


def test_binary(check: Check) -> None:
    check_all(check, {name: (function, (half(57, 65), half(65, 57).t())) for name, function in BINARY.items()})


def test_float32(check: Check) -> None:
    names = "gelu softmax mean amax layer_norm scale exp".split()
    check_all(check, {name: (UNARY[name], (half(57, 100).float(),)) for name in names}, rtol=2e-6, atol=2e-6)


BROADCAST: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((57, 65), (65,)),
    ((57, 65), (57, 1)),
    ((57, 65), (1, 65)),
    ((57, 65), (1, 1)),
    ((57, 65), ()),
    ((57, 1), (1, 65)),
    ((3, 10, 65), (10, 65)),
    ((3, 10, 65), (3, 1, 65)),
    ((3, 10, 65), (10, 1)),
    ((3, 10, 65), (3, 1, 1)),
    ((2, 3, 4, 10), (3, 1, 10)),
    ((2, 3, 4, 10), (2, 1, 4, 1)),
    ((1, 65), (57, 1)),
]


def test_broadcast(check: Check) -> None:
    pairs = {(a, b): (half(*a), half(*b) if b else torch.tensor(0.5).half()) for a, b in BROADCAST}
    check_all(check, {str(shapes): (lambda x, y: x * y + y, pair) for shapes, pair in pairs.items()})


def test_partial_broadcast_of_an_input_is_a_full_view_with_stride_zero(check: Check) -> None:
    text = check(lambda x, y: x + y, half(3, 10, 65), half(10, 65))
    assert "sizes: [3, 10, 65], strides: [0, 65, 1]" in text
    text = check(lambda x, y: x + y, half(3, 10, 65), half(65))
    assert "sizes: [65], strides: [1]" in text
    text = check(lambda x, y: x + y, half(3, 10, 65), half(3, 10, 1))
    assert "sizes: [3, 10], strides: [10, 1]" in text


@pytest.mark.parametrize(("m", "k", "n"), [(57, 64, 100), (1, 64, 100), (57, 10, 1), (1, 65, 1), (10, 1, 57), (65, 2, 3), (1, 1, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(check: Check, m: int, k: int, n: int, bias: bool) -> None:
    check(nn.Linear(k, n, bias=bias).half(), half(m, k))


@pytest.mark.parametrize(("m", "k", "n"), [(57, 64, 100), (1, 64, 10), (57, 10, 1), (1, 65, 1)])
def test_matmul(check: Check, m: int, k: int, n: int) -> None:
    check(torch.matmul, half(m, k), half(k, n))
    check(lambda a, b: a @ b.t(), half(m, k), half(n, k))
    check(lambda a, b: a.t() @ b, half(k, m), half(k, n))


def test_matmul_of_vectors(check: Check) -> None:
    check(torch.matmul, half(65), half(65, 10))
    check(torch.matmul, half(10, 65), half(65))
    check(torch.matmul, half(65), half(65))


def test_bmm_of_one(check: Check) -> None:
    check(torch.bmm, half(1, 57, 64), half(1, 64, 10))
    check(lambda q, k: torch.softmax(q @ k.transpose(1, 2), -1), half(1, 10, 64), half(1, 57, 64))


@pytest.mark.parametrize("shape", [(3, 10, 64), (1, 10, 64), (3, 1, 64), (2, 3, 5, 64)], ids=str)
def test_linear_on_many_dims(check: Check, shape: tuple[int, ...]) -> None:
    check(nn.Linear(64, 57).half(), half(*shape))


def test_linear_on_a_transposed_batch(check: Check) -> None:
    check(lambda x, w: F.linear(x.transpose(0, 1), w), half(3, 10, 64), half(57, 64))
    layer = nn.Linear(64, 57).half()
    check(lambda x: layer(x.transpose(0, 1)), half(3, 10, 64))
    check(lambda x: layer(torch.relu(x).transpose(0, 1)), half(3, 10, 64))


def test_matmuls_of_intermediates(check: Check) -> None:
    check(lambda q, k, v: torch.softmax(q @ k.t() * 0.125, -1) @ v, half(10, 64), half(57, 64), half(57, 65))
    check(lambda x: torch.relu(x) @ torch.relu(x).t(), half(10, 65))
    check(lambda x, w: torch.tanh(x @ w).t() @ x, half(57, 10), half(10, 10))


def test_models(check: Check) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(64, 100), nn.Linear(100, 100), nn.Linear(100, 64)
            self.norm = nn.LayerNorm(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.third(torch.relu(self.second(F.gelu(self.first(self.norm(x)))))) + x

    check(Residual().half(), half(57, 64))
    check(Residual().half(), half(3, 10, 64))
    check(nn.Sequential(nn.RMSNorm(65), nn.Linear(65, 10), nn.SiLU(), nn.LayerNorm(10)).half(), half(57, 65))


VIEWS: Functions = {
    "transpose": lambda x: x.t() + 1,
    "transposed_result": lambda x: (x + 1).t(),
    "slice": lambda x: x[10:20, 3:] * 2,
    "step": lambda x: x[::2, 1::3] * 2,
    "select": lambda x: x[5] + x[:, 3].sum(0),
    "reshape": lambda x: x.reshape(19, 300) + 1,
    "flatten": lambda x: x.flatten() + 1,
    "transpose_reshape": lambda x: x.t().reshape(50, 114) + 1,
    "transpose_reshape_ragged": lambda x: x.t().reshape(76, 75) + 1,
    "slice_reshape": lambda x: x[:, 4:100].reshape(57 * 2, 48) * 3,
    "split": lambda x: x[:, :50] * x[:, 50:],
    "chunk": lambda x: x.chunk(2, dim=-1)[1] + 0.5,
    "expand_reshape": lambda x: x[:, None, :].expand(57, 3, 100).reshape(171, 100) + 1,
    "copy": lambda x: x.t().contiguous(),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1) + x.unsqueeze(0)[0],
    "view_of_result": lambda x: (x * 2).view(19, 3, 100),
    "split_rows": lambda x: torch.softmax((x * 2).view(19, 3, 100), -1).amax(-1) * 2,
    "merge_rows": lambda x: torch.relu(torch.softmax(x.view(19, 3, 100), -1).view(57, 100) + x),
    "merge_result": lambda x: x.softmax(-1).reshape(-1),
    "transposed_merge": lambda x: torch.softmax(x, -1).t().reshape(-1),
    "transposed_split": lambda x: torch.softmax(x, -1).t().reshape(50, 2, 57) + 1,
    "constant": lambda x: x + torch.full((100,), 2.0, dtype=torch.half),
    "zeros": lambda x: (torch.zeros(3, 5), x + 1),
    "two_results": lambda x: (x + 1, (x + 1).sum(-1)),
    "scalar_result": lambda x: x[0].sum(),
    "scalar_chain": lambda x: x * torch.rsqrt(x[0].float().square().mean() + 1).half(),
}


def test_views(check: Check) -> None:
    check_all(check, {name: (function, (half(57, 100),)) for name, function in VIEWS.items()})


def test_results_without_a_kernel(check: Check) -> None:
    check(lambda x: x.t(), half(57, 10), launches=0)
    check(lambda x: (x, x + 1), half(57, 10))


def test_buffers_and_parameters(check: Check) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.5))
            self.register_buffer("table", torch.linspace(0, 1, 65).half())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.get_buffer("table")

    check(Scaled().half(), half(57, 65))


def test_constants_of_the_graph(check: Check) -> None:
    table = torch.linspace(0, 1, 65).half()
    check(lambda x: x + table, half(57, 65))


def test_chains_are_computed_in_f32_and_rounded_once(check: Check) -> None:
    text = check(lambda x, y: (x + y) * 0.1 - y, half(57, 65), half(57, 65))
    assert text.count("arith.truncf") == 1
    text = check(lambda x: torch.relu(-x), half(57, 65))
    assert "arith.extf" not in text


@pytest.mark.parametrize("columns", [2, 3, 5, 7])
def test_short_reductions_stay_reductions(check: Check, columns: int) -> None:
    assert '"reduction"' in check(lambda x: x.mean(-1), half(57, columns))
    check(lambda x: F.layer_norm(x, (columns,)), half(57, columns), atol=2e-2)


@pytest.mark.parametrize("columns", [1000, 4096])
def test_long_rows(check: Check, columns: int) -> None:
    """Beyond 1024 columns Inductor would use Welford's variance."""
    check(lambda x: F.layer_norm(x, (columns,)), half(5, columns))
    check(lambda x: torch.softmax(x, -1).sum(-1), half(5, columns))
    check(lambda x: x.float().sum(), half(columns))


INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "offset": lambda: half(57, 100)[5:, 3:],
    "transposed": lambda: half(57, 100).t(),
    "steps": lambda: half(57, 100)[::2, ::3],
    "expanded": lambda: half(57, 1).expand(57, 65),
    "expanded_rows": lambda: half(1, 65).expand(57, 65),
    "permuted": lambda: half(3, 10, 57).permute(2, 0, 1),
    "windows": lambda: half(100).as_strided((10, 57), (3, 1)),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_in_any_strides(check: Check, name: str) -> None:
    x = INPUTS[name]()
    check(lambda x: torch.relu(x) + 1, x)
    check(lambda x, w: torch.softmax(x @ w, -1), x, half(x.shape[-1], 10))
    check(lambda x: x.reshape(-1) * 2, x)


def test_results_beside_tensors(check: Check, compiled: Any) -> None:
    results = compiled.run(lambda x: {"y": x + 1, "n": None, "k": 3, "same": x}, half(57, 10))
    assert results["n"] is None
    assert results["k"] == 3
    torch.testing.assert_close(results["y"], half(57, 10) + 1)


def test_inference_mode(compiled: Any) -> None:
    layer, x = nn.Linear(65, 10).half(), half(57, 65)
    torch._dynamo.reset()
    with torch.inference_mode():
        actual = torch.compile(layer, backend=compiled.backend, dynamic=False)(x)
        torch.testing.assert_close(actual, layer(x), rtol=4e-3, atol=4e-3)


def test_one_compilation_per_shape(compiled: Any) -> None:
    torch._dynamo.reset()
    model = torch.compile(lambda x: torch.softmax(x, -1), backend=compiled.backend, dynamic=False)
    with torch.no_grad():
        for shape in ((57, 10), (10, 65), (57, 10), (1, 65)):
            torch.testing.assert_close(model(half(*shape)), torch.softmax(half(*shape), -1), rtol=4e-3, atol=4e-3)
    assert len(compiled.regions) == 3
    assert compiled.launches == 4
