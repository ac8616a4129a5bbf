"""Programs that stay logical KTIR: the KTIR executor runs them on the memory of host tensors.

A package of this kind is the text and a list of the arguments, alone or beside the files of the chip's program; loading it executes
nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError
from ktir.emulator.reference import execute
from ktir.emulator.strides import with_strides
from ktir.runtime import metrics
from ktir.runtime.device import DeviceTensor
from ktir.runtime.memory.transfer import number

PROGRAM = "logical.ktir.mlir"
ARGUMENTS = "arguments.json"
NOTICE = "notice.json"
"""What a user is told when the program is loaded, see `ktir.lowering.inductor.running.faults`; may be missing."""
FILES = (PROGRAM, ARGUMENTS, NOTICE)
_VERSION = 1
CARRIERS = {
    "bfloat16": "uint16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "uint16": "int16",
    "uint32": "int32",
    "uint64": "int64",
}
"""Types that NumPy or the executor lacks -> those that carry their bits."""

_MOST_WORK = 1 << 20
"""Candidates that NumPy may look at for two arrays of many dims."""


@dataclass(frozen=True)
class Argument:
    """A buffer of the caller: its element type by torch's name, size and stride in elements. Only `input`s are never written."""

    name: str
    role: str
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Elements from the first one to the last one, gaps included."""
        return 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True)) if 0 not in self.size else 0


def files_of(text: str, arguments: Sequence[Argument]) -> dict[str, bytes]:
    """The files of the package of a logical program."""
    listed = {"version": _VERSION, "arguments": [asdict(a) for a in arguments]}
    return {PROGRAM: text.encode(), ARGUMENTS: json.dumps(listed, indent=1).encode()}


class LogicalExecutable:
    """A logical program; a call launches it on host tensors in the order of its arguments."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """From the files of a package; raises KtirError where they are no such package."""
        try:
            listed = json.loads(files[ARGUMENTS])
            if listed["version"] != _VERSION:
                raise KtirError(f"'{ARGUMENTS}' expects version {_VERSION}, but got {listed['version']!r}")
            self.arguments = [
                Argument(str(a["name"]), str(a["role"]), str(a["dtype"]), tuple(map(int, a["size"])), tuple(map(int, a["stride"])))
                for a in listed["arguments"]
            ]
            self.text = files[PROGRAM].decode()
        except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
            raise KtirError(
                f"the package of a logical program expects '{PROGRAM}' and '{ARGUMENTS}', but reading gave: {error!r}"
            ) from None

    @property
    def written(self) -> list[int]:
        """Numbers of the tensors that a launch writes."""
        return [i for i, a in enumerate(self.arguments) if a.role != "input"]

    def __call__(self, *tensors: Any, dry: bool = False) -> None:
        """Launch on CPU tensors, NumPy arrays, tensors of a card, or numbers for arguments without dims. What is written is written in
        place, without copies where the strides are those declared; nothing is with `dry`, which only finds out whether the launch succeeds.

        Raises KtirError for arguments that do not fit, and findings of the executor, such as an index out of range.
        """
        if len(tensors) != len(self.arguments):
            raise KtirError(f"the program expects {len(self.arguments)} arguments, but got {len(tensors)}")
        given = [_array(a, t, write=not dry and a.role != "input") for a, t in zip(self.arguments, tensors, strict=True)]
        held = [with_strides(t, a.stride, a.name) for a, t in zip(self.arguments, given, strict=True)]
        _separate(self.arguments, held)
        arrays = [_flat(a, t) for a, t in zip(self.arguments, held, strict=True)]
        if dry:
            arrays = [x if a.role == "input" else x.copy() for a, x in zip(self.arguments, arrays, strict=True)]
        execute(self.text, args=arrays, source=PROGRAM)
        if dry:
            return
        for i in self.written:
            if held[i] is not given[i]:
                given[i][...] = held[i]
        metrics.count(executor=1)


def _array(argument: Argument, tensor: Any, *, write: bool) -> NDArray[Any]:
    """A tensor as an array on the same memory, of a type that carries its bits."""
    if isinstance(tensor, DeviceTensor):
        return _of_card(argument, tensor, write=write)
    if isinstance(tensor, (int, float)):
        tensor = number(tensor, argument.dtype)
    dtype = str(tensor.dtype).removeprefix("torch.")
    _check(argument, dtype, tuple(tensor.shape))
    if isinstance(tensor, np.ndarray):
        return tensor
    if tensor.device.type != "cpu":
        raise KtirError(f"argument '{argument.name}' expects a tensor on the host, but got one on device '{tensor.device}'")
    tensor = tensor.detach()
    if dtype in CARRIERS:
        tensor = tensor.view(getattr(sys.modules["torch"], CARRIERS[dtype]))
    return tensor.numpy()


def _of_card(argument: Argument, tensor: DeviceTensor, *, write: bool) -> NDArray[Any]:
    """A tensor of a card as an array on its linear bytes, which travel to the host, and back where they are written."""
    _check(argument, tensor.view.dtype, tensor.view.size)
    array = tensor.array(write=write)
    tensor.allocation.card.record("D2H", array.nbytes, wait=True)
    if write:
        tensor.allocation.card.record("H2D", array.nbytes)
    carrier = CARRIERS.get(argument.dtype)
    return array.view(carrier) if carrier else array


def _check(argument: Argument, dtype: str, size: tuple[int, ...]) -> None:
    if dtype != argument.dtype:
        raise KtirError(f"argument '{argument.name}' expects element type {argument.dtype}, but got {dtype}")
    if size != argument.size:
        raise KtirError(f"argument '{argument.name}' expects shape {list(argument.size)}, but got {list(size)}")


def _flat(argument: Argument, array: NDArray[Any]) -> NDArray[Any]:
    """The memory of an array of the declared strides, from its first element on."""
    return np.lib.stride_tricks.as_strided(array, (argument.elements,), (array.itemsize,))


def _separate(arguments: Sequence[Argument], arrays: list[NDArray[Any]]) -> None:
    """Replace arrays that lie among the elements of another one by copies: the executor takes memories that are apart, gaps included.
    Raises KtirError where two that are written share elements.
    """
    flat = [_flat(a, t) for a, t in zip(arguments, arrays, strict=True)]
    before: list[int] = []
    for low, i in sorted((f.__array_interface__["data"][0], i) for i, f in enumerate(flat) if f.size):
        before = [k for k in before if flat[k].__array_interface__["data"][0] + flat[k].nbytes > low]
        for k in before:
            if _same(flat[i], flat[k]):
                continue
            inputs = [n for n in (i, k) if arguments[n].role == "input"]
            if not inputs and _share(arrays[i], arrays[k]):
                raise KtirError(f"arguments '{arguments[k].name}' and '{arguments[i].name}' share elements, and both are written")
            for n in inputs[:1] or (i, k):
                strides = [s * flat[n].itemsize for s in arguments[n].stride]
                arrays[n] = np.lib.stride_tricks.as_strided(flat[n].copy(), arguments[n].size, strides)
        before.append(i)


def _share(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether elements of both have a place in common, or it is too hard to tell."""
    try:
        return np.shares_memory(a, b, max_work=cast(Any, _MOST_WORK))
    except np.exceptions.TooHardError:
        return True


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.__array_interface__["data"] == b.__array_interface__["data"] and a.nbytes == b.nbytes and a.dtype == b.dtype
