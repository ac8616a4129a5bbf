"""What a shell offers after the script of `ktir-completion`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from ktir import registry
from ktir.tools.shared.table import FLAGS
from ktir.tools.shell import completion

ROOT = Path(__file__).parents[4]


@cache
def script(shell: str) -> str:
    return completion.script(shell)


def offered(tmp_path: Path, *words: str) -> list[str]:
    """What bash offers for the last word of a command line."""
    (tmp_path / "script").write_text(script("bash"))
    listed = " ".join(f"'{word}'" for word in words)
    ask = f"source ./script; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; "
    ask += f"f=$(complete -p {words[0]} | sed 's/.* -F \\([^ ]*\\) .*/\\1/'); $f; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()


def test_bash(tmp_path: Path) -> None:
    (tmp_path / "kernel.mlir").touch()
    (tmp_path / "package").mkdir()
    assert "kernel.mlir" in offered(tmp_path, "ktir-opt", "ker")
    assert {"--ktir-tile", "--ktir-to-allocated"} <= set(offered(tmp_path, "ktir-opt", "--ktir-t"))
    assert set(offered(tmp_path, "ktir-opt", "--mlir-timing-display", "")) >= {"list", "tree"}
    assert "--against" in offered(tmp_path, "ktir-run", "--ag")
    assert offered(tmp_path, "ktir-report", "") == ["package"]
    assert "--predict-only" in offered(tmp_path, "ktir-explain", "--")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_all_tools_are_in_it(shell: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {parser.prog for parser in completion.parsers()} == set(scripts)
    assert [name for name in scripts if name not in script(shell)] == []
    names = [*registry.pass_modules(), *(flag.name for flag in FLAGS if len(flag.name) > 1)]
    assert [name for name in names if name not in script(shell)] == []


def test_mistakes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(["csh"]) == 1
    assert capsys.readouterr().err == "ktir-completion: error: expected one of bash, zsh, tcsh, but got 'csh'\n"
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert completion.main(["bash"]) == 1
    assert capsys.readouterr().err == "ktir-completion: error: needs the package 'shtab': pip install 'ktir[shell]'\n"
