"""Operators as models use them, compared with the host."""

from pathlib import Path

import pytest
import torch

from ktir.checking.suites.models import compare_with_cpu
from ktir.device.autoload import register
from ktir.tools.ktir_test import main

register()

FIRST = """\
model: first
default: {dtype: fp16, seed: 3, rtol: 1e-3, atol: 1e-3}
cases:
  - name: basic
    op: torch.mul
    inputs: [{tensor: {shape: [4, 64], init: rand, init_args: {low: -1.0, high: 1.0}}}, {value: 3.0}]
    description: a comment
  - name: bools
    op: torch.logical_and
    inputs: [{tensor: {shape: [11, 6], dtype: bool}}, {tensor: {shape: [11, 6], dtype: bool}}]
  - name: types
    op: torch.add
    inputs: [{tensor: {shape: [11, 6], dtype: fp32}}, {tensor: {shape: [11, 6], dtype: int64, init: randint, init_args: {high: 100}}}]
  - name: aten
    op: torch.ops.aten.view
    inputs: [{tensor: {shape: [1, 64]}}, {value: [2, 32]}]
  - name: listed
    op: torch.cat
    attrs: {dim: -1}
    inputs: [{tensor_list: [{shape: [2, 3, 4]}, {shape: [2, 3, 5]}]}]
  - name: item
    op: torch.getitem
    inputs: [{tensor: {shape: [4, 60]}}, {py: "(Ellipsis, None, slice(None, -1, None))"}]
  - name: counted
    op: torch.nn.functional.softmax
    attrs: {dim: -1}
    inputs: [{tensor: {shape: [2, 4, 8], init: arange}}]
  - name: half
    op: torch.exp
    inputs: [{tensor: {shape: [3]}}]
    dtype: bf16
    marks: bf16operation
  - name: later
    op: torch.exp
    inputs: [{tensor: {shape: [3]}}]
    marks: [skip, constant]
"""
SECOND = """\
model: second
cases:
  - {name: again, op: torch.mul, inputs: [{tensor: {shape: [4, 64], init: rand, init_args: {low: -1.0, high: 1.0}}}, {value: 3.0}]}
  - {name: wrong, op: torch.mm, inputs: [{tensor: {shape: [4, 64]}}, {tensor: {shape: [4, 64]}}], marks: xfail}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.yaml").write_text(FIRST)
    (tmp_path / "b.yaml").write_text(SECOND)
    return [str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")]


def said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, list[str]]:
    status = main(arguments)
    return status, capsys.readouterr().out.splitlines()


def test_cases_run_on_the_device(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, [*files, "--compile-backend", "eager"])
    assert (status, lines[-1]) == (0, "7 passed, 1 xfailed")
    assert lines[0] == "same as first::torch_mul__basic: second::torch_mul__again"


def test_a_compiled_case(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = said(capsys, [*files, "--test-name", "torch_softmax", "--test-name", "nn_functional_softmax__counted"])
    assert (status, lines) == (0, ["passed: first::torch_nn_functional_softmax__counted", "1 passed"])


def test_cases_are_chosen(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, [*files, "--list-models"])[1] == ["first", "second"]
    names = ["torch_mul__basic", "torch_logical_and__bools", "torch_add__types", "torch_ops_aten_view__aten", "torch_cat__listed"]
    names += ["torch_getitem__item", "torch_nn_functional_softmax__counted"]
    assert said(capsys, [*files, "--list-cases", "--model", "first"])[1] == [f"first::{name}" for name in names]
    assert "second::torch_mul__again" in said(capsys, [*files, "--list-cases", "--no-dedupe"])[1]
    assert said(capsys, [*files, "--list-cases", "-m", "bf16operation or xfail"])[1] == [
        "first::torch_exp__half",
        "second::torch_mm__wrong",
    ]
    listed = said(capsys, [*files, "--list-cases-by-mark", "--show-excluded", "--show-skipped"])[1]
    assert {"excluded: bf16operation", "skipped: constant", "xfail", "unmarked"} <= set(listed)


@pytest.mark.parametrize("arguments", [["--model", "third"], ["-m", "a b"], ["-m", "f()"]])
def test_wrong_choices(files: list[str], arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*files, *arguments]) == 2
    assert capsys.readouterr().err.startswith("ktir-test: error: ")


def test_another_value_is_an_error() -> None:
    def other_there(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.device.type == "spyre" else x

    with pytest.raises(AssertionError, match="cpu mismatch"):
        compare_with_cpu(other_there, torch.ones(4), backend="eager")
    compare_with_cpu(torch.add, torch.ones(4), 2, backend="eager")
    compare_with_cpu(torch.add, torch.ones(4), 2)
