"""`ktir-opt`: reads KTIR, runs passes over it, prints KTIR.

The IR goes to stdout (or `-o`), everything else to stderr; the status is 1 if anything was wrong.
"""

import atexit
import gc
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ktir import registry
from ktir.assembly import parse_module, print_module
from ktir.assembly.names import TextNames
from ktir.context import UPSTREAM_DIALECTS, context
from ktir.diagnostics import Diagnostic, KtirError, Remark, remarks, statistics
from ktir.dialects.module_target import set_target
from ktir.mlir import ir, operations
from ktir.pipeline import (
    Pass,
    Pipeline,
    Reproducer,
    Step,
    check_pipeline,
    is_of_mlir,
    read_reproducer,
    run_pipeline,
)
from ktir.targets import find
from ktir.tools.memory import NOTHING_LEFT, at_most_what_there_is
from ktir.tools.shared.asked import check_shown, dumps_of, pipeline_of, stopped
from ktir.tools.shared.expected import mismatches
from ktir.tools.shared.flags import CommandLine, UsageError, help_text, parse
from ktir.tools.shared.input import BYTECODE, Part, checked, decoded, parse_bytecode, parts, read
from ktir.tools.shared.remarks import Selection, yaml
from ktir.tools.shared.show import Printing, keep_names
from ktir.tools.shared.table import FLAGS
from ktir.tools.shared.watch import Clock, Statistics
from ktir.version import __version__

