"""Kernels as operators of PyTorch: values beside torch in float64, launches, errors at the user's line."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import ktir
import ktir.library
from ktir import lang
from ktir.device.autoload import register
from ktir.diagnostics import KtirError
from ktir.runtime import failures, metrics

register()
ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "examples"))

from kernels import softmax  # noqa: E402  # pyright: ignore[reportMissingImports]

X = torch.randn(9, 100, generator=torch.Generator().manual_seed(0)).half()
DEVICES = ("cpu", "spyre")


@ktir.library.operator("tests::softmax", softmax)
def softmax_op(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@ktir.library.operator("tests::softmax_on_grid", softmax[3])
def softmax_on_grid(x: torch.Tensor, block: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


@ktir.library.operator("tests::add", str(ROOT / "examples" / "add.mlir"))
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@lang.kernel
def extremes(x, low, high):
    for rows in lang.blocks(x.shape[0]):
        low[rows] = x[rows].min(-1)
        high[rows] = x[rows].max(-1)


@ktir.library.operator("tests::extremes", extremes)
def extremes_op(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0]), x.new_empty(x.shape[0])


@lang.kernel
def weighted(x, weight, y):
    for rows in lang.blocks(x.shape[0]):
        y[rows] = x[rows] * weight[:]


@ktir.library.operator("tests::weighted", weighted[4])
def weighted_op(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@lang.kernel
def put(cache, row, at):
    cache[at] = row[:]


@ktir.library.operator("tests::put", put[1], mutates_args=("cache",))
def put_op(cache: torch.Tensor, row: torch.Tensor, at: int) -> None:
    pass


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="ktir", dynamic=False, fullgraph=True)


def error_of(function: Callable[[], Any]) -> str:
    with pytest.raises(KtirError) as caught:
        function()
    return str(caught.value)


@pytest.mark.parametrize("device", DEVICES)
def test_eager_is_one_launch_on_the_chip(device: str) -> None:
    expected = torch.softmax(X.double(), -1)
    for call in (softmax_op, softmax_on_grid):
        with metrics.counted() as launches:
            found = call(X.to(device))
        assert launches() == metrics.Launches(chip=1)
        assert found.device.type == device
        torch.testing.assert_close(found.cpu().double(), expected, atol=2e-3, rtol=2e-3)


def test_file() -> None:
    a, b = X[:4, :64], X[4:8, :64]  # neither is dense
    assert torch.equal(add_op(a, b), a + b)
    assert torch.equal(add_op(a.to("spyre"), b.to("spyre")).cpu(), a + b)


def test_several_results_of_a_transposed_operand() -> None:
    low, high = extremes_op(X.T)
    assert torch.equal(low, X.min(0).values)
    assert torch.equal(high, X.max(0).values)


@pytest.mark.parametrize("device", DEVICES)
def test_written_argument(device: str) -> None:
    whole = torch.zeros(64, 8, dtype=torch.float16, device=device)
    cache = whole.T  # not dense
    before = cache._version
    put_op(cache, X[0, :64].to(device), 3)
    assert cache._version > before
    assert torch.equal(cache.cpu(), torch.zeros(8, 64).half().index_put((torch.tensor(3),), X[0, :64]))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled(device: str, caplog: pytest.LogCaptureFixture) -> None:
    def model(x: torch.Tensor, cache: torch.Tensor) -> Any:
        low, high = extremes_op(softmax_on_grid(softmax_op(x * 2) + x).T)
        put_op(cache, (high - low)[:64], 1)
        return high, cache * 2

    cache = torch.ones(3, 64).half()
    wide = X.double()
    scores = torch.softmax(torch.softmax(wide * 2, -1) + wide, -1)
    span = scores.max(0).values - scores.min(0).values
    with torch.no_grad():
        found = compiled(model)(X.to(device), on := cache.to(device))
    torch.testing.assert_close(found[0].cpu().double(), scores.max(0).values, atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(on.cpu()[1].double(), span[:64], atol=2e-3, rtol=2e-3)
    assert torch.equal(found[1].cpu(), on.cpu() * 2)
    assert "tests" not in caplog.text  # no warning of a fallback


def test_compiled_runs_on_the_chip_alone() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return softmax_op(x * 2) + 1

    with torch.no_grad(), metrics.counted() as launches:
        compiled(model)(X)
    assert launches().chip
    assert launches() == metrics.Launches(chip=launches().chip)


def test_torch_checks_it() -> None:
    """Schema, fake implementation and tracing, by PyTorch's own tests of operators."""
    assert set(torch.library.opcheck(softmax_op, (X,)).values()) == {"SUCCESS"}
    tests = ("test_schema", "test_faketensor")
    assert set(torch.library.opcheck(put_op, (X.clone(), X[0], 2), test_utils=tests).values()) == {"SUCCESS"}


