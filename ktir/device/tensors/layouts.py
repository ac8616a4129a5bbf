"""Layouts of tensors on the device, with the names of the published interface: `x.to("spyre", device_layout=)`, `x.device_tensor_layout()`.

A layout is a form of the tensor's allocation (`ktir.runtime.memory`). It is no property that programs depend on: what wants another form
gets it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import UninitializedTensorMixin, is_lazy  # type: ignore[attr-defined]

from ktir.device.tensors.storage import allocation_of, on_card
from ktir.target import held, is_half

if TYPE_CHECKING:
    from ktir.runtime.device import DeviceTensor
    from ktir.runtime.memory.allocation import Allocation
    from ktir.runtime.memory.view import Arrangement
    from ktir.spyre_tensor_layout import SpyreTensorLayout

_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.int32: "i32", torch.int64: "i32"}
"""Types of which there are forms that keep all bytes -> the type of the form."""


def get_spyre_tensor_layout(tensor: torch.Tensor) -> SpyreTensorLayout:
    """The layout in which a tensor lies. One that still lies as the host has it, since nobody wanted it otherwise, has the default layout
    of its size. Raises ValueError for a part of a storage, for types that have no format on the device, and for integers that its format
    does not hold.
    """
    from ktir.spyre_tensor_layout import SpyreTensorLayout

    allocation, view = _there(tensor)
    if not view.is_all_of(allocation.nbytes):
        raise ValueError("expects a tensor that is all of its storage, but got a part of one: .clone()")
    if allocation.wanted is not None:
        wanted, published = allocation.wanted
        _lie(allocation, wanted)
        return published
    if allocation.whole is None:
        return SpyreTensorLayout(view.size, view.strides, tensor.dtype, range(tensor.dim()))
    return _published(allocation.whole)


def set_spyre_tensor_layout(tensor: torch.Tensor, layout: SpyreTensorLayout, *, moved: bool = False) -> None:
    """Let a tensor lie in another layout. Raises ValueError for one that is not of this tensor. moved: see `Allocation.lay`."""
    from ktir.layout import Layout
    from ktir.runtime.memory.view import arrangement
    from ktir.spyre_tensor_layout import SpyreTensorLayout, get_device_dtype

    allocation, view = _there(tensor)
    if not isinstance(layout, SpyreTensorLayout):
        raise ValueError(f"expects a SpyreTensorLayout, but got {layout!r}")
    kind = _TYPES.get(tensor.dtype)
    if kind is None:
        raise ValueError(f"tensors of {tensor.dtype} lie as on the host; those that have layouts are {', '.join(map(str, _TYPES))}")
    if layout.device_dtype is not get_device_dtype(tensor.dtype):
        raise ValueError(
            f"expects a layout of {get_device_dtype(tensor.dtype)} for a tensor of {tensor.dtype}, but got {layout.device_dtype}"
        )
    layout.transfers(view.size, view.strides)  # which holds every element once
    wanted = arrangement(view, Layout(view.size, layout.digits(view.size, view.strides), kind))
    _lie(allocation, wanted, moved=moved)
    allocation.wanted = wanted, layout


def _there(tensor: torch.Tensor) -> DeviceTensor:
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "spyre":
        got = f"one on '{tensor.device}'" if isinstance(tensor, torch.Tensor) else repr(tensor)
        raise ValueError(f"expects a tensor on the device 'spyre', but got {got}")
    return on_card(tensor)


def _lie(allocation: Allocation, wanted: Arrangement, *, moved: bool = False) -> None:
    from ktir.diagnostics import KtirError

    try:
        allocation.lay(wanted, moved=moved)
    except KtirError as error:
        raise ValueError(error.message) from None


def _published(arrangement: Arrangement) -> SpyreTensorLayout:
    """A form by the published fields: sticks of 32 bits have 32 elements."""
    from ktir.spyre_tensor_layout import DataFormats, SpyreTensorLayout

    view, layout = arrangement.view, arrangement.layout
    kind = DataFormats.SEN169_FP16 if is_half(layout.dtype) else DataFormats[held(layout.dtype).published]
    size = list(layout.device_size)
    strides = [-1 if d.dim is None or view.size[d.dim] == 1 else d.divisor * view.strides[d.dim] for d in layout.digits]
    eps = kind.elems_per_stick()
    if size[-1] > eps:
        size[-1:], strides[-1:] = [size[-1] // eps, eps], [-1 if strides[-1] < 0 else strides[-1] * eps, strides[-1]]
    return SpyreTensorLayout(size, strides, kind)


def empty_with_layout(
    size: Sequence[int],
    layout: SpyreTensorLayout,
    dtype: torch.dtype | None = None,
    device: Any = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """A new tensor on the device that lies in a layout."""
    made = torch.empty(
        size, dtype=dtype, device=device or "spyre", pin_memory=bool(pin_memory), memory_format=memory_format or torch.contiguous_format
    )
    set_spyre_tensor_layout(made, layout, moved=True)
    return made


def spyre_empty_with_layout(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, layout: SpyreTensorLayout) -> torch.Tensor:
    """The same with strides, on this thread's card."""
    made = torch.empty_strided(size, stride, dtype=dtype, device="spyre")
    set_spyre_tensor_layout(made, layout, moved=True)
    return made


