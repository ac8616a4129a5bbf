"""Ten kernels in the kernel language, and what they give beside NumPy.

python examples/kernels.py      runs each on NumPy and on the KTIR executor, and prints how far they are from float64

All are called as `kernel[grid](inputs .., outputs .., parameters)`; docs/lang.md explains the words.
"""

import numpy as np

from ktir import lang
from ktir.lang import blocks, dot, kernel

f32 = np.float32


@kernel
def softmax(x, y, *, block=None):
    """Softmax of each row."""
    for rows in blocks(x.shape[0], block):
        v = x[rows].astype(f32)
        e = np.exp(v - v.max(-1, keepdims=True))
        y[rows] = e / e.sum(-1, keepdims=True)


@kernel
def rms_norm(x, weight, y, *, eps=1e-6, block=None):
    """Each row divided by the root of its mean square, times a weight per column."""
    for rows in blocks(x.shape[0], block):
        v = x[rows].astype(f32)
        y[rows] = v * lang.rsqrt(np.square(v).mean(-1, keepdims=True) + eps) * weight[:]


@kernel
def linear(x, w, bias, y, *, tile=(32, 64), step=64):
    """relu(x @ w + bias), by tiles of the result, in steps of the inner dim."""
    for rows, columns in blocks(y.shape, tile):
        acc = lang.zeros((rows.size, columns.size))
        for k in lang.range(0, x.shape[1], step):
            acc[...] = dot(x.masked[rows, k : k + step], w.masked[k : k + step, columns], acc)
        y[rows, columns] = np.maximum(acc + bias[columns], 0)


@kernel
def swiglu(x, gate, up, y, *, block=None):
    """silu(x @ gate) * (x @ up)."""
    for rows in blocks(x.shape[0], block):
        v = x[rows]
        a = dot(v, gate[:])
        y[rows] = a * lang.sigmoid(a) * dot(v, up[:])


@kernel(way="auto", tolerance=2**-9)
def flash_attention(q, k, v, o, *, rows=16, keys=32):
    """Causal attention [heads, length, width], in blocks of queries and keys, without the matrix of scores."""
    heads, length, width = q.shape
    for head, r in blocks((heads, length), (1, rows)):
        h = head.start
        query = q[h, r]
        top, total, acc = lang.full(rows, -np.inf), lang.zeros(rows), lang.zeros((rows, width))
        for j in lang.range(0, np.minimum(r.start + rows, length), keys):
            columns = np.arange(keys) + j
            s = dot(query, k.masked[h, j : j + keys].T) * width**-0.5
            s = np.where((columns <= r.positions[:, None]) & (columns < length), s, -np.inf)
            new = np.maximum(top, s.max(-1))
            p, scale = np.exp(s - new[:, None]), np.exp(top - new)
            total[...] = total * scale + p.sum(-1)
            acc[...] = dot(p.astype(v.dtype), v.masked[h, j : j + keys], acc * scale[:, None])
            top[...] = new
        o[h, r] = acc / total[:, None]


@kernel
def flash_decoding(q, k, v, o):
    """Attention of one query per head [heads, width] over keys [heads, length, width]: a tile per head and share of the keys."""
    h, share = lang.tile_id(0), k.shape[1] // lang.tiles(1)
    first = lang.tile_id(1) * share
    s = dot(q[h][None, :], k[h, first : first + share].T) * q.shape[1] ** -0.5
    top = lang.all_reduce(s.max(-1), np.maximum, axis=1)
    p = np.exp(s - top[:, None])
    total = lang.all_reduce(p.sum(-1), axis=1)
    acc = lang.all_reduce(dot(p.astype(v.dtype), v[h, first : first + share]), axis=1)

    @lang.when(lang.tile_id(1) == 0)
    def _():
        o[h] = (acc / total[:, None])[0]


