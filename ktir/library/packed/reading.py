"""Nodes of a graph as expressions of elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ktir.library.packed.expressions import Expression, Leaf, Step, broadcast, joined, moved, reshaped, shape_of, whole
from ktir.library.packed.kernels import WEIGHTS

aten = torch.ops.aten
_BITS = 4
_FEW = 64
"""Elements of a tensor that says by how much something is shifted."""
_STEPS = {aten.add.Tensor: "add", aten.sub.Tensor: "sub", aten.mul.Tensor: "mul"}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_SMALL = 100
"""What may be added to weights below 16 in any integer type that has a sign."""
_BYTES = (torch.uint8, torch.int8)


class Reader:
    """Reads the nodes of one graph, each once."""

    def __init__(self) -> None:
        self._read: dict[fx.Node, Expression | None] = {}

    @staticmethod
    def dtype_of(node: fx.Node) -> torch.dtype:
        """The type of a node's elements."""
        return node.meta["val"].dtype

    def read(self, node: Any) -> Expression | None:
        """What a node's elements are; None of what is no tensor of known shape."""
        if node not in self._read:
            value = node.meta.get("val") if isinstance(node, fx.Node) else None
            known = value if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape) else None
            self._read[node] = None if known is None else self._of(node, known)
        return self._read[node]

    def _of(self, node: fx.Node, value: torch.Tensor) -> Expression | None:
        """A tensor by what it is made of, else by itself."""
        reader = _READERS.get(_target(node)) if node.op == "call_function" else None
        found = None if reader is None else reader(self, node)
        if found is not None and shape_of(found) == tuple(value.shape):
            return found
        return whole(node, value.shape)

    # Views

    def _view(self, node: fx.Node) -> Expression | None:
        e = self.read(_args(node)[0])
        return None if e is None else moved(e, lambda leaf: reshaped(leaf, node.meta["val"].shape))

    def _expand(self, node: fx.Node) -> Expression | None:
        e = self.read(_args(node)[0])
        return None if e is None else moved(e, lambda leaf: broadcast(leaf, node.meta["val"].shape))

    def _permute(self, node: fx.Node) -> Expression | None:
        e = self.read(_args(node)[0])
        order = _args(node)[1] if len(_args(node)) > 1 else [1, 0]
        return None if e is None else moved(e, lambda leaf: replace(leaf, dims=tuple(leaf.dims[d] for d in order)))

    def _same(self, node: fx.Node) -> Expression | None:
        return self.read(_args(node)[0])

    def _cat(self, node: fx.Node) -> Expression | None:
        parts = [self.read(n) for n in _args(node)[0]]
        dim = _args(node)[1] if len(_args(node)) > 1 else 0
        leaves = [p for p in parts if isinstance(p, Leaf) and p.kind in ("weight", "signed")]
        return joined(leaves, dim % len(leaves[0].dims)) if len(leaves) == len(parts) else None

    # Bits

    def _shift(self, node: fx.Node) -> Expression | None:
        """Words of which others are the lowest bits; the highest ones are weights, of a type with a sign such with a sign."""
        by = _args(node)[1]
        if isinstance(by, fx.Node):
            return self._shift_by_tensor(node, by)
        word = self._word(_args(node)[0])
        parts = 0 if word is None else _parts(word)
        if word is None or word.kind == "shifted" or by % _BITS or not 0 <= by < _BITS * parts:
            return None
        first = by // _BITS
        if word.kind == "lifted":  # the lowest weight was moved to the highest bits, and comes back
            return replace(word, kind="signed") if first == parts - 1 else None
        kind = ("weight" if word.node.meta["val"].dtype == torch.uint8 else "signed") if first == parts - 1 else "shifted"
        return replace(word, first=word.first + first, kind=kind)

    def _lift(self, node: fx.Node) -> Expression | None:
        """Words of which the lowest weight is moved to the highest bits: of bytes with a sign, which it then has."""
        word = self._word(_args(node)[0])
        known = word is not None and word.kind == "word" and self.dtype_of(node) == torch.int8 and _args(node)[1] == _BITS
        return replace(word, kind="lifted") if word is not None and known else None

    def _shift_by_tensor(self, node: fx.Node, by: fx.Node) -> Expression | None:
        numbers = _constant(by)
        word = self._word(_args(node)[0])
        shape = node.meta["val"].shape
        word = None if word is None else broadcast(word, shape)
        if word is None or word.kind != "word" or numbers is None or numbers.ndim > len(shape):
            return None
        along = [d for d, n in enumerate(numbers.shape, len(shape) - numbers.ndim) if n != 1]
        if len(along) != 1 or any(distance for _, distance in word.dims[along[0]]):
            return None
        places = [n // _BITS for n in numbers.reshape(-1).tolist()]
        step = places[1] - places[0]
        if (numbers % _BITS).any() or not 0 <= min(places) <= max(places) < _parts(word):
            return None
        if places != [places[0] + k * step for k in range(len(places))]:
            return None
        dims = (*word.dims[: along[0]], ((len(places), step),), *word.dims[along[0] + 1 :])
        return replace(word, dims=dims, first=word.first + places[0], kind="shifted")

    def _mask(self, node: fx.Node) -> Expression | None:
        e, mask = self.read(_args(node)[0]), _args(node)[1]
        own = isinstance(e, Leaf) and e.kind in ("weight", "signed")
        word = e if isinstance(e, Leaf) and own else self._word(_args(node)[0])  # of the highest bits the sign goes
        if isinstance(mask, fx.Node):
            found = _constant(mask)
            mask = found.item() if found is not None and found.size == 1 else None
        known = word is not None and word.kind != "lifted" and mask == (1 << _BITS) - 1
        return replace(word, kind="weight") if word is not None and known else None

    def _word(self, node: Any) -> Leaf | None:
        """A tensor of words, some perhaps shifted."""
        e = self.read(node)
        if isinstance(e, Leaf) and e.kind == "element":
            parts = WEIGHTS.get(self.dtype_of(node))
            if parts is None or self.dtype_of(e.node) != self.dtype_of(node):
                return None
            dims = tuple(tuple((n, parts * distance) for n, distance in d) for d in e.dims)
            return Leaf(e.node, dims, parts * e.first, "word")
        return e if isinstance(e, Leaf) and e.kind in ("word", "shifted", "lifted") else None

    # Arithmetic

    def _convert(self, node: fx.Node) -> Expression | None:
        e = self.read(_args(node)[0])
        to = self.dtype_of(node)
        wide = to in (*_FLOATS, torch.int32, torch.int64, torch.int16, torch.int8)
        if e is None or (isinstance(e, Leaf) and e.kind == "lifted"):
            return None
        if isinstance(e, Leaf) and e.kind in ("word", "shifted"):
            return e if not to.is_floating_point and to.itemsize >= self.dtype_of(_args(node)[0]).itemsize else None
        if not to.is_floating_point:  # whole numbers of less than 16 in any type; and bytes, in any that is wider
            if isinstance(e, Leaf) and e.kind == "element" and to.itemsize > 1 and self.dtype_of(_args(node)[0]) in _BYTES:
                return self._word(_args(node)[0])
            fits = {"weight": wide or to == torch.uint8, "signed": wide}
            return e if isinstance(e, Leaf) and fits.get(e.kind) else None
        if not wide:
            return None
        return Step("to", e, str(to)[6:], str(to)[6:])

    def _arithmetic(self, node: fx.Node) -> Expression | None:
        """A step on floats, or on integers that stay small, with a number or a tensor."""
        name, to = _STEPS[_target(node)], self.dtype_of(node)
        first, second = _args(node)[:2]
        if node.kwargs.get("alpha", 1) != 1 or len(_args(node)) > 2:
            return None
        e = self.read(first) if isinstance(first, fx.Node) else None
        if e is None or not _has_weights(e):
            if name == "sub" or not isinstance(second, fx.Node):
                return None
            first, second = second, first
            e = self.read(first)
        if e is None or not _has_weights(e) or self.dtype_of(first) != to:
            return None
        small = isinstance(second, int | float) and float(second).is_integer() and abs(second) <= _SMALL
        if isinstance(second, int | float):
            if not to.is_floating_point and to.is_signed and small and isinstance(e, Leaf) and name != "mul":
                return Step(name, e, float(second), "int32")
            return Step(name, e, float(second), str(to)[6:]) if to in _FLOATS else None
        operand = self.read(second)
        if to not in _FLOATS or operand is None or _has_weights(operand) or self.dtype_of(second) != to:
            return None
        shape = node.meta["val"].shape
        own, other = (moved(x, lambda leaf: broadcast(leaf, shape)) for x in (e, operand))
        return None if own is None or other is None else Step(name, own, other, str(to)[6:])


def _target(node: fx.Node) -> Any:
    return node.target


def _args(node: fx.Node) -> list[Any]:
    return list(node.args)


def _has_weights(e: Expression) -> bool:
    return e.kind in ("weight", "signed") if isinstance(e, Leaf) else _has_weights(e.of)


def _constant(node: fx.Node) -> NDArray[Any] | None:
    """The elements of a small tensor that depends on no input; None of others."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.numel() > _FEW or not _is_constant(node):
        return None
    with unset_fake_temporarily():
        return _computed(node).numpy()


def _computed(node: fx.Node) -> torch.Tensor:
    if node.op == "get_attr":
        return getattr(node.graph.owning_module, str(node.target))
    assert callable(node.target)
    arguments = fx.map_arg(node.args, _computed)
    keywords = {k: torch.device("cpu") if k == "device" else v for k, v in node.kwargs.items()}
    return node.target(*arguments, **keywords)


def _is_constant(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return isinstance(getattr(node.graph.owning_module, str(node.target), None), torch.Tensor)
    return node.op == "call_function" and callable(node.target) and all(map(_is_constant, node.all_input_nodes))


def _parts(leaf: Leaf) -> int:
    """Weights of an element of a leaf's tensor."""
    return WEIGHTS[leaf.node.meta["val"].dtype]


_READERS: dict[Any, Callable[[Reader, fx.Node], Expression | None]] = {
    **dict.fromkeys(
        (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim), Reader._view
    ),
    **dict.fromkeys((aten.clone.default, aten.alias.default, torch.ops.aten.contiguous.default), Reader._same),
    **dict.fromkeys((aten.permute.default, aten.t.default), Reader._permute),
    aten.expand.default: Reader._expand,
    aten.cat.default: Reader._cat,
    **dict.fromkeys((aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar), Reader._shift),
    **dict.fromkeys((aten.__rshift__.Tensor, aten.bitwise_right_shift.Tensor), Reader._shift),
    **dict.fromkeys((aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar), Reader._lift),
    **dict.fromkeys((aten.bitwise_and.Scalar, aten.bitwise_and.Tensor, aten.__and__.Scalar), Reader._mask),
    **dict.fromkeys((torch.ops.prims.convert_element_type.default, aten._to_copy.default), Reader._convert),
    **dict.fromkeys(_STEPS, Reader._arithmetic),
}
