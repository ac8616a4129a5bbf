"""A kernel with a softmax between its matmuls as the cost model sees it: its rows of scores, and what is loaded for them."""

from collections.abc import Sequence
from math import prod

from ktir.analysis.items import Contraction, Op, Reduction, Tensor
from ktir.cost.problem import Loop, Operand, Problem, Scores
from ktir.cost.softmax import Sticks
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.target import LANES

_ENTRY = 4 * LANES
"""Bytes of a stick of f32."""
_COLUMNS = 5
"""Tensors of one value per row: the largest score, the sum, what they were before, a factor."""


def softmax_problem(kernel: KernelFacts) -> Problem | None:
    """The problem of a kernel in which a matmul reduces the keys of scores that another one has made, and rows of them are reduced."""
    found = _scores_and_products(kernel)
    if found is None:
        return None
    scores, products = found
    keys = scores[0].value.shape[0]
    numbers = {s.number for s in scores}
    keyed = [i for i in kernel.ops if not isinstance(i, Contraction) and i.ancestors & numbers and keys in (i.value.shape[0], *_read(i))]
    matmuls = [*scores, *products]
    second = [(m.sources[1], kernel.walked(m, 1)) for m in matmuls]
    loads = kernel.loads
    operands = [Operand(f"matrix {i}", (*names, "keys"), whole_bytes=t.bytes) for i, (t, names) in enumerate(second)]
    others = [(names, size) for (t, names), size in loads.items() if (t, names) not in second]
    operands += [Operand(f"input {i}", names, whole_bytes=size) for i, (names, size) in enumerate(others)]
    written = sum(item.value.bytes for item in kernel.stores)
    operands.append(Operand("result", tuple(kernel.names), output=True, whole_bytes=written))
    rows = [t for (t, names) in loads if (t, names) not in second and "m" in names and t.shape[0] != keys]
    masks = [t for (t, names) in loads if (t, names) not in second and "m" in names and t.shape[0] == keys]
    made = [p.value for p in products]
    row_bytes = 2 * sum(map(_row_bytes, rows)) + 2 * sum(map(_row_bytes, made)) + _COLUMNS * _ENTRY
    stick_bytes = 3 * _ENTRY + _ENTRY // 2 + 2 * sum(map(_row_bytes, masks)) // keys
    return Problem(
        f"softmax of kernel '{kernel.name}'",
        (*kernel.loops(), Loop("keys", keys * LANES, LANES)),
        tuple(operands),
        "softmax",
        1 + sum(item.work for item in keyed),
        Scores(
            keys,
            stick_bytes,
            row_bytes,
            tuple(kernel.names[:-1]),
            tuple(0 if m in scores else m.value.shape[0] for m in matmuls),
            _seen(keyed, kernel.extents[-1], keys),
        ),
    )


def _seen(keyed: Sequence[Op], rows: int, keys: int) -> tuple[Sticks, ...]:
    """What the rows of scores see, where a mask hides keys of them; empty where the rows are not those of the kernel."""
    found = next((item.seen for item in keyed if isinstance(item, Reduction) and item.seen), ())
    return found if len(found) == -(-rows // LANES) and all(x.end <= keys for x in found) else ()


def _scores_and_products(kernel: KernelFacts) -> tuple[list[Contraction], list[Contraction]] | None:
    """The matmuls that make scores and those that reduce their keys; None if there is another one, or no softmax."""
    numbers = {item.number for item in kernel.contractions}
    products = [item for item in kernel.contractions if (item.ancestors - {item.number}) & numbers]
    scores = [item for item in kernel.contractions if item not in products]
    if not products or not scores:
        return None
    keys = {item.value.shape[0] for item in scores} | {item.sources[0].shape[0] for item in products}
    made = {item.number for item in scores}
    reduced = [i for i in kernel.ops if isinstance(i, Reduction) and i.ancestors & made and keys & set(_read(i))]
    return (scores, products) if len(keys) == 1 and reduced else None


def _read(item: Op) -> list[int]:
    return [source.shape[0] for source in item.sources]


def _row_bytes(tensor: Tensor) -> int:
    return tensor.bytes // prod(tensor.shape[1:-1])
