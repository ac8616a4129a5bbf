"""Kernels with a grid reach the chip as they are written: bits, loops, turns; what is not pinned is refused by op and place."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from builders import in_bf16
from campaign.kernel_draws import draw
from campaign.kernels import judged
from pinned import equal, loops, package_of

from ktir.assembly import parse_module, print_module
from ktir.checking.inputs import array_of
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.reference import execute
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.runtime import metrics
from ktir.runtime.executable import Executable

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("seed", range(14))
def test_drawn(seed: int) -> None:
    """Drawn kernels are equal in bits, and near NumPy in float64."""
    verdict = judged(draw(seed))
    assert verdict == "equal" or verdict.startswith("refused: "), verdict


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_more_drawn(seed: int) -> None:
    verdict = judged(draw(seed))
    assert verdict == "equal" or verdict.startswith("refused: "), verdict


def test_examples() -> None:
    """A row per tile in one launch; a softmax of blocks of five rows of which the last is short, in the author's loop of three trips."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4, 64)).astype(np.float16)
    with metrics.counted() as launches:
        added = equal((EXAMPLES / "add.mlir").read_text(), [x, y, np.zeros_like(x)])
    assert launches().chip == 2  # one in each mode
    assert [k.cores for k in added.machine.program.kernels] == [4]
    assert loops(added) == set()
    found = equal((EXAMPLES / "softmax.mlir").read_text(), [rng.standard_normal(6000).astype(np.float16), np.zeros(6000, np.float16)])
    assert loops(found) == {(3,)}
    assert [k.cores for k in found.machine.program.kernels] == [4]


BOX = "affine_set<(r, c) : (r >= 0, -r + {} >= 0, c >= 0, -c + 63 >= 0)>"
ORDER = "affine_map<(r, c) -> (r, c)>"


def tile(n: str, memory: str = "memref<70x64xf16>") -> str:
    """The access tile of the row AT."""
    return (
        f"ktdp.construct_access_tile %v{n}[AT, 0] {{access_tile_set = {BOX.format(0)}, access_tile_order = {ORDER}}} : "
        f"{memory} -> !ktdp.access_tile<1x64xindex>"
    )


def kernel(grid: list[int], body: str, rows: int = 70, name: str = "kernel", arguments: str = "%x: index, %y: index") -> str:
    """A kernel on x and y [rows, 64]; `body` has LOAD(row) and STORE(row), a row at a time."""
    memory = f"memref<{rows}x64xf16>"
    views = "".join(
        f"  %v{n} = ktdp.construct_memory_view %{n}, sizes: [{rows}, 64], strides: [64, 1] "
        f"{{coordinate_set = {BOX.format(rows - 1)}, memory_space = #ktdp.memory_space<global>}} : {memory}\n"
        for n in "xy"
    )
    loaded = f"%a = {tile('x', memory)}\n%l = ktdp.load %a : <1x64xindex> -> tensor<1x64xf16>"
    stored = f"%s = arith.addf %l, %l : tensor<1x64xf16>\n%b = {tile('y', memory)}\nktdp.store %s, %b : tensor<1x64xf16>, <1x64xindex>"
    for what, ops in (("LOAD", loaded), ("STORE", stored)):
        body = re.sub(rf"{what}\((%\w+)\)", lambda m, ops=ops: ops.replace("AT", m[1]), body)
    return f"func.func @{name}({arguments}) attributes {{grid = {grid}}} {{\n{views}{body}\n  return\n}}\n"


def arrays(rows: int = 70) -> list[np.ndarray]:
    return [np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float16), np.full((rows, 64), 7, np.float16)]


CONSTANTS = "\n".join(f"%c{n} = arith.constant {n} : index" for n in (0, 1, 2, 5, 32, 70)) + "\n"


def test_turns() -> None:
    """70 tiles on 32 cores: two turns in a loop, and one in which 26 cores keep to themselves what they do."""
    made = equal(kernel([70], "%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\nSTORE(%t)"), arrays())
    assert [k.cores for k in made.machine.program.kernels] == [32]
    assert loops(made) == {(2,)}


