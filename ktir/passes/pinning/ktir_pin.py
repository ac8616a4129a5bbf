"""Kernels as their author wrote them -> tiled KTIR: the grid, the tiles, the loops and the branches stay, layouts are added."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.broken import Broken, refuse_broken
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import set_level
from ktir.analysis.calls import argument_attributes, callee, calls_of, functions_of, is_kernel
from ktir.analysis.interface.parameters import Parameter, bytes_of, parameters
from ktir.analysis.points import is_index
from ktir.analysis.scalars.sets import boxes_of
from ktir.diagnostics import KtirError, close_to, location_text, refused
from ktir.dialects import ktdp, spyreop
from ktir.dialects._foundation import affine
from ktir.dialects.module_level import NAME, Level
from ktir.dialects.module_target import machine
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, operations, scf
from ktir.passes.flat.integers.integer_proof import RANGES
from ktir.passes.general.intrinsics import expand_intrinsics, has_intrinsics
from ktir.passes.general.ktir_forward_stores import forward_stores, may_forward
from ktir.passes.general.ktir_inline import InlinePass
from ktir.passes.general.statistics import expand_statistics, has_statistics
from ktir.passes.levels.level_rules import whole_tile
from ktir.passes.pinning.callers import INTEGERS, NEW, Pinned, check_memory, fixed_memory, host_type, new_entry, ranges, some_memory
from ktir.passes.pinning.kernel_writer import KernelWriter
from ktir.passes.pinning.loops import inside
from ktir.passes.pinning.matmuls.contraction import walks_of
from ktir.passes.pinning.order.cuts import cut
from ktir.passes.pinning.order.deferred import defer
from ktir.passes.pinning.scratchpad import Access, Uneven, check_parts
from ktir.passes.pinning.tables import Table, Tables
from ktir.passes.pinning.values.indirect import is_linear
from ktir.pipeline import Pass
from ktir.target import Target

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
        refuse_other_shapes(module)
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
        found = [*map(some_memory, found), *fixed_memory(places, entry, len(found))]
        check_memory(found, entry)
        target = machine(module, self.target, self.cores)
        pinned: list[Pinned] = []
        try:
            kept: list[Access] = []
            for kernel in kernels:
                addresses = [(p.offset, bytes_of(p.element)) for p in places]
                pinned += pin_kernel(kernel, _numbers(kernel, entry, given), addresses, target, kept)
            check_parts(kept)
        except Exception:
            erase(pinned)
            raise
        buffers = [p for p in found if p.is_buffer]
        new = new_entry(module, entry, buffers, pinned)
        for f in functions.values():
            f.operation.erase()
        made = [f for p in pinned for f in p.functions]
        for f in made:
            f.operation.attributes["sym_name"] = ir.StringAttr.get(f.name.value.removesuffix(NEW))
        new.operation.attributes["sym_name"] = ir.StringAttr.get(new.name.value.removesuffix(NEW))
        module.operation.attributes[HOSTS] = ir.ArrayAttr.get([ir.TypeAttr.get(host_type(p)) for p in buffers])
        if (checked := ranges(buffers)) is not None:
            module.operation.attributes[RANGES] = ir.DictAttr.get({new.name.value.removesuffix(NEW): checked})
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
            type_ = entry.regions[0].blocks[0].arguments[names[name]].type
            counts = is_index(type_.underlying if isinstance(type_, ktdp.RuntimeArgType) else type_)
            try:
                numbers[names[name]] = int(value) if counts else float(value)
            except ValueError:
                wanted = "an integer" if counts else "a number"
                raise KtirError(f"'{self.name}': '{text}' expects {wanted}, but got '{value}'") from None
        for p in found:
            where = location_text(entry.regions[0].blocks[0].arguments[p.position].location)
            if not p.is_buffer and p.position not in numbers:
                used = list(entry.regions[0].blocks[0].arguments[p.position].uses)
                if used:
                    raise KtirError(f"'func.func' op expects a number for argument #{p.position}, as in numbers={p.name}=57", where)
                numbers[p.position] = 0
        return numbers


def is_by_hand(module: ir.Module) -> bool:
    """Whether a module is kernels of an author's: it states no level, and no argument is memory of the device."""
    functions = functions_of(module).values()
    if NAME in module.operation.attributes:
        return False
    if any("ktir.layout" in d for f in functions for d in argument_attributes(f)):
        return False
    return any(is_kernel(f) for f in functions) or (len(functions) == 1 and any(_is_of_a_tile(op) for op in operations(module)))


