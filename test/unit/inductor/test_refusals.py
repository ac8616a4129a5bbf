"""What is not supported is refused by name, shape, dtype, source line and nearest supported form; never run on the host."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ktir.lowering.inductor  # noqa: F401  registers the backends
from ktir import config
from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor import adapter
from ktir.lowering.inductor.capture import capture, capture_region

HERE = Path(__file__).name


def half(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).half()


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


LONG = torch.tensor([1, 2])
# name -> (function, inputs, what the message must contain)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "bmm": (torch.bmm, (half(3, 5, 6), half(3, 6, 7)), r"'aten.bmm.default' op of shape \[3, 5, 7\] and dtype float16 .* batch is 3"),
    "conv": (Convolution().half(), (half(1, 3, 8, 8),), r"'aten.convolution.default' op of shape \[1, 4, 6, 6\].* unfold"),
    "f32_dot": (lambda x: x @ x, (torch.ones(5, 5),), r"'aten.mm.default' op of shape \[5, 5\] and dtype float32.*model.half\(\)"),
    "embedding": (lambda x, i: F.embedding(i, x), (half(9, 5), LONG), r"'aten.embedding.default' op of shape \[2, 5\]"),
    "index": (lambda x, i: x[i], (half(9, 5), LONG), r"'aten.index.Tensor'"),
    "gather": (lambda x, i: x.gather(0, i), (half(2), LONG - 1), r"'aten.gather.default'"),
    "scatter": (lambda x, i: x.scatter_add(0, i, x), (half(2), LONG - 1), r"'aten.scatter_add.default'"),
    "argmax": (lambda x: x.argmax(-1), (half(3, 5),), r"'aten.argmax.default' op of shape \[3\] and dtype int64.*amax"),
    "max_dim": (lambda x: x.max(-1), (half(3, 5),), r"'aten.max.dim'"),
    "comparison": (lambda x: x > 0, (half(3, 5),), r"'aten.gt.Scalar' op of shape \[3, 5\] and dtype bool.*mask"),
    "where": (lambda x, y: torch.where(x.bool(), x, y), (half(3, 5), half(3, 5)), r"dtype bool"),
    "causal": (lambda x: x.tril(), (half(5, 5),), r"prims.iota.default"),
    "int": (lambda x: x.int() + 1, (half(3, 5),), r"dtype int32.*the types are float16 and float32"),
    "int_input": (lambda i: i * 2, (LONG,), r"'aten.mul.Tensor' op of shape \[2\] and dtype int64"),
    "bfloat16": (lambda x: x + 1, (half(3, 5).bfloat16(),), r"'aten.add.Tensor' op of shape \[3, 5\] and dtype bfloat16.*model.half\(\)"),
    "float64": (lambda x: x + 1, (half(3, 5).double(),), r"dtype float64.*float32"),
    "complex": (lambda x: torch.complex(x, x), (torch.ones(3),), r"'aten.complex.default' op of shape \[3\] and dtype complex64"),
    "log": (torch.log, (half(3, 5),), r"'aten.log.default'"),
    "cumsum": (lambda x: x.cumsum(-1), (half(3, 5),), r"'aten.cumsum.default'"),
    "topk": (lambda x: x.topk(2), (half(3, 5),), r"'aten.topk.default'"),
    "sort": (lambda x: x.sort(), (half(3, 5),), r"'aten.sort"),
    "flip": (lambda x: x.flip(0) + 1, (half(3, 5),), r"'prims.rev.default'"),
    "pad": (lambda x: F.pad(x, (1, 1)), (half(3, 5),), r"'aten.constant_pad_nd.default' op of shape \[3, 7\]"),
    "dropout": (lambda x: F.dropout(x, 0.5), (half(3, 5),), r"model.eval\(\)"),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (half(1, 2, 5, 64),), r"scaled_dot_product.*q @ k.t\(\)"),
    "empty": (lambda x: x + 1, (half(0, 5),), r"shape \[0, 5\].*the tensor is empty"),
    "sum_all": (lambda x: x.sum(), (half(5, 7),), r"'aten.sum.default'.*reduces dims \[0, 1\] of an operand of shape \[5, 7\].*last dim"),
    "softmax_rows": (lambda x: x.softmax(0), (half(5, 7),), r"reduces dims \[0\]"),
    "power": (lambda x: x**2.5, (half(5, 7),), r"'aten.pow.Tensor_Scalar'.*exponent is 2.5"),
    "in_place": (lambda x: x.add_(1), (half(5, 7),), r"'aten.copy_.default' op of shape \[5, 7\].*in place"),
    "floor_div": (lambda x: torch.div(x, 2, rounding_mode="floor"), (half(5, 7),), r"rounding_mode|floor"),
    "addmm_beta": (lambda b, x: torch.addmm(b, x, x, beta=0.5), (half(5), half(5, 5)), r"beta and alpha must be 1"),
    "part_of_result": (
        lambda x: torch.softmax(x, -1)[1:] @ x,
        (half(5, 5),),
        r"intermediate '\w+' of shape \[5, 5\].*'aten.mm.default'.*shape \[4, 5\] and dtype float.*only a part",
    ),
    "repeated_rows": (lambda x: torch.softmax(x, -1)[:, None, :].expand(5, 2, 7).reshape(10, 7) * 2, (half(5, 7),), r"several times"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_by_name(name: str) -> None:
    function, inputs, expected = CASES[name]
    with pytest.raises(Unsupported, match=expected) as caught:
        capture(function, *inputs)
    if function not in (torch.bmm, torch.log):  # these have no line in user code
        assert re.search(rf"{HERE}:\d+:1: error: ", str(caught.value))


UNCHECKED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (Convolution().half(), (half(1, 3, 8, 8),), r"convolution"),
    (lambda x: x.topk(2), (half(3, 5),), r"'aten.topk.default'"),
    (lambda x: x.cumsum(-1), (half(3, 5),), r"'aten.cumsum.default'"),
    (lambda x, i: x[i], (half(9, 5), LONG), r"indirect access of shape \[2, 5\] and dtype float16"),
    (lambda x, i, y: x.index_put((i,), y), (half(9), LONG, half(2)), r"'Scatter' op|indirect"),
    (lambda x: x.add_(1), (half(5, 7),), r"change of '\w+' in place"),
    (lambda x: F.pad(x, (1, 1)), (half(3, 5),), r"index expression|masked"),
    (lambda x: x.tril(), (half(5, 5),), r"value of the index expression"),
    (lambda x: torch.where(x > 0, x, 0), (half(3, 5),), r"'(gt|where)' op"),
    (lambda x: x.flip(0) + 1, (half(3, 5),), r"backwards"),
    (torch.sin, (half(3, 5),), r"'sin' op, in 'aten.sin.default' of shape \[3, 5\] and dtype float16"),
    (lambda x: x.sum(), (half(5, 7),), r"reduction over 2 dims at once \(5 x 7\)"),
    (lambda x: x.prod(-1), (half(5, 7),), r"'prod' reduction"),
    (lambda x: x.argmax(-1), (half(5, 7),), r"'argmax' reduction"),
    (lambda x: x @ x, (torch.ones(5, 5),), r"a matmul of float32"),
    (lambda x: x + 1, (half(5).bfloat16(),), r"bfloat16|type"),
    (lambda x: torch.cat([torch.softmax(x, -1), x @ x], -1), (half(3, 3),), r"concatenation|ConcatKernel"),
]


@pytest.mark.parametrize("case", UNCHECKED, ids=[expected for _, _, expected in UNCHECKED])
def test_second_line_of_defence(monkeypatch: pytest.MonkeyPatch, case: tuple[Callable[..., Any], tuple[Any, ...], str]) -> None:
    """Even if the check of the graph missed an operator, neither a host kernel nor a data-dependent access gets through."""
    monkeypatch.setattr(adapter, "check_graph", lambda gm: None)
    function, inputs, expected = case
    with pytest.raises(Unsupported, match=expected):
        capture(function, *inputs)


def compile_and_call(function: Callable[..., Any], *inputs: Any, **keywords: Any) -> str:
    """What torch.compile says to the user."""
    torch._dynamo.reset()
    with pytest.raises(Exception) as caught:  # noqa: PT011
        torch.compile(function, **{"backend": "spyre", **keywords})(*inputs)
    assert type(caught.value).__name__ == "BackendCompilerFailed"
    return str(caught.value)


@pytest.mark.parametrize("backend", ["spyre", "ktir"])
def test_the_message_reaches_the_user(backend: str) -> None:
    with torch.no_grad():
        text = compile_and_call(lambda x: torch.relu(x).argmax(-1), half(3, 5), backend=backend)
    assert f"backend='{backend}' raised" in text
    assert re.search(rf"Unsupported: .*{HERE}:\d+:1: error: 'aten.argmax.default' op of shape \[3\] and dtype int64", text)


def test_gradients_are_refused() -> None:
    layer = nn.Sequential(nn.Linear(64, 10)).half()
    text = compile_and_call(layer, half(3, 64))
    assert "needs gradients" in text
    assert "torch.no_grad()" in text
    assert "torch.inference_mode()" in text
    assert "shape [3, 10] and dtype float16" in text
    assert "no_grad" in compile_and_call(lambda x: x * 2, half(3).requires_grad_())


def test_no_gradients_are_needed_where_they_are_switched_off() -> None:
    layer = nn.Linear(64, 10).half()

    @torch.no_grad()
    def inside(x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert "linalg.generic" in capture(layer, half(3, 64))
    assert "linalg.generic" in capture(inside, half(3, 64))
    assert "linalg.generic" in capture(lambda x: layer(x).detach(), half(3, 64))


def test_bad_options_are_refused() -> None:
    with torch.no_grad():
        assert "unknown option 'corse'" in compile_and_call(lambda x: x + 1, half(3), options={"corse": 4})
        assert "cores must be an integer from 1 to 32" in compile_and_call(lambda x: x + 1, half(3), options={"cores": 64})
        assert "mode 'max-autotune'" in compile_and_call(lambda x: x + 1, half(3), mode="max-autotune")


def test_fallback_runs_the_graph_eagerly_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    x = torch.arange(6).reshape(2, 3).half()
    with torch.no_grad(), config.patch(fallback="eager"):
        result = torch.compile(lambda x: x.argmax(-1), backend="ktir")(x)
    assert result.tolist() == [2, 2]
    assert "'aten.argmax.default'" in caplog.text


def test_spyre_is_left_to_torch_spyre(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from torch._dynamo.backends import registry

    from ktir.lowering.inductor import backend

    monkeypatch.setattr(backend, "torch_spyre_is_installed", lambda: True)
    monkeypatch.setattr(registry, "_BACKENDS", {})
    monkeypatch.setattr(registry, "_COMPILER_FNS", {})
    backend.register.__wrapped__()
    assert set(registry._COMPILER_FNS) == {"ktir"}
    assert "use backend='ktir'" in caplog.text
    with pytest.raises(KtirError, match="use backend='ktir'"):
        backend.spyre(None, [])  # type: ignore[arg-type]


def test_nothing_to_compute() -> None:
    with pytest.raises(ValueError, match="nothing to compute"):
        capture_region(lambda x: x.t(), half(3, 5))
