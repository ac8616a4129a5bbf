"""Models on the device have the bits and cycles of the host's path: of language models, weights are on the card once, decoding stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from models.families import EVEN, FAMILIES, build
from models.runs import Prompt, generate, step_of
from models.zoo import MODELS
from models.zoo import build as build_network
from torch._inductor.utils import fresh_cache

from ktir.device.autoload import register
from ktir.device.tensors.storage import allocation_of
from ktir.runtime.executable import recorded
from ktir.runtime.memory.card import card
from ktir.runtime.time import steps

register()

PROMPT = Prompt(16, steps=4)
WINDOWED = ("ministral8b", "gpt_oss")
"""The length so far is a number of Python's, an argument of the program by default."""
RECURRENT = ("lstm", "gru")
"""Dynamo takes these into graphs where our backend is named."""
QUICK = ("llama31", "recommender")
HOST_MADE = 4096
"""Bytes of an integer of the host as an argument: a stick per core."""


@dataclass
class Watched:
    """A compiled function, and what each of its calls moved and took."""

    compiled: Callable[..., torch.Tensor]
    moved: list[list[steps.Step]] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)

    def __call__(self, *inputs: Any) -> torch.Tensor:
        moved: list[steps.Step] = []
        card(0).observers.append(moved.append)
        try:
            with recorded() as launches:
                found = self.compiled(*inputs)
        finally:
            card(0).observers.remove(moved.append)
        self.moved.append(moved)
        self.cycles.append(sum(launch.machine.report.cycles for launch in launches))
        return found


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    with fresh_cache():
        yield


def run(model: Any, **options: Any) -> tuple[dict[str, torch.Tensor], Watched]:
    torch._dynamo.reset()
    watched = Watched(torch.compile(step_of(model), fullgraph=True, **options))
    return generate(model, watched, PROMPT), watched


def some(names: Iterable[str]) -> list[Any]:
    """Names as parameters, all but a few of them long."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in names]


def check_cycles(device: Watched, host: Watched) -> None:
    assert all(theirs <= 1.02 * own for theirs, own in zip(device.cycles, host.cycles, strict=True))


@pytest.mark.turn
@pytest.mark.parametrize("name", some(MODELS))
def test_networks(name: str, on_chip: None) -> None:
    module, inputs = build_network(name, torch.float16)
    torch._dynamo.reset()
    host = Watched(torch.compile(module, backend="spyre", fullgraph=True))
    options: dict[str, Any] = {"backend": "spyre"} if name in RECURRENT else {}
    device = Watched(torch.compile(copy.deepcopy(module).to("spyre"), fullgraph=True, **options))
    with torch.no_grad():
        expected = host(*inputs)
        got = device(*(t.to("spyre") for t in inputs))
    assert torch.equal(got.cpu(), expected)
    check_cycles(device, host)


@pytest.mark.turn
@pytest.mark.parametrize("family", some(FAMILIES))
def test_prefill_and_decode(family: str, on_chip: None) -> None:
    model = build(family, EVEN, torch.float16)
    options: dict[str, Any] = {} if family in WINDOWED else {"dynamic": False}
    expected, host = run(model, backend="spyre", **options)
    ours = copy.deepcopy(model).to("spyre")
    got, device = run(ours, **options)

    assert got.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(got[name].cpu(), value)] == []
    check_cycles(device, host)
    for moved in device.moved[-2:]:
        check_steady(moved)

    storages = {t.untyped_storage().data_ptr(): t for t in (*ours.parameters(), *ours.buffers())}.values()
    wanted = sum(t.untyped_storage().nbytes() for t in storages)
    assert sum(on_card(t) for t in storages) <= 1.02 * wanted


def check_steady(moved: list[steps.Step]) -> None:
    """A launch, before it what the host has made anew, and the addresses of the arguments; nothing behind it."""
    kinds = [step.kind for step in moved]
    assert kinds[-1] == "Compute", "results are adopted, nothing is unpacked or comes back"
    assert kinds.count("Compute") == 1
    assert kinds.count("Relayout") <= 2, "the token and its position are arranged"
    assert set(kinds) <= {"Compute", "Relayout", "H2D", "HostCompute"}
    assert all(step.nbytes <= HOST_MADE for step in moved)


def on_card(tensor: torch.Tensor) -> int:
    """Bytes of the elements that the card holds of a tensor, in all its forms; what fills up their sticks is left out."""
    allocation = allocation_of(tensor)
    return allocation.is_linear * allocation.nbytes + sum(prod(form.view.size) * tensor.itemsize for form in allocation.forms)
