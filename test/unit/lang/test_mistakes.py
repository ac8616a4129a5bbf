"""Wrong kernels: each is refused at the user's line, also where Python itself objects."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.diagnostics import KtirError

# One kernel per paragraph: its body, then what is said. `!` marks the line at fault.
CASES = r"""
y[:] = x[0:9]  !                                     reaches beyond dim 0 of 8
y[:] = x[9] !                                        beyond dim 0 of 8
y[:] = x[-9] !                                       beyond dim 0 of 8
y[:] = x[0, 0, 0] !                                  expects a key for 2 dims, but got 3
y[:] = x[..., ...] !                                 expects a key for 2 dims
y[:] = x[0:4:2] !                                    slice of step 1
y[:] = x[3:3] !                                      at least one element
y[:] = x[5:2] !                                      at least one element
y[:] = x[1.5] !                                      expects an integer, a slice, a block
y[:] = x["a"] !                                      expects an integer, a slice, a block
y[:] = x[True] !                                     expects an integer, a slice, a block
y[:] = x[1.0:2.0] !                                  a slice between integers
y[:] = x[0:lang.tile_id()] !                         slice of known size
y[0] = x[:] !                                        can be broadcast to shape (64,)
y[:] = x[0:4] !                                      can be broadcast to shape (8, 64)
y[:] = "text" !                                      expects tiles and numbers
y[:] = [1, 2] !                                      expects tiles and numbers
y[:] = (x[:].astype(np.int32) * 2**40) !            1099511627776 is beyond int32, which holds -2147483648 to 2147483647
y[:] = x[:] + lang.full(64, 300, np.int8) !         300 is beyond int8, which holds -128 to 127
y[:] = None !                                        expects tiles and numbers
y[:] = x !                                           expects tiles and numbers
y[:] = x[:] + x !                                    expects tiles and numbers
y[:] = np.exp(x) !                                   works on tiles; load one
y[:] = np.sum(x) !                                   works on tiles; load one
for r in x: pass !                                   memory is read by keys
y[:] = np.asarray(x) !                               load a tile of it
y[:] = np.asarray(x[:]) !                            a tile has no values while a kernel is traced
if x[0, 0] > 0: y[:] = 0 !                           Python cannot decide by a value of the device
if lang.tile_id() > 0: y[:] = 0 !                    Python cannot decide by a condition
if lang.tile_id(): y[:] = 0 !                        Python cannot decide by a number of the device
while x[:].max() > 0: pass !                         Python cannot decide by a value
assert x[:].any() !                                  Python cannot decide by a value
y[:] = max(x[0, 0], x[1, 1]) !                       Python cannot decide by a value
for t in range(lang.tile_id()): y[t] = 0 !           Python needs a number that is known
y[:] = int(lang.tile_id()) !                         Python needs a number that is known
y[:] = float(lang.tile_id()) !                       Python needs a number that is known
y[:] = int(x[0, 0]) !                                Python needs a number that is known
y[:] = [1, 2, 3][lang.tile_id()] !                   Python needs a number that is known
y[:] = np.logaddexp(x[:], 1) !                       has no 'np.logaddexp'
y[:] = np.deg2rad(x[:]) !                            has no 'np.deg2rad'
y[:] = np.cumsum(x[:]) !                             has no 'np.cumsum'
y[:] = np.sort(x[:]) !                               has no 'np.sort'
y[:] = np.linalg.norm(x[:]) !                        has no 'np.norm'
y[:] = np.einsum("ij->ji", x[:]) !                   has no 'np.einsum'
y[:] = np.add.accumulate(x[:]) !                     has no 'np.add.accumulate'
y[:] = np.add.outer(x[0], x[0]) !                    has no 'np.add.outer'
y[:] = np.add(x[:], 1, where=True) !                 has no 'np.add' with 'where'
y[:] = np.round(x[:], 2) !                           rounds to whole numbers
y[:] = np.squeeze(x[:], 0) !                         dims of one element
y[:] = i[:] ** -1 !                                  no powers of negative exponents
y[:] = np.where(x[:] > 0) !                          has no 'np.where' of these
y[:] = x[:] << 1 !                                   NumPy has no 'left_shift'
y[:] = x[:] & 1 !                                    NumPy has no 'bitwise_and'
y[:] = ~x[:] !                                       NumPy has no 'invert'
y[:] = -(x[:] > 0) !                                 NumPy has no 'negative'
y[:] = (x[:] > 0) - (x[:] > 1) !                     NumPy has no 'subtract'
y[:] = x[:] + x[0:4] !                               can be broadcast together
y[:] = x[:] @ x[:] !                                 expects shapes (.., m, k) and (.., k, n)
y[:] = x[0] @ x[:] !                                 expects shapes (.., m, k) and (.., k, n)
y[:] = lang.dot(x[:], x[:]) !                        expects shapes (.., m, k) and (.., k, n)
y[:] = x[:].sum(2) !                                 expects a dim of
y[:] = x[:].sum(-3) !                                expects a dim of
y[:] = x[:].sum(0.5) !                               expects a dim of
y[:] = x[:].max((0, 0)) !                            expects different dims
y[:] = (x[:] > 0).max() !                            has no 'max' of bool
y[:] = x[:].reshape(7, 64) !                         a shape of 512 elements
y[:] = x[:].reshape(-1, -1) !                        a shape of 512 elements
y[:] = x[:].reshape(lang.tile_id(), 4) !             expects numbers that are known
y[:] = x[:].transpose(0, 0) !                        each of the 2 dims once
y[:] = x[:].transpose(0) !                           each of the 2 dims once
y[:] = x[:].astype("no") !                           expects a type of NumPy
y[:] = x[:].astype(complex) !                        expects one of the types
y[:] = x[:].astype(np.uint8) !                       expects one of the types
y[:] = x[:][lang.tile_id()] !                        indexed by numbers that are known
y[:] = x[:][0, 0, 0] !                               expects a key for 2 dims, but got 3
y[:] = x[:][8] !                                     beyond dim 0 of 8
x[:].T[...] = 0 !                                    a view of a tile cannot be changed
v = x[:].astype(np.int32); v += 0.5; y[:] = v !      cannot change int32
v = x[0]; v += x[:]; y[:] = v !                      cannot change float32
y[:] = np.concatenate([x[:], x[0]]) !                shapes that differ in dim 0 only
y[:] = np.broadcast_to(x[:], (8, 65)) !              can be broadcast to shape (8, 65)
y[:] = len(x[0, 0]) !                                has no length
y[:] = lang.zeros((8, lang.tile_id())) !             a shape of numbers that are known
y[:] = lang.zeros(-1) !                              a shape of numbers that are known
y[:] = lang.zeros("ab") !                            a shape of numbers that are known
y[:] = lang.full(8, 0, np.uint8) !                   expects one of the types
y[:] = lang.tile_id(1) !                             expects an axis of the grid
y[:] = lang.tiles(3) !                               expects an axis of the grid
y[:] = lang.erf("a") !                               expects tiles and numbers
y[:] = lang.all_reduce(x[0, 0:1], np.exp) !          folds by one of np.add
y[:] = lang.all_reduce(x[:] > 0) !                   folds floats and integers
y[:] = lang.all_gather(x[0], dim=1) !                one of their dims
y[:] = lang.broadcast(x[0], 2) !                     one of its 2 tiles
y[:] = lang.reduce_scatter(x[:, 0:3], dim=1) !       to be a multiple of that
y[:] = lang.all_reduce(x[0], axis=1) !               expects an axis of the grid
b = lang.buffer((4, 4), address=2); y[0, 0:4] = b[0] !   an address of whole elements
b = lang.buffer((4, 4), slots=0); y[:] = 0 !         is at least 1
b = lang.buffer((4, 4), np.uint16) !                 expects one of the types
y[:] = lang.tile_id() // 0 !                         division by zero
y[lang.tile_id() + 0.5] = 0 !                        expects integers beside it
y[:] = x[i[:], 0] !                                  no single number
y[:] = x[i[:], :, i[:]] !                            expects a key for 2 dims
y[0] = x[i[:] + 1] !                                 as it was loaded
y[0] = x[x[0]] !                                     as it was loaded
lang.when(x[:] > 0)(lambda: None) !                  a comparison of numbers
lang.when(1)(lambda: None) !                         a comparison of numbers
lang.when((lang.tile_id() > 0) & 3)(lambda: None) !  expects conditions beside it
for k in lang.range(0.5): y[k] = 0 !                 expects an integer
for k in lang.range(0, 4, 0): y[k] = 0 !             a step of at least 1
for k in lang.range(x[:]): y[k] = 0 !                expects an integer
for r in lang.blocks(8, 0): y[r] = 0 !               sizes of at least 1
for r in lang.blocks((8, 64), 8): y[r] = 0 !         a shape of numbers|expects 2 sizes
for r in lang.blocks(9, 4): y[r] = 0 !               reaches beyond dim 0 of 8
for r in lang.blocks(8, axis=1): y[r] = 0 !          expects an axis of the grid
for r in lang.blocks(lang.tile_id()): y[r] = 0 !     a shape of numbers
lang.nothing(x) !                                    has no attribute 'nothing'
x[:].nothing() !                                     has no attribute 'nothing'
x.nothing !                                          has no attribute 'nothing'
y[:] = z !                                           name 'z' is not defined
y[:] = x[8:16] !                                     8:16 reaches beyond dim 0 of 8
y[:] = x[-9:] !                                      -1:8 reaches beyond dim 0 of 8
y[0] = x[:, 64] !                                    64 is beyond dim 1 of 64
y[0] = x[0:8, 0:64, 0] !                             expects a key for 2 dims, but got 3
y[0] = x[:][0:3] !                                   expects a tile that can be broadcast to shape (64,)
y[:] = x[:][9] !                                     9 is beyond dim 0 of 8
y[:] = x[:][::2] !                                   dim 0 expects a slice of step 1, but got 2
y[:] = x[:]["a"] !                                   dim 0 expects an integer, a slice, a block or a tile of integers
y[0, 0] = x[0] !                                     expects a tile that can be broadcast to shape ()
y[0:3] = x[0:4] !                                    expects a tile that can be broadcast to shape (3, 64)
y[9] = 0 !                                           9 is beyond dim 0 of 8
y[0, 64] = 0 !                                       64 is beyond dim 1 of 64
y[0:9] = 0 !                                         0:9 reaches beyond dim 0 of 8
y[::2] = 0 !                                         dim 0 expects a slice of step 1, but got 2
y[None] = x[:] !                                     'ktdp.store' op writes element 0 of 'y' on tile 0, and it is written
y[:] = x.T !                                         has no attribute 'T'
y[:] = x.reshape(64, 8) !                            has no attribute 'reshape'
y[:] = x.sum() !                                     has no attribute 'sum'
y[:] = x * 2 !                                       'np.multiply' works on tiles
y[:] = 2 + x !                                       'np.add' works on tiles
y[:] = x @ x !                                       'np.matmul' works on tiles
y[:] = -x !                                          'np.negative' works on tiles
y[:] = x > 0 !                                       'np.greater' works on tiles
x += 1 !                                             'np.add' works on tiles
y = x[:] + 1; y[9] = 0 !                             9 is beyond dim 0 of 8
y[:] = x[:] ** "a" !                                 expects tiles and numbers, but got str 'a'
y[:] = x[:] + None !                                 expects tiles and numbers, but got NoneType
y[:] = x[:] + [1, 2] !                               expects tiles and numbers, but got list
y[:] = x[:] + {} !                                   expects tiles and numbers, but got dict
y[:] = x[:] % x !                                    expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = x[:] @ 3 !                                    a product of matrices expects shapes (.., m, k) and (.., k, n)
y[:] = np.matmul(x[:], x[:]) !                       a product of matrices expects shapes (.., m, k) and (.., k, n)
y[:] = np.dot(x[0], x[0]) !                          'np.dot' expects two matrices
y[:] = np.spacing(x[:]) !                            the language has no 'np.spacing'
y[:] = np.cross(x[:], x[:]) !                        the language has no 'np.cross'
y[:] = np.argsort(x[:]) !                            the language has no 'np.argsort'
y[:] = np.unique(x[:]) !                             the language has no 'np.unique'
y[:] = np.percentile(x[:], 50) !                     the language has no 'np.percentile'
y[:] = np.median(x[:]) !                             the language has no 'np.median'
y[:] = np.std(x[:], ddof=0.5) !                      'ddof' is a whole number
y[:] = np.clip(x[:], 0, "a") !                       expects tiles and numbers
y[:] = np.where(x[:], x[:], "a") !                   expects tiles and numbers, but got str 'a'
y[:] = np.stack([x[0], x[1]], 5) !                   expects a place among 1 dims
y[:] = np.concatenate([x[:], x[:]], 2) !             expects a dim of float32 of shape (8, 64), but got 2
y[:] = np.concatenate([x, x]) !                      'np.concatenate' works on tiles
y[:] = np.reshape(x[:], (3, 3)) !                    'reshape' expects a shape of 512 elements, but got ((3, 3),)
y[:] = np.transpose(x[:], (1, 1)) !                  'transpose' expects each of the 2 dims once
y[:] = x[:].reshape("a") !                           'reshape' expects numbers that are known when the kernel is traced
y[:] = x[:].reshape(-2, 256) !                       'reshape' expects a shape of 512 elements, but got (-2, 256)
y[:] = x[:].mean(3) !                                expects a dim of float32 of shape (8, 64), but got 3
y[:] = x[:].min((0, 5)) !                            expects a dim of float32 of shape (8, 64), but got 5
y[:] = x[:].any(4) !                                 expects a dim of int32 of shape (8, 64), but got 4
y[:] = x[:].all("a") !                               expects a dim of int32 of shape (8, 64), but got 'a'
y[:] = lang.rsqrt("a") !                             expects tiles and numbers, but got str 'a'
y[:] = lang.sigmoid(None) !                          expects tiles and numbers, but got NoneType
y[:] = lang.rsqrt(x) !                               expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = lang.erf(x) !                                 expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = lang.dot(x[:], 3) !                           'dot' expects tiles, but got int 3
y[:] = lang.dot(x[:], x) !                           expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = lang.dot(x[0:8, 0:8], x[:], x[0:3]) !         expects a tile that can be broadcast to shape (8, 64)
y[:] = lang.full((8, 64), "a") !                     'full' expects a number that is known when the kernel is traced
y[:] = lang.full((8, 64), x[0, 0]) !                 'full' expects a number that is known when the kernel is traced
y[:] = lang.zeros((8, 64), "no") !                   expects a type of NumPy, but got 'no'
y[:] = lang.zeros(None) !                            'zeros' expects a shape of numbers that are known when the kernel is
y[:] = lang.zeros((8, 2.5)) !                        'zeros' expects a shape of numbers that are known when the kernel is
lang.buffer((4, -1)) !                               'buffer' expects a shape of numbers that are known when the kernel is
lang.buffer((4, 4), slots="a") !                     'slots' of 'buffer' expects a whole number that is known when the
lang.buffer((4, 4), address="a") !                   'address' of 'buffer' expects a whole number that is known when the
lang.buffer((4, 4), address=-4) !                    a buffer expects an address of whole elements of 4 bytes
b = lang.buffer((4, 4)); b[4] = 0 !                  4 is beyond dim 0 of 4
b = lang.buffer((4, 4)); b[0] = x[0] !               expects a tile that can be broadcast to shape (4,)
y[:] = lang.tile_id("a") !                           expects an axis of the grid [2], but got 'a'
y[:] = lang.tile_id(-1) !                            expects an axis of the grid [2], but got -1
y[:] = lang.tiles("a") !                             expects an axis of the grid [2], but got 'a'
y[:] = lang.shift(x) !                               expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = lang.shift(x[0], "a") !                       'by' of 'shift' expects a whole number that is known when the kernel
y[:] = lang.broadcast(x[0], -1) !                    an exchange expects one of its 2 tiles as source, but got -1
y[:] = lang.broadcast(x[0], "a") !                   'source' of 'broadcast' expects a whole number that is known when the
y[:] = lang.all_gather(x[0], dim=-3) !               an exchange of tiles of shape (64,) expects one of their dims
y[:] = lang.all_gather(x) !                          expects tiles and numbers, but got float32 of shape (8, 64)
y[:] = lang.all_reduce("a") !                        expects tiles and numbers, but got str 'a'
y[:] = lang.all_reduce(x[0], "add") !                an exchange folds by one of np.add, np.multiply, np.maximum,
y[:] = lang.all_to_all(x[0:3], split=0) !            an exchange among 2 tiles expects dim 0 to be a multiple of that
y[:] = lang.all_to_all(x[:], split=4) !              an exchange of tiles of shape (8, 64) expects one of their dims
y[:] = lang.reduce_scatter(x[:], dim=7) !            an exchange of tiles of shape (8, 64) expects one of their dims
for k in lang.range("a"): y[k] = 0 !                 expects an integer, but got str 'a'
for k in lang.range(0, 8, -1): y[k] = 0 !            a loop expects a step of at least 1, but got -1
for k in lang.range(None): y[k] = 0 !                expects an integer, but got NoneType
for k in lang.range(0, 4, lang.tile_id() * 0.5): y[k] = 0 ! an index expects integers beside it, but got float 0.5
for r in lang.blocks("ab"): y[r] = 0 !               'blocks' expects a shape of numbers that are known when the kernel is
for r in lang.blocks(8, "a"): y[r] = 0 !             the size of 'blocks' expects a shape of numbers that are known when
for r in lang.blocks(8, 2.5): y[r] = 0 !             the size of 'blocks' expects a shape of numbers that are known when
for r in lang.blocks(8, 4, axis=-1): y[r] = 0 !      expects an axis of the grid [2], but got -1
lang.when("a")(lambda: None) !                       'when' expects a comparison of numbers, but got str 'a'
lang.when(lang.tile_id())(lambda: None) !            'when' expects a comparison of numbers, but got Index
lang.when(lang.tile_id() == 0)(3) !                  'when' expects a function to run, but got int 3
y[:] = lang.tile_id() % 0 !                          division by zero
y[lang.tile_id() * x[0, 0]] = 0 !                    expects an integer, but got float32 of shape ()
y[x[0, 0]] = 0 !                                     expects an integer, but got float32 of shape ()
y[0] = x[i[0] * 0.5] !                               expects an integer, but got float64 of shape ()
y[i[:]] = x[0:7] !                                   expects a tile that can be broadcast to shape (8, 64)
np.add.at(y, i[:], x[:]) !                           'ktir.scatter_add' op writes element 0 of 'y' on tile 1, and it is
np.add.at(y, i[:] + 1, x[:]) !                       a key takes a tile of numbers as it was loaded from an argument,
np.subtract.at(y, i[:], x[:]) !                      'np.subtract' works on tiles
np.add.at(x[:], 0, 1) !                              the language has no 'np.add.at'
y[:] = x.masked[0:9] !                               expects a tile that can be broadcast to shape (8, 64)
y[:] = x.masked["a"] !                               dim 0 expects an integer, a slice, a block or a tile of integers
y[:] = x.masked[0:8, 0:64, 0] !                      expects a key for 2 dims, but got 3
for r in lang.blocks(8, 3): y[r] = x[i[r]] !         may reach beyond it, in the last block
y[0:4] = x[i.masked[6:10]] !                         may reach beyond it, in the last block
with lang.when(lang.tile_id() > 0): pass !           write '@when(..)' before
del y[0] !                                           elements cannot be deleted
x.shape = (1,) !                                     'shape' is what it is
x[:].shape = (64, 8) !                               'shape' is what it is
x[:].dtype = np.int32 !                              'dtype' is what it is
y[:] = x.foo !                                       has no attribute 'foo'
y.fill(0) !                                          has no attribute 'fill'
y[lang.tile_id() + 7] = 0 !                          beyond|reaches|coordinates
y[0] = lang.tile_id() !                              writes|race
lang.buffer((2, 4))[0] + 1; y[0, 0:4] = lang.buffer(4)[:] !   which nothing has written|nothing

