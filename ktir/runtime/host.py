"""Tensors of the host at a launch: checked against what the program declares, and their memory arranged as it expects it."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError
from ktir.emulator.strides import dense_strides, lies_as, with_strides
from ktir.package import HostTensor
from ktir.runtime.memory.content import Content
from ktir.runtime.memory.forms import Form, shared
from ktir.runtime.memory.slot import Slot
from ktir.runtime.memory.transfer import dtype_name, from_device, host_view
from ktir.target import LANES

TYPES = {
    "f16": ("float16",),
    "bf16": ("bfloat16",),
    "f32": ("float32",),
    "f8E4M3FN": ("float8_e4m3fn",),
    "f8E5M2": ("float8_e5m2",),
    "i64": ("int64", "uint64"),
    "i32": ("int32", "uint32"),
    "i16": ("int16", "uint16"),
    "i8": ("int8", "uint8"),
    "i1": ("bool",),
}
"""Element type of KTIR, which has no signs -> those of PyTorch."""

Array = NDArray[Any]


def check_tensor(array: Array, wanted: HostTensor, name: str) -> None:
    """Raises KtirError where the shape or the element type are not those declared."""
    types = TYPES.get(wanted.element, ())
    if dtype_name(array) not in types:
        raise KtirError(f"argument '{name}' expects element type {' or '.join(types) or wanted.element}, but got {dtype_name(array)}")
    if array.shape != wanted.size:
        raise KtirError(f"argument '{name}' expects shape {list(wanted.size)}, but got {list(array.shape)}")


class Host:
    """A tensor of the host as an argument of a launch, and what is known of it."""

    def __init__(self, tensor: Any, array: Array, wanted: HostTensor | None, name: str, stamp: object | None) -> None:
        """wanted: None where the program does not say what it expects; then any shape will do that has the elements, and lies as its views
        say where it has their rank.
        """
        if wanted is not None:
            check_tensor(array, wanted, name)
        self.array = array
        self._tensor = tensor
        self._declared = wanted is not None
        self._strides = dense_strides(array.shape) if wanted is None else wanted.strides
        self._name = name
        self._stamp = stamp

    @cached_property
    def memory(self) -> Array:
        """The elements, lying as the program expects them: the array itself or a copy."""
        return with_strides(self.array, self._strides, self._name)

    def read(self, slot: Slot, taken: list[Form]) -> Form:
        """What the program only reads, arranged. Adds to `taken` what is to be given to `shared.release` after the launch."""

        def arrange(form: Form) -> None:
            slot.arranged += 1
            slot.pack(self._view(slot), form.carrier)

        content = self._content if slot.owned is None else self._content_with_gaps
        form = shared.take(self._owner, (*self._place, slot.number), slot.layout, content, arrange)
        taken.append(form)
        slot.check(form)
        return form

    def open(self, slot: Slot) -> NDArray[np.float32]:
        """A carrier for what the program writes: the program's own."""
        self._check_written()
        if slot.own is None:
            slot.own = np.zeros((slot.layout.entries, LANES), np.float32)
        if slot.argument.role == "output":
            slot.own.fill(np.nan)
        else:
            slot.own.fill(0)  # the launch before may have written the padding
            slot.arranged += 1
            slot.pack(self._view(slot), slot.own)
        return slot.own

    def close(self, slot: Slot, carrier: NDArray[np.float32]) -> None:
        """The program has written it. What lies between the elements of the tensor stays as it is."""
        from_device(carrier.view(slot.layout.value_type), slot.layout, self._view(slot), slot.argument.range, slot.owned)

    def finish(self, tensor: Any) -> None:
        """Everything is written: bring what was written to a copy to `tensor`."""
        if self.memory is not self.array:
            self.array[...] = self.memory

    def _view(self, slot: Slot) -> Array:
        """What an argument shows of the tensor."""
        view = slot.argument.host
        assert view is not None
        if not self._declared and self.array.ndim == len(view.size) > 1 and not lies_as(self.array.shape, view.size, view.strides):
            raise KtirError(
                f"argument '{self._name}' is read with sizes {list(view.size)} and strides {list(view.strides)}, as no array of shape "
                f"{list(self.array.shape)} lies; its elements as an array of one dim will do, in the order in which they lie"
            )
        return host_view(self.memory, view.offset, view.size, view.strides, slot.argument.name, slot.layout.dtype)

    def _check_written(self) -> None:
        """Raises KtirError for what cannot be written."""
        if not self.array.flags.writeable:
            raise KtirError(f"argument '{self._name}' expects an array that can be written")
        if any(n > 1 and s == 0 for n, s in zip(self.array.shape, self.array.strides, strict=True)):
            raise KtirError(
                f"argument '{self._name}' is written and expects elements that lie apart, but got strides {self.array.strides} bytes"
            )

    @property
    def _owner(self) -> Any:
        """The object whose life is that of the memory."""
        if hasattr(self._tensor, "untyped_storage"):
            return self._tensor.untyped_storage()
        owner = self.array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return owner

    @property
    def _place(self) -> tuple[Hashable, ...]:
        """Where the elements lie, and of what type they are."""
        array = self.array
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype

    @cached_property
    def _content(self) -> Content:
        """What it holds; taken once for all views of it."""
        return Content(self.array, self._stamp)

    @cached_property
    def _content_with_gaps(self) -> Content:
        """Likewise with what lies between its elements, which programs read that take it by other strides."""
        last = sum((n - 1) * s for n, s in zip(self.array.shape, self._strides, strict=True))
        return Content(host_view(self.memory, 0, (last + 1,), (1,), self._name), self._stamp)
