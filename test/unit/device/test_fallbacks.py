"""Operators on tensors of the device that have no program: on the host with a warning, or an error as the host has it."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from eager_calls import close, half, hearing
from torch import nn
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

from ktir import config
from ktir.device.operators import eager, fallback
from ktir.device.operators.fallback import FallbackWarning
from ktir.emulator.machine import Machine
from ktir.registry import pass_class
from ktir.runtime import failures, metrics, notices


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[str]]:
    with hearing() as found:
        yield found


def test_a_number_goes_to_the_host_with_what_falls_back(heard: list[str]) -> None:
    x = torch.linspace(-3, 3, 9, dtype=torch.float64)
    close(x.to("spyre").remainder(2.0), x.remainder(2.0))
    heard.append("aten.remainder.Scalar is falling back to cpu (the chip has no float64)")


def test_what_cannot_be_written() -> None:
    whole = torch.arange(6).to("spyre")
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type"):
        whole.add_(1.5)
    with pytest.raises(RuntimeError, match="output with shape"):
        half(1, 3).to("spyre").add_(half(4, 3).to("spyre"))
    assert whole.tolist() == list(range(6))


def test_operands_on_two_devices() -> None:
    x = half(4)
    for call in (torch.add, torch.mul, torch.dot):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            call(x.to("spyre"), x)
    for call in (lambda y: torch.nonzero(x.to("spyre"), out=y.long()), lambda y: y.add_(x.to("spyre")[0])):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            call(torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.add(x, x, out=x.to("spyre"))
    close(torch.arange(4, out=torch.empty(0, dtype=torch.int64, device="spyre")), torch.arange(4))
    close(x.to("spyre") + torch.tensor(1.0, dtype=torch.float16), x + 1)
    close(x.to("spyre")[torch.tensor([1, 2])], x[1:3])
    for index in (torch.tensor([1, 2]), x > 0):
        for call in (lambda i: x[i], lambda i: x.index_put((i,), x[0])):
            with pytest.raises(RuntimeError, match=r"either on cpu or on the same device as the indexed tensor \(cpu\)"):
                call(index.to("spyre"))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x.to("spyre")[:2] = x[:2].to("spyre").index_put((torch.tensor([0]),), x[:1])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.normal(x.to("spyre"), x.abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # on the chip, and on the host
@pytest.mark.parametrize(
    "call",
    [
        torch.neg,
        lambda x, out: torch.sum(x, 0, out=out),
        lambda x, out: torch.add(x, 1, out=out),
        lambda x, out: torch.mm(x, x.t(), out=out),
    ],
)
def test_results_of_another_size_have_the_order_of_the_host(call: Any, dtype: torch.dtype) -> None:
    x = torch.arange(12, dtype=dtype).view(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = (call(t.t(), out=torch.empty(2, 0, dtype=dtype, device=t.device)) for t in (x.to("spyre"), x))
    assert found.stride() == expected.stride()
    assert torch.equal(found.cpu(), expected)


REFUSED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "place of the largest": (torch.argmax, torch.tensor([True, False])),
    "fractions of integers": (lambda x: x.frac_(), torch.arange(3)),
    "a function of integers": (F.silu, torch.arange(3)),
    "sums written to bools": (lambda x: x.cumsum_(0), torch.tensor([True, False])),
    "rounding": (lambda x: x.round(decimals=1), torch.arange(3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_host_refuses(name: str) -> None:
    """Types that PyTorch has no kernel for on the host have none here, in the same words."""
    function, x = REFUSED[name]
    with pytest.raises((RuntimeError, NotImplementedError)) as theirs:
        function(x.clone())
    with config.patch(fallback="error"), pytest.raises(theirs.type, match=re.escape(str(theirs.value))) as ours:
        function(x.to("spyre"))
    assert ours.value.__context__ is None


def test_a_fault_says_what_reproduces_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the compiler, and at a launch, which is tried once."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(eager, "_programs", eager.OrderedDict())
    monkeypatch.setattr(eager, "_in_vain", eager.Counter())
    x, calls = half(3, 21).to("spyre"), []

    def fail(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise IndexError("list index out of range")

    with warnings.catch_warnings(record=True) as said, fresh_cache():
        warnings.simplefilter("always")
        with monkeypatch.context() as patch:
            patch.setattr(pass_class("ktir-tile"), "run", fail)
            close(x.tan(), x.cpu().tan())
        with monkeypatch.context() as patch:
            patch.setattr(Machine, "launch", fail)
            close(x.sinh(), x.cpu().sinh())
            close(x.sinh(), x.cpu().sinh())
    assert len(calls) == 2
    found = [re.search(r"IndexError: .*; the fault lies in ktir, not in the model; see it again with (.*)\)", str(w.message)) for w in said]
    assert [m[1].split()[0] for m in found if m] == ["ktir-opt", "ktir-launch"]


def test_numbers_that_integers_do_not_hold() -> None:
    """What C++ leaves open is the host's to answer."""
    x = torch.tensor([float("nan"), float("inf"), -1e12, 1e12, 2.0**63])
    for dtype in (torch.int64, torch.int32):
        close(x.to("spyre").to(dtype), x.to(dtype))


