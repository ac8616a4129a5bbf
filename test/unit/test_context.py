"""Contexts, registry and the door to MLIR."""

import os
import threading

import pytest

from ktir import mlir, registry
from ktir.assembly import parse_module, print_module
from ktir.context import context, lent
from ktir.diagnostics import KtirError
from ktir.mlir import ir, operations
from ktir.pipeline import NamedPipeline, Pass


def test_registry() -> None:
    assert {"ktdp", "ktir"} <= set(registry.dialect_names())
    for name, cls in registry.pass_classes().items():
        assert issubclass(cls, Pass | NamedPipeline)
        assert cls.name == name
        assert cls.description
        assert str(cls()) == name, "every option has a default"
    assert registry.pass_class("no-such-pass") is None


def test_some_dialects_only() -> None:
    with context(dialects=["ktir"]), ir.Location.unknown(), pytest.raises(KtirError, match="unregistered dialect"):
        parse_module("func.func @f() { %0 = ktdp.get_compute_tile_id : index return }")


def test_contexts_in_threads() -> None:
    """Loading our dialects is not thread-safe in MLIR's bindings; making a context is."""
    texts: list[str] = []

    def work() -> None:
        for _ in range(5):
            with context(), ir.Location.unknown():
                texts.append(print_module(parse_module("func.func @f() { %0 = ktdp.get_compute_tile_id : index return }")))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 20
    assert len(set(texts)) == 1


def test_a_context_is_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to two at a time, not after a fault, not where it lacks a plugin's dialect, and not once it has read much."""
    monkeypatch.setattr("ktir.context._idle", [])
    with lent(1) as one, lent(1) as other:
        assert one != other
    with lent(1) as again:
        assert again == one
    with pytest.raises(ZeroDivisionError), lent(1) as broken:
        _ = 1 // 0
    with lent(10_000_000) as used_up:
        assert used_up not in (one, broken)
    with lent(1) as new:
        assert new not in (one, other, broken, used_up)
    if (child := os.fork()) == 0:
        with lent(1) as of_child:
            os._exit(of_child == new)
    assert os.waitpid(child, 0)[1] == 0, "a forked process has a context of its own"
    monkeypatch.setattr(registry, "plugin_dialects", lambda: ("builtin",))
    monkeypatch.setattr("ktir.context._load", lambda _: None)
    with lent(1) as with_plugin:
        assert with_plugin != new


@pytest.mark.usefixtures("mlir")
def test_operations() -> None:
    module = ir.Module.parse("func.func @f() { %0 = arith.constant 0 : index return }")
    assert [op.name for op in operations(module)] == ["builtin.module", "func.func", "arith.constant", "func.return"]


def test_dialect_modules_come_on_demand() -> None:
    assert mlir.arith.__name__.endswith("arith")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = mlir.nonsense  # pyright: ignore[reportAttributeAccessIssue]
