"""What is written down of a model: each call as it is made, in words that `ktir-test` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ktir.checking.suites import models
from ktir.enablement.record import Recorded, operation_of, record, to_yaml


def cases_of(found: Recorded, folder: Path) -> list[models.Case]:
    place = folder / "model.yaml"
    place.write_text(to_yaml("m", found), encoding="utf-8")
    return models.load(str(place))


def half(*shape: int) -> torch.Tensor:
    return torch.linspace(-2, 3, torch.Size(shape).numel()).reshape(shape).half()


def test_a_case_makes_the_call_again(tmp_path: Path) -> None:
    x, index, mask = half(2, 6), torch.tensor([[3, 0], [5, 1]]), torch.ones(2, 6, dtype=torch.bool)

    def model(x: torch.Tensor, index: torch.Tensor, mask: torch.Tensor) -> Any:
        y = 1.5 - x  # arguments change places
        y += x.softmax(-1, dtype=torch.float32)
        z = F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=torch.ones(2, 2, dtype=torch.bool))
        y = y[:, 1:-1].view(2, 2, 2).sum((0, 1), keepdim=True)
        return (
            y,
            z,
            torch.cat([x, x], dim=1),
            x.gather(1, index),
            torch.where(mask, x, x.neg()),
            x.to(torch.float32),
            x.masked_fill(~mask, 2.0),
        )

    made = cases_of(record(model, x, index, mask), tmp_path)
    names = [operation_of(c.op) for c in made]
    expected = ["sub", "softmax", "add", "nn.functional.scaled_dot_product_attention", "getitem", "Tensor.view", "sum", "cat", "gather"]
    assert [n for n in names if n != "torch.getitem"] == [f"torch.{n}" for n in expected if n != "getitem"] + [
        "torch.neg", "torch.where", "torch.Tensor.to", "torch.bitwise_not", "torch.masked_fill",
    ]  # fmt: skip
    assert names.count("torch.getitem") == 2
    for case in made:  # each runs on the host; the shapes of what it gives are those that the model has there
        case.function(*case.make(), **case.attrs)
    sub = made[names.index("torch.sub")]
    assert sub.make()[0] == 1.5
    assert made[names.index("torch.sum")].function(*(c := made[names.index("torch.sum")]).make(), **c.attrs).shape == (1, 1, 2)
    gathered = made[names.index("torch.gather")].make()
    assert (gathered[2].shape, gathered[2].dtype) == ((2, 2), torch.int64)
    assert 0 <= gathered[2].min() <= gathered[2].max() <= 5
    attention = made[names.index("torch.nn.functional.scaled_dot_product_attention")]
    assert [a.dtype for a in attention.make()] == [torch.float16] * 3 + [torch.bool]
    assert made[names.index("torch.Tensor.to")].attrs == {"dtype": torch.float32}


def test_equal_calls_are_one_and_counted() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) + torch.tanh(x) + torch.tanh(x * 0.99)[:1] + torch.tanh(x[:1])

    found = record(model, half(2, 6))
    counts = {(call.op, *call.inputs[0]["tensor"]["shape"]): found.calls[key] for key, call in found.operators.items()}
    assert (counts["torch.tanh", 2, 6], counts["torch.tanh", 1, 6]) == (3, 1)
    assert "called 3 times" in to_yaml("m", found)


def test_what_cannot_be_written_down_is_said() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x = x[x > 100]  # an index that is a tensor has a place in no literal, but is an argument
        return torch.einsum("i,i->", x, x)

    found = record(model, half(2, 6))
    assert any("without elements" in why for why in found.left), found.left
    assert sum(found.left.values()) + sum(found.calls.values()) == 3


def test_modules_without_children_and_their_kinds() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)).half()
    found = record(net, half(3, 6))
    assert [m.kind for m in found.modules.values()] == ["torch.nn.Linear", "torch.nn.ReLU", "torch.nn.Linear", "torch.nn.LayerNorm"]
    assert {operation_of(c.op) for c in found.operators.values()} == {f"torch.nn.functional.{n}" for n in ("linear", "relu", "layer_norm")}
    assert not net[0]._forward_pre_hooks, "nothing stays behind"


def test_names_in_reports() -> None:
    assert operation_of("torch.Tensor.add_") == operation_of("torch.Tensor.add") == "torch.add"
    assert operation_of("torch.functional.einsum") == "torch.einsum"
    assert operation_of("torch.Tensor.view") == "torch.Tensor.view"
    assert operation_of("torch.nn.functional.silu") == "torch.nn.functional.silu"


def test_modules_that_take_modules_are_left() -> None:
    """Their arguments cannot be moved to a device."""

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.taking = nn.Linear(4, 4), nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.taking(self.inner)
            return self.inner(x)

    found = record(Outer(), torch.ones(2, 4))
    assert [module.kind for module in found.modules.values()] == ["torch.nn.Linear"]
    assert found.left == {"torch.nn.Identity: an argument is a module": 1}
