"""Pages that run from top to bottom: each of their blocks runs and shows what comes out; a tutorial is read in a quarter of an hour."""

from __future__ import annotations

import gc
import re
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from page_blocks import ROOT, Session, blocks, matches

from ktir.device.autoload import register
from ktir.device.operators import fallback
from ktir.lowering.inductor.running import calls

TUTORIALS = sorted(p for p in (ROOT / "docs" / "tutorials").glob("*.md") if p.name != "index.md")
PAGES = [*(ROOT / "docs" / f"{name}.md" for name in ("index", "lang", "library", "howto")), *TUTORIALS]
WORDS, LINES = 200, 12
"""What is read in a minute: words of prose, lines of code or output."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path, path_of_tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    monkeypatch.setattr(calls, "implementations", {})  # those of the page are for it alone
    fallback._said.clear()  # what other tests have been told is told again
    gc.collect()  # nor does memory of theirs go while the page counts its own
    session = Session(page, tmp_path, path_of_tools)
    with warnings.catch_warnings():
        wrong = session.run()
    texts = [f"{session._where(b)} shows\n{b.text}but this comes out:\n{new}" for b, new in wrong.items()]
    assert not wrong, "\n".join(texts) + f"\npython test/unit/docs/page_blocks.py {page.relative_to(ROOT)} writes it"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_read_in_a_quarter_of_an_hour(page: Path) -> None:
    text = page.read_text()
    code = sum(len(b.text.splitlines()) for b in blocks(text))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    assert len(prose.split()) / WORDS + code / LINES < 15


PAGE = (
    "In `a.txt`:\n\n```text\none\ntwo\n```\n\n```console\n$ cat a.txt\none\ntwo\n```\n\n"
    "```python\nx = 3\nprint(x)\n```\n\n```output\n3\n```\n"
)


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("two\n```\n\n```python", "tow\n```\n\n```python"), ("output\n3", "output\n4"), ("x = 3", "x = 4")]
)
def test_what_a_page_shows_is_compared_and_mended(before: str, after: str, tmp_path: Path, path_of_tools: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(before, after) if before else PAGE)
    session = Session(page, tmp_path / "run", path_of_tools)
    wrong = session.run()
    assert bool(wrong) == bool(before)
    assert session.mended(wrong) == (PAGE if "x" not in before else PAGE.replace("3", "4"))


@pytest.mark.parametrize("wrong", ["```output\n3\n```\n", "", "```sh\nls\n```\n"])
def test_nothing_is_left_out(wrong: str, tmp_path: Path, path_of_tools: str) -> None:
    (tmp_path / "page.md").write_text("```python\nprint(3)\n```\n\n" + ("```python\n```\n\n" + wrong if wrong else ""))
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        Session(tmp_path / "page.md", tmp_path / "run", path_of_tools).run()


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("a", "a", True), ("a", "a\nb", False), ("a\n…", "a\nb\nc", True), ("…\nc", "a\nb\nc", True), ("a … c", "a b c", True),
        ("a … c", "a\nc", False), ("…", "", True), ("a.c", "abc", False),
    ],
)  # fmt: skip
def test_matches(shown: str, said: str, same: bool) -> None:
    assert matches(shown.splitlines(), said.splitlines()) == same
