"""The device comes with `import torch`, costs it nothing, and can be left out."""

import operator
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import ktir
from ktir.device import autoload, registration, spyre
from ktir.device.tensors import current

ROOT = Path(ktir.__file__).parents[1]
PROGRAM = """
import sys, torch
heavy = {"torch._dynamo", "torch._inductor", "ktir.mlir", "ktir.lowering"} & sys.modules.keys()
x = torch.ones(2, device="spyre")
print(sorted(heavy), x.device, torch.spyre.is_available(), x.cpu().tolist())
"""


def run_with_entry_point(tmp_path: Path, program: str = PROGRAM, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a new process, in an environment in which the distribution is installed as pyproject.toml says."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch.backends"]
    folder = tmp_path / "ktir_device-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ktir-device\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("[torch.backends]\n" + "\n".join(f"{n} = {v}" for n, v in entries.items()))
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", **environment}
    return subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)


@pytest.mark.turn
def test_import_torch_brings_the_device(tmp_path: Path) -> None:
    ran = run_with_entry_point(tmp_path)
    assert ran.stdout == "[] spyre:0 True [1.0, 1.0]\n", ran.stderr


@pytest.mark.turn
def test_the_first_program_and_the_last(tmp_path: Path) -> None:
    """No parts of torch that come with the first one warn of each other; one that a finalizer wants when Python ends is refused."""
    program = """
import sys, torch, warnings
class Late:
    def __del__(self):
        x + 1
x = torch.ones(3, device="spyre")
sys.modules["late"] = Late()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    y = x + 1
print([str(w.message) for w in said], y.tolist())
"""
    ran = run_with_entry_point(tmp_path, program)
    assert ran.stdout == "[] [2.0, 2.0, 2.0]\n", ran.stderr
    assert "aten.add.Tensor: Python is ending, and the device 'spyre' with it" in ran.stderr
    assert ran.returncode == 0


@pytest.mark.turn
@pytest.mark.parametrize("module", ["autoload", "spyre", "operators.kernels"])
def test_any_module_may_be_imported_before_torch(tmp_path: Path, module: str) -> None:
    ran = run_with_entry_point(tmp_path, f"import ktir.device.{module}" + PROGRAM)
    assert ran.stdout == "[] spyre:0 True [1.0, 1.0]\n", ran.stderr


def test_it_can_be_left_out(tmp_path: Path) -> None:
    ran = run_with_entry_point(tmp_path, KTIR_DEVICE="0")
    assert ran.returncode
    assert "spyre" in ran.stderr
    assert "Failed to load the backend extension" not in ran.stderr


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """As before registration; registrations are counted, and do nothing."""
    calls: list[bool] = []
    monkeypatch.setattr(autoload, "_registered", False)
    monkeypatch.setattr(registration, "register", lambda: calls.append(True))
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone")
    return calls


def test_registered_once(unregistered: list[bool]) -> None:
    autoload.autoload()
    autoload.autoload()
    autoload.register()
    assert unregistered == [True]


@pytest.mark.parametrize(
    ("owner", "name", "value", "reason"),
    [
        (autoload.torch._C, "_get_privateuse1_backend_name", lambda: "npu", "'npu' has taken"),
        (autoload.torch, "__version__", "2.14.1", "torch 2.13 is needed, but this is 2.14.1"),
    ],
)
def test_it_stands_aside(
    unregistered: list[bool], monkeypatch: pytest.MonkeyPatch, owner: object, name: str, value: object, reason: str
) -> None:
    monkeypatch.setattr(owner, name, value)
    autoload.autoload()
    assert not unregistered
    with pytest.raises(RuntimeError, match=reason):
        autoload.register()


