"""Writes one function of logical KTIR as MLIR text: a method per op, tensors as names with shape and element type.

Text, because MLIR parses a module several times faster than the bindings build one op by op. Ops of ours are in MLIR's own generic form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ktir.lowering.region_to_ktir.indices import Call, FloorDiv, Index, Mod
from ktir.lowering.region_to_ktir.radix import groups


@dataclass(frozen=True)
class Tensor:
    """An SSA value of type `tensor<shape x element>`."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        """Its type."""
        return tensor_type(self.shape, self.element)


@dataclass(frozen=True)
class Memory:
    """An SSA value of type `memref<shape x element>`."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def type(self) -> str:
        """Its type."""
        return f"memref<{_dims(self.shape)}{self.element}>"


class Subscript(NamedTuple):
    """A coordinate of an indirect tile: an affine expression of its variables, or what `table` holds at `arguments`."""

    expression: str = ""
    table: Memory | None = None
    arguments: tuple[int, ...] = ()


def tensor_type(shape: Sequence[int], element: str) -> str:
    """The text of a tensor type."""
    return f"tensor<{_dims(shape)}{element}>"


def affine_map(loops: int, results: Sequence[int | str]) -> str:
    """A map whose results are loops by number, or expressions of `d0, d1, ...`."""
    return f"affine_map<({_variables(loops)}) -> ({', '.join(r if isinstance(r, str) else f'd{r}' for r in results)})>"


def affine_text(index: Index, names: dict[str, str]) -> str:
    """A quasi-affine index as text of an affine expression; `names` gives each symbol's."""
    parts = [f"{names[a] if isinstance(a, str) else _division(a, names)} * {c}" for c, a in index.terms]
    return " + ".join([*parts, str(index.constant)] if index.constant or not parts else parts)


def _division(atom: FloorDiv | Mod | Call, names: dict[str, str]) -> str:
    assert not isinstance(atom, Call), "the caller looks whether the index is quasi-affine"
    operator, number = ("floordiv", atom.divisor) if isinstance(atom, FloorDiv) else ("mod", atom.modulus)
    return f"(({affine_text(atom.operand, names)}) {operator} {number})"


def _dims(shape: Sequence[int]) -> str:
    return "".join(f"{n}x" for n in shape)


def _variables(count: int) -> str:
    return ", ".join(f"d{i}" for i in range(count))


