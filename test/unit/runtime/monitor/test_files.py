"""Metric files, held against a reading of them by hand in the published form."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ktir.diagnostics import KtirError
from ktir.runtime.monitor import files, form
from ktir.runtime.monitor.files import MetricFile
from ktir.runtime.monitor.sampling import Source
from ktir.runtime.monitor.writer import Monitor
from ktir.runtime.time.steps import Step


@pytest.fixture
def pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "m.%BUSID"))
    found = files.pattern()
    assert found is not None
    return found


def values(path: Path) -> dict[str, float]:
    with MetricFile(path, mapped=False) as file:
        return {metric.name: value for metric, value in file.read_metrics()}


def test_what_steps_move(pattern: str) -> None:
    monitor = Monitor()
    for step in (Step("H2D", 4096, 100.0), Step("H2D", 1024, 50.0), Step("D2H", 2048, 30.0), Step("D2D", 8192, 20.0, host_ns=800.0)):
        monitor.open(1, lambda: (3 << 20, 5 << 20)).append(step)
    monitor.write()
    (path,) = files.found(pattern)
    found = values(path)
    expected = {"elapsed": 1000.0, "busy": 0.0, "rxpci": 5, "txpci": 2, "rdmem": 4, "wrmem": 4, "n_rxpci": 2, "n_txpci": 1, "n_launch": 0}
    expected |= {"actmem": 3 << 10, "peakmem": 5 << 10, "pid": os.getpid(), "card": 1, "rdrdma": 0}
    assert {name: found[name] for name in expected} == expected
    monitor.close()
    assert files.found(pattern) == []


def test_the_bytes_are_in_the_published_form(pattern: str) -> None:
    """Walked from the header on with nothing but `struct`: all at multiples of 8, sections as long as the table says."""
    monitor = Monitor()
    monitor.open(0).append(Step("H2D", 1024 * 7, 1.0))
    monitor.write()
    data = files.found(pattern)[0].read_bytes()
    monitor.close()
    magic, version, count, stamp = struct.unpack_from("<8sQQQ", data)
    assert (magic, version) == (b"SPYREMTR", 1)
    assert abs(stamp - time.time_ns()) < 60e9
    sizes, at, bodies = struct.unpack_from(f"<{count}Q", data, 32), 32 + 8 * count, {}
    for size in sizes:
        kind, own, sequence, at_write = struct.unpack_from("<QQQQ", data, at)
        assert (own, at % 8, sequence % 2, at_write) == (size, 0, 0, stamp)
        bodies[kind] = data[at + 32 : at + size]
        at += size
    assert at == len(data)
    assert struct.unpack("<6d", bodies[3])[2] == 7.0  # rxpci
    assert struct.unpack("<3Q", bodies[4]) == (0, 1, 0)


def test_filters_and_names(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(form.write(dict.fromkeys(form.METRICS, 2.0), 4, 17))
    with MetricFile(path) as file:
        file.set_filters(["pwr", "n_launch"])
        assert [(m.name, m.unit, v) for m, v in file.read_metrics()] == [("pwr", "W", 2.0), ("n_launch", "", 2)]
        assert file.timestamp == 17
        with pytest.raises(KtirError, match=r"expects a metric of pwr, .* but got 'power'"):
            file.set_filters(["power"])


def test_half_written_files_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(form.write(dict.fromkeys(form.METRICS, 2.0), 3, 17))
    with MetricFile(path) as file, pytest.raises(KtirError, match="somebody writes it all the time"):
        file.read_metrics()


def test_every_beginning_of_a_file_and_strangers_are_refused(tmp_path: Path) -> None:
    data = form.write(dict.fromkeys(form.METRICS, 2.0), 4, 17)
    path = tmp_path / "cut"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(KtirError, match=r"cut: expects a (metric file|section)"):
            MetricFile(path)
    path.write_bytes(b"x" * 500)
    with pytest.raises(KtirError, match="expects a metric file, which begins with"):
        MetricFile(path)
    with pytest.raises(KtirError, match="No such file"):
        MetricFile(tmp_path / "none")


def test_sections_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    known = form.write(dict.fromkeys(form.METRICS, 2.0), 4, 17)
    count = struct.unpack_from("<Q", known, 16)[0]
    more = struct.pack("<QQQQd", 99, 40, 4, 17, 1.5)
    table = known[32 : 32 + 8 * count] + struct.pack("<Q", 40)
    path = tmp_path / "more"
    path.write_bytes(known[:16] + struct.pack("<QQ", count + 1, 17) + table + known[32 + 8 * count :] + more)
    assert values(path) == dict.fromkeys(form.METRICS, 2.0)


def test_files_of_the_dead_go_and_others_stay(pattern: str, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    old, other = files.path(pattern, dead.pid, 0), tmp_path / "m.notes:of:mine"
    old.touch()
    other.touch()
    monitor = Monitor()
    monitor.open(0).append(Step("H2D", 1, 1.0))
    assert not old.exists()
    assert other.exists()
    assert files.found(pattern) == [files.path(pattern, os.getpid(), 0)]
    monitor.close()


def test_where_nothing_can_be_written_nothing_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Who asked for files is told so, once."""
    for asked in ("0", "/proc/nowhere/m.%BUSID"):
        monkeypatch.setenv(files.VARIABLE, asked)
        monitor = Monitor()
        monitor.open(0).append(Step("H2D", 1, 1.0))
        monitor.open(1).append(Step("H2D", 1, 1.0))
        monitor.write()
        monitor.close()
    assert [r.getMessage().partition(" at ")[0] for r in caplog.records] == ["warning: KTIR_METRICS: no metric file can be written"]


def test_the_child_of_a_fork_has_a_file_of_its_own(pattern: str) -> None:
    code = """
import os
from ktir.runtime.monitor import files, writer
from ktir.runtime.time.steps import Step
writer.own.open(0).append(Step("H2D", 1024, 1.0))
writer.own.write()
if not (child := os.fork()):
    writer.own.open(0).append(Step("H2D", 2048, 1.0))
    writer.own.write()
    print([v for p in files.found(files.pattern()) for m, v in files.MetricFile(p).read_metrics() if m.name == "rxpci"], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(len(files.found(files.pattern())))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    values, left = done.stdout.splitlines()
    assert sorted(json.loads(values)) == [1.0, 2.0]
    assert left == "1"  # the child is dead, whatever it left
    assert files.found(pattern) == files.left(pattern) == []  # the parent has tidied up


def test_rates_are_of_the_period(pattern: str) -> None:
    """1 MiB in 10 microseconds is 104.9 GB/s, whatever came before; nothing moves afterwards."""
    monitor = Monitor()
    monitor.open(0).append(Step("H2D", 1 << 30, 1.0))
    monitor.write()
    source = Source(0, files.found(pattern)[0])
    monitor.open(0).append(Step("H2D", 1 << 20, 10_000.0))
    monitor.write()
    assert source.sample((None, 5.0))["rxpci"] == "104.858"
    monitor.write()
    shown = source.sample((None, 5.0))
    assert (shown["rxpci"], shown["busy"], shown["hostcpu"], shown["hostmem"]) == ("0.000", "0", "-", "5.0")
    monitor.close()


def test_a_reader_needs_no_torch_and_little_else() -> None:
    wanted = ("torch", "numpy", "ktir.emulator", "ktir.isa")
    code = f"import sys, ktir.runtime.monitor.files; print([m for m in {wanted} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
