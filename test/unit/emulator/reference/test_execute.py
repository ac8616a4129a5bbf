"""The interface: arguments, caches, modules, reports."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from kernel_texts import function, kernel, load, module, random_f16, same, softmax_host, store, tensor

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.policy import Policy
from ktir.emulator.reference import Report, Scratch, execute
from ktir.mlir import ir

F16 = np.float16


def double(shape: tuple[int, ...]) -> str:
    return load("%x", "%arg0", shape) + f"%y = arith.addf %x, %x : {tensor(shape)}\n" + store("%y", "%arg1", shape)


def named(*names: str, roles: tuple[str, ...] = ()) -> list[str]:
    given = [*roles, *["input"] * (len(names) - len(roles))]
    return [f'%arg{i}: index {{ktir.name = "{n}", ktir.role = "{r}"}}' for i, (n, r) in enumerate(zip(names, given, strict=True))]


def test_module_text_and_name():
    text = module(function("one", ["%arg0", "%arg1"], double((4,))), function("two", ["%arg0", "%arg1"], double((4,))))
    x, y = random_f16(4), np.zeros(4, F16)
    with context(), ir.Location.unknown():
        parsed = parse_module(text, "k.mlir")
        report = execute(parsed, "two", [x, y])
    assert isinstance(report, Report)
    same(y, x + x)
    with pytest.raises(KtirError, match="expects the name of one of one, two"):
        execute(text, args=[x, y])
    with pytest.raises(KtirError, match="no function named 'three'; it has one, two"):
        execute(text, "three", [x, y])


def test_entry_is_the_function_that_no_other_calls():
    calls = "func.call @k(%a, %b) : (index, index) -> ()\n"
    text = module(function("k", ["%arg0", "%arg1"], double((4,))), function("main", ["%a", "%b"], calls))
    x, y = random_f16(4), np.zeros(4, F16)
    execute(text, args=[x, y])
    same(y, x + x)


def test_arguments_by_name():
    text = module(function("k", named("x", "y"), double((4,))))
    x, y = random_f16(4), np.zeros(4, F16)
    execute(text, args={"y": y, "x": x})
    same(y, x + x)
    with pytest.raises(KtirError, match="no argument named 'z'; it has x, y"):
        execute(text, args={"x": x, "z": y})
    with pytest.raises(KtirError, match=r"argument 1 \('y'\) of 'k' is missing"):
        execute(text, args={"x": x})


def test_pool_may_be_left_out():
    layout = "#ktir.layout<size = [2, 64], device = [1, 2, 64], strides = [64, 64, 1], dtype = f16>"
    arguments = [*named("x", "y"), f'%arg2: index {{ktir.name = "pool0", ktir.role = "pool", ktir.layout = {layout}}}']
    body = load("%x", "%arg0", (2, 64)) + store("%x", "%arg2", (2, 64)) + load("%p", "%arg2", (2, 64)) + store("%p", "%arg1", (2, 64))
    text = module(function("k", arguments, body))
    x, y, pool = random_f16(2, 64), np.zeros((2, 64), F16), np.zeros((2, 64), F16)
    for args in ([x, y], [x, y, pool], {"x": x, "y": y}, [x, y, Scratch(128)]):
        y[...] = 0
        execute(text, args=args)
        same(y, x)
    same(pool, x)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(4, F16)], "takes 2 arguments, but got 1"),
        ([np.zeros(4, F16), np.zeros(4, np.complex64)], "argument 1 of 'kernel' expects a float"),
        ([np.zeros(4, F16), np.zeros((4, 4), F16)[:, 1:]], "expects a C-contiguous array"),
        ([np.zeros(4, F16), "x"], "expects an array or an address, but got str"),
        ([np.zeros(4, F16), None], "argument 1 of 'kernel' is missing"),
    ],
)
def test_arguments_that_do_not_fit(args, message):
    with pytest.raises(KtirError, match=message):
        execute(kernel(["%arg0", "%arg1"], double((4,))), args=args)


def test_arrays_may_not_overlap_in_part():
    x = np.zeros(8, F16)
    with pytest.raises(KtirError, match="shares a part of its memory"):
        execute(kernel(["%arg0", "%arg1"], double((4,))), args=[x[:6], x[2:]])
    execute(kernel(["%arg0", "%arg1"], double((4,))), args=[x[:4], x[4:]])


def test_number_arguments():
    """Sizes as index arguments, floats as f32 arguments; a plan per value."""
    body = load("%x", "%arg0", ("%n",), strides=(1,), extents=(8,)) + f"%f = tensor.splat %s : {tensor((8,), 'f32')}\n"
    body += f"%w = arith.extf %x : {tensor((8,))} to {tensor((8,), 'f32')}\n%y = arith.mulf %w, %f : {tensor((8,), 'f32')}\n"
    body += store("%y", "%arg1", (8,), element="f32")
    text = kernel(["%arg0", "%arg1", "%n", "%s: f32"], body)
    x, y = np.arange(1, 9).astype(F16), np.zeros(8, np.float32)
    for n, s in ((3, 0.5), (8, 2.0), (np.int64(0), np.float32(1))):
        execute(text, args=[x, y, n, s])
        np.testing.assert_array_equal(y, np.where(np.arange(8) < n, x * np.float32(s), 0))
    with pytest.raises(KtirError, match="expects f32"):
        execute(text, args=[x, y, 3, "a"])
    with pytest.raises(KtirError, match="expects a number of type f32"):
        execute(text, args=[x, y, 3, x])


def test_plans_are_reused_and_depend_on_sizes_and_policy():
    text = softmax_host(5, 70)
    x, y = random_f16(5, 70), np.zeros((5, 70), F16)
    assert execute(text, args=[x, y]).prepare_seconds > 0
    assert execute(text, args=[random_f16(5, 70, seed=3), y]).prepare_seconds == 0
    assert execute(text, args=[x, y], policy=Policy(numerics="fast")).prepare_seconds > 0
    assert execute(text, args=[x, np.zeros((6, 70), F16)]).prepare_seconds > 0
    assert execute(text, args=[x, y]).prepare_seconds == 0
    first = y.copy()
    other = np.zeros_like(y)
    execute(text, args=[random_f16(5, 70, seed=9), other])
    execute(text, args=[x, y])
    same(first, y)  # nothing of another launch remains


def test_a_module_that_changes_is_compiled_again():
    x, y = random_f16(4), np.zeros(4, F16)
    with context(), ir.Location.unknown():
        parsed = parse_module(kernel(["%arg0", "%arg1"], double((4,))))
        execute(parsed, args=[x, y])
        same(y, x + x)
        block = parsed.body.operations[0].regions[0].blocks[0]
        add = next(o.operation for o in block.operations if o.operation.name == "arith.addf")
        with ir.InsertionPoint(add):
            product = ir.Operation.create("arith.mulf", results=[add.results[0].type], operands=list(add.operands))
        add.results[0].replace_all_uses_with(product.results[0])
        add.erase()
        execute(parsed, args=[x, y])
    same(y, (x.astype(np.float32) ** 2).astype(F16))


def test_untouched_parts_of_an_array_stay():
    x = random_f16(8, 10)
    x[7, 9] = np.nan
    before = x.copy()
    body = "%v = arith.constant dense<1.0> : tensor<8x1xf16>\n" + store("%v", "%arg0", (8, 10), index=(0, 3), extents=(8, 1))
    execute(kernel(["%arg0"], body), args=[x])
    before[:, 3] = 1
    same(x, before)
    many = np.full((2000, 3), np.nan, F16)
    body = "%v = arith.constant dense<1.0> : tensor<2000x1xf16>\n" + store("%v", "%arg0", (2000, 3), index=(0, 1), extents=(2000, 1))
    execute(kernel(["%arg0"], body), args=[many])
    assert (many[:, 1] == 1).all()
    assert np.isnan(many[:, [0, 2]]).all()


def test_integer_arrays():
    x, y = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    t = tensor((6,), "i32")
    body = load("%x", "%arg0", (6,), element="i32") + f"%y = arith.muli %x, %x : {t}\n" + store("%y", "%arg1", (6,), element="i32")
    execute(kernel(["%arg0", "%arg1"], body), args=[x, y])
    np.testing.assert_array_equal(y, x * x)


def test_empty_tensors():
    x = np.zeros((0, 5), F16)
    execute(kernel(["%arg0", "%arg1"], double((0, 5))), args=[x, x.copy()])


def test_threads():
    """Launches of one plan from several threads do not mix."""
    text = softmax_host(64, 300)
    inputs = [random_f16(64, 300, seed=s) for s in range(6)]
    wants = []
    for x in inputs:
        wants.append(np.zeros_like(x))
        execute(text, args=[x, wants[-1]])
    outputs = [np.zeros_like(x) for x in inputs]

    def work(i: int) -> None:
        for _ in range(5):
            execute(text, args=[inputs[i], outputs[i]])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got, want in zip(outputs, wants, strict=True):
        same(got, want)


def test_no_warnings(recwarn):
    x = np.array([np.inf, -np.inf, np.nan, 0, 65504], F16)
    t = tensor((5,))
    body = load("%x", "%arg0", (5,)) + f"%a = arith.subf %x, %x : {t}\n%b = arith.mulf %x, %x : {t}\n%c = math.log %x : {t}\n"
    body += f"%d = arith.divf %a, %b : {t}\n%y = arith.addf %c, %d : {t}\n" + store("%y", "%arg1", (5,))
    execute(kernel(["%arg0", "%arg1"], body), args=[x, x.copy()])
    assert not recwarn.list
