"""A fault of ours, in the compiler or at a launch, is a warning with what reproduces it, and the right result all the same; with
fallback="error" it is the error. What is mutated in place is mutated once.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor.codecache import PyCodeCache
from torch._inductor.utils import fresh_cache

from ktir import config
from ktir.diagnostics import KtirError, OutOfRange, Unsupported
from ktir.emulator.machine import Machine
from ktir.lowering.inductor import wrapper
from ktir.lowering.inductor.running import faults
from ktir.registry import pass_class
from ktir.runtime import cache, failures, metrics, notices
from ktir.runtime.logical import LogicalExecutable

SAID = "the fault lies in ktir, not in the model; see it again with "


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path / "packages"))
    monkeypatch.setattr(cache, "_loaded", {})
    torch._dynamo.reset()
    notices.forget()
    with fresh_cache(), torch.no_grad():
        yield


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="spyre", dynamic=False, options={"cores": 2, **options})


def ramp(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) / 7 - 2).half()


def failing(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, error: Exception) -> list[int]:
    """Whatever calls it gets an error; how often it was called."""
    calls: list[int] = []

    def fail(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise error

    monkeypatch.setattr(place, name, fail)
    return calls


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y.relu()) * 2


def between(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two programs that write to the same input, and an operator of PyTorch between them."""
    x.add_(1)
    counts = (x + y).float().histc(4)
    x.mul_(2)
    return x + counts.sum()


def same(run: Any, function: Callable[..., Any], calls: int = 2) -> None:
    """Results and inputs as in eager PyTorch, call after call."""
    mine, theirs = [ramp(5, 70), ramp(5, 70)], [ramp(5, 70), ramp(5, 70)]
    for _ in range(calls):
        torch.testing.assert_close(run(*mine), function(*theirs))
        torch.testing.assert_close(mine, theirs)


FAULTS = [KtirError("loops that do not fit"), IndexError("list index out of range")]


@pytest.mark.parametrize("fault", FAULTS, ids=["error", "exception"])
def test_a_fault_of_the_compiler(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception) -> None:
    """The executor runs the program; a warm start says the same; the file reproduces it."""
    failing(monkeypatch, pass_class("ktir-tile"), "run", fault)
    said = []
    for _ in range(2):
        torch._dynamo.reset()
        PyCodeCache.cache_clear()
        notices.forget()
        caplog.clear()
        with metrics.counted() as launches:
            same(compiled(add), add)
        assert (launches().chip, launches().executor) == (0, 2)
        said.append(re.sub(r"/reproducers/\w+", "", "".join(r.getMessage() for r in caplog.records if r.name == "ktir")))
    assert said[0] == said[1]
    assert caplog.text.count(SAID) == 1
    assert re.search(f":[0-9]+:1: warning: (pass .* failed in \\S+: IndexError: )?{fault.args[0]}\n", caplog.text)
    assert "in pass 'ktir-tile'" in caplog.text
    assert 'fallback="error"' in caplog.text
    found = re.search(SAID + r"ktir-opt --run-reproducer (\S+)", caplog.text)
    assert found
    monkeypatch.undo()
    tool = Path(sys.executable).with_name("ktir-opt")
    shown = subprocess.run([tool, "--run-reproducer", found[1]], capture_output=True, text=True, check=False)
    shutil.rmtree(Path(found[1]).parent)
    assert "spyre.program" in shown.stdout, shown.stderr


