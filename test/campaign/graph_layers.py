"""Layers of models as several kernels share them: projections into heads, readers of one sum, rows of several loops, bytes, long rows,
experts."""

from __future__ import annotations

from math import prod

from campaign.graph_blocks import PRODUCT, activated, masked_scores, norm_of, rotated, softmax_of
from campaign.graph_draws import Draws
from campaign.graph_text import Value, tensor

_HALVES = ["%r = arith.truncf %i0 : f32 to f16"]
_BATCHES, _POSITIONS, _WIDTHS = (1, 2, 3, 8), (1, 2, 5, 16, 24, 65), (32, 64, 96, 130, 192, 256)
_LONG_ROWS = (700, 8200, 20_000, 32_000)


def _rows(g: Draws) -> Value:
    """An f16 value of batch, positions and width."""
    found = [v for v in g.values if len(v.shape) == 3 and v.element == "f16" and 16 <= v.shape[2] <= 300 and prod(v.shape) <= g.largest]
    if found and g.random.random() < 0.8:
        return g.random.choice(found[-4:])
    while True:
        shape = tuple(g.random.choice(sizes) for sizes in (_BATCHES, _POSITIONS, _WIDTHS))
        if prod(shape) <= g.largest:
            return g.load(shape)


def _sums(g: Draws, x: Value, width: int) -> Value:
    """The product of all rows with a weight, in f32, over the rows as they are or as one loop."""
    *rows, depth = x.shape
    n, k = len(rows), len(rows) + 1
    if g.random.random() < 0.5:
        groups = [list(range(n)), [n]]
        flat = g.moved(f"tensor.collapse_shape {x.name} {groups}", (prod(rows), depth), x)
        turned = g.random.random() < 0.5
        weight, loops = g.load((width, depth) if turned else (depth, width)), (1, 2) if turned else (2, 1)
        sums = g.generic([(flat, (0, 2)), (weight, loops)], ((prod(rows), width), "f32"), "ppr", PRODUCT, "0.0")
        return g.moved(f"tensor.expand_shape {sums.name} {groups} output_shape {[*rows, width]}", (*rows, width), sums)
    turned = g.random.random() < 0.5
    weight, loops = g.load((width, depth) if turned else (depth, width)), (n, k) if turned else (k, n)
    return g.generic([(x, (*range(n), k)), (weight, loops)], ((*rows, width), "f32"), "p" * (n + 1) + "r", PRODUCT, "0.0")


def _heads(g: Draws, x: Value, heads: int, depth: int) -> Value:
    """A projection split into heads, then what is computed of it; [batch, heads, positions, depth], or with heads behind positions."""
    batch, positions, _ = x.shape
    sums = _sums(g, x, heads * depth)
    shape = (batch, positions, heads, depth)
    early = g.random.random() < 0.3
    inputs: list[tuple[Value, tuple[int | None, ...]]] = []
    body, name = [], "%i0"
    if not early:
        sums = g.moved(f"tensor.expand_shape {sums.name} [[0], [1], [2, 3]] output_shape {list(shape)}", shape, sums)
    own = tuple(range(len(sums.shape)))
    turned = g.random.random() < 0.6 and not early
    places = (0, 2, 1, 3) if turned else own
    inputs.append((sums, places))
    match g.random.choice(("", "bias", "bias", "positions")):
        case "bias" if early:
            inputs.append((g.load((heads * depth,)), (2,)))
        case "bias":
            bias = g.load((heads * depth,))
            way = g.random.choice(("split", "view", "head"))
            if way == "split":
                inputs.append((g.moved(f"tensor.expand_shape {bias.name} [[0, 1]] output_shape {[heads, depth]}", (heads, depth), bias),
                               (places[2], places[3])))  # fmt: skip
            else:
                inputs.append((g.load((heads, depth)) if way == "view" else g.load((depth,)), places[2:] if way == "view" else places[3:]))
        case "positions":
            inputs.append((g.load((positions, sums.shape[-1])), (places[1], places[-1])))
    for i in range(1, len(inputs)):
        body += [f"%w{i} = arith.extf %i{i} : f16 to f32", f"%y{i} = arith.addf {name}, %w{i} : f32"]
        name = f"%y{i}"
    if g.random.random() < 0.3:
        body += activated(g, name)
        name = "%g3"
    result = tuple(sums.shape[places.index(i)] for i in own)
    value = g.generic(inputs, (result, "f16"), "p" * len(own), [*body, f"%r = arith.truncf {name} : f32 to f16"])
    if early:
        value = g.moved(f"tensor.expand_shape {value.name} [[0], [1], [2, 3]] output_shape {list(shape)}", shape, value)
    if g.random.random() < 0.2:
        value = rotated(g, value) or value
    return value


