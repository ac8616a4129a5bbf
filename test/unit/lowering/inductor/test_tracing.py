"""What Dynamo leaves in eager PyTorch is said, with the user's line; RNNs and transformers are programs; threads; the summary."""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.codegen import common
from torch._inductor.utils import fresh_cache

from ktir.lowering.inductor import scheduling, wrapper
from ktir.lowering.inductor.graph import lowerings
from ktir.runtime import metrics, notices

HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    notices.forget()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="spyre", dynamic=False, options={"cores": 2, **options})


def prints(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("function", [prints, branches])
def test_graph_breaks(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, 5).half()
    run = compiled(function)
    for _ in range(2):
        torch.testing.assert_close(run(x), function(x))
    assert caplog.text.count("Dynamo leaves this in eager PyTorch") == 1
    assert re.search(rf"{HERE}:\d+:1: warning: Dynamo leaves this in eager PyTorch: \w+", caplog.text)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=rf"{HERE}:\d+:1: error: Dynamo leaves this in eager PyTorch: \w+"):
        compiled(function, fallback="error")(x)


def test_other_backends_are_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.ones(3, 5)
    torch.testing.assert_close(torch.compile(prints, backend="eager")(x), prints(x))
    assert "eager PyTorch" not in caplog.text
    with pytest.raises(Exception, match="LSTM"):
        torch.compile(nn.LSTM(5, 5), backend="eager", fullgraph=True)(x)


@pytest.mark.usefixtures("on_chip")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_networks(kind: Any) -> None:
    model, x = kind(10, 7, batch_first=True).half(), torch.randn(2, 3, 10).half()
    found, expected = compiled(model, fallback="error")(x), model.double()(x.double())
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-2, atol=1e-3)


@pytest.mark.turn
@pytest.mark.usefixtures("on_chip")
def test_a_transformer_with_a_mask() -> None:
    model, x = nn.Transformer(8, 2, 1, 1, 12, batch_first=True).half().eval(), torch.randn(1, 3, 8).half()
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    found = compiled(lambda x, m: model(x, x, tgt_mask=m), fallback="error")(x, mask.half())
    expected = model.double()(x.double(), x.double(), tgt_mask=mask.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("on_chip")
def test_a_layer_is_computed_without_pytorchs_kernels_for_layers() -> None:
    """Where all keys of a row are masked they have NaN."""
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).half().eval()
    x, masked = torch.randn(2, 3, 8).half(), torch.tensor([[False, False, True], [True, True, True]])
    found = compiled(lambda x, m: layer(x, src_key_padding_mask=m), fallback="error")(x, masked)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = layer.double()(x.double(), src_key_padding_mask=masked)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert found.isfinite().all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-2)


def test_a_line_sums_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ktir"):
        run = compiled(lambda x: (x * 2).float().histc(4) + 1)
        run(torch.ones(5).half())
        run(torch.ones(5).half())
    (line,) = [r.getMessage() for r in caplog.records if "a call runs" in r.getMessage()]
    assert line == "spyre: compiled 1 graph; a call runs 2 programs on the chip, 0 programs on the KTIR executor, 1 operator in PyTorch"
    caplog.clear()
    caplog.set_level(logging.INFO, "ktir")
    refused = compiled(lambda x: (x * 2).float().histc(5) + 1, fallback="error")
    with pytest.raises(BackendCompilerFailed, match="histc"):
        refused(torch.ones(5).half())
    assert "a call runs" not in caplog.text


def test_other_threads_have_their_own_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a region is compiled, Inductor works as always in another thread."""
    seen: list[Any] = []
    compile_region = wrapper.compile_region

    def other() -> None:
        scheduling = common.get_scheduling_for_device("cpu")
        assert scheduling is not None
        seen.append(scheduling(None))
        seen.append(lowerings.builtin.user_lowerings[torch.ops.aten.mm.default](None, None))
        seen.append([p.uuid() for p in common.custom_backend_passes.values() if p is not None])

    def meanwhile(region: Any) -> str:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return compile_region(region)

    monkeypatch.setattr(wrapper, "compile_region", meanwhile)
    with fresh_cache():
        compiled(torch.relu)(torch.ones(5))
    assert not isinstance(seen[0], scheduling.Scheduling)
    assert seen[1] is None
    assert set(seen[2]) <= {None}


_THREADS = """
import threading, torch
found = []
def work(n):
    f = [lambda x: x.relu() * 2, lambda x: x + 1][n % 2]
    with torch.no_grad():
        found.append(torch.equal(torch.compile(f, backend="spyre", dynamic=False)(torch.ones(n + 2)), f(torch.ones(n + 2))))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(found)
"""


@pytest.mark.turn
def test_four_threads_compile_first() -> None:
    run = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, check=False)
    assert run.stdout == "[True, True, True, True]\n", run.stderr


def test_launches_are_counted_once() -> None:
    run = compiled(torch.relu)
    run(torch.ones(5))
    with metrics.counted() as launches:
        run(torch.ones(5))
    assert launches() == metrics.Launches(chip=1)


def test_calls_while_another_thread_traces() -> None:
    """As an operator of the device is at its first call. The thread itself is refused, as torch says."""
    run, x = compiled(torch.relu), torch.linspace(-1, 1, 64)
    run(x)
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(run(x))
        except RuntimeError as error:
            found.append(error)

    def traced(y: torch.Tensor) -> torch.Tensor:
        (thread := threading.Thread(target=call)).start()
        thread.join()
        return y + 1

    torch.fx.symbolic_trace(traced)
    (result,) = found
    assert torch.equal(result, torch.relu(x))
    with pytest.raises(RuntimeError, match="using FX to symbolically trace a dynamo-optimized function"):
        torch.fx.symbolic_trace(lambda y: run(y))