def to_with_layout(tensor: torch.Tensor, layout: SpyreTensorLayout) -> torch.Tensor:
    """A copy of a tensor on the device in a layout; the tensor itself where it has been given this one."""
    return _to(torch.Tensor.to, tensor, device_layout=layout)


def require_layout(x: torch.Tensor, device_size: Sequence[int], stride_map: Sequence[int]) -> torch.Tensor:
    """In compiled code alone: the function returns `x` in this layout. Its compilation is refused for one that `x` cannot have."""
    if not torch.compiler.is_compiling():
        raise RuntimeError("require_layout is for compiled code; use x.to(device_layout=layout)")
    return torch.ops.spyre.require_layout(x, device_size, stride_map)


def _marked(x: torch.Tensor, device_size: Sequence[int], stride_map: Sequence[int]) -> torch.Tensor:
    """What tracing sees: a tensor of the same kind. It refuses nothing, since what refuses here is wrapped, and logged with a traceback."""
    return torch.empty_like(x)


def _lay(x: torch.Tensor, device_size: Sequence[int], stride_map: Sequence[int]) -> None:
    from ktir.spyre_tensor_layout import SpyreTensorLayout, get_device_dtype

    set_spyre_tensor_layout(x, SpyreTensorLayout(device_size, stride_map, get_device_dtype(x.dtype)))


def operators() -> torch.library.Library:
    """The mark that compiled code makes, and what it is made of its result."""
    library = torch.library.Library("spyre", "FRAGMENT")
    library.define("require_layout(Tensor x, int[] device_size, int[] stride_map) -> Tensor")
    library.define("lay_(Tensor(a!) x, int[] device_size, int[] stride_map) -> ()")
    library.impl("require_layout", _marked, "Meta")
    library.impl("lay_", _lay, "PrivateUse1")
    return library


def _to(stock: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any, device_layout: Any = None, **kwargs: Any) -> torch.Tensor:
    if device_layout is None:
        return stock(self, *args, **kwargs)
    moved = stock(self, *(args or ((self.device if self.device.type == "spyre" else "spyre",) if not kwargs else ())), **kwargs)
    if moved.device.type != "spyre":
        raise ValueError(f"device_layout is for tensors on the device 'spyre', but got device '{moved.device}'")
    if moved is self:
        if allocation_of(self).wanted is not None and get_spyre_tensor_layout(self) == device_layout:
            return self
        moved = self.clone()
    set_spyre_tensor_layout(moved, device_layout, moved=True)
    return moved


def _new(stock: Callable[..., torch.Tensor], self: torch.Tensor, *args: Any, device_layout: Any = None, **kwargs: Any) -> torch.Tensor:
    made = stock(self, *args, **kwargs)
    if device_layout is not None:
        set_spyre_tensor_layout(made, device_layout, moved=True)
    return made


def _linear(stock: Callable[..., Any], self: torch.nn.Linear, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """A weight lies as matmuls want it when its module comes to the device: of 16 bits, its output features lie along the sticks."""
    module = stock(self, fn, *args, **kwargs)
    weight = self.weight
    if is_lazy(weight):
        return module
    kind = _TYPES.get(weight.dtype)
    if weight.device.type == "spyre" and kind is not None and weight.is_floating_point() and weight.numel():
        from ktir.layout import Layout
        from ktir.runtime.memory.view import View, arrangement

        allocation, view = on_card(weight)
        if allocation.is_linear and view.is_all_of(allocation.nbytes):
            if is_half(kind):
                view = View(view.dtype, 0, view.size[::-1], view.strides[::-1])
            allocation.lay(arrangement(view, Layout.rows(view.size[0], view.size[1], kind)), moved=True)
    return module


def install() -> None:
    """Let tensors and modules of torch know layouts."""
    for owner, name, function in (
        (torch.Tensor, "to", _to),
        (torch.Tensor, "new_empty", _new),
        (torch.Tensor, "new_empty_strided", _new),
        (torch.nn.Linear, "_apply", _linear),
    ):
        stock = getattr(owner, name)
        ours = functools.wraps(stock)(_bound(function, stock))
        setattr(owner, name, ours)
        if owner is torch.Tensor:
            setattr(owner, f"_stock_{name}", stock)  # Dynamo knows as methods of tensors what it finds there, under any name
        if stock in UninitializedTensorMixin._allowed_methods:  # what lazy modules may do before they know their sizes
            UninitializedTensorMixin._allowed_methods.append(ours)
    torch.Tensor.device_tensor_layout = get_spyre_tensor_layout  # type: ignore[attr-defined]


def _bound(function: Callable[..., Any], stock: Any) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(stock, self, *args, **kwargs)

    return method
