"""Kernels by hand: lifted to programs for the planner, or left to be pinned. Both ways are lowered to price them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.calls import functions_of
from ktir.cost.program import kernel_work
from ktir.diagnostics import Diagnostic, KtirError, PassError, Unsupported, location_text, remarks
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import func, ir, is_a, linalg, operations
from ktir.passes.ktir_to_allocated import LIFT, ToAllocated, Way
from ktir.passes.lifting.whole_program import Lifted, lift
from ktir.passes.pinning.ktir_pin import PinPass, is_by_hand, refuse_other_shapes
from ktir.pipeline import AtLeast, Pass, run_pipeline

WAYS = ("auto", "lift", "pin")
WAY, TOLERANCE = "ktir.way", "ktir.tolerance"


@dataclass(frozen=True)
class LiftPass(Pass):
    """Make a kernel with a grid a program for the planner, where its tiling says nothing that the planner could not choose.

    `way` is `pin` (nothing happens here), `lift` (or an error that names the op in the way), or `auto`: the faster one of both, as their
    instruction streams are priced. Sums of floats may get another order then, in which the planner's passes move them by a relative
    difference of at most 2**-9 of their terms; `auto` lifts them only where the author allows for that `within` his tolerance. On the
    kernel the
    attributes `ktir.way` and `ktir.tolerance` say the same, and go before the options.

    A lift is proved, not guessed: each element is written by one tile, no tile reads what another one writes, blocks lie side by side and
    cover what they are blocks of, and what goes from trip to trip is a sum, a product of matrices, an extreme or an online softmax.

    Expects: a module without `ktir.level`. Guarantees: a function without a grid, or the module as it was, for `ktir-pin`.
    """

    name: ClassVar[str] = LIFT
    description: ClassVar[str] = "kernels with a grid -> logical programs, where that is allowed and faster"
    tolerance: ClassVar[float] = 2.0**-9  # what the passes below may make of a sum: parts, other orders, an online softmax
    numbers: tuple[str, ...] = ()
    """What arguments are that are no memory, as in `n=57` or, by position, `3=57`."""
    way: Way = "pin"
    within: Annotated[float, AtLeast(0)] = 0.0
    target: str = ""
    cores: int | None = None

    def allowed(self, module: ir.Module) -> float:
        """What a lifted sum may differ by; else nothing."""
        grids = any("grid" in f.attributes for f in functions_of(module).values())
        sums = any(is_a(op, linalg.GenericOp) and Generic(op).sums_floats for op in operations(module))
        return self.tolerance if sums and not grids else 0.0

    def run(self, module: ir.Module) -> None:
        """Decide, and lift or leave the module."""
        if not is_by_hand(module):
            return
        kernel = next(iter(functions_of(module).values()))
        way, tolerance = _stated(kernel, WAY, self.way), _stated(kernel, TOLERANCE, self.within)
        if way not in WAYS:
            raise KtirError(
                f"'func.func' op attribute '{WAY}' expects one of {', '.join(WAYS)}, but got '{way}'", location_text(kernel.location)
            )
        if way != "pin":  # `ktir-pin` asks itself
            refuse_other_shapes(module)
        if way == "lift":
            self._tell(lift(module, self.numbers), kernel.location, "as its author asks for")
        elif way == "auto":
            self._choose(module, float(tolerance))

    def _choose(self, module: ir.Module, tolerance: float) -> None:
        kernel = next(iter(functions_of(module).values()))
        name, where = kernel.name.value, kernel.location
        whole = _copy(module)
        try:
            lifted = lift(whole, self.numbers)
        except Exception as error:  # whatever it is, the author's text as it stands is asked next
            self._missed(name, where, error)
            return
        if lifted.sums and tolerance < self.tolerance:
            text = f"a lift may change the order of its sums, which takes a stated tolerance of at least {self.tolerance}"
            self.remark("missed", f"kernel '{name}' is not lifted: {text}", where)
            self._check_pin(module, text)
            return
        try:
            lift_price = self._price(whole)
        except Exception as error:
            self._missed(name, where, error)
            return
        try:
            pin_price = self._price(_copy(module))
        except Unsupported as error:
            reason = f"it cannot be pinned: {error.message} ({error.location})"
        else:
            if pin_price <= lift_price:
                self.remark("passed", f"kernel '{name}' is pinned: {pin_price:,.0f} cycles; lifted it takes {lift_price:,.0f}", where)
                return
            reason = f"{lift_price:,.0f} cycles; pinned it takes {pin_price:,.0f}"
        self._tell(lift(module, self.numbers), where, reason)

    def _missed(self, name: str, where: ir.Location, error: Exception) -> None:
        """Say why a kernel is not lifted: what is refused and where, or that the lift is at fault."""
        if isinstance(error, KtirError) and not isinstance(error, PassError):
            why = error.message + (f" ({error.location})" if error.location else "")
        else:
            why = f"a fault of ktir: {type(error).__name__}: {error}".splitlines()[0]
        self.remark("missed", f"kernel '{name}' is not lifted, so it is pinned: {why}", where)

    def _tell(self, lifted: Lifted, where: ir.Location, reason: str) -> None:
        bits = "no sum of floats changes its order" if not lifted.sums else "the planner chooses the order of its sums"
        if lifted.moved:
            bits = f"sums over trips are sums at once at {', '.join(dict.fromkeys(location_text(x) for x in lifted.moved))}"
        self.remark("passed", f"kernel '{lifted.name}' is lifted from {lifted.tiles} tiles: {reason}; {bits}", where)
        self.count("kernels-lifted")

    def _check_pin(self, module: ir.Module, text: str) -> None:
        """Raise what stands in the way of pinning, with the way out."""
        with remarks():
            try:
                PinPass(self.numbers, self.target, self.cores).run(_copy(module))
            except Unsupported as error:
                first, *others = error.diagnostics
                note = Diagnostic("note", f"{text}: '{TOLERANCE}' on the kernel, or '{WAY} = \"lift\"'", first.location)
                raise Unsupported(first.message, first.location, (*first.notes, note, *others)) from None

    def _price(self, module: ir.Module) -> float:
        """Cycles of a module's instruction stream."""
        target = machine(module, self.target, self.cores)
        for function in functions_of(module).values():  # what is priced is decided
            if WAY in function.attributes:
                del function.attributes[WAY]
        with remarks():
            stages = ToAllocated(self.numbers, way="pin", target=self.target, cores=self.cores, verify=False)
            run_pipeline(module, str(stages))
            return sum(kernel_work(kernel, target).cost.cycles for kernel in lower_program(module).kernels)


def pin(module: ir.Module, numbers: tuple[str, ...], cores: int | None) -> None:
    """Pin kernels by hand that are not lifted. Raises Unsupported, which says so where a lift would take them."""
    try:
        PinPass(numbers, cores=cores).run(module)
    except Unsupported as error:
        try:
            with remarks():
                lift(_copy(module), numbers)
        except KtirError:
            raise error from None
        first, *others = error.diagnostics
        note = Diagnostic(
            "note", f"the compiler could divide the work itself: '{WAY} = \"lift\"' on the kernel, or way=lift", first.location
        )
        raise Unsupported(first.message, first.location, (*first.notes, note, *others)) from None


def _copy(module: ir.Module) -> ir.Module:
    return ir.Module.parse(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))


def _stated(kernel: func.FuncOp, name: str, otherwise: str | float) -> str | float:
    """An attribute of a kernel, or else an option."""
    return kernel.attributes[name].value if name in kernel.attributes else otherwise
