"""Exchanges of pinned kernels: the executor's bits, and in the stream the moves from core to core that the author's op says."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pinned import equal, loops, package_of
from test_pinned_views import view

from ktir.diagnostics import KtirError
from ktir.isa.program import Kernel
from ktir.isa.units import Unit
from ktir.runtime.executable import Executable

Shape = tuple[int, int]


def box(shape: Shape) -> str:
    return f"affine_set<(r, c) : (r >= 0, -r + {shape[0] - 1} >= 0, c >= 0, -c + {shape[1] - 1} >= 0)>"


def tile(name: str, source: str, at: str, memory: Shape, shape: Shape, type_: str) -> str:
    order = "affine_map<(r, c) -> (r, c)>"
    return (
        f"%{name} = ktdp.construct_access_tile {source}[{at}] {{access_tile_set = {box(shape)}, access_tile_order = {order}}} : "
        f"memref<{memory[0]}x{memory[1]}x{type_}> -> !ktdp.access_tile<{shape[0]}x{shape[1]}xindex>\n"
    )


def everybody(count: int) -> str:
    return f"affine_set<(i)[g] : (i >= 0, -i + {count - 1} >= 0)>"


COMBINER = "{{\n^bb0(%p: {0}, %q: {0}):\n%c = arith.addf %p, %q : {0}\nktdp.yield_reduced %c : {0}\n}}\n"


def exchange(
    tiles: int, op: str, given: Shape, result: Shape, dims: str = "", sets: tuple[str, str, int] | None = None, type_: str = "f16",
    store: str = "", loop: int = 0,
) -> str:  # fmt: skip
    """Each tile loads its rows of x, sends them by `op`, and stores what it gets; `sets`: producers, consumers, groups."""
    producers, consumers, groups = sets or (everybody(tiles), everybody(tiles), 1)
    one, other = (f"tensor<{s[0]}x{s[1]}x{type_}>" for s in (given, result))
    turns = max(loop, 1)
    x, y = (turns * tiles * given[0], given[1]), (turns * tiles * result[0], result[1])
    text = f"%t = ktdp.get_compute_tile_id : index\n%r = arith.constant {given[0]} : index\n%s = arith.constant {result[0]} : index\n"
    text += f"%none = arith.constant 0 : index\n%one = arith.constant 1 : index\n%n = arith.constant {tiles} : index\n"
    text += f"%turns = arith.constant {turns} : index\n"
    text += view("x", "%px", x, (x[1], 1)).replace("f16", type_) + view("y", "%py", y, (y[1], 1)).replace("f16", type_)
    text += f"%z = arith.constant dense<0.0> : {one}\n" if "reduce" in op else ""
    text += (
        "scf.for %turn = %none to %turns step %one {\n%b = arith.muli %turn, %n : index\n%u = arith.addi %b, %t : index\n" if loop else ""
    )
    text += f"%at = arith.muli %{'u' if loop else 't'}, %r : index\n%to = arith.muli %{'u' if loop else 't'}, %s : index\n"
    text += tile("i", "%x", "%at, %none", x, given, type_) + tile("o", "%y", "%to, %none", y, result, type_)
    text += f"%v = ktdp.load %i : <{given[0]}x{given[1]}xindex> -> {one}\n"
    of = f"<({one}), groups = affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>>"
    text += f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {producers} -> {of} {{\n^bb0(%g: index):\n"
    text += f"ktdp.yield_partial %v : {one}\n}}\n%w = ktdp.inter_tile_{op}(%f) consumer_tiles_per_group = {consumers}{dims}"
    text += f", identity(%z : {one})" if "reduce" in op else ""
    text += f" : {of} -> {other}" + (" " + COMBINER.format(one) if "reduce" in op else "\n")
    text += store or f"ktdp.store %w, %o : {other}, <{result[0]}x{result[1]}xindex>\n"
    return f"func.func @kernel(%px: index, %py: index) attributes {{grid = [{tiles}]}} {{\n{text}{'}' if loop else ''}\nreturn\n}}\n"


def arrays(tiles: int, given: Shape, result: Shape, type_: str = "f16") -> list[np.ndarray]:
    kind = {"f16": np.float16, "f32": np.float32, "i32": np.int32}[type_]
    x = np.random.default_rng(0).standard_normal((tiles * given[0], given[1])) * 8
    return [x.astype(kind), np.full((tiles * result[0], result[1]), 7, kind)]


_THIRD = "affine_set<(i)[g] : (i - 3 * g >= 0, -i + 3 * g + 2 >= 0)>"
THREE = (_THIRD, _THIRD, 2)
GATHERED, JOINED, SCATTERED = (
    ", gather_dimensions = [{}]",
    ", split_dimensions = [{}], concat_dimensions = [{}]",
    ", scatter_dimensions = [{}]",
)
CASES = {
    "rows below each other": (4, "gather", (2, 96), (8, 96), GATHERED.format(0)),
    "an odd number of rows": (3, "gather", (3, 64), (9, 64), GATHERED.format(0), None, "f32"),
    "sticks beside each other": (4, "gather", (2, 64), (2, 256), GATHERED.format(1)),
    "columns inside of a stick": (4, "gather", (2, 6), (2, 24), GATHERED.format(1)),
    "two dims in two groups": (6, "gather", (2, 64), (2, 192), GATHERED.format(1), THREE, "i32"),
    "transposed blocks": (4, "all_to_all", (8, 64), (2, 256), JOINED.format(0, 1)),
    "transposed sticks": (4, "all_to_all", (2, 256), (8, 64), JOINED.format(1, 0), None, "f32"),
    "one dim": (4, "all_to_all", (8, 64), (8, 64), JOINED.format(0, 0)),
    "shares of odd rows": (3, "all_to_all", (9, 64), (3, 192), JOINED.format(0, 1)),
    "shares of a sum": (4, "reduce_scatter", (8, 64), (2, 64), SCATTERED.format(0)),
    "shares of a sum in groups": (6, "reduce_scatter", (2, 192), (2, 64), SCATTERED.format(1), THREE, "f32"),
    "shares of one tensor": (4, "scatter", (8, 64), (2, 64), SCATTERED.format(0), ("affine_set<(i)[g] : (i - 2 == 0)>", everybody(4), 1)),
    "shares on two dims": (4, "scatter", (4, 128), (2, 64), SCATTERED.format("0, 1"), ("affine_set<(i)[g] : (i == 0)>", everybody(4), 1)),
    "many cores": (14, "all_to_all", (14, 64), (14, 64), JOINED.format(0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_parts(case: str) -> None:
    tiles, op, given, result, dims, *rest = CASES[case]
    type_ = rest[1] if len(rest) > 1 else "f16"
    equal(exchange(tiles, op, given, result, dims, *rest), arrays(tiles, given, result, type_))


Move = tuple[int, int, int, int]


def ring(kernel: Kernel) -> list[list[Move]]:
    """Per word of the ring that the stream has: sender, the byte of the scratchpad from which, receiver, the byte to which."""

    def at(number: int, core: int) -> int:
        d = kernel.descriptors[number]
        return d.base + (0 if d.core_table is None else kernel.tables[d.core_table][core])

    sent, taken = (
        [w.operands for w in kernel.units[unit] if w.op == "move" and w.operands.get("group") is not None and w.operands.get(end) is None]
        for unit, end in ((Unit.MNIS, "dst"), (Unit.MNIL, "src"))
    )
    found = []
    for out, into in zip(sent, taken, strict=True):
        assert out["group"] == into["group"]
        senders = kernel.groups[out["group"]]
        found.append([(s, at(out["src"], s), c, at(into["dst"], c)) for c, s in enumerate(senders)])
    return found


def kernel_of(made: Executable) -> Kernel:
    (kernel,) = made.machine.program.kernels
    return kernel


def test_every_share_goes_where_the_author_says() -> None:
    """Four tiles, two rows for each: every tile sends to every one, all at once, from the rows of the receiver to those of the sender."""
    made = equal(exchange(4, "all_to_all", (8, 64), (8, 64), JOINED.format(0, 0)), arrays(4, (8, 64), (8, 64)))
    words = ring(kernel_of(made))
    assert len(words) == 4
    moves = [m for word in words for m in word]
    assert sorted((s, c) for s, _, c, _ in moves) == [(s, c) for s in range(4) for c in range(4)]
    (source,) = {a - 2 * 128 * c for _, a, c, _ in moves}
    (target,) = {a - 2 * 128 * s for s, _, _, a in moves}
    assert source != target


def test_what_all_receive_is_sent_once() -> None:
    """A gather is one word for each producer, in the author's loop; what a tile sends all others take to the same place."""
    text = exchange(4, "gather", (2, 64), (8, 64), GATHERED.format(0), loop=3)
    made = equal(text, arrays(12, (2, 64), (8, 64)))
    assert loops(made) == {(3,)}
    words = ring(kernel_of(made))
    assert [{s for s, *_ in word} for word in words] == [{0}, {1}, {2}, {3}]
    (first,) = {a for *_, a in words[0]}
    assert [{a for *_, a in word} for word in words] == [{first + 256 * k} for k in range(4)]


