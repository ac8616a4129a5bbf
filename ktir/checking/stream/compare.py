"""A program against the allocated KTIR of its package."""

from __future__ import annotations

from ktir.assembly import parse_module
from ktir.checking.stream.alignment import Alignment, Misaligned
from ktir.checking.stream.expected import Expected, expected
from ktir.checking.stream.order import order_faults
from ktir.checking.stream.rules import Rules
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.problem import Problem
from ktir.isa.program import Program
from ktir.mlir import ir
from ktir.package import LaunchSpec, Package, PackageError
from ktir.package.files import ALLOCATED
from ktir.target import Target


def check_package(package: Package, trace: Trace) -> list[Problem]:
    """Where a package's program and launch spec are not what its KTIR says. Raises KtirError if it has no KTIR, or one that is not valid.

    `trace` is that of the program's control run.
    """
    if ALLOCATED not in package.files:
        raise PackageError("", [f"file {ALLOCATED!r} is missing, so that there is nothing to compare the program with"])
    with context(), ir.Location.unknown():
        target = package.target
        if target.dl16 != "exact":
            what = "computes in DLFloat16, unlike KTIR, so that there is nothing to compare the program with"
            raise KtirError(f"target '{target.name}' {what}")
        wanted = read_expected(package.files[ALLOCATED].decode(), target)
        return check_launch(package.launch_spec, wanted) + check_stream(package.program, trace, wanted, target)


def read_expected(text: str, target: Target) -> Expected:
    """What allocated KTIR, given as text, says a program must do; inside a context."""
    return expected(parse_module(text, ALLOCATED), target.corelets)


def check_launch(spec: LaunchSpec, wanted: Expected) -> list[Problem]:
    """Where a launch spec is not that of the KTIR."""
    found = []
    if len(spec.args) != len(wanted.launch):
        found.append(Problem(f"the launch spec has {len(spec.args)} arguments, but KTIR {len(wanted.launch)}"))
    for i, (a, b) in enumerate(zip(spec.args, wanted.launch, strict=False)):
        other = [name for name in vars(b) if getattr(a, name) != getattr(b, name)]
        if other:
            found.append(Problem(f"the launch spec gives another {' and '.join(other)} than KTIR", argument=i))
    if spec.hosts != wanted.hosts:
        found.append(Problem("the launch spec gives other tensors of the host than KTIR"))
    return found


def check_stream(program: Program, trace: Trace, wanted: Expected, target: Target) -> list[Problem]:
    """Where a program, which the verifier and the control run have accepted, is not what its KTIR says."""
    if program.name != wanted.name:
        return [Problem(f"the program is named {program.name!r}, but KTIR's entry function {wanted.name!r}")]
    if program.arguments != wanted.arguments:
        at = next((i for i, (a, b) in enumerate(zip(program.arguments, wanted.arguments, strict=False)) if a != b), None)
        return [Problem("the program's arguments are not those of KTIR's entry function", argument=at)]
    mine, theirs = ([(k.name, k.cores) for k in kernels] for kernels in (program.kernels, wanted.kernels))
    if mine != theirs:
        return [Problem(f"the program runs {_listed(mine)}, but KTIR calls {_listed(theirs)}")]
    problems: list[Problem] = []
    aligned: list[Alignment] = []
    for number, kernel in enumerate(wanted.kernels):
        try:
            alignment = Alignment(program, number, kernel)
        except Misaligned as e:
            problems.append(e.problem)
            continue
        aligned.append(alignment)
        rules = Rules(program.kernels[number], kernel.table, target.corelets)
        problems += [alignment.problem(*fault) for one in alignment.found for fault in rules.faults(one)]
    return problems or order_faults(aligned, trace, target)


def _listed(kernels: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name!r} on {cores} cores" for name, cores in kernels) or "no kernel"
