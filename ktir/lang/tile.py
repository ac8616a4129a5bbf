"""Tiles: what a kernel computes with. A tile of a trace behaves as an array of NumPy does, and writes down what is done to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided

from ktir.lang.base import functions
from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of, family, literal, tensor
from ktir.lang.derived import METHODS, Derived
from ktir.lang.graph import Builder, Region, Value
from ktir.lang.indices import Condition, Index
from ktir.lang.keys import static_part
from ktir.lang.structured import Operand, Placed, constant, counted, pointwise, products, reduction, shape_of

WHOLE: dict[Any, Callable[..., Tile]] = {}
"""Functions of NumPy that take tiles as a whole and are none of their methods (`arrays.py`)."""
MOST_ELEMENTS = 1 << 16
"""Of an array of NumPy that stands in a kernel as a constant."""


_NOTHING = np.zeros(1, np.int8)


class Cell:
    """What a tile that owns its elements has: a value that changes."""

    def __init__(self, region: Region) -> None:
        self.region = region


class Tile(Derived, NDArrayOperatorsMixin):
    """A tensor of the device. `t[...] = v` and `t += v` change it in place, as they do an array; a view of it, as `t.T`, sees that."""

    __hash__ = None  # type: ignore[assignment]  # `==` compares element by element

    def __init__(self, build: Builder, shape: Sequence[int], dtype: Any, read: Callable[[], Placed], cell: Cell | None = None) -> None:
        self._build, self._read, self._cell = build, read, cell
        self._part: tuple[Tile, Any] | None = None  # of which tile it is a part, and by which key
        self._steps = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))  # from element to element of what it is a view of
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @classmethod
    def of(cls, build: Builder, value: Value, dtype: Any) -> Tile:
        """A tile that owns its elements."""
        cell = Cell(build.stack[-1])
        build.write(cell, value)
        dims = tuple(range(len(shape := shape_of(value))))
        return cls(build, shape, dtype, lambda: Placed(build.read(cell), dims), cell)

    # What arrays have

    @property
    def T(self) -> Tile:
        """The dims in reverse order."""
        return self.transpose()

    def transpose(self, *axes: int) -> Tile:
        """The dims in another order."""
        order = [self._axis(a) for a in (axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes)] or list(
            reversed(range(self.ndim))
        )
        if sorted(order) != list(range(self.ndim)):
            raise Mistake(f"'transpose' expects each of the {self.ndim} dims once, but got {tuple(axes)}")
        return self._view([self.shape[a] for a in order], lambda d: order.index(d))

    def reshape(self, *shape: Any) -> Tile:
        """The same elements in order, in another shape."""
        wanted = _new_shape(self.size, shape)
        found = self._made(wanted, lambda: _reshaped(self._build, self._dense(), tuple(wanted)))
        return found.copy() if (steps := _regrouped(self.shape, self._steps, wanted)) is None else found._stepping(steps)

    def astype(self, dtype: Any) -> Tile:
        """The elements in another type: a tile of its own."""
        element_of(dtype)
        return computed(self._build, (), [self], [dtype], np.dtype(dtype))

    def copy(self) -> Tile:
        """A tile of its own with the same elements."""
        return Tile.of(self._build, self._dense(), self.dtype)

    def sum(self, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tile:
        """Sums along dims. Those of f16 are taken in f32 and rounded once."""
        wanted = np.dtype(dtype) if dtype is not None else np.zeros(1, self.dtype).sum().dtype
        return self._reduced({"f": "arith.addf", "i": "arith.addi"}, "sum", axis, keepdims, wanted, lambda _: 0)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Tile:
        """The largest along dims; NaN if one is."""
        return self._reduced({"f": "arith.maximumf", "i": "arith.maxsi"}, "max", axis, keepdims, self.dtype, lambda t: _least(t, -1))

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Tile:
        """The smallest along dims; NaN if one is."""
        return self._reduced({"f": "arith.minimumf", "i": "arith.minsi"}, "min", axis, keepdims, self.dtype, lambda t: _least(t, 1))

    def __len__(self) -> int:
        if not self.shape:
            raise Mistake("a tile without dims has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Tile:
        found = self._taken(key)
        found._part = self, key
        return found

    def _taken(self, key: Any) -> Tile:
        begin, extents, kept, shape = static_part(self.shape, key)
        if all(b == 0 for b in begin) and extents == self.shape:
            return self._view(shape, lambda d: kept.index(d) if d in kept else None)
        type_ = tensor(extents, element_of(self.dtype))
        ones = ", ".join(["1"] * self.ndim)

        def cut() -> Value:
            source = self._dense()
            box = f"[{', '.join(map(str, begin))}] [{', '.join(map(str, extents))}] [{ones}]"
            return self._build.value(f"tensor.extract_slice $0{box} : {source.type} to {type_}", (source,), type_)

        return self._made(extents, cut)._stepping(self._steps)._view(shape, lambda d: kept.index(d) if d in kept else None)

    def __setitem__(self, key: Any, value: Any) -> None:
        begin, extents, kept, shape = static_part(self.shape, key)
        if isinstance(value, Tile) and value._part is not None and value._part[0] is self:
            if static_part(self.shape, value._part[1]) == (begin, extents, kept, shape):
                return  # `t[..] += v` puts the part, which has changed in place, where it is
        if self._cell is None and self._part is not None and extents == self.shape and shape == self.shape:
            self._part[0][self._part[1]] = value
            return
        owner = self._owner()
        tile = as_tile(self._build, value, self.dtype)
        new = tile._placed_in(shape, extents, kept, self.dtype)
        if extents != self.shape:
            ones = ", ".join(["1"] * self.ndim)
            before = self._dense()
            box = f"[{', '.join(map(str, begin))}] [{', '.join(map(str, extents))}] [{ones}]"
            text = f"tensor.insert_slice $0 into $1{box} : {new.type} into {before.type}"
            new = self._build.value(text, (new, before), before.type)
        self._build.write(owner, new)

    def __bool__(self) -> bool:
        raise Mistake("Python cannot decide by a value of the device; use 'np.where', or 'when' with a comparison of numbers")

    def __index__(self) -> int:
        raise Mistake("Python needs a number that is known when the kernel is traced, but got a value of the device")

    __int__ = __float__ = __index__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<tile {kind_of(self)}>"

    # What NumPy calls

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Mistake("a tile has no values while a kernel is traced; run the kernel with on='numpy' to look at them")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        target = options.pop("out", (None,))[0]
        if method == "__call__" and ufunc is np.matmul and not options:
            result = matmul(*inputs)
        elif method == "__call__" and not options:
            result = apply(self._build, ufunc, inputs)
        else:
            what = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            raise Mistake(f"the language has no '{what}'" + (f" with '{next(iter(options))}'" if options else ""))
        if target is None:
            return result
        if not np.can_cast(result.dtype, target.dtype, "same_kind"):
            raise Mistake(f"'np.{ufunc.__name__}' cannot change {kind_of(target)} in place: the result is {result.dtype}")
        if result.shape != target.shape:
            raise Mistake(f"'np.{ufunc.__name__}' cannot change {kind_of(target)} in place: the result has shape {result.shape}")
        target[...] = result
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        if func in _METHODS and args and isinstance(args[0], Tile):
            return getattr(args[0], _METHODS[func])(*args[1:], **options)
        if func not in WHOLE:
            raise Mistake(functions.missing(func.__name__))
        return WHOLE[func](*args, **options)

    # How it is done

    def placed(self) -> Placed:
        """The elements as they are at this point."""
        return self._read()

    def _axis(self, axis: Any) -> int:
        if isinstance(axis, bool) or not isinstance(axis, int) or not -self.ndim <= axis < self.ndim:
            raise Mistake(f"expects a dim of {kind_of(self)}, but got {axis!r:.40}")
        return axis % self.ndim

    def _axes(self, axis: Any) -> list[int]:
        listed = range(self.ndim) if axis is None else axis if isinstance(axis, Sequence) else [axis]
        found = [self._axis(a) for a in listed]
        if len(set(found)) != len(found):
            raise Mistake(f"expects different dims, but got {axis}")
        return found

    def _as_index(self) -> Index | None:
        """The one integer of this tile as a number that addresses."""
        if self.size != 1 or family(element_of(self.dtype)) != "i":
            return None
        element = element_of(self.dtype)
        value = self._build.value(f"arith.index_cast $0 : {element} to index", (self._extracted(element),), "index")
        self._build.ranges.note(value, "held", self.dtype)
        return Index.of(self._build, value)

    def _extracted(self, element: str) -> Value:
        """The one element of this tile."""
        value = self._dense()
        zeros = [self._build.number(0)] * self.ndim
        holes = ", ".join(f"${i + 1}" for i in range(self.ndim))
        return self._build.value(f"tensor.extract $0[{holes}] : {value.type}", (value, *zeros), element)

    def _as_condition(self) -> Condition | Tile:
        """The one truth value of this tile as one that decides; the tile, where it is none."""
        if self.size != 1 or self.dtype != np.bool_:
            return self
        return Condition(self._build, self._extracted("i1"))

    def _view(self, shape: Sequence[int], move: Callable[[int], int | None]) -> Tile:
        def read() -> Placed:
            value, dims = self._read()
            return Placed(value, tuple(None if d is None else move(d) for d in dims))

        steps = {move(d): n for d, n in enumerate(self._steps)}
        return Tile(self._build, shape, self.dtype, read)._stepping(steps.get(d, 0) for d in range(len(shape)))

    def _stepping(self, steps: Iterable[int]) -> Tile:
        self._steps = tuple(steps)
        return self

    def _made(self, shape: Sequence[int], make: Callable[[], Value]) -> Tile:
        """A view whose elements an op moves."""
        dims = tuple(range(len(shape)))
        return Tile(self._build, shape, self.dtype, lambda: Placed(make(), dims))

    def _owner(self) -> Cell:
        if self._cell is None:
            raise Mistake("a view of a tile cannot be changed in place; change the tile, or take a '.copy()'")
        return self._cell

    def _dense(self) -> Value:
        """The elements as one tensor of this shape."""
        value, dims = self._read()
        if dims == tuple(range(self.ndim)) and shape_of(value) == self.shape:
            return value
        return self._placed_in(self.shape, self.shape, list(range(self.ndim)), self.dtype)

    def _placed_in(self, shape: tuple[int, ...], outer: tuple[int, ...], kept: Sequence[int], dtype: Any) -> Value:
        """The elements, broadcast to `shape`, as a tensor of shape `outer`, whose dims `kept` are those of `shape`."""
        value, dims = self._read()
        fits(self.shape, shape)
        first = len(shape) - self.ndim
        walked = tuple(None if d is None or (self.shape[d] == 1) else kept[d + first] for d in dims)
        if walked == tuple(range(len(outer))) and shape_of(value) == outer and self.dtype == dtype:
            return value
        return pointwise(self._build, (), [Operand(Placed(value, walked), self.dtype, dtype)], outer, dtype)

    def _reduced(self, ops: dict[str, str], name: str, axis: Any, keepdims: bool, dtype: Any, init: Callable[[Any], Any]) -> Tile:
        dtype = np.dtype(dtype)
        op = ops.get(family(element_of(dtype)))
        if op is None:
            raise Mistake(f"the language has no '{name}' of {dtype}")
        if not isinstance(keepdims, int | np.bool_) or keepdims not in (0, 1):
            raise Mistake(f"'keepdims' is true or false, but got {kind_of(keepdims)}")
        axes = sorted(self._axes(axis))
        wide = np.dtype(np.float32) if name == "sum" and element_of(dtype) in ("f16", "bf16") else dtype
        one_by_one = len(axes) > 1 and self._build.is_divided  # a tile has one dim in its sticks
        source, result = self, self
        for listed in [[a] for a in reversed(axes)] if one_by_one else [axes]:
            placed = source._read()
            if not set(listed) <= set(placed.dims):
                placed = Placed(source._dense(), tuple(range(source.ndim)))
            value = reduction(self._build, op, placed, source.shape, listed, source.dtype, wide, init(wide))
            source = result = Tile.of(self._build, value, wide)
        if keepdims:
            rest = [d for d in range(self.ndim) if d not in axes]
            result = result._view([1 if d in axes else n for d, n in enumerate(self.shape)], rest.__getitem__)
        return result if wide == dtype else result.astype(dtype)


_METHODS = {getattr(np, name): method for name, method in METHODS.items()}


def _least(dtype: Any, sign: int) -> Any:
    """Minus or plus the largest number of a type: what a maximum or minimum begins with."""
    if family(element_of(dtype)) == "f":
        return sign * np.inf
    return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max


def fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raises Mistake unless a shape can be broadcast to another one."""
    padded = (1,) * (len(wanted) - len(shape)) + tuple(shape)
    if len(padded) != len(wanted) or any(a not in (1, b) for a, b in zip(padded, wanted, strict=True)):
        raise Mistake(f"expects a tile that can be broadcast to shape {tuple(wanted)}, but got shape {tuple(shape)}")


