"""A float16 result of the user's program is one number for all who read it. What jumps is judged by PyTorch's op on our own operand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from combinations import each_once
from torch.fx.experimental.proxy_tensor import make_fx

from ktir.assembly import parse_module
from ktir.context import context
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical
from ktir.lowering.inductor.capture import capture
from ktir.lowering.inductor.graph import rounding
from ktir.lowering.inductor.graph.lowerings import decompositions
from ktir.mlir import ir
from ktir.package import read

Function = Callable[..., Any]

PRODUCERS: dict[str, Function] = {
    "matmul": lambda x, w: x @ w,
    "softmax": lambda x, w: (x @ w).softmax(-1),
    "layer norm": lambda x, w: F.layer_norm(x @ w, (65,)),
    "gelu": lambda x, w: F.gelu(x @ w),
    "mean": lambda x, w: (x[:, :, None] * w[None]).mean(1),
    "var": lambda x, w: (x[:, :, None] * w[None]).var(1),
    "chain": lambda x, w: (x[:, :65] * 1.1 + w[:5]) * w[5:10],
}
CONSUMERS: dict[str, Function] = {
    "argmax": lambda y: y.argmax(-1),
    "argmin": lambda y: y.argmin(-1),
    "max": lambda y: torch.max(y, -1)[1],
    "equal": lambda y: y == y.amax(-1, keepdim=True),
    "filter": lambda y: y.masked_fill(y < torch.topk(y, 3)[0][:, -1:], -float("inf")),
    "floor": lambda y: (y * 64).floor(),
    "truth": lambda y: (y * 1e-7).bool(),
    "above": lambda y: torch.where(y > 0.1, y, -y),
    "remainder": lambda y: torch.remainder(y, 0.3),
    "sorted": lambda y: torch.sort(y, dim=-1, stable=True)[1],
}
PAIRS = [*((p, "argmax") for p in PRODUCERS), *(("matmul", c) for c in CONSUMERS), ("softmax", "filter"), ("chain", "floor")]


def compiled(f: Function, *inputs: torch.Tensor, engine: str = "spyre") -> Any:
    torch._dynamo.reset()
    options: dict[str, Any] = {"engine": engine, "fallback": "error"}
    with torch.no_grad():
        return torch.compile(f, backend="spyre", fullgraph=True, dynamic=False, options=options)(*inputs)


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(5, 70, generator=generator).half(), torch.randn(70, 65, generator=generator).half()


@functools.cache
def produced(name: str) -> torch.Tensor:
    """What a compiled producer returns; it is only read."""
    return compiled(PRODUCERS[name], *operands())


@pytest.mark.parametrize(("producer", "consumer"), dict.fromkeys(PAIRS), ids=lambda name: name)
def test_what_jumps_reads_the_number_that_is_returned(producer: str, consumer: str) -> None:
    make, use = PRODUCERS[producer], CONSUMERS[consumer]
    assert torch.equal(compiled(lambda x, w: use(make(x, w)), *operands()), use(produced(producer)))


OF_SEVERAL_NODES: dict[str, Function] = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "causal attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True).transpose(1, 2).flatten(2),
    "attention of three dims": lambda x: F.scaled_dot_product_attention(x[0], x[0], x[0]),
    "group norm": lambda x: F.group_norm(x, 2),
    "instance norm": lambda x: F.instance_norm(x),
    "stack": lambda x: torch.stack([x * 1.1, x * 1.3]),
    "einsum": lambda x: torch.einsum("bhqd,bhkd->bqhk", x, x),
}
"""Operators that are taken apart, and end in a view or a copy of what is computed."""


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OF_SEVERAL_NODES)
def test_what_widens_reads_what_the_type_holds(name: str, half: torch.dtype) -> None:
    """And what is returned beside it."""
    x = torch.randn(1, 2, 70, 64, generator=torch.Generator().manual_seed(5)).to(half)
    value, wide = compiled(lambda x: ((y := OF_SEVERAL_NODES[name](x)), y.float() * 2), x)
    alone = compiled(lambda x: OF_SEVERAL_NODES[name](x).float(), x)
    assert torch.equal(value.float() * 2, wide)
    assert torch.equal(alone.to(half).float(), alone)


CONSTANTS: dict[str, Function] = {
    "full": lambda x: torch.full((), 0.1, dtype=x.dtype) * x,
    "full like": lambda x: torch.full_like(x, 1 / 3) * x,
    "new full": lambda x: x.new_full((130,), 0.1) * x,
    "fill": lambda x: torch.zeros_like(x).fill_(0.1) * x,
    "clamp": lambda x: x.clamp(min=0.1, max=0.7) * 3,
    "hardtanh": lambda x: F.hardtanh(x, -0.1, 0.1) * 3,
    "threshold": lambda x: F.threshold(x, 0.1, 0.3) * 3,
    "tiny limit": lambda x: x.clamp(min=1e-45) * 3,
    "tiny limit from above": lambda x: x.clamp_max(-1e-45) * 3,
}


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_numbers_of_their_type(name: str, half: torch.dtype) -> None:
    """What eager has of 0.1 in half precision is multiplied, and compared: one float32 op behind it, so the bits are those of eager."""
    x = torch.cat([torch.randn(128, generator=torch.Generator().manual_seed(3)), torch.tensor([-0.0, 0.0])]).to(half)
    got, expected = compiled(CONSTANTS[name], x), CONSTANTS[name](x)
    assert torch.equal(got.view(torch.int16), expected.view(torch.int16))


def test_the_executor_reads_it_too() -> None:
    x, w = operands()
    expected = compiled(lambda x, w: x @ w, x, w, engine="ktir").argmax(-1)
    assert torch.equal(compiled(lambda x, w: (x @ w).argmax(-1), x, w, engine="ktir"), expected)


def test_two_readers_see_the_rounded_value() -> None:
    """Each step is one float32 op: the oracle rounds where the program has a value with several readers."""
    a, b = (torch.randn(4, 130, generator=torch.Generator().manual_seed(k)).half() for k in (0, 1))
    y = (a * b).float()
    expected = ((y - a.float()) * y).half()
    assert not torch.equal(expected, ((a.float() * b.float() - a.float()) * (a.float() * b.float())).half())
    assert torch.equal(compiled(lambda a, b: ((y := a * b) - a) * y, a, b), expected)


@pytest.mark.parametrize("width", [1, 64, 65])
def test_extremes_of_special_values(width: int) -> None:
    """NaN wins, the first of equals is it; also of a value that is computed in the same program."""
    rows = torch.zeros(6, width).half()
    rows[1] = -float("inf")
    rows[2] = float("inf")
    rows[3, width // 2 :] = float("nan")
    rows[4, -1] = 1.0
    rows[5] = (torch.arange(width) % 7).half()
    kinds: dict[str, Function] = {
        "argmax": torch.argmax,
        "argmin": torch.argmin,
        "max": lambda x, dim: torch.max(x, dim)[1],
        "min": lambda x, dim: torch.min(x, dim)[1],
    }

    def f(*each: torch.Tensor) -> dict[str, torch.Tensor]:
        return {kind: find(x + x, -1) for (kind, find), x in zip(kinds.items(), each, strict=True)}

    each = [rows.clone() for _ in kinds]
    found = compiled(f, *each)
    for kind, expected in f(*each).items():
        assert torch.equal(found[kind], expected), kind


def test_a_rounding_takes_no_word() -> None:
    """The word that multiplies rounds; only what comes from the array is moved."""
    x = torch.ones(8, 64).half()
    with context(), ir.Location.unknown():
        module = parse_module(capture(lambda a, b: (a * b).amax(-1), x, x), "product")
        program = read(compile_logical(module, cores=2)).program
    words = [w for k in program.kernels for w in k.units[Unit.SFP] if w.op in ("v1", "v2")]
    assert [(w["kind"], w["round"]) for w in words if w.op == "v2"] == [("mul", True)]
    assert not any(w["kind"] == "mov" for w in words)


GRAPHS: dict[str, tuple[Function, list[str]]] = {
    "one reader": (lambda x, y: torch.relu(x * y), []),
    "only returned": (lambda x, y: x @ y, []),
    "two readers": (lambda x, y: (z := x * y).exp() + z, ["mul"]),
    "returned and read": (lambda x, y: ((z := x * y), z + x), ["mul"]),
    "views of it": (lambda x, y: (z := x @ y)[:2].exp() * z[2:4], ["mm"]),
    "reduction": (lambda x, y: (x * y).sum(-1), ["mul"]),
    "matmul": (lambda x, y: (x + y) @ y, ["add"]),
    "comparison": (lambda x, y: x * y > 1, ["mul"]),
    "rounding": (lambda x, y: (x * y).floor(), ["mul"]),
    "quotient": (lambda x, y: torch.div(x * y, y, rounding_mode="floor"), ["mul"]),
    "integers": (lambda x, y: (x * y).int(), ["mul"]),
    "wider type": (lambda x, y: (x * y).float(), ["mul"]),
    "inside of one operator": (lambda x, y: F.gelu(F.silu(x @ y)), []),
    "of one operator": (lambda x, y: F.silu(x @ y).sum(), ["convert_element_type_1"]),
    "composite reader": (lambda x, y: (x @ y).softmax(-1), ["mm"]),
    "moved": (lambda x, y: torch.cat([x, y])[1:] + 1, []),
    "written": (lambda x, y: x.index_copy(0, torch.tensor([1]), (x * y)[:1]).sum(), ["mul"]),
    "float32": (lambda x, y: (x.float() * y.float()).floor(), []),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_where_values_are_rounded(name: str) -> None:
    f, expected = GRAPHS[name]
    x = torch.ones(8, 8).half()
    graph = make_fx(f, decomposition_table=decompositions(), tracing_mode="fake")(x, x).graph
    rounding.mark(graph)
    graph.lint()
    assert [n.args[0].name for n in graph.nodes if n.target is rounding.ROUNDED and isinstance(n.args[0], torch.fx.Node)] == expected


PARTS: dict[str, Function] = {
    "split": lambda x: torch.split(x, 18, -1)[0],
    "sizes": lambda x: torch.split(x, [40, 30], -1)[1][:, :18],
    "chunk": lambda x: torch.chunk(x, 3, -1)[1][:, :18],
    "unbind": lambda x: torch.unbind(x.view(5, 2, 35), 1)[1][:, :18],
}
WRITES: dict[str, Function] = {
    "index_put": lambda y, i, v: torch.index_put(y, (i,), v),
    "index_add": lambda y, i, v: torch.index_add(y, 0, i, v),
    "scatter": lambda y, i, v: torch.scatter(y, 0, i[:, None].expand(-1, 18), v),
    "select_scatter": lambda y, i, v: torch.select_scatter(y, v[0], 0, 1),
}


@pytest.mark.parametrize(("part", "write"), each_once(PARTS, WRITES))
def test_a_part_of_an_input_is_not_written(part: str, write: str) -> None:
    """Inductor writes in place where it sees no other reader: what shares memory with an input must stay known to do so."""
    x, index = operands()[0], torch.tensor([3, 0, 1])
    values, before = torch.ones(3, 18).half(), x.clone()

    def f(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = PARTS[part](x)
        return F.pad(y, (3, 3)), WRITES[write](y, i, v)

    torch._dynamo.reset()
    got = torch.compile(f, backend="spyre", dynamic=False)(x, index, values)
    assert torch.equal(x, before)
    for a, b in zip(got, f(before, index, values), strict=True):
        assert torch.equal(a, b)


STEPS: dict[str, Function] = {
    "addcmul": lambda column, c, row: torch.addcmul(column, c, row, value=2),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_one_operator_are_not_rounded(name: str) -> None:
    """Of a row beside a column, Inductor computes once what only the row decides, and keeps it in memory."""
    column, rows = torch.linspace(-2, 2, 256)[:, None].half(), operands()[1][:, :31] * 9

    def f(column: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.logsumexp(rows, 0, keepdim=True)
        return STEPS[name](column, F.mish(row), row), row

    got, row = compiled(f, column, rows)
    wanted = STEPS[name](column.double(), F.mish(row.double()).half().double(), row.double())
    unit = torch.maximum(wanted.abs(), torch.tensor(2.0**-14)).log2().floor().exp2() * 2.0**-10
    assert ((got.double() - wanted).abs() <= 0.501 * unit).all()


@pytest.mark.parametrize(("write", "dtype"), each_once(WRITES, [torch.float16, torch.float32, torch.int64]), ids=str)
def test_elements_that_share_memory_are_written_apart(write: str, dtype: torch.dtype) -> None:
    index, values = torch.tensor([3, 0, 1]), torch.arange(54).reshape(3, 18).to(dtype)

    def f(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return WRITES[write]((x + x).expand(5, 18), i, v)

    x = torch.ones(18).to(dtype)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, backend="spyre", dynamic=False)(x, index, values), f(x, index, values))


def _operands(x: torch.Tensor, s: Any) -> tuple[torch.Tensor, ...]:
    """What PyTorch's kernels do with one number in half precision: all but a factor and a divisor are converted first."""
    sums = x + s, s + x, x - s, s - x, torch.add(x, x.flip(0), alpha=s), torch.sub(x, x.flip(0), alpha=s), torch.add(x, s, alpha=s)
    lists = (
        *torch.ops.aten._foreach_add([x, x.flip(0)], s),
        *torch.ops.aten._foreach_sub([x], [0.5]),
        *torch.ops.aten._foreach_add([x], [x.flip(0)], alpha=s),
    )
    return *sums, x * s, s * x, x / s, x**s, s**x, s // x, torch.rsub(x, s, alpha=1.3), torch.nn.functional.softshrink(x, s), *lists


