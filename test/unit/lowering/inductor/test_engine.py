"""torch.compile with the KTIR executor as engine: mutation, aliases, barriers, nested regions, saved artifacts, stages that are shown."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

import ktir
from ktir.lowering.inductor.capture import capture_regions
from ktir.runtime import cache, metrics, notices

OPTIONS = {"engine": "ktir", "fallback": "error"}


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    torch._dynamo.reset()
    notices.forget()
    with fresh_cache(), torch.no_grad():
        yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="ktir", fullgraph=True, dynamic=False, options={**OPTIONS, **options})


def same(function: Callable[..., Any], *inputs: torch.Tensor, calls: int = 2) -> None:
    """Results and inputs as after eager calls; several calls, because inputs may change."""
    theirs, mine = [x.clone() for x in inputs], [x.clone() for x in inputs]
    run = compiled(function)
    for _ in range(calls):
        torch.testing.assert_close(run(*mine), function(*theirs))
        torch.testing.assert_close(mine, theirs)


def ramp(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) / 7 - 2).to(dtype)


def test_scatter_add_is_a_program_whatever_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        same(lambda x, k, y: x.scatter_add(0, k, y), ramp(5, 7), torch.tensor([[0, 3, 3, 0, 1, 1, 1]] * 2), ramp(2, 7))
    finally:
        torch.set_num_threads(threads)


class TestMutation:
    def test_in_place(self) -> None:
        same(lambda x: x.add_(1).mul_(2).sum(-1), ramp(5, 7))

    def test_slices(self) -> None:
        def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x[1:3, 2:] = y
            x[0] += x[1]
            return x * 2

        same(function, ramp(5, 7), ramp(2, 5))

    def test_cache_of_keys(self) -> None:
        def function(cache: torch.Tensor, at: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            cache.index_copy_(1, at, key * 2)
            at += 1
            return cache @ key.transpose(-1, -2)

        same(function, torch.zeros(2, 8, 4), torch.tensor([3]), ramp(2, 1, 4), calls=3)

    def test_buffer_of_a_module(self) -> None:
        class Counter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("count", torch.zeros(3))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.count += x
                return self.count * 2

        mine, theirs = Counter(), Counter()
        run = compiled(mine)
        for _ in range(3):
            torch.testing.assert_close(run(torch.ones(3)), theirs(torch.ones(3)))
        torch.testing.assert_close(mine.count, theirs.count)

    def test_views_of_one_tensor(self) -> None:
        def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = x[1:], x[:-1]
            a.mul_(2)
            return a + b, b

        same(function, ramp(5, 7))

    def test_input_is_returned(self) -> None:
        run = compiled(lambda x: (x.add_(1), x[1:] * 2))
        x = torch.zeros(3)
        first, _ = run(x)
        assert first.data_ptr() == x.data_ptr()


class TestMemory:
    """Tensors are bound where they lie."""

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int8, torch.bool])
    def test_types(self, dtype: torch.dtype) -> None:
        x = (ramp(5, 7) > 0) if dtype == torch.bool else ramp(5, 7).to(dtype)
        same(lambda x: (x.t().contiguous(), torch.where(x == x[0], x, x.flip(0))), x)

    def test_overlapping_inputs(self) -> None:
        base = ramp(40)
        run = compiled(lambda a, b: a * 2 + b)
        a, b = base[:20], base[10:30]
        torch.testing.assert_close(run(a, b), a * 2 + b)

    def test_interleaved_inputs(self) -> None:
        packed = ramp(6, 12)
        run = compiled(lambda a, b, c: a * b + c)
        a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
        torch.testing.assert_close(run(a, b, c), a * b + c)

    def test_strided_inputs(self) -> None:
        x = ramp(9, 8)[1::2, ::3]
        torch.testing.assert_close(compiled(lambda x: x.exp().sum(0))(x), x.exp().sum(0))

    def test_index_out_of_range(self) -> None:
        run = compiled(lambda x, i: x[i] + 1)
        x = ramp(5, 7)
        torch.testing.assert_close(run(x, torch.tensor([1, -1])), x[[1, -1]] + 1)
        with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 5"):
            run(x, torch.tensor([1, 5]))


def test_a_refused_program_runs_on_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    """One that the chip's compiler has no instructions for: a warning, or an error where asked."""
    x = ramp(5, 7).int()
    run = torch.compile(lambda x: x.cumprod(1), backend="spyre", dynamic=False)
    torch.testing.assert_close(run(x), x.cumprod(1))
    assert "it runs on the KTIR executor instead" in caplog.text
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"test_engine.py:\d+:1: error: 'aten.cumprod' of int32 .* op \(cumprod\)"):
        torch.compile(lambda x: x.cumprod(1), backend="spyre", dynamic=False, options={"fallback": "error"})(x)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) + x


