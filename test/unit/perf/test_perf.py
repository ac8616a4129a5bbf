"""Modelled times of language models: what a plan says, that two small models tell the time of a large one, and verdicts."""

from __future__ import annotations

import json
import mmap
import re
from pathlib import Path

import pytest
import torch

from ktir.diagnostics import KtirError
from ktir.perf import memory, modelled, plot
from ktir.perf.compare import compare, is_worse, write
from ktir.perf.modelled import Row, _layers, _logits, bound, measure
from ktir.perf.plan import Case, read
from ktir.target import DATASHEET
from ktir.tools.pages.ktir_perf import main

TINY = {
    "family": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "tie_word_embeddings": False,
}
PLAN = "models:\n  tiny:\n" + "".join(f"    {key}: {str(value).lower()}\n" for key, value in TINY.items())


def plan_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


def test_a_plan_is_a_product(tmp_path: Path) -> None:
    cases = read(plan_of(tmp_path, PLAN + "dtype: [float16, bfloat16]\nbatch: [1, 8]\nprompt: 16\ncontext: [32]\n"))
    assert len(cases) == len({case.name for case in cases}) == 8
    assert [(c.metric, c.tokens, c.context) for c in cases[:2]] == [("TTFT", 16, 16), ("ITL", 1, 32)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: {", "is no YAML"),
        ("models: {}\n", "expects 'models:'"),
        ("models: {a: {hidden_size: 1}}\nprompt: 3\n", "'family:'"),
        (PLAN, "expects lengths"),
        (PLAN + "prompt: [0]\n", "positive numbers for 'prompt'"),
        (PLAN + "prompt: 4\ndtype: float4\n", "expects a dtype"),
        (PLAN + "prompt: 4\nbatches: 4\n", "'batches'"),
    ],
)
def test_mistakes_in_a_plan(tmp_path: Path, text: str, said: str) -> None:
    path = plan_of(tmp_path, text)
    with pytest.raises(KtirError, match=f"^{re.escape(str(path))}: error: .*{re.escape(said)}"):
        read(path)


@pytest.mark.turn
@pytest.mark.parametrize("tokens", [pytest.param(16, marks=pytest.mark.long), 1])
def test_small_models_tell_a_large_one(tokens: int) -> None:
    """Against all five layers compiled as one program."""
    case = Case("tiny", TINY, "float16", 2, tokens, 32)
    whole = _layers(case, (None,) * 5).cycles + _logits(512, 256, torch.float16, 2).cycles
    assert measure(case).ms == pytest.approx(DATASHEET.microseconds(whole) / 1e3, rel=0.02)  # kernels overlap a little differently


@pytest.mark.turn
@pytest.mark.filterwarnings("error:the program has arguments")  # a window that is full is rolled
def test_layers_of_experts_and_windows_are_measured() -> None:
    """Two kinds of layers by turns: five layers in two programs are compiled for three."""
    sizes = {
        "family": "gpt_oss",
        "num_hidden_layers": 3,
        "head_dim": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 16,
    }
    row = measure(Case("experts", {**TINY, **sizes, "tie_word_embeddings": False}, "float16", 1, 1, 32))
    assert 0 < row.bound < row.ms  # of four experts two are read