def _list(numbers: Sequence[object]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def _box(sizes: Sequence[int]) -> str:
    bounds = [f"d{i} >= 0, -d{i} + {n - 1} >= 0" for i, n in enumerate(sizes)]
    return f"affine_set<({_variables(len(sizes))}) : ({', '.join(bounds) or '0 == 0'})>"


class Writer:
    """Collects the lines of a function. `location` (` loc(#loc3)`) ends every line that is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.location = ""
        self._count = 0
        self._constants: dict[int, str] = {}

    def fresh(self) -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str) -> None:
        """A line of the function, with the current location."""
        self.lines.append(text + self.location)

    def _tensor(self, text: str, shape: Sequence[int], element: str) -> Tensor:
        result = Tensor(self.fresh(), tuple(shape), element)
        self.line(f"{result.name} = {text}")
        return result

    # Memory

    def view(self, base: str, offset: int, sizes: Sequence[int], strides: Sequence[int], element: str) -> Memory:
        """A view of global memory: element i at `base + offset + sum(i * strides)`."""
        if offset:
            place = self._constant(offset)
            shifted = self.fresh()
            self.line(f"{shifted} = arith.addi {base}, {place} : index")
            base = shifted
        result = Memory(self.fresh(), tuple(sizes), element)
        self.line(
            f'{result.name} = "ktdp.construct_memory_view"({base}) {{static_sizes = {_array(sizes)}, static_strides = {_array(strides)}, '
            f'memory_space = #ktdp.memory_space<"global", -1 : i64>, coordinate_set = {_box(sizes)}, '
            f"operandSegmentSizes = array<i32: 1, 0, 0>}} : (index) -> {result.type}"
        )
        return result

    def _constant(self, number: int) -> str:
        if number not in self._constants:
            self._constants[number] = self.fresh()
            self.line(f"{self._constants[number]} = arith.constant {number} : index")
        return self._constants[number]

    def tile(self, view: Memory) -> str:
        """The whole of a view."""
        name, rank = self.fresh(), len(view.shape)
        zeros = _list([0] * rank).strip("[]")
        self.line(
            f'{name} = "ktdp.construct_access_tile"({view.name}) {{base_map = affine_map<() -> ({zeros})>, '
            f"access_tile_set = {_box(view.shape)}, access_tile_order = {affine_map(rank, range(rank))}, "
            f"operandSegmentSizes = array<i32: 1, 0, 0>}} : ({view.type}) -> {_tile_type(view.shape)}"
        )
        return name

    def indirect_tile(self, view: Memory, extents: Sequence[int], subscripts: Sequence[Subscript]) -> str:
        """The tile over variables of these extents, one subscript per dim of the view."""
        name, n = self.fresh(), len(extents)
        tables = [s.table for s in subscripts if s.table is not None]
        maps = [affine_map(n, s.arguments if s.table else [s.expression]) for s in subscripts]
        kinds = ["true" if s.table else "false" for s in subscripts]
        arguments = ", ".join(f"%v{i}: index" for i in range(n))
        block = f"^bb0({arguments}): " if n else "^bb0: "
        segments = _segments(len(tables), 16, before=[1], after=[0, 0])
        self.line(
            f'{name} = "ktdp.construct_indirect_access_tile"({", ".join([view.name, *(t.name for t in tables)])}) '
            f'({{ {block}"ktdp.region_terminator"() : () -> () }}) {{per_dim_subscript_kinds = {_list(kinds)}, '
            f"per_dim_subscript_maps = {_list(maps)}, variables_space_set = {_box(extents)}, "
            f"variables_space_order = {affine_map(n, range(n))}, "
            f"operandSegmentSizes = {segments}}} : "
            f"({', '.join([view.type, *(t.type for t in tables)])}) -> {_tile_type(extents)}"
        )
        return name

    def load(self, tile: str, shape: Sequence[int], element: str) -> Tensor:
        """The elements of a tile."""
        return self._tensor(f'"ktdp.load"({tile}) : ({_tile_type(shape)}) -> {tensor_type(shape, element)}', shape, element)

    def store(self, value: Tensor, tile: str, *, ordered: bool = False) -> None:
        """Write a tensor to a tile of its shape. `ordered`: where the tile names an element several times, the last value stays."""
        attributes = " {ktir.ordered}" if ordered else ""
        self.line(f'"ktdp.store"({value.name}, {tile}){attributes} : ({value.type}, {_tile_type(value.shape)}) -> ()')

    def scatter_add(self, value: Tensor, tile: str) -> None:
        """Add a tensor to the elements of a tile, which may name an element several times."""
        self.line(f'"ktir.scatter_add"({value.name}, {tile}) : ({value.type}, {_tile_type(value.shape)}) -> ()')

    def call(self, symbol: str, addresses: Sequence[str]) -> None:
        """Call a function with memory."""
        self.line(f"func.call @{symbol}({', '.join(addresses)}) : ({', '.join('index' for _ in addresses)}) -> ()")

    def materialize(self, value: Tensor) -> Memory:
        """Memory of its own that holds the tensor."""
        result = Memory(self.fresh(), value.shape, value.element)
        self.line(f'{result.name} = "ktir.materialize"({value.name}) : ({value.type}) -> {result.type}')
        return result

    # Tensors

    def empty(self, shape: Sequence[int], element: str) -> Tensor:
        """A tensor without content."""
        return self._tensor(f"tensor.empty() : {tensor_type(shape, element)}", shape, element)

    def filled(self, shape: Sequence[int], element: str, literal: str) -> Tensor:
        """A tensor of one number."""
        scalar = self.fresh()
        self.line(f"{scalar} = arith.constant {literal}{'' if element == 'i1' else f' : {element}'}")
        init = self.empty(shape, element)
        return self._tensor(f"linalg.fill ins({scalar} : {element}) outs({init.name} : {init.type}) -> {init.type}", shape, element)

    def reshape(self, value: Tensor, shape: Sequence[int]) -> Tensor:
        """The tensor in another shape: dims that merge are collapsed, then dims that split are expanded."""
        common = groups(value.shape, shape)
        if any(len(g.before) > 1 for g in common):
            merged = [prod(value.shape[d] for d in g.before) for g in common]
            reassociation = _list([_list(g.before) for g in common])
            text = f"tensor.collapse_shape {value.name} {reassociation} : {value.type} into {tensor_type(merged, value.element)}"
            value = self._tensor(text, merged, value.element)
        if any(len(g.after) > 1 for g in common):
            reassociation = _list([_list(g.after) for g in common])
            text = (
                f"tensor.expand_shape {value.name} {reassociation} output_shape {_list(shape)} : "
                f"{value.type} into {tensor_type(shape, value.element)}"
            )
            value = self._tensor(text, shape, value.element)
        return value

    def transpose(self, value: Tensor, order: Sequence[int]) -> Tensor:
        """Dim k of the result is dim `order[k]` of the value."""
        init = self.empty([value.shape[d] for d in order], value.element)
        text = f"linalg.transpose ins({value.name} : {value.type}) outs({init.name} : {init.type}) permutation = {_list(order)}"
        return self._tensor(text, init.shape, value.element)

    def broadcast(self, value: Tensor, shape: Sequence[int], added: Sequence[int]) -> Tensor:
        """The tensor repeated along the dims `added` of the result."""
        init = self.empty(shape, value.element)
        text = f"linalg.broadcast ins({value.name} : {value.type}) outs({init.name} : {init.type}) dimensions = {_list(added)}"
        return self._tensor(text, shape, value.element)

    def slice(self, value: Tensor, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], kept: Sequence[bool]) -> Tensor:
        """A box with steps; dims that are not kept have size 1 and are dropped."""
        shape = [n for n, keep in zip(sizes, kept, strict=True) if keep]
        text = f"tensor.extract_slice {value.name}{_list(offsets)} {_list(sizes)} {_list(steps)} : {value.type} to "
        return self._tensor(text + tensor_type(shape, value.element), shape, value.element)

    def insert(self, value: Tensor, into: Tensor, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Tensor:
        """`into` with a box replaced by the value, whose shape is `sizes` but for dims of size 1."""
        text = f"tensor.insert_slice {value.name} into {into.name}{_list(offsets)} {_list(sizes)} {_list(steps)} : {value.type} into "
        return self._tensor(text + into.type, into.shape, into.element)

    def pad(self, value: Tensor, low: Sequence[int], high: Sequence[int], literal: str) -> Tensor:
        """The tensor with `literal` around it."""
        shape = [a + n + b for a, n, b in zip(low, value.shape, high, strict=True)]
        scalar, arguments = self.fresh(), ", ".join(f"%p{i}: index" for i in range(len(shape)))
        constant = f"{scalar} = arith.constant {literal}{'' if value.element == 'i1' else f' : {value.element}'}{self.location}"
        text = (
            f"tensor.pad {value.name} low{_list(low)} high{_list(high)} {{\n^bb0({arguments}):\n{constant}\n"
            f"tensor.yield {scalar} : {value.element}{self.location}\n}} : {value.type} to {tensor_type(shape, value.element)}"
        )
        return self._tensor(text, shape, value.element)

    def matmul(self, op: str, a: Tensor, b: Tensor, init: Tensor, maps: Sequence[str] | None) -> Tensor:
        """A named matmul; `maps` where an operand is not in the op's own order."""
        given = f"indexing_maps = {_list(maps)} " if maps else ""
        text = f"{op} {given}ins({a.name}, {b.name} : {a.type}, {b.type}) outs({init.name} : {init.type}) -> {init.type}"
        return self._tensor(text, init.shape, init.element)

    def generic(
        self,
        inputs: Sequence[Tensor],
        inits: Sequence[Tensor],
        maps: Sequence[str],
        iterators: Sequence[str],
        body: Callable[[Sequence[str]], Sequence[str]],
    ) -> list[Tensor]:
        """A `linalg.generic`: `body` writes the scalar ops, given the names of the block's arguments, and returns what is yielded."""
        results = [Tensor(self.fresh(), t.shape, t.element) for t in inits]
        arguments = [self.fresh() for _ in (*inputs, *inits)]
        names = results[0].name + (f":{len(results)}" if len(results) > 1 else "")
        if len(results) > 1:
            results = [Tensor(f"{results[0].name}#{k}", t.shape, t.element) for k, t in enumerate(inits)]
        ins = f"ins({', '.join(t.name for t in inputs)} : {', '.join(t.type for t in inputs)}) " if inputs else ""
        outs = f"outs({', '.join(t.name for t in inits)} : {', '.join(t.type for t in inits)})"
        kinds = ", ".join(f'"{i}"' for i in iterators)
        self.lines.append(
            f"{names} = linalg.generic {{indexing_maps = {_list(maps)}, iterator_types = [{kinds}]}} {ins}{outs} {{\n"
            f"^bb0({', '.join(f'{a}: {t.element}' for a, t in zip(arguments, (*inputs, *inits), strict=True))}):"
        )
        yielded = body(arguments)
        self.line(f"linalg.yield {', '.join(yielded)} : {', '.join(t.element for t in inits)}")
        types = [t.type for t in inits]
        self.line(f"}} -> {types[0] if len(types) == 1 else '(' + ', '.join(types) + ')'}")
        return results

    def along(
        self, op: str, values: Sequence[Tensor], attributes: str, body: Callable[[Sequence[str]], Sequence[str]] | None = None
    ) -> list[Tensor]:
        """`ktir.scan` or `ktir.sort`: as many results as operands, of the same types; the body of a scan combines two points."""
        name, types = self.fresh(), ", ".join(t.type for t in values)
        segments = _segments(len(values))
        attributes += f", operandSegmentSizes = {segments}, resultSegmentSizes = {segments}"
        operands = f'{name}{f":{len(values)}" if len(values) > 1 else ""} = "{op}"({", ".join(t.name for t in values)})'
        if body is None:
            self.line(f"{operands} {{{attributes}}} : ({types}) -> ({types})")
        else:
            elements = [t.element for t in values]
            arguments = [self.fresh() for _ in (*values, *values)]
            self.lines.append(f"{operands} ({{\n^bb0({', '.join(f'{a}: {e}' for a, e in zip(arguments, elements * 2, strict=True))}):")
            yielded = body(arguments)
            self.line(f'"ktir.yield"({", ".join(yielded)}) {{operandSegmentSizes = {segments}}} : ({", ".join(elements)}) -> ()')
            self.line(f"}}) {{{attributes}}} : ({types}) -> ({types})")
        if len(values) == 1:
            return [Tensor(name, values[0].shape, values[0].element)]
        return [Tensor(f"{name}#{k}", t.shape, t.element) for k, t in enumerate(values)]


def _tile_type(shape: Sequence[int]) -> str:
    return f"!ktdp.access_tile<{_array(shape)}>"


def _segments(count: int, most: int = 8, *, before: Sequence[int] = (), after: Sequence[int] = ()) -> str:
    """Segment sizes of a variadic field that MLIR knows as `most` optional ones."""
    return f"array<i32: {', '.join(map(str, (*before, *[1] * count, *[0] * (most - count), *after)))}>"
