"""How a page is run: its blocks in order, in one folder, in one namespace of Python; what it shows of their output is what comes out.

| on the page | what is done |
|---|---|
| `In ...:` (the path in code) above a block | it becomes this file; `At the end of ...:` appends it; a `diff` changes the file |
| a `python` block | runs in the namespace of the page |
| an `output` block behind it | all that it prints; without one it prints nothing |
| a `console` block | each `$ command` runs in a shell; the lines below are all that it says |
| `…` in what is shown | any text within the line; a line of `…` alone, any number of lines |

`python test/unit/docs/page_blocks.py PAGE...` writes what comes out into the pages, where it is something else than they show.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"(?:^(?P<place>(?:In|At the end of) `(?P<path>[^`]+)`):\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block: its language, its text, where it goes, and where its text begins on the page."""

    kind: str
    text: str
    path: str
    at_the_end: bool
    start: int

    def put(self, folder: Path) -> None:
        """Write the block to its place below `folder`; nothing that a link leads to is touched."""
        path = folder / self.path
        old = path.read_text() if path.exists() else ""
        if self.kind == "diff":
            new = changed(old, self.text)
        else:
            assert self.at_the_end == bool(old), f"{self.path} is {'there' if old else 'not there'}"
            new = old + f"\n\n{self.text}" if self.at_the_end else self.text
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(new)
        if path.name == "pyproject.toml":
            install(path)

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command, and what the page shows of its output."""
        for part in re.split(r"^\$ ", self.text, flags=re.M)[1:]:
            command, *shown = re.sub(r"\\\n> ", "", part).splitlines()
            yield command, shown


def blocks(text: str) -> list[Block]:
    """The blocks of a page, or of a part of it."""
    return [
        Block(m["kind"], m["text"], m["path"] or "", (m["place"] or "").startswith("At"), m.start("text")) for m in _BLOCK.finditer(text)
    ]


def changed(text: str, diff: str) -> str:
    """`text` with a diff applied, whose hunks have no numbers: what one replaces occurs once."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.M):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        assert text.count(before) == 1, f"occurs {text.count(before)} times:\n{before}"
        text = text.replace(before, "".join(line[1:] for line in lines if line[0] != "-"))
    return text


def install(project: Path) -> None:
    """What installing a project does to its entry points."""
    described = tomllib.loads(project.read_text())["project"]
    metadata = project.parent / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n")
    groups = [[f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())] for group, entries in described["entry-points"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))


def shell(command: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Status and output of a command, errors among it."""
    run = subprocess.run(f"set -o pipefail; {command}", shell=True, executable="/bin/bash", cwd=folder, env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)  # fmt: skip
    return run.returncode, [line.rstrip() for line in run.stdout.splitlines()]


def matches(shown: list[str], said: list[str]) -> bool:
    """Whether what a page shows is what came out."""
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else r"[^\n]*?".join(map(re.escape, line.rstrip().split("…"))) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(line + "\n" for line in said)) is not None


class Session:
    """Runs the blocks of one page, and knows what each of them should show instead, if that is something else."""

    def __init__(self, page: Path, folder: Path, path: str) -> None:
        """`page` runs in `folder`, with the `examples` of the repository in it; commands are found on `path`."""
        self.page, self.folder, self.text = page, folder, page.read_text()
        self.space: dict[str, Any] = {"__name__": page.stem}
        self.environment = os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "COLUMNS": "120"}
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))

    def run(self) -> dict[Block, str]:
        """Runs all blocks in order; the text that ought to stand in those that show something else than comes out."""
        for block in blocks(self.text):
            if block.path.endswith(".py"):  # what another test has read from a file of this name
                sys.modules.pop(Path(block.path).stem, None)
        before = {*sys.modules}
        sys.path.insert(0, str(self.folder))
        try:
            return self._run()
        finally:
            sys.path.remove(str(self.folder))
            for name in {*sys.modules} - before:  # files of this page: the next one has others of the same names
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)):
                    del sys.modules[name]

    def _run(self) -> dict[Block, str]:
        wrong: dict[Block, str] = {}
        found = blocks(self.text)
        for block, after in zip(found, [*found[1:], None], strict=True):
            if block.path:
                block.put(self.folder)
                importlib.invalidate_caches()
            elif block.kind == "python":
                said = self._python(block)
                shows = after if after is not None and after.kind == "output" else None
                assert shows or not said, f"{self._where(block)} prints what the page does not show:\n" + "\n".join(said)
                if shows and not matches(shows.text.splitlines(), said):
                    wrong[shows] = "".join(line + "\n" for line in said)
            elif block.kind == "console":
                if (text := self._console(block)) is not None:
                    wrong[block] = text
            else:
                assert block.kind == "output", f"{self._where(block)}: a block of '{block.kind}' that nothing runs"
        return wrong

    def _where(self, block: Block) -> str:
        return f"{self.page.name}:{self.text.count(chr(10), 0, block.start)}"

    def _python(self, block: Block) -> list[str]:
        """Runs a block of Python, whose lines are those of the page; what it prints."""
        lines = self.text.count("\n", 0, block.start)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder):
            exec(compile("\n" * lines + block.text, str(self.page), "exec"), self.space)
        return [line.rstrip() for line in printed.getvalue().splitlines()]

    def _console(self, block: Block) -> str | None:
        """Runs the commands of a block; the block as it should be, if it shows something else."""
        text = ""
        for written in re.split(r"^(?=\$ )", block.text, flags=re.M):
            for command, shown in block._replace(text=written).commands():
                status, said = shell(command, self.folder, self.environment)
                failing = any("error:" in line for line in said)
                assert (status != 0) == failing, f"{self._where(block)}: $ {command}\nends with {status}:\n" + "\n".join(said)
                lines = written.splitlines()
                head = lines[: len(lines) - len(shown)]
                text += "".join(line + "\n" for line in head + (shown if matches(shown, said) else said))
        return None if text == block.text else text

    def mended(self, wrong: Mapping[Block, str]) -> str:
        """The page with the texts of these blocks."""
        text = self.text
        for block, new in sorted(wrong.items(), key=lambda item: -item[0].start):
            text = text[: block.start] + new + text[block.start + len(block.text) :]
        return text


def update(pages: list[Path]) -> None:
    """Writes what comes out into the pages."""
    from ktir.device.autoload import register
    from ktir.testing import serve_tools

    register()
    tools = Path(tempfile.mkdtemp())
    serve_tools(tools)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            session = Session(page.resolve(), Path(folder), path)
            page.write_text(session.mended(session.run()))


if __name__ == "__main__":
    update([Path(name) for name in sys.argv[1:]])