class Stack(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * 2


def test_nested_layers_are_lowered_once() -> None:
    model, x = Stack(5).eval(), ramp(3, 16)
    expected = model(x)
    assert ktir.nested(model) is model
    assert ktir.nested(model) is model  # again changes nothing
    assert len(capture_regions(model, x)) == 2  # the layer, and what comes after the last one
    torch.testing.assert_close(compiled(model)(x), expected)
    assert type(Stack(1).layers[0]) is Layer
    with pytest.raises(TypeError, match="expects a function, a module or a module class, but got int"):
        ktir.nested(3)


@ktir.nested
def block(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1) + 1


def test_nested_functions() -> None:
    function = lambda x: block(block(block(x)))  # noqa: E731
    x = ramp(5, 7)
    assert len(capture_regions(function, x)) == 1
    torch.testing.assert_close(compiled(function)(x), function(x))


def test_branches() -> None:
    def function(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: x.sin() + 1, lambda x: x.cos() - 1, [x]) * 2

    for flag in (True, False):
        same(function, ramp(5, 7), torch.tensor(flag), calls=1)


def test_artifacts_whose_packages_are_gone_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    x = ramp(5, 7)
    graph = make_fx(lambda x: torch.relu(x) * 2)(x)
    for again in range(2):
        artifact = ktir.standalone_compile(graph, [x], options=OPTIONS)
        monkeypatch.setattr(cache, "_most", 0)  # what earlier calls have loaded is forgotten
        torch.testing.assert_close(artifact(x), torch.relu(x) * 2)
        assert ("gone from ktir's" in caplog.text) == bool(again)
        artifact.save(path=str(tmp_path / f"saved{again}"))
        shutil.rmtree(tmp_path / "packages")


_SAVE = """
import sys, torch
from torch.fx.experimental.proxy_tensor import make_fx
import ktir
def f(x): return torch.softmax(x @ x, -1) * 2
x = torch.arange(49.0).reshape(7, 7) / 50
with torch.no_grad():
    artifact = ktir.standalone_compile(make_fx(f)(x), [x], options={"engine": "ktir"})
    y = artifact(x)
torch.testing.assert_close(y, f(x))
for form in ("binary", "unpacked"):
    artifact.save(path=f"{sys.argv[1]}.{form}", format=form)
"""
_LOAD = """
import sys, torch
import ktir.lowering.inductor
from ktir.lowering.inductor import wrapper
wrapper.compile_region = None  # nothing may be lowered
from torch._inductor import CompiledArtifact
x = torch.arange(49.0).reshape(7, 7) / 50
y = CompiledArtifact.load(path=sys.argv[1], format=sys.argv[2])(x)
y = y[0] if isinstance(y, (list, tuple)) else y
torch.testing.assert_close(y, torch.softmax(x @ x, -1) * 2)
print("as saved")
"""


def in_a_process(script: str, folder: Path, *arguments: str) -> str:
    """What a script prints in a process of its own, with the caches of `folder`."""
    folders = {"KTIR_CACHE_DIR": str(folder / "ktir"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}
    done = warm.run("-c", script, *arguments, env={**os.environ, **folders})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact that one process has saved in each form; the name of the form follows."""
    folder = tmp_path_factory.mktemp("saved")
    in_a_process(_SAVE, folder, str(folder / "artifact"))
    return folder / "artifact"


@pytest.mark.turn
@pytest.mark.parametrize("form", ["binary", "unpacked"])
def test_saved_artifacts(saved: Path, tmp_path: Path, form: str) -> None:
    """Saved in one process, loaded in another with empty caches."""
    assert in_a_process(_LOAD, tmp_path, f"{saved}.{form}", form) == "as saved\n"


def test_a_warm_start_lowers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ktir.lowering.inductor import wrapper

    x = ramp(5, 7)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1).cumsum(0)

    expected = compiled(function)(x)
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(wrapper, "compile_region", None)
    assert torch.equal(compiled(function)(x), expected)
    assert counters["inductor"]["fxgraph_cache_hit"] == 1


def test_engines_do_not_share_kernels() -> None:
    x = ramp(5, 7).half()
    for engine in ("ktir", "spyre", "ktir"):
        torch._dynamo.reset()
        with metrics.counted() as launches:
            torch.testing.assert_close(compiled(torch.relu, engine=engine)(x), torch.relu(x))
        assert launches() == metrics.Launches(chip=engine == "spyre", executor=engine == "ktir")
    assert counters["inductor"]["fxgraph_cache_hit"] >= 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("inner", [1, 2])
def test_matmuls_have_the_digits_of_their_type(dtype: torch.dtype, inner: int) -> None:
    """Also where the sum is of one product, which is no reduction any more."""
    numbers = torch.linspace(1.1, 2, 4 * inner, dtype=torch.float64)
    a, b = (numbers * 2**20).to(dtype).reshape(4, inner), numbers.mul(2**21).to(dtype).reshape(inner, 4)
    exact = (a[:, :, None] * b).sum(1)
    torch.testing.assert_close(compiled(torch.matmul)(a, b), exact, rtol=1e-15 if dtype.is_floating_point else 0, atol=0)


def test_every_op_has_the_line_and_the_node() -> None:
    text = ktir.capture(lambda x: (x @ x).softmax(-1), ramp(5, 5), debuginfo=True)
    assert f'{Path(__file__).name}":' in text
    assert '"mm"' in text


def test_stages_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "ktir"):
        compiled(torch.relu)(ramp(5, 7))
    assert "func.func @forward" in caplog.text


_SHOWN = """
import torch
with torch.no_grad():
    torch.compile(torch.relu, backend="spyre", dynamic=False)(torch.ones(57, 10).half())
"""


@pytest.mark.turn
@pytest.mark.parametrize(("variable", "value"), [("TORCH_LOGS", "+ktir"), ("TORCH_COMPILE_DEBUG", "1"), ("TORCH_TRACE", "trace")])
def test_switches_of_torch(tmp_path: Path, variable: str, value: str) -> None:
    """What shows Inductor's stages shows ours. What is compiled in one go with the debug files needs a process that starts with them."""
    own = {variable: str(tmp_path / value) if value == "trace" else value, "TORCH_COMPILE_DEBUG_DIR": str(tmp_path)}
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    options: Any = {"env": {**os.environ, **own, **caches}, "cwd": tmp_path}
    if variable == "TORCH_COMPILE_DEBUG":
        run = subprocess.run([sys.executable, "-c", _SHOWN], **options, capture_output=True, text=True, check=False)
    else:
        run = warm.run("-c", _SHOWN, **options)
    assert run.returncode == 0, run.stderr
    if variable == "TORCH_LOGS":
        assert "func.func @forward" in run.stderr
        assert "ktir-allocate-scratchpad" in run.stderr
    elif variable == "TORCH_COMPILE_DEBUG":
        assert len(list(tmp_path.glob("torch_compile_debug/**/ktir/forward_*/*.ktir.mlir"))) > 5
        assert list(tmp_path.glob("torch_compile_debug/**/ktir/forward_*/region.json"))
    else:
        (log,) = (tmp_path / "trace").glob("*.log")
        assert "_ktir-tile" in log.read_text()
        assert "_logical" in log.read_text()
