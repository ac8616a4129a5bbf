"""What has no KTIR form runs on the CPU with one warning, or is refused with its name, shape, dtype and source line."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn

import ktir
import ktir.lowering.inductor
from ktir import config
from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor import adapter, scheduling
from ktir.lowering.inductor.capture import capture, capture_regions
from ktir.lowering.inductor.recorder import index_of
from ktir.lowering.region_to_ktir.region import NestRefused, Region
from ktir.runtime import metrics, notices

HERE = Path(__file__).name


def half(*shape: int) -> torch.Tensor:
    return torch.ones(*shape).half()


@pytest.fixture(autouse=True)
def _fresh_warnings() -> None:
    notices.forget()


# name -> (function, inputs, what the message must contain)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "histc": (lambda x: x.histc(4), (torch.ones(5),), r"'aten.histc.default' op of shape \[4\] and dtype float32"),
    "inverse": (lambda x: x.inverse() + 1, (torch.eye(3),), r"'aten.linalg_inv_ex.default' op"),
    "random": (lambda x: x + torch.rand(3, 5), (half(3, 5),), r"'aten.rand.default' op of shape \[3, 5\] and dtype float32"),
    "dropout": (lambda x: F.dropout(x, 0.5), (half(3, 5),), r"'aten.(native_dropout|rand_like|bernoulli|rand).*' op"),
    "complex": (lambda x: torch.complex(x, x) * 2, (torch.ones(3),), r"'aten.complex.default' op"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_by_name(name: str) -> None:
    function, inputs, expected = CASES[name]
    with pytest.raises(Unsupported, match=expected) as caught, config.patch(fallback="error"):
        capture_regions(function, *inputs)
    assert "there are no loops for it" in str(caught.value)
    assert re.search(rf"{HERE}:\d+:1: error: ", str(caught.value))


def test_a_call_of_aten_is_a_barrier(loops: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Two programs around one call; a second call of the same operator says nothing new."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).histc(4)
        return (y + 1).histc(5) * 2

    x = torch.arange(7.0)
    torch.testing.assert_close(loops.run(function, x), function(x))
    assert loops.launches == 3
    assert [r.levelno for r in caplog.records if r.name == "ktir"] == [logging.WARNING]
    assert re.search(rf"{HERE}:\d+:1: warning: 'aten.histc.default' op of shape \[4\].*\n?.*it runs in PyTorch", caplog.text)


class Refusing:
    """Takes regions as `loops` does, but refuses nests that have one of some ops."""

    def __init__(self, loops: Any, *ops: str) -> None:
        self.loops, self.ops, self.take = loops, ops, loops.compile_region
        loops.compile_region = self.compile_region
        self.tried = 0

    def compile_region(self, region: Region) -> str:
        self.tried += 1
        self.translate(region)
        return self.take(region)

    def translate(self, region: Region) -> None:
        for nest in region.nests:
            op = next((r.op for r in nest.records() if r.op in self.ops), None)
            if op:
                raise NestRefused(f"'{op}' op, in a test, is not supported", nest.source, nest.name, nest.origins)


def test_refused_nests_run_on_the_cpu(loops: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """All refused nests of a region are found at once; what remains is compiled whole."""
    lowered: list[Any] = []
    compile_fx = adapter.compile_fx
    monkeypatch.setattr(adapter, "compile_fx", lambda *args, **keywords: lowered.append(args) or compile_fx(*args, **keywords))
    monkeypatch.setattr(scheduling, "translate", Refusing(loops, "sin", "cos").translate)

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.softmax(x.sin() * 2, -1)
        b = (torch.softmax(y, -1) + 1).cos()
        return a + 1, torch.softmax(b, 0)

    x, y = torch.randn(5, 7), torch.randn(5, 7)
    torch.testing.assert_close(loops.run(function, x, y), function(x, y))
    assert len(lowered) == 2
    assert loops.launches >= 2
    assert {r.op for region in loops.regions for r in region.records()} & {"exp", "sin", "cos"} == {"exp"}
    assert re.search(rf"{HERE}:\d+:1: warning: 'sin' op", caplog.text)
    assert re.search(rf"{HERE}:\d+:1: warning: 'cos' op", caplog.text)


def test_refused_nests_are_errors_if_asked(loops: Any) -> None:
    Refusing(loops, "sin")
    with pytest.raises(Exception, match=rf"{HERE}:\d+:1: error: 'sin' op") as caught, config.patch(fallback="error"):
        loops.run(lambda x: x.sin() + 1, torch.ones(3))
    assert "NestRefused" in str(caught.value)


def test_mutation_beside_a_fallback(loops: Any) -> None:
    Refusing(loops, "sin")

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y.sin())
        return x * 2

    x, y = torch.ones(5, 7), torch.randn(5, 7)
    mine = x.clone()
    torch.testing.assert_close(loops.run(function, mine, y), function(x, y))
    torch.testing.assert_close(mine, x)


def _row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[:, 1] = y[:, 0]
    return x.sum(0)


def _diagonal(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.diagonal().copy_(y[0])
    return x + 1


def _transposed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.t().copy_(y).mul_(2)
    return x + 1


def _some(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.view(-1)[3:8].copy_(y.view(-1)[:5])
    return x.sin_().t()


class RefusingWrites:
    """Refuses nests that write to memory that was there before."""

    def __init__(self, loops: Any, *, origins: bool = True) -> None:
        self.take, self.origins = loops.compile_region, origins
        loops.compile_region = self.compile_region

    def compile_region(self, region: Region) -> str:
        for nest in region.nests:
            if any(r.op == "store" and region.buffers[r.buffer].role == "mutated" for r in nest.records()):
                raise NestRefused("a store, in a test, is not supported", nest.source, nest.name, nest.origins if self.origins else ())
        return self.take(region)


@pytest.mark.parametrize("function", [_row, _diagonal, _transposed, _some])
def test_refused_copies_into_views(loops: Any, function: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """Copies that Inductor makes of its own accord run on the CPU like all others."""
    RefusingWrites(loops)
    x, y = torch.randn(5, 5), torch.randn(5, 5)
    mine = x.clone()
    torch.testing.assert_close(loops.run(function, mine, y), function(x, y))
    torch.testing.assert_close(mine, x)
    assert "a store, in a test, is not supported\nnote: it runs in PyTorch" in caplog.text
    assert "whole graph" not in caplog.text


def test_refused_copies_into_views_are_errors_if_asked(loops: Any) -> None:
    RefusingWrites(loops)
    with pytest.raises(Exception, match="a store, in a test, is not supported"), config.patch(fallback="error"):
        loops.run(_row, torch.ones(5, 5), torch.ones(5, 5))


def test_what_no_node_stands_for_runs_as_a_whole(loops: Any, caplog: pytest.LogCaptureFixture) -> None:
    RefusingWrites(loops, origins=False)
    x, y = torch.randn(5, 5), torch.randn(5, 5)
    mine = x.clone()
    torch.testing.assert_close(loops.run(_row, mine, y), _row(x, y))
    torch.testing.assert_close(mine, x)
    assert caplog.text.count("the whole graph runs in PyTorch") == 1


def test_a_warm_start_needs_no_second_try(loops: Any) -> None:
    """What a refused nest led to is in torch's caches under the key of the first try."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    from ktir.lowering.inductor.backend import compile_graph

    refusing = Refusing(loops, "sin")

    def run() -> dict[str, int]:
        torch._dynamo.reset()
        counters.clear()
        compiled = torch.compile(
            lambda x: x.sin() + 1, backend=lambda gm, inputs: compile_graph(gm, inputs, loops.compile_region), dynamic=False
        )
        with torch.no_grad():
            torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
        return {k: counters["inductor"][f"fxgraph_cache_{k}"] for k in ("hit", "bypass")}

    with fresh_cache():
        run()
        tried = refusing.tried
        assert run() == {"hit": 1, "bypass": 0}
        assert refusing.tried == tried


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
        text = compile_and_call(lambda x: torch.relu(x).histc(3), torch.ones(5), backend=backend, options={"fallback": "error"})
    assert f"backend='{backend}' raised" in text
    assert re.search(rf"NestRefused: .*{HERE}:\d+:1: error: 'aten.histc.default' op of shape \[3\] and dtype float32", text)


