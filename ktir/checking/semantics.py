"""Passes checked by running the program before and after each: `ktir-opt --check-semantics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.interface.parameters import Parameter, Place, argument_names, functions, parameters, roots
from ktir.assembly import parse_module, print_module
from ktir.assembly.names import TextNames
from ktir.checking import inputs
from ktir.checking.bounds import Arrays, bounds, disturbance_of
from ktir.checking.compare import Difference, compare
from ktir.checking.levels import Mismatch, device_index, lying, run_device_level
from ktir.diagnostics import Diagnostic, KtirError
from ktir.dialects import spyre
from ktir.dialects.module_target import target_of
from ktir.emulator.findings import Where
from ktir.emulator.policy import Disturbance, Policy
from ktir.emulator.reference.executor import execute
from ktir.emulator.reference.observer import Observer
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.values import ELEMENT_BYTES
from ktir.emulator.strides import dense_strides
from ktir.lowering.compile import launch_arguments
from ktir.mlir import ir
from ktir.package import HostTensor, LaunchArgument, LaunchSpec, Package
from ktir.passes.layouts.host_tensors import host_tensors
from ktir.pipeline import Pass, Step
from ktir.roles import OWN_ROLES
from ktir.runtime.executable import Executable
from ktir.target import BY_DTYPE

__all__ = ["SemanticsCheck"]

_COUNTS = (128, 64, 16, 4, 1)
"""Values that are tried for integers of which nothing is known: the first with which the program runs is taken."""


@dataclass
class _Subject:
    """A function under check: what it is called with, and what that has become by the last pass."""

    name: str
    labels: list[str]
    values: list[Any]
    """Arguments in order; of a program on device memory the host arrays."""
    memory: dict[Any, NDArray[Any]]
    elements: list[str | None]
    device: bool
    result: list[NDArray[Any]] | None = None
    """Arrays after the last run: those of the arguments, then those at addresses."""
    writers: _Writers | None = None


class SemanticsCheck:
    """Runs every function that no other calls, first as it is given, then after each pass.

    given: inputs by name; what is not in it is generated (`ktir.checking.inputs`). names, source: of the arguments, in the text of that
    file. Raises KtirError for a name that no function has.
    `said` collects what could not be checked, as warnings.
    """

    def __init__(
        self, module: ir.Module, given: Mapping[str, NDArray[Any]] | None = None, names: TextNames | None = None, source: str = "-"
    ) -> None:
        self.given = dict(given or {})
        self.seed = 0
        self.names = {k: argument_names(op, names, source) for k, op in functions(module).items()} if names is not None else {}
        self.said: list[Diagnostic] = []
        self.subjects: dict[str, _Subject] = {}
        self.launch: list[LaunchArgument] = []
        self.hosts: tuple[HostTensor, ...] = ()
        self.before = print_module(module)
        known: set[str] = set()
        for name in roots(module):
            subject, labels = self._subject(module, name)
            known |= labels
            if subject is not None:
                self.subjects[name] = subject
        if unknown := [name for name in self.given if name not in known]:
            raise KtirError(f"no function has an argument '{unknown[0]}' (there are {', '.join(sorted(known)) or 'none'})")
        if not roots(module):
            self._warn(None, "there is no function to check")

    def after(self, step: Step, module: ir.Module) -> None:
        """Runs the program as the pass has left it. Raises Mismatch where values differ by more than the pass allows, or where it does
        not run any more."""
        if isinstance(step.item, Pass) and step.item.analysis:
            return
        disturbance = disturbance_of([step.item], module)
        for subject in self.subjects.values():
            try:
                found, writers = self._run(module, subject)
            except KtirError as error:
                if subject.result is None:
                    continue
                raise Mismatch(
                    f"'{subject.name}' does not run any more after pass '{step}': {error.message}", error.location, tuple(error.notes)
                ) from None
            if subject.result is None:
                self._warn(subject, f"runs from pass '{step}' on and is checked from there")
            else:
                self._compare(step, subject, found, writers, disturbance)
            subject.result = found
        self.before = print_module(module)

    def _warn(self, subject: _Subject | None, text: str) -> None:
        self.said.append(Diagnostic("warning", f"check-semantics: '{subject.name}' {text}" if subject else f"check-semantics: {text}"))

    # Inputs

    def _subject(self, module: ir.Module, name: str) -> tuple[_Subject | None, set[str]]:
        """The function with inputs with which it runs, or None if there are none; and the names of its arguments."""
        aliases = self.names.get(name)
        found, places = parameters(module, name, names=aliases)
        labels = {p.name for p in found} | {p.name for p in places}
        if any(p.device for p in found):
            subject = self._device_subject(module, name)
            return self._started(module, [subject]), set(subject.labels)
        unknown = [p for p in found if not p.is_buffer and p.name not in self.given and self._number(p, 0) is None]
        attempts = []
        for count in _COUNTS if unknown else (0,):
            numbers = {
                p.name: int(self.given[p.name]) for p in found if not p.is_buffer and p.name in self.given and _whole(self.given[p.name])
            }
            numbers |= {p.name: count for p in unknown}
            again, there = parameters(module, name, names=aliases, numbers=numbers)
            try:
                attempts.append(self._host_subject(name, again, there, count))
            except KtirError as error:
                self._warn(None, f"'{name}' is not checked: {error.message}")
                return None, labels
        return self._started(module, attempts), labels

    def _number(self, p: Parameter, count: int) -> int | float | None:
        return inputs.number(np.random.default_rng([self.seed, p.position]), p) if not count else count

    def _host_subject(self, name: str, found: Sequence[Parameter], places: Sequence[Place], count: int) -> _Subject:
        values: list[Any] = []
        found = [p for p in found if p.role not in OWN_ROLES or p.name in self.given]  # a pass may add such arguments
        for p in found:
            if p.name in self.given:
                value = self.given[p.name]
                values.append(value.copy() if p.is_buffer else value.item())
            elif not p.is_buffer:
                number = self._number(p, 0)
                values.append(count if number is None else number)
            else:
                values.append(self._generated(p, p.position, p.name))
        memory: dict[Any, NDArray[Any]] = {}
        for i, p in enumerate(places):
            memory[p.key] = self.given[p.name].copy() if p.name in self.given else self._generated(p, len(found) + i, p.name)
        elements = [p.element for p in found] + [p.element for p in places]
        return _Subject(name, [p.name for p in found] + [p.name for p in places], values, memory, list(elements), False)

    def _generated(self, p: Parameter | Place, number: int, label: str) -> NDArray[Any]:
        if p.shape is None:
            raise KtirError(f"the size of '{label}' cannot be told; give it in an archive, --check-semantics=inputs.npz")
        return inputs.generate(np.random.default_rng([self.seed, number]), p.element, p.shape, p.below)

    def _device_subject(self, module: ir.Module, name: str) -> _Subject:
        """Host arrays for a program on device memory: as large as its views of them reach."""
        sizes: dict[int, int] = {}
        labels: dict[int, str] = {}
        kinds: dict[int, str] = {}
        for argument in launch_arguments(module):
            if argument.host is None:
                continue
            view, i = argument.host, argument.host.arg
            reach = view.offset + sum((n - 1) * s for n, s in zip(view.size, view.strides, strict=True)) + 1
            sizes[i] = max(reach, sizes.get(i, 0))
            labels.setdefault(i, argument.name)
            kinds.setdefault(i, argument.dtype)
        count = max(sizes, default=-1) + 1
        names = [labels.get(i, f"arg{i}") for i in range(count)]
        values: list[Any] = []
        for i in range(count):
            element = BY_DTYPE[kinds.get(i, "float16")].name
            made = inputs.generate(np.random.default_rng([self.seed, i]), element, (sizes.get(i, 1),))
            values.append(np.ascontiguousarray(self.given.get(names[i], made)))
        return _Subject(name, names, values, {}, [None] * count, True)

    def _started(self, module: ir.Module, attempts: Sequence[_Subject]) -> _Subject | None:
        """The first of `attempts` that runs; the last, to be tried again after each pass, if none does."""
        reason: KtirError | None = None
        for subject in attempts:
            try:
                subject.result, subject.writers = self._run(module, subject)
                return subject
            except KtirError as error:
                reason = reason or error
        if reason is not None:
            at = f" ({reason.location})" if reason.location else ""
            self._warn(attempts[-1], f"does not run as it is given and is not checked until it does: {reason.message}{at}")
        return attempts[-1]

    # Runs

    def _run(self, module: ir.Module, subject: _Subject, policy: Policy | None = None) -> tuple[list[NDArray[Any]], _Writers]:
        writers = _Writers()
        known = functions(module)
        if subject.name not in known:
            if any(op.operation.name == "spyre.program" for op in module.body.operations):
                return self._run_stream(module, subject), writers
            raise KtirError("there is no such function")
        found, _ = parameters(module, subject.name)
        if any(p.device for p in found):
            self.launch = writers.launch = launch_arguments(module)
            self.hosts = writers.hosts = host_tensors(module)
            return run_device_level(module, subject.values, writers, policy), writers
        writers.strides = {i: p.strides for i, p in enumerate(found) if p.strides is not None}
        values = [v.copy() if isinstance(v, np.ndarray) else v for v in subject.values]
        memory = {place: array.copy() for place, array in subject.memory.items()}
        execute(module, subject.name, values, memory=memory, observer=writers, policy=policy)
        return [np.asarray(0 if v is None else v) for v in (*values, *memory.values())], writers

    def _run_stream(self, module: ir.Module, subject: _Subject) -> list[NDArray[Any]]:
        """The instruction stream on the machine; what its arguments mean is what the last level of KTIR said."""
        program = spyre.from_mlir(module)
        pool = sum(a.sticks * 128 for a in program.arguments if a.role == "pool")
        package = Package(program, LaunchSpec(kernel_name=program.name, pool_size=pool, args=tuple(self.launch)), {})
        arrays = [a.copy() for a in subject.values]
        with lying(arrays, self.hosts) as held:
            Executable.load(package.to_files(), target_of(module))(*held)
        return arrays

    def _compare(self, step: Step, subject: _Subject, found: Arrays, writers: _Writers, disturbance: Disturbance | None) -> None:
        assert subject.result is not None
        if len(found) != len(subject.result):
            raise Mismatch(f"pass '{step}' changes the arguments of '{subject.name}'")
        wanted, got = (self._readable(subject, arrays) for arrays in (subject.result, found))
        differences, allowed = [compare(a, b) for a, b in zip(wanted, got, strict=True)], None
        if disturbance is not None and any(d is not None for d in differences):
            before = parse_module(self.before)
            allowed = bounds(
                lambda policy: self._readable(subject, self._run(before, subject, policy)[0]), disturbance, wanted, subject.elements
            )
            differences = [compare(a, b, atol=most) for a, b, most in zip(wanted, got, allowed, strict=True)]
        for i, difference in enumerate(differences):
            if difference is not None:
                most = 0.0 if allowed is None else float(allowed[i][difference.first])
                raise self._mismatch(step, subject, i, found[i], difference, writers, most)

    def _readable(self, subject: _Subject, arrays: Arrays) -> list[NDArray[Any]]:
        return [inputs.readable(a, element) for a, element in zip(arrays, subject.elements, strict=True)]

    def _mismatch(
        self, step: Step, subject: _Subject, i: int, now: NDArray[Any], difference: Difference, writers: _Writers, most: float
    ) -> Mismatch:
        label = subject.labels[i]
        notes = [Diagnostic("note", line) for line in difference.listing(label)]
        at = "[" + ", ".join(map(str, difference.first)) + "]"
        number = sum(isinstance(v, np.ndarray) and v.ndim > 0 for v in (*subject.values, *subject.memory.values())[:i])
        last = writers.of(number, i, difference.first, now, subject.values)
        if last is not None:
            notes.append(Diagnostic("note", f"{label}{at} was written by this {last}", last.location))
        allowed = f"; the first one may by {most:.3g}" if most else ""
        return Mismatch(
            f"pass '{step}' changes values of '{subject.name}': {difference.describe(label)} (relative {difference.relative:.3g}{allowed})",
            None if last is None else last.location,
            tuple(notes),
        )


def _whole(array: NDArray[Any]) -> bool:
    return array.size == 1 and array.dtype.kind in "iub"


@dataclass
class _Writers(Observer):
    """Remembers what a run stored where."""

    rec: Recorder | None = None
    launch: list[LaunchArgument] = field(default_factory=list)
    hosts: tuple[HostTensor, ...] = ()
    strides: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Of arguments that are declared to lie otherwise than their elements follow each other, in elements."""

    def recorded(self, rec: Recorder) -> None:
        self.rec = rec

    def of(self, number: int, argument: int, at: Sequence[int], array: NDArray[Any], host: Sequence[Any]) -> Where | None:
        """The last store to the element `at` of an array, which is array `number` of the launch; on device memory it is host argument
        `argument`."""
        if self.rec is None:
            return None
        if not self.launch:
            strides = self.strides.get(argument, dense_strides(array.shape))
            return self._last(number, sum(i * s for i, s in zip(at, strides, strict=True)) * array.itemsize)
        flat = sum(i * s for i, s in zip(at, dense_strides(array.shape), strict=True))
        for k, each in enumerate(self.launch):
            if each.host is not None and each.host.arg == argument and each.role != "input":
                byte = device_index(each, flat, host, self.hosts)
                if byte is not None:
                    return self._last(k, byte)
        return None

    def _last(self, number: int, byte: int) -> Where | None:
        assert self.rec is not None
        for buffer, accesses in self.rec.memory.accesses.items():
            placed = next((start for start, n, _, _ in buffer.placed if n == number), None)
            if buffer.argument != number and placed is None:
                continue
            target = byte + (placed or 0)
            for access in reversed(accesses):
                size = ELEMENT_BYTES[access.element]
                if access.write and getattr(access, "addresses", 0) is not None:
                    if any((ids == target // size).any() for _, ids in access.granules(size)):
                        return access.where
        return None