def refuse_other_shapes(module: ir.Module) -> None:
    """Raise KtirError for tiles whose sets are of other shapes than their types, which the KTIR executor does not run either."""
    refuse_broken(operations(module), _check_shape)


def _check_shape(op: ir.Operation) -> None:
    if is_a(op, ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp) and (doubt := op.opview.doubt()) is not None:
        raise Broken(doubt)
    if is_a(op, ktdp.ConstructAccessTileOp) and (boxes := boxes_of(op.attributes["access_tile_set"])) is not None:
        wanted = [boxes.extents[d] for d in op.opview.order]
        if wanted != list(op.opview.shape):
            raise Broken(f"expects a tile of shape {wanted}, the extents of its set in its order, but got {list(op.opview.shape)}")


def _is_of_a_tile(op: ir.Operation) -> bool:
    """Whether an op says how one tile goes about its work, as no program does that is yet to be divided."""
    if is_a(
        op, scf.ForOp, scf.IfOp, ktdp.GetComputeTileIdOp, ktdp.ConstructDistributedMemoryViewOp, linalg.ReduceOp, spyreop.SliceReductionOp
    ):
        return True
    if is_a(op, ktdp.ConstructMemoryViewOp):
        return op.opview.memory_space != "global" or is_a(op.operands[0].owner, arith.ConstantOp)
    if is_a(op, ktdp.ConstructIndirectAccessTileOp):
        box = affine.set_box(op.attributes["variables_space_set"])
        subscripts = [m.results[0] for m, memory in op.opview.subscripts if memory is None]
        return box is not None and not all(is_linear(e, len(op.opview.captured), box[1]) for e in subscripts)
    if walks_of(op) is not None:  # what it adds to is no matmul of the logical level, but of tiles
        outs = list(op.operands)[-1].owner
        return not isinstance(outs, ir.Block) and is_a(outs, ktdp.LoadOp)
    if is_a(op, ktdp.ConstructAccessTileOp):
        try:
            whole_tile(op)
        except Broken:
            return True
    return False


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


def pin_kernel(
    kernel: func.FuncOp,
    given: dict[int, float],
    addresses: list[tuple[int, int]],
    target: Target,
    lx: list[Access],
) -> list[Pinned]:
    """The kernel with sticks, behind the old one, in the parts in which it has to be. `addresses`: numbers that begin memory, with the
    bytes of its elements; `lx` gets what it does in the scratchpad. Raises Unsupported and leaves nothing."""
    extracts = [op for op in operations(kernel) if is_a(op, ktdp.RuntimeArgExtractOp)]
    name = kernel.name.value
    if not (has_intrinsics(kernel.operation) or has_statistics(kernel.operation) or extracts or may_forward(kernel.operation)):
        return [_pinned(name, kernel, given, addresses, target, lx)]
    with ir.InsertionPoint(kernel):
        copy = kernel.operation.clone().opview
    parts, pinned = list[func.FuncOp](), list[Pinned]()
    try:
        expand_statistics(copy.operation)
        expand_intrinsics(copy.operation)
        _put_numbers(copy.operation, given)
        forward_stores(copy.operation)
        parts = cut(copy, given)
        for part in parts or [copy]:
            pinned.append(_pinned(name, part, given, addresses, target, lx))
    except Exception:
        erase(pinned)
        raise
    finally:
        for made in (copy, *parts):
            made.operation.erase()
    return pinned


def erase(pinned: list[Pinned]) -> None:
    """Take away what was made."""
    for p in pinned:
        for f in p.functions:
            f.operation.erase()