def test_falls_back_with_a_warning(heard: list[str]) -> None:
    x = torch.randn(5, dtype=torch.float64)
    with metrics.counted() as launches:
        for _ in range(2):
            close(torch.sin(x.to("spyre")), torch.sin(x))
    assert launches() == metrics.Launches(torch=2)
    heard.append("aten.sin is falling back to cpu (the chip has no float64)")


def test_a_warning_is_placed_at_the_users_line() -> None:
    fallback._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.zeros(3, dtype=torch.float64, device="spyre").cos()
    assert [w.filename for w in caught] == [__file__]


def test_a_fallback_can_be_an_error() -> None:
    x = torch.zeros(5, dtype=torch.float64, device="spyre")
    with config.patch(fallback="error"), pytest.raises(NotImplementedError, match=r"'aten.sin' has no program on the device 'spyre'"):
        torch.sin(x)
    with config.patch(fallback="error"):
        close(torch.zeros(2).to("spyre") + 1, torch.ones(2))


def test_integers_that_the_chip_does_not_hold(heard: list[str]) -> None:
    x = torch.tensor([1 << 40, 3])
    close(x.to("spyre") + 1, x + 1)
    reason = "argument 'arg0_1' expects integers of -1073741824 to 1073741823, but has 1099511627776"
    heard.append(f"aten.add.Tensor is falling back to cpu ({reason})")


def test_what_fails_on_the_host_fails_alike() -> None:
    x = half(4, 64).to("spyre")
    with pytest.raises(IndexError, match="out of range"):
        x.index_select(0, torch.tensor([7], device="spyre"))
    with pytest.raises(RuntimeError, match="must match the size"):
        _ = x + half(3, 64).to("spyre")


OUT_OF_RANGE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_put": lambda x, i: x.index_put((i,), x[:1]),
    "index_put_": lambda x, i: x.index_put_((i,), x[:1]),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_an_index_out_of_range_is_told_as_the_host_tells_it(name: str) -> None:
    """It is no operator without a program, whatever is asked of such ones."""
    x, i = half(4, 64), torch.tensor([99])
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        OUT_OF_RANGE[name](x.clone(), i)
    ours = x.to("spyre")
    with config.patch(fallback="error"), pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        OUT_OF_RANGE[name](ours, i.to("spyre"))
    close(ours, x)


def test_what_is_refused_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One each, in the words in which the user has it."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    notices.forget()
    torch._dynamo.reset()
    x = torch.zeros(3, 64).half().to("spyre")
    linear = nn.Linear(64, 64).half().to("spyre")
    refused: dict[str, Callable[[], Any]] = {
        "has no program": lambda: torch.zeros(5, dtype=torch.float64, device="spyre").sin(),
        "a call that needs gradients": lambda: torch.compile(linear)(x),
        "unknown target 'nope'": lambda: torch.compile(lambda x: x + 1, backend="spyre", options={"target": "nope"})(x),
    }
    for number, (text, call) in enumerate(refused.items(), 1):
        with config.patch(fallback="error"), pytest.raises(Exception, match=text):
            call()
        report = failures.latest()
        assert report is not None
        assert text in report["failure"]["message"]
        assert len(list((tmp_path / "failures").iterdir())) == number


