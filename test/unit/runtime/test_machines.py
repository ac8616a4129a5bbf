"""What a machine has found out is kept beside the packages, under all that it depends on, and what is not whole is found out anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktir import version
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine import machine
from ktir.emulator.machine.kept import from_bytes
from ktir.isa.problem import Problem
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import content_hash
from ktir.runtime import cache, machines, metrics, store

FOLDER = Path(__file__).parents[2] / "lit" / "lowering" / "inductor"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a compiled program, in an empty store; each program is worth to be kept."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machines, "WORTH", 0)
    monkeypatch.setattr(cache, "_loaded", {})
    with context(), ir.Location.unknown():
        found = compile_logical(parse_module((FOLDER / "softmax.mlir").read_text()))
    store.store(content_hash(found), found)
    return found


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """An element for each run of the control plane."""
    found: list[None] = []
    own: Callable[..., Any] = machine.control

    def control(*given: Any) -> Any:
        found.append(None)
        return own(*given)

    monkeypatch.setattr(machine, "control", control)
    return found


def launch(files: dict[str, bytes]) -> np.ndarray:
    """As a new process does."""
    cache._loaded.clear()
    x, y = np.linspace(-3, 3, 570).reshape(57, 10).astype(np.float16), np.zeros((57, 10), np.float16)
    with metrics.counted() as launches:
        cache.kernel(content_hash(files))(x, y)
    assert launches() == metrics.Launches(chip=1)
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), atol=1e-3)
    return y


def kept(folder: Path) -> list[Path]:
    return [*(folder / "machines").iterdir()] if (folder / "machines").is_dir() else []


def test_a_second_process_does_not_run_the_control_plane(files: dict[str, bytes], runs: list[None]) -> None:
    first = launch(files)
    assert len(runs) == 1
    assert launch(files).tobytes() == first.tobytes()
    assert len(runs) == 1


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-1], lambda data: data[:99] + b"?" + data[100:]])
def test_a_damaged_file_is_written_again(
    change: Callable[[bytes], bytes], files: dict[str, bytes], runs: list[None], tmp_path: Path
) -> None:
    launch(files)
    (place,) = kept(tmp_path)
    place.write_bytes(change(place.read_bytes()))
    launch(files)
    assert len(runs) == 2
    assert from_bytes(place.read_bytes()) is not None
    launch(files)
    assert len(runs) == 2


@pytest.mark.parametrize("what", ["sources", "python"])
def test_other_versions_are_others(what: str, files: dict[str, bytes], runs: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    launch(files)
    if what == "sources":
        monkeypatch.setattr(machines, "sources_hash", lambda: "others")
    else:
        monkeypatch.setattr("sys.version", "4.0")
    launch(files)
    assert len(runs) == 2
    assert len(version.sources_hash()) == 64


def test_what_is_quick_is_not_kept(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machines, "WORTH", 60)
    launch(files)
    assert kept(tmp_path) == []


def test_files_that_were_not_used_for_long_go(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launch(files)
    (place,) = kept(tmp_path)
    old = place.with_name("older")
    old.write_bytes(place.read_bytes())
    place.unlink()
    monkeypatch.setattr(machines, "_MOST_BYTES", old.stat().st_size * 3 // 2)
    launch(files)
    assert kept(tmp_path) == [place]


def test_a_folder_that_cannot_be_written(files: dict[str, bytes], runs: list[None], tmp_path: Path) -> None:
    (tmp_path / "machines").write_text("a file")
    launch(files)
    launch(files)
    assert len(runs) == 2


def test_a_faulty_program_is_refused_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    key = content_hash(files)
    monkeypatch.setattr(machine, "verify", lambda *_, **__: [Problem("the program is wrong")])
    for _ in range(2):
        cache._loaded.clear()
        with pytest.raises(KtirError, match="the program is wrong"):
            cache.load(key)(np.zeros((57, 10), np.float16), np.zeros((57, 10), np.float16), strict=True)
    assert kept(tmp_path) == []


def test_a_program_that_is_too_deep_is_launched(files: dict[str, bytes], runs: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(_: Any) -> bytes:
        raise RecursionError

    monkeypatch.setattr(machines, "to_bytes", deep)
    launch(files)
    launch(files)
    assert len(runs) == 2


def test_nothing_is_launched_while_it_is_kept(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch notes of its divisions would be cleared."""
    locked: list[bool] = []
    own = machines.keep

    def keep(key: str, machine: machine.Machine) -> None:
        chip = cache.load(key).chip
        assert chip is not None
        locked.append(chip.lock.locked())
        own(key, machine)

    monkeypatch.setattr(machines, "keep", keep)
    launch(files)
    assert locked == [True]


def test_files_of_others_are_read(files: dict[str, bytes], runs: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    launch(files)

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("os.utime", refuse)
    launch(files)
    assert len(runs) == 1