def heads(g: Draws) -> None:
    """Queries, keys and values of as many heads each as are drawn, of one input."""
    x = _rows(g)
    depth = g.random.choice((8, 16, 32, 33, 64, 65, 128))
    for _ in range(g.random.choice((1, 2, 3))):
        count = g.random.choice((1, 2, 3, 4))
        if prod(x.shape[:2]) * count * depth <= g.largest:
            _heads(g, x, count, depth)


def attention_layer(g: Draws) -> None:
    """Grouped heads with projections before and behind them, a mask, a residual, and a norm of that."""
    x = _rows(g)
    batch, positions, width = x.shape
    depth, shared, group = g.random.choice((8, 16, 32, 64)), g.random.choice((1, 2)), g.random.choice((1, 2, 3))
    count = shared * group
    if max(prod(x.shape[:2]) * count * depth, batch * count * positions**2) > g.largest:
        return
    q, k, v = (_heads_first(g, _heads(g, x, n, depth), n, positions) for n in (count, shared, shared))
    split = (batch, shared, group, positions, depth)
    q = g.moved(f"tensor.expand_shape {q.name} [[0], [1, 2], [3], [4]] output_shape {list(split)}", split, q)
    shape = (batch, shared, group, positions, positions)
    scores = g.generic([(q, (0, 1, 2, 3, 5)), (k, (0, 1, 4, 5))], (shape, "f32"), "pppppr", PRODUCT, "0.0")
    weights = softmax_of(g, masked_scores(g, scores, depth), 4, "f16")
    mixed = g.generic([(weights, (0, 1, 2, 3, 5)), (v, (0, 1, 5, 4))], (split, "f32"), "pppppr", PRODUCT, "0.0")
    behind = (batch, positions, shared, group, depth)
    mixed = g.generic([(mixed, (0, 2, 3, 1, 4))], (behind, "f16"), "ppppp", _HALVES)
    joined = g.moved(f"tensor.collapse_shape {mixed.name} [[0], [1], [2, 3, 4]]", (batch, positions, count * depth), mixed)
    _shared_sums(g, _sums(g, joined, width), x)


def _heads_first(g: Draws, value: Value, count: int, positions: int) -> Value:
    """A value of heads in front of positions, as it is or by another order."""
    batch, *_, depth = value.shape
    wanted = (batch, count, positions, depth)
    if value.shape == wanted and count != positions:
        return value
    if value.shape == (batch, positions, count, depth):
        return g.generic([(value, (0, 2, 1, 3))], (wanted, "f16"), "pppp", ["%r = arith.negf %i0 : f16"])
    return value


