"""The whole way down: logical KTIR -> the files of a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ktir import config, targets
from ktir.analysis.calls import calls_of, functions_of
from ktir.assembly import print_module
from ktir.diagnostics import KtirError, Unsupported, location_text, position, remark
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import NAME, set_target, target_of
from ktir.isa.assembly.text import print_program
from ktir.isa.program import Program
from ktir.lowering.ktir_lift import LiftPass, pin
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import entry_function, lower_program
from ktir.mlir import ir
from ktir.package import HostView, LaunchArgument, LaunchSpec, Package, PublishedLayout, ValueRange
from ktir.package.files import ALLOCATED, TARGET, write_folder
from ktir.passes.flat.integers.integer_proof import RANGES
from ktir.passes.flat.ktir_outline_repeats import OutlineRepeatsPass
from ktir.passes.ktir_to_allocated import ToAllocated, Way
from ktir.passes.layouts.host_tensors import host_tensors
from ktir.passes.levels.ktir_state_level import StateLevelPass
from ktir.passes.levels.ktir_verify_level import VerifyLevelPass
from ktir.passes.tiling.tile_hints import OnlineSoftmax
from ktir.pipeline import Pass, Step, run_pipeline
from ktir.target import DATASHEET, DL16, Target, held


@contextmanager
def _placed(module: ir.Module) -> Iterator[None]:
    """An error that knows no place in the text is at that of the first function."""
    first = next(iter(functions_of(module).values()), None)
    where = None if first is None or position(first.location) is None else location_text(first.location)
    try:
        yield
    except KtirError as error:
        if error.location is None and where is not None:
            error.location = where
            error.diagnostics[0] = replace(error.diagnostics[0], location=where)
        raise


@contextmanager
def _verified(module: ir.Module) -> Iterator[None]:
    """The module, as it is at first, is what its level promises. What of a logical program the passes refuse by name goes before that."""
    wrong: KtirError | None = None
    try:
        VerifyLevelPass().run(module)
    except KtirError as error:
        if Level.of(module) is not Level.LOGICAL:
            raise
        wrong = error
    try:
        yield
    except Unsupported:
        raise
    except Exception:
        if wrong is None:
            raise
    if wrong is not None:
        raise wrong


def _to_allocated(module: ir.Module, stages: ToAllocated, after: Callable[[Step, ir.Module], None]) -> None:
    """All stages, in place. What is refused because its equal layers have become calls of one function is compiled as it was written."""
    written: ir.Operation | None = None
    calls = 0

    def before_each(step: Step, m: ir.Module) -> None:
        nonlocal written, calls
        if step.name == OutlineRepeatsPass.name:
            written, calls = m.operation.clone(), _calls(m)

    def after_each(step: Step, m: ir.Module) -> None:
        nonlocal written
        if step.name == OutlineRepeatsPass.name and _calls(m) == calls:
            written = None
        after(step, m)

    verify = config.current().verify_each
    try:
        run_pipeline(module, str(stages), verify_each=verify, before_each=before_each, after_each=after_each)
    except KtirError as error:
        if written is None:
            raise
        _put_back(module, written)
        remark("missed", OutlineRepeatsPass.name, f"equal parts are no calls of a function, with which: {error.message}", error.location)
        run_pipeline(module, str(replace(stages, saved=0)), verify_each=verify, after_each=after)


def _calls(module: ir.Module) -> int:
    return sum(len(calls_of(function)) for function in functions_of(module).values())


def _put_back(module: ir.Module, written: ir.Operation) -> None:
    """Let a module be what it was before."""
    for op in list(module.body.operations):
        op.erase()
    for op in list(written.regions[0].blocks[0].operations):
        module.body.append(op)
    own = module.operation.attributes
    for name in list(own):
        del own[name]
    for name in written.attributes:
        own[name] = written.attributes[name]


def pipeline(cores: int | None = None, *, verify: bool = False, online_softmax: OnlineSoftmax = "auto") -> str:
    """Pipeline text from the logical to the allocated level; `verify` checks the level after each stage."""
    return ToAllocated(cores=cores, verify=verify, online_softmax=online_softmax).text()


def compile_logical(
    module: ir.Module,
    *,
    cores: int | None = None,
    observe: Callable[[str, ir.Module], None] | None = None,
    online_softmax: OnlineSoftmax = "auto",
    target: Target | None = None,
    numbers: Sequence[str] = (),
    way: Way = "pin",
    tolerance: float = 0.0,
) -> dict[str, bytes]:
    """Compile a module, in place, to the files of a package, from the level that it is at: logical, or any further down, which is verified.
    Kernels with a grid that state no level are lifted or pinned (`ktir-lift`, whose options `way` and `within` are; `tolerance` is
    the latter); `numbers` are those
    of arguments that are no memory. `online_softmax` is the option
    of `ktir-tile`; `target` is what the module is compiled for, where it does not say: else that of the configuration.

    `observe(name, module)` sees the module before the first pass (by its level) and after each one. With `config.dump_dir` every level, the
    assembly and the package are written there. Raises KtirError for what is not supported.
    """
    options = config.current()
    dump = Path(options.dump_dir) if options.dump_dir else None
    number = 0

    def watch(name: str, m: ir.Module) -> None:
        nonlocal number
        if observe is not None:
            observe(name, m)
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
            text = print_module(m, debuginfo=False)
            (dump / f"{number}_{name}.ktir.mlir").write_text(text)
        number += 1

    def after(step: Step, m: ir.Module) -> None:
        if not (isinstance(step.item, Pass) and step.item.analysis):
            watch(step.name, m)

    if NAME not in module.operation.attributes:
        set_target(module, options.machine() if target is None else target)
    elif target is not None:
        set_target(module, target)
    fewer = options.fewer_cores() if cores is None else cores
    with _placed(module):
        LiftPass(tuple(numbers), way, tolerance, cores=fewer).run(module)
        pin(module, tuple(numbers), fewer)
        StateLevelPass().run(module)
        with _verified(module):
            watch(str(Level.of(module)), module)
            if Level.of(module) is Level.LOGICAL and options.logical_passes:
                run_pipeline(module, options.logical_passes, verify_each=options.verify_each, after_each=after)
                VerifyLevelPass().run(module)
            _to_allocated(module, ToAllocated(cores=fewer, verify=options.verify_each, online_softmax=online_softmax), after)
        program = lower_program(module)
        package = Package(program, launch_spec(module, program), further_files(module))
        contents = package.to_files()
    if dump is not None:
        _dump_package(dump, number, program, contents)
    return contents


def _dump_package(folder: Path, number: int, program: Program, contents: dict[str, bytes]) -> None:
    """Write the assembly and the package behind the levels."""
    (folder / f"{number}_program.s").write_text(print_program(program))
    write_folder(folder / "package", contents)


def further_files(module: ir.Module) -> dict[str, bytes]:
    """What a package has besides the program: the allocated level, and the target where it is not the datasheet's."""
    found, target = {ALLOCATED: print_module(module, debuginfo=True).encode()}, target_of(module)
    return found if target == DATASHEET else found | {TARGET: targets.description(target).encode()}


