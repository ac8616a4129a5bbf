"""`ktir-completion`: writes a script with which a shell completes the options and files of all tools. It needs shtab."""

from __future__ import annotations

import importlib
import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ktir import registry
from ktir.tools.shared.flags import Flag

SHELLS = ("bash", "zsh", "tcsh")
USAGE = f"""usage: ktir-completion {"|".join(SHELLS)}

Prints a script for the shell that completes the options and files of all tools, for example
  ktir-completion bash > ~/.ktir-completion.bash
and in ~/.bashrc: source ~/.ktir-completion.bash"""
_FOLDERS = ("DIR", "folder")
_TOOLS = Path(__file__).parents[1]


def parsers() -> Iterator[ArgumentParser]:
    """The command line of every tool."""
    for path in sorted(_TOOLS.rglob("ktir_*.py"), key=lambda path: path.stem):
        module = importlib.import_module(".".join(("ktir", "tools", *path.relative_to(_TOOLS).with_suffix("").parts)))
        tool = path.stem.replace("_", "-")
        if hasattr(module, "parser"):
            yield module.parser()
        else:
            passes = registry.pass_modules() if tool == "ktir-opt" else ()
            yield _of_flags(tool, getattr(module, "ALL_FLAGS", getattr(module, "FLAGS", ())), passes)
    completion = _of_flags("ktir-completion", ())
    completion.add_argument("shell", choices=SHELLS)
    yield completion


def _of_flags(tool: str, flags: Iterable[Flag], passes: Iterable[str] = ()) -> ArgumentParser:
    """A command line in LLVM's manner as argparse has it. `-name` is accepted too, but not offered."""
    made = ArgumentParser(tool, add_help=False)
    for flag in flags:
        name = f"{'-' if len(flag.name) == 1 else '--'}{flag.name}"
        text = flag.help.replace("%", "%%")
        if flag.value is None or flag.implied is not None:
            made.add_argument(name, action="store_true", help=text)
        else:
            made.add_argument(name, metavar=flag.value, choices=flag.choices or None, help=text)
    for name in passes:
        made.add_argument(f"--{name}", action="store_true", help="run this pass")
    if tool != "ktir-completion":
        made.add_argument("files", nargs="*", metavar="FILE")
    return made


def script(shell: str) -> str:
    """The script for a shell."""
    import shtab

    made = []
    for parser in parsers():
        for action in parser._actions:
            if kind := _files(action):
                action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]  # how shtab is told
        made.append(shtab.complete(parser, shell))
    return "\n".join(made)


def _files(action: Action) -> str:
    """Which files the value of an option is, as shtab calls them; empty for none."""
    what = str(action.metavar or action.dest)
    if action.nargs == 0 or action.choices:
        return ""
    return "DIRECTORY" if what in _FOLDERS else "FILE" if not action.option_strings or "file" in what.lower() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool; the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given in (["--help"], ["-h"]):
        print(USAGE)
        return 0
    if len(given) != 1 or given[0] not in SHELLS:
        print(f"ktir-completion: error: expected one of {', '.join(SHELLS)}, but got '{' '.join(given)}'", file=sys.stderr)
        return 1
    try:
        print(script(given[0]))
    except ModuleNotFoundError as error:
        if error.name != "shtab":
            raise
        print("ktir-completion: error: needs the package 'shtab': pip install 'ktir[shell]'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
