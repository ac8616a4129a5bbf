"""`ktir-capture script.py:fn`: the KTIR of a PyTorch model at any stage, without running it."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

from ktir import config
from ktir.diagnostics import KtirError


class _Usage(Exception):
    """A fault in what was asked for; its text is what the user reads."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-capture",
        description="Print the KTIR of a PyTorch model. FUNCTION takes no arguments and returns the model (a module or a function) and its "
        "example inputs: `return model, x, y`.",
    )
    made.add_argument("target", metavar="SCRIPT.py:FUNCTION", help="a Python file and a function in it")
    made.add_argument("--stage", default="logical", help="region, a level or a pass of the pipeline, or assembly (default: logical)")
    made.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write to a file instead of standard output")
    made.add_argument("--debuginfo", action="store_true", help="with the locations in the PyTorch source")
    made.add_argument("--fallback", choices=("cpu", "error"), default=None, help="what to do about operators without KTIR form")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the driver; returns the exit status: 0 captured, 1 refused, 2 a wrong call."""
    options = parser().parse_args(arguments)
    try:
        model, inputs = _model(options.target)
        text = _captured(model, inputs, options)
        if options.output:
            options.output.write_text(text)
        else:
            sys.stdout.write(text)
    except _Usage as error:
        print(f"ktir-capture: error: {error}", file=sys.stderr)
        return 2
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"ktir-capture: error: cannot write '{options.output}': {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _captured(model: Any, inputs: tuple[Any, ...], options: argparse.Namespace) -> str:
    """What is printed. Where a model fails on its inputs in eager PyTorch, too, that is a fault in what was asked for."""
    from ktir.lowering.inductor.capture import capture

    log = logging.getLogger("torch._subclasses.fake_tensor")  # says of each failure, with a traceback, what the error says
    before, log.disabled = log.disabled, True
    try:
        with config.patch(**({"fallback": options.fallback} if options.fallback else {})):
            return capture(model, *inputs, stage=options.stage, debuginfo=options.debuginfo)
    except Exception as error:
        if isinstance(error, KtirError):
            raise
        try:
            model(*inputs)
        except Exception as own:
            file, _, name = options.target.rpartition(":")
            said = f"{_place(own, Path(file))}{type(own).__name__}: {own}"
            raise _Usage(f"the model of '{name}' fails on its example inputs: {said}") from None
        raise
    finally:
        log.disabled = before


def _model(target: str) -> tuple[Any, tuple[Any, ...]]:
    """The model and the example inputs that `script.py:function` returns."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise _Usage(f"expects SCRIPT.py:FUNCTION, but got '{target}'")
    if importlib.util.find_spec("torch") is None:
        raise _Usage("PyTorch is not installed; it comes with the extra `ktir[torch]`")
    path = Path(file)
    if not path.is_file():
        raise _Usage(f"cannot open script '{file}': no such file")
    made = _called(_loaded(path, file), name, file)
    model, *inputs = made if isinstance(made, (tuple, list)) and made else (made,)
    if not callable(model):
        raise _Usage(f"'{name}' in '{file}' must return a model and its inputs, but it returned {type(model).__name__}")
    try:
        inspect.signature(getattr(model, "forward", model)).bind(*inputs)
    except TypeError as error:
        text = f"the model of '{name}' does not take {len(inputs)} example inputs: {error}"
        raise _Usage(f"{text}; return them one by one, `return model, x, y`") from None
    except ValueError:  # of compiled code, which has no signature
        pass
    return model, tuple(inputs)


def _loaded(path: Path, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _Usage(f"'{file}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))  # a script imports what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _Usage(f"running '{file}' failed: {_place(error, path)}{type(error).__name__}: {error}") from None
    return module


def _called(module: Any, name: str, file: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        known = ", ".join(n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__)
        raise _Usage(f"'{file}' has no function '{name}'" + (f"; it has {known}" if known else ""))
    try:
        return function()
    except Exception as error:
        raise _Usage(f"calling '{name}' failed: {_place(error, Path(file))}{type(error).__name__}: {error}") from None


def _place(error: BaseException, path: Path) -> str:
    """`file:line: ` of the last line of the script that an exception went through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}: " if lines else ""


if __name__ == "__main__":
    sys.exit(main())
