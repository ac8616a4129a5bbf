"""Mistakes in KTIR text: some of them, and that a fault of a tool and a message without a place are found."""

from __future__ import annotations

import pytest
from campaign import text_mistakes


@pytest.mark.turn
def test_each_is_said_at_a_line_or_changes_nothing() -> None:
    assert not {seed: said for seed in range(7) if (said := text_mistakes.finding(seed))}


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_many(first: int) -> None:
    assert not {seed: said for seed in range(first, first + 50) if (said := text_mistakes.finding(seed))}


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that raises, one that says no place, one that refuses alone, and other values."""

    def raises(_: list[str]) -> int:
        raise KeyError("x")

    def says_no_place(_: list[str]) -> int:
        text_mistakes.sys.stderr.write("kernel.mlir: error: wrong\n")
        return 1

    text_mistakes.sources()  # are kept: what runs of a kernel is found with the tools as they are
    run = text_mistakes.ktir_run.main

    def other_values(words: list[str]) -> int:
        return run([word.replace("--random=1", "--random=2") if "--engine=spyre" in words else word for word in words])

    for tool, fault, said in (
        ("ktir_opt", raises, "ktir-opt: KeyError"),
        ("ktir_compile", says_no_place, "does not say where: kernel.mlir: error: wrong"),
        ("ktir_run", other_values, "gives other values of"),
    ):
        with monkeypatch.context() as faulty:
            faulty.setattr(getattr(text_mistakes, tool), "main", fault)
            assert any(said in text_mistakes.finding(seed) for seed in range(1, 20, 2)), tool