@pytest.mark.turn
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operands_that_are_numbers_are_those_of_eager(dtype: torch.dtype) -> None:
    """Bit for bit, whether a number is a constant or changes between calls."""
    torch._dynamo.reset()
    x = torch.arange(-(2**15), 2**15, 37, dtype=torch.int32).to(torch.int16).view(dtype)
    x = x[x.abs() < 2.0**100]
    x = x[: len(x) // 64 * 64]  # what is left of vectors, eager's kernels compute in half precision
    changing = torch.compile(_operands, backend="ktir", fullgraph=True)
    for number in (0.3, 1.7, 2049.3, 1e-5):
        results = [changing(x, number)]
        if number == (2049.3 if dtype == torch.float16 else 0.3):
            results.append(torch.compile(lambda x, number=number: _operands(x, number), backend="ktir", fullgraph=True)(x))
        for found in results:
            for k, (a, b) in enumerate(zip(found, _operands(x, number), strict=True)):
                assert torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)), k


def _tensors(x: torch.Tensor, t: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    held = torch.tensor(0.3)
    return x + held, held - x, x + t, t - x, x * t, t * x, x / t, t / x.abs(), torch.maximum(x, t), x + n, x - n


def test_operands_that_are_converted_are_those_of_eager(on_chip: None) -> None:
    torch._dynamo.reset()
    x, t, n = torch.linspace(-5, 5, 999).half(), torch.tensor(1.7), torch.arange(2000, 2999)
    found = torch.compile(_tensors, backend="spyre", fullgraph=True)(x, t, n)
    for k, (a, b) in enumerate(zip(found, _tensors(x, t, n), strict=True)):
        assert torch.equal(a, b), k


def _of_other_types(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    held = x - x + t
    tests = held == t, held < t, held >= t, x < t, x.sign() * held.abs() != t
    steps = torch.fmod(x, t), torch.remainder(x, t), torch.where(x > 0, x, t), torch.clamp(x, min=t), torch.addcmul(x, x, t)
    return *tests, *steps, x + t, t - x, x * t, t * x, x / t, x // t


@pytest.mark.parametrize(
    ("other", "dtype"), each_once([torch.float16, torch.bfloat16, torch.float32, torch.float64], [torch.float16, torch.bfloat16]), ids=str
)
def test_one_number_of_another_type_is_that_of_eager(dtype: torch.dtype, other: torch.dtype) -> None:
    """Bit for bit: comparisons, choices and remainders convert it, products and quotients do not."""
    torch._dynamo.reset()
    row = torch.linspace(-5, 5, 1024).to(dtype)
    for x, number in ((row, 0.3), (row, 1.2345678), (row, -0.2134), (row[100], 0.3)):
        t = torch.tensor(number, dtype=other)
        found = torch.compile(_of_other_types, backend="ktir", fullgraph=True)(x, t)
        for k, (a, b) in enumerate(zip(found, _of_other_types(x, t), strict=True)):
            assert a.dtype == b.dtype, k
            assert torch.equal(a, b), k
