"""The device in `torch.profiler`: what it shows is what ran, and it changes nothing."""

import gzip
import json
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from chrome_traces import check
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler
from torch.utils._pytree import tree_leaves

from ktir.device.profiler import hooks
from ktir.device.profiler.placing import place
from ktir.device.profiler.session import Given
from ktir.runtime.executable import Launch, recorded
from ktir.runtime.memory.card import card
from ktir.runtime.time.clock import Clock, Span, Stream
from ktir.runtime.time.steps import Step
from ktir.target import DATASHEET

_PRIVATEUSE1: Any = torch._C._autograd.DeviceType.PrivateUse1  # type: ignore[attr-defined]
BOTH = (ProfilerActivity.CPU, ProfilerActivity.PrivateUse1)
ACTIVE: Any = BOTH


@pytest.fixture(autouse=True)
def _left_as_it_was() -> Iterator[None]:
    yield
    assert (card(0).observers, card(0).holders) == ([], [])


def rows(prof: Any, kind: str = "kernel") -> list[FunctionEvent]:
    return [e for e in prof.events() if e.device_type == _PRIVATEUSE1 and e.activity_type == kind]


def cycles(events: list[FunctionEvent]) -> int:
    return round(sum(e.device_time_total for e in events) * 1000 * DATASHEET.clock_ghz)


def ran(launches: list[Launch]) -> list[tuple[str, int]]:
    return [(launch.name, launch.machine.report.cycles) for launch in launches]


def of_trace(prof: Any, path: Path) -> list[dict[str, Any]]:
    prof.export_chrome_trace(str(path))
    trace = json.loads(path.read_text(), parse_float=Fraction)  # times as they are written
    check(trace, nested=("cpu_op", "user_annotation", "python_function", "privateuse1_runtime", "Trace"))
    return trace["traceEvents"]


x = torch.linspace(-2, 2, 5 * 64).reshape(5, 64).half()
wide = torch.linspace(-1, 1, 64 * 130).reshape(64, 130).half()
indices = torch.tensor([3, 0, 4])
PROGRAMS: dict[str, Callable[..., Any]] = {
    "mm": lambda x, w, i: x @ w,
    "softmax": lambda x, w, i: torch.softmax(x @ w, -1),
    "compiled": torch.compile(lambda x, w, i: F.gelu(x @ w).sum(0)),
    "add": lambda x, w, i: x + x,
    "inplace": lambda x, w, i: (x + 1).mul_(2).sub_(x),
    "views": lambda x, w, i: x.t().contiguous() + x[:, :5].t().sum(),
    "reductions": lambda x, w, i: (x.sum(), x.amax(1), x.float().mean(0)),
    "gather": lambda x, w, i: x[i],
    "cat": lambda x, w, i: torch.cat([x, x * 2], 1),
    "layer norm": lambda x, w, i: F.layer_norm(x, (64,)),
    "attention": lambda x, w, i: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "where": lambda x, w, i: torch.where(x > 0, x, -x),
    "integers": lambda x, w, i: (i * 3 + 1, i.sum()),
    "exp": lambda x, w, i: torch.exp(x).log1p(),
    "sort": lambda x, w, i: torch.sort(x, 1),
    "convolution": lambda x, w, i: F.conv1d(x[None], x[:, :15].reshape(5, 5, 3)),
    "to host and back": lambda x, w, i: (x.cpu() + 1).to("spyre") + x,
    "random": lambda x, w, i: (torch.manual_seed(1), F.dropout(x, 0.5))[1],
    "compiled twice": torch.compile(lambda x, w, i: (x @ w).relu() @ w.t()),
    "compiled reductions": torch.compile(lambda x, w, i: torch.softmax(x, 0).cumsum(1)),
}
CHEAP = [*PROGRAMS][:3]