def launch_spec(module: ir.Module, program: Program) -> LaunchSpec:
    """How host tensors become the program's arguments, from the attributes of the entry function."""
    pool = sum(a.sticks * 128 for a in program.arguments if a.role == "pool")
    found = zip(launch_arguments(module), program.arguments, strict=True)
    arguments = tuple(_in_dl16(a) if own.half == DL16.name else a for a, own in found)
    return LaunchSpec(kernel_name=program.name, pool_size=pool, args=arguments, hosts=host_tensors(module))


def _in_dl16(argument: LaunchArgument) -> LaunchArgument:
    return replace(argument, layout=replace(argument.layout, device_dtype=DL16.published))


def launch_arguments(module: ir.Module) -> list[LaunchArgument]:
    """The entry function's arguments at the laid-out level or below."""
    entry = entry_function(module)
    arguments = []
    attributes = entry.operation.attributes
    ranges = _ranges(module, entry.name.value)
    for i, item in enumerate(ir.ArrayAttr(attributes["arg_attrs"]) if "arg_attrs" in attributes else []):
        d = ir.DictAttr(item)
        layout = kt.LayoutAttr(d["ktir.layout"])
        host = kt.HostViewAttr(d["ktir.host"]) if "ktir.host" in d else None
        format_ = held(layout.dtype)
        arguments.append(
            LaunchArgument(
                arg_index=i,
                name=ir.StringAttr(d["ktir.name"]).value,
                role=ir.StringAttr(d["ktir.role"]).value,
                host=None if host is None else HostView(host.arg, host.offset, tuple(host.size), tuple(host.strides)),
                dtype=format_.dtype,
                layout=PublishedLayout(
                    size=tuple(layout.size),
                    device_size=tuple(layout.device),
                    stride_map=tuple(layout.strides),
                    device_dtype=format_.published,
                    element_arrangement="STANDARD",
                    pad=layout.pad,
                ),
                range=None if host is None or format_.two else _needed(ranges.get(host.arg), format_.dtype),
            )
        )
    return arguments


def _needed(found: ValueRange | None, dtype: str) -> ValueRange | None:
    """The values for which a program is proved, of an argument of such elements; None where a byte may be any."""
    is_any = found is not None and dtype == "int8" and found.low <= -128 and found.high >= 127
    return None if is_any else found


def _ranges(module: ir.Module, entry: str) -> dict[int, ValueRange]:
    """The values for which the program is proved, by the number of the host's argument."""
    attributes = module.operation.attributes
    programs = ir.DictAttr(attributes[RANGES]) if RANGES in attributes else {}
    listed = list(ir.ArrayAttr(programs[entry])) if entry in programs else []
    numbers = [{a.name: ir.IntegerAttr(a.attr).value for a in ir.DictAttr(d)} for d in listed]
    return {i: ValueRange(n["low"], n["high"], n.get("bits"), n.get("spare")) for i, n in enumerate(numbers) if n}
