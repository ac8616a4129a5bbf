"""Matmuls of kernels with a grid: the executor's bits, and near NumPy in float64, whatever the extents."""

from __future__ import annotations

import numpy as np
import pytest
from pinned import equal, package_of

from ktir import lang
from ktir.checking.stream import check_package
from ktir.diagnostics import KtirError
from ktir.runtime.executable import Executable

ORDER = "affine_map<(r, c) -> (r, c)>"


def box(rows: int, columns: int) -> str:
    return f"affine_set<(r, c) : (r >= 0, -r + {rows - 1} >= 0, c >= 0, -c + {columns - 1} >= 0)>"


def tile(name: str, argument: str, whole: tuple[int, int], strides: tuple[int, int], part: tuple[int, int], first: str, type_: str) -> str:
    """A view of an argument and a tile of it, which begins at `first`."""
    memory = f"memref<{whole[0]}x{whole[1]}x{type_}>"
    return (
        f"%v{name} = ktdp.construct_memory_view %{argument}, sizes: {list(whole)}, strides: {list(strides)} "
        f"{{coordinate_set = {box(*whole)}, memory_space = #ktdp.memory_space<global>}} : {memory}\n"
        f"%t{name} = ktdp.construct_access_tile %v{name}[{first}] {{access_tile_set = {box(*part)}, access_tile_order = {ORDER}}} : "
        f"{memory} -> !ktdp.access_tile<{part[0]}x{part[1]}xindex>\n"
    )


def load(name: str, shape: tuple[int, int], type_: str = "f16") -> str:
    return f"%{name} = ktdp.load %t{name} : <{shape[0]}x{shape[1]}xindex> -> tensor<{shape[0]}x{shape[1]}x{type_}>\n"


def program(m: int, k: int, n: int, form: str, tiles: int = 2) -> str:
    """y = x w, a block of rows per tile. `form`: what stands around the product."""
    type_ = "f16" if form.endswith("16") else "f32"
    product = f"tensor<{m}x{n}x{type_}>"
    text = "%t = ktdp.get_compute_tile_id : index\n%m = arith.constant " + f"{m} : index\n%row = arith.muli %t, %m : index\n"
    text += tile("a", "x", (tiles * m, k), (k, 1), (m, k), "%row, 0", "f16") + load("a", (m, k))
    left = "%a"
    if form == "computed":
        text += f"%one = arith.constant dense<1.0> : tensor<{m}x{k}xf16>\n%a1 = arith.addf %a, %one : tensor<{m}x{k}xf16>\n"
        left = "%a1"
    if form == "transposed":
        text += tile("b", "w", (n, k), (k, 1), (n, k), "0, 0", "f16") + load("b", (n, k))
        text += f"%e = tensor.empty() : tensor<{k}x{n}xf16>\n"
        text += f"%bt = linalg.transpose ins(%b : tensor<{n}x{k}xf16>) outs(%e : tensor<{k}x{n}xf16>) permutation = [1, 0]\n"
    else:
        text += tile("b", "w", (k, n), (n, 1), (k, n), "0, 0", "f16") + load("b", (k, n))
    right = "%bt" if form == "transposed" else "%b"
    start = {"outs": f"arith.constant dense<0.75> : {product}", "f16": f"arith.constant dense<0.0> : {product}"}
    start["outs16"] = start["outs"]
    text += f"%start = {start.get(form, f'tensor.empty() : {product}')}\n"
    text += f"%z = linalg.matmul ins({left}, {right} : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>) outs(%start : {product}) -> {product}\n"
    text += tile("y", "y", (tiles * m, n), (n, 1), (m, n), "%row, 0", type_)
    text += f"ktdp.store %z, %ty : {product}, <{m}x{n}xindex>\n"
    return f"func.func @kernel(%x: index, %w: index, %y: index) attributes {{grid = [{tiles}]}} {{\n{text}return\n}}\n"


def arrays(m: int, k: int, n: int, form: str, tiles: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (tiles * m, k)).astype(np.float16), rng.uniform(-1, 1, (k, n)).astype(np.float16)
    w = np.ascontiguousarray(w.T) if form == "transposed" else w
    return [x, w, np.zeros((tiles * m, n), np.float16 if form.endswith("16") else np.float32)]


