"""`ktir.capture` and the driver `ktir-capture`: every stage, and messages for wrong calls."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ktir
from ktir import config
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError, verify
from ktir.lowering.inductor.capture import SEPARATOR, stages
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir
from ktir.tools import ktir_capture


def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w)


X, W = torch.ones(57, 65).half(), torch.ones(65, 10).half()


@pytest.mark.parametrize("stage", stages())
def test_every_stage(stage: str) -> None:
    text = ktir.capture(model, X, W, stage=stage)
    if stage == "region":
        assert [n.kind for n in Region.from_json(text).nests] == ["Reduction", "Pointwise"]
    elif stage == "assembly":
        assert ".kernel" in text or "kernel" in text
    else:
        with context(), ir.Location.unknown():
            module = parse_module(text)
            verify(module)
            level = ir.StringAttr(module.operation.attributes["ktir.level"]).value
        assert stage not in ("logical", "flat", "laid-out", "divided", "tiled", "allocated") or level == stage


def test_programs_with_a_call_between_them() -> None:
    text = ktir.capture(lambda x: (x * 2).histc(3) + 1, torch.ones(5))
    first, second = text.split(SEPARATOR)
    for part in (first, second):
        with context(), ir.Location.unknown():
            verify(parse_module(part))
    with pytest.raises(KtirError, match=r"'aten.histc.default' op of shape \[3\]"), config.patch(fallback="error"):
        ktir.capture(lambda x: (x * 2).histc(3) + 1, torch.ones(5))


def test_arguments_that_an_operator_refuses() -> None:
    """A tuple where a tensor belongs is told by the operator, as in eager."""
    with pytest.raises(TypeError, match=r"relu\(\): argument 'input' \(position 1\) must be Tensor, not tuple"):
        ktir.capture(torch.nn.ReLU(), (X, X))
    with pytest.raises(TypeError, match=r"must be Tensor, not tuple"):
        ktir.capture(lambda x: torch.sin(x) + 1, (X, X))


def test_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3)
    ktir.capture(lambda x: x.add_(1), x)
    assert x.sum() == 0


def test_arguments_are_in_the_order_of_their_first_use() -> None:
    """`argN_1` is the N-th of the names that TORCH_LOGS=graph_code prints, inputs, parameters and buffers, as the model first uses them."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late, self.early = torch.nn.Linear(5, 6).half(), torch.nn.Linear(4, 5).half()
            self.register_buffer("shift", torch.ones(7, 5).half())

        def forward(self, unused: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return self.late(self.early(x) + self.shift)

    names: list[str] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        names.extend(node.name for node in gm.graph.find_nodes(op="placeholder"))
        return gm.forward

    example = torch.ones(3), torch.ones(7, 4).half()
    torch._dynamo.reset()
    torch.compile(Model(), backend=backend)(*example)
    buffers = Region.from_json(ktir.capture(Model(), *example, stage="region").partition(SEPARATOR)[0]).buffers
    sizes = {name: list(buffers[f"arg{k}_1"].size) for k, name in enumerate(names)}
    assert [re.sub(r"l_self_modules_|parameters_|l_self_buffers_|l_|_$", "", name) for name in names] == [
        "early_weight",
        "early_bias",
        "x",
        "shift",
        "late_weight",
        "late_bias",
    ]
    assert [sizes[names[k]] for k in (0, 3, 4)] == [[5, 4], [7, 5], [6, 5]]


def test_unknown_stage() -> None:
    with pytest.raises(KtirError, match=r"unknown stage 'tilde'; the stages are region, logical, flat, .*; did you mean 'tiled'\?"):
        ktir.capture(model, X, W, stage="tilde")


SCRIPT = """
import torch

def small():
    layer = torch.nn.Linear(65, 10).half()
    return layer, torch.ones(57, 65).half()

def number():
    return 3

def broken():
    raise ValueError("no such weights")

def unsupported():
    return (lambda x: x.histc(3)), torch.ones(5)

def tuple_of_two():
    return (lambda x, y: x + y), (torch.ones(5), torch.ones(5))

def shapes():
    return torch.nn.Linear(4, 4), torch.ones(3, 5)

def tuple_of_one():
    return (lambda pair: pair[0] + pair[1]), (torch.ones(5),)

def nested():
    return torch.nn.Conv1d(16, 8, 3), (torch.ones(2, 16, 9),)

def branching():
    def model(x):
        if x.sum() > 0:
            return x
        return x + 1
    return model, torch.ones(5)
"""


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, *flags: str) -> tuple[int, str, str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    status = ktir_capture.main([f"{script}:{name}" if ":" not in name else name, *flags])
    out, err = capsys.readouterr()
    return status, out, err


def test_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(tmp_path, capsys, "small", "--stage=laid-out")
    assert (status, err) == (0, "")
    assert 'ktir.level = "laid-out"' in out
    written = tmp_path / "out.mlir"
    assert run(tmp_path, capsys, "small", "-o", str(written), "--debuginfo") == (0, "", "")
    assert 'ktir.level = "logical"' in written.read_text()
    assert "loc(" in written.read_text()


@pytest.mark.parametrize(
    ("name", "flags", "status", "message"),
    [
        (
            "large",
            (),
            2,
            "has no function 'large'; it has small, number, broken, unsupported, tuple_of_two, shapes, tuple_of_one, nested, branching",
        ),
        ("number", (), 2, "'number' in '.*' must return a model and its inputs, but it returned int"),
        ("broken", (), 2, r"calling 'broken' failed: .*script.py:12: ValueError: no such weights"),
        ("unsupported", ("--fallback=error",), 1, r"script.py:15:1: error: 'aten.histc.default' op of shape \[3\]"),
        (
            "tuple_of_two",
            (),
            2,
            "missing a required argument: 'y'; return them one by one",
        ),
        ("shapes", (), 2, "the model of 'shapes' fails on its example inputs: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("tuple_of_one", (), 2, "'tuple_of_one' fails on its example inputs: .*script.py:24: IndexError: tuple index out of range"),
        ("nested", (), 2, r"'nested' fails on its example inputs: TypeError: conv1d\(\) received [\s\S]*; return them one by one"),
        ("unsupported", (), 1, "nothing to compute"),
        ("branching", (), 1, r"script.py:31:12: error: expects a model that is one graph, but TorchDynamo breaks it here: Data-dependent"),
        ("small", ("--stage=tilde",), 1, "unknown stage 'tilde'; the stages are region, logical"),
        ("small", ("-o", "/nowhere/x.mlir"), 1, "cannot write '/nowhere/x.mlir': No such file or directory"),
        ("nowhere.py:f", (), 2, "cannot open script 'nowhere.py': no such file"),
        (":f", (), 2, "expects SCRIPT.py:FUNCTION, but got ':f'"),
    ],
)
def test_wrong_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, flags: tuple[str, ...], status: int, message: str
) -> None:
    found, out, err = run(tmp_path, capsys, name, *flags)
    assert (found, out) == (status, "")
    assert re.search(message, err), err
    assert "Traceback" not in err


def rolled(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 3, 1) * torch.tensor([[2.0], [3.0], [5.0]], dtype=torch.bfloat16)


def test_values_of_the_model_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that nobody gives have values, which go with the text."""
    x = torch.arange(15, dtype=torch.bfloat16).reshape(3, 5)
    found: dict[str, Any] = {}
    text = ktir.capture(rolled, x, constants=found)
    arguments = re.findall(r'ktir.name = "(\w+)"', text)
    assert set(arguments) == {"arg0_1", "buf0", *found}
    given = {"arg0_1": x.view(torch.uint16).numpy(), "buf0": np.zeros((3, 5), np.uint16)} | found
    ktir.execute(text, None, given)
    assert torch.equal(torch.from_numpy(given["buf0"]).view(torch.bfloat16), rolled(x))
    with pytest.warns(UserWarning, match="whose values are the model's own"):
        ktir.capture(rolled, x)
    script = tmp_path / "rolls.py"
    script.write_text("import torch\ndef model():\n    return (lambda x: torch.roll(x, 3, 1)), torch.ones(33, 5)\n")
    assert ktir_capture.main([f"{script}:model", "-o", str(tmp_path / "rolls.mlir")]) == 0
    said = capsys.readouterr().err
    assert "whose values are the model's own: _folded_0; they are in" in said
    assert np.load(tmp_path / "rolls.constants.npz")["_folded_0"][0, 0].tolist() == [2, 3, 4, 0, 1]
