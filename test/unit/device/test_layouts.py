"""Layouts of tensors on the device: given, asked for, kept by values; weights that lie as matmuls want them from the first copy on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils import _pytree as pytree

from ktir import DataFormats, SpyreTensorLayout
from ktir.device import spyre
from ktir.device.tensors.storage import allocation_of
from ktir.runtime.memory.card import card
from ktir.runtime.time.steps import Step

OUTER = [[5, 3, 100, 64], [15000, 64, 150, 1]]
"""The published example of (5, 100, 150) with dim_order [1, 0, 2]."""


def layout(tensor: torch.Tensor) -> Any:
    return tensor.device_tensor_layout()  # type: ignore[attr-defined]


def in_layout(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.to(*args, **kwargs)


def relayouts() -> int:
    return card(0).statistics.moves["Relayout"][0]


def test_the_default_is_the_published_one() -> None:
    x = torch.ones(5, 100, 150, dtype=torch.float16, device="spyre")
    assert layout(x) == SpyreTensorLayout((5, 100, 150), torch.float16)
    assert layout(x) == SpyreTensorLayout([100, 3, 5, 64], [150, 64, 15000, 1], DataFormats.SEN169_FP16)
    assert layout(torch.ones((), device="spyre")).device_size == [1, 32]
    with pytest.raises(ValueError, match="expects a tensor on the device 'spyre', but got one on 'cpu'"):
        layout(torch.ones(3))
    with pytest.raises(ValueError, match="dtype float64 has no format on the device"):
        layout(torch.ones(3, dtype=torch.float64, device="spyre"))
    with pytest.raises(ValueError, match="got a part of one"):
        layout(x[1:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1, -1]])
def test_values_and_bytes(dtype: torch.dtype, order: list[int]) -> None:
    size = (5, 10, 70)
    x = (torch.arange(3500) % 2).reshape(size).to(dtype)
    wanted = SpyreTensorLayout(size, x.stride(), dtype, order)
    moved = relayouts()
    there = in_layout(x, "spyre", device_layout=wanted)
    assert layout(there) == wanted
    assert [form.size for form in allocation_of(there).forms.values()] == [wanted.bytes]
    assert not allocation_of(there).is_linear, "it lies nowhere else"
    assert relayouts() == moved, "the copy has arranged it"
    assert torch.equal(there.cpu(), x)
    assert torch.equal((there + there).cpu(), x + x)
    assert torch.equal(there.transpose(0, 2).cpu(), x.transpose(0, 2))
    there[2, 3] = 1
    assert there.sum().item() == x.sum().item() + (1 - x[2, 3]).sum().item()
    assert layout(there) == wanted, "it goes back to it"


def test_published_example() -> None:
    x = torch.randn(5, 100, 150, dtype=torch.float16)
    wanted = SpyreTensorLayout((5, 100, 150), x.stride(), torch.float16, [1, 0, 2])
    assert [wanted.device_size, wanted.stride_map] == OUTER
    there = in_layout(x, device_layout=wanted)
    assert there.device == torch.device("spyre:0")
    assert [layout(there).device_size, layout(there).stride_map] == OUTER
    assert in_layout(there, device_layout=wanted) is there
    other = in_layout(there, device_layout=SpyreTensorLayout((5, 100, 150), torch.float16))
    assert layout(there) == wanted != layout(other)
    assert torch.equal(other.cpu(), x)
    assert spyre.to_with_layout(there, layout(other)).device_tensor_layout() == layout(other)  # type: ignore[attr-defined]
    (carrier,) = (form.carrier for form in allocation_of(there).forms.values())
    assert torch.equal(torch.from_numpy(carrier.reshape(OUTER[0])[:, 1, :, :].copy()).half(), x[:, :, 64:128])


def test_arrangements_of_elements() -> None:
    x = torch.randn(3, 192, dtype=torch.float16)
    plain = SpyreTensorLayout((3, 192), torch.float16)
    wanted = SpyreTensorLayout(plain.device_size, plain.stride_map, plain.device_dtype, "FP32_TO_DL16")
    there = in_layout(x, "spyre", device_layout=wanted)
    assert torch.equal(there.cpu(), x)
    assert layout(there) == wanted


def test_new_tensors() -> None:
    wanted = SpyreTensorLayout((5, 100, 150), (15000, 150, 1), torch.float16, [1, 0, 2])
    like = torch.ones(1, dtype=torch.float16, device="spyre")
    made = [
        spyre.empty_with_layout((5, 100, 150), wanted, torch.float16),
        spyre.spyre_empty_with_layout((5, 100, 150), (15000, 150, 1), torch.float16, wanted),
        like.new_empty((5, 100, 150), device_layout=wanted),  # type: ignore[call-overload]
        like.new_empty_strided((5, 100, 150), (15000, 150, 1), device_layout=wanted),  # type: ignore[call-overload]
    ]
    for tensor in made:
        assert layout(tensor) == wanted
        tensor.fill_(3)
        assert (layout(tensor), tensor.sum(dtype=torch.float32).item()) == (wanted, 225000)


@pytest.mark.parametrize(
    ("tensor", "wanted", "message"),
    [
        (torch.ones(3, 64).half(), SpyreTensorLayout((3, 64), "float32"), "expects a layout of DataFormats.SEN169_FP16 for a tensor of"),
        (torch.ones(3, 65).half(), SpyreTensorLayout((3, 64), "float16"), "does not hold a host tensor|no step along"),
        (torch.ones(3, 64).double(), SpyreTensorLayout((3, 64), "float32"), "tensors of torch.float64 lie as on the host"),
        (
            torch.tensor([2**40]),
            SpyreTensorLayout((1,), "int64"),
            "'device_layout' expects integers of -2147483648 to 2147483647, but has 1099511627776",
        ),
    ],
)
def test_layouts_that_do_not_fit(tensor: torch.Tensor, wanted: SpyreTensorLayout, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        in_layout(tensor, "spyre", device_layout=wanted)
    with pytest.raises(ValueError, match="device_layout is for tensors on the device 'spyre', but got device 'cpu'"):
        in_layout(tensor, "cpu", device_layout=wanted)


def test_what_has_no_layout_is_refused() -> None:
    wanted = SpyreTensorLayout((3,), torch.float16)
    host, ours = torch.ones(3).half(), torch.ones(3, dtype=torch.float16, device="spyre")
    for call in (
        lambda: spyre.set_spyre_tensor_layout(host, wanted),
        lambda: spyre.empty_with_layout((3,), wanted, torch.float16, device="cpu"),
        lambda: host.new_empty((3,), device_layout=wanted),  # type: ignore[call-overload]
        lambda: spyre.get_spyre_tensor_layout(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"expects a tensor on the device 'spyre', but got (one on 'cpu'|None)"):
            call()
    for other in ("STANDARD", {}, 3):
        with pytest.raises(ValueError, match="expects a SpyreTensorLayout, but got "):
            in_layout(ours, device_layout=other)
    integers = in_layout(torch.arange(3), "spyre", device_layout=SpyreTensorLayout((3,), torch.int64))
    integers[1] = 1 << 40
    assert integers.tolist() == [0, 1 << 40, 2]
    with pytest.raises(ValueError, match="'device_layout' expects integers of -2147483648 to 2147483647, but has 1099511627776"):
        layout(integers)
    integers[1] = 1
    assert layout(integers) == SpyreTensorLayout((3,), torch.int64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_lie_as_matmuls_want_them(dtype: torch.dtype, on_chip: None) -> None:
    first, last = torch.nn.Linear(96, 70), torch.nn.Linear(70, 200, bias=False)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), last).to(dtype).eval()
    x = torch.randn(5, 96, dtype=dtype)
    with torch.no_grad():
        expected = torch.compile(model, backend="spyre")(x)
    steps: list[Step] = []
    card(0).observers.append(steps.append)
    try:
        model.to("spyre")
        assert [s.kind for s in steps] == ["H2D"] * 3, "the copies arrange"
        assert not any(allocation_of(m.weight).is_linear for m in (first, last))
        assert layout(first.weight).stride_map[-1] == (1 if dtype == torch.float32 else 96)
        there = x.to("spyre")
        with torch.no_grad():
            got = torch.compile(model)(there)
    finally:
        card(0).observers.remove(steps.append)
    assert torch.equal(got.cpu(), expected)
    small = [s.nbytes for s in steps if s.kind == "Relayout"]
    assert len(small) == 2, "the bias and x are arranged"
    assert max(small) < 2 * 96 * 70
    model.to("cpu")
    assert first.weight.device.type == "cpu"


def test_layouts_that_compiled_code_requires(on_chip: None) -> None:
    x, w = torch.randn(128, 96).half(), torch.randn(96, 512).half()
    published = [1, 8, 128, 64], [65536, 64, 512, 1]

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x @ w)
        return spyre.require_layout(y, *published), y.sum(-1)

    with pytest.raises(RuntimeError, match=r"require_layout is for compiled code; use x.to\(device_layout=layout\)"):
        f(x.to("spyre"), w.to("spyre"))
    with torch.no_grad():
        expected = torch.compile(lambda x, w: torch.relu(x @ w), backend="spyre")(x, w)
        for compiled in (torch.compile(f, fullgraph=True), torch.compile(f, backend="spyre")):
            got, sums = compiled(x.to("spyre"), w.to("spyre"))
            assert layout(got) == SpyreTensorLayout(*published, DataFormats.SEN169_FP16)
            assert next(iter(allocation_of(got).forms)).layout.device_size == (1, 8, 128, 64)
            assert torch.equal(got.cpu(), expected)
            torch.testing.assert_close(sums.cpu(), expected.sum(-1), atol=0.5, rtol=1e-2)


def refused(x: torch.Tensor, case: str) -> torch.Tensor:
    size, strides = [1, 4, 64], [64, 64, 1]
    if case == "an input":
        return spyre.require_layout(x, size, strides)
    y = x + 1
    if case == "not returned":
        return spyre.require_layout(y, size, strides) * 2
    if case == "two":
        return spyre.require_layout(spyre.require_layout(y, size, strides), [4, 64], [64, 1])
    if case == "integers":
        return spyre.require_layout(y.int(), size, strides)
    if case == "several lengths":
        return spyre.require_layout(y, size, [64, 1])
    return spyre.require_layout(y, [2, 64], [64, 1])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("an input", "it is no such result; nearest supported form: layouts of results that the compiled function"),
        ("not returned", "it is no such result"),
        ("two", "it is wanted in two layouts"),
        ("integers", "dtype int32 is not supported: it is for float16, bfloat16 and float32"),
        ("several lengths", "nearest supported form: device_size [1, 4, 64] and stride_map [64, 64, 1]"),
        ("another", "elements have not one place; nearest supported form: device_size [1, 4, 64] and stride_map [64, 64, 1]"),
    ],
)
@pytest.mark.parametrize("backend", ["inductor", "spyre"])
def test_layouts_that_cannot_be_required(
    case: str, message: str, backend: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """One error with the user's line and a way out, behind the user's frames and the one in which Dynamo hands it on; nothing logged."""
    torch._dynamo.reset()
    x = torch.ones(4, 64, dtype=torch.float16, device="spyre")
    with torch.no_grad(), pytest.raises(BackendCompilerFailed) as raised:
        torch.compile(refused, fullgraph=True, backend=backend)(x, case)
    first = refused.__code__.co_firstlineno
    text = str(raised.value)
    assert message in text
    assert any(f"{__file__}:{line}:1: error: 'spyre.require_layout' op of" in text for line in range(first, first + 16)), text
    assert [Path(entry.path).name for entry in raised.traceback][1:] == ["eval_frame.py"]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_programs_take_inputs_as_they_lie(order: list[int], on_chip: None) -> None:
    x = torch.randn(128, 192).half()
    wanted = SpyreTensorLayout(x.size(), x.stride(), x.dtype, order)
    there = in_layout(x, "spyre", device_layout=wanted)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    torch._dynamo.reset()
    before = relayouts()
    with torch.no_grad():
        got = torch.compile(f)(there)
    assert relayouts() == before, "x lies as the program wants it"
    assert torch.equal(got.cpu(), torch.relu(x) * 2)
    assert layout(got) == wanted, "and so does what it gives"


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: x.sum(-1),
        lambda x, w: (x * x).sum(0),
        lambda x, w: torch.softmax(x, -1),
        lambda x, w: torch.relu(x @ w) + 1,
        lambda x, w: (w.t() @ x.t(), x.t().contiguous()),
        lambda x, w: x[torch.arange(0, 128, 3, device=x.device)] - 1,
    ],
)
def test_values_however_inputs_lie(f: Any, on_chip: None) -> None:
    x, w = torch.randn(128, 192).half(), torch.randn(192, 70).half() / 16
    expected = f(x.float(), w.float())
    for order in ([0, 1], [1, 0], [0, 1, -1]):
        torch._dynamo.reset()
        there = [in_layout(t, "spyre", device_layout=SpyreTensorLayout(t.size(), t.stride(), t.dtype, order)) for t in (x, w)]
        with torch.no_grad():
            got = pytree.tree_map(lambda t: t.cpu().float(), torch.compile(f)(*there))
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=4e-3)
