"""Kernels as their author wrote them -> tiled KTIR: the grid, the tiles, the loops and the branches stay, layouts are added."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.broken import Broken
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import set_level
from ktir.analysis.calls import argument_attributes, callee, calls_of, functions_of, is_kernel, set_arguments, text_attribute
from ktir.analysis.interface.parameters import Parameter, Place, parameters
from ktir.analysis.points import is_index
from ktir.diagnostics import KtirError, Unsupported, close_to, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import NAME, Level
from ktir.dialects.module_target import machine
from ktir.mlir import func, i32_type, integer_attribute, ir, is_a, linalg, operations, scf
from ktir.passes.flat.integers.integer_proof import RANGES
from ktir.passes.flat.integers.intervals import I32
from ktir.passes.general.intrinsics import expand_intrinsics, has_intrinsics
from ktir.passes.general.ktir_inline import InlinePass
from ktir.passes.levels.level_rules import whole_tile
from ktir.passes.pinning.kernel_writer import KernelWriter
from ktir.passes.pinning.scratchpad import Access, check_parts
from ktir.passes.pinning.values.tensors import TYPES
from ktir.pipeline import Pass
from ktir.target import LANES, Target

HOSTS = "ktir.hosts"


@dataclass(frozen=True)
class PinPass(Pass):
    """Give the tensors of hand-written kernels layouts, and leave all else as the author has it.

    A kernel with more tiles than there are cores runs in turns, one with fewer leaves some cores idle. What is computed element by element
    is one body where nobody else reads what lies between; splats, broadcasts and transposes are no ops but ways to read. What cannot be
    pinned is refused by op and place, and the module stays as it was.

    Expects: a module without `ktir.level`, of a kernel that nobody calls, or of kernels that one function calls. Guarantees: the tiled
    level; the values do not change in any bit, sums in machine order.
    """

    name: ClassVar[str] = "ktir-pin"
    description: ClassVar[str] = "kernels with a grid -> tiled: layouts for tensors, all else as written"
    numbers: tuple[str, ...] = ()
    """What arguments are that are no memory, as in `n=57` or, by position, `3=57`."""
    target: str = ""
    cores: int | None = None

    def run(self, module: ir.Module) -> None:
        """Replace the kernels and what calls them."""
        if not is_by_hand(module):
            return
        functions = functions_of(module)
        if not any(is_kernel(f) for f in functions.values()):  # without a grid there is one tile
            (only,) = functions.values()
            only.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(1)])
            try:
                self._pin(module, functions)
            except Exception:
                del only.attributes["grid"]
                raise
            return
        self._pin(module, functions)

    def _pin(self, module: ir.Module, functions: dict[str, func.FuncOp]) -> None:
        functions = _flat(module, functions)
        kernels = [f for f in functions.values() if is_kernel(f)]
        entry = _entry(module, functions)
        found, places = parameters(module, entry.name.value)
        given = self.given(found, entry)
        numbers = {found[i].name: int(n) for i, n in given.items() if float(n).is_integer()}
        found, places = parameters(module, entry.name.value, numbers=numbers)
        if places and not is_kernel(entry):
            raise refused(entry.operation, f"'@{entry.name.value}' calls kernels with memory at fixed addresses, which is not pinned yet")
        found = [*found, *fixed_memory(places, entry, len(found))]
        check_memory(found, entry)
        target = machine(module, self.target, self.cores)
        made: list[func.FuncOp] = []
        try:
            kept: list[Access] = []
            for kernel in kernels:
                made.append(_pinned(kernel, _numbers(kernel, entry, given), [p.offset for p in places], target, kept))
            check_parts(kept)
        except Exception:
            for f in made:
                f.operation.erase()
            raise
        buffers = [p for p in found if p.is_buffer]
        new = _new_entry(module, entry, buffers, found, made)
        for f in functions.values():
            f.operation.erase()
        for f in made:
            f.operation.attributes["sym_name"] = ir.StringAttr.get(f.name.value.removesuffix(_NEW))
        new.operation.attributes["sym_name"] = ir.StringAttr.get(new.name.value.removesuffix(_NEW))
        module.operation.attributes[HOSTS] = ir.ArrayAttr.get([ir.TypeAttr.get(_type(p)) for p in buffers])
        if any(_is_wide_table(p) for p in buffers):
            name = new.name.value.removesuffix(_NEW)
            module.operation.attributes[RANGES] = ir.DictAttr.get({name: ir.ArrayAttr.get([_range(p) for p in buffers])})
        set_level(module, Level.TILED)
        for f in made:
            tiles = KernelFunction(f.operation).cores
            self.remark(
                "passed", f"kernel '{f.name.value}' pinned: its tiles run on {tiles} cores, its loops and tiles are as written", f.location
            )
        self.count("kernels-pinned", len(made))

    def given(self, found: list[Parameter], entry: func.FuncOp) -> dict[int, float]:
        """The numbers of arguments, by position. Raises KtirError for names that there are not, and for arguments without a number."""
        numbers: dict[int, float] = {}
        names = {str(p.position): p.position for p in found} | {p.name: p.position for p in found}
        for text in self.numbers:
            name, _, value = text.partition("=")
            if name not in names:
                raise KtirError(f"'{self.name}': '{text}' names no argument of '@{entry.name.value}'{close_to(name, list(names))}")
            counts = is_index(entry.regions[0].blocks[0].arguments[names[name]].type)
            try:
                numbers[names[name]] = int(value) if counts else float(value)
            except ValueError:
                wanted = "an integer" if counts else "a number"
                raise KtirError(f"'{self.name}': '{text}' expects {wanted}, but got '{value}'") from None
        for p in found:
            type_ = entry.regions[0].blocks[0].arguments[p.position].type
            if isinstance(type_, ktdp.RuntimeArgType):
                raise refused(entry.operation, f"takes a 'ktdp.runtime_arg' as argument #{p.position}, which is not pinned yet")
            where = location_text(entry.regions[0].blocks[0].arguments[p.position].location)
            if not p.is_buffer and p.position not in numbers:
                used = list(entry.regions[0].blocks[0].arguments[p.position].uses)
                if used:
                    raise KtirError(f"'func.func' op expects a number for argument #{p.position}, as in numbers={p.name}=57", where)
                numbers[p.position] = 0
        return numbers


def check_memory(found: list[Parameter], entry: func.FuncOp) -> None:
    """Raise Unsupported for buffers that the device cannot hold."""
    for p in found:
        if p.is_buffer and (p.shape is None or 0 in p.shape or (p.element not in TYPES and not _is_wide_table(p))):
            what = f"its elements are {p.element}, not {', '.join(TYPES)}"
            if p.shape is None or 0 in p.shape:
                what = "its views do not tell its size" if p.shape is None else "it has no elements"
            given = p.position < len(entry.regions[0].blocks[0].arguments)
            which = f"argument #{p.position}" if given else f"memory at '{p.name}'"
            raise Unsupported(f"'func.func' op has {which} that cannot be memory of the device: {what}", location_text(_place_of(p, entry)))


def _is_wide_table(p: Parameter) -> bool:
    """Whether memory has places of 64 bits, which a launch narrows for the device."""
    return p.element == "i64" and p.role == "input" and p.below is not None


def _range(p: Parameter) -> ir.DictAttr:
    """What a launch checks of a table that it narrows."""
    numbers = {"bits": 64, "low": int(I32.low), "high": int(I32.high)} if _is_wide_table(p) else {}
    return ir.DictAttr.get({name: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n) for name, n in numbers.items()})


def is_by_hand(module: ir.Module) -> bool:
    """Whether a module is kernels of an author's: it states no level, and no argument is memory of the device."""
    functions = functions_of(module).values()
    if NAME in module.operation.attributes:
        return False
    if any("ktir.layout" in d for f in functions for d in argument_attributes(f)):
        return False
    return any(is_kernel(f) for f in functions) or (len(functions) == 1 and any(_is_of_a_tile(op) for op in operations(module)))


