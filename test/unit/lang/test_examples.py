"""The kernels of examples/kernels.py give PyTorch's values in float64, on NumPy and the executor; some without a grid on the chip too."""

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ktir import lang
from ktir.diagnostics import KtirError
from ktir.runtime import metrics

_PATH = Path(__file__).parents[3] / "examples" / "kernels.py"
_SPEC = importlib.util.spec_from_file_location("example_kernels", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
kernels = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(kernels)

CASES = {call.__name__: (call, arrays, parameters) for call, arrays, parameters, _ in kernels.cases()}


def paged(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> torch.Tensor:
    found = []
    for b, n in enumerate(lengths.long()):
        pages = table[b].long()
        found.append(F.scaled_dot_product_attention(q[b][None], k[pages].flatten(0, 1)[:n], v[pages].flatten(0, 1)[:n])[0])
    return torch.stack(found)


ORACLES: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "rms_norm": lambda x, w: F.rms_norm(x, (x.shape[1],), w, 1e-6),
    "linear": lambda x, w, b: F.relu(F.linear(x, w.T, b)),
    "swiglu": lambda x, g, u: F.silu(x @ g) * (x @ u),
    "flash_attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "flash_decoding": lambda q, k, v: F.scaled_dot_product_attention(q[:, None], k, v)[:, 0],
    "paged_attention": paged,
    "top_k": lambda x: tuple(torch.topk(x, 4)),
    "histogram": lambda x: torch.bincount(x.long(), minlength=20),
    "transpose": lambda x: x.T,
}


def check(name: str, call: Any) -> None:
    _, given, parameters = CASES[name]
    arrays = [a.copy() for a in given]
    call(*arrays, **parameters)
    number = 2 if name == "top_k" else 1
    expected = ORACLES[name](*[torch.from_numpy(a.astype(np.float64)) for a in arrays[:-number]])
    for found, e in zip(arrays[-number:], expected if number > 1 else [expected], strict=True):
        wanted = e.numpy()
        # Results of f16 are rounded once; what goes into the products of attention is rounded to f16 before.
        rounding = 2**-10 if "attention" in name or "decoding" in name else 2**-11
        assert np.abs(found - wanted).max() <= (rounding * max(1.0, np.abs(wanted).max()) if found.dtype == np.float16 else 0)


def test_all_have_an_oracle() -> None:
    assert list(CASES) == list(ORACLES)


@pytest.mark.parametrize("on", ["numpy", "executor"])
@pytest.mark.parametrize("name", ORACLES)
def test_values(name: str, on: Any) -> None:
    check(name, CASES[name][0].using(on=on))


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "swiglu", "transpose"])
def test_values_on_the_chip(name: str) -> None:
    check(name, CASES[name][0].using(grid=None, on="chip"))


_PAGE = (_PATH.parents[1] / "docs" / "lang.md").read_text()
WAYS = {m[1]: (m[2], m[3]) for m in re.finditer(r"^\| `(\w+)` \| (pin|lift|auto) \| (.*) \|$", _PAGE, re.MULTILINE)}
"""What the page on the language says of each kernel."""


@pytest.mark.parametrize("name", ORACLES)
def test_a_grid_on_the_chip(name: str) -> None:
    """In one launch: as it is written within a rounding, pinned with the executor's bits."""
    call, given, parameters = CASES[name]
    with metrics.counted() as launches:
        check(name, call.using(on="chip"))
    assert launches().chip == 1
    found, expected = [a.copy() for a in given], [a.copy() for a in given]
    with metrics.counted() as launches:
        call.using(on="chip", way="pin")(*found, **parameters)
    assert launches().chip == 1
    call(*expected, **parameters)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


def test_the_page_has_all_kernels() -> None:
    assert list(WAYS) == list(ORACLES)
    assert {name: way for name, (way, _) in WAYS.items()} == {name: call.way or "pin" for name, (call, _, _) in CASES.items()}


def test_a_refused_pin_tells_of_lift() -> None:
    @lang.kernel
    def turned(x, y):
        for rows in lang.blocks(x.shape[0], 2):
            y[:, rows] = x[rows].max(-1).T

    x, y = np.arange(6 * 40 * 64, dtype=np.float32).reshape(6, 40, 64), np.zeros((40, 6), np.float32)
    with pytest.raises(KtirError, match=r'in another order, from more than 64 places.*\n.*"lift"'):
        turned.using(on="chip")[2](x, y)
    turned.using(on="chip", way="lift")[2](x, y)
    assert np.array_equal(y, x.max(-1).T)