@pytest.mark.parametrize("fault", FAULTS, ids=["error", "exception"])
def test_a_fault_of_the_compiler_is_an_error_if_asked(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    failing(monkeypatch, pass_class("ktir-tile"), "run", fault)
    with pytest.raises(Exception, match=fault.args[0]) as caught:
        compiled(add, fallback="error")(ramp(5, 70), ramp(5, 70))
    text = str(caught.value)
    assert "in pass 'ktir-tile'" in text
    assert 'options={"engine": "ktir"}' in text
    found = re.search(SAID + r"ktir-opt --run-reproducer (\S+)", text)
    assert found
    shutil.rmtree(Path(found[1]).parent)


def test_a_fault_of_the_translation(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without a logical form no engine of ours has a result."""
    failing(monkeypatch, wrapper, "write", KeyError("i0"))
    same(compiled(add), add)
    assert "warning: the translation to KTIR failed: KeyError: 'i0'" in caplog.text
    assert "the whole graph runs in PyTorch" in caplog.text
    torch._dynamo.reset()
    with pytest.raises(Exception, match="the translation to KTIR failed"):
        compiled(add, fallback="error")(ramp(5, 70), ramp(5, 70))


def test_a_fault_at_a_launch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """One try on the chip, one warning; the command shows it again."""
    with monkeypatch.context() as patch:
        calls = failing(patch, Machine, "launch", KtirError("two cores write one element"))
        same(compiled(add), add, calls=3)
    assert len(calls) == 1
    assert caplog.text.count("warning: two cores write one element") == 1
    (command,) = re.findall(SAID + r"(ktir-launch .*)", caplog.text)
    words = shlex.split(command)
    tool = Path(sys.executable).with_name(words[0])
    shown = subprocess.run([tool, *words[1:], f"-oarg0_1={tmp_path / 'x.npy'}"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    expected = ramp(5, 70) + ramp(5, 70).relu()
    assert np.array_equal(np.load(tmp_path / "x.npy").reshape(5, 70), expected.numpy())
    shutil.rmtree(Path(words[1]).parent)


def test_a_fault_at_a_launch_is_an_error_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    run = compiled(add, fallback="error")
    failing(monkeypatch, Machine, "launch", KtirError("two cores write one element"))
    x = ramp(5, 70)
    with pytest.raises(KtirError, match="two cores write one element") as caught:
        run(x, ramp(5, 70))
    assert SAID in str(caught.value)
    assert 'without fallback="error"' in str(caught.value)
    assert torch.equal(x, ramp(5, 70))


def test_data_out_of_range(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each launch is tried on the chip: the next one's data may be in range. One warning."""
    with monkeypatch.context() as patch:
        calls = failing(patch, Machine, "launch", OutOfRange("argument 'x' has 3000000000"))
        run = compiled(add)
        same(run, add, calls=3)
    assert len(calls) == 3
    assert caplog.text.count("warning: argument 'x' has 3000000000") == 1
    assert SAID not in caplog.text
    with metrics.counted() as launches:
        same(run, add)
    assert launches().chip == 2
    failing(monkeypatch, Machine, "launch", OutOfRange("argument 'x' has 3000000000"))
    torch._dynamo.reset()
    with pytest.raises(OutOfRange, match=r'3000000000\n(.|\n)*without fallback="error"'):
        compiled(add, fallback="error")(ramp(5, 70), ramp(5, 70))


@pytest.mark.parametrize("function", [add, between])
def test_no_engine_has_a_result(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, function: Any) -> None:
    """PyTorch has: from the same inputs, though the first program has written to one."""
    original, launches = LogicalExecutable.__call__, []

    def second(self: Any, *tensors: Any, **keywords: Any) -> None:
        launches.append(1)
        if len(launches) == (1 if function is add else 2):
            raise KtirError("no element is written")
        original(self, *tensors, **keywords)

    monkeypatch.setattr(LogicalExecutable, "__call__", second)
    same(compiled(function, engine="ktir"), function, calls=3)
    assert caplog.text.count("warning: no element is written") == 1
    assert "the whole graph runs in PyTorch" in caplog.text


def _indexed(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = table[i]
    return torch.layer_norm(x, x.shape[-1:])


def _embedded(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = torch.nn.functional.embedding(i, table)
    return torch.layer_norm(x, x.shape[-1:])


def _gathered(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = table.gather(0, i[:, None])
    return torch.softmax(x, -1)


def _put(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x = (table * 2).index_add(0, i, table)
    return torch.softmax(x, -1)


@pytest.mark.parametrize("function", [_indexed, _embedded, _gathered, _put])
def test_an_index_out_of_range_is_placed_where_it_is_used(function: Any) -> None:
    """Not where the loops end that it was fused into."""
    for engine in ("spyre", "ktir"):
        torch._dynamo.reset()
        with pytest.raises((IndexError, RuntimeError), match=rf"{Path(__file__).name}:{function.__code__.co_firstlineno + 1}:1: error: "):
            compiled(function, engine=engine)(ramp(5, 70), torch.tensor([1, 7, 1, 2, 3]))


def test_errors_of_the_data_are_errors() -> None:
    """An index out of range fails in PyTorch too; nothing is written."""
    for engine in ("spyre", "ktir"):
        torch._dynamo.reset()
        run = compiled(lambda x, i: x.add_(x[i]), engine=engine)
        x = ramp(5, 70)
        with pytest.raises(IndexError, match="index 7") as caught:
            run(x, torch.tensor([1, 7, 1, 2, 3]))
        assert SAID not in str(caught.value)
        assert torch.equal(x, ramp(5, 70))
        torch.testing.assert_close(run(x, torch.tensor([1, 1, 1, 2, 3])), ramp(5, 70) + ramp(5, 70)[[1, 1, 1, 2, 3]])


@pytest.mark.parametrize("category", ["compile", "runtime_launch", "unimplemented"])
def test_what_fails_leaves_a_report(monkeypatch: pytest.MonkeyPatch, category: str) -> None:
    error = Unsupported("no such loops") if category == "unimplemented" else KtirError("loops that do not fit")
    place, name = (Machine, "launch") if category == "runtime_launch" else (pass_class("ktir-tile"), "run")
    failing(monkeypatch, place, name, error)
    assert failures.latest() is None
    same(compiled(add), add)
    report = failures.latest()
    assert report is not None
    assert report["failure"]["category"] == category
    assert str(error) in report["failure"]["message"]
    assert report["runtime"]["kernel_name"]


def test_what_reproduces_a_fault_runs_passes_of_others_too(tmp_path: Path) -> None:
    """Where there are some, the fault may be theirs, and is not seen again without them."""
    with config.patch(logical_passes="cse,canonicalize"):
        said = faults.reproducer("module {}", tmp_path)
    assert said.startswith("the fault lies in ktir or in a pass of 'logical_passes', not in the model; see it again with ")
    assert re.search(r'pipeline: "builtin.module\(cse,canonicalize,', (tmp_path / "program.reproducer.mlir").read_text())
