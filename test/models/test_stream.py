"""Language models down to the instruction stream: each level has the values of the one before, the machine those of the allocated level."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from models.families import EVEN, FAMILIES, ODD, Sizes, build
from models.runs import Prompt, difference, generate, make_cache, reference, step_of

import ktir
from ktir.analysis.interface.parameters import parameters, roots
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.checking.inputs import generate_all
from ktir.context import context
from ktir.mlir import ir
from ktir.runtime import metrics

WORSE = 1.5
"""How many times as far as eager bfloat16 a result may be from float64."""
TOLERANCE = 2.0**-10
"""Of reductions whose order a pass changes, as the passes declare it."""


def program(family: str, sizes: Sizes, *, decode: bool) -> str:
    """Logical KTIR of a prefill, or of a step behind one, in float16 with a static cache."""
    model = build(family, sizes, torch.float16)
    step = step_of(model)
    prompt = Prompt(length=16, batch=1) if sizes is EVEN else Prompt(length=13, batch=3)
    ids = torch.randint(3, 90, (prompt.batch, prompt.length + 1), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(prompt.length + 1).expand(prompt.batch, -1)
    cache = make_cache(model, prompt)
    with torch.no_grad():
        (first, second), (where, there) = ([t[:, : prompt.length].contiguous(), t[:, prompt.length :].clone()] for t in (ids, positions))
        if not decode:
            return ktir.capture(step, first, where, cache)
        step(first, where, cache)
        return ktir.capture(step, second, there, cache)


def check(family: str, sizes: Sizes, *, decode: bool, cores: int) -> None:
    """Raises Mismatch where a level changes values, KtirError where one refuses the program."""
    text = program(family, sizes, decode=decode)
    with context(), ir.Location.unknown():
        module = parse_module(text, family)
        arguments = generate_all(parameters(module, roots(module)[0])[0], 1, {})
    for array in arguments:
        if array.dtype.kind == "f":
            array *= 0.1
    levels = check_levels(text, arguments, cores=cores, source=family)
    assert [level.name for level in levels][-2:] == ["tape", "step"]
    assert all(level.exact or level.difference <= TOLERANCE for level in levels)
    assert all(level.exact for level in levels[-5:])


@pytest.mark.turn
@pytest.mark.parametrize(("sizes", "decode"), [(EVEN, False), (ODD, True)], ids=["prefill", "odd decode"])
def test_llama(sizes: Sizes, decode: bool) -> None:
    check("llama31", sizes, decode=decode, cores=32)


@pytest.mark.long
@pytest.mark.parametrize("decode", [False, True], ids=["prefill", "decode"])
@pytest.mark.parametrize("sizes", [EVEN, ODD], ids=["even", "odd"])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str, sizes: Sizes, decode: bool) -> None:
    check(family, sizes, decode=decode, cores=32 if sizes is EVEN else 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "sizes"),
    [*product(FAMILIES, (EVEN, ODD))],
    ids=lambda value: value if isinstance(value, str) else "even" if value is EVEN else "odd",
)
def test_bfloat16(family: str, sizes: Sizes, on_chip: None) -> None:
    """A prefill and a step on the chip are as near to the same weights in float64 as eager bfloat16 is: logits by their largest and their
    root mean square error, what the caches hold by the latter, since a single element of a cache is one rounding off or none."""
    model = build(family, sizes, torch.bfloat16)
    step, prompt = step_of(model), Prompt(16, 1, 1) if sizes is EVEN else Prompt(13, 3, 1)
    torch._dynamo.reset()
    compiled = torch.compile(step, backend="spyre", fullgraph=True, dynamic=False, options={"fallback": "error"})
    actual, eager = generate(model, compiled, prompt), generate(model, step, prompt)
    twin = reference(model)
    for name, exact in generate(twin, step_of(twin), prompt).items():
        assert actual[name].dtype == eager[name].dtype
        ours, theirs = (difference(found[name], exact)[name.startswith("cache") :] for found in (actual, eager))
        assert all(o <= WORSE * t for o, t in zip(ours, theirs, strict=True)), f"{name}: errors {ours}, eager {theirs}"


@pytest.mark.parametrize(
    ("family", "sizes"),
    [(family, ODD) for family in ("llama31", "ministral8b", "gpt_oss", "granite4")],
    ids=lambda value: value if isinstance(value, str) else "odd",
)
@pytest.mark.long
def test_engines_agree(family: str, sizes: Sizes) -> None:
    """Logits and caches of a prefill and of a step on the emulated chip are those of the KTIR executor on the logical program: a family of
    dense layers, one of windows, of experts, of states. The order of sums differs, and with it the last places of f16."""
    model = build(family, sizes, torch.float16)
    step, prompt = step_of(model), Prompt(length=5, batch=2, steps=1)
    found: dict[str, dict[str, torch.Tensor]] = {}
    for engine in ("ktir", "spyre"):
        torch._dynamo.reset()
        options: dict[str, Any] = {"engine": engine, "fallback": "error"}
        with metrics.counted() as launches:
            found[engine] = generate(model, torch.compile(step, backend="spyre", fullgraph=True, dynamic=False, options=options), prompt)
        ran = launches()
        assert ran.torch == 0
        assert (ran.chip > 0, ran.executor > 0) == (engine == "spyre", engine == "ktir")
    assert found["ktir"].keys() == found["spyre"].keys()
    for name, expected in found["ktir"].items():
        scale = max(1.0, expected.double().abs().max().item())
        assert difference(found["spyre"][name], expected)[0] <= 4 * TOLERANCE * scale, name