def _is_of_a_tile(op: ir.Operation) -> bool:
    """Whether an op says how one tile goes about its work, as no program does that is yet to be divided."""
    if is_a(op, scf.ForOp, scf.IfOp, ktdp.GetComputeTileIdOp, ktdp.ConstructDistributedMemoryViewOp, linalg.ReduceOp):
        return True
    if is_a(op, ktdp.ConstructMemoryViewOp):
        return op.opview.memory_space != "global"
    if is_a(op, ktdp.ConstructAccessTileOp):
        try:
            whole_tile(op)
        except Broken:
            return True
    return False


_NEW = "__pinned"


def _flat(module: ir.Module, functions: dict[str, func.FuncOp]) -> dict[str, func.FuncOp]:
    """The functions, where those between the entry and its kernels have become a part of the entry."""
    between = {callee(call) for f in functions.values() for call in calls_of(f)} & {n for n, f in functions.items() if not is_kernel(f)}
    if not between:
        return functions
    InlinePass().run(module)
    left = functions_of(module)
    called = {callee(call) for f in left.values() for call in calls_of(f)}
    for name in between & set(left) - called:
        left.pop(name).operation.erase()
    return left


def _entry(module: ir.Module, functions: dict[str, func.FuncOp]) -> func.FuncOp:
    """What the program starts with: the only kernel, or the function that calls the kernels."""
    others = [f for f in functions.values() if not is_kernel(f)]
    if not others:
        if len(functions) != 1:
            second = list(functions.values())[1]
            raise refused(second.operation, f"'@{second.name.value}' is another kernel that no function calls")
        return next(iter(functions.values()))
    if len(others) != 1:
        raise refused(others[1].operation, f"'@{others[1].name.value}' is a second function that nothing calls, which is not pinned")
    for op in others[0].regions[0].blocks[0].operations:
        if not isinstance(op, func.CallOp | func.ReturnOp):
            raise refused(op.operation, "stands beside the calls of kernels, which is not pinned yet")
    called = {callee(call) for call in calls_of(others[0])}
    for name, f in functions.items():
        if f is not others[0] and name not in called:
            raise refused(f.operation, f"'@{name}' is a kernel that '@{others[0].name.value}' does not call")
    return others[0]


