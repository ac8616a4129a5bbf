"""A logical program, compiled to a stage and run there on host arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ktir.analysis.calls import argument_attributes, functions_of, root_of, text_attribute
from ktir.analysis.interface.parameters import Parameter, Place, parameters, roots
from ktir.checking.inputs import places_of
from ktir.checking.levels import run_device_level
from ktir.diagnostics import KtirError, location_text
from ktir.dialects.module_level import KTIR_LEVELS, Level
from ktir.emulator.machine.reports.report import MachineReport
from ktir.emulator.reference import execute
from ktir.emulator.strides import as_memory, dense_strides
from ktir.lowering.compile import compile_logical, launch_arguments
from ktir.lowering.ktir_lift import LiftPass, pin
from ktir.mlir import ir
from ktir.package import HostTensor, LaunchArgument
from ktir.passes.ktir_to_allocated import STAGES, ToAllocated, Way
from ktir.passes.layouts.host_tensors import host_tensors
from ktir.passes.levels.ktir_state_level import StateLevelPass
from ktir.passes.pinning.ktir_pin import is_by_hand
from ktir.pipeline import run_pipeline
from ktir.roles import OWN_ROLES, reach
from ktir.runtime.executable import Executable
from ktir.runtime.memory.transfer import host_view
from ktir.target import BY_DTYPE

Engine = Literal["ktir", "spyre"]


def stages() -> tuple[str, ...]:
    """What can be asked for: the levels of KTIR and each pass between them, by name."""
    levels = dict.fromkeys((Level.LOGICAL, *(s.level for s in STAGES)))
    return (*levels, *(s.name for s in STAGES))


def host_parameters(module: ir.Module) -> list[Parameter] | None:
    """The tensors that the caller of a program gives whose arguments are memory of the device; None where they are the caller's."""
    if is_by_hand(module):
        return None
    StateLevelPass().run(module)
    level = Level.of(module)
    if level is None or level.of_host:
        return None
    launch = launch_arguments(module)
    tensors = host_tensors(module)
    given: dict[int, list[LaunchArgument]] = {}
    for argument in launch:
        if argument.host is not None:
            given.setdefault(argument.host.arg, []).append(argument)
    found = []
    for number, parts in sorted(given.items()):
        roles = {part.role for part in parts}
        role = roles.pop() if len(roles) == 1 else "input_output"
        if tensors:
            element, size = tensors[number].element, tensors[number].size
            strides = tensors[number].strides if tensors[number].strides != dense_strides(size) else None
        else:
            element, strides = BY_DTYPE[parts[0].dtype].name, None
            size = (max(reach(p.host.offset, p.host.size, p.host.strides) for p in parts if p.host is not None),)
        found.append(Parameter(number, parts[0].name, element, role, size, strides=strides))
    return found


def _at(memory: Mapping[Any, np.ndarray], place: Place) -> np.ndarray:
    found = [memory[key] for key in places_of(place) if key in memory]
    if len(found) != 1:
        given = "two arrays are" if found else "nothing is"
        raise KtirError(f"the kernel has memory at address {place.offset}, but {given} given for {place.name}")
    return found[0]


def _as_declared(array: np.ndarray, host: HostTensor, name: str) -> np.ndarray:
    """An array of another shape as memory, in which the tensor that a program declares lies: as the executor takes it."""
    if not array.size:  # memory without elements has one on the device, which nothing reads
        return np.zeros(host.size, array.dtype)
    return array if array.shape == host.size else host_view(as_memory(array), 0, host.size, host.strides, name)


def _given_by_host(module: ir.Module, arguments: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Without what a program at a level of the host keeps for itself."""
    roles = [text_attribute(own, "ktir.role") for own in argument_attributes(root_of(functions_of(module), module.operation.location))]
    if len(roles) != len(arguments):  # below, the caller's tensors are counted
        return arguments
    return [a for a, role in zip(arguments, roles, strict=True) if role not in OWN_ROLES]


def run_at_stage(
    module: ir.Module,
    arguments: Sequence[np.ndarray],
    *,
    stage: str,
    engine: Engine,
    cores: int | None = None,
    memory: Mapping[Any, np.ndarray] | None = None,
    way: Way = "pin",
    tolerance: float = 0.0,
) -> MachineReport | None:
    """Compile `module`, in place, and run it on `arguments`, host arrays that are written in place.

    `ktir` compiles up to the last pass of `stage` and runs the KTIR executor; `spyre` compiles all the way and runs the emulated machine,
    whose report is the result. The module may be at any level; `memory` is what lies at addresses that a kernel by hand has as numbers,
    as `("global", address)` -> array. `way` and `tolerance` say what becomes of a grid, as of `ktir-lift`. Raises KtirError for one that is
    beyond the stage, and for what a pass refuses.
    """
    numbers: list[str] = []
    if is_by_hand(module):
        root = roots(module)[0]
        given = {p.position: value for p, value in zip(parameters(module, root)[0], arguments, strict=True) if not p.is_buffer}
        numbers = [f"{position}={value}" for position, value in given.items()]
        whole = {p.name: int(given[p.position]) for p in parameters(module, root)[0] if p.position in given and not given[p.position] % 1}
        _, places = parameters(module, root, numbers=whole)
        arguments = [value for position, value in enumerate(arguments) if position not in given]
        arguments += [_at(memory or {}, p) for p in places]
        given_by_host: Sequence[np.ndarray] = arguments
    else:
        given_by_host = _given_by_host(module, arguments)
    if engine == "spyre":
        arguments = given_by_host
        executable = Executable.load(compile_logical(module, cores=cores, numbers=numbers, way=way, tolerance=tolerance))
        hosts = executable.spec.hosts
        if len(hosts) == len(arguments):
            names = {s.argument.host.arg: s.argument.name for s in executable.slots if s.argument.host is not None}
            arguments = [_as_declared(a, h, names.get(i, f"#{i}")) for i, (a, h) in enumerate(zip(arguments, hosts, strict=True))]
        executable(*arguments)
        return executable.machine.report
    LiftPass(tuple(numbers), way, tolerance, cores=cores).run(module)
    pin(module, tuple(numbers), cores)
    StateLevelPass().run(module)
    level = Level.of(module)
    reached = next((s.level for s in reversed(STAGES) if stage in s), Level.LOGICAL)
    if level not in KTIR_LEVELS or KTIR_LEVELS.index(reached) < KTIR_LEVELS.index(level):
        raise KtirError(f"stage '{stage}' comes before level '{level}', at which the module is", location_text(module.operation.location))
    if stage != Level.LOGICAL:
        run_pipeline(module, ToAllocated(cores=cores, verify=False).up_to(stage))
    if not reached.of_host:
        for old, new in zip(given_by_host, run_device_level(module, given_by_host), strict=True):
            old[...] = new
    else:
        execute(module, None, list(arguments))
    return None