def _pinned(
    of: str, kernel: func.FuncOp, given: dict[int, float], addresses: list[tuple[int, int]], target: Target, lx: list[Access]
) -> Pinned:
    """A part of the kernel `of`, all of whose ops are written out, with those that compute places for it. Raises Unsupported and leaves
    nothing."""
    tables, made = Tables(kernel, target.lx_planned_bytes), []
    try:
        for level, wanted in enumerate([*tables.levels, None]):
            name = f"{kernel.name.value}{'' if wanted is None else f'__places{level}'}{NEW}"
            made.append(_written(name, kernel, given, addresses, target, lx, tables, wanted))
        memories = len(made[-1].regions[0].blocks[0].arguments) - len(tables.of) - (INTEGERS in made[-1].operation.attributes)
        deferred, behind = defer(made[-1], memories)
        if behind is not None:
            made.append(behind)
            behind.operation.attributes["sym_name"] = ir.StringAttr.get(f"{kernel.name.value}__stores{NEW}")
            _erase_unused(behind)
    except Exception:
        for f in made:
            f.operation.erase()
        raise
    return Pinned(of, kernel.name.value, made, [prod(table.shape) for table in tables.of.values()], deferred)


def _put_numbers(kernel: ir.Operation, given: dict[int, float]) -> None:
    """Put what is extracted from runtime arguments in place of the extraction."""
    for op in operations(kernel):
        if is_a(op, ktdp.RuntimeArgExtractOp):
            argument, kind, type_ = op.operands[0], op.opview.extracts, op.results[0].type
            found = given[ir.BlockArgument(argument).arg_number] if kind == "value" else getattr(argument.type, kind)
            held = ir.IntegerAttr.get(type_, int(found)) if is_index(type_) else ir.FloatAttr.get(type_, found)
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(arith.ConstantOp(type_, held).result)
            op.erase()


def _written(
    name: str,
    kernel: func.FuncOp,
    given: dict[int, float],
    addresses: list[tuple[int, int]],
    target: Target,
    lx: list[Access],
    tables: Tables,
    wanted: list[Table] | None,
    by_rows: frozenset[ir.Operation] = frozenset(),
) -> func.FuncOp:
    """The kernel, or what computes some of its tables. Raises Unsupported and leaves nothing. `by_rows`: of `AuthorScratchpad`."""
    old = kernel.regions[0].blocks[0]
    kept = [i for i in range(len(old.arguments)) if i not in given]
    added = len(addresses) + len(tables.of)
    with ir.InsertionPoint(kernel), kernel.location:
        made = func.FuncOp(name, ([ir.IndexType.get()] * (len(kept) + added), []))
    try:
        block = made.add_entry_block([*(old.arguments[i].location for i in kept), *(kernel.location for _ in range(added))])
        fixed = {address: block.arguments[len(kept) + k] for k, address in enumerate(addresses)}
        with ir.InsertionPoint(block), kernel.location:
            arguments = {old.arguments[i]: block.arguments[k] for k, i in enumerate(kept)}
            writer = KernelWriter(kernel, arguments, given, target.cores, fixed, made, tables, wanted, by_rows)
            made.operation.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(n) for n in writer.grid])
            writer.write()
        _erase_unused(made)
        if writer.integers.argument is not None:
            made.operation.attributes[INTEGERS] = integer_attribute(writer.integers.elements)
        lx += writer.scratchpad.state(made, target.lx_planned_bytes)
    except Uneven as error:
        made.operation.erase()
        return _written(name, kernel, given, addresses, target, lx, tables, wanted, by_rows | error.views)
    except Exception:
        made.operation.erase()
        raise
    return made


def _erase_unused(function: func.FuncOp) -> None:
    """Take away what nobody reads: places that nobody came back to, and what was made for a form of a loop that did not suit."""
    for op in reversed(operations(function)):
        reads_only = op.name.startswith(("arith.", "tensor.", "ktdp.construct")) or is_a(op, ktdp.LoadOp, linalg.GenericOp, linalg.FillOp)
        if is_a(op, scf.ForOp):  # one that does nothing but compute
            within = [o for region in op.regions for block in region.blocks for o in inside(block)]
            reads_only = not any(is_a(o, ktdp.StoreOp) or o.name.startswith("ktdp.inter_tile") for o in within)
        is_read = any(True for r in op.results for _ in r.uses)
        if reads_only and not is_read and (op.results or is_a(op, scf.ForOp)):
            op.erase()