def test_it_stands_aside_of_torch_spyre(unregistered: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktir.version.torch_spyre_is_installed", lambda: True)
    autoload.autoload()
    assert not unregistered
    with pytest.raises(RuntimeError, match="torch_spyre is installed"):
        autoload.register()


def test_import_torch_never_fails(unregistered: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("broken")

    monkeypatch.setattr(registration, "register", fails)
    autoload.autoload()
    assert "does not register the device 'spyre': ValueError: broken" in caplog.text


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 1),
        ({"AIU_WORLD_SIZE": "4"}, 4),
        ({"SPYRE_DEVICES": "0,3,5"}, 3),
        ({"SPYRE_DEVICES": "0,3,5", "AIU_WORLD_SIZE": "2"}, 2),
        ({"SPYRE_DEVICES": "0,3,5", "FLEX_DEVICE": "MOCK"}, 1),
        ({"SPYRE_DEVICES": "0,3", "AIU_WORLD_SIZE": "4", "FLEX_DEVICE": "MOCK"}, 4),
        ({"FLEX_DEVICE": "PF"}, "FLEX_DEVICE must be MOCK, or not set, since the cards of ktir are emulated, but got 'PF'"),
        ({"AIU_WORLD_SIZE": "0"}, "AIU_WORLD_SIZE must be 1 to 8, but got '0'"),
        ({"AIU_WORLD_SIZE": "9"}, "AIU_WORLD_SIZE must be 1 to 8, but got '9'"),
        ({"AIU_WORLD_SIZE": "two"}, "AIU_WORLD_SIZE must be 1 to 8, but got 'two'"),
        ({"AIU_WORLD_SIZE": "²"}, "AIU_WORLD_SIZE must be 1 to 8, but got '²'"),
        ({"AIU_WORLD_SIZE": "", "SPYRE_DEVICES": ""}, 1),
        ({"SPYRE_DEVICES": "9, 17"}, 2),
        ({"SPYRE_DEVICES": "1,1"}, "SPYRE_DEVICES must list 1 to 8 different cards, but got '1,1'"),
        ({"SPYRE_DEVICES": "0,1,2,3,4,5,6,7,8"}, "SPYRE_DEVICES must list 1 to 8 different cards"),
        ({"SPYRE_DEVICES": "0,"}, "SPYRE_DEVICES must be cards from 0 on, but got ''"),
        ({"SPYRE_DEVICES": "-1"}, "SPYRE_DEVICES must be"),
        ({"SPYRE_VISIBLE_DEVICES": "0,3,5"}, 3),
        ({"SPYRE_VISIBLE_DEVICES": "0,3", "SPYRE_DEVICES": "0,3"}, 2),
        ({"SPYRE_VISIBLE_DEVICES": "1,1"}, "SPYRE_VISIBLE_DEVICES must list 1 to 8 different cards, but got '1,1'"),
        (
            {"SPYRE_VISIBLE_DEVICES": "0", "SPYRE_DEVICES": "0,3"},
            "SPYRE_DEVICES and SPYRE_VISIBLE_DEVICES must list the same cards, but got '0,3' and '0'",
        ),
    ],
)
def test_number_of_cards(environment: dict[str, str], expected: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AIU_WORLD_SIZE", "SPYRE_DEVICES", "SPYRE_VISIBLE_DEVICES", "FLEX_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    count = current.count.__wrapped__
    if isinstance(expected, int):
        assert count() == expected
    else:
        with pytest.raises(RuntimeError, match=expected):
            count()


MALFORMED = """
from ktir.device import autoload
autoload.autoload()
import torch
try:
    print(autoload.register())
except Exception as error:
    print(error, "|", torch._C._get_privateuse1_backend_name())
try:
    print(torch.ones(2, device="spyre").device)
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("environment", "warned", "said"),
    [
        (
            {"AIU_WORLD_SIZE": "x"},
            "register the device 'spyre': RuntimeError: AIU_WORLD_SIZE",
            "1 to 8, but got 'x' | privateuseone",
        ),
        ({"FLEX_DEVICE": "VF"}, "does not register the device 'spyre': RuntimeError: FLEX_DEVICE", "got 'VF' | privateuseone"),
        ({"TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS": "x"}, "", "TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS must be 1 to 8, but got 'x'"),
        ({"FLEX_COMPUTE": "NULL"}, "warning: FLEX_COMPUTE=NULL does not count without FLEX_DEVICE=MOCK", "None"),
        ({"SPYRE_LOG_FILE": "x"}, "warning: SPYRE_LOG_FILE=x has no effect on emulated cards: messages are those of", "None"),
        ({"AIU_WORLD_RANK_0": "0000:1a:00.0"}, "warning: AIU_WORLD_RANK_0=0000:1a:00.0 has no effect on emulated cards", "None"),
        ({"DTLOG_LEVEL": "error", "TORCH_SPYRE_TIMING": "0", "LX_PLANNING": "1"}, "", "None"),
        ({"KTIR_DEVICE": "perhaps"}, "warning: KTIR_DEVICE must be 0 or 1, but got 'perhaps'", "None"),
        ({"LOCAL_RANK": ""}, "", "spyre:0"),
        ({"KTIR_FALLBACK": "host"}, "", "KTIR_FALLBACK must be one of cpu, error, but got 'host'"),
    ],
)
def test_malformed_variables_are_named(environment: dict[str, str], warned: str, said: str) -> None:
    """Where nothing can be registered, nothing is, and whoever asks again is told again."""
    variables = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}
    ran = subprocess.run([sys.executable, "-c", MALFORMED], env=variables, capture_output=True, text=True, check=True)
    assert said in ran.stdout
    assert warned in ran.stderr
    assert ran.stderr.count("warning") == bool(warned)


def test_cards_of_a_thread() -> None:
    assert torch.get_device_module("spyre") is spyre
    assert spyre.device_count() == 1
    assert spyre.current_device() == 0
    with spyre.device("spyre:0"):
        assert torch.empty(1, device="spyre").device == torch.device("spyre:0")
    with pytest.raises(RuntimeError, match="there is no device 'spyre:1'"):
        spyre.set_device(1)
    with pytest.raises(RuntimeError, match="there is no device 'spyre:1'"):
        torch.empty(1, device="spyre:1")
    with pytest.raises(ValueError, match="expected a device 'spyre', but got 'cpu'"):
        spyre.set_device("cpu")
    with pytest.raises(AttributeError):
        operator.attrgetter("no_such_function")(spyre)