def test_who_has_its_share_takes_no_other_one() -> None:
    """A tile of which a scatter has sent the part takes what comes later to a place that nobody reads."""
    made = equal(exchange(*CASES["shares of one tensor"]), arrays(4, (8, 64), (2, 64)))
    words = ring(kernel_of(made))
    (target,) = {word[k][3] for k, word in enumerate(words)}
    assert [[s for s, *_ in word][k] for k, word in enumerate(words)] == [2] * 4
    for k, word in enumerate(words):
        assert [s for s, *_ in word] == [2 if c in (k, 2) else c for c in range(4)]
        assert all(a != target for _, _, c, a in word if c < k)


def test_dependencies_of_each_tile() -> None:
    """A sum of all that come before: who gets fewer keeps what it has; a ring of neighbours is one round."""
    before = ", producer_dependency_per_consumer = affine_set<(p)[c] : (p >= 0, c - p - {} >= 0)>"
    equal(exchange(5, "reduce", (3, 64), (3, 64), before.format(0)), arrays(5, (3, 64), (3, 64)))
    equal(exchange(5, "reduce", (2, 70), (2, 70), before.format(1), None, "f32"), arrays(5, (2, 70), (2, 70), "f32"))
    neighbour = ", producer_dependency_per_consumer = affine_set<(p)[c] : (p >= 0, -p + 4 >= 0, (p - c - 1) mod 5 == 0)>"
    made = equal(exchange(5, "consume", (2, 64), (2, 64), neighbour), arrays(5, (2, 64), (2, 64)))
    assert kernel_of(made).groups == [[1, 2, 3, 4, 0]]


