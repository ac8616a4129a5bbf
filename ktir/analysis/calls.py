"""Programs whose functions nest: an entry calls functions, which call functions or, once they are formed, kernels.

A function either has ops or has calls and nothing else (`ktir-separate-calls`). What calls is a *caller*; a function that is called, on the
logical level, names in its attributes what its own views of memory are, whoever calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ktir.analysis.attributes.kernel import is_authors
from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.mlir import arith, func, ir, names, operations
from ktir.roles import OWN_ROLES

Functions = Mapping[str, func.FuncOp]
_CALLS = names(func.CallOp)


def functions_of(module: ir.Module) -> dict[str, func.FuncOp]:
    """The functions of a module, by name."""
    return {op.name.value: op for op in module.body.operations if isinstance(op, func.FuncOp)}


def callee(call: ir.Operation) -> str:
    """Name of the function that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def is_kernel(function: ir.Operation | func.FuncOp) -> bool:
    """Whether a function is a kernel: it has rows to divide, or a grid."""
    return "ktir.rows" in function.attributes or "grid" in function.attributes


def planned(module: ir.Module) -> list[func.FuncOp]:
    """The functions of a module that the compiler plans: all but kernels whose grid is their author's."""
    return [f for f in functions_of(module).values() if f.regions[0].blocks and not is_authors(f)]


def calls_of(function: func.FuncOp) -> list[ir.Operation]:
    """The calls of a function, in order; none of a formed kernel, which `ktir-verify-level` lets call nothing."""
    return [] if "ktir.rows" in function.attributes else [op for op in operations(function) if op.name in _CALLS]


def root_of(functions: Functions, where: ir.Location) -> func.FuncOp:
    """The entry of a program: the function that no other one calls, kernels apart. Raises Unsupported unless it is one."""
    called = {callee(call) for f in functions.values() for call in calls_of(f)}
    found = [f for name, f in functions.items() if name not in called and not is_kernel(f)]
    if len(found) != 1:
        names = ", ".join(f"'{f.name.value}'" for f in found) or "none"
        raise Unsupported(f"expects one entry function, which no other one calls, but got {names}", location_text(where))
    return found[0]


def callees_first(functions: Functions) -> list[str]:
    """The names, each after those that it calls. Raises Unsupported for a cycle of functions."""
    order: list[str] = []
    calls = {name: [c for c in calls_of(f) if callee(c) in functions] for name, f in functions.items()}
    for start in functions:
        path: list[tuple[str, Iterator[ir.Operation]]] = [(start, iter(calls[start]))] if start not in order else []
        while path:
            name, rest = path[-1]
            call = next(rest, None)
            if call is None:
                path.pop()
                order.append(name)
                continue
            called = callee(call)
            names = [n for n, _ in path]
            if called in names:
                cycle = " calls ".join(f"'@{n}'" for n in [*names[names.index(called) :], called])
                note = Diagnostic("note", f"'@{called}' is defined here", location_text(functions[called].location))
                raise Unsupported(f"'func.call' op is recursive: {cycle}", call.location, (note,))
            if called not in order:
                path.append((called, iter(calls[called])))
    return order


def runs_of(functions: Functions) -> Counter[str]:
    """How often each function runs in a program, calls in called functions followed."""
    called = {callee(call) for f in functions.values() for call in calls_of(f)}
    runs = Counter({name: int(name not in called) for name in functions})
    for name in reversed(callees_first(functions)):
        for call in calls_of(functions[name]):
            runs[callee(call)] += runs[name]
    return runs


@dataclass(frozen=True)
class Launch:
    """One run of a kernel, and which arguments of the entry it is given."""

    kernel: func.FuncOp
    arguments: tuple[int, ...]


def launches(module: ir.Module) -> list[Launch]:
    """The runs of kernels of a program in order, the calls of functions followed."""
    functions = functions_of(module)
    root = root_of(functions, module.operation.location)
    count = len(root.regions[0].blocks[0].arguments)
    return list(_launches(functions, root, tuple(range(count))))


