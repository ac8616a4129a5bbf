"""`conformance/counts.py` counts what becomes of kernels: an equal one, one that differs, those that are refused at each step."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "conformance"))
import counts as counted  # noqa: E402  # pyright: ignore[reportMissingImports]

ADD = (ROOT / "examples" / "add.mlir").read_text()


def test_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "equal": ADD.replace("(%x: index, %y: index", "(\n      %x: index,\n      %y: index"),
        "unread": ADD.replace("arith.addf %a, %b", "arith.addf %a, %q"),
        "raced": ADD.replace("%vo[%t, %c0]", "%vo[%c0, %c0]"),
        "wide": ADD.replace("f16", "f64"),
        "nothing": "// no function\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.mlir").write_text(text)
    assert counted.main(["--others", "--list", str(tmp_path)]) == 0
    first, _, row, *said = capsys.readouterr().out.splitlines()
    assert [c.strip() for c in first.split("|")[3:-1]] == list(counted.STEPS)
    assert [int(c) for c in row.split("|")[2:-1]] == [4, 3, 2, 1, 1, 0, 0, 0]
    words = {line.split(": ")[1]: line.split(": ", 2)[2] for line in said}
    assert words["equal.mlir"] == "same bits"
    assert words["unread.mlir"].startswith("refused: use of undeclared SSA value name")
    assert words["raced.mlir"].startswith("read: 'ktdp.store' op writes element")
    assert "f64" in words["wide.mlir"]
    assert words["wide.mlir"].startswith("executed: ")


@pytest.mark.parametrize(
    ("one", "other", "step"),
    [
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), "same bits"),
        (np.array([1.0, 1000.0]), np.array([1.5, 1000.0]), "within tolerance"),
        (np.array([1.0, 1000.0]), np.array([1.0, 1003.0]), "different"),
        (np.array([1.0, np.inf]), np.array([1.0, 1.0]), "different"),
        (np.array([1, 2]), np.array([1, 3]), "different"),
    ],
)
def test_what_differs(one: np.ndarray, other: np.ndarray, step: str) -> None:
    assert counted.compared("k", [one], [other]).step == step


def test_a_fault_of_ours_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(counted.ktir_run, "main", fails)
    (tmp_path / "add.mlir").write_text(ADD)
    assert counted.main(["--others", str(tmp_path)]) == 1
