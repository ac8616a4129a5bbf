"""The instruction emulator: a program checked once, then launched on arrays as often as wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from time import thread_time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import BF16, wide
from ktir.diagnostics import KtirError
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.kept import Kept
from ktir.emulator.machine.program.faults import DivisionFault
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.emitter import Emitter
from ktir.emulator.machine.replay.moves import Store
from ktir.emulator.machine.replay.ops import Bound
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.reports.bounds import Bottlenecks
from ktir.emulator.machine.reports.report import MachineReport, report
from ktir.emulator.machine.step.divisions import divides_by_data
from ktir.emulator.machine.step.quotients import Quotients
from ktir.emulator.machine.step.step import Step
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.problem import ProgramError
from ktir.isa.program import Argument, Program
from ktir.isa.wellformed.verify import verify
from ktir.target import HALVES, LANES, STICK_BYTES, Target

Array = NDArray[Any]
Mode = Literal["tape", "step"]


def carrier_shape(argument: Argument) -> tuple[int, int]:
    """Shape of an argument's carrier: entries of 64 lanes."""
    return -(-argument.sticks * STICK_BYTES // (argument.element_bytes * LANES)), LANES


class Machine:
    """A program on a chip.

    Making one verifies the program and runs its control plane: it raises ProgramError or a MachineFinding for a program that is wrong.
    `launch` then only computes. A machine runs one launch at a time.
    """

    def __init__(self, program: Program, target: Target, kept: Kept | None = None, *, wellformed: bool = False) -> None:
        """`kept` is what another machine has found out about the same program and target: then only `trace` runs the control plane.
        wellformed: the program is as it was read, which has shown that it is.
        """
        begin = thread_time()
        self.program = program
        self.target = target
        self._kept = kept
        self.report: MachineReport = self._checked(wellformed) if kept is None else kept.report
        self.seconds = thread_time() - begin
        """CPU time that checks and the tape took so far."""
        self._divides = divides_by_data(program)
        self._pools: dict[int, Array] = {}
        self._copies: dict[int, Array] = {}

    def _checked(self, wellformed: bool) -> MachineReport:
        """The report of a program without fault."""
        problems = verify(self.program, self.target, wellformed=wellformed)
        if problems:
            raise ProgramError(problems)
        check_grid(self.program, self.trace)
        return report(self.program.name, self.trace, self.target)

    @cached_property
    def trace(self) -> Trace:
        """All that does not depend on values."""
        return control(self.program, self.target)

    @cached_property
    def bottlenecks(self) -> Bottlenecks:
        """What bounds the program and its kernels."""
        return Bottlenecks(self.program, self.target, self.report.kernels)

    @cached_property
    def tape(self) -> Tape:
        """The trace made ready for launches."""
        begin = thread_time()
        tape = Tape(self._operations)
        self.seconds += thread_time() - begin
        return tape

    @cached_property
    def _operations(self) -> Emitter:
        return Builder(self.program, self.trace, self.target.corelets).build() if self._kept is None else self._kept.operations

    def fills(self, index: int) -> bool:
        """Whether each launch writes every element of an argument's carrier, whatever the values; what it held before does not show."""
        argument = self.program.arguments[index]
        if argument.role != "output":
            return False
        memory = np.zeros(carrier_shape(argument), np.bool_)
        for store in self._operations.operations:
            if isinstance(store, Store) and store.argument == index:
                store.mark(memory.reshape(-1))
        return bool(memory.all())

    def kept(self) -> Kept:
        """What a machine of the same program can be made with; not during a launch, of which nothing is in it."""
        self._operations.noticed.clear()
        return self._kept or Kept(self.report, self._operations)

    @cached_property
    def _quotients(self) -> Quotients:
        return Quotients(self.program, self.trace, self.target.corelets)

    @cached_property
    def step(self) -> Step:
        """The reference executor."""
        return Step(self.program, self.trace, self.target.corelets)

    def launch(
        self,
        arguments: Sequence[Array | None],
        mode: Mode = "tape",
        bounds: Mapping[int, Bound] | None = None,
        kept: Collection[int] = (),
    ) -> None:
        """Run the program. `arguments` are float32 carriers [entries, 64] in the order of `program.arguments`.

        Carriers of f16 arguments hold values on the f16 grid; what the program only reads may wait as `carriers` says. Outputs are
        written in place. For an argument of role `pool` None may be given; its content is not kept. bounds: of some arguments that the
        program only reads, by their numbers, what gives a bound for the magnitudes in them, NaN where there may be one; nothing but the
        time depends on it. kept: numbers of arguments that are as they were before where a launch on the tape fails; else what a failed
        one has left in them is not defined. Raises KtirError if an array does not fit.
        """
        declared = self.program.arguments
        if len(arguments) != len(declared):
            raise KtirError(f"program '{self.program.name}' expects {len(declared)} arguments, but got {len(arguments)}")
        given = [self._carrier(i, a) for i, a in enumerate(arguments)]
        before = [self._before(i, g) for i, g in enumerate(given)] if self._divides else []
        if mode == "step":
            self.step.run(_wide(given))
        else:
            self.tape.run(given, bounds, kept)
        noticed = self.tape.missing if mode == "tape" else None
        if self._divides and noticed != []:
            try:
                self._quotients.check(_wide(before), noticed)
            except DivisionFault:
                for now, then in zip(given, before, strict=True):
                    if now is not then:
                        now[...] = then
                raise
        for argument, array, carrier in zip(declared, arguments, given, strict=True):
            if array is not None and carrier is not array and not argument.constant:
                array[...] = carrier

    def _before(self, index: int, carrier: Array) -> Array:
        """What an argument holds before a launch, in memory that stays: fresh memory takes longer than the copy."""
        argument = self.program.arguments[index]
        if argument.constant or argument.role == "pool":
            return carrier
        if index not in self._copies:
            self._copies[index] = np.empty_like(carrier)
        np.copyto(self._copies[index], carrier)
        return self._copies[index]

    def _carrier(self, index: int, array: Array | None) -> Array:
        argument = self.program.arguments[index]
        shape = carrier_shape(argument)
        if array is None:
            if argument.role != "pool":
                raise KtirError(f"argument '{argument.name}' expects float32 {list(shape)}, but got none")
            if index not in self._pools:
                self._pools[index] = np.zeros(shape, np.float32)  # taken from the system where it is used
            return self._pools[index]
        fits = isinstance(array, np.ndarray) and (array.dtype == np.float32 or (argument.constant and _waits_for(argument, array.dtype)))
        if not isinstance(array, np.ndarray) or not fits or array.shape != shape:
            got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise KtirError(f"argument '{argument.name}' expects float32 {list(shape)}, but got {got}")
        if not argument.constant and not array.flags.writeable:
            raise KtirError(f"argument '{argument.name}' is written, but its array is read-only")
        return np.ascontiguousarray(array)


def _wide(carriers: Sequence[Array]) -> list[NDArray[np.float32]]:
    return [wide(c) for c in carriers]


def _waits_for(argument: Argument, dtype: np.dtype[Any]) -> bool:
    """Whether elements of an argument that is only read may be held as this type: floats of 16 bits as such, bits as integers."""
    if argument.element_bytes == 2 and argument.half in HALVES:
        return dtype == (BF16 if argument.half == "bf16" else np.float16)
    return dtype.kind in "iu" and dtype.itemsize < 4
