"""Seven families of language models, compiled to logical KTIR without fallbacks and run on the KTIR executor, against eager PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from models.families import EVEN, FAMILIES, ODD, Sizes, build
from models.runs import Prompt, difference, generate, make_cache, reference, step_of
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

import ktir
from ktir.lowering.inductor import wrapper

OPTIONS: dict[str, Any] = {"engine": "ktir", "fallback": "error"}
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16

CLOSE = 1e-5
"""How far float32 may be from eager."""
WORSE = 1.5
"""How many times as far as eager half precision may be from the same weights in float64."""

WINDOWED = ("ministral8b", "gpt_oss")

Case = tuple[str, Sizes, torch.dtype, Prompt]

QUICK: list[Case] = [
    ("llama31", EVEN, F16, Prompt(16)),
    ("mistral_small", ODD, F32, Prompt(5, 1, static=False)),
    ("ministral8b", EVEN, F32, Prompt(16)),
    ("ministral14b", ODD, BF16, Prompt(13, 3)),
    ("qwen25vl", ODD, F32, Prompt(13, 3)),
    ("gpt_oss", ODD, F32, Prompt(33, 1)),
    ("granite4", EVEN, F32, Prompt(16)),
]
"""Each family once, and each size, type and kind of cache at least once."""


def _rest() -> list[Case]:
    prompts = [(EVEN, 16, 1), *((ODD, length, batch) for length, batch in product((5, 13, 33), (1, 3)))]
    cases = [
        (family, sizes, dtype, Prompt(length, batch, static=static))
        for family, dtype, (sizes, length, batch), static in product(FAMILIES, (F32, F16, BF16), prompts, (True, False))
    ]
    return [c for c in cases if c not in QUICK]


def _named(case: Case) -> str:
    family, sizes, dtype, prompt = case
    kind = "static" if prompt.static else "dynamic"
    return f"{family}-{'odd' if sizes is ODD else 'even'}-{str(dtype).removeprefix('torch.')}-{prompt.length}x{prompt.batch}-{kind}"


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    torch._dynamo.reset()
    counters.clear()
    with fresh_cache():
        yield


@pytest.mark.parametrize("case", [*QUICK, *(pytest.param(c, marks=pytest.mark.long) for c in _rest())], ids=_named)
def test_prefill_and_decode(case: Case) -> None:
    """Logits of the prefill and two decode steps, and what is in the cache after them. A cache of full size takes one program per length
    of input; one that grows takes one per step, and so does one with a window, where the length so far is a number that Dynamo guards.
    """
    family, sizes, dtype, prompt = case
    model = build(family, sizes, dtype)
    step = step_of(model)
    actual = generate(model, torch.compile(step, backend="ktir", fullgraph=True, dynamic=False, options=OPTIONS), prompt)
    assert counters["stats"]["unique_graphs"] == 1 + (1 if prompt.static and family not in WINDOWED else prompt.steps)
    eager = generate(model, step, prompt)
    assert actual.keys() == eager.keys()
    exact = eager
    if dtype != F32:
        twin = reference(model)
        exact = generate(twin, step_of(twin), prompt)
    for name, expected in exact.items():
        assert actual[name].dtype == eager[name].dtype
        ours, theirs = difference(actual[name], expected), difference(eager[name], expected)
        bounds = (CLOSE, CLOSE) if dtype == F32 else tuple(WORSE * t for t in theirs)
        assert all(o <= b for o, b in zip(ours, bounds, strict=True)), f"{name}: largest and rms error {ours}, eager {theirs}"


@pytest.mark.turn
@pytest.mark.parametrize("family", ["ministral8b", pytest.param("gpt_oss", marks=pytest.mark.long)])
def test_window_moves_without_compiling(family: str) -> None:
    """The length so far is a number of Python's: by default it becomes an argument of the program when it changes."""
    model, prompt = build(family), Prompt(16, steps=4)
    step = step_of(model)
    actual = generate(model, torch.compile(step, backend="ktir", fullgraph=True, options=OPTIONS), prompt)
    assert counters["stats"]["unique_graphs"] == 2
    for name, expected in generate(model, step, prompt).items():
        assert difference(actual[name], expected)[0] <= CLOSE, name


@pytest.mark.turn
@pytest.mark.parametrize("static", [True, pytest.param(False, marks=pytest.mark.long)])
def test_equal_layers_are_lowered_once(static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache that is written in place, whose prefill is not nested; one that grows is no matter of a nested region."""
    model, prompt = build("llama31"), Prompt(16, static=static)
    expected = generate(model, step_of(model), prompt)
    nests: list[int] = []
    compile_region = wrapper.compile_region
    monkeypatch.setattr(wrapper, "compile_region", lambda region: nests.append(len(region.nests)) or compile_region(region))
    step = torch.compile(step_of(ktir.nested(model)), backend="ktir", fullgraph=True, dynamic=False, options=OPTIONS)
    for name, actual in generate(model, step, prompt).items():
        assert difference(actual, expected[name])[0] <= CLOSE, name
    if static:
        prefill, *decode = nests
        assert len(decode) == 3  # what is before the layers, a layer, what is behind them
        assert sum(decode) < prefill


@pytest.mark.turn
@pytest.mark.parametrize("family", ["gpt_oss", pytest.param("granite4", marks=pytest.mark.long)])
def test_experts_are_read_in_place(family: str) -> None:
    """Both weights of each layer are read through indirect tiles, per token and expert; nothing in memory is as large as what is read."""
    model, prompt = build(family), Prompt(16)
    ids = torch.arange(prompt.length)[None]
    with ktir.config.patch(**OPTIONS):
        text = ktir.capture(step_of(model), ids, ids.clone(), make_cache(model, prompt), stage="logical")
    weights = {tuple(p.shape) for p in model.parameters() if p.dim() == 3 and p.shape[0] == EVEN.experts}
    rows = prompt.length * EVEN.chosen
    assert len(weights) == 2
    for _, *each in weights:
        shape = "x".join(map(str, each))
        tiles = rf"memref<{EVEN.experts}x{shape}xf32>, memref<{rows}xi64> -> !ktdp.access_tile<{rows}x{shape}xindex>"
        assert len(re.findall(tiles, text)) == 2
    gathered = rows * min(prod(each) for _, *each in weights)
    assert all(prod(map(int, dims.split("x")[:-1])) < gathered for dims in re.findall(r"memref<((?:\d+x)+)", text))
