"""Form and locations of logical KTIR, and regions as data."""

import re

import pytest
import torch
from torch import nn

from ktir import config
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import location_text
from ktir.dialects.structured import Generic
from ktir.lowering.inductor import wrapper
from ktir.lowering.inductor.capture import capture, capture_region
from ktir.lowering.region_to_ktir.emit import emit, write
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir, operations
from ktir.pipeline import run_pipeline
from ktir.runtime import cache
from ktir.runtime.logical import PROGRAM


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 100), nn.Linear(100, 64)])
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.layers[0](self.norm(x)))  # line of the first layer
        return self.layers[1](hidden) + x


FIRST = next(n for n, line in enumerate(open(__file__), 1) if "# line of the first layer" in line)


def test_forms() -> None:
    """Every generic is one of the three forms of the design, every level attribute and argument attribute is there."""
    text = capture(Block().half(), torch.ones(57, 64).half())
    with context(), ir.Location.unknown():
        module = parse_module(text)
        assert ir.StringAttr(module.operation.attributes["ktir.level"]).value == "logical"
        assert [op.name for op in operations(module)].count("linalg.matmul") == 2
        run_pipeline(module, "ktir-generalize")
        generics = [Generic(op) for op in operations(module) if op.name == "linalg.generic"]
        contractions = [g for g in generics if g.is_contraction]
        reductions = [g for g in generics if not g.is_contraction and not g.is_pointwise]
        assert len(contractions) == 2
        assert [str(m) for m in contractions[0].maps] == [
            "(d0, d1, d2) -> (d0, d2)",
            "(d0, d1, d2) -> (d2, d1)",
            "(d0, d1, d2) -> (d0, d1)",
        ]
        assert [g.combiner for g in reductions] == ["add", "add"]
        for g in generics:
            assert g.iterators.count("reduction") <= 1
            assert len(g.op.results) == 1
        function = module.body.operations[0].operation
        roles = [ir.StringAttr(ir.DictAttr(a)["ktir.role"]).value for a in ir.ArrayAttr(function.attributes["arg_attrs"])]
        assert roles == ["input"] * 7 + ["output"]
        assert {op.name for op in operations(module)} <= {
            *("builtin.module", "func.func", "func.return", "linalg.generic", "linalg.fill", "linalg.yield", "tensor.empty"),
            *("ktdp.construct_memory_view", "ktdp.construct_access_tile", "ktdp.load", "ktdp.store", "arith.constant", "arith.extf"),
            *("arith.truncf", "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.cmpf", "arith.select", "math.rsqrt"),
        }


def test_every_op_has_the_source_line() -> None:
    region = capture_region(Block().half(), torch.ones(57, 64).half())
    with context(), ir.Location.unknown():
        module = emit(region)
        function = module.body.operations[0].operation
        own = [op for op in operations(function) if op.name not in ("func.func", "func.return")]
        hidden = ("linalg.fill", "linalg.matmul")  # MLIR makes their bodies
        places = [location_text(op.location) for op in own if op.parent is None or op.parent.name not in hidden]
        assert all(re.search(rf"{re.escape(__file__)}:\d+:1", p) for p in places)
        assert {int(p.split(":")[-2]) for p in places} == {FIRST, FIRST + 1}
        first = next(op for op in operations(function) if op.name == "linalg.matmul")
        assert isinstance(first.location, ir.FusedLoc)
        assert '"addmm"(' in str(first.location)


def test_origins_name_modules_and_nodes() -> None:
    region = capture_region(Block().half(), torch.ones(57, 64).half())
    dot = next(n for n in region.nests if any(r.kind == "dot" for r in n.body))
    assert dot.origins[0].node == "addmm"
    assert dot.origins[0].target == "aten.addmm.default"
    assert dot.origins[0].module == "layers.0"
    assert dot.source == f"{__file__}:{FIRST}:1"


def test_region_as_json() -> None:
    region = capture_region(Block().half(), torch.ones(57, 64).half())
    assert Region.from_json(region.to_json()) == region
    maximum = capture_region(lambda x: x.clamp_min(float("-inf")).amax(-1), torch.ones(57, 64).half())
    assert Region.from_json(maximum.to_json()) == maximum
    assert "-inf" in maximum.to_json()


def test_a_region_from_json_gives_the_same_module() -> None:
    region = capture_region(Block().half(), torch.ones(3, 10, 64).half())
    with context(), ir.Location.unknown():
        assert str(emit(Region.from_json(region.to_json()))) == str(emit(region))


@pytest.mark.parametrize("engine", ["spyre", "ktir"])
def test_a_region_is_written_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler reads is what the program keeps; nothing is printed for a reader who is not there."""
    region = capture_region(Block().half(), torch.ones(57, 64).half())
    monkeypatch.setattr(wrapper, "print_module", None)
    with config.patch(engine=engine):
        files = cache.files(wrapper.compile_region(region))
    with context():
        assert files[PROGRAM].decode() == write(region)


def test_intermediates_take_no_host_memory() -> None:
    """Only inputs and outputs are arguments of the kernel."""
    region = capture_region(Block().half(), torch.ones(57, 64).half())
    assert {b.role for b in region.buffers.values()} == {"input", "temp", "output"}
    assert [region.buffers[a].role for a in region.arguments] == ["input"] * 7 + ["output"]


def test_capture_is_deterministic() -> None:
    model, x = Block().half(), torch.ones(57, 64).half()
    assert capture(model, x, debuginfo=True) == capture(model, x, debuginfo=True)
