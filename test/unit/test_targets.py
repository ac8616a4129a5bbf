"""Targets other than the datasheet's: described in TOML, said by modules, recorded in packages; values are float64's on each of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktir import config, targets
from ktir.assembly import parse_module, print_module
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.module_target import set_target, target_of
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import PackageError, manifest, read
from ktir.pipeline import parse_pipeline, run_pipeline
from ktir.runtime import notices
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET, FITTED, PRESETS, FigureError, Target

WIDE = 'name = "wide"\ncores = 64\nlx_bytes = { value = 4, unit = "MiB", status = "assumed", source = "a wish" }\n'
SMALL = "cores = 8\nlx_bytes = { value = 512, unit = 'KiB' }\n"
ROWS, DEPTH, COLUMNS = 512, 256, 512
LOWERED = Path(__file__).parents[1] / "lit" / "lowering" / "inductor"


def product() -> str:
    import torch

    import ktir

    return ktir.capture(lambda a, b: torch.relu(a @ b), torch.zeros(ROWS, DEPTH).half(), torch.zeros(DEPTH, COLUMNS).half())


@pytest.fixture(scope="module")
def text() -> str:
    return product()


def machines() -> list[Target]:
    return [DATASHEET, FITTED, targets.read_text(WIDE, "wide.toml"), targets.read_text(SMALL, "small.toml")]


def compiled(text: str, target: Target | None) -> dict[str, bytes]:
    with context(), ir.Location.unknown():
        return compile_logical(parse_module(text), target=target)


def test_values_on_each_of_them_in_one_process(text: str) -> None:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS)))
    b /= 16
    wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0)
    cycles = []
    for target in (*machines(), DATASHEET):
        package = read(compiled(text, target))
        assert package.target == target
        assert ("target.toml" in package.files) == (target != DATASHEET)
        most = max(kernel.cores for kernel in package.program.kernels)
        assert most == target.cores or 32 < most < target.cores, "40 of 64 share this product best"
        executable = Executable(package)
        found = np.zeros((ROWS, COLUMNS), np.float16)
        executable(a, b, found)
        assert np.abs(found - wanted).max() < 2e-3
        cycles.append(executable.machine.report.cycles)
    assert cycles[0] == cycles[-1] < min(cycles[1], cycles[3])


NATIVE = 'name = "native"\ndl16 = "native"\n'


@pytest.mark.parametrize("target", [*machines(), targets.read_text(NATIVE, "native.toml")], ids=lambda t: t.name)
def test_a_module_and_a_file_say_a_target_whole(target: Target) -> None:
    assert targets.read_text(targets.description(target), "x.toml") == target
    with context(), ir.Location.unknown():
        module = parse_module("module {}")
        set_target(module, target)
        again = parse_module(print_module(module))
        assert ("ktir.target" in again.operation.attributes) == (target != DATASHEET)
        assert target_of(again) == target


def test_halves_are_dlfloat16_on_the_device(caplog: pytest.LogCaptureFixture) -> None:
    """Whole numbers that all formats hold, and sums of products that none does: rounded to ten digits, ties up. It is said once."""
    notices.forget()
    text = (LOWERED / "linear_relu.mlir").read_text()
    target = targets.read_text(NATIVE, "native.toml")
    package = read(compiled(text, target))
    random, given = np.random.default_rng(0), []
    for host in package.launch_spec.hosts:
        given.append(random.integers(-20, 20, host.size).astype(np.float16))
    for mode in ("tape", "step"):
        Executable(package)(*given, mode=mode)
    w, b, x, found = given
    exact = np.maximum(x.astype(np.float64) @ w.astype(np.float64).T + b.astype(np.float64), 0)
    fraction, exponent = np.frexp(exact)
    wanted = np.ldexp(np.floor(np.ldexp(fraction, 10) + 0.5), exponent - 10)
    np.testing.assert_array_equal(found, wanted)
    assert (found != exact.astype(np.float16)).any()
    assert {a.layout.device_dtype for a in package.launch_spec.args if a.dtype == "float16"} == {"SEN169_FP16"}
    said = [r.getMessage() for r in caplog.records if "computes float16 as DLFloat16" in r.getMessage()]
    assert len(said) == 1
    assert "6 of exponent, 9 of fraction" in said[0]
    with pytest.raises(KtirError, match="target 'native' computes in DLFloat16, unlike KTIR"):
        check_package(package, Executable(package).machine.trace)


def test_figures_follow_from_others() -> None:
    small = targets.read_text(SMALL, "small.toml")
    assert (small.cores, small.lx_bytes, small.lx_planned_bytes) == (8, 524288, 367104)
    fast = targets.read_text('clock_ghz = 3.0\ndram_latency = { value = 200, unit = "ns" }\npt_macs = 1024\n', "fast.toml")
    assert (fast.dram_bytes_per_cycle, fast.dram_latency, fast.pt_row_cycles) == (204.8 / 3, 600, 4)
    assert DATASHEET.lx_planned_bytes == 1_625_344, "the planner's own figure"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cores = 0", "'cores' expects 1 to 1024 cores, but got 0"),
        ("fifo_entries = 100000000", "'fifo_entries' expects 2 to 65536 entries, but got 100000000"),
        ("cores = 'a'", "'cores' expects a number, but got 'a'"),
        ("cores = true", "'cores' expects a number, but got True"),
        ("cores = 1.5", "'cores' expects an integer, but got 1.5"),
        ("core = 3", "'core' is no figure of a target; did you mean 'cores'?"),
        ("cores = { value = 1, unit = 'MiB' }", "'cores' expects a unit of cores, but got 'MiB'"),
        ("cores = { unit = 'cores' }", "'cores' expects a value"),
        ("cores = { value = 1, why = 'x' }", "'cores' has no 'why', only value, unit, status and source"),
        ("cores = { value = 1, status = 'sure' }", "'cores' expects a status of stated,"),
        ("lx_planned_bytes = 3", "'lx_planned_bytes' is computed from 'lx_bytes', 'lx_reserved_bytes', 'lx_planned_share'"),
        ("lx_bytes = 1e400", "'lx_bytes' expects an integer, but got inf"),
        ("lx_bytes = 1000", "'lx_bytes' expects whole sticks of 128 bytes, but got 1000"),
        ("lx_reserved_bytes = 4000000", "'lx_reserved_bytes' expects less than the 2097152 bytes of 'lx_bytes'"),
        ("clock_ghz = nan", "'clock_ghz' expects a number, but got nan"),
        ("base = 'fited'", "'base' expects one of datasheet, fitted, but got 'fited'; did you mean 'fitted'?"),
        ("name = 'fitted'", "'name' expects another name than that of the preset 'fitted'"),
        ("dl16 = 'device'", "'dl16' expects exact or native, but got 'device'"),
        ("cores", "is no TOML"),
    ],
)
def test_files_that_describe_no_target(line: str, message: str) -> None:
    with pytest.raises(KtirError) as caught:
        targets.read_text(f"# a machine\n{line}\n", "my.toml")
    assert message in caught.value.message
    assert (caught.value.location or "").startswith("my.toml:2:")


@pytest.mark.parametrize(
    ("text", "place"), [("  cores = 'x'\n", "1:3"), ("[ cores ]\n", "1:3"), ("cores = 4\ncores=", "2:7"), ("a = [", "1:6")]
)
def test_faults_of_files_are_placed(text: str, place: str) -> None:
    """At the key, or where the text stops."""
    with pytest.raises(KtirError) as caught:
        targets.read_text(text, "my.toml")
    assert caught.value.location == f"my.toml:{place}"


def test_one_that_is_not_there() -> None:
    with pytest.raises(KtirError, match=r"cannot read target '/nowhere/x\.toml': No such file"):
        targets.find("/nowhere/x.toml")


def test_corelets_that_programs_are_not_made_for(text: str) -> None:
    """The machine runs streams for one corelet; nothing makes such."""
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=r"cores of 2 corelets, .*, but target 'one' has 1"):
        compile_logical(parse_module(text), target=replace(DATASHEET, name="one", corelets=1))


def test_a_module_is_compiled_for_one_target(text: str) -> None:
    with context(), ir.Location.unknown():
        module = parse_module(text)
        set_target(module, FITTED)
        with pytest.raises(KtirError, match=r"is compiled for target 'fitted' .* but 'datasheet' is asked for"):
            run_pipeline(module, "ktir-verify-level{target=datasheet}")


def test_options_of_the_pipeline_reach_its_passes(text: str, tmp_path: Path) -> None:
    file = tmp_path / "wide.toml"
    file.write_text(WIDE)
    steps = [str(step) for step in parse_pipeline(f"ktir-to-allocated{{target={file} cores=48}}")]
    assert len([step for step in steps if f"target={file}" in step]) == 9 + 14, (
        "nine passes, and a check after each of thirteen and before them"
    )
    for options in (f"target={file}", "lx-bytes=200000", "target=fitted cores=5"):
        with context(), ir.Location.unknown():
            module = parse_module(text)
            run_pipeline(module, f"ktir-to-allocated{{{options}}}")


def test_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    with config.patch(target=str(file)) as options:
        assert (options.cores, options.machine().name) == (8, "small")
        with pytest.raises(ValueError, match="cores must be an integer from 1 to 8"), config.patch(cores=9):
            pass
        before = options.key()
        file.write_text(SMALL.replace("8", "4"))
        assert config.current().key() != before, "a cache must not take it for the same"
    with pytest.raises(ValueError, match="unknown target 'fited'; did you mean 'fitted'"), config.patch(target="fited"):
        pass
    file.write_text("\ncores = 0\n")
    for name, message in (("fited", "target: unknown target"), (str(file), f"target: {file}:2:1: 'cores' expects")):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}(?!.*error:)"), config.patch(target=name):
            pass
    assert set(PRESETS) == {"datasheet", "fitted"}


def test_a_package_with_a_target_that_cannot_be(text: str) -> None:
    files = compiled(text, FITTED)
    files["target.toml"] = b"cores = 0\n"
    files[manifest.NAME] = manifest.make({name: data for name, data in files.items() if name != manifest.NAME})
    with pytest.raises(PackageError, match=r"target\.toml: 'cores' expects 1 to 1024 cores"):
        read(files)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"cores": 0}, "'cores' expects 1 to 1024 cores, but got 0"),
        ({"cores": "8"}, "'cores' expects an integer, but got '8'"),
        ({"clock_ghz": float("nan")}, "'clock_ghz' expects a number, but got nan"),
        ({"corse": 8}, "'corse' is no figure of a target; did you mean 'cores'?"),
        ({"dram_bytes_per_cycle": 8.0}, "is computed from 'dram_gb_per_second', 'clock_ghz' and cannot be given"),
        ({"lx_bytes": 200}, "'lx_bytes' expects whole sticks of 128 bytes, but got 200"),
        ({"name": "two words"}, "'name' expects a word of letters"),
        ({"dl16": "always"}, "'dl16' expects exact or native, but got 'always'"),
    ],
)
def test_figures_that_cannot_be(figures: dict[str, Any], message: str) -> None:
    """A package that offers a target is told as a file is."""
    with pytest.raises(FigureError) as caught:
        DATASHEET.changed(**figures)
    assert message in str(caught.value)


def test_figures_without_a_source_are_assumed() -> None:
    (cores,) = (f for f in DATASHEET.changed(cores=8).figures() if f.name == "cores")
    assert (cores.value, cores.status) == (8, "assumed")
