"""Observers of the executor: what they are told, and that an execution is the same with and without them."""

import io
from pathlib import Path

import numpy as np
import pytest

from ktir.checking.debugger import Debugger, Stopped
from ktir.checking.observers import AGAIN, OpValues, Profile, Progress, Together
from ktir.checking.values import Names
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.program import OpPlan
from ktir.emulator.reference.executor import execute
from ktir.emulator.reference.observer import Observer
from ktir.emulator.reference.record.recorder import Recorder

ADD = (Path(__file__).parents[2] / "lit" / "tools" / "Inputs" / "add.mlir").read_text()

LOOP = """
#box = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>
func.func @f(%x: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {coordinate_set = #box, memory_space = #ktdp.memory_space<global>} : memref<4xf32>
  %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<4xf32> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %t : <4xindex> -> tensor<4xf32>
  %sum = scf.for %i = %c0 to %c3 step %c1 iter_args(%acc = %a) -> (tensor<4xf32>) {
    %next = arith.addf %acc, %a : tensor<4xf32>
    scf.yield %next : tensor<4xf32>
  }
  ktdp.store %sum, %t : tensor<4xf32>, <4xindex>
  return
}
"""


class Log(Observer):
    """Writes down what it is told."""

    def __init__(self, values: bool) -> None:
        self.values = values
        self.ops: list[str] = []
        self.calls: list[tuple[str, int, int]] = []
        self.ends = 0
        self.sums: list[float] = []

    def before_op(self, rec: Recorder, op: OpPlan) -> None:
        self.ops.append(f"before {op.where.op}")

    def after_op(self, rec: Recorder, op: OpPlan) -> None:
        self.ops.append(f"after {op.where.op}")
        if self.values and op.where.op == "arith.addf":
            self.sums.append(float(rec.binder.array(rec.tensor(op.results[0])).sum()))

    def recorded(self, rec: Recorder) -> None:
        self.ends += 1

    def ran(self, where: Where | None, seconds: float, done: int, total: int) -> None:
        assert seconds >= 0
        self.calls.append((where.op if where else "", done, total))


def arrays() -> list[np.ndarray]:
    x = np.arange(256, dtype=np.float16).reshape(4, 64)
    return [x, x + 1, np.zeros_like(x)]


@pytest.mark.parametrize("values", [False, True])
def test_an_observer_changes_nothing(values: bool) -> None:
    plain, watched, log = arrays(), arrays(), Log(values)
    execute(ADD, None, plain)
    report = execute(ADD, None, watched, observer=log)
    assert all((a == b).all() for a, b in zip(plain, watched, strict=True))
    assert report.arithmetic == {"arith.addf": 256}
    assert any(op == "arith.addf" for op, _, _ in log.calls)


def test_ops_are_told_once_per_plan_and_calls_at_each_launch() -> None:
    text = ADD.replace("@add", "@told")
    first, second = Log(False), Log(False)
    execute(text, None, arrays(), observer=first)
    execute(text, None, arrays(), observer=second)
    assert first.ops[:2] == ["before ktdp.get_compute_tile_id", "after ktdp.get_compute_tile_id"]
    assert (first.ends, second.ops, second.ends) == (1, [], 0)
    assert first.calls == second.calls
    assert [done for _, done, _ in first.calls] == list(range(1, len(first.calls) + 1))
    assert {total for _, _, total in first.calls} == {len(first.calls)}


def test_values_are_there_when_an_op_has_run() -> None:
    log = Log(True)
    execute(LOOP, None, [np.arange(4, dtype=np.float32)], observer=log)
    assert log.sums == [12.0, 18.0, 24.0]
    assert log.ops.count("before arith.addf") == 3
    at = log.ops.index("before scf.for")
    assert log.ops[at + 1] == "before arith.addf"
    assert log.ops[-3:] == ["after scf.for", "before ktdp.store", "after ktdp.store"]


def test_names_of_loop_variables() -> None:
    out = io.StringIO()
    commands = iter(["print i", "print %acc[1:3]", "next", "next", "continue"])
    debugger = Debugger(Names(LOOP, "<text>"), [13], lambda prompt: next(commands, None), out)
    execute(LOOP, None, [np.arange(4, dtype=np.float32)], observer=debugger)
    said = out.getvalue()
    assert "%i: index = 0\n[1. 2.]\n" in said
    assert said.count("stopped before 'arith.addf' op") == 3
    assert "%next: tensor<4xf32> = [0 2 4 6]" in said
    assert debugger.reached == {13}


