"""`torch.compile(model)` on tensors of the device runs on the chip without a backend name, and gives the bits that it gives on the host."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import each_once
from torch import fx, nn
from torch._dynamo.convert_frame import ConvertFrameAssert
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import ktir
from ktir import config
from ktir.device.operators import fallback as fallback_of_device
from ktir.diagnostics import KtirError, OutOfRange, Unsupported
from ktir.lowering.inductor.running.places import check_places
from ktir.lowering.inductor.running.writes import OnlyEager
from ktir.runtime import metrics, notices


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


class Masked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        heads = x.view(*x.shape[:2], 4, -1).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads[:, :2], heads[:, :2], mask, enable_gqa=True)


class Norm(nn.Module):
    """PyTorch multiplies in another order for tensors that are not on the host; far from zero it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GroupNorm(4, 16)
        nn.init.normal_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x + 100)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 64)),
    "attention": Attention,
    "norm of groups": Norm,
    "masked attention with grouped queries": Masked,
}


@pytest.fixture(autouse=True)
def strict() -> Any:
    """Nothing of a graph is left to PyTorch or to the executor."""
    with config.patch(fallback="error"), torch.no_grad():
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize(("name", "mode"), each_once(MODELS, [torch.no_grad, torch.inference_mode]))
def test_same_bits_as_on_the_host(name: str, mode: Any, on_chip: None) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().half().eval()
    x = torch.randn(2, 16, 64).half()
    with mode():
        expected = torch.compile(model, backend="spyre")(x)
        with metrics.counted() as launches:
            got = torch.compile(copy.deepcopy(model).to("spyre"))(x.to("spyre"))
    assert got.device.type == "spyre"
    assert torch.equal(got.cpu(), expected)
    assert launches().chip == 1


def test_the_name_of_the_backend_may_be_given(on_chip: None) -> None:
    x = torch.randn(3, 64).half()
    f = torch.compile(lambda x: x * 2 + 1, backend="spyre")
    assert torch.equal(f(x.to("spyre")).cpu(), f(x))


def test_written_inputs(on_chip: None) -> None:
    """A cache is written in place, and read by the next call."""

    @torch.compile
    def step(cache: torch.Tensor, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, position, x)
        return cache.sum(0)

    cache = torch.zeros(4, 64, dtype=torch.float16, device="spyre")
    version = cache._version
    totals = []
    for k in range(3):
        row = torch.full((1, 64), float(k + 1), dtype=torch.float16, device="spyre")
        totals.append(step(cache, row, torch.tensor([k], device="spyre")))
    assert cache[:, 0].tolist() == [1, 2, 3, 0]
    assert [t.tolist() for t in totals] == [[1.0] * 64, [3.0] * 64, [6.0] * 64]
    assert cache._version > version


_FIRST = """
import logging, torch
from torch import nn
from ktir.device.autoload import register
register()
logging.getLogger("ktir").setLevel("INFO")
logging.getLogger("ktir").addHandler(logging.StreamHandler())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 2, 64, batch_first=True)

    def forward(self, x, mask):
        x = self.layer(x, src_mask=mask) + 1
        print("out of the graph")
        return x * 2

with torch.no_grad():
    compiled = torch.compile(Model().half().eval().to("spyre"))
    torch.compile(lambda x: [print(end=""), x])(torch.ones(3))  # of the host: not ours to speak of
    compiled(torch.randn(2, 8, 64, device="spyre").half(), torch.zeros(8, 8, device="spyre").half())
"""


@pytest.mark.turn
def test_the_first_graph_of_a_process() -> None:
    """What is there around calls of a named backend is there before the first graph of the default one, too."""
    run = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=False)
    assert run.stdout == "out of the graph\n", run.stderr
    assert run.stderr.count("Dynamo leaves this in eager PyTorch") == 1
    assert "a call runs 2 programs on the chip, 0 programs on the KTIR executor, 0 operators in PyTorch, 1 break" in run.stderr
    assert run.stderr.count("a call runs") == 1
    assert notices.NOT_HERE not in run.stderr