@kernel
def paged_attention(q, keys, values, table, lengths, o):
    """Attention of one query per sequence [batch, width]; keys and values lie in pages [pages, page, width], listed in a table."""
    page, width = keys.shape[1:]
    for sequence in blocks(q.shape[0], 1):
        b = sequence.start
        query, length = q[b], lengths[b]
        top, total, acc = lang.full(1, -np.inf), lang.zeros(1), lang.zeros((1, width))
        for i in lang.range((length + page - 1) // page):
            number = table[b, i]
            s = dot(query[None, :], keys[number].T) * width**-0.5
            s = np.where(np.arange(page) + i * page < length, s, -np.inf)
            new = np.maximum(top, s.max(-1))
            p, scale = np.exp(s - new[:, None]), np.exp(top - new)
            total[...] = total * scale + p.sum(-1)
            acc[...] = dot(p.astype(values.dtype), values[number], acc * scale[:, None])
            top[...] = new
        o[b] = (acc / total[:, None])[0]


@kernel
def top_k(x, values, indices, *, k, block=None):
    """The k largest of each row, and where they are; of equal ones the first."""
    n = x.shape[1]
    for rows in blocks(x.shape[0], block):
        left = x[rows].astype(f32)
        for i in lang.range(k):
            largest = left.max(-1, keepdims=True)
            at = np.where(left == largest, np.arange(n, dtype=np.int32), n).min(-1, keepdims=True)
            values[rows, i : i + 1], indices[rows, i : i + 1] = largest, at
            left[...] = np.where(np.arange(n, dtype=np.int32) == at, -np.inf, left)


@kernel
def histogram(x, counts, *, block):
    """How often each number occurs: each tile counts its blocks, then the counts are added."""
    own = lang.zeros(counts.shape, np.int32)
    for part in blocks(x.shape[0], block):
        own += (x[part][:, None] == np.arange(counts.shape[0])).sum(0, np.int32)
    total = lang.all_reduce(own)

    @lang.when(lang.tile_id() == 0)
    def _():
        counts[...] = total


@kernel
def transpose(x, y, *, tile=(32, 32)):
    """The transposed matrix, by tiles."""
    for rows, columns in blocks(x.shape, tile):
        y[columns, rows] = x[rows, columns].T


def cases(seed=0):
    """Per kernel a call: the kernel on a grid, arrays of which the last ones are written, parameters, and what float64 gives for those."""
    rng = np.random.default_rng(seed)

    def half(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(np.float16)

    def attended(q, k, v, live):
        s = np.where(live, q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v

    x = half(57, 100)
    e = np.exp(wide(x) - wide(x).max(1, keepdims=True))
    yield softmax[4], [x, np.zeros_like(x)], {"block": 5}, [e / e.sum(1, keepdims=True)]
    w = half(100)
    norm = wide(x) / np.sqrt(np.square(wide(x)).mean(1, keepdims=True) + 1e-6) * wide(w)
    yield rms_norm[3], [x, w, np.zeros_like(x)], {"block": 8}, [norm]
    w, bias = half(100, 130, scale=0.1), half(130)
    y = np.zeros((57, 130), np.float16)
    yield linear[4], [x, w, bias, y], {}, [np.maximum(wide(x) @ wide(w) + wide(bias), 0)]
    gate, up = half(100, 96, scale=0.1), half(100, 96, scale=0.1)
    a = wide(x) @ wide(gate)
    yield swiglu[4], [x, gate, up, np.zeros((57, 96), np.float16)], {"block": 16}, [a / (1 + np.exp(-a)) * (wide(x) @ wide(up))]
    q, k, v = half(2, 40, 64), half(2, 40, 64), half(2, 40, 64)
    causal = np.tril(np.ones((40, 40), bool))
    yield flash_attention[3], [q, k, v, np.zeros_like(q)], {}, [attended(wide(q), wide(k), wide(v), causal)]
    q, k, v = half(2, 64), half(2, 128, 64), half(2, 128, 64)
    yield flash_decoding[2, 4], [q, k, v, np.zeros_like(q)], {}, [attended(wide(q)[:, None], wide(k), wide(v), True)[:, 0]]
    q, k, v = half(3, 64), half(8, 16, 64), half(8, 16, 64)
    table, lengths = rng.permutation(8)[:6].astype(np.int32).reshape(3, 2), np.array([5, 32, 17], np.int32)
    expected = []
    for pages, n, query in zip(table, lengths, wide(q), strict=True):
        keys, values = (wide(a[pages]).reshape(32, 64)[:n] for a in (k, v))
        expected.append(attended(query[None], keys, values, True)[0])
    yield paged_attention[2], [q, k, v, table, lengths, np.zeros_like(q)], {}, [np.array(expected)]
    order = np.argsort(-wide(x), 1, kind="stable")[:, :4]
    outputs = [np.zeros((57, 4), np.float16), np.zeros((57, 4), np.int32)]
    yield top_k[4], [x, *outputs], {"k": 4, "block": 16}, [np.take_along_axis(wide(x), order, 1), order]
    numbers = rng.integers(0, 20, 96).astype(np.int32)
    yield histogram[3], [numbers, np.zeros(20, np.int32)], {"block": 16}, [np.bincount(numbers, minlength=20)]
    yield transpose[4], [x, np.zeros((100, 57), np.float16)], {}, [wide(x).T]


def wide(array):
    """In float64."""
    return array.astype(np.float64)


def main():
    """Run them all."""
    for on in ("numpy", "executor"):
        for call, arrays, parameters, expected in cases():
            call.using(on=on)(*arrays, **parameters)
            off = max(np.abs(wide(found) - e).max() for found, e in zip(arrays[-len(expected) :], expected, strict=True))
            print(f"{on:8} {call.__name__:16} grid {call.grid!s:8} largest difference {off:.2g}")


if __name__ == "__main__":
    main()
