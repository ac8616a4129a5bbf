"""`ktir-run`: executes a function of a KTIR module on NumPy arrays.

What the program made goes to stdout or to files, everything else to stderr. The status is 0 if it ran (and equals the reference), 1 if
values differ from the reference, 2 if it could not run.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ktir import config
from ktir.analysis.interface.parameters import Parameter
from ktir.assembly import parse_module
from ktir.checking.compare import compare
from ktir.checking.debugger import Debugger
from ktir.checking.inputs import readable
from ktir.checking.observers import OpValues, Profile, Progress, Together
from ktir.checking.values import Names, brief
from ktir.context import context
from ktir.diagnostics import KtirError, close_to
from ktir.dialects.module_target import NAME, set_target
from ktir.emulator.machine.reports.report import MachineReport
from ktir.emulator.reference.executor import Report, execute
from ktir.emulator.reference.observer import Observer
from ktir.mlir import ir
from ktir.passes.general.ktir_check_legality import refuse_illegal_exchanges
from ktir.passes.general.ktir_rescale_addresses import RescaleAddressesPass
from ktir.targets import find
from ktir.tools.memory import NOTHING_LEFT, at_most_what_there_is
from ktir.tools.shared.arguments import Arguments, address, choose_function, match_arguments, pairs
from ktir.tools.shared.flags import CommandLine, Flag, UsageError, help_text, parse
from ktir.tools.shared.input import BYTECODE, checked, decoded, parse_bytecode, read
from ktir.tools.shared.plain import plain
from ktir.tools.shared.policy import policy_flags, policy_of
from ktir.tools.shared.sources import FORMS, SourceError, archive, near, write_array
from ktir.version import __version__

FLAGS = (
    Flag("func", "the function to run; default: the one that no other calls", "name"),
    Flag("arg", "an argument, by its name in the text, its ktir.name or its position", "NAME=VALUE", repeated=True),
    Flag("mem", "an array at an address: global:OFFSET or lx:TILE:OFFSET, in elements of the array", "PLACE=VALUE", repeated=True),
    Flag("random", "fill all arguments that are not given at random", "seed"),
    Flag(
        "out", "write an argument or place to a file when all is done; without NAME= all of them to an archive", "NAME=@FILE", repeated=True
    ),
    Flag("against", "compare with the arrays of the same names in a .npz, or the one written array with a .npy", "file"),
    Flag("atol", "absolute difference that --against allows; default: 0", "number"),
    Flag("rtol", "relative difference that --against allows; default: 0", "number"),
    Flag("report", "show ops, bytes moved, LX used, arithmetic, time", "table|json", "table", ("table", "json")),
    Flag("profile", "show the time per line of the text"),
    Flag("print-op-values", "show what each op makes, or each whose name matches", "regex", ""),
    Flag("break", "stop before the ops on this line and show values", "line", repeated=True),
    Flag("commands", "where the commands at breakpoints come from; - is stdin. Default: the terminal, if stdin is one", "file"),
    Flag("quiet", "do not show the arrays"),
    Flag("stage", "compile the program to this level, or up to this pass, and run it there on the same arrays", "name"),
    Flag(
        "engine",
        "what runs it: the KTIR executor, or the emulated machine after the whole compilation",
        "ktir|spyre",
        None,
        ("ktir", "spyre"),
    ),
    Flag("target", "the machine that --stage and --engine compile for: datasheet, fitted, or a .toml file", "name"),
    Flag("cores", "how many cores --stage and --engine compile for; default: those of the configuration", "number"),
    Flag(
        "way",
        "what they make of a grid: pin it, lift it to have its work divided anew, or auto, the faster one; default: pin",
        "pin|lift|auto",
        choices=("pin", "lift", "auto"),
    ),
    Flag("tolerance", "relative difference that sums in another order may make, for --way=auto; default: 0", "number"),
    Flag(
        "addresses",
        "what addresses of memory count that are numbers in the text; --mem counts elements",
        "element|stick|byte",
        "element",
        ("element", "stick", "byte"),
    ),
    Flag("strict", "old spellings and programs that are hardly meant are errors"),
    Flag("help", "show this and stop"),
    Flag("version", "show the version and stop"),
)
ALL_FLAGS = (*FLAGS, *policy_flags())
_OWNERS = dict.fromkeys(("cores", "target", "way"), ("stage", "engine")) | {
    "tolerance": ("way",),
    "atol": ("against",),
    "rtol": ("against",),
    "commands": ("break",),
}
"""Flags that say nothing without one of others."""
_OF_THE_TEXT = ("print-op-values", "break", "profile", "func", *(f.name for f in policy_flags()))


def usage() -> str:
    forms = "\n".join(f"  {line}" for line in FORMS.split("\n"))
    return (
        "usage: ktir-run FILE.mlir [--func F] --arg NAME=VALUE ... [options]\n\n"
        f"{help_text(FLAGS)}\n\nWhat the execution guarantees and reports:\n{help_text(policy_flags())}\n\nVALUE is one of\n{forms}\n\n"
        "Exit status: 0 done, and equal to the reference; 1 different; 2 could not run."
    )


class Driver:
    """One run of the program."""

    def __init__(self, line: CommandLine) -> None:
        self.line = line
        if line.others:
            name = line.others[0][0]
            raise UsageError(f"unknown command line argument '--{name}'{near(name, [f.name for f in ALL_FLAGS])[:60]}")
        if len(line.positional) != 1:
            raise UsageError("expected one input file" + (f", but got {', '.join(line.positional)}" if line.positional else ""))
        self.source = line.positional[0]
        self.shown_source = "<stdin>" if self.source == "-" else self.source
        self.policy = policy_of(line)
        self.atol, self.rtol = line.real("atol", 0.0), line.real("rtol", 0.0)
        self.seed = line.number("random")
        self.given = pairs("arg", line.every.get("arg", []), "NAME=VALUE")
        self.memory = pairs("mem", line.every.get("mem", []), "PLACE=VALUE")
        places = [address("mem", name) for name in self.memory]
        if len(set(places)) < len(places):
            raise UsageError("two --mem give the same place")
        self.outputs = self._outputs(line.every.get("out", []))
        self.staged = "stage" in line.values or line.values.get("engine") == "spyre"
        self._check_stage()
        self.progress: Progress | None = Progress() if sys.stderr.isatty() else None
        self.profile: Profile | None = None
        self.debugger: Debugger | None = None

    def _check_stage(self) -> None:
        """Raises UsageError for an unknown stage, and for options that need the program as it stands in the text."""
        stage = self.line.values.get("stage")
        if stage is not None and stage not in (known := _stages()):
            raise UsageError(f"'--stage={stage}': expected one of {', '.join(known)}{close_to(stage, known)}")
        if stage is not None and self.line.values.get("engine") == "spyre":
            raise UsageError("'--engine=spyre' runs what the whole compilation gives; leave out --stage")
        given = [name for name, value in self.line.values.items() if (name, value) != ("engine", "ktir")] + list(self.line.every)
        for name in given:
            if not any(owner in given for owner in _OWNERS.get(name, given)):
                raise UsageError(f"'--{name}' belongs to --{' or --'.join(_OWNERS[name])}")
            if self.staged and name in _OF_THE_TEXT:
                raise UsageError(f"'--{name}' is about the program in the text, which --stage and --engine compile to another one")

    @staticmethod
    def _outputs(texts: Sequence[str]) -> dict[str, str]:
        """Name -> file; the empty name stands for all."""
        whole = [text for text in texts if text.startswith("@")]
        found = pairs("out", [text for text in texts if text not in whole], "NAME=@FILE")
        if len(whole) > 1:
            raise UsageError(f"'--out {whole[1]}': all arrays are written to '{whole[0][1:]}' already")
        if whole:
            found[""] = whole[0]
        for name, file in found.items():
            if not file.startswith("@") or len(file) == 1:
                raise UsageError(f"'--out {name}={file}': expected a file, as in --out {name or 'y'}=@y.npy")
        return {name: file[1:] for name, file in found.items()}

    def run(self) -> int:
        data = read(self.source)
        text = "" if data.startswith(BYTECODE) else decoded(data, self.source)
        names = Names(text, self.shown_source)
        with ExitStack() as inside:
            inside.enter_context(context())
            inside.enter_context(ir.Location.unknown())
            unit = self.line.values.get("addresses", "element")
            module = _module(data, text, self.shown_source, unit, strict=self.line.on("strict"))
            host = _host(module) if self.staged else None
            function = choose_function(module, self.line.values.get("func"), self.shown_source)
            call = match_arguments(module, function, text, self.shown_source, self.given, self.memory, self.seed, host)
            self._check_outputs(call)
            reference = self._reference(call)
            if self.staged:
                machine = self._run_staged(module, call)
                self._write(call)
                self._show_staged(call, machine)
                return self._compare(call, reference) if reference is not None else 0
            observers = self._observers(names, inside)
            try:
                report = execute(
                    text if text and unit == "element" else module,  # messages have the names that stand in the text
                    function,
                    call.values,
                    policy=self.policy,
                    memory=call.memory,
                    source=self.shown_source,
                    observer=Together(observers) if observers else None,
                )
            finally:
                if self.progress is not None:
                    self.progress.clear()
        self._write(call)
        self._show(call, report)
        return self._compare(call, reference) if reference is not None else 0

    def _run_staged(self, module: ir.Module, call: Arguments) -> MachineReport | None:
        from ktir.checking.staged import run_at_stage

        values, tolerance = self.line.values, self.line.real("tolerance", 0.0)
        way: Any = values.get("way", "pin")
        engine, cores, options = "spyre" if values.get("engine") == "spyre" else "ktir", self.line.number("cores"), config.current()
        stage, target = values.get("stage", "logical"), values.get("target")
        if target is not None or NAME not in module.operation.attributes:
            set_target(module, options.machine() if target is None else find(target))
        cores = options.fewer_cores() if cores is None else cores
        run = partial(run_at_stage, stage=stage, engine=engine, cores=cores, memory=call.memory, way=way, tolerance=tolerance)
        return run(module, call.values)

    # Before

    def _check_outputs(self, call: Arguments) -> None:
        known = call.arrays()
        for name, file in self.outputs.items():
            if name and name not in known:
                raise UsageError(f"'--out {name}=@{file}': there is no array '{name}'{near(name, known)}")
            folder = Path(file).absolute().parent
            if not folder.is_dir() or Path(file).is_dir():
                raise UsageError(
                    f"cannot open output file '{file}': {'Is a directory' if folder.is_dir() else 'No such file or directory'}"
                )

    def _reference(self, call: Arguments) -> dict[str, NDArray[np.generic]] | None:
        file = self.line.values.get("against")
        if file is None:
            return None
        found, arrays = archive("reference", file), call.arrays()
        if isinstance(found, np.ndarray):
            written = [p.name for p in call.parameters if p.role in ("output", "input_output") and p.name in arrays]
            if len(written) != 1:
                raise UsageError(f"'--against {file}' is one array, but there are {len(written)} to compare with; give a .npz with names")
            found = {written[0]: found}
        if not found:
            raise UsageError(f"'--against {file}': the archive is empty")
        for name, wanted in found.items():
            if name not in arrays:
                raise UsageError(f"'--against {file}': there is no array '{name}'{near(name, arrays)}")
            if wanted.shape != arrays[name].shape and wanted.size != arrays[name].size:
                raise UsageError(
                    f"'--against {file}': '{name}' has shape {list(wanted.shape)}, but the kernel's is {list(arrays[name].shape)}"
                )
        return found

    def _observers(self, names: Names, inside: ExitStack) -> list[Observer]:
        found: list[Observer] = []
        pattern = self.line.values.get("print-op-values")
        if pattern is not None:
            try:
                found.append(OpValues(names, sys.stdout, re.compile(pattern) if pattern else None))
            except re.error as error:
                raise UsageError(f"'--print-op-values={pattern}': {error}") from None
        if "break" in self.line.every:
            self.debugger = Debugger(names, self._lines(names), self._commands(inside), sys.stdout)
            found.append(self.debugger)
        if self.line.on("profile"):
            self.profile = Profile(names)
            found.append(self.profile)
        if self.progress is not None:
            found.append(self.progress)
        return found

    def _lines(self, names: Names) -> list[int]:
        lines = []
        for text in self.line.every["break"]:
            number = text.rpartition(":")[2] if text.startswith(f"{self.source}:") else text
            if not number.isdecimal() or not 1 <= int(number) <= len(names.lines):
                raise UsageError(f"'--break={text}': expected the number of a line of '{self.source}', which has {len(names.lines)}")
            lines.append(int(number))
        return lines

    def _commands(self, inside: ExitStack) -> Callable[[str], str | None]:
        """What reads the next command of a breakpoint."""
        file = self.line.values.get("commands")
        if file is None:
            return _from_terminal if sys.stdin.isatty() and self.source != "-" else lambda prompt: None
        if file == "-":
            if self.source == "-":
                raise UsageError("the module and the commands cannot both come from stdin")
            source: TextIO = sys.stdin
        else:
            try:
                source = inside.enter_context(open(file, encoding="utf-8", errors="replace"))
            except OSError as error:
                raise UsageError(f"cannot open input file '{file}': {error.strerror}") from None

        def next_line(prompt: str) -> str | None:
            line = source.readline()
            return line.rstrip("\n") if line else None

        return next_line

    # After

    def _write(self, call: Arguments) -> None:
        arrays = call.arrays()
        for name, file in self.outputs.items():
            if name:
                write_array(f"'{name}'", file, arrays[name])
                continue
            try:
                with open(file, "wb") as target:
                    np.savez(target, allow_pickle=False, **arrays)
            except OSError as error:
                raise SourceError(f"cannot write '{file}': {error.strerror}") from None

    def _show(self, call: Arguments, report: Report) -> None:
        form = self.line.values.get("report")
        if form == "json":
            print(json.dumps(_as_json(report), indent=2))
        elif form == "table":
            print(_as_table(report))
        if self.debugger is not None and (never := sorted(self.debugger.asked - self.debugger.reached)):
            lines = ", ".join(map(str, never))
            print(f"{self.shown_source}: warning: no op of line {lines} was executed", file=sys.stderr)
        if self.profile is not None:
            print(self.profile.report(report.seconds, report.prepare_seconds))
        self._show_arrays(call)

    def _show_staged(self, call: Arguments, machine: MachineReport | None) -> None:
        if (form := self.line.values.get("report")) is not None:
            if machine is None:
                raise UsageError("'--report' shows the program in the text, or with --engine=spyre the machine")
            print(json.dumps(plain(machine), indent=2) if form == "json" else machine)
        self._show_arrays(call)

    def _show_arrays(self, call: Arguments) -> None:
        if self.line.on("quiet") or self.outputs or self.line.values.get("report") == "json":
            return
        shown = {p.name for p in call.parameters if p.role in ("output", "input_output")}
        for name, array in call.arrays().items():
            if name in shown or ":" in name:
                element = call.elements.get(name) or str(array.dtype)
                print(f"{name}: {element}[{','.join(map(str, array.shape))}] = {brief(readable(array, element))}")

    def _compare(self, call: Arguments, reference: dict[str, NDArray[np.generic]]) -> int:
        arrays, status = call.arrays(), 0
        for name, wanted in reference.items():
            element = call.elements.get(name)
            found = readable(arrays[name], element)
            wanted = readable(wanted, element) if wanted.dtype == arrays[name].dtype else wanted
            difference = compare(wanted.reshape(found.shape), found, atol=self.atol, rtol=self.rtol)
            if difference is not None:
                status = 1
                lines = [f"{self.shown_source}: error: {difference.describe(name)} (relative {difference.relative:.3g})"]
                print("\n".join([*lines, *(f"  {line}" for line in difference.listing(name))]), file=sys.stderr)
        if not status:
            print(f"equal to {self.line.values['against']}: {', '.join(reference)}", file=sys.stderr)
        return status


def _module(data: bytes, text: str, source: str, unit: Any, *, strict: bool) -> ir.Module:
    """What is to run, from text or bytecode whose addresses count a unit, an option of the pass. Raises KtirError."""
    module = parse_bytecode(data, source) if data and not text else parse_module(text, source, strict=strict)
    refuse_illegal_exchanges(checked(module))
    RescaleAddressesPass(unit).run(module)
    return module


def _host(module: ir.Module) -> list[Parameter] | None:
    from ktir.checking.staged import host_parameters

    return host_parameters(module)


def _stages() -> tuple[str, ...]:
    from ktir.checking.staged import stages

    return stages()


def _from_terminal(prompt: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        return "quit"


def _as_json(report: Report) -> dict[str, object]:
    return {
        "ops": report.ops,
        "bytes_read": dict(report.bytes_read),
        "bytes_written": dict(report.bytes_written),
        "channel_bytes_read": report.channel_bytes_read,
        "views": {view: {"read": read, "written": written} for view, (read, written) in report.views.items()},
        "arithmetic": dict(report.arithmetic),
        "lx_peak_bytes": report.lx_peak_bytes,
        "lx_peaks": list(report.lx_peaks),
        "seconds": report.seconds,
        "prepare_seconds": report.prepare_seconds,
    }


def _as_table(report: Report) -> str:
    rows = [
        ("ops", f"{report.ops:,}", ""),
        ("time", f"{1e3 * report.seconds:.3f} ms", f"prepared in {1e3 * report.prepare_seconds:.3f} ms"),
    ]
    rows.append(("LX used", f"{report.lx_peak_bytes:,} B", "on the tile that uses most"))
    for space in report.bytes_read:
        rows.append((f"{space}", f"{report.bytes_read[space]:,} B", f"read; {report.bytes_written[space]:,} B written"))
    rows.append(("channel", f"{report.channel_bytes_read:,} B", "read; what several tiles load at once counts once"))
    rows += [(view, f"{read:,} B", f"read; {written:,} B written") for view, (read, written) in report.views.items()]
    rows += [(op, f"{count:,}", "scalar operations") for op, count in sorted(report.arithmetic.items(), key=lambda item: -item[1])]
    left, middle = (max(len(row[k]) for row in rows) for k in range(2))
    return "\n".join(f"{a:<{left}}  {b:>{middle}}  {c}".rstrip() for a, b, c in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the driver with `arguments` (default: those of the process); the exit status."""
    source = ""
    if arguments is None:
        at_most_what_there_is()
    try:
        line = parse(sys.argv[1:] if arguments is None else arguments, ALL_FLAGS)
        if line.on("help"):
            print(usage())
            return 0
        if line.on("version"):
            print(f"ktir-run {__version__}")
            return 0
        driver = Driver(line)
        source = driver.shown_source
        status = driver.run()
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"ktir-run: error: {error}", file=sys.stderr)
    except BrokenPipeError:  # whoever read the output has had enough; keep the interpreter from trying again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KtirError as error:
        print(error if error.location else f"{source}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("ktir-run: interrupted", file=sys.stderr)
    except MemoryError:
        print(f"{source}: error: {NOTHING_LEFT}", file=sys.stderr)
    except Exception as error:  # a fault of ours
        print(f"ktir-run: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