@pytest.mark.parametrize("form", ["f32", "f16", "computed", "transposed", "outs", "outs16"])
@pytest.mark.parametrize(("m", "k", "n"), [(8, 64, 64), (5, 100, 70), (1, 130, 64), (2, 3, 1)])
def test_matmul(m: int, k: int, n: int, form: str) -> None:
    given = arrays(m, k, n, form)
    executable = equal(program(m, k, n, form), given)
    executable(*given)
    x, w, found = given
    x = x + np.float16(1) if form == "computed" else x
    exact = x.astype(np.float64) @ (w.T if form == "transposed" else w).astype(np.float64) + (0.75 if form.startswith("outs") else 0.0)
    assert np.allclose(found.astype(np.float64), exact, rtol=2.0**-10 if form.endswith("16") else 1e-6, atol=1e-4)


@pytest.mark.parametrize(("m", "k", "n"), [(4, 8, 8), (1, 70, 65), (3, 130, 1)])
def test_matmul_of_f32(m: int, k: int, n: int) -> None:
    """It takes a stated tolerance, since the vector unit rounds each product; what was widened is multiplied exactly on the array."""
    wide = program(m, k, n, "f32").replace("xf16", "xf32").replace("f16", "f32")
    with pytest.raises(KtirError, match=r"'linalg.matmul' op multiplies f32 and f32, .* on the kernel allows for that") as error:
        package_of(wide)
    assert error.value.location
    given = [a.astype(np.float32) for a in arrays(m, k, n, "f32")]
    package = package_of(wide.replace("{grid =", "{ktir.tolerance = 1.0e-3 : f64, grid ="))
    executable = Executable(package)
    assert check_package(package, executable.machine.trace) == []
    executable(*given)
    exact = given[0].astype(np.float64) @ given[1].astype(np.float64)
    terms = np.abs(given[0].astype(np.float64)) @ np.abs(given[1].astype(np.float64))
    assert (np.abs(given[2] - exact) <= (k + 1) * 2.0**-24 * terms).all()
    text = program(m, k, n, "f32").replace(f"linalg.matmul ins(%a, %b : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>)", "linalg.matmul WIDE")
    widened = "".join(f"%w{v} = arith.extf %{v} : tensor<{r}x{c}xf16> to tensor<{r}x{c}xf32>\n" for v, r, c in (("a", m, k), ("b", k, n)))
    text = text.replace("%z = linalg.matmul WIDE", f"{widened}%z = linalg.matmul ins(%wa, %wb : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)")
    equal(text, arrays(m, k, n, "f32"))


def batches(b: int, m: int, k: int, n: int, computed: str) -> str:
    """A product of each of `b` pairs of matrices, of which `computed` are computed."""
    text = form("linalg.batch_matmul IO", [(b, m, k), (b, k, n), (b, m, n)])
    for name, shape in (("a", f"{b}x{m}x{k}"), ("b", f"{b}x{k}x{n}")):
        if name in computed:
            load = next(line for line in text.split("\n") if line.startswith(f"%l{name} ="))
            sum_ = f"%s{name} = arith.addf %l{name}, %l{name} : tensor<{shape}xf16>"
            text = (
                text.replace(load, f"{load}\n{sum_}").replace(f"ins(%l{name},", f"ins(%s{name},").replace(f", %l{name} :", f", %s{name} :")
            )
            text = text.replace(f"%s{name} = arith.addf %l{name}, %s{name}", f"%s{name} = arith.addf %l{name}, %l{name}")
    return text


@pytest.mark.parametrize("computed", ["", "a", "b", "ab"])
@pytest.mark.parametrize(("b", "m", "k", "n"), [(2, 8, 64, 64), (3, 5, 70, 65), (2, 1, 3, 2)])
def test_batches(b: int, m: int, k: int, n: int, computed: str) -> None:
    rng = np.random.default_rng(0)
    shapes, types = [(b, m, k), (b, k, n), (b, m, n)], (np.float16, np.float16, np.float32)
    given = [rng.uniform(-1, 1, s).astype(t) for s, t in zip(shapes, types, strict=True)]
    factors = [(a * 2 if name in computed else a).astype(np.float64) for name, a in zip("ab", given, strict=False)]
    wanted = given[2] + factors[0] @ factors[1]
    executable = equal(batches(b, m, k, n, computed), given)
    executable(*given)
    assert np.allclose(given[2], wanted, rtol=1e-6, atol=1e-4)