def _numbers(kernel: func.FuncOp, entry: func.FuncOp, given: dict[int, float]) -> dict[int, float]:
    """The numbers that arguments of a kernel are, the same in all of its calls."""
    if kernel == entry:
        return given
    found: dict[int, set[float]] = {}
    for call in calls_of(entry):
        if callee(call) == kernel.name.value:
            for i, operand in enumerate(call.operands):
                position = ir.BlockArgument(operand).arg_number
                if position in given:
                    found.setdefault(i, set()).add(given[position])
    for i, numbers in found.items():
        if len(numbers) != 1:
            raise refused(kernel.operation, f"is called with several numbers as argument #{i}, which is not pinned yet")
    return {i: numbers.pop() for i, numbers in found.items()}


def _pinned(kernel: func.FuncOp, given: dict[int, float], addresses: list[int], target: Target, lx: list[Access]) -> func.FuncOp:
    """The kernel with sticks, behind the old one; `lx` gets what it does in the scratchpad. Raises Unsupported and leaves nothing."""
    if has_intrinsics(kernel.operation):
        with ir.InsertionPoint(kernel):
            copy = kernel.operation.clone()
        try:
            expand_intrinsics(copy)
            return _pinned(copy.opview, given, addresses, target, lx)
        finally:
            copy.erase()
    old = kernel.regions[0].blocks[0]
    kept = [i for i in range(len(old.arguments)) if i not in given]
    with ir.InsertionPoint(kernel), kernel.location:
        made = func.FuncOp(f"{kernel.name.value}{_NEW}", ([ir.IndexType.get()] * (len(kept) + len(addresses)), []))
    try:
        block = made.add_entry_block([*(old.arguments[i].location for i in kept), *(kernel.location for _ in addresses)])
        fixed = {address: block.arguments[len(kept) + k] for k, address in enumerate(addresses)}
        with ir.InsertionPoint(block), kernel.location:
            writer = KernelWriter(kernel, {old.arguments[i]: block.arguments[k] for k, i in enumerate(kept)}, given, target.cores, fixed)
            made.operation.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(n) for n in writer.grid])
            writer.write()
        _erase_unused(made)
        lx += writer.scratchpad.state(made, target.lx_planned_bytes)
    except Exception:
        made.operation.erase()
        raise
    return made


