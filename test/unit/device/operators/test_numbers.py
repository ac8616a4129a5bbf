"""Python numbers that change from call to call: one program for all of them, with the bits that programs for each have."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

from ktir.device.operators import eager, fallback, known, numbers

aten = torch.ops.aten
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
VALUES = (0.3, -7.123, 1e-5, 0.9999997, 0.77, 31.4159, 1 / 3, -1e-20)

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Any], Call]] = {
    "add": lambda x, y, z, v: (aten.add.Tensor, (x, v), {}),
    "add_alpha": lambda x, y, z, v: (aten.add.Tensor, (x, y), {"alpha": v}),
    "sub_alpha": lambda x, y, z, v: (aten.sub.Tensor, (x, y), {"alpha": v}),
    "rsub": lambda x, y, z, v: (aten.rsub.Scalar, (x, v), {}),
    "mul": lambda x, y, z, v: (aten.mul.Tensor, (x, v), {}),
    "div": lambda x, y, z, v: (aten.div.Tensor, (x, v), {}),
    "div_floor": lambda x, y, z, v: (aten.div.Tensor_mode, (x, v), {"rounding_mode": "floor"}),
    "addcmul": lambda x, y, z, v: (aten.addcmul.default, (x, y, z), {"value": v}),
    "addcdiv": lambda x, y, z, v: (aten.addcdiv.default, (x, y, z), {"value": v}),
    "lerp": lambda x, y, z, v: (aten.lerp.Scalar, (x, y, v), {}),
    "pow": lambda x, y, z, v: (aten.pow.Tensor_Scalar, (x.abs(), v), {}),
    "pow_of": lambda x, y, z, v: (aten.pow.Scalar, (abs(v), x), {}),
    "clamp": lambda x, y, z, v: (aten.clamp.default, (x, -abs(v), v), {}),
    "clamp_min": lambda x, y, z, v: (aten.clamp_min.default, (x, v), {}),
    "fmod": lambda x, y, z, v: (aten.fmod.Scalar, (x, v), {}),
    "remainder": lambda x, y, z, v: (aten.remainder.Scalar, (x, v), {}),
    "lt": lambda x, y, z, v: (aten.lt.Scalar, (x, v), {}),
    "fill": lambda x, y, z, v: (aten.masked_fill.Scalar, (x, y > 0, v), {}),
    "leaky": lambda x, y, z, v: (aten.leaky_relu.default, (x, v), {}),
    "elu": lambda x, y, z, v: (aten.elu.default, (x, v), {}),
    "threshold": lambda x, y, z, v: (aten.threshold.default, (x, v, 2.3), {}),
    "addmm": lambda x, y, z, v: (aten.addmm.default, (x[:8], y[:8].view(8, 1), z[:8].view(1, 8)), {"beta": v, "alpha": 0.7}),
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, bool]]]:
    """What is compiled inside of a test: the operator, and whether for all numbers. Nothing is known before."""
    known.forget()
    for kept in (eager._programs, eager._constants, eager._in_vain):
        kept.clear()
    stock, found = eager._compiled, []

    def noted(op: Any, leaves: Any, tree: Any, places: Any = ()) -> Any:
        found.append((op, bool(places)))
        return stock(op, leaves, tree, places)

    monkeypatch.setattr(eager, "_compiled", noted)
    yield found
    known.forget()
    for kept in (eager._programs, eager._constants, eager._in_vain):
        kept.clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_bits_are_those_of_constants(name: str, dtype: torch.dtype, compiled: list[tuple[Any, bool]]) -> None:
    torch.manual_seed(3)
    x, y, z = (torch.randn(70).to(dtype).to("spyre") for _ in range(3))
    general = 0
    for value in VALUES:
        op, args, kwargs = CALLS[name](x, y, z, value)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        compiled.clear()
        found = eager.run(op, args, kwargs)
        general += (op, False) not in compiled
        constant: Any = eager._compiled(op, leaves, tree)
        wanted = constant([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        assert found.dtype == wanted.dtype
        assert torch.equal(found.cpu().nan_to_num(), wanted.cpu().nan_to_num()), value
        assert torch.equal(torch.signbit(found.cpu()), torch.signbit(wanted.cpu())), value
    assert general == len(VALUES) - 1, "all but the first one are numbers of one program"


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.NAdam, torch.optim.Adagrad])
def test_steps_compile_nothing_from_the_third_on(kind: Any, compiled: list[tuple[Any, bool]]) -> None:
    torch.manual_seed(0)
    of_host = torch.nn.Linear(5, 3)
    models = of_host, torch.nn.Linear(5, 3).to("spyre")
    models[1].load_state_dict(of_host.state_dict())
    optimizers = [kind(m.parameters(), lr=0.01, foreach=False) for m in models]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 100) for o in optimizers]
    for step in range(5):
        if step == 3:
            compiled.clear()
        for model, optimizer, schedule in zip(models, optimizers, schedules, strict=True):
            optimizer.zero_grad()
            model(torch.ones(2, 5).to(model.weight.device)).square().sum().backward()
            optimizer.step()
            schedule.step()
    assert not compiled
    torch.testing.assert_close(models[1].weight.detach().cpu(), of_host.weight.detach(), rtol=1e-5, atol=1e-5)


def test_numbers_that_choose_a_program_are_constants(compiled: list[tuple[Any, bool]]) -> None:
    x = torch.rand(9).to("spyre")
    for exponent in (0.37, 2.0, 0.5, 1.7, 3, float("inf")):
        torch.testing.assert_close((x**exponent).cpu(), x.cpu() ** exponent)
    assert [general for _, general in compiled] == [False, False, False, True, False, False]


def test_integers_beside_floats_are_floats(compiled: list[tuple[Any, bool]]) -> None:
    x = torch.rand(9)
    for number in (1000, 70000, (1 << 24) + 1, -33):
        assert torch.equal((x.to("spyre") + number).cpu(), x + number)
    assert [general for _, general in compiled] == [False, True]


def test_a_number_that_the_type_cannot_have_is_refused_in_the_same_words() -> None:
    x = torch.ones(9, dtype=torch.float16)
    for value in (0.3, 0.7, 1e9):
        said = []
        for each in (x, x.to("spyre")):
            try:
                said.append(str((each + value).tolist()))
            except RuntimeError as error:
                said.append(str(error))
        assert said[0] == said[1]


def test_programs_with_other_constants_are_bounded(compiled: list[tuple[Any, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "_MOST_CONSTANTS", 3)
    x = torch.arange(9)
    ours = x.to("spyre")
    monkeypatch.setattr(fallback, "_said", set())
    for number in (5, 6, 7):
        assert (ours + number).tolist() == (x + number).tolist()
    with pytest.warns(UserWarning, match="3 programs were compiled that have other numbers"):
        found = ours + 8
    assert found.tolist() == (x + 8).tolist()
    assert (ours + 5).tolist() == (x + 5).tolist()
    assert len(compiled) == 3


def test_what_is_decided_of_a_number_is_a_guard() -> None:
    mode = eager.FakeTensorMode(shape_env=eager.ShapeEnv())
    traced = numbers.Traced(mode, {1: 0.3})
    leaves, tree = pytree.tree_flatten(((torch.ones(3), 0.3), {}))
    traced_graph = eager._graph(aten.mul.Tensor, leaves, tree, traced)
    number = next(n for n in traced_graph.graph.nodes if n.target == "item").meta["example_value"]
    assert bool(number > 0.25)
    program = traced.program(lambda *_: None)
    assert [program.takes(v) for v in (0.3, 7.0, 0.25, -1.0)] == [True, True, False, False]
