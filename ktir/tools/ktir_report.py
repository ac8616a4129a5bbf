"""`ktir-report DIR`: what a package takes on the chip, as tables and pictures, without running it on values."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.occupancy import lives
from ktir.emulator.machine.reports.roofline import roofline
from ktir.package import read
from ktir.targets import find
from ktir.tools.shared.plain import plain


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-report", description="Cycles, busy units, stalls, traffic and the roofline place of a package.")
    made.add_argument("package", metavar="DIR", type=Path, help="folder of a package")
    made.add_argument("--target", help="the machine: datasheet, fitted, or a .toml file (default: the one that it was compiled for)")
    made.add_argument("--json", action="store_true", help="print the same as JSON")
    made.add_argument("--roofline", metavar="FILE", type=Path, help="draw the roofline (.svg, .png, .pdf)")
    made.add_argument("--lx", metavar="FILE", type=Path, help="draw what lies in LX when")
    made.add_argument("--core", type=int, default=0, help="whose LX (default: 0)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0 done, 1 the package cannot be read or is wrong."""
    options = parser().parse_args(argv)
    try:
        package = read(options.package)
        machine = Machine(package.program, find(options.target) if options.target else package.target)
        places = roofline(machine.trace, machine.target)
        if not 0 <= options.core < machine.trace.cores:
            raise KtirError(f"--core expects 0 to {machine.trace.cores - 1}, the cores of the program, but got {options.core}")
        if options.json:
            print(json.dumps({"report": plain(machine.report), "roofline": [plain(p) for p in places]}, indent=1))
        else:
            print(machine.report)
            print("roofline")
            for place in places:
                print(f"  {place}")
        if options.roofline or options.lx:
            from ktir.tools.pages import pictures

            if options.roofline:
                pictures.draw_roofline(places, machine.target, options.roofline)
            if options.lx:
                pictures.draw_lx(lives(machine.program, machine.trace, options.core), machine.target, options.core, options.lx)
    except BrokenPipeError:
        sys.stderr.close()
    except (KtirError, OSError) as error:
        print(error if isinstance(error, KtirError) else f"ktir-report: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