def _erase_unused(function: func.FuncOp) -> None:
    """Take away what nobody reads: places that nobody came back to, and what was made for a form of a loop that did not suit."""
    for op in reversed(operations(function)):
        reads_only = op.name.startswith(("arith.", "tensor.", "ktdp.construct")) or is_a(op, ktdp.LoadOp, linalg.GenericOp, linalg.FillOp)
        if reads_only and op.results and not any(True for r in op.results for _ in r.uses):
            op.erase()


def fixed_memory(places: list[Place], entry: func.FuncOp, position: int) -> list[Parameter]:
    """Memory at addresses that the program has as numbers, as arguments from `position` on. Raises Unsupported where it lies over other
    such memory: a launch gives each as an array of its own."""
    found: list[Parameter] = []
    end, last = 0, None
    for place in sorted(places, key=lambda p: p.offset * _BYTES.get(p.element, 1)):
        size = _BYTES.get(place.element, 1)
        if last is not None and place.offset * size < end:
            what = (
                f"memory at the addresses {last.offset} of {last.element} and {place.offset} of {place.element}, which lie over each other"
            )
            raise refused(entry.operation, f"uses {what}")
        end, last = (place.offset + prod(place.shape or ())) * size, place
    for k, place in enumerate(places):
        found.append(Parameter(position + k, f"global_{place.offset}", place.element, place.role, place.shape, views=place.views))
    return found


_BYTES = {"f16": 2, "bf16": 2, "i16": 2, "f32": 4, "i32": 4, "i64": 8}


def _place_of(p: Parameter, entry: func.FuncOp) -> ir.Location:
    """Where an argument stands; of memory at an address the function."""
    arguments = entry.regions[0].blocks[0].arguments
    return arguments[p.position].location if p.position < len(arguments) else entry.location


def _held(p: Parameter) -> ir.Type:
    """The elements of memory on the device."""
    return i32_type() if _is_wide_table(p) else ir.Type.parse(p.element)


def _type(p: Parameter) -> ir.Type:
    return ir.RankedTensorType.get(list(p.shape or ()), ir.Type.parse(p.element))


def _new_entry(
    module: ir.Module, entry: func.FuncOp, buffers: list[Parameter], found: list[Parameter], kernels: list[func.FuncOp]
) -> func.FuncOp:
    """The function that calls the kernels with memory of the device: the caller's elements as they lie."""
    given = argument_attributes(entry)
    block = entry.regions[0].blocks[0]
    alone = is_kernel(entry)
    name = f"{entry.name.value}_call" if alone else entry.name.value
    with ir.InsertionPoint.at_block_begin(module.body), entry.location:
        made = func.FuncOp(f"{name}{_NEW}", ([ir.IndexType.get()] * len(buffers), []))
    arguments = made.add_entry_block([_place_of(p, entry) for p in buffers]).arguments
    attributes = []
    for number, p in enumerate(buffers):
        elements = prod(p.shape or ())
        layout = kt.LayoutAttr.build([elements], [-(-elements // LANES), LANES], [LANES, 1], _held(p), "standard", "zero")
        said: dict[str, ir.Attribute] = {
            "ktir.name": ir.StringAttr.get((p.position < len(given) and text_attribute(given[p.position], "ktir.name")) or p.name),
            "ktir.role": ir.StringAttr.get("input" if p.role == "input" else "input_output"),  # what no tile stores stays as it was
            "ktir.layout": layout,
            "ktir.host": kt.HostViewAttr.build(number, 0, [elements], [1]),
        }
        attributes.append(ir.DictAttr.get(said))
    value = {block.arguments[p.position]: arguments[k] for k, p in enumerate(buffers) if p.position < len(block.arguments)}
    fixed = list(arguments)[len(value) :]
    with ir.InsertionPoint(made.regions[0].blocks[0]), entry.location:
        for call in [None] if alone else calls_of(entry):
            called = entry.name.value if call is None else callee(call)
            operands = [value[v] for v in (block.arguments if call is None else call.operands) if v in value]
            func.CallOp([], called, [*operands, *fixed])
        func.ReturnOp([])
    set_arguments(made, attributes)
    return made
