"""Parts of `ktir-opt`; what it does as a program is tested with lit."""

from pathlib import Path

import pytest

from ktir.diagnostics import Diagnostic
from ktir.tools import ktir_opt
from ktir.tools._expected import mismatches
from ktir.tools._flags import Flag, UsageError, help_text, parse

FLAGS = (Flag("o", "output", "file"), Flag("verbose", "talk"), Flag("split", "cut", "marker", "//"))


def test_flags() -> None:
    line = parse(["-o", "x", "--cse", "in.mlir", "-verbose", "--split", "--a=b=c", "-"], FLAGS)
    assert line.values == {"o": "x", "verbose": "true", "split": "//"}
    assert line.others == [("cse", ""), ("a", "b=c")]
    assert line.positional == ["in.mlir", "-"]
    assert line.on("verbose")
    assert not parse(["--verbose=false"], FLAGS).on("verbose")
    assert parse(["-split=#"], FLAGS).values == {"split": "#"}
    assert parse(["-o=a,b"], FLAGS).list("o") == ["a", "b"]
    assert "-o=<file>" in help_text(FLAGS)
    assert "--split[=marker]" in help_text(FLAGS)


@pytest.mark.parametrize("words", [["-o"], ["--verbose=4"]])
def test_bad_flags(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(words, FLAGS)


def error(line: int, message: str) -> Diagnostic:
    return Diagnostic("error", message, f"f:{line}:1")


def test_expectations() -> None:
    text = """x
// expected-error@+1 {{bad}}
// expected-error-re@below {{of {{[0-9]+}} things}}
y
// expected-error@-1 {{a}b}} expected-note@-4 {{n}}
"""
    reported = [error(4, "so many: of 44 things"), error(3, "very bad"), error(4, "the a}b"), Diagnostic("note", "n", "f:1:1")]
    assert list(mismatches(text, 1, reported, "f")) == []
    assert [d.message for d in mismatches(text, 1, reported[1:], "f")] == ['expected error "of {{[0-9]+}} things" was not produced']
    assert [d.message for d in mismatches("", 1, [error(1, "bad")], "f")] == ["unexpected error: bad"]
    assert list(mismatches("", 1, [error(1, "bad")], "f", only_expected=True)) == []
    assert list(mismatches("// expected-error {{bad}}", 11, [error(11, "bad")], "f")) == []


def test_unplaced_diagnostics_can_be_expected() -> None:
    assert list(mismatches("// expected-error@unknown {{pass}}", 1, [Diagnostic("error", "the pass failed")], "f")) == []


def test_main_gives_a_status_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.mlir"
    bad.write_bytes(b"\xff\xfe")
    assert ktir_opt.main([str(bad)]) == 1
    assert "is not UTF-8 text" in capsys.readouterr().err
    bad.write_text("module {")
    assert ktir_opt.main([str(bad)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bad.mlir:1:7: error: " in captured.err
    bad.write_text("module {}")
    assert ktir_opt.main([str(bad), "-o", str(bad / "x")]) == 1
    assert "cannot open output file" in capsys.readouterr().err