def test_turns_of_a_grid_of_two_dims() -> None:
    body = (
        CONSTANTS + "%t:2 = ktdp.get_compute_tile_id : index, index\n%m = arith.muli %t#0, %c5 : index\n%r = arith.addi %m, %t#1 : index\n"
    )
    made = equal(kernel([14, 5], body + "LOAD(%r)\nSTORE(%r)"), arrays())
    assert [k.cores for k in made.machine.program.kernels] == [32]


def test_loops_of_the_author() -> None:
    """Tiles with 9 and with 8 rows: a loop of eight trips, and one more trip for some."""
    body = CONSTANTS.replace("70", "70") + "%t = ktdp.get_compute_tile_id : index\n%c8 = arith.constant 8 : index\n"
    made = equal(kernel([8], body + "scf.for %r = %t to %c70 step %c8 {\nLOAD(%r)\nSTORE(%r)\n}"), arrays())
    assert loops(made) == {(8,)}


def test_branches() -> None:
    """By the tile: what the others would store stays as it was. By the trip: the loop is written out."""
    tiles = CONSTANTS + "%t = ktdp.get_compute_tile_id : index\n%some = arith.cmpi ult, %t, %c5 : index\n"
    equal(kernel([8], tiles + "scf.if %some {\nLOAD(%t)\nSTORE(%t)\n}"), arrays())
    trips = "scf.for %r = %c0 to %c5 step %c1 {\n%odd = arith.remui %r, %c2 : index\n%some = arith.cmpi eq, %odd, %c1 : index\n"
    made = equal(kernel([1], CONSTANTS + trips + "scf.if %some {\nLOAD(%r)\nSTORE(%r)\n}\n}"), arrays())
    assert loops(made) == set()


def test_what_a_branch_reads_all_tiles_load() -> None:
    """A load before a branch is clipped on all tiles, also where it is the branch that says how it lies in sticks."""
    names, bound = "(d0, d1)[s0]", "d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 1 >= 0"
    views = "".join(
        f"%v{n} = ktdp.construct_memory_view %{n}, sizes: [%c5, 2], strides: {strides} {{coordinate_set = affine_set<{names} : ({bound})>, "
        f"masked, memory_space = #ktdp.memory_space<global>}} : memref<?x2xf16>\n%a{n} = ktdp.construct_access_tile %v{n}[%r, %c0] "
        f"{{access_tile_set = affine_set<(r, c) : (r >= 0, -r + 1 >= 0, c >= 0, -c + 1 >= 0)>, access_tile_order = {ORDER}}} : "
        "memref<?x2xf16> -> !ktdp.access_tile<2x2xindex>\n"
        for n, strides in (("x", [5, 1]), ("y", [1, 41]))
    )
    body = f"{CONSTANTS}%t = ktdp.get_compute_tile_id : index\n%some = arith.cmpi ult, %t, %c1 : index\n%r = arith.muli %t, %c2 : index\n"
    body += f"{views}%l = ktdp.load %ax : <2x2xindex> -> tensor<2x2xf16>\n%s = arith.addf %l, %l : tensor<2x2xf16>\n"
    body += "scf.if %some {\nktdp.store %s, %ay : tensor<2x2xf16>, <2x2xindex>\n}\n"
    text = f"func.func @kernel(%x: index, %y: index) attributes {{grid = [3]}} {{\n{body}return\n}}\n"
    x = np.random.default_rng(0).standard_normal(22).astype(np.float16)
    equal(text, [x, np.full(46, 7, np.float16)])