def test_gradients_are_refused() -> None:
    layer = nn.Sequential(nn.Linear(64, 10)).half()
    text = compile_and_call(layer, half(3, 64))
    assert "needs gradients" in text
    assert "torch.no_grad()" in text
    assert "torch.inference_mode()" in text
    assert "shape [3, 10] and dtype float16" in text
    assert "no_grad" in compile_and_call(lambda x: x * 2, half(3).requires_grad_())


def test_nested_tensors_are_refused() -> None:
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with torch.no_grad():
        text = compile_and_call(lambda x: x * 2, ragged)
    assert re.search(rf"{HERE}:\d+:1: error: input '\w+' of dtype float32 is not supported: it is a nested tensor", text)


def test_no_gradients_are_needed_where_they_are_switched_off() -> None:
    layer = nn.Linear(64, 10).half()

    @torch.no_grad()
    def inside(x: torch.Tensor) -> torch.Tensor:
        return layer(x)

    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert "linalg." in capture(layer, half(3, 64))
    assert "linalg." in capture(inside, half(3, 64))
    assert "linalg." in capture(lambda x: layer(x).detach(), half(3, 64))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parameters_are_seen_and_written_where_gradients_are_switched_off(mode: Callable[[], Any]) -> None:
    """Views of parameters, and what is written to them, say that they want gradients even so."""
    mine, theirs = (nn.Parameter(torch.arange(12.0).reshape(3, 4)) for _ in range(2))
    x = torch.ones(3, 4)
    for f in (lambda w: w[0], lambda w: w.view(-1), lambda w: w.mul_(0.5).add_(x, alpha=2), lambda w: (w.t(), w + x)):
        torch._dynamo.reset()
        with mode():
            found = torch.compile(f, backend="ktir", options={"engine": "ktir", "fallback": "error"})(mine)
            torch.testing.assert_close(found, f(theirs))
        torch.testing.assert_close(mine, theirs)
    with mode():
        text = compile_and_call(lambda w: torch.enable_grad()(lambda: w * 2)(), mine)
    assert "the call without torch.enable_grad() in it" in text


