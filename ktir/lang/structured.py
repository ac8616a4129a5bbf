"""What is computed with tensors, as `linalg.generic`: pointwise, sums and the like over dims, sums of products."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ktir.lang.base.scalars import conversion, element_of, literal, tensor
from ktir.lang.graph import Builder, Value

_NAME = re.compile("%(?=[a-z])")
"""What begins a name in a body; in the text it gets a dot, so that it is none of the user's."""


class Placed(NamedTuple):
    """A tensor, and along which dim of what it is part of each of its own dims lies; None for a dim of extent 1 that lies along none."""

    value: Value
    dims: tuple[int | None, ...]


class Operand(NamedTuple):
    """An operand of a scalar body: a tensor or a number, and the types that it has and that the body wants."""

    given: Placed | Any
    dtype: Any
    wanted: Any


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a tensor."""
    inner = value.type.removeprefix("tensor<").removesuffix(">").split("x")[:-1]
    return tuple(map(int, inner))


def walk(rank: int, dims: Sequence[int | None]) -> str:
    """The map from loops to the dims of a tensor."""
    names = [f"d{i}" for i in range(rank)]
    return f"affine_map<({', '.join(names)}) -> ({', '.join('0' if d is None else names[d] for d in dims)})>"


def constant(build: Builder, value: Any, shape: tuple[int, ...], dtype: Any) -> Value:
    """A tensor whose elements are all one number."""
    type_ = tensor(shape, element_of(dtype))
    return build.value(f"arith.constant dense<{literal(value, dtype)}> : {type_}", (), type_)


def counted(build: Builder, start: int, step: int, count: int, dtype: Any) -> Value:
    """Numbers from a start on, in steps."""
    element, body = element_of(dtype), ["%n = linalg.index 0 : index", "%x = arith.index_cast %n : index to i64"]
    for op, name, number, neutral in (("muli", "z", step, 1), ("addi", "y", start, 0)):
        if number == neutral:
            continue
        before = body[-1].split(" ")[0]
        body += [f"%by_{name} = arith.constant {number} : i64", f"%{name} = arith.{op} {before}, %by_{name} : i64"]
    last = body[-1].split(" ")[0]
    if element != "i64":
        body.append(f"%t = arith.trunci {last} : i64 to {element}")
        last = "%t"
    return _generic(build, body, [], [], [walk(1, [0])], ["parallel"], None, (count,), dtype, result=last)


def pointwise(build: Builder, lines: Sequence[str], operands: Sequence[Operand], shape: tuple[int, ...], dtype: Any) -> Value:
    """A tensor computed element by element. lines: ops of the body on `%x0`, `%x1`, .., the last one makes `%y`; none hand on `%x0`."""
    body, values, maps, types = [], [], [], []
    for i, (given, own, wanted) in enumerate(operands):
        source, target = element_of(own), element_of(wanted)
        if not isinstance(given, Placed):
            body.append(f"%x{i} = arith.constant {literal(given, wanted)}" + ("" if target == "i1" else f" : {target}"))
            continue
        types.append(f"%{'x' if source == target else 'w'}{i}: {source}")
        values.append(given.value)
        maps.append(walk(len(shape), given.dims))
        if source != target:
            body += conversion(f"%w{i}", source, target, f"%x{i}")
    maps.append(walk(len(shape), range(len(shape))))
    kinds = ["parallel"] * len(shape)
    return _generic(build, [*body, *lines], values, types, maps, kinds, None, shape, dtype, result="%y" if lines else "%x0")


def reduction(
    build: Builder, op: str, source: Placed, shape: tuple[int, ...], reduced: Sequence[int], own: Any, dtype: Any, init: Any
) -> Value:
    """A tensor combined along dims. op: the combiner; shape: of what is reduced; init: what it begins with."""
    element = element_of(dtype)
    kept = [d for d in range(len(shape)) if d not in reduced]
    body = [] if own == dtype else conversion("%w", element_of(own), element, "%x")
    body.append(f"%y = {op} %a, %x : {element}")
    kinds = ["reduction" if d in reduced else "parallel" for d in range(len(shape))]
    maps = [walk(len(shape), source.dims), walk(len(shape), kept)]
    outer = tuple(shape[d] for d in kept)
    types = [f"%{'x' if own == dtype else 'w'}: {element_of(own)}"]
    return _generic(build, body, [source.value], types, maps, kinds, constant(build, init, outer, dtype), outer, dtype)


def products(
    build: Builder, a: Operand, b: Operand, loops: Sequence[int], shape: tuple[int, ...], out: Sequence[int], init: Value, dtype: Any
) -> Value:
    """Sums of products. loops: extents of all loops; out: those that the result walks, of shape `shape`; init: what it begins with."""
    element, body, types = element_of(dtype), [], []
    for name, operand in (("a", a), ("b", b)):
        source = element_of(operand.dtype)
        types.append(f"%{name}{'' if source == element else '_w'}: {source}")
        if source != element:
            body += conversion(f"%{name}_w", source, element, f"%{name}")
    multiply, add = ("mulf", "addf") if element.startswith("f") else ("muli", "addi")
    body += [f"%p = arith.{multiply} %a, %b : {element}", f"%y = arith.{add} %c, %p : {element}"]
    maps = [walk(len(loops), x.given.dims) for x in (a, b)] + [walk(len(loops), out)]
    kinds = ["parallel" if i in out else "reduction" for i in range(len(loops))]
    return _generic(build, body, [a.given.value, b.given.value], types, maps, kinds, init, shape, dtype, accumulator="c")


def _generic(
    build: Builder,
    body: Sequence[str],
    values: Sequence[Value],
    types: Sequence[str],
    maps: Sequence[str],
    kinds: Sequence[str],
    init: Value | None,
    shape: tuple[int, ...],
    dtype: Any,
    accumulator: str = "a",
    result: str = "%y",
) -> Value:
    element = element_of(dtype)
    type_ = tensor(shape, element)
    if init is None:
        init = build.value(f"tensor.empty() : {type_}", (), type_)
    ins = ""
    if values:
        ins = f" ins({', '.join(f'${i}' for i in range(len(values)))} : {', '.join(v.type for v in values)})"
    arguments = ", ".join([*types, f"%{accumulator}: {element}"])
    lines = "".join(f"    {line}$L0\n" for line in body)
    lines, arguments, result = (_NAME.sub("%.", part) for part in (lines, arguments, result))
    iterators = ", ".join(f'"{k}"' for k in kinds)
    text = (
        f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}}{ins} "
        f"outs(${len(values)} : {type_}) {{\n  ^bb0({arguments}):\n{lines}    linalg.yield {result} : {element}$L0\n  }} -> {type_}"
    )
    return build.value(text, [*values, init], type_)