def whole(name: str, shape: tuple[int, ...], type_: str) -> str:
    """All of an argument as one tile."""
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    set_ = f"affine_set<({dims}) : ({', '.join(f'd{i} >= 0, -d{i} + {n - 1} >= 0' for i, n in enumerate(shape))})>"
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    memory = f"memref<{'x'.join(map(str, shape))}x{type_}>"
    return (
        f"%v{name} = ktdp.construct_memory_view %{name}, sizes: {list(shape)}, strides: {strides} "
        f"{{coordinate_set = {set_}, memory_space = #ktdp.memory_space<global>}} : {memory}\n"
        f"%t{name} = ktdp.construct_access_tile %v{name}[{', '.join('0' for _ in shape)}] {{access_tile_set = {set_}, "
        f"access_tile_order = affine_map<({dims}) -> ({dims})>}} : {memory} -> !ktdp.access_tile<{'x'.join(map(str, shape))}xindex>\n"
    )


def form(op: str, shapes: list[tuple[int, ...]]) -> str:
    """`op` with `ins(..) outs(..)` for IO on arguments of these shapes, the last one the result, of f32."""
    names, types = ("a", "b", "c"), ("f16", "f16", "f32")
    texts = ["x".join(map(str, s)) for s in shapes]
    tensors = [f"tensor<{text}x{t}>" for text, t in zip(texts, types, strict=True)]
    body = "".join(whole(n, s, t) for n, s, t in zip(names, shapes, types, strict=True))
    body += "".join(
        f"%{n} = ktdp.load %t{n} : <{text}xindex> -> {t}\n".replace(f"%{n} =", f"%l{n} =")
        for n, text, t in zip(names, texts, tensors, strict=True)
    )
    io = f"ins(%la, %lb : {tensors[0]}, {tensors[1]}) outs(%lc : {tensors[2]})"
    body += f"%r = {op.replace('IO', io)} -> {tensors[2]}\nktdp.store %r, %tc : {tensors[2]}, <{texts[2]}xindex>\n"
    return f"func.func @kernel(%a: index, %b: index, %c: index) attributes {{grid = [1]}} {{\n{body}return\n}}\n"


