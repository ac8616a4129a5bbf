"""Hostile input: whatever `ktir-opt` is given, it ends with status 0 or 1, and says where the fault is.

Each case runs in a process of its own, so that a crash or a hang of MLIR is seen as one.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.mlir import ir
from ktir.tools.ktir_opt import main

SECONDS = 20
ROOT = Path(__file__).parents[3]
SOURCES = [
    text
    for pattern in (
        "test/lit/dialects/*.mlir",
        "test/lit/assembly/*.mlir",
        "test/lit/passes/general/ktir_c*.mlir",
        "test/lit/passes/general/ktir_inline.mlir",
    )
    for path in sorted(ROOT.glob(pattern))
    for text in path.read_text().split("// -----")
    if len(text) < 6000
]
PIECES = re.findall(r"[\w.]+|[^\w\s]|\s+", "\n".join(SOURCES))
WORDS = [
    *sorted({p for p in PIECES if p.strip()}),
    "(" * 50,
    "{" * 50,
    "<" * 50,
    "-9223372036854775808",
    "99999999999999999999",
    "\0",
    "\ufeff",
    "é",
]


@pytest.fixture(autouse=True, scope="module")
def _tools(path_of_tools: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path_of_tools)
        yield


def run(data: bytes, *flags: str) -> tuple[int | None, str, str]:
    """Status (None: killed by a signal), stdout and stderr of `ktir-opt`."""
    done = subprocess.run(["ktir-opt", *flags], input=data, capture_output=True, timeout=SECONDS)
    status = done.returncode if done.returncode >= 0 else None
    return status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def check(data: bytes, *flags: str) -> None:
    status, out, err = run(data, *flags)
    assert status in (0, 1), f"ended with {status}: {err}"
    assert "internal error" not in err
    assert "Traceback" not in err
    if status:
        assert not out
        assert "error: " in err
        lines = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line, column in re.findall(r"^<stdin>:(\d+):(\d+): (?:error|warning)", err, re.MULTILINE):
            at = int(line)
            assert 1 <= at <= len(lines), err
            assert 1 <= int(column) <= len(lines[at - 1]) + 1, err


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A good text with a few tokens taken out, doubled, exchanged or replaced."""
    pieces = re.findall(r"[\w.]+|[^\w\s]|\s+", draw(st.sampled_from(SOURCES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(pieces) - 1))
        kind = draw(st.sampled_from(["drop", "double", "swap", "word", "cut", "join"]))
        if kind == "drop":
            pieces[at] = ""
        elif kind == "double":
            pieces[at] *= 2
        elif kind == "swap":
            other = draw(st.integers(0, len(pieces) - 1))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif kind == "word":
            pieces[at] = draw(st.sampled_from(WORDS))
        elif kind == "cut":
            pieces = pieces[: at + 1]
        else:
            pieces[at:at] = re.findall(r"[\w.]+|[^\w\s]|\s+", draw(st.sampled_from(SOURCES)))[:40]
    return "".join(pieces)


PASSES = (
    "--ktir-inline",
    "--ktir-canonicalize",
    "--ktir-check-legality",
    "--verify-roundtrip",
    "--keep-names",
    "--no-implicit-module",
    "--strict",
)
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
FAST = settings(max_examples=examples(60), derandomize=True, deadline=None, suppress_health_check=QUIET)
LONG = settings(max_examples=3000, deadline=None, suppress_health_check=QUIET)


@FAST
@given(mutated(), st.lists(st.sampled_from(PASSES), max_size=3))
def test_mutated_text(text: str, flags: list[str]) -> None:
    check(text.encode(), *flags)


@pytest.mark.long
@LONG
@given(mutated(), st.lists(st.sampled_from(PASSES), max_size=3))
def test_mutated_text_at_length(text: str, flags: list[str]) -> None:
    check(text.encode(), *flags)


@FAST
@given(st.text(st.sampled_from('ktdp.load%#!@<>(){}[]"-=:,x012?\n\t \\/'), max_size=60))
def test_any_text(text: str) -> None:
    check(text.encode())


@FAST
@given(st.binary(max_size=40))
def test_any_bytes(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize(
    "text",
    [
        "module {" * 100_000,
        "module {" * 5000 + "}" * 5000,
        "func.func @f(%a: " + "tuple<" * 100_000 + "i32" + ">" * 100_000 + ") {return}",
        "module attributes {a.b = " + "[" * 100_000 + "]" * 100_000 + "} {}",
        "module {} loc(" + "callsite(" * 100_000,
        "#m = affine_map<(d0) -> (" + "(" * 100_000 + "d0" + ")" * 100_000 + ")>",
        "//" + "(" * 100_000 + '\nmodule attributes {a.b = "' + "(" * 100_000 + '"} {}',
        "",
        "\0",
        "module {\0}",
        "module {}\r\nmodule {}\r",
    ],
    ids=range(11),
)
def test_deep_and_empty_text(text: str) -> None:
    began = time.monotonic()
    check(text.encode())
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("cut", [4, 8, 20, 100, -1])
def test_truncated_bytecode(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "x.mlirbc"
    source = tmp_path / "x.mlir"
    source.write_text("func.func @f(%t: !ktdp.access_tile<4xindex>) { %0 = ktdp.load %t : <4xindex> -> tensor<4xf16> return }")
    assert main([str(source), "--emit-bytecode", "-o", str(path)]) == 0
    status, out, err = run(path.read_bytes()[:cut])
    assert (status, out) == (1, "")
    assert "<stdin>:1:1: error: " in err


DEEP = {
    "modules": "module {" * 20_000,
    "regions": "module {" * 5000 + "}" * 5000,
    "parentheses of a map": "#m = affine_map<(d0) -> (" + "(" * 20_000 + "d0" + ")" * 20_000 + ")>\nmodule {}",
    "brackets": "module attributes {a.b = " + "[" * 50_000,
    "signs of a map": "#m = affine_map<(d0) -> (" + "- " * 100_000 + "d0)>\nmodule attributes {a.b = #m} {}",
    "operators of a map": "#m = affine_map<(d0) -> (d0" + " floordiv 2" * 100_000 + ")>\nmodule attributes {a.b = #m} {}",
    "type aliases": "!a0 = i32\n" + "".join(f"!a{i} = tuple<!a{i - 1}>\n" for i in range(1, 20_000)) + "func.func private @f(!a19999)",
}


def test_bytecode_whose_names_are_no_text() -> None:
    """MLIR quotes the bytes of a damaged section, which are no UTF-8."""
    status, _, err = run(b"ML\xefR\x06" + bytes(range(256)) * 50)
    assert status == 1
    assert "Traceback" not in err
    assert "error:" in err


@pytest.mark.parametrize("kind", DEEP)
def test_the_parser_itself_refuses_deep_text(kind: str) -> None:
    """Whoever calls it: tools, packages, conformance."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(SECONDS)
            with context(), ir.Location.unknown():
                parse_module(DEEP[kind])
        except KtirError as error:
            status = 0 if "more than" in str(error) else 2
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0


FAR = """\
func.func @far(%x: index, %y: index) attributes {grid = [1]} {
  %xv = ktdp.construct_memory_view %x, sizes: [2], strides: [DISTANCE]
      {coordinate_set = affine_set<(d) : (d >= 0, -d + 1 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %xt = ktdp.construct_access_tile %xv[0]
      {access_tile_order = affine_map<(d) -> (d)>, access_tile_set = affine_set<(d) : (d >= 0, -d + 1 >= 0)>}
      : memref<2xf16> -> !ktdp.access_tile<2xindex>
  %v = ktdp.load %xt : !ktdp.access_tile<2xindex> -> tensor<2xf16>
  %yv = ktdp.construct_memory_view %y, sizes: [2], strides: [1]
      {coordinate_set = affine_set<(d) : (d >= 0, -d + 1 >= 0)>, memory_space = #ktdp.memory_space<global>} : memref<2xf16>
  %yt = ktdp.construct_access_tile %yv[0]
      {access_tile_order = affine_map<(d) -> (d)>, access_tile_set = affine_set<(d) : (d >= 0, -d + 1 >= 0)>}
      : memref<2xf16> -> !ktdp.access_tile<2xindex>
  ktdp.store %v, %yt : tensor<2xf16>, !ktdp.access_tile<2xindex>
  return
}
"""


@pytest.mark.parametrize(("distance", "status"), [(1000, 0), (300_000_000, 2)])
def test_more_memory_than_there_is_ends_no_process(distance: int, status: int, tmp_path: Path) -> None:
    """As on a machine with a quarter of a GiB left: the array takes more."""
    path = tmp_path / "far.mlir"
    path.write_text(FAR.replace("DISTANCE", str(distance)))
    text = (
        "import sys; from ktir.tools import memory; real = memory._bytes_of; "
        "memory._bytes_of = lambda path, name: 1 << 28 if name == 'MemAvailable' else real(path, name); "
        f"sys.argv = ['ktir-run', {str(path)!r}, '--arg', 'x=zeros', '--arg', 'y=zeros']; "
        "from ktir.tools.ktir_run import main; sys.exit(main())"
    )
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SECONDS)
    assert found.returncode == status, found.stderr
    assert "memory" in found.stderr or not status
    assert str(path) in found.stderr or not status


COMMANDS = {"ktir_run": "Driver", "ktir_opt": "Driver", "ktir_compile": "_compile", "ktir_launch": "_launch"}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_where_memory_does(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the limit before it works, and says which command, or which file, has met it."""
    command, limited = importlib.import_module(f"ktir.tools.{name}"), list[bool]()

    def work(*_: object) -> None:
        assert limited
        raise MemoryError

    monkeypatch.setattr(command, "at_most_what_there_is", lambda: limited.append(True))
    monkeypatch.setattr(command, COMMANDS[name], work)
    monkeypatch.setattr("sys.argv", [name.replace("_", "-"), "given", *(["-o", "made"] if name == "ktir_compile" else [])])
    assert command.main() != 0
    assert "error: the machine has no memory for what this takes" in capsys.readouterr().err