def _shared_sums(g: Draws, sums: Value, residual: Value | None) -> None:
    """Bias and residual, computed by each of the readers: statistics, the norm, a result, another matmul's operand."""
    own = tuple(range(len(sums.shape)))
    *rows, width = sums.shape
    inputs: list[tuple[Value, tuple[int | None, ...]]] = [(sums, own)]
    common, name = [], "%i0"
    if g.random.random() < 0.7:
        inputs.append((g.load((width,)), (own[-1],)))
    if residual is not None and residual.shape == sums.shape:
        inputs.append((residual, own))
    elif g.random.random() < 0.5:
        inputs.append((g.load(sums.shape), own))
    for i in range(1, len(inputs)):
        common += [f"%c{i} = arith.extf %i{i} : f16 to f32", f"%d{i} = arith.addf {name}, %c{i} : f32"]
        name = f"%d{i}"
    common.append(f"%t = arith.truncf {name} : f32 to f16")
    wide = [*common, "%x = arith.extf %t : f16 to f32"]
    kinds, last = "p" * len(rows) + "r", len(inputs)
    for reader in g.random.sample(("norm", "norm", "stored", "gate", "turned", "wide", "rows"), g.random.choice((1, 2, 3))):
        match reader:
            case "norm":
                total = g.generic(inputs, (tuple(rows), "f32"), kinds, [*wide, "%r = arith.addf %o, %x : f32"], "0.0")
                body = [
                    *wide,
                    f"%n = arith.constant {float(width)} : f32",
                    f"%mean = arith.divf %i{last}, %n : f32",
                    "%y = arith.subf %x, %mean : f32",
                    f"%g = arith.extf %i{last + 1} : f16 to f32",
                    "%z = arith.mulf %y, %g : f32",
                    "%r = arith.truncf %z : f32 to f16",
                ]
                g.generic([*inputs, (total, own[:-1]), (g.load((width,)), own[-1:])], (sums.shape, "f16"), "p" * len(own), body)
            case "stored":
                g.generic(inputs, (sums.shape, "f16"), "p" * len(own), [*common[:-1], f"%r = arith.truncf {name} : f32 to f16"])
            case "gate":
                body = [*wide, *activated(g, "%x"), "%r = arith.truncf %g3 : f32 to f16"]
                g.generic(inputs, (sums.shape, "f16"), "p" * len(own), body)
            case "turned":
                order = g.random.sample(own, len(own))
                shape = tuple(sums.shape[order.index(i)] for i in own)
                turned: list[tuple[Value, tuple[int | None, ...]]] = [
                    (v, tuple(order[d] for d in walk if d is not None)) for v, walk in inputs
                ]
                g.generic(turned, (shape, "f16"), "p" * len(own), [*wide, "%y = math.absf %x : f32", "%r = arith.truncf %y : f32 to f16"])
            case "wide":
                g.generic(
                    [(sums, own)], (sums.shape, "f32"), "p" * len(own), ["%h = arith.constant 0.5 : f32", "%r = arith.mulf %i0, %h : f32"]
                )
            case "rows":
                kinds_of_sum = "p" + "r" * (len(own) - 2) + "p" if len(own) > 2 else "rp"
                kept = tuple(n for n, kind in zip(sums.shape, kinds_of_sum, strict=True) if kind == "p")
                g.generic(inputs, (kept, "f32"), kinds_of_sum, [*wide, "%r = arith.addf %o, %x : f32"], "0.0")


def readers(g: Draws) -> None:
    """A projection of which several ops compute the same first."""
    x = _rows(g)
    width = x.shape[2] if g.random.random() < 0.6 else g.random.choice(_WIDTHS)
    if prod(x.shape[:2]) * width <= g.largest:
        _shared_sums(g, _sums(g, x, width), x)


def feed_forward(g: Draws) -> None:
    """A norm, two projections with an activation between, positions now and then, and a residual."""
    x = _rows(g)
    batch, positions, width = x.shape
    inner = g.random.choice((width, 2 * width, 3 * width))
    if batch * positions * inner > g.largest:
        return
    y = norm_of(g, x, 2, "f16") if g.random.random() < 0.7 else x
    body = [*activated(g, "%i0"), "%r = arith.truncf %g3 : f32 to f16"]
    inputs: list[tuple[Value, tuple[int | None, ...]]] = [(_sums(g, y, inner), (0, 1, 2))]
    if g.random.random() < 0.3:
        inputs.append((g.load((positions, inner)), (1, 2)))
        body = [
            "%w = arith.extf %i1 : f16 to f32",
            "%v = arith.addf %i0, %w : f32",
            *activated(g, "%v"),
            "%r = arith.truncf %g3 : f32 to f16",
        ]
    hidden = g.generic(inputs, ((batch, positions, inner), "f16"), "ppp", body)
    _shared_sums(g, _sums(g, hidden, width), x)