def test_no_time_is_told_where_a_layer_more_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two layers are planned otherwise than three."""
    monkeypatch.setattr(modelled, "_layers", lambda case, kinds: modelled.Program(1000 // len(kinds), 0.0))
    case = Case("tiny", TINY, "float16", 2, 1, 32)
    with pytest.raises(KtirError, match=r"small models tell no time: 2 layers take 500 cycles, and with one of .* more 333"):
        measure(case)


def test_the_bound_is_of_memory_or_of_products() -> None:
    layer = 256 * 256 * 2 + 2 * 256 * 128 + 3 * 256 * 512
    inner, words = 5 * layer + 11 * 256, 512 * 256  # norms: two of each layer, and the last
    kept = 2 * 5 * 2 * 64 * 3 * 31
    assert bound(Case("tiny", TINY, "float16", 3, 1, 32)) == pytest.approx((inner + words + kept) * 2 / 204.8e6)
    tokens = 1000
    products = (inner * tokens + words) * 3
    assert bound(Case("tiny", TINY, "float16", 3, tokens, tokens)) == pytest.approx(products * 2 / 98.304e12 * 1e3)


def test_verdicts() -> None:
    def rows(**ms: float) -> list[Row]:
        return [Row(name, "ITL", value, 1.0, 1.0, 1.0) for name, value in ms.items()]

    changes = compare(rows(a=1.0, b=1.0, c=1.0, d=1.0), rows(a=1.02, b=0.9, c=1.001, e=1.0), 0.01)
    assert [change.verdict for change in changes] == ["slower", "faster", "equal", "missing", "new"]
    assert [is_worse([change]) for change in changes] == [True, False, False, True, False]


@pytest.mark.turn
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, slower = tmp_path / "table.json", tmp_path / "slower.json"
    assert main(["run", str(plan_of(tmp_path, PLAN + "context: 32\n")), "-o", str(table)]) == 0
    said = capsys.readouterr().out
    assert "tiny float16 batch 1 ITL 32" in said
    assert re.search(r"^tiny: programs generated in \d+\.\d s of CPU time$", said, re.M)
    (row,) = json.loads(table.read_text())["rows"]
    assert 0 < row["generation"] < row["host"]
    assert 0.1 < row["gigabytes"] < 24
    assert main(["run", str(tmp_path / "plan.yaml"), "--only", "tiny", "TTFT"]) == 0
    assert "tiny" not in capsys.readouterr().out
    assert main(["compare", str(table), str(table)]) == 0
    assert capsys.readouterr().out.endswith("verdict: no worse\n")
    slower.write_text(re.sub(r'"ms": ([\d.]+)', lambda m: f'"ms": {2 * float(m[1])}', table.read_text()))
    assert main(["compare", str(table), str(slower)]) == 1
    assert "2.000     slower" in capsys.readouterr().out
    slower.write_text("[]")
    assert main(["compare", str(table), str(slower)]) == 1
    assert capsys.readouterr().err == f"{slower}: error: is no table of ktir-perf\n"
    assert main(["compare", str(table), str(tmp_path / "none")]) == 1
    assert "cannot read or write" in capsys.readouterr().err


def test_memory_is_of_a_part() -> None:
    """A part that takes little is told as such behind one that took more."""
    memory.forget()
    with mmap.mmap(-1, 200_000_000) as held:  # what `bytearray` has may be left in the heap by another test, and stay there
        held[::4096] = b"x" * len(held[::4096])
        most = memory.most()
    memory.forget()
    assert most - memory.most() > 150_000_000


def test_names_of_lines_and_times_can_be_read() -> None:
    """Names of an engine differ in their middle; all times may lie within one decade."""
    names = [f"tiny-llama float16 seats 4 prompt {n} new 16 x 12 apart 0.5 ms TTFT p50" for n in (16, 64)]
    (axes,) = plot.draw([("served", [modelled.Row(name, "TTFT", 0.03, 0.025, 1.0, 1.0) for name in names])]).axes
    axes.figure.draw_without_rendering()
    assert len({words.get_text() for words in axes.get_yticklabels()}) == 2
    ticks = [words for which in ("major", "minor") for words in axes.xaxis.get_ticklabels(which=which) if words.get_text()]
    boxes = [words.get_window_extent() for words in ticks]
    assert len(boxes) > 1
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_picture_of_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has a bar as long as its time for each table, and a mark at its bound."""
    tables = [
        ("before", [Row("a", "ITL", 4.0, 1.0, 1.0, 1.0), Row("b", "TTFT", 9.0, 3.0, 1.0, 1.0)]),
        ("now", [Row("a", "ITL", 2.0, 1.0, 1.0, 1.0)]),
    ]
    (axes,) = plot.draw(tables).axes
    assert [bar.get_width() for bar in axes.patches] == [4.0, 9.0, 2.0]
    assert [line.get_xdata()[0] for line in axes.lines] == [1.0, 3.0, 1.0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    for name, rows in tables:
        write(rows, tmp_path / f"{name}.json")
    both = [str(tmp_path / f"{name}.json") for name, _ in tables]
    assert main(["plot", *both, "-o", str(tmp_path / "p.svg")]) == 0
    assert "</svg>" in (tmp_path / "p.svg").read_text()
    assert main(["plot", *both, "-o", str(tmp_path / "p.txt")]) == 1
    write([], tmp_path / "none.json")
    assert main(["plot", str(tmp_path / "none.json"), "-o", str(tmp_path / "p.svg")]) == 1
    assert capsys.readouterr().err.endswith("error: there is no line to be drawn\n")
