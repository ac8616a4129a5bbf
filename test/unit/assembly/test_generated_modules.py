"""Random modules of ktdp ops: pretty -> generic -> pretty, local scope, bytecode and locations lose nothing."""

import io

import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError
from ktir.mlir import ir

sizes = st.integers(1, 70)
names = st.permutations(["%a", "%b1", "%long.name", "%x-y", "%$", "%0", "%17", "%_"])


def box(low: list[int], extents: list[int]) -> str:
    dims = [f"d{i}" for i in range(len(extents))]
    bounds = [b for d, lo, n in zip(dims, low, extents, strict=True) for b in (f"{d} >= {lo}", f"{d} <= {lo + n - 1}")]
    return f"affine_set<({', '.join(dims)}) : ({', '.join(bounds)})>"


def order(steps: list[int]) -> str:
    return f"affine_map<({', '.join(f'd{i}' for i in range(len(steps)))}) -> ({', '.join(f'd{i}' for i in steps)})>"


@st.composite
def spaces(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["memory_space<global>", "memory_space<ct_local>", "spyre_memory_space<HBM>", "local", "old"]))
    number = draw(st.integers(0, 31))
    return "#ktdp." + {"local": f"memory_space<ct_local, ct_id = {number}>", "old": f"spyre_memory_space<LX, core = {number}>"}.get(
        kind, kind
    )


@st.composite
def direct(draw: st.DrawFn, n: int) -> str:
    """A view, a tile of it, a load and a store."""
    extents = draw(st.lists(sizes, min_size=0, max_size=3))
    tile = [draw(st.integers(1, e)) for e in extents]
    steps = draw(st.permutations(range(len(extents))))
    at = ", ".join(draw(st.sampled_from(["%i", "0", "%i * 2 + %j", "%j mod 4", "(%i + %j) floordiv 3", "%g#0 + %g#1"])) for _ in extents)
    shape = "".join(f"{e}x" for e in extents)
    arranged = "".join(f"{tile[s]}x" for s in steps)
    space = draw(spaces())
    inner = f", {space}" if draw(st.booleans()) else ""
    return (
        f"%v{n} = ktdp.construct_memory_view %i, sizes: {extents}, strides: {extents} {{coordinate_set = {box([0] * len(tile), extents)}, "
        f"memory_space = {space}}} : memref<{shape}f16{inner}>\n"
        f"%t{n} = ktdp.construct_access_tile %v{n}[{at}] {{access_tile_order = {order(list(steps))}, "
        f"access_tile_set = {box([0] * len(tile), tile)}}} : memref<{shape}f16{inner}> -> !ktdp.access_tile<{arranged}index>\n"
        f"%l{n} = ktdp.load %t{n} : <{arranged}index> -> tensor<{arranged}f16>\n"
        f"ktdp.store %l{n}, %t{n} {{n = {n}}} : tensor<{arranged}f16>, <{arranged}index>\n"
    )


@st.composite
def indirect(draw: st.DrawFn, n: int) -> str:
    extents = draw(st.lists(sizes, min_size=1, max_size=3))
    variables = draw(names)[: len(extents)]
    subscripts = []
    for _ in range(draw(st.integers(1, 3))):
        a, b = (draw(st.sampled_from([*variables, "%i", "%g#0", "%g#1", "7"])) for _ in range(2))
        subscripts.append(draw(st.sampled_from([f"ind(%idx[{a}, {b}])", f"({a} + {b} * 3)", f"({b} floordiv 5)", a])))
    types = ", ".join(["memref<" + "?x" * len(subscripts) + "f16>", *["memref<?x?xi32>"] * sum("ind" in s for s in subscripts)])
    steps = list(draw(st.permutations(range(len(extents)))))
    arranged = "".join(f"{extents[s]}x" for s in steps)
    return (
        f"%u{n} = ktdp.construct_indirect_access_tile intermediate_variables({', '.join(variables)}) %base{len(subscripts)}"
        f"[{', '.join(subscripts)}] {{variables_space_order = {order(steps)}, variables_space_set = {box([0] * len(steps), extents)}}} "
        f": {types} -> !ktdp.access_tile<{arranged}index>\n"
    )


@st.composite
def exchange(draw: st.DrawFn, n: int) -> str:
    roles = draw(st.lists(st.sampled_from(["tensor<4x8xf16>", "tensor<2xi32>"]), min_size=1, max_size=3))
    values = ", ".join({"tensor<4x8xf16>": "%p", "tensor<2xi32>": "%q"}[r] for r in roles)
    per, groups = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    tiles = f"affine_set<(i)[g] : (i >= {per} * g, i <= {per} * g + {per - 1})>"
    future = f"<({', '.join(roles)}), groups = affine_set<(g) : (g >= 0, g <= {groups - 1})>>"
    types = ", ".join(roles)
    produce = (
        f"%f{n} = ktdp.inter_tile_produce producer_tiles_per_group = {tiles} -> {future} {{\n"
        f"^bb0(%gid: index):\n  ktdp.yield_partial {values} : {types}\n}}\n"
    )
    results = f"%r{n}:{len(roles)}" if len(roles) > 1 else f"%r{n}"
    if draw(st.booleans()):
        dependency = draw(st.sampled_from(["", ", producer_dependency_per_consumer = affine_set<(p)[c] : (p - c == 0)>"]))
        return (
            produce + f"{results} = ktdp.inter_tile_consume(%f{n}) consumer_tiles_per_group = {tiles}{dependency} : {future} -> {types}\n"
        )
    arguments = ", ".join(f"%c{i}: {t}" for i, t in enumerate([*roles, *roles]))
    taken = ", ".join(f"%c{i}" for i in range(len(roles)))
    return produce + (
        f"{results} = ktdp.inter_tile_reduce(%f{n}) consumer_tiles_per_group = {tiles}, identity({values} : {types}) "
        f": {future} -> {types} {{\n"
        f"^bb0({arguments}):\n  ktdp.yield_reduced {taken} : {types}\n}}\n"
    )


