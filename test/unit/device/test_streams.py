"""Streams and events of the device: PyTorch's interface to them, and times of what runs in them, computed by hand."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from ktir.device import spyre
from ktir.runtime.executable import recorded
from ktir.target import DATASHEET

HOST_GB, DRAM_GB = DATASHEET.host_gb_per_second, DATASHEET.dram_gb_per_second


@pytest.fixture(autouse=True)
def nothing_runs() -> None:
    """All streams are empty."""
    spyre.synchronize()


def timed() -> torch.Event:
    return torch.Event("spyre", enable_timing=True)


def test_streams_of_pools() -> None:
    low = [spyre.Stream("spyre") for _ in range(33)]
    assert {s.stream_id for s in low} == set(range(1, 33))
    assert low[0] == low[32]
    assert low[0] != low[1]
    high = torch.Stream(device="spyre:0", priority=-1)
    assert 33 <= high.stream_id <= 64
    assert isinstance(high, spyre.Stream)
    assert (high.id, high.priority, low[0].priority) == (high.stream_id, -1, 0)
    assert 33 <= spyre.Stream(priority=5).stream_id <= 64
    assert spyre.default_stream() == spyre.current_stream() == torch.accelerator.current_stream()
    assert spyre.default_stream().stream_id == 0
    again = torch.Stream(stream_id=high.stream_id, device_index=0, device_type=high.device_type)
    assert (again, hash(again)) == (high, hash(high))
    assert repr(torch.Stream(0)).startswith("torch.Stream device_type=spyre, device_index=0, stream_id=")
    with pytest.raises(RuntimeError, match="there is no device 'spyre:1'"):
        torch.Stream("spyre:1")


def test_other_devices_have_their_own() -> None:
    with pytest.raises(RuntimeError, match="not linked with support for mtia"):
        torch.Stream("mtia")
    with pytest.raises(RuntimeError, match="not linked with support for mtia"):
        torch.Event("mtia")
    assert issubclass(spyre.Stream, torch.Stream)
    assert issubclass(spyre.Event, torch.Event)
    assert not isinstance(torch.Event("spyre"), torch.Stream)
    assert isinstance(torch._C.Stream("spyre"), torch.Stream)

    class Own(torch.Stream):
        """Of somebody else."""

    assert not isinstance(spyre.current_stream(), Own)
    assert issubclass(Own, torch.Stream)


def test_current_stream() -> None:
    a, b = spyre.Stream("spyre"), torch.Stream("spyre")
    seen = []
    with a as entered:
        assert entered == a == torch.accelerator.current_stream()
        with spyre.stream(a), b:
            assert spyre.current_stream() == b
        assert spyre.current_stream("spyre:0") == a
        thread = threading.Thread(target=lambda: seen.append(spyre.current_stream()))
        thread.start()
        thread.join()
        with spyre.stream(None):
            assert spyre.current_stream() == a
    assert seen == [spyre.default_stream()] == [spyre.current_stream()]
    torch.accelerator.set_stream(b)
    assert torch.accelerator.current_stream() == b
    spyre.set_stream(spyre.default_stream())
    with pytest.raises(RuntimeError, match="expected a stream of the device 'spyre'"):
        spyre.set_stream(3)  # type: ignore[arg-type]


def test_events() -> None:
    event = torch.Event("spyre")
    assert (event.device, event.event_id, event.query()) == (torch.device("spyre"), 0, True)
    event.wait()
    event.synchronize()
    of_a_card = torch.Event("spyre:0")
    assert (of_a_card.device, of_a_card.event_id) == (torch.device("spyre"), 0)  # until it is recorded, as all of torch's
    of_a_card.record()
    assert of_a_card.device == torch.device("spyre:0")
    other = spyre.current_stream().record_event()
    assert other.device == torch.device("spyre:0")
    assert isinstance(other, spyre.Event)
    event.record()
    assert event.event_id > other.event_id > 0
    with pytest.raises(ValueError, match="Both events must be created with argument 'enable_timing=True'"):
        event.elapsed_time(other)
    with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time"):
        timed().elapsed_time(timed())
    a, b = timed(), timed()
    a.record()
    torch.ones(1 << 20).to("spyre", non_blocking=True)
    b.record()
    with pytest.raises(RuntimeError, match="Both events must be completed before calculating elapsed time"):
        a.elapsed_time(b)
    b.synchronize()
    assert a.elapsed_time(b) == pytest.approx(4 * (1 << 20) / HOST_GB / 1e6)
    assert b.elapsed_time(a) == -a.elapsed_time(b)


def test_asking_until_it_is_done() -> None:
    stream = torch.Stream("spyre")
    with stream:
        torch.ones(1 << 10).to("spyre", non_blocking=True)
    asked = 0
    while not stream.query():
        asked += 1
    assert asked == 1


def test_the_host_waits_for_copies_that_block() -> None:
    a, b, c = timed(), timed(), timed()
    a.record()
    x = torch.ones(1000).to("spyre")
    assert spyre.current_stream().query()
    x.cpu()
    b.record(torch.Stream("spyre"))  # which has nothing to do, but the host was not here before
    assert b.query()
    x.clone()
    c.record()
    c.synchronize()
    assert a.elapsed_time(b) == pytest.approx(8000 / HOST_GB / 1e6)
    assert b.elapsed_time(c) == pytest.approx(4000 / DRAM_GB / 1e6)


def test_a_copy_and_a_program_overlap(tmp_path: Path) -> None:
    x = torch.ones(256, 512, dtype=torch.float16, device="spyre")
    data = torch.ones(1 << 18, dtype=torch.float16)
    _ = x @ x.t()  # is compiled, and arranged
    copies = torch.Stream("spyre")
    begin, copied, computed = timed(), timed(), timed()
    spyre.synchronize()
    with spyre.trace(tmp_path / "trace.json"), recorded() as launches:
        begin.record()
        with copies:
            there = data.to("spyre", non_blocking=True)
            copied.record()
        y = x @ x.t()
        there.record_stream(spyre.current_stream())
        spyre.current_stream().wait_event(copied)
        computed.record()
        z = there + there
    ns = launches[0].machine.report.cycles / DATASHEET.clock_ghz
    copy_ns = data.nbytes / HOST_GB
    assert begin.elapsed_time(copied) == pytest.approx(copy_ns / 1e6)
    assert begin.elapsed_time(computed) == pytest.approx(max(ns, copy_ns) / 1e6)
    assert torch.equal(z.cpu(), data + data)
    assert y[0, 0].item() == 512
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows[copies.stream_id] == f"stream {copies.stream_id}"
    assert rows[0] == "stream 0 (default)"
    copy = next(e for e in events if e["name"] == "Memcpy HtoD" and e["tid"] == copies.stream_id)
    program = next(e for e in events if e.get("cat") == "kernel")
    assert (copy["dur"], program["dur"]) == (pytest.approx(copy_ns / 1e3), pytest.approx(ns / 1e3))
    assert max(copy["ts"], program["ts"]) < min(copy["ts"] + copy["dur"], program["ts"] + program["dur"]), "they overlap"
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel")
    assert all(end <= start for (_, end), (start, _) in pairwise(kernels)), "one computes at a time"


def test_trace_of_what_fails(tmp_path: Path) -> None:
    """What the cards did until then is what somebody will want to see."""

    def fails() -> None:
        with spyre.trace(tmp_path / "trace.json"):
            torch.ones(64, dtype=torch.float16).to("spyre")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert any(e.get("ph") == "X" for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


@pytest.mark.filterwarnings("error:Dynamo detected a call")
def test_dynamo_keeps_away_from_us() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + y.cpu().to("spyre")  # functions of ours that run between two graphs

    with torch.no_grad():
        for n in (3, 5):
            assert torch.compile(f, dynamic=True)(torch.ones(n, 64, device="spyre")).sum().item() == n * 64 * 4


@pytest.mark.filterwarnings("error:Dynamo detected a call")
def test_streams_and_compiled_graphs(caplog: pytest.LogCaptureFixture) -> None:
    stream, event = torch.Stream("spyre"), timed()

    def inside(x: torch.Tensor) -> torch.Tensor:
        with stream:
            y = x * 2
        return y + 1

    def with_event(x: torch.Tensor) -> torch.Tensor:
        y = x * 3
        event.record()
        return y + 1

    x = torch.arange(64, dtype=torch.float16, device="spyre")
    with torch.no_grad():
        with stream:
            assert torch.equal(torch.compile(inside)(x).cpu(), torch.arange(64).half() * 2 + 1)
        assert not caplog.text
        assert torch.equal(torch.compile(with_event)(x).cpu(), torch.arange(64).half() * 3 + 1)
    assert "a graph is for the stream in which it is called" in caplog.text
    assert event.event_id > 0


def test_a_trace_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    ran = []
    with pytest.raises(FileNotFoundError), spyre.trace(tmp_path / "nowhere" / "trace.json"):
        ran.append(1)
    assert not ran