@pytest.mark.filterwarnings("ignore::ktir.device.operators.fallback.FallbackWarning")
@pytest.mark.parametrize("name", [n if n in CHEAP else pytest.param(n, marks=pytest.mark.long) for n in PROGRAMS])
def test_values_and_order_are_those_without_it(name: str, tmp_path: Path) -> None:
    program, given = PROGRAMS[name], [t.to("spyre") for t in (x, wide, indices)]
    flat = tree_leaves
    with torch.no_grad():
        program(*given)  # compiled
        with recorded() as plain:
            expected = [t.cpu() for t in flat(program(*given))]
        with recorded() as seen, profile(activities=ACTIVE, record_shapes=True, profile_memory=True) as prof:
            found = [t.cpu() for t in flat(program(*given))]
    assert ran(seen) == ran(plain)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b)
    kernels = rows(prof)
    assert len(kernels) == sum(len(launch.machine.report.kernels) for launch in seen)
    assert cycles(kernels) == sum(launch.machine.report.cycles for launch in seen)
    assert sum(e.get("cat") == "kernel" for e in of_trace(prof, tmp_path / "trace.json")) == len(kernels)


def test_operators_have_the_time_of_their_kernels() -> None:
    a, w = x.to("spyre"), wide.to("spyre")
    torch.matmul(a, w)
    with recorded() as launches, profile(activities=ACTIVE, record_shapes=True, with_flops=True) as prof:
        with record_function("mine"):
            torch.matmul(a, w)
        y = a.cpu()
    averages = {e.key: e for e in prof.key_averages(group_by_input_shape=True)}
    us = launches[0].machine.report.microseconds
    assert averages["mine"].device_time_total == pytest.approx(averages["aten::mm"].device_time_total, rel=1e-12)
    assert averages["aten::mm"].device_time_total >= us
    assert averages["aten::mm"].self_device_time_total == averages["aten::mm"].device_time_total, "its own, as on other devices"
    assert averages["mine"].self_device_time_total == pytest.approx(0, abs=1e-9)
    assert averages["spyreLaunchKernel"].device_time_total == 0
    assert averages["aten::mm"].input_shapes == [[5, 64], [64, 130]]
    kernel: Any
    kernel, *rest = rows(prof)
    assert not rest
    assert kernel.name == "matmul: forward_kernel0"
    assert kernel.device_time_total == pytest.approx(us, rel=1e-9)
    bound = launches[0].machine.bottlenecks.kernels[0]
    told = json.loads("{" + kernel.metadata_json + "}")
    assert (told["bound by"], told["to relieve it"]) == (bound.resource.title, bound.resource.remedy)
    units = {u.unit.name: u for u in launches[0].machine.report.kernels[0].units}
    assert told["PT busy"] == pytest.approx(units["PT"].utilisation, abs=1e-4)
    assert told["waits"]["PT: empty W"] == units["PT"].stalls["empty W"]
    assert told["fewer cycles without it"] == pytest.approx(bound.share, abs=1e-4)
    assert kernel.flops is not None
    assert kernel.flops >= 2 * 5 * 64 * 130 == averages["aten::mm"].flops
    copy = rows(prof, "gpu_memcpy")[-1]
    assert copy.name == "Memcpy DtoH"
    assert copy.event_metadata is not None
    assert copy.event_metadata.bytes == y.nbytes
    assert copy.device_time_total == pytest.approx(y.nbytes / DATASHEET.host_gb_per_second / 1e3)
    table = prof.key_averages().table(sort_by="self_privateuse1_time_total")
    assert "Self SPYRE" in table
    assert "matmul: forward_kernel0" in table
    total = sum(e.device_time_total for kind in ("kernel", "gpu_memcpy") for e in rows(prof, kind))
    assert f"Self SPYRE time total: {total:.3f}us" in table