@st.composite
def modules(draw: st.DrawFn) -> str:
    body = "".join(draw(draw(st.sampled_from([direct, indirect, exchange]))(n)) for n in range(draw(st.integers(1, 5))))
    bases = ", ".join(f"%base{k}: memref<{'?x' * k}f16>" for k in (1, 2, 3))
    return (
        f"func.func @f(%i: index, %j: index, {bases}, %idx: memref<?x?xi32>, %p: tensor<4x8xf16>, %q: tensor<2xi32>) {{\n"
        f"%g:2 = ktdp.get_compute_tile_id : index, index\n{body}return\n}}\n"
    )


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(modules())
def test_nothing_is_lost(text: str) -> None:
    with context(), ir.Location.unknown():
        module = parse_module(text)
        pretty, generic = print_module(module), print_module(module, generic=True)
        assert print_module(parse_module(pretty)) == pretty
        assert print_module(parse_module(generic)) == pretty
        assert print_module(parse_module(generic), generic=True) == generic
        assert print_module(parse_module(print_module(module, local_scope=True))) == pretty
        located = print_module(module, debuginfo=True)
        assert print_module(parse_module(located), debuginfo=True) == located
        written = io.BytesIO()
        module.operation.write_bytecode(written)
        assert print_module(ir.Module.parse(written.getvalue())) == pretty


@pytest.mark.usefixtures("mlir")
class TestJudgement:
    OLD = "func.func private @f(memref<4xf16, #ktdp.spyre_memory_space<HBM>>, memref<8xf16, #ktdp.spyre_memory_space<HBM>>)"

    def test_old_spellings_are_silent_by_default(self) -> None:
        said: list[Diagnostic] = []
        parse_module(self.OLD, diagnostics=said)
        assert not said

    def test_each_old_spelling_is_warned_of_where_it_stands(self) -> None:
        said: list[Diagnostic] = []
        parse_module(self.OLD, "k.mlir", first_line=3, diagnostics=said, warn_deprecated=True)
        columns = [i + len("#ktdp.spyre_memory_space<") + 1 for i in range(len(self.OLD)) if self.OLD.startswith("#ktdp", i)]
        assert [(d.severity, d.location) for d in said] == [("warning", f"k.mlir:3:{c}") for c in columns]

    def test_strict_makes_them_errors(self) -> None:
        with pytest.raises(KtirError, match=r"is deprecated: write '#ktdp\.memory_space<global>'") as caught:
            parse_module(self.OLD, strict=True)
        assert len(caught.value.diagnostics) == 2

    def test_suspicions(self) -> None:
        text = (
            "func.func @f(%v: memref<8xf16>) {\n  %t = ktdp.construct_access_tile %v[0] {access_tile_order = affine_map<(d0) -> (d0)>, "
            "access_tile_set = affine_set<(d0) : (d0 >= 0, 3 - d0 >= 0)>} : memref<8xf16> -> !ktdp.access_tile<5xindex>\n  return\n}"
        )
        said: list[Diagnostic] = []
        parse_module(text, "k.mlir", diagnostics=said)
        assert [(d.severity, d.location) for d in said] == [("warning", "k.mlir:2:8")]
        with pytest.raises(KtirError, match="expects a tile of shape"):
            parse_module(text, strict=True)

    @pytest.mark.parametrize(
        ("text", "at"),
        [
            ("tuple<f16, !ktdp.tile_future<(tensor<4xf16>, tensor<4xfoo>), groups = affine_set<(g) : (g == 0)>>>", "foo"),
            ("!ktdp.tile_future<(tensor<4xf16>), groups = #nobody>", "#nobody"),
            ("!ktdp.tile_future<(tensor<4xf16>), groups = affine_set<(g) : (g = 0)>>", "affine_set"),
            ("tensor<4xf16, #ktir.layout<size = [4], device = [64], strides = [1], dtype = bar>>", "bar"),
        ],
    )
    def test_errors_inside_of_nested_types_are_placed(self, text: str, at: str) -> None:
        text = f"func.func private @f({text})"
        with pytest.raises(KtirError) as caught:
            parse_module(text, "k.mlir")
        assert caught.value.location == f"k.mlir:1:{text.index(at) + 1}"
