"""Generated op graphs at every level: each level holds, and its values are those of the level before down to the instruction stream."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir import config
from ktir.checking import check_levels

SIZES = (2, 3, 5, 10, 17, 57, 63, 64, 65, 100, 128, 130)
UNARY = ("math.exp", "math.absf", "arith.negf", "math.tanh")
BINARY = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf")
SHORT, LONG = 6, 300


class Program:
    """Writes a logical function: values are rows x columns in f16, buffers are (rows, columns) as the host holds them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers: list[tuple[int, ...]] = []
        self.count = 0

    def line(self, text: str) -> str:
        """Writes `%n = text`; the name."""
        self.count += 1
        self.lines.append(f"    %v{self.count} = {text}")
        return f"%v{self.count}"

    def tile(self, buffer: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> str:
        """A tile of a view of a buffer, the whole view."""
        base = f"%b{buffer}"
        if offset:
            base = self.line(f"arith.addi {base}, {self.line(f'arith.constant {offset} : index')} : index")
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        box = ", ".join(f"d{i} >= 0, -d{i} + {n - 1} >= 0" for i, n in enumerate(shape))
        kind = f"memref<{'x'.join(map(str, shape))}xf16>"
        view = self.line(
            f"ktdp.construct_memory_view {base}, sizes: {list(shape)}, strides: {list(strides)} {{coordinate_set = affine_set<({dims}) : "
            f"({box})>, memory_space = #ktdp.memory_space<global>}} : {kind}"
        )
        at = ", ".join("0" for _ in shape)
        return self.line(
            f"ktdp.construct_access_tile {view}[{at}] {{access_tile_order = affine_map<({dims}) -> ({dims})>, access_tile_set = "
            f"affine_set<({dims}) : ({box})>}} : {kind} -> !ktdp.access_tile<{'x'.join(map(str, shape))}xindex>"
        )

    def load(self, shape: tuple[int, ...], *, sliced: bool = False) -> str:
        """A tensor out of a new input buffer: all of it, or its middle columns."""
        host = (*shape[:-1], shape[-1] + 7) if sliced else shape
        self.buffers.append(host)
        strides = tuple(int(np.prod(host[i + 1 :])) for i in range(len(host)))
        tile = self.tile(len(self.buffers) - 1, shape, strides, 3 if sliced else 0)
        text = "x".join(map(str, shape))
        return self.line(f"ktdp.load {tile} : <{text}xindex> -> tensor<{text}xf16>")

    def generic(self, inputs: list[tuple[str, str, str]], result: str, maps: list[str], kinds: str, body: str, init: str = "") -> str:
        """A generic on `(value, type, element)`; the body yields `%r`."""
        out = self.line(f"tensor.empty() : {result}")
        element = result[:-1].split("x")[-1]
        if init:
            number = self.line(f"arith.constant {init} : {element}")
            out = self.line(f"linalg.fill ins({number} : {element}) outs({out} : {result}) -> {result}")
        names, types = ", ".join(v for v, _, _ in inputs), ", ".join(t for _, t, _ in inputs)
        arguments = ", ".join(f"%i{i}: {e}" for i, (_, _, e) in enumerate(inputs))
        iterators = ", ".join(f'"{"parallel" if k == "p" else "reduction"}"' for k in kinds)
        return self.line(
            f"linalg.generic {{indexing_maps = [{', '.join(f'affine_map<{m}>' for m in maps)}], iterator_types = [{iterators}]}} "
            f"ins({names} : {types}) outs({out} : {result}) {{\n    ^bb0({arguments}, %o: {element}):\n{body}\n"
            f"      linalg.yield %r : {element}\n    }} -> {result}"
        )

    def text(self, value: str, shape: tuple[int, int]) -> str:
        """The module that stores `value` to the last buffer."""
        self.buffers.append(shape)
        rows, columns = shape
        tile = self.tile(len(self.buffers) - 1, shape, (columns, 1))
        self.lines.append(f"    ktdp.store {value}, {tile} : tensor<{rows}x{columns}xf16>, <{rows}x{columns}xindex>")
        last = len(self.buffers) - 1
        arguments = ", ".join(
            f'%b{i}: index {{ktir.name = "b{i}", ktir.role = "{"output" if i == last else "input"}", '
            f"ktir.type = tensor<{'x'.join(map(str, host))}xf16>}}"
            for i, host in enumerate(self.buffers)
        )
        body = "\n".join(self.lines)
        return f'module attributes {{ktir.level = "logical"}} {{\n  func.func @f({arguments}) {{\n{body}\n    return\n  }}\n}}\n'


IDENTITY, ROW, COLUMN = "(d0, d1) -> (d0, d1)", "(d0, d1) -> (d1)", "(d0, d1) -> (d0)"


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """The text of a program and the shapes of its buffers, the output last."""
    p = Program()
    rows, columns = draw(st.sampled_from(SIZES)), draw(st.sampled_from(SIZES))
    value = p.load((rows, columns), sliced=draw(st.booleans()))
    for kind in draw(
        st.lists(st.sampled_from(("unary", "binary", "row", "column", "softmax", "centre", "matmul")), min_size=1, max_size=4)
    ):
        whole = f"tensor<{rows}x{columns}xf16>"
        if kind == "unary":
            body = f"      %r = {draw(st.sampled_from(UNARY))} %i0 : f16"
            value = p.generic([(value, whole, "f16")], whole, [IDENTITY, IDENTITY], "pp", body)
        elif kind in ("binary", "row", "column"):
            shape = {"binary": (rows, columns), "row": (columns,), "column": (rows,)}[kind]
            other = (p.load(shape), f"tensor<{'x'.join(map(str, shape))}xf16>", "f16")
            body = f"      %r = {draw(st.sampled_from(BINARY))} %i0, %i1 : f16"
            map_ = {"binary": IDENTITY, "row": ROW, "column": COLUMN}[kind]
            value = p.generic([(value, whole, "f16"), other], whole, [IDENTITY, map_, IDENTITY], "pp", body)
        elif kind in ("softmax", "centre"):
            combine, start = ("maximumf", "0xFF800000") if kind == "softmax" else ("addf", "0.0")
            body = f"      %w = arith.extf %i0 : f16 to f32\n      %r = arith.{combine} %o, %w : f32"
            column = f"tensor<{rows}xf32>"
            found = p.generic([(value, whole, "f16")], column, [IDENTITY, COLUMN], "pr", body, start)
            body = "      %w = arith.extf %i0 : f16 to f32\n      %d = arith.subf %w, %i1 : f32\n"
            body += "      %e = math.exp %d : f32\n" if kind == "softmax" else "      %e = math.tanh %d : f32\n"
            body += "      %r = arith.truncf %e : f32 to f16"
            value = p.generic([(value, whole, "f16"), (found, column, "f32")], whole, [IDENTITY, COLUMN, IDENTITY], "pp", body)
        else:
            width = draw(st.sampled_from(SIZES))
            weights = (p.load((columns, width)), f"tensor<{columns}x{width}xf16>", "f16")
            body = "      %a = arith.extf %i0 : f16 to f32\n      %b = arith.extf %i1 : f16 to f32\n"
            body += "      %m = arith.mulf %a, %b : f32\n      %r = arith.addf %o, %m : f32"
            maps = ["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)"]
            wide = f"tensor<{rows}x{width}xf32>"
            product = p.generic([(value, whole, "f16"), weights], wide, maps, "ppr", body, "0.0")
            columns = width
            value = p.generic(
                [(product, wide, "f32")],
                f"tensor<{rows}x{columns}xf16>",
                [IDENTITY, IDENTITY],
                "pp",
                "      %r = arith.truncf %i0 : f32 to f16",
            )
    return p.text(value, (rows, columns)), p.buffers


def check(program: tuple[str, list[tuple[int, ...]]], cores: int) -> None:
    """Values and levels of one program; Mismatch or KtirError where they do not hold."""
    text, shapes = program
    rng = np.random.default_rng(len(text))
    arrays = [(rng.standard_normal(shape) * 0.25).astype(np.float16) for shape in shapes]
    with config.patch(verify_each=True):
        check_levels(text, arrays, cores=cores, source="generated.mlir")


_SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck), "database": None}


@settings(max_examples=SHORT, **_SETTINGS)
@given(programs(), st.sampled_from((1, 3, 32)))
def test_programs(program: tuple[str, list[tuple[int, ...]]], cores: int) -> None:
    check(program, cores)


@pytest.mark.long
@settings(max_examples=LONG, **_SETTINGS)
@given(programs(), st.sampled_from((1, 3, 32)))
def test_more_programs(program: tuple[str, list[tuple[int, ...]]], cores: int) -> None:
    check(program, cores)
