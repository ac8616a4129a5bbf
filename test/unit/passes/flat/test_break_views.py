"""Random chains of ops that move elements: the flat program has the values of the one that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktir import execute
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.mlir import ir, operations
from ktir.pipeline import run_pipeline

EXTENTS = (2, 3, 4, 5, 6, 9, 12, 65)
MOST_ELEMENTS = 4000
Pick = Callable[[int], int]
"""A number below the given one."""
KINDS = ("expand", "collapse", "transpose", "slice", "broadcast", "pad", "concat", "negate")


def _type(shape: list[int], element: str = "f16") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


class Chain:
    """Writes a logical function that loads, moves and stores."""

    def __init__(self, shape: list[int], element: str) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.element = element
        self.shape = shape
        self.first = shape
        self.value = self.line(f"ktdp.load {self._tile('%x', shape)} : <{self._dims(shape)}index> -> {_type(shape, element)}")
        self.earlier = [(self.value, shape)]

    def line(self, text: str) -> str:
        """Writes `%vN = text`; the name."""
        self.count += 1
        self.lines.append(f"    %v{self.count} = {text}")
        return f"%v{self.count}"

    def _t(self, shape: list[int]) -> str:
        return _type(shape, self.element)

    def _dims(self, shape: list[int]) -> str:
        return "".join(f"{n}x" for n in shape)

    def _tile(self, base: str, shape: list[int]) -> str:
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        box = ", ".join(f"d{i} >= 0, -d{i} + {n - 1} >= 0" for i, n in enumerate(shape))
        kind = f"memref<{self._dims(shape)}{self.element}>"
        view = self.line(
            f"ktdp.construct_memory_view {base}, sizes: {shape}, strides: {strides} {{coordinate_set = affine_set<({dims}) : ({box})>, "
            f"memory_space = #ktdp.memory_space<global>}} : {kind}"
        )
        return self.line(
            f"ktdp.construct_access_tile {view}[{', '.join('0' for _ in shape)}] {{access_tile_order = affine_map<({dims}) -> ({dims})>, "
            f"access_tile_set = affine_set<({dims}) : ({box})>}} : {kind} -> !ktdp.access_tile<{self._dims(shape)}index>"
        )

    def _now(self, value: str, shape: list[int]) -> None:
        self.value, self.shape = value, shape
        self.earlier.append((value, shape))

    def step(self, kind: str, pick: st.DataObject) -> None:
        """One op of a kind, if the present shape allows it."""
        getattr(self, f"_{kind}")(lambda n: pick.draw(st.integers(0, n - 1)))

    def _expand(self, pick: Pick) -> None:
        cuts = [(d, k) for d, n in enumerate(self.shape) for k in range(2, n) if n % k == 0]
        if cuts and len(self.shape) < 5:
            d, k = cuts[pick(len(cuts))]
            new = [*self.shape[:d], self.shape[d] // k, k, *self.shape[d + 1 :]]
            self._reshape("expand_shape", d, self.shape, new, new)

    def _collapse(self, pick: Pick) -> None:
        if len(self.shape) > 1:
            d = pick(len(self.shape) - 1)
            new = [*self.shape[:d], self.shape[d] * self.shape[d + 1], *self.shape[d + 2 :]]
            self._reshape("collapse_shape", d, new, new, self.shape)

    def _reshape(self, name: str, d: int, small: list[int], new: list[int], large: list[int]) -> None:
        groups = [[i if i < d else i + 1] for i in range(len(small))]
        groups[d] = [d, d + 1]
        tail = f" output_shape {large}" if name == "expand_shape" else ""
        text = f"tensor.{name} {self.value} {groups}{tail} : {self._t(self.shape)} into {self._t(new)}"
        self._now(self.line(text), new)

    def _transpose(self, pick: Pick) -> None:
        order = list(range(len(self.shape)))
        for i in range(len(order) - 1):
            j = i + pick(len(order) - i)
            order[i], order[j] = order[j], order[i]
        new = [self.shape[d] for d in order]
        self._copied("transpose", new, f"permutation = {order}")

    def _broadcast(self, pick: Pick) -> None:
        if len(self.shape) < 5 and prod(self.shape) * 3 < MOST_ELEMENTS:
            d, n = pick(len(self.shape) + 1), 2 + pick(2)
            self._copied("broadcast", [*self.shape[:d], n, *self.shape[d:]], f"dimensions = [{d}]")

    def _copied(self, name: str, new: list[int], how: str) -> None:
        empty = self.line(f"tensor.empty() : {self._t(new)}")
        types = f"ins({self.value} : {self._t(self.shape)}) outs({empty} : {self._t(new)})"
        self._now(self.line(f"linalg.{name} {types} {how}"), new)

    def _slice(self, pick: Pick) -> None:
        offsets, sizes, steps = [], [], []
        for n in self.shape:
            step = 1 + pick(2)
            most = (n + step - 1) // step
            size = 2 + pick(most - 1) if most > 1 else n
            step = step if most > 1 else 1
            offsets.append(pick(n - (size - 1) * step))
            sizes.append(size)
            steps.append(step)
        text = f"tensor.extract_slice {self.value}{offsets} {sizes} {steps} : {self._t(self.shape)} to {self._t(sizes)}"
        self._now(self.line(text), sizes)

    def _pad(self, pick: Pick) -> None:
        low, high = [pick(2) for _ in self.shape], [pick(3) for _ in self.shape]
        new = [n + a + b for n, a, b in zip(self.shape, low, high, strict=True)]
        if prod(new) > MOST_ELEMENTS:
            return
        indices = ", ".join(f"%p{i}: index" for i in range(len(new)))
        constant = "1.5" if self.element == "f16" else "7"
        yielded = f"%c = arith.constant {constant} : {self.element}\n      tensor.yield %c : {self.element}"
        types = f"{self._t(self.shape)} to {self._t(new)}"
        text = f"tensor.pad {self.value} low{low} high{high} {{\n    ^bb0({indices}):\n      {yielded}\n    }} : {types}"
        self._now(self.line(text), new)

    def _concat(self, pick: Pick) -> None:
        """Joined with an earlier value of the same extents but for one dim."""
        found = [
            (v, s, d)
            for v, s in self.earlier
            if len(s) == len(self.shape)
            for d in range(len(s))
            if s[:d] == self.shape[:d] and s[d + 1 :] == self.shape[d + 1 :] and prod(s) + prod(self.shape) < MOST_ELEMENTS
        ]
        other, shape, d = found[pick(len(found))] if found else (None, [], 0)
        if other is None:
            return
        new = [*shape[:d], shape[d] + self.shape[d], *shape[d + 1 :]]
        whole = self.line(f"tensor.empty() : {self._t(new)}")
        for value, part, at in ((other, shape, 0), (self.value, self.shape, shape[d])):
            offsets = [at if i == d else 0 for i in range(len(new))]
            box = f"{offsets} {part} {[1] * len(new)}"
            whole = self.line(f"tensor.insert_slice {value} into {whole}{box} : {self._t(part)} into {self._t(new)}")
        self._now(whole, new)

    def _negate(self, pick: Pick) -> None:
        dims = ", ".join(f"d{i}" for i in range(len(self.shape)))
        one = f"affine_map<({dims}) -> ({dims})>"
        kinds = ", ".join('"parallel"' for _ in self.shape)
        empty = self.line(f"tensor.empty() : {self._t(self.shape)}")
        t, e = self._t(self.shape), self.element
        compute = (
            "%r = arith.negf %i : f16"
            if e == "f16"
            else f"%k = linalg.index 0 : index\n      %n = arith.index_cast %k : index to {e}\n      %r = arith.subi %n, %i : {e}"
        )
        head = f"linalg.generic {{indexing_maps = [{one}, {one}], iterator_types = [{kinds}]}} ins({self.value} : {t}) outs({empty} : {t})"
        body = f"{{\n    ^bb0(%i: {e}, %o: {e}):\n      {compute}\n      linalg.yield %r : {e}\n    }} -> {t}"
        self._now(self.line(f"{head} {body}"), self.shape)

    def text(self) -> str:
        """The module."""
        tile = self._tile("%y", self.shape)
        self.lines.append(f"    ktdp.store {self.value}, {tile} : {self._t(self.shape)}, <{self._dims(self.shape)}index>")
        x, y = (
            f'%{name}: index {{ktir.name = "{name}", ktir.role = "{role}", ktir.type = {_type(shape, self.element)}}}'
            for name, role, shape in (("x", "input", self.first), ("y", "output", self.shape))
        )
        body = "\n".join(self.lines)
        return f'module attributes {{ktir.level = "logical"}} {{\n  func.func @f({x}, {y}) {{\n{body}\n    return\n  }}\n}}\n'


def _run(module: ir.Module, array: np.ndarray, shape: list[int]) -> np.ndarray:
    result = np.zeros(shape, array.dtype)
    execute(module, None, [array.copy(), result])
    return result


@settings(
    max_examples=examples(120), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    shape=st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=8),
    element=st.sampled_from(("f16", "i64")),
    pick=st.data(),
)
def test_chains(shape: list[int], kinds: list[str], element: str, pick: st.DataObject) -> None:
    chain = Chain(shape, element)
    for kind in kinds:
        chain.step(kind, pick)
    array = np.arange(prod(shape)).reshape(shape).astype(np.float16 if element == "f16" else np.int64)
    with context(), ir.Location.unknown():
        module = parse_module(chain.text(), "chain.mlir")
        run_pipeline(module, "ktir-generalize")
        wanted = _run(module, array, chain.shape)
        run_pipeline(module, "ktir-break-views,ktir-verify-level")
        names = {op.name for op in operations(module)}
        assert not {n for n in names if n.startswith("tensor.")} - {"tensor.empty"}
        assert _run(module, array, chain.shape).tobytes() == wanted.tobytes()


def _sorted(array: np.ndarray, flags: str) -> tuple[np.ndarray, ...]:
    chain = Chain(list(array.shape), "f16")
    t = _type(list(array.shape))
    dim = array.ndim - 1
    value = chain.line(f"ktir.sort {chain.value} dimension = {dim} {{{flags}}} : {t} -> {t}")
    chain._now(value, list(array.shape))
    with context(), ir.Location.unknown():
        module = parse_module(chain.text(), "sort.mlir")
        wanted = _run(module, array, chain.shape)
        run_pipeline(module, "ktir-break-views,ktir-verify-level")
        return wanted, _run(module, array, chain.shape)


@pytest.mark.parametrize("flags", ["stable", "descending, stable"])
def test_sort_of_special_values(flags: str) -> None:
    array = np.array([[1, np.nan, -0.0, 0.0, np.inf, 1], [-np.inf, 2, 2, np.nan, np.nan, -1], [0, 0, 0, -0.0, 0, 3]], np.float16)
    wanted, found = _sorted(array, flags)
    assert np.array_equal(wanted, found, equal_nan=True)
    assert np.array_equal(np.signbit(wanted), np.signbit(found) | np.isnan(wanted) & np.signbit(wanted))


def test_large_sorts_are_refused() -> None:
    with pytest.raises(KtirError, match="compares 25000000 pairs, which is not supported; the most supported are 16777216"):
        _sorted(np.zeros(5000, np.float16), "stable")


def test_integers_must_fit() -> None:
    chain = Chain([3], "i64")
    chain._negate(lambda n: 0)
    with context(), ir.Location.unknown():
        module = parse_module(chain.text(), "wide.mlir")
        run_pipeline(module, "ktir-break-views")
        with pytest.raises(KtirError, match="has 4294967296, which does not fit into 32 bits"):
            _run(module, np.array([0, 1 << 32, 0]), [3])


def _reduced(shape: list[int], kept: int, element: str, combiner: str, identity: str) -> Chain:
    """The reduction of all dims but the first `kept`."""
    chain = Chain(shape, element)
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    rest = ", ".join(f"d{i}" for i in range(kept))
    kinds = ", ".join('"parallel"' if i < kept else '"reduction"' for i in range(len(shape)))
    t, r = chain._t(shape), chain._t(shape[:kept])
    number = chain.line(f"arith.constant {identity}" + ("" if element == "i1" else f" : {element}"))
    init = chain.line(f"linalg.fill ins({number} : {element}) outs({chain.line(f'tensor.empty() : {r}')} : {r}) -> {r}")
    maps = f"affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({rest})>"
    head = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
    body = f"%r = arith.{combiner} %o, %i : {element}\n      linalg.yield %r : {element}"
    text = f"{head} ins({chain.value} : {t}) outs({init} : {r}) {{\n    ^bb0(%i: {element}, %o: {element}):\n      {body}\n    }} -> {r}"
    chain._now(chain.line(text), shape[:kept])
    return chain


@pytest.mark.parametrize(
    ("element", "combiner", "identity"),
    [
        ("i64", "addi", "0"),
        ("i64", "maxsi", "-9223372036854775808"),
        ("i64", "minsi", "9223372036854775807"),
        ("i1", "ori", "false"),
        ("i1", "andi", "true"),
        ("f32", "addf", "0.0"),
        ("f32", "maximumf", "0xFF800000"),
    ],
)
@pytest.mark.parametrize(("shape", "kept"), [([3, 70], 1), ([4, 3, 5], 1), ([2, 3, 2, 5], 2)])
def test_reductions(shape: list[int], kept: int, element: str, combiner: str, identity: str) -> None:
    chain = _reduced(shape, kept, element, combiner, identity)
    rng = np.random.default_rng(0)
    kinds = {"i64": np.int64, "i1": np.bool_, "f32": np.float32}
    array = rng.integers(-(2**24), 2**24, shape) if element != "i1" else rng.integers(0, 2, shape)
    with context(), ir.Location.unknown():
        module = parse_module(chain.text(), "reduction.mlir")
        wanted = _run(module, array.astype(kinds[element]), chain.shape)
        run_pipeline(module, "ktir-break-views,ktir-verify-level")
        found = _run(module, array.astype(kinds[element]), chain.shape)
    assert np.array_equal(wanted, found) if combiner != "addf" else np.allclose(wanted, found, rtol=1e-5)
