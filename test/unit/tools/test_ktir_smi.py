"""`ktir-smi` beside programs that run."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ktir.runtime.monitor import files, sampling
from ktir.runtime.monitor.writer import Monitor
from ktir.runtime.time.steps import Step
from ktir.tools import ktir_smi

KERNEL = """
from ktir import lang

@lang.kernel
def double(x, y):
    y[:] = x[:] + x[:]
"""
RUNNING = """
import sys
import numpy as np
from kernels import double
from ktir.runtime import metrics
from ktir.runtime.monitor import writer

x = np.ones((4, 64), np.float16)
y = np.zeros_like(x)
model = double.using(on="chip")
model(x, y)
writer.own.write()
print("ready", flush=True)
for line in sys.stdin:
    with metrics.counted() as launches:
        for _ in range(int(line)):
            model(x, y)
    writer.own.write()
    print(launches().chip, flush=True)
"""


def test_launches_are_shown_within_a_period(tmp_path: Path) -> None:
    """What ran between two samples is in the second one; the process itself says how much that was."""
    pattern = str(tmp_path / "m.%BUSID")
    (tmp_path / "kernels.py").write_text(KERNEL)
    places = os.pathsep.join([str(tmp_path), str(Path(ktir_smi.__file__).parents[2])])
    environment = {**os.environ, files.VARIABLE: pattern, "PYTHONPATH": places}
    with subprocess.Popen(
        [sys.executable, "-c", RUNNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as model:
        assert model.stdin
        assert model.stdout
        assert model.stdout.readline() == "ready\n"
        shown = []
        (path,) = files.found(pattern)
        source = sampling.Source(0, path)
        for n in (7, 0, 40):
            model.stdin.write(f"{n}\n")
            model.stdin.flush()
            assert model.stdout.readline() == f"{n}\n"
            shown.append(source.sample((None, None)))
        model.stdin.close()
    assert [row["launches"] for row in shown] == ["7", "0", "40"]
    assert [float(row["busy"]) > 0 for row in shown] == [True, False, True]
    assert {row["pid"] for row in shown} == {str(model.pid)}
    assert files.found(pattern) == []  # taken away at the end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-g", "X"], "expects groups of D, R, U, P, L, A, but got 'X'"),
        (["-g", "DM"], "group 'M' (rsvmem) is of an older runtime"),
        (["--mem-details"], "'--mem-details' shows parts of rsvmem, which an older runtime has; group U has"),
        (["-d", "0.001"], "'--delay' expects 0.01 to 86400 seconds, but got 0.001"),
        (["-d", "inf"], "'--delay' expects 0.01 to 86400 seconds, but got inf"),
        (["-n", "0"], "'--count' expects at least 1 sample, but got 0"),
        ([], "no process runs on a card that writes"),
        (["/nowhere/m"], "cannot read /nowhere/m: No such file or directory"),
    ],
)
def test_mistakes(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "m.%BUSID"))
    assert ktir_smi.main(arguments) == 1
    assert said in capsys.readouterr().err


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AIUSMI_OPTS", "-n 'a")
    assert ktir_smi.main([]) == 1
    assert "AIUSMI_OPTS expects options as on a command line" in capsys.readouterr().err


def test_tables_and_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "m.%BUSID"))
    monkeypatch.setenv("AIUSMI_OPTS", "-g D -d 0.01")
    monitor = Monitor()
    for card in (0, 1):
        monitor.open(card).append(Step("H2D", 1, 1.0))
    monitor.write()
    try:
        assert ktir_smi.main(["-s", "-n", "2", "-g", "A"]) == 0
        rows = list(csv.reader(capsys.readouterr().out.splitlines()))
        assert [row[0] for row in rows] == ["ID", "0", "1", "0", "1"]
        assert {len(row) for row in rows} == {22}
        assert ktir_smi.main(["-i", "1", "-n", "2"]) == 0
        listed, file, head, *samples = capsys.readouterr().out.splitlines()
        assert (listed, file) == ("#MetricFiles", f"# 1 {files.found(str(tmp_path / 'm.%BUSID'))[1]}")
        assert head.split()[:8] == ["#ID", "Date", "Time", "hostcpu", "hostmem", "pwr", "gtemp", "busy"]
        assert [len(line.split()) for line in samples] == [14, 14]
        assert {len(line) for line in samples} == {len(head)}
        assert ktir_smi.main(["-n", "1", "-i", "2"]) == 1
        assert ktir_smi.main(["-n", "1", "-s", "-f", str(tmp_path / "out.csv")]) == 0
        assert (tmp_path / "out.csv").read_text().startswith("ID,Date,Time,")
    finally:
        monitor.close()
