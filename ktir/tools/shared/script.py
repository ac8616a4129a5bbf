"""The model that a command is given: a function of a script, which is run."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError, NoSingleGraph

_ONE_BY_ONE = "return them one by one, `return model, x, y`"


class Usage(Exception):
    """A fault in what was asked for; its text is what the user reads."""


def on_model(command: str, target: str, output: Path | None, run: Callable[..., object]) -> int:
    """Run a command on `run(model, *inputs)`; its exit status: 0 done, 1 refused or not written, 2 a wrong call. Where a model fails on its
    inputs in eager PyTorch, too, that is a fault in what was asked for.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")  # says of each failure, with a traceback, what the error says
    before, log.disabled = log.disabled, True
    try:
        model, inputs = model_of(target)
        try:
            run(model, *inputs)
        except Exception as error:
            # what is refused or cannot be written is told as it is
            if isinstance(error, NoSingleGraph) or not isinstance(error, (KtirError, OSError)):
                _check_eager(target, model, inputs)
            raise
    except Usage as error:
        print(f"{command}: error: {error}", file=sys.stderr)
        return 2
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{command}: error: cannot write '{output}': {error.strerror or error}", file=sys.stderr)
        return 1
    finally:
        log.disabled = before
    return 0


def _check_eager(target: str, model: Any, inputs: Sequence[Any]) -> None:
    """Raises Usage where a model fails on its inputs."""
    try:
        model(*inputs)
    except Exception as error:
        file, _, name = target.rpartition(":")
        said = f"{place_of(error, Path(file))}{type(error).__name__}: {error}"
        nested = any(isinstance(each, (tuple, list)) for each in inputs)
        raise Usage(f"the model of '{name}' fails on its example inputs: {said}" + f"; {_ONE_BY_ONE}" * nested) from None


def model_of(target: str) -> tuple[Any, tuple[Any, ...]]:
    """The model and the example inputs that `script.py:function` returns."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name:
        raise Usage(f"expects SCRIPT.py:FUNCTION, but got '{target}'")
    if importlib.util.find_spec("torch") is None:
        raise Usage("PyTorch is not installed; it comes with the extra `ktir[torch]`")
    path = Path(file)
    if not path.is_file():
        raise Usage(f"cannot open script '{file}': no such file")
    made = _called(_loaded(path, file), name, file)
    model, *inputs = made if isinstance(made, (tuple, list)) and made else (made,)
    if not callable(model):
        raise Usage(f"'{name}' in '{file}' must return a model and its inputs, but it returned {type(model).__name__}")
    try:
        inspect.signature(getattr(model, "forward", model)).bind(*inputs)
    except TypeError as error:
        text = f"the model of '{name}' does not take {len(inputs)} example inputs: {error}"
        raise Usage(f"{text}; {_ONE_BY_ONE}") from None
    except ValueError:  # of compiled code, which has no signature
        pass
    return model, tuple(inputs)


def _loaded(path: Path, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Usage(f"'{file}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))  # a script imports what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Usage(f"running '{file}' failed: {place_of(error, path)}{type(error).__name__}: {error}") from None
    return module


def _called(module: Any, name: str, file: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        known = ", ".join(n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__)
        raise Usage(f"'{file}' has no function '{name}'" + (f"; it has {known}" if known else ""))
    try:
        return function()
    except Exception as error:
        raise Usage(f"calling '{name}' failed: {place_of(error, Path(file))}{type(error).__name__}: {error}") from None


def place_of(error: BaseException, path: Path) -> str:
    """`file:line: ` of the last line of the script that an exception went through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}: " if lines else ""
