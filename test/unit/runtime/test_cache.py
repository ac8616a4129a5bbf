"""The package store: content addressed, whole or not at all, checked when loaded."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import content_hash, read
from ktir.runtime import cache, store
from ktir.runtime.executable import Executable, recorded

PROGRAM = Path(__file__).parents[2] / "lit" / "lowering" / "inductor" / "softmax.mlir"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a compiled program, with an empty store."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})
    monkeypatch.setattr(store, "_in_memory", {})
    monkeypatch.setattr(store, "_warned", set())
    with context(), ir.Location.unknown():
        return compile_logical(parse_module(PROGRAM.read_text()))


def test_store_and_launch(package: dict[str, bytes]) -> None:
    key = content_hash(package)
    cache.store(key, package)
    cache.store(key, package)
    executable = cache.load(key).chip
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


DAMAGE: dict[str, Callable[[Path], object]] = {
    "changed": lambda p: (p / "program.bin").write_bytes((p / "program.bin").read_bytes()[:-1] + b"x"),
    "truncated": lambda p: (p / "program.bin").write_bytes((p / "program.bin").read_bytes()[:100]),
    "file gone": lambda p: (p / "debug.json").unlink(),
    "one file more": lambda p: (p / "debug.json.bak").write_bytes(b"x"),
    "empty": lambda p: [f.unlink() for f in p.iterdir()],
    "folder inside": lambda p: (p / "more").mkdir(),
    "a file for a folder": lambda p: (shutil.rmtree(p), p.write_bytes(b"")),
    "a link inside": lambda p: ((p / "debug.json").unlink(), (p / "debug.json").symlink_to("/dev/zero")),
    "a pipe inside": lambda p: ((p / "debug.json").unlink(), os.mkfifo(p / "debug.json")),
    "a link": lambda p: (shutil.rmtree(p), p.symlink_to("/")),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_entry_heals(package: dict[str, bytes], kind: str, caplog: pytest.LogCaptureFixture) -> None:
    key, home = content_hash(package), cache.folder()
    assert home is not None
    cache.store(key, package)
    DAMAGE[kind](home / key)
    cache.store(key, package)
    assert cache.files(key) == package  # what compiles it again need not know
    DAMAGE[kind](home / key)
    for _ in range(3):
        with pytest.raises(KtirError, match="compile the model again"):
            cache.files(key)
    assert caplog.text.count("is damaged; it is compiled again") == 1
    cache.store(key, package)
    cache.load(key)
    assert sorted(p.name for p in home.iterdir()) == [key]


def test_foreign_files_do_no_harm(package: dict[str, bytes]) -> None:
    key, home = content_hash(package), cache.folder()
    assert home is not None
    cache.store(key, package)
    (home / key / ".DS_Store").write_bytes(b"x")
    (home / ".DS_Store").write_bytes(b"x")
    assert cache.files(key) == package
    cache.load(key)


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", ["file", "no home", "full"])
def test_without_a_place_packages_are_in_memory(
    package: dict[str, bytes], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "_warned", set())
    if kind == "file":
        (tmp_path / "file").write_bytes(b"")
        monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "file"))
    elif kind == "full":
        monkeypatch.setattr(Path, "write_bytes", _full)
    else:
        monkeypatch.delenv("KTIR_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    key = content_hash(package)
    for _ in range(2):
        cache.store(key, package)
    assert cache.files(key) == package
    cache.load(key)
    assert [r.message.startswith("warning: packages cannot be kept") for r in caplog.records] == [True]


@pytest.mark.parametrize("caches", ["", "relative/path"])
def test_the_cache_is_never_a_relative_folder(caches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KTIR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", caches)
    assert cache.folder() == Path.home() / ".cache" / "ktir"


@pytest.mark.parametrize("key", ["0" * 64, "../../etc", ""])
def test_missing_package(package: dict[str, bytes], key: str) -> None:
    with pytest.raises(KtirError, match="is not in"):
        cache.kernel(key)(np.zeros(1, np.float16))


def test_wrong_number_of_arguments(package: dict[str, bytes]) -> None:
    key = content_hash(package)
    cache.store(key, package)
    with pytest.raises(KtirError, match="expects 2 arguments, but got 1"):
        cache.load(key)(np.zeros((57, 10), np.float16))


@pytest.fixture
def softmax(package: dict[str, bytes]) -> Executable:
    return Executable(read(package))


def expected_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


X = np.random.default_rng(1).standard_normal((57, 10)).astype(np.float16)
STRIDED: dict[str, Callable[[], np.ndarray]] = {
    "fortran": lambda: np.asfortranarray(X),
    "every other column": lambda: np.repeat(X, 2, axis=1)[:, ::2],
    "rows backwards": lambda: X[::-1].copy()[::-1],
    "columns backwards": lambda: X[:, ::-1].copy()[:, ::-1],
    "part of a larger array": lambda: np.pad(X, 3)[3:-3, 3:-3],
    "row repeated": lambda: np.broadcast_to(X[:1], (57, 10)),
    "number repeated": lambda: np.broadcast_to(X[5, 5], (57, 10)),
    "read-only": lambda: np.frombuffer(X.tobytes(), np.float16).reshape(57, 10),
}


@pytest.mark.parametrize("kind", STRIDED)
def test_inputs_of_any_strides(softmax: Executable, kind: str) -> None:
    x, y = STRIDED[kind](), np.zeros((57, 10), np.float16)
    for _ in range(2):  # the second time from its form
        softmax(x, y)
        np.testing.assert_allclose(y, expected_softmax(x), atol=1e-3)


def test_a_strided_input_that_changes(softmax: Executable) -> None:
    memory, y = np.repeat(X, 2, axis=1), np.zeros((57, 10), np.float16)
    for k in range(3):
        memory[k, 4] = 5
        softmax(memory[:, ::2], y)
        np.testing.assert_allclose(y, expected_softmax(memory[:, ::2]), atol=1e-3)


@pytest.mark.parametrize("kind", ["fortran", "every other column", "rows backwards", "part of a larger array"])
def test_outputs_of_any_strides(softmax: Executable, kind: str) -> None:
    y = STRIDED[kind]()
    outside = None if y.base is None or kind == "fortran" else y.base.copy()
    softmax(X, y)
    np.testing.assert_allclose(y, expected_softmax(X), atol=1e-3)
    if outside is not None and y.base is not None:
        changed = y.base != outside
        y[...] = 0
        assert not (changed & (y.base != 0)).any()  # gaps are as they were


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:, :5], X, "argument 'arg0_1' expects shape [57, 10], but got [57, 5]"),
        (X.T, X, "expects shape [57, 10], but got [10, 57]"),
        (X.reshape(-1), X, "expects shape [57, 10], but got [570]"),
        (np.zeros((57, 20), np.float16), X, "expects shape [57, 10], but got [57, 20]"),
        (X, np.zeros((58, 10), np.float16), "expects shape [57, 10], but got [58, 10]"),
        (X.astype(np.float32), X, "expects element type float16, but got float32"),
        (X.view(np.int16), X, "expects element type float16"),
        (X, np.frombuffer(X.tobytes(), np.float16).reshape(57, 10), "expects an array that can be written"),
        (X, np.lib.stride_tricks.as_strided(X.copy(), (57, 10), (0, 2)), "expects elements that lie apart"),
    ],
)
def test_wrong_arrays(softmax: Executable, x: np.ndarray, y: np.ndarray, message: str) -> None:
    before = y.copy()
    with pytest.raises(KtirError, match=re.escape(message)):
        softmax(x, y)
    np.testing.assert_array_equal(y, before)
