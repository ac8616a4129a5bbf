"""Arguments of tests as a configuration spells them out: tensors of a shape, type and content, lists of them, numbers, literals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ktir.checking.suites import names
from ktir.checking.suites.source import Value
from ktir.diagnostics import KtirError

INITS = ("rand", "randn", "zeros", "ones", "randint", "arange", "eye", "full", "file")
_FLOATING_ONLY = ("rand", "randn")
_ARGS_OF = {"randint": ("low", "high"), "full": ("fill_value",), "file": ("path", "key"), "rand": ("low", "high")}
_FORMATS = (".pt", ".npy", ".safetensors")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    init: str
    low: float = 0
    high: float = 1
    fill: float = 0
    content: torch.Tensor | None = None
    """What the file of `init: file` holds."""
    stride: tuple[int, ...] | None = None
    offset: int = 0

    def make(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The tensor, in another type if one is given."""
        values = self._values()
        if self.stride is not None or self.offset:
            stride = self.stride or values.stride()
            last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, stride, strict=True))
            place = torch.zeros(last + 1 if 0 not in self.shape else 0, dtype=self.dtype)
            values = place.as_strided(self.shape, stride, self.offset).copy_(values)
        if dtype not in (None, self.dtype):
            values = _converted(values, dtype)
        return values if self.device == "cpu" else _with_strides(values, self.device)

    def _values(self) -> torch.Tensor:
        shape, dtype = self.shape, self.dtype
        match self.init:
            case "rand":
                return torch.rand(shape, dtype=dtype) * (self.high - self.low) + self.low
            case "randn":
                return torch.randn(shape, dtype=dtype)
            case "randint":
                return torch.randint(int(self.low), int(self.high), shape).to(dtype)
            case "arange":
                return torch.arange(math.prod(shape)).to(dtype).reshape(shape)
            case "eye":
                return torch.eye(shape[0], dtype=dtype)
            case "full":
                return torch.full(shape, self.fill, dtype=dtype)
            case "file":
                assert self.content is not None
                return self.content.clone()
        return (torch.zeros if self.init == "zeros" else torch.ones)(shape, dtype=dtype)