acc = lang.zeros(64)
for k in lang.range(4):
    acc = acc + x[k] !
y[0] = acc
in an earlier trip

for k in lang.range(4):
    v = x[k]
y[0] = v !
inside of a loop that has ended

total = [lang.zeros(64)]
for k in lang.range(4):
    total[0] = total[0] + x[k] !
    y[k] = total[0]
in an earlier trip

n = 0
for k in lang.range(4): !
    n += 1
    y[k] = x[k] * n
something else in its second trip

for k in lang.range(4): !
    y[k] = x[k]
    break
without 'break'

for k in lang.range(4): !
    y[k] = x[k]
    return
without 'break'

for k in lang.range(4):
    pass
y[k] = 0 !
inside of a loop that has ended

@lang.when(lang.tile_id() == 0)
def _():
    global leaked
    leaked = x[0]
y[0] = leaked !
inside of a condition that has ended

for r in lang.blocks(8, 4):
    v = x[r].T
    v[...] = 0 !
    y[r] = v.T
a view of a tile cannot be changed
"""


def cases() -> list[tuple[str, int, str]]:
    """Bodies, the number of the line at fault, and what is said about it, alternatives apart by `|`."""
    found = []
    single, _, multiple = CASES.strip().partition("\n\n")
    for line in single.split("\n"):
        body, said = line.rsplit(" !", 1)
        found.append((body.strip(), 0, said.strip()))
    for paragraph in multiple.split("\n\n"):
        *body, said = paragraph.strip().split("\n")
        at = next(n for n, line in enumerate(body) if line.endswith(" !"))
        found.append(("\n".join(body).replace(" !", ""), at, said))
    return found


def kernel_of(body: str, name: str) -> Any:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    space: dict[str, Any] = {"np": np, "lang": lang}
    exec(compile(f"def k(x, i, y, *, p=3):\n{lines}", name, "exec"), space)
    return lang.kernel(space["k"])


def test_each_is_refused_at_its_line() -> None:
    wrong = []
    found = cases()
    assert len(found) >= 120
    for number, (body, at, said) in enumerate(found):
        name = f"/wrong{number}.py"
        x, i, y = np.ones((8, 64), np.float32), np.zeros(8, np.int32), np.zeros((8, 64), np.float32)
        try:
            kernel_of(body, name)[2](x, i, y)
        except KtirError as error:
            if not any(s in str(error) for s in said.split("|")) or not str(error).startswith(f"{name}:{at + 2}:"):
                wrong.append(f"{body!r}: {error}")
        except Exception as error:
            wrong.append(f"{body!r}: {type(error).__name__}: {error}")
        else:
            wrong.append(f"{body!r}: passes")
        if y.any():
            wrong.append(f"{body!r}: has written")
    assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("on", ["executor", "numpy"])
def test_what_python_raises_stands_at_its_line(on: str) -> None:
    """A mistake of Python's has the user's places, innermost first, and no traceback of ours."""
    x, i, y = np.ones((8, 64), np.float32), np.zeros(8, np.int32), np.zeros((8, 64), np.float32)
    for body, said in (
        ("y[:] = z", "NameError: name 'z' is not defined"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("y[:] = 1 // (p - 3)", "ZeroDivisionError: integer division or modulo by zero"),
        ("assert p == 4, 'p'", "AssertionError: p"),
        ("y[:] = {}['a']", "KeyError: 'a'"),
        ("raise StopIteration", "StopIteration"),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("y[:] = x[:].shape[2]", "IndexError: tuple index out of range"),
    ):
        with pytest.raises(KtirError) as found:
            kernel_of(body, "/raises.py")[2].using(on=on)(x, i, y)
        assert str(found.value).startswith("/raises.py:2:")
        assert str(found.value).endswith(f"error: {said}")
    nested = kernel_of("def f(n):\n  return f(n - 1) if n else n[0]\ny[:] = f(2)", "/nested.py")
    with pytest.raises(KtirError) as found:
        nested[2].using(on=on)(x, i, y)
    lines = str(found.value).split("\n")
    assert [line.split(":")[1] for line in lines] == ["3", "3", "3", "4"]
    assert "TypeError: 'int' object is not subscriptable" in lines[0]
    assert not y.any()


def _refused(said: str, call: Callable[[], object]) -> None:
    with pytest.raises(KtirError) as found:
        call()
    assert said in str(found.value)


def test_calls_that_do_not_fit() -> None:
    x, i, y = np.ones((8, 64), np.float32), np.zeros(8, np.int32), np.zeros((8, 64), np.float32)
    k = kernel_of("y[:] = x[:] * p", "/calls.py")
    _refused("takes 3 arguments (x, i, y), but got 4", lambda: k(x, i, y, y))
    _refused("expects an argument 'y'", lambda: k(x, i))
    _refused("has no argument 'q'", lambda: k(x, i, y, q=1))
    _refused("has already 'x'", lambda: k(x, i, y, x=x))
    _refused("expects a value that does not change", lambda: k(x, i, y, p=[1]))
    _refused("argument 'x' expects an array or a whole number", lambda: k(1.5, i, y))
    _refused("argument 'x' expects an array or a whole number", lambda: k("a", i, y))
    _refused("expects one of the types", lambda: k(x.astype(np.uint16), i, y))
    _refused("expects 1 to 3 numbers of at least 1", lambda: k[0])
    _refused("expects 1 to 3 numbers of at least 1", lambda: k[1, 1, 1, 1])
    _refused("expects 1 to 3 numbers of at least 1", lambda: k["a"])
    _refused("runs on one of executor, numpy, chip", lambda: k.using(on="gpu"))
    _refused("the way of a grid is one of auto, lift, pin, but got 'up'", lambda: k.using(way="up"))
    _refused("a tolerance is a number from 0 to 1, but got 2", lambda: k.using(tolerance=2))
    _refused("works inside of a kernel", lambda: lang.zeros(3))
    _refused("works inside of a kernel", lambda: lang.tile_id())
    _refused("a kernel expects a function with a name", lambda: lang.kernel(3))
    _refused("a kernel expects a function with a name", lambda: lang.kernel(lambda x: None))
    _refused("has a default; parameters stand behind '*'", lambda: lang.kernel(_with_default))
    _refused("a kernel expects arguments with names", lambda: lang.kernel(_with_more))
    for body in ("y[:] = x[:]; return 1", "yield"):
        for on in ("executor", "numpy"):
            _refused("a kernel returns nothing", lambda body=body, on=on: kernel_of(body, "/calls.py").using(on=on)(x, i, y))
    _refused("stores into at least one", lambda: kernel_of("x[:]", "/calls.py")(x, i, y))
    _refused("runs without a grid", lambda: kernel_of("y[lang.tile_id()] = 0", "/calls.py")(x, i, y))
    whole = kernel_of("for r in lang.blocks(8, 1): y[r.start] = 0", "/calls.py")
    _refused("without a grid there is one block", lambda: whole(x, i, y))
    _refused("without a grid there is one block", lambda: whole.using(on="numpy")(x, i, y))
    _refused("runs without a grid", lambda: kernel_of("lang.buffer(3)", "/calls.py")(x, i, y))
    _refused("runs without a grid", lambda: kernel_of("y[0] = lang.all_reduce(x[0])", "/calls.py")(x, i, y))


def _with_default(x: Any, y: Any = 1) -> None: ...


def _with_more(*x: Any) -> None: ...


def test_what_the_machine_has_no_form_for() -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    far = kernel_of("y[lang.tile_id()] = lang.tile_id() * 2**62 * 4", "/far.py")
    _refused("18446744073709551616 is beyond the 64 bits", lambda: far[2](x, x, y))
    for swapped in (x.astype(">f4"), x.astype(">i2")):
        for on in ("executor", "numpy"):
            _refused(
                "in the order of bytes of this machine", lambda on=on, s=swapped: kernel_of("y[:] = x[:]", "/a.py").using(on=on)(s, s, y)
            )
    for on in ("executor", "numpy"):
        masked = kernel_of("y[:] = np.add(x[:], 1, where=x[:] > 2)", "/where.py")
        _refused("has no 'np.add' with 'where'", lambda on=on, k=masked: k.using(on=on)(x, x, y))
    _refused("has 'x' before '/'", lambda: lang.kernel(_with_positions))


def _with_positions(x: Any, /, y: Any) -> None: ...


def test_a_helper_of_no_module() -> None:
    around: dict[str, Any] = {"n": 1}
    exec("def inner(v): return v + n\ndef outer(v): return inner(v)", around)
    helper = around["outer"]

    @lang.kernel
    def run(x, y):
        y[...] = helper(x[...])

    for n in (1, 3):
        around["n"] = n
        run(np.ones(3, np.float32), y := np.zeros(3, np.float32))
        assert y.tolist() == [1 + n] * 3
