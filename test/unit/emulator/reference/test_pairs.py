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
    x, y = numbers(element, 256 if given == "bits" else 259), np.zeros(256, np.uint8)
    kind = {"bytes": np.uint8, "bits": np.uint16, "typed": np.int8}[given]
    text = kernel(["%x", "%y"], load("%v", "%x", (128,), element=pair) + store("%v", "%y", (128,), element=pair))
    ktir.execute(text, args=[x.view(kind), y.view(kind)])
    np.testing.assert_array_equal(y, x[:256])


@pytest.mark.parametrize("element", TYPES)
def test_halves_of_a_block_are_pairs(element):
    """Of 128 bytes the lower 64 are the first numbers of pairs, the upper 64 the second ones."""
    pair = f"vector<2x{element}>"
    x, y = numbers(element, 256), np.zeros(128, np.uint16)
    text = kernel(["%x", "%y"], load("%v", "%x", (128,), element=pair) + store("%v", "%y", (128,), element=pair))
    ktir.execute(text, args=[x, y])
    np.testing.assert_array_equal(y & 255, x.reshape(2, 2, 64)[:, 0].reshape(-1))
    np.testing.assert_array_equal(y >> 8, x.reshape(2, 2, 64)[:, 1].reshape(-1))


def test_bytes_that_are_no_whole_block_are_not_there():
    text = kernel(["%x", "%y"], load("%v", "%x", (64,), element="vector<2xi8>") + store("%v", "%y", (64,), element="vector<2xi8>"))
    with pytest.raises(KtirError, match="reads elements 0 to 63 of 'argument 0' of 0 elements"):
        ktir.execute(text, args=[numbers("i8", 127), np.zeros(128, np.uint8)])


SPECIAL = [0.0, -0.0, 448.0, -448.0, 464.0, 465.0, 1e4, -1e4, 61440.0, 60000.0, np.inf, -np.inf, np.nan, 2.0**-10, 2.0**-9, 1.5 * 2.0**-17]


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("element", TYPES)
def test_floats_become_pairs_as_pytorch_narrows_them(element, dimension):
    shape = [3, 2]
    shape[dimension] = 384
    x = RNG.normal(0, 40, shape).astype(np.float16).astype(np.float32)
    if element == "i8":
        x = np.clip(np.rint(x), -128, 127)
    else:
        x.reshape(-1)[: len(SPECIAL)] = SPECIAL
    pair, half = f"vector<2x{element}>", [n // 2 if d == dimension else n for d, n in enumerate(shape)]
    text = kernel(
        ["%x", "%y"],
        load("%v", "%x", tuple(shape), element="f32")
        + f"%p = ktir.pair_bytes %v dimension = {dimension} : {tensor(tuple(shape), 'f32')} -> {tensor(tuple(half), pair)}\n"
        + store("%p", "%y", tuple(half), element=pair),
    )
    y = np.zeros(half, np.uint16)
    ktir.execute(text, args=[x, y])
    found, want = np.moveaxis(y, dimension, -1), torch.from_numpy(np.moveaxis(x, dimension, -1).copy()).to(TYPES[element])
    both = np.stack([found.reshape(-1, 3, 64) & 255, found.reshape(-1, 3, 64) >> 8], 2).astype(np.uint8)
    wanted = want.double().numpy().reshape(-1, 3, 2, 64)
    np.testing.assert_array_equal(values(element, both), wanted)
    np.testing.assert_array_equal(np.signbit(values(element, both))[wanted == 0], np.signbit(wanted)[wanted == 0])


def test_another_body_is_taken_pair_by_pair():
    """A sum that is no product of two operands."""
    body = (
        "%wa = arith.sitofp %a : vector<2xi8> to vector<2xf32>\n%p = arith.mulf %wa, %wa : vector<2xf32>\n"
        "%s = vector.reduction <add>, %p, %c : vector<2xf32> into f32\nlinalg.yield %s : f32\n"
    )
    a, y = numbers("i8", 3, 128), np.zeros((3, 2), np.float32)
    ktir.execute(product("i8", 3, 128, 2, body), args=[a, numbers("i8", 2, 128), y])
    np.testing.assert_array_equal(y, np.broadcast_to((values("i8", a) ** 2).sum(1, keepdims=True), (3, 2)))


def test_what_has_no_meaning_on_pairs_is_refused():
    body = (
        "%wa = arith.extf %a : vector<2xf8E5M2> to vector<2xf32>\n%p = math.exp %wa : vector<2xf32>\n"
        "%s = vector.reduction <add>, %p, %c : vector<2xf32> into f32\nlinalg.yield %s : f32\n"
    )
    with pytest.raises(KtirError, match=r"'math.exp' op is on pairs of numbers, which the executor does not support"):
        ktir.execute(
            product("f8E5M2", 3, 128, 2, body), args=[numbers("f8E5M2", 3, 128), numbers("f8E5M2", 2, 128), np.zeros((3, 2), np.float32)]
        )


def test_pairs_of_another_type_are_refused():
    arrays = [numbers("f8E5M2", 3, 128), numbers("f8E5M2", 2, 128).view(np.int8), np.zeros((3, 2), np.float32)]
    with pytest.raises(KtirError, match="reads 'argument 1' as vector<2xf8E5M2>, but it is an array of i8"):
        ktir.execute(product("f8E5M2", 3, 128, 2), args=arrays)
