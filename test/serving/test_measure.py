# pyright: reportMissingImports=false
"""Times of an engine: what the modelled clock says follows from the programs that ran."""

import json
from collections import Counter
from pathlib import Path

import pytest
from test_generate import engine, runner
from tiny import make
from vllm.distributed import cleanup_dist_env_and_memory

from ktir.perf.served import Load, drive, percentile
from ktir.target import DATASHEET
from ktir.tools.pages.ktir_perf import main


def test_the_clock_is_that_of_programs(tmp_path: Path) -> None:
    """One request alone: a prompt in one program, then a step for each token, with logits each; the clock of the chip is theirs."""
    llm = engine(make("llama", tmp_path))
    runs, cycles = Counter(runner(llm).runs), runner(llm).cycles
    answers, seconds = drive(llm, Load(requests=1, prompt=20, new=5))
    assert (runner(llm).runs - runs).total() == 5
    (answer,) = answers
    assert len(answer.tokens) == 5
    assert answer.at[-1] == pytest.approx(DATASHEET.microseconds(runner(llm).cycles - cycles) / 1e3)
    assert 0 < answer.first < answer.at[-1]
    assert seconds > 0
    apart, _ = drive(llm, Load(requests=3, prompt=20, new=5, apart=1e3))  # far apart: each is alone
    assert [a.first for a in apart] == pytest.approx([answer.first] * 3)
    assert apart[1].came > apart[0].at[-1]
    together, _ = drive(llm, Load(requests=9, prompt=20, new=5))  # on four seats: some wait
    assert max(a.first for a in together) > 2 * answer.first
    cleanup_dist_env_and_memory()


def test_percentiles() -> None:
    assert [percentile(range(1, 101), p) for p in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert [percentile([3.0], p) for p in (50, 99)] == [3.0, 3.0]


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # vLLM asks for the number of the file that is standard output.
    folder, table = make("llama", tmp_path / "model"), tmp_path / "table.json"
    asked = ["serve", folder, "--requests", "6", "--prompt", "10", "40", "--new", "4", "--check", "-o", str(table)]
    assert main(asked) == 0
    said = capfd.readouterr().out
    assert said.count("wrong 0.0%") == 2
    rows = json.loads(table.read_text())["rows"]
    assert len(rows) == 12
    assert all(0 < row["bound"] <= row["ms"] for row in rows)
    assert main(["compare", str(table), str(table)]) == 0
