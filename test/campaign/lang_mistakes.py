"""Mistakes in kernels of the language: each either changes nothing that matters, or is said at its line.

    python test/campaign/lang_mistakes.py --programs 200 --seed 0 [--show SEED]

A mistake is one change of the syntax tree of a kernel of `examples/kernels.py`: a statement, a keyword or a subscript is gone, a name, an
attribute, a number, an operator or a type stands for another one, arguments change places, something is transposed or sliced once more. The
kernel is called with the example's arrays, on NumPy and on the executor. What is said is a `KtirError` that begins with a place in the
kernel, also of errors of Python and NumPy, and nothing is written then. What NumPy refuses the executor refuses; what both run has the same
values but for roundings. That the language lacks something that NumPy has is no fault.

Not drawn: what never ends on NumPy (a step of 0 of `lang.range` is drawn, loops of Python are not), and recursion.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.util
import inspect
import linecache
import random
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from campaign.spread import progress

from ktir import lang
from ktir.diagnostics import KtirError

ROOT = Path(__file__).parents[2]
ATTRIBUTES = ["T", "shape", "size", "start", "masked", "dtype", "max", "min", "sum", "mean", "astype", "positions", "ndim", "nothing"]
NUMBERS = [0, 1, -1, 2, 3, 63, 64, 65, 1000, 0.5, -0.0, float("inf"), 1e30, 2**31, None, True, "a"]
OPERATORS = [ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.LShift, ast.BitAnd]
TYPES = ["np.float16", "np.int32", "np.float32", "np.int64", "np.bool_", "np.float64", "np.int8", "np.complex64", "int", "'f4'"]


def _examples() -> Any:
    spec = importlib.util.spec_from_file_location("kernels_of_the_language", ROOT / "examples/kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLES = _examples()
CALLS = list(EXAMPLES.cases())
"""Of each kernel the call, its arrays, its parameters and what float64 gives."""


class _Change:
    """Changes of a tree, each a function that makes it when it is called; all of them refer to nodes of that tree."""

    def __init__(self, tree: ast.FunctionDef, r: random.Random) -> None:
        self.tree, self.r = tree, r
        self.names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {a.arg for a in tree.args.args})
        self.parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}

    def every(self) -> Iterator[Callable[[], object]]:
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and len(body) > 1:
                yield lambda body=body: body.pop(self.r.randrange(len(body)))
                yield lambda body=body: body.insert(self.r.randrange(len(body) + 1), body[self.r.randrange(len(body))])
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield lambda node=node: setattr(node, "id", self.r.choice(self.names))
                yield lambda node=node: self._put(node, ast.Attribute(copy.deepcopy(node), "T", ast.Load()))
                yield lambda node=node: self._put(node, ast.UnaryOp(self.r.choice([ast.Not, ast.USub, ast.Invert])(), copy.deepcopy(node)))
            elif isinstance(node, ast.Attribute):
                yield lambda node=node: setattr(node, "attr", self.r.choice(ATTRIBUTES))
            elif isinstance(node, ast.Constant):
                yield lambda node=node: setattr(node, "value", self.r.choice(NUMBERS))
            elif isinstance(node, ast.BinOp):
                yield lambda node=node: setattr(node, "op", self.r.choice(OPERATORS)())
                yield lambda node=node: node.__dict__.update(left=node.right, right=node.left)
            elif isinstance(node, ast.Compare):
                yield lambda node=node: node.ops.__setitem__(0, self.r.choice([ast.Lt, ast.Eq, ast.GtE, ast.In, ast.Is])())
            elif isinstance(node, ast.Subscript):
                yield from self._subscript(node)

    def _call(self, node: ast.Call) -> Iterator[Callable[[], object]]:
        if node.args:
            yield lambda: node.args.pop(self.r.randrange(len(node.args)))
            yield lambda: node.args.append(copy.deepcopy(self.r.choice(node.args)))
            yield lambda: self.r.shuffle(node.args)
            yield lambda: node.args.__setitem__(self.r.randrange(len(node.args)), ast.parse(self.r.choice(TYPES), mode="eval").body)
        if node.keywords:
            yield lambda: node.keywords.pop()
            yield lambda: setattr(node.keywords[0], "arg", self.r.choice(["axis", "keepdims", "dtype", "block", "out", "where"]))

    def _subscript(self, node: ast.Subscript) -> Iterator[Callable[[], object]]:
        yield lambda: setattr(node, "slice", ast.Tuple([copy.deepcopy(node.slice), ast.Constant(self.r.choice([0, None, 7]))], ast.Load()))
        yield lambda: setattr(
            node, "slice", ast.Slice(None, ast.Constant(self.r.choice([0, 1, 5, -1])), self.r.choice([None, ast.Constant(2)]))
        )
        if isinstance(node.ctx, ast.Load):
            yield lambda: self._put(node, copy.deepcopy(node.value))

    def _put(self, node: ast.AST, new: ast.AST) -> None:
        """In the place of a node."""
        for name, value in ast.iter_fields(self.parents[node]):
            if value is node:
                setattr(self.parents[node], name, new)
            elif isinstance(value, list) and node in value:
                value[value.index(node)] = new


def drawn(seed: int) -> tuple[int, str]:
    """The number of an example, and the text of its kernel with a mistake."""
    r = random.Random(seed)
    while True:
        number, text = _changed(r)
        try:
            compile(text, "/mistake.py", "exec")
        except SyntaxError:  # which is Python's to say
            continue
        return number, text


def _changed(r: random.Random) -> tuple[int, str]:
    number = r.randrange(len(CALLS))
    source = textwrap.dedent(inspect.getsource(CALLS[number][0].function))
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list.clear()
    for _ in range(r.choice((1, 1, 1, 2))):
        r.choice(list(_Change(tree, r).every()))()
    return number, ast.unparse(ast.fix_missing_locations(tree))


def outcome(seed: int, number: int, text: str, on: str) -> tuple[str, list[np.ndarray]]:
    """What is said, empty if nothing is, and the arrays. Raises what is no KtirError."""
    name = f"/mistake{seed}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {**vars(EXAMPLES), "lang": lang}
    exec(compile(text, name, "exec"), space)
    call, arrays, parameters, _ = CALLS[number]
    arrays = [a.copy() for a in arrays]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            lang.kernel(space[call.__name__])[call.grid].using(on=on)(*arrays, **parameters)
        except KtirError as error:
            return str(error), arrays
    return "", arrays


def finding(seed: int) -> str:
    """What is wrong with a mistake, empty if nothing is."""
    number, text = drawn(seed)
    given = CALLS[number][1]
    found: dict[str, tuple[str, list[np.ndarray]]] = {}
    for on in ("numpy", "executor"):
        try:
            found[on] = outcome(seed, number, text, on)
        except Exception as error:
            return f"{on}: {type(error).__name__}: {error}"
    for on, (said, arrays) in found.items():
        if said and not said.startswith(f"/mistake{seed}.py:"):
            return f"{on} does not say where: {said}"
        if said and on == "executor" and any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, given, strict=True)):
            return f"{on} has written: {said}"
    (first, mine), (second, theirs) = found.values()
    if first and not second:
        return f"the executor passes, and NumPy: {first}"
    if not first and not second:
        for a, b in zip(mine, theirs, strict=True):
            if not np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=0.02, atol=0.02, equal_nan=True):
                return "values of NumPy and executor differ"
    return ""


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, metavar="SEED", help="the kernel of a seed, and what is said of it")
    options = parser.parse_args()
    if options.show is not None:
        number, text = drawn(options.show)
        print(text)
        for on in ("numpy", "executor"):
            print(f"-- {on}\n{outcome(options.show, number, text, on)[0] or 'passes'}")
        return 0
    wrong, shown = 0, progress(options.programs, "mistake")
    for seed in range(options.seed, options.seed + options.programs):
        shown(f"{wrong} wrong")
        if said := finding(seed):
            wrong += 1
            print(f"seed {seed}: {said}", flush=True)
    print(f"{options.programs} mistakes, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