def _launches(functions: Functions, caller: func.FuncOp, given: tuple[int, ...]) -> Iterator[Launch]:
    number = dict(zip(caller.regions[0].blocks[0].arguments, given, strict=True))
    for call in calls_of(caller):
        called = functions[callee(call)]
        arguments = tuple(number[v] for v in call.operands)
        if is_kernel(called):
            yield Launch(called, arguments)
        else:
            yield from _launches(functions, called, arguments)


def argument_attributes(function: func.FuncOp) -> list[ir.DictAttr]:
    """The attributes of each argument."""
    if "arg_attrs" not in function.attributes:
        return [ir.DictAttr.get({}) for _ in function.type.inputs]
    return [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["arg_attrs"])]


def text_attribute(attributes: ir.DictAttr, name: str) -> str:
    """A text among attributes; empty where it is missing."""
    return ir.StringAttr(attributes[name]).value if name in attributes else ""


def with_text(attributes: ir.DictAttr, name: str, text: str) -> ir.DictAttr:
    """Attributes with a text among them."""
    return ir.DictAttr.get({a.name: a.attr for a in attributes} | {name: ir.StringAttr.get(text)})


def host_number(attributes: Sequence[ir.DictAttr], argument: int) -> int:
    """The number of an argument among those that a caller gives: all but memory of the program's own."""
    return sum(text_attribute(a, "ktir.role") not in OWN_ROLES for a in attributes[:argument])


def put_numbers(function: func.FuncOp, numbers: Mapping[int, float]) -> None:
    """Put numbers in place of arguments, by position, which are gone then."""
    attributes = argument_attributes(function)
    for position in sorted(numbers, reverse=True):
        _put_number(function, position, numbers[position])
        function.regions[0].blocks[0].erase_argument(position)
    set_arguments(function, [a for i, a in enumerate(attributes) if i not in numbers])


def _put_number(function: func.FuncOp, position: int, number: float) -> None:
    block = function.regions[0].blocks[0]
    argument = block.arguments[position]
    with ir.InsertionPoint.at_block_begin(block), function.location:
        type_ = argument.type
        whole = isinstance(type_, ir.IndexType | ir.IntegerType)
        attribute = ir.IntegerAttr.get(type_, int(number)) if whole else ir.FloatAttr.get(type_, float(number))
        argument.replace_all_uses_with(arith.ConstantOp(type_, attribute).result)


def set_type(function: func.FuncOp) -> None:
    """Make the type of a function that of its block's arguments."""
    types = [a.type for a in function.regions[0].blocks[0].arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def set_arguments(function: func.FuncOp, attributes: list[ir.DictAttr]) -> None:
    """Make type and attributes of a function those of its block's arguments."""
    set_type(function)
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes))


def free_name(wanted: str, attributes: list[ir.DictAttr]) -> str:
    """A name for an argument beside those that there are."""
    taken = {text_attribute(a, "ktir.name") for a in attributes}
    number, name = 0, wanted
    while name in taken:
        number, name = number + 1, f"{wanted}_{number}"
    return name


def replace_call(call: ir.Operation, operands: list[ir.Value]) -> None:
    """Give a call other operands."""
    with ir.InsertionPoint(call), call.location:
        func.CallOp([], callee(call), operands)
    call.erase()


def hand_down_memory(module: ir.Module) -> None:
    """Give callers what the functions that they call have got since: memory of their own, pools and iotas, as last arguments.

    All calls of a function share it, since nothing in it outlives a call.
    """
    functions = functions_of(module)
    for name in callees_first(functions):
        if not is_kernel(functions[name]):
            _hand_down(functions, functions[name])


def _hand_down(functions: Functions, caller: func.FuncOp) -> None:
    block = caller.regions[0].blocks[0]
    attributes, made = argument_attributes(caller), dict[tuple[str, int], ir.Value]()
    for call in calls_of(caller):
        called = functions[callee(call)]
        given, wanted = list(call.operands), argument_attributes(called)
        if len(given) == len(wanted):
            continue
        for i in range(len(given), len(wanted)):
            key = (callee(call), i)
            if key not in made:
                name = free_name(text_attribute(wanted[i], "ktir.name"), attributes)
                attributes.append(with_text(wanted[i], "ktir.name", name))
                made[key] = block.add_argument(ir.IndexType.get(), called.location)
            given.append(made[key])
        replace_call(call, given)
    if made:
        set_arguments(caller, attributes)