def test_an_execution_that_is_stopped_leaves_arrays_alone() -> None:
    x = np.arange(4, dtype=np.float32)
    debugger = Debugger(Names(LOOP, "<text>"), [16], lambda prompt: "quit", io.StringIO())
    with pytest.raises(Stopped):
        execute(LOOP, None, [x], observer=debugger)
    assert x.tolist() == [0, 1, 2, 3]


def test_values_of_a_store_and_of_handles() -> None:
    out = io.StringIO()
    execute(LOOP, None, [np.arange(4, dtype=np.float32)], observer=OpValues(Names(LOOP, "<text>"), out))
    said = out.getvalue()
    assert "  %v: view of 'argument 0' from element 0, sizes [4], strides [1], f32\n" in said or "  %v: view of 'x'" in said
    assert "  %t: tile 4 at [0]\n" in said
    assert "ktdp.store\n  %sum: tensor<4xf32> = [0 4 8 12]\n" in said


def test_an_execution_that_starts_again_is_told_again() -> None:
    """Tiles load rows of different lengths, so their kernel is recorded anew, tile by tile."""
    text = """
#row = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id = affine_map<(d0) -> (d0)>
#hbm = #ktdp.memory_space<global>
func.func @f(%x: index, %y: index) attributes {grid = [2]} {
  %t = ktdp.get_compute_tile_id : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %n = arith.addi %t, %c1 : index
  %at = arith.muli %t, %c4 : index
  %xv = ktdp.construct_memory_view %x, sizes: [8], strides: [1] {coordinate_set = #box, memory_space = #hbm} : memref<8xf32>
  %yv = ktdp.construct_memory_view %y, sizes: [8], strides: [1] {coordinate_set = #box, memory_space = #hbm} : memref<8xf32>
  %xt = ktdp.construct_access_tile %xv[%at] symbols(%n) {access_tile_order = #id, access_tile_set = #row}
      : memref<8xf32> -> !ktdp.access_tile<?xindex>
  %yt = ktdp.construct_access_tile %yv[%at] symbols(%n) {access_tile_order = #id, access_tile_set = #row}
      : memref<8xf32> -> !ktdp.access_tile<?xindex>
  %a = ktdp.load %xt : <?xindex> -> tensor<?xf32>
  ktdp.store %a, %yt : tensor<?xf32>, <?xindex>
  return
}
"""
    out = io.StringIO()
    y = np.zeros(8, np.float32)
    commands = iter(["next", "next"])
    debugger = Debugger(Names(text, "<text>"), [10], lambda prompt: next(commands, None), out)
    execute(text, None, [np.arange(8, dtype=np.float32), y], observer=Together([debugger]))
    assert y.tolist() == [0, 0, 0, 0, 4, 5, 0, 0]
    said = out.getvalue()
    assert said.count(AGAIN) == 1
    before, after = said.split(AGAIN)
    assert "%n: index, by tile:" in before
    assert "by tile:" not in after
    assert "%n: index = 2" in after
    assert said.count("10:8: stopped before 'arith.addi' op") == 3


def test_profile_of_lines() -> None:
    text = LOOP.replace("@f", "@profiled")
    profile = Profile(Names(text, "<text>"))
    report = execute(text, None, [np.arange(4, dtype=np.float32)], observer=Together([profile]))
    rows = {place: (line, calls) for place, line, calls, _ in profile.rows()}
    assert rows["<text>:13"][0].startswith("%next = arith.addf")
    assert rows["<text>:13"][1] >= 3
    table = profile.report(report.seconds, report.prepare_seconds)
    assert table.splitlines()[0].split() == ["time", "(ms)", "%", "calls", "line"]
    assert "arguments in, results out" in table


def test_progress_is_shown_late_and_removed() -> None:
    out = io.StringIO()
    progress = Progress(out, after=0.0, every=0.0)
    execute(ADD.replace("@add", "@slow"), None, arrays(), observer=progress)
    assert "ops prepared, at <text>:" in out.getvalue()
    assert "100%" in out.getvalue()
    progress.clear()
    assert out.getvalue().endswith("\r\x1b[K")
    quick = io.StringIO()
    progress = Progress(quick, after=60.0)
    execute(ADD, None, arrays(), observer=progress)
    progress.clear()
    assert quick.getvalue() == ""
