"""Every tool goes by the machine that a package was compiled for, which may have more or fewer cores than the datasheet's."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktir.isa.assembly.text import print_program
from ktir.package import read
from ktir.target import DATASHEET
from ktir.tools import ktir_as, ktir_compile, ktir_explain, ktir_objdump, ktir_report

PROGRAM = Path(__file__).parents[2] / "lit" / "lowering" / "inductor" / "softmax.mlir"
MACHINES = {"wide": (64, 57), "small": (8, 8)}
"""Cores of the machine, and those that the program uses."""


@pytest.fixture(scope="module", params=MACHINES)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    target = folder / "machine.toml"
    cores, _ = MACHINES[request.param]
    target.write_text(f'name = "{request.param}"\ncores = {cores}\nlx_bytes = {{ value = {cores * 64}, unit = "KiB" }}\n')
    assert ktir_compile.main([str(PROGRAM), f"--target={target}", "-o", str(folder / "package")]) == 0
    return folder / "package"


@pytest.fixture
def quiet(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is said on stderr."""
    yield
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("quiet")
def test_tools_on_a_package(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cores = max(k.cores for k in read(package).program.kernels)
    assert cores == MACHINES[read(package).target.name][1]
    for arguments in (["--check"], ["--verify"]):
        assert ktir_objdump.main([str(package), *arguments]) == 0
    capsys.readouterr()
    assert ktir_objdump.main([str(package), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    assert ktir_report.main([str(package)]) == 0
    assert ktir_explain.main([str(package)]) == 0


@pytest.mark.usefixtures("quiet")
def test_assembly_is_verified_for_a_target(package: Path, tmp_path: Path) -> None:
    text, binary = tmp_path / "program.s", tmp_path / "program.bin"
    text.write_text(print_program(read(package).program))
    target = str(package.parent / "machine.toml")
    assert ktir_as.main([str(text), "--verify", f"--target={target}", "-o", str(binary)]) == 0
    assert ktir_objdump.main([str(binary), "--verify", f"--target={target}"]) == 0


def test_a_program_of_another_machine(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has more cores than the machine that is asked for is refused in the same words by all."""
    tiny = tmp_path / "tiny.toml"
    tiny.write_text("cores = 4\n")
    wanted = f"runs on {MACHINES[read(package).target.name][1]} cores, but the target has 4"
    for tool in (ktir_objdump, ktir_report):
        options = ["--verify"] if tool is ktir_objdump else []
        assert tool.main([str(package), *options, f"--target={tiny}"]) != 0
        assert wanted in capsys.readouterr().err


def test_a_module_of_another_machine(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is planned for one machine is compiled for no other one, whoever asks."""
    module, name = str(package / "allocated.ktir.mlir"), read(package).target.name
    for asked in ("fitted", "datasheet"):
        assert ktir_compile.main([module, f"--target={asked}", "-o", str(tmp_path / "other")]) == 1
        assert f"is compiled for target '{name}' ('ktir.target'), but '{asked}' is asked for" in capsys.readouterr().err
    for options in ([], [f"--target={package.parent / 'machine.toml'}"]):
        assert ktir_compile.main([module, *options, "-o", str(tmp_path / "same")]) == 0
        assert read(tmp_path / "same").target.name == name


def test_a_package_takes_the_place_of_one_for_another_machine(package: Path, tmp_path: Path) -> None:
    place = tmp_path / "package"
    shutil.copytree(package, place)
    assert ktir_compile.main([str(PROGRAM), "-o", str(place)]) == 0
    assert read(place).target is DATASHEET
