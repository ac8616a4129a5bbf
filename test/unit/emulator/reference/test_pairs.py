"""Elements that are two numbers of one byte each: what they are in memory, moved, multiplied; NumPy's exact sums are the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from kernel_texts import kernel, load, store, tensor

import ktir
from ktir.diagnostics import KtirError
from ktir.emulator.policy import Policy

RNG = np.random.default_rng(5)
TYPES = {"f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2, "i8": torch.int8}


def values(element: str, codes: np.ndarray) -> np.ndarray:
    """As PyTorch reads the codes."""
    return torch.from_numpy(codes.copy()).view(TYPES[element]).double().numpy()


def numbers(element: str, *shape: int) -> np.ndarray:
    """Codes of all finite numbers, in any order."""
    codes = RNG.integers(0, 256, shape).astype(np.uint8)
    return np.where(np.isfinite(values(element, codes)), codes, 0).astype(np.uint8)


def product(element: str, m: int, k: int, n: int, body: str = "") -> str:
    """Both of [m, k] and [n, k] in pairs; [m, n] in f32."""
    pair, wide = f"vector<2x{element}>", "arith.sitofp" if element == "i8" else "arith.extf"
    body = body or (
        f"%wa = {wide} %a : {pair} to vector<2xf32>\n%wb = {wide} %b : {pair} to vector<2xf32>\n"
        "%p = arith.mulf %wa, %wb : vector<2xf32>\n%s = vector.reduction <add>, %p, %c : vector<2xf32> into f32\nlinalg.yield %s : f32\n"
    )
    types = tensor((m, k // 2), pair), tensor((n, k // 2), pair), tensor((m, n), "f32")
    return kernel(
        ["%x", "%w", "%y"],
        load("%a0", "%x", (m, k // 2), element=pair)
        + load("%b0", "%w", (n, k // 2), element=pair)
        + f"%z = arith.constant 0.0 : f32\n%e = tensor.empty() : {types[2]}\n"
        + f"%i = linalg.fill ins(%z : f32) outs(%e : {types[2]}) -> {types[2]}\n"
        + "%r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, "
        + 'affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]} '
        + f"ins(%a0, %b0 : {types[0]}, {types[1]}) outs(%i : {types[2]}) "
        + f"{{\n^bb0(%a: {pair}, %b: {pair}, %c: f32):\n{body}}} -> {types[2]}\n"
        + store("%r", "%y", (m, n), element="f32"),
    )


@pytest.mark.parametrize("order", ["machine", "fast", "peer"])
@pytest.mark.parametrize("element", TYPES)
def test_products(element, order):
    """In machine order 128 products are added exactly, which is seen where a partial sum of 64 would be rounded."""
    m, k, n = 3, 384, 70
    a, w, y = numbers(element, m, k), numbers(element, n, k), np.full((m, n), np.nan, np.float32)
    ktir.execute(product(element, m, k, n), args=[a, w, y], policy=Policy(numerics=order))
    left, right = (values(element, x).reshape(-1, 3, 128) for x in (a, w))
    blocks = np.einsum("mbk,nbk->bmn", left, right)  # of f8E5M2 f64 has not all of them exactly
    if order == "machine" and element != "f8E5M2":
        want = np.zeros((m, n), np.float32)
        for block in blocks:
            want += block.astype(np.float32)
        np.testing.assert_array_equal(y, want)
    size = np.einsum("mbk,nbk->mn", np.abs(left), np.abs(right))
    assert (np.abs(y - blocks.sum(0)) <= size * (k + 3) * 2.0**-24).all()


@pytest.mark.parametrize(("element", "given"), [*itertools.product(TYPES, ["bytes", "bits"]), ("i8", "typed")])
def test_moves(element, given):
    """Whoever only moves pairs gives what was there, out of an array of an odd number of elements too."""
    pair = f"vector<2x{element}>"
    x, y = numbers(element, 130 if given == "bits" else 131), np.zeros(130, np.uint8)
    kind = {"bytes": np.uint8, "bits": np.uint16, "typed": np.int8}[given]
    text = kernel(["%x", "%y"], load("%v", "%x", (65,), element=pair) + store("%v", "%y", (65,), element=pair))
    ktir.execute(text, args=[x.view(kind), y.view(kind)])
    np.testing.assert_array_equal(y, x[:130])


def test_another_body_is_taken_pair_by_pair():
    """A sum that is no product of two operands."""
    body = (
        "%wa = arith.sitofp %a : vector<2xi8> to vector<2xf32>\n%p = arith.mulf %wa, %wa : vector<2xf32>\n"
        "%s = vector.reduction <add>, %p, %c : vector<2xf32> into f32\nlinalg.yield %s : f32\n"
    )
    a, y = numbers("i8", 3, 64), np.zeros((3, 2), np.float32)
    ktir.execute(product("i8", 3, 64, 2, body), args=[a, numbers("i8", 2, 64), y])
    np.testing.assert_array_equal(y, np.broadcast_to((values("i8", a) ** 2).sum(1, keepdims=True), (3, 2)))


def test_what_has_no_meaning_on_pairs_is_refused():
    body = (
        "%wa = arith.extf %a : vector<2xf8E5M2> to vector<2xf32>\n%p = math.exp %wa : vector<2xf32>\n"
        "%s = vector.reduction <add>, %p, %c : vector<2xf32> into f32\nlinalg.yield %s : f32\n"
    )
    with pytest.raises(KtirError, match=r"'math.exp' op is on pairs of numbers, which the executor does not support"):
        ktir.execute(
            product("f8E5M2", 3, 64, 2, body), args=[numbers("f8E5M2", 3, 64), numbers("f8E5M2", 2, 64), np.zeros((3, 2), np.float32)]
        )


def test_pairs_of_another_type_are_refused():
    arrays = [numbers("f8E5M2", 3, 64), numbers("f8E5M2", 2, 64).view(np.int8), np.zeros((3, 2), np.float32)]
    with pytest.raises(KtirError, match="reads 'argument 1' as vector<2xf8E5M2>, but it is an array of i8"):
        ktir.execute(product("f8E5M2", 3, 64, 2), args=arrays)
