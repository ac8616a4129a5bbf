"""Mistakes in kernels of the language: some of them, and that a wrong value, and an error without a place, is found."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from amounts import examples
from campaign import lang_mistakes

from ktir.lang import eager


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_each_is_said_at_its_line_or_changes_nothing(first: int) -> None:
    wrong = {seed: said for seed in range(first, first + examples(50)) if (said := lang_mistakes.finding(seed))}
    assert not wrong


def test_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's errors as they are, and a sum that is a little off."""
    with monkeypatch.context() as without:
        without.setattr(eager, "of_python", nullcontext)
        assert any("Error" in lang_mistakes.finding(seed) for seed in range(100, 130))
    whole = lang_mistakes.outcome

    def off(seed: int, number: int, text: str, on: str) -> tuple[str, list[np.ndarray]]:
        said, arrays = whole(seed, number, text, on)
        return said, [a + np.asarray(on == "numpy", a.dtype) for a in arrays]

    monkeypatch.setattr(lang_mistakes, "outcome", off)
    found: list[Any] = [lang_mistakes.finding(seed) for seed in range(6)]
    assert "values of NumPy and executor differ" in found
