"""Links of pages lead somewhere, also where nothing has been generated; texts of the code stand on generated pages as they are meant."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktir.tools.pages.ktir_docs import pages
from ktir.tools.pages.markdown import prose

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ROOT / "docs" / "generated"
WRITTEN = [
    *ROOT.glob("*.md"),
    *(ROOT / "conformance").glob("*.md"),
    *(p for p in (ROOT / "docs").rglob("*.md") if GENERATED not in p.parents),
]


def links(text: str) -> Iterator[tuple[str, str]]:
    """Text and target of each link to a file."""
    bare = re.sub(r"^```.*?^```|`[^`\n]*`(?!\])", "", text, flags=re.S | re.M)
    yield from re.findall(r"\[([^\]]*)\]\((?!https?:)([^)#\s]+)[^)]*\)", bare)


@pytest.mark.parametrize("page", sorted(WRITTEN), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_written_pages(page: Path) -> None:
    for shown, target in links(page.read_text()):
        path = (page.parent / target).resolve()
        assert shown, f"[]({target}) shows nothing where the page is read as it is"
        assert path.exists(), target
        assert GENERATED not in path.parents, f"{target} is there after `make docs` alone"


def test_links_of_generated_pages() -> None:
    made = pages()
    assert any(True for text in made.values() for _ in links(text))
    for name, text in made.items():
        for _, target in links(text):
            path = ((GENERATED / name).parent / target).resolve()
            assert str(path.relative_to(GENERATED)) in made if GENERATED in path.parents else path.exists(), (name, target)


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("an *element* descriptor, *padding*: zero", "an *element* descriptor, *padding*: zero"),
        ("64*stick + lane < lanes", r"64\*stick + lane < lanes"),
        ("the sum of `strides`[i] * x[i]", "the sum of `strides`[i] * x[i]"),
        ("A*W and B*W", r"A\*W and B\*W"),
        ("x*(y) - f(x)*2", r"x\*(y) - f(x)\*2"),
        ("lane_stride, a<b>, <64", r"lane_stride, a\<b>, \<64"),
        ("`a|b*c_d<e>` or a|b", r"`a|b*c_d<e>` or a\|b"),
    ],
)
def test_prose(text: str, markdown: str) -> None:
    assert prose(text) == markdown
