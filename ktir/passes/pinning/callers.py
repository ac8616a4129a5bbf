"""The function that calls pinned kernels, and the memory that it hands to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ktir.analysis.calls import argument_attributes, callee, calls_of, is_kernel, set_arguments, text_attribute
from ktir.analysis.interface.parameters import Parameter, Place, bytes_of
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktir as kt
from ktir.mlir import func, i32_type, ir
from ktir.passes.flat.integers.intervals import I32
from ktir.passes.pinning.values.places import held
from ktir.target import FORMATS, LANES

NEW = "__pinned"
"""Behind the names of what is made, while the author's functions are still there."""
INTEGERS = "ktir.integers"
"""On a kernel whose last argument is memory of 0, 1, 2, …, until it is called: how many it needs."""


def check_memory(found: list[Parameter], entry: func.FuncOp) -> None:
    """Raise Unsupported for buffers that the device cannot hold."""
    for p in found:
        if p.is_buffer and (p.shape is None or str(_held(p)) not in FORMATS):
            what = f"its elements are {p.element}, not {', '.join(FORMATS)}"
            if p.shape is None:
                what = "its views do not tell its size"
            given = p.position < len(entry.regions[0].blocks[0].arguments)
            which = f"argument #{p.position}" if given else f"memory at '{p.name}'"
            raise Unsupported(f"'func.func' op has {which} that cannot be memory of the device: {what}", location_text(_place_of(p, entry)))


def some_memory(p: Parameter) -> Parameter:
    """A parameter whose memory has at least one element, as that of the device does: of a view of size 0 nothing is read."""
    return replace(p, shape=tuple(max(1, n) for n in p.shape)) if p.is_buffer and p.shape is not None else p


def _is_wide(p: Parameter) -> bool:
    """Whether memory has integers of 64 bits, which a launch narrows for the device if they fit into 32."""
    return p.element == "i64"


def ranges(buffers: list[Parameter]) -> ir.ArrayAttr | None:
    """What a launch checks of buffers; None for nothing."""
    return ir.ArrayAttr.get([_range(p) for p in buffers]) if any(_is_wide(p) for p in buffers) else None


def _range(p: Parameter) -> ir.DictAttr:
    """What a launch checks of a table that it narrows."""
    numbers = {"bits": 64, "low": int(I32.low), "high": int(I32.high)} if _is_wide(p) else {}
    return ir.DictAttr.get({name: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n) for name, n in numbers.items()})


def fixed_memory(places: list[Place], entry: func.FuncOp, position: int) -> list[Parameter]:
    """Memory at addresses that the program has as numbers, as arguments from `position` on. Raises Unsupported where it lies over other
    such memory: a launch gives each as an array of its own."""
    found: list[Parameter] = []
    end, last = 0, None
    for place in sorted(places, key=lambda p: p.offset * bytes_of(p.element)):
        size = bytes_of(place.element)
        if last is not None and place.offset * size < end:
            what = (
                f"memory at the addresses {last.offset} of {last.element} and {place.offset} of {place.element}, which lie over each other"
            )
            raise refused(entry.operation, f"uses {what}")
        end, last = (place.offset + prod(place.shape or ())) * size, place
    for k, place in enumerate(places):
        found.append(Parameter(position + k, place.name.replace(":", "_"), place.element, place.role, place.shape, views=place.views))
    return found


def _place_of(p: Parameter, entry: func.FuncOp) -> ir.Location:
    """Where an argument stands; of memory at an address the function."""
    arguments = entry.regions[0].blocks[0].arguments
    return arguments[p.position].location if p.position < len(arguments) else entry.location


def _held(p: Parameter) -> ir.Type:
    """The elements of memory on the device."""
    return held(ir.Type.parse(p.element))


def host_type(p: Parameter) -> ir.Type:
    return ir.RankedTensorType.get(list(p.shape or ()), ir.Type.parse(p.element))


