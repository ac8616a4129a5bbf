"""The table of executors: op name -> function that compiles one op to a recording action.

One file per dialect in `dialects/`; adding an op is one decorated function there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.tape.values import PAIRS

Executor = Callable[[OpReader], Action]
ScalarReader = Callable[[OpReader], ScalarOp | tuple[ScalarOp, ...]]
"""Reads the meaning of an op; of one with several results, one meaning per result."""

_DIALECTS = Path(__file__).parents[1] / "dialects"
_executors: dict[str, Executor] = {}
_scalars: dict[str, ScalarReader] = {}
_on_pairs: dict[str, ScalarReader] = {}


def executes(*names: str) -> Callable[[Executor], Executor]:
    """Registers the executor of the ops `names`. It reads the op once and must not keep MLIR handles."""

    def register(executor: Executor) -> Executor:
        for name in names:
            if name in _executors:
                raise LookupError(f"two executors for '{name}'")
            _executors[name] = executor
        return executor

    return register


def scalar(*names: str) -> Callable[[ScalarReader], ScalarReader]:
    """Registers the elementwise meaning of the ops `names`: used in bodies of `linalg` ops, on tensors and on scalars."""

    def register(reader: ScalarReader) -> ScalarReader:
        for name in names:
            _scalars[name] = lambda op: meaning(op, reader)
        return reader

    return register


def on_pairs(*names: str) -> Callable[[ScalarReader], ScalarReader]:
    """Registers the elementwise meaning of the ops `names` where they are on pairs of numbers."""

    def register(reader: ScalarReader) -> ScalarReader:
        for name in names:
            _on_pairs[name] = reader
            _scalars.setdefault(name, lambda op: meaning(op, _no_meaning))
        return reader

    return register


def _no_meaning(op: OpReader) -> ScalarOp:
    raise op.unsupported("is on something else than pairs of numbers")


def meaning(op: OpReader, reader: ScalarReader) -> ScalarOp | tuple[ScalarOp, ...]:
    """What an op does to elements: what `reader` says, or, of pairs, what is registered for them. Raises Unsupported where nothing is."""
    if not any(op.tensor_type(value.type).element in PAIRS for value in (*op.op.operands, *op.op.results)):
        return reader(op)
    if op.op.name not in _on_pairs:
        raise op.unsupported("is on pairs of numbers")
    return _on_pairs[op.op.name](op)


@cache
def _load() -> None:
    for module in pkgutil.walk_packages([str(_DIALECTS)], "ktir.emulator.reference.dialects."):
        importlib.import_module(module.name)


def executor(name: str) -> Executor | None:
    """The executor of op `name`, or None."""
    _load()
    return _executors.get(name)


def scalar_reader(name: str) -> ScalarReader | None:
    """The elementwise meaning of op `name`, or None."""
    _load()
    return _scalars.get(name)


def executable_ops() -> frozenset[str]:
    """Names of all ops that can be executed."""
    _load()
    return frozenset(_executors)
