"""`ktir-launch`: a package on the emulated chip, compared, traced and logged."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from chrome_traces import check

from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import HostView, LaunchArgument, LaunchSpec, PublishedLayout, read
from ktir.target import FITTED
from ktir.tools.ktir_launch import Host, hosts, main

PROGRAM = Path(__file__).parents[2] / "lit" / "lowering" / "inductor" / "softmax.mlir"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launch")
    with context(), ir.Location.unknown():
        for name, data in compile_logical(parse_module(PROGRAM.read_text(), "softmax.mlir")).items():
            (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def given(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """`-i` for each input of the program."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(1)
    flags = []
    for host in hosts(read(package).launch_spec):
        if host.role != "output":
            np.save(folder / f"{host.name}.npy", rng.standard_normal(host.shape).astype(host.dtype))
            flags += ["-i", f"{host.name}={folder / host.name}.npy"]
    return flags


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_values_and_exit_status(package: Path, given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.npy"
    assert main([str(package), *given, "-o", str(out)]) == 0
    found = np.load(out)
    x = np.load(given[1].partition("=")[2])
    assert np.abs(found.astype(np.float64) - softmax(x)).max() < 2e-3
    assert main([str(package), *given, "--against", str(out), "--mode", "step"]) == 0
    assert capsys.readouterr().err == ""
    found[1, 2] += 1
    np.save(out, found)
    assert main([str(package), *given, "--against", str(out)]) == 1
    assert "[1, 2] differs: 1 of" in capsys.readouterr().err
    assert main([str(package), *given, "--against", str(out), "--atol", "1.1"]) == 0


def test_report_and_log(package: Path, given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), *given, "--report", "--log", "-", "--log-core", "1", "--log-unit", "SFP"]) == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("core ")]
    assert "cycles" in text
    assert lines
    assert all(line.startswith("core 01 cyc ") and " SFP word " in line for line in lines)
    log = tmp_path / "log.txt"
    assert main([str(package), *given, "--log", str(log)]) == 0
    everything = log.read_text()
    assert " move " in everything
    assert "lx[" in everything
    assert "core 00" in everything


def test_trace(package: Path, given: Sequence[str], tmp_path: Path) -> None:
    place = tmp_path / "t.pt.trace.json"
    assert main([str(package), *given, "--trace", str(place), "--target", "fitted"]) == 0
    trace = json.loads(place.read_text())
    check(trace)
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    kernels = [e for e in slices if e["cat"] == "kernel"]
    launches = [e for e in slices if e["cat"] == "cuda_runtime"]
    assert [k["args"]["correlation"] for k in kernels] == [e["args"]["correlation"] for e in launches]
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in slices:
        if e["cat"] not in ("user_annotation", "cpu_op", "cuda_runtime"):
            rows.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in rows.values():  # in floats, as viewers add: one that ends later than the next one begins would be drawn around it
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(spans)))
    # What units do lies inside its kernel, and the kernels one after the other.
    end = max(k["ts"] + k["dur"] for k in kernels)
    assert all(0 <= e["ts"] and e["ts"] + e["dur"] <= end + 1e-5 for e in slices)
    copies = [e for e in slices if e["cat"] == "gpu_memcpy"]
    assert copies
    assert all(e["args"]["memory bandwidth (GB/s)"] <= FITTED.dram_gb_per_second for e in copies), "no transfer is faster than the channel"
    moved = Machine(read(package).program, FITTED).report.dram_bytes
    assert sum(e["args"]["bytes"] for e in copies) == moved
    processes = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert [*processes.values()][1:] == ["each of 29 cores, which run alike", "each of 2 corelets of a core, which run alike", "host"]
    assert {e["args"]["source"].split(":")[0] for e in slices if "source" in e["args"]}, "source lines"
    assert {e["cat"] for e in trace["traceEvents"] if e["ph"] == "s"} >= {"token", "fifo"}
    assert {"DRAM (GB/s)", "SFP busy (%)", "LX of core 0 (KiB)"} <= {e["name"] for e in trace["traceEvents"] if e["ph"] == "C"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "no -i for\n  arg0_1 (input): float16"),
        (["-i", "nothing.npy"], "cannot read 'nothing.npy'"),
        (["-i", "arg1_1=a.npy"], "the program has no input 'arg1_1'; did you mean 'arg0_1'?:\n  arg0_1 (input): float16"),
        (["-i", "a.npy", "-i", "b.npy"], "the program has no more inputs"),
        (["-i", "arg0_1=a.npy", "-i", "arg0_1=b.npy"], "'arg0_1' is given twice"),
        (["-i", "arg0_1="], "expected a file"),
        (["--mode", "fast"], "invalid choice"),
    ],
)
def test_wrong_use(package: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package), *flags]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""