def begun(g: Draws) -> None:
    """A product, a sum or an extreme that begins from a tensor, which others may read too."""
    x = _rows(g)
    *rows, depth = x.shape
    if g.random.random() < 0.5:
        width = g.random.choice(_WIDTHS)
        if prod(rows) * width > g.largest:
            return
        first = g.load((*rows, width), "f32")
        sums = g.generic([(x, (0, 1, 3)), (g.load((depth, width)), (3, 2))], ((*rows, width), "f32"), "pppr", PRODUCT, first)
    else:
        first = g.load(tuple(rows), "f32")
        combine = g.random.choice(("addf", "maximumf", "minimumf"))
        sums = g.generic(
            [(x, (0, 1, 2))], (tuple(rows), "f32"), "ppr", ["%w = arith.extf %i0 : f16 to f32", f"%r = arith.{combine} %o, %w : f32"], first
        )
    if g.random.random() < 0.5:
        own = tuple(range(len(sums.shape)))
        g.generic(
            [(sums, own), (first, own)],
            (sums.shape, "f16"),
            "p" * len(own),
            ["%p = arith.mulf %i0, %i1 : f32", "%r = arith.truncf %p : f32 to f16"],
        )


def of_bytes(g: Draws) -> None:
    """Products of integers of one byte, or of halves with weights of one byte, scaled by row and column."""
    rows, width = g.random.choice((1, 3, 16, 33, 65)), g.random.choice((3, 64, 96, 130))
    depth = g.random.choice((64, 100, 128, 128, 256, 384))
    weight, turned = g.load((width, depth), "i8"), g.random.random() < 0.5
    loops = (1, 2)
    if turned:
        weight, loops = g.load((depth, width), "i8"), (2, 1)
    if g.random.random() < 0.6:
        left, right = (g.pointwise(v, "i32", ["%r = arith.extsi %i0 : i8 to i32"]) for v in (g.load((rows, depth), "i8"), weight))
        body = ["%m = arith.muli %i0, %i1 : i32", "%r = arith.addi %o, %m : i32"]
        sums = g.generic([(left, (0, 2)), (right, loops)], ((rows, width), "i32"), "ppr", body, "0")
        widened = "%w = arith.sitofp %i0 : i32 to f32"
    else:
        body = ["%f = arith.sitofp %i0 : i8 to f32", "%r = arith.truncf %f : f32 to f16"]
        right = g.pointwise(weight, "f16", body)
        sums = g.generic([(g.load((rows, depth)), (0, 2)), (right, loops)], ((rows, width), "f32"), "ppr", PRODUCT, "0.0")
        widened = "%w = arith.mulf %i0, %one : f32"
    scale = ["%one = arith.constant 1.0 : f32", "%small = arith.constant 9.765625e-04 : f32", widened, "%s = arith.mulf %w, %small : f32"]
    scale += ["%c = arith.extf %i1 : f16 to f32", "%t = arith.mulf %s, %c : f32", "%r = arith.truncf %t : f32 to f16"]
    by = (0,) if g.random.random() < 0.5 else (1,)
    g.generic([(sums, (0, 1)), (g.load((sums.shape[by[0]],)), by)], (sums.shape, "f16"), "pp", scale)


