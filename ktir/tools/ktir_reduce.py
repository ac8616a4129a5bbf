"""`ktir-reduce`: makes a module that fails as small as the failure allows.

The result goes to stdout or to a file, everything else to stderr. The status is 0 if there is a result and 1 if not.
"""

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ktir.checking.reducer import Interest, Reducer
from ktir.diagnostics import KtirError
from ktir.mlir import ir
from ktir.tools.shared.flags import CommandLine, Flag, UsageError, help_text, parse
from ktir.tools.shared.input import decoded, read
from ktir.tools.shared.show import Printing, keep_names
from ktir.version import __version__

FLAGS = (
    Flag("test", "the command that tells whether a module is interesting; its file replaces {} in it, or comes last", "command"),
    Flag("exit", "status of the command for an interesting module, or any; default: 0, with --match: any", "number|any"),
    Flag("match", "what the command prints for an interesting module", "regex"),
    Flag("timeout", "seconds that the command may take; then the module is not interesting. Default: 60", "seconds"),
    Flag("tries", "how often the command may run; default: no limit", "number"),
    Flag("o", "where to write the smallest module, each time there is a smaller one; default: stdout", "file"),
    Flag("quiet", "do not show progress"),
    Flag("help", "show this and stop"),
    Flag("version", "show the version and stop"),
)

USAGE = f"""\
usage: ktir-reduce FILE.mlir --test=COMMAND [-o FILE] [options]

{help_text(FLAGS)}

A module is interesting if the command ends with status 0, as with llvm-reduce. To find the part of a module on which a pass fails:

  ktir-reduce big.mlir --test='ktir-opt --ktir-tile' --match='error: .ktdp.load. op' -o small.mlir

The same input and command give the same result."""


class Driver:
    """One run of the program."""

    def __init__(self, line: CommandLine) -> None:
        if line.others:
            raise UsageError(f"unknown command line argument '--{line.others[0][0]}'; try 'ktir-reduce --help'")
        if len(line.positional) != 1:
            raise UsageError("expected one input file" + (f", but got {', '.join(line.positional)}" if line.positional else ""))
        if not line.values.get("test"):
            raise UsageError("expected a command that tells whether a module is interesting: --test=COMMAND")
        self.line = line
        self.source = line.positional[0]
        self.target = line.values.get("o", "-")
        match = line.values.get("match")
        status = line.values.get("exit", "any" if match is not None else "0")
        if status != "any" and not status.isdecimal():
            raise UsageError(f"'--exit={status}': expected a number or any")
        try:
            pattern = None if match is None else re.compile(match)
        except re.error as error:
            raise UsageError(f"'--match={match}': {error}") from None
        seconds = line.real("timeout", 60.0)
        if not seconds:
            raise UsageError("'--timeout=0': expected more than 0 seconds")
        self.interest = Interest(line.values["test"], None if status == "any" else int(status), pattern, seconds, line.number("tries"))
        self.begin = time.monotonic()

    def run(self) -> int:
        text = decoded(read(self.source), self.source)
        printing = Printing(names=True)

        def named(module: ir.Module, text: str) -> None:
            keep_names(module, text, "-", 1)

        reducer = Reducer(text, self.interest, printing.text, named, self.improved)
        if self.target != "-":
            self.write(text)  # before anything takes time: the place may not be writable
        try:
            best = reducer.run()
        except KeyboardInterrupt:
            best = reducer.best
        except KtirError as error:
            raise KtirError(error.message, f"{self.source}:1:1") from None
        if reducer.note:
            print(f"{self.source}: warning: {reducer.note}", file=sys.stderr)
        self.write(best)
        self.say(f"{len(text.encode())} -> {len(best.encode())} bytes, {self.interest.runs} runs of the test")
        return 0

    def improved(self, text: str, what: str) -> None:
        if self.target != "-":
            self.write(text)
        self.say(f"{len(text.encode()):8} bytes, {text.count(chr(10)):5} lines after {self.interest.runs:4} runs: {what}")

    def say(self, text: str) -> None:
        if not self.line.on("quiet"):
            print(f"ktir-reduce: {text}", file=sys.stderr)

    def write(self, text: str) -> None:
        if self.target == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        try:
            Path(self.target).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot open output file '{self.target}': {error.strerror}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the driver with `arguments` (default: those of the process); the exit status."""
    try:
        line = parse(sys.argv[1:] if arguments is None else arguments, FLAGS)
        if line.on("help"):
            print(USAGE)
        elif line.on("version"):
            print(f"ktir-reduce {__version__}")
        else:
            return Driver(line).run()
        return 0
    except UsageError as error:
        print(f"ktir-reduce: error: {error}", file=sys.stderr)
    except BrokenPipeError:  # whoever read the output has had enough; keep the interpreter from trying again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KtirError as error:
        print(error, file=sys.stderr)
    except Exception as error:  # a fault of ours
        print(f"ktir-reduce: internal error: {type(error).__name__}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