def _new_shape(size: int, shape: tuple[Any, ...]) -> list[int]:
    """The shape that `reshape` is asked for, with what stands for -1."""
    wanted = list(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
    if any(not isinstance(n, int) for n in wanted):
        raise Mistake("'reshape' expects numbers that are known when the kernel is traced")
    rest = prod(n for n in wanted if n != -1)
    if wanted.count(-1) == 1 and rest and size % rest == 0:
        wanted[wanted.index(-1)] = size // rest
    if prod(wanted) != size or min(wanted, default=0) < 0:
        raise Mistake(f"'reshape' expects a shape of {size} elements, but got {tuple(shape)!r:.60}")
    return wanted


def _regrouped(shape: tuple[int, ...], steps: tuple[int, ...], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """The steps of what has another shape; None where elements do not lie so that it is a view, and NumPy makes a copy."""
    try:
        return np.reshape(as_strided(_NOTHING, shape, steps), wanted, copy=False).strides
    except ValueError:
        return None


def _reshaped(build: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """The elements of a tensor in another shape: over one dim."""
    element = value.type.removesuffix(">").rsplit("x", 1)[-1].removeprefix("tensor<")
    before, flat = shape_of(value), prod(shape)
    if before == shape:
        return value

    def group(rank: int) -> str:
        return f"[[{', '.join(map(str, range(rank)))}]]" if rank else "[]"

    if len(before) != 1:
        type_ = tensor((flat,), element)
        if before:
            value = build.value(f"tensor.collapse_shape $0 {group(len(before))} : {value.type} into {type_}", (value,), type_)
        else:
            value = build.value(f"tensor.expand_shape $0 [] output_shape [1] : {value.type} into {type_}", (value,), type_)
    if len(shape) == 1:
        return value
    type_ = tensor(shape, element)
    if not shape:
        return build.value(f"tensor.collapse_shape $0 [] : {value.type} into {type_}", (value,), type_)
    sizes = f"[{', '.join(map(str, shape))}]"
    return build.value(f"tensor.expand_shape $0 {group(len(shape))} output_shape {sizes} : {value.type} into {type_}", (value,), type_)


def as_tile(build: Builder, value: Any, dtype: Any = None) -> Tile:
    """A value as a tile: numbers take the type that is asked for."""
    if isinstance(value, Tile):
        return value
    if isinstance(value, Index | Condition):
        raw = value.emitted() if isinstance(value, Index) else value.value
        own = np.dtype(np.int64 if isinstance(value, Index) else bool)
        if isinstance(value, Index):
            build.ranges.expect(value, own if dtype is None else dtype)
            raw = build.value("arith.index_cast $0 : index to i64", (raw,), "i64")
        element = element_of(own)
        return Tile.of(build, build.value(f"tensor.from_elements $0 : tensor<{element}>", (raw,), f"tensor<{element}>"), own)
    if isinstance(value, bool | int | float | np.generic):
        own = np.dtype(dtype) if dtype is not None and isinstance(value, bool | int | float) else np.asarray(value).dtype
        return Tile.of(build, constant(build, value, (), own), own)
    if isinstance(value, np.ndarray):
        return _array(build, value)
    raise Mistake(f"expects tiles and numbers, but got {kind_of(value)}")


def _array(build: Builder, array: np.ndarray) -> Tile:
    """An array of NumPy as a constant."""
    element = element_of(array.dtype)
    if array.size > 1 and array.size in array.shape and (found := _counted(build, array.reshape(-1))) is not None:
        return found.reshape(array.shape) if array.ndim > 1 else found
    if array.size > MOST_ELEMENTS:
        raise Mistake(f"an array of {array.size} elements stands in the kernel as a constant; make it an argument")
    if element == "bf16":  # whose numbers an attribute does not give back
        return _array(build, array.astype(np.float32)).astype(array.dtype)
    type_ = tensor(array.shape, element)
    numbers = [literal(x, array.dtype) for x in array.reshape(-1)]
    if array.size and len(set(numbers)) == 1:
        return Tile.of(build, build.value(f"arith.constant dense<{numbers[0]}> : {type_}", (), type_), array.dtype)

    def nested(shape: tuple[int, ...], flat: list[str]) -> str:
        if not shape:
            return flat[0]
        part = len(flat) // shape[0] if shape[0] else 0
        return f"[{', '.join(nested(shape[1:], flat[i * part : (i + 1) * part]) for i in range(shape[0]))}]"

    text = nested(array.shape, numbers) if array.size else ""
    return Tile.of(build, build.value(f"arith.constant dense<{text}> : {type_}", (), type_), array.dtype)


def _counted(build: Builder, array: np.ndarray) -> Tile | None:
    """Numbers in equal steps, and truth values that hold from one place to another, without a list of them."""
    places = np.arange(array.size)
    if array.dtype.kind == "i":
        start, step = int(array[0]), int(array[1]) - int(array[0])
        even = step != 0 and np.array_equal(array, start + step * places)
        return Tile.of(build, counted(build, start, step, array.size, array.dtype), array.dtype) if even else None
    if array.dtype.kind == "f":
        whole = array.astype(np.int32) if np.isfinite(array).all() and float(np.abs(array).max()) < 2**24 else places[:0]
        same = whole.size and np.array_equal(array, whole) and not np.signbit(array[whole == 0]).any()
        found = _counted(build, whole) if same else None
        return None if found is None else found.astype(array.dtype)
    true = np.flatnonzero(array) if array.dtype == bool else places[:0]
    if not 0 < len(true) < array.size or true[-1] - true[0] >= len(true):
        return None
    at = Tile.of(build, counted(build, 0, 1, array.size, np.int32), np.int32)
    low, high = int(true[0]), int(true[-1])
    inside = [at >= low] * (low > 0) + [at <= high] * (high < array.size - 1)
    return inside[0] if len(inside) == 1 else np.logical_and(*inside)


def computed(build: Builder, lines: Sequence[str], operands: Sequence[Any], wanted: Sequence[Any], dtype: Any) -> Tile:
    """A tile computed element by element from tiles and numbers, which are broadcast."""
    numbers = bool | int | float | np.generic
    tiles = [x if isinstance(x, numbers) else as_tile(build, x, to) for x, to in zip(operands, wanted, strict=True)]
    shapes = [x.shape for x in tiles if isinstance(x, Tile)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise Mistake(f"expects operands that can be broadcast together, but got shapes {' and '.join(map(str, shapes))}") from None
    given = []
    for tile, to in zip(tiles, wanted, strict=True):
        if not isinstance(tile, Tile):
            given.append(Operand(tile, to, to))
            continue
        value, dims = tile.placed()
        first = len(shape) - tile.ndim
        walked = tuple(None if d is None or (tile.shape[d] == 1 and shape[d + first] != 1) else d + first for d in dims)
        given.append(Operand(Placed(value, walked), tile.dtype, to))
    return Tile.of(build, pointwise(build, lines, given, shape, dtype), dtype)


def apply(build: Builder, ufunc: np.ufunc, inputs: Sequence[Any]) -> Tile:
    """A function of NumPy on tiles and numbers."""
    inputs = [x if isinstance(x, int | float | np.generic | Index) else as_tile(build, x) for x in inputs]
    kinds = [int if isinstance(x, Index) else functions.operand_type(x) for x in inputs]
    body, wanted, made, dtype = functions.resolved(ufunc, kinds)
    found = computed(build, functions.body_lines(body, element_of(wanted[0])), inputs, wanted, made)
    return found if made == dtype else found.astype(dtype)


def own_function(build: Builder, name: str, x: Any) -> Tile:
    """A function that NumPy lacks."""
    _, (wanted,), *_ = functions.resolved(np.exp, [functions.operand_type(x)])
    return computed(build, functions.body_lines(functions.OWN[name], element_of(wanted)), [x], [wanted], wanted)


def matmul(a: Any, b: Any, init: Any = None, dtype: Any = None) -> Tile:
    """Products of matrices, as `np.matmul`, summed in f32 where they are narrower. dtype: of the result, else NumPy's; init: to add to."""
    build = next(x._build for x in (a, b) if isinstance(x, Tile))
    a, b = as_tile(build, a), as_tile(build, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise Mistake(f"a product of matrices expects shapes (.., m, k) and (.., k, n), but got {a.shape} and {b.shape}")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise Mistake(
            f"a product of matrices expects leading dims that can be broadcast together, but got {a.shape} and {b.shape}"
        ) from None
    result = np.result_type(a.dtype, b.dtype)
    wide = np.dtype(np.float32) if element_of(result) in ("f16", "bf16") else result
    loops = (*batch, a.shape[-2], b.shape[-1], a.shape[-1])
    n = len(batch)
    where_a, where_b = {a.ndim - 2: n, a.ndim - 1: n + 2}, {b.ndim - 2: n + 2, b.ndim - 1: n + 1}

    def operand(tile: Tile, last: dict[int, int]) -> Operand:
        value, dims = tile.placed()
        if not set(last) <= set(dims):
            value, dims = tile._dense(), tuple(range(tile.ndim))
        first = n - (tile.ndim - 2)
        walked = tuple(
            None if d is None else last[d] if d in last else None if tile.shape[d] != batch[d + first] else d + first for d in dims
        )
        return Operand(Placed(value, walked), tile.dtype, wide)

    shape = loops[:-1]
    if init is None:
        start = constant(build, 0, shape, wide)
    else:
        start = as_tile(build, init, wide)._placed_in(shape, shape, list(range(len(shape))), wide)
    value = products(build, operand(a, where_a), operand(b, where_b), loops, shape, range(len(shape)), start, wide)
    found = Tile.of(build, value, wide)
    wanted = np.dtype(dtype) if dtype is not None else result
    return found if wanted == wide else found.astype(wanted)
