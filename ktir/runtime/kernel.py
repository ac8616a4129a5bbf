"""A kernel of generated code: a program with its logical form beside it, and what a launch does where the program cannot.

The chip's program runs where there is one. A launch whose data it is not proved for, and one in which the emulator finds a fault, runs on
the KTIR executor instead, which has exact integers and no layouts, hazards or padding. Either engine writes to the caller's tensors at the
end of a launch that succeeded, so a second try starts from the same data.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from ktir.diagnostics import Diagnostic, KtirError, OutOfRange
from ktir.emulator.findings import Finding
from ktir.package import content_hash, read
from ktir.package.manifest import NAME as MANIFEST
from ktir.runtime import failures, machines, notices, stamps, store
from ktir.runtime.device import DeviceTensor
from ktir.runtime.executable import Executable
from ktir.runtime.logical import FILES, PROGRAM, LogicalExecutable
from ktir.runtime.memory.card import DeviceOutOfMemory
from ktir.runtime.memory.transfer import array_of
from ktir.runtime.prepared import Holder, Prepared

_MOST_BYTES = 1 << 28
"""Arguments larger than this together are left out of what reproduces a fault."""

ON_EXECUTOR = "it runs on the KTIR executor instead"
OF_DATA = Finding
"""What running a program finds; where PyTorch refuses the same data, it is their matter."""
OURS = "the fault lies in ktir, not in the model"


class Kernel:
    """What was compiled for a region. Loading checks nothing and runs nothing; the first launch does."""

    def __init__(self, files: Mapping[str, bytes], key: str | None = None) -> None:
        """`key`: the content hash by which it is stored, where it is."""
        self._files = {n: data for n, data in files.items() if n not in FILES}
        self.logical = LogicalExecutable(files) if PROGRAM in files else None
        """What the KTIR executor runs; packages that no compiler of ours has made may come without."""
        self.faulty = False
        """Whether a launch has shown that the chip's program is at fault."""
        self.used = 0
        """When it was loaded or launched last, among all kernels."""
        self._chip: Executable | None = None
        self._to_keep = key
        """By which what the machine finds out is kept, until that is done."""
        self._lock = Lock()

    @property
    def chip(self) -> Executable | None:
        """The chip's program, if there is one; raises for one that cannot be loaded."""
        with self._lock:
            if self._chip is None and MANIFEST in self._files:
                kept = machines.load(self._to_keep) if self._to_keep else None
                if kept is not None:
                    self._to_keep = None
                self._chip = Executable.load(self._files, kept=kept)
            return self._chip

    def prepared(self, tensors: Sequence[Any], made: Sequence[int] = ()) -> Prepared | None:
        """What launches the chip's program, once that has run, on tensors that lie as these; see `Executable.prepared`."""
        return self._chip.prepared(tensors, made) if self._chip else None

    def again(self, prepared: Prepared, handles: array[int], holders: Sequence[Holder], refused: list[Exception]) -> bool:
        """Launch by it, see `Prepared.launch`. False, and nothing is written, where it is not for these tensors, or what they hold is
        refused: then the error is in `refused`, of which `__call__` says what comes of it. Raises KtirError for a fault of ktir's.
        """
        chip = self._chip
        try:
            if chip is None or self.faulty or not prepared.launch(handles, holders):
                return False
            chip.launched()
            return True
        except KtirError as error:
            if isinstance(error, (OutOfRange, OF_DATA)):
                refused.append(error)
            return False
        except Exception as error:
            failures.capture(error, "runtime_launch", kernel_name=self.name)
            raise _failed(error) from error

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._chip.spec.kernel_name if self._chip else "forward"

    @cached_property
    def written(self) -> Sequence[int]:
        """Numbers of the tensors that a launch writes."""
        program = self.logical or self.chip
        return program.written if program else ()

    def __call__(self, *tensors: Any, frozen_weights: bool = False, strict: bool = False, refused: list[Exception] | None = None) -> None:
        """Launch on tensors of the host, or of a card, in the order of the program's arguments.

        frozen_weights: weights are taken to hold what they held as long as torch counts no write. strict: no engine stands in for another.
        refused: what the launch on these has raised (`again`), so that there is no second one; taken out, for frames that hold an error
        which holds them keep their tensors.

        Raises what the program's own data bring about, such as an index out of range, what no engine has a result for, and
        DeviceOutOfMemory.
        """
        if MANIFEST not in self._files or (self.faulty and not strict):
            self._execute(tensors)
            return
        try:
            if refused:
                raise refused.pop()
            self._launch(tensors, frozen_weights)
        except Exception as error:
            failures.capture(error, "runtime_launch", kernel_name=self.name)
            if self.logical is None or isinstance(error, DeviceOutOfMemory):
                raise
            if strict:
                raise self._refused(error, tensors) from error
            self._stand_in(error, tensors)

    def _launch(self, tensors: tuple[Any, ...], frozen_weights: bool) -> None:
        chip = self._chip or self.chip
        assert chip is not None
        try:
            chip(*tensors, stamps=[stamps.installed.of(t) for t in tensors] if frozen_weights else ())
        finally:
            _changed(tensors, chip.written)
        if self._to_keep is not None:
            key, self._to_keep = self._to_keep, None
            with chip.lock:  # no launch notes anything meanwhile
                machines.keep(key, chip.machine)

    def _execute(self, tensors: tuple[Any, ...]) -> None:
        assert self.logical is not None
        try:
            self.logical(*tensors)
        finally:
            _changed(tensors, self.logical.written)

    def _stand_in(self, error: Exception, tensors: tuple[Any, ...]) -> None:
        """Let the executor do what the chip could not. It is the judge, too: what fails there as well is no fault of the chip's program."""
        reproduction = None if isinstance(error, OutOfRange) else Reproduction(self._files, tensors)  # before a launch changes them
        try:
            self._execute(tensors)
        except Exception:
            raise error from None
        if isinstance(error, OutOfRange):
            notices.warn_once(content_hash(self._files), error.message, error, ON_EXECUTOR, notices.NOT_HERE)
        elif reproduction and not self.faulty:
            self.faulty = True
            notices.warn(error, f"{OURS}; {reproduction.write()}", f"{ON_EXECUTOR}, now and later; {notices.WITHOUT_CHIP}")

    def _refused(self, error: Exception, tensors: tuple[Any, ...]) -> Exception:
        """The error of a launch that no other engine may stand in for, with the way out."""
        assert self.logical is not None
        if not isinstance(error, OutOfRange):
            try:
                self.logical(*tensors, dry=True)
            except Exception:
                return error  # the data's own matter
        own = error if isinstance(error, KtirError) else _failed(error)
        if not isinstance(error, OutOfRange):
            own.diagnostics.append(Diagnostic("note", f"{OURS}; {Reproduction(self._files, tensors).write()}"))
        own.diagnostics.append(Diagnostic("note", f'without fallback="error" {ON_EXECUTOR}; {notices.WITHOUT_CHIP}'))
        return own


