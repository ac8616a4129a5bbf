"""The examples of docs/lang.md run."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "lang.md"


def test_examples_run() -> None:
    space: dict[str, Any] = {"__name__": "page"}
    text = PAGE.read_text()
    found = list(re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M))
    assert len(found) >= 5
    for block in found:
        lines = text[: block.start(1)].count("\n")  # so that places are those of the page
        exec(compile("\n" * lines + block[1], str(PAGE), "exec"), space)