def test_flows_lead_from_the_operator_to_what_it_launched(tmp_path: Path) -> None:
    a, w = x.to("spyre"), wide.to("spyre")
    compiled = torch.compile(lambda a, w: torch.softmax(a @ w, -1))
    _ = compiled(a, w), a @ w
    with profile(activities=ACTIVE) as prof:
        _ = compiled(a, w), a @ w
    events = of_trace(prof, tmp_path / "trace.json")
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(kernels) >= 2
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") == "privateuse1_runtime"}
    starts, ends = ({e["id"]: e for e in events if e.get("cat") == "ac2g" and e["ph"] == ph} for ph in "sf")
    operators = {e["args"]["External id"]: e for e in events if e.get("cat") in ("cpu_op", "user_annotation") and e["ph"] == "X"}
    for kernel in kernels:
        number = kernel["args"]["correlation"]
        call, start, end = calls[number], starts[number], ends[number]
        assert call["name"] == "spyreLaunchKernel"
        assert [start[k] for k in ("pid", "tid", "ts")] == [call[k] for k in ("pid", "tid", "ts")]
        assert [end[k] for k in ("pid", "tid", "ts")] == [kernel[k] for k in ("pid", "tid", "ts")]
        operator = operators[kernel["args"]["External id"]]
        assert operator["ts"] <= call["ts"] <= call["ts"] + call["dur"] <= operator["ts"] + operator["dur"]
        assert kernel["ts"] >= call["ts"]
    line = test_flows_lead_from_the_operator_to_what_it_launched.__code__.co_firstlineno + 2
    assert kernels[0]["args"]["source"] == [f"{__file__}:{line}"]
    names = {(e["pid"], e["name"]): e["args"] for e in events if e.get("ph") == "M"}
    assert names[0, "process_name"] == {"name": "spyre:0"}
    assert names[0, "thread_name"] == {"name": "stream 0 (default)"}
    assert not [e for e in events if e.get("ph") == "M" and "GPU" in str(e["args"])], "rows of devices that are not there"


def test_memory(tmp_path: Path) -> None:
    a = x.to("spyre")
    torch.add(a, a)
    with profile(activities=ACTIVE, profile_memory=True, record_shapes=True, with_stack=True) as prof:
        b = torch.empty(1000, dtype=torch.uint8, device="spyre")
        address = b.data_ptr()
        del b
        c = a + a
    events = [e["args"] for e in of_trace(prof, tmp_path / "trace.json") if e.get("name") == "[memory]" and e["args"]["Device Type"] == 20]
    assert [(e["Addr"], e["Bytes"]) for e in events[:2]] == [(address, 1000), (address, -1000)]
    assert events[0]["Total Allocated"] - events[1]["Total Allocated"] == 1000
    assert [e["Bytes"] for e in events if e["Addr"] == c.data_ptr()] == [c.nbytes]
    by_name = {e.key: e for e in prof.key_averages()}
    assert by_name["aten::add"].device_memory_usage == c.nbytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        prof.export_memory_timeline(str(tmp_path / "memory.raw.json.gz"), device="spyre:0")
    timeline = json.loads(gzip.open(tmp_path / "memory.raw.json.gz", "rt").read())
    assert 1000 in [size for _, _, size, _ in timeline]


def test_stacks_and_modules(tmp_path: Path) -> None:
    model, a = nn.Sequential(nn.Linear(512, 512)).half().to("spyre"), torch.ones(512, 512).half().to("spyre")
    with torch.no_grad():
        model(a)
        verbose: Any = torch._C._profiler._ExperimentalConfig(verbose=True)  # type: ignore[call-arg]
        with profile(activities=ACTIVE, with_stack=True, experimental_config=verbose) as prof:
            model(a)
    (kernel,) = rows(prof)
    events: Any = prof.events()
    (call,) = (e for e in events if e.name == "spyreLaunchKernel")
    (operator,) = (e for e in events if e.name == "aten::addmm")
    assert "ktir/" not in call.stack[0], "the device's own frames"
    for event in (call, operator):
        stack = "\n".join(event.stack)
        assert "test_profiler.py" in stack
        assert "nn.Module: Linear_0" in stack
        assert stack.index("Linear_0") < stack.index("Sequential_0")
    prof.export_stacks(str(tmp_path / "stacks.txt"), metric="self_privateuse1_time_total")
    counted = [int(line.rpartition(" ")[2]) for line in (tmp_path / "stacks.txt").read_text().splitlines()]
    assert counted == [int(kernel.device_time_total)], "each kernel once"
    assert counted[0] > 1