def sum_of_products(maps: str, kinds: str) -> str:
    return (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} IO {{\n^bb0(%p: f16, %q: f16, %o: f32):\n"
        "%x = arith.extf %p : f16 to f32\n%y = arith.extf %q : f16 to f32\n%z = arith.mulf %x, %y : f32\n%s = arith.addf %o, %z : f32\n"
        "linalg.yield %s : f32\n}"
    )


P, R = '"parallel"', '"reduction"'


@pytest.mark.parametrize(
    ("op", "shapes", "letters"),
    [
        ("linalg.matvec IO", [(8, 100), (100,), (8,)], "mk,k->m"),
        ("linalg.vecmat IO", [(100,), (100, 70), (70,)], "k,kn->n"),
        ("linalg.batch_matmul IO", [(1, 8, 100), (1, 100, 70), (1, 8, 70)], "bmk,bkn->bmn"),
        (
            sum_of_products(
                "affine_map<(n, k, m) -> (k, m)>, affine_map<(n, k, m) -> (n, k)>, affine_map<(n, k, m) -> (m, n)>", f"{P}, {R}, {P}"
            ),
            [(100, 8), (70, 100), (8, 70)],
            "km,nk->mn",
        ),
        (
            sum_of_products("affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (k)>, affine_map<(m, k) -> (m)>", f"{P}, {R}"),
            [(8, 100), (100,), (8,)],
            "mk,k->m",
        ),
        (
            sum_of_products(
                "affine_map<(b, n, k) -> (b, k)>, affine_map<(b, n, k) -> (0, n, k)>, affine_map<(b, n, k) -> (b, n)>", f"{P}, {P}, {R}"
            ),
            [(1, 100), (1, 32, 100), (1, 32)],
            "bk,bnk->bn",
        ),
        (
            sum_of_products(
                "affine_map<(g, m, n, k) -> (g, m, k)>, affine_map<(g, m, n, k) -> (k, n)>, affine_map<(g, m, n, k) -> (g, m, n)>",
                f"{P}, {P}, {P}, {R}",
            ),
            [(2, 4, 100), (100, 70), (2, 4, 70)],
            "gmk,kn->gmn",
        ),
    ],
)
def test_other_forms(op: str, shapes: list[tuple[int, ...]], letters: str) -> None:
    """Named ops and generics that are matmuls have the sums of one, whatever their loops."""
    rng = np.random.default_rng(0)
    given = [rng.uniform(-1, 1, s).astype(t) for s, t in zip(shapes, (np.float16, np.float16, np.float32), strict=True)]
    wanted = given[2] + np.einsum(letters, given[0].astype(np.float64), given[1].astype(np.float64))
    executable = equal(form(op, shapes), given)
    executable(*given)
    assert np.allclose(given[2], wanted, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("multiply", "add"), [("%p, %q", "%o, %z"), ("%q, %p", "%z, %o")])
@pytest.mark.parametrize(
    ("letters", "shapes"),
    [
        ("mk,kn->mn", [(64, 64), (64, 64), (64, 64)]),
        ("km,kn->mn", [(70, 5), (70, 33), (5, 33)]),
        ("mk,nk->mn", [(3, 130), (65, 130), (3, 65)]),
        ("mk,k->m", [(64, 100), (100,), (64,)]),
        ("bmk,bkn->bmn", [(2, 3, 40), (2, 40, 5), (2, 3, 5)]),
    ],
)
def test_products_that_are_rounded_each(letters: str, shapes: list[tuple[int, ...]], multiply: str, add: str) -> None:
    """A sum of products of f32 that is written out: column by column, so that all products together need no room."""
    walks = letters.replace("->", ",").split(",")
    loops = [*walks[2], "k"]
    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(walk)})>" for walk in walks)
    op = (
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{', '.join(R if k == 'k' else P for k in loops)}]}} IO {{\n"
        f"^bb0(%p: f32, %q: f32, %o: f32):\n%z = arith.mulf {multiply} : f32\n%s = arith.addf {add} : f32\nlinalg.yield %s : f32\n}}"
    )
    rng = np.random.default_rng(0)
    given = [rng.uniform(-1, 1, s).astype(np.float32) for s in shapes]
    a, b = (x.astype(np.float64) for x in given[:2])
    wanted, terms = given[2] + np.einsum(letters, a, b), np.abs(given[2]) + np.einsum(letters, np.abs(a), np.abs(b))
    executable = equal(form(op, shapes).replace("f16", "f32"), given)
    executable(*given)
    assert (np.abs(given[2] - wanted) <= (max(shapes[0]) + 2) * 2.0**-24 * terms).all()


@pytest.mark.parametrize("shape", [(5, 70, 33), (4, 64, 128), (8, 130, 200), (1, 40, 64)], ids=str)
def test_a_second_operand_that_lies_with_k_side_by_side(shape: tuple[int, int, int]) -> None:
    """As keys of attention do: it is loaded as it lies, which takes no longer than one that is not transposed."""
    rows, k, n = shape

    def transposed(x, w, y):
        y[lang.tile_id()] = lang.dot(x[lang.tile_id()], w[lang.tile_id()].T)

    def as_it_lies(x, w, y):
        y[lang.tile_id()] = lang.dot(x[lang.tile_id()], w[lang.tile_id()])

    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, rows, k)).astype(np.float16), np.zeros((2, rows, n), np.float32)
    w = rng.standard_normal((2, n, k)).astype(np.float16)
    one = equal(lang.kernel(transposed)[2].traced(x, w, y).text, [x, w, y])
    other = lang.kernel(as_it_lies)[2].cycles(x, w.transpose(0, 2, 1).copy(), y)
    assert one.machine.report.cycles <= 1.25 * other
