"""What the pages name exists: files, passes, tools, modules, classes, options of the configuration."""

from __future__ import annotations

import dataclasses
import importlib
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ktir import registry
from ktir.analysis.attributes import table
from ktir.config import NAMES, VARIABLES, Config

ROOT = Path(__file__).resolve().parents[3]
PAGES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in p.parts]
PAGES += [ROOT / "README.md", ROOT / "conformance" / "README.md"]
FOLDERS = (
    "",
    "ktir",
    "docs",
    "test",
    "ktir/passes",
    "ktir/passes/flat",
    "ktir/emulator/reference",
    "ktir/emulator/machine",
    "ktir/isa",
    "conformance",
)
"""Where a path may begin."""
OTHERS = {"ktir-cpu"}
"""Projects of other people."""


@cache
def tracked() -> tuple[Path, ...]:
    skipped = {".venv", ".git", "build", "generated", "__pycache__"}
    return tuple(p for p in ROOT.rglob("*") if not skipped.intersection(p.relative_to(ROOT).parts))


@cache
def text_of_all() -> str:
    """All Python code."""
    return "\n".join(p.read_text() for p in tracked() if p.suffix == ".py")


RECIPE = re.compile(r"(In|At the end of) `.*`:$")
"""Before a block of a recipe, which may make the file."""


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each code span outside of fenced and indented blocks."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not line.startswith("    ") and not RECIPE.match(line):
            yield from ((number, span) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", line))


def is_there(path: str, page: Path) -> bool:
    """Whether a file or folder of this name is in the repository; a name without a folder may be anywhere."""
    begins = [ROOT / folder for folder in FOLDERS] + [page.parent]
    if "/" not in path.rstrip("/"):
        return any(p.name == path.rstrip("/") for p in tracked())
    return any((begin / path).exists() or any(begin.glob(path)) for begin in begins)


def module(name: str) -> bool:
    """Whether a dotted name is a module of ours, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def commands() -> set[str]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return {*scripts, *registry.pass_modules(), *OTHERS}


@cache
def names_of_ktir() -> set[str]:
    """What the dialect and the attributes are called: `ktir.level`, `ktir.layout`."""
    with importlib.import_module("ktir.context").context():
        dialect = registry.dialect_class("ktir")
        found = {op.OPERATION_NAME for op in dialect.operations}
        found |= {cls.attr_name for cls in dialect.attributes} | {cls.type_name for cls in dialect.types}
    return found | set(table.TABLE)


def test_all_options_and_variables_are_described() -> None:
    """Those of `ktir-test` go between its own processes."""
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (`[^|]*) \|", readme.partition("| option | meaning |")[2], re.M)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} >= set(NAMES)
    pages = "".join(page.read_text() for page in PAGES)
    variables = set(VARIABLES) - {f"KTIR_{name.upper()}" for name in NAMES}
    assert [v for v in sorted(variables) if v not in pages and not v.startswith("KTIR_TEST_")] == []


def fault(span: str, page: Path) -> str | None:
    """What is wrong with a code span, if it is one of those that name something."""
    if re.fullmatch(r"(?!\.?/|~|https?:)[\w.*/-]+(\.(py|md|toml|mlir|mk|json|svg)|/)", span) and "spec" != span:
        return None if is_there(span, page) or re.match(MADE, span) else "no such file"
    if match := re.match(r"(?:\$ )?((?:ktir|convert)-[a-z-]+)(?![\w.])", span):
        return None if match[1] in commands() else "no such pass or tool"
    if re.fullmatch(r"ktir(\.\w+)+", span) and span not in names_of_ktir():
        return None if module(span) or span in TORCH_NAMES else "no such module or name"
    if match := re.fullmatch(r"config\.(\w+)", span):
        return None if match[1] in {f.name for f in dataclasses.fields(Config)} else "no such option"
    if re.fullmatch(r"[A-Z][a-z]+(?:[A-Z][a-z]*)+", span):
        return None if re.search(rf"\b{span}\b", text_of_all()) else "no such class"
    if "design" in page.relative_to(ROOT).as_posix() and re.fullmatch(r"_?[a-z]+(_[a-z]+)+", span):
        return None if re.search(rf"\b{span}\b", text_of_all()) else "no such name"
    return None


MADE = r"(generated|target|spyrecode|launch_spec|debug|notice|allocated|small|rows|wide|x|y)\b"
"""Files that readers or tools make."""
TORCH_NAMES = {"ktir.rounded"}
"""An operator that the torch front end adds to PyTorch."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names(page: Path) -> None:
    wrong = [f"{page.name}:{line}: `{span}`: {why}" for line, span in spans(page) if (why := fault(span, page))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "ktir/passes/nowhere.py",
        "nowhere.py",
        "ktir-tle",
        "ktir.nowhere.x",
        "config.nothing",
        "no_such" + "_name_either",
        "NoSuchClassHere" + "Either",
    ],
)
def test_wrong_names_are_noticed(wrong: str) -> None:
    assert fault(wrong, ROOT / "docs" / "design.md")