def test_an_error_of_the_program_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """What PyTorch fails at too is PyTorch's error, and nobody is said to be at fault."""
    notices.forget()
    small = torch.arange(9, dtype=torch.uint8)
    with torch.no_grad(), pytest.raises(RuntimeError, match="without overflow"):
        torch.compile(lambda x: torch.where(x > 1, x, 256), backend="ktir")(small)
    assert "fault" not in caplog.text


class Named(torch.Tensor):
    """A tensor of a class of the user's."""


def test_tensors_of_classes_that_only_have_a_name_are_tensors() -> None:
    with torch.no_grad():
        x = half(3, 64).as_subclass(Named)
        found = torch.compile(lambda x: x * 2, backend="ktir", options={"engine": "ktir", "fallback": "error"})(x)
    assert type(found) is Named
    assert torch.equal(found, x * 2)


def test_bad_options_are_refused() -> None:
    with torch.no_grad():
        assert "unknown option 'corse'" in compile_and_call(lambda x: x + 1, half(3), options={"corse": 4})
        assert "cores must be an integer from 1 to 32" in compile_and_call(lambda x: x + 1, half(3), options={"cores": 64})
        assert "engine must be one of spyre, ktir" in compile_and_call(lambda x: x + 1, half(3), options={"engine": "chip"})
        assert "mode 'max-autotune'" in compile_and_call(lambda x: x + 1, half(3), mode="max-autotune")


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
    with pytest.raises(KtirError, match="nothing to compute"):
        capture_regions(lambda x: x.t(), half(3, 5))


class TestHints:
    """What a hint wants is done or refused by name, as the user's matter, not as a fault of the compiler."""

    @staticmethod
    def run(function: Any) -> torch.Tensor:
        torch._dynamo.reset()
        options = {"engine": "spyre", "fallback": "error", "cores": 2}
        x, w = torch.ones(4, 64).half(), torch.ones(64, 64).half()
        with torch.no_grad():
            return torch.compile(function, backend="spyre", fullgraph=True, dynamic=False, options=options)(x, w)

    @pytest.mark.parametrize(
        ("kind", "message"),
        [("work_div", "hint work_div names loop 'M'"), ("num_tiles_per_dim", "hint num_tiles_per_dim wants 3 tiles of 'M'")],
    )
    def test_refused(self, kind: str, message: str) -> None:
        with ktir.hint(**{kind: {"M": 3}}), pytest.raises(Exception, match=message) as error:
            self.run(torch.matmul)
        assert "the fault lies in ktir" not in str(error.value)

    def test_inside_of_what_is_compiled(self) -> None:
        def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            with ktir.hint(work_div={"m": 2}):
                return x @ w

        with pytest.raises(Exception, match="it stands around the call, not inside of the function that is compiled"):
            self.run(function)


def test_only_the_operator_that_is_missing_leaves() -> None:
    """Neither what is fused with it, nor what reads its result, nor the matmuls on both sides."""
    w = torch.eye(33).half()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.erfinv(torch.tanh(x @ w) * 0.5) @ w, -1)

    x = torch.linspace(-2, 2, 5 * 33).reshape(5, 33).half()
    torch._dynamo.reset()
    with metrics.counted() as launches:
        result = torch.compile(function, backend="spyre")(x)
    assert launches() == metrics.Launches(chip=2, executor=0, torch=1)
    torch.testing.assert_close(result, function(x), rtol=2e-3, atol=1e-4)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r":\d+:1: error: 'erfinv' op"):
        torch.compile(function, backend="spyre", options={"fallback": "error"})(x)


def test_indices_without_a_form_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="a comparison of positions"):
        index_of(sympy.Symbol("i0") < 3)