def test_exported() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return softmax_op(x) * 2

    program = torch.export.export(Model(), (X,))
    assert torch.ops.tests.softmax.default in {n.target for n in program.graph.nodes}
    assert torch.equal(program.module()(X), softmax_op(X) * 2)


def test_gradients_in_compiled_graphs_are_refused() -> None:
    x = X.float().requires_grad_()
    with pytest.raises(Exception, match=r"there is no backward pass") as caught:
        compiled(lambda x: softmax_op(x) + 1)(x)
    assert "in eager 'tests::softmax' has gradients once torch.library.register_autograd has given it a formula" in str(caught.value)


WRONG_CALLS = [
    (lambda: add_op(X[:4, :64].float(), X[:4, :64]), "argument 'x' expects float16 of shape [4, 64], but got float32 of shape [4, 64]"),
    (lambda: add_op(X[:4, :64], X[0, :64]), "argument 'y' expects float16 of shape [4, 64], but got float16 of shape [64]"),
    (lambda: add_op(X[:2, :64], X[:2, :64]), "argument 'x' expects float16 of shape [4, 64], but got float16 of shape [2, 64]"),
    (lambda: put_op(X[:4].clone(), X[0], 4), "4"),
    (lambda: put_op(X[:4].clone(), X[0, :50], 1), "expects a tile that can be broadcast to shape"),
    (lambda: softmax_op(X.to(torch.complex64)), "element type complex64 has no form in KTIR"),
    (lambda: add_op(X[:4, :64], X[:4, :64].to("spyre")), "expects tensors of one device, but got cpu and spyre:0"),
]


@pytest.mark.parametrize("case", range(len(WRONG_CALLS)))
def test_wrong_call(case: int) -> None:
    call, words = WRONG_CALLS[case]
    said = error_of(call)
    line = call.__code__.co_firstlineno
    assert re.match(rf"{re.escape(__file__)}:{line}:1: error: 'tests::\w+' of ", said), said
    assert words in said


def test_bfloat16_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    words = (
        "'tests::softmax' of bfloat16 [9, 100] is not what its kernel takes: bfloat16 in the kernel language needs the package 'ml_dtypes'"
    )
    assert words in error_of(lambda: softmax_op(X.bfloat16()))


def test_wrong_call_in_a_graph() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return add_op(x * 2, x)  # this line

    line = model.__code__.co_firstlineno + 1
    with torch.no_grad():
        with pytest.raises(BackendCompilerFailed) as caught:
            compiled(model)(X[:2, :64])
    words = f"{__file__}:{line}:1: error: 'tests::add' of float16 [2, 64] and float16 [2, 64] is not what its kernel takes"
    assert words in str(caught.value)


def test_wrong_operators() -> None:
    def gives_operand(x: torch.Tensor) -> torch.Tensor:
        return x

    def gives_float(x: torch.Tensor) -> float:
        return 0.0

    def gives_nothing(x: torch.Tensor) -> None:
        pass

    def takes_more(x: torch.Tensor, z: int) -> torch.Tensor:
        return x

    def writes(cache: torch.Tensor, row: torch.Tensor, at: int) -> None:
        pass

    aliasing = ktir.library.operator("tests::aliasing", softmax)(gives_operand)
    assert "result 'y' shares its memory with argument 'x'" in error_of(lambda: aliasing(X))
    silent = ktir.library.operator("tests::silent", put)(writes)
    assert "stores into argument 'cache'; declare it" in error_of(lambda: silent(X.clone(), X[0], 1))
    for function, words in (
        (gives_float, "expects tensors as results"),
        (gives_nothing, "has 0 results, but kernel 'softmax' has 1 (y)"),
        (takes_more, "kernel 'softmax' has no argument 'z'"),
    ):
        make = ktir.library.operator(f"tests::{function.__name__}", softmax)
        assert words in error_of(lambda make=make, function=function: make(function))
    for name in ("noname", "a::b::c", "a-b::c", 7):
        said = error_of(lambda name=name: ktir.library.operator(name, softmax)(gives_operand))  # pyright: ignore[reportArgumentType]
        assert re.search(rf"test_operators.py:\d+:1: error: an operator expects a name with a namespace, as .*, but got {name!r}", said)
    assert "'tests::untyped': Parameter x must have a type" in error_of(
        lambda: ktir.library.operator("tests::untyped", softmax)(lambda x: x)
    )
    unknown = ktir.library.operator("tests::unknown", softmax, mutates_args=("q",))
    assert "'tests::unknown': {'q'} in mutates_args were not found" in error_of(lambda: unknown(gives_operand))
    assert "cannot read 'nowhere.mlir'" in error_of(lambda: ktir.library.operator("tests::nowhere", "nowhere.mlir"))
    assert "expects a kernel of ktir.lang" in error_of(lambda: ktir.library.operator("tests::plain", gives_operand))


