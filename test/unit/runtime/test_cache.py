"""The package store: content addressed, whole or not at all, checked when loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import content_hash
from ktir.runtime import cache
from ktir.runtime.executable import Executable, recorded

PROGRAM = Path(__file__).parents[2] / "lit" / "inductor" / "softmax.mlir"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a compiled program, with an empty store."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})
    with context(), ir.Location.unknown():
        return compile_logical(parse_module(PROGRAM.read_text()))


def test_store_and_launch(package: dict[str, bytes]) -> None:
    key = content_hash(package)
    cache.store(key, package)
    cache.store(key, package)
    executable = cache.load(key)
    assert isinstance(executable, Executable)
    shapes = [tuple(a.host.size) for a in executable.spec.args if a.host is not None]
    x = np.random.default_rng(0).standard_normal(shapes[0]).astype(np.float16)
    y = np.zeros_like(x)
    with recorded() as launches:
        cache.kernel(key)(x, y)
    assert [launch.name for launch in launches] == ["forward"]
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), atol=1e-3)


def test_compilation_is_deterministic(package: dict[str, bytes]) -> None:
    with context(), ir.Location.unknown():
        again = compile_logical(parse_module(PROGRAM.read_text()))
    assert content_hash(again) == content_hash(package)


def test_wrong_hash_is_refused(package: dict[str, bytes]) -> None:
    with pytest.raises(KtirError, match="of that content hash"):
        cache.store("0" * 64, package)


def test_changed_file_is_refused(package: dict[str, bytes]) -> None:
    key = content_hash(package)
    cache.store(key, package)
    place = cache.folder() / key / "program.bin"
    place.write_bytes(place.read_bytes()[:-1] + b"x")
    with pytest.raises(KtirError, match="does not have the content of its name"):
        cache.load(key)


@pytest.mark.parametrize("key", ["0" * 64, "../../etc", ""])
def test_missing_package(package: dict[str, bytes], key: str) -> None:
    with pytest.raises(KtirError, match="is not in"):
        cache.kernel(key)(np.zeros(1, np.float16))


def test_wrong_number_of_arguments(package: dict[str, bytes]) -> None:
    key = content_hash(package)
    cache.store(key, package)
    with pytest.raises(KtirError, match="expects 2 arguments, but got 1"):
        cache.load(key)(np.zeros((57, 10), np.float16))