def test_what_is_computed_for_a_contribution() -> None:
    """A production may load and compute, and knows its group."""
    text = exchange(6, "gather", (2, 64), (2, 192), GATHERED.format(1), THREE).replace("ktdp.yield_partial %v", "ktdp.yield_partial %d")
    own = tile("j", "%x", "%g, %none", (12, 64), (2, 64), "f16") + "%e = ktdp.load %j : <2x64xindex> -> tensor<2x64xf16>\n"
    text = text.replace("^bb0(%g: index):\n", f"^bb0(%g: index):\n{own}%d = arith.mulf %v, %e : tensor<2x64xf16>\n")
    equal(text, arrays(6, (2, 64), (2, 192)))


FIRST = "affine_set<(i)[g] : (i == 0)>"
SOME = {
    "reduce": exchange(4, "reduce", (2, 64), (2, 64), "", (everybody(4), FIRST, 1)),
    "gather": exchange(4, "gather", (2, 64), (8, 64), GATHERED.format(0), (everybody(4), FIRST, 1)),
}


@pytest.mark.parametrize("op", SOME)
def test_tiles_that_receive_nothing(op: str) -> None:
    """What they would store is refused by place; what they do not store is nobody's."""
    with pytest.raises(KtirError, match=r"'ktdp.store' op stores what tile 1 does not receive") as error:
        package_of(SOME[op])
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")
    shape = (2, 64) if op == "reduce" else (8, 64)
    guarded = "%mine = arith.cmpi eq, %t, %none : index\nscf.if %mine {{\n{}\n}}\n"
    equal(re.sub(r"(ktdp.store .*)", lambda m: guarded.format(m[1]), SOME[op]), arrays(4, (2, 64), shape))


REFUSED = {
    "'ktdp.inter_tile_gather' op cuts dim 1, which lies in the sticks of what it sends": exchange(
        4, "gather", (64, 64), (64, 24), GATHERED.format(1)
    )
    .replace("%v : tensor<64x64xf16>", "%m : tensor<64x6xf16>")
    .replace("(tensor<64x64xf16>)", "(tensor<64x6xf16>)")
    .replace(
        "%f = ktdp",
        "%k = arith.constant dense<1.0> : tensor<64x6xf16>\n%h = arith.constant dense<0.0> : tensor<64x6xf32>\n"
        "%l = linalg.matmul ins(%v, %k : tensor<64x64xf16>, tensor<64x6xf16>) outs(%h : tensor<64x6xf32>) -> tensor<64x6xf32>\n"
        "%m = arith.truncf %l : tensor<64x6xf32> to tensor<64x6xf16>\n%f = ktdp",
    ),
    "'ktdp.inter_tile_gather' op lets tile 0 receive from tile 32, which runs in another turn of the 32 cores": exchange(
        40, "gather", (2, 64), (80, 64), GATHERED.format(0)
    ),
    "'linalg.exp' op combines shares in a way that is not element by element": exchange(*CASES["shares of a sum"]).replace(
        "ktdp.yield_reduced %c",
        "%e = linalg.exp ins(%c : tensor<8x64xf16>) outs(%c : tensor<8x64xf16>) -> tensor<8x64xf16>\nktdp.yield_reduced %e",
    ),
    "'scf.for' op carries what tile 1 does not receive": SOME["reduce"].replace(
        "ktdp.store %w",
        "%k = scf.for %q = %none to %turns step %one iter_args(%j = %w) -> (tensor<2x64xf16>) {\n"
        "scf.yield %j : tensor<2x64xf16>\n}\nktdp.store %k",
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(KtirError, match=re.escape(message)) as error:
        package_of(REFUSED[message])
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")