def test_nothing_to_compute() -> None:
    close(torch.zeros(0, 5).to("spyre") + 1, torch.zeros(0, 5))
    close(torch.zeros(0, 5).to("spyre").double().sin(), torch.zeros(0, 5).double())


def test_reasons_and_lines_of_what_falls_back(heard: list[str]) -> None:
    x = half(2, 2, 3, 3).to("spyre")
    weight = half(2, 2, 1, 1).to("spyre").requires_grad_()
    result = F.conv2d(x, weight).sum()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result.backward()
        _ = x.double() + 1
        torch.optim.SGD([weight], lr=0.1, fused=True).step()
    said = [w for w in caught if w.category is FallbackWarning]
    assert all(w.filename == __file__ for w in said)
    reasons = [str(w.message).partition(" (")[2][:20] for w in said]
    assert reasons == ["'aten.convolution_ba", "the chip has no floa", "programs give new te"]


@pytest.mark.filterwarnings("ignore:.*on expanded tensors is deprecated")
def test_writes_to_elements_that_share_their_place(heard: list[str]) -> None:
    """What the host still allows."""
    rows, mask, index = torch.zeros(1, 3).expand(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.tensor([0])
    ours = torch.zeros(1, 3).to("spyre").expand(2, 3)
    close(ours.masked_fill_(mask.to("spyre"), 2.0), rows.masked_fill_(mask, 2.0))
    close(ours.index_fill_(0, index.to("spyre"), 3.0), rows.index_fill_(0, index, 3.0))
    with pytest.raises(RuntimeError, match="single memory location"):
        ours.add_(1)
    reason = "falling back to cpu (elements of what it writes share their place)"
    heard += [f"aten.{name} is {reason}" for name in ("masked_fill_.Scalar", "index_fill_.int_Scalar")]


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_warnings_of_the_host_come_once(heard: list[str]) -> None:
    x, mask = torch.ones(3).to("spyre"), torch.tensor([1, 0, 1], dtype=torch.uint8).to("spyre")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert x[mask].tolist() == [1, 1]
    assert [w.category for w in caught] == [FallbackWarning, UserWarning]
    x.index_put_((mask,), x[mask], accumulate=True)
    heard.append("aten._index_put_impl_ is falling back to cpu (masks are of bool)")
    close(x, torch.tensor([2.0, 1.0, 2.0]))


def test_attention_of_mixed_types_is_refused_in_the_same_words() -> None:
    said = []
    for device in ("cpu", "spyre"):
        q, k, v = (torch.ones(1, 2, 3, 4, device=device, dtype=t) for t in (torch.float32, torch.float16, torch.bfloat16))
        with pytest.raises(RuntimeError) as refused:
            torch.nn.functional.scaled_dot_product_attention(q, k, v)
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_results_that_depend_on_what_is_in_operands(heard: list[str]) -> None:
    """The reason is in the words of the device, not the name of a class of torch's tracing."""
    scores = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    given = torch.tensor([[1, 2, 3], [3, 2, 1]]), torch.tensor([5, 5]), torch.tensor([3, 3])
    close(F.ctc_loss(scores.to("spyre"), given[0].to("spyre"), *given[1:]), F.ctc_loss(scores, *given))
    reason = "what is in its operands decides what its results are like, and programs are made without it"
    heard.append(f"aten._ctc_loss is falling back to cpu ({reason})")


def test_words_of_results_elsewhere() -> None:
    """As PyTorch's `test_sum_cpu_device_mismatch` has them for reductions, and its iterators for all else."""
    x, out = torch.ones(20, device="spyre"), torch.ones(1)
    with pytest.raises(RuntimeError, match="Expected out tensor to have device spyre:0, but got cpu instead"):
        torch.sum(x, dim=[0], dtype=torch.float32, out=out)
    with pytest.raises(
        RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices, spyre:0 and cpu!"
    ):
        torch.add(x, x, out=out)
