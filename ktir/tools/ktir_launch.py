"""`ktir-launch DIR -i a.npy ... -o out.npy`: runs a package on the emulated chip.

Exit status: 0 done, and equal to the reference; 1 different from it; 2 could not launch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.checking.compare import compare
from ktir.diagnostics import KtirError, close_to
from ktir.isa.units import Unit
from ktir.package import LaunchSpec, read
from ktir.runtime.host import TYPES
from ktir.runtime.memory.view import BITS
from ktir.targets import find
from ktir.tools.memory import NOTHING_LEFT, at_most_what_there_is
from ktir.tools.shared.sources import read_array, write_array


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise KtirError(f"{message}; see ktir-launch --help")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser("ktir-launch", description="Run a package on the emulated chip.", epilog=(__doc__ or "").rpartition("\n\n")[2])
    made.add_argument("package", metavar="DIR", type=Path, help="folder of a package")
    made.add_argument("-i", dest="inputs", metavar="[NAME=]FILE", action="append", default=[], help="an input, in order or by name")
    made.add_argument("-o", dest="outputs", metavar="[NAME=]FILE", action="append", default=[], help="where an output goes, likewise")
    made.add_argument("--against", metavar="[NAME=]FILE", action="append", default=[], help="what an output must be, likewise")
    made.add_argument("--atol", type=float, default=0.0, help="absolute tolerance of --against (default: equal bits)")
    made.add_argument("--rtol", type=float, default=0.0, help="relative tolerance of --against")
    made.add_argument("--target", help="the machine: datasheet, fitted, or a .toml file (default: the one that it was compiled for)")
    made.add_argument("--mode", choices=["tape", "step"], default="tape", help="batched replay, or word by word on an LX array")
    made.add_argument("--report", action="store_true", help="print cycles, busy units, stalls and traffic")
    made.add_argument("--trace", metavar="FILE", type=Path, help="write a Chrome trace (Perfetto, HTA)")
    made.add_argument("--log", metavar="FILE", help="write a line per executed word; - for standard output")
    made.add_argument("--log-core", metavar="N", type=int, action="append", help="cores to log (default: 0)")
    made.add_argument("--log-unit", metavar="UNIT", action="append", choices=[u.name for u in Unit], help="units to log (default: all)")
    return made


@dataclass
class Host:
    """A host argument of a program: what its views need of it. `elements` is how many elements they reach."""

    name: str
    role: str
    dtype: str
    elements: int
    shape: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.name} ({self.role}): {self.dtype} {list(self.shape)}"


def hosts(spec: LaunchSpec) -> list[Host]:
    """The host arguments in order, as the launch spec declares them. Where it does not, one that dense views read whole has their shape,
    another one is flat.
    """
    found: dict[int, Host] = {}
    for i, tensor in enumerate(spec.hosts):
        found[i] = Host(f"unused{i}", "unused", TYPES.get(tensor.element, ("float16",))[0], tensor.reach, tensor.size)
    for a in spec.args:
        if a.host is None:
            continue
        view = a.host
        reach = 1 + view.offset + sum((n - 1) * s for n, s in zip(view.size, view.strides, strict=True))
        whole = view.offset == 0 and view.strides == tuple(prod(view.size[i + 1 :]) for i in range(len(view.size)))
        host = Host(a.name, a.role, a.dtype, reach, view.size if whole else (reach,))
        known = found.setdefault(view.arg, host)
        if known.role == "unused":
            known.name, known.role = a.name, a.role
        if not spec.hosts and (reach > known.elements or (reach == known.elements and whole)):
            known.elements, known.shape = host.elements, host.shape
        if a.role != known.role:
            known.role = "input_output"
    return [found[k] for k in sorted(found)]


def _assigned(flag: str, texts: Sequence[str], takers: Sequence[Host], what: str) -> dict[str, str]:
    """Name -> file, of `NAME=FILE` and of plain files in order."""
    names = [h.name for h in takers]
    listing = "".join(f"\n  {h.text}" for h in takers) or " none"
    found: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals:
            name = next((n for n in names if n not in found), "")
            file = text
            if not name:
                raise KtirError(f"{flag} {text}: the program has no more {what}s:{listing}")
        if name not in names:
            raise KtirError(f"{flag} {text}: the program has no {what} '{name}'{close_to(name, names)}:{listing}")
        if name in found:
            raise KtirError(f"{flag} {text}: '{name}' is given twice")
        if not file:
            raise KtirError(f"{flag} {text}: expected a file")
        found[name] = file
    return found


def _launch(options: argparse.Namespace) -> int:
    from ktir.runtime.executable import Executable

    package = read(options.package)
    known = hosts(package.launch_spec)
    takes = [h for h in known if h.role in ("input", "input_output")]
    gives = [h for h in known if h.role in ("output", "input_output")]
    inputs = _assigned("-i", options.inputs, takes, "input")
    outputs = _assigned("-o", options.outputs, gives, "output")
    references = _assigned("--against", options.against, gives, "output")
    if missing := [h for h in takes if h.name not in inputs]:
        raise KtirError("no -i for" + "".join(f"\n  {h.text}" for h in missing))
    wanted = {name: read_array("--against", file) for name, file in references.items()}
    arrays: dict[str, NDArray[Any]] = {name: read_array("-i", file) for name, file in inputs.items()}
    for h in known:
        arrays.setdefault(h.name, np.zeros(h.shape, BITS.get(h.dtype, h.dtype)))
    executable = Executable(package, find(options.target) if options.target else None)
    executable(*(arrays[h.name] for h in known), mode=options.mode)
    for name, file in outputs.items():
        write_array("-o", file, arrays[name])
    _show(executable.machine, options)
    different = False
    for name, reference in wanted.items():
        found = arrays[name]
        if reference.size != found.size:
            raise KtirError(f"--against: '{name}' has shape {list(found.shape)}, but the reference {list(reference.shape)}")
        difference = compare(reference, found.reshape(reference.shape), atol=options.atol, rtol=options.rtol)
        if difference is not None:
            different = True
            print(difference.describe(name), *difference.listing(name), sep="\n  ", file=sys.stderr)
    return int(different)


def _show(machine: Any, options: argparse.Namespace) -> None:
    from ktir.emulator.machine.reports.chrome import chrome_trace
    from ktir.emulator.machine.reports.log import commit_log

    if options.report:
        print(machine.report)
    if options.trace:
        options.trace.write_text(json.dumps(chrome_trace(machine.program, machine.trace, machine.target)))
    if options.log:
        units = [Unit[name] for name in options.log_unit] if options.log_unit else tuple(Unit)
        lines = commit_log(machine.program, machine.trace, cores=options.log_core or (0,), units=units)
        if options.log == "-":
            sys.stdout.writelines(f"{line}\n" for line in lines)
        else:
            with open(options.log, "w") as file:
                file.writelines(f"{line}\n" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    if argv is None:
        at_most_what_there_is()
    try:
        return _launch(parser().parse_args(argv))
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (KtirError, OSError) as error:
        print(error if isinstance(error, KtirError) else f"ktir-launch: error: {error}", file=sys.stderr)
    except MemoryError:
        print(f"ktir-launch: error: {NOTHING_LEFT}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
