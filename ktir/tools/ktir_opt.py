"""`ktir-opt`: reads KTIR, runs passes over it, prints KTIR.

The IR goes to stdout (or `-o`), everything else to stderr; the status is 1 if anything was wrong.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ktir import __version__, registry
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, remarks
from ktir.mlir import ir
from ktir.pipeline import (
    MlirPass,
    Pipeline,
    Reproducer,
    Step,
    nested_as_needed,
    parse_pipeline,
    read_reproducer,
    run_pipeline,
)
from ktir.tools._expected import mismatches
from ktir.tools._flags import CommandLine, Flag, UsageError, help_text, parse
from ktir.tools._watch import Clock, Dumps

FLAGS = (
    Flag("o", "where to write the IR; default: stdout", "file"),
    Flag("pass-pipeline", "passes to run, as builtin.module(a,b{x=1})", "text"),
    Flag("split-input-file", "take the parts of the input between '// -----' lines one by one", "marker", "// -----"),
    Flag("verify-diagnostics", "compare what is reported with expected-error comments", "all|only-expected", "all"),
    Flag("allow-unregistered-dialect", "accept ops of unknown dialects"),
    Flag("verify-each", "verify after each pass; default: true"),
    Flag("verify-roundtrip", "check that the printed text, pretty and generic, reads back to the same module"),
    Flag("mlir-print-ir-before", "show the IR before these passes", "pass,..."),
    Flag("mlir-print-ir-after", "show the IR after these passes", "pass,..."),
    Flag("mlir-print-ir-before-all", "show the IR before each pass"),
    Flag("mlir-print-ir-after-all", "show the IR after each pass"),
    Flag("mlir-print-ir-after-change", "with the flags above: only where a pass changed it"),
    Flag("mlir-print-ir-after-failure", "show the IR when a pass fails"),
    Flag("mlir-print-op-generic", "print ops in generic form"),
    Flag("mlir-print-debuginfo", "print locations"),
    Flag("mlir-print-local-scope", "print without aliases"),
    Flag("mlir-timing", "show where the time went"),
    Flag("mlir-pass-pipeline-crash-reproducer", "where to leave the module and pass that fail", "file"),
    Flag("run-reproducer", "run the pipeline that stands in the input"),
    Flag("remarks", "show what passes report of their decisions"),
    Flag("dump-pass-pipeline", "show the pipeline on stderr"),
    Flag("list-passes", "list our passes and stop"),
    Flag("show-dialects", "list the dialects and stop"),
    Flag("help", "show this and stop"),
    Flag("version", "show the version and stop"),
    # Accepted because tests written for MLIR's drivers give them; there is nothing to switch here.
    Flag("mlir-disable-threading", "no effect: there are no threads"),
    Flag("mlir-print-ir-module-scope", "no effect: the module is always shown"),
)

UPSTREAM_DIALECTS = (
    "acc affine amdgpu amx arith arm_neon arm_sme arm_sve async bufferization builtin cf complex dlti emitc func gpu index irdl linalg "
    "llvm math memref ml_program mpi nvgpu nvvm omp pdl pdl_interp ptr quant rocdl scf shape shard smt sparse_tensor spirv tensor tosa "
    "transform ub vector wasmssa x86 x86vector xegpu xevm"
).split()


@dataclass(frozen=True)
class Part:
    """A part of the input that is processed on its own; `first_line` is the number of its first line."""

    text: str
    first_line: int = 1


class Driver:
    """One run of the program."""

    def __init__(self, line: CommandLine) -> None:
        self.line = line
        self.source = line.positional[0] if line.positional else "-"
        self.shown_source = "<stdin>" if self.source == "-" else self.source
        self.clock = Clock()
        expected = line.values.get("verify-diagnostics")
        self.checking = expected is not None
        self.only_expected = expected == "only-expected"
        self.text_lines: list[str] = []

    def run(self) -> int:
        text = self.read()
        self.text_lines = text.split("\n")
        self.clock.lap("Read")
        outputs: list[str] = []
        status = 0
        for part in self.parts(text):
            output, faults = self.process(part)
            if faults:
                status = 1
                self.report(faults)
            if output is not None:
                outputs.append(output)
        if outputs or not status:
            self.write("// -----\n".join(outputs), failed=status != 0)
        self.clock.lap("Output")
        if self.line.on("mlir-timing"):
            print(self.clock.report(), file=sys.stderr)
        return status

    def read(self) -> str:
        try:
            return sys.stdin.read() if self.source == "-" else Path(self.source).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot open input file '{self.source}': {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"input file '{self.source}' is not UTF-8 text") from None

    def parts(self, text: str) -> Iterator[Part]:
        marker = self.line.values.get("split-input-file")
        if marker is None:
            yield Part(text)
            return
        first_line = 1
        for part in re.split(rf"(?m)^{re.escape(marker)}[ \t]*$\n?", text):
            yield Part(part, first_line)
            first_line += part.count("\n") + 1

    def write(self, text: str, failed: bool) -> None:
        target = self.line.values.get("o", "-")
        if target == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        elif not failed:
            try:
                Path(target).write_text(text, encoding="utf-8")
            except OSError as error:
                raise UsageError(f"cannot open output file '{target}': {error.strerror}") from None

    def process(self, part: Part) -> tuple[str | None, list[Diagnostic]]:
        """The printed result, None if there is none, and what is to be reported."""
        reported: list[Diagnostic] = []
        output = None
        unregistered = self.line.on("allow-unregistered-dialect")
        with context(allow_unregistered=unregistered, dialects=self.dialects(part)), ir.Location.unknown(), remarks() as said:
            try:
                output = self.transform(part, reported)
            except KtirError as error:
                reported += error.diagnostics
                if error.pass_name and not self.checking:
                    reported.append(Diagnostic("note", f"in pass '{error.pass_name}'"))
            if self.line.on("remarks"):
                reported += [Diagnostic("remark", f"[{r.pass_name}] {r.message}", r.location) for r in said]
        if self.checking:
            return output, list(mismatches(part.text, part.first_line, reported, self.shown_source, self.only_expected))
        errors = [d for d in reported if d.severity in ("error", "note")]
        self.report([d for d in reported if d not in errors])
        return output, errors

    def dialects(self, part: Part) -> list[str]:
        """Our dialects that the part can need. Importing the others would be a good part of the run time of small tests."""
        asked = f"{self.line.values.get('pass-pipeline', '')} {' '.join(name for name, _ in self.line.others)}"
        ours = any(name in asked for name in registry.pass_modules()) or self.line.on("run-reproducer")
        return [name for name in registry.dialect_names() if ours or f"{name}." in part.text]

    def transform(self, part: Part, reported: list[Diagnostic]) -> str:
        text, pipeline, verify_each = self.task(part)
        module = parse_module(text, self.shown_source, first_line=part.first_line, diagnostics=reported)
        self.clock.lap("Parser")
        if self.line.on("verify-roundtrip"):
            check_round_trip(module)
            self.clock.lap("Round trip")
        if self.line.on("dump-pass-pipeline"):
            print(f"Pass Manager with {len(pipeline.steps)} passes:\n{pipeline}", file=sys.stderr)
        dumps = self.dumps()

        def before(step: Step, module: ir.Module) -> None:
            dumps.before_each(step, module)
            self.clock.lap("Rest")

        def after(step: Step, module: ir.Module) -> None:
            self.clock.lap(str(step))
            dumps.after_each(step, module)

        path = self.line.values.get("mlir-pass-pipeline-crash-reproducer")
        try:
            run_pipeline(
                module,
                pipeline,
                verify_each=verify_each,
                before_each=before,
                after_each=after,
                reproducer=Reproducer(Path(path), lambda m: print_module(m, debuginfo=True)) if path else None,
                diagnostics=reported,
            )
        except KtirError:
            if self.line.on("mlir-print-ir-after-failure"):
                dumps.failed(module)
            raise
        self.clock.lap("Rest")
        return self.show(module)

    def task(self, part: Part) -> tuple[str, Pipeline, bool]:
        """The module's text, what to run on it, and whether to verify after each pass."""
        if not self.line.on("run-reproducer"):
            return part.text, self.pipeline(), self.line.values.get("verify-each", "true") == "true"
        asked = read_reproducer(part.text)
        if asked is None:
            raise KtirError("the input is no reproducer: it has no 'mlir_reproducer' section", f"{self.shown_source}:1:1")
        return asked.text, asked.pipeline, asked.verify_each

    def pipeline(self) -> Pipeline:
        """The passes that the command line gives."""
        text, flags = self.line.values.get("pass-pipeline"), self.line.others
        if text is not None and flags:
            raise UsageError(f"'--pass-pipeline' and '--{flags[0][0]}' cannot be given together")
        if text is not None:
            return parse_pipeline(text)
        steps: list[Step] = []
        for name, options in flags:
            if registry.pass_class(name):
                steps += parse_pipeline(f"{name}{{{options}}}").steps
                continue
            step = Step(MlirPass(f"{name}{{{options}}}" if options else name))
            try:
                steps.append(nested_as_needed(step, ir.Context.current))
            except KtirError as error:
                if "does not refer to a registered pass" in error.message:
                    raise UsageError(f"unknown command line argument '--{name}'; try 'ktir-opt --help'") from None
                raise
        return Pipeline(tuple(steps))

    def dumps(self) -> Dumps:
        line = self.line
        only_changes = line.on("mlir-print-ir-after-change")
        after_all = line.on("mlir-print-ir-after-all") or (only_changes and not line.list("mlir-print-ir-after"))
        return Dumps(
            self.show,
            None if line.on("mlir-print-ir-before-all") else line.list("mlir-print-ir-before"),
            None if after_all else line.list("mlir-print-ir-after"),
            only_changes,
        )

    def show(self, module: ir.Module) -> str:
        return print_module(
            module,
            generic=self.line.on("mlir-print-op-generic"),
            debuginfo=self.line.on("mlir-print-debuginfo"),
            local_scope=self.line.on("mlir-print-local-scope"),
        )

    def report(self, diagnostics: list[Diagnostic]) -> None:
        """Prints diagnostics on stderr, each with its source line where it has one."""
        for diagnostic in diagnostics:
            print(
                f"{diagnostic.location + ': ' if diagnostic.location else ''}{diagnostic.severity}: {diagnostic.message}", file=sys.stderr
            )
            file, line, column = (diagnostic.location or "::").rsplit(":", 2)
            if file == self.shown_source and int(line) <= len(self.text_lines):
                print(self.text_lines[int(line) - 1] + "\n" + " " * (int(column) - 1) + "^", file=sys.stderr)
            self.report(list(diagnostic.notes))