@pytest.mark.parametrize("planted", [RuntimeError, KtirError])
@pytest.mark.parametrize("run", [lambda f: f, compiled])
def test_fault_of_the_compiler(
    run: Callable[[Any], Any], planted: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It is told once, with what reproduces it and a report, and the executor runs the program; with fallback="error" it is the error."""

    def fails(*_: object, **__: object) -> None:
        raise planted("planted")

    monkeypatch.setattr("ktir.lowering.compile.run_pipeline", fails)
    monkeypatch.setattr("ktir.runtime.notices._said", set())
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    x = X[:, : (90 if run is compiled else 91) - 2 * (planted is KtirError)].contiguous()
    with metrics.counted() as launches:
        y = run(lambda x: softmax_op(x))(x)
    assert (launches().chip, launches().executor) == (0, 1)
    torch.testing.assert_close(y.double(), x.double().softmax(-1), rtol=0, atol=2.0**-10)
    said = caplog.text
    assert re.search(r"'tests::softmax' of float16 \[9, \d+\].*: .*planted" if run is not compiled else "planted", said)
    assert "--run-reproducer" in said
    report = failures.latest()
    assert report is not None
    assert (report["failure"]["category"], "planted" in report["failure"]["message"]) == ("compile", True)
    torch._dynamo.reset()
    with ktir.config.patch(fallback="error"), pytest.raises((KtirError, BackendCompilerFailed), match="planted"):
        run(lambda x: softmax_op(x))(x + 1)


@lang.kernel
def taken(cache, x, y):
    y[...] = cache[...] * 2
    cache[...] = cache[...] + x[...]


@ktir.library.operator("tests::taken", taken, mutates_args=("cache",))
def taken_op(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(cache)


def overlapping(cache: torch.Tensor) -> torch.Tensor:
    return taken_op(cache[:-1], cache[1:])


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_written_is_memory_of_its_own(device: str) -> None:
    words = "arguments 'cache' and 'x' share memory, and the kernel writes 'cache'"
    whole = torch.arange(12 * 64.0).reshape(12, 64).to(device)
    before = whole.cpu().clone()
    assert words in error_of(lambda: taken_op(whole, whole))
    assert words in error_of(lambda: overlapping(whole))
    with torch.no_grad(), pytest.raises(Exception, match=words):
        torch.compile(overlapping, backend="ktir" if device == "cpu" else "spyre", dynamic=False)(whole)
    assert torch.equal(whole.cpu(), before)
    taken_op(whole[::2], whole[1::2])
    expected = before.clone()
    expected[::2] += before[1::2]
    assert torch.equal(whole.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_without_elements(device: str) -> None:
    """Nothing is launched, in eager and in a graph."""
    x = torch.empty(0, 64, dtype=torch.float16, device=device)
    for run in (lambda f: f, lambda f: torch.compile(f, backend="ktir" if device == "cpu" else "spyre", dynamic=False)):
        with torch.no_grad(), metrics.counted() as launches:
            found = run(lambda x: softmax_op(x))(x)
        assert found.shape == x.shape
        assert launches() == metrics.Launches()
    with metrics.counted() as launches:
        assert weighted_op(x, torch.ones(64, dtype=torch.float16, device=device)).shape == (0, 64)  # with a weight that nothing looks at
    assert launches() == metrics.Launches(0, 0, 0)


def test_an_operator_at_fault_is_not_the_compilers(caplog: pytest.LogCaptureFixture) -> None:
    """Row -1 lies outside, as the executor says, too."""
    for options in ({}, {"fallback": "error"}):
        with ktir.config.patch(**options):
            said = error_of(lambda: put_op(X[:4].clone(), X[0], -1))
        assert "reaches coordinates -1 to -1 in dim 0" in said
        assert "fault" not in said
    assert not caplog.records


@lang.kernel
def times(x, n, y):
    y[...] = x[...] * n


@ktir.library.operator("tests::times", times)
def times_op(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_a_whole_number_that_computes_runs_on_the_chip(way: str) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return times_op(x, 3)

    x = torch.ones(4, 64)
    with torch.no_grad(), metrics.counted() as launches:
        y = (torch.compile(run, backend="ktir", dynamic=False) if way == "compiled" else run)(x)
    assert torch.equal(y, x * 3)
    assert (launches().chip, launches().executor) == (1, 0)


def test_signs_of_zeros_are_parameters_of_their_own() -> None:
    for p in (0.0, -0.0):
        assert torch.equal(torch.signbit(signed_op(torch.ones(2, 64), p)), torch.full((2, 64), str(p) == "-0.0"))


@lang.kernel
def signed(x, y, *, p):
    y[...] = np.copysign(x[...], p)


@ktir.library.operator("tests::signed", signed)
def signed_op(x: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(x)