def test_schedules_and_handlers(tmp_path: Path) -> None:
    a, w = x.to("spyre"), wide.to("spyre")
    torch.matmul(a, w)
    seen = []

    def ready(prof: Any) -> None:
        seen.append(Counter(e.name for e in prof.events()))
        tensorboard_trace_handler(str(tmp_path))(prof)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that events of a cycle go with it
        with profile(activities=ACTIVE, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as prof:
            for _ in range(8):
                torch.matmul(a, w)
                prof.step()
    assert [(c["matmul: forward_kernel0"], c["spyreLaunchKernel"], c["ProfilerStep*"]) for c in seen] == [(2, 2, 2)] * 2
    files = [*tmp_path.glob("*.pt.trace.json")]
    assert len(files) == 2
    for file in files:
        assert Counter(e.get("cat") for e in json.loads(file.read_text())["traceEvents"])["kernel"] == 2


def test_activities_and_threads(tmp_path: Path) -> None:
    a, w = x.to("spyre"), wide.to("spyre")
    torch.matmul(a, w)
    for activities, expected in (((ProfilerActivity.PrivateUse1,), 1), ((ProfilerActivity.CPU,), 0), (None, 1)):
        with profile(activities=activities) as prof:
            torch.matmul(a, w)
        assert len(rows(prof)) == expected, activities
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
    with profile(activities=ACTIVE) as prof:
        other = threading.Thread(target=lambda: a @ w)
        other.start()
        other.join()
    assert len(rows(prof)) == 1, "of a thread whose operators torch does not record"
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"), use_python_export=True)
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert [e["name"] for e in json.load(file)["traceEvents"] if e.get("cat") == "kernel"] == ["matmul: forward_kernel0"]


def test_order_of_streams_and_engines_is_that_of_emulated_time() -> None:
    clock, spans, given = Clock(1), list[Span](), list[Given]()
    clock.watchers.append(spans.append)
    first, second, other = Stream(0, 1), Stream(0, 2), Stream(1, 0)
    steps = [
        (first, Step("H2D", 64, 5000.0)),
        (second, Step("Compute", 0, 700.25, "a")),
        (first, Step("Compute", 0, 30.5, "b")),
        (other, Step("Compute", 0, 9000.0, "c")),
        (second, Step("D2H", 64, 10.0)),
    ]
    for k, (stream, step) in enumerate(steps):
        clock.give(stream, step)
        given.append(Given(k, step, 1000 * k))
    clock.synchronize()
    by_step = {id(g.step): g for g in given}
    done = [(by_step[id(s.step)], s) for s in spans]
    found = {p.number: (p.begin, p.begin + p.slice.ns) for p in place(done, {0: 50})}
    assert found[0][0] == 50
    assert found[1][0] == 1000, "another engine, another stream: where the host gave it"
    assert found[2][0] >= found[0][1], "behind the copy in its stream"
    assert found[3][0] == 3000, "another card"
    assert found[4][0] == max(4000, found[1][1])
    ordered = [(a, b) for a in done for b in done if a[1].end <= b[1].begin]
    assert ordered
    assert all(found[a[0].number][1] <= found[b[0].number][0] for a, b in ordered)


def test_another_profiler_is_left_alone(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def __exit__(self, *error: Any) -> None: ...

        def _start_trace(self) -> None: ...

    monkeypatch.setattr(hooks.profiler, "profile", Other)
    before = Other._start_trace
    with caplog.at_level(logging.WARNING, "ktir"):
        hooks.install()
    assert Other._start_trace is before
    assert caplog.messages == ["warning: profiles have no rows of the device 'spyre': '__exit__' of torch's profiler takes self, error"]