def long_row(g: Draws) -> None:
    """A sum, an extreme, or the place of one, of a long row, of what is computed of each element."""
    size = g.random.choice(_LONG_ROWS) + g.random.choice((0, 0, 1, 57))
    row = g.load((size,))
    value = ["%w = arith.extf %i0 : f16 to f32", "%e = math.exp %w : f32", "%s = math.erf %e : f32"]
    match g.random.choice(("sum", "largest", "least", "place")):
        case "sum":
            g.generic([(row, (0,))], ((), "f32"), "r", [*value, "%r = arith.addf %o, %s : f32"], "0.0")
        case "largest":
            g.generic([(row, (0,))], ((), "f32"), "r", [*value, "%r = arith.maximumf %o, %s : f32"], "0xFF800000")
        case "least":
            g.generic([(row, (0,))], ((), "f16"), "r", ["%r = arith.minimumf %o, %i0 : f16"], "0x7C00")
        case "place":
            most = g.generic([(row, (0,))], ((), "f16"), "r", ["%r = arith.maximumf %o, %i0 : f16"], "0xFC00")
            body = [
                "%c = arith.cmpf oeq, %i0, %i1 : f16", "%x = linalg.index 0 : index", "%p = arith.index_cast %x : index to i64",
                f"%l = arith.constant {size - 1} : i64", "%k = arith.select %c, %p, %l : i64", "%r = arith.minsi %o, %k : i64",
            ]  # fmt: skip
            g.generic([(row, (0,)), (most, ())], ((), "i64"), "r", body, "9223372036854775807")


def experts(g: Draws) -> None:
    """Rows, each perhaps several times, with matrices that indices choose, few or many."""
    x = _rows(g)
    count, depth = prod(x.shape[:-1]), x.shape[-1]
    rows = g.moved(f"tensor.collapse_shape {x.name} [[0, 1], [2]]", (count, depth), x)
    times = g.random.choice((1, 2, 3)) if count * depth * 3 <= g.largest else 1
    if times > 1:
        own = (count, times, depth)
        text = f"linalg.broadcast ins({rows.name} : {rows.type}) outs({g.filled(own, 'f16', None)} : {tensor(own, 'f16')}) dimensions = [1]"
        again = g.define(text, own, "f16", rows)
        count *= times
        rows = g.moved(f"tensor.collapse_shape {again.name} [[0, 1], [2]]", (count, depth), again)
    matrices, width = g.random.choice((1, 2, 5, 40)), g.random.choice((16, 64, 70, 130))
    turned = g.random.random() < 0.5
    shape = (matrices, width, depth) if turned else (matrices, depth, width)
    if count * width * depth > 8 * g.largest:
        return
    table, indices = g.buffer("input", shape, "f16"), g.buffer("input", (count,), "i64")
    g.below[len(g.arguments) - 1] = matrices
    index, own = g.view(indices, (count,), (1,), 0), (count, *shape[1:])
    view = g.view(table, shape, (shape[1] * shape[2], shape[2], 1), 0)
    dims, box = g.box(own)
    tile = g.line(
        f"ktdp.construct_indirect_access_tile intermediate_variables(%x, %y, %z) {view}[ind({index}[%x]), (%y), (%z)] "
        f"{{variables_space_order = affine_map<({dims}) -> ({dims})>, variables_space_set = affine_set<({dims}) : ({box})>}} : "
        f"{g.memref(shape, 'f16')}, {g.memref((count,), 'i64')} -> !ktdp.access_tile<{g.extents(own)}>"
    )
    chosen = g.define(f"ktdp.load {tile} : <{g.extents(own)}> -> {tensor(own, 'f16')}", own, "f16")
    factors: list[tuple[Value, tuple[int | None, ...]]] = [(chosen, (0, 1, 2) if turned else (0, 2, 1)), (rows, (0, 2))]
    if g.random.random() < 0.3:
        factors.reverse()
    g.values.remove(chosen)
    g.generic(factors, ((count, width), "f32"), "ppr", PRODUCT, "0.0")


OPS = {heads: 3, attention_layer: 3, readers: 4, feed_forward: 3, begun: 2, of_bytes: 2, long_row: 1, experts: 2}
"""Ops and how often they come."""