def _failed(error: Exception) -> KtirError:
    return KtirError(f"the emulated chip failed: {type(error).__name__}: {error}")


def _changed(tensors: tuple[Any, ...], written: list[int]) -> None:
    for i in written:
        if i < len(tensors) and type(tensors[i]) is not DeviceTensor:
            stamps.installed.changed(tensors[i])


def _as_array(tensor: Any) -> np.ndarray:
    if isinstance(tensor, DeviceTensor):
        return tensor.array()
    return np.asarray(tensor) if isinstance(tensor, (np.ndarray, int, float)) else array_of(tensor)


class Reproduction:
    """A launch to be seen again: the package and the arguments as they are now."""

    def __init__(self, files: Mapping[str, bytes], tensors: tuple[Any, ...]) -> None:
        self.files = files
        self.arrays: dict[int, np.ndarray] = {}
        try:
            arrays = [_as_array(t) for t in tensors]
        except (AttributeError, TypeError):
            return  # what no program of the chip takes
        if sum(a.nbytes for a in arrays) <= _MOST_BYTES:
            self.arrays = {i: a.copy() for i, a in enumerate(arrays)}

    def write(self) -> str:
        """Write a folder; what to run to see the launch again."""
        folder = store.new_reproducer()
        package = folder / "package"
        package.mkdir()
        for name, data in self.files.items():
            (package / name).write_bytes(data)
        if not self.arrays:
            return f"the package is kept in {package}, without the arguments"
        inputs = []
        for argument in {a.host.arg: a for a in reversed(read(self.files).launch_spec.args) if a.host is not None}.values():
            assert argument.host is not None
            if argument.role != "output":
                place = folder / f"{argument.name}.npy"
                np.save(place, self.arrays[argument.host.arg])
                inputs.append(f"-i {argument.name}={place}")
        return " ".join(["see it again with ktir-launch", str(package), *inputs])