if TYPE_CHECKING:
    from ktir.checking.semantics import SemanticsCheck


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
        self.printing = Printing.of(line)
        self.dumps = dumps_of(line, self.printing.text)
        self.statistics = Statistics({})
        self.selection = Selection.of(line)
        self.said: list[Remark] = []
        self.asked: Pipeline | None = None

    def run(self) -> int:
        outputs: list[bytes] = []
        status = 0
        for part in self.parts():
            output, faults = self.process(part)
            if faults:
                status = 1
                self.report(faults)
            if output is not None:
                outputs.append(output)
        if outputs or not status:
            marker = self.line.values.get("output-split-marker", "// -----")
            self.write((marker + "\n" if marker else "").encode().join(outputs), failed=status != 0)
        self.clock.lap("Output")
        self.summarise()
        return status

    def parts(self) -> list[Part]:
        data = read(self.source)
        self.clock.lap("Read")
        if data.startswith(BYTECODE):
            return [Part("", bytecode=data)]
        text = decoded(data, self.source)
        self.text_lines = text.split("\n")
        return list(parts(text, self.line.values.get("split-input-file")))

    def write(self, data: bytes, failed: bool) -> None:
        target = self.line.values.get("o", "-")
        if target == "-":
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif not failed:
            try:
                Path(target).write_bytes(data)
            except (OSError, ValueError) as error:
                raise UsageError(f"cannot open output file '{target}': {getattr(error, 'strerror', None) or error}") from None

    def summarise(self) -> None:
        """Timing and statistics."""
        if self.line.on("mlir-timing"):
            by_time = self.line.values.get("mlir-timing-display") == "list"
            json = self.line.values.get("mlir-output-format") == "json"
            print(self.clock.json(by_time) if json else self.clock.report(by_time), file=sys.stderr)
        if self.line.on("mlir-pass-statistics"):
            print(self.statistics.report(self.line.values.get("mlir-pass-statistics-display") != "pipeline"), file=sys.stderr)
        if "remarks-output-file" in self.line.values:
            text = yaml(self.said) if self.line.values.get("remark-format") == "yaml" else "".join(f"{r}\n" for r in self.said)
            Path(self.line.values["remarks-output-file"]).write_text(text, encoding="utf-8")

    def process(self, part: Part) -> tuple[bytes | None, list[Diagnostic]]:
        """The printed result, None if there is none, and what is to be reported. Raises KtirError for a faulty pipeline."""
        reported: list[Diagnostic] = []
        output = None
        with ExitStack() as inside:
            new = context(allow_unregistered=self.line.on("allow-unregistered-dialect"), dialects=self.dialects(part))
            inside.enter_context(new)
            inside.enter_context(ir.Location.unknown())
            said = inside.enter_context(remarks())
            self.statistics.counted = inside.enter_context(statistics())
            if self.asked is None:
                self.asked = stopped(pipeline_of(self.line), self.line)
                check_pipeline(self.asked, new)
                check_shown(self.line, self.asked, new)
            try:
                output = self.transform(part, reported)
            except KtirError as error:
                reported += error.diagnostics
                if error.pass_name and not self.checking:
                    reported.append(Diagnostic("note", f"in pass '{error.pass_name}'"))
            reported += self.picked(said)
        if self.checking:
            return output, list(mismatches(part.text, part.first_line, reported, self.shown_source, self.only_expected))
        errors = [d for d in reported if d.severity in ("error", "note")]
        self.report([d for d in reported if d not in errors])
        return output, errors

    def picked(self, said: list[Remark]) -> list[Diagnostic]:
        """The remarks that are to be shown among the diagnostics."""
        chosen = self.selection.pick(said)
        if "remarks-output-file" in self.line.values:
            self.said += chosen
            return []
        if self.line.values.get("remark-format") == "yaml" and not self.checking:
            sys.stderr.write(yaml(chosen))
            return []
        return [Diagnostic("remark", f"[{r.pass_name}] {r.message}", r.location) for r in chosen]

    def dialects(self, part: Part) -> list[str]:
        """Our dialects that the part can need. Importing the others would be a good part of the run time of small tests."""
        asked = f"{self.line.values.get('pass-pipeline', '')} {' '.join(name for name, _ in self.line.others)}"
        ours = (
            any(name in asked for name in (*registry.pass_modules(), *registry.plugin_names()))
            or self.line.on("run-reproducer")
            or part.bytecode is not None
        )
        return [name for name in registry.dialect_names() if ours or f"{name}." in part.text]

    def transform(self, part: Part, reported: list[Diagnostic]) -> bytes:
        text, pipeline, verify_each = self.task(part)
        module = self.parse(part, text, reported)
        bare = part.bytecode is None and self.line.on("no-implicit-module") and is_implicit(module)
        if bare and len(top := module.body.operations) != 1:
            place = top[1].location if len(top) > 1 else f"{self.shown_source}:{part.first_line}:1"
            raise KtirError(f"the source must contain a single op at the top, but has {len(top)}", place)
        if "target" in self.line.values:
            set_target(module, find(self.line.values["target"]))
        self.clock.lap("Parser")
        if self.line.on("verify-roundtrip"):
            check_round_trip(module)
            self.clock.lap("Round trip")
        if self.line.on("dump-pass-pipeline"):
            print(f"Pass Manager with {len(pipeline.steps)} passes:\n{pipeline}", file=sys.stderr)
        if path := self.line.values.get("mlir-generate-reproducer"):
            Reproducer(Path(path), _with_locations).write(module, pipeline, verify_each)
        self.execute(part, module, pipeline, verify_each, reported)
        _readable(module, pipeline)
        return self.output([op.operation for op in module.body.operations] if bare else [module.operation])

    def parse(self, part: Part, text: str, reported: list[Diagnostic]) -> ir.Module:
        if part.bytecode is not None:
            return checked(parse_bytecode(part.bytecode, self.shown_source))
        module = parse_module(
            text,
            self.shown_source,
            first_line=part.first_line,
            diagnostics=reported,
            strict=self.line.on("strict"),
            warn_deprecated=self.line.on("warn-deprecated"),
        )
        checked(module)
        if self.line.on("keep-names"):
            keep_names(module, text, self.shown_source, part.first_line)
        return module

    def execute(self, part: Part, module: ir.Module, pipeline: Pipeline, verify_each: bool, reported: list[Diagnostic]) -> None:
        """Runs the passes, and shows what is asked for of their work."""
        counting = self.line.on("mlir-pass-statistics")
        semantics = self.semantics(module, part) if "check-semantics" in self.line.values else None

        def before(step: Step, module: ir.Module) -> None:
            self.dumps.before_each(step, module)
            if counting:
                self.statistics.before_each(module)
            self.clock.lap("Rest")

        def after(step: Step, module: ir.Module) -> None:
            self.clock.lap(str(step))
            self.dumps.after_each(step, module)
            if counting:
                self.statistics.after_each(step, module)
            if semantics is not None:
                semantics.after(step, module)
                self.clock.lap("Semantics")

        path = self.line.values.get("mlir-pass-pipeline-crash-reproducer")
        try:
            run_pipeline(
                module,
                pipeline,
                verify_each=verify_each,
                before_each=before,
                after_each=after,
                reproducer=Reproducer(Path(path), _with_locations) if path else None,
                diagnostics=reported,
            )
        except KtirError:
            if self.line.on("mlir-print-ir-after-failure"):
                self.dumps.failed(module)
            raise
        finally:
            reported += semantics.said if semantics is not None else []
        self.clock.lap("Rest")

    def semantics(self, module: ir.Module, part: Part) -> "SemanticsCheck":
        """The check of the values that passes leave; the module is executed as it is."""
        from ktir.checking.semantics import SemanticsCheck
        from ktir.tools.shared.sources import archive

        file = self.line.values["check-semantics"]
        given = archive("inputs", file) if file else {}
        if not isinstance(given, dict):
            raise UsageError(f"'--check-semantics={file}': expected an archive, a .npz file with an array per argument")
        check = SemanticsCheck(module, given, TextNames(part.text, part.first_line), self.shown_source)
        self.clock.lap("Semantics")
        return check

    def output(self, ops: list[ir.Operation]) -> bytes:
        if not self.line.on("emit-bytecode"):
            return "".join(map(self.printing.text, ops)).encode()
        if len(ops) != 1:
            raise KtirError(f"bytecode holds a single op, but there are {len(ops)}")
        written = io.BytesIO()
        ops[0].write_bytecode(written)
        return written.getvalue()

    def task(self, part: Part) -> tuple[str, Pipeline, bool]:
        """The module's text, what to run on it, and whether to verify after each pass."""
        if not self.line.on("run-reproducer"):
            assert self.asked is not None
            return part.text, self.asked, self.line.values.get("verify-each", "true") == "true"
        asked = read_reproducer(part.text)
        if asked is None:
            raise KtirError("the input is no reproducer: it has no 'mlir_reproducer' section", f"{self.shown_source}:1:1")
        return asked.text, asked.pipeline, asked.verify_each

    def report(self, diagnostics: list[Diagnostic]) -> None:
        """Prints diagnostics on stderr, each with its source line where it has one."""
        for diagnostic in diagnostics:
            if diagnostic.severity == "note" and self.line.on("mlir-disable-diagnostic-notes"):
                continue
            print(
                f"{diagnostic.location + ': ' if diagnostic.location else ''}{diagnostic.severity}: {diagnostic.message}", file=sys.stderr
            )
            file, _, place = (diagnostic.location or "").partition(f"{self.shown_source}:")
            if (at := re.fullmatch(r"(\d+):(\d+)", place)) and not file and 1 <= int(at[1]) <= len(self.text_lines):
                print(self.text_lines[int(at[1]) - 1] + "\n" + " " * (int(at[2]) - 1) + "^", file=sys.stderr)
            self.report(list(diagnostic.notes))