def test_wrong_arrays_and_packages(package: Path, given: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, other, pickled = tmp_path / "short.npy", tmp_path / "other.npy", tmp_path / "pickled.npy"
    np.save(short, np.zeros(3, np.float16))
    np.save(other, np.zeros((57, 64), np.int32))
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    x = np.load(given[1].partition("=")[2])
    wrong = {
        "transposed": np.ascontiguousarray(x.T),
        "flat": x.reshape(-1),
        "wider": np.zeros((57, 20), np.float16),
        "float32": x.astype("f4"),
    }
    for name, array in wrong.items():
        np.save(tmp_path / f"{name}.npy", array)
        assert main([str(package), "-i", str(tmp_path / f"{name}.npy")]) == 2
        said = capsys.readouterr().err
        expected = "expects shape [57, 10], but got" if name != "float32" else "expects element type float16, but got float32"
        assert expected in said, name
    for place, message in ((short, "expects shape [57, 10]"), (other, "float16 or float32"), (pickled, "Python objects")):
        assert main([str(package), "-i", str(place)]) == 2
        assert message in capsys.readouterr().err
    assert main([str(package), *given, "--against", str(short)]) == 2
    assert "but the reference [3]" in capsys.readouterr().err
    assert main([str(tmp_path), *given]) == 2
    assert "error" in capsys.readouterr().err
    assert main([str(package), *given, "-o", str(tmp_path / "none" / "out.npy")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_hosts_of_views() -> None:
    def argument(role: str, offset: int, size: tuple[int, ...], strides: tuple[int, ...]) -> LaunchArgument:
        layout = PublishedLayout(size, (1, 4, 64), (1, 1, 1), "IEEE_FP16", "STANDARD", "zero")
        return LaunchArgument(0, "x", role, HostView(0, offset, size, strides), "float16", layout)

    def hosts_of(*arguments: LaunchArgument) -> list[Host]:
        return hosts(LaunchSpec("f", 0, arguments))

    (whole,) = hosts_of(argument("input", 0, (2, 8), (8, 1)), argument("input", 0, (2, 8), (4, 1)))
    assert (whole.elements, whole.shape) == (16, (2, 8))
    (part,) = hosts_of(argument("input", 3, (2, 8), (8, 1)))
    assert part.shape == (19,)
    (both,) = hosts_of(argument("input", 0, (2, 8), (8, 1)), argument("output", 0, (2, 8), (8, 1)))
    assert both.role == "input_output"


def test_any_strides_are_read_right(package: Path, given: Sequence[str], tmp_path: Path) -> None:
    """A file may be in Fortran order."""
    x = np.load(given[1].partition("=")[2])
    np.save(tmp_path / "fortran.npy", np.asfortranarray(x))
    for name, source in (("a.npy", given[1]), ("b.npy", str(tmp_path / "fortran.npy"))):
        assert main([str(package), "-i", source, "-o", str(tmp_path / name)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_arrays_of_a_program_that_declares_none_lie_as_it_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An array of the rank of a view has its strides, in the order of its dims or in that of memory; one dim is memory."""
    text = PROGRAM.read_text().replace(", ktir.type = tensor<57x10xf16>", "")
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(text, "softmax.mlir"))
    package = tmp_path / "package"
    package.mkdir()
    for name, data in files.items():
        (package / name).write_bytes(data)
    assert read(package).launch_spec.hosts == ()
    x = np.random.default_rng(1).standard_normal((57, 10)).astype(np.float16)
    for name, array in {"whole": x, "flat": x.reshape(-1), "turned": x.T, "wider": np.zeros((57, 20), np.float16)}.items():
        np.save(tmp_path / "x.npy", np.ascontiguousarray(array))
        status = main([str(package), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy")])
        assert status == (0 if name in ("whole", "flat") else 2), name
        if status:
            assert "is read with sizes [57, 10] and strides [10, 1], as no array of shape" in capsys.readouterr().err
        else:
            assert np.abs(np.load(tmp_path / "y.npy").reshape(57, 10) - softmax(x)).max() < 2e-3
