"""Parts of `ktir-opt`; what it does as a program is tested with lit."""

from pathlib import Path

import pytest

from ktir.diagnostics import Diagnostic, Remark
from ktir.tools import ktir_opt
from ktir.tools.shared.expected import mismatches
from ktir.tools.shared.flags import Flag, UsageError, help_text, parse
from ktir.tools.shared.remarks import Selection, yaml
from ktir.tools.shared.table import FLAGS as TABLE

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


def test_choices_and_numbers() -> None:
    flags = (Flag("form", "shape", "a|b", choices=("a", "b")), Flag("limit", "most", "number"))
    assert parse(["--form=b"], flags).values == {"form": "b"}
    with pytest.raises(UsageError, match="'--form=c': expected a or b"):
        parse(["--form=c"], flags)
    assert parse(["--limit=4"], flags).number("limit") == 4
    assert parse([], flags).number("limit") is None
    with pytest.raises(UsageError, match="'--limit=-4': expected a number"):
        parse(["--limit=-4"], flags).number("limit")


REMARKS = [
    Remark("passed", "ktir-tile", "tile 64x64 chosen", "f.mlir:3:7"),
    Remark("missed", "ktir-tile", "it's misaligned", "f.mlir:3:7"),
    Remark("analysis", "ktir-inline", "4 calls"),
]


@pytest.mark.parametrize(
    ("words", "picked"),
    [
        ([], ""),
        (["--remarks"], "012"),
        (["--remarks-filter=tile$"], "01"),
        (["--remarks-filter-passed=ktir"], "0"),
        (["--remarks-filter-missed=ktir"], "1"),
        (["--remarks-filter-failed=ktir"], ""),
        (["--remarks-filter-analyse=."], "2"),
        (["--remarks-filter-analyse=.", "--remarks-filter-missed=tile"], "12"),
        (["--remarks", "--remark-policy=final"], "12"),
        (["--remarks", "--remark-policy=all"], "012"),
    ],
)
def test_selection_of_remarks(words: list[str], picked: str) -> None:
    assert Selection.of(parse(words, TABLE)).pick(REMARKS) == [REMARKS[int(i)] for i in picked]


def test_a_bad_pattern_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="remarks-filter=\\("):
        Selection.of(parse(["--remarks-filter=("], TABLE))


def test_remarks_as_yaml() -> None:
    assert yaml(REMARKS[1:]) == (
        "--- !Missed\nPass:            ktir-tile\nName:            ktir-tile\nDebugLoc:        { File: 'f.mlir', Line: 3, Column: 7 }\n"
        "Function:        '<unknown function>'\nArgs:\n  - String:          'it''s misaligned'\n...\n"
        "--- !Analysis\nPass:            ktir-inline\nName:            ktir-inline\n"
        "Function:        '<unknown function>'\nArgs:\n  - String:          '4 calls'\n...\n"
    )


SILENT = {"mlir-disable-threading", "mlir-print-ir-module-scope", "mlir-pass-pipeline-local-reproducer", "mlir-print-assume-verified"}


def test_every_flag_has_a_test() -> None:
    here = Path(__file__).parents[2]
    texts = [p.read_text() for p in (*(here / "lit").rglob("*.mlir"), *(here / "lit").rglob("*.test"), *Path(__file__).parent.glob("*.py"))]
    given = "\n".join(texts)
    missing = [flag.name for flag in TABLE if f"-{flag.name}" not in given and flag.name not in SILENT]
    assert not missing