def _readable(module: ir.Module, pipeline: Pipeline) -> None:
    """Raise KtirError where passes of others have left attributes with which the text could not be read again."""
    if any(isinstance(s.item, Pass) and not type(s.item).__module__.startswith("ktir.") for s in pipeline):
        from ktir.analysis.attributes.broken import refuse
        from ktir.analysis.attributes.verify import faults

        refuse(faults(module, operations(module)))


def _with_locations(module: ir.Module) -> str:
    return print_module(module, debuginfo=True)


def is_implicit(module: ir.Module) -> bool:
    """Whether the parser has put this module around the ops of the text."""
    location = ir.Location.from_attr(module.operation.location.attr)
    return isinstance(location, ir.FileLineColLoc) and location.start_line == 0


def check_round_trip(module: ir.Module) -> None:
    """Raises KtirError unless both printed forms of `module`, and its bytecode, read back to the same module."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    if print_module(parse_bytecode(written.getvalue(), "-"), debuginfo=True) != print_module(module, debuginfo=True):
        raise KtirError("the bytecode of the module does not read back to the same module")
    for generic in (False, True):
        text = print_module(module, generic=generic, debuginfo=True)
        if print_module(parse_module(text), generic=generic, debuginfo=True) != text:
            raise KtirError(f"the {'generic' if generic else 'pretty'} text of the module does not read back to the same module")


def list_passes() -> str:
    ours, outside = registry.pass_classes(), registry.outside_passes()
    text = "\n".join(["Passes (MLIR's own are accepted by name too):", *_listed(ours)])
    return "\n".join([text, "Passes of plugins:", *_listed(outside)]) if outside else text


def _listed(classes: Mapping[str, type]) -> list[str]:
    rows = []
    for name, cls in classes.items():
        rows.append(f"  --{name:<28} {cls.description}")
        rows += [f"      {line}" for line in textwrap.wrap(contract_of(cls), 112)]
        rows += [f"      {key}={value}" for key, value in options_of(cls).items()]
    return rows


def contract_of(cls: type) -> str:
    """What a pass expects and what it guarantees, from its description; empty if that does not say."""
    blocks = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
    return next((" ".join(block.split()) for block in blocks if block.startswith("Expects")), "")


def options_of(cls: type) -> dict[str, str]:
    """Option name -> default of a pass class."""
    return {key.replace("_", "-"): str(value) for key, value in vars(cls()).items()}


def show_dialects() -> str:
    new = context()
    new.load_all_available_dialects()
    names = [name for name in UPSTREAM_DIALECTS if new.is_dialect_loaded(name)]
    return "Available Dialects: " + ",".join(sorted([*names, *registry.dialect_names()]))


def irdl() -> str:
    """Our dialects as an IRDL module, for `--irdl-file` of MLIR's drivers."""
    with context():
        bodies = [str(registry.dialect_class(name)._mlir_module) for name in registry.dialect_names()]
    return "module {" + "".join(body.removeprefix("module {").rstrip().removesuffix("}") for body in bodies) + "}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the driver with `arguments` (default: those of the process); the exit status."""
    if arguments is None:
        at_most_what_there_is()
        atexit.register(gc.freeze)  # to look through all that the process has before it ends takes as long as to read most programs
    try:
        line = parse(sys.argv[1:] if arguments is None else arguments, FLAGS)
        for module in line.every.get("load-pass-plugin", ()):
            registry.add_plugin(module)
            if taken := next((name for name in registry.plugin_names() if is_of_mlir(name)), None):
                raise KtirError(f"plugin '{module}' defines '{taken}', but MLIR has a pass of that name")
        if line.on("help"):
            print(f"usage: ktir-opt [options] [file or -]\n\n{help_text(FLAGS)}\n\n{list_passes()}")
        elif line.on("version"):
            print(f"ktir-opt {__version__}")
        elif line.on("list-passes"):
            print(list_passes())
        elif line.on("show-dialects"):
            print(show_dialects())
        elif line.on("emit-irdl"):
            sys.stdout.write(irdl())
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
    except OSError as error:  # of a file that is written on the side
        print(f"ktir-opt: error: cannot write '{error.filename}': {error.strerror}", file=sys.stderr)
        return 1
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1
    except MemoryError:
        print(f"ktir-opt: error: {NOTHING_LEFT}", file=sys.stderr)
        return 1
    except Exception as error:  # a fault of ours
        print(f"ktir-opt: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