def _converted(values: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    moved = torch.empty(values.untyped_storage().nbytes() // values.itemsize, dtype=dtype)
    return moved.as_strided(values.shape, values.stride(), values.storage_offset()).copy_(values)


def _with_strides(values: torch.Tensor, device: str) -> torch.Tensor:
    """A copy elsewhere, in memory of the same layout."""
    flat = values.as_strided((values.untyped_storage().nbytes() // values.itemsize,), (1,), 0)
    return flat.to(device).as_strided(values.shape, values.stride(), values.storage_offset())


@dataclass(frozen=True)
class Inputs:
    """Positional and keyword arguments."""

    args: tuple[Callable[[torch.dtype | None], Any], ...]
    """Each makes its argument, tensors in the given type if there is one."""
    kwargs: dict[str, Any]
    tensors: tuple[TensorSpec, ...]
    place: str = ""

    def make(self, dtype: torch.dtype | None = None) -> list[Any]:
        """The positional arguments."""
        return [make(dtype) for make in self.args]


Reader = Callable[[Value], TensorSpec]


def read_inputs(value: Value) -> Inputs:
    """`edits.inputs`."""
    found = value.fields(optional=("args", "kwargs"))
    args, tensors = read_arguments(found.get("args"), tensor_spec)
    return Inputs(args, read_kwargs(found.get("kwargs")), tensors, value.place)


def read_arguments(value: Value | None, read: Reader) -> tuple[tuple[Callable[[Any], Any], ...], tuple[TensorSpec, ...]]:
    """A list of arguments, and the tensors among them."""
    makers: list[Callable[[Any], Any]] = []
    tensors: list[TensorSpec] = []
    for item in value.items() if value else ():
        pairs = item.pairs()
        kinds = ("tensor", "tensor_list", "value", "py")
        if len(pairs) != 1 or not set(pairs) <= set(kinds):
            raise item.error(f"expects exactly one of {', '.join(kinds)}, but got {', '.join(pairs) or 'none'}")
        ((kind, content),) = pairs.items()
        if kind == "tensor":
            spec = read(content)
            tensors.append(spec)
            makers.append(spec.make)
        elif kind == "tensor_list":
            specs = content.each(read)
            tensors += specs
            makers.append(lambda dtype, specs=specs: [spec.make(dtype) for spec in specs])
        else:
            constant = content.plain() if kind == "value" else names.literal(content)
            makers.append(lambda _, constant=constant: constant)
    return tuple(makers), tuple(tensors)


def read_kwargs(value: Value | None) -> dict[str, Any]:
    """Keyword arguments; the name of a type stands for the type."""
    found = {}
    for name, each in (value.pairs() if value else {}).items():
        plain = each.plain()
        if not name.isidentifier():
            raise each.error(f"expects the name of an argument, but got '{name}'")
        found[name] = (names.dtype_named(plain) or plain) if isinstance(plain, str) else plain
    return found


def tensor_spec(value: Value) -> TensorSpec:
    """A tensor of RFC 1287."""
    found = value.fields(("shape", "dtype", "device", "init"), ("init_args", "stride", "storage_offset"))
    shape = found["shape"].each(lambda n: n.integer(1))
    kind, init = names.dtype(found["dtype"]), found["init"].choice(INITS)
    stride = found["stride"].each(lambda n: n.integer(0)) if "stride" in found else None
    if stride is not None and len(stride) != len(shape):
        raise found["stride"].error(f"expects {len(shape)} strides, as the shape has, but got {len(stride)}")
    offset = found["storage_offset"].integer(0) if "storage_offset" in found else 0
    _check_init(found["init"], init, shape, kind)
    if init == "arange" and len(shape) != 1:
        raise found["init"].error(f"expects a shape of one dim for arange, but got {list(shape)}")
    extra = init_args(found.get("init_args"), init, found["init"], shape, kind)
    return TensorSpec(shape, kind, names.device(found["device"]), init, stride=stride, offset=offset, **extra)


def model_tensor(default: torch.dtype) -> Reader:
    """Reads a tensor of RFC 0186: type and content may be left out."""

    def read(value: Value) -> TensorSpec:
        found = value.fields(("shape",), ("init", "dtype", "init_args"))
        shape = found["shape"].each(lambda n: n.integer(1))
        kind = names.short_dtype(found["dtype"]) if "dtype" in found else default
        if "init" not in found and not kind.is_floating_point:
            return TensorSpec(shape, kind, "cpu", "randint", high=2)
        init = found["init"].choice(INITS) if "init" in found else "rand"
        at = found.get("init", value)
        _check_init(at, init, shape, kind)
        return TensorSpec(shape, kind, "cpu", init, **init_args(found.get("init_args"), init, at, shape, kind))

    return read


def _check_init(value: Value, init: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if init in _FLOATING_ONLY and not dtype.is_floating_point:
        raise value.error(f"expects a floating-point type for {init}, but got {str(dtype)[6:]}")
    if init == "eye" and (len(shape) != 2 or shape[0] != shape[1]):
        raise value.error(f"expects a square shape of two dims for eye, but got {list(shape)}")


def init_args(value: Value | None, init: str, at: Value, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    """`init_args`, as fields of a TensorSpec."""
    known = _ARGS_OF.get(init, ())
    if value is not None and not known:
        raise value.error(f"is not for {init}, which takes no arguments")
    found = value.fields(optional=known) if value else {}
    needed = {"randint": "high", "full": "fill_value", "file": "path"}.get(init)
    if needed and needed not in found:
        raise at.error(f"needs 'init_args.{needed}' for {init}")
    if init == "file":
        return {"content": _content(found, shape, dtype)}
    if init == "full":
        return {"fill": found["fill_value"].number()}
    result = {name: each.integer() if init == "randint" else each.number() for name, each in found.items()}
    if init == "randint" and result["high"] <= result.get("low", 0):
        raise found["high"].error(f"expects more than low, {result.get('low', 0)}, but got {result['high']}")
    if init == "rand" and result.get("high", 1) < result.get("low", 0):
        raise next(reversed(found.values())).error(f"expects low up to high, but got {result.get('low', 0)} to {result.get('high', 1)}")
    return result


def _content(found: dict[str, Value], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    at = found["path"]
    path = Path(names.with_tokens(at))
    if path.suffix not in _FORMATS:
        raise at.error(f"expects a file of {', '.join(_FORMATS)}, but got '{path}'")
    if not path.is_file():
        raise at.error(f"expects a file, but there is no '{path}'")
    tensors = _load(path, at)
    key = found["key"].text() if "key" in found else None
    if key is None and len(tensors) != 1:
        raise at.error(f"needs 'key': '{path}' holds {len(tensors)} tensors, {', '.join(list(tensors)[:4])}")
    if key is not None and key not in tensors:
        raise found["key"].error(f"is not in '{path}', which holds {', '.join(list(tensors)[:4])}")
    tensor = tensors[key] if key is not None else next(iter(tensors.values()))
    if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
        there = f"{str(tensor.dtype)[6:]} {list(tensor.shape)}"
        raise at.error(f"expects {str(dtype)[6:]} {list(shape)}, but '{path}' holds {there}")
    return tensor


def _load(path: Path, at: Value) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        if path.suffix == ".npy":
            import numpy as np

            return {"": torch.from_numpy(np.load(path, allow_pickle=False))}
        content = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise KtirError("files of .safetensors need the package 'safetensors': pip install safetensors", at.place) from None
    except Exception as error:  # of three libraries, each with its own
        raise at.error(f"cannot be read: {str(error).splitlines()[0]}") from None
    tensors = content if isinstance(content, dict) else {"": content}
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors.values()):
        raise at.error(f"expects tensors in '{path}', but it holds {type(content).__name__}")
    return tensors
