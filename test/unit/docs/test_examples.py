"""Every example on the site is true."""

import doctest
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from example_blocks import Example, examples

from ktir import registry
from ktir.tools.pages.ktir_docs import main, pages, write_pages

DOCS = Path(__file__).resolve().parents[3] / "docs"


def found() -> list[Example]:
    """The examples of the hand-written pages, then of the generated ones."""
    written = [p for p in sorted(DOCS.rglob("*.md")) if "generated" not in p.relative_to(DOCS).parts and p.name != "README.md"]
    all_ = [e for page in written for e in examples(page, page.relative_to(DOCS).as_posix())]
    with tempfile.TemporaryDirectory() as folder:
        for page in write_pages(Path(folder)):
            all_ += examples(page, page.relative_to(folder).as_posix())
    return all_


@pytest.mark.parametrize("example", found(), ids=lambda e: e.where)
def test_example(example: Example) -> None:
    example.run()


def test_every_example_file_is_on_a_page() -> None:
    shown = "\n".join(pages().values())
    for path in (DOCS / "examples").rglob("*.mlir"):
        assert path.read_text().strip("\n") in shown, f"{path} belongs to no op"


def test_every_dialect_and_pass_has_its_page(tmp_path, capsys) -> None:
    assert main([str(tmp_path)]) == 0
    assert "pages in" in capsys.readouterr().out
    for name in registry.dialect_names():
        page = (tmp_path / "dialects" / f"{name}.md").read_text()
        for op in registry.dialect_class(name).operations:
            assert f"### `{op.OPERATION_NAME}`" in page
    assert {p.stem for p in (tmp_path / "passes").glob("*.md")} == {"index", *registry.pass_classes()}
    assert main([]) == 1
    assert main(["--help"]) == 0


@pytest.mark.parametrize("page", [p for p in sorted(DOCS.rglob("*.md")) if ">>> " in p.read_text()], ids=lambda p: p.name)
def test_what_is_typed_into_python(page: Path) -> None:
    run = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert run.attempted
    assert not run.failed


def test_wrong_examples_are_noticed() -> None:
    text = "func.func @f() {\n  return\n}\n"
    Example("here", text).run()
    for wrong in ("func.func @f() {\n}\n", "// expected-error@+1 {{no}}\n" + text, "// given %x: i32 3\n" + text):
        with pytest.raises(AssertionError):
            Example("here", wrong).run()
