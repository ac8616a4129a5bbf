"""What a configuration does to tests that torch instantiates for the device, seen in what pytest says of them."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

pytestmark = pytest.mark.turn  # all but one read what one process says

TESTS = """
import time

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, slowTest


class TestOwn(TestCase):
    @ops([op for op in op_db if op.name in ("add", "mul", "exp")], allowed_dtypes=(torch.float32, torch.int64))
    def test_ops(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            print("sample", op.name, sample.input.dtype, tuple(sample.input.shape), sample.input.stride(), sample.input.device)

    @ops([op for op in op_db if op.name in ("add", "exp")], allowed_dtypes=(torch.float32,))
    def test_close(self, device, dtype, op):
        self.assertEqual(torch.ones(1, dtype=dtype), torch.ones(1, dtype=dtype) + 0.01)

    @modules([info for info in module_db if info.module_cls in (torch.nn.Linear, torch.nn.ReLU)])
    def test_modules(self, device, dtype, module_info, training):
        for each in module_info.module_inputs_func(module_info, device=device, dtype=dtype, requires_grad=False, training=training):
            print("module", module_info.name, training, *each.forward_input.args)

    @onlyCUDA
    @dtypes(torch.float32, torch.float64)
    def test_types(self, device, dtype):
        assert torch.empty(2, device=device, dtype=dtype).device.type == "spyre"

    def test_plain(self, device, a=1, b=2):
        print("plain", a, b)

    @parametrize("n", [1, 2])
    def test_either(self, device, n):
        assert n == 1

    @slowTest
    def test_slow(self, device):
        pass

    def test_unlisted(self, device):
        pass

    def test_endless(self, device):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                time.sleep(1)
            except Exception:  # as what tries another way does
                pass


instantiate_device_type_tests(TestOwn, globals())


class TestHost(TestCase):
    @parametrize("n", [1, 2])
    def test_one(self, n):
        assert n == 1

    def test_left_out(self):
        raise AssertionError

    @slowTest
    def test_chosen(self):
        pass

    def test_without_an_entry(self):
        raise AssertionError


instantiate_parametrized_tests(TestHost)
"""

SUITE = """\
test_suite_config:
  files:
    - path: ${TORCH_ROOT}/test_own.py
      unlisted_test_mode: mandatory_success
      tests:
        - names: [TestOwn::test_ops]
          tags: [model_a]
          edits:
            ops: {include: [{name: sub}], exclude: [{name: exp}]}
            dtypes: {include: [{name: float16}], exclude: [{name: int64}]}
            inputs:
              args:
                - tensor: {shape: [2, 3], dtype: float32, device: spyre, init: rand, stride: [1, 2], storage_offset: 1}
                - tensor: {shape: [2, 3], dtype: float32, device: spyre, init: arange_}
        - names: [TestOwn::test_close, TestOwn::test_types, TestOwn::test_endless]
        - names: [TestOwn::test_modules]
          edits:
            modules: {include: [{name: torch.nn.Sigmoid}], exclude: [{name: torch.nn.Linear}]}
            inputs: {args: [{value: 7}], kwargs: {training: false}}
        - names: [TestOwn::test_either]
          mode: xfail_strict
        - names: [TestOwn::test_plain]
          edits: {inputs: {args: [{py: "(Ellipsis, slice(None, -1), -inf)"}], kwargs: {b: float16}}}
        - names: [TestOwn::test_slow]
          selectors: {exclude: [{markers: [slow]}]}
        - names: [TestOwn::test_nothing]
        - names: [TestHost::test_one]
          mode: xfail
          tags: [model_b]
        - names: [TestHost::test_left_out]
          mode: skip
        - names: [TestHost::test_chosen]
          selectors: {exclude: [{markers: [slow]}]}
  global:
    supported_dtypes: [{name: float32}, {name: int64}]
    supported_ops:
      - name: add
        dtypes: [{name: float32, precision: {atol: 0.1}}]
      - name: exp
        force_xfail: true
      - name: mul
"""


MARKS = """
def pytest_collection_modifyitems(items):
    for item in items:
        print("marks", item.name, *(mark.name for mark in item.iter_markers()))
"""


@cache
def run() -> tuple[int, str]:
    """Status and output of `ktir-test` on the suite."""
    folder = Path(mkdtemp())
    (folder / "test_own.py").write_text(TESTS)
    (folder / "conftest.py").write_text(MARKS)
    (folder / "suite.yaml").write_text(SUITE.replace("arange_", "ones"))
    code = (
        f"import os, sys; os.environ['PYTORCH_ROOT'] = {str(folder)!r}; from ktir.tools.ktir_test import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, str(folder / "suite.yaml"), "--test-timeout", "2", "--", "-v", "-v", "-s", "-rA"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def outcomes() -> dict[str, str]:
    """Outcome by name of a test's variant."""
    lines = re.findall(r"^(PASSED|FAILED|SKIPPED|XFAIL|XPASS) .*::(\w+)", run()[1], re.M)
    return {name.removeprefix("test_"): outcome for outcome, name in lines}


def test_variants_and_modes() -> None:
    found = outcomes()
    # exp is excluded, sub included beyond supported_ops; int64 is excluded, float16 included beyond both lists; add has float32 alone
    names = {f"ops_{op}_spyre_{dtype}" for op in ("add", "mul", "sub") for dtype in ("float16", "float32")}
    assert {name for name in found if name.startswith("ops_")} == names
    assert {found[name] for name in names} == {"PASSED"}
    assert found["types_spyre_float32"] == "PASSED"  # @onlyCUDA asks for what a device has
    assert "types_spyre_float64" not in found  # beyond supported_dtypes
    assert found["plain_spyre"] == "PASSED"
    # strict: the one that passes fails the suite
    assert (found["either_n_1_spyre"], found["either_n_2_spyre"]) == ("FAILED", "XFAIL")
    # the tolerance of add is wider; exp has force_xfail
    assert (found["close_add_spyre_float32"], found["close_exp_spyre_float32"]) == ("PASSED", "XFAIL")


def test_modules_included_and_excluded() -> None:
    found = {name for name in outcomes() if name.startswith("modules_")}
    assert found == {"modules_nn_ReLU_spyre_float32", "modules_nn_Sigmoid_spyre_float32"}
    assert "module nn.ReLU False 7" in run()[1]


def test_inputs_are_those_of_the_file() -> None:
    said = run()[1]
    assert "sample sub torch.float32 (2, 3) (1, 2) spyre:0" in said
    assert "sample add torch.float16 (2, 3) (1, 2) spyre:0" in said
    assert "suite.yaml:12:15: warning: a tensor of float32 becomes float16, the type of the variant" in said
    assert "plain (Ellipsis, slice(None, -1, None), -inf) torch.float16" in said


def test_what_is_skipped_says_why() -> None:
    said = run()[1]
    assert "TestOwn::test_slow is excluded (filtered by selectors)" in said
    assert "test has no @ops decorator (filtered: global.supported_ops is there)" in said


def test_tests_that_are_not_of_devices_are_steered_too() -> None:
    found, said = outcomes(), run()[1]
    assert (found["one_n_1"], found["one_n_2"]) == ("XPASS", "XFAIL")
    assert {"TestHost::test_left_out has mode skip", "TestHost::test_chosen is excluded (filtered by selectors)"} <= set(
        re.findall(r"^SKIPPED .*: (TestHost.*)$", said, re.M)
    )
    assert "'TestHost::" not in said  # no file lacks them
    assert re.findall(r"^marks (\w+) .*model_b", said, re.M) == ["test_one_n_1", "test_one_n_2"]


def test_a_test_that_takes_too_long_is_stopped() -> None:
    assert outcomes()["endless_spyre"] == "FAILED"
    assert "Stopped: stopped after 2 s" in run()[1]


def test_the_summary() -> None:
    status, said = run()
    assert status == 1
    assert "suite.yaml:26:19: warning: no file has a test 'TestOwn::test_nothing' for devices" in said
    assert re.search(r"test_own\.py: \d+ passed, 2 failed, 3 xfailed, 1 xpassed, 5 skipped", said), said


def test_tags_are_marks_of_pytest() -> None:
    tagged = re.findall(r"^marks (\w+) model_a$", run()[1], re.M)
    assert sorted(tagged) == sorted(f"test_{name}" for name in outcomes() if name.startswith("ops_"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "ktir-test: error: expected a YAML file"),
        (("nothing.yaml",), "cannot open 'nothing.yaml'"),
        (("--wrong",), "unknown command line argument '--wrong'"),
    ],
)
def test_wrong_command_lines(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    from ktir.tools.ktir_test import main

    assert main(arguments) == 2
    assert said in capsys.readouterr().err
