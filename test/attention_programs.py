"""Attention and softmax as logical programs, in the ways in which models write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from logical_programs import Logical


@dataclass(frozen=True)
class Form:
    """What an attention is made of.

    `heads` of keys, `group` query heads for each, `rows` queries, `keys`, `inner` and `outer` dims of a head. `mask`: `causal` (positions
    that are compared), `added` (a tensor), `hidden` (a tensor whose first row is -inf everywhere); `guard`: rows without a key give zeros,
    not NaN; `cap`: scores are bounded by tanh; `sink`: a score per head that no value belongs to; `after`: the product is divided, not the
    weights; `shows`: the weights are stored too, `states`: the largest scores, the sums and the products before they are rounded.
    """

    heads: int = 1
    group: int = 1
    rows: int = 1
    keys: int = 128
    inner: int = 64
    outer: int = 64
    mask: str = ""
    guard: bool = False
    cap: bool = False
    sink: bool = False
    after: bool = False
    shows: bool = False
    states: bool = False


class _Program(Logical):
    """Values that are named by the axes that they run along: h(eads), g(roup), r(ows), k(eys), i(nner), o(uter). Axes of extent 1 are left
    out, as at the logical level."""

    def __init__(self, extents: dict[str, int]) -> None:
        super().__init__()
        self.extents = extents
        self.axes: dict[str, str] = {}

    def _kept(self, axes: str) -> str:
        return "".join(a for a in axes if self.extents[a] > 1)

    def load(self, axes: str, dtype: str = "f16") -> str:
        """An input along axes."""
        kept = self._kept(axes)
        value = self.input(*(self.extents[a] for a in kept), dtype=dtype)
        self.axes[value] = kept
        return value

    def op(self, axes: str, inputs: Sequence[str], body: str, dtype: str = "f32", *, start: str = "", reduced: str = "") -> str:
        """A generic along `axes`, and `reduced` ones with `start`; scalars are %p0, %p1, .., %o, the result is %r."""
        kept, over = self._kept(axes), self._kept(reduced)
        loops = kept + over
        result = self._name([self.extents[a] for a in kept], dtype)
        self.axes[result] = kept
        n = len(self.shape)
        init = self._filled(result, start) if start else f"%e{n}"
        if not start:
            self.lines.append(f"{init} = tensor.empty() : {self._type(result)}")
        maps = [tuple(loops.index(a) for a in self.axes[v]) for v in inputs]
        maps.append(tuple(loops.index(a) for a in kept))
        kinds = ["parallel"] * len(kept) + ["reduction"] * len(over)
        self._generic(inputs, maps, kinds, init, result, f"{body}\nlinalg.yield %r : {dtype}")
        return result


_PRODUCT = "%x = arith.extf %p0 : f16 to f32\n%y = arith.extf %p1 : f16 to f32\n%m = arith.mulf %x, %y : f32\n%r = arith.addf %o, %m : f32"
_LOWEST = "0xFF800000"


def attention(form: Form) -> _Program:
    """Queries, keys, values, then what the form has besides; the outputs come last."""
    p = _Program({"h": form.heads, "g": form.group, "r": form.rows, "k": form.keys, "i": form.inner, "o": form.outer})
    q, k, v = p.load("hgri"), p.load("hki"), p.load("hko")
    scores = p.op("hgrk", [q, k], _PRODUCT, start="0.0", reduced="i")
    inputs, body = [scores], f"%z = arith.constant {form.inner**-0.5:.6e} : f32\n%s0 = arith.mulf %p0, %z : f32\n"
    last = "%s0"
    if form.cap:
        body += "%c = arith.constant 2.0 : f32\n%c0 = arith.divf %s0, %c : f32\n%c1 = math.tanh %c0 : f32\n%s1 = arith.mulf %c1, %c : f32\n"
        last = "%s1"
    if form.mask == "causal":
        inputs += [p.load("k", "i32"), *([p.load("r", "i32")] if form.rows > 1 else [])]
        body += f"%l = arith.constant {form.keys - 1} : i32\n%n = arith.constant {_LOWEST} : f32\n"
        body += f"%f = arith.cmpi sgt, %p1, {'%p2' if form.rows > 1 else '%l'} : i32\n%r = arith.select %f, %n, {last} : f32"
    elif form.mask:
        inputs.append(p.load("rk"))
        body += f"%w = arith.extf %p1 : f16 to f32\n%r = arith.addf {last}, %w : f32"
    else:
        body += f"%one = arith.constant 1.0 : f32\n%r = arith.mulf {last}, %one : f32"
    scores = p.op("hgrk", inputs, body)
    most = p.op("hgr", [scores], "%r = arith.maximumf %o, %p0 : f32", start=_LOWEST, reduced="k")
    sink = p.load("hg", "f32") if form.sink else ""
    if sink:
        most = p.op("hgr", [most, sink], "%r = arith.maximumf %p0, %p1 : f32")
    shift = "%d = arith.subf %p0, %p1 : f32\n"
    if form.guard:
        shift = f"%n = arith.constant {_LOWEST} : f32\n%z = arith.constant 0.0 : f32\n%e = arith.cmpf oeq, %p1, %n : f32\n"
        shift += "%a = arith.select %e, %z, %p1 : f32\n%d = arith.subf %p0, %a : f32\n"
    powers = p.op("hgrk", [scores, most], shift + "%r = math.exp %d : f32")
    total = p.op("hgr", [powers], "%r = arith.addf %o, %p0 : f32", start="0.0", reduced="k")
    if sink:
        total = p.op("hgr", [total, sink, most], "%d = arith.subf %p1, %p2 : f32\n%e = math.exp %d : f32\n%r = arith.addf %p0, %e : f32")
    divided = "%q = arith.divf %p0, %p1 : f32\n"
    if form.guard:
        divided += "%z = arith.constant 0.0 : f32\n%e = arith.cmpf oeq, %p1, %z : f32\n%s = arith.select %e, %z, %q : f32\n"
    divided += f"%r = arith.truncf {'%s' if form.guard else '%q'} : f32 to f16"
    if form.after:
        weights = p.op("hgrk", [powers], "%r = arith.truncf %p0 : f32 to f16", "f16")
        product = p.op("hgro", [weights, v], _PRODUCT, start="0.0", reduced="k")
        p.output(p.op("hgro", [product, total], divided, "f16"))
    else:
        weights = p.op("hgrk", [powers, total], divided, "f16")
        product = p.op("hgro", [weights, v], _PRODUCT, start="0.0", reduced="k")
        p.output(p.op("hgro", [product], "%r = arith.truncf %p0 : f32 to f16", "f16"))
    if form.shows:
        p.output(weights)
    for value in (most, total, product) if form.states else ():
        p.output(value)
    return p


def softmax(rows: int, columns: int) -> _Program:
    """The softmax of each row of a matrix."""
    p = _Program({"r": rows, "k": columns})
    x = p.load("rk")
    most = p.op("r", [x], "%x = arith.extf %p0 : f16 to f32\n%r = arith.maximumf %o, %x : f32", start=_LOWEST, reduced="k")
    powers = p.op("rk", [x, most], "%x = arith.extf %p0 : f16 to f32\n%d = arith.subf %x, %p1 : f32\n%r = math.exp %d : f32")
    total = p.op("r", [powers], "%r = arith.addf %o, %p0 : f32", start="0.0", reduced="k")
    p.output(p.op("rk", [powers, total], "%d = arith.divf %p0, %p1 : f32\n%r = arith.truncf %d : f32 to f16", "f16"))
    return p


def arrays(form: Form, p: _Program, seed: int = 0) -> list[np.ndarray]:
    """Host arrays for an attention."""
    rng = np.random.default_rng(seed)
    kinds = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
    found = [rng.standard_normal(shape).astype(np.float16).astype(kinds[dtype]) for shape, dtype in p.hosts]
    if form.mask == "causal":
        found[3] = np.arange(form.keys, dtype=np.int32)
        if form.rows > 1:
            found[4] = (np.arange(form.rows) + form.keys - form.rows).astype(np.int32)
    elif form.mask == "hidden":
        found[3].reshape(form.rows, -1)[0] = -np.inf
    return found


def expected(form: Form, given: Sequence[np.ndarray]) -> np.ndarray:
    """The result in float64."""
    f = form
    q, k, v = (a.astype(np.float64) for a in given[:3])
    q, k, v = q.reshape(f.heads, f.group, f.rows, f.inner), k.reshape(f.heads, f.keys, f.inner), v.reshape(f.heads, f.keys, f.outer)
    scores = np.einsum("hgri,hki->hgrk", q, k) * f.inner**-0.5
    rest = list(given[3:])
    if f.cap:
        scores = np.tanh(scores / 2) * 2
    if f.mask == "causal":
        positions, rows = rest.pop(0), rest.pop(0) if f.rows > 1 else np.array(f.keys - 1)
        scores = np.where(positions > rows.reshape(-1, 1), -np.inf, scores)
    elif f.mask:
        scores = scores + rest.pop(0).astype(np.float64).reshape(f.rows, f.keys)
    most = scores.max(-1, keepdims=True)
    sink = rest.pop(0).astype(np.float64).reshape(f.heads, f.group, 1, 1) if f.sink else None
    if sink is not None:
        most = np.maximum(most, sink)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - (np.where(most == -np.inf, 0, most) if f.guard else most))
        total = weights.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink - most))
        weights = weights / total
    if f.guard:
        weights = np.where(total == 0, 0, weights)
    return np.einsum("hgrk,hko->hgro", weights, v)
