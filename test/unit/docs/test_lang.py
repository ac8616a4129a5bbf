"""The examples of docs/lang.md and docs/library.md run."""

import re
from pathlib import Path
from typing import Any

import pytest

from ktir.lowering.inductor.running import calls

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["lang", "library"])
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(calls, "implementations", {})  # those of the page are for it alone
    place = ROOT / "docs" / f"{page}.md"
    space: dict[str, Any] = {"__name__": "page"}
    text = place.read_text()
    found = list(re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M))
    assert len(found) >= 5
    for block in found:
        lines = text[: block.start(1)].count("\n")  # so that places are those of the page
        exec(compile("\n" * lines + block[1], str(place), "exec"), space)