def _integers(kernel: func.FuncOp) -> int:
    """How many integers a kernel needs, which then no longer says so."""
    if INTEGERS not in kernel.operation.attributes:
        return 0
    found = ir.IntegerAttr(kernel.operation.attributes[INTEGERS]).value
    del kernel.operation.attributes[INTEGERS]
    return found


@dataclass
class Pinned:
    """A kernel or a part of one, behind those that compute places for it, before the one that copies what it stores."""

    of: str
    """The author's kernel."""
    name: str
    functions: list[func.FuncOp]
    tables: list[int]
    """Elements of each table of places, which are the last arguments of all of them but for integers and deferred memory."""
    deferred: list[int]
    """The arguments whose stores go to other memory first, which is the last arguments of the last two."""


def new_entry(module: ir.Module, entry: func.FuncOp, buffers: list[Parameter], kernels: list[Pinned]) -> func.FuncOp:
    """The function that calls the kernels with memory of the device: the caller's elements as they lie."""
    given = argument_attributes(entry)
    block = entry.regions[0].blocks[0]
    alone = is_kernel(entry)
    name = f"{entry.name.value}_call" if alone else entry.name.value
    with ir.InsertionPoint.at_block_begin(module.body), entry.location:
        made = func.FuncOp(f"{name}{NEW}", ([ir.IndexType.get()] * len(buffers), []))
    arguments = made.add_entry_block([_place_of(p, entry) for p in buffers]).arguments
    attributes = []
    for number, p in enumerate(buffers):
        elements = prod(p.shape or ())
        own = (p.position < len(given) and text_attribute(given[p.position], "ktir.name")) or p.name
        role = "input" if p.role == "input" else "input_output"  # what no tile stores stays as it was
        attributes.append(_described(own, role, elements, _held(p), kt.HostViewAttr.build(number, 0, [elements], [1])))
    value = {block.arguments[p.position]: arguments[k] for k, p in enumerate(buffers) if p.position < len(block.arguments)}
    fixed = list(arguments)[len(value) :]

    def added(name: str, role: str, elements: int, type_: ir.Type) -> ir.Value:
        while name in [ir.StringAttr(a["ktir.name"]).value for a in attributes]:
            name = f"_{name}"
        attributes.append(_described(name, role, elements, type_))
        return made.regions[0].blocks[0].add_argument(ir.IndexType.get(), entry.location)

    tables = {k.name: [added(f"places{i}_{k.name}", "pool", n, i32_type()) for i, n in enumerate(k.tables)] for k in kernels}
    needed = {f: _integers(f) for k in kernels for f in k.functions}
    integers = [added("integers", "iota", max(needed.values()), i32_type())] if any(needed.values()) else []
    with ir.InsertionPoint(made.regions[0].blocks[0]), entry.location:
        for call in [None] if alone else calls_of(entry):
            called = entry.name.value if call is None else callee(call)
            operands = [value[v] for v in (block.arguments if call is None else call.operands) if v in value]
            memory = [*operands, *fixed]
            for part in (k for k in kernels if k.of == called):
                own = []
                for k in part.deferred:
                    p = buffers[list(arguments).index(memory[k])]
                    own.append(added(f"stored{k}_{part.name}", "pool", prod(p.shape or ()), _held(p)))
                for f in part.functions:
                    last = own if f in part.functions[-2:] else []
                    given_ = [*memory, *tables[part.name], *(integers if needed[f] else []), *last]
                    func.CallOp([], f.name.value.removesuffix(NEW), given_)
        func.ReturnOp([])
    set_arguments(made, attributes)
    return made


def _described(name: str, role: str, elements: int, type_: ir.Type, host: ir.Attribute | None = None) -> ir.DictAttr:
    """What is said of an argument with linear memory."""
    layout = kt.LayoutAttr.build([elements], [-(-elements // LANES), LANES], [LANES, 1], type_, "standard", "zero")
    said: dict[str, ir.Attribute] = {"ktir.name": ir.StringAttr.get(name), "ktir.role": ir.StringAttr.get(role), "ktir.layout": layout}
    if host is not None:
        said["ktir.host"] = host
    return ir.DictAttr.get(said)