def check_round_trip(module: ir.Module) -> None:
    """Raises KtirError unless both printed forms of `module` read back to the same module."""
    for generic in (False, True):
        text = print_module(module, generic=generic, debuginfo=True)
        if print_module(parse_module(text), generic=generic, debuginfo=True) != text:
            raise KtirError(f"the {'generic' if generic else 'pretty'} text of the module does not read back to the same module")


def list_passes() -> str:
    rows = []
    for name, cls in registry.pass_classes().items():
        rows.append(f"  --{name:<28} {cls.description}")
        rows += [f"      {key}={value}" for key, value in options_of(cls).items()]
    return "\n".join(["Passes (MLIR's own are accepted by name too):", *rows])


def options_of(cls: type) -> dict[str, str]:
    """Option name -> default of a pass class."""
    return {key.replace("_", "-"): str(value) for key, value in vars(cls()).items()}


def show_dialects() -> str:
    new = context()
    names = [name for name in UPSTREAM_DIALECTS if new.is_dialect_loaded(name)]
    return "Available Dialects: " + ",".join(sorted([*names, *registry.dialect_names()]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the driver with `arguments` (default: those of the process); the exit status."""
    try:
        line = parse(sys.argv[1:] if arguments is None else arguments, FLAGS)
        if line.on("help"):
            print(f"usage: ktir-opt [options] [file or -]\n\n{help_text(FLAGS)}\n\n{list_passes()}")
        elif line.on("version"):
            print(f"ktir-opt {__version__}")
        elif line.on("list-passes"):
            print(list_passes())
        elif line.on("show-dialects"):
            print(show_dialects())
        elif len(line.positional) > 1:
            raise UsageError(f"more than one input file: {', '.join(line.positional)}")
        else:
            return Driver(line).run()
    except UsageError as error:
        print(f"ktir-opt: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has had enough; keep the interpreter from trying again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
