"""Attention and the accesses by index around it: embedding, key-value cache, pages."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_case import EXP, Kernel, U, per_tile, rounded
from kernel_texts import empty, filled, generic, indirect, kernel, load, memref, random_f16, store, tensor, view

__all__ = ["cache_write", "embedding", "online_attention", "paged_attention"]

F16 = np.float16


def _exact(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return value.astype(np.float64), np.zeros(value.shape)


def embedding(vocabulary: int, width: int, tokens: int, tiles: int, block: int) -> Kernel:
    """Rows of a table by token; the tokens are divided over the tiles. Beyond the last token the index reads 0 and the row is dropped."""
    text = per_tile(tokens, tiles) + f"%width = arith.constant {width} : index\n%skip = arith.muli %first, %width : index\n"
    text += "%out_here = arith.addi %out, %skip : index\n%tokens_here = arith.addi %tokens, %first : index\n"
    text += view("%rows_of", "%table", (vocabulary, width), (width, 1)) + view("%number", "%tokens_here", ("%rows",), (1,), "i32")
    text += f"%step = arith.constant {block} : index\nscf.for %i = %zero to %share step %step {{\n"
    memrefs = f"{memref((vocabulary, width))}, memref<?xi32>"
    text += indirect("%chosen", "%rows_of", "ind(%number[%v0 + %i]), (%v1)", (block, width), memrefs)
    text += f"%x = ktdp.load %chosen : <{block}x{width}xindex> -> {tensor((block, width))}\n"
    text += store("%x", "%out_here", ("%rows", width), strides=(width, 1), index=("%i", 0), extents=(block, width)) + "}\n"
    table = random_f16(vocabulary, width)
    chosen = np.random.default_rng(1).integers(0, vocabulary, tokens).astype(np.int32)
    arguments = {"table": table, "tokens": chosen, "out": np.full((tokens, width), np.nan, F16)}
    text = kernel(["%table", "%tokens", "%out"], text, f"{tiles}")
    return Kernel(text, arguments, {"out": _exact(table[chosen])})


def cache_write(slots: int, width: int, tokens: int, tiles: int) -> Kernel:
    """Keys and values of new tokens go to their slots of the caches, token by token; the other slots stay as they are."""
    text = per_tile(tokens, tiles)
    memrefs = f"{memref((slots, width))}, {memref((tokens,), 'i32')}"
    text += view("%slot", "%slots", (tokens,), (1,), "i32")
    for name in ("keys", "values"):
        text += view(f"%{name}_cache_rows", f"%{name}_cache", (slots, width), (width, 1))
    text += "%end = arith.addi %first, %rows : index\nscf.for %i = %first to %end step %one {\n"
    for name in ("keys", "values"):
        text += load(f"%{name}_row", f"%{name}", (tokens, width), index=("%i", 0), extents=(1, width))
        text += indirect(f"%{name}_place", f"%{name}_cache_rows", "ind(%slot[%v0 + %i]), (%v1)", (1, width), memrefs)
        text += f"ktdp.store %{name}_row, %{name}_place : {tensor((1, width))}, <1x{width}xindex>\n"
    text += "}\n"
    chosen = np.random.default_rng(1).permutation(slots)[:tokens].astype(np.int32)
    arguments = {"keys": random_f16(tokens, width), "values": random_f16(tokens, width, seed=1), "slots": chosen}
    expected = {}
    for seed, name in enumerate(("keys", "values")):
        arguments[f"{name}_cache"] = cache = random_f16(slots, width, seed=2 + seed)
        want = cache.copy()
        want[chosen] = arguments[name]
        expected[f"{name}_cache"] = _exact(want)
    return Kernel(kernel([f"%{name}" for name in arguments], text, f"{tiles}"), arguments, expected)


# One step of attention over a block of keys: the state is the row maxima %m, the sums %l and the weighted values %acc so far.


def _state(queries: int, width: int) -> tuple[str, str]:
    return tensor((queries,), "f32"), tensor((queries, width), "f32")


def _start(queries: int, width: int) -> str:
    return filled("%m0", "0xFF800000", (queries,)) + filled("%l0", "0.0", (queries,)) + filled("%acc0", "0.0", (queries, width))


def _attend(queries: int, keys: int, width: int, live: str, extra: list[tuple[str, str, str]]) -> str:
    """From %q, %k and %v (f16) and the state %m, %l, %acc to %m1, %l1, %acc1.

    `live` is body text that computes %live, whether the query at %row may see the key at %col of the block; `extra` are its operands.
    """
    column, full = _state(queries, width)
    scores = tensor((queries, keys), "f32")
    products = "%x = arith.extf %a : f16 to f32\n%y = arith.extf %b : f16 to f32\n%z = arith.mulf %x, %y : f32\n"
    products += "%w = arith.addf %o, %z : f32\nlinalg.yield %w : f32"
    text = filled("%s0", "0.0", (queries, keys))
    inputs = [("%q", tensor((queries, width)), "d0, d2"), ("%k", tensor((keys, width)), "d1, d2")]
    text += generic("%s", inputs, ("%s0", scores, "d0, d1"), "ppr", products)
    masked = "%row = linalg.index 0 : index\n%col = linalg.index 1 : index\n" + live
    masked += f"%scale = arith.constant {_scale(width):e} : f32\n%x = arith.mulf %a, %scale : f32\n%low = arith.constant 0xFF800000 : f32\n"
    masked += "%y = arith.select %live, %x, %low : f32\nlinalg.yield %y : f32"
    text += generic("%sm", [("%s", scores, "d0, d1"), *extra], ("%s0", scores, "d0, d1"), "pp", masked)
    top = "%x = arith.maximumf %a, %o : f32\nlinalg.yield %x : f32"
    text += generic("%m1", [("%sm", scores, "d0, d1")], ("%m", column, "d0"), "pr", top)
    weight = "%x = arith.subf %a, %b : f32\n%y = math.exp %x : f32\nlinalg.yield %y : f32"
    text += generic("%p", [("%sm", scores, "d0, d1"), ("%m1", column, "d0")], ("%s0", scores, "d0, d1"), "pp", weight)
    text += f"%fall = arith.subf %m, %m1 : {column}\n%alpha = math.exp %fall : {column}\n%lk = arith.mulf %l, %alpha : {column}\n"
    total = "%x = arith.addf %a, %o : f32\nlinalg.yield %x : f32"
    text += generic("%l1", [("%p", scores, "d0, d1")], ("%lk", column, "d0"), "pr", total)
    keep = "%x = arith.mulf %a, %b : f32\nlinalg.yield %x : f32"
    text += generic("%kept", [("%acc", full, "d0, d1"), ("%alpha", column, "d0")], ("%acc", full, "d0, d1"), "pp", keep)
    text += f"%vw = arith.extf %v : {tensor((keys, width))} to {tensor((keys, width), 'f32')}\n"
    text += f"%acc1 = linalg.matmul ins(%p, %vw : {scores}, {tensor((keys, width), 'f32')}) outs(%kept : {full}) -> {full}\n"
    return text


def _finish(queries: int, width: int) -> str:
    """%y, in f16, from the state %mf, %lf, %accf."""
    column, full = _state(queries, width)
    quotient = "%x = arith.divf %a, %b : f32\n%z = arith.truncf %x : f32 to f16\nlinalg.yield %z : f16"
    inputs = [("%accf", full, "d0, d1"), ("%lf", column, "d0")]
    return empty("%y0", (queries, width)) + generic("%y", inputs, ("%y0", tensor((queries, width)), "d0, d1"), "pp", quotient)


def _loop(last: str, queries: int, width: int, body: str) -> str:
    """`body` for each block of keys %j, with the state carried."""
    column, full = _state(queries, width)
    types = f"{column}, {column}, {full}"
    return (
        f"%mf, %lf, %accf = scf.for %j = %zero to {last} step %one iter_args(%m = %m0, %l = %l0, %acc = %acc0) -> ({types}) {{\n"
        f"{body}scf.yield %m1, %l1, %acc1 : {types}\n}}\n"
    )


def _scale(width: int) -> float:
    return float(np.float32(width**-0.5))


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, live: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Attention of queries q over keys k in f64, and the bound of what online softmax in f32 over `blocks` blocks makes of it."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    width, keys = k.shape[1], k.shape[0]
    scale = _scale(width)
    score = np.where(live, q @ k.T * scale, -np.inf)
    weight = np.exp(score - score.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    y = weight @ v
    # A weight is off by the error of its score, by the roundings of the arguments of its exponentials, which add up to at most four
    # times the largest score, and by one exponential and one product per block.
    largest = np.abs(score[live]).max()
    part = (width + 2) * U * scale * (np.abs(q) @ np.abs(k).T).max() + 4 * U * largest + (blocks + 1) * (EXP + 2 * U)
    return y, rounded(y, (2 * part + (keys + 2 * blocks + 4) * U) * (weight @ np.abs(v)))


def online_attention(heads: int, length: int, width: int, tiles: int, queries: int, keys: int) -> Kernel:
    """Causal attention, blocks of `queries` queries over blocks of `keys` keys; (head, block of queries) go round the tiles in turn."""
    blocks = -(-length // queries)
    text = "%t = ktdp.get_compute_tile_id : index\n%zero = arith.constant 0 : index\n%one = arith.constant 1 : index\n"
    numbers = {"tiles": tiles, "units": heads * blocks, "blocks": blocks, "key_blocks": -(-length // keys)}
    for name, value in (numbers | {"queries": queries, "keys": keys, "length": length}).items():
        text += f"%{name} = arith.constant {value} : index\n"
    text += _start(queries, width)
    place: dict[str, Any] = {"strides": (length * width, width, 1)}
    sizes = (heads, "%length", width)

    def part(name: str, base: str, first: str, rows: int) -> str:
        three, two = tensor((1, rows, width)), tensor((rows, width))
        loaded = load(f"%{name}3", base, sizes, index=("%h", first, 0), extents=(1, rows, width), **place)
        return loaded + f"%{name} = tensor.collapse_shape %{name}3 [[0, 1], [2]] : {three} into {two}\n"

    live = "%r = arith.addi %row, %i : index\n%c = arith.addi %col, %jk : index\n%live = arith.cmpi ule, %c, %r : index\n"
    body = "%jk = arith.muli %j, %keys : index\n" + part("k", "%key", "%jk", keys) + part("v", "%value", "%jk", keys)
    body += _attend(queries, keys, width, live, [])
    text += "scf.for %u = %t to %units step %tiles {\n%h = arith.divui %u, %blocks : index\n%b = arith.remui %u, %blocks : index\n"
    text += "%i = arith.muli %b, %queries : index\n" + part("q", "%query", "%i", queries)
    text += _loop("%key_blocks", queries, width, body) + _finish(queries, width)
    text += f"%y3 = tensor.expand_shape %y [[0, 1], [2]] output_shape [1, {queries}, {width}] "
    text += f": {tensor((queries, width))} into {tensor((1, queries, width))}\n"
    text += store("%y3", "%out", sizes, index=("%h", "%i", 0), extents=(1, queries, width), **place) + "}\n"
    q, k, v = (random_f16(heads, length, width, seed=s) for s in range(3))
    causal = np.tri(length, dtype=np.bool_)
    found = [_attention(q[h], k[h], v[h], causal, -(-length // keys)) for h in range(heads)]
    want, bound = (np.stack([f[n] for f in found]) for n in (0, 1))
    arguments = {"query": q, "key": k, "value": v, "out": np.full(q.shape, np.nan, F16)}
    text = kernel(["%query", "%key", "%value", "%out"], text, f"{tiles}")
    return Kernel(text, arguments, {"out": (want, bound)})


def paged_attention(batch: int, kv_heads: int, group: int, width: int, page: int, most: int, tiles: int) -> Kernel:
    """One new token per sequence: `group` query heads share a head of keys and values, which lie in pages; `table` [batch, most] names
    the pages of each sequence, `lengths` its tokens. (sequence, head of keys) go round the tiles in turn."""
    pages = batch * most + 3
    text = "%t = ktdp.get_compute_tile_id : index\n%zero = arith.constant 0 : index\n%one = arith.constant 1 : index\n"
    numbers = {"tiles": tiles, "units": batch * kv_heads, "heads": kv_heads, "most": most, "page": page, "group": group}
    for name, value in numbers.items():
        text += f"%{name} = arith.constant {value} : index\n"
    text += _start(group, width) + view("%page_of", "%table", (batch, most), (most, 1), "i32")
    shape, row = (pages, page, kv_heads, width), kv_heads * width
    memrefs = f"{memref(shape)}, {memref((batch, most), 'i32')}"
    body = "%jp = arith.muli %j, %page : index\n"
    for name in ("key", "value"):
        text += view(f"%{name}_pages", f"%{name}", shape, (page * row, row, width, 1))
    for name, base in (("k", "key"), ("v", "value")):
        four, two = (1, page, 1, width), (page, width)
        subscripts = "ind(%page_of[%v0 + %b, %j]), (%v1), (%v2 + %h), (%v3)"
        body += indirect(f"%{name}_tile", f"%{base}_pages", subscripts, four, memrefs)
        body += f"%{name}4 = ktdp.load %{name}_tile : <1x{page}x1x{width}xindex> -> {tensor(four)}\n"
        body += f"%{name} = tensor.collapse_shape %{name}4 [[0, 1, 2], [3]] : {tensor(four)} into {tensor(two)}\n"
    live = "%c = arith.addi %col, %jp : index\n%ci = arith.index_cast %c : index to i32\n%live = arith.cmpi slt, %ci, %b : i32\n"
    body += _attend(group, page, width, live, [("%n", tensor((1,), "i32"), "0")])
    text += "scf.for %u = %t to %units step %tiles {\n%b = arith.divui %u, %heads : index\n%h = arith.remui %u, %heads : index\n"
    text += "%first = arith.muli %u, %group : index\n"
    place = {"index": ("%first", 0), "extents": (group, width)}
    text += load("%q", "%query", (batch * kv_heads * group, width), **place)
    text += load("%n", "%lengths", (batch,), index=("%b",), extents=(1,), element="i32")
    text += _loop("%most", group, width, body) + _finish(group, width)
    text += store("%y", "%out", (batch * kv_heads * group, width), **place) + "}\n"
    rng = np.random.default_rng(5)
    q, k, v = random_f16(batch, kv_heads, group, width), random_f16(*shape, seed=1), random_f16(*shape, seed=2)
    table = rng.permutation(pages)[: batch * most].reshape(batch, most).astype(np.int32)
    lengths = rng.integers(1, most * page + 1, batch).astype(np.int32)
    want, bound = np.zeros(q.shape), np.zeros(q.shape)
    for i in range(batch):
        seen = np.arange(most * page)[None, :] < lengths[i]
        for h in range(kv_heads):
            keys, values = (c[table[i], :, h].reshape(-1, width) for c in (k, v))
            want[i, h], bound[i, h] = _attention(q[i, h], keys, values, np.broadcast_to(seen, (group, most * page)), most)
    arguments = {"query": q, "key": k, "value": v, "table": table, "lengths": lengths, "out": np.full(q.shape, np.nan, F16)}
    return Kernel(kernel([f"%{name}" for name in arguments], text, f"{tiles}"), arguments, {"out": (want, bound)})