def test_operators_that_pytorch_runs_are_counted_once() -> None:
    def f(m: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky_ex(m).L + 1

    m = torch.eye(3)
    for model, x in ((torch.compile(f, backend="spyre"), m), (torch.compile(f), m.to("spyre")), (f, m.to("spyre"))):
        with config.patch(fallback="cpu"), metrics.counted() as launches:
            model(x)
        assert launches() == metrics.Launches(chip=1, torch=1)


def test_errors_that_are_asked_for() -> None:
    with pytest.raises(BackendCompilerFailed, match="linalg_cholesky_ex") as refused:
        torch.compile(lambda m: torch.linalg.cholesky_ex(m).L)(torch.eye(3).to("spyre"))
    assert isinstance(refused.value.inner_exception, Unsupported)
    with pytest.raises(OutOfRange):
        torch.compile(lambda n: n * 3)(torch.tensor([1 << 40], device="spyre"))


def test_options_without_the_name_of_the_backend() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky_ex(x).L

    options: dict[str, Any] = {"fallback": "error", "max_autotune": False}
    with config.patch(fallback="cpu"):
        assert torch.compile(model)(torch.eye(2).to("spyre")).device.type == "spyre"
        with pytest.raises(BackendCompilerFailed, match="there are no loops for it"):
            torch.compile(model, options=options)(torch.eye(2).to("spyre"))
    with pytest.raises(RuntimeError, match="Unexpected optimization option fall"):
        torch.compile(model, options={"fall": "error"})


def test_complex_numbers_on_the_way_run_on_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def magnitudes(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.fft.rfft(x, norm="ortho").abs() + torch.ones(3, device=x.device)

    x, y = torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(2, 4).to("spyre")
    notices.forget()
    with config.patch(fallback="cpu"), torch.no_grad():
        found = torch.compile(magnitudes)(y)
        assert found.device.type == "spyre"
        torch.testing.assert_close((found.cpu(), y.cpu()), (magnitudes(x), x))
        assert f"{Path(__file__)}:" in caplog.text
        assert "'fft_rfft' op of shape [2, 3] and dtype complex64 is not supported: the device holds no complex numbers" in caplog.text
        with pytest.raises(BackendCompilerFailed, match="nearest supported form: complex results on the host"):
            torch.compile(torch.fft.rfft)(y)


def test_places_that_do_not_go_together() -> None:
    with config.patch(fallback="cpu"), pytest.raises(RuntimeError, match="either on cpu or on the same device"):
        torch.compile(lambda x, i: x[i])(torch.ones(3), torch.tensor([1], device="spyre"))
    graph = fx.Graph()
    nodes = [graph.placeholder(name) for name in "ab"]
    for card, node in enumerate(nodes):
        node.meta["example_value"] = FakeTensor(FakeTensorMode(), torch.empty(2, device="meta"), torch.device("spyre", card))
    graph.output(tuple(nodes))
    with pytest.raises(OnlyEager, match="a graph with tensors on 'spyre:0' and 'spyre:1' is not supported: a program runs on one card"):
        check_places(fx.GraphModule({}, graph))


def test_numbers_of_the_host_in_a_graph(on_chip: None) -> None:
    f = torch.compile(lambda x, n: (x * n, x + torch.arange(4, device=x.device, dtype=x.dtype)))
    x = torch.ones(3, 4, dtype=torch.float16)
    for got, expected in zip(f(x.to("spyre"), torch.tensor(2.0)), (x * 2, x + torch.arange(4)), strict=True):
        assert torch.equal(got.cpu(), expected.half())


def test_counts_of_integers(on_chip: None) -> None:
    """On devices `histc` takes integers, on the host floating-point numbers alone."""
    x = torch.tensor([0, 1, 1, 3, 9, -1, 2, 3], dtype=torch.int32)
    counted = torch.compile(lambda x: torch.histc(x, bins=4, min=0, max=3), fullgraph=True)(x.to("spyre")).cpu()
    assert counted.dtype == torch.int32
    assert counted.tolist() == [1, 2, 1, 2]


def test_constants_of_a_graph(on_chip: None) -> None:
    table = torch.arange(64, dtype=torch.float16, device="spyre")
    f = torch.compile(lambda x: x * table + torch.tensor([2.0] * 64, dtype=torch.float16, device="spyre"))
    x = torch.ones(3, 64, dtype=torch.float16)
    assert torch.equal(f(x.to("spyre")).cpu(), x * table.cpu() + 2)


def test_shapes_that_change(on_chip: None) -> None:
    f = torch.compile(lambda x: torch.softmax(x, -1), dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 64).half()
        torch.testing.assert_close(f(x.to("spyre")).cpu(), torch.softmax(x, -1))


def test_a_result_that_is_copied_to_the_host(on_chip: None) -> None:
    f = torch.compile(lambda x: (x + 1).cpu())
    x = torch.ones(3, 64, dtype=torch.float16)
    got = f(x.to("spyre"))
    assert got.device.type == "cpu"
    assert torch.equal(got, x + 1)


def moved(x: torch.Tensor, other: torch.Tensor) -> Any:
    """A tensor where it is already, and elsewhere; all of them are written."""
    same = (
        x.to(x.device),
        x.to(other),
        torch.as_tensor(x, device=x.device),
        x.type_as(other),
        x.to(torch.float16),
        x.to(x.device, copy=False),
    )
    copies = (
        x.cpu(),
        x.to(other.device, torch.float16, False, True),
        x.to(torch.device("cpu")),
        x.to(other, copy=True),
        x.to(x.device, torch.float32),
    )
    for k, t in enumerate((*same, *copies)):
        t.add_(k + 1)
    return *copies, x * 2, other + 1


def test_what_is_moved_is_copied_and_what_is_there_is_not(on_chip: None) -> None:
    x, other = torch.arange(64).half(), torch.ones(1).half()
    mine, theirs = x.to("spyre"), other.to("spyre")
    expected = moved(own := x.to("spyre"), theirs)  # by operators
    found = torch.compile(moved)(mine, theirs)
    assert [(f.device, f.dtype) for f in found] == [(e.device, e.dtype) for e in expected]
    assert all(torch.equal(f.cpu(), e.cpu()) for f, e in zip((*found, mine), (*expected, own), strict=True))
    assert torch.equal(mine.cpu(), x + 21)


def test_dynamo_looks_at_no_function_of_ours(on_chip: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What leaves a graph within a loop runs uncompiled, with Dynamo looking at each frame."""
    seen: list[str] = []
    convert = ConvertFrameAssert.__call__

    def watched(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(frame.f_code.co_filename)
        return convert(self, frame, *args, **kwargs)

    monkeypatch.setattr(ConvertFrameAssert, "__call__", watched)
    layer = nn.Linear(64, 64).half().to("spyre")

    @torch.compile
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = layer(x).relu() + torch.arange(64, device=x.device)
            x += 1
        return x

    x = torch.ones(3, 64, dtype=torch.float16, device="spyre")
    assert torch.equal(f(x), f(x))
    assert __file__ in seen
    assert not [file for file in seen if file.startswith(str(Path(ktir.__file__).parent))]


def test_gradients_are_refused(on_chip: None) -> None:
    x = torch.ones(64, device="spyre", dtype=torch.float16, requires_grad=True)
    torch.compile(lambda x: x * 2)(x.detach())
    with torch.enable_grad(), pytest.raises(BackendCompilerFailed, match="needs gradients"):
        torch.compile(lambda x: x * 3)(x)


def test_exported_models(tmp_path: Path, on_chip: None) -> None:
    """As they are, and compiled, also when they come from a file."""
    torch.manual_seed(1)
    model, x = MODELS["mlp"]().half().eval(), torch.randn(3, 64).half()
    wanted = torch.compile(model, backend="spyre")(x)
    there = x.to("spyre")
    exported = torch.export.export(model.to("spyre"), (there,))
    torch.testing.assert_close(exported.module()(there).cpu(), wanted, rtol=4e-3, atol=4e-3)
    torch.export.save(exported, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.equal(torch.compile(loaded)(there).cpu(), wanted)


def test_regions_that_are_compiled_once(on_chip: None) -> None:
    compiler: Any = torch.compiler
    region = compiler.nested_compile_region(lambda x, w: nn.functional.gelu(x @ w))
    x, weights = torch.randn(5, 8), [torch.randn(8, 8) / 3 for _ in range(3)]

    def model(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x = region(x, weight)
        return x * 2

    found = torch.compile(model, fullgraph=True)(x.to("spyre"), [w.to("spyre") for w in weights])
    torch.testing.assert_close(found.cpu(), model(x, weights), rtol=1e-5, atol=1e-5)


def there(x: torch.Tensor) -> torch.Tensor:
    return x.to("spyre") * 2


def in_a_branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: there(x).cpu(), lambda x: there(x).cpu() + 1, (x,))


region: Any = torch.compiler.nested_compile_region(lambda x: there(x).cpu())  # type: ignore[attr-defined]


def in_a_region(x: torch.Tensor) -> torch.Tensor:
    return region(x) + region(x + 1)


@pytest.mark.parametrize("function", [there, in_a_branch, in_a_region])
def test_inputs_of_the_host_go_to_the_device_inside(function: Callable[[torch.Tensor], torch.Tensor], on_chip: None) -> None:
    x = torch.randn(5, 8)
    found = torch.compile(function, fullgraph=True)(x)
    assert torch.equal(found.cpu(), function(x).cpu())


@pytest.mark.turn
def test_what_inductor_alone_has_no_code_for() -> None:
    """Packages and standalone artifacts are made by Inductor alone; ahead of time, a function is compiled, but not saved."""
    model, x = nn.Linear(8, 4).to("spyre"), torch.ones(3, 8, device="spyre")
    refused = "Inductor alone has no code for the device 'spyre'"
    graph = torch.export.export(model, (x,)).module()
    with pytest.raises(Exception, match=refused):
        torch._inductor.compile(graph, [x])
    with pytest.raises(KtirError, match=refused):
        ktir.standalone_compile(make_fx(torch.relu)(x), [x])
    compiled: Any = torch.compile(model, fullgraph=True)
    ahead = compiled.forward.aot_compile(((x,), {}))
    torch.testing.assert_close(ahead(x), model(x))
    with pytest.raises(KtirError, match=r"saved by torch\.compiler\.save_cache_artifacts"):
        ahead.save_compiled_function("unsaved")


def test_graphs_on_the_host_go_to_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def compile_fx(gm: torch.fx.GraphModule, inputs: Any, **_: Any) -> Any:
        seen.append(inputs)
        return gm.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    with metrics.counted() as launches:
        assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    assert seen
    assert not launches().chip


@pytest.mark.turn
@pytest.mark.parametrize("first", ["", "import torch._dynamo.device_interface;"])
def test_interface_of_dynamo(first: str) -> None:
    """Whether it is imported before the device is there or behind; without it, it is not imported."""
    asked = "get_interface_for_device('spyre'); w = i.Worker; print(i.device_count(), i.current_device(), w.get_device_properties().name)"
    program = f"""
import sys; {first} from ktir.device import autoload; autoload.register()
assert bool({first!r}) == ("torch._dynamo" in sys.modules)
from torch._dynamo.device_interface import get_interface_for_device
i = {asked}
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.split()[:2] == ["1", "0"], run.stderr


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_constants_that_torch_computes_while_it_traces_are_no_fallback(fallback: str, recwarn: pytest.WarningsRecorder) -> None:
    def placed(c: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return c.index_copy_(1, torch.tensor([3], device=c.device), x) * 1

    torch._dynamo.reset()
    fallback_of_device._said.clear()
    mine, theirs = (torch.zeros(2, 8, device=device) for device in ("spyre", "cpu"))
    run = torch.compile(placed, backend="spyre", dynamic=False, options={"fallback": fallback})
    with torch.no_grad():
        assert torch.equal(run(mine, torch.ones(2, 1, device="spyre")).cpu(), placed(theirs, torch.ones(2, 1)))
    assert not [w for w in recwarn if issubclass(w.category, fallback_of_device.FallbackWarning)]


@pytest.mark.parametrize("device", ["cpu", "spyre"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.Tensor.to(x, torch.float32) + 1,
        lambda x: x + torch.Tensor.new_empty(x, (3,)).shape[0],
        lambda x: x + torch.Tensor.new_empty_strided(x, (3,), (1,)).shape[0],
    ],
    ids=["to", "new_empty", "new_empty_strided"],
)
def test_methods_with_options_of_ours_as_functions(function: Callable[[torch.Tensor], torch.Tensor], device: str) -> None:
    """Dynamo knows them as what they are of torch's, and takes them into one graph."""
    x = torch.arange(5, dtype=torch.float16).to(device)
    expected = function(x)
    found = torch.compile(function, fullgraph=True, backend="eager")(x)
    assert found.dtype == expected.dtype
    assert torch.equal(found.cpu(), expected.cpu())


def test_a_generator_in_a_compiled_function() -> None:
    """Numbers go on from call to call, as in eager."""
    generators = [torch.Generator("spyre").manual_seed(3) for _ in range(2)]

    def f(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + torch.rand(4, generator=generator, device="spyre")

    x, compiled = torch.ones(4, device="spyre"), torch.compile(f)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(compiled(x, generators[0]), f(x, generators[1]))


def test_what_eager_refuses_comes_from_the_call() -> None:
    """Not from Dynamo, which would wrap it; what stands before it is done."""
    other = torch.zeros(2, device="spyre")

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x.add_(1)

    for call in (f, torch.compile(f), torch.compile(f, backend="spyre", options={"fallback": "error"})):
        with torch.no_grad(), pytest.raises(RuntimeError, match="refers to a single memory location") as caught:
            call(torch.ones(1, device="spyre").expand(4), other)
        assert caught.type is RuntimeError
    assert other.tolist() == [3, 3]
