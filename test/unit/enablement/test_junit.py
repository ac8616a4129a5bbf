"""Runs as JUnit XML: reports that pytest writes, and what is written here and read again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ktir.diagnostics import KtirError
from ktir.enablement import junit, outcomes
from ktir.enablement.outcomes import Run, State, Status, Suite, Variant
from ktir.tools.pages.ktir_models import main

TESTS = """
import sys, pytest
def test_model_ops_db_torch_mul__1_spyre_float16(): pass
@pytest.mark.xfail
def test_model_ops_db_torch_add__2_spyre_bfloat16(): pass
@pytest.mark.xfail(strict=True)
def test_model_ops_db_torch_add__3_spyre_int64(): pass
@pytest.mark.xfail(reason="no kernel & none < planned")
def test_model_ops_db_torch_Tensor_contiguous__49_spyre_float16(): assert False
def test_model_ops_db_torch_nn_functional_linear__23_spyre_float16(): assert False
@pytest.fixture
def broken(): raise OSError
def test_model_ops_db_torch___eq____43_spyre_int64(broken): pass
def test_model_ops_db_torch_bitwise_and__5_spyre_int64():
    print("w.py:1: FallbackWarning: aten.bitwise_and is falling back to cpu", file=sys.stderr)
@pytest.mark.skip("Filtered by --model")
def test_model_ops_db_torch_sub__6_spyre_float16(): pass
def test_model_modules_db_torch_nn_LayerNorm__7_spyre_float16(): pass
def test_of_something_else(): pass
"""


def test_a_report_of_pytest(tmp_path: Path) -> None:
    """Each way in which a test ends, by pytest itself."""
    (tmp_path / "test_ops.py").write_text(TESTS)
    report = tmp_path / "granite-4.1-8b_spyre.xml"
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_logging=all"]
    subprocess.run([sys.executable, "-m", "pytest", *options, "test_ops.py"], cwd=tmp_path, check=False, capture_output=True)
    (suite,) = junit.read(report).suites
    assert suite.name == "granite-4.1-8b_spyre"
    assert {(v.operation, v.classification): (v.status, v.input_dtypes) for v in suite.variants if v.operation != "torch.add"} == {
        ("torch.mul", "operator"): (Status.XPASS, ["float16"]),
        ("torch.Tensor.contiguous", "operator"): (Status.XFAIL, ["float16"]),
        ("torch.nn.functional.linear", "operator"): (Status.XFAIL, ["float16"]),
        ("torch.__eq__", "operator"): (Status.XFAIL, ["int64"]),
        ("torch.bitwise_and", "operator"): (Status.FALLBACK, ["int64"]),
        ("torch.nn.LayerNorm", "module"): (Status.XPASS, ["float16"]),
    }
    assert [v.status for v in suite.variants if v.operation == "torch.add"] == [Status.XPASS, Status.XPASS]
    reasons = {v.operation: v.reason for v in suite.variants}
    assert reasons["torch.Tensor.contiguous"] == "no kernel & none < planned"
    assert reasons["torch.bitwise_and"] == "aten.bitwise_and is falling back to cpu"
    assert suite.left == {"skipped: Filtered by --model": 1, "tests whose names tell no operator": 1}
    assert suite.states()["operator", "torch.bitwise_and"] is State.CPU_FALLBACK


def full() -> Run:
    """With what XML has no place for, or a meaning of its own."""
    odd = Variant(
        "torch.cat", "operator", 't,"1"\n\0<a>', Status.XFAIL, [[[2, 3]]], [[3, 1]], ["float16"], ["dim=<1>\x1b"], [[4, 3]], 3, "&\0\ud800"
    )
    fell = Variant("torch.sub", "operator", "t", Status.FALLBACK, reason="aten.sub is falling back to cpu", where="PyTorch")
    suites = [
        Suite("a <b>\0", [odd, fell], 2.25, 124, {"torch.x: why": 2}, "stopped"),
        Suite("b", [Variant("m", "module", "t", Status.XPASS)]),
    ]
    return Run("r", "abc", "2026-01-02T03:04:05Z", suites)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    place, run = tmp_path / "run.xml", full()
    junit.write(run, place)
    found = junit.read(place)
    run.suites[0].name = found.suites[0].name  # a name is an attribute, and XML has no NUL
    assert found == run
    cases = list(ElementTree.parse(place).getroot().iter("testcase"))
    assert [len(case.findall("skipped")) for case in cases] == [1, 0, 0]
    assert [suite.get("tests") for suite in ElementTree.parse(place).getroot()] == ["2", "1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is no XML: no element found"),
        (b"{}", "is no XML"),
        (b"\xff\xfe", "is no text in UTF-8"),
        (b"<html/>", "expects JUnit's <testsuites> with a <testsuite>, but got <html>"),
        (b"<testsuites/>", "expects JUnit's <testsuites> with a <testsuite>"),
        (b'<testsuite time="x"/>', "is no report of variants: ValueError"),
        (b'<testsuite><properties><property name="left" value="3"/></properties></testsuite>', "is no report of variants: TypeError"),
    ],
)
def test_what_is_no_report(text: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "no.xml").write_bytes(text)
    with pytest.raises(KtirError, match=rf"no\.xml: error: {said}"):
        junit.read(tmp_path / "no.xml")


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(KtirError, match=r"cannot open '.*': No such file"):
        junit.read(tmp_path / "none.xml")
    with pytest.raises(KtirError, match=r"cannot write '.*': Is a directory"):
        junit.write(full(), tmp_path)


def test_the_command_takes_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside runs of its own form, and several as one."""
    monkeypatch.chdir(tmp_path)
    worse = full()
    worse.suites[1].variants = [Variant("m", "module", "t", Status.XFAIL)]
    junit.write(full(), Path("a.xml"))
    outcomes.write(worse, Path("b.json"))
    assert main(["compare", "a.xml", "b.json"]) == 1
    assert "regression: b: m: spyre_enabled -> not_implemented" in capsys.readouterr().out
    junit.write(Run("s", suites=[Suite("c", [Variant("torch.exp", "operator", "t", Status.XPASS)])]), Path("c.xml"))
    assert main(["page", "a.xml", "c.xml", "-o", "p.html"]) == 0
    page = Path("p.html").read_text()
    assert "torch.exp" in page
    assert "torch.sub" in page
    assert main(["page", "b.xml"]) == 1
    assert capsys.readouterr().err == "error: cannot open 'b.xml': No such file or directory\n"