ROWS = "LOAD(%r)\n%w = arith.extf %l : tensor<1x64xf16> to tensor<1x64xf32>\n"
CARRIED = {
    "elements": (
        "tensor<1x64xf32>",
        "%zero = arith.constant dense<0.5> : tensor<1x64xf32>\n",
        "%next = arith.addf %k, %w : tensor<1x64xf32>\n",
    ),
    "one number per row": (
        "tensor<1xf32>",
        "%zero = arith.constant dense<-1.0> : tensor<1xf32>\n",
        "%next = linalg.reduce { arith.maximumf } ins(%w : tensor<1x64xf32>) outs(%k : tensor<1xf32>) dimensions = [1]\n",
    ),
    "read again after the next one is known": (
        "tensor<1x64xf32>",
        "%zero = arith.constant dense<0.5> : tensor<1x64xf32>\n",
        "%sum = arith.addf %k, %w : tensor<1x64xf32>\n%twice = arith.mulf %k, %sum : tensor<1x64xf32>\n"
        "%next = arith.subf %sum, %twice : tensor<1x64xf32>\n",
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_tensors_that_loops_carry(name: str) -> None:
    """They lie in one buffer, which each trip updates; the loop of the author stays."""
    type_, before, step = CARRIED[name]
    loop = f"%q = scf.for %r = %t to %c70 step %c5 iter_args(%k = %zero) -> ({type_}) {{\n{ROWS}{step}scf.yield %next : {type_}\n}}\n"
    after = {
        "tensor<1x64xf32>": "%all = arith.truncf %q : tensor<1x64xf32> to tensor<1x64xf16>\n",
        "tensor<1xf32>": "%e = tensor.empty() : tensor<1x64xf32>\n%b = linalg.broadcast ins(%q : tensor<1xf32>) outs(%e : tensor<1x64xf32>)"
        " dimensions = [1]\n%all = arith.truncf %b : tensor<1x64xf32> to tensor<1x64xf16>\n",
    }[type_]
    end = f"%o = {tile('y').replace('AT', '%t')}\nktdp.store %all, %o : tensor<1x64xf16>, <1x64xindex>"
    text = kernel([5], f"{CONSTANTS}%t = ktdp.get_compute_tile_id : index\n{before}{loop}{after}{end}")
    assert loops(equal(text, arrays())) == {(14,)}


def test_no_grid_is_one_tile() -> None:
    """And a number of the loop may be data, where it is the same everywhere."""
    body = CONSTANTS + "scf.for %r = %c0 to %c70 step %c1 {\nLOAD(%r)\n%n = arith.index_cast %c70 : index to i32\n"
    body += "%f = arith.sitofp %n : i32 to f16\n%all = tensor.splat %f : tensor<1x64xf16>\n%q = arith.divf %l, %all : tensor<1x64xf16>\n"
    text = kernel([1], body + f"%o = {tile('y').replace('AT', '%r')}\nktdp.store %q, %o : tensor<1x64xf16>, <1x64xindex>\n}}")
    made = equal(text.replace(" attributes {grid = [1]}", ""), arrays())
    assert [k.cores for k in made.machine.program.kernels] == [1]


def test_numbers_of_arguments() -> None:
    """What decides on the loops is a number at compile time; without it the argument is named."""
    body = CONSTANTS + "scf.for %r = %c0 to %n step %c1 {\nLOAD(%r)\nSTORE(%r)\n}"
    text = kernel([1], body, arguments="%x: index, %n: index, %y: index")
    x, y = arrays()
    wanted = y.copy()
    execute(text, None, [x, 6, wanted])
    executable = Executable(package_of(text, ("1=6",)))
    executable(x, y)
    assert y.tobytes() == wanted.tobytes()
    with pytest.raises(KtirError, match="expects a number for argument #1") as error:
        package_of(text)
    assert error.value.location == "kernel.mlir:1:30"


def test_programs_of_several_kernels() -> None:
    """A function that calls kernels: each call is one, in order."""
    one = "%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\nSTORE(%t)"
    calls = "".join(f"  call @k({given}) : (index, index) -> ()\n" for given in ("%a, %b", "%b, %a"))
    text = f"func.func @main(%a: index, %b: index) {{\n{calls}  return\n}}\n"
    made = equal(text + kernel([3], one, name="k"), arrays())
    assert [k.name for k in made.machine.program.kernels] == ["k", "k"]


REFUSED = {
    "'ktdp.store' op reads a tensor without content": "%l2 = tensor.empty() : tensor<1x64xf16>\n"
    f"%b = {tile('y').replace('AT', '%c0')}\nktdp.store %l2, %b : tensor<1x64xf16>, <1x64xindex>",
    "'linalg.reduce' op starts 'arith.maxnumf' from values that may be NaN": "LOAD(%c0)\n%n = arith.constant dense<0.0> : tensor<1xf16>\n"
    "%i = linalg.reduce { arith.maximumf } ins(%l : tensor<1x64xf16>) outs(%n : tensor<1xf16>) dimensions = [1]\n"
    "%q = linalg.reduce { arith.maxnumf } ins(%l : tensor<1x64xf16>) outs(%i : tensor<1xf16>) dimensions = [1]",
    "'arith.muli' op gives numbers that are none of 'i32'": "%b = arith.constant 2000000000 : i32\n%n = arith.muli %b, %b : i32\n"
    "%i = arith.index_cast %n : i32 to index\nscf.for %j = %c0 to %i step %c1 {\nLOAD(%j)\n}",
    "'scf.for' op has up to 70 trips that only some tiles make": "%t = ktdp.get_compute_tile_id : index\n"
    "%n = arith.muli %t, %c70 : index\nscf.for %i = %c0 to %n step %c1 {\nLOAD(%t)\nSTORE(%t)\n}",
}


@pytest.mark.parametrize("way", ["pin", "lift"])
@pytest.mark.parametrize("count", [10**7, 10**12])
def test_trips_are_bounded_before_they_are_listed(way: str, count: int) -> None:
    text = kernel([2], CONSTANTS + f"%n = arith.constant {count} : index\nscf.for %i = %c0 to %n step %c1 {{\nLOAD(%c0)\nSTORE(%c0)\n}}")
    with context(), ir.Location.unknown():
        module = parse_module(text.replace("grid = [2]", f'grid = [2], ktir.way = "{way}"'), "kernel.mlir")
        tracemalloc.start()
        try:
            with pytest.raises(KtirError, match=f"'scf.for' op has up to {count} trips") as error:
                run_pipeline(module, f"ktir-{way}")
            assert tracemalloc.get_traced_memory()[1] < 1 << 24
        finally:
            tracemalloc.stop()
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    """By op and place, before anything has changed."""
    with context(), ir.Location.unknown():
        module = parse_module(kernel([2], CONSTANTS + REFUSED[message]), "kernel.mlir")
        before = print_module(module)
        with pytest.raises(KtirError, match=re.escape(message)) as error:
            run_pipeline(module, "ktir-pin")
        assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")
        assert print_module(module) == before


@pytest.mark.parametrize("way", ["pin", "lift"])
@pytest.mark.parametrize("rows", ["r - 1", "r + 1"])
def test_a_set_of_another_shape_than_its_type(rows: str, way: str) -> None:
    """An empty one, too: the parser warns of it, the executor refuses it, and so do both ways to the chip."""
    text = kernel([2], CONSTANTS + "%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\nSTORE(%t)")
    assert "(r >= 0, -r + 0 >= 0" in text
    text = text.replace("(r >= 0, -r + 0 >= 0", f"({rows} >= 0, -r + 0 >= 0", 1).replace("grid = [2]", f'grid = [2], ktir.way = "{way}"')
    with context(), ir.Location.unknown():
        module = parse_module(text, "kernel.mlir")
        with pytest.raises(KtirError, match=r"op expects a tile of shape .*, the extents of its set in its order, but got") as error:
            run_pipeline(module, f"ktir-{way}")
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("combine", ["addf", "maxnumf", "minnumf"])
def test_reductions_in_16_bits(combine: str, half: str) -> None:
    """Sums round each step, numbers win over NaNs; a row of NaNs alone leaves what it starts from."""
    start = {"addf": "0.0", "maxnumf": "0xFC00", "minnumf": "0x7C00"}[combine]
    body = f"%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\n%i = arith.constant dense<{start}> : tensor<1xf16>\n"
    body += f"%q = linalg.reduce {{ arith.{combine} }} ins(%l : tensor<1x64xf16>) outs(%i : tensor<1xf16>) dimensions = [1]\n"
    body += "%e = tensor.empty() : tensor<1x64xf16>\n%all = linalg.broadcast ins(%q : tensor<1xf16>) outs(%e : tensor<1x64xf16>)"
    body += f" dimensions = [1]\n%o = {tile('y').replace('AT', '%t')}\nktdp.store %all, %o : tensor<1x64xf16>, <1x64xindex>"
    x, y = arrays()
    x[3], x[4, ::2], x[5] = np.nan, np.nan, -0.0
    if combine == "addf":
        x[3:5] = 2048.0
    text = kernel([70], body)
    if half == "bf16":
        text, x = in_bf16(text).replace("0xFC00", "0xFF80").replace("0x7C00", "0x7F80"), array_of(x, "bf16")
        y = np.zeros_like(x)
    equal(text, [x, y])


def own_combiner(columns: int, predicate: str) -> str:
    """Each tile reduces its two rows with a comparison and a choice."""
    box, shape = f"affine_set<(r, c) : (r >= 0, -r + 1 >= 0, c >= 0, -c + {columns - 1} >= 0)>", f"2x{columns}"
    body = CONSTANTS + "%t = ktdp.get_compute_tile_id : index\n%r = arith.muli %t, %c2 : index\n"
    for n in "xy":
        body += f"%v{n} = ktdp.construct_memory_view %{n}, sizes: [6, {columns}], strides: [{columns}, 1] {{coordinate_set = "
        body += f"{box.replace('+ 1 ', '+ 5 ', 1)}, memory_space = #ktdp.memory_space<global>}} : memref<6x{columns}xf16>\n"
        body += f"%a{n} = ktdp.construct_access_tile %v{n}[%r, %c0] {{access_tile_set = {box}, access_tile_order = {ORDER}}} : "
        body += f"memref<6x{columns}xf16> -> !ktdp.access_tile<{shape}xindex>\n"
    body += f"%l = ktdp.load %ax : <{shape}xindex> -> tensor<{shape}xf16>\n%i = arith.constant dense<0xFC00> : tensor<2xf16>\n"
    body += f"%q = linalg.reduce ins(%l : tensor<{shape}xf16>) outs(%i : tensor<2xf16>) dimensions = [1] (%in: f16, %out: f16) {{\n"
    body += f"%g = arith.cmpf {predicate}, %in, %out : f16\n%m = arith.select %g, %in, %out : f16\nlinalg.yield %m : f16\n}}\n"
    body += f"%e = tensor.empty() : tensor<{shape}xf16>\n%b = linalg.broadcast ins(%q : tensor<2xf16>) outs(%e : tensor<{shape}xf16>) "
    body += f"dimensions = [1]\nktdp.store %b, %ay : tensor<{shape}xf16>, <{shape}xindex>\n"
    return f"func.func @kernel(%x: index, %y: index) attributes {{grid = [3]}} {{\n{body}return\n}}\n"


@pytest.mark.parametrize("predicate", ["ogt", "ugt", "oge"])
def test_combiners_of_the_author(predicate: str) -> None:
    """In his order, one element after the other: which zero is the larger one, and what a NaN does, is as he says."""
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float16)
    x[1], x[2, 3], x[4], x[5] = [-0.0, 0.0] * 4, np.nan, [0.0, -0.0] * 4, np.nan
    x[1:5:3, 5] = -1
    equal(own_combiner(8, predicate), [x, np.zeros_like(x)])


def test_combiners_over_many_elements() -> None:
    with pytest.raises(KtirError, match=r"'linalg.reduce' op combines 65 elements, more than 64, with none of arith.addf") as error:
        package_of(own_combiner(65, "ogt"))
    assert error.value.location


def exchange(grid: int, groups: int, members: str, combine: str = "addf") -> str:
    """Each tile adds its row to those of its group."""
    body = "%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\n%z = arith.constant dense<0.0> : tensor<1x64xf16>\n"
    of = f"<(tensor<1x64xf16>), groups = affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>>"
    body += f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {members} -> {of} {{\n^bb0(%g: index):\n"
    body += "ktdp.yield_partial %l : tensor<1x64xf16>\n}\n"
    body += f"%q = ktdp.inter_tile_reduce(%f) consumer_tiles_per_group = {members}, identity(%z : tensor<1x64xf16>) : {of}"
    body += " -> tensor<1x64xf16> {\n^bb0(%p: tensor<1x64xf16>, %r: tensor<1x64xf16>):\n"
    body += f"%c = arith.{combine} %p, %r : tensor<1x64xf16>\nktdp.yield_reduced %c : tensor<1x64xf16>\n}}\n"
    return kernel([grid], body + f"%o = {tile('y').replace('AT', '%t')}\nktdp.store %q, %o : tensor<1x64xf16>, <1x64xindex>")


@pytest.mark.parametrize(
    ("grid", "groups", "members"),
    [
        (4, 1, "affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>"),
        (6, 2, "affine_set<(i)[g] : (i - 3 * g >= 0, -i + 3 * g + 2 >= 0)>"),
        (32, 8, "affine_set<(i)[g] : ((i - g) mod 8 == 0, i - g >= 0, -i + g + 24 >= 0)>"),
    ],
)
def test_reductions_over_tiles(grid: int, groups: int, members: str) -> None:
    """In the order of the tiles, which half precision shows."""
    equal(exchange(grid, groups, members, "addf"), arrays())


def handed_out(grid: int, groups: int, sender: str, members: str) -> str:
    """Each tile stores what the sender of its group has loaded."""
    text = exchange(grid, groups, members, "addf").replace(members, sender, 1)
    begin, end = text.index("%q = ktdp.inter_tile_reduce"), text.index("%o = ktdp")
    of = f"<(tensor<1x64xf16>), groups = affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>>"
    consumed = f"%q = ktdp.inter_tile_consume(%f) consumer_tiles_per_group = {members} : {of} -> tensor<1x64xf16>\n"
    return text[:begin] + consumed + text[end:]


@pytest.mark.parametrize(
    ("grid", "groups", "sender", "members"),
    [
        (4, 1, "affine_set<(i)[g] : (i - 2 == 0)>", "affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>"),
        (6, 2, "affine_set<(i)[g] : (i - 3 * g - 1 == 0)>", "affine_set<(i)[g] : (i - 3 * g >= 0, -i + 3 * g + 2 >= 0)>"),
    ],
)
def test_one_tile_of_a_group_sends(grid: int, groups: int, sender: str, members: str) -> None:
    """The author's groups are those of the ring."""
    (kernel,) = equal(handed_out(grid, groups, sender, members), arrays()).machine.program.kernels
    step = grid // groups
    assert kernel.groups[:1] == [[i // step * step + (2 if groups == 1 else 1) for i in range(grid)]]


def test_exchanges_of_tiles_in_turns() -> None:
    """Tiles that wait for a later turn cannot contribute."""
    text = exchange(40, 1, "affine_set<(i)[g] : (i >= 0, -i + 39 >= 0)>")
    with pytest.raises(
        KtirError, match=r"'ktdp.inter_tile_reduce' op lets tile 0 receive from tile 32, which runs in another turn"
    ) as error:
        package_of(text)
    assert error.value.location


def test_addresses_that_would_wrap() -> None:
    """Integers of an address have their own width in the executor, and none on the chip."""
    body = "%big = arith.constant 2000000000 : i32\n%n = arith.addi %big, %big : i32\n%w = arith.subi %n, %big : i32\n"
    body += "%m = arith.subi %w, %big : i32\n%r = arith.index_cast %m : i32 to index\nLOAD(%r)\nSTORE(%r)"
    with pytest.raises(KtirError, match=r"'arith.addi' op gives numbers that are none of 'i32'") as error:
        package_of(kernel([1], body))
    assert error.value.location


def test_arguments_that_are_data() -> None:
    """A float argument is a number at compile time too; a name or a number that is none is refused."""
    body = "%t = ktdp.get_compute_tile_id : index\nLOAD(%t)\n%all = tensor.splat %eps : tensor<1x64xf16>\n"
    body += "%q = arith.addf %l, %all : tensor<1x64xf16>\n"
    body += f"%o = {tile('y').replace('AT', '%t')}\nktdp.store %q, %o : tensor<1x64xf16>, <1x64xindex>"
    text = kernel([3], body, arguments="%x: index, %y: index, %eps: f16")
    equal(text, arrays(), ("2=0.25",), (0.25,))
    for numbers, message in ((("2=a",), "expects a number, but got 'a'"), (("epsilon=1",), "'epsilon=1' names no argument of '@kernel'")):
        with pytest.raises(KtirError, match=message):
            package_of(text, numbers)


@pytest.mark.parametrize("step", [3, 70])
def test_masks_that_cut_a_stick(step: int) -> None:
    """Blocks that end inside of a stick of their view, elsewhere in each trip and on each tile, are rows of one element."""
    names = f"%n = arith.constant {step * 4 - 2} : index\n%k = arith.constant {step} : index\n%two = arith.constant 2 : index\n"
    text = CONSTANTS + names + "%t = ktdp.get_compute_tile_id : index\n%h = arith.muli %t, %two : index\n"
    text += "scf.for %j = %c0 to %c2 step %c1 {\n%b = arith.addi %h, %j : index\n%i = arith.muli %b, %k : index\n"
    for n in "xy":
        text += f"%v{n} = ktdp.construct_memory_view %{n}, sizes: [%n], strides: [1] {{coordinate_set = affine_set<(d)[s] : (d >= 0, "
        text += (
            f"-d + s - 1 >= 0)>, masked, memory_space = #ktdp.memory_space<global>}} : memref<?xf16>\n%a{n} = ktdp.construct_access_tile "
        )
        text += (
            f"%v{n}[%i] {{access_tile_set = affine_set<(d) : (d >= 0, -d + {step - 1} >= 0)>, access_tile_order = affine_map<(d) -> (d)>}}"
        )
        text += f" : memref<?xf16> -> !ktdp.access_tile<{step}xindex>\n"
    text += f"%l = ktdp.load %ax : <{step}xindex> -> tensor<{step}xf16>\n%s = arith.addf %l, %l : tensor<{step}xf16>\n"
    text += f"ktdp.store %s, %ay : tensor<{step}xf16>, <{step}xindex>\n}}\n"
    x = np.random.default_rng(0).standard_normal(step * 4 - 2).astype(np.float16)
    made = equal(f"func.func @kernel(%x: index, %y: index) attributes {{grid = [2]}} {{\n{text}return\n}}\n", [x, np.full_like(x, 7)])
    assert loops(made) == {(2,)}
    text = text.replace("%ax = ktdp.construct_access_tile %vx[%i]", "%ax = ktdp.construct_access_tile %vx[%i - 1]")
    made, y = (
        equal(f"func.func @kernel(%x: index, %y: index) attributes {{grid = [2]}} {{\n{text}return\n}}\n", [x, np.full_like(x, 7)]),
        x.copy(),
    )
    assert loops(made) == set()  # where a trip begins before its view, it is written out
    made(x, y)
    np.testing.assert_array_equal(y, np.concatenate([np.zeros(1, np.float16), x[:-1] * 2]))


def test_a_place_that_every_trip_comes_back_to() -> None:
    """The units of memory do not wait for each other: the value goes from trip to trip, and is stored once."""
    body = f"{CONSTANTS}%t = ktdp.get_compute_tile_id : index\nscf.for %i = %c0 to %c5 step %c1 {{\nLOAD(%t)\nSTORE(%t)\n}}\n"
    x = arrays(4)[0]
    made = equal(kernel([4], body, 4, arguments="%x: index").replace("%y, sizes", "%x, sizes"), [x])
    doubled = x.copy()
    made(doubled)
    np.testing.assert_array_equal(doubled, x * np.float16(32))


def test_a_place_that_another_trip_has_written() -> None:
    """What a trip reads that an earlier one has written elsewhere than it reads is refused by place."""
    body = f"{CONSTANTS}%t = ktdp.get_compute_tile_id : index\nscf.for %i = %c0 to %c5 step %c1 {{\nLOAD(%t)\nSTORE(%i)\n}}\n"
    text = kernel([1], body, 5).replace("%y, sizes", "%x, sizes")
    with pytest.raises(KtirError, match=r"'ktdp.store' op writes memory that the kernel has read") as error:
        package_of(text)
    assert error.value.location
